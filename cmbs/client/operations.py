"""Every operation of the API as a method, which sends it and waits for its answer.

Written by scripts/generate_client.py from the table of operations: do not edit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from cmbs.analysis.findings import Analysis
from cmbs.api.answers import ObligationsResponse
from cmbs.api.call import Json, Moment
from cmbs.api.entries import AuditEvent, AuditTraceResponse
from cmbs.api.graphs import GraphSearchPage, SessionGraphResponse
from cmbs.api.histories import ForkSessionResponse, SessionDiffPage, SourcesPage
from cmbs.api.impact import PolicyImpact
from cmbs.api.inbox import InboxPage
from cmbs.api.observations import KitResponse, KitsPage, ObserveResponse, ProbesPage, PutKitResponse
from cmbs.api.sessions import (
    ApprovalResponse,
    DeclareConclusionResponse,
    DeclareSessionResponse,
    EliminateResponse,
    EnterObligationResponse,
    Health,
    SessionCase,
    SessionsPage,
    Snapshot,
    SurvivorsPage,
    UpdateCaseResponse,
    WhoAmI,
)
from cmbs.api.spaces import (
    ApprovalItem,
    ApprovalsPage,
    CallResponse,
    CallsPage,
    CapabilitiesPage,
    CapabilityResponse,
    CaseResponse,
    CasesPage,
    CommitsPage,
    DecisionsPage,
    ExecutionResponse,
    ExecutionsPage,
    ExplainResponse,
    MemoryPage,
    MemoryResponse,
    PolicyChangeResponse,
    PolicyChangesPage,
    PolicyCheck,
    PolicyPage,
    PolicyPut,
    ProposalResponse,
    ProposalsPage,
    SettledApproval,
    SpaceAuditResponse,
    SpaceDiffPage,
    SpaceEvent,
    SpaceResponse,
    SpacesPage,
    StateResponse,
    StepResponse,
    ToolResponse,
    ToolsPage,
    WithdrawnProposal,
)
from cmbs.api.streams import StreamEvent
from cmbs.api.webhooks import DeliveriesPage, DeliveryResponse, WebhookResponse, WebhookSecretResponse, WebhooksPage
from cmbs.belief.kernel.contradictions import ContradictionResponse
from cmbs.transparency.kernel.published import ConsistencyProof, LogKeys, RecordProof, SignedCheckpoint


class Operations:
    """Every operation of the API, by the name that the OpenAPI document gives it."""

    @abstractmethod
    def _call(self, operation_id: str, **arguments: Any) -> Any:
        """Send an operation with what a caller gave for it."""

    @abstractmethod
    def _follow(self, operation_id: str, **arguments: Any) -> Generator[Any]:
        """Follow a stream with what a caller gave for it."""

    def declare_session(
        self,
        *,
        ontology: Mapping[str, Json] | None = None,
        hypotheses: Iterable[str] | None = None,
        metadata: Json = None,
        policy: Mapping[str, Json] | None = None,
        hypothesis_attributes: Mapping[str, Mapping[str, Json]] | None = None,
        provider: str | None = None,
        kit: str | Mapping[str, Json] | None = None,
        symptoms: Iterable[str] | None = None,
        title: str | None = None,
        labels: Mapping[str, str] | None = None,
        owner: str | None = None,
        severity: str | None = None,
        agents: Iterable[str] | None = None,
        name: str | None = None,
    ) -> DeclareSessionResponse:
        """Open a session over a fixed set of hypotheses.

        DECLARE_SESSION. All hypotheses survive at first. The policy cannot be changed later. If the server has a
        causal graph, hypotheses that are not in it are refused.

        Args:
            ontology: May be left out where a kit or a provider is named, which says it.
            hypotheses: Opaque ids; repeats count once. If left out, they are those of the server's causal graph.
            metadata: Any JSON object: stored and returned unchanged, never interpreted.
            hypothesis_attributes: What is said of hypotheses, by id and name; any JSON values. Policies of spaces
                can refer to the attributes of the one that is left.
            provider: An installed hypothesis provider to take hypotheses and attributes from, in place of the list.
                Unless the policy says otherwise, probes eliminate and the only survivor is concluded.
            kit: A kit on record to take ontology, hypotheses and attributes from, by its id, or by id and version.
                Unless the policy says otherwise, probes eliminate and the only survivor is concluded.
            symptoms: For a kit over a causal graph, and there required: the nodes that show something wrong.
                Hypotheses are the nodes that can have caused them.
            title: One line for people, and to find it by.
            labels: Names and texts to find it by.
            owner: Who answers for the case.
            severity: How grave it is, in your own words.
            agents: Who may work on the case. By default an agent lists itself; nothing else is a limit.
            name: A name that no other case of this server has, such as `INC-1042`; accepted wherever its id is.
        """
        answer: DeclareSessionResponse = self._call(
            "declare_session",
            ontology=ontology,
            hypotheses=hypotheses,
            metadata=metadata,
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
        )
        return answer

    def list_sessions(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        order: str | None = None,
        state: str | None = None,
        kit: str | None = None,
        agent: str | None = None,
        name: str | None = None,
        owner: str | None = None,
        severity: str | None = None,
        source: str | None = None,
        label: Iterable[str] | None = None,
        text: str | None = None,
        since: str | None = None,
        until: str | None = None,
        include: str | None = None,
    ) -> SessionsPage:
        """List sessions, by what they are found by.

        Those that the key may read and that all filters take, the oldest first or the newest. Sessions that are
        declared while you read the pages are at the end, or, the newest first, before the first page.

        Args:
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            order: The oldest first, which is the default, or the newest. One of `oldest`, `newest`.
            state: Only those in this state. One of `terminated`, `contradiction`, `concluded`, `open`.
            kit: Only those that were declared from this provider.
            agent: Only those that this agent declared, reported in, or was listed to work on.
            name: Only the one that has this name.
            owner: Only those that this person answers for.
            severity: Only those of this severity.
            source: Only those with a report of this source.
            label: Only those with this label, as `name:value`; may be sent several times, and then all must hold.
            text: Only those with this text in their id, name or title, in any case.
            since: Only those from this moment on (RFC 3339).
            until: Only those from before this moment (RFC 3339).
            include: `trail`: with how many hypotheses were left over time, in at most 58 points. One of `trail`.
        """
        answer: SessionsPage = self._call(
            "list_sessions",
            cursor=cursor,
            limit=limit,
            order=order,
            state=state,
            kit=kit,
            agent=agent,
            name=name,
            owner=owner,
            severity=severity,
            source=source,
            label=label,
            text=text,
            since=since,
            until=until,
            include=include,
        )
        return answer

    def query_belief(
        self, session_id: str, *, at: Moment | None = None, wait: int | None = None, after: Moment | None = None
    ) -> Snapshot:
        """The hypotheses that may still be true.

        QUERY_BELIEF. Now, right after an earlier event, or, with `wait`, as soon as there is news.

        Args:
            session_id: The session, by its id or the name of its case.
            at: A seq or an event id: the belief right after that event.
            wait: Seconds to wait for news before the answer, which then is as it is. The longest is a setting of
                the server.
            after: With `wait`: until there are events after this seq or event id; by default, after the last.
        """
        answer: Snapshot = self._call("query_belief", session_id=session_id, at=at, wait=wait, after=after)
        return answer

    def describe_case(self, session_id: str) -> SessionCase:
        """What a session says of itself as a case.

        Its name, title, owner, severity and labels, and who may work on it.

        Args:
            session_id: The session, by its id or the name of its case.
        """
        answer: SessionCase = self._call("describe_case", session_id=session_id)
        return answer

    def update_case(
        self,
        session_id: str,
        *,
        title: str | None = None,
        labels: Mapping[str, str] | None = None,
        owner: str | None = None,
        severity: str | None = None,
        agents: Iterable[str] | None = None,
        lift_obligation: str | None = None,
    ) -> UpdateCaseResponse:
        """Change what a case says of itself, or lift an obligation.

        UPDATE_CASE. Only what is sent changes. Only operators change who may work on the case, and lift
        obligations.

        Args:
            session_id: The session, by its id or the name of its case.
            title: One line for people; null or empty takes it away.
            labels: All labels, in the place of those that it had.
            owner: Who answers for the case; null or empty takes it away.
            severity: How grave it is; null or empty takes it away.
            agents: All agents that may work on it from now on, in the place of those that it listed; an empty list
                means none. For operators.
            lift_obligation: An active obligation that stands in the way no longer, such as one that cannot be met.
                For operators.
        """
        answer: UpdateCaseResponse = self._call(
            "update_case",
            session_id=session_id,
            title=title,
            labels=labels,
            owner=owner,
            severity=severity,
            agents=agents,
            lift_obligation=lift_obligation,
        )
        return answer

    def name_case(self, session_id: str, *, name: str | None = None) -> SessionCase:
        """Name a case, or release its name.

        A name is unique in the server. For operators; a declaration can name its case too.

        Args:
            session_id: The session, by its id or the name of its case.
            name: Without one, the case gives up the name that it has.
        """
        answer: SessionCase = self._call("name_case", session_id=session_id, name=name)
        return answer

    def eliminate(
        self,
        session_id: str,
        source_id: str,
        eliminated: Iterable[str],
        *,
        observation_id: str | None = None,
        justification: Json = None,
    ) -> EliminateResponse:
        """Eliminate hypotheses for good.

        ELIMINATE. Repeating an observation with the same ids gives the first answer again; with other ids it is a
        conflict.

        Args:
            session_id: The session, by its id or the name of its case.
            source_id: The source of the observation.
            eliminated: The hypotheses that the observation contradicts.
            observation_id: With `source_id`, the key under which this is applied once.
            justification: Any JSON object: stored and returned unchanged, never interpreted.
        """
        answer: EliminateResponse = self._call(
            "eliminate",
            session_id=session_id,
            source_id=source_id,
            eliminated=eliminated,
            observation_id=observation_id,
            justification=justification,
        )
        return answer

    def observe(
        self,
        session_id: str,
        probe_id: str,
        response: Json,
        *,
        source_id: str | None = None,
        observation_id: str | None = None,
        justification: Json = None,
        seen_at: str | None = None,
    ) -> ObserveResponse:
        """Tell what was seen.

        ELIMINATE. A probe and the response to it; the session's kit works out what that rules out, and an
        observation that rules out nothing is recorded too. The same answer again is answered with what was seen
        then. Another answer of the same source is a conflict, unless it is a look of its own, under another
        `observation_id`.

        Args:
            session_id: The session, by its id or the name of its case.
            probe_id: A probe of the session's kit.
            response: What was seen: the id of an outcome, a number where the probe reads numbers, a list of samples
                where the kit says how to reduce them, or null for no data.
            source_id: The source; by default the actor of the key, or `observer`.
            observation_id: With the source, the key under which this is recorded once; by default the probe. A new
                look at the same probe needs an id of its own.
            justification: Any JSON object: stored and returned unchanged, never interpreted.
            seen_at: When it was seen, RFC 3339.
        """
        answer: ObserveResponse = self._call(
            "observe",
            session_id=session_id,
            probe_id=probe_id,
            response=response,
            source_id=source_id,
            observation_id=observation_id,
            justification=justification,
            seen_at=seen_at,
        )
        return answer

    def list_probes(
        self, session_id: str, *, cursor: str | None = None, limit: int | None = None, at: Moment | None = None
    ) -> ProbesPage:
        """What is worth asking next.

        The probes that can still rule something out, by expected bits, with what each answer would leave; and what
        was asked already. It only informs: any probe may be asked. Only in sessions over a kit.

        Args:
            session_id: The session, by its id or the name of its case.
            cursor: The `next_cursor` of the page before.
            limit: How many probes at most, and how many earlier looks.
            at: A seq or an event id: the belief right after that event.
        """
        answer: ProbesPage = self._call("list_probes", session_id=session_id, cursor=cursor, limit=limit, at=at)
        return answer

    def list_survivors(
        self,
        session_id: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        at: Moment | None = None,
        text: str | None = None,
    ) -> SurvivorsPage:
        """Page through the survivors.

        For universes that are too large for one response. With `at`, all pages show the same event. With `text`, a
        page may be short or empty although others follow: it ends where enough ids were looked at.

        Args:
            session_id: The session, by its id or the name of its case.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            at: A seq or an event id: the belief right after that event.
            text: Only ids with this text in them, or in a value of their attributes, in any case.
        """
        answer: SurvivorsPage = self._call(
            "list_survivors", session_id=session_id, cursor=cursor, limit=limit, at=at, text=text
        )
        return answer

    def audit_trace(
        self, session_id: str, *, since_event_id: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> AuditTraceResponse:
        """The events of a session, as they were hashed.

        AUDIT_TRACE. Each event is the stored bytes with `event_hash` put before the closing brace. A page at a
        time, from the beginning, after `since_event_id`, or where `cursor` says. Hashes and links are checked on
        the way.

        Args:
            session_id: The session, by its id or the name of its case.
            since_event_id: Only the events after this one.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: AuditTraceResponse = self._call(
            "audit_trace", session_id=session_id, since_event_id=since_event_id, cursor=cursor, limit=limit
        )
        return answer

    def fork_session(
        self, session_id: str, *, at: Moment | None = None, without: Sequence[Moment] | None = None
    ) -> ForkSessionResponse:
        """Fork a session at an event.

        Opens a session that begins as this one was right after an event. Its declaration names that event, and the
        messages up to there are decided again as its own. Not where tombstones are kept in a store of their own.

        Args:
            session_id: The session, by its id or the name of its case.
            at: The seq or the id of the event to begin after; by default the last.
            without: Reports to leave out, by seq or event id: events of ELIMINATE up to `at`.
        """
        answer: ForkSessionResponse = self._call("fork_session", session_id=session_id, at=at, without=without)
        return answer

    def session_diff(
        self,
        session_id: str,
        *,
        from_: Moment | None = None,
        to: Moment | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        text: str | None = None,
    ) -> SessionDiffPage:
        """What happened between two events.

        Eliminations with their source, obligations entered and exited, conclusions, termination and refusals. With
        `text`, a page may be short or empty although others follow.

        Args:
            session_id: The session, by its id or the name of its case.
            from_: What came after it: a seq or an event id, of a space a snapshot id; by default 0.
            to: What came up to it, given as `from` is; by default the last event.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            text: Only ids with this text in them, or in a value of their attributes, in any case.
        """
        answer: SessionDiffPage = self._call(
            "session_diff", session_id=session_id, from_=from_, to=to, cursor=cursor, limit=limit, text=text
        )
        return answer

    def compare_sources(self, session_id: str, *, cursor: str | None = None, limit: int | None = None) -> SourcesPage:
        """Compare the sources of a session.

        What each source eliminated, alone and after others, the conclusions that it contradicts, and how far the
        sources agree in pairs.

        Args:
            session_id: The session, by its id or the name of its case.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: SourcesPage = self._call("compare_sources", session_id=session_id, cursor=cursor, limit=limit)
        return answer

    def session_contradiction(self, session_id: str) -> ContradictionResponse:
        """Which reports to doubt, where nothing is left.

        The causes that one report alone speaks against, the smallest sets of reports whose being wrong would
        explain the contradiction, and the shortest list of looks to take again. A fork goes on without a doubted
        report.

        Args:
            session_id: The session, by its id or the name of its case.
        """
        answer: ContradictionResponse = self._call("session_contradiction", session_id=session_id)
        return answer

    def list_obligations(self, session_id: str) -> ObligationsResponse:
        """The obligations of a session.

        Active and exited ones, in the order of entry.

        Args:
            session_id: The session, by its id or the name of its case.
        """
        answer: ObligationsResponse = self._call("list_obligations", session_id=session_id)
        return answer

    def enter_obligation(
        self, session_id: str, obligation_id: str, min_total_eliminations: int
    ) -> EnterObligationResponse:
        """Enter an obligation to eliminate.

        ENTER_OBLIGATION. Until enough is eliminated and it is exited, nothing can be concluded and the session
        cannot end.

        Args:
            session_id: The session, by its id or the name of its case.
            obligation_id: Not used before in this session.
            min_total_eliminations: How many hypotheses must be eliminated after this before it can be exited.
        """
        answer: EnterObligationResponse = self._call(
            "enter_obligation",
            session_id=session_id,
            obligation_id=obligation_id,
            min_total_eliminations=min_total_eliminations,
        )
        return answer

    def request_exit(self, session_id: str, obligation_id: str, *, context: Json = None) -> ApprovalResponse:
        """Ask to exit an obligation.

        REQUEST_EXIT. Approved once enough was eliminated since it was entered.

        Args:
            session_id: The session, by its id or the name of its case.
            obligation_id: The obligation, percent-encoded.
            context: Context of the request: stored and returned, never interpreted.
        """
        answer: ApprovalResponse = self._call(
            "request_exit", session_id=session_id, obligation_id=obligation_id, context=context
        )
        return answer

    def declare_conclusion(
        self, session_id: str, conclusion_id: str, *, context: Json = None
    ) -> DeclareConclusionResponse:
        """State a conclusion.

        DECLARE_CONCLUSION. Accepted while no obligation is active.

        Args:
            session_id: The session, by its id or the name of its case.
            conclusion_id: Opaque; often the hypothesis that is concluded.
            context: Context of the request: stored and returned, never interpreted.
        """
        answer: DeclareConclusionResponse = self._call(
            "declare_conclusion", session_id=session_id, conclusion_id=conclusion_id, context=context
        )
        return answer

    def request_termination(self, session_id: str, *, context: Json = None) -> ApprovalResponse:
        """Ask to end the session.

        REQUEST_TERMINATION. Approved with one survivor, no active obligation and stable conclusions, or by force
        where the policy allows it.

        Args:
            session_id: The session, by its id or the name of its case.
            context: Context of the request: stored and returned, never interpreted.
        """
        answer: ApprovalResponse = self._call("request_termination", session_id=session_id, context=context)
        return answer

    def session_analysis(self, session_id: str, *, kit: str | None = None, truth: str | None = None) -> Analysis:
        """Analyse the eliminations of a session.

        Bits, redundancy, and the events that explain the survivors; with the kit of the session also gains, luck
        and regret. The kit is the installed one that the session was declared over, or the one that `kit` names.

        Args:
            session_id: The session, by its id or the name of its case.
            kit: The id of an installed kit to compare the session with.
            truth: The hypothesis that is known to be true.
        """
        answer: Analysis = self._call("session_analysis", session_id=session_id, kit=kit, truth=truth)
        return answer

    def session_graph(
        self, session_id: str, *, cursor: str | None = None, limit: int | None = None, at: Moment | None = None
    ) -> SessionGraphResponse:
        """The causal graph of a session.

        Nodes, then edges, as of the version that the session is anchored at, each with what the session says of it.
        What is on a page never changes but for the states, which `at` pins. Refused where the server has no Tee,
        and for sessions over a provider.

        Args:
            session_id: The session, by its id or the name of its case.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most; 100 by default.
            at: A seq or an event id: the belief right after that event.
        """
        answer: SessionGraphResponse = self._call(
            "session_graph", session_id=session_id, cursor=cursor, limit=limit, at=at
        )
        return answer

    def explain_symptoms(
        self,
        session_id: str,
        symptom: Iterable[str],
        *,
        max_depth: int | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> GraphSearchPage:
        """Which nodes can explain symptoms.

        Those that are not eliminated and reach at least one symptom: those that explain the most first, then the
        nearest, each with a shortest path. Refused where the server has no Tee, and for sessions over a provider.

        Args:
            session_id: The session, by its id or the name of its case.
            symptom: A node that shows something wrong; once for each, up to 100.
            max_depth: How many edges a search goes far; 5 by default.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most; 100 by default.
        """
        answer: GraphSearchPage = self._call(
            "explain_symptoms", session_id=session_id, symptom=symptom, max_depth=max_depth, cursor=cursor, limit=limit
        )
        return answer

    def node_impact(
        self,
        session_id: str,
        node: str,
        *,
        max_depth: int | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> GraphSearchPage:
        """What a node can affect.

        The nodes that it reaches and that are not eliminated, the nearest first, each with a shortest path. Refused
        where the server has no Tee, and for sessions over a provider.

        Args:
            session_id: The session, by its id or the name of its case.
            node: The node to begin at.
            max_depth: How many edges a search goes far; 5 by default.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most; 100 by default.
        """
        answer: GraphSearchPage = self._call(
            "node_impact", session_id=session_id, node=node, max_depth=max_depth, cursor=cursor, limit=limit
        )
        return answer

    def prove_session_inclusion(self, session_id: str, *, at: Moment | None = None) -> dict[str, Any]:
        """Prove that an event is in the log.

        As it was hashed, byte for byte. The document can be checked without this server.

        Args:
            session_id: The session, by its id or the name of its case.
            at: A seq or an event id; without it, the newest event.
        """
        answer: dict[str, Any] = self._call("prove_session_inclusion", session_id=session_id, at=at)
        return answer

    def prove_session_consistency(self, session_id: str, old_size: int) -> dict[str, Any]:
        """Prove that the log only grew.

        It begins with every event that it had when it had `old_size` of them. The document can be checked without
        this server.

        Args:
            session_id: The session, by its id or the name of its case.
            old_size: How many events there were.
        """
        answer: dict[str, Any] = self._call("prove_session_consistency", session_id=session_id, old_size=old_size)
        return answer

    def prove_session_membership(
        self, session_id: str, hypothesis_id: str, *, at: Moment | None = None
    ) -> dict[str, Any]:
        """Prove that a hypothesis survived.

        Right after an event. A conflict if it was eliminated, which names the event that did it. The document can
        be checked without this server.

        Args:
            session_id: The session, by its id or the name of its case.
            hypothesis_id: The hypothesis.
            at: A seq or an event id; without it, the newest event.
        """
        answer: dict[str, Any] = self._call(
            "prove_session_membership", session_id=session_id, hypothesis_id=hypothesis_id, at=at
        )
        return answer

    def prove_session_elimination(
        self, session_id: str, hypothesis_id: str, *, at: Moment | None = None
    ) -> dict[str, Any]:
        """Prove that a hypothesis was eliminated.

        It was gone right after an event, and which event eliminated it. A conflict if it survived. The document can
        be checked without this server.

        Args:
            session_id: The session, by its id or the name of its case.
            hypothesis_id: The hypothesis.
            at: A seq or an event id; without it, the newest event.
        """
        answer: dict[str, Any] = self._call(
            "prove_session_elimination", session_id=session_id, hypothesis_id=hypothesis_id, at=at
        )
        return answer

    def prove_session_transition(
        self, session_id: str, *, at: Moment | None = None, entry: bool | None = None
    ) -> dict[str, Any]:
        """Prove what an event changed.

        It changed exactly this, from one survivor commitment to the next. The document can be checked without this
        server.

        Args:
            session_id: The session, by its id or the name of its case.
            at: A seq or an event id; without it, the newest event.
            entry: With `true`, the entry and its place in the stream are part of the proof.
        """
        answer: dict[str, Any] = self._call("prove_session_transition", session_id=session_id, at=at, entry=entry)
        return answer

    def prove_session_refusal(self, session_id: str, *, at: Moment | None = None) -> dict[str, Any]:
        """Prove that a request was denied.

        A conflict if it was not. The document can be checked without this server.

        Args:
            session_id: The session, by its id or the name of its case.
            at: A seq or an event id; without it, the newest event.
        """
        answer: dict[str, Any] = self._call("prove_session_refusal", session_id=session_id, at=at)
        return answer

    def whoami(self) -> WhoAmI:
        """Who the server takes you for.

        The actor, the roles and the scopes of the key, and where a scope holds for single sessions or spaces alone.
        Any key will do.
        """
        answer: WhoAmI = self._call("whoami")
        return answer

    def healthz(self) -> Health:
        """Whether the process is alive.

        Answers without a request to the store.
        """
        answer: Health = self._call("healthz")
        return answer

    def readyz(self) -> Health:
        """Whether the stores answer and are whole.

        Reads from the store, and asks Tee which one it is where tombstones are there. 503 also where the store is
        behind what this process has seen of it, which `behind` names, where there is no register of keys to go by,
        and where nothing is signed because the store does not continue what was signed before.
        """
        answer: Health = self._call("readyz")
        return answer

    def put_kit(self, text: str, *, media_type: str | None = None) -> PutKitResponse:
        """Put a kit on record.

        PUT_KIT. The document as it was written, named by its hash; the same document again changes nothing. What is
        wrong with it is told with lines and columns. For operators.

        Args:
            text: The file as it is written.
            media_type: `application/yaml`, which is the default, or `application/json`.
        """
        answer: PutKitResponse = self._call("put_kit", text=text, media_type=media_type)
        return answer

    def list_kits(self, *, cursor: str | None = None, limit: int | None = None) -> KitsPage:
        """List kits.

        By id, each in the content that was put last.

        Args:
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: KitsPage = self._call("list_kits", cursor=cursor, limit=limit)
        return answer

    def get_kit(self, kit_id: str, *, version: str | None = None) -> KitResponse:
        """A kit, and the document that it was written as.

        One content and the list of all; the document alone, as it was written, where `Accept` asks for
        `application/yaml`.

        Args:
            kit_id: The kit.
            version: The hash of a content, or a version; by default the content that was put last.
        """
        answer: KitResponse = self._call("get_kit", kit_id=kit_id, version=version)
        return answer

    def create_space(
        self,
        space_id: str,
        *,
        mode: str | None = None,
        policy: Mapping[str, str] | None = None,
        policy_file: Json = None,
        operators_needed: int | None = None,
    ) -> SpaceResponse:
        """Create a space.

        CREATE_SPACE. The first policy never needs a second operator. Without a policy nothing is allowed in the
        space. For operators.

        Args:
            policy: Pairs of policy.* and constraint.*, validated together.
            policy_file: A policy file, in place of the pairs.
            operators_needed: How many operators a change of policy takes. By default 2 if several operators hold
                keys.
        """
        answer: SpaceResponse = self._call(
            "create_space",
            space_id=space_id,
            mode=mode,
            policy=policy,
            policy_file=policy_file,
            operators_needed=operators_needed,
        )
        return answer

    def list_spaces(
        self, *, case_id: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> SpacesPage:
        """List spaces.

        Those that the key may read, sorted by id. Where they are found by a case, a page may be empty and still
        have a `next_cursor`.

        Args:
            case_id: Only those that admitted this case, by its id or name.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: SpacesPage = self._call("list_spaces", case_id=case_id, cursor=cursor, limit=limit)
        return answer

    def get_space(self, space_id: str) -> SpaceResponse:
        """A space as it is now.

        Its mode, policy, newest snapshot and counts.

        Args:
            space_id: The space.
        """
        answer: SpaceResponse = self._call("get_space", space_id=space_id)
        return answer

    def read_state(
        self,
        space_id: str,
        *,
        at: Moment | None = None,
        prefix: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> StateResponse:
        """The state, now or at any snapshot.

        Sorted by key. Keys that the caller may not read are left out: for all but operators these are policy.*,
        constraint.* and the keys that `policy.private` names.

        Args:
            space_id: The space.
            at: A `state_snapshot_id`, or a seq: the state right after it.
            prefix: Only keys that begin with this.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: StateResponse = self._call(
            "read_state", space_id=space_id, at=at, prefix=prefix, cursor=cursor, limit=limit
        )
        return answer

    def space_diff(
        self,
        space_id: str,
        *,
        from_: Moment | None = None,
        to: Moment | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> SpaceDiffPage:
        """What changed between two moments.

        Facts, policy, mode, tools, capabilities, proposals, approvals, executions and memory that are another after
        `to` than after `from`. Keys that the caller may not read are left out, and for all but operators changes of
        policy too.

        Args:
            space_id: The space.
            from_: What came after it: a seq or an event id, of a space a snapshot id; by default 0.
            to: What came up to it, given as `from` is; by default the last event.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: SpaceDiffPage = self._call(
            "space_diff", space_id=space_id, from_=from_, to=to, cursor=cursor, limit=limit
        )
        return answer

    def list_deltas(self, space_id: str, *, cursor: str | None = None, limit: int | None = None) -> CommitsPage:
        """List commits, the oldest first.

        A page at a time.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: CommitsPage = self._call("list_deltas", space_id=space_id, cursor=cursor, limit=limit)
        return answer

    def list_decisions(self, space_id: str, *, cursor: str | None = None, limit: int | None = None) -> DecisionsPage:
        """List decisions, the oldest first.

        A page at a time.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: DecisionsPage = self._call("list_decisions", space_id=space_id, cursor=cursor, limit=limit)
        return answer

    def space_audit(
        self, space_id: str, *, since_event_id: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> SpaceAuditResponse:
        """The entries of a space's stream, as they were hashed.

        Each entry is the stored bytes with `event_hash` put before the closing brace. Nothing is left out. For
        operators.

        Args:
            space_id: The space.
            since_event_id: Only the events after this one.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: SpaceAuditResponse = self._call(
            "space_audit", space_id=space_id, since_event_id=since_event_id, cursor=cursor, limit=limit
        )
        return answer

    def read_policy(self, space_id: str, *, cursor: str | None = None, limit: int | None = None) -> PolicyPage:
        """The policy, by key, and the file that it was written as.

        Pairs and file as JSON; the file alone, as it was written, where `Accept` asks for `application/yaml`. For
        operators.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: PolicyPage = self._call("read_policy", space_id=space_id, cursor=cursor, limit=limit)
        return answer

    def put_policy(
        self,
        space_id: str,
        text: str,
        *,
        media_type: str | None = None,
        base_policy_hash: str | None = None,
        reason: str | None = None,
    ) -> PolicyPut:
        """Make a file the policy.

        PROPOSE_POLICY of everything that the file changes. The answer says whether it is in force, or waits for
        another operator. What is wrong with the file is told with lines and columns. For operators.

        Args:
            space_id: The space.
            text: The file as it is written.
            media_type: `application/yaml`, which is the default, or `application/json`.
            base_policy_hash: The policy that the file is to replace: a conflict, if the policy is another by now.
            reason: Free text for people.
        """
        answer: PolicyPut = self._call(
            "put_policy",
            space_id=space_id,
            text=text,
            media_type=media_type,
            base_policy_hash=base_policy_hash,
            reason=reason,
        )
        return answer

    def check_policy(self, space_id: str, text: str, *, media_type: str | None = None) -> PolicyCheck:
        """Look a policy file through.

        What is wrong with it, what its tests come to, and which keys it would change. Nothing is recorded. For
        operators.

        Args:
            space_id: The space.
            text: The file as it is written.
            media_type: `application/yaml`, which is the default, or `application/json`.
        """
        answer: PolicyCheck = self._call("check_policy", space_id=space_id, text=text, media_type=media_type)
        return answer

    def policy_impact(
        self, space_id: str, text: str, *, media_type: str | None = None, limit: int | None = None
    ) -> PolicyImpact:
        """Try a policy file on the past.

        Decides every proposal of the space again under the file: which decisions flip, by which line, and what they
        touch. Sessions are read from their logs as of each decision. Nothing is recorded. For operators.

        Args:
            space_id: The space.
            text: The file as it is written.
            media_type: `application/yaml`, which is the default, or `application/json`.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: PolicyImpact = self._call(
            "policy_impact", space_id=space_id, text=text, media_type=media_type, limit=limit
        )
        return answer

    def explain_proposal(
        self,
        space_id: str,
        proposal_id: str,
        state_snapshot_id: str,
        provenance: Mapping[str, Json],
        candidates: Sequence[Mapping[str, Json]],
        *,
        atomic: bool | None = None,
        case_id: str | None = None,
        defer_ms: int | None = None,
        ask_ms: int | None = None,
    ) -> ExplainResponse:
        """Explain what would be decided about a proposal.

        A dry run on the current state and policy: the decision, its reasons, and the smallest change of facts that
        would change it. Nothing is recorded.

        Args:
            space_id: The space.
            proposal_id: Chosen by the caller; repeating the proposal gives the first answer again.
            state_snapshot_id: The state that the caller read.
            candidates: State deltas and tool calls, in any order.
            atomic: All or nothing.
            case_id: The case that it belongs to.
            defer_ms: How long it may stay parked.
            ask_ms: How long it may wait for approval.
        """
        answer: ExplainResponse = self._call(
            "explain_proposal",
            space_id=space_id,
            proposal_id=proposal_id,
            state_snapshot_id=state_snapshot_id,
            provenance=provenance,
            candidates=candidates,
            atomic=atomic,
            case_id=case_id,
            defer_ms=defer_ms,
            ask_ms=ask_ms,
        )
        return answer

    def explain_decision(self, space_id: str, proposal_id: str, *, now: bool | None = None) -> ExplainResponse:
        """Explain the decision on a proposal.

        The newest decision, made again on the state that it was made on: which stage, which constraint, which
        predicate, what it found, and the smallest change of facts that would have changed the decision. With `now`,
        how the same proposal would be decided now, for the one who made it: for that one and for operators.

        Args:
            space_id: The space.
            proposal_id: The proposal.
            now: `true`: how it would be decided now.
        """
        answer: ExplainResponse = self._call("explain_decision", space_id=space_id, proposal_id=proposal_id, now=now)
        return answer

    def list_inbox(
        self,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        space_id: str | None = None,
    ) -> InboxPage:
        """What waits for a person, across spaces.

        Requests for approval, executions in doubt, and changes that take a second operator: those that this key
        could settle now, and none that its own actor asked for. By space, and then the oldest first.

        Args:
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            kind: Only this kind. One of `approval`, `execution_in_doubt`, `policy_change`, `observe_mode`,
                `governance`.
            space_id: Only of this space.
        """
        answer: InboxPage = self._call("list_inbox", cursor=cursor, limit=limit, kind=kind, space_id=space_id)
        return answer

    def list_proposals(
        self,
        space_id: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        status: str | None = None,
        order: str | None = None,
        case_id: str | None = None,
        agent: str | None = None,
        tool: str | None = None,
        kit: str | None = None,
        label: Iterable[str] | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> ProposalsPage:
        """List proposals, the oldest first or the newest.

        A page at a time.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            status: Only those with this status. One of `denied`, `asked`, `parked`, `ready`, `running`,
                `committed`, `failed`, `expired`, `rejected`, `withdrawn`.
            order: The oldest first, which is the default, or the newest. One of `oldest`, `newest`.
            case_id: Only those of this case, by its id or name.
            agent: Only those that this agent proposed.
            tool: Only those with a call of this tool.
            kit: Only those of a case whose session came from this provider. What the key may not read does not
                count.
            label: By the labels of their case. Only those with this label, as `name:value`; may be sent several
                times, and then all must hold.
            since: Only those from this moment on (RFC 3339).
            until: Only those from before this moment (RFC 3339).
        """
        answer: ProposalsPage = self._call(
            "list_proposals",
            space_id=space_id,
            cursor=cursor,
            limit=limit,
            status=status,
            order=order,
            case_id=case_id,
            agent=agent,
            tool=tool,
            kit=kit,
            label=label,
            since=since,
            until=until,
        )
        return answer

    def get_proposal(self, space_id: str, proposal_id: str, *, wait: int | None = None) -> ProposalResponse:
        """One proposal.

        The proposal as it is now.

        Args:
            space_id: The space.
            proposal_id: The proposal.
            wait: Seconds to wait for news before the answer, which then is as it is. The longest is a setting of
                the server.
        """
        answer: ProposalResponse = self._call("get_proposal", space_id=space_id, proposal_id=proposal_id, wait=wait)
        return answer

    def list_approvals(
        self,
        space_id: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        status: str | None = None,
        order: str | None = None,
        case_id: str | None = None,
        agent: str | None = None,
        tool: str | None = None,
        kit: str | None = None,
        label: Iterable[str] | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> ApprovalsPage:
        """List approvals, the oldest first or the newest.

        A page at a time.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            status: Only those with this status. One of `pending`, `approved`, `rejected`, `expired`, `withdrawn`.
            order: The oldest first, which is the default, or the newest. One of `oldest`, `newest`.
            case_id: Only those of this case, by its id or name.
            agent: Only those that this agent proposed.
            tool: Only those with a call of this tool.
            kit: Only those of a case whose session came from this provider. What the key may not read does not
                count.
            label: By the labels of their case. Only those with this label, as `name:value`; may be sent several
                times, and then all must hold.
            since: Only those from this moment on (RFC 3339).
            until: Only those from before this moment (RFC 3339).
        """
        answer: ApprovalsPage = self._call(
            "list_approvals",
            space_id=space_id,
            cursor=cursor,
            limit=limit,
            status=status,
            order=order,
            case_id=case_id,
            agent=agent,
            tool=tool,
            kit=kit,
            label=label,
            since=since,
            until=until,
        )
        return answer

    def get_approval(self, space_id: str, approval_id: str) -> ApprovalItem:
        """One approval.

        The approval as it is now.

        Args:
            space_id: The space.
            approval_id: The request for approval.
        """
        answer: ApprovalItem = self._call("get_approval", space_id=space_id, approval_id=approval_id)
        return answer

    def list_executions(
        self,
        space_id: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        status: str | None = None,
        order: str | None = None,
        case_id: str | None = None,
        agent: str | None = None,
        tool: str | None = None,
        kit: str | None = None,
        label: Iterable[str] | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> ExecutionsPage:
        """List executions, the oldest first or the newest.

        A page at a time.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            status: Only those with this status. One of `ready`, `running`, `in_doubt`, `succeeded`, `failed`,
                `timed_out`, `result_refused`, `not_started`.
            order: The oldest first, which is the default, or the newest. One of `oldest`, `newest`.
            case_id: Only those of this case, by its id or name.
            agent: Only those that this agent proposed.
            tool: Only those with a call of this tool.
            kit: Only those of a case whose session came from this provider. What the key may not read does not
                count.
            label: By the labels of their case. Only those with this label, as `name:value`; may be sent several
                times, and then all must hold.
            since: Only those from this moment on (RFC 3339).
            until: Only those from before this moment (RFC 3339).
        """
        answer: ExecutionsPage = self._call(
            "list_executions",
            space_id=space_id,
            cursor=cursor,
            limit=limit,
            status=status,
            order=order,
            case_id=case_id,
            agent=agent,
            tool=tool,
            kit=kit,
            label=label,
            since=since,
            until=until,
        )
        return answer

    def get_execution(self, space_id: str, execution_id: str) -> ExecutionResponse:
        """One execution.

        The execution as it is now.

        Args:
            space_id: The space.
            execution_id: The execution.
        """
        answer: ExecutionResponse = self._call("get_execution", space_id=space_id, execution_id=execution_id)
        return answer

    def list_tools(self, space_id: str, *, cursor: str | None = None, limit: int | None = None) -> ToolsPage:
        """List tools, sorted by id.

        A page at a time.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: ToolsPage = self._call("list_tools", space_id=space_id, cursor=cursor, limit=limit)
        return answer

    def get_tool(self, space_id: str, tool_id: str) -> ToolResponse:
        """One tool.

        The tool as it is now.

        Args:
            space_id: The space.
            tool_id: The tool, percent-encoded.
        """
        answer: ToolResponse = self._call("get_tool", space_id=space_id, tool_id=tool_id)
        return answer

    def list_capabilities(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> CapabilitiesPage:
        """List capabilities, sorted by id.

        A page at a time.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: CapabilitiesPage = self._call("list_capabilities", space_id=space_id, cursor=cursor, limit=limit)
        return answer

    def get_capability(self, space_id: str, token_id: str) -> CapabilityResponse:
        """One capability.

        The capability as it is now.

        Args:
            space_id: The space.
            token_id: The capability token.
        """
        answer: CapabilityResponse = self._call("get_capability", space_id=space_id, token_id=token_id)
        return answer

    def list_cases(
        self,
        space_id: str,
        *,
        cursor: str | None = None,
        limit: int | None = None,
        status: str | None = None,
        order: str | None = None,
        agent: str | None = None,
        kit: str | None = None,
        label: Iterable[str] | None = None,
        text: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> CasesPage:
        """List cases, the oldest first or the newest.

        A page at a time.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            status: Only those with this status. One of `open`, `closed`.
            order: The oldest first, which is the default, or the newest. One of `oldest`, `newest`.
            agent: Only those that this agent could act under when they were admitted.
            kit: Only those of a case whose session came from this provider. What the key may not read does not
                count.
            label: Only those with this label, as `name:value`; may be sent several times, and then all must hold.
            text: Only those with this text in their id, name or title, in any case.
            since: Only those from this moment on (RFC 3339).
            until: Only those from before this moment (RFC 3339).
        """
        answer: CasesPage = self._call(
            "list_cases",
            space_id=space_id,
            cursor=cursor,
            limit=limit,
            status=status,
            order=order,
            agent=agent,
            kit=kit,
            label=label,
            text=text,
            since=since,
            until=until,
        )
        return answer

    def get_case(self, space_id: str, case_id: str) -> CaseResponse:
        """One case.

        The case as it is now.

        Args:
            space_id: The space.
            case_id: The case, by the id of its session or its name.
        """
        answer: CaseResponse = self._call("get_case", space_id=space_id, case_id=case_id)
        return answer

    def list_memory(self, space_id: str, *, cursor: str | None = None, limit: int | None = None) -> MemoryPage:
        """List memory, the oldest first.

        A page at a time.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: MemoryPage = self._call("list_memory", space_id=space_id, cursor=cursor, limit=limit)
        return answer

    def get_memory(self, space_id: str, entry_id: str) -> MemoryResponse:
        """One memory entry.

        The memory entry as it is now.

        Args:
            space_id: The space.
            entry_id: The memory entry.
        """
        answer: MemoryResponse = self._call("get_memory", space_id=space_id, entry_id=entry_id)
        return answer

    def list_policy_changes(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> PolicyChangesPage:
        """List policy changes, the oldest first.

        A page at a time. For operators.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: PolicyChangesPage = self._call("list_policy_changes", space_id=space_id, cursor=cursor, limit=limit)
        return answer

    def get_policy_change(self, space_id: str, change_id: str) -> PolicyChangeResponse:
        """One policy change.

        The policy change as it is now. For operators.

        Args:
            space_id: The space.
            change_id: The change of policy.
        """
        answer: PolicyChangeResponse = self._call("get_policy_change", space_id=space_id, change_id=change_id)
        return answer

    def set_space_mode(self, space_id: str, mode: str) -> StepResponse:
        """Enforce or observe.

        SET_MODE. While a space observes, every decision is made and recorded, and nothing is blocked. For
        operators. The change from enforcing to observing takes as many operators as a change of policy; the request
        of the first one is recorded.

        Args:
            space_id: The space.
        """
        answer: StepResponse = self._call("set_space_mode", space_id=space_id, mode=mode)
        return answer

    def set_space_governance(self, space_id: str, operators_needed: int) -> StepResponse:
        """Set how many operators a change of policy takes.

        SET_GOVERNANCE. One operator can ask for two. From two to one takes two operators; the request of the first
        one is recorded. For operators.

        Args:
            space_id: The space.
        """
        answer: StepResponse = self._call("set_space_governance", space_id=space_id, operators_needed=operators_needed)
        return answer

    def propose(
        self,
        space_id: str,
        proposal_id: str,
        state_snapshot_id: str,
        provenance: Mapping[str, Json],
        candidates: Sequence[Mapping[str, Json]],
        *,
        atomic: bool | None = None,
        case_id: str | None = None,
        defer_ms: int | None = None,
        ask_ms: int | None = None,
    ) -> ProposalResponse:
        """Make a proposal.

        PROPOSE. It is validated at once. What is allowed is started and committed; what is not is blocked, parked,
        sent for approval, or answered with a cheaper offer. Repeating a proposal gives the first answer again;
        another proposal under the same id is a conflict.

        Args:
            space_id: The space.
            proposal_id: Chosen by the caller; repeating the proposal gives the first answer again.
            state_snapshot_id: The state that the caller read.
            candidates: State deltas and tool calls, in any order.
            atomic: All or nothing.
            case_id: The case that it belongs to.
            defer_ms: How long it may stay parked.
            ask_ms: How long it may wait for approval.
        """
        answer: ProposalResponse = self._call(
            "propose",
            space_id=space_id,
            proposal_id=proposal_id,
            state_snapshot_id=state_snapshot_id,
            provenance=provenance,
            candidates=candidates,
            atomic=atomic,
            case_id=case_id,
            defer_ms=defer_ms,
            ask_ms=ask_ms,
        )
        return answer

    def withdraw_proposal(self, space_id: str, proposal_id: str, *, reason: str | None = None) -> WithdrawnProposal:
        """Withdraw a proposal that waits.

        WITHDRAW. By its proposer or an operator, while it is parked or waits for approval. What runs already goes
        on. Repeating it gives the first answer again.

        Args:
            space_id: The space.
            proposal_id: The proposal.
            reason: Free text for people.
        """
        answer: WithdrawnProposal = self._call(
            "withdraw_proposal", space_id=space_id, proposal_id=proposal_id, reason=reason
        )
        return answer

    def approve(
        self,
        space_id: str,
        approval_id: str,
        *,
        uses: int | None = None,
        expires_at: str | None = None,
        call_hash: str | None = None,
    ) -> SettledApproval:
        """Approve exactly what was asked.

        APPROVE. Bound to the args, the constraints that asked, and the policy. The proposal is decided again on the
        current state. A proposer cannot approve the proposal.

        Args:
            space_id: The space.
            approval_id: The request for approval.
            uses: How many such calls it covers.
            expires_at: When it expires.
            call_hash: The `call_hash` that the approver was shown; refused if it differs.
        """
        answer: SettledApproval = self._call(
            "approve", space_id=space_id, approval_id=approval_id, uses=uses, expires_at=expires_at, call_hash=call_hash
        )
        return answer

    def reject(self, space_id: str, approval_id: str, *, reason: str | None = None) -> SettledApproval:
        """Reject what was asked.

        REJECT.

        Args:
            space_id: The space.
            approval_id: The request for approval.
            reason: Free text for people.
        """
        answer: SettledApproval = self._call("reject", space_id=space_id, approval_id=approval_id, reason=reason)
        return answer

    def register_tool(
        self,
        space_id: str,
        tool_id: str,
        kind: str,
        args_schema: Json,
        *,
        description: str | None = None,
        result_schema: Json = None,
        target: Json = None,
        timeout_ms: int | None = None,
        max_result_bytes: int | None = None,
        writes: bool | None = None,
        idempotent: bool | None = None,
        facts: Mapping[str, str] | None = None,
        caller_facts: bool | None = None,
        executor: str | None = None,
    ) -> StepResponse:
        """Register a tool, or a new version of one.

        REGISTER_TOOL. For operators.

        Args:
            space_id: The space.
            args_schema: A JSON Schema, 2020-12.
            description: Free text for people.
            result_schema: A JSON Schema, 2020-12, or null.
            target: What this kind of tool needs to be run.
            writes: The tool has effects, so calls need an idempotency key.
            idempotent: A call in doubt may be repeated.
            facts: Fact keys, and the path of each value in the result.
            caller_facts: Results of a `caller` tool, which its agent reports, set its facts.
            executor: Who runs calls of a `caller` tool: the id of an executor; by default the calling agent.
        """
        answer: StepResponse = self._call(
            "register_tool",
            space_id=space_id,
            tool_id=tool_id,
            kind=kind,
            args_schema=args_schema,
            description=description,
            result_schema=result_schema,
            target=target,
            timeout_ms=timeout_ms,
            max_result_bytes=max_result_bytes,
            writes=writes,
            idempotent=idempotent,
            facts=facts,
            caller_facts=caller_facts,
            executor=executor,
        )
        return answer

    def retire_tool(self, space_id: str, tool_id: str) -> StepResponse:
        """Retire a tool.

        RETIRE_TOOL. It can no longer be called. For operators.

        Args:
            space_id: The space.
            tool_id: The tool, percent-encoded.
        """
        answer: StepResponse = self._call("retire_tool", space_id=space_id, tool_id=tool_id)
        return answer

    def issue_capability(
        self,
        space_id: str,
        token_id: str,
        agent_id: str,
        tool_ids: Iterable[str],
        *,
        capabilities: Iterable[str] | None = None,
        scopes: Sequence[Mapping[str, Json]] | None = None,
        budget: Mapping[str, Json] | None = None,
        expires_at: str | None = None,
        parent_id: str | None = None,
    ) -> StepResponse:
        """Issue a capability token.

        ISSUE_CAPABILITY. By an operator, which needs the scope `spaces:operate`, or by the holder of a wider token.

        Args:
            space_id: The space.
            tool_ids: The tools that the token covers.
            capabilities: Names by which constraints refer to the token.
            scopes: Bounds on args; all must hold.
            parent_id: The wider token that this one is issued under.
        """
        answer: StepResponse = self._call(
            "issue_capability",
            space_id=space_id,
            token_id=token_id,
            agent_id=agent_id,
            tool_ids=tool_ids,
            capabilities=capabilities,
            scopes=scopes,
            budget=budget,
            expires_at=expires_at,
            parent_id=parent_id,
        )
        return answer

    def revoke_capability(self, space_id: str, token_id: str, *, reason: str | None = None) -> StepResponse:
        """Revoke a capability token.

        REVOKE_CAPABILITY. The token, and every token issued under it, stops working. By its holder, by the holder
        of the one above it, or by an operator, which needs the scope `spaces:operate`.

        Args:
            space_id: The space.
            token_id: The capability token.
            reason: Free text for people.
        """
        answer: StepResponse = self._call("revoke_capability", space_id=space_id, token_id=token_id, reason=reason)
        return answer

    def open_case(
        self,
        space_id: str,
        case_id: str,
        *,
        agents: Iterable[str] | None = None,
        attributes: Json = None,
        title: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> StepResponse:
        """Admit a case to the space.

        OPEN_CASE. From now on agents of the case may act under it here, and their gates read its belief session.
        For operators, and for keys with the scope `spaces:cases`; never for agents. A case that was closed can be
        admitted again. While it is open, repeating it gives the first answer again.

        Args:
            space_id: The space.
            case_id: The session, by its id or the name of its case.
            agents: Of the agents that the case lists, only these may act under it here; without any, all that it
                lists. Where it lists none, these count.
            attributes: A JSON object for policies to read.
            title: One line for people, and to find it by.
            labels: Names and texts to find it by.
        """
        answer: StepResponse = self._call(
            "open_case",
            space_id=space_id,
            case_id=case_id,
            agents=agents,
            attributes=attributes,
            title=title,
            labels=labels,
        )
        return answer

    def close_case(self, space_id: str, case_id: str, *, reason: str | None = None) -> StepResponse:
        """Close a case.

        CLOSE_CASE. Nothing is done under it any more, and what waits under it is withdrawn. For those who may open
        one.

        Args:
            space_id: The space.
            case_id: The case, by the id of its session or its name.
            reason: Free text for people.
        """
        answer: StepResponse = self._call("close_case", space_id=space_id, case_id=case_id, reason=reason)
        return answer

    def put_memory(
        self,
        space_id: str,
        entry_id: str,
        kind: str,
        claim: Json,
        *,
        evidence: Mapping[str, Json] | None = None,
        conflict_state: str | None = None,
        ttl_ms: int | None = None,
        review_at: str | None = None,
    ) -> StepResponse:
        """Put a claim into memory.

        PUT_MEMORY. An unconfirmed claim is a hypothesis or derived, and has an end or a review date.

        Args:
            space_id: The space.
            claim: Any JSON value.
            ttl_ms: How long it is kept.
            review_at: When it is due for review.
        """
        answer: StepResponse = self._call(
            "put_memory",
            space_id=space_id,
            entry_id=entry_id,
            kind=kind,
            claim=claim,
            evidence=evidence,
            conflict_state=conflict_state,
            ttl_ms=ttl_ms,
            review_at=review_at,
        )
        return answer

    def promote_memory(self, space_id: str, entry_id: str, kind: str, evidence: Mapping[str, Json]) -> StepResponse:
        """Promote a claim.

        PROMOTE_MEMORY. Only on new evidence.

        Args:
            space_id: The space.
            entry_id: The memory entry.
        """
        answer: StepResponse = self._call(
            "promote_memory", space_id=space_id, entry_id=entry_id, kind=kind, evidence=evidence
        )
        return answer

    def dispute_memory(
        self, space_id: str, entry_id: str, conflict_state: str, *, because: Iterable[str] | None = None
    ) -> StepResponse:
        """Dispute a claim.

        DISPUTE_MEMORY. Records whether other claims contradict it. A dispute is taken back by who raised it, or by
        an operator.

        Args:
            space_id: The space.
            entry_id: The memory entry.
            because: Ids of what contradicts it.
        """
        answer: StepResponse = self._call(
            "dispute_memory", space_id=space_id, entry_id=entry_id, conflict_state=conflict_state, because=because
        )
        return answer

    def propose_policy_change(
        self,
        space_id: str,
        change_id: str,
        base_policy_hash: str,
        *,
        set_: Mapping[str, str] | None = None,
        unset: Iterable[str] | None = None,
        reason: str | None = None,
    ) -> StepResponse:
        """Propose a change of policy.

        PROPOSE_POLICY. Validated at once; applied when another operator authorises it, or at once where one
        operator is enough.

        Args:
            space_id: The space.
            base_policy_hash: The policy that the caller read.
            set_: Strings by key, `namespace.rest`; structured values are JSON text.
            reason: Free text for people.
        """
        answer: StepResponse = self._call(
            "propose_policy_change",
            space_id=space_id,
            change_id=change_id,
            base_policy_hash=base_policy_hash,
            set_=set_,
            unset=unset,
            reason=reason,
        )
        return answer

    def authorise_policy_change(self, space_id: str, change_id: str, *, reason: str | None = None) -> StepResponse:
        """Authorise a change of policy.

        SETTLE_POLICY. By an operator other than the proposer, and only on the policy that the change was proposed
        for.

        Args:
            space_id: The space.
            change_id: The change of policy.
            reason: Free text for people.
        """
        answer: StepResponse = self._call(
            "authorise_policy_change", space_id=space_id, change_id=change_id, reason=reason
        )
        return answer

    def reject_policy_change(self, space_id: str, change_id: str, *, reason: str | None = None) -> StepResponse:
        """Reject a change of policy.

        SETTLE_POLICY. By any operator, including the proposer.

        Args:
            space_id: The space.
            change_id: The change of policy.
            reason: Free text for people.
        """
        answer: StepResponse = self._call("reject_policy_change", space_id=space_id, change_id=change_id, reason=reason)
        return answer

    def make_call(
        self,
        space_id: str,
        tool_id: str,
        *,
        args: Json = None,
        case_id: str | None = None,
        capability_token_id: str | None = None,
        idempotency_key: str | None = None,
        joins: bool | None = None,
        forwarded: Json = None,
        claim: Mapping[str, Json] | None = None,
        wait_seconds: int | None = None,
        defer_ms: int | None = None,
        ask_ms: int | None = None,
    ) -> CallResponse:
        """Call a tool.

        PROPOSE, of one call. The server takes the newest state and a token of the caller's. The registration of the
        tool says who runs it: the server, the caller, or an executor. A writing call without an idempotency key
        joins the same call of the same actor and case while that is open or in doubt; `joined` says so. A call that
        is not let through has a `refusal`. A program that runs calls for an agent sends its own credential in
        `Cmbs-Executor`, beside the agent's.

        Args:
            space_id: The space.
            args: A JSON object.
            case_id: The case that it belongs to.
            capability_token_id: The token that covers it. By default one of the caller's that does.
            idempotency_key: A call under one key runs once. Without one, a writing call joins the same open call.
            joins: With a key: whether it joins the same open writing call under another key, as without one.
            forwarded: Fields of the request beside its arguments. What the policy does not let through is left out.
            wait_seconds: How long to wait for it to end.
            defer_ms: How long it may wait for what it depends on.
            ask_ms: How long it may wait for approval.
        """
        answer: CallResponse = self._call(
            "make_call",
            space_id=space_id,
            tool_id=tool_id,
            args=args,
            case_id=case_id,
            capability_token_id=capability_token_id,
            idempotency_key=idempotency_key,
            joins=joins,
            forwarded=forwarded,
            claim=claim,
            wait_seconds=wait_seconds,
            defer_ms=defer_ms,
            ask_ms=ask_ms,
        )
        return answer

    def list_calls(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None, wait_seconds: int | None = None
    ) -> CallsPage:
        """List calls that wait for you to run them.

        Those that are allowed and that this caller may claim, the oldest first. With `wait_seconds` the answer
        comes as soon as there is one.

        Args:
            space_id: The space.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            wait_seconds: Seconds to wait for news before the answer, which then is as it is. The longest is a
                setting of the server.
        """
        answer: CallsPage = self._call(
            "list_calls", space_id=space_id, cursor=cursor, limit=limit, wait_seconds=wait_seconds
        )
        return answer

    def get_call(self, space_id: str, call_id: str, *, wait_seconds: int | None = None) -> CallResponse:
        """One call.

        Where it stands now, or, with `wait_seconds`, as soon as it has ended or the caller has to run it.

        Args:
            space_id: The space.
            call_id: The call.
            wait_seconds: Seconds to wait for news before the answer, which then is as it is. The longest is a
                setting of the server.
        """
        answer: CallResponse = self._call("get_call", space_id=space_id, call_id=call_id, wait_seconds=wait_seconds)
        return answer

    def claim_call(self, space_id: str, call_id: str, nonce_hash: str, call_hash: str) -> CallResponse:
        """Claim a call, to run it.

        START. The call is decided again on the newest state: run it only if the answer says `running`. Exactly one
        claim succeeds; the same claim again is a repeat, another one a conflict. For the executor that the tool
        names, or for the agent that made the call.

        Args:
            space_id: The space.
            call_id: The call.
            nonce_hash: The SHA-256 of a secret that the outcome has to present.
            call_hash: The `call_hash` of what is going to be sent; a conflict if another was decided.
        """
        answer: CallResponse = self._call(
            "claim_call", space_id=space_id, call_id=call_id, nonce_hash=nonce_hash, call_hash=call_hash
        )
        return answer

    def report_call(
        self,
        space_id: str,
        call_id: str,
        status: str,
        *,
        result: Json = None,
        error: str | None = None,
        duration_ms: int | None = None,
        nonce: str | None = None,
    ) -> CallResponse:
        """Report what came of a call.

        RECORD_OUTCOME. By the one who claimed it, with the nonce, also after its deadline; or by an operator for a
        call in doubt, which needs the scope `spaces:operate`. The first report counts.

        Args:
            space_id: The space.
            call_id: The call.
            result: Any JSON value.
            error: What failed.
            nonce: The secret of the claim, if the call was claimed.
        """
        answer: CallResponse = self._call(
            "report_call",
            space_id=space_id,
            call_id=call_id,
            status=status,
            result=result,
            error=error,
            duration_ms=duration_ms,
            nonce=nonce,
        )
        return answer

    def withdraw_call(self, space_id: str, call_id: str, *, reason: str | None = None) -> CallResponse:
        """Withdraw a call that waits.

        WITHDRAW, of its proposal: of all calls that were proposed together. What runs already goes on.

        Args:
            space_id: The space.
            call_id: The call.
            reason: Free text for people.
        """
        answer: CallResponse = self._call("withdraw_call", space_id=space_id, call_id=call_id, reason=reason)
        return answer

    def prove_space_inclusion(self, space_id: str, *, at: Moment | None = None) -> dict[str, Any]:
        """Prove that an event is in the log.

        As it was hashed, byte for byte. The document can be checked without this server. For operators.

        Args:
            space_id: The space.
            at: A seq or an event id; without it, the newest event.
        """
        answer: dict[str, Any] = self._call("prove_space_inclusion", space_id=space_id, at=at)
        return answer

    def prove_space_consistency(self, space_id: str, old_size: int) -> dict[str, Any]:
        """Prove that the log only grew.

        It begins with every event that it had when it had `old_size` of them. The document can be checked without
        this server. For operators.

        Args:
            space_id: The space.
            old_size: How many events there were.
        """
        answer: dict[str, Any] = self._call("prove_space_consistency", space_id=space_id, old_size=old_size)
        return answer

    def prove_space_refusal(self, space_id: str, *, at: Moment | None = None) -> dict[str, Any]:
        """Prove that a request was denied.

        A conflict if it was not. The document can be checked without this server. For operators.

        Args:
            space_id: The space.
            at: A seq or an event id; without it, the newest event.
        """
        answer: dict[str, Any] = self._call("prove_space_refusal", space_id=space_id, at=at)
        return answer

    def prove_space_decision(self, space_id: str, *, at: Moment | None = None) -> dict[str, Any]:
        """Prove that a proposal was allowed.

        With the belief readings that the decision rests on, and the events of the sessions that they pin. A
        conflict if the event allows nothing. The document can be checked without this server. For operators.

        Args:
            space_id: The space.
            at: A seq or an event id; without it, the newest event.
        """
        answer: dict[str, Any] = self._call("prove_space_decision", space_id=space_id, at=at)
        return answer

    def get_checkpoint(self) -> SignedCheckpoint:
        """The last signed checkpoint.

        A C2SP signed note over the log of stream heads: text, or JSON where `Accept` asks for that. Keep it: with
        it you can show later that entries were removed or replaced.
        """
        answer: SignedCheckpoint = self._call("get_checkpoint")
        return answer

    def sign_checkpoint(self) -> SignedCheckpoint:
        """Sign a checkpoint now.

        Records the heads of all streams that this process has written since the last checkpoint, and signs. For
        operators.
        """
        answer: SignedCheckpoint = self._call("sign_checkpoint")
        return answer

    def get_checkpoint_keys(self) -> LogKeys:
        """The public keys that checkpoints are signed with.

        The oldest first, the last one signs now. A retired key names the largest size that it signed, and its
        successor in a note that it signed itself.
        """
        answer: LogKeys = self._call("get_checkpoint_keys")
        return answer

    def prove_consistency(self, *, from_: int | None = None) -> ConsistencyProof:
        """Prove that the last checkpoint continues an earlier one.

        An RFC 6962 consistency proof from the size that you kept to the last signed checkpoint.

        Args:
            from_: The size of a checkpoint that you kept.
        """
        answer: ConsistencyProof = self._call("prove_consistency", from_=from_)
        return answer

    def prove_stream_head(self, stream_id: str) -> RecordProof:
        """The recorded head of a stream, with its proof.

        The newest record of a stream (a session id, `space:` and the id of a space, or `identity:keys`) and the RFC
        6962 inclusion proof that the last signed checkpoint holds it. The stream of a space needs the scope
        `spaces:read`, and `identity:keys` needs `spaces:operate`.

        Args:
            stream_id: The stream, percent-encoded.
        """
        answer: RecordProof = self._call("prove_stream_head", stream_id=stream_id)
        return answer

    def create_webhook(
        self,
        webhook_id: str,
        url: str,
        events: Iterable[str],
        *,
        filters: Mapping[str, Json] | None = None,
        description: str | None = None,
    ) -> WebhookSecretResponse:
        """Register an endpoint that is told what happens.

        CREATE_WEBHOOK. From now on, it is sent the events that it names, signed after Standard Webhooks. The answer
        has the secret, this once. For operators.

        Args:
            webhook_id: A name of your choice; the same registration again changes nothing.
            url: `https`, or `http` on the server's own machine. Private networks are a setting of the server.
            events: What it is told.
        """
        answer: WebhookSecretResponse = self._call(
            "create_webhook", webhook_id=webhook_id, url=url, events=events, filters=filters, description=description
        )
        return answer

    def list_webhooks(self, *, cursor: str | None = None, limit: int | None = None) -> WebhooksPage:
        """List webhooks.

        By id. Those that were deleted are left out. For operators.

        Args:
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
        """
        answer: WebhooksPage = self._call("list_webhooks", cursor=cursor, limit=limit)
        return answer

    def get_webhook(self, webhook_id: str) -> WebhookResponse:
        """A webhook.

        Where it stands, and why it is told nothing if that is so. For operators.

        Args:
            webhook_id: The webhook.
        """
        answer: WebhookResponse = self._call("get_webhook", webhook_id=webhook_id)
        return answer

    def rotate_webhook_secret(
        self, webhook_id: str, generation: int, *, overlap_seconds: int | None = None
    ) -> WebhookSecretResponse:
        """Make a new secret.

        ROTATE_SECRET. Requests are signed with both for some time, so that a receiver can change over. For
        operators.

        Args:
            webhook_id: The webhook.
            generation: The number of the new secret: one more than `secret_generation`.
            overlap_seconds: How long requests are signed with the secret before as well.
        """
        answer: WebhookSecretResponse = self._call(
            "rotate_webhook_secret", webhook_id=webhook_id, generation=generation, overlap_seconds=overlap_seconds
        )
        return answer

    def disable_webhook(self, webhook_id: str, *, reason: str | None = None) -> WebhookResponse:
        """Tell an endpoint nothing for now.

        DISABLE_WEBHOOK. What happens meanwhile is told once it is enabled. For operators.

        Args:
            webhook_id: The webhook.
            reason: Why; it is recorded.
        """
        answer: WebhookResponse = self._call("disable_webhook", webhook_id=webhook_id, reason=reason)
        return answer

    def enable_webhook(self, webhook_id: str, *, skip: bool | None = None) -> WebhookResponse:
        """Tell an endpoint again.

        ENABLE_WEBHOOK. From where it stood, or, with `skip`, from now on. For operators.

        Args:
            webhook_id: The webhook.
            skip: Whether to leave out what happened while it was disabled, and what was not looked at.
        """
        answer: WebhookResponse = self._call("enable_webhook", webhook_id=webhook_id, skip=skip)
        return answer

    def delete_webhook(self, webhook_id: str, *, reason: str | None = None) -> WebhookResponse:
        """End a webhook.

        DELETE_WEBHOOK. It is told nothing any more, not even what waits. Its stream stays on record, and its id is
        not free again. For operators.

        Args:
            webhook_id: The webhook.
            reason: Why; it is recorded.
        """
        answer: WebhookResponse = self._call("delete_webhook", webhook_id=webhook_id, reason=reason)
        return answer

    def test_webhook(self, webhook_id: str) -> DeliveryResponse:
        """Send a test event.

        ADD_EVENT. Queues an event `webhook.test`, which is sent as any other; look for it in the deliveries. For
        operators.

        Args:
            webhook_id: The webhook.
        """
        answer: DeliveryResponse = self._call("test_webhook", webhook_id=webhook_id)
        return answer

    def list_deliveries(
        self, webhook_id: str, *, cursor: str | None = None, limit: int | None = None, status: str | None = None
    ) -> DeliveriesPage:
        """What an endpoint was told, and every try.

        What waits, and the newest of what is over, the newest first. All of it is in the stream of the webhook. For
        operators.

        Args:
            webhook_id: The webhook.
            cursor: The `next_cursor` of the page before.
            limit: How many items at most. The largest page is a setting of the server.
            status: Only those that stand so. One of `pending`, `delivered`, `failed`.
        """
        answer: DeliveriesPage = self._call(
            "list_deliveries", webhook_id=webhook_id, cursor=cursor, limit=limit, status=status
        )
        return answer

    def redeliver(self, webhook_id: str, delivery_id: str) -> DeliveryResponse:
        """Send an event once more.

        REDELIVER. Under the same id, whether it was taken or given up; what waits is tried at once. For operators.

        Args:
            webhook_id: The webhook.
            delivery_id: The delivery.
        """
        answer: DeliveryResponse = self._call("redeliver", webhook_id=webhook_id, delivery_id=delivery_id)
        return answer

    def follow_session(
        self, session_id: str, *, from_: int | None = None, after: int | None = None
    ) -> Generator[AuditEvent]:
        """Follow a session.

        The events of a session as they are written, as server-sent events. Each entry is an event `entry` whose
        `id` is the seq and whose `data` is the entry as `audit` gives it, in order, without gaps or repeats, from
        after `Last-Event-ID`, or else from now on. The first event, `head`, says where the log ends; `heartbeat`
        comes every few seconds, and `end` before the server closes the stream on purpose.

        Handed out are the entries alone. Lost connections are made again; each entry comes once, in order.

        Args:
            session_id: The session, by its id or the name of its case.
            from_: Begin with the entry of this seq; 0 is the first.
            after: Begin after the entry of this seq: what `Last-Event-ID` says, for clients that cannot set
                headers.
        """
        answer: Generator[AuditEvent] = self._follow("follow_session", session_id=session_id, from_=from_, after=after)
        return answer

    def follow_space(
        self, space_id: str, *, from_: int | None = None, after: int | None = None
    ) -> Generator[SpaceEvent]:
        """Follow a space.

        The events of a space as they are written, as server-sent events; for operators, since nothing is left out.
        Each entry is an event `entry` whose `id` is the seq and whose `data` is the entry as `audit` gives it, in
        order, without gaps or repeats, from after `Last-Event-ID`, or else from now on. The first event, `head`,
        says where the log ends; `heartbeat` comes every few seconds, and `end` before the server closes the stream
        on purpose.

        Handed out are the entries alone. Lost connections are made again; each entry comes once, in order.

        Args:
            space_id: The space.
            from_: Begin with the entry of this seq; 0 is the first.
            after: Begin after the entry of this seq: what `Last-Event-ID` says, for clients that cannot set
                headers.
        """
        answer: Generator[SpaceEvent] = self._follow("follow_space", space_id=space_id, from_=from_, after=after)
        return answer

    def follow_all(
        self,
        *,
        from_: int | None = None,
        after: Moment | None = None,
        kind: Iterable[str] | None = None,
        stream_id: Iterable[str] | None = None,
        verb: Iterable[str] | None = None,
        refused: bool | None = None,
    ) -> Generator[StreamEvent]:
        """Follow every session and space.

        The events of all streams that the key may read, as they are written, as server-sent events. Each entry is
        an event `entry` whose `data` is `{"stream_kind": …, "stream_id": …, "entry": {…}}`, and whose `id` is a
        cursor that is good at every process over the same store. No entry is left out, and those of one stream come
        in order. Where a stream does not verify, an event `corrupt` stands in the place of its entries.

        Handed out are the entries alone. Lost connections are made again; each entry comes once, in order.

        Args:
            from_: `0` begins with the first entry of all.
            after: A cursor to begin after: what `Last-Event-ID` says, for clients that cannot set headers.
            kind: Only streams of this kind; may be repeated.
            stream_id: Only this session or space; may be repeated.
            verb: Only entries of this verb; may be repeated.
            refused: `true`: only what was refused.
        """
        answer: Generator[StreamEvent] = self._follow(
            "follow_all", from_=from_, after=after, kind=kind, stream_id=stream_id, verb=verb, refused=refused
        )
        return answer
