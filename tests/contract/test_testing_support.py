"""What cmbs ships for other people's tests has to be right as well."""

from __future__ import annotations

import uuid
from datetime import timedelta
from threading import Thread

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError, StoreUnavailable
from cmbs.ledger import Head
from cmbs.messages import ExitOutcome, OntologyBundle, SessionPolicy, Verb
from cmbs.spi import AuditLog, EliminationProvenance, EliminationStore
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import (
    Call,
    FailingEliminationStore,
    FailingLog,
    FailingStore,
    History,
    ManualClock,
    Moment,
    SequentialIds,
    perform,
    play,
)
from cmbs.testing.strategies import belief as strategies

ONTOLOGY = OntologyBundle("space", "1", "graph://g", "1")
PROVENANCE = EliminationProvenance("source", "trigger")

# --- clock and ids ----------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-ENC-04")
def test_a_manual_clock_ticks_at_every_reading_and_moves_as_it_is_told() -> None:
    clock = ManualClock("2026-03-01T23:59:59.999999Z")
    assert [clock.now(), clock.now()] == ["2026-03-01T23:59:59.999999Z", "2026-03-02T00:00:00.000000Z"]
    clock.advance(timedelta(days=1, seconds=2))
    assert clock.now() == "2026-03-03T00:00:02.000001Z"
    clock.set("2020-02-29T12:00:00.500000+02:00")
    assert clock.now() == "2020-02-29T10:00:00.500000Z"


def test_a_clock_without_a_tick_stands_still() -> None:
    clock = ManualClock(tick=timedelta())
    assert clock.now() == clock.now() == "2026-01-01T00:00:00.000000Z"


def test_a_clock_refuses_what_would_turn_it_back_by_accident() -> None:
    with pytest.raises(ValueError, match="tick"):
        ManualClock(tick=timedelta(seconds=-1))
    with pytest.raises(ValueError, match="forward"):
        ManualClock().advance(timedelta(microseconds=-1))
    with pytest.raises(ValueError, match="no time zone"):
        ManualClock("2026-01-01T00:00:00")


def test_sequential_ids_are_uuids_in_order_the_same_in_every_run() -> None:
    ids = SequentialIds()
    first, second = ids.new_id(), ids.new_id()
    assert (first, second) == ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
    parsed = uuid.UUID(first)
    assert (str(parsed), parsed.version, parsed.variant) == (first, 4, uuid.RFC_4122)
    assert SequentialIds().new_id() == first
    assert SequentialIds(space=0xFFFFFFFF).new_id() == "ffffffff-0000-4000-8000-000000000001"
    with pytest.raises(ValueError, match="32 bits"):
        SequentialIds(space=1 << 32)


def test_threads_that_share_clock_and_ids_never_get_the_same_twice() -> None:
    clock, ids = ManualClock(), SequentialIds()
    seen: list[str] = []

    def read() -> None:
        for _ in range(200):
            seen.extend((ids.new_id(), clock.now()))

    threads = [Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == len(seen) == 4 * 400


# --- failing stores ---------------------------------------------------------------------------------------------------


def test_a_failing_store_is_exactly_the_kind_of_store_that_it_stands_for() -> None:
    inner = InMemoryStore()
    kinds = {
        type(store): (isinstance(store, EliminationStore), isinstance(store, AuditLog))
        for store in (FailingStore(inner), FailingEliminationStore(inner), FailingLog(inner))
    }
    assert kinds == {
        FailingStore: (True, True),
        FailingEliminationStore: (True, False),
        FailingLog: (False, True),
    }


def test_left_alone_it_does_what_the_store_within_does_and_keeps_count() -> None:
    inner = InMemoryStore()
    store = FailingStore(inner)
    store.create_session("s", frozenset("ab"))
    assert store.eliminate("s", {"a"}, PROVENANCE).applied == {"a"}
    assert (store.get_survivors("s"), store.get_eliminated("s")) == (frozenset("b"), frozenset("a"))
    assert store.recover("s") == inner.recover("s")
    server = BeliefServer(store=store)
    session_id, _ = server.declare_session(ONTOLOGY, ["a", "b"])
    assert store.head(session_id) == inner.head(session_id)
    assert store.read(session_id, -1, 5) == inner.read(session_id)
    assert store.sessions(None, 5) == inner.sessions(None, 5)
    assert store.blocking is inner.blocking
    with store.exclusive([session_id]):
        assert store.head(session_id) is not None
    store.close()
    assert store.calls[:5] == ["create_session", "eliminate", "get_survivors", "get_eliminated", "recover"]
    assert {"append", "exclusive", "close"} <= set(store.calls)


def test_a_call_that_fails_before_changes_nothing_and_one_that_fails_after_has_happened() -> None:
    for moment, eliminated in ((Moment.BEFORE, frozenset()), (Moment.AFTER, frozenset("a"))):
        store = FailingStore(InMemoryStore())
        store.create_session("s", frozenset("ab"))
        store.fail("eliminate", moment=moment)
        with pytest.raises(StoreUnavailable, match=moment):
            store.eliminate("s", {"a"}, PROVENANCE)
        assert store.get_eliminated("s") == eliminated
        assert store.eliminate("s", {"a"}, PROVENANCE).applied | eliminated == frozenset("a")


def test_the_call_that_was_chosen_fails_and_only_that() -> None:
    store = FailingStore(InMemoryStore())
    store.fail("head", call=3)
    store.fail(call=2, error=OSError("unplugged"))
    assert store.head("s") is None
    with pytest.raises(OSError, match="unplugged"):
        store.read("s")
    assert (store.head("s"), store.pending_faults) == (None, 1)
    with pytest.raises(StoreUnavailable):
        store.head("s")
    assert (store.head("s"), store.pending_faults) == (None, 0)


def test_faults_that_meet_in_one_call_strike_one_after_the_other() -> None:
    store = FailingStore(InMemoryStore())
    store.fail("head", error=OSError("first"))
    store.fail("head", error=OSError("second"))
    for word in ("first", "second"):
        with pytest.raises(OSError, match=word):
            store.head("s")
    assert store.head("s") is None


def test_a_healed_store_works_and_nonsense_is_refused() -> None:
    store = FailingStore(InMemoryStore())
    store.fail("append")
    store.heal()
    assert store.pending_faults == 0
    with pytest.raises(ValueError, match="no method `appendix`"):
        store.fail("appendix")
    with pytest.raises(ValueError, match="counted from 1"):
        store.fail("append", call=0)


def test_an_exclusive_block_can_fail_at_its_door_or_when_it_is_left() -> None:
    store = FailingLog(InMemoryStore())
    entered: list[Head | None] = []
    store.fail("exclusive")
    with pytest.raises(StoreUnavailable), store.exclusive(["s"]):
        entered.append(store.head("s"))
    assert entered == []
    store.fail("exclusive", moment=Moment.AFTER)
    with pytest.raises(StoreUnavailable), store.exclusive(["s"]):
        entered.append(store.head("s"))
    assert entered == [None]
    # Nothing stays locked behind.
    unlocked = Thread(target=lambda: store.inner.append([]), daemon=True)
    unlocked.start()
    unlocked.join(timeout=10)
    assert not unlocked.is_alive()


# --- histories and strategies -----------------------------------------------------------------------------------------


def test_an_error_of_the_protocol_is_an_answer_of_the_history() -> None:
    calls = [
        Call(Verb.REQUEST_EXIT, {"obligation_id": "o"}),
        Call(Verb.ENTER_OBLIGATION, {"obligation_id": "o", "min_total_eliminations": 0}),
        Call(Verb.REQUEST_EXIT, {"obligation_id": "o", "context": None}, "key"),
    ]
    server = BeliefServer(clock=ManualClock(), ids=SequentialIds())
    session_id, answers = play(server, History(ONTOLOGY, ["a"], None, SessionPolicy(), calls))
    missing, entered, left = answers
    assert isinstance(missing, BeliefServerError)
    assert not isinstance(entered, BeliefServerError)
    assert isinstance(left, ExitOutcome)
    assert left.approved
    assert perform(server, session_id, calls[2]) == left
    with pytest.raises(TypeError):
        perform(server, session_id, Call(Verb.REQUEST_EXIT, {"no such argument": 1}))


@given(strategies.hypotheses(), st.data())
def test_ids_are_text_that_can_be_written_down(universe: list[str], data: st.DataObject) -> None:
    assert len(set(universe)) == len(universe) >= 1
    assert all(each.encode().decode() == each for each in universe)
    call = data.draw(strategies.calls(universe))
    assert all(type(each) is str for each in call.arguments.get("eliminated", []))


@pytest.mark.deep
def test_histories_reach_errors_refusals_and_repeats() -> None:
    reached: set[str] = set()

    @settings(max_examples=200, derandomize=True, phases=[Phase.generate])
    @given(strategies.histories(min_calls=4))
    def collect(history: History) -> None:
        server = BeliefServer(clock=ManualClock(), ids=SequentialIds())
        for answer in play(server, history).answers:
            reached.add(answer.code if isinstance(answer, BeliefServerError) else getattr(answer, "reason", "done"))

    collect()
    assert {"done", "CONFLICT", "OBLIGATION_NOT_FOUND", "accepted", "not_singleton", "below_threshold"} <= reached
