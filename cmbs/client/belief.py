"""The operations on sessions. Each builds one call; the names are those of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from cmbs.client.calls import Call, Json, Moment, PageCall, list_ids, omit_none, read, write
from cmbs.client.operations import listing, operation
from cmbs.client.results import belief as results

_SESSION = "/v1/sessions/{}"
Document = dict[str, Any]


class BeliefOperations:
    """Sessions: what may still be true."""

    @operation
    def declare_session(
        self,
        ontology: Mapping[str, str] | None = None,
        hypotheses: Iterable[str] | None = None,
        *,
        kit: str | Mapping[str, str] | None = None,
        symptoms: Iterable[str] | None = None,
        metadata: Mapping[str, Json] | None = None,
        policy: Mapping[str, Json] | None = None,
        hypothesis_attributes: Mapping[str, Mapping[str, Json]] | None = None,
        provider: str | None = None,
        title: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Call[results.SessionOpened]:
        """Open a session over hypotheses, or over a kit on record: its id, or `{"id": …, "version": …}`.

        A kit over a causal graph needs `symptoms`, the nodes that show something wrong.
        """
        body = omit_none(
            ontology=ontology,
            hypotheses=None if hypotheses is None else list_ids("hypotheses", hypotheses),
            kit=kit,
            symptoms=None if symptoms is None else list_ids("symptoms", symptoms),
            metadata=metadata,
            policy=policy,
            hypothesis_attributes=hypothesis_attributes,
            provider=provider,
            title=title,
            labels=labels,
        )
        return write("/v1/sessions", answer=results.SessionOpened, body=body)

    @listing
    def list_sessions(
        self,
        *,
        order: str | None = None,
        state: str | None = None,
        kit: str | None = None,
        agent: str | None = None,
        source: str | None = None,
        label: Iterable[str] | None = None,
        text: str | None = None,
        since: str | None = None,
        until: str | None = None,
        include: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> PageCall[results.SessionsPage, results.SessionSummary]:
        """Sessions by what they are, the oldest first or the `newest`; labels are written `name:value`."""
        call = read(
            "/v1/sessions",
            answer=results.SessionsPage,
            order=order,
            state=state,
            kit=kit,
            agent=agent,
            source=source,
            label=None if label is None else list_ids("label", label),
            text=text,
            since=since,
            until=until,
            include=include,
            cursor=cursor,
            limit=limit,
        )
        return PageCall(call, lambda page: page.sessions, lambda page: page.next_cursor)

    @operation
    def query_belief(
        self,
        session_id: str,
        *,
        at: Moment | None = None,
        wait: int | None = None,
        after: Moment | None = None,
    ) -> Call[results.Belief]:
        """What may still be true: now, right after an event, or, with `wait`, as soon as there is news."""
        return read(_SESSION, session_id, answer=results.Belief, at=at, wait=wait, after=after)

    @operation
    def eliminate(
        self,
        session_id: str,
        source_id: str,
        eliminated: Iterable[str],
        *,
        observation_id: str | None = None,
        justification: Mapping[str, Json] | None = None,
    ) -> Call[results.Elimination]:
        """Eliminate hypotheses for good. An observation is applied once; without an id it gets one of its own."""
        body = omit_none(
            source_id=source_id,
            observation_id=str(uuid4()) if observation_id is None else observation_id,
            eliminated=list_ids("eliminated", eliminated),
            justification=justification,
        )
        return write(f"{_SESSION}/eliminate", session_id, answer=results.Elimination, body=body, keyed=False)

    @listing
    def list_survivors(
        self,
        session_id: str,
        *,
        at: Moment | None = None,
        text: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> PageCall[results.SurvivorsPage, str]:
        """The survivors, sorted; with `text`, those that have it. With `at`, all pages show the same event."""
        call = read(
            f"{_SESSION}/survivors",
            session_id,
            answer=results.SurvivorsPage,
            at=at,
            text=text,
            cursor=cursor,
            limit=limit,
        )
        return PageCall(call, lambda page: page.survivors, lambda page: page.next_cursor)

    @listing
    def audit_trace(
        self,
        session_id: str,
        *,
        since_event_id: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> PageCall[results.EventsPage, results.Event]:
        """The events of a session, the oldest first."""
        call = read(
            f"{_SESSION}/audit",
            session_id,
            answer=results.EventsPage,
            since_event_id=since_event_id,
            cursor=cursor,
            limit=limit,
        )
        return PageCall(call, lambda page: page.events, lambda page: page.next_cursor)

    @operation
    def fork_session(
        self, session_id: str, *, at: Moment | None = None, without: Sequence[Moment] | None = None
    ) -> Call[results.Fork]:
        """Open a session that begins as this one was right after an event, without the reports that are named."""
        body = omit_none(at=at, without=without)
        return write(f"{_SESSION}/fork", session_id, answer=results.Fork, body=body)

    @operation
    def session_contradiction(self, session_id: str) -> Call[results.Contradiction]:
        """Which reports to doubt, where nothing is left."""
        return read(f"{_SESSION}/contradiction", session_id, answer=results.Contradiction)

    @listing
    def session_diff(
        self,
        session_id: str,
        *,
        from_: Moment | None = None,
        to: Moment | None = None,
        text: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> PageCall[results.SessionDiffPage, results.SessionChange]:
        """What happened between two events; with `text`, to ids that have it."""
        call = read(
            f"{_SESSION}/diff",
            session_id,
            answer=results.SessionDiffPage,
            from_=from_,
            to=to,
            text=text,
            cursor=cursor,
            limit=limit,
        )
        return PageCall(call, lambda page: page.changes, lambda page: page.next_cursor)

    @listing
    def compare_sources(
        self, session_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[results.SourcesPage, results.SourceSummary]:
        """What each source eliminated, and how far the sources agree."""
        call = read(f"{_SESSION}/sources", session_id, answer=results.SourcesPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.sources, lambda page: page.next_cursor)

    @operation
    def list_obligations(self, session_id: str) -> Call[results.Obligations]:
        """The obligations of a session, active and exited."""
        return read(f"{_SESSION}/obligations", session_id, answer=results.Obligations)

    @operation
    def enter_obligation(
        self, session_id: str, obligation_id: str, min_total_eliminations: int
    ) -> Call[results.ObligationEntered]:
        """Until enough is eliminated and it is exited, nothing can be concluded and the session cannot end."""
        body = {"obligation_id": obligation_id, "min_total_eliminations": min_total_eliminations}
        return write(f"{_SESSION}/obligations", session_id, answer=results.ObligationEntered, body=body)

    @operation
    def request_exit(
        self, session_id: str, obligation_id: str, *, context: Mapping[str, Json] | None = None
    ) -> Call[results.Approval]:
        """Ask to exit an obligation. A refusal is a result."""
        body = omit_none(context=context)
        return write(f"{_SESSION}/obligations/{{}}/exit", session_id, obligation_id, answer=results.Approval, body=body)

    @operation
    def declare_conclusion(
        self, session_id: str, conclusion_id: str, *, context: Mapping[str, Json] | None = None
    ) -> Call[results.Conclusion]:
        """State a conclusion. A refusal is a result."""
        body = {"conclusion_id": conclusion_id, **omit_none(context=context)}
        return write(f"{_SESSION}/conclusions", session_id, answer=results.Conclusion, body=body)

    @operation
    def request_termination(
        self, session_id: str, *, context: Mapping[str, Json] | None = None
    ) -> Call[results.Approval]:
        """Ask to end the session. A refusal is a result."""
        return write(f"{_SESSION}/terminate", session_id, answer=results.Approval, body=omit_none(context=context))

    @operation
    def session_analysis(self, session_id: str, *, kit: str | None = None, truth: str | None = None) -> Call[Document]:
        """How well the eliminations of a session went, as a document."""
        return read(f"{_SESSION}/analysis", session_id, answer=Document, kit=kit, truth=truth)

    @operation
    def prove_session_inclusion(self, session_id: str, *, at: Moment | None = None) -> Call[Document]:
        """A proof that an event is in the log."""
        return read(f"{_SESSION}/proofs/inclusion", session_id, answer=Document, at=at)

    @operation
    def prove_session_consistency(self, session_id: str, old_size: int) -> Call[Document]:
        """A proof that the log only grew since it had `old_size` events."""
        return read(f"{_SESSION}/proofs/consistency", session_id, answer=Document, old_size=old_size)

    @operation
    def prove_session_membership(
        self, session_id: str, hypothesis_id: str, *, at: Moment | None = None
    ) -> Call[Document]:
        """A proof that a hypothesis survived."""
        return read(f"{_SESSION}/proofs/membership", session_id, answer=Document, hypothesis_id=hypothesis_id, at=at)

    @operation
    def prove_session_elimination(
        self, session_id: str, hypothesis_id: str, *, at: Moment | None = None
    ) -> Call[Document]:
        """A proof that a hypothesis was eliminated, and by which event."""
        return read(f"{_SESSION}/proofs/elimination", session_id, answer=Document, hypothesis_id=hypothesis_id, at=at)

    @operation
    def prove_session_transition(
        self, session_id: str, *, at: Moment | None = None, entry: bool | None = None
    ) -> Call[Document]:
        """A proof of what an event changed."""
        return read(f"{_SESSION}/proofs/transition", session_id, answer=Document, at=at, entry=entry)

    @operation
    def prove_session_refusal(self, session_id: str, *, at: Moment | None = None) -> Call[Document]:
        """A proof that a request was denied."""
        return read(f"{_SESSION}/proofs/refusal", session_id, answer=Document, at=at)
