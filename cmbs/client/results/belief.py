"""Answers about sessions, and what every answer is."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import field


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a server answered. Fields that this client does not know are ignored: a newer server may have more."""


class Ontology(Result, frozen=True):
    """The causal model that the hypotheses come from; stored, never fetched."""

    hypothesis_space_id: str
    hypothesis_version: str
    causal_graph_ref: str
    causal_graph_version: str


class ForeignTombstones(Result, frozen=True):
    """Hypotheses that others ruled out in the elimination store, under one provenance."""

    source_id: str
    trigger: str
    hypothesis_ids: list[str]


class StoreView(Result, frozen=True):
    """What is known of a session's tombstones in a store of their own."""

    state: str
    n_foreign: int
    foreign: list[ForeignTombstones]
    reason: str | None = None


class Belief(Result, frozen=True):
    """The hypotheses that may still be true; `survivors` is left out of a minimal answer."""

    session_id: str
    ontology: Ontology
    n_survivors: int
    entropy_proxy: float
    terminated: bool
    active_obligation_id: str | None
    audit_head_event_id: str
    survivors: list[str] | None = None
    store: StoreView | None = None
    contradiction: bool = False


class CurrentBelief(Result, frozen=True):
    """The belief of now, beside that of an event that is answered again."""

    n_survivors: int
    audit_head_event_id: str
    terminated: bool


class SessionOpened(Result, frozen=True):
    """Answer to DECLARE_SESSION."""

    session_id: str
    snapshot: Belief
    note: str | None = None
    replayed: bool = False
    current: CurrentBelief | None = None


class SessionSummary(Result, frozen=True):
    """A session in a list, right after its newest event.

    `contradiction` is that no survivor is left; `trail` are pairs of a seq and how many were left after it.
    """

    session_id: str
    created_ts: str
    universe_size: int
    n_survivors: int
    terminated: bool
    head_seq: int
    head_event_id: str
    title: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    kit: str | None = None
    kit_version: str | None = None
    state: str | None = None
    contradiction: bool = False
    conclusion: str | None = None
    updated_ts: str | None = None
    last_verb: str | None = None
    active_obligations: list[str] = field(default_factory=list)
    n_active_obligations: int = 0
    sources: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    trail: list[tuple[int, int]] | None = None


class SessionsPage(Result, frozen=True):
    """A page of sessions, in the order that was asked for."""

    sessions: list[SessionSummary]
    next_cursor: str | None


class Elimination(Result, frozen=True):
    """Answer to ELIMINATE; both lists are sorted."""

    applied_eliminated: list[str]
    ignored_eliminated: list[str]
    snapshot: Belief
    audit_event_id: str
    replayed: bool = False
    current: CurrentBelief | None = None


class SurvivorsPage(Result, frozen=True):
    """A page of survivors, sorted."""

    survivors: list[str]
    attributes: dict[str, dict[str, Any]]
    n_survivors: int
    entropy_proxy: float
    terminated: bool
    active_obligation_id: str | None
    audit_head_event_id: str
    next_cursor: str | None


class Delta(Result, frozen=True):
    """What an event changed."""

    eliminated: list[str]


class RecordedActor(Result, frozen=True):
    """The actor of a request. `key_id` names the key and is not secret."""

    kind: str
    id: str
    authenticated: bool
    key_id: str | None
    roles: list[str] | None = None
    scopes: list[str] | None = None


class Event(Result, frozen=True):
    """An entry of a stream: the canonical JSON that was hashed, plus `event_hash`.

    Those of sessions have `delta` and the commitments to the survivors, those of spaces do not.
    """

    format: str
    stream_id: str
    seq: int
    event_id: str
    ts: str
    verb: str
    payload: dict[str, Any]
    outcome: dict[str, Any] | None
    prev_event_hash: str
    event_hash: str
    delta: Delta | None = None
    survivors_before_hash: str | None = None
    survivors_after_hash: str | None = None
    notes: str | None = None
    idempotency_key: str | None = None
    actor: RecordedActor | None = None
    state: str | None = None


class StreamFault(Result, frozen=True):
    """Why no more entries of a stream come: it does not verify at `seq`."""

    stream_kind: str
    stream_id: str
    seq: int
    code: str
    message: str


class StreamEvent(Result, frozen=True):
    """An entry of one of the streams that are followed together, or else the fault that stands in its place.

    `stream_kind` is `session` or `space`. A follower that begins at `cursor` goes on after it.
    """

    stream_kind: str
    stream_id: str
    cursor: str
    entry: Event | None = None
    fault: StreamFault | None = None


class EventsPage(Result, frozen=True):
    """A page of the events of a stream, the oldest first."""

    events: list[Event]
    next_cursor: str | None


class SessionOrigin(Result, frozen=True):
    """The event of another session that a fork begins from."""

    session_id: str
    seq: int
    event_hash: str
    without: list[int] | None = None


class Report(Result, frozen=True):
    """A report, by where it stands in the log."""

    seq: int
    event_id: str
    source_id: str
    observation_id: str
    probe_id: str | None


class LoneWord(Result, frozen=True):
    """A cause that one report alone speaks against."""

    hypothesis_id: str
    report: Report


class Explanation(Result, frozen=True):
    """Reports that, all wrong, would let these causes be true, and fewer would not."""

    reports: list[Report]
    causes: list[str]
    n_causes: int


class Contradiction(Result, frozen=True):
    """What explains that nothing is left of a session."""

    contradiction: bool
    left_none: Report | None
    smallest: int
    alone: list[LoneWord]
    n_alone: int
    explanations: list[Explanation]
    n_explanations: int
    exhaustive: bool
    look_again: list[Report]
    shortest: bool


class Fork(Result, frozen=True):
    """Answer to a fork."""

    session_id: str
    origin: SessionOrigin
    snapshot: Belief


class SessionChange(Result, frozen=True):
    """One thing that happened."""

    kind: str
    seq: int
    event_id: str
    id: str | None
    source_id: str | None
    observation_id: str | None


class SessionDiffPage(Result, frozen=True):
    """What happened between two moments of a session, in its order."""

    session_id: str
    from_seq: int
    to_seq: int
    n_survivors_before: int
    n_survivors_after: int
    counts: dict[str, int]
    changes: list[SessionChange]
    attributes: dict[str, dict[str, Any]]
    next_cursor: str | None


class SourceSummary(Result, frozen=True):
    """What one source did. Ids that are not in the universe count nowhere."""

    source_id: str
    events: int
    eliminated: int
    already_eliminated_by_others: int
    already_eliminated_by_itself: int
    only_here: int
    bits: float
    contradicted_conclusions: list[str]
    left_none: bool


class Agreement(Result, frozen=True):
    """How far two sources agree on what to eliminate."""

    source_id: str
    other_source_id: str
    both: int
    share: float


class SourcesPage(Result, frozen=True):
    """The sources of a session, by id, and the agreement of the ones that listed most, in pairs."""

    session_id: str
    head_seq: int
    n_sources: int
    n_survivors: int
    agreed: int
    sources: list[SourceSummary]
    next_cursor: str | None
    agreements: list[Agreement] = field(default_factory=list)


class Reach(Result, frozen=True):
    """How far an obligation is from being exited, or was when it was."""

    needed: int
    eliminated: int
    alive: int
    reachable: bool


class Obligation(Result, frozen=True):
    """An obligation of a session."""

    obligation_id: str
    state: str
    min_total_eliminations: int
    eliminations: int
    reach: Reach


class Obligations(Result, frozen=True):
    """Every obligation of a session, in the order of entry."""

    obligations: list[Obligation]


class ObligationEntered(Result, frozen=True):
    """Answer to ENTER_OBLIGATION. An obligation that cannot be met is accepted, and says so."""

    reach: Reach
    snapshot: Belief
    audit_event_id: str
    replayed: bool = False
    current: CurrentBelief | None = None


class BeliefRefusal(Result, frozen=True):
    """Why a request about a session was refused, and what to do; the numbers are those that the reason is about."""

    code: str
    message: str
    field: str
    found: Any
    accepted: Any
    next: str
    obligation_id: str | None = None
    needed: int | None = None
    eliminated: int | None = None
    alive: int | None = None
    reachable: bool | None = None
    exited_seq: int | None = None
    n_survivors: int | None = None
    survivors: list[str] | None = None
    conclusions: list[str] | None = None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        return f"{self.message}; {self.next}"


class Approval(Result, frozen=True):
    """Answer to REQUEST_EXIT and REQUEST_TERMINATION. A refusal is a response and an event, not an error."""

    approved: bool
    reason: str
    snapshot: Belief
    audit_event_id: str
    refusal: BeliefRefusal | None = None
    replayed: bool = False
    current: CurrentBelief | None = None


class Conclusion(Result, frozen=True):
    """Answer to DECLARE_CONCLUSION."""

    accepted: bool
    reason: str
    snapshot: Belief
    audit_event_id: str
    refusal: BeliefRefusal | None = None
    replayed: bool = False
    current: CurrentBelief | None = None


class WhoAmI(Result, frozen=True):
    """The caller as the server knows it."""

    kind: str
    id: str
    authenticated: bool
    key_id: str | None
    roles: list[str]
    scopes: list[str]
    restricted: dict[str, list[str]]


class Health(Result, frozen=True):
    """The health of the server."""

    status: str
