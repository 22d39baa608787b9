"""How a client that blocks reaches a server over HTTP.

Written by scripts/generate_client.py from async_transports.py: do not edit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2

from cmbs.client.errors import Unreachable
from cmbs.client.exchange import Answer, Attempt
from cmbs.client.requests import MAX_ANSWER_BYTES, explain_failure, list_request


class HttpTransport:
    """Sends calls over HTTP."""

    def __init__(self, http: httpx2.Client, name: str) -> None:
        self._http = http
        self._name = name

    def send(self, attempt: Attempt) -> Answer:
        """The answer; Unreachable where there is none, it is too large, or it takes too long."""
        body = bytearray()
        try:
            with self._http.stream(**list_request(attempt)) as response:
                for part in response.iter_bytes():
                    body += part
                    if len(body) > MAX_ANSWER_BYTES:
                        raise Unreachable(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
                    if time.monotonic() > attempt.until:
                        raise Unreachable("the answer was not complete in time")
        except httpx2.RequestError as exc:
            raise explain_failure(self._name, exc) from exc
        return Answer(response.status_code, response.headers, bytes(body))

    @contextmanager
    def follow(self, attempt: Attempt) -> Iterator[httpx2.Response]:
        """An answer that goes on; Unreachable where it breaks off."""
        try:
            with self._http.stream(**list_request(attempt)) as response:
                yield response
        except httpx2.RequestError as exc:
            raise explain_failure(self._name, exc) from exc

    def close(self) -> None:
        """Close its connections."""
        self._http.close()
