"""The live view of an incident on a large graph: in memory, in SQLite, and over gRPC to a Python client."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from bench.harness import Effort, Result, at_most, interleaved, microseconds
from bench.servers import disk_directory, tee_serve
from bench.tee_graphs import EDGES, NODES, NOW, SAID, TOMBSTONES, deltas, tombstone_ids
from cmbs.tee import EdgeKey, GraphStore
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.kernel.wire import edge_key_of, encode_edge, encode_node
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores.memory import MemoryGraphStore
from cmbs.tee.stores.sqlite import SQLiteGraphStore

NAME = "tee_live_view"
_INCIDENT = "incident"


def run(effort: Effort) -> list[Result]:
    """Compare with a plain set difference, with each other, and with decoding the bytes."""
    what = f"live view of {NODES:,} nodes, {EDGES:,} edges, {TOMBSTONES:,} tombstones"
    with disk_directory() as directory:
        url = f"sqlite:///{directory}/tee.db"
        memory = MemoryGraphStore()
        with closing(SQLiteGraphStore(f"{directory}/tee.db")) as sqlite:
            for delta in deltas():
                memory.merge(delta)
                sqlite.merge(delta)
            for store in (memory, sqlite):
                store.create_incident(_INCIDENT, NOW)
                store.merge_node_tombstones(_INCIDENT, tombstone_ids(), SAID)
            plain = _PlainSets(memory)
            times = interleaved(
                {
                    "memory": lambda: _seconds(lambda: _view(memory)),
                    "plain": lambda: _seconds(plain.view),
                    "sqlite": lambda: _seconds(lambda: _view(sqlite)),
                },
                effort.rounds,
            )
            if len(_view(memory)) != len(plain.view()) or len(_view(sqlite)) != len(plain.view()):
                raise AssertionError("the views differ")
        wire = _over_grpc(url, effort)
    return [
        Result(
            NAME,
            f"{what}, in memory: {microseconds(times['memory'])}",
            f"a plain Python set difference that builds the same bytes: {microseconds(times['plain'])}",
            times["memory"] / times["plain"],
            at_most(3),
        ),
        Result(
            NAME,
            f"{what}, in SQLite: {microseconds(times['sqlite'])}",
            f"in memory: {microseconds(times['memory'])}",
            times["sqlite"] / times["memory"],
            at_most(5),
        ),
        Result(
            NAME,
            f"{what}, over gRPC and decoded: {microseconds(wire['call'])}",
            f"decoding its bytes alone: {microseconds(wire['decode'])}",
            wire["call"] / wire["decode"],
            at_most(2.5),
        ),
    ]


class _PlainSets:
    """The same answer as written without a library: encoded things in dictionaries, and what is dead in a set."""

    def __init__(self, store: GraphStore) -> None:
        view = store.main_graph()
        graph = pb.CausalGraph.FromString(b"".join([*view.nodes, *view.edges]))
        self._nodes: dict[str, bytes] = {each.id: encode_node(each) for each in graph.nodes}
        self._edges: dict[EdgeKey, bytes] = {edge_key_of(each): encode_edge(each) for each in graph.edges}
        self._dead = set(tombstone_ids())

    def view(self) -> bytes:
        """All that is not dead, and has no dead end."""
        dead, nodes = self._dead, self._nodes
        live = nodes.keys() - dead
        edges = [item for key, item in self._edges.items() if key.source not in dead and key.target not in dead]
        return b"".join([*map(nodes.__getitem__, live), *edges])


def _view(store: GraphStore) -> bytes:
    view = store.live_view(_INCIDENT)
    return b"".join([*view.nodes, *view.edges])


def _over_grpc(url: str, effort: Effort) -> dict[str, float]:
    request = pb.LiveViewRequest(incident_id=_INCIDENT)
    with tee_serve(url) as port, open_channel(f"127.0.0.1:{port}") as channel:
        call = stub_on(channel).GetLiveView
        data = call(request).SerializeToString()
        return interleaved(
            {
                "call": lambda: _seconds(lambda: call(request)),
                "decode": lambda: _seconds(lambda: pb.CausalGraph.FromString(data)),
            },
            effort.rounds,
        )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    kept = work()
    seconds = time.perf_counter() - start
    # Freed outside of the time: both sides of every comparison do that alike.
    del kept
    return seconds
