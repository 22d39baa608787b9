"""The rules of the policy file, compiled to constraint payloads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from cmbs.documents.fields import FieldReader
from cmbs.documents.findings import Fix, Path, Rule
from cmbs.documents.nodes import Fields, Items, Node, Scalar, ScalarKind, describe_kind, to_data
from cmbs.documents.scalar_places import DocumentText
from cmbs.ledger import canonical
from cmbs.substrate.kernel.policy.cel import Condition, ConditionTranslator
from cmbs.substrate.kernel.policy.cel_syntax import MAX_CONDITION_CHARACTERS, ConditionFault, Span
from cmbs.substrate.kernel.policy.references import NEWEST
from cmbs.substrate.kernel.policy.source_map import WrittenPart

MAX_TOOLS_PER_RULE = 500
EVERYTHING = "*"
STATE = "state"

NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_NAME = re.compile(NAME_PATTERN)
_SHORT = {"allow": False, "deny": False, **dict.fromkeys(("name", "when", "otherwise", "because", "mode"), False)}
_PAYLOAD = dict.fromkeys(("v", "effect", "subject", "when", "on_fail", "reason", "mode", "name"), False)
_IS_STATE = {"op": "missing", "args": ["$tool.id"]}


class PolicyRule(StrEnum):
    """What a policy file may break beside the rules of any document."""

    CONDITION = "condition"
    NAME_TWICE = "name-twice"
    MALFORMED = "malformed"


class Otherwise(StrEnum):
    """What happens where a rule does not let something through."""

    BLOCK = "block"
    ASK = "ask"
    DEFER = "defer"


class RuleMode(StrEnum):
    """Whether a rule decides, or only records what it would have done."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


class Written(NamedTuple):
    """A part of the file and the text of its pair."""

    text: str
    part: WrittenPart


class RuleReader:
    """Reads rules and invariants; what is wrong goes to the reader of the whole file."""

    def __init__(self, reader: FieldReader, name: str, text: DocumentText) -> None:
        self._reader = reader
        self._name = name
        self._text = text
        self._conditions = ConditionTranslator()

    def read(self, node: Node, path: Path, number: int) -> Written | None:
        """The rule at this place; None, and findings, where it is none. Without a name it is named by its number."""
        written = {field.text for field, _ in node.entries} if isinstance(node, Fields) else set()
        is_payload = bool(written & {"v", "effect", "subject"})
        fields = self._reader.read_fields(node, path, _PAYLOAD if is_payload else _SHORT)
        if fields is None:
            return None
        name = self._read_name(fields.get("name"), path, number)
        if name is None:
            return None
        if is_payload:
            return self._take_payload(node, fields, name)
        return self._compile(node, fields, path, name)

    def read_invariant(self, name: str, node: Node, path: Path) -> Written | None:
        """An invariant: a condition, or a predicate as it is."""
        if isinstance(node, Fields):
            return Written(_encode(to_data(node, self._name)), WrittenPart(name, node))
        condition = self._read_condition(node, path)
        if condition is None or not isinstance(node, Scalar):
            return None
        spans = {f"when{below}": span for below, span in condition.spans.items()}
        part = WrittenPart(name, node, condition=node, spans=spans)
        return Written(_encode({"v": NEWEST, "when": condition.predicate}), part)

    def _read_name(self, node: Node | None, path: Path, number: int) -> str | None:
        if node is None:
            return f"rule-{number:03}"
        name = self._reader.read_text(node, (*path, "name"))
        if name is not None and _NAME.fullmatch(name) is None:
            message = "must be up to 128 letters, digits or `._-`, the first a letter or digit"
            self._reader.refuse_value(Rule.WRONG_TYPE, message, (*path, "name"), node.place)
            return None
        return name

    def _take_payload(self, node: Node, fields: Mapping[str, Node], name: str) -> Written:
        payload = {field: to_data(value, self._name) for field, value in fields.items() if field != "name"}
        return Written(_encode(payload), WrittenPart(name, node))

    # --- the short form ---

    def _compile(self, node: Node, fields: Mapping[str, Node], path: Path, name: str) -> Written | None:
        reader = self._reader
        effects = [each for each in ("allow", "deny") if each in fields]
        if len(effects) != 1:
            reader.refuse_value(Rule.MISSING_FIELD, "must have one of `allow` and `deny`", path, node.place)
            return None
        about = fields[effects[0]]
        subject = self._read_subject(about, (*path, effects[0]))
        when = self._read_condition(fields.get("when"), (*path, "when"))
        otherwise = reader.read_word(fields.get("otherwise"), (*path, "otherwise"), Otherwise)
        reason = reader.read_text(fields.get("because"), (*path, "because"))
        mode = reader.read_word(fields.get("mode"), (*path, "mode"), RuleMode)
        if subject is None or (when is None and "when" in fields):
            return None
        if subject.is_state and effects[0] == "allow" and otherwise not in {None, Otherwise.BLOCK}:
            # As a constraint it is about everything, so that calls which nothing allows would ask or wait for it.
            message = (
                "cannot be other than `block` where state is allowed: deny it under the opposite condition instead"
            )
            reader.refuse_value(Rule.UNKNOWN_WORD, message, (*path, "otherwise"), fields["otherwise"].place)
            return None
        payload: dict[str, Any] = {"v": NEWEST, "effect": effects[0], "subject": subject.payload}
        predicate, spans = _predicate_of(subject, when)
        optional = {
            "when": predicate,
            "on_fail": None if otherwise is None else otherwise.value,
            "reason": reason,
            "mode": mode.value if mode is RuleMode.OBSERVE else None,
        }
        payload |= {field: value for field, value in optional.items() if value is not None}
        renamed = {"subject": about, "effect": about}
        renamed |= {to: fields[of] for to, of in (("on_fail", "otherwise"), ("reason", "because")) if of in fields}
        condition = fields.get("when")
        part = WrittenPart(name, node, renamed, condition if isinstance(condition, Scalar) else None, spans)
        return Written(_encode(payload), part)

    def _read_subject(self, node: Node, path: Path) -> _Subject | None:
        """What a rule is about: tools, a capability, the state, or everything."""
        match node:
            case Scalar(kind=ScalarKind.TEXT, text=str(text)) if text:
                if text == STATE:
                    return _Subject(None, is_state=True)
                return _Subject(None if text == EVERYTHING else {"tool_id": text})
            case Scalar(kind=ScalarKind.NULL, text="null" | "~"):
                return _Subject(None)
            case Items():
                return self._read_tools(node, path)
            case Fields():
                fields = self._reader.read_fields(node, path, {"tool": False, "capability": False})
                if fields is not None and len(fields) == 1:
                    ((kind, value),) = fields.items()
                    name = self._reader.read_text(value, (*path, kind))
                    return None if name is None else _Subject({"tool_id" if kind == "tool" else kind: name})
                message = "must be `{tool: …}` or `{capability: …}` where it is a mapping"
            case _:
                message = (
                    f'must be a tool, a list of tools, `{STATE}` or `"{EVERYTHING}"`, and is {describe_kind(node)}'
                )
        self._reader.refuse_value(Rule.WRONG_TYPE, message, path, node.place)
        return None

    def _read_tools(self, node: Items, path: Path) -> _Subject | None:
        names = []
        for place, item in self._reader.read_items(node, path, MAX_TOOLS_PER_RULE):
            name = self._reader.read_text(item, place)
            if name in {EVERYTHING, STATE}:
                message = f"cannot be `{name}` in a list: write a rule of its own"
                self._reader.refuse_value(Rule.UNKNOWN_WORD, message, place, item.place)
            elif name is not None:
                names.append(name)
        if not node.items:
            self._reader.refuse_value(Rule.WRONG_TYPE, "names no tool", path, node.place)
        return _Subject({"tool_id": names}) if names and len(names) == len(node.items) else None

    def _read_condition(self, node: Node | None, path: Path) -> Condition | None:
        text = self._reader.read_text(node, path, limit=MAX_CONDITION_CHARACTERS)
        if text is None or node is None:
            return None
        try:
            return self._conditions.translate(text)
        except ConditionFault as exc:
            place = self._text.locate(node.place, text, exc.index)
            fix = None
            if exc.fix is not None:
                start = self._text.locate(node.place, text, exc.fix.start)
                fix = Fix(start, exc.fix.found, exc.fix.accepted)
            self._reader.refuse(PolicyRule.CONDITION, f"{self._reader.describe(path)}: {exc}", path, place, fix)
            return None


class _Subject(NamedTuple):
    """What a rule is about, as a payload has it; the state has no subject of its own there."""

    payload: dict[str, Any] | None
    is_state: bool = False


def _predicate_of(subject: _Subject, when: Condition | None) -> tuple[dict[str, Any] | None, dict[str, Span]]:
    """The predicate of a rule, and what its parts were written as."""
    at = "when"
    predicate = None if when is None else when.predicate
    if subject.is_state:
        at = "when.args[1]"
        predicate = _IS_STATE if predicate is None else {"op": "all", "args": [_IS_STATE, predicate]}
    spans = {} if when is None else {at + below: span for below, span in when.spans.items()}
    return predicate, spans


def _encode(content: Any) -> str:
    return canonical.encode(content).decode()
