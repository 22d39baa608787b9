"""Connections to upstream servers: opened when one is needed, kept, and opened again after they broke.

Messages go through as they are: requests are sent, and results are handed back, as the JSON objects that they were.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import anyio
import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, ValidationError

from cmbs.mcp.gateway.config import GatewayConfig
from cmbs.substrate.tools.credentials import Credentials
from cmbs.substrate.tools.mcp_servers import MESSAGE_BYTES, HttpServer, McpServer, StdioServer
from cmbs.substrate.tools.mcp_stdio import StdioProgram, stdio_program

Wire = dict[str, Any]
# Asks the client of a call something for its upstream; the answer as it goes over the wire.
Ask = Callable[[Wire], Awaitable[Wire]]

# What the SDK connects to, for a server and the values of its headers or its environment.
OpenTarget = Callable[[McpServer, dict[str, str], AsyncExitStack], Awaitable[Any]]

_US = mcp_types.Implementation(name="cmbs-gateway", version="1")
_START_SECONDS = 30
# In the words that the SDK has for a message of a stream, so that both are known by them.
_TOO_LARGE = f"exceeded the {MESSAGE_BYTES} byte limit"
_REFUSED = mcp_types.ErrorData(
    code=mcp_types.INVALID_REQUEST, message="the client of this call cannot be asked in the middle of it"
)


class _Result(BaseModel):
    """A result of which every field is kept as it came."""

    model_config = ConfigDict(extra="allow")


class UpstreamFailed(Exception):
    """The request did not reach the server, or the server refused it: nothing happened."""


class UpstreamBroke(Exception):
    """The exchange broke off after the request was sent: whether it happened is not known."""


class UpstreamSaidTooMuch(UpstreamBroke):
    """The server did answer, with more than one message may have: what it says is not taken over."""


class Connection:
    """One session with one server, in a task of its own."""

    def __init__(self, name: str, server: McpServer, values: Mapping[str, str], open_target: OpenTarget) -> None:
        self.where = f"MCP server `{name}`"
        self._server = server
        self._values = dict(values)
        self._open = open_target
        self._program: StdioProgram | None = None
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self._failure = "it ended at once"
        self.session: ClientSession | None = None
        # Those whose calls are under way, to be asked where the server asks something back.
        self._asked: list[Ask] = []
        self.on_list_changed: Callable[[], None] = lambda: None
        self._task = asyncio.create_task(self._live())

    @property
    def good(self) -> bool:
        """Whether requests may still be sent; one that is being opened is."""
        if self._task.done() or self._closing.is_set():
            return False
        return self._program is None or (self._program.alive and not self._program.said_too_much)

    @property
    def modern(self) -> bool:
        """Whether the server speaks the protocol without sessions."""
        return self.session is not None and self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def wait_ready(self) -> ClientSession:
        """The session once there is one; UpstreamFailed where there is none."""
        await self._ready.wait()
        if self.session is None:
            raise UpstreamFailed(f"no connection to {self.where}: {self._failure}")
        return self.session

    async def request(
        self, method: str, params: Wire, on_progress: ProgressFnT | None = None, ask: Ask | None = None
    ) -> Wire:
        """Send a request and give the result, both as they are on the wire."""
        session = await self.wait_ready()
        if ask is not None:
            self._asked.append(ask)
        try:
            # With its types spelled out, or else the params become a model and lose what it does not know.
            message = mcp_types.Request[dict[str, Any], str](method=method, params=params)
            result = await session.send_request(message, _Result, progress_callback=on_progress)
            return result.model_extra or {}
        except MCPError as exc:
            if exc.code in (mcp_types.PARSE_ERROR, mcp_types.CONNECTION_CLOSED) and _TOO_LARGE in exc.message:
                raise UpstreamSaidTooMuch(f"{self.where} answered with more than {MESSAGE_BYTES} bytes") from exc
            if exc.code == mcp_types.CONNECTION_CLOSED:
                raise UpstreamBroke(f"the exchange with {self.where} broke off") from exc
            if exc.code == mcp_types.PARSE_ERROR:
                # The SDK's word for an answer that it cannot read: what it was the answer to may have happened.
                raise UpstreamBroke(f"{self.where} gave an answer that is not one of MCP") from exc
            raise
        except ValidationError as exc:
            raise UpstreamBroke(f"{self.where} gave an answer that is not one of MCP") from exc
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            raise UpstreamFailed(f"no connection to {self.where}: {exc}") from exc
        except (httpx2.HTTPError, anyio.ClosedResourceError, anyio.BrokenResourceError) as exc:
            raise UpstreamBroke(f"the exchange with {self.where} broke off: {exc}") from exc
        finally:
            if ask is not None:
                self._asked.remove(ask)

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
                    client = await stack.enter_async_context(await self._client(stack))
                    limit.deadline = math.inf
                    self.session = client.session
                    self._ready.set()
                    await self._closing.wait()
            if limit.cancelled_caught:
                self._failure = f"it was not ready within {seconds} s"
        except FileNotFoundError as exc:
            self._failure = f"there is no command `{exc.filename}` here; install it, or write its whole path"
        except Exception as exc:  # noqa: BLE001 - whatever it is, those who wait for the connection are told
            inner: BaseException = exc
            while isinstance(inner, BaseExceptionGroup):
                inner = inner.exceptions[0]
            self._failure = str(inner) or type(inner).__name__
        finally:
            self.session = None
            self._ready.set()

    async def _client(self, stack: AsyncExitStack) -> Client:
        target = await self._open(self._server, self._values, stack)
        if isinstance(target, StdioProgram):
            self._program = target
            target = stdio_program(target)
        return Client(
            target,
            cache=None,
            client_info=_US,
            elicitation_callback=self._answer_elicitation,
            message_handler=self._note_message,
        )

    async def _answer_elicitation(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - named so by the SDK
        params: mcp_types.ElicitRequestParams,
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        """Ask the client of the call that this is about: the only one under way, for the request does not say which."""
        if len(self._asked) != 1:
            return _REFUSED
        try:
            answer = await self._asked[0](params.model_dump(by_alias=True, mode="json", exclude_none=True))
        except MCPError as exc:
            return exc.error
        return mcp_types.ElicitResult.model_validate(answer, by_name=False)

    async def _note_message(self, message: Any) -> None:
        method = getattr(message, "method", "")
        if method in ("notifications/tools/list_changed", "notifications/prompts/list_changed"):
            self.on_list_changed()


async def open_server(server: McpServer, values: dict[str, str], stack: AsyncExitStack) -> Any:
    """The program of a server on standard streams, or a connection to a URL."""
    if isinstance(server, StdioServer):
        return StdioProgram(server.command, values, server.cwd, server.max_message_bytes)
    # Not from the environment: a proxy there is not for what an operator put behind a gateway.
    client = httpx2.AsyncClient(
        # Compressed, a little of it could become anything.
        headers={**values, "accept-encoding": "identity"},
        timeout=None,
        verify=ssl.create_default_context(),
        trust_env=False,
        event_hooks={"response": [_limit_answer]},
    )
    http = await stack.enter_async_context(client)
    return streamable_http_client(server.url, http_client=http, max_sse_event_size=MESSAGE_BYTES)


async def _limit_answer(response: httpx2.Response) -> None:
    """Bound an answer that is one message; of one that is a stream of them, the SDK bounds each."""
    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        response.stream = _BoundedStream(response)


class _BoundedStream(httpx2.AsyncByteStream):
    """The content of an answer. It ends in the kind of error that the SDK takes for the end of one request alone."""

    def __init__(self, response: httpx2.Response) -> None:
        self._stream: Any = response.stream
        self._encoding = response.headers.get("content-encoding", "identity")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding != "identity":
            raise httpx2.StreamError("the answer is encoded in a way that was not asked for")
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MESSAGE_BYTES:
                raise httpx2.StreamError(_TOO_LARGE)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class Connections:
    """The connections of a gateway: one to each server, and one of its own for an actor with credentials there."""

    def __init__(
        self, config: GatewayConfig, environment: Mapping[str, str], open_target: OpenTarget | None = None
    ) -> None:
        """`open_target` gives what the SDK connects to; by default the program or the URL that a server names."""
        self.config = config
        self.credentials = Credentials(environment, config.variables())
        self._open_target = open_target or open_server
        self._open: dict[tuple[str, str | None], Connection] = {}
        self.on_list_changed: Callable[[str], None] = lambda _: None

    def connection(self, name: str, actor_id: str = "") -> Connection:
        """The connection by which an actor reaches a server; a new one where there is none that is good."""
        server, own = self.config.server_for(name, actor_id)
        key = (name, actor_id if own else None)
        known = self._open.get(key)
        if known is not None and known.good:
            return known
        if known is not None:
            known.abandon()
        made = Connection(name, server, self._values(server), self._open_target)
        made.on_list_changed = lambda: self.on_list_changed(name)
        self._open[key] = made
        return made

    async def aclose(self) -> None:
        """End every session."""
        for connection in list(self._open.values()):
            await connection.aclose()

    def _values(self, server: McpServer) -> dict[str, str]:
        values = {}
        for name, variable in (server.headers if isinstance(server, HttpServer) else server.env).items():
            value = self.credentials.get(variable)
            if value is None:
                raise UpstreamFailed(f"the environment variable `{variable}` is not set")
            values[name] = value
        return values
