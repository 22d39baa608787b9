"""What goes wrong with a request: the server's own errors as the classes of `cmbs.errors`, and what happens on the way.

::

    CmbsError
    ├── BeliefServerError           what a server says: SessionNotFound, Conflict, HeadMismatch, Forbidden, ...
    │   └── RequestFailed           an answer with a code of HTTP alone, or one that this client does not know
    └── ClientError                 nothing that a server of ours said
        ├── Unreachable             no connection, or it broke, or it took too long
        ├── UnreadableAnswer        an answer that is none of the protocol: another type, cut off, a redirect
        └── HeadWentBack            a server shows less of a stream than it has shown before
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cmbs import errors
from cmbs.errors import BeliefServerError, CmbsError, ErrorCode, HeadMismatch, InvalidHypothesisId, LedgerCorrupt

_PRECONDITION_FAILED = 412


class ClientError(CmbsError):
    """A request without an answer that can be believed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Unreachable(ClientError):
    """There was no answer. Whether a write was applied is not known; to send it again is safe."""


class UnreadableAnswer(ClientError):
    """The answer is not one of this protocol; `status` is that of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Head(NamedTuple):
    """The last event of a stream."""

    seq: int
    event_id: str


class HeadWentBack(ClientError):
    """The server shows a stream without events that it has shown before: it lost them, or it is another server."""

    def __init__(self, stream_id: str, seen: Head, found: Head) -> None:
        super().__init__(
            f"`{stream_id}` ended with event {seen.seq} (`{seen.event_id}`), and now the server says that it ends with "
            f"event {found.seq} (`{found.event_id}`)"
        )
        self.stream_id = stream_id
        self.seen = seen
        self.found = found


class RequestFailed(BeliefServerError):
    """An answer that is an error, with a code that has no class: of HTTP alone, or newer than this client."""

    def __init__(self, status: int, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        Exception.__init__(self, message)
        self.status = status
        self.code = code
        self.message = message
        self.details = dict(details or {})


def rebuild_error(status: int, code: str, message: str, details: Mapping[str, Any] | None) -> BeliefServerError:
    """The error that a server raised, from what it said of it."""
    kind = HeadMismatch if status == _PRECONDITION_FAILED else _CLASSES.get(code)
    if kind is None:
        return RequestFailed(status, code, message, details)
    error = kind.__new__(kind)
    BeliefServerError.__init__(error, message, details)
    if isinstance(error, InvalidHypothesisId):
        error.unknown = list(error.details.get("unknown", ()))
    elif isinstance(error, LedgerCorrupt):
        error.stream_id = str(error.details.get("stream_id", ""))
        error.seq = int(error.details.get("seq", 0))
        error.reason = str(error.details.get("reason", ""))
    return error


def _find_classes() -> Iterator[tuple[str, type[BeliefServerError]]]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, BeliefServerError) and BeliefServerError in kind.__bases__:
            yield kind.default_code.value, kind


_CLASSES: dict[str, type[BeliefServerError]] = dict(_find_classes())
if _CLASSES.keys() != set(ErrorCode):  # pragma: no cover - a code without a class is found by the first import
    raise AssertionError(f"codes without a class: {set(ErrorCode) - _CLASSES.keys()}")
