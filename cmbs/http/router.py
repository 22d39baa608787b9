"""From a request line to its handler, and from any failure to the error model."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.http.belief.routes import Routes
from cmbs.http.errors import (
    METHOD_NOT_ALLOWED,
    STATUS_OF_CODE,
    UNAUTHENTICATED,
    UNAVAILABLE,
    TransportCode,
    TransportError,
    error_body,
    status_of,
)
from cmbs.http.exchange import Request, Response
from cmbs.http.operations import OPERATIONS
from cmbs.http.spaces.routes import SpaceRoutes
from cmbs.identity import Scope

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]
# What answers a request, and what a key must be good for to get there; None where none is needed.
Answering: TypeAlias = tuple[Handler, Scope | None]

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
        self.handlers: dict[str, Answering] = {}
        self.path = ""


class Found(NamedTuple):
    """Where a path leads."""

    path: str
    handlers: dict[str, Answering]
    params: dict[str, str]
    problem: str = ""

    def handler(self, method: str) -> Answering:
        """The handler of a method and its scope; an error where there is none, or where the path cannot be read."""
        answering = self.handlers.get(method)
        if answering is None:
            raise method_not_allowed(method, sorted(self.handlers))
        if self.problem:
            raise InvalidRequest(self.problem)
        return answering


class Dispatcher:
    """Answers every request under the paths of the table; others are none of its business."""

    def __init__(self, *routes: Routes | SpaceRoutes) -> None:
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
            handler = _handler(routes, operation.operation_id)
            place.handlers[operation.method] = (handler, operation.scope)
            if operation.method == "GET":
                place.handlers["HEAD"] = (handler, operation.scope)

    def find(self, scope: Mapping[str, Any]) -> Found | None:
        """The handlers of an ASGI request's path; None where the table has no such path."""
        # The raw path, because an id may hold an escaped slash.
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        root_path: str = scope.get("root_path") or ""
        if not root_path:
            return self.at(raw)
        return self._found(_parts(raw)[_depth(root_path.rstrip("/"), scope["path"]) :])

    def at(self, raw: bytes) -> Found | None:
        """The handlers of a path as it was sent; None where the table has no such path."""
        known = self._known.get(raw)
        if known is not None:
            return known
        found = self._found(_parts(raw))
        if found is not None:
            self._remember(raw, found)
        return found

    def _found(self, parts: list[str]) -> Found | None:
        place, params = self._walk(parts)
        if place is None:
            return None
        try:
            return Found(place.path, place.handlers, _unquoted(params))
        except UnicodeDecodeError:
            return Found(place.path, place.handlers, params, "the path is not valid UTF-8")

    def _walk(self, parts: list[str]) -> tuple[_Place | None, dict[str, str]]:
        place, params = self._root, {}
        for part in parts[1:]:
            child = place.children.get(part)
            if child is None:
                if place.parameter is None:
                    return None, {}
                params[place.parameter_name] = part
                child = place.parameter
            place = child
        return (place, params) if place.handlers else (None, {})

    def _remember(self, path: bytes, found: Found) -> None:
        """A session is asked of many times in a row; strangers' paths must not fill our memory."""
        if len(path) <= _KNOWN_LENGTH:
            if len(self._known) >= _KNOWN_PATHS:
                self._known.clear()
            self._known[path] = found


def _handler(routes: Iterable[object], name: str) -> Handler:
    handler: Handler = next(getattr(each, name) for each in routes if hasattr(each, name))
    return handler


def response_to(exc: Exception) -> Response:
    """The error model for any exception; what is not ours is logged whole and told in general terms."""
    if isinstance(exc, (BeliefServerError, TransportError)):
        status = status_of(exc)
        headers: list[tuple[str, str]] = []
        if status == METHOD_NOT_ALLOWED:
            headers.append(("allow", ", ".join(exc.details.get("allowed", []))))
        elif status == UNAUTHENTICATED:
            headers.append(("www-authenticate", 'Bearer realm="cmbs"'))
        elif status == UNAVAILABLE:
            headers.append(("retry-after", "1"))
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


def _parts(raw: bytes) -> list[str]:
    return raw.partition(b"?")[0].decode("latin-1").split("/")


def _unquoted(params: dict[str, str]) -> dict[str, str]:
    return {name: _text(value) if "%" in value or not value.isascii() else value for name, value in params.items()}


def _text(part: str) -> str:
    return unquote_to_bytes(part.encode("latin-1")).decode()
