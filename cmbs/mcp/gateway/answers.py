"""What an agent is told where its call was not carried out, in a form that its model sees: results that are errors.

A protocol error would stop at the host. Every answer says what happened, whether anything was done, and what to do
next, and carries its handles under `_meta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmbs.errors import CmbsError
from cmbs.mcp.asking import describe_failure
from cmbs.mcp.gateway.definitions import Change, describe_change

Wire = dict[str, Any]
# Under `_meta` of our results: the handles of the proposal behind a call.
HANDLES = "cmbs/proposal"
# Under `_meta` of a value that was recorded before, and is given again.
REPEAT = "cmbs/repeat-of"
_DENIED = {
    "rejected": "an operator rejected the call",
    "expired": "what the call waited for did not come in time",
    "withdrawn": "the call was withdrawn while it waited",
}


def build_error(text: str, handles: Mapping[str, Any] | None = None) -> Wire:
    """A result that is an error, as a model sees it."""
    result: Wire = {"content": [{"type": "text", "text": text}], "isError": True}
    return {**result, "_meta": {HANDLES: dict(handles)}} if handles else result


def list_handles(record: Mapping[str, Any]) -> Wire:
    """The ids by which a proposal, its approvals and its runs are found again."""
    handles = {"proposal_id": record["proposal_id"], "status": record["status"]}
    for name in ("approval_ids", "execution_ids", "case_id"):
        if record.get(name):
            handles[name] = record[name]
    return handles


def describe_refusals(record: Mapping[str, Any]) -> str:
    """Why it was not let through, and what to do next."""
    told = [f"{each['code']}: {each['message']}; {each['next']}" for each in record.get("refusals") or ()]
    return "\n".join(told) or str(record["decision"]["reason_code"])


def tell_denied(record: Mapping[str, Any]) -> Wire:
    """That the call is not allowed, and did not run."""
    why = _DENIED.get(record["status"], "the call is not allowed")
    text = f"Not done: {why}. Nothing was changed.\n{describe_refusals(record)}\nProposal `{record['proposal_id']}`."
    return build_error(text, list_handles(record))


def tell_waiting(record: Mapping[str, Any]) -> Wire:
    """That the call waits, for an approval or for what it depends on."""
    if record["status"] == "asked":
        asked = ", ".join(f"`{each}`" for each in record["approval_ids"])
        why = f"the call needs the approval of an operator ({asked})"
    else:
        why = f"the call is parked until one of these changes: {', '.join(record['waits_for'])}"
    text = (
        f"Not done yet: {why}.\n{describe_refusals(record)}\n"
        "Call the tool again with the same arguments to wait for it and to get its result: it does not run twice. "
        f"Other work can go on meanwhile. Proposal `{record['proposal_id']}`."
    )
    return build_error(text, list_handles(record))


def tell_unknown(record: Mapping[str, Any], why: str) -> Wire:
    """That it may or may not have happened."""
    runs = ", ".join(f"`{each}`" for each in record["execution_ids"])
    text = (
        f"Unknown: the call was sent, and no answer came back ({why}). It may or may not have taken effect.\n"
        "Read the state that it was to change before you go on. The same call is not sent again, until an operator has "
        f"reported the outcome of execution {runs}. Proposal `{record['proposal_id']}`."
    )
    return build_error(text, list_handles(record))


def tell_failed(why: str, record: Mapping[str, Any]) -> Wire:
    """That the call was tried and did not happen."""
    text = f"Failed: {why}. It was not carried out, and can be tried again. Proposal `{record['proposal_id']}`."
    return build_error(text, list_handles(record))


def tell_refused(why: str, record: Mapping[str, Any]) -> Wire:
    """That the call was made, and what came of it is not taken over."""
    text = (
        f"Refused result: {why}. The call was made; what it changed, if anything, is changed.\n"
        "Ask for less: a part, a page, a narrower question. The same call is sent again where you repeat it. "
        f"Proposal `{record['proposal_id']}`."
    )
    return build_error(text, list_handles(record))


def tell_suspended(name: str, change: Change) -> Wire:
    """That a tool is not what it was when it was pinned."""
    return build_error(
        f"Not done: `{name}` {describe_change(change)}, since it was pinned. Nothing was changed.\n"
        "Use another tool, or wait: an operator looks at it with `cmbs gateway changes`, and takes it over with "
        "`cmbs gateway accept`."
    )


def tell_failure(exc: CmbsError) -> Wire:
    """That the space did not take the proposal."""
    return build_error(f"Not done: {describe_failure(exc)}. Nothing was changed.")


def repeat_value(result: Wire, execution_id: str) -> Wire:
    """A recorded value, given again."""
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), REPEAT: execution_id}}
