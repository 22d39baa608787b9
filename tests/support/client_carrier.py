"""The client as a carrier of requests: each is taken for the operation that it is, and its result held against it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import httpx2
import msgspec

from cmbs.api.operation import Operation
from cmbs.api.operations import OPERATIONS
from cmbs.client import AsyncClient, Client, connect, connect_async
from cmbs.client.calls import Call, PageCall
from cmbs.errors import BeliefServerError

# Names that the client gives another end, since they are words of Python or hide one.
_NAMES = {"from": "from_", "set": "set_"}


class ClientCarrier:
    """Sends requests as httpx2 does, through the operations of a client.

    The answer is that of the server as it came. Its result has every field of it, and every error its code.
    """

    def __init__(self, client: Client | AsyncClient, wait: Callable[[Any], Any]) -> None:
        self._client = client
        self._wait = wait
        self._answers: list[httpx2.Response] = []
        hook = self._keep_async if isinstance(client, AsyncClient) else self._keep
        client._http.event_hooks = {"response": [hook]}

    def _keep(self, answer: httpx2.Response) -> None:
        answer.read()
        self._answers.append(answer)

    async def _keep_async(self, answer: httpx2.Response) -> None:
        await answer.aread()
        self._answers.append(answer)

    def __call__(self, method: str, path: str, **options: Any) -> httpx2.Response:
        found = find_operation(method, path)
        if found is None:
            raw: httpx2.Response = self._wait(self._client._http.request(method, path, **options))
            return raw
        operation, ids = found
        # Without a key of its own, so that what is recorded is what any carrier records.
        call = replace(_build(operation, ids, options), keyed=False).with_headers(**options.get("headers", {}))
        self._answers.clear()
        code, result = None, None
        try:
            result = self._wait(self._client.send(call))
        except BeliefServerError as exc:
            code = exc.code
        (answer,) = self._answers
        if code is not None:
            assert answer.json()["error"]["code"] == code
            return answer
        check_fields(msgspec.to_builtins(result), answer.json(), operation.operation_id)
        return answer


def check_fields(result: Any, sent: Any, place: str) -> None:
    """That a result has what was sent, all of it; what it has beyond that is empty, for what was left out."""
    if isinstance(sent, dict):
        assert isinstance(result, dict), place
        assert not sent.keys() - result.keys(), f"{place}: the client drops {sent.keys() - result.keys()}"
        for name, value in result.items():
            if name in sent:
                check_fields(value, sent[name], f"{place}.{name}")
            else:
                assert value in (None, [], {}, False, 0), f"{place}.{name} was not sent, and is {value!r}"
    elif isinstance(sent, list):
        assert len(result) == len(sent), place
        for mine, theirs in zip(result, sent, strict=True):
            check_fields(mine, theirs, place)
    else:
        assert result == sent, place


def find_operation(method: str, path: str) -> tuple[Operation, dict[str, str]] | None:
    """The operation that a request asks for, and the ids in its path."""
    for operation in OPERATIONS:
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]*)", re.escape(operation.path))
        match = re.fullmatch(pattern, path)
        if match is not None and method == operation.method:
            return operation, {name: unquote(value) for name, value in match.groupdict().items()}
    return None


def name_arguments(operation: Operation, ids: dict[str, str], options: dict[str, Any]) -> dict[str, Any]:
    """What a request says, as arguments of the operation."""
    fields: dict[str, Any] = {**ids, **(options.get("params") or {})}
    body = options.get("json") or {}
    if operation.operation_id in ("put_policy", "check_policy", "policy_impact", "put_kit"):
        # As httpx2 writes it: findings name columns.
        text = httpx2.Request("POST", "http://localhost", json=body).content.decode()
        fields |= {"text": text, "media_type": "application/json"}
    else:
        fields |= body
    if isinstance(fields.get("symptom"), str):
        fields["symptom"] = [fields["symptom"]]
    return fields


def _build(operation: Operation, ids: dict[str, str], options: dict[str, Any]) -> Call[Any]:
    fields = name_arguments(operation, ids, options)
    named = {_NAMES.get(name, name): value for name, value in fields.items()}
    built = getattr(Client, operation.operation_id).build(**named)
    call: Call[Any] = built.call if isinstance(built, PageCall) else built
    return call


@contextmanager
def carry_by_client(kind: str, server: Any) -> Iterator[ClientCarrier]:
    """A client of a server, as a carrier."""
    if "async" not in kind:
        with connect(server) as client:
            yield ClientCarrier(client, lambda result: result)
        return
    with asyncio.Runner() as runner:

        async def open_client() -> AsyncClient:
            return connect_async(server)

        async def finish(result: Any) -> Any:
            return await result

        client_async = runner.run(open_client())
        try:
            yield ClientCarrier(client_async, lambda result: runner.run(finish(result)))
        finally:
            runner.run(client_async.close())
