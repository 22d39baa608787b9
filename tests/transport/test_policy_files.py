"""Policy files over HTTP: put, checked, given back; what is wrong with one is told with its place."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.events import MediaType
from tests.support.space_client import LEAD, OPS, PLANNER, SpaceClient, app_over, space_client

YAML = """# who may restart what
format: 2
rules:
  - name: deltas
    allow: state
  - name: restart
    allow: restart
    when: >
      fact.calm == "yes" &&
      args.service != "db"
    otherwise: defer
    because: only while it is calm
"""
RESTART = {"type": "tool_call", "tool_id": "restart", "args": {"service": "web"}, "capability_token_id": "token"}


class FileClient(SpaceClient):
    """Sends policy files too."""

    def send(
        self, method: str, path: str, text: str, media_type: str = "application/yaml", who: str = OPS, **headers: str
    ) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"x-cmbs-actor": who, "content-type": media_type, **named}
        return self._request(method, self._path(path), content=text.encode(), headers=sent)

    def put(self, text: str = YAML, query: str = "", **options: str) -> httpx2.Response:
        return self.send("PUT", f"/policy{query}", text, **options)

    def apply(self, text: str = YAML) -> dict[str, Any]:
        """Put a file in force."""
        put: dict[str, Any] = self.put(text).json()
        assert self.post(f"/policy/changes/{put['change_id']}/authorise", {}, LEAD).json()["granted"]
        return put

    def read_file(self) -> httpx2.Response:
        return self._request("GET", self._path("/policy"), headers={"x-cmbs-actor": OPS, "accept": "application/yaml"})


@pytest.fixture
def space() -> Iterator[FileClient]:
    with space_client(app_over(InMemoryStore())) as served:
        client = FileClient(served._request, served.space_id)
        client.create({"policy.value.old": "1"})
        yield client


def check_error(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code), answer.text
    return error


@pytest.mark.req("GATES-FILE-HTTP", "GATES-FILE-RECORDED")
def test_a_file_waits_for_another_operator_and_is_then_the_policy(space: FileClient) -> None:
    put = space.put(query="?reason=calm").json()
    assert (put["status"], put["set"], put["unset"]) == (
        "pending",
        ["constraint.deltas", "constraint.restart"],
        ["policy.value.old"],
    )
    assert put["change_id"] in put["next"]
    pending = space.get(f"/policy/changes/{put['change_id']}").json()
    assert pending["source"] == {"media_type": "application/yaml", "text": YAML}
    assert pending["reason"] == "calm"
    assert space.get("/policy").json()["source"] is None
    check_error(space.read_file(), 404, "RECORD_NOT_FOUND")
    space.post(f"/policy/changes/{put['change_id']}/authorise", {}, LEAD)
    page = space.get("/policy").json()
    assert page["policy_hash"] == put["policy_hash"]
    assert list(page["pairs"]) == ["constraint.deltas", "constraint.restart"]
    assert page["source"] == {"media_type": "application/yaml", "text": YAML}
    file = space.read_file()
    assert (file.text, file.headers["content-type"]) == (YAML, "application/yaml")
    assert file.headers["vary"] == "accept, authorization"
    assert space.get(f"/policy/changes/{put['change_id']}").json()["source"] is None
    assert space.put().json()["status"] == "unchanged"


@pytest.mark.req("GATES-FILE-HTTP")
def test_a_file_that_was_put_is_not_put_again(space: FileClient) -> None:
    first = space.put().json()
    assert space.put().json() == first
    keyed = space.put(YAML + "# more\n", idempotency_key="k").json()
    assert keyed["change_id"] != first["change_id"]
    space.post(f"/policy/changes/{keyed['change_id']}/reject", {}, LEAD)
    assert space.put(YAML + "# more\n", idempotency_key="k").json()["status"] == "rejected"
    check_error(space.put(YAML, idempotency_key="k", query="?base_policy_hash=ff"), 409, "CONFLICT")


@pytest.mark.req("GATES-FILE-HTTP")
def test_comments_alone_are_a_change_and_a_change_by_keys_leaves_no_file(space: FileClient) -> None:
    space.apply()
    again = space.apply(YAML + "# a comment\n")
    assert (again["set"], again["unset"]) == ([], [])
    assert space.read_file().text == YAML + "# a comment\n"
    space.change_policy(**{"policy_value.x": "1"})
    check_error(space.read_file(), 404, "RECORD_NOT_FOUND")


@pytest.mark.req("GATES-FILE-HTTP")
def test_a_page_after_the_first_does_not_repeat_the_file(space: FileClient) -> None:
    space.apply()
    first = space.get("/policy?limit=1").json()
    second = space.get(f"/policy?limit=1&cursor={first['next_cursor']}").json()
    assert (first["source"] is None, second["source"]) == (False, None)


@pytest.mark.req("GATES-FILE-HTTP")
def test_json_is_put_and_given_back_as_it_was_sent(space: FileClient) -> None:
    text = '{ "format": 2,\n  "rules": [{"allow": "*"}] }'
    put = space.put(text, media_type="application/json; charset=utf-8").json()
    space.post(f"/policy/changes/{put['change_id']}/authorise", {}, LEAD)
    assert (space.read_file().text, space.read_file().headers["content-type"]) == (text, "application/json")


@pytest.mark.req("GATES-FILE-HTTP", "GATES-FILE-PLACES")
def test_what_is_wrong_with_a_file_is_told_with_its_place(space: FileClient) -> None:
    error = check_error(
        space.put(YAML.replace('"yes"', "1 + 1").replace("otherwise", "othrwise")), 400, "INVALID_REQUEST"
    )
    assert error["message"].startswith("the policy file is refused: line 9, column 22: `rules[1].when`: conditions do")
    assert [(each["line"], each["column"]) for each in error["details"]["findings"]] == [(9, 22), (11, 5)]
    unsound = YAML + "exclusive: {posture: [goal.a, goal.a]}\n"
    error = check_error(space.put(unsound), 400, "INVALID_REQUEST")
    assert (
        error["message"] == "the policy file is refused: line 13, `exclusive.posture`: a goal stands in its group once"
    )
    assert error["details"]["faults"][0]["line"] == 13
    large = YAML + "values: {x: " + "y" * 70_000 + "}"
    assert check_error(space.put(large), 413, "LIMIT_EXCEEDED")["details"]["limit"] == "space_value_bytes"
    many = "format: 2\nvalues: {" + ", ".join(f"v{number}: 1" for number in range(20_001)) + "}"
    assert check_error(space.put(many), 413, "LIMIT_EXCEEDED")
    assert space.get("/policy/changes").json()["changes"] == []


@pytest.mark.req("GATES-FILE-HTTP")
def test_a_file_is_of_a_language_that_is_known(space: FileClient) -> None:
    error = check_error(space.put(YAML, media_type="text/plain"), 415, "UNSUPPORTED_MEDIA_TYPE")
    assert error["message"] == "send the body as `application/yaml` or `application/json`, not `text/plain`"
    raw = {"content-type": "application/yaml", "x-cmbs-actor": OPS}
    answer = space._request("PUT", space._path("/policy"), content=b"\xff", headers=raw)
    assert check_error(answer, 400, "INVALID_REQUEST")["message"] == "the file is not valid UTF-8"


@pytest.mark.req("GATES-FILE-HTTP")
def test_files_are_for_operators(subtests: pytest.Subtests, space: FileClient) -> None:
    for method, path in [("PUT", "/policy"), ("POST", "/policy/check"), ("POST", "/policy/impact")]:
        with subtests.test(method=method, path=path):
            check_error(space.send(method, path, YAML, who=PLANNER), 403, "FORBIDDEN")


@pytest.mark.req("GATES-FILE-HTTP")
def test_a_change_of_another_policy_than_the_one_that_was_read_is_a_conflict(space: FileClient) -> None:
    check_error(space.put(query="?base_policy_hash=ff"), 409, "CONFLICT")
    check_error(space.put(if_match='"another"'), 412, "CONFLICT")


@pytest.mark.req("GATES-FILE-HTTP")
def test_a_file_is_looked_through_without_a_record(space: FileClient) -> None:
    head = space.get().json()["head_seq"]
    test = """
tests:
  - name: a goal
    proposal: {candidates: [{type: state_delta, set: {goal.x: "1"}}]}
    expect: {verdict: deny}
"""
    found = space.send("POST", "/policy/check", YAML + "values: {old: 2}\n" + test).json()
    assert found["sound"]
    assert (found["set"], found["unset"]) == (["constraint.deltas", "constraint.restart", "policy.value.old"], [])
    (tested,) = found["tests"]
    assert (tested["name"], tested["passed"]) == ("a goal", False)
    assert tested["mismatches"] == [{"at": "verdict", "expected": "deny", "found": "allow"}]
    assert found["never_asked"] == ["constraint.restart"]
    never = YAML.replace('fact.calm == "yes" &&', "fact.calm == 1 && fact.calm == 2 &&")
    (finding,) = [each for each in check(space, never) if each["severity"] == "error"]
    assert (finding["rule"], finding["line"], finding["name"], finding["key"]) == (
        "never-true",
        9,
        "restart",
        "constraint.restart",
    )
    assert finding["condition"] == 'fact.calm == 1 && fact.calm == 2 && args.service != "db"'
    broken = space.send("POST", "/policy/check", "format: 2\nrules: x").json()
    assert (broken["sound"], broken["policy_hash"]) == (False, None)
    assert (broken["findings"][0]["line"], broken["findings"][0]["column"]) == (2, 8)
    assert space.get().json()["head_seq"] == head


def check(space: FileClient, text: str) -> list[Any]:
    found: list[Any] = space.send("POST", "/policy/check", text).json()["findings"]
    return found


@pytest.mark.req("GATES-FILE-HTTP")
def test_a_name_that_is_nearly_known_comes_with_its_fix(subtests: pytest.Subtests, space: FileClient) -> None:
    for right, wrong, place in [
        ("because:", "becuase:", (12, 5, "becuase", "because")),
        ("otherwise: defer", "otherwise: defre", (11, 16, "defre", "defer")),
        ("args.service", "arg.service", (10, 7, "arg", "args")),
        ("args.service", "case.beleif.n_survivors", (10, 12, "beleif", "belief")),
        ("allow: restart", "allow: restrat", (7, 12, "restrat", "restart")),
        ("allow: restart", "allow: [restart, restrat]", (7, 22, "restrat", "restart")),
    ]:
        with subtests.test(right=right, wrong=wrong, place=place):
            (first, *_) = check(space, f"{YAML.replace(right, wrong)}tools: [{{tool_id: restart}}]\n")
            assert tuple(first["fix"].values()) == place
            line, column, found, accepted = place
            lines = YAML.replace(right, wrong).splitlines()
            assert lines[line - 1][column - 1 :].startswith(found)
            lines[line - 1] = f"{lines[line - 1][: column - 1]}{accepted}{lines[line - 1][column - 1 + len(found) :]}"
            mended = "\n".join(lines) + "\ntools: [{tool_id: restart}]\n"
            assert [each for each in check(space, mended) if each["severity"] == "error"] == []


@pytest.mark.req("GATES-FILE-HTTP")
def test_a_name_that_is_like_none_comes_without_a_fix(subtests: pytest.Subtests, space: FileClient) -> None:
    for right, wrong in [
        ("because:", "zzz:"),
        ("because:", f"{'because' * 10}:"),
        ("otherwise: defer", "otherwise: zzz"),
        ("allow: restart", "allow: zzz"),
        ("allow: restart", "allow: {tool: restrat}"),
    ]:
        with subtests.test(right=right, wrong=wrong):
            (first, *_) = check(space, f"{YAML.replace(right, wrong)}tools: [{{tool_id: restart}}]\n")
            assert (first["severity"], first["fix"]) == ("error", None)


@pytest.mark.slow
def test_a_file_without_tools_is_held_against_those_of_the_space(space: FileClient) -> None:
    space.equip("restart")
    assert [each["rule"] for each in check(space, YAML)] == []
    assert [each["rule"] for each in check(space, YAML.replace("allow: restart", "allow: restrat"))] == [
        "unknown-tool",
        "never-allowed",
    ]
    too_many = "format: 2\nvalues: {" + ", ".join(f"v{number}: 1" for number in range(50_001)) + "}"
    assert [(each["rule"], each["line"]) for each in check(space, too_many)] == [("malformed", None)]


@pytest.mark.req("GATES-FILE-OWN-TERMS")
def test_an_explanation_names_the_line_and_the_condition_to_operators_alone(space: FileClient) -> None:
    space.apply()
    space.equip("restart", writes=False)
    space.propose(RESTART)

    def explain(who: str) -> Any:
        return space.get("/proposals/p1/explain", who).json()["because"][0]["speakers"]

    (speaker,) = explain(OPS)
    assert (speaker["origin"]["line"], speaker["origin"]["rule"]) == (6, "restart")
    assert speaker["origins"]["when.args[0]"] == {
        "line": 9,
        "column": 7,
        "rule": "restart",
        "condition": 'fact.calm == "yes"',
    }
    (told,) = explain(PLANNER)
    assert "origin" not in told
    assert "origins" not in told


@pytest.mark.req("GATES-FILE-HTTP", "GATES-FILE-RECORDED")
def test_a_space_is_created_with_a_file(space: FileClient) -> None:
    made = FileClient(space._request, "made")
    file = {"format": 2, "rules": [{"name": "any", "allow": "*"}]}
    made.create({}, policy_file=file)
    page = made.get("/policy").json()
    assert page["pairs"] == {"constraint.any": '{"effect":"allow","subject":null,"v":2}'}
    assert page["source"]["media_type"] == MediaType.JSON
    body = {"space_id": "both", "policy": {"policy.value.x": "1"}, "policy_file": file}
    answer = space._request("POST", "/v1/spaces", headers={"x-cmbs-actor": OPS}, json=body)
    check_error(answer, 400, "INVALID_REQUEST")
    rules: list[dict[str, Any]] = [{"allow": "*", "because": "x" * 900}] * 100
    large = {"format": 2, "rules": rules}
    bad = {"space_id": "bad", "policy_file": {**large, "rules": [*rules, {"allow": 1}]}}
    answer = space._request("POST", "/v1/spaces", headers={"x-cmbs-actor": OPS}, json=bad)
    assert "`rules[100].allow` must be a tool" in check_error(answer, 400, "INVALID_REQUEST")["message"]
    FileClient(space._request, "large").create({}, policy_file=large)


@pytest.mark.req("GATES-FILE-HTTP")
def test_a_file_is_in_force_at_once_where_one_operator_is_enough(space: FileClient) -> None:
    alone = FileClient(space._request, "alone")
    alone.create({}, operators_needed=1)
    put = alone.put().json()
    assert (put["status"], put["next"]) == ("applied", None)
    assert alone.get().json()["policy_hash"] == put["policy_hash"]
    assert alone.put(YAML + "# a comment\n").json()["status"] == "applied"
    assert alone.read_file().text == YAML + "# a comment\n"


@pytest.mark.req("GATES-FILE-HTTP", "SS01-POLICY-IMPACT-BELIEF")
def test_a_file_is_tried_on_the_past_without_a_record(space: FileClient) -> None:
    space.apply()
    space.equip("restart", writes=False)
    space.propose(RESTART)
    before = space.get().json()
    same = space.send("POST", "/policy/impact", YAML).json()
    assert (same["decisions"], same["flips"], same["n_unknown"]) == (1, [], 0)
    assert same["old_policy_hash"] == same["new_policy_hash"] == before["policy_hash"]
    calm = YAML.replace('fact.calm == "yes" &&', "")
    found = space.send("POST", "/policy/impact", calm).json()
    (flip,) = found["flips"]
    assert (flip["kind"], flip["proposal_id"], flip["actor"]["id"]) == ("defer→allow", "p1", "planner")
    assert (flip["before"]["verdict"], flip["after"]["verdict"]) == ("defer", "allow")
    assert [(rule["name"], rule["line"]) for rule in flip["after"]["rules"]] == [("restart", 6)]
    assert (flip["tool_ids"], found["n_flips"], found["counts"]["defer→allow"]) == (["restart"], 1, 1)
    assert space.get().json() == before


@pytest.mark.req("GATES-FILE-HTTP", "SS01-POLICY-IMPACT-BELIEF")
def test_what_cannot_be_tried_on_the_past_is_said(space: FileClient) -> None:
    space.apply()
    space.equip("restart", writes=False)
    for each in range(3):
        space.propose(RESTART, proposal_id=f"p{each}")
    calm = YAML.replace('fact.calm == "yes" &&', "")
    found = space.send("POST", "/policy/impact?limit=2", calm).json()
    assert (len(found["flips"]), found["n_flips"]) == (2, 3)
    check_error(space.send("POST", "/policy/impact?limit=0", calm), 400, "INVALID_REQUEST")
    check_error(space.send("POST", "/policy/impact", "format: 2\nrules: x"), 400, "INVALID_REQUEST")
    nowhere = FileClient(space._request, "nowhere")
    check_error(nowhere.send("POST", "/policy/impact", calm), 404, "SPACE_NOT_FOUND")


@pytest.mark.req("SS01-POLICY-IMPACT-BELIEF")
def test_a_past_that_is_too_long_is_left_to_the_command() -> None:
    server = BeliefServer(limits=Limits(analysis_events=3))
    with space_client(BeliefApp(server)) as served:
        client = FileClient(served._request, served.space_id)
        client.create({}, operators_needed=1)
        for number in range(3):
            client.put(f"{YAML}# {number}\n")
        error = check_error(client.send("POST", "/policy/impact", YAML), 413, "LIMIT_EXCEEDED")
        assert error["details"]["limit"] == "analysis_events"


@pytest.mark.req("SS01-POLICY-IMPACT-BELIEF")
def test_sessions_are_read_from_their_logs_as_of_each_decision() -> None:
    with space_client(BeliefApp(BeliefServer())) as served:
        space = FileClient(served._request, served.space_id)
        space.create({}, operators_needed=1)
        ontology = dict.fromkeys(("hypothesis_space_id", "hypothesis_version"), "x")
        declared = {
            "ontology": {**ontology, "causal_graph_ref": "g", "causal_graph_version": "1"},
            "hypotheses": ["a", "b"],
        }
        session_id = space._request("POST", "/v1/sessions", json=declared).json()["session_id"]
        space.put()
        space.equip("restart", writes=False)
        space.propose(RESTART, proposal_id="early")
        body = {"source_id": "s", "observation_id": "o", "eliminated": ["a"]}
        space._request("POST", f"/v1/sessions/{session_id}/eliminate", json=body)
        space.propose(RESTART, proposal_id="late")
        gate = f'format: 2\nrules:\n  - allow: restart\n    when: belief["{session_id}"].n_survivors == 1\n'
        found = space.send("POST", "/policy/impact", gate).json()
        assert [(flip["kind"], flip["proposal_id"]) for flip in found["flips"]] == [
            ("defer→allow", "late"),
            ("defer→deny", "early"),
        ]
