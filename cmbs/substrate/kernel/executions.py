"""What becomes of executions: another attempt, an outcome, doubt. And the commit that waited for them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from cmbs.belief.kernel.events import Repeat, Stamp
from cmbs.errors import Conflict, InvalidRequest, RecordNotFound
from cmbs.ledger import canonical
from cmbs.ledger.instants import later
from cmbs.messages import Actor, ActorKind
from cmbs.refusals import find_nearest
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate, arbitrate_in_case, recheck
from cmbs.substrate.kernel.arbitration.cases import NeededReadings, find_case, has_lost_case, list_readings
from cmbs.substrate.kernel.arbitration.conflicts import Finding, after, effective_changes
from cmbs.substrate.kernel.calls import hash_of_call, is_executor, is_run_by_server, name_runner
from cmbs.substrate.kernel.events import (
    Changes,
    MarkInDoubt,
    Mode,
    OutcomeStatus,
    RecordOutcome,
    SpaceVerb,
    Start,
    StepResult,
    hash_of_nonce,
)
from cmbs.substrate.kernel.model import (
    BeliefReading,
    Proposal,
    Provenance,
    ReasonCode,
    StateDelta,
    Tool,
    ToolKind,
    Verdict,
)
from cmbs.substrate.kernel.policy.references import MISSING, walk
from cmbs.substrate.kernel.policy.schemas import compile_schema_text
from cmbs.substrate.kernel.proposals import (
    GRACE_MS,
    Turn,
    arbitrate_again,
    decide_again,
    is_open,
    require_readings,
    statuses_of,
    take_back,
)
from cmbs.substrate.kernel.state import Execution, ProposalRecord, Space
from cmbs.substrate.kernel.steps import StepReason, is_operator, refuse, require_engine
from cmbs.substrate.kernel.waiting import OutcomeUnchanged, end_waiting
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus, ProposalStatus

MAX_ATTEMPTS = 3
# Of one fact that a result sets. A limit of the rules and not of a server: replay has to find the same.
MAX_FACT_BYTES = 65_536


def decide_start(space: Space, message: Start, actor: Actor, stamp: Stamp) -> StepResult | Repeat:
    """Start what was let through before, if it is let through on the state of this moment too.

    What the server runs is started by the space itself, what others run by the one claim that comes first. Of what
    others run the space only looks whether it still may start, and ends it if not: OutcomeUnchanged if it may. An
    execution in doubt has one more attempt, where running it again does no harm, and not for ever.
    """
    execution = _execution(space, message.execution_id)
    is_claim, is_served = actor.kind is not ActorKind.POLICY_ENGINE, is_run_by_server(execution.tool)
    if is_claim:
        claimed = _check_claim(space, execution, message, actor)
        if claimed is not None:
            return claimed
    elif is_served and execution.status is ExecutionStatus.IN_DOUBT:
        return _start_again(space, execution, message, stamp)
    if execution.status is not ExecutionStatus.READY:
        raise Conflict(
            f"execution `{message.execution_id}` is {execution.status.value}, and waits for no start", _about(execution)
        )
    if stamp.ts >= execution.intent.deadline:
        raise Conflict(f"execution `{message.execution_id}` had until {execution.intent.deadline}", _about(execution))
    before, place = take_back(space, execution), execution.intent.candidate
    record = before.proposals[execution.proposal_id]
    lost: StrEnum | None = ReasonCode.NO_CASE if has_lost_case(space, record.message.proposal, record.actor) else None
    if name_runner(space.tools[execution.tool.tool_id]) != name_runner(execution.tool):
        # Neither may start it: who ran such calls then is not who runs them now.
        lost = StepReason.RUNNER_CHANGED
    if lost is not None:
        left = end_waiting(space, [execution.proposal_id], ProposalStatus.WITHDRAWN)
        return msgspec.structs.replace(left, reason_code=lost.value)
    turn = Turn(starts=message.execution_id)
    result = decide_again(before, record, [place], message.belief, stamp, turn)
    if not result.intents:
        return msgspec.structs.replace(result, not_started=(message.execution_id,))
    if is_claim or is_served:
        return result
    raise OutcomeUnchanged(f"execution `{message.execution_id}` is started by its executor", _about(execution))


def _check_claim(space: Space, execution: Execution, message: Start, actor: Actor) -> StepResult | Repeat | None:
    """What a claim comes to that starts nothing: a refusal or a repeat; None where it may start the execution."""
    if not is_executor(execution, actor):
        return refuse(StepReason.NOT_AUTHORISED)
    if isinstance(message.nonce_hash, msgspec.UnsetType) or isinstance(message.call_hash, msgspec.UnsetType):
        raise InvalidRequest("a claim names `nonce_hash` and `call_hash`", {"field": "nonce_hash"})
    if execution.nonce_hash is not None:
        if execution.nonce_hash == message.nonce_hash:
            return Repeat(execution.started_seq if execution.begun_seq is None else execution.begun_seq)
        raise Conflict(
            "the call was claimed before, by another process",
            {**_about(execution), "next": "leave it to the one that claimed it; read the call to see what came of it"},
        )
    record = space.proposals[execution.proposal_id]
    expected = hash_of_call(
        space, execution.agent_id, record.case_id, execution.intent.tool_id, execution.intent.args_hash
    )
    if message.call_hash != expected and execution.status is ExecutionStatus.READY:
        raise Conflict(
            "the call that was decided is another than the one that is claimed",
            {
                **_about(execution),
                "field": "call_hash",
                "found": message.call_hash,
                "accepted": expected,
                "next": "read the call again, and the registration of its tool, and claim what it says now",
            },
        )
    return None


def _about(execution: Execution) -> dict[str, Any]:
    return {"execution_id": execution.intent.execution_id, "status": execution.status.value}


def _start_again(space: Space, execution: Execution, message: Start, stamp: Stamp) -> StepResult:
    """One more attempt at an execution in doubt; OutcomeUnchanged where it stays in doubt."""
    intent, tool = execution.intent, execution.tool
    if not may_start_again(execution):
        raise Conflict(f"execution `{message.execution_id}` may not be started again", _about(execution))
    before = take_back(space, execution)
    record = before.proposals[execution.proposal_id]
    arbitration = arbitrate_again(before, record, [intent.candidate], message.belief, stamp)
    is_allowed = arbitration.candidates[0].runs and arbitration.decision.observed == record.decision.observed
    if not is_allowed or has_lost_case(space, record.message.proposal, record.actor):
        raise OutcomeUnchanged(
            f"execution `{message.execution_id}` may not be started again: it is not allowed any more",
            _about(execution),
        )
    again = msgspec.structs.replace(
        intent, attempt=intent.attempt + 1, deadline=later(stamp.ts, tool.timeout_ms + GRACE_MS)
    )
    return StepResult(intents=(again,))


def may_start_again(execution: Execution) -> bool:
    """Whether an execution may have another attempt."""
    return (
        execution.status is ExecutionStatus.IN_DOUBT
        and execution.tool.idempotent
        and is_run_by_server(execution.tool)
        and execution.intent.attempt < MAX_ATTEMPTS
    )


def decide_in_doubt(space: Space, message: MarkInDoubt, actor: Actor, stamp: Stamp) -> StepResult:
    """The time of an execution is over, and no outcome was reported."""
    require_engine(actor, SpaceVerb.MARK_IN_DOUBT)
    execution = _execution(space, message.execution_id)
    if execution.status is not ExecutionStatus.RUNNING:
        raise Conflict(f"execution `{message.execution_id}` is not running", {"execution_id": message.execution_id})
    if stamp.ts < execution.intent.deadline:
        raise Conflict(
            f"execution `{message.execution_id}` has until {execution.intent.deadline}",
            {"execution_id": message.execution_id},
        )
    return StepResult()


def decide_outcome(space: Space, message: RecordOutcome, actor: Actor, stamp: Stamp) -> StepResult | Repeat:
    """What came of an execution, once. A late one still counts: it ends the doubt."""
    execution = _execution(space, message.execution_id)
    if execution.status in (ExecutionStatus.READY, ExecutionStatus.NOT_STARTED):
        raise Conflict(
            f"execution `{message.execution_id}` was not started",
            {**_about(execution), "next": "claim the call before it is run; only then has it an outcome"},
        )
    if execution.settled_seq is not None:
        if not (is_operator(actor) or is_executor(execution, actor) or _is_its_tool(execution, actor)):
            return refuse(StepReason.NOT_AUTHORISED)
        if (execution.outcome, execution.result) != (message.status, bytes(message.result)):
            raise Conflict(
                f"execution `{message.execution_id}` has another outcome already",
                {
                    "execution_id": message.execution_id,
                    "outcome": execution.status.value,
                    "field": "status",
                    "found": message.status.value,
                    "accepted": execution.status.value,
                    "next": "read the execution: the first report counts",
                },
            )
        return Repeat(execution.settled_seq)
    if not _may_report(execution, actor):
        return refuse(StepReason.NOT_AUTHORISED)
    if not _shows_nonce(execution, message, actor):
        return refuse(StepReason.WRONG_NONCE)
    outcome = None
    succeeded = message.status is OutcomeStatus.SUCCEEDED
    if succeeded and not _is_acceptable(execution, bytes(message.result)):
        outcome, succeeded = OutcomeStatus.RESULT_REFUSED, False
    belief = {reading.session_id: reading for reading in message.belief}
    require_readings(sessions_of_outcome(space, message.execution_id), belief)
    changes = _facts(execution, bytes(message.result), space.state) if succeeded else Changes()
    reason = None
    too_long = any(len(text.encode()) > MAX_FACT_BYTES for text in changes.set.values())
    if too_long or (changes != Changes() and not _may_write(space, execution, changes, belief, stamp)):
        changes, reason = Changes(), StepReason.FACTS_REFUSED.value
    changes, statuses = _settle(space, execution, changes, belief, stamp.ts, succeeded=succeeded)
    return StepResult(reason_code=reason, changes=changes, statuses=statuses, outcome=outcome)


def _writes_facts(tool: Tool) -> bool:
    """Whether results of a tool set its facts. Not those that an agent reports itself, unless the registration says
    so.
    """
    return tool.kind is not ToolKind.CALLER or tool.caller_facts is True


def _may_write(
    space: Space, execution: Execution, changes: Changes, belief: Mapping[str, BeliefReading], stamp: Stamp
) -> bool:
    """Whether a tool may set these facts: as if it proposed them, in the case of the proposal it was called for."""
    if not _writes_facts(execution.tool):
        return False
    if space.mode is Mode.OBSERVE:
        return True
    record, tool_id = space.proposals[execution.proposal_id], execution.tool.tool_id
    # What the agent eliminated itself is left out, not what the tool did: it is the agent's gate.
    case = find_case(space, record.message.proposal, record.actor, belief)
    proposal = Proposal("", space.snapshot_id, Provenance(tool_id, stamp.ts), [StateDelta(changes.set, changes.unset)])
    actor = Actor(ActorKind.TOOL, tool_id, authenticated=True)
    return arbitrate_in_case(space, proposal, actor, stamp.ts, belief, case).decision.verdict is Verdict.ALLOW


def sessions_of_outcome(space: Space, execution_id: str) -> NeededReadings:
    """The belief sessions that may be read to decide what follows from an outcome.

    All proposals that wait for one execution are of one agent, so that each session is read without one actor at most.
    """
    policy = space.policy
    execution = space.executions.get(execution_id)
    if not policy.reads_belief or execution is None:
        return {}
    records = [space.proposals[proposal_id] for proposal_id in (execution.proposal_id, *execution.awaited_by)]
    writes = bool(execution.tool.facts) and _writes_facts(execution.tool)
    judged = writes or any(_is_judged_again(space, record) for record in records)
    session_ids, use = policy.invariant_session_ids, policy.invariant_case_use
    if judged:
        matching = policy.matching(None)
        session_ids, use = session_ids | matching.session_ids, max(use, matching.case_use)
    cases = [find_case(space, record.message.proposal, record.actor) for record in records]
    return list_readings(session_ids, [(case, use) for case in cases])


def _is_judged_again(space: Space, record: ProposalRecord) -> bool:
    """Whether what was let through then was so under other rules than those of now."""
    decision = record.decision
    return decision.observed or decision.policy_hash != space.policy.policy_hash


def _execution(space: Space, execution_id: str) -> Execution:
    execution = space.executions.get(execution_id)
    if execution is None:
        raise RecordNotFound("execution", execution_id, find_nearest(execution_id, space.executions))
    return execution


def _may_report(execution: Execution, actor: Actor) -> bool:
    """The tool itself, or who runs its calls outside the server; of one in doubt also an operator, who has looked.

    Not one who goes by the id of the agent: no actor vouches for its own call. An agent that claimed nothing does not
    settle what is in doubt either.
    """
    if actor.kind is ActorKind.TOOL:
        return _is_its_tool(execution, actor)
    if is_executor(execution, actor):
        return execution.nonce_hash is not None or execution.status is ExecutionStatus.RUNNING
    return is_operator(actor) and actor.id != execution.agent_id and execution.status is ExecutionStatus.IN_DOUBT


def _is_its_tool(execution: Execution, actor: Actor) -> bool:
    is_tool = actor.kind is ActorKind.TOOL and actor.id == execution.tool.tool_id
    return is_tool and is_run_by_server(execution.tool)


def _shows_nonce(execution: Execution, message: RecordOutcome, actor: Actor) -> bool:
    """Whether the outcome of a claimed execution comes with the secret of its claim; an operator needs none."""
    if execution.nonce_hash is None or is_operator(actor):
        return True
    nonce = message.nonce
    return not isinstance(nonce, msgspec.UnsetType) and hash_of_nonce(nonce) == execution.nonce_hash


def _is_acceptable(execution: Execution, result: bytes) -> bool:
    tool = execution.tool
    if len(result) > tool.max_result_bytes:
        return False
    schema = bytes(tool.result_schema)
    if schema == b"null":
        return True
    return compile_schema_text(schema).is_valid(msgspec.json.decode(result))


def _facts(execution: Execution, result: bytes, state: Mapping[str, str]) -> Changes:
    """What a result says of the facts that its tool keeps; a path that leads nowhere takes its fact away."""
    if not execution.tool.facts:
        return Changes()
    value = msgspec.json.decode(result)
    to_set: dict[str, str] = {}
    to_unset: list[str] = []
    for key, path in execution.tool.facts.items():
        found = walk(value, tuple(path.split("."))) if path else value
        if found is MISSING or found is None:
            to_unset.append(key)
        else:
            to_set[key] = _text(found)
    return effective_changes(state, [StateDelta(to_set, to_unset)])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical.encode(value).decode()


def _settle(
    space: Space,
    execution: Execution,
    changes: Changes,
    belief: Mapping[str, BeliefReading],
    now: str,
    *,
    succeeded: bool,
) -> tuple[Changes, dict[str, str]]:
    """Where the proposals that waited for this execution stand now, and the deltas that can be committed with it."""
    ended = ExecutionStatus.SUCCEEDED if succeeded else ExecutionStatus.FAILED
    ended_execution = msgspec.structs.replace(execution, status=ended)
    space = msgspec.structs.replace(
        space, executions=space.executions.set(execution.intent.execution_id, ended_execution)
    )
    statuses: dict[str, str] = {}
    for proposal_id in (execution.proposal_id, *execution.awaited_by):
        record = space.proposals[proposal_id]
        known = statuses_of(space, record)
        if any(map(is_open, known)):
            continue
        if ExecutionStatus.READY in known:
            statuses[proposal_id] = ProposalStatus.READY.value
            continue
        status, proposal = ProposalStatus.COMMITTED, record.message.proposal
        if any(each is not ExecutionStatus.SUCCEEDED for each in known):
            status = ProposalStatus.FAILED
        elif proposal.atomic and len(record.done) < len(proposal.candidates):
            # What was let through at first was not when it was to be started; it may wait again.
            status = ProposalStatus.FAILED
        elif proposal.atomic:
            committed = _commit(space, record, changes, belief, now)
            if committed is None:
                status = ProposalStatus.FAILED
            else:
                changes = committed
        statuses[proposal_id] = (_still_waits(space, proposal_id, record) or status).value
    return changes, statuses


def _commit(
    space: Space, record: ProposalRecord, changes: Changes, belief: Mapping[str, BeliefReading], now: str
) -> Changes | None:
    """These changes and the deltas of a proposal whose calls have all succeeded; None where they no longer fit."""
    proposal = record.message.proposal
    state_now = msgspec.structs.replace(space, state=after(space.state, changes))
    let_through = [proposal.candidates[place] for place in record.done]
    deltas = [each for each in let_through if isinstance(each, StateDelta)]
    if record.decision.observed and space.mode is Mode.OBSERVE:
        wanted: Changes | Finding = effective_changes(state_now.state, deltas)
    else:
        wanted = recheck(state_now, proposal, record.actor, record.done, belief)
        if deltas and space.mode is Mode.ENFORCE and _is_judged_again(space, record):
            # The reporter chooses when to report: what has been forbidden since does not come in by waiting.
            again = msgspec.structs.replace(proposal, state_snapshot_id=space.snapshot_id, candidates=list(deltas))
            if arbitrate(state_now, again, record.actor, now, belief).decision.verdict is not Verdict.ALLOW:
                return None
    if isinstance(wanted, Finding) or {*wanted.set, *wanted.unset} & {*changes.set, *changes.unset}:
        return None
    together = {**changes.set, **wanted.set}
    return Changes(dict(sorted(together.items())), sorted([*changes.unset, *wanted.unset]))


def _still_waits(space: Space, proposal_id: str, record: ProposalRecord) -> ProposalStatus | None:
    """What the rest of a proposal that is not atomic still waits for."""
    approvals = [space.approvals[approval_id] for approval_id in record.approval_ids]
    if any(approval.status is ApprovalStatus.PENDING for approval in approvals):
        return ProposalStatus.ASKED
    return ProposalStatus.PARKED if proposal_id in space.parked else None
