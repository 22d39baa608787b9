"""The belief server: sessions of many callers over one log. Lock, gate, persist, apply.

Every method returns when what it did is durable. The rules are in `cmbs.belief.kernel.session`.
Event loops use `perform_async`, which holds no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from cmbs.belief.agreement import Agreement
from cmbs.belief.declarations import Declarations
from cmbs.belief.forks import declare_fork, find_origin, write_fork
from cmbs.belief.graph import SessionGraphs
from cmbs.belief.graph_kits import GraphKits
from cmbs.belief.kernel.agreement import ForeignTombstones, StoreReport, observation_of
from cmbs.belief.kernel.events import DeclareConclusion, Stamp
from cmbs.belief.kernel.forks import choose_repeated
from cmbs.belief.kernel.kind import Answer, BeliefKind
from cmbs.belief.kernel.looks import DEFAULT_PROBES, MAX_PROBES
from cmbs.belief.kernel.outcomes import Outcome, outcome_of
from cmbs.belief.kernel.refusals import explain_unknown
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.requests import Command, Limits, RequestValidator
from cmbs.belief.kernel.session import Session, asks_for_decision
from cmbs.belief.kernel.sizes import weigh
from cmbs.belief.kernel.views import seq_at, snapshot
from cmbs.belief.kits import KitLibrary
from cmbs.belief.names import NameRegistry
from cmbs.belief.next_probes import NextProbes, ProbePage
from cmbs.belief.observations import OBSERVER, Observations, ObserveOutcome
from cmbs.belief.providers import Providers, ProviderSource, no_providers
from cmbs.belief.reader import SessionReader
from cmbs.belief.remote_calls import RemoteCalls
from cmbs.belief.restoring import refuse_misfit, refuse_reserved
from cmbs.belief.saga import Saga, split_store
from cmbs.errors import Conflict, HeadMismatch, InvalidHypothesisId, InvalidRequest, LimitExceeded
from cmbs.ledger import Head, StoredEntry, from_audit_entry
from cmbs.messages import (
    Actor,
    AuditEntry,
    ConclusionOutcome,
    DeclareOutcome,
    EliminateOutcome,
    EnterOutcome,
    ExitOutcome,
    ForkOutcome,
    KitChoice,
    OntologyBundle,
    SessionPolicy,
    TerminationOutcome,
    UpdateCaseOutcome,
)
from cmbs.spi import (
    Append,
    AuditLog,
    Clock,
    EliminationStore,
    HypothesisProvider,
    IdSource,
    RecoveredState,
)
from cmbs.streams.cache import ByteBudget
from cmbs.streams.reading import read_entries
from cmbs.streams.server import StreamServer
from cmbs.system import RandomIds, SystemClock

O = TypeVar("O", bound=Outcome)  # noqa: E741


class BeliefServer(SessionReader):
    """Holds what may still be believed.

    `store` is where tombstones live. One that is an `AuditLog` too (memory, SQLite) also holds the events, in the same
    transaction; with any other, the events go to `audit_log`, by default in memory.

    Where there is a `belief_provider`, all sessions are declared from it; otherwise one of `providers` may be named.

    A thread holds sessions against a store beside the log, unless `checks_in_background` is false (simulations).
    """

    def __init__(  # noqa: PLR0913 - what a server is built from, by keyword
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
        providers: ProviderSource = no_providers,
        checks_in_background: bool = True,
    ) -> None:
        self.belief_provider = belief_provider
        self._policy = SessionPolicy(validate_hypotheses=validate_hypotheses)
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self.requests = RequestValidator(limits or Limits())
        log, remote = split_store(store, audit_log)
        self.log = log
        self.kits = KitLibrary(log, self._clock, self._ids)
        self.names = NameRegistry(log, self._clock, self._ids)
        self._providers = Providers(providers, self.kits, belief_provider)
        self._remote = remote
        self._calls = self._agreement = self._saga = None
        if remote is not None:
            self._calls = RemoteCalls(store_timeout_seconds)
            self._agreement = Agreement(log, remote, self._calls, self._read, self._is_cached, self._absorb)
            self._agreement.in_background = checks_in_background
            self._saga = Saga(log, remote, self._calls, self._agreement)
        admit = None if self._saga is None else self._saga.admit
        self._kind = kind = BeliefKind(self._stamp, self.requests.limits, admit)
        graph_kits = GraphKits(remote, self._calls, self._agreement)
        self._declarations = Declarations(
            log,
            remote,
            self._agreement,
            self.requests,
            self._ids,
            self._stamp,
            self._policy,
            self._providers,
            names=self.names,
            graph_kits=graph_kits,
        )
        self.declaration = self._declarations.command
        budget = ByteBudget(self.requests.limits.cached_session_bytes, weigh)
        cached = self.requests.limits.cached_sessions
        self._sessions = StreamServer(log, kind, cached, codec=kind, remote=self._saga, budget=budget)
        self.observations = Observations(
            log, self.requests, self._providers, graph_kits, self.current_session, self._sessions.find_cached
        )
        self._next_probes = NextProbes(self._providers, graph_kits, self.observations, self.current_session)
        if self._saga is not None:
            self._saga.sweep(self._sessions.streams)
        self.waits_in_caller = remote is not None
        self.graphs = SessionGraphs(remote, self._calls, self._agreement, self.current_session)

    # --- the verbs ---

    def declare_session(  # noqa: PLR0913 - the fields of the verb, by keyword
        self,
        ontology: OntologyBundle | None = None,
        hypotheses: Iterable[str] | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        policy: SessionPolicy | None = None,
        hypothesis_attributes: dict[str, dict[str, Any]] | None = None,
        provider: str | None = None,
        kit: str | KitChoice | None = None,
        symptoms: Iterable[str] | None = None,
        title: str | None = None,
        labels: dict[str, str] | None = None,
        owner: str | None = None,
        severity: str | None = None,
        agents: Iterable[str] | None = None,
        name: str | None = None,
        idempotency_key: str | None = None,
        actor: Actor | None = None,
    ) -> DeclareOutcome:
        """Open a session over a fixed set of hypotheses; with a provider, over the provider's.

        Without any, over the causal graph of the store as it is now. `causal_graph_version` is then that of the graph:
        an empty one is filled in, any other must be the same.

        `hypothesis_attributes` says something of hypotheses, by name: a policy of a space can then speak of the one
        that is left. They are part of the first event.

        `kit` names a kit on record, from which ontology, hypotheses and attributes are taken. `provider` names one of
        the installed providers, which says the ontology too if it is left out. Unless `policy` says otherwise, such a
        session takes the responses to probes alone, and the only survivor as its conclusion.

        A kit over a causal graph needs `symptoms`: the nodes that show something wrong. Hypotheses are then the nodes
        of the graph that can have caused them.

        `title`, `labels`, `owner` and `severity` are for people, and to find the session by. `agents` may work on it;
        without any, that is not restricted. `name` is one that no other case of this server has: Conflict where another
        has it. Where another takes it in this very moment, the session is declared and has no name.

        `actor` is on record as who declares it. Without any, no gate opens by what others than a proposer ruled out.
        """
        command = self.declaration(
            ontology,
            hypotheses,
            metadata,
            policy=policy,
            hypothesis_attributes=hypothesis_attributes,
            provider=provider,
            kit=kit,
            symptoms=symptoms,
            title=title,
            labels=labels,
            owner=owner,
            severity=severity,
            agents=agents,
            name=name,
            idempotency_key=idempotency_key,
            actor=actor,
        )
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

    def observe(  # noqa: PLR0913 - the parts of an observation, most of them by keyword
        self,
        session_id: str,
        probe_id: str,
        response: Any,
        source_id: str = OBSERVER,
        *,
        observation_id: str | None = None,
        justification: dict[str, Any] | None = None,
        seen_at: str | None = None,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> ObserveOutcome:
        """Let the session's kit or provider say what a response to a probe rules out, and take that out.

        An observation that rules out nothing is recorded too. Without an `observation_id`, one source answers a probe
        once: the same answer again is answered with what was seen then.
        """
        message = self.observations.message(
            session_id,
            probe_id,
            response,
            source_id=source_id,
            observation_id=observation_id,
            justification=justification,
            seen_at=seen_at,
        )
        command = self.requests.command(session_id, message, idempotency_key, if_match)
        try:
            answer = self._answer(command)
        except Conflict as exc:
            raise self.observations.explain(session_id, exc) from exc
        return self.observations.outcome(answer)

    def probes(
        self, session_id: str, first: int = 0, limit: int = DEFAULT_PROBES, *, at: int | str | None = None
    ) -> ProbePage:
        """What is worth asking next, the best first, with what each answer would leave, and what was asked already.

        `first` is the place in the ranking at which the page begins, `at` pins the moment while others observe.
        """
        size = self.requests.count("limit", limit)
        if not 1 <= size <= MAX_PROBES:
            raise LimitExceeded("limit", MAX_PROBES, size) if size else InvalidRequest("`limit` must be at least 1")
        return self._next_probes.page(session_id, at, self.requests.count("first", first), size)

    def apply_probe(
        self,
        session_id: str,
        probe_id: str,
        response: Any,
        source_id: str = "provider",
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> EliminateOutcome:
        """As `observe`, with the answer of an elimination."""
        outcome = self.observe(
            session_id, probe_id, response, source_id, if_match=if_match, idempotency_key=idempotency_key
        )
        return EliminateOutcome(*outcome[:4])

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
        """State a conclusion; it counts only while no obligation is open, and the policy says what it may name."""
        message = self.conclusion(session_id, conclusion_id, context)
        return self._perform(self.requests.command(session_id, message, idempotency_key, if_match), ConclusionOutcome)

    def conclusion(self, session_id: str, conclusion_id: str, context: Any = None) -> DeclareConclusion:
        """The message of a conclusion: it says so where the session's kit cannot tell the survivors apart any more."""
        session = self.current_session(self.requests.text("session_id", session_id))
        kit = session.kit_hash if asks_for_decision(session) else None
        is_tied = kit is not None and self.find_separating(session) is None
        return self.requests.declare_conclusion(conclusion_id, context, kit if is_tied else None)

    def find_separating(self, session: Session) -> str | None:
        """A probe without an answer that can tell the survivors of a session over a kit apart; None where none can."""
        return self._next_probes.find_separating(session)

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

    def update_case(
        self,
        session_id: str,
        changes: Mapping[str, Any],
        *,
        if_match: str | None = None,
        idempotency_key: str | None = None,
    ) -> UpdateCaseOutcome:
        """Change `title`, `labels`, `owner`, `severity` or `agents` of a case: only what is named changes.

        None takes a text away. Labels and agents are given whole; no agent at all means that none may work on it.
        """
        message = self.requests.update_case(changes)
        return self._perform(self.requests.command(session_id, message, idempotency_key, if_match), UpdateCaseOutcome)

    # --- other pasts ---

    def fork_session(
        self,
        session_id: str,
        at: int | str | None = None,
        *,
        without: Iterable[int | str] = (),
        if_match: str | None = None,
        idempotency_key: str | None = None,
        actor: Actor | None = None,
    ) -> ForkOutcome:
        """Open a session that begins as this one was right after an event (a seq or an event id, by default the last).

        Its declaration names that event, and the messages up to there are decided again as events of its own. It is
        written whole or not at all. The new events are of `actor`; who sent the messages first is in the origin's log.
        Reports in `without` (seqs or event ids) are left out, and named in the declaration.
        """
        if self._remote is not None:
            raise InvalidRequest("sessions whose tombstones are kept in a store of their own cannot be forked")
        session = self.current_session(session_id)
        seq, limit = seq_at(session, at), self.requests.limits.fork_events
        if seq >= limit:
            raise LimitExceeded("fork_events", limit, seq + 1)
        if if_match is not None and if_match != session.head_event_id:
            raise HeadMismatch(if_match, session.head_event_id)
        prefix = list(read_entries(self.log, session_id, session.tree, -1, seq + 1))
        origin = find_origin(prefix, [seq_at(session, each) for each in without])
        fork_id = self._declarations.choose_id(idempotency_key, actor)
        declared = declare_fork(fork_id, prefix, origin, self._stamp(idempotency_key, actor))
        write_fork(self._sessions, self._kind, declared, choose_repeated(origin, prefix))
        return ForkOutcome(fork_id, origin, snapshot(self.current_session(fork_id), origin.last_repeated))

    # --- from elsewhere ---

    def restore_session(self, session_id: str, recovered: RecoveredState, audit_events: Iterable[AuditEntry]) -> None:
        """Take a session over from a store's state and its log. Refuses a log that is forged or does not fit the state.

        The elimination store is only compared with, never written to.
        """
        refuse_reserved(self.requests.text("session_id", session_id))
        entries = [from_audit_entry(entry) for entry in audit_events]
        session = verify_session(session_id, entries)
        refuse_misfit(session, recovered)
        self._sessions.adopt(session_id, entries)

    def import_session(self, session_id: str, entries: Sequence[StoredEntry], head: Head) -> None:
        """Take a session over from its log alone, byte for byte; LedgerCorrupt where it does not verify to `head`."""
        refuse_reserved(self.requests.text("session_id", session_id))
        verify_session(session_id, entries, head)
        self._sessions.adopt(session_id, entries)

    def close(self) -> None:
        """Write what waits, then let go of log and threads."""
        if self._agreement is not None:
            self._agreement.close()
        self._sessions.close()
        self.kits.close()
        self.names.close()
        self.log.close()
        if self._calls is not None:
            self._calls.close()
        close_remote: Callable[[], object] | None = getattr(self._remote, "close", None)
        if close_remote is not None:
            close_remote()

    def find_behind(self) -> list[str]:
        """The first few sessions of which the log lacks what this server has seen of them."""
        return [*self._sessions.find_behind(), *self.kits.find_behind(), *self.names.find_behind()]

    def store_report(self, session_id: str) -> StoreReport | None:
        """Whether the elimination store agrees with the log of a session, as far as is known; asks no store.

        None where tombstones are with the events.
        """
        return None if self._agreement is None else self._agreement.find(session_id)

    def check_store(self, session_id: str) -> StoreReport | None:
        """As `store_report`, but hold the session against the store now.

        What is foreign there becomes eliminations where the policy of the session says so.
        """
        session = self.current_session(session_id)
        if self._agreement is None or not session.is_in_store:
            return None
        return self._agreement.check(session_id)

    def find_priors(self, session: Session) -> Mapping[str, float]:
        """The priors of the hypotheses of a session, as weights; empty where it is over no kit that is known here."""
        kit = self._providers.find_kit(session.provider)
        return {} if kit is None else {each.id: each.prior for each in kit.hypotheses}

    def check_store_ready(self) -> None:
        """StoreUnavailable where the elimination store does not answer, or is not the one that the sessions are in."""
        if self._agreement is not None:
            self._agreement.require_home_of_known()

    def find_disagreeing(self) -> list[str]:
        """The first few sessions that the elimination store does not agree with: they take no writes."""
        return [] if self._agreement is None else self._agreement.find_disagreeing()

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Refuse a session until the log contains this head, which was recorded of it and which the log lacks."""
        self._sessions.expect_head(stream_id, head)
        self.kits.expect_head(stream_id, head)
        self.names.expect_head(stream_id, head)

    def refuse_writes(self, reason: str | None) -> None:
        """Write to no session, kit or name while the database lacks what was signed; None takes writes again."""
        self._sessions.refuse_writes(reason)
        self.kits.refuse_writes(reason)
        self.names.refuse_writes(reason)

    def observe_states(self, observer: Callable[[str, Session], None]) -> None:
        """Tell `observer` of every session that this server writes, once that is durable. From the writing thread.

        It must be quick, and must not raise.
        """
        self._sessions.observe(observer)

    def observe_appends(self, observer: Callable[[Sequence[Append]], None]) -> None:
        """As `observe_states`, but tell of the entries that were written, each time of one stream, in their order."""
        self._sessions.observe_appends(observer)
        self.kits.observe_appends(observer)
        self.names.observe_appends(observer)

    # --- on the way ---

    def default_policy(self, **overrides: Any) -> SessionPolicy:
        """The policy of a session that says nothing of its own, with what it does say."""
        return replace(self._policy, **overrides)

    def current_session(self, session_id: str) -> Session:
        """The session as a value, as the log has it now."""
        session = self._read(self.requests.text("session_id", session_id))
        if self._agreement is not None:
            self._agreement.note(session_id)
        return session

    def _read(self, session_id: str) -> Session:
        return self._sessions.current(session_id)

    def _is_cached(self, session_id: str) -> bool:
        return self._sessions.find_cached(session_id) is not None

    def _absorb(self, session_id: str, foreign: ForeignTombstones) -> None:
        """Record what others ruled out in the store as an elimination of theirs, in requests that the limits allow."""
        said = {"foreign": {"source_id": foreign.source_id, "trigger": foreign.trigger}}
        for part in foreign.split(self.requests.limits.ids_per_request):
            self.eliminate(session_id, *observation_of(part), part.hypothesis_ids, said)

    async def perform_async(self, command: Command) -> Outcome:
        """Carry out a command without holding a thread, unless the store must be waited for in one."""
        return outcome_of(await self.answer_async(command))

    async def answer_async(self, command: Command) -> Answer:
        """As `perform_async`, but with the session as it is now, from which refusals are explained."""
        try:
            answer = await self._sessions.perform_async(command)
            if command.name is not None:
                await asyncio.to_thread(self._claim_name, command.name, command)
            return answer
        except InvalidHypothesisId as exc:
            raise await asyncio.to_thread(self._explain_unknown, command, exc) from exc

    def _explain_unknown(self, command: Command, error: InvalidHypothesisId) -> InvalidHypothesisId:
        session = self._sessions.find_cached(command.session_id)
        return error if session is None else explain_unknown(session, error)

    def _claim_name(self, name: str, command: Command) -> None:
        """Have a case that was declared take its name, unless it has one: then the declaration is a repeat."""
        if self.names.name_of(command.session_id) is None:
            self.names.claim(name, command.session_id, command.named_by)

    def _answer(self, command: Command) -> Answer:
        try:
            answer = self._sessions.perform(command)
            if command.name is not None:
                self._claim_name(command.name, command)
            return answer
        except InvalidHypothesisId as exc:
            raise self._explain_unknown(command, exc) from exc

    def _perform(self, command: Command, kind: type[O]) -> O:
        outcome = outcome_of(self._answer(command))
        if not isinstance(outcome, kind):  # pragma: no cover - each verb has one kind of outcome
            raise TypeError(kind)
        return outcome

    def _stamp(self, idempotency_key: str | None, actor: Actor | None) -> Stamp:
        return Stamp(self._ids.new_id(), self._clock.now(), idempotency_key, actor)
