"""From a request line to its handler, and from any failure to the error model."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.http.exchange import Receive, Request, Response, Scope, Send, read_body
from cmbs.http.operations import OPERATIONS
from cmbs.http.routes import Routes
from cmbs.http.statuses import (
    METHOD_NOT_ALLOWED,
    STATUS_OF_CODE,
    UNAVAILABLE,
    TransportCode,
    TransportError,
    error_body,
    status_of,
)

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger("cmbs.http")

_KNOWN_PATHS = 4096
_KNOWN_LENGTH = 256


class _Place:
    """A node of the path tree."""

    __slots__ = ("children", "handlers", "parameter", "parameter_name", "path")

    def __init__(self) -> None:
        self.children: dict[str, _Place] = {}
        self.parameter: _Place | None = None
        self.parameter_name = ""
        self.handlers: dict[str, Handler] = {}
        self.path = ""


class Found(NamedTuple):
    """Where a path leads."""

    path: str
    handlers: dict[str, Handler]
    params: dict[str, str]


class Dispatcher:
    """Answers every request under the paths of the table; others are none of its business."""

    def __init__(self, routes: Routes, body_bytes: int) -> None:
        self._body_bytes = body_bytes
        self._root = _Place()
        self._known: dict[bytes, Found] = {}
        for operation in OPERATIONS:
            place = self._root
            for part in operation.path.split("/")[1:]:
                if part.startswith("{"):
                    if place.parameter is None:
                        place.parameter, place.parameter_name = _Place(), part[1:-1]
                    place = place.parameter
                else:
                    place = place.children.setdefault(part, _Place())
            place.path = operation.path
            handler: Handler = getattr(routes, operation.operation_id)
            place.handlers[operation.method] = handler
            if operation.method == "GET":
                place.handlers["HEAD"] = handler

    def find(self, scope: Scope) -> Found | None:
        """The handlers of a path; None where the table has no such path."""
        # The raw path, because an id may hold an escaped slash.
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        known = self._known.get(raw)
        if known is not None and not scope.get("root_path"):
            return known
        parts = raw.partition(b"?")[0].decode("latin-1").split("/")
        root_path: str = scope.get("root_path") or ""
        if root_path:
            parts = parts[_depth(root_path.rstrip("/"), scope["path"]) :]
        place, params = self._root, {}
        for part in parts[1:]:
            child = place.children.get(part)
            if child is None:
                if place.parameter is None:
                    return None
                params[place.parameter_name] = part
                child = place.parameter
            place = child
        if not place.handlers:
            return None
        found = Found(place.path, place.handlers, params)
        if not root_path and len(raw) <= _KNOWN_LENGTH:
            # A session is asked of many times in a row; strangers' paths must not fill our memory.
            if len(self._known) >= _KNOWN_PATHS:
                self._known.clear()
            self._known[raw] = found
        return found

    async def answer(self, found: Found, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry out a request on a path of the table. Whatever happens, the answer has the protocol's shape."""
        try:
            handler = found.handlers.get(scope["method"])
            if handler is None:
                raise method_not_allowed(scope["method"], sorted(found.handlers))
            body = await read_body(scope, receive, self._body_bytes)
            response = await handler(Request(scope, _unquoted(found.params), body))
        except Exception as exc:  # noqa: BLE001 - the last place that can still answer
            response = response_to(exc)
        await response.send(send, with_body=scope["method"] != "HEAD")


def response_to(exc: Exception) -> Response:
    """The error model for any exception; what is not ours is logged whole and told in general terms."""
    if isinstance(exc, (BeliefServerError, TransportError)):
        status = status_of(exc)
        headers: list[tuple[bytes, bytes]] = []
        if status == METHOD_NOT_ALLOWED:
            headers.append((b"allow", ", ".join(exc.details.get("allowed", [])).encode()))
        elif status == UNAVAILABLE:
            headers.append((b"retry-after", b"1"))
        return Response(status, error_body(exc.code, exc.message, exc.details), headers)
    _log.error("unexpected failure", exc_info=exc)
    code = TransportCode.INTERNAL_ERROR
    return Response(STATUS_OF_CODE[code], error_body(code, "the server failed; nothing is known to have changed", None))


def method_not_allowed(method: str, allowed: list[str]) -> TransportError:
    """The error of a path that is there, but not for this method."""
    return TransportError(TransportCode.METHOD_NOT_ALLOWED, f"`{method}` is not allowed here", {"allowed": allowed})


def _depth(root_path: str, path: str) -> int:
    """How many parts of the path belong to whoever mounted us."""
    return root_path.count("/") if f"{path}/".startswith(f"{root_path}/") else 0


def _unquoted(params: dict[str, str]) -> dict[str, str]:
    try:
        return {name: _text(value) if "%" in value or not value.isascii() else value for name, value in params.items()}
    except UnicodeDecodeError as exc:
        raise InvalidRequest("the path is not valid UTF-8") from exc


def _text(part: str) -> str:
    return unquote_to_bytes(part.encode("latin-1")).decode()
