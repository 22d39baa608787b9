"""A belief server with its tombstones in Tee and its events in SQLite: declared from the graph, and recovered."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec
import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.bootstrap import Settings, build_server
from cmbs.errors import Conflict, InvalidHypothesisId, InvalidRequest, StoreUnavailable
from cmbs.messages import OntologyBundle
from cmbs.stores import open_tee
from cmbs.stores.memory import InMemoryStore
from cmbs.stores.sqlite import SQLiteStore
from cmbs.stores.tee import TeeStore
from cmbs.tee.server import ServerOptions
from cmbs.tee.stores.memory import MemoryGraphStore
from cmbs.tee.stores.sqlite import SQLiteGraphStore
from cmbs.testing import FailingLog, Moment
from tests.support.error_model import check_error
from tests.support.http_server import run_cmbs, serving
from tests.support.in_process import client_of
from tests.support.plain_tee import PlainTee
from tests.support.plain_tee import serving as serving_plainly
from tests.support.store_fixture import verified
from tests.support.tee import CERTIFICATE, edge, listening, tls
from tests.support.tee_process import grow, tee_serving
from tests.support.transports import ONTOLOGY

BLANK = OntologyBundle("space", "1", "tee://main", "")


class Place(NamedTuple):
    """A Tee with a graph, and a directory for the log."""

    port: int
    directory: Path

    def tee(self) -> TeeStore:
        return TeeStore(f"127.0.0.1:{self.port}", timeout_seconds=5)

    def log(self) -> SQLiteStore:
        return SQLiteStore(self.directory / "cmbs.db")

    def server(self, **options: Any) -> BeliefServer:
        """A server that knows nothing yet: what a restart gives."""
        options.setdefault("audit_log", self.log())
        return BeliefServer(store=self.tee(), **options)


class AwayStore(InMemoryStore):
    """A store that cannot be reached."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def identity(self) -> NoReturn:
        self.asked += 1
        raise StoreUnavailable("away")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with closing(SQLiteGraphStore(tmp_path / "tee.db")) as graph, listening(graph) as port:
        grow(port, "abcd", [edge("a", "b")])
        yield Place(port, tmp_path)


@pytest.fixture
def open_server(place: Place) -> Iterator[Callable[..., BeliefServer]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(closing(place.server(**options)))


def agree(place: Place, server: BeliefServer, session_id: str) -> None:
    """Server, log and Tee tell the same story, and nothing is in doubt."""
    snapshot = server.query_belief(session_id)
    assert verified(server, session_id) == snapshot
    with closing(place.tee()) as tee, closing(place.log()) as log:
        assert tee.get_survivors(session_id) == frozenset(snapshot.survivors)
        assert log.open_intents(10) == []


# --- declared from the graph ------------------------------------------------------------------------------------------


@pytest.mark.req("TEE-SESSION-01")
def test_a_session_without_hypotheses_is_over_the_graph_as_it_is_now(
    place: Place, open_server: Callable[..., BeliefServer]
) -> None:
    server = open_server()
    session_id, snapshot = server.declare_session(BLANK)
    assert snapshot.survivors == list("abcd")
    version = snapshot.ontology.causal_graph_version
    assert int(version) == grow(place.port)
    later = grow(place.port, ["newborn"])
    outcome = server.eliminate(session_id, "s", "1", ["a", "newborn"])
    assert (outcome.applied_eliminated, outcome.ignored_eliminated) == (["a"], ["newborn"])
    agree(place, server, session_id)
    second = server.declare_session(BLANK)
    assert second.snapshot.survivors == ["a", "b", "c", "d", "newborn"]
    assert second.snapshot.ontology.causal_graph_version == str(later)
    agree(place, server, second.session_id)


@pytest.mark.req("TEE-SESSION-01")
def test_the_version_that_a_caller_expects_must_be_that_of_the_graph(
    place: Place, open_server: Callable[..., BeliefServer]
) -> None:
    server, version = open_server(), str(grow(place.port))
    expecting = OntologyBundle("space", "1", "tee://main", version)
    assert server.declare_session(expecting).snapshot.ontology == expecting
    with pytest.raises(Conflict, match=f"at version `{version}`, not `other`"):
        server.declare_session(OntologyBundle("space", "1", "tee://main", "other"))


@pytest.mark.req("TEE-SESSION-01")
def test_a_declaration_under_a_key_is_the_same_session_whatever_happened_since(
    place: Place, open_server: Callable[..., BeliefServer]
) -> None:
    server = open_server()
    first = server.declare_session(BLANK, idempotency_key="incident 7")
    server.eliminate(first.session_id, "s", "1", ["a"])
    grow(place.port, ["newborn"])
    for each in (server, open_server()):
        assert each.declare_session(BLANK, idempotency_key="incident 7") == first


@pytest.mark.req("TEE-SESSION-01")
def test_listed_hypotheses_must_be_in_the_graph(place: Place, open_server: Callable[..., BeliefServer]) -> None:
    server = open_server()
    with pytest.raises(InvalidHypothesisId, match="`missing`"):
        server.declare_session(BLANK, ["a", "missing"])
    assert server.list_sessions() == []
    # What the caller calls its graph is then the caller's business.
    named = OntologyBundle("space", "1", "cmdb", "april")
    session_id, snapshot = server.declare_session(named, ["a", "edge:a|b|DEPENDS_ON"])
    assert snapshot.ontology == named
    assert server.eliminate(session_id, "s", "1", ["edge:a|b|DEPENDS_ON", "b"]).snapshot.survivors == ["a"]
    agree(place, server, session_id)


@pytest.mark.req("TEE-SESSION-01")
def test_without_a_graph_hypotheses_must_be_listed(tmp_path: Path) -> None:
    for server in (BeliefServer(), BeliefServer(store=InMemoryStore(), audit_log=InMemoryStore())):
        with pytest.raises(InvalidRequest, match="only where the store has a causal graph"):
            server.declare_session(BLANK)
    with (
        closing(SQLiteGraphStore(tmp_path / "empty.db")) as graph,
        listening(graph) as port,
        closing(BeliefServer(store=open_tee(f"127.0.0.1:{port}"))) as server,
    ):
        with pytest.raises(InvalidRequest, match="the causal graph is empty"):
            server.declare_session(BLANK)
        with pytest.raises(InvalidRequest, match="`ontology` may be left out only where a kit or a provider is named"):
            server.declare_session(None)


@pytest.mark.req("TEE-SESSION-01")
def test_a_declaration_that_came_too_early_can_be_repeated_under_its_key(tmp_path: Path) -> None:
    with (
        closing(SQLiteGraphStore(tmp_path / "late.db")) as graph,
        listening(graph) as port,
        closing(BeliefServer(store=open_tee(f"127.0.0.1:{port}"))) as server,
    ):
        with pytest.raises(InvalidRequest, match="the causal graph is empty"):
            server.declare_session(BLANK, idempotency_key="key")
        grow(port, "ab")
        later = msgspec.structs.replace(BLANK, causal_graph_version=str(graph.version() + 1))
        with pytest.raises(Conflict, match="is at version"):
            server.declare_session(later, idempotency_key="other key")
        assert server.declare_session(BLANK, idempotency_key="key").snapshot.survivors == ["a", "b"]
        grow(port, "c")
        assert server.declare_session(later, idempotency_key="other key").snapshot.survivors == ["a", "b", "c"]


@pytest.mark.req("TEE-SESSION-01", "TEE-STORE-02")
def test_on_a_tee_without_versions_the_callers_version_is_kept() -> None:
    with (
        serving_plainly(PlainTee().calls()) as port,
        closing(BeliefServer(store=open_tee(f"127.0.0.1:{port}"))) as server,
    ):
        grow(port, "ab")
        named = OntologyBundle("space", "1", "tee://main", "seven")
        session_id, snapshot = server.declare_session(named)
        assert (snapshot.survivors, snapshot.ontology) == (["a", "b"], named)
        grow(port, "c")
        assert server.eliminate(session_id, "s", "1", ["a", "c"]).applied_eliminated == ["a"]


# --- recovered --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("TEE-SESSION-02")
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("method", ["put_intent", "append"])
def test_a_crash_between_log_and_tee_is_driven_forward(
    place: Place, open_server: Callable[..., BeliefServer], method: str, moment: Moment
) -> None:
    log = FailingLog(place.log())
    server = open_server(audit_log=log)
    log.fail(method, moment=moment)
    with pytest.raises(StoreUnavailable):
        server.declare_session(BLANK, idempotency_key="incident 7")
    grow(place.port, ["newborn"])
    session_id, snapshot = open_server().declare_session(BLANK, idempotency_key="incident 7")
    # The universe was fixed with the intent of the first attempt, if there is one; without it, nothing was left behind.
    is_new = (method, moment) == ("put_intent", Moment.BEFORE)
    assert snapshot.survivors == [*"abcd", "newborn"] if is_new else list("abcd")
    log.fail(method, moment=moment)
    with pytest.raises(StoreUnavailable):
        server.eliminate(session_id, "s", "1", ["a"])
    after = open_server()
    assert after.eliminate(session_id, "s", "1", ["a"]).applied_eliminated == ["a"]
    assert after.query_belief(session_id).survivors == [*"bcd", *(["newborn"] if is_new else [])]
    assert [entry.verb for entry in after.audit_trace(session_id)] == ["DECLARE_SESSION", "ELIMINATE"]
    agree(place, after, session_id)


@pytest.mark.slow
@pytest.mark.req("TEE-SESSION-02")
def test_a_server_that_starts_while_tee_is_away_waits_for_it_once_and_settles_later(
    place: Place, open_server: Callable[..., BeliefServer]
) -> None:
    log = FailingLog(place.log())
    server = open_server(audit_log=log)
    session_ids = [server.declare_session(BLANK).session_id for _ in range(3)]
    for session_id in session_ids:
        log.fail("append")
        with pytest.raises(StoreUnavailable):
            server.eliminate(session_id, "s", "1", ["a"])
    away = AwayStore()
    with closing(BeliefServer(store=away, audit_log=place.log())) as early:
        assert away.asked == 1
        assert early.query_belief(session_ids[0]).n_survivors == 4
    after = open_server()
    for session_id in session_ids:
        assert after.query_belief(session_id).survivors == list("bcd")
        agree(place, after, session_id)


@pytest.mark.req("TEE-SESSION-02")
def test_a_session_is_taken_over_from_tee_and_its_log(place: Place, open_server: Callable[..., BeliefServer]) -> None:
    server = open_server()
    session_id = server.declare_session(BLANK).session_id
    server.eliminate(session_id, "s", "1", ["a"])
    entries = server.audit_trace(session_id)
    with closing(place.tee()) as tee, closing(BeliefServer(store=tee, audit_log=InMemoryStore())) as other:
        other.restore_session(session_id, tee.recover(session_id), entries)
        assert other.query_belief(session_id) == server.query_belief(session_id)
        assert other.eliminate(session_id, "s", "2", ["b"]).snapshot.survivors == ["c", "d"]


# --- as an operator runs it -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("TEE-SESSION-03")
def test_cmbs_serve_declares_from_the_graph_over_http(tmp_path: Path) -> None:
    with tee_serving(tmp_path, "sqlite:///tee.db") as tee:
        version = str(tee.grow("abc"))
        log = f"sqlite:///{tmp_path / 'cmbs.db'}"
        with (
            serving(tmp_path, "--store", log, "--tee", tee.endpoint, "--workers", "2") as server,
            server.client() as client,
        ):
            assert f"Tee       {tee.endpoint}" in server.output
            told = client.post("/v1/sessions", json={"ontology": {**ONTOLOGY, "causal_graph_version": ""}})
            assert told.status_code == 201
            snapshot = told.json()["snapshot"]
            assert snapshot["survivors"] == ["a", "b", "c"]
            assert snapshot["ontology"]["causal_graph_version"] == version
            tee.grow(["newborn"])
            seen = {"source_id": "s", "observation_id": "1", "eliminated": ["a"]}
            told = client.post(f"/v1/sessions/{snapshot['session_id']}/eliminate", json=seen)
            assert told.json()["snapshot"]["survivors"] == ["b", "c"]
            check_error(client.post("/v1/sessions", json={"ontology": ONTOLOGY}), 409, "CONFLICT")
            listed = {"ontology": ONTOLOGY, "hypotheses": ["a", "missing"]}
            check_error(client.post("/v1/sessions", json=listed), 422, "INVALID_HYPOTHESIS_ID")
        assert run_cmbs("fsck", log, directory=tmp_path).returncode == 0
        with closing(TeeStore(tee.endpoint)) as store:
            assert store.get_survivors(snapshot["session_id"]) == {"b", "c"}


@pytest.mark.req("TEE-SESSION-03")
def test_settings_say_where_tee_is_and_what_makes_no_sense_is_named(tmp_path: Path, place: Place) -> None:
    settings = Settings.from_environment(
        {"CMBS_STORE": "memory:", "CMBS_TEE": f"127.0.0.1:{place.port}", "CMBS_TEE_TOKEN": "secret"}
    )
    assert "secret" not in repr(settings)
    assert Settings.from_environment(settings.to_environment()) == settings
    with closing(build_server(settings)) as server:
        assert server.declare_session(BLANK).snapshot.n_survivors == 4
    for endpoint in ("tee", ":50051", "tee.example:", "http://tee.example:50051"):
        with pytest.raises(InvalidRequest, match="use `host:port`"):
            build_server(Settings(store="memory:", tee=endpoint))
    with pytest.raises(InvalidRequest, match="cannot read"):
        build_server(Settings(store="memory:", tee="127.0.0.1:1", tee_ca=str(tmp_path / "missing.pem")))


@pytest.mark.slow
@pytest.mark.req("TEE-SESSION-03")
def test_a_tee_behind_tls_and_a_token_is_reached_by_settings() -> None:
    with listening(MemoryGraphStore(), ServerOptions(tls=tls(), token="secret")) as port:
        asked = {
            "CMBS_STORE": "memory:",
            "CMBS_TEE": f"localhost:{port}",
            "CMBS_TEE_CA": str(CERTIFICATE),
        }
        # With the right token, there is nothing to declare yet.
        refusals = {
            "secret": (InvalidRequest, "the causal graph is empty"),
            "guess": (StoreUnavailable, "does not let us in"),
        }
        for token, (error, words) in refusals.items():
            settings = Settings.from_environment({**asked, "CMBS_TEE_TOKEN": token})
            with closing(build_server(settings)) as server, pytest.raises(error, match=words):
                server.declare_session(BLANK)


@pytest.mark.req("TEE-SESSION-03")
def test_without_the_extra_the_error_says_which_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmbs.stores.tee", None)
    with pytest.raises(InvalidRequest, match=r"need the `tee` extra: `pip install 'cmbs\[tee\]'`"):
        open_tee("127.0.0.1:50051")


@pytest.mark.slow
@pytest.mark.req("TEE-SESSION-03")
def test_a_server_starts_without_its_tee_and_says_so_to_those_who_declare(tmp_path: Path) -> None:
    with closing(build_server(Settings(store="memory:", tee="127.0.0.1:1", store_timeout_seconds=1))) as server:
        for hypotheses in (None, ["a"]):
            with pytest.raises(StoreUnavailable, match=r"the Tee at `127\.0\.0\.1:1` failed with UNAVAILABLE"):
                server.declare_session(BLANK, hypotheses)


# --- what a graph says of its nodes -----------------------------------------------------------------------------------


@pytest.mark.req("GATES-ATTR-03")
def test_a_session_over_a_graph_declares_type_and_label_of_its_nodes(open_server: Callable[..., BeliefServer]) -> None:
    server = open_server()
    session_id = server.declare_session(BLANK, idempotency_key="k").session_id
    said = server.attributes(session_id, "abcd")
    assert said.keys() == set("abcd")
    assert {*said["a"]} == {"type", "label"}
    assert said["a"]["type"] in {"SERVICE", "DEPENDENCY", "INFRASTRUCTURE", "MECHANISM"}
    # A repeat is the same request, also where the store no longer shows what was eliminated.
    server.eliminate(session_id, "s", "1", ["a"])
    assert server.declare_session(BLANK, idempotency_key="k").session_id == session_id
    own = server.declare_session(BLANK, hypothesis_attributes={"a": {"component": "db"}}).session_id
    assert server.attributes(own, "abcd") == {"a": {"component": "db"}}
    listed = server.declare_session(BLANK, ["a"]).session_id
    assert server.attributes(listed, "abcd") == {}


@pytest.mark.req("GATES-ATTR-03")
def test_a_graph_that_says_too_much_of_its_nodes_declares_nothing_and_a_note_says_so(
    open_server: Callable[..., BeliefServer],
) -> None:
    server = open_server(limits=Limits(attribute_bytes=20))
    with client_of(create_app(server)) as client:
        answer = client.post("/v1/sessions", json={"ontology": BLANK.to_dict()}).json()
    assert "20 bytes" in answer["note"]
    assert server.attributes(answer["session_id"], "abcd") == {}


@pytest.mark.slow
@pytest.mark.req("GATES-ATTR-03")
def test_a_graph_with_labels_beyond_measure_offers_none(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cmbs.stores._tee_incidents._MAX_ATTRIBUTE_CHARS", 3)
    with closing(place.tee()) as store:
        assert store.anchor("session").attributes is None
    with closing(place.server()) as server:
        assert server.declaration(BLANK, None).note is not None
