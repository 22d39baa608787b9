"""`restore_session`: a log from elsewhere is taken over as it is, or refused as a whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError, Conflict, LedgerCorrupt, SessionNotFound, StoreUnavailable
from cmbs.ledger import to_audit_entry
from cmbs.messages import SessionPolicy
from cmbs.spi import RecoveredState
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import FailingStore, Moment
from cmbs.testing.streams import stream
from tests.support.forgery import Content, forge, tamper
from tests.support.store_fixture import BACKENDS, StoreFixture, declared, verified
from tests.support.subtests import for_each

OTHER_ID = "00000000-0000-4000-8000-eeeeeeeeeeee"


class Original:
    """A session with every verb in its log, on a server elsewhere."""

    def __init__(self) -> None:
        self.server = BeliefServer()
        policy = SessionPolicy(stability_window=1)
        self.session_id = declared(self.server, "abc", metadata={"x": 1.5}, policy=policy, idempotency_key="k")
        self.server.eliminate(self.session_id, "s", "1", ["a", "z"], {"why": ["é", None]})
        self.server.enter_obligation(self.session_id, "gate", 1)
        self.server.request_exit(self.session_id, "gate")
        self.server.eliminate(self.session_id, "s", "2", ["b"], idempotency_key="second")
        self.server.request_exit(self.session_id, "gate")
        self.server.request_termination(self.session_id, {"force": True})
        self.server.declare_conclusion(self.session_id, "c")
        self.server.request_termination(self.session_id)
        self.entries = self.server.audit_trace(self.session_id)
        self.recovered = recovered("abc", "ab")


def recovered(universe: str, eliminated: str) -> RecoveredState:
    return RecoveredState(frozenset(universe), frozenset(eliminated), frozenset(universe) - frozenset(eliminated))


@pytest.fixture(scope="module")
def original() -> Original:
    return Original()


@pytest.mark.req("BS-6.5-SERVER-03", "ARCH-2-02")
def test_a_restored_session_is_the_session(fixture: StoreFixture, original: Original) -> None:
    server = fixture.open()
    server.restore_session(original.session_id, original.recovered, iter(original.entries))
    for asked in (server, fixture.open()):
        assert asked.query_belief(original.session_id) == original.server.query_belief(original.session_id)
        assert asked.audit_trace(original.session_id) == original.entries
        assert asked.obligations(original.session_id) == original.server.obligations(original.session_id)
        assert asked.log.read(original.session_id) == original.server.log.read(original.session_id)
        assert verified(asked, original.session_id).terminated
    assert fixture.store().recover(original.session_id) == original.recovered
    (summary,) = server.list_sessions()
    assert summary == original.server.list_sessions()[0]


@pytest.mark.req("BS-6.5-SERVER-03")
def test_a_restored_session_goes_on_where_it_was(fixture: StoreFixture) -> None:
    elsewhere = BeliefServer()
    session_id = declared(elsewhere)
    first = elsewhere.eliminate(session_id, "s", "1", ["a"], idempotency_key="k")
    server = fixture.open()
    server.restore_session(session_id, recovered("abcd", "a"), elsewhere.audit_trace(session_id))
    assert server.eliminate(session_id, "s", "1", ["a"]) == first
    assert server.eliminate(session_id, "s", "1", ["a"], idempotency_key="k") == first
    assert server.eliminate(session_id, "s", "2", ["a", "b"]).applied_eliminated == ["b"]
    assert verified(server, session_id).survivors == ["c", "d"]


@pytest.mark.req("BS-6.5-SERVER-03")
def test_restoring_again_changes_nothing_and_a_longer_log_adds_what_is_new(fixture: StoreFixture) -> None:
    elsewhere = BeliefServer()
    session_id = declared(elsewhere)
    elsewhere.eliminate(session_id, "s", "1", ["a"])
    short = elsewhere.audit_trace(session_id)
    elsewhere.eliminate(session_id, "s", "2", ["b"])
    long = elsewhere.audit_trace(session_id)
    server = fixture.open()
    for _ in range(2):
        server.restore_session(session_id, recovered("abcd", "a"), short)
        assert server.audit_trace(session_id) == short
    server.restore_session(session_id, recovered("abcd", "ab"), long)
    server.restore_session(session_id, recovered("abcd", "a"), short)
    assert server.audit_trace(session_id) == long
    assert server.query_belief(session_id).survivors == ["c", "d"]


@pytest.mark.req("BS-6.5-SERVER-04")
def test_a_log_that_parts_from_the_one_that_is_here_is_a_conflict(fixture: StoreFixture) -> None:
    server, elsewhere = fixture.open(), BeliefServer()
    session_id = declared(server)
    elsewhere.restore_session(session_id, recovered("abcd", ""), server.audit_trace(session_id))
    server.eliminate(session_id, "here", "1", ["a"])
    elsewhere.eliminate(session_id, "there", "1", ["b"])
    elsewhere.eliminate(session_id, "there", "2", ["c"])
    before = server.audit_trace(session_id)
    with pytest.raises(Conflict):
        server.restore_session(session_id, recovered("abcd", "bc"), elsewhere.audit_trace(session_id))
    assert server.audit_trace(session_id) == before


@pytest.mark.req("BS-6.5-SERVER-04", "ARCH-2-SAGA-01")
def test_nothing_is_restored_past_an_open_intent() -> None:
    log, entries = InMemoryStore(), [item.entry for item in stream(hypotheses="xyz")]
    intended = stream(hypotheses="abc")[0]
    log.put_intent(intended)
    with pytest.raises(StoreUnavailable, match="try again"):
        BeliefServer(store=log).restore_session(
            intended.stream_id, recovered("xyz", "xy"), [to_audit_entry(entry) for entry in entries]
        )
    assert log.read(intended.stream_id) == []


@pytest.mark.req("BS-6.5-SERVER-04")
@pytest.mark.parametrize(
    "state",
    [
        recovered("abcd", "ab"),
        recovered("ab", "ab"),
        recovered("abc", "a"),
        recovered("abc", "abc"),
        recovered("abc", ""),
        RecoveredState(frozenset("abc"), frozenset("ab"), frozenset("abc")),
        RecoveredState(frozenset("abc"), frozenset(), frozenset("c")),
    ],
)
def test_a_log_that_does_not_lead_to_the_recovered_state_is_refused(
    fixture: StoreFixture, original: Original, state: RecoveredState
) -> None:
    server = fixture.open()
    with pytest.raises(LedgerCorrupt):
        server.restore_session(original.session_id, state, original.entries)
    with pytest.raises(SessionNotFound):
        server.query_belief(original.session_id)


# A sample of what `test_replay` forges, and logs of which whole entries are wrong.
FORGERIES: dict[str, Callable[[Content], Any]] = {
    "a payload asks for more": lambda log: log[1]["payload"].update(eliminated=["a", "b", "z"]),
    "a delta says more": lambda log: log[1].update(delta={"eliminated": ["a", "b"]}),
    "a refusal became an approval": lambda log: log[3].update(outcome={"approved": True, "reason": "approved"}),
    "a threshold was lowered": lambda log: log[2]["payload"].update(min_total_eliminations=0),
    "the universe lost an id": lambda log: log[0]["payload"].update(hypotheses=["a", "b"]),
    "the policy allows force": lambda log: log[0]["payload"]["policy"].update(allow_force=True),
    "the declaration is gone": lambda log: log.pop(0),
    "an elimination is gone": lambda log: log.pop(4),
    "a refusal is gone and a later one tells": lambda log: log.pop(2),
    "an entry was added": lambda log: log.insert(3, {**log[1], "event_id": "new", "delta": {"eliminated": ["c"]}}),
    "an entry is there twice": lambda log: log.insert(2, dict(log[1])),
    "the declaration is there twice": lambda log: log.insert(1, dict(log[0])),
    "two entries changed places": lambda log: log.insert(2, log.pop(4)),
    "something follows the end": lambda log: log.append({**log[7], "event_id": "after the end"}),
    "another format": lambda log: log[1].update(format="cmbs/2"),
    "no format": lambda log: log[2].update(format=""),
    "another stream": lambda log: [entry.update(stream_id=OTHER_ID) for entry in log],
    "no log": lambda log: log.clear(),
}


@pytest.mark.req("BS-6.5-SERVER-04", "LED-3-VERIFY-02", "LED-3-VERIFY-03", "LED-3-VERIFY-04")
@pytest.mark.req("LED-3-VERIFY-05", "LED-3-VERIFY-06", "LED-3-VERIFY-08")
@for_each("hashes", [tamper, forge], ids=["hashes left", "hashes made to fit"])
@for_each("forgery", FORGERIES)
def test_a_forged_log_is_refused_whether_or_not_its_hashes_fit(
    original: Original, forgery: str, hashes: Callable[..., Any]
) -> None:
    server = BeliefServer()
    entries = hashes(original.entries, FORGERIES[forgery])
    assert entries != original.entries
    with pytest.raises(LedgerCorrupt) as refused:
        server.restore_session(original.session_id, original.recovered, entries)
    assert refused.value.reason
    assert server.list_sessions() == []


@pytest.mark.req("BS-6.5-SERVER-04")
def test_an_honest_log_hashed_by_other_software_is_the_same_log(original: Original) -> None:
    assert forge(original.entries, lambda log: log) == original.entries


@pytest.mark.req("BS-6.5-SERVER-04")
@pytest.mark.parametrize("value", [float("nan"), 2**53, {"deep": {1: 2}}, "\ud800", Ellipsis], ids=ascii)
def test_what_no_log_can_hold_is_refused_in_the_error_model(original: Original, value: Any) -> None:
    bad = replace(original.entries[1], payload={**original.entries[1].payload, "justification": value})
    with pytest.raises(BeliefServerError) as refused:
        BeliefServer().restore_session(original.session_id, original.recovered, [original.entries[0], bad])
    assert refused.value.code == "LEDGER_CORRUPT"


@pytest.mark.req("ARCH-2-03", "ARCH-2-04")
@pytest.mark.parametrize("place", BACKENDS)
def test_a_store_that_fails_at_any_call_while_a_session_is_restored_leaves_nothing_half_done(
    original: Original, place: str, tmp_path: Path
) -> None:
    session_id, whole = original.session_id, original.server.log.read(original.session_id)

    def restored(call: int, moment: Moment) -> int:
        """Restore in a fixture of its own, with a failure at that call; how many calls there were."""
        directory = tmp_path / f"{call} {moment}"
        directory.mkdir()
        with StoreFixture.at(place, directory) as fixture:
            store = FailingStore(fixture.store())
            server = fixture.open(store=store)
            if call:
                store.fail(call=call, moment=moment)
                with suppress(StoreUnavailable):
                    server.restore_session(session_id, original.recovered, original.entries)
                assert store.pending_faults == 0
                assert fixture.store().read(session_id) in ([], whole)
            server.restore_session(session_id, original.recovered, original.entries)
            calls = len(store.calls)
            assert server.audit_trace(session_id) == original.entries
            assert fixture.store().read(session_id) == whole
            assert fixture.open().query_belief(session_id) == original.server.query_belief(session_id)
            return calls

    calls = restored(0, Moment.BEFORE)
    assert calls > 0
    for call, moment in product(range(1, calls + 1), Moment):
        restored(call, moment)
