"""What operators decide: the policy, the tools, the capabilities, the mode. And what memory may keep."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import Conflict, InvalidRequest, RecordNotFound
from cmbs.messages import Actor, ActorKind
from cmbs.refusals import find_nearest
from cmbs.substrate.kernel.arbitration.capabilities import issue_refusal
from cmbs.substrate.kernel.events import (
    Changes,
    CreateSpace,
    DisputeMemory,
    IssueCapability,
    Mode,
    PromoteMemory,
    ProposePolicy,
    PutMemory,
    RegisterTool,
    RetireTool,
    RevokeCapability,
    SetGovernance,
    SetMode,
    SettlePolicy,
    SpaceVerb,
    StepResult,
)
from cmbs.substrate.kernel.memory import MemoryReason
from cmbs.substrate.kernel.memory_steps import judge_memory
from cmbs.substrate.kernel.model import ToolKind, Verdict
from cmbs.substrate.kernel.policy.policy import validate_policy
from cmbs.substrate.kernel.policy.references import namespace_of
from cmbs.substrate.kernel.policy.schemas import SchemaFault, compile_schema_text
from cmbs.substrate.kernel.state import MAX_OPERATORS, Space
from cmbs.substrate.kernel.steps import StepReason, is_operator, refuse, same_person
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus, PolicyChangeStatus, ProposalStatus

MAX_TIMEOUT_MS = 3_600_000
MAX_RESULT_BYTES = 16_777_216
_SHOWN_FAULTS = 20
_OBSERVERS = frozenset({ActorKind.ENCODER, ActorKind.TOOL})


def decide_create(message: CreateSpace, actor: Actor) -> StepResult:
    """A new space under the policy that an operator gives it."""
    if not is_operator(actor) and actor.kind is not ActorKind.POLICY_ENGINE:
        raise InvalidRequest("a space is created by an operator", {"actor": actor.kind.value})
    if message.operators_needed is not msgspec.UNSET:
        _check_operators_needed(message.operators_needed)
    refuse_faults(message.policy)
    return StepResult(changes=Changes(message.policy))


def _check_operators_needed(number: int) -> None:
    if not 1 <= number <= MAX_OPERATORS:
        raise InvalidRequest(
            f"`operators_needed` must be from 1 to {MAX_OPERATORS}, got `{number}`", {"field": "operators_needed"}
        )


def refuse_faults(pairs: Mapping[str, str]) -> None:
    """Raise InvalidRequest for a policy that is not sound as a whole; the details name every fault."""
    faults = validate_policy(pairs)
    if faults:
        first = faults[0]
        at = f" at {first.at}" if first.at else ""
        more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
        raise InvalidRequest(
            f"the policy is refused: `{first.key}`{at}: {first.message}{more}",
            {
                "field": f"{first.key}{at}",
                "accepted": "a constraint, group, invariant or setting as the protocol has it",
                "next": "mend what `faults` name, and send the whole policy again",
                "faults": [fault._asdict() for fault in faults[:_SHOWN_FAULTS]],
            },
        )


def decide_mode(space: Space, message: SetMode, actor: Actor, stamp: Stamp) -> StepResult:  # noqa: ARG001
    """From enforcing to observing, or back.

    To observe is to set the policy aside, so it takes as many operators as a change of policy does. To enforce again
    takes one.
    """
    if not is_operator(actor):
        return refuse(StepReason.NOT_AUTHORISED)
    relaxes = message.mode is Mode.OBSERVE and space.mode is Mode.ENFORCE
    if relaxes and _needs_second_operator(space, space.observe_asked_by, actor):
        return StepResult(reason_code=StepReason.SECOND_OPERATOR_NEEDED.value)
    return StepResult()


def decide_governance(space: Space, message: SetGovernance, actor: Actor, stamp: Stamp) -> StepResult:  # noqa: ARG001
    """How many operators a change of policy takes. From two it goes down only when two of them say so."""
    _check_operators_needed(message.operators_needed)
    if not is_operator(actor):
        return refuse(StepReason.NOT_AUTHORISED)
    relaxes = message.operators_needed < space.operators_needed
    if relaxes and _needs_second_operator(space, space.governance_asked_by, actor):
        return StepResult(reason_code=StepReason.SECOND_OPERATOR_NEEDED.value)
    return StepResult()


def _needs_second_operator(space: Space, asked_by: Actor | None, actor: Actor) -> bool:
    """Whether what this operator asks for is in force only once another one asks for it too."""
    return space.operators_needed == MAX_OPERATORS and (asked_by is None or same_person(asked_by, actor))


def decide_propose_policy(
    space: Space,
    message: ProposePolicy,
    actor: Actor,
    stamp: Stamp,  # noqa: ARG001
) -> StepResult | Repeat:
    """A change of policy, validated whole: for another operator to authorise, or applied where one is enough."""
    if message.change_id in space.policy_changes:
        raise Conflict(
            f"policy change `{message.change_id}` was proposed before",
            {
                "change_id": message.change_id,
                "field": "change_id",
                "found": message.change_id,
                "next": "read that change; propose another one under a new id",
            },
        )
    if not is_operator(actor):
        return refuse(StepReason.NOT_AUTHORISED)
    if message.base_policy_hash != space.policy.policy_hash:
        raise Conflict(
            f"the policy is `{space.policy.policy_hash}`, not `{message.base_policy_hash}`",
            {
                "expected": message.base_policy_hash,
                "actual": space.policy.policy_hash,
                "field": "base_policy_hash",
                "found": message.base_policy_hash,
                "accepted": space.policy.policy_hash,
                "next": "read the policy again, and propose the change on the current one",
            },
        )
    _refuse_malformed(space, message)
    if space.operators_needed == MAX_OPERATORS:
        return StepResult()
    return StepResult(changes=Changes(dict(sorted(message.set.items())), sorted(message.unset)))


def _refuse_malformed(space: Space, message: ProposePolicy) -> None:
    has_file = message.source is not msgspec.UNSET and message.source != space.policy_source
    if not message.set and not message.unset and not has_file:
        raise InvalidRequest("the change of policy changes nothing")
    if set(message.unset) & set(message.set):
        raise InvalidRequest("a key is both set and unset", {"field": "unset"})
    for key in message.unset:
        if key not in space.policy.pairs:
            raise InvalidRequest(f"the policy has no `{key}`", {"field": "unset", "key": key})
    unset = frozenset(message.unset)
    pairs = {key: text for key, text in space.policy.pairs.items() if key not in unset}
    refuse_faults(pairs | message.set)


def decide_settle_policy(space: Space, message: SettlePolicy, actor: Actor, stamp: Stamp) -> StepResult:  # noqa: ARG001
    """Another operator authorises a change, or turns it down; its proposer may only take it back."""
    change = space.policy_changes.get(message.change_id)
    if change is None:
        known = space.policy_changes if is_operator(actor) else ()
        raise RecordNotFound("policy change", message.change_id, find_nearest(message.change_id, known))
    if change.status is not PolicyChangeStatus.PENDING:
        raise Conflict(
            f"policy change `{message.change_id}` is {change.status.value} already",
            {
                "change_id": message.change_id,
                "status": change.status.value,
                "field": "status",
                "found": change.status.value,
                "accepted": PolicyChangeStatus.PENDING.value,
                "next": "propose the change again under a new id if it is still wanted",
            },
        )
    if not is_operator(actor):
        return refuse(StepReason.NOT_AUTHORISED)
    if not message.authorise:
        return StepResult()
    if space.operators_needed == MAX_OPERATORS and same_person(actor, change.proposer):
        return refuse(StepReason.SELF_APPROVAL)
    if change.base_policy_hash != space.policy.policy_hash:
        return refuse(StepReason.POLICY_MOVED)
    return StepResult(changes=Changes(dict(sorted(change.set.items())), sorted(change.unset)))


def decide_register_tool(space: Space, message: RegisterTool, actor: Actor, stamp: Stamp) -> StepResult:  # noqa: ARG001
    """A tool, or a new version of one. What runs already goes on as it was begun."""
    tool = message.tool
    for name, schema in (("args_schema", bytes(tool.args_schema)), ("result_schema", bytes(tool.result_schema))):
        if name == "result_schema" and schema == b"null":
            continue
        try:
            compile_schema_text(schema)
        except SchemaFault as exc:
            raise InvalidRequest(f"`{name}` is refused: {exc}", {"field": name}) from exc
    if not 1 <= tool.timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidRequest(f"`timeout_ms` must be from 1 to {MAX_TIMEOUT_MS}", {"field": "timeout_ms"})
    if not 1 <= tool.max_result_bytes <= MAX_RESULT_BYTES:
        raise InvalidRequest(f"`max_result_bytes` must be from 1 to {MAX_RESULT_BYTES}", {"field": "max_result_bytes"})
    for key in tool.facts:
        if namespace_of(key) != "fact":
            raise InvalidRequest(f"`{key}` is no fact, and a tool writes only facts", {"field": "facts", "key": key})
    if tool.retired:
        raise InvalidRequest("a tool is registered first and retired later", {"field": "retired"})
    return StepResult() if is_operator(actor) else refuse(StepReason.NOT_AUTHORISED)


def decide_retire_tool(space: Space, message: RetireTool, actor: Actor, stamp: Stamp) -> StepResult:  # noqa: ARG001
    """The tool may no longer be called."""
    if message.tool_id not in space.tools:
        raise RecordNotFound("tool", message.tool_id, find_nearest(message.tool_id, space.tools))
    return StepResult() if is_operator(actor) else refuse(StepReason.NOT_AUTHORISED)


def decide_issue(space: Space, message: IssueCapability, actor: Actor, stamp: Stamp) -> StepResult:
    """A new token, by an operator or by the holder of a wider one."""
    refusal = issue_refusal(space, message.capability, actor, stamp.ts)
    return StepResult() if refusal is None else refuse(refusal)


def decide_revoke(space: Space, message: RevokeCapability, actor: Actor, stamp: Stamp) -> StepResult:  # noqa: ARG001
    """The end of a token: by an operator, by its holder, or by the holder of the one above it."""
    token = space.capabilities.get(message.token_id)
    if token is None:
        raise RecordNotFound("capability", message.token_id, find_nearest(message.token_id, space.capabilities))
    if message.token_id in space.revoked:
        raise Conflict(
            f"capability `{message.token_id}` was revoked before",
            {
                "token_id": message.token_id,
                "field": "token_id",
                "found": message.token_id,
                "next": "leave it: it works no longer",
            },
        )
    parent = None if token.parent_id is None else space.capabilities.get(token.parent_id)
    holders = {token.agent_id, token.agent_id if parent is None else parent.agent_id}
    if is_operator(actor) or (actor.kind is ActorKind.AGENT and actor.id in holders):
        return StepResult()
    return refuse(StepReason.NOT_AUTHORISED)


def decide_memory(
    space: Space, message: PutMemory | PromoteMemory | DisputeMemory, actor: Actor, stamp: Stamp
) -> StepResult:
    """Memory's own rules decide."""
    if not isinstance(message, DisputeMemory) and message.confirming_event_found:
        evidence = message.evidence
        # An event that has left the state was looked up in the ledger; `verify` holds what was found against that.
        is_here = evidence.confirmed_by_event_id in space.events and evidence.confirmed_in_session_id is None
        if is_here and not confirms(space, evidence.confirmed_by_event_id or ""):
            raise Conflict(
                f"event `{evidence.confirmed_by_event_id}` confirms nothing",
                {"event_id": evidence.confirmed_by_event_id},
            )
    entry = judge_memory(space, message, actor, space.head.seq + 1, stamp)
    return refuse(entry) if isinstance(entry, MemoryReason) else StepResult()


def confirms(space: Space, event_id: str) -> bool:
    """Whether an event of the space can confirm a claim: it was validated, and tells more than that a claim was made.

    That a tool which the agent does not run itself has succeeded; that what an encoder or a tool observed was
    committed; that an operator approved. Anything else an agent could bring about by itself, to confirm what it likes.
    """
    seq, verb = space.events.get(event_id, (None, None))
    match verb:
        case SpaceVerb.RECORD_OUTCOME:
            return any(
                each.settled_seq == seq
                and each.status is ExecutionStatus.SUCCEEDED
                and each.tool.kind is not ToolKind.CALLER
                for each in space.executions.values()
            )
        case SpaceVerb.PROPOSE:
            return any(
                each.seq == seq
                and each.actor.kind in _OBSERVERS
                and each.status is ProposalStatus.COMMITTED
                and each.decision.verdict is Verdict.ALLOW
                for each in space.proposals.values()
            )
        case SpaceVerb.APPROVE:
            return any(
                each.settled_seq == seq and each.status is ApprovalStatus.APPROVED for each in space.approvals.values()
            )
        case _:
            return False
