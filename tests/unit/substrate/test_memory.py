"""Memory: what is confirmed, what it may be kept as, and that nothing becomes a fact without new evidence."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from cmbs.errors import BeliefServerError, InvalidRequest, LimitExceeded
from cmbs.ledger.instants import LAST, later
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel import memory
from cmbs.substrate.kernel.events import ConflictState, DisputeMemory, Evidence, MemoryKind, PromoteMemory, PutMemory
from cmbs.substrate.kernel.memory import UNCONFIRMED_KINDS, MemoryReason, evidence_of
from cmbs.substrate.kernel.state import MemoryEntry
from tests.support.subtests import for_each

AGENT = Actor(ActorKind.AGENT, "scout")
START = "2026-01-01T00:00:00.000000Z"
THRESHOLD = 800
WEAK = Evidence(["c1"], 300)
STRONG = Evidence(["c1"], 900)
EVENT = Evidence(confirmed_by_event_id="e1", confirmed_in_session_id="s1")


class Notebook:
    """The memory of one space, lived step by step as a space would: decide, then keep."""

    def __init__(self, threshold: int | None = THRESHOLD) -> None:
        self.entries: Map[str, MemoryEntry] = Map()
        self.claims: Map[bytes, frozenset[str]] = Map()
        self.threshold = threshold
        self.seq = 0
        self.now = START

    def settle(self, outcome: MemoryEntry | MemoryReason) -> MemoryEntry | MemoryReason:
        self.seq += 1
        if isinstance(outcome, MemoryEntry):
            self.entries, self.claims = memory.keep(self.entries, self.claims, outcome)
        return outcome

    def put(
        self, entry_id: str, kind: MemoryKind, evidence: Evidence = WEAK, claim: bytes = b'"rain"', **more: Any
    ) -> MemoryEntry | MemoryReason:
        known = evidence.confirmed_by_event_id is not None
        fields: dict[str, Any] = {"ttl_ms": 1_000, "confirming_event_found": known} | more
        message = PutMemory(entry_id, kind, msgspec.Raw(claim), evidence, **fields)
        return self.settle(memory.put(self.entries, self.claims, message, AGENT, self.seq, self.now, self.threshold))

    def promote(
        self, entry_id: str, kind: MemoryKind, evidence: Evidence, *, found: bool = True
    ) -> MemoryEntry | MemoryReason:
        message = PromoteMemory(entry_id, kind, evidence, found)
        return self.settle(memory.promote(self.entries, message, self.seq, self.now, self.threshold))

    def dispute(self, entry_id: str, conflict_state: ConflictState, actor: Actor = AGENT) -> MemoryEntry | MemoryReason:
        message = DisputeMemory(entry_id, conflict_state)
        return self.settle(memory.dispute(self.entries, message, actor, self.seq, self.now, self.threshold))

    def expire(self, entry_id: str) -> MemoryEntry | MemoryReason:
        return self.settle(memory.expire(self.entries, entry_id, self.seq, self.now))

    def set_threshold(self, threshold: int | None) -> list[MemoryEntry]:
        self.threshold = threshold
        changed = list(memory.judge_again(self.entries.values(), self.seq, self.now, threshold))
        for entry in changed:
            self.settle(entry)
        return changed


def require_entry(outcome: MemoryEntry | MemoryReason) -> MemoryEntry:
    assert isinstance(outcome, MemoryEntry), outcome
    return outcome


Step: TypeAlias = tuple[str, tuple[Any, ...]]


def live(notebook: Notebook, step: Step) -> Any:
    name, arguments = step
    if name == "pass":
        notebook.now = later(notebook.now, *arguments)
        return None
    return getattr(notebook, name)(*arguments)


# --- confirmed exactly as §4.1 says -----------------------------------------------------------------------------------

EVIDENCE = st.builds(
    Evidence,
    st.lists(st.sampled_from(["c1", "c2", "c3"]), max_size=3, unique=True).map(sorted),
    st.sampled_from([0, 300, 799, 800, 801, 1_000]),
    st.sampled_from([None, None, "e1", "e2"]),
)
THRESHOLDS = st.sampled_from([None, 0, 300, 800, 1_000])


@pytest.mark.req("SS01-MEM-01")
@given(EVIDENCE, st.sampled_from(ConflictState), THRESHOLDS)
def test_a_claim_is_confirmed_by_an_event_or_by_sources_confidence_and_the_absence_of_contradiction(
    evidence: Evidence, conflict_state: ConflictState, threshold: int | None
) -> None:
    by_event = evidence.confirmed_by_event_id is not None
    has_sources = len(evidence.source_chunk_ids) > 0
    meets_threshold = threshold is not None and evidence.confidence_milli >= threshold
    contradictory = conflict_state == "contradictory"
    expected = by_event or (has_sources and meets_threshold and not contradictory)
    assert memory.is_confirmed(evidence, conflict_state, threshold) is expected


# --- putting ----------------------------------------------------------------------------------------------------------


GUESS: Step = ("put", ("m", MemoryKind.HYPOTHESIS))
END: Step = ("pass", (1_000,))
CONTRADICT: Step = ("dispute", ("m", ConflictState.CONTRADICTORY))
NEW = Evidence(["c2"], 900)


def putting(kind: MemoryKind, evidence: Evidence = STRONG) -> Step:
    return "put", ("m", kind, evidence)


def promoting(evidence: Evidence, kind: MemoryKind = MemoryKind.FACT) -> Step:
    return "promote", ("m", kind, evidence)


@pytest.mark.req("SS01-MEM-02", "SS01-MEM-03", "SS01-MEM-04")
@for_each(
    ("history", "step", "reason"),
    [
        *(([], putting(kind, WEAK), "CLAIM_UNCONFIRMED") for kind in sorted(set(MemoryKind) - UNCONFIRMED_KINDS)),
        # An entry id is used once, even after its entry expired.
        ([GUESS, END, ("expire", ("m",))], putting(MemoryKind.FACT), "MEMORY_EXISTS"),
        # More confidence in the same sources is no new evidence.
        *(([GUESS], promoting(Evidence(["c1"], milli)), "NO_NEW_EVIDENCE") for milli in (300, 900, 1_000)),
        # New evidence that does not confirm promotes nothing.
        ([GUESS], promoting(Evidence(["c2"], 799)), "CLAIM_UNCONFIRMED"),
        ([GUESS, CONTRADICT], promoting(Evidence(["c2"], 1_000)), "CLAIM_UNCONFIRMED"),
        # Only a guess is promoted, and only to more than a guess.
        ([putting(MemoryKind.FACT)], promoting(NEW, MemoryKind.DECISION), "NOT_A_PROMOTION"),
        ([putting(MemoryKind.FACT)], promoting(NEW, MemoryKind.HYPOTHESIS), "NOT_A_PROMOTION"),
        ([putting(MemoryKind.HYPOTHESIS)], promoting(NEW, MemoryKind.DERIVED), "NOT_A_PROMOTION"),
        ([putting(MemoryKind.DERIVED)], promoting(NEW, MemoryKind.DERIVED), "NOT_A_PROMOTION"),
        # What is not there, or past its end, cannot be changed, whether or not its expiry was recorded.
        *(([], step, "MEMORY_UNKNOWN") for step in (promoting(STRONG), CONTRADICT, ("expire", ("m",)))),
        *(([GUESS, END], step, "MEMORY_EXPIRED") for step in (promoting(NEW), CONTRADICT)),
        *(
            ([GUESS, END, ("expire", ("m",)), ("pass", (-1_000,))], step, "MEMORY_EXPIRED")
            for step in (promoting(NEW), CONTRADICT)
        ),
    ],
)
def test_what_is_refused_has_its_reason_and_changes_nothing(history: list[Step], step: Step, reason: str) -> None:
    notebook = Notebook()
    for each in history:
        live(notebook, each)
    before = notebook.entries
    assert live(notebook, step) is MemoryReason[reason]
    assert notebook.entries == before


@pytest.mark.req("SS01-MEM-02")
@pytest.mark.parametrize("kind", sorted(UNCONFIRMED_KINDS))
def test_a_guess_needs_an_end_or_a_review(kind: MemoryKind) -> None:
    notebook = Notebook()
    assert notebook.put("m", kind, WEAK, ttl_ms=None) is MemoryReason.REVIEW_REQUIRED
    assert require_entry(notebook.put("ends", kind, WEAK)).expires_at == later(START, 1_000)
    reviewed = require_entry(notebook.put("reviewed", kind, WEAK, ttl_ms=None, review_at=LAST))
    assert (reviewed.expires_at, reviewed.review_at, reviewed.confirmed) == (None, LAST, False)


@for_each("kind", list(MemoryKind))
def test_a_confirmed_claim_is_kept_as_what_it_is_put(kind: MemoryKind) -> None:
    entry = require_entry(Notebook().put("m", kind, STRONG, ttl_ms=None))
    assert (entry.kind, entry.confirmed, entry.expires_at) == (kind, True, None)
    assert (entry.author, entry.seq, entry.changed_seq, entry.ts) == (AGENT, 0, 0, START)


@pytest.mark.req("SS01-MEM-05")
def test_a_confirming_event_must_exist() -> None:
    notebook = Notebook()
    refused = notebook.put("m", MemoryKind.FACT, EVENT, confirming_event_found=False)
    assert refused is MemoryReason.CONFIRMING_EVENT_UNKNOWN
    assert require_entry(notebook.put("m", MemoryKind.FACT, EVENT)).confirmed
    notebook.put("h", MemoryKind.HYPOTHESIS, claim=b'"snow"')
    promoted = notebook.promote("h", MemoryKind.FACT, EVENT, found=False)
    assert promoted is MemoryReason.CONFIRMING_EVENT_UNKNOWN


@pytest.mark.req("SS01-MEM-03")
def test_the_same_claim_under_another_id_is_no_way_round_a_promotion() -> None:
    notebook = Notebook()
    notebook.put("h", MemoryKind.HYPOTHESIS, WEAK)
    assert notebook.put("f", MemoryKind.FACT, STRONG) is MemoryReason.NO_NEW_EVIDENCE
    assert require_entry(notebook.put("f", MemoryKind.FACT, Evidence(["c1", "c2"], 900))).confirmed
    assert require_entry(notebook.put("other", MemoryKind.FACT, STRONG, claim=b'"snow"')).confirmed


def test_a_claim_that_already_is_a_fact_may_be_put_again_by_another_agent() -> None:
    notebook = Notebook()
    notebook.put("first", MemoryKind.FACT, STRONG)
    assert require_entry(notebook.put("second", MemoryKind.FACT, STRONG)).confirmed


# --- promotion --------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-MEM-03")
def test_a_promotion_adds_its_evidence_and_takes_end_and_review_away() -> None:
    notebook = Notebook()
    notebook.put("m", MemoryKind.DERIVED, WEAK, review_at=LAST)
    entry = require_entry(notebook.promote("m", MemoryKind.DECISION, Evidence(["c2"], 850)))
    assert entry.evidence == Evidence(["c1", "c2"], 850)
    assert (entry.kind, entry.confirmed, entry.expires_at, entry.review_at) == (MemoryKind.DECISION, True, None, None)
    assert (entry.seq, entry.changed_seq) == (0, 1)
    assert entry.seen_evidence == evidence_of(Evidence(["c1", "c2"]))


@pytest.mark.req("SS01-MEM-05")
def test_a_conclusion_of_the_belief_plane_promotes_without_any_confidence() -> None:
    notebook = Notebook(threshold=None)
    notebook.put("m", MemoryKind.HYPOTHESIS, WEAK)
    entry = require_entry(notebook.promote("m", MemoryKind.FACT, EVENT))
    assert entry.evidence == Evidence(["c1"], 0, "e1", "s1")


def test_the_same_event_id_in_another_session_is_other_evidence() -> None:
    notebook = Notebook()
    notebook.put("m", MemoryKind.HYPOTHESIS, EVENT)
    assert notebook.promote("m", MemoryKind.FACT, EVENT) is MemoryReason.NO_NEW_EVIDENCE
    elsewhere = Evidence(confirmed_by_event_id="e1", confirmed_in_session_id="s2")
    assert require_entry(notebook.promote("m", MemoryKind.FACT, elsewhere)).evidence.confirmed_in_session_id == "s2"


def test_an_event_of_before_still_confirms_what_new_sources_promote() -> None:
    notebook = Notebook()
    notebook.put("m", MemoryKind.HYPOTHESIS, EVENT)
    entry = require_entry(notebook.promote("m", MemoryKind.FACT, Evidence(["c9"], 1)))
    assert entry.evidence == Evidence(["c9"], 1, "e1", "s1")


# --- conflict ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-MEM-06")
def test_a_contradicted_fact_is_a_hypothesis_due_for_review_at_once() -> None:
    notebook = Notebook()
    notebook.put("m", MemoryKind.FACT, STRONG, ttl_ms=None)
    notebook.now = later(START, 5)
    entry = require_entry(notebook.dispute("m", ConflictState.CONTRADICTORY))
    assert (entry.kind, entry.confirmed, entry.review_at) == (MemoryKind.HYPOTHESIS, False, later(START, 5))


@pytest.mark.req("SS01-MEM-03", "SS01-MEM-06")
def test_a_contradiction_that_is_lifted_confirms_again_but_the_fact_needs_new_evidence() -> None:
    notebook = Notebook()
    notebook.put("m", MemoryKind.FACT, STRONG)
    notebook.dispute("m", ConflictState.CONTRADICTORY)
    entry = require_entry(notebook.dispute("m", ConflictState.NONE))
    assert (entry.kind, entry.confirmed) == (MemoryKind.HYPOTHESIS, True)
    assert notebook.promote("m", MemoryKind.FACT, STRONG) is MemoryReason.NO_NEW_EVIDENCE
    assert require_entry(notebook.promote("m", MemoryKind.FACT, Evidence(["c2"], 900))).kind is MemoryKind.FACT


@pytest.mark.parametrize("conflict_state", [ConflictState.NONE, ConflictState.POSSIBLE])
def test_a_possible_conflict_takes_no_confirmation_away(conflict_state: ConflictState) -> None:
    notebook = Notebook()
    notebook.put("m", MemoryKind.FACT, STRONG)
    entry = require_entry(notebook.dispute("m", conflict_state))
    assert (entry.kind, entry.confirmed, entry.conflict_state) == (MemoryKind.FACT, True, conflict_state)


def test_what_an_event_confirmed_stays_confirmed_when_contradicted() -> None:
    notebook = Notebook()
    notebook.put("m", MemoryKind.FACT, EVENT)
    entry = require_entry(notebook.dispute("m", ConflictState.CONTRADICTORY))
    assert (entry.kind, entry.confirmed) == (MemoryKind.FACT, True)


# --- expiry and threshold ---------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-MEM-04")
def test_expiry_is_a_step_of_its_own_and_comes_when_it_is_due() -> None:
    notebook = Notebook()
    notebook.put("m", MemoryKind.HYPOTHESIS, WEAK)
    notebook.put("endless", MemoryKind.FACT, STRONG, claim=b"1", ttl_ms=None)
    notebook.now = later(START, 999)
    assert notebook.expire("m") is MemoryReason.NOT_DUE
    assert notebook.expire("endless") is MemoryReason.NOT_DUE
    notebook.now = later(START, 1_000)
    assert require_entry(notebook.expire("m")).expired
    assert notebook.expire("m") is MemoryReason.MEMORY_EXPIRED


def test_a_stricter_threshold_makes_hypotheses_of_facts_and_a_milder_one_no_facts_of_hypotheses() -> None:
    notebook = Notebook()
    notebook.put("fact", MemoryKind.FACT, STRONG, ttl_ms=None)
    notebook.put("event", MemoryKind.FACT, EVENT, claim=b"1")
    assert [entry.entry_id for entry in notebook.set_threshold(901)] == ["fact"]
    entry = notebook.entries["fact"]
    assert (entry.kind, entry.confirmed, entry.review_at) == (MemoryKind.HYPOTHESIS, False, START)
    assert [entry.confirmed for entry in notebook.set_threshold(900)] == [True]
    assert notebook.entries["fact"].kind is MemoryKind.HYPOTHESIS


def test_a_new_threshold_leaves_what_has_expired_alone() -> None:
    notebook = Notebook()
    notebook.put("m", MemoryKind.HYPOTHESIS, WEAK)
    notebook.now = later(START, 1_000)
    notebook.expire("m")
    assert notebook.set_threshold(0) == []


# --- laws of any history ----------------------------------------------------------------------------------------------

IDS = st.sampled_from(["m1", "m2", "m3"])
CLAIMS = st.sampled_from([b'"rain"', b'"snow"'])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.tuples(IDS, st.sampled_from(MemoryKind), EVIDENCE, CLAIMS)),
        st.tuples(st.just("promote"), st.tuples(IDS, st.sampled_from(MemoryKind), EVIDENCE)),
        st.tuples(st.just("dispute"), st.tuples(IDS, st.sampled_from(ConflictState))),
        st.tuples(st.just("expire"), st.tuples(IDS)),
        st.tuples(st.just("set_threshold"), st.tuples(THRESHOLDS)),
        st.tuples(st.just("pass"), st.integers(1, 600).map(lambda ms: (ms,))),
    ),
    max_size=25,
)


@pytest.mark.req("SS01-MEM-01", "SS01-MEM-02")
@given(STEPS)
def test_confirmed_always_means_what_the_specification_says_and_nothing_unconfirmed_is_more_than_a_guess(
    steps: list[Step],
) -> None:
    notebook = Notebook()
    for step in steps:
        live(notebook, step)
        for entry in notebook.entries.values():
            if entry.expired:
                continue
            assert entry.confirmed == memory.is_confirmed(entry.evidence, entry.conflict_state, notebook.threshold)
            if not entry.confirmed:
                assert entry.kind in UNCONFIRMED_KINDS
                assert entry.expires_at is not None or entry.review_at is not None


@pytest.mark.req("SS01-MEM-03")
@given(STEPS)
def test_no_claim_ever_becomes_more_than_a_guess_without_evidence_that_was_not_there_before(steps: list[Step]) -> None:
    notebook = Notebook()
    for step in steps:
        before = dict(notebook.entries)
        live(notebook, step)
        for entry_id, entry in notebook.entries.items():
            if entry.kind in UNCONFIRMED_KINDS or (entry_id in before and entry is before[entry_id]):
                continue
            guesses = [
                other
                for other in before.values()
                if other.claim == entry.claim
                and other.kind in UNCONFIRMED_KINDS
                and (other.entry_id == entry_id or entry_id not in before)
            ]
            seen = frozenset().union(*(other.seen_evidence for other in guesses))
            assert not guesses or evidence_of(entry.evidence) - seen


@given(STEPS)
def test_evidence_is_never_forgotten_and_claims_find_their_entries(steps: list[Step]) -> None:
    notebook = Notebook()
    for step in steps:
        before = dict(notebook.entries)
        live(notebook, step)
        for entry_id, entry in notebook.entries.items():
            assert evidence_of(entry.evidence) <= entry.seen_evidence
            assert entry_id in notebook.claims[entry.claim]
            assert entry_id not in before or before[entry_id].seen_evidence <= entry.seen_evidence


# --- what may enter ---------------------------------------------------------------------------------------------------


def test_sources_are_single_and_sorted_and_a_review_date_is_in_utc() -> None:
    message = PutMemory(
        "m", MemoryKind.FACT, msgspec.Raw(b"1"), Evidence(["b", "a", "b"], 1_000), review_at="2026-01-01T01:00:00+01:00"
    )
    checked = memory.validate_put(message)
    assert (checked.evidence.source_chunk_ids, checked.review_at) == (["a", "b"], START)
    promotion = memory.validate_promotion(PromoteMemory("m", MemoryKind.FACT, Evidence(["b", "a", "b"], 0)))
    assert promotion.evidence.source_chunk_ids == ["a", "b"]


@for_each(
    ("error", "said", "evidence", "more"),
    [
        (InvalidRequest, "`confidence_milli` must be from 0 to 1000", Evidence(confidence_milli=-1), {}),
        (InvalidRequest, "`confidence_milli` must be from 0 to 1000", Evidence(confidence_milli=1_001), {}),
        (InvalidRequest, "`source_chunk_ids` is empty", Evidence(["c", ""]), {}),
        (InvalidRequest, "`confirmed_by_event_id` is empty", Evidence(confirmed_by_event_id=""), {}),
        (InvalidRequest, "there is no `confirmed_by_event_id`", Evidence(confirmed_in_session_id="s"), {}),
        (LimitExceeded, "`sources_per_claim` allows at most 1000", Evidence([f"c{n}" for n in range(1_001)]), {}),
        (InvalidRequest, "`ttl_ms` must be at least 1, got `0`", Evidence(), {"ttl_ms": 0}),
        (InvalidRequest, "`ttl_ms` must be at least 1", Evidence(), {"ttl_ms": 2**53}),
        (InvalidRequest, "`review_at` must be a moment", Evidence(), {"review_at": "soon"}),
    ],
)
def test_what_makes_no_sense_is_refused_at_the_door(
    error: type[BeliefServerError], said: str, evidence: Evidence, more: dict[str, Any]
) -> None:
    message = PutMemory("m", MemoryKind.HYPOTHESIS, msgspec.Raw(b"1"), evidence, **more)
    with pytest.raises(error) as refused:
        memory.validate_put(message)
    assert said in refused.value.message
