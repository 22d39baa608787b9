"""HTTP endpoints as tools: one request a call, on a connection of its own, to exactly where the operator said."""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import msgspec

from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.targets import PLACEHOLDER, HttpTarget, Method, http_target
from cmbs.substrate.tools.credentials import Credentials
from cmbs.substrate.tools.event_loop import LoopClosed, LoopThread
from cmbs.substrate.tools.runner import (
    CallContext,
    OutcomeUnknown,
    ResultRefused,
    ToolFailed,
    time_out_error,
    too_large,
)

_IN_THE_QUERY = frozenset({Method.GET, Method.DELETE})
# The first thing that leaves us: before it, nothing can have happened.
_SENDING = "send_request_headers.started"
# A gateway says that it sent the request on, and that no good answer came back.
_LOST_BEHIND_A_GATEWAY = frozenset({httpx2.codes.BAD_GATEWAY, httpx2.codes.GATEWAY_TIMEOUT})
_MAX_REFUSAL_BYTES = 300  # of what an endpoint says about its refusal
_MAX_CONNECTIONS = 256


class HttpTools:
    """Carries out calls of HTTP tools.

    Redirects are not followed, proxies and credentials of the environment are not used, and no connection is used
    twice: an endpoint that closes an idle one at the wrong moment would leave a call in doubt for nothing.
    `hosts` are those that may be called, as `host` or `host:port`; None is any. `tls` says whom to trust; without it,
    whom the system trusts.
    """

    def __init__(
        self, credentials: Credentials, hosts: frozenset[str] | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._credentials = credentials
        self._tls = tls
        self._hosts = hosts
        self._loop = LoopThread("http tools")
        self._client: httpx2.AsyncClient | None = None

    def execute(self, tool: Tool, args: bytes, call: CallContext) -> bytes:
        """See `Executor.execute`."""
        target = http_target(tool)
        self._check_host(target)
        exchange = _Exchange(tool, _request(target, args, call, self._headers(target)))
        try:
            return self._loop.run(partial(self._carry_out, exchange))
        except LoopClosed as exc:
            raise exchange.failure_of("the server is stopping") from exc

    def close(self) -> None:
        """Call off what is under way."""
        self._loop.close()

    async def _carry_out(self, exchange: _Exchange) -> bytes:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=None,  # one limit for all of it, below
                limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=0),
                trust_env=False,
                verify=self._tls or ssl.create_default_context(),
            )
        try:
            async with asyncio.timeout(exchange.tool.timeout_ms / 1_000):
                return await exchange.carry_out(self._client)
        except TimeoutError as exc:
            if exchange.sent:
                raise time_out_error(exchange.tool) from exc
            raise ToolFailed(f"no connection to {exchange.where} within {exchange.tool.timeout_ms} ms") from exc

    def _check_host(self, target: HttpTarget) -> None:
        parts = urlsplit(target.url)
        if self._hosts is not None and not self._hosts & {parts.hostname, parts.netloc.lower()}:
            raise ToolFailed(f"this server calls no tools at `{parts.netloc}`")

    def _headers(self, target: HttpTarget) -> dict[str, str]:
        headers = {}
        for header, variable in target.headers.items():
            value = self._credentials.get(variable)
            if value is None:
                raise ToolFailed(f"the environment variable `{variable}` is not set")
            if not value.isprintable() or not value.isascii() or value != value.strip():
                raise ToolFailed(f"the environment variable `{variable}` holds nothing that a header can carry")
            headers[header] = value
        return headers


class _Exchange:
    """One request and its response."""

    def __init__(self, tool: Tool, request: httpx2.Request) -> None:
        self.tool = tool
        self.sent = False
        self.where = f"`{request.url.netloc.decode('ascii')}`"
        self._request = request
        self._request.extensions = {**request.extensions, "trace": self._trace}

    async def carry_out(self, client: httpx2.AsyncClient) -> bytes:
        try:
            response = await client.send(self._request, stream=True, follow_redirects=False)
            try:
                return await self._read(response)
            finally:
                await response.aclose()
        except httpx2.ConnectError as exc:
            raise ToolFailed(f"no connection to {self.where}: {describe_cause(exc)}") from exc
        except httpx2.HTTPError as exc:
            raise self.failure_of(describe_cause(exc)) from exc

    def failure_of(self, why: str) -> OutcomeUnknown | ToolFailed:
        """That it came to no end: before anything was sent it has failed, after that its outcome is unknown."""
        if self.sent:
            return OutcomeUnknown(f"the exchange with {self.where} broke off: {why}")
        return ToolFailed(f"nothing was sent to {self.where}: {why}")

    async def _read(self, response: httpx2.Response) -> bytes:
        status = response.status_code
        if response.is_redirect:
            raise ToolFailed(f"{self.where} answered with status {status}, a redirect, which is not followed")
        if status in _LOST_BEHIND_A_GATEWAY:
            raise OutcomeUnknown(f"{self.where} answered with status {status}: a gateway got no answer to pass on")
        if not response.is_success:
            raise ToolFailed(f"{self.where} answered with status {status}{await _read_refusal(response)}")
        encoding = response.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise ResultRefused(f"the result is encoded as `{encoding}`, which was not asked for")
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self.tool.max_result_bytes:
                raise too_large(self.tool, len(body))
        return bytes(body) or b"null"

    async def _trace(self, event: str, _: Any) -> None:
        if event.endswith(_SENDING):
            self.sent = True


async def _read_refusal(response: httpx2.Response) -> str:
    """The beginning of a refusal in the endpoint's own words."""
    text = b""
    async for chunk in response.aiter_raw():
        text += chunk[:_MAX_REFUSAL_BYTES]
        if len(text) >= _MAX_REFUSAL_BYTES:
            break
    said = text[:_MAX_REFUSAL_BYTES].decode("utf-8", "replace").strip()
    return f": {said}" if said and said.isprintable() else ""


def describe_cause(exc: BaseException) -> str:
    """What the system says is wrong: the innermost cause that has words."""
    words = str(exc)
    inner: BaseException | None = exc
    while inner is not None:
        words = str(inner) or words
        inner = inner.__cause__ or inner.__context__
    return words or type(exc).__name__


# --- the request ------------------------------------------------------------------------------------------------------


def _request(target: HttpTarget, args: bytes, call: CallContext, headers: dict[str, str]) -> httpx2.Request:
    arguments: dict[str, Any] = msgspec.json.decode(args)
    url = PLACEHOLDER.sub(lambda match: _segment(match[1], arguments), target.url)
    in_path = PLACEHOLDER.findall(target.url)
    rest = {name: value for name, value in arguments.items() if name not in in_path}
    ours = {
        "Accept": "application/json",
        # What comes is counted as it comes; compressed, a little of it could become anything.
        "Accept-Encoding": "identity",
        "User-Agent": "cmbs",
        "X-Cmbs-Execution": _header_text(call.execution_id),
        "Idempotency-Key": _header_text(call.idempotency_key or call.execution_id),
    }
    if target.method in _IN_THE_QUERY:
        pairs = [pair for name, value in rest.items() for pair in _query_pairs(name, value)]
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in pairs)
        joined = f"{url}{'&' if '?' in url else '?'}{query}" if query else url
        return httpx2.Request(target.method, joined, headers=ours | headers)
    body = args if not in_path else msgspec.json.encode(rest, order="sorted")
    return httpx2.Request(
        target.method, url, content=body, headers=ours | {"Content-Type": "application/json"} | headers
    )


def _segment(name: str, arguments: dict[str, Any]) -> str:
    value = arguments.get(name)
    if not isinstance(value, str | int | float) or value in ("", ".", ".."):
        raise ToolFailed(f"`{name}` must be text or a number that can stand in a path")
    return quote(_text(value), safe="")


def _query_pairs(name: str, value: Any) -> list[tuple[str, str]]:
    values = value if isinstance(value, list) else [value]
    if any(isinstance(each, dict | list) for each in values):
        raise ToolFailed(f"`{name}` is nested and cannot be sent in a query")
    return [(name, _text(each)) for each in values if each is not None]


def _text(value: str | float | bool) -> str:  # noqa: FBT001 - a value like the others
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _header_text(text: str) -> str:
    # Ids are any text; a header holds visible ASCII. Different ones stay different.
    return quote(text, safe="!#$&'()*+,-./:;<=>?@[]^_`{|}~")
