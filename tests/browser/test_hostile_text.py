"""Whatever agents write is text: markup in any of it runs nothing and makes no element, on any page."""

import json

import httpx2
import pytest
from playwright.sync_api import Page, expect

from tests.support.console_space import AGENT, OPERATOR, Space

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-01")]

MARKUP = '"><img src=x onerror="window.taken=1"><script>window.taken=1</script>'
HOSTILE_IDS = [f"{MARKUP}one", "javascript:window.taken=1", "__proto__", "constructor", "../../v1/spaces"]
POLICY = f"""\
format: 2
title: {json.dumps(MARKUP)}
rules:
  - name: asked
    allow: tool.any
    when: case.belief.n_survivors == 1
    otherwise: ask
    because: {json.dumps(MARKUP)}
"""


@pytest.fixture
def session(client: httpx2.Client) -> str:
    """A session in which everything that a caller may name holds markup."""
    ontology = {"hypothesis_space_id": MARKUP, "hypothesis_version": MARKUP}
    ontology |= {"causal_graph_ref": MARKUP, "causal_graph_version": MARKUP}
    attributes = {each: {"component": MARKUP, "__proto__": MARKUP} for each in HOSTILE_IDS}
    body = {"ontology": ontology, "hypotheses": HOSTILE_IDS, "title": MARKUP, "labels": {"team": MARKUP[:60]}}
    declared = client.post("/v1/sessions", json={**body, "hypothesis_attributes": attributes}, headers=AGENT)
    assert declared.is_success, declared.text
    path = f"/v1/sessions/{declared.json()['session_id']}"
    report = {"source_id": f"agent://{MARKUP}", "observation_id": MARKUP, "eliminated": HOSTILE_IDS[:1]}
    steps = {
        "eliminate": {**report, "justification": {"note": MARKUP, MARKUP: MARKUP}},
        "obligations": {"obligation_id": MARKUP, "min_total_eliminations": 2},
        "conclusions": {"conclusion_id": MARKUP},
    }
    for step, content in steps.items():
        answer = client.post(f"{path}/{step}", json=content, headers=AGENT)
        assert answer.is_success, (step, answer.text)
    return str(declared.json()["session_id"])


@pytest.fixture
def space(client: httpx2.Client, session: str) -> Space:
    """A space in which a call with such arguments asks for an approval."""
    space = Space(client, "hostile")
    space.post("/v1/spaces", {"space_id": space.id, "operators_needed": 1})
    headers = {**OPERATOR, "content-type": "application/yaml"}
    answer = client.put(f"{space.path}/policy", content=POLICY, headers=headers)
    assert answer.is_success, answer.text
    space.post(f"{space.path}/tools", {"tool_id": "tool.any", "kind": "caller", "args_schema": {"type": "object"}})
    space.post(f"{space.path}/capabilities", {"token_id": "t-metrics", "agent_id": "metrics", "tool_ids": ["tool.any"]})
    attributes = {"severity": MARKUP}
    body = {"case_id": session, "agents": ["metrics"], "attributes": attributes, "title": MARKUP}
    space.post(f"{space.path}/cases", body)
    space.propose("tool.any", {MARKUP: MARKUP, "__proto__": {"x": MARKUP}}, MARKUP, session)
    return space


def test_markup_that_agents_write_is_shown_and_runs_nothing(page: Page, session: str, space: Space) -> None:
    # A page that complains, of a refused script too, fails the test.
    pages = {
        "/": MARKUP,
        f"/cases/{session}": HOSTILE_IDS[0],
        f"/cases/{session}/actions": MARKUP,
        "/inbox": MARKUP,
        f"/compare?a={session}&by=source": MARKUP,
        f"/spaces/{space.id}/policy": "window.taken=1",
        f"/ledger/{session}": "DECLARE_SESSION",
        f"/ledger/space%3A{space.id}": "PROPOSE",
    }
    for path, words in pages.items():
        page.goto(path)
        expect(page.get_by_label("Loading")).to_have_count(0)
        expect(page.locator("#app")).to_contain_text(words)
        assert page.locator("img, #app script, a[href^='javascript:']").count() == 0, path
    for hypothesis in HOSTILE_IDS:
        page.goto(f"/cases/{session}")
        page.get_by_role("region", name="Causes").get_by_role("button", name=hypothesis, exact=True).click()
        expect(page.locator("section").filter(has_text="Why ruled out?").last).to_contain_text(hypothesis)
    page.keyboard.press("t")
    expect(page.get_by_role("list", name="Events")).to_contain_text(MARKUP)
    page.keyboard.press("v")
    expect(page.get_by_role("heading", name="Verified in this browser")).to_be_visible()
    assert page.evaluate("[window.taken, ({}).x]") == [None, None]
