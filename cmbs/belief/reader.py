"""What sessions believe, believed, and did: every read of a belief server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from cmbs.belief.kernel.comparisons import Place, SessionDiff, SourceComparison, compare_moments, compare_sources
from cmbs.belief.kernel.contradictions import (
    NO_CONTRADICTION,
    ContradictionResponse,
    Known,
    explain_contradiction,
    read_soundness,
)
from cmbs.belief.kernel.events import read_event
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.queries import check_text
from cmbs.belief.kernel.refusals import refusal_of
from cmbs.belief.kernel.requests import RequestValidator
from cmbs.belief.kernel.search import IdPage, TextSearch, search_survivors
from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.views import AuditPage, obligations, reach_at, seq_at, snapshot, survivors_at
from cmbs.errors import InvalidRequest
from cmbs.kit.model import Soundness
from cmbs.ledger import StoredEntry, to_audit_entry
from cmbs.messages import AuditEntry, BeliefSnapshot, ObligationView, ReachDetail, SurvivorPage
from cmbs.spi import AuditLog, SessionSummary
from cmbs.spi.audit_log import PAGE_BYTES, take_page
from cmbs.spi.session_search import ANY_SESSION, ListedSession, SessionQuery, find_sessions
from cmbs.streams.reading import read_entries


class SessionReader(ABC):
    """The reads. A server that can give a session as the log has it now gives all of them."""

    log: AuditLog
    requests: RequestValidator

    @abstractmethod
    def current_session(self, session_id: str) -> Session:
        """The session as a value, as the log has it now."""

    @abstractmethod
    def find_priors(self, session: Session) -> Mapping[str, float]:
        """The priors of the hypotheses of a session, as weights; empty where it is over no kit that is known here."""

    def query_belief(self, session_id: str, *, at: int | str | None = None) -> BeliefSnapshot:
        """What may still be true; with `at` (a seq or an event id), what could right after that event."""
        session = self.current_session(session_id)
        return snapshot(session, seq_at(session, at))

    def seq_of(self, session_id: str, at: int | str | None = None) -> int:
        """The seq of an event, given by its id or seq; without one, that of the last event."""
        return seq_at(self.current_session(session_id), at)

    def audit_trace(
        self, session_id: str, since_event_id: str | None = None, *, limit: int | None = None
    ) -> list[AuditEntry]:
        """The events after `since_event_id`, or all; at most `limit`."""
        return [to_audit_entry(stored) for stored in self.stored_entries(session_id, since_event_id, limit)]

    def stored_entries(
        self, session_id: str, since_event_id: str | None = None, limit: int | None = None
    ) -> list[StoredEntry]:
        """The same as `audit_trace`, as the exact bytes that were hashed; LedgerCorrupt where they are others."""
        session = self.current_session(session_id)
        most = None if limit is None else self.requests.count("limit", limit)
        return list(read_entries(self.log, session_id, session.tree, self._seq_after(session, since_event_id), most))

    def audit_page(self, session_id: str, since_event_id: str | None = None, limit: int | None = None) -> AuditPage:
        """A page of `stored_entries`, by default as long as the limits allow; shorter where its entries are large."""
        size = self.requests.page_size(limit)
        session = self.current_session(session_id)
        after = self._seq_after(session, since_event_id)
        entries = take_page(read_entries(self.log, session_id, session.tree, after, size), PAGE_BYTES)
        last = after + len(entries)
        return AuditPage(entries, session.events.at(last)[0] if last < session.head.seq else None)

    def diff(
        self,
        session_id: str,
        start: int | str,
        end: int | str | None = None,
        after: Place | None = None,
        limit: int | None = None,
        text: str | None = None,
    ) -> SessionDiff:
        """What happened after event `start`, up to `end`, by default the last; a page of it from beyond `after` on.

        With a text, what happened to ids that have it in them or in their attributes.
        """
        size = self.requests.page_size(limit)
        session = self.current_session(session_id)
        first, last = seq_at(session, start), seq_at(session, end)
        if first > last:
            raise InvalidRequest(f"a difference goes forward, and seq {first} is after seq {last}")
        return compare_moments(session, first, last, after, size, check_text(text))

    def sources(self, session_id: str, after: str | None = None, limit: int | None = None) -> SourceComparison:
        """What each source took out, alone and after others, and where sources agree; a page of sources, by id."""
        size = self.requests.page_size(limit)
        return compare_sources(self.current_session(session_id), after, size)

    def list_sessions(self, after: tuple[str, str] | None = None, limit: int | None = None) -> list[SessionSummary]:
        """A page of sessions, the oldest first; `after` is the (created_ts, session_id) of the last one seen."""
        return self.log.sessions(after, self.requests.page_size(limit))

    def find_sessions(
        self, query: SessionQuery = ANY_SESSION, after: tuple[str, str] | None = None, limit: int | None = None
    ) -> list[ListedSession]:
        """A page of the sessions that a query takes (`build_session_query`), and what a list says of each."""
        return find_sessions(self.log, query, after, self.requests.page_size(limit))

    def contradiction(self, session_id: str) -> ContradictionResponse:
        """Which reports to doubt where nothing is left of a session; where something is, that it is none."""
        session = self.current_session(session_id)
        if len(session.survivors) > 0:
            return NO_CONTRADICTION
        return explain_contradiction(session, Known(self._read_soundness(session), self.find_priors(session)))

    def _read_soundness(self, session: Session) -> dict[int, Soundness]:
        """How sound observations are, by their seq, as their entries say."""
        if session.provider is None:
            return {}
        events = (read_event(each) for each in read_entries(self.log, session.session_id, session.tree))
        said = ((event.body.seq, read_soundness(event.message)) for event in events)
        return {seq: soundness for seq, soundness in said if soundness is not None}

    def survivors(
        self, session_id: str, after: str | None = None, limit: int | None = None, *, at: int | str | None = None
    ) -> SurvivorPage:
        """A page of survivors, sorted; `after` is the last one seen, `at` pins the moment while others eliminate."""
        size = self.requests.page_size(limit)
        session = self.current_session(session_id)
        seq = seq_at(session, at)
        if after is not None:
            self.requests.text("after", after)
        return SurvivorPage(survivors_at(session, seq).page(after, size), snapshot(session, seq))

    def find_survivors(
        self,
        session_id: str,
        text: str | None = None,
        after: str | None = None,
        limit: int | None = None,
        *,
        at: int | str | None = None,
    ) -> tuple[IdPage, BeliefSnapshot]:
        """A page as `survivors` gives it, of those with a text in their id or attributes; a page may be short."""
        size = self.requests.page_size(limit)
        session = self.current_session(session_id)
        seq = seq_at(session, at)
        if after is not None:
            self.requests.text("after", after)
        search = TextSearch(check_text(text), session.attributes)
        return search_survivors(survivors_at(session, seq), search, after, size), snapshot(session, seq)

    def obligations(self, session_id: str) -> list[ObligationView]:
        """Every obligation of a session, in the order of entry."""
        return obligations(self.current_session(session_id))

    def reach(self, session_id: str) -> dict[str, ReachDetail]:
        """How far each obligation of a session is from being left, and whether it can be at all."""
        session = self.current_session(session_id)
        return {obligation_id: reach_at(session, obligation_id) for obligation_id in session.obligations}

    def explain(self, session_id: str, event_id: str) -> dict[str, Any] | None:
        """Why the request of an event was refused: what was found, what is accepted, what to do; None if it was not."""
        session = self.current_session(session_id)
        seq = seq_at(session, self.requests.text("event_id", event_id))
        (stored,) = read_entries(self.log, session_id, session.tree, seq - 1, 1)
        return refusal_of(Answer(session, read_event(stored).message, seq))

    def attributes(self, session_id: str, hypothesis_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """What was declared of these hypotheses, of those that anything was declared of."""
        return self.current_session(session_id).attributes.choose(hypothesis_ids)

    def _seq_after(self, session: Session, since_event_id: str | None) -> int:
        """The place after which reading begins; -1 for the beginning."""
        return -1 if since_event_id is None else seq_at(session, self.requests.text("since_event_id", since_event_id))
