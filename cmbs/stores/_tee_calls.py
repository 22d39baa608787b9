"""Calls to a Tee that may be unavailable for a while: deadlines, retries, and gRPC errors translated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

import grpc
import msgspec

from cmbs.errors import BeliefServerError, InvalidRequest, SessionNotFound, StoreUnavailable
from cmbs.tee.client import find_refusal, open_channel, stub_on
from cmbs.tee.tokens import Token

A = TypeVar("A")

_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.05, 1.0
_MIN_TIMEOUT_SECONDS = 0.001
_REFUSAL_SECONDS = 0.1
# gRPC looks at a channel that is watched for a fifth of a second at a time.
_WATCH_SECONDS = 0.3
# Not the generator of the module `random`: an application may have seeded that one, and these calls come from threads.
_JITTER = random.Random()  # noqa: S311 - not a secret
_REFUSAL_FIELDS = ("field", "found", "accepted", "faults", "next")
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Calls:
    """A channel to one Tee. Every call of Tee may be repeated: reads change nothing, merges are idempotent.

    A circuit breaker: once a caller has waited for Tee in vain, one caller at a time tries, once, and the others are
    refused, because waiting callers would take up all threads of the process. The first answer closes the circuit.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        token: Token | None,
        authorities: bytes | None,
        certificate: tuple[bytes, bytes] | None,
        timeout_seconds: float,
    ) -> None:
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._channel = open_channel(endpoint, authorities=authorities, identity=certificate, token=token)
        self._away = False
        # How often the connection was lost: what is found there later may be another Tee.
        self.losses = 0
        self._state = grpc.ChannelConnectivity.IDLE
        self._watching = Lock()
        self._is_watched = False
        self._is_closed = False
        self._trying = Lock()
        self.stub = stub_on(self._channel)

    def _watch(self) -> None:
        """Watch the connection from the first call on."""
        with self._watching:
            if not self._is_watched:
                self._is_watched = True
                self._channel.subscribe(self._note_state)

    def _note_state(self, state: grpc.ChannelConnectivity) -> None:
        if self._state is grpc.ChannelConnectivity.READY and state is not self._state:
            self.losses += 1
        self._state = state

    def ask(self, call: Callable[..., A], session_id: str) -> A:
        """The answer to `call(timeout=...)`, retried while Tee is unavailable and there is time."""
        self._watch()
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
                pause = backoff * _JITTER.uniform(0.5, 1.0)
                status = exc.code()
                self.losses += status is grpc.StatusCode.UNAVAILABLE
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
        """Let go of the channel, once the thread of gRPC that watches it has ended: it fails on a closed channel."""
        with self._watching:
            if self._is_watched and not self._is_closed:
                self._channel.unsubscribe(self._note_state)
                time.sleep(_WATCH_SECONDS)
            self._is_watched = self._is_closed = True
            self._channel.close()

    def _translate(self, exc: grpc.RpcError, session_id: str) -> BeliefServerError:
        failure: Any = exc
        status: grpc.StatusCode = failure.code()
        details = (failure.details() or "").rstrip(".")
        match status:
            case grpc.StatusCode.NOT_FOUND:
                return SessionNotFound(session_id)
            case grpc.StatusCode.INVALID_ARGUMENT:
                refusal = find_refusal(exc)
                told = {} if refusal is None else msgspec.to_builtins(refusal)
                fields = {name: told[name] for name in _REFUSAL_FIELDS if name in told}
                return InvalidRequest(f"the Tee refused the request: {details}", fields)
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                why = f"did not answer in {self._timeout_seconds:g} seconds"
            case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
                why = f"does not let us in: {details}"
            case grpc.StatusCode.UNIMPLEMENTED:
                why = f"does not know the call: {details}"
            case _:
                why = f"failed with {status.name}: {details}"
        return StoreUnavailable(f"the Tee at `{self._endpoint}` {why}")
