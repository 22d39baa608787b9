"""A fork that goes on without doubted reports: what it leaves out is in its first event, and verified."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cmbs.audit.fsck import check_stream
from cmbs.audit.origins import check_origin
from cmbs.audit.transfer import export_lines
from cmbs.belief.kernel.forks import find_difference
from cmbs.belief.kernel.replay import _require_left_out, verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, EventNotFound, InvalidRequest
from cmbs.messages import Origin, SessionPolicy
from tests.support.store_fixture import BACKENDS, StoreFixture, declared

pytestmark = pytest.mark.req("CONTRA-02")


def contradict(server: BeliefServer) -> str:
    """A session of which nothing is left after its third report."""
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["a", "b"])
    server.enter_obligation(session_id, "gate", 1)
    server.eliminate(session_id, "s", "2", ["c"])
    server.eliminate(session_id, "t", "3", ["c", "d"])
    return session_id


@pytest.mark.parametrize("place", BACKENDS)
def test_a_fork_goes_on_without_a_doubted_report(place: str, tmp_path: Path) -> None:
    with StoreFixture.at(place, tmp_path) as fixture:
        server = fixture.open()
        session_id = contradict(server)
        (doubted,) = [each.report for each in server.contradiction(session_id).alone if each.hypothesis_id == "d"]
        forked = server.fork_session(session_id, without=[doubted.event_id])
        assert (forked.origin.seq, forked.origin.without) == (4, (4,))
        assert forked.snapshot.survivors == ["d"]
        verbs = [entry.verb for entry in server.audit_trace(forked.session_id)]
        assert verbs == [entry.verb for entry in server.audit_trace(session_id)[:4]]
        log = server.log
        assert verify_session(forked.session_id, log.read(forked.session_id)).origin == forked.origin
        assert check_origin(log, forked.session_id, forked.origin).problem is None
        report = check_stream(log, forked.session_id)
        assert report.findings == []
        assert "without 1 of its reports" in report.summary
        assert server.request_exit(forked.session_id, "gate").approved
        again = server.fork_session(session_id, 3, without=[1, doubted.seq - 1], idempotency_key="k")
        assert again.snapshot.survivors == ["a", "b", "c", "d"]
        assert server.fork_session(session_id, 3, without=[3, 1], idempotency_key="k") == again
        with pytest.raises(Conflict):
            server.fork_session(session_id, 3, without=[1], idempotency_key="k")


@pytest.mark.parametrize("place", ["memory"])
def test_what_is_no_report_of_the_prefix_cannot_be_left_out(place: str, tmp_path: Path) -> None:
    with StoreFixture.at(place, tmp_path) as fixture:
        server = fixture.open()
        session_id = contradict(server)
        before = server.list_sessions()
        for at, without in ((None, [0]), (None, [2]), (1, [3])):
            with pytest.raises(InvalidRequest) as refused:
                server.fork_session(session_id, at, without=without)
            assert refused.value.details["field"] == "without"
        for unknown in ("none", 99, -1):
            with pytest.raises(EventNotFound):
                server.fork_session(session_id, without=[unknown])
        assert server.list_sessions() == before


def test_a_fork_whose_session_would_have_ended_says_where(tmp_path: Path) -> None:
    with StoreFixture.at("memory", tmp_path) as fixture:
        server = fixture.open()
        session_id = declared(server, policy=SessionPolicy())
        server.eliminate(session_id, "s", "1", ["a", "b", "c"])
        server.eliminate(session_id, "s", "2", ["d"])
        server.request_termination(session_id)
        server.eliminate(session_id, "s", "3", [])
        with pytest.raises(Conflict, match="ends before event 4") as refused:
            server.fork_session(session_id, without=[2])
        assert "at` 3" in str(refused.value.details["next"])
        forked = server.fork_session(session_id, 3, without=[2])
        assert forked.snapshot.terminated


def test_a_forged_list_of_what_was_left_out_does_not_verify(tmp_path: Path) -> None:
    with StoreFixture.at("memory", tmp_path) as fixture:
        server = fixture.open()
        session_id = contradict(server)
        forked = server.fork_session(session_id, without=[1])
        prefix, fork = server.log.read(session_id), server.log.read(forked.session_id)
        assert find_difference(forked.origin, prefix, fork) is None
        for without, said in (((3,), "event 1 is not that"), ((2,), "which is no report")):
            problem = find_difference(msgspec.structs.replace(forked.origin, without=without), prefix, fork)
            assert problem is not None
            assert said in problem
        for bad in ((), (0,), (2, 1), (1, 1), (5,)):
            with pytest.raises(ValueError, match="leaves out"):
                _require_left_out(Origin(session_id, 4, "0" * 64, bad))
        assert list(export_lines(server.log, [session_id, forked.session_id]))
