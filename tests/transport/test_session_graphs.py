"""The causal graph of a session over HTTP: bounded, paged, as of the anchor, refused clearly where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.bootstrap import Settings
from cmbs.client import connect
from cmbs.messages import ForeignRule, HypothesisState, OntologyBundle
from cmbs.spi import EliminationProvenance
from cmbs.stores import open_tee
from cmbs.stores.memory import InMemoryStore
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.plain_tee import PlainTee
from tests.support.plain_tee import serving as serving_plainly
from tests.support.tee import SAID, edge, listening
from tests.support.tee_process import grow
from tests.support.transports import ONTOLOGY

BLANK = {**ONTOLOGY, "causal_graph_version": ""}
NODES = [*"abcd", "alert"]
EDGES = [("a", "b"), ("b", "c"), ("c", "d")]
ASKED = {"graph": "", "explain": "?symptom=a", "impact": "?node=d"}


class Incident:
    """A session over a graph that has grown since, and a client of its server."""

    def __init__(self, client: Client, port: int) -> None:
        self.client = client
        self.port = port
        alert = pb.Edge(source="a", target="alert", type=pb.EDGE_TYPE_MANIFESTS_AS, provenance=[SAID])
        self.version = str(grow(port, NODES, [*(edge(*ends) for ends in EDGES), alert]))
        self.session_id = client.post("/v1/sessions", {"ontology": BLANK}).json()["session_id"]
        self.path = f"/v1/sessions/{self.session_id}"
        grow(port, ["late"], [edge("d", "late")])

    def get(self, path: str, **params: Any) -> Any:
        answer = self.client.get(f"{self.path}{path}", params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def eliminate(self, *ids: str) -> None:
        body = {"source_id": "s", "observation_id": ",".join(ids), "eliminated": ids}
        assert self.client.post(f"{self.path}/eliminate", body).status_code == 200


@pytest.fixture
def incident() -> Iterator[Incident]:
    with listening(MemoryGraphStore()) as port:
        settings = Settings(store="memory:", tee=f"127.0.0.1:{port}")
        app = create_app(settings=settings)
        with client_of(app) as client:
            yield Incident(client, port)
        app.close()


def read_pages(incident: Incident, path: str, key: str, **params: Any) -> list[Any]:
    found: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = incident.get(path, **params, **cursor)
        found += page[key]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


@pytest.mark.req("TEE-SEARCH-03")
def test_the_graph_comes_in_pages_as_of_the_anchor_with_the_states_of_the_log(incident: Incident) -> None:
    incident.eliminate("b", "c")
    whole = incident.get("/graph")
    assert (whole["causal_graph_version"], whole["next_cursor"]) == (incident.version, None)
    assert {each["hypothesis_id"]: each["state"] for each in whole["nodes"]} == {
        **dict.fromkeys(["a", "d", "alert"], "survivor"),
        **dict.fromkeys(["b", "c"], "eliminated"),
    }
    assert {each["type"] for each in whole["nodes"]} == {"SERVICE"}
    # The session is over the nodes alone.
    assert {each["state"] for each in whole["edges"]} == {"outside"}
    assert [(each["source"], each["target"]) for each in whole["edges"]] == [*EDGES, ("a", "alert")]
    for limit in (1, 3, 4):
        assert read_pages(incident, "/graph", "nodes", limit=limit) == whole["nodes"]
        assert read_pages(incident, "/graph", "edges", limit=limit) == whole["edges"]
    before = incident.get("/graph", at=0, fields="nodes.state")
    assert before == {"nodes": [{"state": "survivor"}] * len(NODES)}
    head = incident.get("")["audit_head_event_id"]
    assert incident.get("/graph", at=head) == whole


@pytest.mark.req("TEE-SEARCH-03")
def test_edges_of_a_listed_universe_have_states_too(incident: Incident) -> None:
    hypotheses = ["a", "edge:a|b|DEPENDS_ON"]
    declared = incident.client.post("/v1/sessions", {"ontology": BLANK, "hypotheses": hypotheses}).json()
    incident.path = f"/v1/sessions/{declared['session_id']}"
    incident.eliminate("edge:a|b|DEPENDS_ON")
    graph = incident.get("/graph")
    states = {each["hypothesis_id"]: each["state"] for each in (*graph["nodes"], *graph["edges"])}
    assert states.pop("a") == "survivor"
    assert states.pop("edge:a|b|DEPENDS_ON") == "eliminated"
    assert set(states.values()) == {"outside"}


@pytest.mark.req("TEE-SEARCH-03")
def test_searches_over_http_leave_out_what_is_eliminated(incident: Incident) -> None:
    found = incident.get("/explain", symptom=["alert", "b"])
    assert [each["hypothesis_id"] for each in found["results"]] == ["b", "c", "d", "alert", "a"]
    assert (found["total"], found["is_cut"], found["causal_graph_version"]) == (5, False, incident.version)
    assert read_pages(incident, "/explain", "results", symptom=["alert", "b"], limit=2) == found["results"]
    (path,) = incident.get("/impact", node="d", max_depth=1)["results"][0]["paths"]
    assert path == {"end": "c", "edges": [{"source": "c", "target": "d", "type": "DEPENDS_ON"}]}
    assert incident.get("/impact", node="d", max_depth=1)["is_cut"] is True
    assert [each["hypothesis_id"] for each in incident.get("/impact", node="d")["results"]] == ["c", "b", "a", "alert"]
    incident.eliminate("c")
    assert [each["hypothesis_id"] for each in incident.get("/explain", symptom="alert")["results"]] == [
        "alert",
        "a",
        "b",
    ]
    assert incident.get("/impact", node="d")["total"] == 0


@pytest.mark.req("TEE-SEARCH-03")
def test_the_python_client_searches_and_follows_pages(incident: Incident) -> None:
    explained = read_pages(incident, "/explain", "results", symptom=["alert", "b"])
    reached = read_pages(incident, "/impact", "results", node="d")
    app: Any = incident.client.app
    with connect(app) as client:
        found = list(client.each(client.explain_symptoms, incident.session_id, ["alert", "b"], limit=1))
        assert [each.hypothesis_id for each in found] == [each["hypothesis_id"] for each in explained]
        affected = list(client.each(client.node_impact, incident.session_id, "d", limit=1))
        assert [each.hypothesis_id for each in affected] == [each["hypothesis_id"] for each in reached]
        assert len(list(client.each(client.session_graph, incident.session_id, limit=2))) == len(NODES) + len(EDGES) + 1


@pytest.mark.req("TEE-SEARCH-03")
def test_a_bad_question_about_a_graph_says_what_is_accepted(subtests: pytest.Subtests, incident: Incident) -> None:
    questions: list[tuple[str, str, dict[str, Any]]] = [
        ("/explain", "send `symptom`", {"parameter": "symptom"}),
        ("/explain?symptom=", "`symptom` must not be empty", {"parameter": "symptom"}),
        ("/explain?symptom=a&symptom=", "`symptom` must not be empty", {"parameter": "symptom"}),
        ("/explain?symptom=none", "node `none` is not in the graph", {"field": "symptoms", "found": "none"}),
        ("/explain?symptom=late", "node `late` is not in the graph", {"found": "late"}),
        ("/explain?symptom=edge:a%7Cb%7CDEPENDS_ON", "is an edge", {"field": "node"}),
        ("/explain?symptom=a&max_depth=33", "`max_depth` must be from 1 to 32", {"parameter": "max_depth"}),
        ("/explain?symptom=a&max_depth=0", "`max_depth` must be from 1 to 32", {"found": 0}),
        ("/explain?symptom=a&limit=1001", "`limit` must be from 1 to 1000", {"parameter": "limit"}),
        ("/explain?symptom=a&max_depth=1&max_depth=2", "was sent twice", {"parameter": "max_depth"}),
        ("/explain?symptom=a&depth=1", "`depth`", {}),
        ("/impact", "send `node`", {"parameter": "node"}),
        ("/impact?node=a&node=b", "was sent twice", {"parameter": "node"}),
        ("/impact?node=none", "node `none` is not in the graph", {"field": "node_id"}),
        ("/impact?node=a&cursor=x", "`cursor`", {"parameter": "cursor"}),
        # A cursor of the right form that no page has given out.
        ("/impact?node=a&cursor=WyJ4Il0", "`page_token` must be", {"field": "page_token"}),
        ("/graph?limit=0", "`limit` must be from 1", {"parameter": "limit"}),
        ("/graph?cursor=WyJ4Il0", "`page_token` must be", {"next": "ask for the first page again"}),
        ("/graph?node=a", "`node`", {}),
    ]
    for asked, words, details in questions:
        with subtests.test(asked=asked, words=words, details=details):
            error = check_error(incident.client.get(f"{incident.path}{asked}"), 400, "INVALID_REQUEST")
            assert words in error["message"]
            assert error.items() >= details.items()


@pytest.mark.req("TEE-SEARCH-03")
def test_too_many_symptoms_are_refused_by_their_number(incident: Incident) -> None:
    answer = incident.client.get(f"{incident.path}/explain", params={"symptom": [f"n{each}" for each in range(101)]})
    error = check_error(answer, 400, "INVALID_REQUEST")
    assert "at most 100 symptoms" in error["message"]
    assert error["accepted"] == {"maxItems": 100}


@pytest.mark.req("TEE-SEARCH-03")
def test_a_server_without_tee_says_that_it_has_no_graph(subtests: pytest.Subtests) -> None:
    with client_of(create_app(BeliefServer())) as client:
        opened = client.post("/v1/sessions", {"ontology": ONTOLOGY, "hypotheses": ["a"]}).json()["session_id"]
        for asked, query in ASKED.items():
            with subtests.test(asked=asked):
                error = check_error(client.get(f"/v1/sessions/{opened}/{asked}{query}"), 400, "INVALID_REQUEST")
                assert "not over a causal graph" in error["message"]
                assert "--tee" in error["next"]
                check_error(client.get(f"/v1/sessions/none/{asked}{query}"), 404, "SESSION_NOT_FOUND")


@pytest.mark.req("TEE-SEARCH-03")
def test_a_session_over_a_provider_has_no_graph() -> None:
    with listening(MemoryGraphStore()) as port:
        app = create_app(settings=Settings(store="memory:", tee=f"127.0.0.1:{port}"))
        with client_of(app) as client:
            declared = client.post("/v1/sessions", {"ontology": ONTOLOGY, "provider": "webshop"})
            opened = declared.json()["session_id"]
            error = check_error(client.get(f"/v1/sessions/{opened}/graph"), 400, "INVALID_REQUEST")
            assert "it is over provider `webshop-signature`" in error["message"]
        app.close()


@contextmanager
def serving(directory: Path, port: int) -> Iterator[Client]:
    """A server over a log that stays, with the Tee on a port."""
    app = create_app(settings=Settings(store=f"sqlite:///{directory}/cmbs.db", tee=f"127.0.0.1:{port}"))
    with client_of(app) as client:
        yield client
    app.close()


@pytest.mark.slow
@pytest.mark.req("TEE-SEARCH-03", "TEE-AGREE-01")
def test_a_graph_is_not_read_from_a_tee_that_does_not_agree_with_the_log(tmp_path: Path) -> None:
    with listening(MemoryGraphStore()) as port, serving(tmp_path, port) as client:
        grow(port, NODES)
        opened = client.post("/v1/sessions", {"ontology": BLANK}).json()["session_id"]
    with listening(MemoryGraphStore()) as port, serving(tmp_path, port) as client:
        grow(port, NODES)
        for asked, query in ASKED.items():
            error = check_error(client.get(f"/v1/sessions/{opened}/{asked}{query}"), 503, "STORE_UNAVAILABLE")
            assert "it was declared in the elimination store" in error["reason"]
            assert "cmbs tee repair" in error["message"]


@pytest.mark.req("TEE-SEARCH-03", "TEE-STORE-05")
def test_a_tee_without_searches_is_named(tmp_path: Path) -> None:
    with serving_plainly(PlainTee().calls()) as port, serving(tmp_path, port) as client:
        grow(port, NODES)
        opened = client.post("/v1/sessions", {"ontology": BLANK}).json()["session_id"]
        for asked, query in ASKED.items():
            error = check_error(client.get(f"/v1/sessions/{opened}/{asked}{query}"), 503, "STORE_UNAVAILABLE")
            assert "does not know the call" in error["message"]


@pytest.mark.slow
@pytest.mark.req("TEE-SEARCH-03", "TEE-FOREIGN-02")
def test_reading_a_graph_records_nothing_of_what_others_ruled_out() -> None:
    with listening(MemoryGraphStore()) as port:
        grow(port, NODES)
        log = InMemoryStore()

        def serve() -> BeliefServer:
            tee = open_tee(f"127.0.0.1:{port}")
            return BeliefServer(store=tee, audit_log=log, checks_in_background=False)

        first, ontology = serve(), OntologyBundle("space", "1", "tee://main", "")
        policy = first.default_policy(foreign_tombstones=ForeignRule.ELIMINATE)
        session_id = first.declare_session(ontology, policy=policy).session_id
        with closing(open_tee(f"127.0.0.1:{port}")) as other:
            other.eliminate(session_id, {"a"}, EliminationProvenance("someone else", "by hand"))
        second = serve()
        page = second.graphs.list_page(session_id)
        assert set(page.node_states) == {HypothesisState.SURVIVOR}
        assert len(second.audit_trace(session_id)) == 1
        # It is told, and left to those who record it.
        report = second.store_report(session_id)
        assert report is not None
        assert report.n_foreign == 1
        second.check_store(session_id)
        assert HypothesisState.ELIMINATED in second.graphs.list_page(session_id).node_states
        first.close()
        second.close()
