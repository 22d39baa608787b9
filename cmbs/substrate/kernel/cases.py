"""What becomes of cases in a space: a belief session is admitted for agents, closed, and may be admitted again."""

from __future__ import annotations

from msgspec import UnsetType

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import Conflict, InvalidRequest, LimitExceeded, RecordNotFound, SessionNotFound
from cmbs.identity.kernel.scopes import AT, Role, Scope, grant
from cmbs.messages import Actor, ActorKind
from cmbs.refusals import quote
from cmbs.substrate.kernel.arbitration.cases import agents_of
from cmbs.substrate.kernel.calls import MakeCall, SpaceRequest
from cmbs.substrate.kernel.events import CloseCase, OpenCase, Propose, StepResult
from cmbs.substrate.kernel.model import BeliefReading
from cmbs.substrate.kernel.proposals import BeliefUnread
from cmbs.substrate.kernel.state import Case, Space
from cmbs.substrate.kernel.steps import StepReason, is_operator, refuse
from cmbs.substrate.kernel.waiting import end_waiting
from cmbs.substrate.kernel.words import ApprovalStatus, CaseStatus, ExecutionStatus, ProposalStatus

# At a time, in one space. A limit of the rules and not of a server: replay has to find the same.
MAX_OPEN_CASES = 10_000


def decide_open_case(space: Space, message: OpenCase, actor: Actor, stamp: Stamp) -> StepResult | Repeat:  # noqa: ARG001
    """A case is admitted, or again after it was closed. While it is open the same one is the same event, and another
    one a conflict.
    """
    if not may_manage_cases(space.space_id, actor):
        return refuse(StepReason.NOT_AUTHORISED)
    known = space.cases.get(message.case_id)
    if known is not None and known.status is CaseStatus.OPEN:
        if not _says_the_same(known, message):
            raise Conflict(
                f"case `{message.case_id}` is open, and was admitted with other content",
                {"case_id": message.case_id, "next": "close it first, to admit it with other content"},
            )
        return Repeat(known.seq)
    _check_agents(message, _require_reading(message))
    if sum(case.status is CaseStatus.OPEN for case in space.cases.values()) >= MAX_OPEN_CASES:
        raise LimitExceeded("open_cases", MAX_OPEN_CASES, MAX_OPEN_CASES + 1, "case_id")
    return StepResult()


def _require_reading(message: OpenCase) -> BeliefReading:
    """What the session of a case says; SessionNotFound where there is none."""
    reading = message.belief[0] if len(message.belief) == 1 else None
    if reading is None or reading.session_id != message.case_id:
        raise BeliefUnread(f"session `{message.case_id}` has to be read before it is admitted as a case")
    if not reading.found:
        raise SessionNotFound(message.case_id)
    return reading


def _check_agents(message: OpenCase, reading: BeliefReading) -> None:
    """InvalidRequest where a case is admitted for agents that its session does not list, or for none."""
    listed = agents_of([reading])
    if listed is None and not message.agents:
        raise InvalidRequest(
            f"case `{message.case_id}` lists no agents, so name those that may act under it here",
            {"field": "agents", "found": [], "accepted": {"minItems": 1}},
        )
    others = [] if listed is None else sorted(set(message.agents) - set(listed))
    if others:
        raise InvalidRequest(
            f"case `{message.case_id}` does not list {quote(others)}, and a space can only narrow the list",
            {
                "field": "agents",
                "found": others,
                "accepted": listed,
                "next": "name agents of the case, or have an operator add them to it",
            },
        )


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


def find_unknown_case(space: Space, message: SpaceRequest) -> str | None:
    """The case that a new proposal or call names, where it was never admitted to the space."""
    if isinstance(message, MakeCall):
        case_id = message.case_id
    elif not isinstance(message, Propose) or message.proposal.proposal_id in space.proposals:
        return None
    else:
        case_id = message.proposal.case_id
    return None if isinstance(case_id, UnsetType) or case_id in space.cases else case_id


def _says_the_same(known: Case, message: OpenCase) -> bool:
    return (known.attributes, known.agents, known.title, known.labels) == (
        bytes(message.attributes),
        frozenset(message.agents),
        message.title,
        message.labels,
    )
