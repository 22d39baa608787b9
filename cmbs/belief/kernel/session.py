"""The rules of belief: what a message does to a session. Pure, and the only place where these rules live.

`decide_<verb>(session, message, stamp)` answers with the event to record, or with the earlier event that the message
repeats, or raises one of `cmbs.errors`; it changes nothing. `evolve(session, event)` is the only way from one state to
the next, live and in replay. A refusal that the protocol defines is an event like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from cmbs.belief.kernel.attributes import NO_ATTRIBUTES, Attributes, read_attributes
from cmbs.belief.kernel.case_fields import CaseRecord
from cmbs.belief.kernel.events import (
    NULL,
    VERB_OF,
    Declare,
    DeclareConclusion,
    Eliminate,
    EnterObligation,
    Event,
    Message,
    Repeat,
    RequestExit,
    RequestTermination,
    Stamp,
    UpdateCase,
    find_sender,
    is_repeated,
)
from cmbs.belief.kernel.looks import (
    NO_DATA_RESPONSES,
    Applied,
    Looks,
    Observation,
    add_look,
    explain_other,
    hash_response,
    refuse_second_look,
    refuse_strange_probe,
)
from cmbs.belief.kernel.request_keys import Requests, append_request, find_request, fingerprint
from cmbs.belief.kernel.speakers import Speakers
from cmbs.belief.kernel.survivors import Survivors, Universe, commitment
from cmbs.core import Obligation, is_stable
from cmbs.errors import (
    Conflict,
    Forbidden,
    FreeHandRefused,
    InvalidHypothesisId,
    ObligationNotFound,
    SessionTerminated,
)
from cmbs.ledger import GENESIS, Chronicle, Delta, EntryBody, Head, seal
from cmbs.ledger.canonical import encode_frame
from cmbs.ledger.event_tree import EventTree
from cmbs.ledger.listing import Reports
from cmbs.messages import (
    ActorKind,
    ConclusionRule,
    EliminationRule,
    LookRule,
    OntologyBundle,
    Origin,
    ProviderRef,
    Reason,
    SessionPolicy,
)

_MAX_LISTED_ACTIVE = 20
_WITHOUT_PROBE = "eliminated by an operator without a probe, where the policy asks for observations"
_FORCE_DENIED = "force was asked for and the policy of this session does not allow it"


class ObligationRecord(msgspec.Struct, frozen=True, array_like=True):
    """An obligation of a session: when it was entered and left, and how much had been eliminated by then."""

    min_total_eliminations: int
    entered_seq: int
    eliminated_at_entry: int
    exited_seq: int | None = None
    eliminated_at_exit: int = 0
    # Whether an operator took it off, so that it was not met.
    lifted: bool = False


class Verdict(NamedTuple):
    """What was decided of a request."""

    granted: bool
    reason: Reason


class Session(msgspec.Struct, frozen=True):
    """Everything a session knows. A value: no decision and no later event changes it."""

    session_id: str
    ontology: OntologyBundle
    policy: SessionPolicy
    universe: Universe
    survivors: Survivors
    head: Head
    # All events up to the head, by their hashes.
    tree: EventTree
    # The event hash of the declaration, which ontology, policy, universe and provider come from.
    declaration_hash: bytes
    events: Chronicle[str, Verdict | None]
    observations: Chronicle[Observation, Applied]
    # Those of them that answer a probe.
    looks: Looks
    # Which actors spoke against which hypotheses: what the observations come to.
    speakers: Speakers
    # What a list says of the observations.
    reports: Reports
    requests: Requests
    conclusions: Chronicle[int, str]
    obligations: Mapping[str, ObligationRecord]
    active: tuple[str, ...]
    terminated_seq: int | None
    provider: ProviderRef | None
    # None of a session that is no fork.
    origin: Origin | None = None
    # What the declaration says of hypotheses.
    attributes: Attributes = NO_ATTRIBUTES
    # None where tombstones are with the events, or their store had no identity.
    store_id: str | None = None
    # Of a session over a kit of a causal graph.
    symptoms: tuple[str, ...] = ()
    declared_ts: str = ""
    # The authenticated actor of the declaration; None where none is on record.
    declared_by: str | None = None
    # What the session says of itself as a case.
    case: CaseRecord = CaseRecord()

    @property
    def kit_hash(self) -> str | None:
        """The hash of the kit on record that it is over, if it is over one."""
        known = None if self.provider is None else self.provider.content_hash
        return None if isinstance(known, msgspec.UnsetType) else known

    @property
    def is_in_store(self) -> bool:
        """Whether its hypotheses and tombstones belong in a store beside the log, where there is one."""
        return self.provider is None or bool(self.symptoms)

    @property
    def eliminated_total(self) -> int:
        """How many hypotheses are gone."""
        return len(self.universe) - len(self.survivors)

    @property
    def head_event_id(self) -> str:
        """The id of the newest event."""
        return self.events.at(self.head.seq)[0]


# --- decide -----------------------------------------------------------------------------------------------------------


def decide_declare(session_id: str, message: Declare, stamp: Stamp) -> Event:
    """A new session: the universe is committed to, so that every later bit is provably one of its ids."""
    universe = Universe(message.hypotheses)
    survivors = Survivors.all_of(universe)
    survivors_hash = commitment(session_id, GENESIS, survivors.root)
    outcome = {"universe_root": universe.compute_root().hex(), "universe_size": len(universe)}
    body = EntryBody(
        delta=Delta([]),
        event_id=stamp.event_id,
        outcome=msgspec.Raw(msgspec.json.encode(outcome)),
        payload=msgspec.Raw(encode_frame(message)),
        prev_event_hash=GENESIS.hex(),
        seq=0,
        stream_id=session_id,
        survivors_after_hash=survivors_hash,
        survivors_before_hash=survivors_hash,
        ts=stamp.ts,
        verb=VERB_OF[Declare],
        idempotency_key=stamp.idempotency_key,
        actor=stamp.actor,
    )
    return Event(message, body, seal(body), survivors)


def decide_eliminate(session: Session, message: Eliminate, stamp: Stamp) -> Event | Repeat:
    """Take out the ids that still survive. The same observation again is the same event; with other ids, a conflict."""
    earlier = session.observations.get((message.source_id, message.observation_id))
    if earlier is not None:
        if not earlier.repeats(message):
            raise explain_other(message, earlier, session.events.at(earlier.seq)[0])
        return Repeat(earlier.seq)
    _refuse_if_terminated(session)
    if session.policy.observers is not msgspec.UNSET:
        _refuse_if_no_observer(session, stamp)
    notes = None
    if message.probe is None:
        if session.policy.eliminations is EliminationRule.OBSERVATIONS:
            if not _is_by_operator(session, stamp):
                raise FreeHandRefused(session.session_id)
            notes = _WITHOUT_PROBE
    else:
        refuse_strange_probe(session.provider, message.probe)
        if session.policy.looks is LookRule.ONCE:
            refuse_second_look(session.looks, message, message.probe)
    if session.policy.validate_hypotheses:
        unknown = [hypothesis_id for hypothesis_id in message.eliminated if hypothesis_id not in session.universe]
        if unknown:
            raise InvalidHypothesisId(unknown)
    applied = [hypothesis_id for hypothesis_id in message.eliminated if hypothesis_id in session.survivors]
    return _record(session, message, stamp, applied=applied, notes=notes)


def decide_enter_obligation(session: Session, message: EnterObligation, stamp: Stamp) -> Event | Repeat:
    """Open a gate. An id names one obligation for the life of the session."""
    _refuse_if_terminated(session)
    if message.obligation_id in session.obligations:
        raise Conflict(
            f"obligation `{message.obligation_id}` was entered before",
            {
                "obligation_id": message.obligation_id,
                "field": "obligation_id",
                "found": message.obligation_id,
                "accepted": "an id that no obligation of this session has had",
                "next": "go on if it is the same obligation, or enter another under an id of its own",
            },
        )
    return _record(session, message, stamp)


def decide_request_exit(session: Session, message: RequestExit, stamp: Stamp) -> Event | Repeat:
    """Leave an obligation: granted once enough was eliminated since it was entered."""
    _refuse_if_terminated(session)
    record = session.obligations.get(message.obligation_id)
    if record is None:
        raise ObligationNotFound(message.obligation_id, session.active)
    if record.exited_seq is not None:
        verdict = Verdict(False, Reason.OBLIGATION_NOT_ACTIVE)
    elif as_obligation(session, message.obligation_id, record).may_exit:
        verdict = Verdict(True, Reason.APPROVED)
    else:
        verdict = Verdict(False, Reason.BELOW_THRESHOLD)
    return _record(session, message, stamp, outcome=_encode_approval(verdict))


def decide_conclusion(session: Session, message: DeclareConclusion, stamp: Stamp) -> Event | Repeat:
    """A conclusion counts only while no obligation is open, and if the policy lets it name what it names."""
    _refuse_if_terminated(session)
    if session.active:
        verdict = Verdict(False, Reason.OBLIGATION_ACTIVE)
    elif not _may_be_concluded(session, message.conclusion_id):
        verdict = Verdict(False, Reason.NOT_A_SURVIVOR)
    elif session.policy.conclusions is ConclusionRule.DECIDED and not _is_decided(session, message):
        verdict = Verdict(False, Reason.NOT_SINGLETON)
    else:
        verdict = Verdict(True, Reason.ACCEPTED)
    return _record(session, message, stamp, outcome=_encode_acceptance(verdict))


def _may_be_concluded(session: Session, conclusion_id: str) -> bool:
    match session.policy.conclusions:
        case ConclusionRule.SURVIVORS | ConclusionRule.DECIDED:
            return conclusion_id in session.survivors
        case ConclusionRule.NOT_ELIMINATED:
            return conclusion_id in session.survivors or conclusion_id not in session.universe
        case _:
            return True


def asks_for_decision(session: Session) -> bool:
    """Whether only a tie would let several survivors be concluded."""
    return session.policy.conclusions is ConclusionRule.DECIDED and len(session.survivors) > 1


def _is_decided(session: Session, message: DeclareConclusion) -> bool:
    """Whether one hypothesis is left, or several that the session's kit cannot tell apart any more.

    That stays so: survivors and unanswered probes only become fewer.
    """
    return len(session.survivors) == 1 or message.tied_by == session.kit_hash


def decide_termination(session: Session, message: RequestTermination, stamp: Stamp) -> Event | Repeat:
    """End the session: no open obligation, one survivor, conclusions stable; or by force, where the policy allows."""
    _refuse_if_terminated(session)
    forced = _asks_for_force(message)
    if session.active:
        verdict = Verdict(False, Reason.OBLIGATION_ACTIVE)
    elif len(session.survivors) != 1:
        verdict = Verdict(False, Reason.NOT_SINGLETON)
    elif not _conclusions_are_stable(session):
        verdict = Verdict(False, Reason.CONCLUSION_UNSTABLE)
    else:
        verdict = Verdict(True, Reason.APPROVED)
    notes = None
    if forced and not verdict.granted:
        if session.policy.allow_force:
            verdict = Verdict(True, Reason.FORCED)
        else:
            notes = _FORCE_DENIED
    return _record(session, message, stamp, outcome=_encode_approval(verdict), notes=notes)


# What of a case only operators change.
_FOR_OPERATORS = {"agents": "change who may work on a case", "lift_obligation": "lift an obligation"}


def decide_update_case(session: Session, message: UpdateCase, stamp: Stamp) -> Event | Repeat:
    """Change what the session says of itself as a case. Who may work on it is for operators to change, and so is which
    obligations are in the way of a conclusion.
    """
    _refuse_if_terminated(session)
    actor = stamp.actor
    for field, does in _FOR_OPERATORS.items():
        if getattr(message, field) is not msgspec.UNSET and not (actor is None or _is_by_operator(session, stamp)):
            raise Forbidden(
                f"only operators {does}",
                {
                    "reason": "not_an_operator",
                    "field": field,
                    "found": actor.kind.value,
                    "accepted": [ActorKind.OPERATOR.value],
                    "next": f"have an operator send `{field}`",
                },
            )
    lifted = message.lift_obligation
    if not isinstance(lifted, msgspec.UnsetType) and lifted not in session.active:
        record = session.obligations.get(lifted)
        if record is None:
            raise ObligationNotFound(lifted, session.active)
        raise Conflict(
            f"obligation `{lifted}` was left at seq {record.exited_seq} already; there is nothing to lift",
            {
                "obligation_id": lifted,
                "field": "lift_obligation",
                "found": lifted,
                "accepted": list(session.active[-_MAX_LISTED_ACTIVE:]),
                "next": "go on; name an obligation that is active to lift another one",
            },
        )
    return _record(session, message, stamp)


def _is_by_operator(session: Session, stamp: Stamp) -> bool:
    """Whether an operator sends this, or a fork repeats it: that was allowed where it was sent first, by another."""
    return _is_repeating(session) or (stamp.actor is not None and stamp.actor.kind is ActorKind.OPERATOR)


def _find_repeat(session: Session, message: Message, key: str, stamp: Stamp) -> Repeat | None:
    """The event that was recorded under an idempotency key; Conflict where it is of another message."""
    known = find_request(session.requests, key, stamp.actor)
    if known is None:
        return None
    if known.fingerprint != fingerprint(message):
        raise Conflict(
            f"idempotency key `{key}` was used for another request",
            {
                "idempotency_key": key,
                "field": "idempotency_key",
                "found": key,
                "accepted": "a key that you have not used in this session",
                "next": "send a new request under a key of its own, and a repeat as it was",
                "event_id": session.events.at(known.seq)[0],
            },
        )
    return Repeat(known.seq)


def decide(session: Session, message: Message, stamp: Stamp) -> Event | Repeat:
    """The decision on any message to a session that exists."""
    known = None if stamp.idempotency_key is None else _find_repeat(session, message, stamp.idempotency_key, stamp)
    if known is not None:
        return known
    match message:
        case Eliminate():
            return decide_eliminate(session, message, stamp)
        case EnterObligation():
            return decide_enter_obligation(session, message, stamp)
        case RequestExit():
            return decide_request_exit(session, message, stamp)
        case DeclareConclusion():
            return decide_conclusion(session, message, stamp)
        case RequestTermination():
            return decide_termination(session, message, stamp)
        case UpdateCase():
            return decide_update_case(session, message, stamp)
        case Declare():
            raise Conflict(f"session `{session.session_id}` was declared before", {"session_id": session.session_id})
        case _:
            assert_never(message)


# --- evolve -----------------------------------------------------------------------------------------------------------


def evolve(session: Session | None, event: Event) -> Session:
    """The state after `event`, live and in replay."""
    message, body = event.message, event.body
    if session is None:
        return _open_session(event)
    event_hash = event.stored.event_hash
    changes: dict[str, Any] = {
        "head": Head(body.seq, event_hash),
        "tree": session.tree.append(event_hash),
    }
    if body.idempotency_key is not None:
        changes["requests"] = append_request(session.requests, body.idempotency_key, event)
    verdict = None
    match message:
        case Eliminate():
            changes |= _evolve_elimination(session, message, event)
        case EnterObligation():
            record = ObligationRecord(message.min_total_eliminations, body.seq, session.eliminated_total)
            changes["obligations"] = {**session.obligations, message.obligation_id: record}
            changes["active"] = (*session.active, message.obligation_id)
        case RequestExit() | DeclareConclusion() | RequestTermination():
            verdict = _decode_verdict(event)
            if verdict.granted:
                changes |= _evolve_grant(session, message, body.seq)
        case UpdateCase():
            changes["case"] = session.case.after(message, body.seq)
            if not isinstance(message.lift_obligation, msgspec.UnsetType):
                changes |= _leave(session, message.lift_obligation, body.seq, lifted=True)
        case Declare():
            raise TypeError("a session is declared once")
        case _:
            assert_never(message)
    return replace(session, events=session.events.append(body.event_id, verdict), **changes)


def _evolve_elimination(session: Session, message: Eliminate, event: Event) -> dict[str, Any]:
    """What an elimination changes, whatever it took out."""
    body, applied = event.body, event.body.delta.eliminated
    gone = set(applied)
    ignored = tuple([asked for asked in message.eliminated if asked not in gone])
    observation = (message.source_id, message.observation_id)
    effect = Applied(body.seq, tuple(applied), ignored, find_sender(session.origin, event))
    changes: dict[str, Any] = {}
    if message.probe is not None:
        probe_id = message.probe.probe_id
        effect = replace(effect, probe_id=probe_id, response_hash=hash_response(bytes(message.probe.response)))
        # By what the kit made of it, or else by its words.
        has_outcome, words = message.probe.outcome_id is not None, bytes(message.probe.response)
        is_read = not isinstance(message.probe.outcome_id, msgspec.UnsetType)
        effect = replace(effect, is_answer=has_outcome if is_read else words not in NO_DATA_RESPONSES)
        changes["looks"] = add_look(session.looks, probe_id, observation)
    if effect.actor_id is not None:
        changes["speakers"] = session.speakers.hear(effect.actor_id, message.eliminated)
    changes["observations"] = session.observations.append(observation, effect)
    survivors = session.survivors.eliminate(applied) if event.survivors is None else event.survivors
    changes["survivors"] = survivors
    drop = (len(session.survivors), len(survivors))
    changes["reports"] = session.reports.hear(message.source_id, effect.actor_id, body.seq, drop)
    return changes


def _evolve_grant(
    session: Session, message: RequestExit | DeclareConclusion | RequestTermination, seq: int
) -> dict[str, Any]:
    match message:
        case RequestExit():
            return _leave(session, message.obligation_id, seq)
        case DeclareConclusion():
            return {"conclusions": session.conclusions.append(seq, message.conclusion_id)}
        case RequestTermination():
            return {"terminated_seq": seq}
        case _:
            assert_never(message)


def _leave(session: Session, name: str, seq: int, *, lifted: bool = False) -> dict[str, Any]:
    """What changes where an obligation is met, or lifted."""
    gone = session.eliminated_total
    left = replace(session.obligations[name], exited_seq=seq, eliminated_at_exit=gone, lifted=lifted)
    return {
        "obligations": {**session.obligations, name: left},
        "active": tuple([obligation_id for obligation_id in session.active if obligation_id != name]),
    }


def _open_session(event: Event) -> Session:
    message, body = event.message, event.body
    if not isinstance(message, Declare):
        raise TypeError(f"the first event declares the session, not {body.verb}")
    survivors = event.survivors
    if survivors is None:
        survivors = Survivors.all_of(Universe(message.hypotheses))
    requests: Requests = Chronicle()
    if body.idempotency_key is not None:
        requests = append_request(requests, body.idempotency_key, event)
    declared_by = body.actor.id if body.actor is not None and body.actor.authenticated else None
    return Session(
        session_id=body.stream_id,
        ontology=message.ontology,
        policy=message.policy,
        universe=survivors.universe,
        survivors=survivors,
        head=Head(0, event.stored.event_hash),
        tree=EventTree().append(event.stored.event_hash),
        declaration_hash=event.stored.event_hash,
        events=Chronicle[str, Verdict | None]().append(body.event_id, None),
        observations=Chronicle(),
        looks=Chronicle(),
        speakers=Speakers(survivors.universe),
        reports=Reports(agents=() if declared_by is None else (declared_by,)),
        requests=requests,
        conclusions=Chronicle(),
        obligations={},
        active=(),
        terminated_seq=None,
        provider=message.provider,
        origin=None if isinstance(message.origin, msgspec.UnsetType) else message.origin,
        attributes=read_attributes(message.hypothesis_attributes),
        store_id=None if isinstance(message.store_id, msgspec.UnsetType) else message.store_id,
        symptoms=() if isinstance(message.symptoms, msgspec.UnsetType) else tuple(message.symptoms),
        declared_ts=body.ts,
        declared_by=declared_by,
        case=CaseRecord().after(message, 0),
    )


# --- the rules that several verbs share -------------------------------------------------------------------------------


def _record(
    session: Session,
    message: Message,
    stamp: Stamp,
    *,
    outcome: msgspec.Raw = NULL,
    applied: list[str] | None = None,
    notes: str | None = None,
) -> Event:
    """The event that records a message; `applied` are the ids that it takes out of the survivors."""
    previous = session.head
    before_hash = after_hash = commitment(session.session_id, previous.event_hash, session.survivors.root)
    after = session.survivors
    if applied:
        after = after.eliminate(applied)
        after_hash = commitment(session.session_id, previous.event_hash, after.root)
    body = EntryBody(
        delta=Delta(applied or []),
        event_id=stamp.event_id,
        outcome=outcome,
        payload=msgspec.Raw(encode_frame(message)),
        prev_event_hash=previous.event_hash.hex(),
        seq=previous.seq + 1,
        stream_id=session.session_id,
        survivors_after_hash=after_hash,
        survivors_before_hash=before_hash,
        ts=stamp.ts,
        verb=VERB_OF[type(message)],
        idempotency_key=stamp.idempotency_key,
        notes=notes,
        actor=stamp.actor,
    )
    return Event(message, body, seal(body), after)


def _is_repeating(session: Session) -> bool:
    """Whether the next event of a fork is one that it repeats: that was allowed where it was sent first."""
    return is_repeated(session.origin, session.head.seq + 1)


def _refuse_if_no_observer(session: Session, stamp: Stamp) -> None:
    observers = session.policy.observers
    if isinstance(observers, msgspec.UnsetType) or _is_repeating(session):
        return
    actor_id = stamp.actor.id if stamp.actor is not None and stamp.actor.authenticated else None
    if actor_id in observers:
        return
    who = "a request without a key" if actor_id is None else f"`{actor_id}`"
    raise Forbidden(
        f"the policy of session `{session.session_id}` names who may answer, and {who} is not among its `observers`",
        {
            "reason": "not_an_observer",
            "field": "policy.observers",
            "found": actor_id,
            "accepted": list(observers),
            "next": "have one of them answer, with a key of its own",
        },
    )


def _refuse_if_terminated(session: Session) -> None:
    if session.terminated_seq is not None:
        raise SessionTerminated(session.session_id)


def as_obligation(session: Session, obligation_id: str, record: ObligationRecord) -> Obligation:
    """The obligation as the core sees it now: the rule of when it may be left is the core's."""
    until = session.eliminated_total if record.exited_seq is None else record.eliminated_at_exit
    return Obligation(obligation_id, record.min_total_eliminations, until - record.eliminated_at_entry)


def _conclusions_are_stable(session: Session) -> bool:
    window = session.policy.stability_window
    newest = islice(session.conclusions.newest_first(), window)
    return is_stable([conclusion_id for _, conclusion_id in newest], window)


def _asks_for_force(message: RequestTermination) -> bool:
    context = msgspec.json.decode(message.context)
    return isinstance(context, dict) and context.get("force") is True


class RecordedOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A verdict on the wire: a conclusion is accepted, the other requests are approved."""

    reason: Reason
    accepted: bool | None = None
    approved: bool | None = None


_OUTCOME = msgspec.json.Decoder(RecordedOutcome)


def _encode_approval(verdict: Verdict) -> msgspec.Raw:
    return msgspec.Raw(encode_frame(RecordedOutcome(verdict.reason, approved=verdict.granted)))


def _encode_acceptance(verdict: Verdict) -> msgspec.Raw:
    return msgspec.Raw(encode_frame(RecordedOutcome(verdict.reason, accepted=verdict.granted)))


def _decode_verdict(event: Event) -> Verdict:
    """What was decided of a request."""
    outcome = _OUTCOME.decode(event.body.outcome)
    return Verdict(bool(outcome.accepted or outcome.approved), outcome.reason)
