"""What a predicate may read: keys of the state, fields of their JSON, the args, the tool, the actor, the belief plane,
and the case of the proposal.

A reference is taken apart once, when its constraint is compiled. Reading one never fails: what is not there is MISSING.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Any, Final, TypeAlias

import msgspec

from cmbs.core import entropy
from cmbs.errors import BeliefServerError
from cmbs.ledger import canonical
from cmbs.messages import Actor, UnknownIndependence
from cmbs.substrate.kernel.model import MAX_READ_CONCLUSIONS, NAMESPACES, BeliefReading

# The newest version of constraint payloads; each has the references of all before it.
NEWEST = 2
MAX_REFERENCE_CHARACTERS = 512
MAX_SEGMENTS = 32
# The version of constraint payloads that brought references to cases.
CASES_SINCE_PAYLOAD = 2
# What a JSON text can begin with. Most values are plain words, which this tells without an attempt to parse them.
_JSON_STARTS = frozenset('{["-0123456789tfn \t\r\n')


class Missing(Enum):
    """The type of what was not found. An enumeration of one, so that `is` tells it from every JSON value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class CaseUse(IntEnum):
    """How much of its proposal's case something reads; whatever needs more needs the case itself too."""

    NONE = 0
    RECORD = 1
    BELIEF = 2
    # Also what would be left without the eliminations of the actor whose proposal it is.
    INDEPENDENT = 3


class CaseContext(msgspec.Struct, frozen=True):
    """The case that a candidate is judged in: one that is open, and that its actor may act under."""

    # Also the id of its belief session.
    case_id: str
    # JSON text, as it was recorded.
    attributes: str
    # The actor whose proposal it is.
    actor_id: str


class EvaluationContext(msgspec.Struct, frozen=True):
    """Everything that the predicates of one candidate can see.

    `args` is the decoded args of a call, or `{"set": …, "unset": …}` of a delta, which has no `tool_id`. Invariants are
    about no candidate, and have no actor. `tool_writes` is what the registration of the tool says; None where there is
    no such tool.
    """

    state: Mapping[str, str]
    belief: Mapping[str, BeliefReading]
    actor: Actor | None
    args: Any = MISSING
    tool_id: str | None = None
    case: CaseContext | None = None
    tool_writes: bool | None = None
    # A large value takes milliseconds to parse, and any number of constraints may be about it.
    parsed: dict[str, Any] = msgspec.field(default_factory=dict)

    def value_of(self, text: str) -> Any:
        """What a state value says, parsed once for this candidate."""
        if text not in self.parsed:
            self.parsed[text] = value_of(text)
        return self.parsed[text]


Finder: TypeAlias = Callable[[EvaluationContext], Any]
UntoldFinder: TypeAlias = Callable[[EvaluationContext], str | None]


class ReferenceFault(ValueError):
    """The text is no reference."""


class Reference:
    """A compiled reference. `find` gives its JSON value or MISSING.

    `find_text` gives the text under a whole key, where the reference could be one: a text that happens to look like
    JSON is still equal to itself. `keys` are the state keys that decide what is found, `session_id` the belief session,
    `case_use` what of the proposal's case. `find_untold` says why belief of the case cannot be told, or None where it
    can. References to a fixed session have none: as in version 1, what cannot be told is missing.
    """

    __slots__ = ("case_use", "find", "find_text", "find_untold", "keys", "session_id", "text")

    def __init__(
        self,
        text: str,
        find: Finder,
        *,
        find_text: Finder | None = None,
        keys: tuple[str, ...] = (),
        session_id: str | None = None,
        case_use: CaseUse = CaseUse.NONE,
        find_untold: UntoldFinder | None = None,
    ) -> None:
        self.text = text
        self.find = find
        self.find_text = find_text
        self.keys = keys
        self.session_id = session_id
        self.case_use = case_use
        self.find_untold = find_untold

    @property
    def of_candidate(self) -> bool:
        """Whether it reads the candidate or its actor, and not the state, the belief plane or the case."""
        return not self.keys and self.session_id is None and self.case_use is CaseUse.NONE

    def session_read(self, seen: EvaluationContext) -> str | None:
        """The belief session that it reads here; None where it reads none, or has no case to read it from."""
        if self.case_use < CaseUse.BELIEF:
            return self.session_id
        return None if seen.case is None else seen.case.case_id


def namespace_of(key: str) -> str | None:
    """The namespace of a state key; None where the key is outside of all of them."""
    namespace, dot, rest = key.partition(".")
    return namespace if dot and rest and namespace in NAMESPACES else None


def compile_reference(text: object, version: int = NEWEST) -> Reference:
    """Take a reference apart; ReferenceFault where payloads of this version have none such."""
    if not isinstance(text, str):
        raise ReferenceFault("a reference is text")
    if len(text) > MAX_REFERENCE_CHARACTERS:
        raise ReferenceFault(f"a reference has at most {MAX_REFERENCE_CHARACTERS} characters")
    segments = tuple(text.split("."))
    if len(segments) > MAX_SEGMENTS:
        raise ReferenceFault(f"a reference has at most {MAX_SEGMENTS} segments")
    if not text.startswith("$"):
        return _state_reference(text)
    if not all(segments):
        raise ReferenceFault(f"`{text}` has an empty segment")
    since, find = _WHOLE.get(text, (NEWEST + 1, None))
    if find is not None and version >= since:
        return Reference(text, find)
    return _candidate_reference(text, segments, version)


def _candidate_reference(text: str, segments: tuple[str, ...], version: int) -> Reference:
    """A reference to something that is no key of the state."""
    match segments[0]:
        case "$args":
            return Reference(text, _args_finder(segments[1:]), find_text=_set_text_finder(segments[1:]))
        case "$belief":
            return _belief_reference(text)
        case "$case" if version >= CASES_SINCE_PAYLOAD:
            return _case_reference(text, segments[1:])
        case _:
            cases = ", $case" if version >= CASES_SINCE_PAYLOAD else ""
            whole = ", ".join(each for each, (since, _) in _WHOLE.items() if version >= since)
            raise ReferenceFault(f"`{text}` is neither a key nor one of $args, {whole}, $belief{cases}")


def value_of(text: str) -> Any:
    """What a state value says: the JSON it holds, or else the text itself."""
    if text[:1] not in _JSON_STARTS:
        return text
    try:
        return canonical.decode(text)
    except BeliefServerError:
        return text


def walk(value: Any, path: tuple[str, ...]) -> Any:
    """What is at `path` inside a JSON value: names of object members, places in arrays."""
    for segment in path:
        if isinstance(value, dict):
            value = value.get(segment, MISSING)
        elif isinstance(value, list):
            value = value[int(segment)] if _is_place(segment, len(value)) else MISSING
        else:
            return MISSING
    return value


def _is_place(segment: str, length: int) -> bool:
    # Digits that `int` takes and JSON Pointer does not (`٣`, `01`, `1_0`) would give one place two names.
    return segment.isascii() and segment.isdecimal() and str(int(segment[:9])) == segment and int(segment) < length


Options: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]


def _options(text: str) -> Options:
    """The keys that `text` can mean, the longest first, each with the path that is left."""
    segments = text.split(".")
    return tuple(
        (".".join(segments[:length]), tuple(segments[length:]))
        for length in range(len(segments), 1, -1)
        if namespace_of(".".join(segments[:length])) is not None
    )


def _find_in(seen: EvaluationContext, values: Mapping[str, str], options: Options) -> Any:
    """The value under the longest key that exists."""
    for key, path in options:
        if key in values:
            return walk(seen.value_of(values[key]), path)
    return MISSING


def _state_reference(text: str) -> Reference:
    options = _options(text)
    if not options:
        raise ReferenceFault(f"`{text}` is in none of the namespaces {', '.join(NAMESPACES)}")

    def find(seen: EvaluationContext) -> Any:
        return _find_in(seen, seen.state, options)

    def find_text(seen: EvaluationContext) -> Any:
        return seen.state.get(text, MISSING)

    return Reference(text, find, find_text=find_text, keys=tuple(key for key, _ in options))


def _args_finder(path: tuple[str, ...]) -> Finder:
    if not path:
        return lambda seen: seen.args
    # Keys have dots of their own, so what a delta sets is looked up like a state.
    options = _options(".".join(path[1:])) if path[0] == "set" else ()
    if not options:
        return lambda seen: walk(seen.args, path)

    def find(seen: EvaluationContext) -> Any:
        if seen.tool_id is not None:
            return walk(seen.args, path)
        return _find_in(seen, seen.args["set"], options) if seen.args is not MISSING else MISSING

    return find


def _set_text_finder(path: tuple[str, ...]) -> Finder | None:
    """As with a key of the state: the text that a delta sets is equal to itself, also where it looks like JSON."""
    key = ".".join(path[1:])
    if path[:1] != ("set",) or namespace_of(key) is None:
        return None

    def find_text(seen: EvaluationContext) -> Any:
        if seen.tool_id is not None or seen.args is MISSING:
            return MISSING
        return seen.args["set"].get(key, MISSING)

    return find_text


def _find_tool_id(seen: EvaluationContext) -> Any:
    return MISSING if seen.tool_id is None else seen.tool_id


def _find_tool_writes(seen: EvaluationContext) -> Any:
    return MISSING if seen.tool_writes is None else seen.tool_writes


def _find_actor_id(seen: EvaluationContext) -> Any:
    return MISSING if seen.actor is None else seen.actor.id


def _find_actor_kind(seen: EvaluationContext) -> Any:
    return MISSING if seen.actor is None else seen.actor.kind.value


def _find_actor_roles(seen: EvaluationContext) -> Any:
    # A credential that says nothing of roles has none.
    if seen.actor is None:
        return MISSING
    return [] if seen.actor.roles is msgspec.UNSET else list(seen.actor.roles)


# References that are always the same, the version of payloads that has them first, and what they find.
_WHOLE: dict[str, tuple[int, Finder]] = {
    "$tool.id": (1, _find_tool_id),
    "$tool.writes": (2, _find_tool_writes),
    "$actor.id": (1, _find_actor_id),
    "$actor.kind": (2, _find_actor_kind),
    "$actor.roles": (2, _find_actor_roles),
}

BELIEF_FIELDS: dict[str, Callable[[BeliefReading], Any]] = {
    "n_survivors": lambda reading: reading.n_survivors,
    "entropy_proxy": lambda reading: entropy(reading.n_survivors),
    "terminated": lambda reading: reading.terminated,
    "active_obligation_id": lambda reading: reading.active_obligation_id,
    "survivors": lambda reading: MISSING if reading.survivors is None else reading.survivors,
    "concluded": lambda reading: reading.concluded,
}


# The segments of references that are not names of the author's own.
SEGMENTS = ("id", "writes", "kind", "roles", "attributes", "belief", "independent", "survivor", *BELIEF_FIELDS)


def _belief_reference(text: str) -> Reference:
    # A session id may have dots of its own; a field has none.
    session_id, _, field = text.removeprefix("$belief").removeprefix(".").rpartition(".")
    read = BELIEF_FIELDS.get(field)
    if read is None or not session_id:
        raise ReferenceFault(f"`{text}` is not $belief.<session_id>.<field>, a field being one of {_fields_shown()}")

    def find(seen: EvaluationContext) -> Any:
        reading = seen.belief.get(session_id)
        return MISSING if reading is None or not reading.found else read(reading)

    return Reference(text, find, session_id=session_id)


def _fields_shown() -> str:
    return ", ".join(BELIEF_FIELDS)


# --- the case of the proposal -----------------------------------------------------------------------------------------

# What finds something in a reading; the evaluation it is for keeps what was parsed.
ReadingFinder: TypeAlias = Callable[[EvaluationContext, BeliefReading], Any]


# The fields of which a reading may lack a part: whether it does.
_MAY_BE_CUT: dict[str, Callable[[BeliefReading], bool]] = {
    "survivors": lambda reading: reading.survivors is None,
    "concluded": lambda reading: len(reading.concluded) >= MAX_READ_CONCLUSIONS,
}


def _describe_untold(reading: BeliefReading | None, field: str) -> str | None:
    """Why a field of a session cannot be told; None where it can."""
    if reading is None or not reading.found:
        return "no such session"
    is_cut = _MAY_BE_CUT.get(field)
    return "more than a reading carries" if is_cut is not None and is_cut(reading) else None


def _case_reference(text: str, path: tuple[str, ...]) -> Reference:
    match path:
        case ("id",):
            return Reference(text, _find_case_id, case_use=CaseUse.RECORD)
        case ("attributes", *inside):
            return Reference(text, _case_attributes_finder(tuple(inside)), case_use=CaseUse.RECORD)
        case ("belief", "independent", *field):
            read, find_reading, use = _reading_finder(text, tuple(field)), _independent_reading, CaseUse.INDEPENDENT
        case ("belief", *field):
            read, find_reading, use = _reading_finder(text, tuple(field)), _case_reading, CaseUse.BELIEF
        case _:
            raise ReferenceFault(f"`{text}` is not one of $case.id, $case.attributes, $case.belief")

    def find(seen: EvaluationContext) -> Any:
        reading = find_reading(seen)
        return MISSING if reading is None else read(seen, reading)

    def find_untold(seen: EvaluationContext) -> str | None:
        unknown = _why_unknown(seen) if use is CaseUse.INDEPENDENT else None
        return _describe_untold(find_reading(seen), field[0]) if unknown is None else UNKNOWN_INDEPENDENCE[unknown]

    return Reference(text, find, case_use=use, find_untold=find_untold)


# What a trace says where it cannot be known what others than the proposer ruled out.
UNKNOWN_INDEPENDENCE = {
    UnknownIndependence.DECLARED: "the proposer declared the session, so it chose what there is to rule out",
    UnknownIndependence.FORKED: "the proposer forked the session, so it chose what the session begins with",
    UnknownIndependence.PUT_KIT: "the proposer put the kit of the session on record, so it says what answers rule out",
    UnknownIndependence.NO_KEYS: "the session was declared without a key, so it cannot be known who ruled out what",
}


def _why_unknown(seen: EvaluationContext) -> UnknownIndependence | None:
    """Why what others ruled out in the session of the case cannot be told; None where it can."""
    reading = _case_reading(seen)
    left = msgspec.UNSET if reading is None else reading.independent
    unknown = msgspec.UNSET if isinstance(left, msgspec.UnsetType) else left.unknown
    return None if isinstance(unknown, msgspec.UnsetType) else unknown


def _find_case_id(seen: EvaluationContext) -> Any:
    return MISSING if seen.case is None else seen.case.case_id


def _case_attributes_finder(path: tuple[str, ...]) -> Finder:
    def find(seen: EvaluationContext) -> Any:
        return MISSING if seen.case is None else walk(seen.value_of(seen.case.attributes), path)

    return find


def _reading_finder(text: str, path: tuple[str, ...]) -> ReadingFinder:
    if path[:1] == ("survivor",):
        return _survivor_finder(path[1:])
    read = BELIEF_FIELDS.get(path[0]) if len(path) == 1 else None
    if read is None:
        raise ReferenceFault(f"`{text}` does not end in a field, one of {_fields_shown()}, survivor")
    return lambda _, reading: read(reading)


def _survivor_finder(path: tuple[str, ...]) -> ReadingFinder:
    """The one hypothesis that is left, or what was declared of it."""

    def find(seen: EvaluationContext, reading: BeliefReading) -> Any:
        if reading.n_survivors != 1 or not reading.survivors:
            return MISSING
        if not path:
            return reading.survivors[0]
        declared = reading.survivor_attributes
        if isinstance(declared, msgspec.UnsetType):
            return MISSING
        return walk(seen.value_of(bytes(declared).decode()), path)

    return find


def _case_reading(seen: EvaluationContext) -> BeliefReading | None:
    """What the session of the case says; None where there is no case, or no such session."""
    reading = None if seen.case is None else seen.belief.get(seen.case.case_id)
    return None if reading is None or not reading.found else reading


def _independent_reading(seen: EvaluationContext) -> BeliefReading | None:
    """The same, as if nothing that the proposer eliminated had been eliminated; None where that cannot be told."""
    reading, case = _case_reading(seen), seen.case
    if reading is None or case is None or not is_read_without(reading, case.actor_id):
        return None
    left = reading.independent
    if isinstance(left, msgspec.UnsetType) or left.unknown is not msgspec.UNSET:
        return None
    return msgspec.structs.replace(
        reading,
        n_survivors=left.n_survivors,
        survivors=left.survivors,
        survivor_attributes=left.survivor_attributes,
    )


def is_read_without(reading: BeliefReading, actor_id: str) -> bool:
    """Whether a reading also says what would be left without the eliminations of this actor."""
    left = reading.independent
    return not isinstance(left, msgspec.UnsetType) and left.actor_id == actor_id
