"""From a request line to the operation that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from cmbs.api.errors import TransportCode, TransportError
from cmbs.api.operation import Operation
from cmbs.http.exchange import EventStream, Request, Response

Handler: TypeAlias = Callable[[Request], Awaitable[Response | EventStream]]


class Endpoint(NamedTuple):
    """An operation of the table, and what carries it out."""

    operation: Operation
    handler: Handler


@dataclass(slots=True)
class RouteNode:
    """One part of a path: where each literal leads, and where any other part does."""

    literals: dict[str, RouteNode] = field(default_factory=dict)
    parameter: RouteNode | None = None
    parameter_name: str = ""
    path: str = ""
    endpoints: dict[str, Endpoint] = field(default_factory=dict)


class RouteMatch(NamedTuple):
    """The path of the table that a request is for, and the parameters in it."""

    path: str
    endpoints: dict[str, Endpoint]
    params: dict[str, str]
    # Why the parameters cannot be read; empty where they can.
    problem: str = ""


class Router:
    """The paths of a table of operations. `routes` hold a handler for each, under the name of the operation.

    `wrap` gives the handler that is called in the place of another.
    """

    def __init__(
        self, operations: Iterable[Operation], *routes: object, wrap: Callable[[Operation, Handler], Handler]
    ) -> None:
        self._root = RouteNode()
        # By the name of the operation, for callers that need no path.
        self.endpoints: dict[str, Endpoint] = {}
        for operation in operations:
            node = self._root
            for part in operation.path.split("/")[1:]:
                if part.startswith("{"):
                    node.parameter = node.parameter or RouteNode()
                    node.parameter_name = part[1:-1]
                    node = node.parameter
                else:
                    node = node.literals.setdefault(part, RouteNode())
            node.path = operation.path
            name = operation.operation_id
            handler = next(getattr(each, name) for each in routes if hasattr(each, name))
            endpoint = Endpoint(operation, wrap(operation, handler))
            node.endpoints[operation.method] = self.endpoints[name] = endpoint
            if operation.method == "GET":
                node.endpoints["HEAD"] = endpoint

    def find(self, scope: Mapping[str, Any]) -> RouteMatch | None:
        """Where the path of an ASGI request leads; None where the table has no such path."""
        # The path as it was sent, because an id may hold an escaped slash.
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        parts = raw.partition(b"?")[0].decode("latin-1").split("/")
        mounted = (scope.get("root_path") or "").rstrip("/")
        if mounted and f"{scope['path']}/".startswith(f"{mounted}/"):
            parts = parts[mounted.count("/") :]
        node, params = self._root, {}
        for part in parts[1:]:
            child = node.literals.get(part)
            if child is None:
                if node.parameter is None:
                    return None
                params[node.parameter_name] = part
                child = node.parameter
            node = child
        if not node.endpoints:
            return None
        try:
            decoded = {name: unquote_to_bytes(part.encode("latin-1")).decode() for name, part in params.items()}
        except UnicodeDecodeError:
            return RouteMatch(node.path, node.endpoints, params, "the path is not valid UTF-8")
        return RouteMatch(node.path, node.endpoints, decoded)


def method_not_allowed(method: str, allowed: list[str]) -> TransportError:
    """The error of a path that is there, but not for this method."""
    return TransportError(
        TransportCode.METHOD_NOT_ALLOWED,
        f"`{method}` is not allowed here",
        {"allowed": allowed, "field": "method", "found": method, "accepted": allowed, "next": "use one of those"},
    )


def no_such_path(path: str) -> TransportError:
    """The error of a path that the table does not have."""
    return TransportError(TransportCode.NOT_FOUND, f"no such path: `{path}`", {"found": path})
