"""Record the examples of operations on a causal graph: an incident over a small graph, with a Tee behind the server."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from cmbs.api.operations.graphs import GRAPH_OPERATIONS
from cmbs.belief.server import BeliefServer
from cmbs.http.app import BeliefApp
from cmbs.stores.memory import InMemoryStore
from cmbs.stores.tee import TeeStore
from cmbs.tee import Delta, Edge, EdgeKey, EdgeType, Node, NodeType, Provenance, Timestamp
from cmbs.tee.server import ServerOptions, TeeServer
from cmbs.tee.stores.memory import MemoryGraphStore
from cmbs.testing import ManualClock

Send = Callable[..., httpx2.Response]
_SAID = (Provenance("cmdb", "scan", Timestamp(1_772_361_600, 0)),)
_NODES = {
    "web-alert": NodeType.MECHANISM,
    "web": NodeType.SERVICE,
    "orders": NodeType.SERVICE,
    "db": NodeType.DEPENDENCY,
}
_EDGES = (
    ("web", "web-alert", EdgeType.MANIFESTS_AS),
    ("web", "orders", EdgeType.DEPENDS_ON),
    ("orders", "db", EdgeType.DEPENDS_ON),
)
GRAPH = Delta(
    tuple(Node(name, kind, name.replace("-", " "), False, _SAID) for name, kind in _NODES.items()),
    tuple(Edge(EdgeKey(*key), _SAID) for key in _EDGES),
)
_DECLARATION = {
    "ontology": {
        "hypothesis_space_id": "shop",
        "hypothesis_version": "1",
        "causal_graph_ref": "tee://main",
        "causal_graph_version": "",
    }
}
_ELIMINATION = {"source_id": "adapter://sre", "observation_id": "orders-healthy", "eliminated": ["orders"]}
_QUERIES: dict[str, dict[str, str]] = {
    "session_graph": {"limit": "5"},
    "explain_symptoms": {"symptom": "web-alert"},
    "node_impact": {"node": "db"},
}


class _Ids:
    """An `IdSource` of the ids of one session and its events."""

    def __init__(self) -> None:
        self._ids = iter(
            (
                "5d0c7e3a-91b4-4c28-8f60-2ab9d4e17c05",
                "e8a2b6f1-3c79-4d05-9b14-70f5c6d2a38e",
                "17f4d9c0-6b85-4e3a-a2d7-c59e08b16f43",
            )
        )

    def new_id(self) -> str:
        return next(self._ids)


def play_graph(send: Send) -> dict[str, Any]:
    """Declare a session over the graph, eliminate in it, and read everything; the answers by operation."""
    session_id = _read(send("POST", "/v1/sessions", json=_DECLARATION), 201)["session_id"]
    # Before the elimination the whole way from the database to the alert is there.
    before = {each.operation_id: _ask(send, each.path, session_id, each.operation_id) for each in GRAPH_OPERATIONS}
    _read(send("POST", f"/v1/sessions/{session_id}/eliminate", json=_ELIMINATION), 200)
    return {**before, "session_graph": _ask(send, "/v1/sessions/{session_id}/graph", session_id, "session_graph")}


def _ask(send: Send, path: str, session_id: str, name: str) -> Any:
    return _read(send("GET", path.format(session_id=session_id), params=_QUERIES[name]), 200)


def _read(answer: httpx2.Response, status: int) -> Any:
    if answer.status_code != status:
        raise RuntimeError(answer.text)
    return answer.json()


def record_graph() -> dict[str, Any]:
    """The answers of an application in memory, with a Tee on the loopback."""
    graph = MemoryGraphStore()
    graph.merge(GRAPH)
    with asyncio.Runner() as runner, _listening(graph, runner) as endpoint:
        clock = ManualClock("2026-03-01T10:40:00.000000Z")
        belief = BeliefServer(store=TeeStore(endpoint), audit_log=InMemoryStore(), clock=clock, ids=_Ids())
        app = BeliefApp(belief)
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")
        answers = play_graph(lambda *request, **options: runner.run(client.request(*request, **options)))
        runner.run(client.aclose())
        runner.run(asyncio.to_thread(app.close))
    return answers


@contextmanager
def _listening(graph: MemoryGraphStore, runner: asyncio.Runner) -> Iterator[str]:
    async def start() -> TeeServer:
        server = TeeServer(graph, ServerOptions(port=0))
        await server.start()
        return server

    server = runner.run(start())
    yield f"127.0.0.1:{server.port}"
    runner.run(server.stop(0))
