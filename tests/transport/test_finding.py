"""Lists over HTTP: sessions, cases and records by what they are, and what waits for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cmbs.identity.kernel.scopes import Role
from cmbs.messages import ActorKind
from tests.support.error_model import check_error
from tests.support.keyed_spaces import Served, serving_with_keys

ONTOLOGY = {
    "hypothesis_space_id": "s",
    "hypothesis_version": "1",
    "causal_graph_ref": "g",
    "causal_graph_version": "1",
}


CAUSES = {
    "hypotheses": [{"id": "a"}, {"id": "b"}],
    "probes": [
        {
            "id": "p",
            "prompt": "Is it a?",
            "outcomes": [{"id": "no", "eliminates": ["a"]}, {"id": "yes", "keeps": ["a"]}],
        }
    ],
}


@pytest.fixture
def served() -> Iterator[Served]:
    with serving_with_keys() as server:
        yield server


def declare(served: Served, **fields: Any) -> str:
    body = {"ontology": ONTOLOGY, "hypotheses": ["a", "b", "c"], **fields}
    session_id: str = served.post("/v1/sessions", body, served.harness).json()["session_id"]
    return session_id


def ids(served: Served, query: str, headers: dict[str, str]) -> list[str]:
    """All pages, two at a time."""
    found, cursor = list[str](), ""
    while True:
        page = served.get(f"/v1/sessions?limit=2{query}{cursor}", headers).json()
        found += [each["session_id"] for each in page["sessions"]]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.req("FIND-SESSIONS-01", "FIND-TITLE-01")
def test_sessions_are_found_by_what_they_are(served: Served) -> None:
    first = declare(served, title="Checkout is slow", labels={"team": "payments", "severity": "1"})
    second = declare(served, labels={"team": "payments"})
    third = declare(served)
    served.rule_out(second, "a", served.planner)
    report = {"source_id": "logs", "observation_id": "1", "eliminated": ["a", "b", "c"]}
    served.post(f"/v1/sessions/{third}/eliminate", report, served.planner)
    reader = served.operator
    assert ids(served, "", reader) == [first, second, third]
    assert ids(served, "&order=newest", reader) == [third, second, first]
    assert ids(served, "&label=team:payments", reader) == [first, second]
    assert ids(served, "&label=team:payments&label=severity:1", reader) == [first]
    assert ids(served, "&state=contradiction", reader) == [third]
    assert ids(served, "&agent=planner&order=newest", reader) == [third, second]
    assert ids(served, "&agent=harness&source=logs", reader) == [third]
    assert ids(served, "&text=CHECKOUT", reader) == [first]
    assert ids(served, "&since=2000-01-01T00:00:00Z&until=2001-01-01T00:00:00Z", reader) == []
    (row,) = served.get("/v1/sessions?state=contradiction&include=trail", reader).json()["sessions"]
    assert (row["contradiction"], row["trail"], row["last_verb"]) == (True, [[0, 3], [1, 0]], "ELIMINATE")
    narrow = served.key(ActorKind.AGENT, "narrow", f"belief:read@{second}")
    assert ids(served, "&order=newest", narrow) == [second]


@pytest.mark.req("FIND-SESSIONS-01")
def test_a_list_that_makes_no_sense_is_refused(subtests: pytest.Subtests, served: Served) -> None:
    for query in ["order=up", "state=done", "label=x", "since=now", "include=all", "text=a&text=b", "title=x"]:
        with subtests.test(query=query):
            check_error(served.get(f"/v1/sessions?{query}", served.operator), 400, "INVALID_REQUEST")


@pytest.mark.req("FIND-TITLE-01")
def test_a_bad_title_changes_nothing(served: Served) -> None:
    for fields in ({"title": "a\nb"}, {"title": 1}, {"labels": {"a b": "c"}}, {"labels": {"a": 1}}):
        body = {"ontology": ONTOLOGY, "hypotheses": ["a"], **fields}
        check_error(served.post("/v1/sessions", body, served.harness), 400, "INVALID_REQUEST")
    assert ids(served, "", served.operator) == []


@pytest.mark.req("FIND-RECORDS-01", "FIND-TITLE-01")
def test_cases_and_proposals_are_found_by_what_they_are(served: Served) -> None:
    ids: dict[str, str] = {}
    for number, team in enumerate(("payments", "search", "payments")):
        kit = {"id": f"kit-{number % 2}", "version": "1", "title": "Three", "soundness": "sound", **CAUSES}
        assert served.post("/v1/kits", kit, served.operator).status_code in (200, 201)
        declared = {"kit": kit["id"], "name": f"INC-{number}"}
        ids[served.post("/v1/sessions", declared, served.harness).json()["session_id"]] = f"INC-{number}"
        case = {"case_id": f"INC-{number}", "agents": ["planner"]}
        opened = {**case, "title": f"Case {number}", "labels": {"team": team}}
        assert served.post("/v1/spaces/s/cases", opened, served.harness).json()["granted"]
        served.restart(f"p-{number}", f"INC-{number}", served.planner)
    found = served.get("/v1/spaces/s/cases?order=newest&label=team:payments", served.operator).json()["cases"]
    assert [(ids[each["case_id"]], each["title"]) for each in found] == [("INC-2", "Case 2"), ("INC-0", "Case 0")]
    assert name_all(ids, names(served, "cases", "case_id", "text=case 1")) == ["INC-1"]
    assert name_all(ids, names(served, "cases", "case_id", "agent=other")) == []
    assert name_all(ids, names(served, "cases", "case_id", "kit=kit-0&order=newest")) == ["INC-2", "INC-0"]
    assert name_all(ids, names(served, "cases", "case_id", "kit=none")) == []
    assert names(served, "proposals", "proposal_id", "kit=kit-0") == ["p-0", "p-2"]
    assert names(served, "proposals", "proposal_id", "kit=kit-1&label=team:payments") == []
    assert name_all(ids, names(served, "cases", "case_id", "until=2001-01-01T00:00:00Z")) == []
    assert names(served, "proposals", "proposal_id", "order=newest&limit=2") == ["p-2", "p-1"]
    assert names(served, "proposals", "proposal_id", "label=team:payments&agent=planner&tool=restart") == ["p-0", "p-2"]
    assert names(served, "proposals", "proposal_id", "tool=other") == []
    assert names(served, "proposals", "proposal_id", "since=2001-01-01T00:00:00Z&case_id=INC-1") == ["p-1"]
    assert names(served, "proposals", "proposal_id", "until=2001-01-01T00:00:00Z") == []
    # A key that reads one session finds nothing by the kits of others.
    narrow = served.key(ActorKind.OPERATOR, "narrow", "spaces:read", f"belief:read@{found[0]['case_id']}")
    page = served.get("/v1/spaces/s/cases?kit=kit-0", narrow).json()
    assert [ids[each["case_id"]] for each in page["cases"]] == ["INC-2"]
    # An agent that may not act under a case sees nothing of what is said of it, and finds nothing by it.
    hidden = served.get("/v1/spaces/s/cases?limit=1", served.other).json()["cases"][0]
    assert not {"title", "labels", "attributes"} & hidden.keys()
    assert served.get("/v1/spaces/s/proposals?label=team:payments", served.other).json()["proposals"] == []


def name_all(known: dict[str, str], ids: list[str]) -> list[str]:
    return [known[each] for each in ids]


def names(served: Served, collection: str, field: str, query: str) -> list[str]:
    page = served.get(f"/v1/spaces/s/{collection}?{query}", served.operator).json()
    return [each[field] for each in page[collection]]


ASK = {
    "constraint.ask": '{"v":1,"effect":"allow","subject":null,"on_fail":"ask",'
    '"when":{"op":"exists","args":["fact.go"]}}'
}
TOKEN = {"token_id": "token", "agent_id": "planner", "tool_ids": ["restart"]}


@pytest.mark.req("FIND-INBOX-01")
def test_what_waits_for_a_person_is_in_one_list_across_spaces(served: Served) -> None:
    for space_id in ("one", "two"):
        served.post("/v1/spaces", {"space_id": space_id, "policy": ASK, "operators_needed": 2}, served.operator)
        tool = {"tool_id": "restart", "kind": "caller", "args_schema": {"type": "object"}}
        served.post(f"/v1/spaces/{space_id}/tools", tool, served.operator)
        served.post(f"/v1/spaces/{space_id}/capabilities", TOKEN, served.operator)
        for number in range(2):
            served.restart(f"p-{number}", None, served.planner, space_id=space_id)
    base = served.get("/v1/spaces/two", served.operator).json()["policy_hash"]
    change = {"change_id": "c", "base_policy_hash": base, "set": {"policy.memory.confidence_threshold": "0.9"}}
    served.post("/v1/spaces/two/policy/changes", change, served.operator)
    lead = served.key(None, "lead", Role.OPERATOR)
    waiting = inbox(served, "", lead)
    assert [(each["space_id"], each["kind"]) for each in waiting] == [
        ("one", "approval"),
        ("one", "approval"),
        ("two", "approval"),
        ("two", "approval"),
        ("two", "policy_change"),
    ]
    assert waiting[0]["approval"]["args"] == {}
    assert [each["id"] for each in inbox(served, "&kind=policy_change", lead)] == ["c"]
    assert len(inbox(served, "&space_id=one", lead)) == 2
    # An operator's own change waits for another; an approver settles approvals alone; an agent settles nothing.
    assert len(inbox(served, "", served.operator)) == 4
    assert len(inbox(served, "", served.key(ActorKind.OPERATOR, "approver", Role.APPROVER))) == 4
    assert (
        len(inbox(served, "", served.key(ActorKind.OPERATOR, "narrow", "spaces:read@one", "spaces:approve@one"))) == 2
    )
    assert inbox(served, "", served.planner) == []
    approval = waiting[0]["id"]
    served.post(f"/v1/spaces/one/approvals/{approval}/reject", {}, lead)
    assert approval not in [each["id"] for each in inbox(served, "", lead)]
    check_error(served.get("/v1/inbox?kind=mail", lead), 400, "INVALID_REQUEST")
    check_error(served.get("/v1/inbox?space_id=none", lead), 404, "SPACE_NOT_FOUND")


def inbox(served: Served, query: str, headers: dict[str, str]) -> list[Any]:
    """All pages, two at a time."""
    found, cursor = list[Any](), ""
    while True:
        page = served.get(f"/v1/inbox?limit=2{query}{cursor}", headers).json()
        found += page["waiting"]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


@pytest.mark.req("FIND-INBOX-01")
def test_a_mode_and_a_governance_that_another_operator_asked_for_wait(served: Served) -> None:
    served.post("/v1/spaces", {"space_id": "one", "policy": ASK, "operators_needed": 2}, served.operator)
    served.post("/v1/spaces/one/mode", {"mode": "observe"}, served.operator)
    served.post("/v1/spaces/one/governance", {"operators_needed": 1}, served.operator)
    lead = served.key(None, "lead", Role.OPERATOR)
    assert [(each["kind"], each["asked_by"]) for each in inbox(served, "", lead)] == [
        ("governance", "ops"),
        ("observe_mode", "ops"),
    ]
    assert inbox(served, "", served.operator) == []
