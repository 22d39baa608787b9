"""What has left the state of a space, over HTTP: every answer is the same as before it left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.epochs import epochs_of
from tests.support.space_client import LEAD, OPS, PLANNER, SpaceClient, call, delta
from tests.transport.test_spaces import pages

LISTS = ("proposals", "approvals", "executions", "decisions", "deltas")


def read_everything(space: SpaceClient, until: int) -> dict[str, Any]:
    """Every list, page by page, and every record by itself: of what happened up to a seq."""
    found: dict[str, Any] = {}
    for name in LISTS:
        for limit in (1, 100):
            items = pages(space.get, f"/{name}", name, limit)
            found[f"{name} by {limit}"] = [each for each in items if _seq_of(space, each) <= until]
    for name, id_name in (("proposals", "proposal_id"), ("approvals", "approval_id"), ("executions", "execution_id")):
        for each in found[f"{name} by 100"]:
            one = space.get(f"/{name}/{each[id_name]}").json()
            assert one == each
            status = [other[id_name] for other in pages(space.get, f"/{name}", name, 2, status=each["status"])]
            assert each[id_name] in status
    for each in found["proposals by 100"]:
        path = f"/proposals/{each['proposal_id']}/explain"
        found[path] = space.get(path).json()
        assert found[path]["recorded"]
    for each in found["decisions by 100"]:
        since = space.get("/audit", params={"since_event_id": each["event_id"]}).json()["events"]
        assert not since or since[0]["seq"] == each["seq"] + 1
        assert space.get("/proofs/inclusion", params={"at": each["event_id"]}).status_code == 200
    return found


def _seq_of(space: SpaceClient, item: dict[str, Any]) -> int:
    if "approval_id" in item:
        return int(space.get(f"/proposals/{item['proposal_id']}").json()["seq"])
    return int(item.get("seq", item.get("started_seq", 0)))


@pytest.mark.req("SS01-SCALE-01")
def test_lists_and_records_are_the_same_before_and_after_what_is_settled_has_left(space: SpaceClient) -> None:
    space.equip("risky", "safe")
    space.propose(delta(goal_mood="calm"))
    asked = space.propose(call("risky", {"x": 1}), proposal_id="asked")
    [approval_id] = asked["approval_ids"]
    approved = space.post(f"/approvals/{approval_id}/approve", {"uses": 1}, LEAD).json()
    call_id, [execution_id] = asked["calls"]["0"], approved["proposal"]["execution_ids"]
    outcome = {"status": "succeeded", "result": {"at": "noon"}}
    space.run(call_id, outcome)
    space.propose(call("risky", {"x": 1}), proposal_id="answered")
    [rejected] = space.propose(call("risky", {"x": 2}, key="k2"), proposal_id="rejected")["approval_ids"]
    space.post(f"/approvals/{rejected}/reject", {}, LEAD)
    space.propose(call("safe", key=None), proposal_id="open")
    until = space.get().json()["head_seq"]
    before = read_everything(space, until)
    with epochs_of(4):
        for number in range(9):
            space.propose(delta(goal_passing=str(number)), proposal_id=f"passing {number}")
        after = read_everything(space, until)
        assert after == before
        again = space.post(f"/calls/{call_id}/outcome", outcome, PLANNER).json()
        execution = space.get(f"/executions/{execution_id}").json()
        assert (again["status"], again["call_id"], again["result"]) == ("done", execution["call_id"], outcome["result"])
        assert space.get().json()["n_proposals"] == len(before["proposals by 100"]) + 9
        for path in ("/proposals/never", "/approvals/never", "/executions/never"):
            assert space.get(path, OPS).status_code == 404
