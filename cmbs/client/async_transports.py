"""How a client that awaits reaches a server over HTTP."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from cmbs.client.errors import Unreachable
from cmbs.client.exchange import Answer, Attempt
from cmbs.client.requests import MAX_ANSWER_BYTES, explain_failure, list_request


class AsyncHttpTransport:
    """Sends calls over HTTP."""

    def __init__(self, http: httpx2.AsyncClient, name: str) -> None:
        self._http = http
        self._name = name

    async def send(self, attempt: Attempt) -> Answer:
        """The answer; Unreachable where there is none, it is too large, or it takes too long."""
        body = bytearray()
        try:
            async with self._http.stream(**list_request(attempt)) as response:
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MAX_ANSWER_BYTES:
                        raise Unreachable(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
                    if time.monotonic() > attempt.until:
                        raise Unreachable("the answer was not complete in time")
        except httpx2.RequestError as exc:
            raise explain_failure(self._name, exc) from exc
        return Answer(response.status_code, response.headers, bytes(body))

    @asynccontextmanager
    async def follow(self, attempt: Attempt) -> AsyncIterator[httpx2.Response]:
        """An answer that goes on; Unreachable where it breaks off."""
        try:
            async with self._http.stream(**list_request(attempt)) as response:
                yield response
        except httpx2.RequestError as exc:
            raise explain_failure(self._name, exc) from exc

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()
