"""The policy workbench in a real browser: findings in place, flips, tests, and calls that are explained."""

import re
from collections.abc import Iterator

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.console_space import CASE, OPERATOR, POLICY, Space, tell_space
from tests.support.console_story import Incident, tell
from tests.support.http_server import ServerProcess

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-05")]


@pytest.fixture
def told(client: httpx2.Client) -> tuple[Incident, Space]:
    """An incident and a space of its own for each test, because tests change them."""
    incident = tell(client)
    return incident, tell_space(client, incident, f"ops-{incident.id}")


@pytest.fixture
def workbench(browser: Browser, server: ServerProcess, told: tuple[Incident, Space]) -> Iterator[Page]:
    """Not `page`: the browser itself tries inline styles while text is pasted, and the page's policy says no."""
    _, space = told
    context = browser.new_context(base_url=server.url)
    try:
        page = context.new_page()
        page.goto(f"/spaces/{space.id}/policy")
        expect(page.get_by_role("textbox", name="The policy file")).to_contain_text("restart_when_known")
        yield page
    finally:
        context.close()


def write(page: Page, text: str) -> None:
    """Write a policy file over what is in the editor, as a person would paste it."""
    page.get_by_role("textbox", name="The policy file").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_errors_stand_under_their_lines_and_past_decisions_that_would_flip_are_listed(workbench: Page) -> None:
    page = workbench
    write(page, POLICY.replace("case.belief.n_survivors", "case.beleif.n_survivors"))
    findings = page.get_by_role("region", name="Findings")
    expect(findings).to_contain_text("$case.beleif.n_survivors is not one of")
    expect(findings.get_by_role("button", name="9:7")).to_be_visible()
    expect(page.get_by_test_id("editor").locator(".finding.error")).to_contain_text("9:7")
    expect(page.get_by_role("button", name="Propose change: fix 1 error first")).to_be_disabled()
    write(page, POLICY.replace("severity <= 4", "severity <= 1"))
    flips = page.get_by_role("region", name="Would flip")
    expect(flips).to_contain_text("1 of 4 past decisions")
    expect(flips).to_contain_text("args.severity <= 1")
    expect(page.get_by_role("region", name="Tests")).to_contain_text("verdict: expected allow, got deny")
    expect(page.get_by_role("button", name="Propose change")).to_be_enabled()
    expect(page.get_by_test_id("editor").locator(".finding.error")).to_have_count(0)


def test_a_fix_is_written_on_a_key_or_a_click_and_can_be_undone(workbench: Page) -> None:
    page = workbench
    file, editor = page.get_by_role("textbox", name="The policy file"), page.get_by_test_id("editor")
    write(page, POLICY.replace("case.belief.n_survivors", "case.beleif.n_survivors"))
    page.keyboard.press("Control+Home")
    message = editor.locator(".finding.error")
    expect(message).to_contain_text("Write beliefAlt+Enter")
    page.keyboard.press("Alt+Enter")
    expect(file).to_contain_text("case.belief.n_survivors == 1")
    expect(message).to_have_count(0)
    expect(page.get_by_role("button", name="Propose change")).to_be_disabled()
    page.keyboard.press("Control+z")
    expect(file).to_contain_text("case.beleif.n_survivors == 1")
    # Two at once: the key goes from one to the next, and the button writes its own.
    write(page, POLICY.replace("because: restart", "becuase: restart").replace("case.belief.n", "case.beleif.n"))
    expect(message).to_have_count(2)
    page.keyboard.press("Control+Home")
    page.keyboard.press("Alt+Enter")
    page.keyboard.press("Alt+Enter")
    expect(message).to_have_count(0)
    write(page, POLICY.replace("otherwise: ask", "otherwise: aks"))
    message.get_by_role("button", name="Write ask").click()
    expect(message).to_have_count(0)
    expect(file).to_be_focused()
    expect(file).to_contain_text("otherwise: ask")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Alt+Enter")


def test_changed_lines_carry_a_bar_and_are_compared_with_the_file_in_force(workbench: Page) -> None:
    page = workbench
    editor = page.get_by_test_id("editor")
    expect(editor.locator(".changed")).to_have_count(0)
    write(page, POLICY.replace("severity <= 4", "severity <= 1"))
    expect(editor.locator(".changed")).to_have_count(1)
    shown = page.get_by_role("group", name="How the file is shown")
    shown.get_by_role("button", name="Diff").click()
    expect(editor.locator(".cm-deletedChunk")).to_contain_text("when: args.severity <= 4")
    expect(editor).to_contain_text("unchanged lines")
    shown.get_by_role("button", name="File").click()
    expect(editor.locator(".cm-deletedChunk")).to_have_count(0)
    page.get_by_role("button", name="Discard").click()
    expect(editor.locator(".changed")).to_have_count(0)


def test_all_decisions_stand_in_a_strip_with_an_arrow_for_each_flip(workbench: Page) -> None:
    page = workbench
    write(page, POLICY.replace("severity <= 4", "severity <= 1"))
    flips = page.get_by_role("region", name="Would flip")
    strip = flips.get_by_role("img", name="1 decision to allow")
    expect(strip).to_have_accessible_name(re.compile("2 decisions to defer, 1 decision to deny; 1 arrow"))
    expect(strip.locator(".arrow")).to_have_count(1)
    flips.get_by_role("button", name="To deny 1").click()
    expect(flips.get_by_role("listitem")).to_have_count(1)
    expect(flips.get_by_role("button", name="To allow")).to_have_count(0)


def test_a_call_that_is_written_is_explained_and_not_recorded(workbench: Page, told: tuple[Incident, Space]) -> None:
    _, space = told
    before = len(space.get("/proposals")["proposals"])
    panel = workbench.get_by_role("region", name="Explain a call")
    panel.get_by_label("Tool").fill("service.restart")
    expect(panel.get_by_label("Token")).to_have_value("t-metrics")
    expect(panel.get_by_label("Case")).to_have_value(space.cases[CASE])
    panel.get_by_label("Arguments").fill('{"service": "orders"}')
    panel.get_by_role("button", name="Explain", exact=True).click()
    answer = panel.get_by_role("status", name="Explanation")
    expect(answer).to_contain_text("defer")
    expect(answer).to_contain_text("decided at the stage constraints")
    expect(answer).to_contain_text("found 4")
    panel.get_by_label("Tool").fill("ticket.file")
    panel.get_by_label("Arguments").fill('{"severity": 3}')
    panel.get_by_role("button", name="Explain", exact=True).click()
    expect(answer).to_contain_text("every stage passes")
    panel.get_by_label("Arguments").fill("{severity")
    panel.get_by_role("button", name="Explain", exact=True).click()
    expect(panel.get_by_role("alert")).to_contain_text("The arguments are not JSON")
    assert len(space.get("/proposals")["proposals"]) == before


def test_a_call_that_was_proposed_is_explained_in_the_lines_of_the_file(workbench: Page) -> None:
    panel = workbench.get_by_role("region", name="Explain a call")
    panel.get_by_role("button", name="One that was proposed").click()
    panel.get_by_label("Proposal").select_option("p-restart")
    panel.get_by_role("button", name="Explain", exact=True).click()
    lines = panel.get_by_role("group", name="Lines 6 to 13 of the policy file")
    expect(lines).to_contain_text("case.belief.n_survivors == 1")
    expect(lines).to_contain_text("found 4")
    answer = panel.get_by_role("status", name="Explanation")
    expect(answer).to_contain_text("It would be allow if")
    expect(answer).to_contain_text("belief n_survivors were 1, now 4")


def test_a_policy_that_is_put_in_force_elsewhere_is_told_and_drops_no_draft(
    workbench: Page, client: httpx2.Client, told: tuple[Incident, Space]
) -> None:
    _, space = told
    page = workbench
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    write(page, f"{POLICY}# a draft\n")
    headers = {**OPERATOR, "content-type": "application/yaml"}
    changed = POLICY.replace("severity <= 4", "severity <= 3")
    assert client.put(f"{space.path}/policy", content=changed, headers=headers).is_success
    expect(page.get_by_text("Another policy was put in force meanwhile.")).to_be_visible()
    expect(page.get_by_role("textbox", name="The policy file")).to_contain_text("# a draft")
    page.get_by_role("button", name="Load it, and drop the draft").click()
    expect(page.get_by_role("textbox", name="The policy file")).to_contain_text("severity <= 3")
