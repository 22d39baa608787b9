"""The belief protocol as frozen types: verbs, reasons, what is asked, what is answered.

Nothing here decides anything. Outcomes are `NamedTuple`s in the field order of the protocol, so that callers may unpack
them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from cmbs.core import entropy

# How long an id may be, unless an operator sets another limit: the request validator enforces it.
MAX_ID_LENGTH = 1024
Id = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_ID_LENGTH})]


class Verb(StrEnum):
    """What a message asks for."""

    DECLARE_SESSION = "DECLARE_SESSION"
    ELIMINATE = "ELIMINATE"
    QUERY_BELIEF = "QUERY_BELIEF"
    AUDIT_TRACE = "AUDIT_TRACE"
    ENTER_OBLIGATION = "ENTER_OBLIGATION"
    REQUEST_EXIT = "REQUEST_EXIT"
    DECLARE_CONCLUSION = "DECLARE_CONCLUSION"
    REQUEST_TERMINATION = "REQUEST_TERMINATION"
    UPDATE_CASE = "UPDATE_CASE"


class ActorKind(StrEnum):
    """Who may be on the other side of a credential."""

    POLICY_ENGINE = "policy_engine"
    OPERATOR = "operator"
    AGENT = "agent"
    ENCODER = "encoder"
    TOOL = "tool"
    # Runs calls of tools outside the server, such as a gateway: it claims and reports calls, and proposes nothing.
    EXECUTOR = "executor"


class Actor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who asks: from the credential, never from a body. `key_id` names the credential and is no secret.

    `roles` and `scopes` are what the credential said when it was presented, sorted; unset, and then not written, where
    it said none.
    """

    kind: ActorKind
    id: str
    authenticated: bool = False
    key_id: str | None = None
    roles: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    scopes: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    def require_sorted(self) -> None:
        """ValueError where roles or scopes are not sorted, or are repeated: a recorded actor has one form."""
        for each in (self.roles, self.scopes):
            if not isinstance(each, msgspec.UnsetType) and each != tuple(sorted({*each})):
                raise ValueError("it names an actor whose roles or scopes are not sorted")


class Reason(StrEnum):
    """Why a request was granted or refused. Where several hold, the first in this order is given."""

    APPROVED = "approved"
    ACCEPTED = "accepted"
    FORCED = "forced"
    OBLIGATION_NOT_ACTIVE = "obligation_not_active"
    BELOW_THRESHOLD = "below_threshold"
    OBLIGATION_ACTIVE = "obligation_active"
    NOT_A_SURVIVOR = "not_a_survivor"
    NOT_SINGLETON = "not_singleton"
    CONCLUSION_UNSTABLE = "conclusion_unstable"


class ConclusionRule(StrEnum):
    """What a conclusion may name: any id, any but an eliminated hypothesis, one that survives, or the only survivor.

    `decided` also takes one of several survivors that no unanswered probe of the session's kit can tell apart.
    """

    ANY = "any"
    NOT_ELIMINATED = "not_eliminated"
    SURVIVORS = "survivors"
    DECIDED = "decided"


class EliminationRule(StrEnum):
    """How hypotheses may be eliminated: by anyone's list, or only by what a provider makes of a probe's response."""

    ANY = "any"
    OBSERVATIONS = "observations"


class LookRule(StrEnum):
    """How often one source may answer a probe: under any number of observation ids, or once."""

    ANY = "any"
    ONCE = "once"


class UnknownIndependence(StrEnum):
    """Why it cannot be known what others than one actor ruled out in a session."""

    # The actor chose what there is to rule out: it declared the session, or one that this one was forked from.
    DECLARED = "declared"
    FORKED = "forked"
    # It says what the answer to a probe rules out: it put the content of the kit on record.
    PUT_KIT = "put_kit"
    # It is not on record who declared the session: no key was needed for it.
    NO_KEYS = "no_keys"


class OntologyBundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The causal model that the hypotheses come from; stored, never fetched."""

    hypothesis_space_id: Id
    hypothesis_version: Id
    causal_graph_ref: Id
    causal_graph_version: Id

    def to_dict(self) -> dict[str, str]:
        """The bundle as JSON-able data."""
        return msgspec.structs.asdict(self)


class ForeignRule(StrEnum):
    """What becomes of tombstones that others put into the elimination store of a session."""

    IGNORE = "ignore"
    ELIMINATE = "eliminate"


@dataclass(frozen=True)
class SessionPolicy:
    """What a session allows, fixed when it is declared.

    `conclusions`, `eliminations` and `looks` mean `any` where they are unset, `foreign_tombstones` means `ignore`, and
    none of them is then written. `observers` are the ids of the actors that may eliminate and answer probes, sorted;
    unset, that is not restricted.
    """

    allow_force: bool = False
    stability_window: int = 0
    validate_hypotheses: bool = False
    conclusions: ConclusionRule | msgspec.UnsetType = msgspec.UNSET
    eliminations: EliminationRule | msgspec.UnsetType = msgspec.UNSET
    foreign_tombstones: ForeignRule | msgspec.UnsetType = msgspec.UNSET
    looks: LookRule | msgspec.UnsetType = msgspec.UNSET
    observers: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


@dataclass(frozen=True)
class ProviderRef:
    """Which hypothesis provider a session was declared from.

    `content_hash` is that of a kit on record, `put_by` the id of the actor who put that content there first; both are
    unset of a provider that is installed.
    """

    id: str
    version: str
    content_hash: str | msgspec.UnsetType = msgspec.UNSET
    put_by: str | msgspec.UnsetType = msgspec.UNSET


class KitRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One content of a kit on record: the SHA-256 of its document as it was written, in hex."""

    id: str
    content_hash: str


class KitChoice(NamedTuple):
    """Which kit of a server: by its id, and by the hash of a content or a version; without either, the newest."""

    id: str
    version: str | None = None


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The event of another session that a fork begins from: it repeats the messages up to this one.

    `without` are the seqs of reports that it leaves out, sorted; unset where it leaves none out. `declared_by` are the
    actors who declared or forked that session and those that it comes from, the first one first; None where no
    authenticated actor is on record.
    """

    session_id: str
    seq: int
    event_hash: str
    without: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    declared_by: tuple[str | None, ...] = ()

    @property
    def left_out(self) -> tuple[int, ...]:
        """The seqs of the reports that the fork leaves out."""
        return () if isinstance(self.without, msgspec.UnsetType) else self.without

    @property
    def last_repeated(self) -> int:
        """The seq, in the fork, of the last message that it repeats."""
        return self.seq - len(self.left_out)


class ObligationState(StrEnum):
    """Where an obligation stands."""

    ACTIVE = "active"
    EXITED = "exited"
    # An operator took it off, whatever was eliminated.
    LIFTED = "lifted"


class ObligationView(NamedTuple):
    """One obligation as a reader sees it."""

    obligation_id: str
    state: ObligationState
    min_total_eliminations: int
    eliminations: int


class ReachDetail(msgspec.Struct, frozen=True):
    """How far an obligation is from being exited, or was when it was."""

    needed: Annotated[int, Meta(ge=0, description="How many eliminations it asks for.")]
    eliminated: Annotated[int, Meta(ge=0, description="How many were made while it was active.")]
    alive: Annotated[int, Meta(ge=0, description="How many hypotheses survive.")]
    reachable: Annotated[
        bool, Meta(description="False where eliminating all that survive would not be enough to exit it.")
    ]


class SortedIds(Collection[str]):
    """A collection of ids that never changes and iterates in sorted order."""

    __slots__ = ()


class BeliefSnapshot:
    """What a session believed at one moment. Immutable: later eliminations do not reach it.

    `survivors` is built, sorted, when it is read: a snapshot of a million hypotheses costs nothing until then.
    """

    __slots__ = (
        "_survivors",
        "active_obligation_id",
        "audit_head_event_id",
        "ontology",
        "session_id",
        "terminated",
    )

    def __init__(
        self,
        session_id: str,
        ontology: OntologyBundle,
        survivors: Collection[str],
        terminated: bool = False,  # noqa: FBT001, FBT002 - a field of the protocol
        active_obligation_id: str | None = None,
        audit_head_event_id: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.ontology = ontology
        # A caller's own container could change after this call; `SortedIds` never do.
        self._survivors = survivors if isinstance(survivors, SortedIds) else sorted(set(survivors))
        self.terminated = terminated
        self.active_obligation_id = active_obligation_id
        self.audit_head_event_id = audit_head_event_id

    @property
    def survivors(self) -> list[str]:
        """The ids that may still be true, sorted by code point; a list of the reader's own."""
        return list(self._survivors)

    @property
    def n_survivors(self) -> int:
        """How many hypotheses survive."""
        return len(self._survivors)

    @property
    def contradiction(self) -> bool:
        """Whether nothing is left: the reports contradict each other, or the true cause was not in the universe."""
        return not self._survivors

    @property
    def entropy_proxy(self) -> float:
        """log2 of the number of survivors; 0 for one or none."""
        return entropy(len(self._survivors))

    def to_dict(self, *, with_survivors: bool = True) -> dict[str, Any]:
        """The snapshot as JSON-able data; `with_survivors=False` leaves the list out."""
        content: dict[str, Any] = {"session_id": self.session_id, "ontology": self.ontology.to_dict()}
        if with_survivors:
            content["survivors"] = self.survivors
        return content | {
            "n_survivors": self.n_survivors,
            "entropy_proxy": self.entropy_proxy,
            "contradiction": self.contradiction,
            "terminated": self.terminated,
            "active_obligation_id": self.active_obligation_id,
            "audit_head_event_id": self.audit_head_event_id,
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BeliefSnapshot):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.session_id, self.audit_head_event_id, self.n_survivors))

    def __repr__(self) -> str:
        return (
            f"BeliefSnapshot(session_id={self.session_id!r}, n_survivors={self.n_survivors}, "
            f"terminated={self.terminated}, active_obligation_id={self.active_obligation_id!r}, "
            f"audit_head_event_id={self.audit_head_event_id!r})"
        )


@dataclass(frozen=True)
class AuditEntry:
    """One event of a session's log, with what is needed to check it offline.

    Every reader gets entries of its own: changing one changes no history, and a changed one no longer verifies.
    """

    event_id: str
    ts: str
    verb: str
    payload: dict[str, Any]
    survivors_before_hash: str
    survivors_after_hash: str
    delta_eliminated: list[str]
    notes: str | None = None
    outcome: dict[str, Any] | None = None
    idempotency_key: str | None = None
    stream_id: str = ""
    seq: int = 0
    prev_event_hash: str = ""
    event_hash: str = ""
    format: str = ""
    actor: dict[str, Any] | None = None
    state: str | None = None

    @property
    def delta(self) -> dict[str, list[str]]:
        """What the event changed."""
        return {"eliminated": list(self.delta_eliminated)}

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON-able data: exactly what was hashed, and the hash."""
        content: dict[str, Any] = {
            "format": self.format,
            "stream_id": self.stream_id,
            "seq": self.seq,
            "event_id": self.event_id,
            "ts": self.ts,
            "verb": self.verb,
            "payload": self.payload,
            "outcome": self.outcome,
            "delta": self.delta,
            "survivors_before_hash": self.survivors_before_hash,
            "survivors_after_hash": self.survivors_after_hash,
            "prev_event_hash": self.prev_event_hash,
            "event_hash": self.event_hash,
        }
        if self.notes is not None:
            content["notes"] = self.notes
        if self.idempotency_key is not None:
            content["idempotency_key"] = self.idempotency_key
        if self.actor is not None:
            content["actor"] = self.actor
        if self.state is not None:
            content["state"] = self.state
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> AuditEntry:
        """The inverse of `to_dict`. It checks nothing: that is what verification is for."""
        fields = dict(content)
        fields["delta_eliminated"] = list(fields.pop("delta")["eliminated"])
        return cls(**fields)


class DeclareOutcome(NamedTuple):
    """Answer to DECLARE_SESSION."""

    session_id: str
    snapshot: BeliefSnapshot


class ForkOutcome(NamedTuple):
    """Answer to a fork: the new session, where it begins, and what it believes there."""

    session_id: str
    origin: Origin
    snapshot: BeliefSnapshot


class EliminateOutcome(NamedTuple):
    """Answer to ELIMINATE, and to a probe of a provider-backed session."""

    applied_eliminated: list[str]
    ignored_eliminated: list[str]
    snapshot: BeliefSnapshot
    audit_event_id: str


class EnterOutcome(NamedTuple):
    """Answer to ENTER_OBLIGATION."""

    snapshot: BeliefSnapshot
    audit_event_id: str


class ExitOutcome(NamedTuple):
    """Answer to REQUEST_EXIT."""

    approved: bool
    reason: str
    snapshot: BeliefSnapshot
    audit_event_id: str


class ConclusionOutcome(NamedTuple):
    """Answer to DECLARE_CONCLUSION."""

    accepted: bool
    reason: str
    snapshot: BeliefSnapshot
    audit_event_id: str


class TerminationOutcome(NamedTuple):
    """Answer to REQUEST_TERMINATION."""

    approved: bool
    reason: str
    snapshot: BeliefSnapshot
    audit_event_id: str


class UpdateCaseOutcome(NamedTuple):
    """Answer to UPDATE_CASE."""

    snapshot: BeliefSnapshot
    audit_event_id: str


class SurvivorPage(NamedTuple):
    """Some of the survivors, and the belief that they are of."""

    survivors: list[str]
    snapshot: BeliefSnapshot


class HypothesisState(StrEnum):
    """What a session says of a node or an edge of its graph."""

    SURVIVOR = "survivor"
    ELIMINATED = "eliminated"
    # It is in the graph, and not in the universe of the session.
    OUTSIDE = "outside"
