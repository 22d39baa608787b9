"""Sessions over kits of a causal graph in Tee: declared from its symptoms, observed by component, held to account."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cmbs.audit.observations import check_against_graph, check_observations
from cmbs.belief.kernel.events import Declare, Eliminate, read_event
from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.errors import (
    Conflict,
    InvalidRequest,
    LedgerCorrupt,
    LimitExceeded,
    StoreDisagrees,
    StoreUnavailable,
    UnknownProbe,
)
from cmbs.ledger import hash_entry
from cmbs.ledger.canonical import encode
from cmbs.messages import EliminationRule, OntologyBundle, SessionPolicy
from cmbs.spi.graph_search import GraphNode, WholeGraph
from cmbs.stores import open_tee
from cmbs.stores.memory import InMemoryStore
from cmbs.stores.sqlite import SQLiteStore
from cmbs.stores.tee import TeeStore
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.plain_tee import PlainTee
from tests.support.plain_tee import serving as serving_plainly
from tests.support.tee import SAID, edge, listening, node
from tests.support.tee_process import grow

ASSUMED = "a healthy component does not pass a fault on"
KIT = f"""
id: components
version: "1"
soundness: closed-world
graph:
  hypotheses: [SERVICE, INFRASTRUCTURE]
  assumption: {ASSUMED}
probes:
  - id: health
    prompt: Is {{component}} healthy?
    components: [SERVICE, INFRASTRUCTURE]
    outcomes:
      - {{id: healthy, eliminates: through}}
      - {{id: unhealthy, eliminates: nothing, soundness: sound}}
"""
# web → alert; orders → web; db → orders, db → stock → web; disk → db; cache → web; nothing leads on from aside.
SERVICES = ["web", "orders", "stock", "db", "cache", "aside"]
DEPENDS = [("web", "orders"), ("web", "stock"), ("orders", "db"), ("stock", "db"), ("web", "cache"), ("db", "disk")]


def fill(port: int) -> int:
    """Merge the graph; its version."""
    alert = pb.Edge(source="web", target="alert", type=pb.EDGE_TYPE_MANIFESTS_AS, provenance=[SAID])
    other = [node("disk", type=pb.NODE_TYPE_INFRASTRUCTURE), node("alert", type=pb.NODE_TYPE_MECHANISM)]
    with open_channel(f"127.0.0.1:{port}") as channel:
        nodes = [*map(node, SERVICES), *other]
        delta = pb.HypothesisDelta(nodes=nodes, edges=[*(edge(*ends) for ends in DEPENDS), alert])
        return int(stub_on(channel).MergeHypothesis(delta, timeout=30).causal_graph_version)


class Place:
    """A Tee with the graph, and servers over it that share a log."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.log = InMemoryStore()
        self.version = str(fill(port))

    def server(self, **options: Any) -> BeliefServer:
        """A server that knows nothing yet."""
        server = BeliefServer(store=self.tee(), audit_log=self.log, checks_in_background=False, **options)
        server.kits.put(KIT, MediaType.YAML)
        return server

    def tee(self) -> TeeStore:
        return open_tee(f"127.0.0.1:{self.port}")


@pytest.fixture
def place() -> Iterator[Place]:
    with listening(MemoryGraphStore()) as port:
        yield Place(port)


def ids(server: BeliefServer, session_id: str) -> set[str]:
    return set(server.query_belief(session_id).survivors)


def send(server: BeliefServer, session_id: str, message: Eliminate) -> None:
    """Have a message recorded that no kit was asked for, as another process could."""
    server._answer(server.requests.command(session_id, message))


@pytest.mark.req("GRAPH-KIT-03", "GRAPH-KIT-04")
def test_a_session_over_a_graph_is_declared_observed_and_ranked(place: Place) -> None:
    server = place.server()
    opened = server.declare_session(kit="components", symptoms=["alert"])
    session_id = opened.session_id
    assert ids(server, session_id) == {"web", "orders", "stock", "db", "cache", "disk"}
    declared = read_event(place.log.read(session_id)[0]).message
    assert isinstance(declared, Declare)
    assert (declared.symptoms, declared.ontology.causal_graph_version) == (["alert"], place.version)
    session = server.current_session(session_id)
    assert session.attributes.of("disk") == {"component": "disk", "kind": "INFRASTRUCTURE", "label": "disk"}
    # `web` would leave nothing, and `alert` is a symptom.
    page = server.probes(session_id)
    assert [each.probe_id for each in page.probes] == [
        f"health:{each}" for each in ("db", "cache", "disk", "orders", "stock")
    ]
    assert [(each.leaves, each.rules_out) for each in page.probes[0].answers] == [(4, 2), (6, 0)]
    assert page.probes[0].prompt == "Is db healthy?"
    seen = server.observe(session_id, "health:db", "healthy")
    assert seen.applied_eliminated == ["db", "disk"]
    message = read_event(place.log.read(session_id)[1]).message
    assert isinstance(message, Eliminate)
    assert message.probe is not None
    assert not isinstance(message.probe.reading, msgspec.UnsetType)
    assert msgspec.json.decode(message.probe.reading) == {
        "graph": {"assumption": ASSUMED, "causal_graph_version": place.version, "component": "db"},
        "soundness": "closed-world",
    }
    again = server.observe(session_id, "health:db", "healthy")
    assert (again.replayed, again.applied_eliminated) == (True, ["db", "disk"])
    assert server.observe(session_id, "health:orders", "unhealthy").applied_eliminated == []
    assert server.observe(session_id, "health:stock", None).applied_eliminated == []
    # One without data may be asked again.
    left = server.probes(session_id)
    assert [(each.probe_id, each.n_looks) for each in left.probes] == [("health:cache", 0), ("health:stock", 1)]
    assert [each.probe_id for each in server.probes(session_id, limit=1).probes] == ["health:cache"]
    assert server.probes(session_id, at=0).probes[0].probe_id == "health:db"
    assert left.n_asked == 3
    # The tombstones are in Tee, and so are searches.
    with closing(place.tee()) as tee:
        assert tee.get_eliminated(session_id) == {"db", "disk"}
    found = server.graphs.explain(session_id, ["alert"])
    assert (found.version, {each.hypothesis_id for each in found.results}) == (
        place.version,
        {"alert", "web", "orders", "stock", "cache"},
    )
    verified = verify_session(session_id, place.log.read(session_id), place.log.head(session_id))
    assert verified.symptoms == ("alert",)
    assert check_observations(place.log, verified) == []
    server.close()


@pytest.mark.req("GRAPH-KIT-03")
def test_growth_changes_no_answer_of_a_session_that_is_open(place: Place) -> None:
    server = place.server()
    session_id = server.declare_session(kit="components", symptoms=["alert"]).session_id
    before = server.probes(session_id).to_dict()
    # A way around `db`, and a new cause behind `cache`.
    grow(place.port, ["late"], [edge("web", "disk"), edge("cache", "late")])
    later = place.server()
    assert later.probes(session_id).to_dict() == before
    assert later.observe(session_id, "health:db", "healthy").applied_eliminated == ["db", "disk"]
    assert check_against_graph(place.log, later.current_session(session_id), place.tee()) == []
    fresh = later.declare_session(kit="components", symptoms=["alert"]).session_id
    assert "late" in ids(later, fresh)
    assert later.observe(fresh, "health:db", "healthy").applied_eliminated == ["db"]
    server.close()
    later.close()


@pytest.mark.req("GRAPH-KIT-03")
def test_a_repeat_under_its_key_is_the_first_declaration(place: Place) -> None:
    server = place.server()
    first = server.declare_session(kit="components", symptoms=["alert"], idempotency_key="k")
    grow(place.port, ["late"], [edge("cache", "late")])
    server.kits.put(KIT.replace('"1"', '"2"'), MediaType.YAML)
    again = server.declare_session(kit="components", symptoms=["alert"], idempotency_key="k")
    assert again.session_id == first.session_id
    with pytest.raises(Conflict):
        server.declare_session(kit="components", symptoms=["web"], idempotency_key="k")
    server.close()


@pytest.mark.slow
@pytest.mark.req("GRAPH-KIT-03")
def test_a_session_goes_on_in_a_server_that_starts_anew(place: Place) -> None:
    server = place.server()
    policy = SessionPolicy(eliminations=EliminationRule.OBSERVATIONS)
    asked = OntologyBundle("space", "7", "tee://main", place.version)
    session_id = server.declare_session(asked, kit="components", symptoms=["orders", "cache"], policy=policy).session_id
    assert ids(server, session_id) == {"orders", "cache", "db", "disk"}
    server.close()
    later = place.server()
    assert later.observe(session_id, "health:db", "healthy").applied_eliminated == ["db", "disk"]
    # Asked of what leads to no symptom, it rules out nothing, and is on record all the same.
    assert later.observe(session_id, "health:web", "healthy").applied_eliminated == []
    later.close()


@pytest.mark.req("GRAPH-KIT-03")
@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"kit": "components"}, "name the `symptoms`"),
        ({"kit": "components", "symptoms": []}, "at least one node"),
        ({"kit": "components", "symptoms": ["alerts"]}, "no node `alerts`; is it `alert`"),
        ({"kit": "components", "symptoms": ["quite another thing"]}, "no node `quite another thing`"),
        ({"kit": "components", "symptoms": ["alert"], "hypotheses": ["a"]}, "`hypotheses` come from the kit"),
        ({"ontology": OntologyBundle("s", "1", "t", ""), "symptoms": ["alert"]}, "belong to a session over a kit"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(place: Place, said: dict[str, Any], words: str) -> None:
    server = place.server()
    with pytest.raises(InvalidRequest, match=words):
        server.declare_session(**said)
    server.close()


@pytest.mark.req("GRAPH-KIT-03")
def test_limits_and_versions_hold_for_graphs_too(place: Place) -> None:
    server = place.server(limits=Limits(attribute_bytes=100))
    with pytest.raises(LimitExceeded, match="symptoms"):
        server.declare_session(kit="components", symptoms=[f"n{number}" for number in range(101)])
    with pytest.raises(Conflict, match="is at version"):
        server.declare_session(OntologyBundle("s", "1", "t", "99"), kit="components", symptoms=["alert"])
    note = server.declaration(None, None, kit="components", symptoms=["alert"]).note
    assert note is not None
    assert "so it has no attributes" in note
    server.kits.put(KIT.replace("[SERVICE, INFRASTRUCTURE]", "[DEPENDENCY]"), MediaType.YAML)
    with pytest.raises(InvalidRequest, match="no node of the graph of the kinds DEPENDENCY"):
        server.declare_session(kit="components", symptoms=["alert"])
    server.close()


@pytest.mark.req("GRAPH-KIT-03")
def test_a_probe_is_asked_of_components_that_can_be_asked(place: Place) -> None:
    server = place.server()
    session_id = server.declare_session(kit="components", symptoms=["alert", "cache"]).session_id
    for probe_id, words in (
        ("health:dbb", "no component `dbb`; is it `db`"),
        ("health:quite another thing", "no component `quite another thing`"),
        ("health:cache", "is a symptom of the session"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            server.observe(session_id, probe_id, "healthy")
    with pytest.raises(UnknownProbe):
        server.observe(session_id, "load:db", "healthy")
    with pytest.raises(InvalidRequest, match="has no outcome `ill`"):
        server.observe(session_id, "health:db", "ill")
    server.kits.put(KIT.replace("components: [SERVICE, INFRASTRUCTURE]", "components: [SERVICE]"), MediaType.YAML)
    other = server.declare_session(kit="components", symptoms=["alert"]).session_id
    with pytest.raises(InvalidRequest, match="is not asked of `disk`, which is a INFRASTRUCTURE"):
        server.observe(other, "health:disk", "healthy")
    assert "health:disk" not in [each.probe_id for each in server.probes(other).probes]
    server.close()


@pytest.mark.slow
@pytest.mark.req("GRAPH-KIT-03")
def test_without_a_graph_such_a_kit_is_refused(place: Place) -> None:
    with closing(BeliefServer()) as alone:
        record = alone.kits.put(KIT, MediaType.YAML).record
        assert (record.n_hypotheses, record.n_probes) == (0, 1)
        with pytest.raises(InvalidRequest, match="is over a causal graph, and this server has none"):
            alone.declare_session(kit="components", symptoms=["alert"])
    with (
        serving_plainly(PlainTee().calls()) as port,
        closing(BeliefServer(store=open_tee(f"127.0.0.1:{port}"))) as plain,
    ):
        grow(port, ["a"])
        plain.kits.put(KIT, MediaType.YAML)
        with pytest.raises(InvalidRequest, match=r"no version of a causal graph|as of a version"):
            plain.declare_session(kit="components", symptoms=["a"])
        plain.close()
    # What needs a table of a kit says that there is none.
    server = place.server()
    session = server.current_session(server.declare_session(kit="components", symptoms=["alert"]).session_id)
    assert session.provider is not None
    with pytest.raises(InvalidRequest, match="has no table of hypotheses"):
        server.kits.provide(session.provider)
    server.close()


@pytest.mark.req("GRAPH-KIT-04")
def test_an_observation_that_the_kit_or_the_graph_does_not_bear_out_is_found(place: Place) -> None:
    server = place.server()
    session_id = server.declare_session(kit="components", symptoms=["alert"]).session_id
    honest = server.observations.message(session_id, "health:db", "healthy")
    probe = honest.probe
    assert probe is not None
    graph = {"assumption": ASSUMED, "causal_graph_version": place.version, "component": "db"}
    reading: dict[str, Any] = {"graph": graph, "soundness": "closed-world"}

    def record(name: str, gone: list[str], **changes: Any) -> None:
        asked = msgspec.structs.replace(probe, reading=msgspec.Raw(encode(reading)), **changes)
        send(server, session_id, msgspec.structs.replace(honest, observation_id=name, eliminated=gone, probe=asked))

    def judge() -> list[str]:
        return [each.what for each in check_observations(place.log, server.current_session(session_id))]

    record("1", ["db", "disk"])
    assert judge() == []
    record("2", [], outcome_id=msgspec.UNSET)
    record("3", [], probe_id="load:db")
    record("4", [], outcome_id="ill")
    record("5", ["db"], outcome_id="unhealthy")
    record("6", ["disk"])
    record("7", ["db", "elsewhere"])
    record("8", [], outcome_id=None)
    reading["soundness"] = "sound"
    record("9", ["db", "disk"])
    graph["assumption"] = "another"
    record("10", ["db", "disk"])
    assert [each.partition(": ")[2] for each in judge()] == [
        "it names no outcome, and the session is over a kit on record",
        "kit `components` has no probe `load:db`",
        "probe `health:db` has no outcome `ill`",
        "`unhealthy` rules out nothing, and 1 ids are ruled out",
        "`healthy` rules out `db` itself, which is not ruled out",
        "it rules out ids beyond the universe",
        "it has the soundness `sound`, and `healthy` of probe `health:db` is `closed-world`",
        "it does not name the graph, the component and the assumption that it rests on",
    ]
    with closing(place.tee()) as tee:
        found = check_against_graph(place.log, server.current_session(session_id), tee)
    assert [each.seq for each in found] == [5, 6, 7]
    assert check_against_graph(place.log, server.current_session(session_id), object()) == []
    server.close()


class OtherGraph(TeeStore):
    """A Tee that has another graph at a version than it had."""

    def read_graph(self, version: str) -> WholeGraph:
        return WholeGraph((GraphNode("alert", "", "MECHANISM"),), ())


@pytest.mark.req("GRAPH-KIT-04")
def test_a_graph_that_is_another_one_answers_nothing(place: Place) -> None:
    server = place.server()
    session_id = server.declare_session(kit="components", symptoms=["alert"]).session_id
    server.observe(session_id, "health:db", "healthy")
    session = server.current_session(session_id)
    other = OtherGraph(f"127.0.0.1:{place.port}")
    with closing(BeliefServer(store=other, audit_log=place.log, checks_in_background=False)) as strange:
        with pytest.raises(StoreDisagrees, match="is not the one that session"):
            strange.observe(session_id, "health:alert", "healthy")
        found = check_against_graph(place.log, session, other)
        assert [each.what for each in found] == [
            "observation: in the graph, other ids could only have come through `db`"
        ]
        another_version = msgspec.structs.replace(session.ontology, causal_graph_version="99")
        later = msgspec.structs.replace(session, ontology=another_version)
        assert "has no version `99`" in check_against_graph(place.log, later, place.tee())[0].what
        elsewhere = msgspec.structs.replace(session, symptoms=("gone",))
        assert "not the symptoms in it" in check_against_graph(place.log, elsewhere, other)[0].what


@pytest.mark.req("GRAPH-KIT-04")
@pytest.mark.parametrize(
    "changes",
    [{"symptoms": []}, {"symptoms": ["b", "a"]}, {"provider": None}, {"provider": {"id": "k", "version": "1"}}],
)
def test_symptoms_that_no_request_could_have_had_are_found(place: Place, changes: dict[str, Any]) -> None:
    server = place.server()
    session_id = server.declare_session(kit="components", symptoms=["alert"]).session_id
    (stored,) = place.log.read(session_id)
    entry = msgspec.json.decode(stored.raw)
    entry["payload"] |= changes
    raw = encode(entry)
    with pytest.raises(LedgerCorrupt):
        verify_session(session_id, [type(stored)(raw, hash_entry(raw))])
    server.close()


@pytest.mark.slow
@pytest.mark.req("GRAPH-KIT-03")
def test_a_tee_that_is_away_refuses_an_answer_and_nothing_else(place: Place, tmp_path: Path) -> None:
    with listening(MemoryGraphStore()) as port:
        fill(port)
        log = SQLiteStore(tmp_path / "cmbs.db")
        server = BeliefServer(store=TeeStore(f"127.0.0.1:{port}", timeout_seconds=1), audit_log=log)
        server.kits.put(KIT, MediaType.YAML)
        session_id = server.declare_session(kit="components", symptoms=["alert"]).session_id
    with pytest.raises(StoreUnavailable):
        server.observe(session_id, "health:db", "healthy")
    assert len(ids(server, session_id)) == 6
    server.close()
