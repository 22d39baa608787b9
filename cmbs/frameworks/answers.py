"""What a framework is given where a call was not run, and what its user is asked, in the words of `cmbs.calls`."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from cmbs.api.spaces import CallResponse
from cmbs.calls.gated_call import GatedCall
from cmbs.calls.sentences import describe_call


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

    call_id: str
    tool_id: str
    args: Any
    case_id: str | None
    approval_ids: list[str]
    waits_for: list[str]
    message: str


def build_question(answer: CallResponse) -> Question:
    """What is asked about a call that waits. To say yes to it approves nothing: operators approve on the server."""
    waits_for = answer.waits_for
    return {
        "call_id": answer.call_id,
        "tool_id": answer.tool_id,
        "args": answer.args,
        "case_id": answer.case_id,
        "approval_ids": [*((waits_for and waits_for.approval_ids) or ())],
        "waits_for": [*((waits_for and waits_for.keys) or ())],
        "message": f"{describe_call(answer)}\nGo on when an operator has approved it on the cmbs server.",
    }


def build_answer(call: GatedCall) -> Answer:
    """What the model is told of a call that it does not run now."""
    return Answer(describe_call(call.answer), call.answer.result if call.is_done else msgspec.UNSET)


def convert_to_json(value: Any) -> Any:
    """A value as JSON has it. Models of pydantic are dumped, what JSON does not have is its text."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_encode)


def _encode(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json")
    return str(value)
