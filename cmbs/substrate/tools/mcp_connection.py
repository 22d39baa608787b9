"""A connection to an upstream server: one session, what goes through it, and who is meant by what the server says.

Messages go through as they are: requests are sent, and results are handed back, as the JSON objects that they were.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from contextvars import Context, ContextVar
from typing import Any, NamedTuple, Protocol, get_args

import anyio
import mcp_types
from mcp import Client, MCPError
from mcp.client.client import ConnectMode
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from cmbs.substrate.tools.mcp_http import EXCHANGE, Exchange, Fault
from cmbs.substrate.tools.mcp_servers import MESSAGE_BYTES, HttpServer, McpServer
from cmbs.substrate.tools.mcp_stdio import StdioProgram, UnreadableMessage, stdio_program

Wire = dict[str, Any]

# What the SDK connects to, for a server and the values of its headers or its environment.
OpenTarget = Callable[[McpServer, dict[str, str], AsyncExitStack], Awaitable[Any]]

_US = mcp_types.Implementation(name="cmbs", version="1")
_START_SECONDS = 30
_END_SECONDS = 5
# Messages that are on their way to clients at once: what a server says beyond that is dropped.
_MAX_RELAYED = 100
_REFUSED = mcp_types.ErrorData(
    code=mcp_types.INVALID_REQUEST, message="the client of this call cannot be asked in the middle of it"
)
_RELAYED = frozenset({"notifications/message", "notifications/elicitation/complete"})
_LISTS = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
_EVENTS: dict[type, str] = {ToolsListChanged: "tools", PromptsListChanged: "prompts", ResourcesListChanged: "resources"}
LEVELS = get_args(mcp_types.LoggingLevel)


_ELICITED = TypeAdapter(mcp_types.ElicitResult)
_SAMPLED: TypeAdapter[Any] = TypeAdapter(mcp_types.CreateMessageResult | mcp_types.CreateMessageResultWithTools)


class WireResult(BaseModel):
    """A result of which every field is kept as it came."""

    model_config = ConfigDict(extra="allow")


class UpstreamFailed(Exception):
    """The request did not reach the server, or the server refused it: nothing happened."""


class UpstreamBroke(Exception):
    """The exchange broke off after the request was sent: whether it happened is not known."""


class UpstreamGarbled(UpstreamBroke):
    """The server gave an answer that cannot be read; over one stream for all, to whom it was is not known."""


class UpstreamUnfit(UpstreamBroke):
    """The server did answer, with what cannot be kept: what it says is not taken over."""


class UpstreamSaidTooMuch(UpstreamUnfit):
    """The server did answer, with more than one message may have."""


class Peer(Protocol):
    """The client behind a request that is under way. Both methods take and give what goes over the wire."""

    async def ask(self, method: str, params: Wire) -> Wire:
        """Ask it something for the server; MCPError where that cannot be."""
        ...

    async def notify(self, method: str, params: Wire) -> None:
        """Hand on a message of the server that takes no answer."""
        ...


# Of the request in whose context something runs.
_PEER: ContextVar[Peer | None] = ContextVar("peer", default=None)


class Manner(NamedTuple):
    """How a server is spoken to, as its client would speak to it.

    `older`: in the protocol with sessions, where the server has it; else in the newest that both speak. `samples`: the
    client has a model that the server may ask. Servers choose what they do by that.
    """

    older: bool = False
    samples: bool = False


NEWEST = Manner()


class Connection:
    """One session with one server, in a task of its own."""

    def __init__(
        self, name: str, server: McpServer, values: Mapping[str, str], open_target: OpenTarget, manner: Manner = NEWEST
    ) -> None:
        self.where = f"MCP server `{name}`"
        self._manner = manner
        self._server = server
        self._values = dict(values)
        self._open = open_target
        self._program: StdioProgram | None = None
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._is_retired = False
        self._failure = "it ended at once"
        self.session: ClientSession | None = None
        self._client: Client | None = None
        # Those whose calls are under way: what the server asks or says meanwhile is for one of them.
        self._peers: list[Peer] = []
        self._level: str | None = None
        self._is_garbled = False
        self._said_too_much_to_one: bool | None = None
        # Requests whose time is over, or whose caller has left, on their way out.
        self._parting: set[asyncio.Task[Wire]] = set()
        # When it was last of use, by the clock of the event loop, and how many have a use for it without requests.
        self._under_way = 0
        self._relaying = 0
        self.used_at = asyncio.get_running_loop().time()
        self.watchers = 0
        self.on_list_changed: Callable[[str], None] = lambda _: None
        self.on_resource_updated: Callable[[str], None] = lambda _: None
        # In a context of its own, and not in that of the request for which it is opened.
        self._task = asyncio.create_task(self._live(), context=Context())

    @property
    def good(self) -> bool:
        """Whether requests may still be sent; one that is being opened is."""
        if self._task.done() or self._is_retired or self._closing.is_set():
            return False
        return self._program is None or (self._program.listens and not self._program.said_too_much)

    @property
    def has_ended(self) -> bool:
        """Whether it is closed."""
        return self._task.done()

    @property
    def modern(self) -> bool:
        """Whether the server speaks the protocol without sessions."""
        return self.session is not None and self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def wait_ready(self) -> ClientSession:
        """The session once there is one; UpstreamFailed where there is none."""
        await self._ready.wait()
        if self.session is None or self._closing.is_set():
            raise UpstreamFailed(f"no connection to {self.where}: {self._failure}")
        return self.session

    async def watch(self, uri: str, ready: Callable[[], None]) -> None:
        """Have the server say when a resource changes, until this is cancelled; raises where it does not, or ends.

        `ready` is called once the server has taken the subscription.
        """
        await self.wait_ready()
        self.watchers += 1
        try:
            if self.modern and self._client is not None:
                async with self._client.listen(resource_subscriptions=[uri]) as said:
                    ready()
                    async for event in said:
                        self.on_resource_updated(getattr(event, "uri", uri))
            else:
                await self.request("resources/subscribe", {"uri": uri})
                ready()
                await asyncio.wait({self._task})
            raise UpstreamBroke(f"{self.where} says no more of `{uri}`")
        finally:
            self.watchers -= 1

    async def unwatch(self, uri: str) -> None:
        """Take a subscription back, where the server still knows of one."""
        if self.good and self.session is not None and not self.modern:
            with suppress(UpstreamFailed, UpstreamBroke, MCPError, TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self.request("resources/unsubscribe", {"uri": uri})

    @property
    def in_use(self) -> bool:
        """Whether a request is under way, or a client waits for what the server says by itself."""
        return bool(self._under_way or self.watchers)

    async def set_level(self, level: str) -> None:
        """Have a server with sessions say what is of this level or above."""
        session = await self.wait_ready()
        capabilities = session.server_capabilities
        if self.modern or capabilities is None or capabilities.logging is None or self._level == level:
            return
        self._level = level
        with suppress(MCPError):
            await self.request("logging/setLevel", {"level": level})

    async def request(
        self,
        method: str,
        params: Wire,
        on_progress: ProgressFnT | None = None,
        peer: Peer | None = None,
        seconds: float | None = None,
    ) -> Wire:
        """Send a request and give the result, both as they are on the wire; TimeoutError where its time is over."""
        session = await self.wait_ready()
        exchange = Exchange() if isinstance(self._server, HttpServer) else None
        # In a task of its own: it can take a while to tell a program that does not listen not to answer any more.
        self._under_way += 1
        asking = asyncio.create_task(self._ask(session, exchange, method, params, on_progress, peer))
        try:
            await asyncio.wait({asking}, timeout=seconds)
        finally:
            if asking.done():
                self._under_way -= 1
            else:
                self._parting.add(asking)
                asking.add_done_callback(self._forget)
                asking.cancel()
            if exchange is not None:
                exchange.leave()
            self.used_at = asyncio.get_running_loop().time()
            if self._is_retired:
                self.retire()
        if asking.done():
            return asking.result()
        if exchange is not None and exchange.fault is Fault.NOT_REACHED:
            raise UpstreamFailed(f"no connection to {self.where} within {seconds:g} s")
        raise TimeoutError

    def _forget(self, asking: asyncio.Task[Wire]) -> None:
        self._parting.discard(asking)
        if not asking.cancelled():
            asking.exception()  # its caller has left
        self._under_way -= 1
        if self._is_retired:
            self.retire()

    async def _ask(
        self,
        session: ClientSession,
        exchange: Exchange | None,
        method: str,
        params: Wire,
        on_progress: ProgressFnT | None,
        peer: Peer | None,
    ) -> Wire:
        _PEER.set(peer)
        EXCHANGE.set(exchange)
        if peer is not None:
            self._peers.append(peer)
        try:
            # With its types spelled out, or else the params become a model and lose what it does not know.
            message = mcp_types.Request[dict[str, Any], str](method=method, params=params)
            result = await session.send_request(message, WireResult, progress_callback=self._limit(on_progress))
            return result.model_extra or {}
        except MCPError as exc:
            if exchange is None:
                raise self._read_end(exc) or exc from exc
            raise exc if exchange.fault is None else self._read_fault(exchange, exchange.fault) from exc
        except ValidationError as exc:
            raise UpstreamGarbled(f"{self.where} gave an answer that is not one of MCP") from exc
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as exc:
            raise UpstreamBroke(f"the exchange with {self.where} broke off: {exc}") from exc
        finally:
            if peer is not None:
                self._peers.remove(peer)

    def _read_fault(self, exchange: Exchange, fault: Fault) -> UpstreamFailed | UpstreamBroke:
        """What it means that a request over HTTP has no answer."""
        match fault:
            case Fault.NOT_REACHED:
                return UpstreamFailed(f"no connection to {self.where}: {exchange.words or 'it has ended'}")
            case Fault.FORGOTTEN:
                # It was started again, for example. The next request opens another session.
                self.retire()
                return UpstreamFailed(
                    f"{self.where} has ended the session, and did not take the request; call it again"
                )
            case Fault.GARBLED:
                return UpstreamGarbled(f"{self.where} gave an answer that is not one of MCP ({exchange.words})")
            case Fault.UNFIT:
                return UpstreamUnfit(f"{self.where} answered with text or numbers that cannot be recorded")
            case Fault.TOO_LARGE:
                return UpstreamSaidTooMuch(f"{self.where} answered with more than {MESSAGE_BYTES} bytes")
            case Fault.BROKE_OFF:
                return UpstreamBroke(f"the exchange with {self.where} broke off: {exchange.words}")

    def _read_end(self, exc: MCPError) -> UpstreamBroke | None:
        """What it means that a program ended; None for an error that it gave."""
        has_ended = self._program is None or not self._program.alive or self._closing.is_set()
        if exc.code != mcp_types.CONNECTION_CLOSED or not has_ended:
            return None
        if self._program is not None and self._program.said_too_much:
            # What it was going to say is lost. Where it had been asked one thing only, that is what it answered.
            if self._said_too_much_to_one is None:
                self._said_too_much_to_one = self._under_way == 1
            if self._said_too_much_to_one:
                return UpstreamSaidTooMuch(f"{self.where} answered with more than it may say at once")
        if self._is_garbled:
            # The answer is one that cannot be read: what it was the answer to may have happened.
            return UpstreamGarbled(f"{self.where} gave an answer that is not one of MCP")
        return UpstreamBroke(f"the exchange with {self.where} broke off: {exc.message}")

    def retire(self) -> None:
        """Take no more requests, and end once none is under way."""
        self._is_retired = True
        if not self._under_way:
            self.abandon()

    def abandon(self) -> None:
        """Let it end by itself; one that is still being opened is not waited for."""
        self._closing.set()
        if self.session is None:
            self._task.cancel()

    async def aclose(self) -> None:
        """End the session and stop the program."""
        self.abandon()
        await asyncio.wait({self._task})

    async def _live(self) -> None:
        try:
            seconds = getattr(self._server, "start_seconds", _START_SECONDS)
            with anyio.move_on_after(seconds) as limit:
                async with AsyncExitStack() as stack:
                    client = await self._connect(stack)
                    limit.deadline = math.inf
                    self._client = client
                    self.session = client.session
                    self._ready.set()
                    following = asyncio.create_task(self._follow_lists(client))
                    try:
                        await self._closing.wait()
                    finally:
                        following.cancel()
            if limit.cancelled_caught:
                self._failure = f"it was not ready within {seconds} s"
        except FileNotFoundError as exc:
            self._failure = f"there is no command `{exc.filename}` here; install it, or write its whole path"
        except Exception as exc:  # noqa: BLE001 - whatever it is, those who wait for the connection are told
            inner = _find_cause(exc)
            self._failure = str(inner) or type(inner).__name__
        finally:
            self.session = None
            self._ready.set()

    async def _follow_lists(self, client: Client) -> None:
        """Be told of changed lists from a server without sessions, which has to be asked to say so."""
        declared = client.session.server_capabilities
        if not self.modern or declared is None:
            return
        tools, prompts, resources = (
            each is not None and bool(each.list_changed)
            for each in (declared.tools, declared.prompts, declared.resources)
        )
        if not (tools or prompts or resources):
            return
        with suppress(Exception):
            async with client.listen(
                tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
            ) as said:
                async for event in said:
                    self.on_list_changed(_EVENTS[type(event)])

    async def _connect(self, stack: AsyncExitStack) -> Client:
        if self._manner.older:
            try:
                return await stack.enter_async_context(await self._make_client(stack, "legacy"))
            except Exception as exc:
                if not isinstance(_find_cause(exc), MCPError):
                    raise
                # The server has no sessions, and says so in one way or another.
        return await stack.enter_async_context(await self._make_client(stack, "auto"))

    async def _make_client(self, stack: AsyncExitStack, mode: ConnectMode) -> Client:
        target = await self._open(self._server, self._values, stack)
        if isinstance(target, StdioProgram):
            self._program = target
            target = stdio_program(target)
        return Client(
            target,
            mode=mode,
            cache=None,
            client_info=_US,
            # Of servers without sessions; what its client wants to hear, its client says.
            log_level="debug",
            elicitation_callback=self._relay_elicitation,
            sampling_callback=self._relay_sampling if self._manner.samples else None,
            message_handler=self._take_message,
        )

    def _limit(self, tell: ProgressFnT | None) -> ProgressFnT | None:
        """The same, and nothing while so much is on its way to clients that one of them does not read."""
        if tell is None:
            return None

        async def tell_within_bounds(progress: float, total: float | None, message: str | None) -> None:
            if self._relaying < _MAX_RELAYED:
                self._relaying += 1
                try:
                    await tell(progress, total, message)
                finally:
                    self._relaying -= 1

        return tell_within_bounds

    def _find_peer(self) -> Peer | None:
        """Who a message is for: the call in whose stream it came, or else the only call under way.

        Messages do not say which call they are about. Over HTTP each request has a stream of its own, and the SDK reads
        it in the context of the request.
        """
        known = _PEER.get()
        if any(each is known for each in self._peers):
            return known
        return self._peers[0] if len(self._peers) == 1 else None

    async def _relay(self, method: str, params: Wire) -> Wire | mcp_types.ErrorData:
        peer = self._find_peer()
        if peer is None:
            return _REFUSED
        try:
            return await peer.ask(method, params)
        except MCPError as exc:
            return exc.error

    async def _relay_elicitation(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - named so by the SDK
        params: mcp_types.ElicitRequestParams,
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        answer = await self._relay("elicitation/create", _dump(params))
        return answer if isinstance(answer, mcp_types.ErrorData) else _ELICITED.validate_python(answer, by_name=False)

    async def _relay_sampling(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - named so by the SDK
        params: mcp_types.CreateMessageRequestParams,
    ) -> Any:
        answer = await self._relay("sampling/createMessage", _dump(params))
        return answer if isinstance(answer, mcp_types.ErrorData) else _SAMPLED.validate_python(answer, by_name=False)

    async def _take_message(self, message: Any) -> None:
        if isinstance(message, UnreadableMessage):
            # It may be the answer to any request under way, none of which would get another.
            self._is_garbled = True
            self.abandon()
            return
        method = getattr(message, "method", "")
        if method in _LISTS:
            self.on_list_changed(_LISTS[method])
        elif method == "notifications/resources/updated":
            self.on_resource_updated(str(message.params.uri))
        elif method in _RELAYED and self._relaying < _MAX_RELAYED:
            peer = self._find_peer()
            if peer is not None:
                self._relaying += 1
                try:
                    await peer.notify(method, _dump(message.params))
                finally:
                    self._relaying -= 1


def _dump(params: BaseModel) -> Wire:
    return params.model_dump(by_alias=True, mode="json", exclude_unset=True)


def _find_cause(exc: BaseException) -> BaseException:
    """The first error in groups of them."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return exc
