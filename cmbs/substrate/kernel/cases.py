"""What becomes of cases: opened for one belief session and for named agents, closed once, never opened again."""

from __future__ import annotations

from msgspec import UnsetType

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import Conflict, LimitExceeded, RecordNotFound
from cmbs.identity.kernel.scopes import AT, Role, Scope, grant
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import CloseCase, OpenCase, StepResult
from cmbs.substrate.kernel.state import Case, Space
from cmbs.substrate.kernel.steps import StepReason, is_operator, refuse
from cmbs.substrate.kernel.waiting import end_waiting
from cmbs.substrate.kernel.words import ApprovalStatus, CaseStatus, ExecutionStatus, ProposalStatus

# At a time, in one space. A limit of the rules and not of a server: replay has to find the same.
MAX_OPEN_CASES = 10_000


def decide_open_case(space: Space, message: OpenCase, actor: Actor, stamp: Stamp) -> StepResult | Repeat:  # noqa: ARG001
    """A new case. The same one again is the same event; another one under its id, or one that is closed, a conflict."""
    if not may_manage_cases(space.space_id, actor):
        return refuse(StepReason.NOT_AUTHORISED)
    known = space.cases.get(message.case_id)
    if known is None:
        if sum(case.status is CaseStatus.OPEN for case in space.cases.values()) >= MAX_OPEN_CASES:
            raise LimitExceeded("open_cases", MAX_OPEN_CASES, MAX_OPEN_CASES + 1, "case_id")
        return StepResult()
    if known.status is not CaseStatus.OPEN:
        raise Conflict(
            f"case `{message.case_id}` was closed, and is not opened again",
            {"case_id": message.case_id, "status": known.status.value},
        )
    if not _says_the_same(known, message):
        raise Conflict(
            f"case `{message.case_id}` was opened before, for another session or with other content",
            {"case_id": message.case_id, "session_id": known.session_id},
        )
    return Repeat(known.seq)


def decide_close_case(space: Space, message: CloseCase, actor: Actor, stamp: Stamp) -> StepResult | Repeat:  # noqa: ARG001
    """The end of a case: what waits under it waits no more. What runs already goes on."""
    known = space.cases.get(message.case_id)
    if known is None:
        raise RecordNotFound("case", message.case_id)
    if not may_manage_cases(space.space_id, actor):
        return refuse(StepReason.NOT_AUTHORISED)
    if known.closed_seq is not None:
        if known.reason != message.reason:
            raise Conflict(
                f"case `{message.case_id}` was closed before, for another reason", {"case_id": message.case_id}
            )
        return Repeat(known.closed_seq)
    waiting = list_waiting(space, message.case_id)
    return end_waiting(space, waiting, ProposalStatus.WITHDRAWN)


def may_manage_cases(space_id: str, actor: Actor) -> bool:
    """Whether the actor opens and closes cases of a space: an operator, or one whose credential has the scope
    `spaces:cases`, for all spaces or for this one. Never an agent.

    An agent that opened a case could choose the session that its own gate reads.
    """
    if actor.kind is ActorKind.AGENT or is_operator(actor):
        return is_operator(actor)
    roles = () if isinstance(actor.roles, UnsetType) else actor.roles
    scopes = () if isinstance(actor.scopes, UnsetType) else actor.scopes
    of_cases = tuple(each for each in scopes if each.partition(AT)[0] == Scope.SPACES_CASES)
    return grant(tuple(each for each in roles if each in set(Role)), of_cases).reach(Scope.SPACES_CASES, space_id)


def list_waiting(space: Space, case_id: str) -> list[str]:
    """The proposals of a case that are parked, asked for, or have calls that wait to be started, by id."""
    pending = {each.proposal_id for each in space.approvals.values() if each.status is ApprovalStatus.PENDING}
    running = map(space.executions.__getitem__, space.running)
    pending.update(each.proposal_id for each in running if each.status is ExecutionStatus.READY)
    return sorted(
        proposal_id for proposal_id in pending.union(space.parked) if space.proposals[proposal_id].case_id == case_id
    )


def _says_the_same(known: Case, message: OpenCase) -> bool:
    return (known.session_id, known.attributes, known.agents, known.title, known.labels) == (
        message.session_id,
        bytes(message.attributes),
        frozenset(message.agents),
        message.title,
        message.labels,
    )
