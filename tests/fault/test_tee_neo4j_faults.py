"""Neo4j is killed under its writers: what was acknowledged is there afterwards, and the store finds its way back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from queue import Queue

import psutil
import pytest

from cmbs.errors import GraphUnavailable
from cmbs.tee import Delta, GraphStore
from cmbs.tee.stores.neo4j import Neo4jGraphStore
from cmbs.testing.contracts.graph_samples import NOW, SAID, edges_in, node, nodes_in
from cmbs.testing.contracts.graph_samples import edge as dependency
from scripts import neo4j_server
from tests.support.neo4j import obtainable, own_server

pytestmark = pytest.mark.neo4j

WRITERS = 3
# Enough for the kill to fall among commits; how many each writer gets is up to the machine.
ACKNOWLEDGED_BEFORE_THE_KILL = 40
DEADLINE_SECONDS = 120


def write_until_it_is_gone(store: GraphStore, writer: int, acknowledgements: Queue[tuple[str, str]]) -> None:
    """Merge a node, an edge and a tombstone at a time, and report what was acknowledged."""
    try:
        for number in count():
            node_id = f"{writer}.{number}"
            store.merge(Delta((node(node_id),), (dependency(node_id, "root"),)))
            acknowledgements.put(("merged", node_id))
            store.merge_node_tombstones("i", [node_id], SAID)
            acknowledgements.put(("tombstoned", node_id))
    except GraphUnavailable:
        return


def drain(acknowledgements: Queue[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    while not acknowledgements.empty():
        yield acknowledgements.get()


@pytest.mark.req("TEE-NEO-04")
def test_what_was_acknowledged_outlives_a_kill_of_neo4j(tmp_path: Path) -> None:
    acknowledgements: Queue[tuple[str, str]] = Queue()
    with own_server(tmp_path) as server:
        port = int(server.url.rpartition(":")[2])
        store = Neo4jGraphStore(server.url)
        with closing(store):
            store.create_incident("i", NOW)
            with ThreadPoolExecutor(WRITERS) as pool:
                writing = [
                    pool.submit(write_until_it_is_gone, store, each, acknowledgements) for each in range(WRITERS)
                ]
                acknowledged = [
                    acknowledgements.get(timeout=DEADLINE_SECONDS) for _ in range(ACKNOWLEDGED_BEFORE_THE_KILL)
                ]
                server.kill()
                # While the writers find out for themselves.
                check_that_every_call_is_refused(store)
                for each in writing:
                    each.result(timeout=DEADLINE_SECONDS)
            acknowledged += drain(acknowledgements)
            with own_server(tmp_path, port) as restarted:
                check_that_all_is_there(store, acknowledged)
                # And the same store goes on.
                assert store.merge(Delta((node("after"),))).created_nodes == ("after",)
                # Sooner than shutting it down.
                restarted.kill()


def check_that_every_call_is_refused(store: GraphStore) -> None:
    calls: list[Callable[[], object]] = [
        store.main_graph,
        lambda: store.merge(Delta((node("a"),))),
        lambda: store.create_incident("j", NOW),
        lambda: store.merge_node_tombstones("i", ["a"], SAID),
    ]
    # All at once, since each tries for some seconds.
    with ThreadPoolExecutor(len(calls)) as pool:
        for waiting in [pool.submit(call) for call in calls]:
            with pytest.raises(GraphUnavailable):
                waiting.result(timeout=DEADLINE_SECONDS)


def check_that_all_is_there(store: GraphStore, acknowledged: list[tuple[str, str]]) -> None:
    view = store.main_graph()
    nodes, edges, tombstones = nodes_in(view), edges_in(view), store.tombstones("i").nodes
    for what, node_id in acknowledged:
        if what == "tombstoned":
            assert node_id in tombstones
        else:
            assert node_id in nodes
            assert dependency(node_id, "root").key in edges
    # All of a merge or nothing, acknowledged or not.
    assert {each.source for each in edges} == nodes.keys()
    # A call that was cut off can be repeated.
    again = store.merge_node_tombstones("i", list(tombstones), SAID)
    assert again.applied == ()


@pytest.mark.deep
@pytest.mark.req("TEE-NEO-04")
def test_a_server_does_not_outlive_the_process_that_started_it(tmp_path: Path) -> None:
    command = [sys.executable, neo4j_server.__file__, "--port", "0", "--short-lived", "--data", str(tmp_path)]
    with obtainable():
        neo4j_server._java()
        neo4j_server.kernel_jars()
        starter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert starter.stdout
    with starter.stdout:
        assert starter.stdout.readline().startswith("bolt://127.0.0.1:")
    (kernel,) = psutil.Process(starter.pid).children()
    starter.kill()
    starter.wait()
    # It ends when its pipe is closed, however the process that held the other end has ended.
    gone, alive = psutil.wait_procs([kernel], timeout=DEADLINE_SECONDS)
    assert (gone, alive) == ([kernel], [])
