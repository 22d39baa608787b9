"""The two clients: the same operations over httpx2, one that blocks and one that awaits."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Generator
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from uuid import uuid4

import anyio
import httpx2

from cmbs.client.belief import BeliefOperations
from cmbs.client.calls import Call, list_ids, read
from cmbs.client.cases import AsyncCase, Case, CaseOptions
from cmbs.client.errors import Unreachable
from cmbs.client.exchange import (
    Answer,
    Attempt,
    Environment,
    Exchange,
    Heads,
    Outcome,
    Patience,
    Pause,
    exchange,
)
from cmbs.client.following import (
    LISTS,
    MAX_EVENT_BYTES,
    SILENCE_SECONDS,
    Follow,
    FollowOptions,
    JournalFollow,
    StreamFollow,
)
from cmbs.client.governance import GovernanceOperations
from cmbs.client.graphs import GraphOperations
from cmbs.client.observations import ObservationOperations
from cmbs.client.operations import AsyncSender, SyncSender
from cmbs.client.results.belief import Event, StreamEvent
from cmbs.client.service import ServiceOperations
from cmbs.client.spaces import SpaceOperations
from cmbs.client.webhooks import WebhookOperations
from cmbs.errors import CmbsError

T = TypeVar("T")

# A larger answer is given up: the server would not send one in one piece.
MAX_ANSWER_BYTES = 512 * 1024 * 1024
# Not the generator of the module `random`, which an application may have seeded.
_SYSTEM = Environment(time.monotonic, random.Random().random, lambda: str(uuid4()))  # noqa: S311 - not a secret


class Operations(
    BeliefOperations,
    ObservationOperations,
    GraphOperations,
    SpaceOperations,
    GovernanceOperations,
    ServiceOperations,
    WebhookOperations,
):
    """Every operation of the API, by the name that the OpenAPI document gives it."""


class _Collector:
    """The body of an answer as it comes in, within its bounds."""

    def __init__(self, attempt: Attempt, environment: Environment) -> None:
        self._until = attempt.until
        self._now = environment.now
        self._body = bytearray()

    def add(self, part: bytes) -> None:
        """Take the next part; Unreachable where there is too much of it, or it takes too long."""
        self._body += part
        if len(self._body) > MAX_ANSWER_BYTES:
            raise Unreachable(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
        if self._now() > self._until:
            raise Unreachable("the answer was not complete in time")

    def finish(self, response: httpx2.Response) -> Answer:
        """The whole answer."""
        return Answer(response.status_code, response.headers, bytes(self._body))


class _Connection:
    """What both clients keep: how patient they are, which heads they have seen, and the name of the server."""

    def __init__(
        self, name: str, patience: Patience | None = None, *, pin: bool = False, environment: Environment = _SYSTEM
    ) -> None:
        self.name = name
        self.heads = Heads()
        self._patience = patience or Patience()
        self._pin = pin
        self._environment = environment

    def _begin(self, call: Call[T]) -> Exchange[T]:
        return exchange(call, self._patience, self.heads, self._environment, pin=self._pin)

    def _follow_of(self, template: str, name: str, from_: int | None) -> StreamFollow:
        call = read(template, name, answer=dict[str, Any], from_=from_)
        return StreamFollow(call, self._patience, self._environment)

    def _follow_journal(self, options: FollowOptions) -> JournalFollow:
        given: dict[str, Any] = {**options}
        query = {name: list_ids(name, value) if name in LISTS else value for name, value in given.items()}
        call = read("/v1/events", answer=dict[str, Any], **query)
        return JournalFollow(call, self._patience, self._environment)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class Client(_Connection, SyncSender, Operations):
    """A client that blocks. It may be used by several threads. Made by `connect`."""

    def __init__(self, http: httpx2.Client, name: str, patience: Patience | None = None, **options: Any) -> None:
        super().__init__(name, patience, **options)
        self._http = http

    def send(self, call: Call[T]) -> T:
        """The result of a call, after as many attempts as it takes."""
        steps = self._begin(call)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                outcome = None
            else:
                outcome = self._attempt(step)

    def _attempt(self, attempt: Attempt) -> Outcome:
        try:
            with self._http.stream(**_arguments(attempt)) as response:
                collector = _Collector(attempt, self._environment)
                for part in response.iter_bytes():
                    collector.add(part)
                return collector.finish(response)
        except Unreachable as exc:
            return exc
        except httpx2.RequestError as exc:
            return _explain(self.name, exc)

    def case(self, **options: Unpack[CaseOptions]) -> Case:
        """A case to work on, in a `with` block: its session, and the case of the space where one is named."""
        return Case(self, options)

    def follow_session(self, session_id: str, *, from_: int | None = None) -> Generator[Event, None, None]:
        """The events of a session as they are written, from the seq `from_` on, or else from now on.

        Lost connections are made again. Each event comes once, in order.
        """
        return self._follow(self._follow_of("/v1/sessions/{}/events", session_id, from_))

    def follow_space(self, space_id: str, *, from_: int | None = None) -> Generator[Event, None, None]:
        """The same for a space. For operators."""
        return self._follow(self._follow_of("/v1/spaces/{}/events", space_id, from_))

    def follow_all(self, **options: Unpack[FollowOptions]) -> Generator[StreamEvent, None, None]:
        """The events of all sessions and spaces that the key may read, as they are written, by these options.

        A stream that does not verify is an event with a `fault`; the others go on.
        """
        return self._follow(self._follow_journal(options))

    def _follow(self, follow: Follow[T]) -> Generator[T, None, None]:
        while True:
            failure: CmbsError | None = None
            try:
                with self._http.stream(**_arguments_of(follow.begin(), self._patience)) as response:
                    body = b"" if response.is_success else response.read()
                    follow.accept(Answer(response.status_code, response.headers, body))
                    for event in httpx2.EventSource(response, MAX_EVENT_BYTES):
                        if (entry := follow.take(event)) is not None:
                            yield entry
            except httpx2.RequestError as exc:
                failure = _explain(self.name, exc)
            except CmbsError as exc:
                failure = exc
            time.sleep(follow.judge(failure))

    def close(self) -> None:
        """Close its connections, and the server where that runs in this process for it."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Connection, AsyncSender, Operations):
    """A client that awaits. It belongs to one event loop. Made by `connect_async`."""

    def __init__(self, http: httpx2.AsyncClient, name: str, patience: Patience | None = None, **options: Any) -> None:
        super().__init__(name, patience, **options)
        self._http = http

    async def send(self, call: Call[T]) -> T:
        """The result of a call, after as many attempts as it takes."""
        steps = self._begin(call)
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
            else:
                outcome = await self._attempt(step)

    async def _attempt(self, attempt: Attempt) -> Outcome:
        try:
            async with self._http.stream(**_arguments(attempt)) as response:
                collector = _Collector(attempt, self._environment)
                async for part in response.aiter_bytes():
                    collector.add(part)
                return collector.finish(response)
        except Unreachable as exc:
            return exc
        except httpx2.RequestError as exc:
            return _explain(self.name, exc)

    def case(self, **options: Unpack[CaseOptions]) -> AsyncCase:
        """A case to work on, in an `async with` block."""
        return AsyncCase(self, options)

    def follow_session(self, session_id: str, *, from_: int | None = None) -> AsyncGenerator[Event, None]:
        """The events of a session as they are written, from the seq `from_` on, or else from now on.

        Lost connections are made again. Each event comes once, in order.
        """
        return self._follow(self._follow_of("/v1/sessions/{}/events", session_id, from_))

    def follow_space(self, space_id: str, *, from_: int | None = None) -> AsyncGenerator[Event, None]:
        """The same for a space. For operators."""
        return self._follow(self._follow_of("/v1/spaces/{}/events", space_id, from_))

    def follow_all(self, **options: Unpack[FollowOptions]) -> AsyncGenerator[StreamEvent, None]:
        """The events of all sessions and spaces that the key may read, as they are written, by these options.

        A stream that does not verify is an event with a `fault`; the others go on.
        """
        return self._follow(self._follow_journal(options))

    async def _follow(self, follow: Follow[T]) -> AsyncGenerator[T, None]:
        while True:
            failure: CmbsError | None = None
            try:
                async with self._http.stream(**_arguments_of(follow.begin(), self._patience)) as response:
                    body = b"" if response.is_success else await response.aread()
                    follow.accept(Answer(response.status_code, response.headers, body))
                    async for event in httpx2.EventSource(response, MAX_EVENT_BYTES):
                        if (entry := follow.take(event)) is not None:
                            yield entry
            except httpx2.RequestError as exc:
                failure = _explain(self.name, exc)
            except CmbsError as exc:
                failure = exc
            await anyio.sleep(follow.judge(failure))

    async def close(self) -> None:
        """Close its connections, and the server where that runs in this process for it."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _arguments(attempt: Attempt) -> dict[str, Any]:
    call = attempt.call
    return {
        "method": call.method,
        "url": call.path,
        "params": dict(call.query) or None,
        "content": call.content,
        "headers": dict(attempt.headers),
        "timeout": attempt.timeout,
    }


def _arguments_of(call: Call[Any], patience: Patience) -> dict[str, Any]:
    timeout = httpx2.Timeout(patience.timeout, read=SILENCE_SECONDS)
    return {**_arguments(Attempt(call, call.headers, 0.0, 0.0)), "timeout": timeout}


def _explain(name: str, exc: httpx2.RequestError) -> Unreachable:
    """Why there is no answer. The text of the cause is left out of it: it may quote what was sent."""
    told = type(exc).__name__
    if isinstance(exc, httpx2.ConnectError | httpx2.ConnectTimeout):
        failure = Unreachable(
            f"no connection to `{name}`: {exc}; start a server there with `cmbs serve`, or correct the address"
        )
    elif isinstance(exc, httpx2.TimeoutException):
        failure = Unreachable(f"`{name}` did not answer in time ({told})")
    else:
        failure = Unreachable(f"the connection to `{name}` broke before the answer was complete ({told})")
    failure.__cause__ = exc
    return failure
