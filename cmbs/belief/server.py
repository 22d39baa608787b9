"""The belief server: sessions of many callers over one log. Lock, gate, persist, apply.

Every method returns when what it did is durable. The rules are in `cmbs.belief.kernel.session`.
Event loops use `perform_async`, which holds no thread.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from cmbs.belief.forks import repeat_prefix
from cmbs.belief.kernel.comparisons import Place, SessionDiff, SourceComparison, compare_moments, compare_sources
from cmbs.belief.kernel.events import Stamp, read_event
from cmbs.belief.kernel.forks import fork_declaration
from cmbs.belief.kernel.kind import BeliefKind
from cmbs.belief.kernel.outcomes import Outcome, outcome_of
from cmbs.belief.kernel.provider_mask import find_eliminated
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.requests import Command, Limits, RequestValidator
from cmbs.belief.kernel.session import Session, decide_declare
from cmbs.belief.kernel.sizes import weigh
from cmbs.belief.kernel.views import obligations, seq_at, snapshot, survivors_at
from cmbs.belief.saga import Saga
from cmbs.errors import Conflict, HeadMismatch, InvalidRequest, LedgerCorrupt, LimitExceeded
from cmbs.ledger import Head, StoredEntry, from_audit_entry, to_audit_entry
from cmbs.messages import (
    Actor,
    AuditEntry,
    BeliefSnapshot,
    ConclusionOutcome,
    DeclareOutcome,
    EliminateOutcome,
    EnterOutcome,
    ExitOutcome,
    ForkOutcome,
    ObligationView,
    OntologyBundle,
    Origin,
    ProviderRef,
    SessionPolicy,
    SurvivorPage,
    TerminationOutcome,
)
from cmbs.spi import (
    Append,
    AuditLog,
    Clock,
    EliminationStore,
    HypothesisProvider,
    IdSource,
    RecoveredState,
    SessionSummary,
    UniverseSource,
    is_reserved,
)
from cmbs.stores.memory import InMemoryStore
from cmbs.streams.cache import ByteBudget
from cmbs.streams.reading import read_entries
from cmbs.streams.server import StreamServer
from cmbs.system import RandomIds, SystemClock

# The ids of sessions that were declared under an idempotency key follow from the key, so that a repeat finds the first.
_KEYED_SESSIONS = uuid.UUID("6b2a1f0e-5c3d-4f4e-9a51-3f1d8c7be2a4")

O = TypeVar("O", bound=Outcome)  # noqa: E741


class AuditPage(NamedTuple):
    """Some entries of a session; `next_event_id` is the last of them where others follow."""

    entries: list[StoredEntry]
    next_event_id: str | None


class BeliefServer:
    """Holds what may still be believed.

    `store` is where tombstones live. One that is an `AuditLog` too (memory, SQLite) also holds the events, in the same
    transaction; with any other, the events go to `audit_log`, by default in memory.
    """

    def __init__(
        self,
        validate_hypotheses: bool = False,
        belief_provider: HypothesisProvider | None = None,
        store: EliminationStore | None = None,
        *,
        audit_log: AuditLog | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        limits: Limits | None = None,
        store_timeout_seconds: float = 10.0,
    ) -> None:
        self.belief_provider = belief_provider
        self._policy = SessionPolicy(validate_hypotheses=validate_hypotheses)
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self.requests = RequestValidator(limits or Limits())
        log, remote = _log_and_remote(store, audit_log)
        self.log = log
        self._remote = remote
        self._kind = kind = BeliefKind(self._stamp, self.requests.limits)
        self._saga = None if remote is None else Saga(log, remote, store_timeout_seconds)
        budget = ByteBudget(self.requests.limits.cached_session_bytes, weigh)
        cached = self.requests.limits.cached_sessions
        self._sessions = StreamServer(log, kind, cached, codec=kind, remote=self._saga, budget=budget)
        if self._saga is not None:
            self._saga.sweep(self._sessions.streams)
        self.waits_in_caller = remote is not None

    # --- the verbs ---

    def declare_session(
        self,
        ontology: OntologyBundle,
        hypotheses: Iterable[str] | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        policy: SessionPolicy | None = None,
        idempotency_key: str | None = None,
    ) -> DeclareOutcome:
        """Open a session over a fixed set of hypotheses; with a provider, over the provider's.

        Without any, over the causal graph of the store as it is now. `causal_graph_version` is then that of the graph:
        an empty one is filled in, any other must be the same.
        """
        command = self.declaration(ontology, hypotheses, metadata, policy=policy, idempotency_key=idempotency_key)
        return self._perform(command, DeclareOutcome)

    def eliminate(
        self,
        session_id: str,
        source_id: str,
        observation_id: str,
        eliminated: Iterable[str],
        justification: dict[str, Any] | None = None,
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> EliminateOutcome:
        """Take hypotheses out. The same observation again gives the first result again."""
        message = self.requests.eliminate(source_id, observation_id, eliminated, justification)
        return self._perform(self.requests.command(session_id, message, idempotency_key, if_match), EliminateOutcome)

    def apply_probe(
        self, session_id: str, probe_id: str, response: Any, source_id: str = "provider", *, if_match: str | None = None
    ) -> EliminateOutcome:
        """Let the provider say what a response rules out, and take that out."""
        session = self._current(session_id)
        provider = self._provider_of(session)
        gone = find_eliminated(provider, self.requests.text("probe_id", probe_id), response)
        probe = self.requests.probe(probe_id, response)
        message = self.requests.eliminate(source_id, probe_id, gone, None, probe)
        return self._perform(self.requests.command(session_id, message, if_match=if_match), EliminateOutcome)

    def query_belief(self, session_id: str, *, at: int | str | None = None) -> BeliefSnapshot:
        """What may still be true; with `at` (a seq or an event id), what could right after that event."""
        session = self._current(session_id)
        return snapshot(session, seq_at(session, at))

    def audit_trace(
        self, session_id: str, since_event_id: str | None = None, *, limit: int | None = None
    ) -> list[AuditEntry]:
        """The events after `since_event_id`, or all; at most `limit`."""
        return [to_audit_entry(stored) for stored in self.stored_entries(session_id, since_event_id, limit)]

    def stored_entries(
        self, session_id: str, since_event_id: str | None = None, limit: int | None = None
    ) -> list[StoredEntry]:
        """The same as `audit_trace`, as the exact bytes that were hashed; LedgerCorrupt where they are others."""
        session = self._current(session_id)
        most = None if limit is None else self.requests.count("limit", limit)
        return list(read_entries(self.log, session_id, session.tree, self._seq_after(session, since_event_id), most))

    def audit_page(self, session_id: str, since_event_id: str | None = None, limit: int | None = None) -> AuditPage:
        """A page of `stored_entries`, by default as long as the limits allow."""
        size = self.requests.page_size(limit)
        session = self._current(session_id)
        after = self._seq_after(session, since_event_id)
        entries = list(read_entries(self.log, session_id, session.tree, after, size))
        more = after + size < session.head.seq
        return AuditPage(entries, session.events.at(after + size)[0] if more else None)

    def enter_obligation(
        self,
        session_id: str,
        obligation_id: str,
        min_total_eliminations: int,
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> EnterOutcome:
        """Open a gate: so much must be eliminated before anything can be concluded."""
        message = self.requests.enter_obligation(obligation_id, min_total_eliminations)
        return self._perform(self.requests.command(session_id, message, idempotency_key, if_match), EnterOutcome)

    def request_exit(
        self,
        session_id: str,
        obligation_id: str,
        context: dict[str, Any] | None = None,
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> ExitOutcome:
        """Ask to leave an obligation."""
        message = self.requests.request_exit(obligation_id, context)
        return self._perform(self.requests.command(session_id, message, idempotency_key, if_match), ExitOutcome)

    def declare_conclusion(
        self,
        session_id: str,
        conclusion_id: str,
        context: dict[str, Any] | None = None,
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> ConclusionOutcome:
        """State a conclusion; it counts only while no obligation is open."""
        message = self.requests.declare_conclusion(conclusion_id, context)
        return self._perform(self.requests.command(session_id, message, idempotency_key, if_match), ConclusionOutcome)

    def request_termination(
        self,
        session_id: str,
        context: dict[str, Any] | None = None,
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> TerminationOutcome:
        """Ask to end the session."""
        message = self.requests.request_termination(context)
        return self._perform(self.requests.command(session_id, message, idempotency_key, if_match), TerminationOutcome)

    # --- other pasts ---

    def fork_session(
        self,
        session_id: str,
        at: int | str | None = None,
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
        actor: Actor | None = None,
    ) -> ForkOutcome:
        """Open a session that begins as this one was right after an event (a seq or an event id, by default the last).

        Its declaration names that event, and the messages up to there are decided again as events of its own. It is
        written whole or not at all. The new events are of `actor`; who sent the messages first is in the origin's log.
        """
        if self._remote is not None:
            raise InvalidRequest("sessions whose tombstones are kept in a store of their own cannot be forked")
        session = self._current(session_id)
        seq, limit = seq_at(session, at), self.requests.limits.fork_events
        if seq >= limit:
            raise LimitExceeded("fork_events", limit, seq + 1)
        if if_match is not None and if_match != session.head_event_id:
            raise HeadMismatch(if_match, session.head_event_id)
        prefix = list(read_entries(self.log, session_id, session.tree, -1, seq + 1))
        origin = Origin(session_id, seq, prefix[-1].event_hash.hex())
        message = fork_declaration(read_event(prefix[0]), origin)
        fork_id = self._choose_id(idempotency_key)
        event = decide_declare(fork_id, message, self._stamp(idempotency_key, actor))
        declared = Command(fork_id, message, idempotency_key, declared=event, actor=actor)
        if idempotency_key is None:
            self._sessions.adopt(fork_id, repeat_prefix(self._kind, declared, prefix))
        else:
            if self._sessions.peek(fork_id) is None:
                # Another caller with the same key may be first: what is there then is compared below.
                with suppress(Conflict):
                    self._sessions.adopt(fork_id, repeat_prefix(self._kind, declared, prefix))
            self._sessions.perform(declared)
        return ForkOutcome(fork_id, origin, snapshot(self._current(fork_id), seq))

    def diff(
        self,
        session_id: str,
        start: int | str,
        end: int | str | None = None,
        after: Place | None = None,
        limit: int | None = None,
    ) -> SessionDiff:
        """What happened after event `start`, up to `end`, by default the last; a page of it from beyond `after` on."""
        size = self.requests.page_size(limit)
        session = self._current(session_id)
        first, last = seq_at(session, start), seq_at(session, end)
        if first > last:
            raise InvalidRequest(f"a difference goes forward, and seq {first} is after seq {last}")
        return compare_moments(session, first, last, after, size)

    def sources(self, session_id: str, after: str | None = None, limit: int | None = None) -> SourceComparison:
        """What each source took out, alone and after others, and where sources agree; a page of sources, by id."""
        size = self.requests.page_size(limit)
        return compare_sources(self._current(session_id), after, size)

    # --- what is there ---

    def list_sessions(self, after: tuple[str, str] | None = None, limit: int | None = None) -> list[SessionSummary]:
        """A page of sessions, the oldest first; `after` is the (created_ts, session_id) of the last one seen."""
        return self.log.sessions(after, self.requests.page_size(limit))

    def survivors(
        self, session_id: str, after: str | None = None, limit: int | None = None, *, at: int | str | None = None
    ) -> SurvivorPage:
        """A page of survivors, sorted; `after` is the last one seen, `at` pins the moment while others eliminate."""
        size = self.requests.page_size(limit)
        session = self._current(session_id)
        seq = seq_at(session, at)
        if after is not None:
            self.requests.text("after", after)
        return SurvivorPage(survivors_at(session, seq).page(after, size), snapshot(session, seq))

    def obligations(self, session_id: str) -> list[ObligationView]:
        """Every obligation of a session, in the order of entry."""
        return obligations(self._current(session_id))

    def restore_session(self, session_id: str, recovered: RecoveredState, audit_events: Iterable[AuditEntry]) -> None:
        """Take a session over from a store's state and its log. Refuses a log that is forged or does not fit the state.

        The elimination store is only compared with, never written to.
        """
        _refuse_reserved(self.requests.text("session_id", session_id))
        entries = [from_audit_entry(entry) for entry in audit_events]
        session = verify_session(session_id, entries)
        _refuse_misfit(session, recovered)
        self._sessions.adopt(session_id, entries)

    def import_session(self, session_id: str, entries: Sequence[StoredEntry], head: Head) -> None:
        """Take a session over from its log alone, byte for byte; LedgerCorrupt where it does not verify to `head`."""
        _refuse_reserved(self.requests.text("session_id", session_id))
        verify_session(session_id, entries, head)
        self._sessions.adopt(session_id, entries)

    def close(self) -> None:
        """Write what waits, then let go of log and threads."""
        self._sessions.close()
        self.log.close()
        if self._saga is not None:
            self._saga.close()
        close_remote: Callable[[], object] | None = getattr(self._remote, "close", None)
        if close_remote is not None:
            close_remote()

    def current_session(self, session_id: str) -> Session:
        """The session as a value, as the log has it now."""
        return self._current(session_id)

    def find_behind(self) -> list[str]:
        """The first few sessions of which the log lacks what this server has seen of them."""
        return self._sessions.find_behind()

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Refuse a session until the log contains this head, which was recorded of it and which the log lacks."""
        self._sessions.expect_head(stream_id, head)

    def observe(self, observer: Callable[[str, Session], None]) -> None:
        """Tell `observer` of every session that this server writes, once that is durable. From the writing thread.

        It must be quick, and must not raise.
        """
        self._sessions.observe(observer)

    def observe_appends(self, observer: Callable[[Sequence[Append]], None]) -> None:
        """As `observe`, but tell of the entries that were written, each time of one stream, in their order."""
        self._sessions.observe_appends(observer)

    # --- on the way ---

    def declaration(
        self,
        ontology: OntologyBundle,
        hypotheses: Iterable[str] | None,
        metadata: Any = None,
        *,
        policy: SessionPolicy | None = None,
        idempotency_key: str | None = None,
        actor: Actor | None = None,
    ) -> Command:
        """The command that opens a session; `metadata` may still be JSON text, as a `msgspec.Raw`."""
        session_id = self._choose_id(idempotency_key)
        reference = None
        if self.belief_provider is not None:
            reference = ProviderRef(self.belief_provider.id(), self.belief_provider.version())
            hypotheses = self.belief_provider.hypothesis_ids()
        elif hypotheses is None:
            ontology, hypotheses = _anchor(self._remote, session_id, self.requests.ontology(ontology))
        message = self.requests.declare(ontology, hypotheses, metadata, policy or self._policy, reference)
        event = decide_declare(session_id, message, self._stamp(idempotency_key, actor))
        return Command(session_id, message, idempotency_key, declared=event, actor=actor)

    def _choose_id(self, idempotency_key: str | None) -> str:
        if idempotency_key is None:
            return self._ids.new_id()
        return str(uuid.uuid5(_KEYED_SESSIONS, self.requests.text("idempotency_key", idempotency_key)))

    def default_policy(self, **overrides: Any) -> SessionPolicy:
        """The policy of a session that says nothing of its own, with what it does say."""
        return replace(self._policy, **overrides)

    def _seq_after(self, session: Session, since_event_id: str | None) -> int:
        """The place after which reading begins; -1 for the beginning."""
        return -1 if since_event_id is None else seq_at(session, self.requests.text("since_event_id", since_event_id))

    def _current(self, session_id: str) -> Session:
        return self._sessions.current(self.requests.text("session_id", session_id))

    async def perform_async(self, command: Command) -> Outcome:
        """Carry out a command without holding a thread, unless the store must be waited for in one."""
        return outcome_of(await self._sessions.perform_async(command))

    def _perform(self, command: Command, kind: type[O]) -> O:
        outcome = outcome_of(self._sessions.perform(command))
        if not isinstance(outcome, kind):  # pragma: no cover - each verb has one kind of outcome
            raise TypeError(kind)
        return outcome

    def _stamp(self, idempotency_key: str | None, actor: Actor | None) -> Stamp:
        return Stamp(self._ids.new_id(), self._clock.now(), idempotency_key, actor)

    def _provider_of(self, session: Session) -> HypothesisProvider:
        if session.provider is None or self.belief_provider is None:
            raise InvalidRequest("probes need a session that was declared from a hypothesis provider")
        mine = ProviderRef(self.belief_provider.id(), self.belief_provider.version())
        if mine != session.provider:
            raise Conflict(
                f"the session was declared from `{session.provider.id}` {session.provider.version}, "
                f"this server has `{mine.id}` {mine.version}"
            )
        return self.belief_provider


def _log_and_remote(store: Any, audit_log: AuditLog | None) -> tuple[AuditLog, EliminationStore | None]:
    """Where events go, and the store of tombstones where that is another."""
    if audit_log is None:
        audit_log = store if isinstance(store, AuditLog) else InMemoryStore()
    return audit_log, None if store is audit_log else store


def _anchor(store: object, session_id: str, ontology: OntologyBundle) -> tuple[OntologyBundle, frozenset[str]]:
    """The universe that a store has for a session, and the ontology with the version that it is of."""
    if not isinstance(store, UniverseSource):
        raise InvalidRequest("`hypotheses` may be left out only where the store has a causal graph")
    asked = ontology.causal_graph_version
    universe = store.anchor(session_id, asked)
    version = universe.causal_graph_version
    if version is not None and asked not in ("", version):
        raise Conflict(
            f"the causal graph is at version `{version}`, not `{asked}`", {"expected": asked, "actual": version}
        )
    if not universe.hypothesis_ids:
        raise InvalidRequest("the causal graph is empty, there is nothing to declare")
    return replace(ontology, causal_graph_version=version or asked), universe.hypothesis_ids


def _refuse_reserved(session_id: str) -> None:
    if is_reserved(session_id):
        raise InvalidRequest(f"`{session_id}` is the name of another kind of stream", {"session_id": session_id})


def _refuse_misfit(session: Session, recovered: RecoveredState) -> None:
    universe, survivors = frozenset(session.universe.ids), frozenset(session.survivors)
    misfits = {
        "hypothesis_ids": universe != recovered.hypothesis_ids,
        "survivors": survivors != recovered.survivors,
        "eliminated": universe - survivors != recovered.eliminated,
    }
    for name, wrong in misfits.items():
        if wrong:
            reason = f"the recovered `{name}` are not those that the log leads to"
            raise LedgerCorrupt(session.session_id, session.head.seq, reason, session.head_event_id)
