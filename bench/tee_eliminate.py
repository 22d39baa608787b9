"""ELIMINATE through a belief server whose tombstones are in Tee: the cost must not follow the size of the graph."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Self

from bench.harness import SOURCE, Effort, Result, at_most, interleaved, microseconds
from bench.servers import disk_directory, tee_serve
from bench.tee_graphs import SAID, node_ids
from cmbs.belief.server import BeliefServer
from cmbs.messages import OntologyBundle
from cmbs.stores import open_store, open_tee
from cmbs.tee import Delta, Node, NodeType
from cmbs.tee.stores.sqlite import SQLiteGraphStore

NAME = "tee_eliminate"
SMALL, LARGE = 1_000, 100_000
IDS_PER_CALL = 10
CALLS_PER_ROUND = 20
FROM_THE_GRAPH = OntologyBundle("bench-space", "v1", "tee://bench", "")
_observation = count()


def run(effort: Effort) -> list[Result]:
    """Two graphs, each in a Tee on SQLite behind a belief server on SQLite: sessions over the whole of it."""
    with disk_directory() as directory, ExitStack() as stack:
        subjects = {str(size): stack.enter_context(_Subject(Path(directory), size)).measure for size in (LARGE, SMALL)}
        medians = interleaved(subjects, effort.rounds)
    large, small = medians[str(LARGE)], medians[str(SMALL)]
    return [
        Result(
            NAME,
            f"ELIMINATE of {IDS_PER_CALL} ids, durable in SQLite and in Tee, {LARGE:,} nodes: {microseconds(large)}",
            f"the same with {SMALL:,} nodes: {microseconds(small)}",
            large / small,
            at_most(1.5),
        )
    ]


class _Subject:
    """A belief server over a Tee with a graph of some size."""

    def __init__(self, directory: Path, size: int) -> None:
        self._directory = directory
        self._size = size
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        place, ids = f"{self._directory}/{self._size}", node_ids(self._size)
        with closing(SQLiteGraphStore(f"{place}-tee.db")) as graph:
            graph.merge(Delta(tuple(Node(each, NodeType.SERVICE, each, True, (SAID,)) for each in ids)))
        port = self._stack.enter_context(tee_serve(f"sqlite:///{place}-tee.db"))
        tee, log = open_tee(f"127.0.0.1:{port}"), open_store(f"sqlite:///{place}-cmbs.db")
        self._server = self._stack.enter_context(closing(BeliefServer(store=tee, audit_log=log)))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self) -> float:
        """The median of some eliminations from a new session."""
        session_id, snapshot = self._server.declare_session(FROM_THE_GRAPH)
        if snapshot.n_survivors != self._size:
            raise AssertionError("the session is not over the whole graph")
        times = []
        for batch in _batches(node_ids(self._size)):
            observation_id = f"observation-{next(_observation)}"
            start = time.perf_counter()
            outcome = self._server.eliminate(session_id, SOURCE, observation_id, batch)
            times.append(time.perf_counter() - start)
            if len(outcome.applied_eliminated) != IDS_PER_CALL:
                raise AssertionError("a timed elimination did not apply")
        return statistics.median(times)


def _batches(ids: list[str]) -> Iterator[list[str]]:
    """Ids to eliminate, scattered over the universe, none twice."""
    chosen = random.Random(1024).sample(ids, CALLS_PER_ROUND * IDS_PER_CALL)
    return (chosen[start : start + IDS_PER_CALL] for start in range(0, len(chosen), IDS_PER_CALL))
