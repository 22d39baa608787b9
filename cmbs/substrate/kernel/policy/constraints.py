"""The constraint payload of SS-01, versions 1 and 2: parsed strictly, compiled once. What cannot be read denies."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from cmbs.errors import BeliefServerError
from cmbs.ledger import canonical
from cmbs.substrate.kernel.model import Failure
from cmbs.substrate.kernel.policy.predicates import Predicate, PredicateFault, Schemas, compile_predicate
from cmbs.substrate.kernel.policy.references import NEWEST
from cmbs.substrate.kernel.policy.subjects import EVERYTHING, Subject, read_subject, read_wider_subject

MAX_CONSTRAINT_BYTES = 65_536
MAX_CONSTRAINT_DEPTH = 32
MAX_CONSTRAINT_NODES = 1_000
MAX_REASON_CHARACTERS = 1_000

_REQUIRED = ("v", "effect", "subject")
_FIELDS = {
    1: frozenset({*_REQUIRED, "when", "on_fail", "reason"}),
    2: frozenset({*_REQUIRED, "when", "on_fail", "reason", "mode"}),
}


class Effect(StrEnum):
    """What a constraint does where its `when` holds."""

    ALLOW = "allow"
    DENY = "deny"


class Constraint(NamedTuple):
    """A constraint that can be evaluated; `when` is None where it always applies.

    One that only observes decides nothing: whether it holds is in the trace.
    """

    key: str
    effect: Effect
    subject: Subject
    on_fail: Failure
    when: Predicate | None
    reason: str | None
    observes: bool = False


class Malformed(NamedTuple):
    """A constraint that cannot: it denies whatever its subject may concern. `at` and `message` say what is wrong."""

    key: str
    subject: Subject
    at: str
    message: str


Compiled: TypeAlias = Constraint | Malformed

# The strictest first: where several constraints are against something, this order decides what happens.
STRICTNESS: dict[Failure, int] = {failure: place for place, failure in enumerate(Failure)}
_ON_FAIL = {failure.value: failure for failure in (Failure.BLOCK, Failure.ASK, Failure.DEFER)}


class PayloadFault(ValueError):
    """A payload that is not as it should be; `at` is the place, empty for the whole."""

    def __init__(self, at: str, message: str) -> None:
        super().__init__(message)
        self.at = at


def compile_constraint(key: str, text: str, schemas: Schemas) -> Compiled:
    """Compile the value of a `constraint.*` key. Total: what is wrong with it becomes part of the answer."""
    subject = EVERYTHING
    try:
        content = decode_payload(text)
        subject = _subject(content)
        return _constraint(key, subject, content, schemas)
    except (PayloadFault, PredicateFault) as exc:
        return Malformed(key, subject, exc.at, str(exc))


def decode_payload(text: str) -> Any:
    """A JSON payload of a policy, within the bounds of one; PayloadFault where it is not."""
    # Every character has a byte at least, so that a huge one is not even encoded.
    if len(text) > MAX_CONSTRAINT_BYTES or len(text.encode(errors="replace")) > MAX_CONSTRAINT_BYTES:
        raise PayloadFault("", f"more than {MAX_CONSTRAINT_BYTES} bytes")
    try:
        content = canonical.decode(text)
    except BeliefServerError as exc:
        raise PayloadFault("", exc.message) from exc
    _refuse_size(content)
    return content


def _refuse_size(content: Any) -> None:
    nodes, level = 0, [content]
    for _ in range(MAX_CONSTRAINT_DEPTH):
        nodes += len(level)
        if nodes > MAX_CONSTRAINT_NODES:
            raise PayloadFault("", f"more than {MAX_CONSTRAINT_NODES} values in it")
        level = [below for value in level for below in _inside(value)]
        if not level:
            return
    raise PayloadFault("", f"nested more than {MAX_CONSTRAINT_DEPTH} deep")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _subject(content: Any) -> Subject:
    if not isinstance(content, dict):
        raise PayloadFault("", "a constraint is a JSON object")
    if "subject" not in content:
        raise PayloadFault("subject", "`subject` is required; null means everything")
    read = read_wider_subject if version_of(content) == NEWEST else read_subject
    subject = read(content["subject"])
    if subject is None:
        raise PayloadFault("subject", '`subject` is {"tool_id": …}, {"capability": …} or null')
    return subject


def version_of(content: dict[str, Any]) -> int | None:
    """The version that a payload says it is of; None where there is no such version."""
    version = content.get("v")
    # True is an int to Python, and equal to 1.
    if isinstance(version, bool) or not isinstance(version, int | float) or version not in _FIELDS:
        return None
    return int(version)


def _constraint(key: str, subject: Subject, content: dict[str, Any], schemas: Schemas) -> Constraint:
    version = version_of(content)
    for field in content:
        if field not in _FIELDS[version or 1]:
            raise PayloadFault(field, f"unknown field `{field}`")
    for field in _REQUIRED:
        if field not in content:
            raise PayloadFault(field, f"`{field}` is required")
    if version is None:
        raise PayloadFault("v", f"the versions are {' and '.join(map(str, _FIELDS))}")
    effect = _one_of(content, "effect", ("allow", "deny"))
    on_fail = _one_of(content, "on_fail", tuple(_ON_FAIL), "block")
    mode = _one_of(content, "mode", ("enforce", "observe"), "enforce")
    reason = content.get("reason")
    if "reason" in content and (not isinstance(reason, str) or len(reason) > MAX_REASON_CHARACTERS):
        raise PayloadFault("reason", f"`reason` is text of at most {MAX_REASON_CHARACTERS} characters")
    when = compile_predicate(content["when"], schemas, version=version) if "when" in content else None
    return Constraint(key, Effect(effect), subject, _ON_FAIL[on_fail], when, reason, mode == "observe")


def _one_of(content: dict[str, Any], field: str, words: tuple[str, ...], absent: str | None = None) -> str:
    word = content.get(field, absent)
    if not isinstance(word, str) or word not in words:
        raise PayloadFault(field, f"`{field}` is {', '.join(words[:-1])} or {words[-1]}")
    return word
