"""What an operation of the API is: the words in which the tables of operations are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from cmbs.api.answers import OpenDocument
from cmbs.api.errors import TransportCode
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Need, Reach, Scope

FIELDS = "fields"
_NAMES_HEAD = ("declare_session", "query_belief", "create_space", "get_space")
# The parameters of a path that name what a scope must reach.
_TARGETS = ("session_id", "space_id", "stream_id")


class TextFile(NamedTuple):
    """A body that is a file in one of several languages: which, and the text as it was sent."""

    media_type: str
    text: str


# The languages of files. JSON is sent as a document of its own, never as a text inside of another.
FILE_MEDIA_TYPES = ("application/yaml", "application/json")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    description: str
    schema: dict[str, Any]
    # Where the one that its name has elsewhere does not fit.
    example: Any = None
    required: bool = False


FIELDS_PARAMETER = Parameter(FIELDS, "The fields that the answer is to have, separated by commas.", {"type": "string"})


@dataclass(frozen=True)
class Operation:
    """One method on one path. `operation_id` is the name of its handler in `Routes` or `SpaceRoutes`."""

    method: str
    path: str
    operation_id: str
    summary: str
    description: str
    response: type
    body: type | None = None
    status: int = 200
    query: tuple[Parameter, ...] = ()
    errors: tuple[ErrorCode | TransportCode, ...] = ()
    body_required: bool = True
    # What a key must be good for; None where none is needed, or, with `any_key`, where any will do.
    scope: Scope | None = Scope.BELIEF_READ
    any_key: bool = False
    # How far that scope must reach.
    reach: Reach = Reach.ONE
    # The same by the value of the path's parameter, where some values need another: the first prefix that fits.
    need_of_prefix: tuple[tuple[str, Need], ...] = ()
    recorded: bool = True
    # Whether the body has a key of its own, under which a repeat is known, so that no `Idempotency-Key` is needed.
    has_own_key: bool = False
    # Members of the body that a client makes up where a caller gives none: new ids.
    made_up: tuple[str, ...] = ()
    # The parts of the answer that `Prefer: return=minimal` leaves out, as dotted names.
    bulk: tuple[str, ...] = ()
    # Whether the answer is of use as a whole alone, so that no fields of it can be chosen.
    indivisible: bool = False
    # Whether the answer depends on more than the stream that the path names, so that the head is no tag of it.
    beyond_stream: bool = False
    # Whether the answer is plain text, and JSON where `Accept` asks for that.
    text: bool = False
    # Whether the answer is JSON, and a file as it was written where `Accept` asks for its language.
    file: bool = False
    # Of an answer that goes on, as server-sent events: the data of each event by its name. `response` is then what a
    # follower is handed.
    events: Mapping[str, Any] = field(default_factory=dict)
    # The schema of a body that is a file.
    file_schema: str = "PolicyFile"

    @cached_property
    def is_followed(self) -> bool:
        """Whether the answer goes on without end."""
        return bool(self.events)

    @cached_property
    def is_open(self) -> bool:
        """Whether it is answered without a key, also where the server has some."""
        return self.scope is None and not self.any_key

    def find_need(self, params: Mapping[str, str]) -> Need | None:
        """What a key must be good for to ask with these parameters of the path; None where any key will do."""
        if self.scope is None:
            return None
        target = next((params[name] for name in _TARGETS if name in params), "")
        for prefix, need in self.need_of_prefix:
            if target.startswith(prefix):
                return need._replace(target=target.removeprefix(prefix))
        return Need(self.scope, self.reach, target)

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters of its query, by name."""
        fields = (FIELDS_PARAMETER,) if self.takes_fields else ()
        return {parameter.name: parameter for parameter in (*self.query, *fields)}

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The parameters of its query that must be sent."""
        return tuple(parameter.name for parameter in self.query if parameter.required)

    @cached_property
    def answer(self) -> type:
        """What a client hands out."""
        return dict[str, Any] if issubclass(self.response, OpenDocument) else self.response

    @cached_property
    def required_fields(self) -> frozenset[str]:
        """The members that its body must have."""
        if self.body is None or self.body is TextFile:
            return frozenset()
        return frozenset(each.encode_name for each in msgspec.structs.fields(self.body) if each.required)

    @cached_property
    def path_names(self) -> tuple[str, ...]:
        """The parameters of its path."""
        return tuple(part[1:-1] for part in self.path.split("/") if part.startswith("{"))

    @cached_property
    def writes(self) -> bool:
        """Whether it has a body."""
        return self.body is not None

    @cached_property
    def takes_fields(self) -> bool:
        """Whether a caller may choose fields of the answer."""
        return self.path.startswith("/v1/") and not self.indivisible

    @cached_property
    def takes_preference(self) -> bool:
        """Whether a caller may ask for a minimal answer."""
        return self.path.startswith("/v1/") and (self.writes or bool(self.bulk))

    @cached_property
    def is_tagged(self) -> bool:
        """Whether the answer has an entity tag: the head of the session or space that it is read from."""
        return self.method == "GET" and (self.on_session or self.on_space) and not self.beyond_stream

    @cached_property
    def names_head(self) -> bool:
        """Whether the answer names the head of its stream: it wrote to it, or is the session or space as a whole."""
        if self.operation_id in ("fork_session", "put_policy"):
            return False
        return self.is_conditional or self.operation_id in _NAMES_HEAD

    @cached_property
    def on_session(self) -> bool:
        """Whether it is about one session."""
        return "{session_id}" in self.path

    @cached_property
    def on_space(self) -> bool:
        """Whether it is about one space."""
        return "{space_id}" in self.path

    @cached_property
    def records(self) -> bool:
        """Whether it is recorded, so that it takes the headers of a write."""
        return self.body is not None and self.recorded

    @cached_property
    def is_conditional(self) -> bool:
        """Whether it takes `If-Match`: it writes to something that is there."""
        return self.records and (self.on_session or self.on_space)
