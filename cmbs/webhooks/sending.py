"""Sending one request to one endpoint: where it may go, how long it may take, and what came of it.

The name of a host is resolved here, every address that it has is judged, and the connection goes to one of those: a
name that changes its mind between the check and the connection gains nothing. Redirects are not followed, proxies and
credentials of the environment are not used, and of the answer only the status is read.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from functools import partial
from importlib.metadata import version
from typing import NamedTuple
from urllib.parse import SplitResult

import httpx2

from cmbs.addresses import Reach, classify_address
from cmbs.errors import InvalidRequest
from cmbs.substrate.tools.event_loop import LoopClosed, LoopThread
from cmbs.substrate.tools.http import describe_cause
from cmbs.webhooks.kernel.model import MAX_ERROR_LENGTH, is_success, split_url

DEFAULT_TIMEOUT_SECONDS = 15
_MAX_CONNECTIONS = 64
_MAX_ADDRESSES_TRIED = 3


class Sent(NamedTuple):
    """What came of a request; without a status, `error` says why there is none."""

    status: int | None
    duration_ms: int
    error: str


class AddressRefused(InvalidRequest):
    """This server sends nothing to such an address."""


class EgressRules(NamedTuple):
    """Where requests may go: `https` to public addresses, either scheme to this machine; the rest where allowed."""

    allow_private: bool = False

    def check_url(self, url: str) -> SplitResult:
        """The parts of an address; AddressRefused where its scheme or its literal address is not allowed."""
        parts = split_url(url)
        host = parts.hostname or ""
        try:
            self._check(parts, classify_address(host))
        except ValueError:
            # A name: what it stands for is known when it is resolved.
            named_locally = host == "localhost" or host.endswith(".localhost")
            if parts.scheme == "http" and not named_locally and not self.allow_private:
                raise AddressRefused(
                    "plain `http` is for this machine alone; use `https`", {"field": "url", "accepted": "https"}
                ) from None
        return parts

    def check_addresses(self, parts: SplitResult, addresses: list[str]) -> None:
        """AddressRefused where one of the addresses that a name stands for is not allowed."""
        for address in addresses:
            self._check(parts, classify_address(address))

    def _check(self, parts: SplitResult, reach: Reach) -> None:
        if reach is Reach.PRIVATE and not self.allow_private:
            raise AddressRefused(
                "the address is in a private network, to which this server sends nothing",
                {"field": "url", "next": "start the server with `--webhook-private`, if that is meant"},
            )
        if reach is Reach.PUBLIC and parts.scheme == "http":
            raise AddressRefused(
                "plain `http` does not leave this machine; use `https`", {"field": "url", "accepted": "https"}
            )


DEFAULT_RULES = EgressRules()


class Sender:
    """Sends requests, each within `timeout_seconds` in all. `tls` says whom to trust; without it, whom the system does.

    Methods may be called from several threads at once.
    """

    def __init__(
        self,
        rules: EgressRules = DEFAULT_RULES,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.rules = rules
        self.timeout_seconds = timeout_seconds
        self._tls = tls
        self._loop = LoopThread("cmbs-webhooks")
        self._client: httpx2.AsyncClient | None = None

    def send(self, url: str, body: bytes, headers: dict[str, str]) -> Sent:
        """Send a body. What goes wrong is part of the result."""
        began = time.monotonic()
        status, error = None, ""
        try:
            status = self._loop.run(partial(self._post_in_time, url, body, headers))
        except LoopClosed:
            error = "the server was stopping"
        except InvalidRequest as exc:
            error = exc.message
        except TimeoutError:
            error = f"no answer within {self.timeout_seconds:g} seconds"
        except (httpx2.HTTPError, OSError) as exc:
            error = f"no answer: {describe_cause(exc)}"
        if status is not None and not is_success(status):
            error = "a redirect, which is not followed" if status in range(300, 400) else f"answered {status}"
        return Sent(status, round((time.monotonic() - began) * 1_000), error[:MAX_ERROR_LENGTH])

    def close(self) -> None:
        """Call off what is under way."""
        self._loop.close()

    async def _post_in_time(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        async with asyncio.timeout(self.timeout_seconds):
            return await self._post(url, body, headers)

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        parts = self.rules.check_url(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        self.rules.check_addresses(parts, addresses)
        failure: httpx2.ConnectError | None = None
        for address in addresses[:_MAX_ADDRESSES_TRIED]:
            try:
                return await self._post_to(address, port, parts, body, headers)
            except httpx2.ConnectError as exc:
                failure = exc
        raise failure or OSError("the name of the host stands for no address")

    async def _post_to(self, address: str, port: int, parts: SplitResult, body: bytes, headers: dict[str, str]) -> int:
        """Connect to this address, and speak to the host that was named."""
        client = self._open()
        literal = f"[{address}]" if ":" in address else address
        target = parts._replace(netloc=f"{literal}:{port}").geturl()
        request = httpx2.Request(
            "POST",
            target,
            content=body,
            headers={
                "host": parts.netloc,
                "content-type": "application/json",
                "user-agent": f"cmbs/{version('cmbs')}",
                **headers,
            },
            extensions={"sni_hostname": parts.hostname},
        )
        response = await client.send(request, stream=True, follow_redirects=False)
        await response.aclose()
        return response.status_code

    def _open(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=None,  # one limit for all of it, in `_post_in_time`
                limits=httpx2.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=0),
                trust_env=False,
                verify=self._tls or ssl.create_default_context(),
            )
        return self._client
