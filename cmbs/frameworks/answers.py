"""What a model is told where its call was not run, and what its user is asked. Every text says what to do next."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from cmbs.api.spaces import ExecutionResponse, ProposalResponse
from cmbs.errors import BeliefServerError
from cmbs.ledger.tagged_hash import describe_large_result

WAITING = ("asked", "parked")
ENDED = ("succeeded", "failed", "timed_out", "result_refused")
_WHY = {
    "rejected": "an operator rejected the call",
    "expired": "what the call waited for did not come in time",
    "withdrawn": "the call was withdrawn while it waited",
}
# Beyond this a result is recorded by its hash alone.
_MAX_RESULT_BYTES = 65_536


class Answer(msgspec.Struct, frozen=True):
    """What the model is told in place of a result: a text, or the value that was recorded before."""

    text: str
    value: Any = msgspec.UNSET

    @property
    def has_value(self) -> bool:
        """Whether the call was made before, and this is what it returned."""
        return self.value is not msgspec.UNSET


class Question(TypedDict):
    """A call that waits, for people: where it is approved, and by which ids it is found."""

    proposal_id: str
    status: str
    approval_ids: list[str]
    waits_for: list[str]
    case_id: str | None
    calls: list[dict[str, Any]]
    message: str


def build_question(proposal: ProposalResponse) -> Question:
    """What is asked about a call that waits. To say yes to it approves nothing: operators approve on the server."""
    calls = [msgspec.to_builtins(each) for each in proposal.candidates]
    return {
        "proposal_id": proposal.proposal_id,
        "status": proposal.status,
        "approval_ids": list(proposal.approval_ids),
        "waits_for": list(proposal.waits_for),
        "case_id": proposal.case_id,
        "calls": [{"tool_id": each["tool_id"], "args": each["args"]} for each in calls if "tool_id" in each],
        "message": f"{describe_refusals(proposal)}\nGo on when an operator has approved it on the cmbs server.",
    }


def describe_refusals(proposal: ProposalResponse) -> str:
    """Why it was not let through, and what to do next."""
    told = [f"{each.code}: {each.sentence}" for each in proposal.refusals or ()]
    return "\n".join(told) or proposal.decision.reason_code


def tell_denied(proposal: ProposalResponse) -> Answer:
    """That the call is not allowed, and did not run."""
    why = _WHY.get(proposal.status, "the call is not allowed")
    told = describe_refusals(proposal)
    return Answer(f"Not done: {why}. Nothing was changed.\n{told}\nProposal `{proposal.proposal_id}`.")


def tell_outcome(execution: ExecutionResponse) -> Answer:
    """What came of a call that was made before."""
    if execution.status == "succeeded":
        value = execution.result
        return Answer(value if isinstance(value, str) else msgspec.json.encode(value).decode(), value)
    why = execution.error or execution.status
    return Answer(f"Failed: {why}. It is on record as execution `{execution.execution_id}`.")


def tell_withdrawn(proposal_id: str, reason: str) -> Answer:
    """That the framework's user called it off."""
    return Answer(f"Not done: {reason}. Nothing was changed. Proposal `{proposal_id}`.")


def tell_unrecorded(execution_id: str, exc: BeliefServerError) -> Answer:
    """That the call was made, and the server did not take its outcome."""
    return Answer(
        f"Unknown: the call was made, and its outcome is not on record ({exc.message}). Read the state that it was to "
        f"change before you go on. Execution `{execution_id}`."
    )


def tell_unknown(execution: ExecutionResponse) -> Answer:
    """That the call was begun, and no outcome is on record."""
    return Answer(
        "Unknown: this call was begun, and no outcome of it is on record. It may have taken effect, or not, or still "
        "run.\nRead the state that it was to change before you go on. It is not made again until the outcome of "
        f"execution `{execution.execution_id}` is reported. Proposal `{execution.proposal_id}`."
    )


def tell_error(exc: BeliefServerError) -> Answer:
    """That the server does not take the proposal."""
    following = exc.details.get("next")
    told = f"{exc.message}; {following}" if isinstance(following, str) else exc.message
    return Answer(f"Not done: {told}. Nothing was changed.")


def convert_to_json(value: Any) -> Any:
    """A value as JSON has it. Models of pydantic are dumped, what JSON does not have is its text."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode)


def shorten_result(value: Any) -> Any:
    """A result as it is kept: all of it, or its hash where it is too large."""
    data = msgspec.json.encode(value)
    return value if len(data) <= _MAX_RESULT_BYTES else describe_large_result(data)


def _encode(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    return str(value)
