"""The rules of belief, verb by verb: what each decides, records and changes. No server, no store, no clock."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cmbs.belief.kernel.events import Event, Message, Repeat, read_event
from cmbs.belief.kernel.session import evolve
from cmbs.belief.kernel.survivors import Survivors, Universe, commitment
from cmbs.belief.kernel.views import obligations, snapshot
from cmbs.errors import Conflict, InvalidHypothesisId, ObligationNotFound, SessionTerminated
from cmbs.ledger import GENESIS, hash_entry, to_audit_entry
from cmbs.messages import AuditEntry, ObligationState, ProviderRef, Reason, SessionPolicy, Verb
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line, describe
from tests.support.subtests import for_each


def record_of(decided: Event | Repeat) -> AuditEntry:
    assert isinstance(decided, Event)
    return to_audit_entry(decided.stored)


def outcome(decided: Event | Repeat) -> dict[str, Any] | None:
    return record_of(decided).outcome


def enter(line: Line, obligation_id: str, threshold: int) -> Event | Repeat:
    return line.tell(VALIDATOR.enter_obligation(obligation_id, threshold))


def leave(line: Line, obligation_id: str, context: Any = None) -> Event | Repeat:
    return line.tell(VALIDATOR.request_exit(obligation_id, context))


def conclude(line: Line, conclusion_id: str) -> Event | Repeat:
    return line.tell(VALIDATOR.declare_conclusion(conclusion_id, None))


def terminate(line: Line, context: Any = None) -> Event | Repeat:
    return line.tell(VALIDATOR.request_termination(context))


def survivors(line: Line) -> list[str]:
    return list(line.session.survivors)


# --- DECLARE_SESSION --------------------------------------------------------------------------------------------------


@pytest.mark.req("BS-2.1-DECLARE-01", "BS-2.1-DECLARE-02", "LED-3-SURV-05")
def test_a_declaration_is_the_first_entry_and_commits_to_the_sorted_universe() -> None:
    line = Line.over("b", "a", "b", "c")
    entry = to_audit_entry(line.log[0])
    universe = Universe.of(["a", "b", "c"])
    assert survivors(line) == ["a", "b", "c"]
    assert (entry.verb, entry.seq, entry.prev_event_hash) == (Verb.DECLARE_SESSION, 0, GENESIS.hex())
    assert entry.payload["hypotheses"] == ["a", "b", "c"]
    assert entry.outcome == {"universe_root": universe.compute_root().hex(), "universe_size": 3}
    survivors_hash = commitment("session", GENESIS, Survivors.all_of(universe).root)
    assert entry.survivors_before_hash == entry.survivors_after_hash == survivors_hash
    assert entry.delta == {"eliminated": []}


@pytest.mark.req("BS-2.1-DECLARE-04", "BS-2.1-DECLARE-05", "BS-1.1-MODEL-02")
def test_metadata_policy_ontology_and_provider_are_recorded_as_given() -> None:
    # Opaque: what looks like a request is none.
    metadata = {"ticket": ["INC-1", 2, None], "é": 0.5, "force": True, "hypotheses": ["z"]}
    policy = SessionPolicy(allow_force=True, stability_window=3, validate_hypotheses=True)
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a"], metadata, policy, ProviderRef("p", "2")))
    entry = to_audit_entry(line.log[0])
    assert entry.payload == {
        "ontology": ONTOLOGY.to_dict(),
        "hypotheses": ["a"],
        "metadata": metadata,
        "policy": {"allow_force": True, "stability_window": 3, "validate_hypotheses": True},
        "provider": {"id": "p", "version": "2"},
    }
    assert (line.session.policy, line.session.ontology) == (policy, ONTOLOGY)
    assert line.session.provider == ProviderRef("p", "2")
    assert survivors(line) == ["a"]


def test_a_session_cannot_be_declared_twice() -> None:
    line = Line.over("a")
    with pytest.raises(Conflict, match="declared before"):
        line.decide(VALIDATOR.declare(ONTOLOGY, ["a"], None, SessionPolicy(), None))


def test_the_first_event_must_declare() -> None:
    line = Line.over("a", "b")
    elimination = line.eliminate("1", "a")
    assert isinstance(elimination, Event)
    with pytest.raises(TypeError, match="the first event declares the session, not ELIMINATE"):
        evolve(None, elimination)


def test_an_event_read_back_from_its_bytes_gives_the_same_state() -> None:
    line = Line.over("b", "a")
    line.eliminate("1", "a")
    declaration, elimination = map(read_event, line.log)
    assert (declaration.survivors, elimination.survivors) == (None, None)
    state = evolve(None, declaration)
    assert describe(state) == describe(line.states[0])
    assert describe(evolve(state, elimination)) == describe(line.session)
    with pytest.raises(TypeError, match="declared once"):
        evolve(state, declaration)


# --- ELIMINATE --------------------------------------------------------------------------------------------------------


@pytest.mark.req("BS-2.1-ELIM-01", "BS-2.1-ELIM-02", "BS-2.1-ELIM-03", "BS-2.1-ELIM-06", "ARCH-5-RULE-04")
def test_an_elimination_takes_out_what_survives_and_ignores_the_rest() -> None:
    line = Line.over("a", "b", "c", "d")
    line.eliminate("1", "b")
    entry = record_of(line.eliminate("2", "d", "zz", "b", "a", "d"))
    assert survivors(line) == ["c"]
    assert entry.payload["eliminated"] == ["a", "b", "d", "zz"]
    assert entry.delta == {"eliminated": ["a", "d"]}
    assert entry.outcome is None
    (_, first), (_, second) = line.session.observations
    assert (first.applied, first.ignored) == (("b",), ())
    assert (second.applied, second.ignored, second.seq) == (("a", "d"), ("b", "zz"), 2)
    assert line.session.events.at(second.seq) == (entry.event_id, None)


@pytest.mark.req("LED-3-SURV-01")
def test_the_survivor_hashes_are_those_before_and_after_under_the_previous_event() -> None:
    line = Line.over("a", "b", "c")
    entry = record_of(line.eliminate("1", "b"))
    previous = hash_entry(line.log[0].raw)
    whole = Survivors.all_of(Universe.of(["a", "b", "c"]))
    assert entry.prev_event_hash == previous.hex()
    assert entry.survivors_before_hash == commitment("session", previous, whole.root)
    assert entry.survivors_after_hash == commitment("session", previous, whole.eliminate(["b"]).root)


@pytest.mark.req("BS-2.1-ELIM-07")
@pytest.mark.parametrize("ids", [(), ("zz",), ("a",)], ids=["nothing", "unknown", "gone"])
def test_an_elimination_of_nothing_new_is_recorded_and_changes_no_survivor(ids: tuple[str, ...]) -> None:
    line = Line.over("a", "b", "c")
    line.eliminate("1", "a")
    entry = record_of(line.eliminate("2", *ids))
    assert survivors(line) == ["b", "c"]
    assert entry.delta == {"eliminated": []}
    assert entry.survivors_after_hash == entry.survivors_before_hash
    assert line.session.head.seq == 2


@pytest.mark.req("BS-2.1-ELIM-08")
def test_the_last_hypothesis_can_be_eliminated_too() -> None:
    line = Line.over("a", "b")
    line.eliminate("1", "a", "b")
    assert record_of(line.eliminate("2", "a")).delta == {"eliminated": []}
    assert survivors(line) == []
    belief = snapshot(line.session)
    assert (belief.n_survivors, belief.entropy_proxy, belief.terminated) == (0, 0.0, False)
    assert outcome(terminate(line)) == {"approved": False, "reason": Reason.NOT_SINGLETON}


@pytest.mark.req("BS-2.1-ELIM-05")
@pytest.mark.parametrize("justification", [None, {}, {"why": ["x", 0.25, {"é": None}]}])
def test_a_justification_is_kept_as_given_or_as_absent(justification: Any) -> None:
    line = Line.over("a", "b")
    entry = record_of(line.tell(VALIDATOR.eliminate("source", "1", ["a"], justification)))
    assert entry.payload["justification"] == justification


@pytest.mark.req("BS-3.2-ERR-04")
def test_where_ids_are_validated_an_unknown_one_refuses_the_whole_message() -> None:
    line = Line.over("a", "b", validate_hypotheses=True)
    with pytest.raises(InvalidHypothesisId) as refused:
        line.decide(VALIDATOR.eliminate("source", "1", ["a", "zz", "yy"], None))
    assert refused.value.details | {"unknown": ["yy", "zz"]} == refused.value.details
    assert survivors(line) == ["a", "b"]
    # Gone is not unknown, and the key of the refused message is still free.
    line.eliminate("1", "a")
    line.eliminate("2", "a")
    assert survivors(line) == ["b"]


def test_a_probe_is_recorded_with_the_elimination_that_it_led_to() -> None:
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b"], None, SessionPolicy(), ProviderRef("p", "1")))
    message = VALIDATOR.eliminate("provider", "probe", ["a"], None, VALIDATOR.probe("probe", {"answer": [1, "no"]}))
    entry = record_of(line.tell(message))
    assert entry.payload["probe"] == {"probe_id": "probe", "response": {"answer": [1, "no"]}}
    assert survivors(line) == ["b"]


# --- ENTER_OBLIGATION and REQUEST_EXIT --------------------------------------------------------------------------------


@pytest.mark.req("BS-2.1-ENTER-01")
def test_entering_records_and_shows_the_obligation() -> None:
    line = Line.over("a", "b")
    entry = record_of(enter(line, "o", 2))
    assert (entry.verb, entry.payload) == (
        Verb.ENTER_OBLIGATION,
        {"obligation_id": "o", "min_total_eliminations": 2},
    )
    assert (entry.outcome, entry.delta) == (None, {"eliminated": []})
    assert snapshot(line.session).active_obligation_id == "o"


@pytest.mark.req("BS-2.1-ENTER-02", "BS-2.1-EXIT-06", "BS-2.2-SNAP-06")
def test_the_newest_obligation_that_is_still_open_is_the_active_one() -> None:
    line = Line.over("a", "b", "c", "d", "e")
    shown = [snapshot(line.session).active_obligation_id]
    for obligation_id in ("first", "second", "third"):
        enter(line, obligation_id, 0)
        shown.append(snapshot(line.session).active_obligation_id)
    for obligation_id in ("second", "third", "first"):
        leave(line, obligation_id)
        shown.append(snapshot(line.session).active_obligation_id)
    assert shown == [None, "first", "second", "third", "third", "first", None]
    # Seen from the end, every place in the log shows what was open right after it.
    assert [snapshot(line.session, seq).active_obligation_id for seq in range(7)] == shown
    assert [view[:2] for view in obligations(line.session)] == [
        ("first", ObligationState.EXITED),
        ("second", ObligationState.EXITED),
        ("third", ObligationState.EXITED),
    ]


@pytest.mark.req("BS-2.1-ENTER-03")
def test_an_obligation_is_entered_once_also_after_its_exit() -> None:
    line = Line.over("a", "b")
    enter(line, "o", 0)
    for _ in range(2):
        with pytest.raises(Conflict, match="obligation `o` was entered before"):
            line.decide(VALIDATOR.enter_obligation("o", 5))
        leave(line, "o")
    assert [view.min_total_eliminations for view in obligations(line.session)] == [0]


@pytest.mark.req("BS-2.1-EXIT-01", "BS-2.1-EXIT-02", "ARCH-2-05")
def test_an_exit_waits_for_the_threshold_and_every_refusal_is_recorded() -> None:
    line = Line.over("a", "b", "c", "d")
    enter(line, "o", 2)
    answers = [outcome(leave(line, "o"))]
    line.eliminate("1", "a")
    answers.append(outcome(leave(line, "o", {"asked": "again"})))
    line.eliminate("2", "b")
    answers.append(outcome(leave(line, "o")))
    assert answers == [
        {"approved": False, "reason": Reason.BELOW_THRESHOLD},
        {"approved": False, "reason": Reason.BELOW_THRESHOLD},
        {"approved": True, "reason": Reason.APPROVED},
    ]
    assert [to_audit_entry(stored).verb for stored in line.log].count(Verb.REQUEST_EXIT) == 3


@pytest.mark.req("BS-2.1-EXIT-03", "BS-2.2-SNAP-06")
def test_only_what_is_newly_eliminated_between_entry_and_exit_counts() -> None:
    line = Line.over("a", "b", "c", "d", "e", "f")
    line.eliminate("before", "a")
    enter(line, "early", 2)
    line.eliminate("ignored", "a", "zz")
    line.eliminate("counts", "b")
    line.eliminate("counts", "b")
    enter(line, "late", 1)
    assert outcome(leave(line, "early")) == {"approved": False, "reason": Reason.BELOW_THRESHOLD}
    assert outcome(leave(line, "late")) == {"approved": False, "reason": Reason.BELOW_THRESHOLD}
    line.eliminate("both", "c", "d")
    leave(line, "early")
    line.eliminate("after", "e")
    assert obligations(line.session) == [
        ("early", ObligationState.EXITED, 2, 3),
        ("late", ObligationState.ACTIVE, 1, 3),
    ]


@pytest.mark.req("BS-2.1-EXIT-04")
def test_leaving_an_obligation_that_was_never_entered_is_an_error() -> None:
    line = Line.over("a")
    with pytest.raises(ObligationNotFound, match="no obligation `o`"):
        line.decide(VALIDATOR.request_exit("o", None))


@pytest.mark.req("BS-2.1-EXIT-05", "BS-2.1-EXIT-07")
def test_an_obligation_without_a_threshold_is_left_at_once_and_only_once() -> None:
    line = Line.over("a")
    enter(line, "o", 0)
    assert outcome(leave(line, "o")) == {"approved": True, "reason": Reason.APPROVED}
    assert outcome(leave(line, "o")) == {"approved": False, "reason": Reason.OBLIGATION_NOT_ACTIVE}
    assert obligations(line.session) == [("o", ObligationState.EXITED, 0, 0)]


# --- DECLARE_CONCLUSION -----------------------------------------------------------------------------------------------


@pytest.mark.req("BS-2.1-CONCL-01", "BS-2.1-CONCL-02", "BS-2.1-CONCL-03")
def test_a_conclusion_counts_only_while_no_obligation_is_open() -> None:
    line = Line.over("a", "b")
    answers = [outcome(conclude(line, "x"))]
    enter(line, "o", 0)
    enter(line, "p", 0)
    answers.append(outcome(conclude(line, "y")))
    leave(line, "p")
    answers.append(outcome(conclude(line, "y")))
    leave(line, "o")
    answers.append(outcome(conclude(line, "z")))
    assert answers == [
        {"accepted": True, "reason": Reason.ACCEPTED},
        {"accepted": False, "reason": Reason.OBLIGATION_ACTIVE},
        {"accepted": False, "reason": Reason.OBLIGATION_ACTIVE},
        {"accepted": True, "reason": Reason.ACCEPTED},
    ]
    assert [conclusion_id for _, conclusion_id in line.session.conclusions] == ["x", "z"]


# --- REQUEST_TERMINATION ----------------------------------------------------------------------------------------------


@pytest.mark.req("BS-2.1-TERM-01", "BS-2.1-TERM-02", "BS-2.1-TERM-03", "BS-2.1-TERM-07")
def test_termination_needs_a_single_survivor_and_no_open_obligation() -> None:
    line = Line.over("a", "b")
    enter(line, "o", 0)
    answers = [outcome(terminate(line))]
    leave(line, "o")
    answers.append(outcome(terminate(line)))
    line.eliminate("1", "a")
    assert not snapshot(line.session).terminated
    answers.append(outcome(terminate(line, {"who": "me"})))
    assert answers == [
        {"approved": False, "reason": "obligation_active"},
        {"approved": False, "reason": "not_singleton"},
        {"approved": True, "reason": "approved"},
    ]
    assert snapshot(line.session).terminated


@pytest.mark.req("BS-2.1-TERM-04")
def test_conclusions_must_be_stable_over_the_window_of_the_session() -> None:
    line = Line.over("a", stability_window=2)
    answers = [outcome(terminate(line))]
    for conclusion_id in ("x", "y", "x"):
        conclude(line, conclusion_id)
        answers.append(outcome(terminate(line)))
    # A refused conclusion does not count.
    enter(line, "o", 0)
    conclude(line, "x")
    leave(line, "o")
    answers.append(outcome(terminate(line)))
    conclude(line, "x")
    answers.append(outcome(terminate(line)))
    assert [answer and answer["reason"] for answer in answers] == [Reason.CONCLUSION_UNSTABLE] * 5 + [Reason.APPROVED]


@pytest.mark.req("BS-2.1-TERM-05", "BS-2.1-TERM-06", "LED-3-ENC-06")
@for_each("allowed", [False, True])
@for_each("obstacle", ["obligation_active", "not_singleton", "conclusion_unstable"])
def test_force_ends_the_session_where_it_is_allowed_and_is_noted_where_it_is_not(obstacle: str, allowed: bool) -> None:
    line = Line.over("a", "b", stability_window=1, allow_force=allowed)
    if obstacle == "obligation_active":
        enter(line, "o", 0)
    elif obstacle == "conclusion_unstable":
        line.eliminate("1", "a")
    plain, forced = record_of(terminate(line)), record_of(terminate(line, {"force": True}))
    assert plain.outcome == {"approved": False, "reason": obstacle}
    assert (plain.notes, "notes" in plain.to_dict()) == (None, False)
    if allowed:
        assert (forced.outcome, forced.notes) == ({"approved": True, "reason": "forced"}, None)
        assert line.session.terminated_seq == forced.seq
    else:
        assert forced.outcome == plain.outcome
        assert forced.notes == "force was asked for and the policy of this session does not allow it"
        assert line.session.terminated_seq is None


def test_force_that_is_not_needed_is_not_mentioned() -> None:
    for allowed in (True, False):
        line = Line.over("a", allow_force=allowed)
        entry = record_of(terminate(line, {"force": True}))
        assert (entry.outcome, entry.notes) == ({"approved": True, "reason": "approved"}, None)


@for_each(
    "context", [None, {}, {"force": False}, {"force": 1}, {"force": "true"}, {"FORCE": True}, {"a": {"force": True}}]
)
def test_only_the_word_true_under_force_asks_for_force(context: Any) -> None:
    line = Line.over("a", "b", allow_force=True)
    assert outcome(terminate(line, context)) == {"approved": False, "reason": Reason.NOT_SINGLETON}


@pytest.mark.req("BS-3.2-ERR-03")
def test_a_terminated_session_takes_no_message_any_more() -> None:
    line = Line.over("a", "b")
    enter(line, "o", 0)
    leave(line, "o")
    line.eliminate("1", "a")
    terminate(line)
    messages: list[Message] = [
        VALIDATOR.eliminate("source", "2", ["b"], None),
        VALIDATOR.enter_obligation("p", 0),
        VALIDATOR.request_exit("o", None),
        VALIDATOR.request_exit("unknown", None),
        VALIDATOR.declare_conclusion("x", None),
        VALIDATOR.request_termination({"force": True}),
    ]
    for message in messages:
        with pytest.raises(SessionTerminated):
            line.decide(message)
    assert survivors(line) == ["b"]


# --- the entry --------------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-ENC-01", "LED-3-ENC-02", "LED-3-ENC-03", "LED-3-ENC-06")
def test_the_bytes_of_an_entry_are_canonical_and_hold_everything_that_is_hashed() -> None:
    line = Line.over("a", "b")
    for key in (None, "key"):
        decided = line.eliminate(f"with {key}", "a", key=key)
        assert isinstance(decided, Event)
        raw, event_hash = decided.stored.raw, decided.stored.event_hash
        content = json.loads(raw)
        assert list(content) == sorted(content)
        assert raw == json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
        assert event_hash == hash_entry(raw)
        optional = set() if key is None else {"idempotency_key"}
        assert set(content) == optional | {
            *("delta", "event_id", "format", "outcome", "payload", "prev_event_hash", "seq", "stream_id"),
            *("survivors_after_hash", "survivors_before_hash", "ts", "verb"),
        }
        assert msgspec.json.decode(raw) == content
