"""Callers that write over HTTP as fast as they can, and record what they were answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx2

from tests.support.error_model import check_error
from tests.support.http_server import TIMEOUT_SECONDS, ServerProcess, open_client
from tests.support.transports import ONTOLOGY

CALLERS = 8
# Between a write that was refused and the next attempt.
_PAUSE_SECONDS = 0.02
UNIVERSE = [f"h{number:04}" for number in range(200)]

Write = tuple[str, dict[str, Any], dict[str, str]]


class Load:
    """Callers, two on each session. One whose server is gone ends; one that is refused sends the same again."""

    def __init__(self, url: str, name: str, prefix: str = "") -> None:
        """Loads of one `name` share their sessions; each then has a `prefix` for what it writes."""
        self._url = url
        self._prefix = prefix
        self._session_ids = [declare_session(url, f"{name}.{number}") for number in range(CALLERS // 2)]
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        # (session id, event id), as they were answered.
        self.acknowledged: list[tuple[str, str]] = []
        self.refused = 0
        # What each caller had sent when the server went away: it was written, or it was not.
        self.in_doubt: list[Write] = []
        self._failures: list[Exception] = []
        self._threads = [threading.Thread(target=self._call, args=(number,)) for number in range(CALLERS)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def wait_for(self, acknowledged: int = 0, refused: int = 0) -> None:
        """Return once so many more writes were answered and so many more refused."""
        with self._changed:
            answers, refusals = len(self.acknowledged) + acknowledged, self.refused + refused
            assert self._changed.wait_for(
                lambda: self._failures or (len(self.acknowledged) >= answers and self.refused >= refusals),
                TIMEOUT_SECONDS,
            )
        self._raise_failure()

    def join(self) -> None:
        """Return once every caller has noticed that the server is gone, or has heard of its last write."""
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS)
            assert not thread.is_alive()
        self._raise_failure()

    def stop(self) -> None:
        """End after the writes that are under way."""
        self._stopping.set()
        self.join()

    def _raise_failure(self) -> None:
        for failure in self._failures:
            raise failure

    def _call(self, number: int) -> None:
        try:
            with open_client(self._url) as client:
                for write in self._writes(number):
                    if self._stopping.is_set() or not self._write(client, write):
                        return
        except Exception as exc:  # noqa: BLE001 - raised again in the thread that waits
            with self._changed:
                self._failures.append(exc)
                self._changed.notify_all()

    def _write(self, client: httpx2.Client, write: Write) -> bool:
        while True:
            path, body, headers = write
            try:
                answer = client.post(path, json=body, headers=headers)
            except httpx2.TransportError:
                self.in_doubt.append(write)
                return False
            with self._changed:
                self._changed.notify_all()
                if answer.status_code == httpx2.codes.OK:
                    event = answer.json()
                    self.acknowledged.append((event["snapshot"]["session_id"], event["audit_event_id"]))
                    return True
                check_error(answer, 503, "STORE_UNAVAILABLE")
                self.refused += 1
            # Who is refused looks again soon, and not all the time.
            self._stopping.wait(_PAUSE_SECONDS)

    def _writes(self, number: int) -> Iterator[Write]:
        path = f"/v1/sessions/{self._session_ids[number // 2]}"
        for step in count():
            name = f"{self._prefix}{number}.{step}"
            if step % 6 == 5:
                gate = {"obligation_id": name, "min_total_eliminations": 1}
                yield f"{path}/obligations", gate, {"Idempotency-Key": name}
            else:
                gone = UNIVERSE[(step * CALLERS + number) % len(UNIVERSE)]
                seen = {"source_id": f"{self._prefix}{number}", "observation_id": name, "eliminated": [gone]}
                yield f"{path}/eliminate", seen, {}


def kill_under_load(directory: Path, port: int, name: str, after: int, *options: str) -> Load:
    """Kill a server once it has answered so many writes; what its callers know then."""
    server = ServerProcess(directory, *options, port=port)
    try:
        server.wait_until_ready()
        load = Load(server.url, name)
        load.start()
        load.wait_for(after)
        server.kill()
        load.join()
    finally:
        server.discard()
    return load


def resend(client: httpx2.Client, in_doubt: list[Write]) -> list[tuple[str, str]]:
    """Send writes again that may have been written; (session id, event id) of each."""
    acknowledged = []
    for path, body, headers in in_doubt:
        answer = client.post(path, json=body, headers=headers)
        assert answer.status_code == httpx2.codes.OK, answer.text
        acknowledged.append((answer.json()["snapshot"]["session_id"], answer.json()["audit_event_id"]))
    return acknowledged


def declare_session(url: str, key: str, universe: list[str] | None = None) -> str:
    """A session; its id."""
    body, headers = {"ontology": ONTOLOGY, "hypotheses": universe or UNIVERSE}, {"Idempotency-Key": key}
    with open_client(url) as client:
        answer = client.post("/v1/sessions", json=body, headers=headers)
    session_id: str = answer.json()["session_id"]
    return session_id
