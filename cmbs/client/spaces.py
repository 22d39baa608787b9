"""The operations on spaces: state, proposals, approvals, executions and cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from cmbs.client.calls import Call, Json, Moment, PageCall, list_ids, omit_none, read, write
from cmbs.client.operations import listing, operation
from cmbs.client.results import policies
from cmbs.client.results import spaces as results
from cmbs.client.results.belief import Event, EventsPage

Document = dict[str, Any]
_SPACE = "/v1/spaces/{}"


class PageFilters(TypedDict, total=False):
    """What every list of records can be asked for; labels are written `name:value`."""

    order: str
    status: str
    agent: str
    kit: str
    label: list[str]
    since: str
    until: str
    cursor: str
    limit: int


class RecordFilters(PageFilters, total=False):
    """What lists of proposals, approvals and executions can be asked for."""

    case_id: str
    tool: str


class CaseFilters(PageFilters, total=False):
    """What lists of cases can be asked for."""

    session_id: str
    text: str


class SpaceOperations:
    """Spaces: what may be done, and what was."""

    @operation
    def create_space(
        self,
        space_id: str,
        *,
        mode: str | None = None,
        policy: Mapping[str, str] | None = None,
        policy_file: Mapping[str, Json] | None = None,
        operators_needed: int | None = None,
    ) -> Call[results.Space]:
        """Create a space. For operators."""
        body = omit_none(
            space_id=space_id, mode=mode, policy=policy, policy_file=policy_file, operators_needed=operators_needed
        )
        return write("/v1/spaces", answer=results.Space, body=body)

    @listing
    def list_spaces(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[results.SpacesPage, results.SpaceSummary]:
        """Spaces, sorted by id."""
        call = read("/v1/spaces", answer=results.SpacesPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.spaces, lambda page: page.next_cursor)

    @operation
    def get_space(self, space_id: str) -> Call[results.Space]:
        """A space as it is now."""
        return read(_SPACE, space_id, answer=results.Space)

    @listing
    def read_state(
        self,
        space_id: str,
        *,
        at: Moment | None = None,
        prefix: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> PageCall[results.StatePage, tuple[str, str]]:
        """The state, now or at any snapshot, as pairs sorted by key."""
        call = read(
            f"{_SPACE}/state", space_id, answer=results.StatePage, at=at, prefix=prefix, cursor=cursor, limit=limit
        )
        return PageCall(call, lambda page: list(page.values.items()), lambda page: page.next_cursor)

    @listing
    def space_diff(
        self,
        space_id: str,
        *,
        from_: Moment | None = None,
        to: Moment | None = None,
        cursor: str | None = None,
        limit: int | None = None,
    ) -> PageCall[results.SpaceDiffPage, results.SpaceChange]:
        """What changed between two moments."""
        call = read(
            f"{_SPACE}/diff", space_id, answer=results.SpaceDiffPage, from_=from_, to=to, cursor=cursor, limit=limit
        )
        return PageCall(call, lambda page: page.changes, lambda page: page.next_cursor)

    @listing
    def list_deltas(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[results.CommitsPage, results.Commit]:
        """Commits, the oldest first."""
        call = read(f"{_SPACE}/deltas", space_id, answer=results.CommitsPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.deltas, lambda page: page.next_cursor)

    @listing
    def list_decisions(
        self, space_id: str, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[results.DecisionsPage, results.RecordedDecision]:
        """Decisions, the oldest first."""
        call = read(f"{_SPACE}/decisions", space_id, answer=results.DecisionsPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.decisions, lambda page: page.next_cursor)

    @listing
    def space_audit(
        self, space_id: str, *, since_event_id: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[EventsPage, Event]:
        """The entries of a space's stream, as they were hashed. For operators."""
        call = read(
            f"{_SPACE}/audit", space_id, answer=EventsPage, since_event_id=since_event_id, cursor=cursor, limit=limit
        )
        return PageCall(call, lambda page: page.events, lambda page: page.next_cursor)

    @operation
    def propose(
        self,
        space_id: str,
        *,
        proposal_id: str,
        state_snapshot_id: str,
        provenance: Mapping[str, Json],
        candidates: Sequence[Mapping[str, Json]],
        atomic: bool | None = None,
        case_id: str | None = None,
        defer_ms: int | None = None,
        ask_ms: int | None = None,
    ) -> Call[results.Proposal]:
        """Propose changes of the state and calls of tools. What is not let through is a result."""
        body = omit_none(
            proposal_id=proposal_id,
            state_snapshot_id=state_snapshot_id,
            provenance=provenance,
            candidates=candidates,
            atomic=atomic,
            case_id=case_id,
            defer_ms=defer_ms,
            ask_ms=ask_ms,
        )
        return write(f"{_SPACE}/proposals", space_id, answer=results.Proposal, body=body, keyed=False)

    @operation
    def explain_proposal(
        self,
        space_id: str,
        *,
        proposal_id: str,
        state_snapshot_id: str,
        provenance: Mapping[str, Json],
        candidates: Sequence[Mapping[str, Json]],
        atomic: bool | None = None,
        case_id: str | None = None,
        defer_ms: int | None = None,
        ask_ms: int | None = None,
    ) -> Call[policies.Explanation]:
        """What would be decided about a proposal, and why. Nothing is recorded."""
        body = omit_none(
            proposal_id=proposal_id,
            state_snapshot_id=state_snapshot_id,
            provenance=provenance,
            candidates=candidates,
            atomic=atomic,
            case_id=case_id,
            defer_ms=defer_ms,
            ask_ms=ask_ms,
        )
        return write(f"{_SPACE}/explain", space_id, answer=policies.Explanation, body=body, recorded=False)

    @listing
    def list_proposals(
        self, space_id: str, **filters: Unpack[RecordFilters]
    ) -> PageCall[results.ProposalsPage, results.Proposal]:
        """Proposals, the oldest first or the `newest`."""
        call = read(f"{_SPACE}/proposals", space_id, answer=results.ProposalsPage, **filters)
        return PageCall(call, lambda page: page.proposals, lambda page: page.next_cursor)

    @operation
    def get_proposal(self, space_id: str, proposal_id: str, *, wait: int | None = None) -> Call[results.Proposal]:
        """A proposal; with `wait`, as soon as it no longer waits."""
        return read(f"{_SPACE}/proposals/{{}}", space_id, proposal_id, answer=results.Proposal, wait=wait)

    @operation
    def explain_decision(self, space_id: str, proposal_id: str) -> Call[policies.Explanation]:
        """Why a proposal was decided as it was."""
        return read(f"{_SPACE}/proposals/{{}}/explain", space_id, proposal_id, answer=policies.Explanation)

    @operation
    def withdraw_proposal(
        self, space_id: str, proposal_id: str, *, reason: str | None = None
    ) -> Call[results.WithdrawnProposal]:
        """Withdraw a proposal that waits. By its proposer or an operator."""
        return write(
            f"{_SPACE}/proposals/{{}}/withdraw",
            space_id,
            proposal_id,
            answer=results.WithdrawnProposal,
            body=omit_none(reason=reason),
        )

    @listing
    def list_approvals(
        self, space_id: str, **filters: Unpack[RecordFilters]
    ) -> PageCall[results.ApprovalsPage, results.ApprovalRequest]:
        """Requests for approval, the oldest first or the `newest`."""
        call = read(f"{_SPACE}/approvals", space_id, answer=results.ApprovalsPage, **filters)
        return PageCall(call, lambda page: page.approvals, lambda page: page.next_cursor)

    @operation
    def get_approval(self, space_id: str, approval_id: str) -> Call[results.ApprovalRequest]:
        """A request for approval."""
        return read(f"{_SPACE}/approvals/{{}}", space_id, approval_id, answer=results.ApprovalRequest)

    @operation
    def approve(
        self,
        space_id: str,
        approval_id: str,
        *,
        uses: int | None = None,
        expires_at: str | None = None,
        args_hash: str | None = None,
    ) -> Call[results.SettledApproval]:
        """Approve exactly what was asked."""
        body = omit_none(uses=uses, expires_at=expires_at, args_hash=args_hash)
        return write(
            f"{_SPACE}/approvals/{{}}/approve", space_id, approval_id, answer=results.SettledApproval, body=body
        )

    @operation
    def reject(self, space_id: str, approval_id: str, *, reason: str | None = None) -> Call[results.SettledApproval]:
        """Reject what was asked."""
        return write(
            f"{_SPACE}/approvals/{{}}/reject",
            space_id,
            approval_id,
            answer=results.SettledApproval,
            body=omit_none(reason=reason),
        )

    @listing
    def list_executions(
        self, space_id: str, **filters: Unpack[RecordFilters]
    ) -> PageCall[results.ExecutionsPage, results.Execution]:
        """Executions, the oldest first or the `newest`."""
        call = read(f"{_SPACE}/executions", space_id, answer=results.ExecutionsPage, **filters)
        return PageCall(call, lambda page: page.executions, lambda page: page.next_cursor)

    @operation
    def get_execution(self, space_id: str, execution_id: str) -> Call[results.Execution]:
        """One run of a tool."""
        return read(f"{_SPACE}/executions/{{}}", space_id, execution_id, answer=results.Execution)

    @operation
    def report_outcome(
        self,
        space_id: str,
        execution_id: str,
        status: str,
        *,
        result: Json = None,
        error: str | None = None,
        duration_ms: int | None = None,
    ) -> Call[results.RecordedOutcome]:
        """Report the outcome of an execution. The first report counts."""
        body = {"status": status, **omit_none(result=result, error=error, duration_ms=duration_ms)}
        return write(
            f"{_SPACE}/executions/{{}}/outcome", space_id, execution_id, answer=results.RecordedOutcome, body=body
        )

    @listing
    def list_cases(
        self, space_id: str, **filters: Unpack[CaseFilters]
    ) -> PageCall[results.CasesPage, results.CaseRecord]:
        """Cases, the oldest first or the `newest`."""
        call = read(f"{_SPACE}/cases", space_id, answer=results.CasesPage, **filters)
        return PageCall(call, lambda page: page.cases, lambda page: page.next_cursor)

    @operation
    def get_case(self, space_id: str, case_id: str) -> Call[results.CaseRecord]:
        """A case: what joins proposals to one session."""
        return read(f"{_SPACE}/cases/{{}}", space_id, case_id, answer=results.CaseRecord)

    @operation
    def open_case(
        self,
        space_id: str,
        *,
        case_id: str,
        session_id: str,
        agents: Sequence[str],
        attributes: Mapping[str, Json] | None = None,
        title: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Call[results.Step]:
        """Join proposals of these agents to one session. For operators and keys with the scope `spaces:cases`."""
        body = omit_none(
            case_id=case_id,
            session_id=session_id,
            agents=list_ids("agents", agents),
            attributes=attributes,
            title=title,
            labels=labels,
        )
        return write(f"{_SPACE}/cases", space_id, answer=results.Step, body=body)

    @operation
    def close_case(self, space_id: str, case_id: str, *, reason: str | None = None) -> Call[results.Step]:
        """Close a case: what waits under it is withdrawn."""
        return write(
            f"{_SPACE}/cases/{{}}/close", space_id, case_id, answer=results.Step, body=omit_none(reason=reason)
        )

    @operation
    def prove_space_inclusion(self, space_id: str, *, at: Moment | None = None) -> Call[Document]:
        """A proof that an event is in the log. For operators."""
        return read(f"{_SPACE}/proofs/inclusion", space_id, answer=Document, at=at)

    @operation
    def prove_space_consistency(self, space_id: str, old_size: int) -> Call[Document]:
        """A proof that the log only grew since it had `old_size` events. For operators."""
        return read(f"{_SPACE}/proofs/consistency", space_id, answer=Document, old_size=old_size)

    @operation
    def prove_space_refusal(self, space_id: str, *, at: Moment | None = None) -> Call[Document]:
        """A proof that a request was denied. For operators."""
        return read(f"{_SPACE}/proofs/refusal", space_id, answer=Document, at=at)

    @operation
    def prove_space_decision(self, space_id: str, *, at: Moment | None = None) -> Call[Document]:
        """A proof that a proposal was allowed, with the belief that it rests on. For operators."""
        return read(f"{_SPACE}/proofs/decision", space_id, answer=Document, at=at)
