"""Tee over a real gRPC channel: the eight calls, their streams, what is refused and under which status."""

from __future__ import annotations

import asyncio
import socket
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.empty_pb2 import Empty
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cmbs import errors
from cmbs.errors import GraphUnavailable, TeeError
from cmbs.tee import GraphStore, GraphView
from cmbs.tee.client import collect, open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.server import STATUS_OF, ServerOptions, TeeServer
from cmbs.tee.stores.memory import MemoryGraphStore
from cmbs.tee.stores.sqlite import SQLiteGraphStore
from tests.support.tee import (
    BAD_REQUESTS,
    CERTIFICATE,
    KEY,
    SAID,
    TIMEOUT_SECONDS,
    calling,
    edge,
    expect_refused,
    listening,
    node,
    tls,
)

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GraphStore]:
    store = MemoryGraphStore() if request.param == "memory" else SQLiteGraphStore(tmp_path / "tee.db")
    yield store
    store.close()


@pytest.fixture
def tee(store: GraphStore) -> Iterator[Any]:
    with calling(store) as stub:
        yield stub


@pytest.fixture
def incident(tee: Any) -> str:
    """An incident on three services in a row."""
    tee.MergeHypothesis(pb.HypothesisDelta(nodes=map(node, "abc"), edges=[edge("a", "b"), edge("b", "c")]))
    tee.CreateIncident(pb.CreateIncidentRequest(incident_id="i"))
    return "i"


def ids(graph: pb.CausalGraph) -> tuple[set[str], set[tuple[str, str]]]:
    return {each.id for each in graph.nodes}, {(each.source, each.target) for each in graph.edges}


# --- the eight calls --------------------------------------------------------------------------------------------------


@pytest.mark.req("TEE-WIRE-01")
def test_merge_hypothesis_tells_created_merged_and_conflicts(tee: Any) -> None:
    first = tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node("a"), node("b")], edges=[edge("a", "b")]))
    assert (list(first.created_ids), list(first.merged_ids)) == (["a", "b", "edge:a|b|DEPENDS_ON"], [])
    second = tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node("a", label="x", type=4)], edges=[edge("a", "b")]))
    assert (list(second.created_ids), list(second.merged_ids)) == ([], ["a", "edge:a|b|DEPENDS_ON"])
    told = {(each.id, each.field, each.existing_value, each.proposed_value) for each in second.conflicts}
    assert told == {("a", "type", "SERVICE", "MECHANISM"), ("a", "label", "a", "x")}
    assert second.causal_graph_version == first.causal_graph_version


@pytest.mark.req("TEE-WIRE-01")
def test_the_main_graph_comes_back_with_a_timestamp_for_provenance_that_had_none(tee: Any) -> None:
    dated = pb.Provenance(source="old", trigger="", timestamp={"seconds": 5, "nanos": 7})
    tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node("a", hypothetical=False, provenance=[SAID, dated])]))
    (kept,) = tee.GetMainGraph(Empty()).nodes
    assert (kept.id, kept.type, kept.label, kept.hypothetical) == ("a", pb.NODE_TYPE_SERVICE, "a", False)
    assert [(each.source, each.trigger) for each in kept.provenance] == [("agent", "deploy"), ("old", "")]
    assert kept.provenance[0].timestamp.seconds > 1_700_000_000
    assert (kept.provenance[1].timestamp.seconds, kept.provenance[1].timestamp.nanos) == (5, 7)


@pytest.mark.req("TEE-WIRE-01", "TEE-ANCHOR-01")
def test_create_incident_is_idempotent_and_keeps_its_anchor(tee: Any, incident: str) -> None:
    request = pb.CreateIncidentRequest(incident_id=incident)
    anchor = tee.GetIncidentContext(pb.IncidentContextRequest(incident_id=incident)).causal_graph_version
    tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node("new")]))
    again = tee.CreateIncident(request)
    assert (again.incident_id, again.created, again.causal_graph_version) == ("i", False, anchor)
    other = tee.CreateIncident(pb.CreateIncidentRequest(incident_id="j"))
    assert other.created
    assert other.causal_graph_version > anchor


@pytest.mark.req("TEE-WIRE-01", "TEE-TOMB-01")
def test_tombstones_are_classified_and_listed(tee: Any, incident: str) -> None:
    first = tee.MergeNodeTombstones(
        pb.NodeTombstoneRequest(incident_id=incident, node_ids=["a", "ghost", "a"], provenance=SAID)
    )
    assert (list(first.applied_ids), list(first.already_tombstoned_ids), list(first.unmatched_ids)) == (
        ["a"],
        [],
        ["ghost"],
    )
    again = tee.MergeNodeTombstones(
        pb.NodeTombstoneRequest(incident_id=incident, node_ids=["a", "ghost"], provenance=SAID)
    )
    assert (list(again.already_tombstoned_ids), list(again.unmatched_ids)) == (["a"], ["ghost"])
    entries = [
        pb.EdgeTombstoneEntry(source="b", target="c", type=pb.EDGE_TYPE_DEPENDS_ON),
        pb.EdgeTombstoneEntry(source="c", target="b", type=pb.EDGE_TYPE_DEPENDS_ON),
    ]
    cut = tee.MergeEdgeTombstones(pb.EdgeTombstoneRequest(incident_id=incident, entries=entries, provenance=SAID))
    assert (list(cut.applied_ids), list(cut.unmatched_ids)) == (["edge:b|c|DEPENDS_ON"], ["edge:c|b|DEPENDS_ON"])
    listed = tee.GetTombstones(pb.TombstoneRequest(incident_id=incident))
    assert set(listed.node_ids) == {"a", "ghost"}
    assert {(each.source, each.target, each.type) for each in listed.edge_entries} == {("b", "c", 1), ("c", "b", 1)}


@pytest.mark.req("TEE-WIRE-01", "TEE-ANCHOR-01")
def test_a_live_view_is_the_graph_as_of_the_anchor_less_the_tombstones(tee: Any, incident: str) -> None:
    tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node("new")], edges=[edge("a", "new")]))
    tee.MergeNodeTombstones(pb.NodeTombstoneRequest(incident_id=incident, node_ids=["c"], provenance=SAID))
    view = tee.GetLiveView(pb.LiveViewRequest(incident_id=incident))
    assert ids(view) == ({"a", "b"}, {("a", "b")})
    context = tee.GetIncidentContext(pb.IncidentContextRequest(incident_id=incident))
    assert view.causal_graph_version == context.causal_graph_version < tee.GetMainGraph(Empty()).causal_graph_version
    without = tee.GetLiveView(pb.LiveViewRequest(incident_id=incident, nodes_only=True))
    assert ids(without) == ({"a", "b"}, set())


@pytest.mark.req("TEE-ANCHOR-02")
def test_an_incident_context_is_enough_to_recover_a_session(tee: Any, incident: str) -> None:
    tee.MergeNodeTombstones(pb.NodeTombstoneRequest(incident_id=incident, node_ids=["c"], provenance=SAID))
    context = tee.GetIncidentContext(pb.IncidentContextRequest(incident_id=incident))
    assert context.incident_id == incident
    assert context.created_at.seconds > 1_700_000_000
    assert list(context.tombstones.node_ids) == ["c"]
    assert context.HasField("causal_graph_version")
    short = tee.GetIncidentContext(pb.IncidentContextRequest(incident_id=incident, without_tombstones=True))
    assert not short.HasField("tombstones")
    assert short.causal_graph_version == context.causal_graph_version


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.req("TEE-WIRE-02")
def test_a_malformed_request_is_an_invalid_argument_and_changes_nothing(tee: Any, incident: str) -> None:
    version = tee.GetMainGraph(Empty()).causal_graph_version
    for call, request, words in BAD_REQUESTS:
        with expect_refused(INVALID, words):
            getattr(tee, call)(request)
    # All of a delta or nothing.
    with expect_refused(INVALID):
        tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node("good"), node("")]))
    assert tee.GetMainGraph(Empty()).causal_graph_version == version
    assert not tee.GetTombstones(pb.TombstoneRequest(incident_id=incident)).node_ids


@pytest.mark.req("TEE-WIRE-02")
@pytest.mark.parametrize(
    "request_bytes", [b"\xff\xff", b"\x0a\x05ab", b"\x0a\x02\xc3\x28"], ids=["tag", "cut", "utf-8"]
)
def test_bytes_that_are_no_message_are_an_invalid_argument(request_bytes: bytes) -> None:
    with listening(MemoryGraphStore()) as port, open_channel(f"127.0.0.1:{port}") as channel:
        raw: Any = channel
        with expect_refused(INVALID, "the request is not a `tee.LiveViewRequest` message"):
            raw.unary_unary("/tee.Tee/GetLiveView")(request_bytes)
        with expect_refused(INVALID, "the request is not a `tee.LiveViewRequest` message"):
            list(raw.unary_stream("/tee.Tee/StreamLiveView")(request_bytes))


@pytest.mark.req("TEE-WIRE-02")
def test_an_unknown_incident_is_not_found(tee: Any) -> None:
    for call, request in [
        ("GetIncidentContext", pb.IncidentContextRequest(incident_id="x")),
        ("GetLiveView", pb.LiveViewRequest(incident_id="x")),
        ("GetTombstones", pb.TombstoneRequest(incident_id="x")),
        ("MergeNodeTombstones", pb.NodeTombstoneRequest(incident_id="x", node_ids=["a"], provenance=SAID)),
    ]:
        with expect_refused(grpc.StatusCode.NOT_FOUND, "no incident `x`"):
            getattr(tee, call)(request)
    with expect_refused(INVALID, "`id_length` allows at most 1024 characters, got 1000000 in `zzzz"):
        tee.GetLiveView(pb.LiveViewRequest(incident_id="z" * 1_000_000))
    with expect_refused(grpc.StatusCode.NOT_FOUND):
        list(tee.StreamLiveView(pb.LiveViewRequest(incident_id="x")))
    with expect_refused(grpc.StatusCode.NOT_FOUND):
        list(tee.StreamTombstones(pb.TombstoneRequest(incident_id="x")))


def test_every_error_of_the_graph_plane_has_one_status() -> None:
    kinds = {each for each in TeeError.__subclasses__() if each.__module__ == errors.__name__}
    assert STATUS_OF.keys() == kinds


class Gone(MemoryGraphStore):
    """A store whose disk is gone, and one that is broken."""

    def version(self) -> int:
        return 0

    def main_graph(self) -> Any:
        raise GraphUnavailable("cannot read `tee.db`: disk I/O error")

    def live_view(self, incident_id: str) -> Any:
        raise ZeroDivisionError("a secret")


@pytest.mark.req("TEE-WIRE-02")
def test_a_store_that_is_gone_is_unavailable_and_a_bug_is_internal_without_its_details() -> None:
    with calling(Gone()) as tee:
        with expect_refused(grpc.StatusCode.UNAVAILABLE, "disk I/O error"):
            tee.GetMainGraph(Empty())
        with expect_refused(grpc.StatusCode.INTERNAL, "the server failed; look into the log of the server"):
            tee.GetLiveView(pb.LiveViewRequest(incident_id="i"))


# --- sizes, time and who may call -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("TEE-SERVE-02")
def test_a_graph_larger_than_a_message_is_refused_whole_and_comes_in_parts(store: GraphStore) -> None:
    label = "x" * 1_500
    names = [f"n{number}" for number in range(3_000)]
    with calling(store, ServerOptions(max_message_bytes=1 << 20)) as tee:
        for start in range(0, 3_000, 500):
            batch = names[start : start + 500]
            tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node(name, label=label) for name in batch]))
        tee.CreateIncident(pb.CreateIncidentRequest(incident_id="i"))
        with expect_refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "use StreamMainGraph"):
            tee.GetMainGraph(Empty())
        with expect_refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "use StreamLiveView"):
            tee.GetLiveView(pb.LiveViewRequest(incident_id="i"))
        for parts in (tee.StreamMainGraph(Empty()), tee.StreamLiveView(pb.LiveViewRequest(incident_id="i"))):
            received = list(parts)
            assert len(received) > 2
            assert all(part.ByteSize() <= 1 << 21 for part in received)
            assert sorted(each.id for part in received for each in part.nodes) == sorted(names)
        with expect_refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
            tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node("a", label="x" * (1 << 20))]))


@pytest.mark.req("TEE-SERVE-02")
def test_more_tombstones_than_a_message_holds_come_in_parts(tee: Any, incident: str) -> None:
    many = [f"ghost-{number}-{'é' * 200}" for number in range(6_000)]
    ends = [f"end-{number}-{'x' * 500}" for number in range(1_000)]
    entries = [pb.EdgeTombstoneEntry(source="a", target=end, type=pb.EDGE_TYPE_DEPENDS_ON) for end in ends]
    tee.MergeNodeTombstones(pb.NodeTombstoneRequest(incident_id=incident, node_ids=many, provenance=SAID))
    tee.MergeEdgeTombstones(pb.EdgeTombstoneRequest(incident_id=incident, entries=entries, provenance=SAID))
    request = pb.TombstoneRequest(incident_id=incident)
    parts = list(tee.StreamTombstones(request))
    assert len(parts) == 4
    assert all(part.ByteSize() <= 1 << 20 for part in parts)
    gathered = collect(tee.StreamTombstones, tee.GetTombstones, request)
    assert list(gathered.node_ids) == many
    assert [each.target for each in gathered.edge_entries] == ends


@pytest.mark.slow
@pytest.mark.req("TEE-SERVE-02")
def test_a_small_delta_never_makes_a_huge_answer(store: GraphStore) -> None:
    with calling(store, ServerOptions(max_message_bytes=1 << 20)) as tee:
        tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node("a", label="x" * 4_000)]))
        few = tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node("a", label="y" * 300), node("a", label="z" * 256)]))
        told = [(each.existing_value, each.proposed_value) for each in few.conflicts]
        assert told == [("x" * 256 + "…", "y" * 256 + "…"), ("x" * 256 + "…", "z" * 256)]
        proposals = [node("a", label=str(number)) for number in range(10_000)]
        many = tee.MergeHypothesis(pb.HypothesisDelta(nodes=[*proposals, node("new")]))
        assert many.ByteSize() <= 1 << 20
        assert 3_000 < len(many.conflicts) < 10_000
        assert (list(many.created_ids), list(many.merged_ids)) == (["new"], ["a"])


class Stuck(MemoryGraphStore):
    """A store that does not answer until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.release = threading.Semaphore(0), threading.Event()

    def main_graph(self) -> Any:
        self.entered.release()
        self.release.wait(TIMEOUT_SECONDS)
        return super().main_graph()


@pytest.mark.req("TEE-SERVE-02")
def test_a_call_ends_at_its_deadline_and_at_the_servers_where_it_has_none() -> None:
    store = Stuck()
    with calling(store, ServerOptions(max_seconds=0.2)) as tee:
        with expect_refused(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer within 0.2 seconds"):
            tee.GetMainGraph(Empty())
        with expect_refused(grpc.StatusCode.DEADLINE_EXCEEDED):
            tee.GetMainGraph(Empty(), timeout=0.05)
        store.release.set()


@pytest.mark.req("TEE-SERVE-04")
def test_of_too_many_calls_at_a_time_the_last_is_refused_and_may_be_repeated() -> None:
    store = Stuck()
    with calling(store, ServerOptions(max_calls=2)) as tee:
        waiting = [tee.GetMainGraph.future(Empty()) for _ in range(2)]
        assert store.entered.acquire(timeout=TIMEOUT_SECONDS)
        assert store.entered.acquire(timeout=TIMEOUT_SECONDS)
        with expect_refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
            tee.CreateIncident(pb.CreateIncidentRequest(incident_id="i"))
        store.release.set()
        assert [each.result(TIMEOUT_SECONDS).causal_graph_version for each in waiting] == [0, 0]
        assert tee.CreateIncident(pb.CreateIncidentRequest(incident_id="i")).created


class Dripping(MemoryGraphStore):
    """A graph of many parts, which notices when its view is freed."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten = threading.Event()

    def main_graph(self) -> GraphView:
        pieces = Pieces([pb.CausalGraph(nodes=[node("a", label="x" * 1_000_000)]).SerializeToString()] * 64)
        weakref.finalize(pieces, self.forgotten.set)
        return GraphView(1, pieces, [])


class Pieces(list[bytes]):
    """A list that can be watched."""


@pytest.mark.slow
@pytest.mark.req("TEE-SERVE-02")
def test_a_stream_has_one_deadline_for_all_its_parts_and_for_a_reader_who_does_not_read() -> None:
    store = Dripping()
    with calling(store, ServerOptions(max_seconds=0.5)) as tee:
        parts = tee.StreamMainGraph(Empty())
        assert next(parts).causal_graph_version == 1
        assert store.forgotten.wait(TIMEOUT_SECONDS)
        with expect_refused(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer within 0.5 seconds"):
            assert len(list(parts)) < 63


@pytest.mark.req("TEE-SERVE-03")
def test_with_a_token_only_those_who_know_it_get_in_and_health_needs_none(store: GraphStore) -> None:
    with listening(store, ServerOptions(token="secret")) as port:
        endpoint = f"127.0.0.1:{port}"
        for token in (None, "wrong", ""):
            with open_channel(endpoint, token=token) as channel:
                with expect_refused(grpc.StatusCode.UNAUTHENTICATED):
                    stub_on(channel).GetMainGraph(Empty())
                with expect_refused(grpc.StatusCode.UNAUTHENTICATED):
                    list(stub_on(channel).StreamMainGraph(Empty()))
                assert health_of(channel) == health_pb2.HealthCheckResponse.SERVING
        with open_channel(endpoint, token="secret") as channel:
            assert stub_on(channel).GetMainGraph(Empty()).causal_graph_version == 0
            assert len(list(stub_on(channel).StreamMainGraph(Empty()))) == 1


def health_of(channel: grpc.Channel) -> int:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    assert stub.Check(health_pb2.HealthCheckRequest(service="tee.Tee")).status == 1
    return int(stub.Check(health_pb2.HealthCheckRequest()).status)


@pytest.mark.req("TEE-SERVE-01")
def test_reflection_names_the_service_and_its_calls(store: GraphStore) -> None:
    with listening(store) as port, open_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = stub.ServerReflectionInfo
        (listed,) = ask(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        assert "tee.Tee" in {each.name for each in listed.list_services_response.service}
        (found,) = ask(iter([reflection_pb2.ServerReflectionRequest(file_containing_symbol="tee.Tee")]))
        file = FileDescriptorProto.FromString(found.file_descriptor_response.file_descriptor_proto[0])
        assert file.package == "tee"
        assert len(file.service[0].method) == 19


@pytest.mark.req("TEE-SERVE-01")
def test_a_port_that_is_taken_is_an_error() -> None:

    with (
        listening(MemoryGraphStore()) as port,
        pytest.raises(GraphUnavailable, match=f"cannot listen on `127.0.0.1:{port}`"),
    ):
        asyncio.run(TeeServer(MemoryGraphStore(), ServerOptions(port=port)).start())


@pytest.mark.req("TEE-SERVE-03")
def test_with_tls_only_those_who_speak_it_get_in_and_with_authorities_only_their_clients(store: GraphStore) -> None:
    certificate = CERTIFICATE.read_bytes()
    with listening(store, ServerOptions(tls=tls(), token="secret")) as port:
        with open_channel(f"localhost:{port}", authorities=certificate, token="secret") as channel:
            assert stub_on(channel).GetMainGraph(Empty()).causal_graph_version == 0
        with open_channel(f"localhost:{port}", token="secret") as channel, expect_refused(grpc.StatusCode.UNAVAILABLE):
            stub_on(channel).GetMainGraph(Empty())
    with listening(store, ServerOptions(tls=tls(client_authorities=certificate))) as port:
        with (
            open_channel(f"localhost:{port}", authorities=certificate) as channel,
            expect_refused(grpc.StatusCode.UNAVAILABLE),
        ):
            stub_on(channel).GetMainGraph(Empty())
        identity = (certificate, KEY.read_bytes())
        with open_channel(f"localhost:{port}", authorities=certificate, identity=identity) as channel:
            assert stub_on(channel).GetMainGraph(Empty()).causal_graph_version == 0


def wait_until_closed(port: int) -> None:
    """Wait until connections are refused."""
    for _ in range(100_000):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS).close()
        except OSError:
            return
    raise AssertionError("the port still accepts connections")


@pytest.mark.req("TEE-SERVE-01")
def test_a_server_that_stops_finishes_what_is_under_way_and_takes_nothing_new() -> None:
    store = Stuck()

    async def scenario() -> None:
        server = TeeServer(store, ServerOptions(port=0))
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            call: Any = channel.unary_unary("/tee.Tee/GetMainGraph", Empty.SerializeToString, pb.CausalGraph.FromString)
            under_way = asyncio.ensure_future(call(Empty(), timeout=TIMEOUT_SECONDS))
            await asyncio.to_thread(store.entered.acquire, timeout=TIMEOUT_SECONDS)
            stopping = asyncio.ensure_future(server.stop(TIMEOUT_SECONDS))
            await asyncio.to_thread(wait_until_closed, server.port)
            assert not stopping.done()
            store.release.set()
            answer = await under_way
            assert answer.causal_graph_version == 0
            await stopping

    asyncio.run(scenario())
