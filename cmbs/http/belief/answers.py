"""What goes back beside the outcome of a verb: why it was refused, that it is a repeat, and the belief of now."""

from __future__ import annotations

from typing import Any

from cmbs.belief.kernel.events import EnterObligation
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.refusals import refusal_of
from cmbs.belief.kernel.views import reach_at, snapshot

# The header of an answer that was given before.


def describe_answer(answer: Answer, note: str | None) -> dict[str, Any]:
    """The further members of an answer; each only where there is something to say."""
    content: dict[str, Any] = {}
    if note is not None:
        content["note"] = note
    if isinstance(answer.message, EnterObligation):
        content["reach"] = reach_at(answer.session, answer.message.obligation_id, answer.seq)._asdict()
    refusal = refusal_of(answer)
    if refusal is not None:
        content["refusal"] = refusal
    if answer.replayed:
        belief = snapshot(answer.session)
        content["replayed"] = True
        content["current"] = {
            "n_survivors": belief.n_survivors,
            "audit_head_event_id": belief.audit_head_event_id,
            "terminated": belief.terminated,
        }
    return content
