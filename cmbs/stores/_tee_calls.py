"""Calls to a Tee that may be unavailable for a while: deadlines, retries, and gRPC errors translated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

import grpc

from cmbs.errors import BeliefServerError, InvalidRequest, SessionNotFound, StoreUnavailable
from cmbs.tee.client import open_channel, stub_on

A = TypeVar("A")

_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.05, 1.0
_MIN_TIMEOUT_SECONDS = 0.001
_REFUSAL_SECONDS = 0.1
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Calls:
    """A channel to one Tee. Every call of Tee may be repeated: reads change nothing, merges are idempotent.

    A circuit breaker: once a caller has waited for Tee in vain, one caller at a time tries, once, and the others are
    refused, because waiting callers would take up all threads of the process. The first answer closes the circuit.
    """

    def __init__(self, endpoint: str, *, token: str | None, authorities: bytes | None, timeout_seconds: float) -> None:
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._channel = open_channel(endpoint, authorities=authorities, token=token)
        self._away = False
        self._trying = Lock()
        self.stub = stub_on(self._channel)

    def ask(self, call: Callable[..., A], session_id: str) -> A:
        """The answer to `call(timeout=...)`, retried while Tee is unavailable and there is time."""
        if not self._away:
            return self._retry(call, session_id)
        if not self._trying.acquire(blocking=False):
            # Not at once: a refused caller tries again soon.
            time.sleep(_REFUSAL_SECONDS)
            raise StoreUnavailable(f"the Tee at `{self._endpoint}` is away")
        try:
            return self._retry(call, session_id)
        finally:
            self._trying.release()

    def _retry(self, call: Callable[..., A], session_id: str) -> A:
        deadline = time.monotonic() + self._timeout_seconds
        backoff = _MIN_BACKOFF_SECONDS
        while True:
            try:
                answer = call(timeout=max(deadline - time.monotonic(), _MIN_TIMEOUT_SECONDS))
            except grpc.RpcError as exc:
                # Jitter, so that many callers do not all come back at the same moment.
                pause = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
                status = exc.code()
                if status is grpc.StatusCode.UNAVAILABLE and not self._away and time.monotonic() + pause < deadline:
                    time.sleep(pause)
                    backoff = min(2 * backoff, _MAX_BACKOFF_SECONDS)
                    continue
                self._away = status in _AWAY
                raise self._translate(exc, session_id) from exc
            except ValueError as exc:  # what gRPC raises on a channel that is closed
                raise StoreUnavailable(f"the channel to the Tee at `{self._endpoint}` cannot be used: {exc}") from exc
            self._away = False
            return answer

    def close(self) -> None:
        """Let go of the channel."""
        self._channel.close()

    def _translate(self, exc: grpc.RpcError, session_id: str) -> BeliefServerError:
        failure: Any = exc
        status: grpc.StatusCode = failure.code()
        details = (failure.details() or "").rstrip(".")
        match status:
            case grpc.StatusCode.NOT_FOUND:
                return SessionNotFound(session_id)
            case grpc.StatusCode.INVALID_ARGUMENT:
                return InvalidRequest(f"the Tee refused the request: {details}")
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                why = f"did not answer in {self._timeout_seconds:g} seconds"
            case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
                why = f"does not let us in: {details}"
            case grpc.StatusCode.UNIMPLEMENTED:
                why = f"does not know the call: {details}"
            case _:
                why = f"failed with {status.name}: {details}"
        return StoreUnavailable(f"the Tee at `{self._endpoint}` {why}")
