"""What a model is told of a call: what happened, whether anything was changed, and what to do next.

The only place where this is put into words: clients, MCP, hooks and frameworks show these texts and no others.
"""

from __future__ import annotations

import msgspec

from cmbs.api.spaces import CallResponse, CallWait, CallWaitKind
from cmbs.errors import CmbsError
from cmbs.substrate.kernel.events import OutcomeStatus
from cmbs.substrate.kernel.words import CALLER, CallStatus

_SERVER = "server"
_ENDS = {
    CallStatus.DENIED: "the call is not allowed",
    CallStatus.WITHDRAWN: "the call was withdrawn",
    CallStatus.EXPIRED: "what the call waited for did not come in time",
}
_LOOK = "Read the state that it was to change before you go on."


def describe_call(answer: CallResponse, *, may_run: bool = False) -> str:
    """A call as it stands; of one that is done, its result. `may_run`: the reader has claimed it, and runs it now."""
    if answer.status is CallStatus.DONE:
        return describe_result(answer)
    return describe_status(answer, may_run=may_run)


def describe_status(answer: CallResponse, *, may_run: bool = False) -> str:
    """A call as it stands, without its result."""
    match answer.status:
        case CallStatus.DONE:
            return f"Done. {_name(answer)}"
        case CallStatus.FAILED:
            why = answer.error or ("its result was refused" if answer.outcome is None else answer.outcome.value)
            if answer.outcome is OutcomeStatus.RESULT_REFUSED:
                return (
                    f"Refused result: {why}. The call was made; what it changed, if anything, is changed.\n"
                    f"Ask for less: a part, a page, a narrower question. {_name(answer)}"
                )
            return f"Failed: {why}. It is on record as call `{answer.call_id}`."
        case CallStatus.WAITING:
            return _describe_waiting(answer)
        case CallStatus.RUNNING if may_run:
            return f"Allowed, and yours to run: run it now, once, and report its outcome. Call `{answer.call_id}`."
        case CallStatus.RUNNING:
            return _describe_started(answer)
        case CallStatus.IN_DOUBT:
            return (
                "Unknown: this call was started, and no outcome of it is on record. It may have taken effect, or not.\n"
                f"{_LOOK} It is not made again until an operator has reported the outcome of call `{answer.call_id}`."
            )
        case _:
            return (
                f"Not done: {_ENDS[answer.status]}. Nothing was changed.\n{describe_refusal(answer)}\n{_name(answer)}"
            )


def describe_result(answer: CallResponse) -> str:
    """What a call returned, as text."""
    return answer.result if isinstance(answer.result, str) else msgspec.json.encode(answer.result).decode()


def describe_joined(answer: CallResponse) -> str:
    """That the call was made before; nothing for one that is new."""
    if not answer.joined:
        return ""
    return f"This call was made before, as `{answer.call_id}`; it was not made again."


def describe_refusal(answer: CallResponse) -> str:
    """Why a call was not let through, and what to do next."""
    if answer.refusal is None:
        return f"`{answer.reason_code.value}`."
    return f"`{answer.refusal.code}`: {answer.refusal.sentence}"


def describe_withdrawn(answer: CallResponse, reason: str) -> str:
    """That the call was withdrawn for this reason; else what became of it instead."""
    if answer.status in (CallStatus.WITHDRAWN, CallStatus.DENIED, CallStatus.EXPIRED):
        return f"Not done: {reason}. Nothing was changed. Call `{answer.call_id}`."
    return describe_call(answer)


def describe_not_made(reason: str) -> str:
    """That no call was made, for this reason."""
    return f"Not done: {reason}. Nothing was changed."


def describe_unrecorded(answer: CallResponse, why: str) -> str:
    """That the call was made, and the server did not take its outcome."""
    return f"Unknown: the call was made, and its outcome is not on record ({why}). {_LOOK} {_name(answer)}"


def describe_error(exc: CmbsError) -> str:
    """That the server did not take the call."""
    step = getattr(exc, "details", {}).get("next")
    return describe_not_made(f"{exc}; {step}" if isinstance(step, str) else str(exc))


def _name(answer: CallResponse) -> str:
    return f"Call `{answer.call_id}`."


def _is_own(answer: CallResponse) -> bool:
    """Whether the reader made the call, or may see all of it: others are not shown its hash."""
    return answer.call_hash is not None


def _describe_started(answer: CallResponse) -> str:
    if answer.executor == _SERVER:
        return f"The server runs this call now. Wait for it, and do not make it again. Call `{answer.call_id}`."
    # Of a step that was refused: an outcome without the nonce of the claim, for example.
    refused = "" if answer.refusal is None else f"Refused: {describe_refusal(answer)}\n"
    own = "another process of yours" if _is_own(answer) else "the agent that made it"
    runner = own if answer.executor == CALLER else f"executor `{answer.executor}`"
    return refused + (
        f"Unknown: this call was begun by {runner}, and no outcome of it is on record. It may have taken effect, or "
        f"not, or still run.\n{_LOOK} It is not made again until the outcome of call `{answer.call_id}` is reported."
    )


def _describe_waiting(answer: CallResponse) -> str:
    waits_for = answer.waits_for or CallWait(kind=CallWaitKind.CHANGE)
    until = "" if waits_for.until is None else f", until {waits_for.until}"
    if waits_for.kind is CallWaitKind.EXECUTOR and answer.executor == CALLER and not _is_own(answer):
        return f"Allowed, and not run: call `{answer.call_id}` is for the agent that made it to run{until}."
    if waits_for.kind is CallWaitKind.EXECUTOR and answer.executor == CALLER:
        return f"Allowed, and not run: claim call `{answer.call_id}`{until}, and run it only if that succeeds."
    if waits_for.kind is CallWaitKind.EXECUTOR:
        return f"Allowed: executor `{answer.executor}` runs call `{answer.call_id}`{until}. Wait for it."
    if waits_for.kind is CallWaitKind.TURN:
        return f"Allowed: the server runs call `{answer.call_id}` when it is its turn. Wait for it."
    if waits_for.kind is CallWaitKind.APPROVAL:
        asked = ", ".join(f"`{each}`" for each in waits_for.approval_ids or ())
        why = f"an operator has to approve the call ({asked}), where operators sign in"
    else:
        why = f"it waits for a change of {', '.join(waits_for.keys or ()) or 'what it depends on'}"
    refusal = "" if answer.refusal is None else f"\n{describe_refusal(answer)}"
    return (
        f"Not done yet: {why}{until}. {_name_runner(answer)}{refusal}\n"
        f"Other work can go on meanwhile. Do not make the same call again. Call `{answer.call_id}`."
    )


def _name_runner(answer: CallResponse) -> str:
    """Who runs a call once what it waits for is there."""
    if answer.executor == _SERVER:
        return "Then the server runs it."
    if answer.executor == CALLER:
        return "Then you claim it and run it: it does not run by itself."
    return f"Then executor `{answer.executor}` runs it."
