"""Keys for single sessions and spaces, over HTTP: what they reach, and what the lists show them."""

from collections.abc import Iterator
from typing import Any

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp, listing
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.scopes import Role, Scope, grant
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores.memory import InMemoryStore
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.transports import DECLARATION

ELIMINATION = {"source_id": "s", "observation_id": "o", "eliminated": ["a"]}
TOKEN = {"token_id": "t", "agent_id": "planner", "tool_ids": ["x"]}


class Served:
    """A server with an operator's key, two sessions and three spaces."""

    def __init__(self, client: Client, registry: KeyRegistry) -> None:
        self.client = client
        self.registry = registry
        self.operator = self.key(Role.OPERATOR)
        self.sessions = [self.post("/v1/sessions", DECLARATION).json()["session_id"] for _ in range(3)]
        for space_id in ("shop-1", "shop-2", "bank"):
            assert self.post("/v1/spaces", {"space_id": space_id}).status_code == 201

    def key(self, *granted: str, kind: ActorKind | None = None, name: str = "planner") -> dict[str, str]:
        roles = [Role(each) for each in granted if each in list(Role)]
        scopes = [each for each in granted if each not in list(Role)]
        made = self.registry.create(kind, name, roles=roles, scopes=scopes)
        return {"authorization": f"Bearer {made.text}"}

    def get(self, path: str, headers: dict[str, str]) -> Any:
        return self.client.get(path, headers=headers)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        return self.client.post(path, body, headers=headers or self.operator)


@pytest.fixture
def served() -> Iterator[Served]:
    log = InMemoryStore()
    registry = KeyRegistry(log)
    app = BeliefApp(Service(BeliefServer(store=log), Gate(registry)))
    with client_of(app) as client:
        yield Served(client, registry)
    app.close()


@pytest.mark.req("ID-SCOPE-01")
def test_a_key_for_one_session_reads_and_changes_that_one_alone(served: Served) -> None:
    mine, other, _ = served.sessions
    key = served.key(f"belief:read@{mine}", f"belief:write@{mine}")
    assert served.get(f"/v1/sessions/{mine}", key).status_code == 200
    assert served.post(f"/v1/sessions/{mine}/eliminate", ELIMINATION, key).status_code == 200
    for answer in (
        served.get(f"/v1/sessions/{other}", key),
        served.get(f"/v1/sessions/{other}/audit", key),
        served.get("/v1/sessions/none-such", key),
        served.post(f"/v1/sessions/{other}/eliminate", ELIMINATION, key),
        served.get("/v1/spaces", key),
    ):
        assert check_error(answer, 403, "FORBIDDEN")["reason"] == "missing_scope"


@pytest.mark.req("ID-SCOPE-01")
def test_declaring_and_forking_a_session_need_the_scope_for_all(served: Served) -> None:
    mine = served.sessions[0]
    key = served.key(f"belief:read@{mine}", f"belief:write@{mine}")
    for answer in (served.post("/v1/sessions", DECLARATION, key), served.post(f"/v1/sessions/{mine}/fork", {}, key)):
        assert check_error(answer, 403, "FORBIDDEN")["accepted"] == ["belief:write"]
    assert served.post("/v1/sessions", DECLARATION, served.key("belief:write")).status_code == 201


@pytest.mark.req("ID-SCOPE-01")
def test_a_space_is_made_where_a_scope_covers_its_id(served: Served) -> None:
    key = served.key("spaces:operate@shop-*", kind=ActorKind.OPERATOR)
    assert served.post("/v1/spaces", {"space_id": "shop-3"}, key).status_code == 201
    answer = served.post("/v1/spaces", {"space_id": "bank-2"}, key)
    assert "spaces:operate@bank-2" in check_error(answer, 403, "FORBIDDEN")["accepted"]


@pytest.mark.req("ID-SCOPE-03")
def test_lists_show_what_the_key_may_read(served: Served) -> None:
    first, _, last = served.sessions

    def list_sessions(key: dict[str, str], query: str = "") -> tuple[list[str], str | None]:
        page = served.get(f"/v1/sessions{query}", key).json()
        return [each["session_id"] for each in page["sessions"]], page["next_cursor"]

    def list_spaces(key: dict[str, str], query: str = "") -> tuple[list[str], str | None]:
        page = served.get(f"/v1/spaces{query}", key).json()
        return [each["space_id"] for each in page["spaces"]], page["next_cursor"]

    key = served.key(f"belief:read@{first}", f"belief:read@{last}", "spaces:read@shop-*")
    assert list_sessions(key) == ([first, last], None)
    page, cursor = list_sessions(key, "?limit=1")
    assert page == [first]
    assert list_sessions(key, f"?limit=1&cursor={cursor}") == ([last], None)
    assert list_sessions(served.operator) == (served.sessions, None)
    assert list_spaces(key) == (["shop-1", "shop-2"], None)
    page, cursor = list_spaces(key, "?limit=1")
    assert list_spaces(key, f"?limit=1&cursor={cursor}") == (["shop-2"], None)
    every, _ = list_spaces(served.operator)
    assert set(every) >= {"bank", "shop-1", "shop-2"}


@pytest.mark.req("ID-SCOPE-03")
def test_a_page_for_which_too_much_would_be_read_is_short_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_ROWS_READ", 1)
    grants, rows = grant((), ("spaces:read@c",)), list("abcd")

    def read(after: str | None, limit: int) -> list[str]:
        return [row for row in rows if after is None or row > after][:limit]

    found, places = [], []
    after: str | None = None
    for _ in range(5):
        page, after = listing.take_reached(read, lambda row: (row, row), grants, Scope.SPACES_READ, after, 2, 1)
        found += page
        places.append(after)
    assert (found, places[:4]) == (["c"], ["a", "b", "c", "d"])
    assert places[4] is None


@pytest.mark.req("ID-ROLE-02")
def test_an_operator_without_the_scope_issues_and_revokes_and_settles_nothing(served: Served) -> None:
    path = "/v1/spaces/bank"
    key = served.key("spaces:read", "spaces:propose", "spaces:execute", kind=ActorKind.OPERATOR, name="half")
    assert served.post(f"{path}/capabilities", TOKEN).json()["granted"] is True
    outcome = {"status": "succeeded"}
    for answer in (
        served.post(f"{path}/capabilities", {**TOKEN, "token_id": "u"}, key),
        served.post(f"{path}/capabilities", {**TOKEN, "token_id": "u", "parent_id": "t"}, key),
        served.post(f"{path}/capabilities/t/revoke", {}, key),
        served.post(f"{path}/calls/c-x-0/outcome", outcome, key),
    ):
        assert check_error(answer, 403, "FORBIDDEN")["scope"] == Scope.SPACES_OPERATE
    # With it, also for this space alone, the rules of the space decide.
    scopes = ("spaces:propose", "spaces:execute", "spaces:operate@bank")
    sufficient = served.key(*scopes, kind=ActorKind.OPERATOR)
    check_error(served.post(f"{path}/calls/c-x-0/outcome", outcome, sufficient), 404, "RECORD_NOT_FOUND")
    assert served.post(f"{path}/capabilities/t/revoke", {}, sufficient).json()["granted"] is True


@pytest.mark.req("ID-ROLE-02")
def test_the_holder_of_a_token_passes_on_a_narrower_one_without_that_scope(served: Served) -> None:
    path = "/v1/spaces/bank/capabilities"
    assert served.post(path, TOKEN).json()["granted"] is True
    holder = served.key("agent")
    assert served.post(path, {**TOKEN, "token_id": "child", "parent_id": "t"}, holder).json()["granted"] is True
    check_error(served.post(path, {**TOKEN, "token_id": "root"}, holder), 403, "FORBIDDEN")
    assert served.post(f"{path}/child/revoke", {}, holder).json()["granted"] is True


@pytest.mark.req("ID-SCOPE-04")
def test_a_caller_can_ask_who_it_is(served: Served) -> None:
    key = served.key("reader", "belief:write@s1", "belief:write@s2*", "belief:read@s3")
    answer = served.get("/v1/whoami", key).json()
    assert answer.pop("key_id") in key["authorization"]
    assert answer == {
        "kind": "agent",
        "id": "planner",
        "authenticated": True,
        "roles": ["reader"],
        "scopes": ["belief:read", "belief:read@s3", "belief:write@s1", "belief:write@s2*", "spaces:read"],
        "restricted": {"belief:write": ["s1", "s2*"]},
    }
    check_error(served.get("/v1/whoami", {}), 401, "UNAUTHENTICATED")


@pytest.mark.req("ID-SCOPE-02")
def test_entries_record_the_roles_and_scopes_of_the_key(served: Served) -> None:
    session_id = served.sessions[0]
    key = served.key("harness", f"belief:write@{session_id}")
    assert served.post(f"/v1/sessions/{session_id}/eliminate", ELIMINATION, key).status_code == 200
    events = served.get(f"/v1/sessions/{session_id}/audit", served.operator).json()["events"]
    assert events[0]["actor"]["roles"] == ["operator"]
    assert "scopes" not in events[0]["actor"]
    assert events[1]["actor"]["roles"] == ["harness"]
    assert events[1]["actor"]["scopes"] == [f"belief:write@{session_id}"]
