"""Whatever is wrong with a request, the answer says where, what was found, what is accepted and what to do next.

`check_error` asks that of every error of every test. Here are requests that nothing else sends, and steps of a space
that are answered and not granted.
"""

from __future__ import annotations

import pytest

from cmbs.refusals import Refusal
from cmbs.substrate.kernel.insight.step_advice import STEP_ADVICE
from tests.support.error_model import check_error
from tests.support.space_client import PLANNER, SpaceClient

FIELDS = {"field", "found", "accepted", "next"}


@pytest.mark.req("GATES-REFUSAL-01")
def test_a_body_that_is_wrong_is_answered_with_its_field(subtests: pytest.Subtests, space: SpaceClient) -> None:
    for path, body, field in [
        ("/governance", {"operators_needed": 5}, "operators_needed"),
        ("/mode", {"mode": "watch"}, "mode"),
        ("/cases", {"case_id": "c", "agents": 3}, "agents"),
        ("/tools", {"tool_id": "t", "kind": "telepathy"}, "kind"),
        ("/proposals", {"proposal_id": "p"}, "candidates"),
        ("/policy/changes", {"change_id": "c"}, "base_policy_hash"),
    ]:
        with subtests.test(path=path, body=body, field=field):
            details = check_error(space.post(path, body), 400, "INVALID_REQUEST")
            assert field in {details["field"], *(each["field"] for each in details.get("faults", []))}


@pytest.mark.req("GATES-REFUSAL-01")
def test_an_agent_that_asks_for_what_is_for_operators_is_told_how_to_be_one(space: SpaceClient) -> None:
    details = check_error(space.get("/policy", who=PLANNER), 403, "FORBIDDEN")
    assert (details["field"], details["found"], details["accepted"]) == ("actor.kind", "agent", ["operator"])
    assert "X-Cmbs-Actor: operator:me" in details["next"]


@pytest.mark.req("GATES-REFUSAL-01")
def test_a_step_that_is_not_granted_says_who_may_take_it(subtests: pytest.Subtests, space: SpaceClient) -> None:
    for path, body in [
        ("/cases", {"case_id": "c", "agents": ["planner"]}),
        ("/tools", {"tool_id": "t", "kind": "caller", "args_schema": {}}),
        ("/capabilities", {"token_id": "mine", "agent_id": "planner", "tool_ids": ["t"]}),
        ("/mode", {"mode": "observe"}),
    ]:
        with subtests.test(path=path, body=body):
            answer = space.post(path, body, who=PLANNER).json()
            assert not answer["granted"]
            assert answer["refusal"].keys() >= FIELDS
            assert answer["refusal"]["found"] == "agent"


def test_every_reason_of_a_step_says_what_is_accepted_or_finds_it() -> None:
    assert [code for code, advice in STEP_ADVICE.items() if advice.accepted is None and advice.find is None] == []
    assert all(advice.field and advice.next for advice in STEP_ADVICE.values())
    assert set(Refusal.__struct_fields__) >= FIELDS
