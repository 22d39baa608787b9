"""Operations described once, for a client that blocks and for one that awaits.

An operation is a function that builds a call. As an attribute of a `SyncSender` it sends the call and returns the
result; as an attribute of an `AsyncSender` it does so when awaited. Type checkers and editors see both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, overload

from cmbs.client.calls import Call, PageCall
from cmbs.errors import CmbsError

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")

# Several calls to one result: each is yielded, and its result is sent back, or its error thrown.
Steps: TypeAlias = Generator[Call[Any], Any, T]


class SyncSender:
    """What sends calls and waits for their results."""

    @abstractmethod
    def send(self, call: Call[T]) -> T:
        """The result of a call."""

    def run(self, steps: Steps[T]) -> T:
        """The result of several calls, each sent when the one before is over."""
        advance: Callable[[], Call[Any]] = partial(next, steps)
        while True:
            try:
                call = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                advance = partial(steps.send, self.send(call))
            except CmbsError as exc:
                advance = partial(steps.throw, exc)


class AsyncSender:
    """What sends calls and hands out their results when awaited."""

    @abstractmethod
    async def send(self, call: Call[T]) -> T:
        """The result of a call."""

    async def run(self, steps: Steps[T]) -> T:
        """The result of several calls, each sent when the one before is over."""
        advance: Callable[[], Call[Any]] = partial(next, steps)
        while True:
            try:
                call = advance()
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                advance = partial(steps.send, await self.send(call))
            except CmbsError as exc:
                advance = partial(steps.throw, exc)


class Options:
    """What may be said of any call: `if_match` is the head that a write continues, `minimal` leaves the bulk out."""

    def __init__(
        self, *, if_match: str | None = None, idempotency_key: str | None = None, minimal: bool = False
    ) -> None:
        self._headers = {
            "if_match": None if if_match is None else f'"{if_match}"',
            "idempotency_key": idempotency_key,
            "prefer": "return=minimal" if minimal else None,
        }

    def apply(self, call: Call[T]) -> Call[T]:
        """The call with these options."""
        return call.with_headers(**self._headers)


_NO_OPTIONS = Options()


class SyncOperation(Generic[P, T]):
    """An operation of a client that blocks."""

    def __init__(self, sender: SyncSender, build: Callable[P, Call[T]], options: Options = _NO_OPTIONS) -> None:
        self._sender = sender
        self._build = build
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Send it, and wait for the result."""
        return self._sender.send(self._options.apply(self._build(*args, **kwargs)))

    def options(
        self, *, if_match: str | None = None, idempotency_key: str | None = None, minimal: bool = False
    ) -> SyncOperation[P, T]:
        """The same operation with options."""
        chosen = Options(if_match=if_match, idempotency_key=idempotency_key, minimal=minimal)
        return SyncOperation(self._sender, self._build, chosen)

    def pick(self, *fields: str) -> Callable[P, dict[str, Any]]:
        """The same operation, of whose answer only these fields are sent: dotted names, the result plain JSON."""

        def send(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
            return self._sender.send(self._options.apply(self._build(*args, **kwargs)).picking(fields))

        return send


class AsyncOperation(Generic[P, T]):
    """An operation of a client that awaits."""

    def __init__(self, sender: AsyncSender, build: Callable[P, Call[T]], options: Options = _NO_OPTIONS) -> None:
        self._sender = sender
        self._build = build
        self._options = options

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Send it, and await the result."""
        return await self._sender.send(self._options.apply(self._build(*args, **kwargs)))

    def options(
        self, *, if_match: str | None = None, idempotency_key: str | None = None, minimal: bool = False
    ) -> AsyncOperation[P, T]:
        """The same operation with options."""
        chosen = Options(if_match=if_match, idempotency_key=idempotency_key, minimal=minimal)
        return AsyncOperation(self._sender, self._build, chosen)

    def pick(self, *fields: str) -> Callable[P, Any]:
        """The same operation, of whose answer only these fields are sent: dotted names, the result plain JSON."""

        async def send(*args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
            return await self._sender.send(self._options.apply(self._build(*args, **kwargs)).picking(fields))

        return send


class SyncListing(SyncOperation[P, T], Generic[P, T, Item]):
    """An operation that answers with a page of a list."""

    def __init__(self, sender: SyncSender, build: Callable[P, PageCall[T, Item]]) -> None:
        super().__init__(sender, lambda *args, **kwargs: build(*args, **kwargs).call)
        self._build_page = build

    def each(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[Item]:
        """Every item of all pages; `limit` is how many come at a time."""
        page = self._build_page(*args, **kwargs)
        call: Call[T] | None = page.call
        while call is not None:
            answer = self._sender.send(call)
            yield from page.items(answer)
            call = page.turn(answer)


class AsyncListing(AsyncOperation[P, T], Generic[P, T, Item]):
    """An operation that answers with a page of a list."""

    def __init__(self, sender: AsyncSender, build: Callable[P, PageCall[T, Item]]) -> None:
        super().__init__(sender, lambda *args, **kwargs: build(*args, **kwargs).call)
        self._build_page = build

    async def each(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Item]:
        """Every item of all pages; `limit` is how many come at a time."""
        page = self._build_page(*args, **kwargs)
        call: Call[T] | None = page.call
        while call is not None:
            answer = await self._sender.send(call)
            for item in page.items(answer):
                yield item
            call = page.turn(answer)


class operation(Generic[P, T]):  # noqa: N801 - used as a decorator
    """Makes an operation of a method that builds a call."""

    def __init__(self, build: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> operation[P, T]: ...
    @overload
    def __get__(self, client: SyncSender, owner: type) -> SyncOperation[P, T]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> AsyncOperation[P, T]: ...
    def __get__(
        self, client: SyncSender | AsyncSender | None, owner: type
    ) -> operation[P, T] | SyncOperation[P, T] | AsyncOperation[P, T]:
        if client is None:
            return self
        if isinstance(client, SyncSender):
            return SyncOperation(client, self.build)
        return AsyncOperation(client, self.build)

    def build(self, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """The call, without sending it."""
        return self._build(None, *args, **kwargs)


class listing(Generic[P, T, Item]):  # noqa: N801 - used as a decorator
    """Makes an operation of a method that builds the call for a page."""

    def __init__(self, build: Callable[Concatenate[Any, P], PageCall[T, Item]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> listing[P, T, Item]: ...
    @overload
    def __get__(self, client: SyncSender, owner: type) -> SyncListing[P, T, Item]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> AsyncListing[P, T, Item]: ...
    def __get__(
        self, client: SyncSender | AsyncSender | None, owner: type
    ) -> listing[P, T, Item] | SyncListing[P, T, Item] | AsyncListing[P, T, Item]:
        if client is None:
            return self
        if isinstance(client, SyncSender):
            return SyncListing(client, self.build)
        return AsyncListing(client, self.build)

    def build(self, *args: P.args, **kwargs: P.kwargs) -> PageCall[T, Item]:
        """The call for the first page, without sending it."""
        return self._build(None, *args, **kwargs)


class SyncRunner:
    """What runs workflows and waits for their results."""

    sender: SyncSender


class AsyncRunner:
    """What runs workflows when awaited."""

    sender: AsyncSender


class workflow(Generic[P, T]):  # noqa: N801 - used as a decorator
    """Makes a method of both kinds of runner of one that yields calls."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self._steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, runner: None, owner: type) -> workflow[P, T]: ...
    @overload
    def __get__(self, runner: SyncRunner, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, runner: AsyncRunner, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(
        self, runner: SyncRunner | AsyncRunner | None, owner: type
    ) -> workflow[P, T] | Callable[P, T] | Callable[P, Coroutine[Any, Any, T]]:
        if runner is None:
            return self

        def run(*args: P.args, **kwargs: P.kwargs) -> Any:
            return runner.sender.run(self._steps(runner, *args, **kwargs))

        return run
