"""Incidents over a causal graph for tests of the console: the web shop's, and one as large as the page must bear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx2

from cmbs.adapters.sre.graph import causal_graph
from cmbs.adapters.sre.webshop import webshop
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from tests.support.http_server import TIMEOUT_SECONDS
from tests.support.tee import SAID, edge, node

TITLE = "Checkout is slow at the evening peak"
METRICS, TRACES, ON_CALL = "agent://metrics", "agent://traces", "human://on-call"
_BLANK = {"hypothesis_version": "1", "causal_graph_ref": "tee:main", "causal_graph_version": ""}
_BATCH = 2000


def merge(port: int, nodes: Sequence[pb.Node], edges: Sequence[pb.Edge]) -> str:
    """Merge into the main graph of the Tee on a port; its version then."""
    version = 0
    deltas = [pb.HypothesisDelta(nodes=nodes[first : first + _BATCH]) for first in range(0, len(nodes), _BATCH)]
    deltas += [pb.HypothesisDelta(edges=edges[first : first + _BATCH]) for first in range(0, len(edges), _BATCH)]
    with open_channel(f"127.0.0.1:{port}") as channel:
        calls = stub_on(channel)
        for delta in deltas:
            version = int(calls.MergeHypothesis(delta, timeout=TIMEOUT_SECONDS).causal_graph_version)
    return str(version)


class GraphIncident:
    """A session over the graph as it is now."""

    def __init__(self, client: httpx2.Client, title: str = TITLE, **more: Any) -> None:
        self._client = client
        ontology = {"hypothesis_space_id": "shop", **_BLANK}
        self.id: str = self._post("/v1/sessions", {"ontology": ontology, "title": title, **more})["session_id"]
        self.path = f"/v1/sessions/{self.id}"

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._client.post(path, json=body, timeout=60)
        assert answer.is_success, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def eliminate(self, source: str, observation: str, ids: list[str]) -> None:
        """A source rules nodes out."""
        note = {"note": f"{observation} speaks against it"}
        body = {"source_id": source, "observation_id": observation, "eliminated": sorted(ids), "justification": note}
        self._post(f"{self.path}/eliminate", body)


def merge_webshop(port: int) -> str:
    """The graph of the web shop's faults and components; its version."""
    graph = causal_graph(webshop())
    nodes = [
        node(each["id"], type=pb.NodeType.Value(f"NODE_TYPE_{each['type']}"), label=each["label"])
        for each in graph["nodes"]
    ]
    edges = [
        edge(each["source"], each["target"], type=pb.EdgeType.Value(f"EDGE_TYPE_{each['type']}"))
        for each in graph["edges"]
    ]
    return merge(port, nodes, edges)


FAULTS = sorted(fault.mechanism_id for fault in webshop().faults)
# What is left of them after the story, and the last event of it.
LEFT = [
    "fault/basket-cache-too-small",
    "fault/orders-db-connections-exhausted",
    "fault/orders-db-lock-contention",
    "fault/traffic-surge",
]
HEAD = 4


def tell_over_graph(client: httpx2.Client) -> GraphIncident:
    """An incident whose causes are the faults of the graph: four are left after four reports."""
    incident = GraphIncident(client, hypotheses=FAULTS)
    gone = [each for each in FAULTS if each not in LEFT]
    incident.eliminate(METRICS, "QueueBacklog@event-queue", gone[:6])
    incident.eliminate(TRACES, "ErrorRateHigh@storefront", gone[6:13])
    incident.eliminate(ON_CALL, "no deploy since Monday", gone[13:15])
    incident.eliminate(METRICS, "CpuSaturated@node-pool", gone[15:])
    return incident


LARGE_NODES, LARGE_EDGES = 2000, 8000


def merge_large(port: int) -> list[str]:
    """Two thousand nodes in layers and eight thousand edges between them, the same every time; the ids."""
    kinds = (pb.NODE_TYPE_MECHANISM, pb.NODE_TYPE_INFRASTRUCTURE, pb.NODE_TYPE_DEPENDENCY, pb.NODE_TYPE_SERVICE)
    ids = [f"unit-{number:04d}" for number in range(LARGE_NODES)]
    nodes = [node(each, type=kinds[number * len(kinds) // LARGE_NODES]) for number, each in enumerate(ids)]
    pairs: dict[tuple[int, int], None] = {}
    number = 0
    while len(pairs) < LARGE_EDGES:
        number += 1
        start = number * 7919 % LARGE_NODES
        end = start + 40 + number * 104_729 % 460
        if end < LARGE_NODES:
            pairs[start, end] = None
    edges = [
        pb.Edge(source=ids[start], target=ids[end], type=pb.EDGE_TYPE_PROPAGATES_TO, provenance=[SAID])
        for start, end in pairs
    ]
    merge(port, nodes, edges)
    return ids
