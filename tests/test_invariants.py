"""The invariants of belief: monotone, idempotent, free of order, replayable; the same on every store, step by step."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.requests import Limits
from cmbs.belief.kernel.views import snapshot
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import BeliefServerError
from cmbs.ledger import from_audit_entry
from cmbs.messages import AuditEntry, EliminateOutcome, Verb
from cmbs.spi import EliminationStore, RecoveredState
from cmbs.testing import Call, History, declare, perform, play
from cmbs.testing.strategies import belief as strategies
from tests.support.in_process import client_of
from tests.support.store_fixture import NO_SUCH_SESSION, PLACES, StoreFixture, declared
from tests.support.transports import InPython, OverHTTP, Reply, Transport

Elimination = tuple[str, list[str]]


@pytest.fixture(scope="module", params=PLACES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BeliefServer]:
    """One server for all examples: every one declares a session of its own."""
    with StoreFixture.at(request.param, tmp_path_factory.mktemp("invariants")) as fixture:
        yield fixture.open()


@st.composite
def eliminations(draw: st.DrawFn) -> tuple[list[str], list[Elimination]]:
    """A universe and eliminations in it, each an observation of its own; some of their ids are unknown."""
    universe = draw(strategies.hypotheses())
    ids = st.lists(st.sampled_from(universe) | strategies.ids(3), max_size=5)
    return universe, [(str(number), each) for number, each in enumerate(draw(st.lists(ids, max_size=6)))]


def state_of(server: BeliefServer, session_id: str) -> Any:
    """All that a caller can find out about a session."""
    return (
        server.query_belief(session_id),
        server.obligations(session_id),
        server.survivors(session_id),
        server.stored_entries(session_id),
    )


def tombstones_of(server: BeliefServer, session_id: str) -> RecoveredState:
    """What the store says by itself, which under these servers is the log too."""
    assert isinstance(server.log, EliminationStore)
    return server.log.recover(session_id)


# --- the four laws ---


@pytest.mark.req("BS-4.1-MONO-01", "BS-1.1-MODEL-01", "BS-2.1-ELIM-04")
@given(history=strategies.histories())
def test_survivors_only_ever_become_fewer(server: BeliefServer, history: History) -> None:
    session_id = declare(server, history)
    before = server.query_belief(session_id)
    assert before.survivors == sorted(set(history.hypotheses))
    for call in history.calls:
        answer = perform(server, session_id, call)
        after = server.query_belief(session_id)
        assert {*after.survivors} <= {*before.survivors}
        assert after.terminated >= before.terminated
        if isinstance(answer, BeliefServerError) or call.verb is not Verb.ELIMINATE:
            assert after.survivors == before.survivors
        before = after


@pytest.mark.req("BS-4.1-IDEM-01", "ARCH-5-RULE-01")
@given(history=strategies.histories(min_calls=1), data=st.data())
def test_the_same_elimination_again_changes_nothing_and_says_the_same(
    server: BeliefServer, history: History, data: st.DataObject
) -> None:
    session_id, answers = play(server, history)
    done = [
        (call, answer)
        for call, answer in zip(history.calls, answers, strict=True)
        if isinstance(answer, EliminateOutcome)
    ]
    assume(done)
    before = state_of(server, session_id)
    for call, answer in done:
        assert perform(server, session_id, call) == answer
    # Whatever it is now justified by, it is the same observation.
    call, answer = data.draw(st.sampled_from(done))
    otherwise = {**call.arguments, "justification": {"another": "reason"}}
    assert perform(server, session_id, Call(call.verb, otherwise)) == answer
    assert state_of(server, session_id) == before


@pytest.mark.req("BS-4.1-ORDER-01")
@given(given_=eliminations(), data=st.data())
def test_eliminations_in_any_order_leave_the_same_survivors(
    server: BeliefServer, given_: tuple[list[str], list[Elimination]], data: st.DataObject
) -> None:
    universe, asked = given_
    results = []
    for order in (asked, data.draw(st.permutations(asked)), asked[::-1]):
        session_id = declared(server, data.draw(st.permutations(universe)))
        applied = [server.eliminate(session_id, "s", *each).applied_eliminated for each in order]
        gone = [hypothesis_id for each in applied for hypothesis_id in each]
        assert len(gone) == len(set(gone))
        results.append((server.query_belief(session_id).survivors, sorted(gone)))
    expected = {*universe}.difference(*(ids for _, ids in asked))
    assert results == [(sorted(expected), sorted({*universe} - expected))] * 3


@pytest.mark.req("BS-4.1-REPLAY-01", "BS-2.1-QUERY-01", "ARCH-2-02", "ARCH-2-05")
@given(history=strategies.histories())
def test_replaying_the_log_reproduces_the_session(server: BeliefServer, history: History) -> None:
    session_id = play(server, history).session_id
    live = server.query_belief(session_id)
    replayed = verify_session(session_id, server.log.read(session_id), server.log.head(session_id))
    assert snapshot(replayed) == live
    # By hand, from what any reader gets: the universe less every delta.
    trace = [AuditEntry.from_dict(entry.to_dict()) for entry in server.audit_trace(session_id)]
    survivors = {*trace[0].payload["hypotheses"]}
    for entry in trace:
        assert survivors.issuperset(entry.delta_eliminated)
        survivors -= {*entry.delta_eliminated}
    assert sorted(survivors) == live.survivors
    universe = frozenset(trace[0].payload["hypotheses"])
    elsewhere = BeliefServer()
    elsewhere.restore_session(session_id, RecoveredState(universe, universe - survivors, frozenset(survivors)), trace)
    assert state_of(elsewhere, session_id) == state_of(server, session_id)


# --- the same on every store ---


class Twins(RuleBasedStateMachine):
    """A memory and an SQLite server that are told the same, restarts included, must never be told apart.

    They have clocks and ids of their own that tick alike, so that even the bytes of their logs are equal. Beside them
    runs a model of survivors that is a plain set.
    """

    sessions: Bundle[str] = Bundle("sessions")
    MOST_SESSIONS = 3

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.homes = [StoreFixture(place, Path(self.directory.name)) for place in PLACES]
        self.servers = [fixture.open() for fixture in self.homes]
        self.survivors: dict[str, set[str]] = {}
        self.universes: dict[str, list[str]] = {}
        self.events: dict[str, set[str]] = {}
        self.last: dict[str, Call] = {}
        # Sessions that have not been compared since something happened to them.
        self.touched: set[str] = set()

    def teardown(self) -> None:
        try:
            self.touched.update(self.survivors)
            self.agree()
            for session_id in self.survivors:
                for server in self.servers:
                    log = server.log
                    proven = snapshot(verify_session(session_id, log.read(session_id), log.head(session_id)))
                    assert proven == server.query_belief(session_id)
        finally:
            for fixture in self.homes:
                fixture.close()
            self.directory.cleanup()

    def ask_both(self, act: Callable[[BeliefServer], Any]) -> Any:
        """The answer of both, which must be one; an error is an answer."""
        answers: list[Any] = []
        for server in self.servers:
            try:
                answers.append(act(server))
            except BeliefServerError as exc:
                answers.append(exc)
        first, second = (
            (type(each), each.message, each.details) if isinstance(each, BeliefServerError) else each
            for each in answers
        )
        assert first == second
        return answers[0]

    def perform_on_both(self, session_id: str, call: Call) -> Any:
        self.touched.add(session_id)
        answer = self.ask_both(lambda server: perform(server, session_id, call))
        if isinstance(answer, EliminateOutcome) and answer.audit_event_id not in self.events[session_id]:
            asked = {*call.arguments["eliminated"]}
            assert answer.applied_eliminated == sorted(asked & self.survivors[session_id])
            assert answer.ignored_eliminated == sorted(asked - self.survivors[session_id])
            self.survivors[session_id] -= asked
        if not isinstance(answer, BeliefServerError):
            self.events[session_id].add(answer.audit_event_id)
        return answer

    @rule(
        target=sessions,
        history=strategies.histories(max_calls=0),
        key=st.sampled_from([None, None, "key", "clé"]),
    )
    def declares(self, history: History, key: str | None) -> Any:
        if key is None and len(self.survivors) >= self.MOST_SESSIONS:
            return multiple()
        ontology, hypotheses, metadata, policy, _ = history
        answer = self.ask_both(
            lambda server: server.declare_session(ontology, hypotheses, metadata, policy=policy, idempotency_key=key)
        )
        if isinstance(answer, BeliefServerError) or answer.session_id in self.survivors:
            return multiple()
        session_id: str = answer.session_id
        self.touched.add(session_id)
        self.universes[session_id] = sorted(set(hypotheses))
        self.survivors[session_id] = {*hypotheses}
        self.events[session_id] = {str(answer.snapshot.audit_head_event_id)}
        return session_id

    @rule(session_id=sessions, data=st.data())
    def calls(self, session_id: str, data: st.DataObject) -> None:
        self.last[session_id] = data.draw(strategies.calls(self.universes[session_id]))
        self.perform_on_both(session_id, self.last[session_id])

    @rule(session_id=sessions)
    def calls_again(self, session_id: str) -> None:
        if session_id in self.last:
            self.perform_on_both(session_id, self.last[session_id])

    @rule(session_id=sessions, data=st.data(), fits=st.booleans())
    def expects_a_head(self, session_id: str, data: st.DataObject, fits: bool) -> None:
        heads = st.just(self.servers[0].query_belief(session_id).audit_head_event_id)
        head = data.draw(heads if fits else st.sampled_from([*sorted(self.events[session_id]), "unknown"]))
        call = data.draw(strategies.calls(self.universes[session_id]))
        self.perform_on_both(session_id, call._replace(arguments={**call.arguments, "if_match": head}))

    @rule(session_id=sessions, data=st.data())
    def reads(self, session_id: str, data: st.DataObject) -> None:
        seq = data.draw(st.integers(-1, 30))
        event_id = data.draw(st.sampled_from([*sorted(self.events[session_id]), "unknown"]))
        after = data.draw(st.none() | st.sampled_from(self.universes[session_id]) | strategies.ids(2))
        limit = data.draw(st.integers(0, 4))
        self.ask_both(lambda server: server.query_belief(session_id, at=seq))
        self.ask_both(lambda server: server.query_belief(session_id, at=event_id))
        self.ask_both(lambda server: server.audit_trace(session_id, event_id, limit=limit))
        self.ask_both(lambda server: server.survivors(session_id, after, limit, at=event_id))
        listed = self.ask_both(lambda server: server.list_sessions(limit=limit))
        if isinstance(listed, list) and listed:
            after_last = (listed[-1].created_ts, listed[-1].session_id)
            self.ask_both(lambda server: server.list_sessions(after_last, limit))

    @rule(data=st.data())
    def calls_an_unknown_session(self, data: st.DataObject) -> None:
        call = data.draw(strategies.calls(["a", "b"]))
        answer = self.ask_both(lambda server: perform(server, NO_SUCH_SESSION, call))
        assert answer.code == "SESSION_NOT_FOUND"

    @precondition(lambda self: self.survivors)
    @rule(cached_sessions=st.sampled_from([1, 2, 10_000]))
    def restarts(self, cached_sessions: int) -> None:
        for server in self.servers:
            server.close()
        self.servers = [fixture.open(limits=Limits(cached_sessions=cached_sessions)) for fixture in self.homes]
        self.touched.update(self.survivors)

    @invariant()
    def agree(self) -> None:
        while self.touched:
            session_id = self.touched.pop()
            survivors = self.survivors[session_id]
            belief, *_ = self.ask_both(partial(state_of, session_id=session_id))
            assert belief.survivors == sorted(survivors)
            tombstones = self.ask_both(partial(tombstones_of, session_id=session_id))
            assert tombstones.survivors == survivors
        assert len(self.ask_both(lambda server: server.list_sessions())) == len(self.survivors)


@pytest.mark.req("BS-4.1-EQUIV-01", "BS-5.1-STORE-01", "ARCH-4-04")
def test_memory_and_sqlite_cannot_be_told_apart() -> None:
    run_state_machine_as_test(Twins, settings=settings(stateful_step_count=20))


# --- over HTTP ---

# What a header can carry of the keys that histories use.
_KEYS = {None: None, "": "first", "key": "second", "clé": "third"}


@contextmanager
def over_http(place: str) -> Iterator[tuple[Transport, BeliefServer]]:
    """A server behind HTTP, and one like it that is not, with clocks and ids that tick alike."""
    with ExitStack() as open_things:
        directory = open_things.enter_context(tempfile.TemporaryDirectory())
        behind, beside = (
            open_things.enter_context(StoreFixture.at(each, Path(directory))) for each in (place, "memory")
        )
        client = open_things.enter_context(client_of(create_app(behind.open())))
        yield OverHTTP(client.request), beside.open()


def ask_over(say: Transport, session_id: str, call: Call) -> Reply:
    """One call; an idempotency key or none."""
    key = _KEYS[call.idempotency_key]
    return say(call.verb, session_id, **call.arguments, **({} if key is None else {"idempotency_key": key}))


@pytest.mark.req("BS-4.1-HTTP-01", "BS-4.1-EQUIV-01")
@given(history=strategies.histories(max_calls=8))
def test_the_laws_hold_over_http_and_it_says_what_a_server_beside_it_says(history: History) -> None:
    with over_http("sqlite") as (say, beside):
        in_python = InPython(beside)
        message: dict[str, Any] = {
            "ontology": history.ontology.to_dict(),
            "hypotheses": history.hypotheses,
            "metadata": history.metadata,
        }
        opened, twin = (
            each("DECLARE_SESSION", **message, policy=msgspec.to_builtins(history.policy)) for each in (say, in_python)
        )
        assert opened == twin
        session_id, survivors = opened["session_id"], {*history.hypotheses}
        done: list[tuple[Call, Reply]] = []
        for call in history.calls:
            reply = ask_over(say, session_id, call)
            assert reply == ask_over(in_python, session_id, call)
            if call.verb is Verb.ELIMINATE and "error" not in reply:
                done.append((call, reply))
            belief = say("QUERY_BELIEF", session_id)
            assert survivors.issuperset(belief["survivors"])
            survivors = {*belief["survivors"]}
        before = say("QUERY_BELIEF", session_id), say("AUDIT_TRACE", session_id)
        for call, reply in done:
            assert ask_over(say, session_id, call) == reply
        assert (say("QUERY_BELIEF", session_id), say("AUDIT_TRACE", session_id)) == before
        trace = [AuditEntry.from_dict(event) for event in before[1]["events"]]
        assert [from_audit_entry(entry) for entry in trace] == beside.stored_entries(session_id)
        replayed = verify_session(session_id, [from_audit_entry(entry) for entry in trace])
        assert snapshot(replayed).to_dict() == before[0]
