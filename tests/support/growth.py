"""A graph that grows while sessions are declared over it: callers that go on through kills, and record answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import grpc
import httpx2

from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from tests.support.error_model import check_error
from tests.support.http_server import TIMEOUT_SECONDS, open_client
from tests.support.tee import edge, node
from tests.support.transports import ONTOLOGY

FROM_THE_GRAPH = {"ontology": {**ONTOLOGY, "causal_graph_version": ""}}
DECLARERS = 2
_ELIMINATED = 3
# Between two attempts at something that is away.
_PAUSE_SECONDS = 0.05
# Between two merges: without it the graph, and every session over it, would grow by thousands while a server starts.
_PACE_SECONDS = 0.01


class GrowingIncidents:
    """One caller that merges, and some that declare sessions and eliminate in them. All repeat what was not answered.

    `merged` are the nodes whose merge was answered, `acknowledged` the (session id, event id) of every other answer.
    """

    def __init__(self, url: str, tee_port: int) -> None:
        self._url = url
        self._tee_port = tee_port
        self._over = threading.Event()
        self._changed = threading.Condition()
        self._failures: list[Exception] = []
        self.merged: list[str] = []
        self.acknowledged: list[tuple[str, str]] = []
        self.session_ids: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(self._merge,))]
        self._threads += [threading.Thread(target=self._run, args=(self._declare, each)) for each in range(DECLARERS)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Go on for as long as the block lasts, and to the end of what is under way."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join(TIMEOUT_SECONDS)
        self._raise_failure()

    def wait_for(self, declared: int, merged: int) -> None:
        """Return once so many more sessions were declared and so many more nodes merged."""
        with self._changed:
            sessions, nodes = len(self.session_ids) + declared, len(self.merged) + merged
            assert self._changed.wait_for(
                lambda: self._failures or (len(self.session_ids) >= sessions and len(self.merged) >= nodes),
                2 * TIMEOUT_SECONDS,
            )
        self._raise_failure()

    def _raise_failure(self) -> None:
        for failure in self._failures:
            raise failure

    def _run(self, work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as exc:  # noqa: BLE001 - raised again in the thread that waits
            with self._changed:
                self._failures.append(exc)
                self._changed.notify_all()

    def _merge(self) -> None:
        with open_channel(f"127.0.0.1:{self._tee_port}") as channel:
            call = stub_on(channel).MergeHypothesis
            for number in count():
                name = f"grown {number:05}"
                delta = pb.HypothesisDelta(nodes=[node(name)], edges=[edge("first", name)])
                while not self._over.is_set():
                    try:
                        call(delta, timeout=5)
                    except grpc.RpcError:
                        self._over.wait(_PAUSE_SECONDS)
                        continue
                    self._note(self.merged, name)
                    break
                if self._over.wait(_PACE_SECONDS):
                    return

    def _declare(self, caller: int) -> None:
        with open_client(self._url) as client:
            self._declare_with(client, caller)

    def _declare_with(self, client: httpx2.Client, caller: int) -> None:
        for step in count():
            name = f"{caller}.{step}"
            declared = self._send(client, "/v1/sessions", FROM_THE_GRAPH, name)
            if declared is None:
                return
            belief = declared["snapshot"]
            # What is gone is of the universe, whichever it was.
            gone = belief["survivors"][-_ELIMINATED:]
            path, seen = f"/v1/sessions/{belief['session_id']}/eliminate", {"source_id": "s", "observation_id": name}
            eliminated = self._send(client, path, {**seen, "eliminated": gone}, f"{name}, gone")
            self._note(self.acknowledged, (belief["session_id"], belief["audit_head_event_id"]))
            if eliminated is None:
                return
            assert eliminated["applied_eliminated"] == gone
            self._note(self.acknowledged, (belief["session_id"], eliminated["audit_event_id"]))
            self._note(self.session_ids, belief["session_id"])

    def _send(self, client: httpx2.Client, path: str, body: Any, key: str) -> Any:
        """The answer, however long it takes; None where the test is over before."""
        while not self._over.is_set():
            try:
                answer = client.post(path, json=body, headers={"Idempotency-Key": key})
            except httpx2.TransportError:
                self._over.wait(_PAUSE_SECONDS)
                continue
            if answer.is_success:
                return answer.json()
            check_error(answer, 503, "STORE_UNAVAILABLE")
            self._over.wait(_PAUSE_SECONDS)
        return None

    def _note(self, answers: list[Any], answer: Any) -> None:
        with self._changed:
            answers.append(answer)
            self._changed.notify_all()
