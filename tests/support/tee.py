"""A Tee that listens on loopback, in this process, and channels to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from cmbs.tee import GraphStore
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.server import ServerOptions, TeeServer, Tls

TIMEOUT_SECONDS = 30.0
CERTIFICATE, KEY = (Path(__file__).parent / "tls" / name for name in ("certificate.pem", "key.pem"))
SAID = pb.Provenance(source="agent", trigger="deploy")


def tls(*, client_authorities: bytes | None = None) -> Tls:
    """The certificate of `localhost`."""
    return Tls(CERTIFICATE.read_bytes(), KEY.read_bytes(), client_authorities)


@contextmanager
def listening(store: GraphStore, options: ServerOptions | None = None) -> Iterator[int]:
    """Serve a store; the port."""
    started: Future[tuple[int, asyncio.Event, asyncio.AbstractEventLoop]] = Future()

    async def serve() -> None:
        server, over = TeeServer(store, replace(options or ServerOptions(), port=0)), asyncio.Event()
        try:
            await server.start()
        except BaseException as exc:
            started.set_exception(exc)
            raise
        started.set_result((server.port, over, asyncio.get_running_loop()))
        await over.wait()
        await server.stop(0)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="tee-server")
    thread.start()
    port, over, loop = started.result(TIMEOUT_SECONDS)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(TIMEOUT_SECONDS)


@contextmanager
def calling(store: GraphStore, options: ServerOptions | None = None) -> Iterator[Any]:
    """Serve a store; the calls on a channel to it."""
    with listening(store, options) as port, open_channel(f"127.0.0.1:{port}") as channel:
        yield stub_on(channel)


@contextmanager
def expect_refused(status: grpc.StatusCode, words: str = "") -> Iterator[None]:
    """The call in the block ends with a status, and says so in these words."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    failure: Any = caught.value
    assert failure.code() is status
    assert words in failure.details()


def node(node_id: str, **fields: Any) -> pb.Node:
    """A node as a message."""
    usual: dict[str, Any] = {"type": pb.NODE_TYPE_SERVICE, "label": node_id, "hypothetical": True, "provenance": [SAID]}
    return pb.Node(id=node_id, **{**usual, **fields})


def edge(source: str, target: str, **fields: Any) -> pb.Edge:
    """An edge as a message."""
    usual: dict[str, Any] = {"type": pb.EDGE_TYPE_DEPENDS_ON, "provenance": [SAID]}
    return pb.Edge(source=source, target=target, **{**usual, **fields})


_NO_SOURCE = pb.Provenance(trigger="t")
# A call, a request that it refuses, and words of the refusal.
BAD_REQUESTS: list[tuple[str, Any, str]] = [
    ("MergeHypothesis", pb.HypothesisDelta(nodes=[node("")]), "a node must have an id"),
    ("MergeHypothesis", pb.HypothesisDelta(nodes=[node("a", label="")]), "node `a` must have a label"),
    ("MergeHypothesis", pb.HypothesisDelta(nodes=[node("a", type=0)]), "node `a` has no known type: `0`"),
    ("MergeHypothesis", pb.HypothesisDelta(nodes=[node("a", type=99)]), "node `a` has no known type: `99`"),
    ("MergeHypothesis", pb.HypothesisDelta(nodes=[node("a", provenance=[])]), "node `a` must have provenance"),
    (
        "MergeHypothesis",
        pb.HypothesisDelta(nodes=[node("a", provenance=[_NO_SOURCE])]),
        "provenance must name its source",
    ),
    ("MergeHypothesis", pb.HypothesisDelta(edges=[edge("a", "a")]), "an edge from `a` to itself is not allowed"),
    ("MergeHypothesis", pb.HypothesisDelta(edges=[edge("", "a")]), "an edge must have a source and a target"),
    ("MergeHypothesis", pb.HypothesisDelta(edges=[edge("a", "")]), "an edge must have a source and a target"),
    (
        "MergeHypothesis",
        pb.HypothesisDelta(edges=[edge("a", "b", type=0)]),
        "edge from `a` to `b` has no known type: `0`",
    ),
    (
        "MergeHypothesis",
        pb.HypothesisDelta(edges=[edge("a", "b", provenance=[])]),
        "the edge from `a` to `b` must have provenance",
    ),
    ("CreateIncident", pb.CreateIncidentRequest(), "an incident must have an id"),
    ("GetIncidentContext", pb.IncidentContextRequest(), "an incident must have an id"),
    ("GetLiveView", pb.LiveViewRequest(), "an incident must have an id"),
    ("GetTombstones", pb.TombstoneRequest(), "an incident must have an id"),
    ("MergeNodeTombstones", pb.NodeTombstoneRequest(node_ids=["a"], provenance=SAID), "an incident must have an id"),
    ("MergeNodeTombstones", pb.NodeTombstoneRequest(incident_id="i", provenance=SAID), "must not be empty"),
    ("MergeNodeTombstones", pb.NodeTombstoneRequest(incident_id="i", node_ids=[""], provenance=SAID), "an empty id"),
    (
        "MergeNodeTombstones",
        pb.NodeTombstoneRequest(incident_id="i", node_ids=["a"]),
        "provenance must name its source",
    ),
    ("MergeEdgeTombstones", pb.EdgeTombstoneRequest(incident_id="i", provenance=SAID), "must not be empty"),
    (
        "MergeEdgeTombstones",
        pb.EdgeTombstoneRequest(incident_id="i", entries=[pb.EdgeTombstoneEntry()]),
        "an edge must have a source and a target",
    ),
]
