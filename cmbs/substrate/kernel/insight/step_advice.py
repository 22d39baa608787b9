"""Refusals from steps other than proposals: approvals, tools, tokens, policy changes, memory. Pure.

`STEP_ADVICE` has a row for every reason that such a step can be refused for.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from cmbs.refusals import Refusal
from cmbs.substrate.kernel.arbitration.capabilities import IssueRefusal
from cmbs.substrate.kernel.events import IssueCapability, SpaceMessage
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.memory import UNCONFIRMED_KINDS, MemoryReason
from cmbs.substrate.kernel.model import Capability
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.steps import StepReason

# What was found, and what would be accepted; None where there is nothing to tell.
Found: TypeAlias = tuple[Any, Any]
Find: TypeAlias = Callable[[Space, Any, SpaceAnswer], Found]


class StepAdvice(NamedTuple):
    """What a step is told that was refused for one reason."""

    message: str
    next: str
    field: str | None = None
    find: Find | None = None
    # Where what was found does not tell it.
    accepted: str | None = None


def advise_on_step(answer: SpaceAnswer) -> Refusal | None:
    """The refusal of a step, from its own answer; None where it did what it asked for."""
    code = answer.event.result.reason_code
    if code is None:
        return None
    advice = STEP_ADVICE.get(code, StepAdvice(f"it was not done: {code}", "ask an operator"))
    found, accepted = None, None
    if advice.find is not None:
        found, accepted = advice.find(answer.space, answer.event.message, answer)
    return Refusal(
        code=code,
        message=advice.message,
        next=advice.next,
        field=advice.field,
        found=found,
        accepted=advice.accepted if accepted is None else accepted,
    )


# --- what was found ---------------------------------------------------------------------------------------------------


def _find_kind(space: Space, message: SpaceMessage, answer: SpaceAnswer) -> Found:  # noqa: ARG001
    return answer.event.body.actor.kind.value, None


def _find_approver(space: Space, message: SpaceMessage, answer: SpaceAnswer) -> Found:  # noqa: ARG001
    return answer.event.body.actor.id, None


def _find_expiry(space: Space, message: Any, answer: SpaceAnswer) -> Found:
    return answer.event.body.ts, {"before": space.approvals[message.approval_id].asked.expires_at}


def _find_call_hash(space: Space, message: Any, answer: SpaceAnswer) -> Found:  # noqa: ARG001
    return message.call_hash, space.approvals[message.approval_id].asked.call_hash


def _find_policy(space: Space, message: Any, answer: SpaceAnswer) -> Found:  # noqa: ARG001
    return space.policy_changes[message.change_id].base_policy_hash, space.policy.policy_hash


def _find_token(name: str) -> Find:
    """The field of a token that reaches further than that of its parent."""

    def find(space: Space, message: IssueCapability, answer: SpaceAnswer) -> Found:  # noqa: ARG001
        parent: Capability | None = space.capabilities.get(message.capability.parent_id or "")
        return getattr(message.capability, name), None if parent is None else getattr(parent, name)

    return find


def _find_field(*path: str) -> Find:
    """What a message says at a path."""

    def find(space: Space, message: Any, answer: SpaceAnswer) -> Found:  # noqa: ARG001
        for name in path:
            message = getattr(message, name)
        return message, None

    return find


def _find_memory_kind(space: Space, message: Any, answer: SpaceAnswer) -> Found:  # noqa: ARG001
    return message.kind.value, sorted(kind.value for kind in UNCONFIRMED_KINDS)


def _find_promotion(space: Space, message: Any, answer: SpaceAnswer) -> Found:  # noqa: ARG001
    return {"from": space.memory[message.entry_id].kind.value, "to": message.kind.value}, None


# --- the rows ---------------------------------------------------------------------------------------------------------

_STEPS: dict[StrEnum, StepAdvice] = {
    StepReason.NOT_AUTHORISED: StepAdvice(
        "this actor may not do that here",
        "have an operator do it, or use an operator's key",
        "actor.kind",
        _find_kind,
        accepted="an operator; for cases also a key of another kind than `agent` with the scope `spaces:cases`",
    ),
    StepReason.SECOND_OPERATOR_NEEDED: StepAdvice(
        "it is recorded, and takes effect once another operator asks for the same",
        "have another operator send the same request",
        "actor.id",
        _find_approver,
        accepted="another operator",
    ),
    StepReason.SELF_APPROVAL: StepAdvice(
        "the one who proposed it cannot approve it",
        "have another operator approve it, or reject it yourself",
        "actor.id",
        _find_approver,
        accepted="another operator",
    ),
    StepReason.APPROVAL_EXPIRED: StepAdvice(
        "the time for this approval is over", "have the call proposed again, and approve that", "now", _find_expiry
    ),
    StepReason.CALL_CHANGED: StepAdvice(
        "the approval is for another call than the one that you saw",
        "read the approval again, and approve the call that it is for now if that is right",
        "call_hash",
        _find_call_hash,
    ),
    StepReason.RUNNER_CHANGED: StepAdvice(
        "the tool is run by another than when the call was allowed, so the call was withdrawn",
        "make the call again",
        "tool_id",
        accepted="a call that is made under the tool's present registration",
    ),
    StepReason.WRONG_NONCE: StepAdvice(
        "the outcome does not come with the nonce of the claim that started the call",
        "leave it to the process that claimed the call, or have an operator settle it once it is in doubt",
        "nonce",
        accepted="the secret whose SHA-256 the claim named",
    ),
    StepReason.POLICY_MOVED: StepAdvice(
        "the policy is another than the one that the change was proposed for",
        "propose the change again on the current policy",
        "base_policy_hash",
        _find_policy,
    ),
    StepReason.FACTS_REFUSED: StepAdvice(
        "the outcome is recorded, and the facts that the result would set are not",
        "read the state and the policy: what the result would set breaks a rule or a limit",
        "result",
        accepted="facts that a delta of this tool may set",
    ),
}
_TOKENS: dict[StrEnum, StepAdvice] = {
    IssueRefusal.MALFORMED: StepAdvice(
        "the token names no tools, has a bound that cannot be one, or has expired already",
        "name at least one tool, bounds that are not negative, and an end in the future",
        "capability",
        accepted="a token with tools, and bounds and an end that can be met",
    ),
    IssueRefusal.ALREADY_ISSUED: StepAdvice(
        "there is a token of this id, and tokens are never changed",
        "issue it under another id",
        "token_id",
        _find_field("capability", "token_id"),
        accepted="an id that no token has had",
    ),
    IssueRefusal.NOT_PERMITTED: StepAdvice(
        "tokens are issued by operators, and narrower ones by the agent that holds the wider one",
        "ask an operator to issue it, or name a token of your own as its parent",
        "actor.kind",
        _find_kind,
        accepted="an operator, or the agent that holds the parent",
    ),
    IssueRefusal.PARENT_UNKNOWN: StepAdvice(
        "there is no such parent",
        "name a token that exists",
        "parent_id",
        _find_field("capability", "parent_id"),
        accepted="the id of a token that was issued",
    ),
    IssueRefusal.PARENT_EXPIRED: StepAdvice(
        "the parent, or one above it, has expired",
        "name a parent that is still good",
        "parent_id",
        _find_field("capability", "parent_id"),
        accepted="a token that is good, as are all above it",
    ),
    IssueRefusal.PARENT_REVOKED: StepAdvice(
        "the parent, or one above it, was revoked",
        "name a parent that is still good",
        "parent_id",
        _find_field("capability", "parent_id"),
        accepted="a token that is good, as are all above it",
    ),
    IssueRefusal.LINE_TOO_LONG: StepAdvice(
        "there are as many tokens above it as there may be",
        "issue it under a token that is nearer to the root",
        "parent_id",
        _find_field("capability", "parent_id"),
        accepted="a token with fewer tokens above it",
    ),
    IssueRefusal.WIDER_TOOLS: StepAdvice(
        "it covers tools that its parent does not cover",
        "leave out the tools that the parent lacks",
        "tool_ids",
        _find_token("tool_ids"),
    ),
    IssueRefusal.WIDER_CAPABILITIES: StepAdvice(
        "it has capabilities that its parent does not have",
        "leave out the capabilities that the parent lacks",
        "capabilities",
        _find_token("capabilities"),
    ),
    IssueRefusal.WIDER_SCOPES: StepAdvice(
        "its scopes do not keep it within those of its parent",
        "repeat every scope of the parent, as it is or narrower",
        "scopes",
        _find_token("scopes"),
    ),
    IssueRefusal.WIDER_BUDGET: StepAdvice(
        "its budget is larger than that of its parent",
        "ask for no more than the parent has",
        "budget",
        _find_token("budget"),
    ),
    IssueRefusal.WIDER_EXPIRY: StepAdvice(
        "it would outlive its parent",
        "let it end no later than the parent",
        "expires_at",
        _find_token("expires_at"),
    ),
}
_MEMORY: dict[StrEnum, StepAdvice] = {
    MemoryReason.MEMORY_EXISTS: StepAdvice(
        "there is an entry of this id",
        "put it under another id, or promote that one",
        "entry_id",
        _find_field("entry_id"),
        accepted="an id that no entry has had",
    ),
    MemoryReason.MEMORY_UNKNOWN: StepAdvice(
        "there is no entry of this id",
        "list the memory, and use an id from there",
        "entry_id",
        _find_field("entry_id"),
        accepted="the id of an entry of this space",
    ),
    MemoryReason.MEMORY_EXPIRED: StepAdvice(
        "the time of this entry is over",
        "put the claim again if it still holds",
        "entry_id",
        _find_field("entry_id"),
        accepted="an entry whose time is not over",
    ),
    MemoryReason.DISPUTE_OF_ANOTHER: StepAdvice(
        "a dispute is lifted by the actor that raised it, or by an operator",
        "have that actor or an operator lift it",
        "actor.id",
        _find_approver,
        accepted="the actor that raised it, or an operator",
    ),
    MemoryReason.NOT_DUE: StepAdvice(
        "the time of this entry is not over",
        "leave it: it expires by itself",
        "id",
        _find_field("id"),
        accepted="an entry whose time is over",
    ),
    MemoryReason.NOT_A_PROMOTION: StepAdvice(
        "only a hypothesis or a derived claim is promoted, to a fact, a preference or a decision",
        "promote an entry of those kinds to one of the others",
        "kind",
        _find_promotion,
        accepted="from hypothesis or derived, to fact, preference or decision",
    ),
    MemoryReason.CONFIRMING_EVENT_UNKNOWN: StepAdvice(
        "no event of this id confirms anything",
        "name an accepted conclusion, a successful outcome, an approval or a committed observation",
        "evidence.confirmed_by_event_id",
        _find_field("evidence", "confirmed_by_event_id"),
        accepted="the id of an event that confirms something",
    ),
    MemoryReason.NO_NEW_EVIDENCE: StepAdvice(
        "it brings no evidence that was not there before",
        "bring a source or an event that the claim did not rest on yet",
        "evidence",
        _find_field("evidence"),
        accepted="a source or an event that is new to the claim",
    ),
    MemoryReason.CLAIM_UNCONFIRMED: StepAdvice(
        "what is not confirmed is kept as a hypothesis or as derived, and no more",
        "put it as one of these kinds, or bring an event that confirms it or sources with enough confidence",
        "kind",
        _find_memory_kind,
    ),
    MemoryReason.REVIEW_REQUIRED: StepAdvice(
        "what is not confirmed needs an end or a review date",
        "add `ttl_ms` or `review_at`",
        "ttl_ms",
        accepted="a number of milliseconds, or `review_at`",
    ),
}
STEP_ADVICE: dict[str, StepAdvice] = {
    reason.value: advice for table in (_STEPS, _TOKENS, _MEMORY) for reason, advice in table.items()
}
