"""A client that awaits: every operation of the API over a transport, with retries, pages and streams."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, ParamSpec, Protocol, Self, TypeVar, Unpack

import anyio
import httpx2

from cmbs.api.call import Call, build_call, find_operation
from cmbs.client.async_cases import AsyncCase
from cmbs.client.async_operations import AsyncOperations
from cmbs.client.case_options import CaseOptions
from cmbs.client.exchange import (
    SYSTEM,
    Answer,
    Attempt,
    Environment,
    Heads,
    Identity,
    Outcome,
    Patience,
    Pause,
    check_headers,
    exchange,
)
from cmbs.client.following import MAX_EVENT_BYTES, SILENCE_SECONDS, Follow, open_follow
from cmbs.client.steps import Done, Steps, advance
from cmbs.errors import CmbsError, InvalidRequest

T = TypeVar("T")
P = ParamSpec("P")
Item_co = TypeVar("Item_co", covariant=True)


class PageOf(Protocol[Item_co]):
    """A page of a list of the API."""

    @property
    def items(self) -> Sequence[Item_co]:
        """Its items."""

    @property
    def next_cursor(self) -> str | None:
        """What asks for the page after it; None after the last."""


class AsyncTransport(Protocol):
    """What carries calls to a server."""

    async def send(self, attempt: Attempt) -> Answer:
        """The answer; a CmbsError where there is none, or where the server says no in Python."""

    def follow(self, attempt: Attempt) -> AbstractAsyncContextManager[httpx2.Response]:
        """An answer that goes on."""

    async def close(self) -> None:
        """Let go of the server."""


class AsyncClient(AsyncOperations):
    """A client that awaits. It belongs to one event loop. Made by `connect_async`."""

    def __init__(
        self,
        transport: AsyncTransport,
        name: str,
        patience: Patience | None = None,
        *,
        identity: Mapping[str, str] | None = None,
        pin: bool = False,
        environment: Environment = SYSTEM,
    ) -> None:
        self.name = name
        self.heads = Heads()
        self._transport = transport
        self._patience = patience or Patience()
        self._identity = Identity(identity or {})
        self._options: dict[str, str | None] = {}
        self._pin = pin
        self._environment = environment

    async def send(self, call: Call[T]) -> T:
        """The result of a call, after as many attempts as it takes."""
        prepared = replace(call, headers={**self._identity, **call.headers}).with_headers(**self._options)
        steps = exchange(prepared, self._patience, self.heads, self._environment, pin=self._pin)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                await anyio.sleep(step.seconds)
                outcome = None
                continue
            try:
                outcome = await self._transport.send(step)
            except CmbsError as exc:
                outcome = exc

    async def run(self, steps: Steps[T]) -> T:
        """The result of several calls, each sent when the one before is over."""
        outcome: Any = None
        while True:
            step = advance(steps, outcome)
            if isinstance(step, Done):
                result: T = step.result
                return result
            try:
                outcome = await self.send(step)
            except CmbsError as exc:
                outcome = exc

    async def request(self, operation_id: str, *, fields: Sequence[str] = (), **arguments: Any) -> dict[str, Any]:
        """The answer to an operation as plain JSON; with `fields`, dotted names, only these parts of it are sent."""
        operation = find_operation(operation_id)
        if operation.is_followed:
            raise InvalidRequest(f"`{operation_id}` goes on without end: use the method of this name")
        plain: Call[dict[str, Any]] = replace(build_call(operation, arguments), answer=dict[str, Any])
        chosen = [fields] if isinstance(fields, str) else fields
        return await self.send(plain.picking(chosen) if chosen else plain)

    def with_options(
        self, *, if_match: str | None = None, idempotency_key: str | None = None, minimal: bool = False
    ) -> Self:
        """The same client, over the same connections, with these options alone for what it sends.

        Args:
            if_match: The head, as an event id, that a write continues: refused where there are events since.
            idempotency_key: The key under which one write is applied once; another write under it is refused.
            minimal: Whether answers come without their bulk, such as the survivors.
        """
        options = {
            "if_match": None if if_match is None else f'"{if_match}"',
            "idempotency_key": idempotency_key,
            "prefer": "return=minimal" if minimal else None,
        }
        check_headers(options)
        return self._vary(_options=options)

    def acting_as(self, identity: Mapping[str, str]) -> Self:
        """The same server, asked by another caller: whom these headers name, as `{"x-cmbs-actor": "agent:planner"}`."""
        return self._vary(_identity=Identity(identity))

    async def each(
        self, list_page: Callable[P, Awaitable[PageOf[Item_co]]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[Item_co]:
        """Every item of a list, page after page: `client.each(client.list_sessions, kit="web-shop")`.

        `limit` is how many come at a time.
        """
        cursor: Any = kwargs.get("cursor")
        while True:
            kwargs["cursor"] = cursor
            page = await list_page(*args, **kwargs)
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

    def case(self, case: str | None = None, /, **options: Unpack[CaseOptions]) -> AsyncCase:
        """A case to work on inside of `async with`: one that is there, by its id or name, or else another one.

        `client.case("INC-1042", space="shop")` goes on with a case, `client.case(kit="checkout", name="INC-1043")`
        declares one.
        """
        return AsyncCase(self, case, options)

    def _follow(self, operation_id: str, **arguments: Any) -> AsyncGenerator[Any]:
        call = build_call(find_operation(operation_id), arguments)
        return self.listen(open_follow(call, self._patience, self._environment))

    async def listen(self, follow: Follow[T]) -> AsyncGenerator[T]:
        """What a follower hands out, connection after connection."""
        while True:
            failure: CmbsError | None = None
            call = follow.begin()
            attempt = Attempt(call, {**self._identity, **call.headers}, self._patience.timeout, 0.0, SILENCE_SECONDS)
            try:
                async with self._transport.follow(attempt) as response:
                    body = b"" if response.is_success else await response.aread()
                    follow.accept(Answer(response.status_code, response.headers, body))
                    async for event in httpx2.EventSource(response, MAX_EVENT_BYTES):
                        if (entry := follow.take(event)) is not None:
                            yield entry
            except CmbsError as exc:
                failure = exc
            await anyio.sleep(follow.judge(failure))

    async def close(self) -> None:
        """Close its connections, and the server where that runs in this process for it."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _vary(self, **changes: Any) -> Self:
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    async def _call(self, operation_id: str, **arguments: Any) -> Any:
        return await self.send(build_call(find_operation(operation_id), arguments))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"
