"""What the console offers to a key, in a real browser: what the key may do, and no more."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect

from cmbs.belief.server import BeliefServer
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores import open_store
from tests.support.console_space import tell_space
from tests.support.console_story import tell
from tests.support.http_server import ServerProcess, serving

pytestmark = [pytest.mark.browser, pytest.mark.req("CONSOLE-08")]


class Keyed(NamedTuple):
    """A server with keys, the session of its one case, and the keys by their names."""

    server: ServerProcess
    session: str
    keys: dict[str, str]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    directory: Path = tmp_path_factory.mktemp("keyed")
    # What there is to see is told while no key is asked for.
    with serving(directory, "--store", "sqlite:///keys.db") as process, process.client() as client:
        incident = tell(client)
        tell_space(client, incident)
    server = BeliefServer(store=open_store(f"sqlite:///{directory / 'keys.db'}"))
    registry = KeyRegistry(server.log)
    one = [f"belief:{each}@{incident.id}" for each in ("read", "write")]
    keys = {
        "operator": registry.create(ActorKind.OPERATOR, "on-call", roles=[Role.OPERATOR]).text,
        "proposer": registry.create(ActorKind.AGENT, "metrics", roles=[Role.AGENT]).text,
        "other agent": registry.create(ActorKind.AGENT, "traces", roles=[Role.AGENT]).text,
        "reader": registry.create(ActorKind.AGENT, "reader", roles=[Role.READER]).text,
        "one session": registry.create(ActorKind.AGENT, "single", scopes=one).text,
        "another session": registry.create(
            ActorKind.AGENT, "astray", scopes=["belief:read", "belief:write@elsewhere"]
        ).text,
        "approver here": registry.create(
            ActorKind.OPERATOR, "local", scopes=["spaces:read@op*", "spaces:approve@op*", "belief:read"]
        ).text,
        "approver elsewhere": registry.create(
            ActorKind.OPERATOR, "far", scopes=["spaces:read", "spaces:approve@elsewhere", "belief:read"]
        ).text,
    }
    server.close()
    with serving(directory, "--store", "sqlite:///keys.db") as process:
        yield Keyed(process, incident.id, keys)


@contextmanager
def signed_in(browser: Browser, keyed: Keyed, name: str, path: str) -> Iterator[Page]:
    context = browser.new_context(base_url=keyed.server.url)
    try:
        page = context.new_page()
        page.goto(path)
        page.get_by_label("Key").fill(keyed.keys[name])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1).filter(has_not_text="Sign in")).to_be_visible()
        expect(page.get_by_label("Loading")).to_have_count(0)
        yield page
    finally:
        context.close()


@pytest.mark.parametrize(("name", "offered"), [("operator", 1), ("proposer", 1), ("other agent", 0), ("reader", 0)])
def test_a_waiting_call_is_withdrawn_by_its_proposer_or_an_operator(
    browser: Browser, keyed: Keyed, name: str, offered: int
) -> None:
    with signed_in(browser, keyed, name, f"/cases/{keyed.session}/actions?proposal=p-restart") as page:
        proposal = page.get_by_role("region", name="Proposal", exact=True)
        expect(proposal).to_contain_text("ALLOW_UNMET")
        expect(proposal.get_by_role("button", name="Withdraw")).to_have_count(offered)


@pytest.mark.parametrize(("name", "offered"), [("one session", 1), ("another session", 0), ("reader", 0)])
def test_a_key_for_one_session_records_in_that_one(browser: Browser, keyed: Keyed, name: str, offered: int) -> None:
    with signed_in(browser, keyed, name, f"/cases/{keyed.session}") as page:
        expect(page.get_by_test_id("left")).to_have_text("4")
        expect(page.get_by_role("button", name="Record what you saw")).to_have_count(offered)


@pytest.mark.parametrize(("name", "listed"), [("approver here", 1), ("approver elsewhere", 0), ("other agent", 0)])
def test_the_inbox_is_of_the_spaces_that_a_key_reaches(browser: Browser, keyed: Keyed, name: str, listed: int) -> None:
    with signed_in(browser, keyed, name, "/inbox") as page:
        expect(page.get_by_text("1 thing waits" if listed else "0 things wait")).to_be_visible()
        expect(page.get_by_role("button", name="Approve once")).to_have_count(listed)
        # Taking a call back is the proposer's, and needs the scope to propose.
        expect(page.get_by_role("button", name="Withdraw")).to_have_count(0)


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("one session", ("Inbox", "Actions", "Policy")), ("reader", ("Inbox", "Policy")), ("operator", ())],
)
def test_a_key_is_not_led_to_pages_that_show_it_nothing(
    browser: Browser, keyed: Keyed, name: str, hidden: tuple[str, ...]
) -> None:
    with signed_in(browser, keyed, name, f"/cases/{keyed.session}") as page:
        rail = page.get_by_role("navigation", name="Main")
        for link in ("Inbox", "Actions", "Policy"):
            expect(rail.get_by_role("link", name=link)).to_have_count(0 if link in hidden else 1)


def test_an_operator_who_may_not_change_the_policy_sees_it_without_a_workbench(browser: Browser, keyed: Keyed) -> None:
    with signed_in(browser, keyed, "approver elsewhere", "/spaces/ops/policy") as page:
        expect(page.get_by_role("textbox", name="The policy file")).to_contain_text("restart_when_known")
        expect(page.get_by_role("button", name="Propose change")).to_have_count(0)
        expect(page.get_by_role("region", name="Would flip")).to_have_count(0)
        expect(page.get_by_role("alert")).to_have_count(0)


def test_a_key_that_is_revoked_is_told_so(browser: Browser, keyed: Keyed) -> None:
    with signed_in(browser, keyed, "reader", "/") as page:
        # What the server answers to a key that it does not know any more.
        page.route("**/v1/sessions*", lambda route: route.continue_(headers={"authorization": "Bearer cmbs_gone"}))
        page.get_by_role("button", name="Concluded").click()
        expect(page.get_by_role("alert")).to_contain_text("it was revoked, or has expired")
        page.unroute("**/v1/sessions*")
        page.get_by_label("Key").fill(keyed.keys["operator"])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Cases", level=1)).to_be_visible()
