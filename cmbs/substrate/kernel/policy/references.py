"""What a predicate may read: keys of the state, fields of their JSON, the args, the tool, the actor, the belief plane.

A reference is taken apart once, when its constraint is compiled. Reading one never fails: what is not there is MISSING.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

import msgspec

from cmbs.core import entropy
from cmbs.errors import BeliefServerError
from cmbs.ledger import canonical
from cmbs.substrate.kernel.model import NAMESPACES, BeliefReading

MAX_REFERENCE_CHARACTERS = 512
MAX_SEGMENTS = 32
# What a JSON text can begin with. Most values are plain words, which this tells without an attempt to parse them.
_JSON_STARTS = frozenset('{["-0123456789tfn \t\r\n')


class Missing(Enum):
    """The type of what was not found. An enumeration of one, so that `is` tells it from every JSON value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class EvaluationContext(msgspec.Struct, frozen=True):
    """Everything that the predicates of one candidate can see.

    `args` is the decoded args of a call, or `{"set": …, "unset": …}` of a delta, which has no `tool_id`.
    """

    state: Mapping[str, str]
    belief: Mapping[str, BeliefReading]
    actor_id: str
    args: Any = MISSING
    tool_id: str | None = None
    # A large value takes milliseconds to parse, and any number of constraints may be about it.
    parsed: dict[str, Any] = msgspec.field(default_factory=dict)

    def value_of(self, text: str) -> Any:
        """What a state value says, parsed once for this candidate."""
        if text not in self.parsed:
            self.parsed[text] = value_of(text)
        return self.parsed[text]


Finder: TypeAlias = Callable[[EvaluationContext], Any]


class ReferenceFault(ValueError):
    """The text is no reference."""


class Reference:
    """A compiled reference. `find` gives its JSON value or MISSING.

    `find_text` gives the text under a whole key, where the reference could be one: a text that happens to look like
    JSON is still equal to itself. `keys` are the state keys that decide what is found, `session_id` the belief session.
    """

    __slots__ = ("find", "find_text", "keys", "session_id", "text")

    def __init__(
        self,
        text: str,
        find: Finder,
        *,
        find_text: Finder | None = None,
        keys: tuple[str, ...] = (),
        session_id: str | None = None,
    ) -> None:
        self.text = text
        self.find = find
        self.find_text = find_text
        self.keys = keys
        self.session_id = session_id

    @property
    def of_candidate(self) -> bool:
        """Whether it reads the candidate or its actor, and not the state or the belief plane."""
        return not self.keys and self.session_id is None


def namespace_of(key: str) -> str | None:
    """The namespace of a state key; None where the key is outside of all of them."""
    namespace, dot, rest = key.partition(".")
    return namespace if dot and rest and namespace in NAMESPACES else None


def compile_reference(text: object) -> Reference:
    """Take a reference apart; ReferenceFault where it is none."""
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
    match segments[0]:
        case "$args":
            return Reference(text, _args_finder(segments[1:]), find_text=_set_text_finder(segments[1:]))
        case "$tool" if segments == ("$tool", "id"):
            return Reference(text, _find_tool_id)
        case "$actor" if segments == ("$actor", "id"):
            return Reference(text, _find_actor_id)
        case "$belief":
            return _belief_reference(text)
        case _:
            raise ReferenceFault(f"`{text}` is neither a key nor one of $args, $tool.id, $actor.id, $belief")


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


def _find_actor_id(seen: EvaluationContext) -> Any:
    return seen.actor_id


BELIEF_FIELDS: dict[str, Callable[[BeliefReading], Any]] = {
    "n_survivors": lambda reading: reading.n_survivors,
    "entropy_proxy": lambda reading: entropy(reading.n_survivors),
    "terminated": lambda reading: reading.terminated,
    "active_obligation_id": lambda reading: reading.active_obligation_id,
    "survivors": lambda reading: MISSING if reading.survivors is None else reading.survivors,
    "concluded": lambda reading: reading.concluded,
}


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
