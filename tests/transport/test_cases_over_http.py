"""Cases over HTTP: one gate, two incidents, keys of several kinds."""

from collections.abc import Iterator

import pytest

from cmbs.identity.kernel.scopes import Role
from cmbs.messages import ActorKind
from tests.support.error_model import check_error
from tests.support.keyed_spaces import Served, serving_with_keys
from tests.support.space_client import PLANNER, SpaceClient
from tests.support.transports import ONTOLOGY


@pytest.fixture
def served() -> Iterator[Served]:
    with serving_with_keys() as server:
        yield server


@pytest.mark.req("CASE-HTTP-01", "CASE-GATE-03")
def test_the_key_that_eliminated_does_not_open_its_own_gate(served: Served) -> None:
    session_id = served.begin("INC-1", ["planner"])
    for cause in ("cache", "dns"):
        served.rule_out(session_id, cause, served.planner)
    assert served.restart("own", "INC-1")["status"] == "parked"
    body = {"source_id": "probe", "observation_id": "seen", "eliminated": ["cache"]}
    served.post(f"/v1/sessions/{session_id}/eliminate", body, served.probe)
    allowed = served.restart("witnessed", "INC-1")
    assert (allowed["status"], allowed["case_id"]) == ("running", session_id)
    denied = served.restart("nowhere", None)
    assert (denied["decision"]["reason_code"], denied["case_id"]) == ("NO_CASE", None)


@pytest.mark.req("CASE-HTTP-01")
def test_cases_are_listed_read_and_filter_proposals(served: Served) -> None:
    first, second = served.begin("INC-1", ["planner"]), served.begin("INC-2", ["other"])
    for case_id in ("INC-1", "INC-2"):
        served.restart(f"p of {case_id}", case_id)
    listed = served.get("/v1/spaces/s/cases", served.planner).json()["cases"]
    assert [(each["case_id"], each["status"]) for each in listed] == [(first, "open"), (second, "open")]
    # An agent sees what is said of its own cases alone.
    assert [("attributes" in each, "agents" in each) for each in listed] == [(True, True), (False, False)]
    seen = served.get("/v1/spaces/s/cases/INC-2", served.operator).json()
    assert (seen["attributes"], seen["agents"], seen["opened_by"]["id"]) == ({"tier": 1}, ["other"], "harness")
    check_error(served.get("/v1/spaces/s/cases/INC-3", served.operator), 404, "RECORD_NOT_FOUND")
    of_case = served.get("/v1/spaces/s/proposals?case_id=INC-2", served.operator).json()["proposals"]
    assert [(each["proposal_id"], each["status"]) for each in of_case] == [("p of INC-2", "denied")]
    closed = served.post("/v1/spaces/s/cases/INC-1/close", {"reason": "solved"}, served.harness).json()
    assert closed["granted"]
    assert served.get("/v1/spaces/s/proposals/p%20of%20INC-1", served.planner).json()["status"] == "withdrawn"
    ended = served.get("/v1/spaces/s/cases?status=closed", served.operator).json()["cases"]
    assert [(each["case_id"], each["reason"], each["closed_by"]["id"]) for each in ended] == [
        (first, "solved", "harness")
    ]


@pytest.mark.req("CASE-HTTP-01", "CASE-OPEN-01")
def test_an_agent_opens_no_case_whatever_its_key_says(served: Served) -> None:
    served.declare("mine")
    case = {"case_id": "mine", "agents": ["planner"]}
    check_error(served.post("/v1/spaces/s/cases", case, served.planner), 403, "FORBIDDEN")
    entitled = served.key(ActorKind.AGENT, "planner", Role.AGENT, "spaces:cases")
    refused = served.post("/v1/spaces/s/cases", case, entitled).json()
    assert (refused["granted"], refused["reason_code"]) == (False, "NOT_AUTHORISED")
    single = served.key(ActorKind.ENCODER, "h2", "spaces:cases@s")
    assert served.post("/v1/spaces/s/cases", case, single).json()["granted"]
    elsewhere = served.key(ActorKind.ENCODER, "h3", "spaces:cases@other")
    check_error(served.post("/v1/spaces/s/cases/mine/close", {}, elsewhere), 403, "FORBIDDEN")


def attempts_of(served: Served, since: int) -> list[tuple[str, str, str]]:
    """What is in the log of the space after an entry: verb, actor, and the reason that it was refused for."""
    entries = served.get("/v1/spaces/s/audit?limit=100", served.operator).json()["events"]
    return [
        (each["verb"], each["actor"]["id"], each["outcome"].get("decision", each["outcome"])["reason_code"])
        for each in entries
        if each["seq"] > since
    ]


@pytest.mark.req("CASE-GATE-03", "CASE-OPEN-01", "CASE-HTTP-01")
def test_what_an_agent_tries_in_order_to_open_its_own_gate_is_on_record(served: Served) -> None:
    session_id, solved = served.begin("mine", ["planner"]), served.begin("solved", ["other"])
    for cause in ("cache", "dns"):
        served.rule_out(solved, cause, served.probe)
        # The source id is that of the monitor; the key is not.
        served.rule_out(session_id, cause, served.planner)
    since = served.get("/v1/spaces/s", served.operator).json()["head_seq"]
    assert served.restart("by itself", "mine")["status"] == "parked"
    assert served.restart("through another incident", "solved")["status"] == "denied"
    assert served.restart("with another key", "mine", served.other)["status"] == "denied"
    assert served.restart("with another key and its own token", "mine", served.other, "token")["status"] == "denied"
    entitled = served.key(ActorKind.AGENT, "planner", Role.AGENT, "spaces:cases")
    served.declare("own")
    case = {"case_id": "own", "agents": ["planner"]}
    assert not served.post("/v1/spaces/s/cases", case, entitled).json()["granted"]
    assert served.restart("in its own case", "own")["status"] == "denied"
    assert attempts_of(served, since) == [
        ("PROPOSE", "planner", "ALLOW_UNMET"),
        ("PROPOSE", "planner", "NO_CASE"),
        ("PROPOSE", "other", "NO_CASE"),
        ("PROPOSE", "other", "CAPABILITY_OTHER_AGENT"),
        ("OPEN_CASE", "planner", "NOT_AUTHORISED"),
        ("PROPOSE", "planner", "NO_CASE"),
    ]
    audit = served.get(f"/v1/sessions/{session_id}/audit", served.operator).json()["events"]
    eliminations = [each for each in audit if each["verb"] == "ELIMINATE"]
    assert [(each["payload"]["source_id"], each["actor"]["id"]) for each in eliminations] == [
        ("monitor", "planner")
    ] * 2


@pytest.mark.req("CASE-REF-02", "CASE-GATE-03")
def test_a_second_key_is_a_second_voice_unless_it_is_for_another_session(served: Served) -> None:
    session_id, elsewhere = served.begin("mine", ["planner"]), served.begin("theirs", ["other"])
    for cause in ("cache", "dns"):
        served.rule_out(session_id, cause, served.planner)
    narrow = served.key(ActorKind.AGENT, "other", f"belief:write@{elsewhere}")
    body = {"source_id": "monitor", "observation_id": "seen", "eliminated": ["cache"]}
    refused = served.post(f"/v1/sessions/{session_id}/eliminate", body, narrow)
    check_error(refused, 403, "FORBIDDEN")
    assert refused.json()["error"]["details"]["reason"] == "missing_scope"
    assert served.restart("with one voice", "mine")["status"] == "parked"
    # A key that may write every session is another actor: what it says is not the proposer's own word.
    assert served.post(f"/v1/sessions/{session_id}/eliminate", body, served.other).status_code == 200
    assert served.restart("with two voices", "mine")["status"] == "running"


@pytest.mark.req("CASE-HTTP-01")
def test_a_case_needs_agents_and_an_object(space: SpaceClient) -> None:
    declared = {"ontology": ONTOLOGY, "hypotheses": ["a", "b"], "name": "c"}
    assert space.declare(declared).status_code == 201
    case = {"case_id": "c", "agents": ["planner"]}
    check_error(space.post("/cases", {**case, "agents": []}), 400, "INVALID_REQUEST")
    check_error(space.post("/cases", {**case, "attributes": [1]}), 400, "INVALID_REQUEST")
    check_error(space.post("/cases", {"case_id": "c"}), 400, "INVALID_REQUEST")
    check_error(space.post("/cases", {**case, "case_id": "unknown"}), 404, "SESSION_NOT_FOUND")
    first = space.post("/cases", case).json()
    assert space.post("/cases", case).json() == {**first, "replayed": True}
    check_error(space.post("/cases", {**case, "agents": ["other"]}), 409, "CONFLICT")
    assert space.post("/cases/c/close", who=PLANNER).json()["reason_code"] == "NOT_AUTHORISED"


@pytest.mark.req("CASE-NAME-03")
def test_a_name_stands_for_the_id_in_paths_queries_and_bodies(served: Served) -> None:
    session_id = served.begin("INC-1", ["planner"])
    assert served.get("/v1/sessions/inc-1", served.planner).json()["session_id"] == session_id
    body = {"source_id": "probe", "observation_id": "1", "eliminated": ["cache"], "session_id": "INC-1"}
    assert (
        served.post("/v1/sessions/INC-1/eliminate", body, served.probe).json()["snapshot"]["session_id"] == session_id
    )
    assert served.restart("p", "INC-1")["case_id"] == session_id
    found = served.get("/v1/spaces/s/proposals?case_id=INC-1", served.operator).json()["proposals"]
    assert [each["proposal_id"] for each in found] == ["p"]
    unknown = check_error(served.get("/v1/sessions/INC-2", served.planner), 404, "SESSION_NOT_FOUND")
    assert unknown["found"] == "INC-2"


@pytest.mark.req("CASE-NAME-03")
def test_what_a_key_is_good_for_goes_by_the_id_whatever_the_case_is_called(served: Served) -> None:
    mine, theirs = served.begin("mine", ["planner"]), served.begin("theirs", ["other"])
    narrow = served.key(ActorKind.AGENT, "narrow", f"belief:read@{mine}")
    assert served.get("/v1/sessions/mine/case", narrow).json()["session_id"] == mine
    check_error(served.get("/v1/sessions/theirs/case", narrow), 403, "FORBIDDEN")
    # A name that looks like what the key may read gives it nothing more.
    by_name = served.key(ActorKind.AGENT, "by-name", "belief:read@theirs")
    check_error(served.get("/v1/sessions/theirs/case", by_name), 403, "FORBIDDEN")
    check_error(served.get("/v1/sessions/mine/case", {}), 401, "UNAUTHENTICATED")
    assert served.get("/v1/sessions/theirs/case", served.operator).json()["session_id"] == theirs


@pytest.mark.req("CASE-NAME-02", "CASE-FIELDS-02")
def test_agents_neither_rename_cases_nor_change_who_may_work_on_them(served: Served) -> None:
    session_id = served.begin("INC-1", ["planner"])
    for path, body in (("name", {"name": "INC-2"}), ("name", {}), ("case", {"agents": ["other"]})):
        details = check_error(served.post(f"/v1/sessions/INC-1/{path}", body, served.planner), 403, "FORBIDDEN")
        assert details["reason"] == "not_an_operator"
    assert served.post("/v1/sessions/INC-1/case", {"severity": "high"}, served.planner).status_code == 200
    changed = served.post("/v1/sessions/INC-1/case", {"agents": ["planner", "other"]}, served.operator)
    assert changed.status_code == 200
    named = served.post("/v1/sessions/INC-1/name", {"name": "INC-2"}, served.operator).json()
    assert (named["session_id"], named["name"], named["severity"]) == (session_id, "INC-2", "high")
    assert named["agents"] == ["other", "planner"]
    listed = served.get("/v1/sessions?text=nc-2", served.operator).json()["sessions"]
    assert [(each["name"], each["case_agents"]) for each in listed] == [("INC-2", ["other", "planner"])]
    by_agent = served.get("/v1/sessions?agent=other", served.operator).json()["sessions"]
    assert [each["session_id"] for each in by_agent] == [session_id]
    taken = {"ontology": ONTOLOGY, "hypotheses": ["a"], "name": "inc-2"}
    details = check_error(served.post("/v1/sessions", taken, served.operator), 409, "CONFLICT")
    assert (details["name"], details["session_id"]) == ("inc-2", session_id)
    check_error(served.post("/v1/sessions", {**taken, "name": "a b"}, served.operator), 400, "INVALID_REQUEST")
    check_error(served.post("/v1/sessions/INC-2/case", {}, served.operator), 400, "INVALID_REQUEST")
    own = {"ontology": ONTOLOGY, "hypotheses": ["a"], "name": "own"}
    answer = served.post("/v1/sessions", own, served.planner).json()
    assert answer["name"] == "own"
    assert served.get("/v1/sessions/own/case", served.planner).json()["agents"] == ["planner"]
    assert served.post("/v1/sessions/INC-2/name", {}, served.operator).json()["name"] is None


@pytest.mark.req("CASE-HTTP-01")
def test_the_spaces_that_admitted_a_case_are_found_by_its_name(served: Served) -> None:
    session_id = served.begin("INC-1", ["planner"])
    served.post("/v1/spaces", {"space_id": "another"}, served.operator)
    for case in ("INC-1", session_id):
        answer = served.get(f"/v1/spaces?case_id={case}", served.operator).json()
        assert ([each["space_id"] for each in answer["spaces"]], answer["next_cursor"]) == (["s"], None)
    admitted = {"case_id": session_id, "agents": ["planner"]}
    served.post("/v1/spaces/another/cases", admitted, served.operator)
    first = served.get("/v1/spaces?case_id=INC-1&limit=1", served.operator).json()
    assert [each["space_id"] for each in first["spaces"]] == ["another"]
    rest = served.get(f"/v1/spaces?case_id=INC-1&cursor={first['next_cursor']}", served.operator).json()
    assert ([each["space_id"] for each in rest["spaces"]], rest["next_cursor"]) == (["s"], None)


@pytest.mark.req("CASE-HTTP-01")
def test_a_call_is_explained_as_it_would_be_decided_now(served: Served) -> None:
    session_id = served.begin("INC-1", ["planner"])
    assert served.restart("early", "INC-1")["status"] == "parked"
    path = "/v1/spaces/s/proposals/early/explain"
    before = served.get(f"{path}?now=true", served.operator)
    assert before.json()["decision"]["verdict"] == "defer"
    # It is no function of the space alone, and is asked for anew each time.
    assert "etag" not in before.headers
    assert "etag" in served.get(path, served.operator).headers
    served.post("/v1/spaces/s/proposals/early/withdraw", {"reason": "later"}, served.operator)
    for cause in ("cache", "dns"):
        served.rule_out(session_id, cause, served.probe)
    now = served.get(f"{path}?now=true", served.planner).json()
    assert (now["decision"]["verdict"], now["recorded"]) == ("allow", False)
    recorded = served.get(path, served.planner).json()
    assert (recorded["decision"]["verdict"], recorded["recorded"]) == ("defer", True)
    # How another's call would be decided now is for operators.
    check_error(served.get(f"{path}?now=true", served.other), 403, "FORBIDDEN")
