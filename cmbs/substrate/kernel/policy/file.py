"""The policy file: what people write, compiled to the pairs that decide.

One format for commands, HTTP, tests and examples, in YAML or JSON::

    format: 2
    title: who may restart what
    tools: [{tool_id: service.restart}]
    rules:
      - name: restart_when_known            # constraint.restart_when_known; without a name, constraint.rule-001
        allow: service.restart              # or deny; a tool, a list, a pattern, `state`, `"*"`, {capability: …}
        when: case.belief.n_survivors == 1  # a condition; see cmbs.substrate.kernel.policy.cel
        otherwise: defer                    # block, ask or defer
        because: only what is known to be the cause
      - {v: 1, effect: deny, subject: null, when: {op: missing, args: [fact.owner]}}   # a payload as it is
    invariants: {source_is_named: has(fact.source)}
    exclusive: {posture: [goal.rollback, goal.roll_forward]}
    degrade: {service.restart: {tool_id: service.drain}}
    forward: {service.restart: [_meta.ticket]}
    schemas: {…}
    values: {…}
    private: [fact.customer]
    memory: {confidence_threshold: 0.8}
    given: {…}
    tests: […]

The same file always gives the same pairs, and nothing but the pairs
decides: a file is compiled before its policy is recorded, and never again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from cmbs.documents.fields import FieldReader, TooManyFindings
from cmbs.documents.findings import Finding, InvalidDocument, Path, Place, Rule, sort_by_place
from cmbs.documents.nodes import MAX_BYTES, Fields, Node, Scalar, ScalarKind, describe_kind, go_on, to_data
from cmbs.documents.scalar_places import DocumentText
from cmbs.documents.text import decode_text, is_json
from cmbs.documents.text import read_document as read_text
from cmbs.errors import InvalidRequest
from cmbs.ledger import canonical
from cmbs.substrate.kernel.events import MediaType, PolicySource
from cmbs.substrate.kernel.insight.findings import Origin
from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.policy.documents import Given, KnownTool, PolicyTest, decode_node
from cmbs.substrate.kernel.policy.policy import (
    CONSTRAINT,
    DEGRADE,
    EXCLUSIVE,
    FORWARD,
    INVARIANT,
    MAX_PAIRS,
    PRIVATE,
    SCHEMA,
    THRESHOLD,
    VALUE,
    PolicyFault,
)
from cmbs.substrate.kernel.policy.rules import PolicyRule, RuleReader, Written
from cmbs.substrate.kernel.policy.source_map import SourceMap, WrittenPart

FORMAT = 2
MAX_TESTS = 10_000
_SECTIONS = ("rules", "invariants", "exclusive", "degrade", "forward", "schemas", "values", "private", "memory")
_FIELDS = {"format": True, **dict.fromkeys(("title", "tools", "given", "tests", *_SECTIONS), False)}
# The maps of the file whose values are taken as they are, and what their keys begin with.
_PREFIXES = {"exclusive": EXCLUSIVE, "degrade": DEGRADE, "forward": FORWARD, "schemas": SCHEMA, "values": VALUE}
_NAMED = {"invariants": INVARIANT, **_PREFIXES}
# The names under which a file is read that came without one.
FILE_NAMES = {MediaType.YAML: "policy.yaml", MediaType.JSON: "policy.json"}
D = TypeVar("D")


class CompiledPolicy(NamedTuple):
    """A policy file, compiled: the pairs that decide, and what else it says.

    `tools` are those that it is about, None where it does not say. `source_map` leads from the pairs back to the file.
    """

    title: str
    pairs: dict[str, str]
    tools: tuple[Tool, ...] | None
    given: Given
    tests: tuple[PolicyTest, ...]
    source_map: SourceMap


def compile_file(data: bytes, name: str, pause: Callable[[], object] = go_on) -> CompiledPolicy:
    """Compile the policy file of this name; `InvalidDocument` has everything that is wrong, each with its place.

    What a payload holds is not examined here: `validate_policy` does that to the pairs, and `locate_faults` says where
    in the file its faults are. `pause` is called after every rule and every few values, so that other threads of a
    server have their turns.
    """
    node = read_text(data, name, pause)
    text = decode_text(data, MAX_BYTES)
    reader = _FileReader(name, DocumentText(text, is_json=is_json(text, name)), pause)
    compiled = None
    try:
        compiled = reader.read(node)
    except TooManyFindings:
        pass
    except InvalidDocument as exc:
        # A number that is not exact: what follows it is not read.
        reader.findings += exc.findings
    if reader.findings or compiled is None:
        raise InvalidDocument(name, sort_by_place(reader.findings))
    return compiled


def map_source(source: PolicySource) -> SourceMap | None:
    """The way back into a recorded file; None where it is not one that is read."""
    try:
        return compile_file(source.text.encode(), FILE_NAMES[source.media_type]).source_map
    except InvalidDocument:
        return None


def as_payloads(compiled: CompiledPolicy) -> dict[str, Any]:
    """A compiled policy as the data of a file: the payloads that decide, and nothing else."""
    title = {"title": compiled.title} if compiled.title else {}
    return {"format": FORMAT, **title, **sections_of(compiled.pairs)}


def sections_of(pairs: Mapping[str, str]) -> dict[str, Any]:
    """The sections of a file that is compiled to these pairs, their payloads as they are."""
    sections: dict[str, Any] = {}
    for key, text in pairs.items():
        value = _as_data(text)
        if key.startswith(CONSTRAINT):
            sections.setdefault("rules", []).append({"name": key.removeprefix(CONSTRAINT), **value})
        elif key == PRIVATE:
            sections["private"] = value
        elif key == THRESHOLD:
            sections["memory"] = {"confidence_threshold": canonical.decode(text)}
        else:
            section, prefix = next(each for each in _NAMED.items() if key.startswith(each[1]))
            sections.setdefault(section, {})[key.removeprefix(prefix)] = value
    return sections


def _as_data(text: str) -> Any:
    """The JSON of a value, where the value is its canonical text; of numbers and the like, the text is kept."""
    if text[:1] in {"{", "["}:
        with suppress(InvalidRequest):
            data = canonical.decode(text)
            return data if canonical.encode(data).decode() == text else text
    return text


def locate_faults(faults: list[PolicyFault], source_map: SourceMap) -> list[Finding]:
    """Faults of a compiled policy as findings in its file, in the order of the text."""
    findings = []
    for fault in faults:
        origin = source_map.find(fault.key, fault.at)
        message = describe_origin(fault.message, origin, fault.key)
        place = None if origin is None else Place(origin.line, origin.column)
        findings.append(Finding(PolicyRule.MALFORMED, message, place=place))
    return sort_by_place(findings)


def describe_origin(message: str, origin: Origin | None, key: str) -> str:
    """A message about a key, with the name that the key has in the file."""
    return f"`{origin.rule if origin is not None else key}`: {message}" if key else message


class _FileReader(FieldReader):
    """Reads a file in one go, and collects what is wrong with it."""

    def __init__(self, name: str, text: DocumentText, pause: Callable[[], object]) -> None:
        super().__init__("the policy file")
        self._pause = pause
        self._name = name
        self._text = text
        self._pairs: dict[str, str] = {}
        self._parts: dict[str, WrittenPart] = {}

    def read(self, node: Node) -> CompiledPolicy | None:
        fields = self.read_fields(node, (), _FIELDS) if self._has_format(node) else None
        if fields is None:
            return None
        title = self.read_text(fields.get("title"), ("title",)) or ""
        tools = self._decode_items(fields, "tools", MAX_PAIRS, KnownTool)
        self._read_sections(fields)
        given = self._decode(fields["given"], ("given",), Given) if "given" in fields else Given()
        tests = self._decode_items(fields, "tests", MAX_TESTS, PolicyTest) or ()
        known = None if tools is None else tuple(each.to_tool() for each in tools)
        source_map = SourceMap(self._text, self._parts)
        return CompiledPolicy(title, self._pairs, known, given or Given(), tests, source_map)

    def _has_format(self, node: Node) -> bool:
        """Whether the file says that it is of the one format; a finding where it does not."""
        entries = {field.text: value for field, value in node.entries} if isinstance(node, Fields) else {}
        found = entries.get("format")
        if isinstance(found, Scalar) and found.kind is ScalarKind.NUMBER and found.text == str(FORMAT):
            return True
        place = node.place if found is None else found.place
        message = f"begins with `format: {FORMAT}`; there is no other"
        self.refuse_value(Rule.MISSING_FIELD if found is None else Rule.UNKNOWN_WORD, message, (), place)
        return False

    def _read_sections(self, fields: Mapping[str, Node]) -> None:
        rules = RuleReader(self, self._name, self._text)
        listed = self.read_items(fields["rules"], ("rules",), MAX_PAIRS) if "rules" in fields else ()
        for number, (path, node) in enumerate(listed, start=1):
            self._pause()
            written = rules.read(node, path, number)
            if written is not None:
                self._add(CONSTRAINT + written.part.rule, written, node.place)
        for name, node in self._read_map(fields, "invariants"):
            written = rules.read_invariant(f"invariants.{name}", node, ("invariants", name))
            if written is not None:
                self._add(INVARIANT + name, written, node.place)
        for section, prefix in _PREFIXES.items():
            for name, node in self._read_map(fields, section):
                self._take_value(prefix + name, node, f"{section}.{name}")
        if "private" in fields:
            self._take_value(PRIVATE, fields["private"], "private")
        if "memory" in fields:
            memory = self.read_fields(fields["memory"], ("memory",), {"confidence_threshold": True})
            if memory is not None:
                self._take_value(THRESHOLD, memory["confidence_threshold"], "memory.confidence_threshold")

    def _read_map(self, fields: Mapping[str, Node], section: str) -> Iterator[tuple[str, Node]]:
        """The names and values of a section, if it is there."""
        node = fields.get(section)
        if isinstance(node, Fields):
            yield from ((name.text, value) for name, value in node.entries)
        elif node is not None:
            message = f"must have names and values, and is {describe_kind(node)}"
            self.refuse_value(Rule.WRONG_TYPE, message, (section,), node.place)

    def _take_value(self, key: str, node: Node, rule: str) -> None:
        """A value that is taken as it is: a text, or the canonical JSON of anything else."""
        data = to_data(node, self._name)
        text = data if isinstance(data, str) else canonical.encode(data).decode()
        self._add(key, Written(text, WrittenPart(rule, node)), node.place)

    def _add(self, key: str, written: Written, place: Place) -> None:
        if key in self._pairs:
            message = f"the name `{written.part.rule}` is there twice; give one of the two another"
            self.refuse(PolicyRule.NAME_TWICE, message, (), place)
            return
        self._pairs[key] = written.text
        self._parts[key] = written.part

    def _decode(self, node: Node, path: Path, kind: type[D]) -> D | None:
        try:
            return decode_node(node, self._name, kind)
        except InvalidDocument as exc:
            for each in exc.findings:
                self.refuse_value(each.rule, each.message, path, each.place or node.place)
            return None

    def _decode_items(
        self, fields: Mapping[str, Node], section: str, limit: int, kind: type[D]
    ) -> tuple[D, ...] | None:
        if section not in fields:
            return None
        decoded = [self._decode(node, path, kind) for path, node in self.read_items(fields[section], (section,), limit)]
        return tuple(each for each in decoded if each is not None)
