"""The session page in a real browser: the answer, the funnel, replay, why, record, verify."""

import json
import re
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import open_page
from tests.support.console_story import HEAD, LEFT, TITLE, UNIVERSE, Incident
from tests.support.http_server import ServerProcess

REPORTS = 7
pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-02")]


def open_session(page: Page, incident: Incident, query: str = "") -> None:
    page.goto(f"/cases/{incident.id}{query}")
    expect(page.get_by_role("heading", name=TITLE)).to_be_visible()


def test_the_page_says_how_many_are_left_who_ruled_out_the_rest_and_what_blocks(page: Page, incident: Incident) -> None:
    open_session(page, incident)
    strip = page.get_by_role("region", name="Where this stands")
    expect(page.get_by_test_id("left")).to_have_text(str(LEFT))
    expect(strip).to_contain_text(f"of {UNIVERSE} causes left")
    expect(strip).to_contain_text("1 more must be ruled out")
    expect(strip.get_by_role("img").first).to_have_attribute(
        "aria-label", "4 alive, 5 ruled out by metrics, 14 ruled out by traces, 1 ruled out by on-call; linear"
    )
    funnel = page.get_by_role("region", name="Belief funnel")
    expect(funnel.get_by_role("img").first).to_have_attribute(
        "aria-label", re.compile("24 causes at event 0, 4 at event 11.*3 requests were refused")
    )
    refused = page.get_by_role("region", name="Refused")
    for reason in ("obligation_active", "below_threshold"):
        expect(refused).to_contain_text(reason)


def test_everything_follows_the_slider(page: Page, incident: Incident) -> None:
    open_session(page, incident)
    page.get_by_role("slider", name="Event").focus()
    page.keyboard.press("Home")
    expect(page.get_by_test_id("left")).to_have_text(str(UNIVERSE))
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(page).to_have_url(f"{page.url.split('?')[0]}?at=3")
    left = 14
    expect(page.get_by_test_id("left")).to_have_text(str(left))
    expect(page.get_by_role("slider", name="Event")).to_have_attribute(
        "aria-valuetext", f"event 3 of {HEAD}, {left} left"
    )
    expect(page.get_by_role("status").filter(has_text=f"Event 3 of {HEAD}")).to_be_visible()
    expect(page.get_by_role("button", name="Alive")).to_contain_text(str(left))
    expect(page.get_by_role("button", name="Record what you saw")).to_be_disabled()
    page.get_by_role("button", name="Back to live").click()
    expect(page.get_by_test_id("left")).to_have_text(str(LEFT))


def test_a_shared_address_replays_and_explains(page: Page, incident: Incident) -> None:
    open_session(page, incident, "?at=5&why=payments-certificate-expired")
    expect(page.get_by_test_id("left")).to_have_text("14")
    chain = page.get_by_role("region", name="Why ruled out?")
    for words in (
        "#6",
        "human://on-call",
        "the certificate was renewed",
        "seen on the dashboard",
        "not recomputed here yet",
    ):
        expect(chain).to_contain_text(words)
    with page.expect_download() as download:
        chain.get_by_role("button", name="Proof").click()
    proof = json.loads(Path(download.value.path()).read_text("utf-8"))
    assert proof["format"] == "cmbs/1/proof"


def test_causes_can_be_searched_and_paged_by_state(page: Page, incident: Incident) -> None:
    open_session(page, incident)
    causes = page.get_by_role("region", name="Causes")
    page.get_by_role("button", name="Alive").click()
    expect(causes.get_by_role("listitem")).to_have_count(LEFT)
    page.get_by_label("Find a cause").fill("orders-db-lock")
    expect(causes.get_by_role("listitem")).to_have_count(1)


def test_this_browser_recomputes_the_whole_log(page: Page, incident: Incident) -> None:
    open_session(page, incident)
    page.keyboard.press("v")
    verdict = page.get_by_test_id("verdict")
    expect(verdict).to_contain_text(
        f"{HEAD + 1} events decided again, {HEAD + 1} hashes, {2 * (HEAD + 1)} survivor commitments"
    )
    expect(page.get_by_role("heading", name="Verified in this browser")).to_be_visible()


def test_a_log_that_was_tampered_with_is_broken_at_the_first_bad_event(
    browser: Browser, server: ServerProcess, incident: Incident
) -> None:
    """As if the server, or what is between it and the browser, changed what one event says."""
    with open_page(browser, server.url) as page:

        def tamper(route: object) -> None:
            answer = route.fetch()  # type: ignore[attr-defined]
            text = answer.text().replace(
                '"observation_id":"the certificate was renewed"', '"observation_id":"the certificate was changed"'
            )
            route.fulfill(response=answer, body=text)  # type: ignore[attr-defined]

        page.route("**/audit*", tamper)
        open_session(page, incident)
        page.get_by_role("button", name="Verify").click()
        verdict = page.get_by_test_id("verdict")
        expect(verdict).to_contain_text("First bad event: #6.")
        expect(verdict).to_contain_text("hash does not follow from the bytes")
        expect(page.get_by_role("heading", name="Broken log")).to_be_visible()
        # What comes after it is hatched, and not counted: 14 were left at event 5.
        expect(page.locator(".funnel rect[fill='url(#hatch)']")).to_have_count(1)
        expect(page.get_by_test_id("left")).to_have_text("14")
        expect(page.get_by_role("button", name="Alive")).to_contain_text("14")
        expect(page.get_by_role("alert")).to_contain_text("The log is broken at event 6.")


def test_a_person_records_what_they_saw_and_it_counts(page: Page, incident: Incident, client: httpx2.Client) -> None:
    open_session(page, incident)
    alive = client.get(incident.path).json()["survivors"]
    page.keyboard.press("r")
    page.get_by_role("button", name="By free hand").click()
    page.get_by_label("What you looked at").fill("the disk of the database")
    page.get_by_label("Causes that it rules out").fill(f"{alive[0]} no-such-cause")
    form = page.get_by_role("region", name="Ask next")
    expect(form).to_contain_text("Rules out 1, leaves 3")
    expect(form).to_contain_text("1 id not of this universe")
    page.get_by_role("button", name="Record for good").click()
    expect(page.get_by_role("button", name="Record for good")).to_have_count(0)
    assert client.get(incident.path).json()["n_survivors"] == LEFT - 1


def test_a_person_answers_a_probe_and_sees_before_what_the_answer_leaves(
    page: Page, incident: Incident, client: httpx2.Client
) -> None:
    open_session(page, incident)
    panel = page.get_by_role("region", name="Ask next")
    expect(panel).to_contain_text("0.81 bits")
    page.keyboard.press("r")
    page.get_by_label("Probe").select_option("LockWaitsHigh@orders-db")
    page.get_by_label("Answer").select_option("firing")
    expect(panel).to_contain_text("Rules out 3, leaves 1")
    page.get_by_role("button", name="Record for good").click()
    expect(page.get_by_test_id("left")).to_have_text("1")
    assert client.get(incident.path).json()["survivors"] == ["orders-db-lock-contention"]


def test_the_chart_is_a_table_too(page: Page, incident: Incident) -> None:
    open_session(page, incident)
    page.keyboard.press("t")
    table = page.get_by_role("list", name="Events")
    expect(table.get_by_role("listitem")).to_have_count(HEAD + 1)
    expect(table).to_contain_text("look-before-concluding")
    table.get_by_role("button", name="#6").click()
    expect(page.get_by_role("region", name="Event #6")).to_contain_text("prev event hash")


def test_a_session_that_is_not_there_says_so(browser: Browser, server: ServerProcess) -> None:
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.goto("/cases/no-such-session")
        expect(page.get_by_role("alert")).to_contain_text("no session no-such-session")
        expect(page.get_by_role("alert")).to_contain_text("SESSION_NOT_FOUND")
    finally:
        context.close()


@pytest.mark.parametrize("address", ["/cases/%E0%A4%A", "/spaces/%ff/policy"])
def test_an_address_that_cannot_be_read_is_an_error_and_no_empty_page(
    browser: Browser, server: ServerProcess, address: str
) -> None:
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.goto(address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_role("alert")).to_be_visible()
    finally:
        context.close()


def test_keys_work_from_a_moment_that_says_nothing(page: Page, incident: Incident) -> None:
    open_session(page, incident, "?at=soon")
    expect(page.get_by_role("alert")).to_contain_text("which this case does not have")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("slider", name="Event")).to_have_value(str(HEAD - 1))


@pytest.mark.req("CONSOLE-GHOSTS-01")
def test_the_funnel_shows_what_greedy_and_optimal_strategies_would_have_left(page: Page, incident: Incident) -> None:
    open_session(page, incident)
    funnel = page.get_by_role("region", name="Belief funnel")
    expect(funnel).to_contain_text("greedy, mean")
    expect(funnel).to_contain_text("optimal, mean")
    for strategy in ("greedy", "optimal"):
        # The start, and one place for each of the seven reports.
        drawn = re.compile(rf"^M[^L]*(L[^L]*){{{REPORTS}}}$")
        expect(funnel.locator(f".funnel path.ghost.{strategy}")).to_have_attribute("d", drawn)


def test_a_part_of_the_funnel_is_drawn_closer_by_pointer_and_by_keys(page: Page, incident: Incident) -> None:
    open_session(page, incident)
    funnel, slider = page.get_by_role("region", name="Belief funnel"), page.get_by_role("slider", name="Event")
    # Nothing above the chart, and no legend of it, is to come yet.
    expect(page.get_by_text(f"{HEAD} / {HEAD}, live")).to_be_visible()
    expect(funnel).to_contain_text("optimal, mean")
    box = funnel.get_by_role("img").first.bounding_box()
    track = slider.bounding_box()
    assert box is not None
    assert track is not None
    # From the second event to the fifth; the slider stands under the axis.
    ends = [track["x"] + 9 + (track["width"] - 18) * seq / HEAD for seq in (2, 5)]
    page.mouse.move(ends[0], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(ends[1], box["y"] + 80, steps=4)
    page.mouse.up()
    expect(funnel.get_by_role("button", name="Events 2 to 5: show all")).to_be_visible()
    expect(funnel.get_by_role("img", name="drawn from event 2 to 5")).to_be_visible()
    expect(slider).to_have_attribute("min", "2")
    expect(slider).to_have_attribute("max", "5")
    # What is shown beside it is still of the newest event, and a click is still a click.
    expect(page.get_by_test_id("left")).to_have_text(str(LEFT))
    page.mouse.click(track["x"] + track["width"] - 9, box["y"] + 60)
    expect(page).to_have_url(f"{page.url.split('?')[0]}?at=5")
    # The part follows the replay.
    page.keyboard.press("ArrowRight")
    expect(funnel.get_by_role("button", name="Events 3 to 6: show all")).to_be_visible()
    funnel.get_by_role("button", name="show all").click()
    expect(slider).to_have_attribute("max", str(HEAD))
    page.keyboard.press("+")
    expect(funnel.get_by_role("button", name="Events 2 to 10: show all")).to_be_visible()
    page.keyboard.press("-")
    expect(funnel.get_by_role("button", name="show all")).to_have_count(0)
    # A mark in a lane opens its event.
    page.mouse.click(ends[1], box["y"] + box["height"] - 60)
    expect(page.get_by_role("region", name="Event #5")).to_contain_text("prev event hash")


def test_a_session_is_replayed_and_questioned_by_keys_alone(page: Page, incident: Incident) -> None:
    open_session(page, incident)
    slider = page.get_by_role("slider", name="Event")
    expect(slider).to_have_value(str(HEAD))
    page.keyboard.press("Shift+ArrowLeft")
    expect(slider).to_have_value(str(HEAD - 10))
    page.keyboard.press("Shift+ArrowRight")
    expect(slider).to_have_value(str(HEAD))
    # Playing begins anew at the end, pauses, goes on, and stops at the end by itself.
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text=f"of {HEAD}, ")).to_be_visible()
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    expect(slider).to_have_value(str(HEAD))
    page.keyboard.press("w")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Why ruled out?")).to_contain_text("It may still be the cause")
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="Why ruled out?")).to_contain_text("Choose a cause")


def test_the_event_that_ruled_out_a_cause_is_found_where_there_are_too_many_to_load(
    browser: Browser, server: ServerProcess, client: httpx2.Client
) -> None:
    ids = [f"cause-{number}" for number in range(20_001)]
    ontology = dict.fromkeys(
        ("hypothesis_space_id", "hypothesis_version", "causal_graph_ref", "causal_graph_version"), "1"
    )
    declared = client.post("/v1/sessions", json={"ontology": ontology, "hypotheses": ids, "title": "Many causes"})
    session_id = declared.json()["session_id"]
    eliminated = {"source_id": "metrics", "observation_id": "o", "eliminated": ["cause-7"]}
    client.post(f"/v1/sessions/{session_id}/eliminate", json=eliminated).raise_for_status()
    # The server refuses to prove that a cause survived which it eliminated: the page reads the event from the refusal.
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.goto(f"/cases/{session_id}?why=cause-7")
        chain = page.get_by_role("region", name="Why ruled out?")
        expect(chain).to_contain_text("#1")
        expect(chain).to_contain_text("metrics")
        page.goto(f"/cases/{session_id}?why=cause-8")
        expect(chain).to_contain_text("It may still be the cause")
    finally:
        context.close()
