"""What an operation of the API is: the words in which the tables of operations are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cmbs.belief.kernel.requests import Limits
from cmbs.errors import ErrorCode
from cmbs.http.errors import TransportCode
from cmbs.identity import Scope


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    description: str
    schema: dict[str, Any]
    # Where the one that its name has elsewhere does not fit.
    example: Any = None
    required: bool = False


LIMIT = Parameter(
    "limit",
    "How many items at most. The largest page is a setting of the server.",
    {"type": "integer", "minimum": 1, "maximum": Limits().page_size},
)
CURSOR = Parameter("cursor", "The `next_cursor` of the page before.", {"type": "string"})
AT = Parameter("at", "A seq or an event id: the belief right after that event.", {"type": "string"})
FROM = Parameter(
    "from", "What came after it: a seq or an event id, of a space a snapshot id; by default 0.", {"type": "string"}, "0"
)
TO = Parameter("to", "What came up to it, given as `from` is; by default the last event.", {"type": "string"}, "2")
SINCE = Parameter(
    "since_event_id", "Only the events after this one.", {"type": "string", "maxLength": Limits().id_length}
)


@dataclass(frozen=True, slots=True)
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
    # What a key must be good for; None where none is needed.
    scope: Scope | None = Scope.BELIEF_READ
    # The same by the value of the path's parameter, where some values need another scope: the first prefix that fits.
    scope_of_prefix: tuple[tuple[str, Scope], ...] = ()
    recorded: bool = True
    # Whether the answer is plain text, and JSON where `Accept` asks for that.
    text: bool = False

    def find_scope(self, params: Mapping[str, str]) -> Scope | None:
        """What a key must be good for to ask with these parameters of the path."""
        for prefix, scope in self.scope_of_prefix:
            if any(value.startswith(prefix) for value in params.values()):
                return scope
        return self.scope

    @property
    def writes(self) -> bool:
        """Whether it has a body."""
        return self.body is not None

    @property
    def on_session(self) -> bool:
        """Whether it is about one session."""
        return "{session_id}" in self.path

    @property
    def on_space(self) -> bool:
        """Whether it is about one space."""
        return "{space_id}" in self.path

    @property
    def records(self) -> bool:
        """Whether it is recorded, so that it takes the headers of a write."""
        return self.body is not None and self.recorded

    @property
    def is_conditional(self) -> bool:
        """Whether it takes `If-Match`: it writes to something that is there."""
        return self.records and (self.on_session or self.on_space)
