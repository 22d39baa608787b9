"""The command `cmbs api` as a carrier of requests: each is taken for the operation that it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2

from cmbs.api.errors import STATUS_OF_CODE
from cmbs.errors import ErrorCode
from tests.support.client_carrier import find_operation, name_arguments
from tests.support.clients import call_command

# The options of the command that stand for headers. It asks for JSON by itself.
_OPTIONS = {"x-cmbs-actor": "actor", "idempotency-key": "idempotency_key", "if-match": "if_match"}
_IMPLIED = ("accept", "application/json")


class CommandCarrier:
    """Sends requests as httpx2 does, each by a command. `send` takes what is no operation."""

    def __init__(self, server: str, send: Callable[..., httpx2.Response]) -> None:
        self._server = server
        self._send = send

    def __call__(self, method: str, path: str, **options: Any) -> httpx2.Response:
        found = find_operation(method, path)
        if found is None:
            return self._send(method, path, **options)
        operation, ids = found
        headers = options.get("headers", {}).items()
        said = {_OPTIONS[name]: value for name, value in headers if (name, value) != _IMPLIED}
        content = call_command(self._server, operation.operation_id, said, **name_arguments(operation, ids, options))
        # What a command prints has no status; its exit code, which `call_command` looks at, tells errors apart.
        if content.keys() == {"error"}:
            return httpx2.Response(STATUS_OF_CODE[ErrorCode(content["error"]["code"])], json=content)
        return httpx2.Response(operation.status, json=content)
