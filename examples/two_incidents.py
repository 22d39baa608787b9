"""Two incidents on a causal graph that grows between them: `python examples/two_incidents.py [GRAPH.json [HOST:PORT]]`.

Each incident is a session of a belief server that keeps its tombstones in Tee and takes its hypotheses from the graph.
Without a graph, a small one is taken; without an endpoint, a Tee in memory is started. Ends with 1 where a view is not
what it should be.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from cmbs.belief.server import BeliefServer
from cmbs.messages import OntologyBundle
from cmbs.stores import InMemoryStore
from cmbs.stores.tee import TeeStore
from cmbs.tee.client import collect, open_channel, stub_on
from cmbs.tee.graph_json import deltas, read_graph
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.proto.tee_pb2_grpc import TeeStub

SAID = pb.Provenance(source="examples/two_incidents.py", trigger="demo")
# The version is left open: it is that of the graph when the session is declared.
ONTOLOGY = OntologyBundle("two-incidents", "1", "tee://main", "")


class Incident:
    """A session over the whole graph, and how Tee itself sees it."""

    def __init__(self, name: str, server: BeliefServer, tee: TeeStub) -> None:
        self._server, self._tee = server, tee
        self.id, snapshot = server.declare_session(ONTOLOGY)
        self.universe = set(snapshot.survivors)
        version = snapshot.ontology.causal_graph_version
        print(f"{name}: anchored at graph version {version}, {len(self.universe)} hypotheses")

    def rule_out(self, hypotheses: list[str], observation_id: str) -> None:
        """Eliminate, in this incident alone."""
        outcome = self._server.eliminate(self.id, "probe://demo", observation_id, hypotheses)
        print(f"  ruled out {len(outcome.applied_eliminated)}, not in its universe {len(outcome.ignored_eliminated)}")

    def sees(self, expected: set[str]) -> bool:
        """Whether the belief server and Tee agree that this is what may still be true."""
        request = pb.LiveViewRequest(incident_id=self.id, nodes_only=True)
        live = {node.id for node in collect(self._tee.StreamLiveView, self._tee.GetLiveView, request).nodes}
        return set(self._server.query_belief(self.id).survivors) == live == expected


def main(graph: bytes, endpoint: str) -> int:
    with (
        open_channel(endpoint) as channel,
        closing(BeliefServer(store=TeeStore(endpoint), audit_log=InMemoryStore())) as server,
    ):
        tee = stub_on(channel)
        for delta in deltas(read_graph(graph)):
            tee.MergeHypothesis(delta)

        first = Incident("first", server, tee)
        ruled_out = sorted(first.universe)[::2]
        first.rule_out(ruled_out, "half")

        # While the first incident goes on, another agent learns of one more thing that can break.
        newborn = f"newborn-{uuid.uuid4()}"
        node = pb.Node(id=newborn, type=pb.NODE_TYPE_MECHANISM, label="a new mechanism", provenance=[SAID])
        merged = tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node]))
        print(f"the graph grows to version {merged.causal_graph_version}: {newborn}")

        second = Incident("second", server, tee)
        first.rule_out([newborn], "newborn")
        second.rule_out([newborn], "newborn")

        right = (
            second.universe == first.universe | {newborn}
            and first.sees(first.universe - set(ruled_out))
            and second.sees(first.universe)
        )
        left = [server.query_belief(each.id).n_survivors for each in (first, second)]
        print(f"first sees {left[0]}, second {left[1]}: {'both are right' if right else 'WRONG'}")
        return 0 if right else 1


def small_graph() -> bytes:
    """A shop: a checkout that depends on three things, and what can be wrong with them."""
    kinds = {"checkout": "SERVICE", "orders-db": "DEPENDENCY", "queue": "DEPENDENCY", "node-7": "INFRASTRUCTURE"}
    nodes = [{"id": each, "type": kind, "provenance": ["cmdb"]} for each, kind in kinds.items()]
    edges = [
        {"source": "checkout", "target": each, "type": "DEPENDS_ON", "provenance": ["traces"]}
        for each in kinds
        if each != "checkout"
    ]
    return json.dumps({"nodes": nodes, "edges": edges}).encode()


@contextmanager
def tee_in_memory() -> Iterator[str]:
    """Where a Tee listens that ends with us."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "cmbs", "tee", "serve", "--port", port, "--store", "memory:"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tee:
        try:
            if tee.stdout is not None:
                tee.stdout.readline()  # it prints once it listens
            yield f"127.0.0.1:{port}"
        finally:
            tee.terminate()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [file, endpoint]:
            sys.exit(main(Path(file).read_bytes(), endpoint))
        case [] | [_] as named:
            graph = Path(named[0]).read_bytes() if named else small_graph()
            with tee_in_memory() as started:
                sys.exit(main(graph, started))
        case _:
            sys.exit(__doc__)
