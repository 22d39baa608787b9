"""State with its history, memory, and the rule on operators, in a real browser."""

from typing import Any

import httpx2
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.console_inbox import SECOND
from tests.support.console_space import AGENT, CASE, Space, tell_space
from tests.support.console_story import Incident, tell

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-11")]


@pytest.fixture
def told(client: httpx2.Client) -> tuple[Incident, Space]:
    """An incident and a space of its own for each test, because one of them changes the state."""
    incident = tell(client)
    space = tell_space(client, incident, f"ops-{incident.id}")
    change_state(space, "first", set={"goal.restore": "checkout", "goal.quiet": "yes"})
    change_state(space, "second", set={"goal.restore": "payments"})
    change_state(space, "third", unset=["goal.quiet"])
    earlier = Incident(client, "Card payments were slow")
    earlier.conclude("orders-db-lock-contention")
    concluded = client.get(f"{earlier.path}/audit").json()["events"][-1]["event_id"]
    confirmed = {"confirmed_by_event_id": concluded, "confirmed_in_session_id": earlier.id}
    remember(space, "lock-waits", "fact", {"service": "orders", "waits for": "locks"}, 900, **confirmed)
    remember(space, "cache-small", "hypothesis", "the cache of baskets is too small", 400)
    dispute = {"conflict_state": "contradictory", "because": ["dashboard-8"]}
    space.post(f"{space.path}/memory/cache-small/dispute", dispute)
    return incident, space


def change_state(space: Space, key: str, **changes: Any) -> None:
    """A change of goals that the policy allows."""
    candidate = {"type": "state_delta", "set": {}, "unset": [], **changes}
    assert space.propose_candidate(candidate, key, CASE)["status"] == "committed"


def remember(space: Space, entry_id: str, kind: str, claim: Any, confidence: int, **confirmed: str) -> None:
    """A claim of the agent, from two sources."""
    chunks = [f"{entry_id}-1", f"{entry_id}-2"]
    evidence = {"source_chunk_ids": chunks, "confidence_milli": confidence, **confirmed}
    body = {"entry_id": entry_id, "kind": kind, "claim": claim, "evidence": evidence, "ttl_ms": 86_400_000}
    answer = space.post(f"{space.path}/memory", body, AGENT)
    assert answer["granted"], answer


def open_state(page: Page, incident: Incident) -> Locator:
    """Open the page of actions; its panel of the state."""
    page.goto(f"/cases/{incident.id}/actions")
    return page.get_by_role("region", name="State")


def test_the_history_of_the_state_says_what_was_and_what_is(page: Page, told: tuple[Incident, Space]) -> None:
    incident, _ = told
    state = open_state(page, incident)
    history = state.get_by_role("list", name="History of the state").get_by_role("listitem")
    expect(history).to_have_count(5)
    expect(history.nth(0)).to_contain_text("goal.quiet− yes")
    expect(history.nth(1)).to_contain_text("goal.restore− checkout + payments")
    expect(history.nth(1)).to_contain_text("a proposal")
    expect(history.nth(4)).to_contain_text("4 rules and settings changed")
    history.nth(4).get_by_role("link", name="policy").click()
    expect(page.get_by_role("heading", name="Policy", level=1)).to_be_visible()


def test_a_goal_leads_to_the_changes_that_made_it(page: Page, told: tuple[Incident, Space]) -> None:
    incident, _ = told
    state = open_state(page, incident)
    state.get_by_role("button", name="Facts and goals 1").click()
    goal = state.get_by_role("list", name="Facts and goals").get_by_role("listitem")
    expect(goal).to_contain_text("goal.restorepayments")
    goal.get_by_role("button", name="2 changes").click()
    history = state.get_by_role("list", name="History of the state").get_by_role("listitem")
    expect(history).to_have_count(2)
    state.get_by_role("button", name="All changes").click()
    expect(history).to_have_count(5)


def test_memory_says_who_claims_what_and_what_speaks_against_it(page: Page, told: tuple[Incident, Space]) -> None:
    incident, _ = told
    state = open_state(page, incident)
    state.get_by_role("button", name="Memory 2").click()
    memory = state.get_by_role("list", name="Memory").get_by_role("listitem")
    waits = memory.filter(has_text="lock-waits")
    expect(waits).to_contain_text("service: orders, waits for: locks")
    expect(waits).to_contain_text("fact of metrics, 90 % sure, 2 sources")
    expect(waits).to_contain_text("confirmed")
    expect(memory.filter(has_text="cache-small")).to_contain_text("contradicted")


def test_the_state_follows_what_is_written_meanwhile(page: Page, told: tuple[Incident, Space]) -> None:
    incident, space = told
    state = open_state(page, incident)
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    # What is new is shown at once where the top of the list is in view.
    expect(page.get_by_label("Loading")).to_have_count(0)
    state.get_by_role("list", name="History of the state").evaluate("list => list.scrollIntoView({block: 'center'})")
    change_state(space, "late", set={"goal.late": "seen"})
    expect(state.get_by_role("list", name="History of the state")).to_contain_text("goal.late+ seen")
    remember(space, "late", "derived", "seen meanwhile", 500)
    expect(state.get_by_role("button", name="Memory 3")).to_be_visible()


def test_a_second_operator_settles_that_one_is_enough(page: Page, client: httpx2.Client) -> None:
    governed = Space(client, "governed")
    governed.post("/v1/spaces", {"space_id": governed.id, "operators_needed": 2})
    governed.post(f"{governed.path}/governance", {"operators_needed": 1}, SECOND)
    page.goto("/inbox")
    card = page.get_by_role("group", name="Change to one operator")
    expect(card).to_contain_text("night-shift asks")
    expect(card).to_contain_text("a change of policy takes one operator, not two")
    expect(page.get_by_label("Loading")).to_have_count(0)
    card.get_by_role("button", name="Confirm").scroll_into_view_if_needed()
    card.get_by_role("button", name="Confirm").click()
    expect(card).to_have_count(0)
    assert governed.get("")["operators_needed"] == 1
