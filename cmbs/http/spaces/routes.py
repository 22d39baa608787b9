"""What each route of spaces does: decode, hand to the server, encode. No rule of arbitration is here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.errors import Forbidden, RecordNotFound
from cmbs.http.exchange import Request, Response, decoded_strictly
from cmbs.http.spaces import requests, views
from cmbs.http.spaces.reading import SpaceReading, explained
from cmbs.http.spaces.schemas import ProposalResponse, RecordedOutcome, SettledApproval, StepResponse
from cmbs.http.spaces.views import Reader
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import (
    Approve,
    CreateSpace,
    DisputeMemory,
    IssueCapability,
    PromoteMemory,
    Propose,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetMode,
    SettlePolicy,
    SpaceMessage,
)
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import NULL, Candidate, Capability, Proposal, StateDelta, Tool, ToolCall
from cmbs.substrate.kernel.requests import SpaceCommand

_ENCODE = msgspec.json.Encoder().encode
_CREATED = 201
# Bodies beyond this are decoded, and decided, in a thread, so that one of them does not hold up everybody else.
_LARGE_BODY = 65_536

Build: TypeAlias = Callable[[Request], SpaceMessage]
Show: TypeAlias = Callable[[SpaceAnswer, Reader], Any]


class SpaceRoutes(SpaceReading):
    """The handlers, one method for each operation on spaces; those that only read come from `SpaceReading`."""

    # --- spaces and their mode ---

    async def create_space(self, request: Request) -> Response:
        """A new space."""
        require_operator(request.actor)
        message = decoded_strictly(request, requests.CreateSpaceRequest)
        create = CreateSpace(message.space_id, message.mode, message.policy)
        answer = await self._performed(request, message.space_id, create)
        body = views.space_view(answer.space, Reader(request.actor, answer.space.policy))
        return Response(_CREATED, _ENCODE(body), [("location", f"spaces/{message.space_id}")])

    async def set_space_mode(self, request: Request) -> Response:
        """Enforce, or observe."""
        return await self._write(request, _mode, _step)

    # --- proposals ---

    async def propose(self, request: Request) -> Response:
        """A proposal: decided at once, recorded, and begun where it is allowed."""
        return await self._write(request, _proposal, _proposed)

    async def explain_proposal(self, request: Request) -> Response:
        """What would be decided, without recording it."""
        request.query()
        large = len(request.body) > _LARGE_BODY
        message = await asyncio.to_thread(_proposal, request) if large else _proposal(request)
        space_id = request.params["space_id"]

        def read() -> bytes:
            asked = self._server.hypothetical(space_id, request.actor, message.proposal)
            return explained(asked, Reader(request.actor, asked.space.policy), recorded=False)

        # Looking for what would turn it takes many decisions.
        return Response(200, await asyncio.to_thread(read))

    async def approve(self, request: Request) -> Response:
        """Yes to exactly what was asked."""
        return await self._write(request, _approval, _settled_approval)

    async def reject(self, request: Request) -> Response:
        """No."""
        return await self._write(request, _rejection, _settled_approval)

    async def report_outcome(self, request: Request) -> Response:
        """What came of an execution: by whoever ran it, or by an operator for one in doubt."""
        return await self._write(request, _outcome, _recorded_outcome)

    # --- what operators govern ---

    async def register_tool(self, request: Request) -> Response:
        """A tool, or a new version of one."""
        return await self._write(request, _tool, _step)

    async def retire_tool(self, request: Request) -> Response:
        """The tool may no longer be called."""
        return await self._write(request, _retirement, _step)

    async def issue_capability(self, request: Request) -> Response:
        """A token, by an operator or by the holder of a wider one."""
        return await self._write(request, _capability, _step)

    async def revoke_capability(self, request: Request) -> Response:
        """The end of a token, and of all below it."""
        return await self._write(request, _revocation, _step)

    async def propose_policy_change(self, request: Request) -> Response:
        """A change of policy, for another operator to authorise."""
        return await self._write(request, _policy_change, _step)

    async def authorise_policy_change(self, request: Request) -> Response:
        """Apply a change that another operator proposed."""
        return await self._write(request, _authorisation, _step)

    async def reject_policy_change(self, request: Request) -> Response:
        """Turn a change down."""
        return await self._write(request, _policy_rejection, _step)

    # --- memory ---

    async def put_memory(self, request: Request) -> Response:
        """A claim to remember."""
        return await self._write(request, _memory, _step)

    async def promote_memory(self, request: Request) -> Response:
        """A claim becomes more than a hypothesis."""
        return await self._write(request, _promotion, _step)

    async def dispute_memory(self, request: Request) -> Response:
        """Something speaks against a claim."""
        return await self._write(request, _dispute, _step)

    # --- on the way ---

    async def _write(self, request: Request, build: Build, show: Show) -> Response:
        request.query()
        message = await self._decoded(request, build)
        answer = await self._performed(request, request.params["space_id"], message)
        return Response(200, _ENCODE(show(answer, Reader(request.actor, answer.space.policy))))

    async def _decoded(self, request: Request, build: Build) -> SpaceMessage:
        return await asyncio.to_thread(build, request) if len(request.body) > _LARGE_BODY else build(request)

    async def _performed(self, request: Request, space_id: str, message: SpaceMessage) -> SpaceAnswer:
        command = SpaceCommand(space_id, request.actor, message, request.idempotency_key, request.if_match)
        if len(request.body) > _LARGE_BODY:
            return await asyncio.to_thread(self._server.perform, command)
        return await self._server.perform_async(command)


def require_operator(actor: Actor) -> None:
    """Forbidden for whoever is bound by the policy of a space: it tells how to get around it."""
    if actor.kind is not ActorKind.OPERATOR:
        raise Forbidden("only operators may do this", {"reason": "operators_only", "kind": actor.kind.value})


# --- from a request to a message --------------------------------------------------------------------------------------


def _mode(request: Request) -> SetMode:
    return SetMode(decoded_strictly(request, requests.SetModeRequest).mode)


def _proposal(request: Request) -> Propose:
    said = decoded_strictly(request, requests.ProposeRequest)
    candidates = [_candidate(each) for each in said.candidates]
    proposal = Proposal(said.proposal_id, said.state_snapshot_id, said.provenance, candidates, said.atomic)
    return Propose(proposal, defer_ms=said.defer_ms, ask_ms=said.ask_ms)


def _candidate(said: requests.StateDeltaRequest | requests.ToolCallRequest) -> Candidate:
    if isinstance(said, requests.StateDeltaRequest):
        return StateDelta(said.set, said.unset)
    return ToolCall(said.tool_id, said.args, said.capability_token_id, said.idempotency_key)


def _approval(request: Request) -> Approve:
    said = decoded_strictly(request, requests.ApproveRequest)
    return Approve(request.params["approval_id"], said.uses, said.expires_at, said.args_hash)


def _rejection(request: Request) -> Reject:
    return Reject(request.params["approval_id"], decoded_strictly(request, requests.ReasonRequest).reason)


def _outcome(request: Request) -> RecordOutcome:
    said = decoded_strictly(request, requests.OutcomeRequest)
    result = NULL if isinstance(said.result, UnsetType) else said.result
    size = len(bytes(result))
    return RecordOutcome(request.params["execution_id"], said.status, result, said.error, said.duration_ms, size)


def _tool(request: Request) -> RegisterTool:
    said = decoded_strictly(request, requests.RegisterToolRequest)
    given = {name: value for name, value in msgspec.structs.asdict(said).items() if value is not UNSET}
    return RegisterTool(Tool(**given))


def _retirement(request: Request) -> RetireTool:
    decoded_strictly(request, requests.RetireToolRequest)
    return RetireTool(request.params["tool_id"])


def _capability(request: Request) -> IssueCapability:
    said = decoded_strictly(request, requests.IssueCapabilityRequest)
    return IssueCapability(Capability(**msgspec.structs.asdict(said)))


def _revocation(request: Request) -> RevokeCapability:
    return RevokeCapability(request.params["token_id"], decoded_strictly(request, requests.ReasonRequest).reason)


def _policy_change(request: Request) -> ProposePolicy:
    return ProposePolicy(**msgspec.structs.asdict(decoded_strictly(request, requests.ProposePolicyRequest)))


def _authorisation(request: Request) -> SettlePolicy:
    reason = decoded_strictly(request, requests.ReasonRequest).reason
    return SettlePolicy(request.params["change_id"], authorise=True, reason=reason)


def _policy_rejection(request: Request) -> SettlePolicy:
    reason = decoded_strictly(request, requests.ReasonRequest).reason
    return SettlePolicy(request.params["change_id"], authorise=False, reason=reason)


def _memory(request: Request) -> PutMemory:
    return PutMemory(**msgspec.structs.asdict(decoded_strictly(request, requests.PutMemoryRequest)))


def _promotion(request: Request) -> PromoteMemory:
    said = decoded_strictly(request, requests.PromoteMemoryRequest)
    return PromoteMemory(request.params["entry_id"], said.kind, said.evidence)


def _dispute(request: Request) -> DisputeMemory:
    said = decoded_strictly(request, requests.DisputeMemoryRequest)
    return DisputeMemory(request.params["entry_id"], said.conflict_state, said.because)


# --- from an answer to a body -----------------------------------------------------------------------------------------


def _step(answer: SpaceAnswer, _: Reader | None = None) -> StepResponse:
    result = answer.event.result
    return StepResponse(
        result.granted, result.reason_code, answer.seq, answer.event.body.event_id, answer.space.snapshot_id
    )


def _proposed(answer: SpaceAnswer, reader: Reader) -> ProposalResponse:
    """What was decided then: the same for a repeat, whatever has become of the proposal since."""
    message, result = answer.event.message, answer.event.result
    if not isinstance(message, Propose) or result.decision is None:  # pragma: no cover - a proposal is decided
        raise TypeError(message)
    proposal_id = message.proposal.proposal_id
    return msgspec.structs.replace(
        views.proposal_view(answer.space, answer.space.proposals[proposal_id], reader),
        status=result.statuses[proposal_id],
        decision=views.decision_view(result.decision, answer.event.body.actor, reader),
        execution_ids=[intent.execution_id for intent in result.intents],
        approval_ids=[asked.approval_id for asked in result.asked],
        answered_by=result.answered_by,
        waits_for=result.waits_for,
        parked_until=result.parked_until,
        decided_seq=answer.seq,
    )


def _settled_approval(answer: SpaceAnswer, reader: Reader) -> SettledApproval:
    message, space = answer.event.message, answer.space
    if not isinstance(message, (Approve, Reject)):  # pragma: no cover - a repeat repeats its own kind
        raise TypeError(message)
    approval = space.approvals[message.approval_id]
    proposal = space.proposals[approval.proposal_id]
    return SettledApproval(
        _step(answer), views.approval_view(space, approval, reader), views.proposal_view(space, proposal, reader)
    )


def _recorded_outcome(answer: SpaceAnswer, reader: Reader) -> RecordedOutcome:
    message = answer.event.message
    if not isinstance(message, RecordOutcome):  # pragma: no cover - a repeat repeats its own kind
        raise RecordNotFound("execution", "")
    return RecordedOutcome(_step(answer), views.execution_view(answer.space.executions[message.execution_id], reader))
