"""What an agent is told where its call was not carried out, in a form that its model sees: results that are errors.

A protocol error would stop at the host. Every answer says what happened, whether anything was done, and what to do
next, and carries its handles under `_meta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmbs.api.spaces import CallResponse
from cmbs.calls.sentences import describe_call, describe_error, describe_unrecorded
from cmbs.errors import CmbsError
from cmbs.mcp.gateway.definitions import Change, describe_change
from cmbs.substrate.kernel.words import CallStatus

Wire = dict[str, Any]
# Under `_meta` of our results: the handles of the proposal behind a call.
HANDLES = "cmbs/proposal"
# Under `_meta` of a value that was recorded before, and is given again.
REPEAT = "cmbs/repeat-of"


def build_error(text: str, handles: Mapping[str, Any] | None = None) -> Wire:
    """A result that is an error, as a model sees it."""
    result: Wire = {"content": [{"type": "text", "text": text}], "isError": True}
    return {**result, "_meta": {HANDLES: dict(handles)}} if handles else result


def list_handles(found: CallResponse) -> Wire:
    """The ids by which a call, its proposal and its approvals are found again."""
    handles: Wire = {"call_id": found.call_id, "proposal_id": found.proposal_id, "status": found.status.value}
    if found.waits_for is not None and found.waits_for.approval_ids:
        handles["approval_ids"] = found.waits_for.approval_ids
    if found.execution_id is not None:
        handles["execution_id"] = found.execution_id
    return handles if found.case_id is None else {**handles, "case_id": found.case_id}


def tell_call(found: CallResponse) -> Wire:
    """Where a call stands that gave no result."""
    text = describe_call(found)
    if found.status is CallStatus.WAITING:
        text += "\nCall the tool again with the same arguments to get its result: it does not run twice."
    return build_error(text, list_handles(found))


def tell_unknown(found: CallResponse, why: str) -> Wire:
    """That it was sent, and may or may not have happened."""
    return build_error(describe_unrecorded(found, why), list_handles(found))


def tell_suspended(name: str, change: Change) -> Wire:
    """That a tool is not what it was when it was pinned."""
    return build_error(
        f"Not done: `{name}` {describe_change(change)}, since it was pinned. Nothing was changed.\n"
        "Use another tool, or wait: an operator looks at it with `cmbs gateway changes`, and takes it over with "
        "`cmbs gateway accept`."
    )


def tell_failure(exc: CmbsError) -> Wire:
    """That the space did not take the call."""
    return build_error(describe_error(exc))


def repeat_value(result: Wire, execution_id: str) -> Wire:
    """A recorded value, given again."""
    meta = result.get("_meta")
    return {**result, "_meta": {**(meta if isinstance(meta, dict) else {}), REPEAT: execution_id}}
