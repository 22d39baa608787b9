"""Tombstones in Tee, over a real channel: the store contract on every graph store, and what is Tee's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import grpc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmbs.errors import (
    BeliefServerError,
    Conflict,
    IncidentNotFound,
    InvalidHypothesisId,
    InvalidRequest,
)
from cmbs.spi import (
    AnchoredUniverse,
    EliminationProvenance,
    EliminationResult,
    RecoveredState,
    UniverseSource,
)
from cmbs.stores._tee_ids import hypothesis_of, parse_hypothesis
from cmbs.stores.tee import TeeStore
from cmbs.tee import Delta, EdgeKey, EdgeType, GraphStore, Node, NodeType, Universe, UniverseKind, edge_id
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.kernel.lattice import Provenance, Timestamp
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.server import CALLS
from cmbs.tee.service import TeeService
from cmbs.tee.stores.memory import MemoryGraphStore
from cmbs.tee.stores.neo4j import Neo4jGraphStore
from cmbs.tee.stores.sqlite import SQLiteGraphStore
from cmbs.testing.contracts.elimination_store import EliminationStoreContract
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS
from tests.support.neo4j import fresh_graph
from tests.support.plain_tee import PlainTee, serving
from tests.support.tee import TIMEOUT_SECONDS, edge, listening
from tests.support.tee_process import grow

pytestmark = pytest.mark.slow

SEEN = EliminationProvenance("source", "observation")
NOTHING: frozenset[str] = frozenset()
# An id that no graph can have is left out. More than a test declares: a store must know its own from the rest.
KNOWN = frozenset(each for each in HOSTILE_IDS if each).union("abcdef", map(str, range(65)), ["stays"])


def store_on(port: int, **options: Any) -> TeeStore:
    return TeeStore(f"127.0.0.1:{port}", **options)


class TeeContract(EliminationStoreContract):
    hypothesis_ids: ClassVar[tuple[str, ...]] = tuple(each for each in HOSTILE_IDS if each)

    @pytest.fixture
    def open_store(self, port: int) -> Callable[[], TeeStore]:
        grow(port, KNOWN)
        return lambda: store_on(port)


@pytest.mark.slow
@pytest.mark.req("TEE-STORE-01")
class TestOnMemory(TeeContract):
    @pytest.fixture
    def port(self) -> Iterator[int]:
        with listening(MemoryGraphStore()) as port:
            yield port


@pytest.mark.req("TEE-STORE-01")
class TestOnSQLite(TeeContract):
    @pytest.fixture
    def port(self, tmp_path: Path) -> Iterator[int]:
        with closing(SQLiteGraphStore(tmp_path / "tee.db")) as graph, listening(graph) as port:
            yield port


@pytest.mark.neo4j
@pytest.mark.req("TEE-STORE-01")
class TestOnNeo4j(TeeContract):
    @pytest.fixture
    def port(self) -> Iterator[int]:
        with fresh_graph() as url, closing(Neo4jGraphStore(url)) as graph, listening(graph) as port:
            yield port


# --- a Tee that has nothing of ours -----------------------------------------------------------------------------------


@pytest.mark.req("TEE-STORE-02")
class TestOnATeeWithoutAnchors(TeeContract):
    @pytest.fixture
    def port(self) -> Iterator[int]:
        with serving(PlainTee().calls()) as port:
            yield port

    def test_the_universe_stays_as_it_was_while_the_graph_grows(self, port: int, store: TeeStore) -> None:
        anchored = store.anchor("session")
        assert anchored == AnchoredUniverse(KNOWN, None)
        store.create_session("session", anchored.hypothesis_ids)
        grow(port, ["newborn"])
        assert store.eliminate("session", {"a", "newborn"}, SEEN) == EliminationResult(frozenset("a"), NOTHING)
        assert store.recover("session") == RecoveredState(KNOWN, frozenset("a"), KNOWN - {"a"})
        assert store.anchor("session") == anchored

    def test_edges_are_told_apart_whatever_they_are_called_in_answers(self, port: int, store: TeeStore) -> None:
        grow(port, (), [edge("a", "b"), edge("b", "c")])
        ab, bc = "edge:a|b|DEPENDS_ON", "edge:b|c|DEPENDS_ON"
        store.create_session("session", frozenset({"a", ab, bc}))
        assert store.eliminate("session", {ab}, SEEN) == EliminationResult(frozenset({ab}), NOTHING)
        assert store.eliminate("session", {ab, bc}, SEEN) == EliminationResult(frozenset({bc}), frozenset({ab}))
        assert store.recover("session").survivors == {"a"}


# --- ids --------------------------------------------------------------------------------------------------------------

ends = st.text(min_size=1, alphabet=st.one_of(st.sampled_from("ab|%:27C5"), st.characters(codec="utf-8")))
keys = st.builds(EdgeKey, ends, ends, st.sampled_from(EdgeType)).filter(lambda key: key.source != key.target)
names = st.one_of(
    st.text(),
    keys.map(edge_id),
    st.builds("{}{}".format, st.integers(0, 3).map(lambda times: "node:" * times), keys.map(edge_id)),
    st.builds("edge:{}|{}|{}".format, ends, ends, st.sampled_from(["DEPENDS_ON", "CAUSES"])),
)


@pytest.mark.req("TEE-STORE-03")
@given(names)
@example("edge:a|a|DEPENDS_ON")
@example("edge:a%7c|b|DEPENDS_ON")
@example("node:edge:a|b|DEPENDS_ON")
def test_every_text_names_one_thing_and_everything_has_one_name(text: str) -> None:
    assert hypothesis_of(parse_hypothesis(text)) == text
    assert parse_hypothesis(hypothesis_of(text)) == text


@pytest.mark.req("TEE-STORE-03")
@given(keys)
def test_an_edge_is_found_again_whatever_its_ends_are_called(key: EdgeKey) -> None:
    assert parse_hypothesis(hypothesis_of(key)) == key
    assert parse_hypothesis(f"node:{hypothesis_of(key)}") == hypothesis_of(key)


@pytest.mark.req("TEE-STORE-03")
def test_the_convention_is_the_one_of_the_specification() -> None:
    assert parse_hypothesis("svc-postgres") == "svc-postgres"
    assert parse_hypothesis("edge:svc-postgres|svc-redis|DEPENDS_ON") == EdgeKey(
        "svc-postgres", "svc-redis", EdgeType.DEPENDS_ON
    )
    assert parse_hypothesis("edge:router-7") == "edge:router-7"


# --- nodes, edges, anchors --------------------------------------------------------------------------------------------


@pytest.fixture(params=[pytest.param("memory", marks=pytest.mark.slow), "sqlite"])
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GraphStore]:
    graph: GraphStore = MemoryGraphStore() if request.param == "memory" else SQLiteGraphStore(tmp_path / "tee.db")
    yield graph
    graph.close()


@pytest.fixture
def port(graph: GraphStore) -> Iterator[int]:
    with listening(graph) as port:
        grow(port, "abc", [edge("a", "b"), edge("b", "c")])
        yield port


@pytest.fixture
def opened(port: int) -> Iterator[Callable[..., TeeStore]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(store_on(port, **options)))


@pytest.mark.req("TEE-STORE-04")
def test_a_universe_without_a_list_is_the_graph_at_the_anchor_for_good(
    port: int, graph: GraphStore, opened: Callable[..., TeeStore]
) -> None:
    store = opened()
    assert isinstance(store, UniverseSource)
    anchored = store.anchor("session")
    assert anchored == AnchoredUniverse(frozenset("abc"), str(graph.version()))
    # Anchoring alone writes nothing, so that a declaration that fails leaves nothing behind.
    with pytest.raises(IncidentNotFound):
        graph.incident("session")
    grow(port, ["newborn"])
    store.create_session_at("session", anchored.hypothesis_ids, str(anchored.causal_graph_version))
    # Kept without a list: the kind is all that is written, and the anchor is the version that was named.
    assert graph.universe("session") == Universe(UniverseKind.NODES)
    assert str(graph.incident("session").anchor) == anchored.causal_graph_version
    assert store.eliminate("session", {"a", "newborn", "missing"}, SEEN) == EliminationResult(frozenset("a"), NOTHING)
    for each in (store, opened()):
        assert each.recover("session") == RecoveredState(frozenset("abc"), frozenset("a"), frozenset("bc"))
        assert each.anchor("session") == anchored
        each.create_session("session", frozenset("abc"))
        with pytest.raises(Conflict):
            each.create_session("session", frozenset(["a", "b", "c", "newborn"]))


@pytest.mark.slow
@pytest.mark.req("TEE-STORE-04")
def test_what_was_born_between_anchor_and_creation_changes_nothing(
    port: int, graph: GraphStore, opened: Callable[..., TeeStore]
) -> None:
    store = opened()
    whole = store.anchor("whole")
    grow(port, ["newborn"])
    # The process that anchored it, and one that recovers what another began.
    for session_id, each in (("whole", store), ("recovered", opened())):
        each.create_session_at(session_id, whole.hypothesis_ids, str(whole.causal_graph_version))
        assert opened().recover(session_id) == RecoveredState(frozenset("abc"), NOTHING, frozenset("abc"))
        assert graph.universe(session_id) == Universe(UniverseKind.NODES)
    # A version that the graph never had names nothing: such a universe is listed, at the present version.
    for version in ("99", "v17", ""):
        store.create_session_at(f"part {version}", frozenset({"a", "newborn"}), version)
        assert opened().recover(f"part {version}").hypothesis_ids == {"a", "newborn"}
    assert store.anchor("other").hypothesis_ids == {"a", "b", "c", "newborn"}


@pytest.mark.req("TEE-STORE-04")
def test_what_another_session_was_told_is_not_its_universe(opened: Callable[..., TeeStore], graph: GraphStore) -> None:
    store = opened()
    graph.create_incident("worn", Timestamp(0, 0))
    graph.merge_node_tombstones("worn", ["a"], Provenance("other", "something", Timestamp(0, 0)))
    assert store.anchor("worn").hypothesis_ids == {"b", "c"}
    for session_id in ("worn", "other"):
        store.create_session(session_id, frozenset("bc"))
        assert opened().recover(session_id).hypothesis_ids == {"b", "c"}


@pytest.mark.req("TEE-STORE-06")
def test_a_list_that_was_begun_is_finished_for_a_universe_that_is_the_whole_graph(
    opened: Callable[..., TeeStore], graph: GraphStore
) -> None:
    store = opened()
    graph.create_incident("session", Timestamp(0, 0))
    graph.create_incident("cmbs:universe:session", Timestamp(0, 0))
    graph.merge_node_tombstones("cmbs:universe:session", ["a"], Provenance("cmbs", "universe", Timestamp(0, 0)))
    store.create_session("session", store.anchor("session").hypothesis_ids)
    assert opened().recover("session").hypothesis_ids == frozenset("abc")


@pytest.mark.parametrize("odd", ["\ud800", "a\udfff"])
def test_what_is_no_text_is_refused_or_unknown(opened: Callable[..., TeeStore], odd: str) -> None:
    store = opened()
    with pytest.raises(InvalidRequest):
        store.create_session(odd, frozenset("a"))
    with pytest.raises(InvalidHypothesisId):
        store.create_session("session", frozenset({"a", odd}))
    store.create_session("other", frozenset("ab"))
    with pytest.raises(InvalidRequest):
        store.eliminate("other", {"a"}, EliminationProvenance(odd, "trigger"))
    assert store.eliminate("other", {"a", odd}, SEEN) == EliminationResult(frozenset("a"), NOTHING)


@pytest.mark.req("TEE-STORE-03")
def test_with_edges_they_are_hypotheses_like_the_nodes(opened: Callable[..., TeeStore], graph: GraphStore) -> None:
    store = opened(edges=True)
    ab, bc = "edge:a|b|DEPENDS_ON", "edge:b|c|DEPENDS_ON"
    universe = frozenset({"a", "b", "c", ab, bc})
    assert store.anchor("session").hypothesis_ids == universe
    store.create_session_at("session", universe, str(graph.version()))
    assert graph.universe("session") == Universe(UniverseKind.GRAPH)
    unknown = "edge:a|c|DEPENDS_ON"
    assert store.eliminate("session", {"a", bc, unknown}, SEEN) == EliminationResult(frozenset({"a", bc}), NOTHING)
    assert store.eliminate("session", {bc, ab}, SEEN) == EliminationResult(frozenset({ab}), frozenset({bc}))
    # Tee's own view has lost what hung on `a`; to the session, every hypothesis stands for itself.
    assert opened().recover("session") == RecoveredState(universe, frozenset({"a", ab, bc}), frozenset("bc"))
    assert {key.source for key in graph.tombstones("session").edges} == {"a", "b"}


@pytest.mark.req("TEE-STORE-03")
def test_a_node_that_is_called_like_an_edge_is_not_taken_for_one(port: int, opened: Callable[..., TeeStore]) -> None:
    named = "edge:a|b|DEPENDS_ON"
    grow(port, [named])
    store = opened(edges=True)
    assert store.anchor("session").hypothesis_ids >= {named, f"node:{named}"}
    store.create_session("session", store.anchor("session").hypothesis_ids)
    assert store.eliminate("session", {f"node:{named}"}, SEEN).applied == {f"node:{named}"}
    assert named in store.get_survivors("session")
    assert store.get_eliminated("session") == {f"node:{named}"}


@pytest.mark.req("TEE-STORE-04")
def test_without_edges_they_are_outside_the_universe(opened: Callable[..., TeeStore]) -> None:
    store = opened()
    store.create_session("session", store.anchor("session").hypothesis_ids)
    assert store.eliminate("session", {"edge:a|b|DEPENDS_ON"}, SEEN) == EliminationResult(NOTHING, NOTHING)


@pytest.mark.req("TEE-STORE-05")
def test_survivors_are_what_tee_itself_shows_of_the_universe(port: int, opened: Callable[..., TeeStore]) -> None:
    store = opened()
    store.create_session("session", frozenset("ab"))
    store.eliminate("session", {"a"}, SEEN)
    with open_channel(f"127.0.0.1:{port}") as channel:
        live = stub_on(channel).GetLiveView(pb.LiveViewRequest(incident_id="session"), timeout=TIMEOUT_SECONDS)
    assert {each.id for each in live.nodes} == {"b", "c"}
    assert store.get_survivors("session") == {"b"}


@pytest.mark.req("TEE-STORE-05")
def test_a_tombstone_that_another_caller_left_for_an_unknown_id_is_not_an_elimination(
    port: int, opened: Callable[..., TeeStore]
) -> None:
    store = opened()
    store.create_session("session", store.anchor("session").hypothesis_ids)
    with open_channel(f"127.0.0.1:{port}") as channel:
        said = pb.Provenance(source="other")
        request = pb.NodeTombstoneRequest(incident_id="session", node_ids=["a", "missing"], provenance=said)
        stub_on(channel).MergeNodeTombstones(request, timeout=TIMEOUT_SECONDS)
    assert store.recover("session") == RecoveredState(frozenset("abc"), frozenset("a"), frozenset("bc"))


@pytest.mark.req("TEE-STORE-05")
def test_what_a_store_has_forgotten_it_reads_again(
    port: int, opened: Callable[..., TeeStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cmbs.stores.tee._MAX_CACHED_IDS", 3)
    monkeypatch.setattr("cmbs.stores.tee._MAX_CACHED_SESSIONS", 2)
    monkeypatch.setattr("cmbs.stores.tee._MAX_CACHED_GRAPHS", 1)
    store = opened()
    universes = {}
    for number in range(5):
        grow(port, [f"newborn {number}"])
        universes[f"whole {number}"] = store.anchor(f"whole {number}").hypothesis_ids
        universes[f"listed {number}"] = frozenset("ab")
    for session_id, universe in universes.items():
        store.create_session(session_id, universe)
    for session_id, universe in universes.items():
        assert store.eliminate(session_id, {"a", "c"}, SEEN).applied == universe & {"a", "c"}
        assert store.get_survivors(session_id) == universe - {"a", "c"}


@pytest.mark.req("TEE-SERVE-04")
def test_an_id_that_is_too_long_for_a_session_blocks_no_declaration(
    graph: GraphStore, opened: Callable[..., TeeStore], caplog: pytest.LogCaptureFixture
) -> None:
    store = opened()
    said = Provenance("other", "before there were limits", Timestamp(0, 0))
    graph.merge(Delta((Node("x" * 1025, NodeType.SERVICE, "long", True, (said,)),)))
    anchored = store.anchor("session")
    assert anchored.hypothesis_ids == frozenset("abc")
    assert "1 hypotheses of the graph are left out" in caplog.text
    store.create_session_at("session", anchored.hypothesis_ids, str(anchored.causal_graph_version))
    assert graph.universe("session") == Universe(UniverseKind.NODES)
    assert opened().recover("session").hypothesis_ids == frozenset("abc")


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.req("TEE-STORE-06")
def test_hypotheses_that_are_not_in_the_graph_cannot_be_declared(opened: Callable[..., TeeStore]) -> None:
    store = opened()
    unknown = ["", "cmbs:universe:listed", "edge:a|c|DEPENDS_ON", "missing"]
    with pytest.raises(InvalidHypothesisId) as refused:
        store.create_session("session", frozenset(["a", *unknown]))
    assert refused.value.details["unknown"] == unknown
    for use in (store.get_survivors, store.get_eliminated, store.recover):
        with pytest.raises(BeliefServerError, match="SESSION_NOT_FOUND"):
            use("session")


@pytest.mark.req("TEE-STORE-06")
@pytest.mark.parametrize("session_id", ["", "cmbs:universe:session"])
def test_ids_that_are_the_stores_own_are_refused(opened: Callable[..., TeeStore], session_id: str) -> None:
    store = opened()
    with pytest.raises(InvalidRequest):
        store.create_session(session_id, frozenset("a"))
    with pytest.raises(InvalidRequest):
        store.anchor(session_id)


@pytest.mark.req("TEE-STORE-06")
def test_a_creation_that_is_refused_leaves_nothing_behind(opened: Callable[..., TeeStore], graph: GraphStore) -> None:
    store = opened()
    with pytest.raises(InvalidHypothesisId):
        store.create_session("session", frozenset({"a", "b", "missing"}))
    with pytest.raises(IncidentNotFound):
        graph.incident("session")
    store.create_session("session", frozenset("a"))
    with pytest.raises(Conflict):
        store.create_session("session", frozenset("ab"))


@pytest.mark.req("TEE-STORE-05")
def test_an_elimination_without_a_source_is_kept_all_the_same(
    opened: Callable[..., TeeStore], graph: GraphStore
) -> None:
    store = opened()
    store.create_session("session", frozenset("ab"))
    assert store.eliminate("session", {"a"}, EliminationProvenance("", "")).applied == {"a"}
    said = graph.tombstones("session").nodes["a"]
    assert (said.source, said.trigger) == ("unknown", "unknown")


@pytest.mark.req("TEE-STORE-05")
def test_more_than_a_message_carries_goes_in_several(opened: Callable[..., TeeStore], port: int) -> None:
    many = frozenset(f"{number}-{'x' * 1000}" for number in range(4500))
    grow(port, many)
    store = opened()
    session_id = str(uuid4())
    store.create_session(session_id, many)
    assert store.eliminate(session_id, many, SEEN) == EliminationResult(many, NOTHING)
    assert opened().recover(session_id) == RecoveredState(many, many, NOTHING)


@pytest.mark.req("TEE-STORE-03")
def test_a_source_that_is_longer_than_tee_takes_is_cut_and_blocks_nothing() -> None:
    with listening(MemoryGraphStore()) as port, closing(store_on(port)) as store:
        grow(port, "ab")
        store.create_session("s", frozenset("ab"))
        long = EliminationProvenance("x" * 3_000, "y" * 3_000)
        assert store.eliminate("s", {"a"}, long).applied == {"a"}
        assert store.group_eliminated("s") == {EliminationProvenance("x" * 1_024, "y" * 1_024): {"a"}}


@pytest.mark.req("TEE-STORE-03")
def test_a_universe_is_not_compared_with_the_graph_of_a_tee_that_was_lost_since() -> None:
    """The Tee behind the address was restored, and grew to the same version again, with other nodes."""
    graphs = [MemoryGraphStore(), MemoryGraphStore()]
    for graph, name in zip(graphs, "ab", strict=True):
        said = (Provenance("s", "t", Timestamp(0, 0)),)
        graph.merge(Delta((Node(name, NodeType.SERVICE, name, hypothetical=True, provenance=said),)))
    away = [True]

    def answer(method: Callable[..., Any], request: Any, context: Any) -> Any:
        if len(graphs) == 1 and away:
            away.clear()
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        try:
            return method(TeeService(graphs[0]), request)
        except IncidentNotFound as exc:
            return context.abort(grpc.StatusCode.NOT_FOUND, str(exc))

    calls = {call.name: partial(answer, call.method) for call in CALLS}
    with serving(calls) as port, closing(store_on(port)) as store:
        offered = store.anchor("s")
        del graphs[0]
        # The next call finds the connection lost.
        store.identity()
        assert offered.causal_graph_version is not None
        with pytest.raises(InvalidHypothesisId):
            store.create_session_at("s", offered.hypothesis_ids, offered.causal_graph_version)
