"""Group commit: one thread writes together what has come together while it wrote."""

from __future__ import annotations

import time
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Generic

from cmbs.errors import StoreUnavailable
from cmbs.streams.kinds import A, C, S
from cmbs.streams.writer import Writer

_MAX_GROUP = 256
# How long a group on a stream that other processes write too waits for more commands to join it.
_LINGER_SECONDS = 0.005


class GroupWriter(Generic[S, C, A]):
    """A queue of commands, and the thread that writes them. The thread starts with the first command."""

    def __init__(self, writer: Writer[S, C, A]) -> None:
        self._writer = writer
        self._waiting: SimpleQueue[tuple[C, Future[A]] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        # How many commands usually come together: the largest recent group, which decays slowly.
        self._usual_size = 0
        self._closed = False

    def submit(self, command: C) -> Future[A]:
        """Queue a command. It is carried out even if the caller no longer waits for the answer."""
        future: Future[A] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the server is closed")
            if self._thread is None:
                self._thread = Thread(target=self._work, name="cmbs-writer", daemon=True)
                self._thread.start()
            self._waiting.put((command, future))
        return future

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._waiting.put(None)
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        ended = False
        while not ended:
            group, ended = self._gather()
            self._usual_size = max(len(group), self._usual_size * 7 // 8)
            try:
                results = self._writer.run([command for command, _ in group])
            except Exception as exc:  # noqa: BLE001 - the callers get it; the thread must live on for the next group
                results = [exc for _ in group]
            for (_, future), result in zip(group, results, strict=True):
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _gather(self) -> tuple[list[tuple[C, Future[A]]], bool]:
        item = self._waiting.get()
        group: list[tuple[C, Future[A]]] = []
        until = time.monotonic() + _LINGER_SECONDS if self._writer.collided else 0.0
        while item is not None:
            group.append(item)
            if len(group) == _MAX_GROUP:
                return group, False
            # Other processes write the same stream, so turns are rare: wait a moment for callers that have just had
            # their answers and are about to come back.
            left = until - time.monotonic() if until and len(group) < self._usual_size else 0.0
            try:
                item = self._waiting.get(timeout=left) if left > 0 else self._waiting.get_nowait()
            except Empty:
                return group, False
        return group, True
