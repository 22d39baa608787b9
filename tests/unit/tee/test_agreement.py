"""Log and Tee agree, or an operator is told: drills of a restored, a wiped and a wrong Tee, and foreign tombstones."""

from __future__ import annotations

import logging
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cmbs.belief import agreement
from cmbs.belief.kernel.agreement import ForeignTombstones, StoreState
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import InvalidRequest, StoreDisagrees
from cmbs.messages import ForeignRule, OntologyBundle, SessionPolicy
from cmbs.spi import EliminationProvenance, EliminationResult
from cmbs.stores.sqlite import SQLiteStore
from cmbs.stores.tee import TeeStore
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.service import TeeService
from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.http_server import run_cmbs
from tests.support.in_process import client_of
from tests.support.plain_tee import PlainTee
from tests.support.plain_tee import serving as serving_plainly
from tests.support.spaces import eventually
from tests.support.tee import calling, listening
from tests.support.tee_process import TeeProcess, grow, tee_serving

pytestmark = pytest.mark.slow

BLANK = OntologyBundle("space", "1", "tee://main", "")
OTHER = pb.Provenance(source="chaos-agent", trigger="probe 7")


class Drill(NamedTuple):
    """A Tee that may be stopped, changed and started again, and a log beside it."""

    tee: TeeProcess
    directory: Path
    stack: ExitStack

    def server(self) -> BeliefServer:
        store = TeeStore(self.tee.endpoint, timeout_seconds=5)
        log = SQLiteStore(self.directory / "cmbs.db")
        return self.stack.enter_context(closing(BeliefServer(store=store, audit_log=log)))

    def stop(self) -> None:
        """Without a write-ahead log left beside the file."""
        assert self.tee.stop(signal.SIGTERM) == 0

    def cmbs(self, *arguments: str) -> Any:
        return run_cmbs(*arguments, directory=self.directory, variables={"CMBS_STORE": "sqlite:///cmbs.db"})

    def fsck(self) -> Any:
        return self.cmbs("fsck", "sqlite:///cmbs.db", "--tee", self.tee.endpoint)

    def repair(self, *arguments: str) -> Any:
        return self.cmbs("tee", "repair", "--tee", self.tee.endpoint, *arguments)


@pytest.fixture
def drill(tmp_path: Path) -> Iterator[Drill]:
    with tee_serving(tmp_path, "sqlite:///tee.db") as tee, ExitStack() as stack:
        tee.grow("abcd")
        yield Drill(tee, tmp_path, stack)


@pytest.fixture
def graph() -> MemoryGraphStore:
    return MemoryGraphStore()


class Place(NamedTuple):
    """A Tee in this process, and servers over one log."""

    port: int
    open: Callable[..., BeliefServer]


@pytest.fixture
def place(graph: MemoryGraphStore, tmp_path: Path) -> Iterator[Place]:
    with listening(graph) as port, ExitStack() as stack:
        grow(port, "abcd")

        def open_server(**options: Any) -> BeliefServer:
            store = options.pop("store", None) or TeeStore(f"127.0.0.1:{port}", timeout_seconds=5)
            log = SQLiteStore(tmp_path / "cmbs.db")
            return stack.enter_context(closing(BeliefServer(store=store, audit_log=log, **options)))

        yield Place(port, open_server)


def rule_out(graph: MemoryGraphStore, session_id: str, *node_ids: str) -> None:
    """As another client of Tee does."""
    request = pb.NodeTombstoneRequest(incident_id=session_id, node_ids=node_ids, provenance=OTHER)
    TeeService(graph).merge_node_tombstones(request)


# --- drills -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("TEE-AGREE-01")
def test_a_tee_that_is_restored_from_an_older_backup_is_noticed_and_repaired_by_one_command(
    drill: Drill, caplog: pytest.LogCaptureFixture
) -> None:
    server = drill.server()
    session_id = server.declare_session(BLANK).session_id
    drill.stop()
    shutil.copy(drill.directory / "tee.db", drill.directory / "backup.db")
    drill.tee.start()
    server.eliminate(session_id, "s", "1", ["a"])
    server.eliminate(session_id, "s", "2", ["b"])
    later = server.declare_session(BLANK).session_id
    drill.stop()
    shutil.copy(drill.directory / "backup.db", drill.directory / "tee.db")
    drill.tee.start()

    with caplog.at_level(logging.ERROR, "cmbs.agreement"), pytest.raises(StoreDisagrees, match="lacks tombstones: `a`"):
        server.eliminate(session_id, "s", "3", ["c"])
    assert f"session `{session_id}` takes no writes" in caplog.text
    assert server.query_belief(session_id).survivors == ["c", "d"]
    found = drill.fsck()
    assert found.returncode == 1
    assert f"bad  {session_id}: the elimination store lacks tombstones: `a`, `b`" in found.stderr
    assert f"bad  {later}: the elimination store does not know the session" in found.stderr
    would = drill.repair("--dry-run")
    assert f"{later}: would create the incident, 0 tombstones" in would.stdout
    assert drill.fsck().stderr == found.stderr

    done = drill.repair()
    assert done.returncode == 0, done.stderr
    assert f"{session_id}: 2 tombstones of the log" in done.stdout
    assert f"{later}: created the incident, 0 tombstones of the log" in done.stdout
    assert drill.fsck().returncode == 0
    for each in (server, drill.server()):
        assert each.check_store(session_id) == (StoreState.AGREES, "", ())
    assert server.find_disagreeing() == []
    assert server.eliminate(session_id, "s", "3", ["c"]).snapshot.survivors == ["d"]
    assert server.eliminate(later, "s", "1", ["a"]).snapshot.survivors == ["b", "c", "d"]


@pytest.mark.req("TEE-AGREE-01")
def test_a_tee_that_was_wiped_is_noticed_by_its_identity_and_repaired_by_one_command(drill: Drill) -> None:
    server = drill.server()
    session_id = server.declare_session(BLANK).session_id
    server.eliminate(session_id, "s", "1", ["a"])
    (drill.directory / "graph.json").write_text(drill.tee.run("show", "--json").stdout)
    drill.stop()
    (drill.directory / "tee.db").unlink()
    drill.tee.start()

    fresh = drill.server()
    with pytest.raises(StoreDisagrees, match="sessions are in the elimination store"):
        fresh.declare_session(BLANK, ["a"])
    for each in (server, fresh):
        with pytest.raises(StoreDisagrees, match=r"it was declared in the elimination store `.*`, and this is `.*`"):
            each.eliminate(session_id, "s", "2", ["b"])
        assert each.find_disagreeing() == [session_id]
    refused = drill.repair("--with-graph", "graph.json")
    assert (refused.returncode, "use `--accept-identity`" in refused.stderr) == (2, True)
    lacking = drill.repair("--accept-identity", "--dry-run")
    assert (lacking.returncode, "the graph lacks `a`, `b`, `c`, `d`" in lacking.stderr) == (1, True)
    would = drill.repair("--accept-identity", "--with-graph", "graph.json", "--dry-run")
    assert (would.returncode, "would stand in for" in would.stdout) == (0, True)

    done = drill.repair("--with-graph", "graph.json", "--accept-identity")
    assert done.returncode == 0, done.stderr
    assert f"{session_id}: created the incident, 1 tombstone of the log" in done.stdout
    assert drill.fsck().returncode == 0
    for survivors, each in (("cd", server), ("d", fresh)):
        told = each.eliminate(session_id, "s", survivors, ["b"] if each is server else ["c"])
        assert told.snapshot.survivors == list(survivors)
        assert each.declare_session(BLANK).snapshot.survivors == list("abcd")


@pytest.mark.req("TEE-AGREE-01")
def test_without_a_copy_of_the_graph_placeholders_take_the_place_of_hypotheses(drill: Drill) -> None:
    server = drill.server()
    session_id = server.declare_session(BLANK, ["a", "b"]).session_id
    server.eliminate(session_id, "s", "1", ["a"])
    drill.stop()
    (drill.directory / "tee.db").unlink()
    drill.tee.start()
    would = drill.repair("--accept-identity", "--placeholders", "--dry-run")
    assert (would.returncode, "2 placeholders would be merged" in would.stdout) == (0, True)
    assert grow(drill.tee.port) == 0
    done = drill.repair("--accept-identity", "--placeholders")
    assert (done.returncode, "2 placeholders merged" in done.stdout) == (0, True)
    assert server.eliminate(session_id, "s", "2", ["b"]).snapshot.survivors == []


@pytest.mark.req("TEE-AGREE-01")
def test_a_wrong_tee_behind_the_address_is_noticed_and_the_right_one_is_taken_back(drill: Drill) -> None:
    server = drill.server()
    session_id = server.declare_session(BLANK).session_id
    drill.stop()
    shutil.move(drill.directory / "tee.db", drill.directory / "right.db")
    drill.tee.start()
    drill.tee.grow("abcd")
    with pytest.raises(StoreDisagrees, match="see `cmbs tee repair`"):
        server.eliminate(session_id, "s", "1", ["a"])
    with pytest.raises(StoreDisagrees):
        server.declare_session(BLANK)
    drill.stop()
    shutil.move(drill.directory / "right.db", drill.directory / "tee.db")
    drill.tee.start()
    assert server.eliminate(session_id, "s", "1", ["a"]).snapshot.survivors == list("bcd")
    assert drill.fsck().returncode == 0


# --- what is refused, and what is told --------------------------------------------------------------------------------


@pytest.mark.req("TEE-AGREE-02")
def test_a_session_that_tee_disagrees_with_is_named_refused_for_writes_and_read_with_a_note(
    place: Place, graph: MemoryGraphStore
) -> None:
    server = place.open()
    session_id = server.declare_session(BLANK).session_id
    server.eliminate(session_id, "s", "1", ["a"])
    with client_of(create_app(server)) as client:
        view = client.get(f"/v1/sessions/{session_id}").json()
        assert view["store"] == {"state": "agrees", "n_foreign": 0, "foreign": []}
        lost = graph._incidents[session_id].nodes.pop("a")
        report = server.check_store(session_id)
        assert report is not None
        assert (report.state, report.reason) == (StoreState.DISAGREES, "the elimination store lacks tombstones: `a`")
        view = client.get(f"/v1/sessions/{session_id}").json()
        assert (view["survivors"], view["store"]["state"]) == (list("bcd"), "disagrees")
        assert view["store"]["reason"] == report.reason
        told = client.get("/readyz")
        details = told.json()["error"]["details"]
        assert (told.status_code, details["disagreeing"]) == (503, [session_id])
        assert "cmbs tee repair" in details["next"]
        gate = {"obligation_id": "g", "min_total_eliminations": 1}
        for path, body in (("obligations", gate), ("eliminate", _seen("2", "b"))):
            refused = client.post(f"/v1/sessions/{session_id}/{path}", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "STORE_UNAVAILABLE")
        assert server.log.open_intents(10) == []
        graph._incidents[session_id].nodes["a"] = lost
        assert client.post(f"/v1/sessions/{session_id}/obligations", json=gate).status_code == 200
        assert client.get("/readyz").status_code == 200


def _seen(observation_id: str, *ids: str) -> dict[str, Any]:
    return {"source_id": "s", "observation_id": observation_id, "eliminated": list(ids)}


class Forgetful(TeeStore):
    """A Tee that answers of some ids neither that they were applied nor that they were there."""

    def eliminate(self, session_id: str, eliminated: Any, provenance: EliminationProvenance) -> EliminationResult:
        super().eliminate(session_id, eliminated - {"b"}, provenance)
        return EliminationResult(frozenset(eliminated - {"b"}), frozenset())


@pytest.mark.req("TEE-AGREE-03")
def test_an_id_that_tee_neither_applied_nor_had_is_never_acknowledged(place: Place) -> None:
    server = place.open(store=Forgetful(f"127.0.0.1:{place.port}", timeout_seconds=5))
    session_id = server.declare_session(BLANK).session_id
    with pytest.raises(StoreDisagrees, match="did not take tombstones for `b`"):
        server.eliminate(session_id, "s", "1", ["a", "b"])
    assert server.query_belief(session_id).survivors == list("abcd")
    assert server.find_disagreeing() == [session_id]
    # What was sent is in doubt, and goes forward with a Tee that takes all of it.
    healed = place.open()
    assert healed.query_belief(session_id).survivors == ["c", "d"]
    report = healed.check_store(session_id)
    assert report == (StoreState.AGREES, "", ())


@pytest.mark.req("TEE-AGREE-08")
def test_a_graph_that_is_put_back_behind_an_open_connection_is_noticed_with_the_next_answer(
    place: Place, graph: MemoryGraphStore
) -> None:
    server = place.open()
    session_id, other = (server.declare_session(BLANK).session_id for _ in range(2))
    server.eliminate(session_id, "s", "1", ["a"])
    server.eliminate(session_id, "s", "2", ["b"])
    # As of a backup: the connection to Tee is never lost.
    lost = {each: graph._incidents[session_id].nodes.pop(each) for each in "ab"}
    assert server.find_disagreeing() == []
    said = "the elimination store lacks tombstones: it has 1, and the log has 3"
    with pytest.raises(StoreDisagrees, match=said):
        server.eliminate(session_id, "s", "3", ["c"])
    assert server.find_disagreeing() == [session_id]
    # What lost something of one session may have lost something of any.
    report = server.store_report(other)
    assert report is not None
    assert report.state is StoreState.UNCHECKED
    graph._incidents[session_id].nodes.update(lost)
    # What was in doubt has gone forward meanwhile, and is the same when it is sent again.
    assert server.eliminate(session_id, "s", "3", ["c"]).snapshot.survivors == ["d"]
    assert server.find_disagreeing() == []


@pytest.mark.req("TEE-AGREE-08")
def test_tombstones_of_other_callers_do_not_look_like_a_loss(place: Place, graph: MemoryGraphStore) -> None:
    servers = place.open(), place.open()
    session_id = servers[0].declare_session(BLANK).session_id
    rule_out(graph, session_id, "d", "elsewhere")
    for number, node_id in enumerate("abc"):
        servers[number % 2].eliminate(session_id, "s", str(number), [node_id])
    assert [server.find_disagreeing() for server in servers] == [[], []]


@pytest.mark.req("TEE-AGREE-09")
def test_readiness_asks_tee(graph: MemoryGraphStore, tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(listening(graph))
        grow(port, "abcd")
        store = TeeStore(f"127.0.0.1:{port}", timeout_seconds=1)
        log = SQLiteStore(tmp_path / "cmbs.db")
        server = stack.enter_context(closing(BeliefServer(store=store, audit_log=log)))
        client = stack.enter_context(client_of(create_app(server)))
        assert client.get("/readyz").status_code == 200
        server.declare_session(BLANK)
        home = graph._identity
        graph._identity = home._replace(tee_id="another")
        told = client.get("/readyz")
        assert (told.status_code, told.json()["error"]["details"]["expected"]) == (503, home.tee_id)
        graph._identity = home._replace(tee_id="another", stands_in_for=(home.tee_id,))
        assert client.get("/readyz").status_code == 200


@pytest.mark.req("TEE-AGREE-09")
def test_a_server_whose_tee_is_away_is_not_ready(drill: Drill) -> None:
    server = drill.server()
    with client_of(create_app(server)) as client:
        assert client.get("/readyz").status_code == 200
        drill.stop()
        told = client.get("/readyz")
        assert (told.status_code, told.json()["error"]["code"]) == (503, "STORE_UNAVAILABLE")
        assert f"the Tee at `{drill.tee.endpoint}`" in told.json()["error"]["message"]
        drill.tee.start()
        assert eventually(lambda: client.get("/readyz").status_code == 200)


@pytest.mark.req("TEE-AGREE-02")
def test_reading_a_session_for_the_first_time_has_it_checked_in_the_background(
    place: Place, graph: MemoryGraphStore, caplog: pytest.LogCaptureFixture
) -> None:
    session_id = place.open().declare_session(BLANK).session_id
    del graph._incidents[session_id]
    server = place.open()
    agreement = server._agreement
    assert agreement is not None
    server.query_belief(session_id)
    assert server.store_report(session_id) in (
        (StoreState.UNCHECKED, "", ()),
        (StoreState.DISAGREES, "the elimination store does not know the session", ()),
    )
    assert agreement._check_quietly(session_id) == 4
    assert server.find_disagreeing() == [session_id]
    assert agreement._check_quietly("missing") == 0
    assert "session `missing` was not held against its elimination store" in caplog.text


@pytest.mark.req("TEE-AGREE-01")
def test_a_session_that_is_only_written_is_taken_back_in_the_background_once_tee_agrees_again(
    place: Place, graph: MemoryGraphStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A balancer sends a server that is not ready no writes, so none of them can be what makes it ready."""
    monkeypatch.setattr(agreement, "_SOON_SECONDS", 0.0)
    monkeypatch.setattr(agreement, "_PAUSE_SECONDS", 0.01)
    server = place.open()
    session_id = server.declare_session(BLANK).session_id
    incident = graph._incidents.pop(session_id)
    known = server._agreement
    assert known is not None
    # As after a lost connection: what is next sent is checked first.
    known._reports.clear()
    with pytest.raises(StoreDisagrees):
        server.eliminate(session_id, "s", "1", ["a"])
    assert server.find_disagreeing() == [session_id]
    graph._incidents[session_id] = incident
    assert eventually(lambda: server.find_disagreeing() == [])


# --- foreign tombstones -----------------------------------------------------------------------------------------------


@pytest.mark.req("TEE-FOREIGN-01")
def test_foreign_tombstones_are_shown_and_change_nothing_by_default(
    place: Place, graph: MemoryGraphStore, tmp_path: Path
) -> None:
    server = place.open()
    session_id = server.declare_session(BLANK).session_id
    server.eliminate(session_id, "s", "1", ["a"])
    rule_out(graph, session_id, "a", "b", "elsewhere")
    foreign = (ForeignTombstones("chaos-agent", "probe 7", ("b",)),)
    report = server.check_store(session_id)
    assert report == (StoreState.AGREES, "", foreign)
    assert server.query_belief(session_id).survivors == list("bcd")
    with client_of(create_app(server)) as client:
        told = client.get(f"/v1/sessions/{session_id}").json()["store"]
        assert told["foreign"] == [{"source_id": "chaos-agent", "trigger": "probe 7", "hypothesis_ids": ["b"]}]
        assert told["n_foreign"] == 1
    arguments = ("--tee", f"127.0.0.1:{place.port}")
    for command in (("fsck", "sqlite:///cmbs.db", *arguments), ("tee", "repair", *arguments)):
        found = run_cmbs(*command, directory=tmp_path, variables={"CMBS_STORE": "sqlite:///cmbs.db"})
        assert (found.returncode, found.stderr) == (0, "")
        assert f"{session_id}: 1 foreign tombstone by chaos-agent (probe 7)" in found.stdout


@pytest.mark.req("TEE-FOREIGN-01")
def test_foreign_tombstones_do_nothing_to_the_terminal(place: Place, graph: MemoryGraphStore, tmp_path: Path) -> None:
    session_id = place.open().declare_session(BLANK).session_id
    said = pb.Provenance(source="\x1b[2K\x1b[1A", trigger="a\nb")
    request = pb.NodeTombstoneRequest(incident_id=session_id, node_ids=["b"], provenance=said)
    TeeService(graph).merge_node_tombstones(request)
    arguments = ("--tee", f"127.0.0.1:{place.port}")
    for command in (("fsck", "sqlite:///cmbs.db", *arguments), ("tee", "repair", *arguments)):
        found = run_cmbs(*command, directory=tmp_path, variables={"CMBS_STORE": "sqlite:///cmbs.db"})
        assert found.stdout.splitlines()[0] == f"{session_id}: 1 foreign tombstone by \\x1b[2K\\x1b[1A (a\\nb)"


@pytest.mark.req("TEE-FOREIGN-02")
def test_where_the_policy_says_so_foreign_tombstones_become_events_of_the_log(
    place: Place, graph: MemoryGraphStore
) -> None:
    first, second = place.open(), place.open()
    policy = SessionPolicy(foreign_tombstones=ForeignRule.ELIMINATE)
    session_id = first.declare_session(BLANK, policy=policy).session_id
    rule_out(graph, session_id, "b", "c")
    for server in (first, second):
        assert server.check_store(session_id) == (StoreState.AGREES, "", ())
        assert server.query_belief(session_id).survivors == ["a", "d"]
    declared, recorded = first.audit_trace(session_id)
    assert declared.payload["policy"]["foreign_tombstones"] == "eliminate"
    assert (recorded.verb, recorded.delta_eliminated) == ("ELIMINATE", ["b", "c"])
    assert recorded.payload["source_id"] == "chaos-agent"
    assert recorded.payload["justification"] == {"foreign": {"source_id": "chaos-agent", "trigger": "probe 7"}}
    assert recorded.actor is None


@pytest.mark.req("TEE-FOREIGN-02")
def test_a_write_leaves_foreign_tombstones_to_the_next_check(place: Place, graph: MemoryGraphStore) -> None:
    policy = SessionPolicy(foreign_tombstones=ForeignRule.ELIMINATE)
    session_id = place.open().declare_session(BLANK, policy=policy).session_id
    rule_out(graph, session_id, "b")
    server = place.open()
    assert server.eliminate(session_id, "s", "1", ["a"]).snapshot.survivors == ["b", "c", "d"]
    server.check_store(session_id)
    assert server.query_belief(session_id).survivors == ["c", "d"]


@pytest.mark.req("TEE-FOREIGN-02")
def test_a_policy_for_foreign_tombstones_is_one_of_two_words(place: Place) -> None:
    wrong: Any = "perhaps"
    with pytest.raises(InvalidRequest, match="must be `ignore` or `eliminate`, not `perhaps`"):
        place.open().declare_session(BLANK, policy=SessionPolicy(foreign_tombstones=wrong))


# --- a Tee without our additions --------------------------------------------------------------------------------------


@pytest.mark.req("TEE-AGREE-04")
def test_a_tee_without_identity_serves_and_is_held_against_the_log_as_well(tmp_path: Path) -> None:
    plain = PlainTee()
    with serving_plainly(plain.calls()) as port, ExitStack() as stack:
        grow(port, "abcd")
        store = TeeStore(f"127.0.0.1:{port}", timeout_seconds=5)
        log = SQLiteStore(tmp_path / "cmbs.db")
        server = stack.enter_context(closing(BeliefServer(store=store, audit_log=log)))
        session_id = server.declare_session(BLANK, ["a", "b", "c"]).session_id
        assert "store_id" not in server.audit_trace(session_id)[0].payload
        server.eliminate(session_id, "s", "1", ["a"])
        rule_out_plainly = pb.NodeTombstoneRequest(incident_id=session_id, node_ids=["b"], provenance=OTHER)
        plain._service.merge_node_tombstones(rule_out_plainly)
        report = server.check_store(session_id)
        assert report == (StoreState.AGREES, "", (ForeignTombstones("unknown", "unknown", ("b",)),))
        assert not store.find_lacking(frozenset("ab"))


@pytest.mark.req("TEE-AGREE-04")
def test_a_session_of_a_tee_with_an_identity_is_refused_by_one_without(place: Place, tmp_path: Path) -> None:
    session_id = place.open().declare_session(BLANK).session_id
    with serving_plainly(PlainTee().calls()) as port:
        server = place.open(store=TeeStore(f"127.0.0.1:{port}", timeout_seconds=5))
        with pytest.raises(StoreDisagrees, match="this one has no identity"):
            server.eliminate(session_id, "s", "1", ["a"])
        with pytest.raises(StoreDisagrees, match="this one has no identity"):
            server.declare_session(BLANK, ["a"])
        arguments = ("tee", "repair", "--accept-identity", "--tee", f"127.0.0.1:{port}")
        refused = run_cmbs(*arguments, directory=tmp_path, variables={"CMBS_STORE": "sqlite:///cmbs.db"})
        assert (refused.returncode, "this one has no identity" in refused.stderr) == (2, True)


# --- the calls of Tee -------------------------------------------------------------------------------------------------


@pytest.mark.req("TEE-AGREE-05")
def test_a_tee_says_which_one_it_is_and_which_it_stands_in_for(graph: MemoryGraphStore) -> None:
    from google.protobuf.empty_pb2 import Empty

    with calling(graph) as tee:
        own = tee.GetIdentity(Empty())
        assert (own.tee_id, list(own.stands_in_for)) == (graph.identity().tee_id, [])
        assert list(tee.StandInFor(pb.StandInRequest(tee_ids=["lost"])).stands_in_for) == ["lost"]
        with pytest.raises(Exception, match="must not hold an empty id"):
            tee.StandInFor(pb.StandInRequest(tee_ids=[""]))


@pytest.mark.req("TEE-AGREE-05")
def test_tombstones_are_told_by_what_was_said_with_them(graph: MemoryGraphStore) -> None:
    with calling(graph) as tee:
        tee.CreateIncident(pb.CreateIncidentRequest(incident_id="i"))
        assert [
            each.tombstones.node_ids for each in tee.StreamTombstoneGroups(pb.TombstoneRequest(incident_id="i"))
        ] == [[]]
        rule_out(graph, "i", "a")
        entry = pb.EdgeTombstoneEntry(source="a", target="b", type=pb.EDGE_TYPE_DEPENDS_ON)
        tee.MergeEdgeTombstones(pb.EdgeTombstoneRequest(incident_id="i", entries=[entry], provenance=OTHER))
        found = list(tee.StreamTombstoneGroups(pb.TombstoneRequest(incident_id="i")))
        assert {each.provenance.source for each in found} == {"chaos-agent"}
        assert [name for each in found for name in each.tombstones.node_ids] == ["a"]
        assert [name for each in found for name in each.tombstones.edge_entries] == [entry]


@pytest.mark.req("TEE-AGREE-06")
def test_an_incident_that_holds_a_universe_takes_no_other_tombstones(graph: MemoryGraphStore) -> None:
    incident_id = "cmbs:universe:s"

    def put(*node_ids: str) -> pb.TombstoneMergeResult:
        request = pb.NodeTombstoneRequest(incident_id=incident_id, node_ids=node_ids, provenance=OTHER)
        return TeeService(graph).merge_node_tombstones(request)

    TeeService(graph).create_incident(pb.CreateIncidentRequest(incident_id=incident_id))
    put("a")
    put("cmbs:universe:listed")
    put("a")
    with pytest.raises(Exception, match="holds the universe of a session"):
        put("a", "b")
    entry = pb.EdgeTombstoneEntry(source="a", target="b", type=pb.EDGE_TYPE_DEPENDS_ON)
    with pytest.raises(Exception, match="holds the universe of a session"):
        TeeService(graph).merge_edge_tombstones(
            pb.EdgeTombstoneRequest(incident_id=incident_id, entries=[entry], provenance=OTHER)
        )
