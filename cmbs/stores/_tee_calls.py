"""Calls to a Tee that may be away for a while: deadlines, repeats, and errors in our own words."""

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

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_LEAST_SECONDS = 0.001
_REFUSAL_SECONDS = 0.1
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Calls:
    """A channel to one Tee. Every call of Tee may be repeated: reads change nothing, merges are idempotent.

    Once somebody has waited for Tee in vain, one caller at a time tries, once, and the others are refused: callers that
    all wait for the same thing would hold up everybody else in the process. The first answer ends that.
    """

    def __init__(self, endpoint: str, *, token: str | None, authorities: bytes | None, timeout_seconds: float) -> None:
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._channel = open_channel(endpoint, authorities=authorities, token=token)
        self._away = False
        self._trying = Lock()
        self.stub = stub_on(self._channel)

    def ask(self, call: Callable[[float], A], session_id: str) -> A:
        """The answer to `call(timeout)`, asked again while Tee is unavailable and there is time."""
        if not self._away:
            return self._asked(call, session_id)
        if not self._trying.acquire(blocking=False):
            # Not at once: whoever is refused will soon be back.
            time.sleep(_REFUSAL_SECONDS)
            raise StoreUnavailable(f"the Tee at `{self._endpoint}` is away")
        try:
            return self._asked(call, session_id)
        finally:
            self._trying.release()

    def _asked(self, call: Callable[[float], A], session_id: str) -> A:
        deadline = time.monotonic() + self._timeout_seconds
        pause = _FIRST_PAUSE
        while True:
            try:
                answer = call(max(deadline - time.monotonic(), _LEAST_SECONDS))
            except grpc.RpcError as exc:
                # So that many callers do not all come back at the same moment.
                rest = pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
                status = exc.code()
                if status is grpc.StatusCode.UNAVAILABLE and not self._away and time.monotonic() + rest < deadline:
                    time.sleep(rest)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                    continue
                self._away = status in _AWAY
                raise self._translated(exc, session_id) from exc
            except ValueError as exc:  # what gRPC raises on a channel that is closed
                raise StoreUnavailable(f"the channel to the Tee at `{self._endpoint}` cannot be used: {exc}") from exc
            self._away = False
            return answer

    def close(self) -> None:
        """Let go of the channel."""
        self._channel.close()

    def _translated(self, exc: grpc.RpcError, session_id: str) -> BeliefServerError:
        failure: Any = exc
        status: grpc.StatusCode = failure.code()
        said = (failure.details() or "").rstrip(".")
        match status:
            case grpc.StatusCode.NOT_FOUND:
                return SessionNotFound(session_id)
            case grpc.StatusCode.INVALID_ARGUMENT:
                return InvalidRequest(f"the Tee refused the request: {said}")
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                why = f"did not answer in {self._timeout_seconds:g} seconds"
            case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
                why = f"does not let us in: {said}"
            case grpc.StatusCode.UNIMPLEMENTED:
                why = f"does not know the call: {said}"
            case _:
                why = f"failed with {status.name}: {said}"
        return StoreUnavailable(f"the Tee at `{self._endpoint}` {why}")
