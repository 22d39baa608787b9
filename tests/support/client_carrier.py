"""The client as a carrier of requests: each is taken for the operation that it is, and its result held against it.

A client of a server elsewhere is held against the bytes that came over HTTP, one in the process of its server against
what the server gave its transport.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import httpx2
import msgspec

from cmbs.api.call import Call, build_call
from cmbs.api.errors import status_of
from cmbs.api.operation import Operation
from cmbs.api.operations import OPERATIONS
from cmbs.client import AsyncClient, Client, connect, connect_async
from cmbs.client.errors import RequestFailed
from cmbs.client.exchange import Answer, Attempt
from cmbs.errors import BeliefServerError
from tests.support.in_process import client_of


class ClientCarrier:
    """Sends requests as httpx2 does, through the operations of a client.

    The answer is that of the server as it came. Its result has every field of it, and every error its code and details.
    """

    def __init__(self, client: Client | AsyncClient, wait: Callable[[Any], Any], app: Any = None) -> None:
        """`app` is the application in this process that the client calls, if it does."""
        self._client = client
        self._wait = wait
        self._app = app
        self._answers: list[httpx2.Response] = []
        self._transport: Any = vars(client)["_transport"]
        is_async = isinstance(client, AsyncClient)
        if self.is_embedded:
            self._transport.send = (self._listen_async if is_async else self._listen)(self._transport.send)
        else:
            hook = self._keep_async if is_async else self._keep
            self._transport._http.event_hooks = {"response": [hook]}

    @property
    def is_embedded(self) -> bool:
        """Whether operations are carried without HTTP."""
        return self._app is not None

    def _keep(self, answer: httpx2.Response) -> None:
        answer.read()
        self._answers.append(answer)

    async def _keep_async(self, answer: httpx2.Response) -> None:
        await answer.aread()
        self._answers.append(answer)

    def _listen(self, send: Callable[[Attempt], Answer]) -> Callable[[Attempt], Answer]:
        def listen(attempt: Attempt) -> Answer:
            answer = send(attempt)
            self._answers.append(_respond(answer))
            return answer

        return listen

    def _listen_async(self, send: Callable[[Attempt], Awaitable[Answer]]) -> Callable[[Attempt], Awaitable[Answer]]:
        async def listen(attempt: Attempt) -> Answer:
            answer = await send(attempt)
            self._answers.append(_respond(answer))
            return answer

        return listen

    def __call__(self, method: str, path: str, **options: Any) -> httpx2.Response:
        found = find_operation(method, path)
        if found is None:
            return self._send_raw(method, path, **options)
        operation, ids = found
        call = _build(operation, ids, options)
        self._answers.clear()
        try:
            result = self._wait(self._client.send(call))
        except BeliefServerError as exc:
            return self._check_error(exc)
        (answer,) = self._answers
        check_fields(to_plain(result), answer.json(), operation.operation_id)
        return answer

    def _check_error(self, error: BeliefServerError) -> httpx2.Response:
        if self.is_embedded:
            # The server raised it, and answered nothing.
            assert self._answers == []
            return _respond_to(error)
        (answer,) = self._answers
        sent = answer.json()["error"]
        assert (error.code, error.message, error.details) == (sent["code"], sent["message"], sent["details"] or {})
        return answer

    def _send_raw(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """A request for what is no operation, over HTTP."""
        if self.is_embedded:
            with client_of(self._app) as http:
                return http.request(method, path, **options)
        answer: httpx2.Response = self._wait(self._transport._http.request(method, path, **options))
        return answer


def _respond(answer: Answer) -> httpx2.Response:
    return httpx2.Response(answer.status, headers=dict(answer.headers), content=answer.body)


def _respond_to(exc: BeliefServerError) -> httpx2.Response:
    """An error as a server would answer with it."""
    status = exc.status if isinstance(exc, RequestFailed) else status_of(exc)
    error = {"code": exc.code, "message": exc.message, "details": exc.details}
    headers = {"content-type": "application/json"}
    return httpx2.Response(status, headers=headers, content=msgspec.json.encode({"error": error}))


def to_plain(value: Any) -> Any:
    """A result as plain data, with every field that it has: encoded, it would leave out what is as by default."""
    if isinstance(value, msgspec.Struct):
        fields = {each.encode_name: getattr(value, each.name) for each in msgspec.structs.fields(value)}
        config = value.__struct_config__
        tag = {} if config.tag_field is None else {config.tag_field: config.tag}
        return tag | {name: to_plain(each) for name, each in fields.items() if each is not msgspec.UNSET}
    if isinstance(value, dict):
        return {name: to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return msgspec.to_builtins(value)


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
    call = build_call(operation, name_arguments(operation, ids, options)).with_headers(**options.get("headers", {}))
    # Without a key that the client makes, so that what is recorded is what any carrier records.
    return replace(call, operation=replace(operation, has_own_key=True))


@contextmanager
def carry_by_client(kind: str, server: Any) -> Iterator[ClientCarrier]:
    """A client of a server, as a carrier."""
    app = None if isinstance(server, str) else server
    if "async" not in kind:
        with connect(server) as client:
            yield ClientCarrier(client, lambda result: result, app)
        return
    with asyncio.Runner() as runner:

        async def open_client() -> AsyncClient:
            return connect_async(server)

        async def finish(result: Any) -> Any:
            return await result

        client_async = runner.run(open_client())
        try:
            yield ClientCarrier(client_async, lambda result: runner.run(finish(result)), app)
        finally:
            runner.run(client_async.close())
