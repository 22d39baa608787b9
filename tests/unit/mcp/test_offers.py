"""Where a call is approved, shown to hosts of both eras: who signs in there approves, an answer of the host never."""

import asyncio
from typing import Any
from urllib.parse import parse_qs, urlsplit

import mcp_types
import pytest
from mcp_types import ElicitResult

from cmbs.bootstrap import Settings, build_app
from cmbs.errors import InvalidRequest
from cmbs.mcp.asking import identify_caller, open_api
from cmbs.mcp.gateway.ledger import STARTER_POLICY
from cmbs.mcp.gateway.opening import GatewayOptions, find_console
from tests.support.bounded import run
from tests.support.mcp_upstream import (
    Bench,
    RawUpstream,
    ScriptedUpstream,
    Wire,
    define,
    make_upstream,
    open_bench,
    text_of,
)
from tests.support.subtests import for_each

pytestmark = pytest.mark.slow

CONSOLE = "https://console.example.com/cmbs/"
PATIENT: dict[str, Any] = {"console": CONSOLE, "wait_seconds": 30.0}
ANSWERED = "answer of the host to where a call is approved"
CONFIRMED = "confirmation by the user of the host"
both_eras = pytest.mark.parametrize("modern", [True, False])


class Host:
    """The user of a host: keeps what it is asked, does something about it, and answers."""

    def __init__(self, action: Any = "accept", act: Any = None) -> None:
        self.asked: list[Any] = []
        self._action = action
        self._act = act

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params)
        if self._act is not None:
            await self._act()
        return ElicitResult(action=self._action)


async def list_statuses(bench: Bench) -> list[str]:
    return [each.status for each in await bench.proposals()]


@both_eras
@pytest.mark.req("MCP-GW-12")
def test_a_host_is_shown_the_approval_in_the_console_and_the_call_runs_when_an_operator_approved_it(
    modern: bool,
) -> None:
    async def test() -> None:
        upstream = make_upstream()
        async with open_bench({"up": upstream}, **PATIENT) as bench:
            host = Host(act=bench.approve_all)
            async with bench.client(modern=modern, elicitation_callback=host) as client:
                assert text_of(await client.call_tool("get_status", {})) == "green"
                assert host.asked == []
                assert text_of(await client.call_tool("restart", {"service": "api"})) == "restarted"
            (asked,) = host.asked
            (_, proposal) = await bench.proposals()
            address = urlsplit(asked.url)
            assert (asked.mode, address.netloc, address.path) == ("url", "console.example.com", "/cmbs/inbox")
            assert parse_qs(address.query) == {"space": ["mcp"], "proposal": [proposal.proposal_id]}
            assert "`up.restart`" in asked.message
            assert upstream.calls[1:] == [("restart", {"service": "api"})]

    run(test())


@both_eras
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
@pytest.mark.req("MCP-GW-12", "MCP-GW-06")
def test_a_host_that_answers_by_itself_gains_nothing_and_is_asked_once(modern: bool, action: str) -> None:
    async def test() -> None:
        upstream, host = make_upstream(), Host(action)
        async with open_bench({"up": upstream}, console=CONSOLE) as bench:
            async with bench.client(modern=modern, elicitation_callback=host) as client:
                for _ in range(2):
                    waiting = await client.call_tool("restart", {})
                    assert waiting.is_error
                    assert "has to approve the call" in text_of(waiting)
            assert len(host.asked) == 1
            assert upstream.calls == []
            assert await list_statuses(bench) == ["asked"]
            assert [each["action"] for each in await bench.notes(ANSWERED)] == [action]
            # To open an address confirms nothing of the call.
            assert await bench.notes(CONFIRMED) == []
            await bench.approve_all()
            async with bench.client(modern=modern, elicitation_callback=host) as client:
                assert text_of(await client.call_tool("restart", {})) == "restarted"
            assert len(host.asked) == 1

    run(test())


@both_eras
@pytest.mark.req("MCP-GW-12")
def test_a_client_without_the_capability_waits_as_ever(modern: bool) -> None:
    async def test() -> None:
        upstream = make_upstream()
        async with open_bench({"up": upstream}, console=CONSOLE) as bench, bench.client(modern=modern) as client:
            waiting = await client.call_tool("restart", {})
            assert "Call the tool again with the same arguments" in text_of(waiting)
            assert await bench.notes(ANSWERED) == []
            await bench.approve_all()
            assert text_of(await client.call_tool("restart", {})) == "restarted"

    run(test())


@pytest.mark.req("MCP-GW-12")
def test_a_call_that_is_approved_elsewhere_does_not_wait_for_the_answer_of_the_host() -> None:
    async def test() -> None:
        never, upstream = asyncio.Event(), make_upstream()
        async with open_bench({"up": upstream}, **PATIENT) as bench:

            async def approve_and_stay() -> None:
                await bench.approve_all()
                await never.wait()

            host = Host(act=approve_and_stay)
            async with bench.client(modern=False, elicitation_callback=host) as client:
                assert text_of(await client.call_tool("restart", {})) == "restarted"
            assert [each["action"] for each in await bench.notes(ANSWERED)] == ["none"]

    run(test())


@pytest.mark.req("MCP-GW-12")
def test_a_host_that_fails_when_it_is_asked_waits_as_ever() -> None:
    async def fail(context: Any, params: Any) -> mcp_types.ErrorData:
        return mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message="no window")

    async def test() -> None:
        async with open_bench({"up": make_upstream()}, console=CONSOLE) as bench:
            async with bench.client(modern=False, elicitation_callback=fail) as client:
                assert "has to approve the call" in text_of(await client.call_tool("restart", {}))
            assert [each["action"] for each in await bench.notes(ANSWERED)] == ["none"]

    run(test())


@pytest.mark.req("MCP-GW-12", "MCP-GW-07")
def test_a_request_state_of_an_offer_is_good_once_and_for_its_call_alone() -> None:
    async def test() -> None:
        upstream = make_upstream()
        async with open_bench({"up": upstream}, console=CONSOLE) as bench:
            async with bench.client(elicitation_callback=Host()) as client:

                async def send(responses: Any = None, state: str | None = None) -> Any:
                    return await client.session.call_tool(
                        "restart", {}, input_responses=responses, request_state=state, allow_input_required=True
                    )

                first = await send()
                assert isinstance(first, mcp_types.InputRequiredResult)
                # A client that comes again without an answer is asked again.
                assert isinstance(await send(), mcp_types.InputRequiredResult)
                responses = {"approve": ElicitResult(action="accept")}
                assert "has to approve" in text_of(await send(responses, first.request_state))
                assert "no question that is open" in text_of(await send(responses, first.request_state))
            assert len(await bench.notes("request state that is not open")) == 1
            assert upstream.calls == []

    run(test())


@both_eras
@pytest.mark.req("MCP-GW-12", "MCP-GW-06")
def test_what_the_upstream_asks_after_the_approval_still_reaches_the_user(modern: bool) -> None:
    async def ask_first(ctx: Any, params: Wire) -> Wire:
        if "inputResponses" not in params:
            form = {"mode": "form", "message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}
            question = {"method": "elicitation/create", "params": form}
            return {"resultType": "input_required", "inputRequests": {"sure": question}}
        return {"content": [{"type": "text", "text": params["inputResponses"]["sure"]["action"]}]}

    async def test() -> None:
        upstream = ScriptedUpstream(modern_only=True)
        upstream.tool(define("restart"), ask_first)
        async with open_bench({"up": upstream}, **PATIENT) as bench:
            host = Host(act=bench.approve_all)
            async with bench.client(modern=modern, elicitation_callback=host) as client:
                assert text_of(await client.call_tool("restart", {})) == "accept"
            assert [each.mode for each in host.asked] == ["url", "form"]
            assert [each["actions"] for each in await bench.notes(CONFIRMED)] == [{"sure": "accept"}]

    run(test())


@both_eras
@pytest.mark.req("MCP-GW-12")
def test_a_read_beside_tools_that_needs_an_approval_is_offered_too(modern: bool) -> None:
    async def test() -> None:
        read = {"contents": [{"uri": "file:///a", "text": "a"}]}
        listed: Wire = {"resources/list": {"resources": []}, "resources/templates/list": {"resourceTemplates": []}}
        upstream = RawUpstream([], **listed, **{"resources/read": read}, capabilities={"resources": {}})
        app = build_app(Settings(store="memory:"), {})
        operator = open_api(app).acting_as(identify_caller("operator:boss"))
        everything_asks = {**STARTER_POLICY["rules"][0], "when": "tool.writes"}
        await operator.create_space("mcp", policy_file={**STARTER_POLICY, "rules": [everything_asks]})
        async with open_bench({"up": upstream}, app=app, **PATIENT) as bench:
            host = Host(act=bench.approve_all)
            async with bench.client(modern=modern, elicitation_callback=host) as client:
                assert (await client.read_resource("file:///a")).contents[0].text == "a"  # type: ignore[union-attr]
            assert [each.mode for each in host.asked] == ["url"]
        app.close()

    run(test())


@pytest.mark.req("MCP-GW-12")
@for_each(
    ("console", "server", "found"),
    [
        (None, None, None),
        (None, "http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        (None, "https://me:secret@cmbs.example.com/api", "https://cmbs.example.com/api"),
        ("https://console.example.com", "http://127.0.0.1:8080", "https://console.example.com"),
    ],
)
def test_the_console_is_where_it_is_said_to_be_or_at_the_server(
    console: str | None, server: str | None, found: str | None
) -> None:
    assert find_console(GatewayOptions(console=console, server=server)) == found


@pytest.mark.req("MCP-GW-12")
@for_each("console", ["ftp://a", "console", "https://me:secret@a", "https://a/?x=1", "https://a/#x", ""])
def test_what_is_no_address_of_a_console_is_refused(console: str) -> None:
    with pytest.raises(InvalidRequest, match="console"):
        find_console(GatewayOptions(console=console))
