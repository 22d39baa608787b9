"""The gateway as a peer: hanging and talkative servers hold up and fill nothing; what is asked or said is relayed."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import MCPError
from mcp.server import MCPServer, Server
from mcp.server.mcpserver import Context as McpContext
from pydantic import BaseModel

from cmbs.bootstrap import Settings, build_app
from cmbs.mcp.asking import open_api
from cmbs.mcp.gateway import calls, pinning, server
from cmbs.mcp.gateway.answers import REPEAT
from cmbs.mcp.gateway.callers import GatewaySettings
from cmbs.mcp.gateway.server import Gateway
from cmbs.substrate.tools.mcp_connections import Connections
from cmbs.substrate.tools.mcp_servers import HttpServer, McpServers, StdioServer
from tests.support import mcp_conformance
from tests.support.bounded import run
from tests.support.http_server import free_port
from tests.support.mcp_served import wait_for_port
from tests.support.mcp_upstream import (
    GATEWAY,
    Bench,
    RawUpstream,
    ScriptedUpstream,
    Wire,
    answer_text,
    build_ledger,
    define,
    make_reader,
    open_bench,
    text_of,
)

GOOD = define("get_a", reads=True)
TEXT: Wire = {"content": [{"type": "text", "text": "a"}]}
both_eras = pytest.mark.parametrize("modern", [True, False])


async def wait_until(holds: Any) -> None:
    while not holds():  # noqa: ASYNC110 - another task makes it so
        await asyncio.sleep(0)


async def send(client: Any, method: str, **params: Any) -> None:
    """A request of the older protocol, of which the SDK's own methods warn."""
    await client.session.send_request(
        mcp_types.Request[dict[str, Any], str](method=method, params=params), mcp_types.EmptyResult
    )


class RealUpstream:
    """A server of the SDK, as it is."""

    def __init__(self, build: Any) -> None:
        self._build = build

    def open(self) -> Any:
        from mcp.client._memory import InMemoryTransport

        return InMemoryTransport(self._build())


def open_conformance(**settings: Any) -> Any:
    upstream: Any = RealUpstream(mcp_conformance.build)
    return open_bench({"suite": upstream}, **settings)


# --- servers that hang ---


@pytest.mark.req("MCP-GW-15")
@pytest.mark.parametrize("method", ["initialize", "tools/list"])
def test_a_server_that_hangs_at_the_start_holds_up_no_other_and_its_tools_come_later(method: str) -> None:
    async def test() -> None:
        raw = RawUpstream([GOOD], **{"tools/call": TEXT})
        answer, raw.answers[method] = raw.answers[method], None
        began = asyncio.get_running_loop().time()
        seen = asyncio.Event()

        async def hear(message: Any) -> None:
            if isinstance(message, mcp_types.ToolListChangedNotification):
                seen.set()

        upstreams: dict[str, Any] = {"raw": raw, "up": make_reader()}
        async with (
            open_bench(upstreams, start_seconds=0.3) as bench,
            bench.client(modern=False, message_handler=hear) as client,
        ):
            assert text_of(await client.call_tool("up_get_status", {})) == "green"
            assert asyncio.get_running_loop().time() - began < 5
            raw.answers[method] = answer
            # The server answers what it was asked, late.
            await raw.answer_late(method)
            await seen.wait()
            assert text_of(await client.call_tool("raw_get_a", {})) == "a"

    run(test())


@pytest.mark.req("MCP-GW-15")
def test_a_server_that_hangs_later_holds_up_no_look_at_another() -> None:
    async def test() -> None:
        raw, upstream = RawUpstream([GOOD]), make_reader()
        async with open_bench({"a-raw": raw, "up": upstream}, check_seconds=0.1) as bench:
            raw.answers["tools/list"] = None
            looks = len(raw.received)
            await wait_until(lambda: len(raw.received) > looks)
            upstream.tool(define("get_more", reads=True))
            async with asyncio.timeout(5):
                await wait_until(bench.gateway.pinning.list_changes)
            assert bench.gateway.pinning.list_changes().keys() == {"up"}

    run(test())


@pytest.mark.req("MCP-GW-15")
def test_servers_that_hang_delay_a_list_of_resources_once_and_not_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "_LIST_SECONDS", 1)

    async def test() -> None:
        def serve(uri: str) -> RawUpstream:
            return RawUpstream(
                [], **{"resources/list": {"resources": [{"uri": uri, "name": uri}]}}, capabilities={"resources": {}}
            )

        upstreams = {name: serve(f"{name}:1") for name in ("a", "b", "c", "d")}
        async with open_bench(upstreams) as bench, bench.client() as client:
            for name in ("a", "b", "c"):
                upstreams[name].answers["resources/list"] = None
            began = asyncio.get_running_loop().time()
            listed = [str(each.uri) for each in (await client.list_resources()).resources]
            assert listed == ["d:1"]
            assert asyncio.get_running_loop().time() - began < 2.5

    run(test())


@pytest.mark.req("MCP-GW-15")
@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_a_list_has_one_page_and_no_cursor_of_a_client_reaches_a_server(names: tuple[str, ...]) -> None:
    def list_page(params: Wire) -> Wire:
        page = int(params.get("cursor", 0))
        return {"resources": [{"uri": f"x:{page}", "name": "x"}], **({"nextCursor": str(page + 1)} if page < 2 else {})}

    async def test() -> None:
        upstreams = {
            name: RawUpstream([GOOD], **{"resources/list": list_page}, capabilities={"resources": {}}) for name in names
        }
        async with open_bench(dict(upstreams)) as bench, bench.client() as client:
            listed = await client.list_resources()
            assert [str(each.uri) for each in listed.resources] == ["x:0", "x:1", "x:2"] * len(names)
            assert listed.next_cursor is None
            for cursor in ("1", "the password is swordfish"):
                with pytest.raises(MCPError, match="one page"):
                    await client.list_resources(cursor=cursor)
                with pytest.raises(MCPError, match="one page"):
                    await client.list_resource_templates(cursor=cursor)
            assert all("swordfish" not in str(upstream.received) for upstream in upstreams.values())

    run(test())


# --- servers that say too much ---


@pytest.mark.req("MCP-GW-15")
@pytest.mark.parametrize("size", [1_000_000, 10])
def test_pages_of_a_list_are_bounded_in_bytes_and_in_number(size: int) -> None:
    async def test() -> None:
        raw = RawUpstream([])
        raw.answers["tools/list"] = {"tools": [{**GOOD, "description": "x" * size}], "nextCursor": "again"}
        async with open_bench({"raw": raw}) as bench:
            assert "bytes" in bench.gateway.pinning.unseen["raw"] or "pages" in bench.gateway.pinning.unseen["raw"]
            pages = len([method for method, _ in raw.received if method == "tools/list"])
            assert pages <= (9 if size > 10 else 200)

    run(test())


@pytest.mark.req("MCP-GW-15")
def test_a_server_whose_tools_change_all_the_time_fills_no_ledger_and_is_looked_at_less_and_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_CHANGE_SECONDS", 0.05)

    async def test() -> None:
        def define_all(look: int) -> list[Wire]:
            return [define(f"get_{number}", reads=True, look=look) for number in range(200)]

        raw = RawUpstream(define_all(0))
        async with open_bench({"raw": raw}, check_seconds=3600.0) as bench:
            raw.received.clear()
            loop = asyncio.get_running_loop()
            began, look = loop.time(), 0
            while loop.time() - began < 2:
                look += 1
                raw.answers["tools/list"] = {"tools": define_all(look)}
                await raw.notify("notifications/tools/list_changed", {})
                await asyncio.sleep(0)
            assert len([method for method, _ in raw.received if method == "tools/list"]) <= 8
            assert len(bench.gateway.pinning.list_changes()["raw"]) == 200
            assert len(await bench.notes("definition changed")) == 20
            assert len(await bench.notes("changes too many to note")) == 1

    run(test())


@pytest.mark.req("MCP-GW-15")
def test_answers_that_no_client_took_are_kept_within_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_MAX_UNCLAIMED_BYTES", 2_500_000)

    async def test() -> None:
        release = asyncio.Event()

        async def say_much(ctx: Any, params: Wire) -> Wire:
            await release.wait()
            return {"content": [{"type": "text", "text": "x" * 1_000_000}]}

        upstream = ScriptedUpstream()
        upstream.tool(define("write_much"), say_much)
        async with open_bench({"up": upstream}) as bench:
            async with bench.client() as client:
                for number in range(5):
                    await client.call_tool("write_much", {"n": number})
            await bench.approve_all()
            await wait_until(lambda: len(upstream.calls) == 5)
            release.set()
            opened = bench.gateway._calls._open
            await wait_until(lambda: all(each.is_over for each in opened.values()))
            assert len(opened) == 2
            assert sum(each.size for each in opened.values()) <= 2_500_000
            kept = next(iter(opened.values())).request.args
            async with bench.client() as client:
                again = await client.call_tool("write_much", kept)
                assert again.meta is not None
                assert again.meta[REPEAT]

    run(test())


@pytest.mark.req("MCP-GW-09")
def test_a_read_that_was_called_off_runs_again_and_its_failure_is_no_later_answer() -> None:
    async def test() -> None:
        answered = asyncio.Event()

        async def hang_once(ctx: Any, params: Wire) -> Wire:
            if len(upstream.received) == 1:
                await asyncio.Event().wait()
            answered.set()
            return TEXT

        upstream = ScriptedUpstream()
        upstream.tool(define("get_slow", reads=True), hang_once)
        async with open_bench({"up": upstream}) as bench, bench.client(modern=False) as client:
            first = asyncio.create_task(client.call_tool("get_slow", {}))
            await upstream.reached.wait()
            first.cancel()
            await asyncio.wait({first})
            again = await client.call_tool("get_slow", {})
            assert (again.is_error, text_of(again), again.meta) == (False, "a", None)
            assert sorted(each.status for each in await bench.executions()) == ["failed", "succeeded"]

    run(test())


GARBLED = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] == "tools/call":
        print("starting to look", flush=True)
        print('{"jsonrpc":"2.0","id":%d,"result":{"content":[' % request["id"], flush=True)
        continue
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "g", "version": "1"},
        },
        "tools/list": {
            "tools": [
                {"name": "get_a", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
            ],
        },
    }
    if request["method"] in results:
        answer = {"result": results[request["method"]]}
    else:
        answer = {"error": {"code": -32601, "message": "no such method"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""


@pytest.mark.req("MCP-GW-15")
def test_an_answer_that_cannot_be_read_fails_at_once(tmp_path: Path) -> None:
    program = tmp_path / "garbled.py"
    program.write_text(GARBLED)

    async def test() -> None:
        app = build_app(Settings(store="memory:"), {})
        api = open_api(app)
        connections = Connections(McpServers({"g": StdioServer([sys.executable, str(program)])}), {})
        ledger = build_ledger(api)
        gateway = Gateway(api, ledger, connections, GatewaySettings(check_seconds=3600.0, executor=GATEWAY))
        try:
            await gateway.start()
            async with Bench(app, gateway, api).client() as client:
                began = asyncio.get_running_loop().time()
                told = await client.call_tool("get_a", {})
                assert "gave an answer that is not one of MCP" in text_of(told)
                assert asyncio.get_running_loop().time() - began < 10
        finally:
            await gateway.aclose()
            app.close()

    run(test())


# --- what clients cannot send ---


@both_eras
@pytest.mark.req("MCP-GW-04")
def test_a_number_that_cannot_be_recorded_is_refused_in_words_and_no_call_is_made(modern: bool) -> None:
    async def test() -> None:
        upstream = make_reader()
        async with open_bench({"up": upstream}) as bench, bench.client(modern=modern) as client:
            with pytest.raises(MCPError, match="the arguments cannot be recorded, so the call is not made") as refused:
                await client.call_tool("get_status", {"n": 2**53 + 1})
            assert refused.value.code == mcp_types.INVALID_PARAMS
            assert text_of(await client.call_tool("get_status", {"n": 2**53 - 1})) == "green"
            assert upstream.calls == [("get_status", {"n": 2**53 - 1})]

    run(test())


# --- what is asked and said ---


@both_eras
@pytest.mark.req("MCP-GW-18")
def test_what_a_server_asks_of_older_clients_in_the_middle_of_a_call_reaches_them(modern: bool) -> None:
    async def answer(context: Any, params: Any) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={"username": "ann", "email": "a@example.com"})

    async def sample(context: Any, params: Any) -> mcp_types.CreateMessageResult:
        said = mcp_types.TextContent(text=params.messages[0].content.text + "!")
        return mcp_types.CreateMessageResult(role="assistant", content=said, model="m")

    async def test() -> None:
        async with open_conformance() as bench:
            options = {"elicitation_callback": answer, "sampling_callback": sample}
            async with bench.client(modern=modern, **options) as client:
                elicited = await client.call_tool("test_elicitation", {"message": "who?"}) if not modern else None
                if elicited is None:
                    # The server itself says that it cannot ask clients without sessions like that.
                    with pytest.raises(MCPError):
                        await client.call_tool("test_elicitation", {"message": "who?"})
                    return
                assert "action=accept" in text_of(elicited)
                assert text_of(await client.call_tool("test_sampling", {"prompt": "hi"})) == "LLM response: hi!"
            (claim,) = await bench.notes("confirmation by the user of the host")
            assert claim["actions"] == {"elicitation": "accept"}
            assert len(await bench.notes("answer of the host to a question of the server")) == 1

    run(test())


@pytest.mark.slow
@pytest.mark.req("MCP-GW-18")
def test_questions_of_a_server_over_http_reach_the_client_of_the_call_that_they_are_about() -> None:
    async def test(url: str) -> None:
        app = build_app(Settings(store="memory:"), {})
        api = open_api(app)
        connections = Connections(McpServers({"suite": HttpServer(url)}), {})
        ledger = build_ledger(api)
        gateway = Gateway(api, ledger, connections, GatewaySettings(check_seconds=3600.0, executor=GATEWAY))
        bench = Bench(app, gateway, api)
        both_asked = asyncio.Barrier(2)

        async def use(name: str) -> str:
            async def answer(context: Any, params: Any) -> mcp_types.ElicitResult:
                assert params.message == f"who, {name}?"
                await both_asked.wait()
                return mcp_types.ElicitResult(action="accept", content={"username": name, "email": "e"})

            async with bench.client(modern=False, elicitation_callback=answer) as client:
                return text_of(await client.call_tool("test_elicitation", {"message": f"who, {name}?"}))

        try:
            await gateway.start()
            told = await asyncio.gather(use("ann"), use("bob"))
            assert ['"username": "ann"' in told[0], '"username": "bob"' in told[1]] == [True, True]
        finally:
            await gateway.aclose()
            app.close()

    port = free_port()
    command = [sys.executable, "-m", "tests.support.mcp_conformance", str(port)]
    with subprocess.Popen(command) as process:
        try:
            wait_for_port(port, process)
            run(test(f"http://127.0.0.1:{port}/mcp"))
        finally:
            process.terminate()


class Person(BaseModel):
    name: str


@pytest.mark.req("MCP-GW-18")
def test_a_tool_of_the_sdk_that_elicits_works_for_older_clients() -> None:
    def build() -> MCPServer:
        made = MCPServer("asks")

        @made.tool(annotations=mcp_types.ToolAnnotations(read_only_hint=True))
        async def get_name(ctx: McpContext) -> str:
            answer = await ctx.elicit("who?", schema=Person)
            return answer.data.name if answer.action == "accept" else answer.action

        return made

    async def answer(context: Any, params: Any) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={"name": "ann"})

    async def test() -> None:
        upstream: Any = RealUpstream(build)
        async with (
            open_bench({"up": upstream}) as bench,
            bench.client(modern=False, elicitation_callback=answer) as client,
        ):
            assert text_of(await client.call_tool("get_name", {})) == "ann"

    run(test())


@both_eras
@pytest.mark.req("MCP-GW-18")
def test_a_server_sees_a_model_behind_the_clients_that_have_one_and_behind_no_others(modern: bool) -> None:
    async def tell_model(ctx: Any, params: Wire) -> Wire:
        declared = ctx.session.client_capabilities
        return {"content": [{"type": "text", "text": str(declared.sampling is not None)}]}

    async def sample(context: Any, params: Any) -> mcp_types.ErrorData:
        raise AssertionError

    async def test() -> None:
        upstream = ScriptedUpstream()
        upstream.tool(define("get_model", reads=True), tell_model)
        async with open_bench({"up": upstream}) as bench:
            for options, told in (({"sampling_callback": sample}, "True"), ({}, "False")):
                async with bench.client(modern=modern, **options) as client:
                    assert text_of(await client.call_tool("get_model", {})) == told

    run(test())


@both_eras
@pytest.mark.req("MCP-GW-04")
def test_a_number_beyond_those_of_the_ledger_in_a_result_goes_through(modern: bool) -> None:
    async def test() -> None:
        result = {**TEXT, "structuredContent": {"n": 2**70}}
        upstream = ScriptedUpstream()

        async def tell(ctx: Any, params: Wire) -> Wire:
            return dict(result)

        upstream.tool(define("get_n", reads=True), tell)
        async with open_bench({"up": upstream}) as bench, bench.client(modern=modern) as client:
            assert (await client.call_tool("get_n", {})).structured_content == {"n": 2**70}
            assert [each.status for each in await bench.executions()] == ["succeeded"]

    run(test())


@both_eras
@pytest.mark.req("MCP-GW-18")
def test_log_messages_of_a_call_reach_the_client_that_wants_to_hear_them(modern: bool) -> None:
    async def test() -> None:
        heard: list[Any] = []

        async def hear(params: Any) -> None:
            heard.append(params.data)

        async with open_conformance() as bench:
            async with bench.client(modern=modern, logging_callback=hear, log_level="info") as client:
                await client.call_tool("test_tool_with_logging", {})
                assert len(heard) == 3
            heard.clear()
            async with bench.client(modern=modern, logging_callback=hear, log_level="error") as client:
                if not modern:
                    await send(client, "logging/setLevel", level="error")
                await client.call_tool("test_tool_with_logging", {})
                assert heard == []
            if not modern:
                async with bench.client(modern=False) as client:
                    with pytest.raises(MCPError):
                        await send(client, "logging/setLevel", level="loud")

    run(test())


@both_eras
@pytest.mark.req("MCP-GW-18", "MCP-GW-05")
def test_completions_are_calls_and_reach_the_server_with_its_own_names(modern: bool) -> None:
    async def test() -> None:
        conformance: Any = RealUpstream(mcp_conformance.build)
        async with open_bench({"suite": conformance, "up": make_reader()}) as bench:
            async with bench.client(modern=modern) as client:
                ref = mcp_types.PromptReference(name="suite_test_prompt_with_arguments")
                done = await client.complete(ref, {"name": "arg1", "value": "par"})
                assert done.completion.values == ["paris", "park", "party"]
                template = mcp_types.ResourceTemplateReference(uri=mcp_conformance.TEMPLATE)
                assert (await client.complete(template, {"name": "id", "value": "park"})).completion.values == ["park"]
            assert [each.status for each in await bench.proposals()] == ["committed", "committed"]

    run(test())


@both_eras
@pytest.mark.req("MCP-GW-18")
def test_a_change_of_a_resource_reaches_those_who_subscribed_and_may_read_it(modern: bool) -> None:
    async def test() -> None:
        updated: list[str] = []
        servers: list[Server[Any]] = []

        def build() -> Server[Any]:
            made = mcp_conformance.build()
            servers.append(made)
            return made

        async def hear(message: Any) -> None:
            if isinstance(message, mcp_types.ResourceUpdatedNotification):
                updated.append(str(message.params.uri))

        conformance: Any = RealUpstream(build)
        async with open_bench({"suite": conformance}) as bench:
            async with bench.client(modern=modern, message_handler=hear) as client:
                if modern:
                    uris = [mcp_conformance.WATCHED, "test://none"]
                    async with client.listen(resource_subscriptions=uris) as said:
                        assert said.honored.resource_subscriptions == [mcp_conformance.WATCHED]
                        await mcp_conformance.announce(mcp_conformance.WATCHED)
                        assert (await anext(said)).uri == mcp_conformance.WATCHED  # type: ignore[union-attr]
                else:
                    await send(client, "resources/subscribe", uri=mcp_conformance.WATCHED)
                    await wait_until(lambda: updated == [mcp_conformance.WATCHED])
                    with pytest.raises(MCPError):
                        await send(client, "resources/subscribe", uri="test://none")
                    await send(client, "resources/unsubscribe", uri=mcp_conformance.WATCHED)
            assert await bench.proposals()
            await wait_until(lambda: not bench.gateway._subscriptions.watches._watches)

    run(test())


@both_eras
@pytest.mark.req("MCP-GW-19")
def test_clients_hear_of_what_an_operator_accepted(modern: bool) -> None:
    async def test() -> None:
        heard = asyncio.Event()

        async def hear(message: Any) -> None:
            if isinstance(message, mcp_types.ToolListChangedNotification):
                heard.set()

        upstream = make_reader()
        async with open_bench({"up": upstream}) as bench, bench.client(modern=modern, message_handler=hear) as client:
            assert client.server_capabilities.tools is not None
            assert client.server_capabilities.tools.list_changed
            assert client.server_capabilities.prompts is None
            await client.list_tools()
            upstream.tool(define("get_more", reads=True))
            await bench.gateway.pinning.accept("up", "get_more")
            if modern:
                async with client.listen(tools_list_changed=True) as said:
                    await bench.gateway.pinning.check("up")
                    await anext(said)
            else:
                await bench.gateway.pinning.check("up")
                await heard.wait()
            assert len((await client.list_tools()).tools) == 2

    run(test())


@pytest.mark.req("MCP-GW-19")
def test_a_server_without_sessions_is_looked_at_when_it_says_that_its_tools_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_CHANGE_SECONDS", 0.05)

    async def test() -> None:
        async with open_conformance() as bench:
            new: Any = ({}, mcp_conformance.answering(mcp_conformance.text("new")))
            monkeypatch.setitem(mcp_conformance.TOOLS, "get_new", new)
            await mcp_conformance.announce()
            await wait_until(bench.gateway.pinning.list_changes)
            assert [each.name for each in bench.gateway.pinning.list_changes()["suite"]] == ["get_new"]

    run(test())


@pytest.mark.req("MCP-GW-15")
def test_a_server_that_says_all_the_time_that_its_resources_changed_is_passed_on_now_and_then() -> None:
    async def test() -> None:
        heard: list[Any] = []

        async def hear(message: Any) -> None:
            if isinstance(message, mcp_types.ResourceListChangedNotification):
                heard.append(message)

        raw = RawUpstream([GOOD])
        async with open_bench({"raw": raw}) as bench, bench.client(modern=False, message_handler=hear) as client:
            await client.list_tools()
            for _ in range(500):
                await raw.notify("notifications/resources/list_changed", {})
            await wait_until(lambda: heard and not bench.gateway._clients._announcing)
            await client.list_tools()
            assert len(heard) < 50

    run(test())


@pytest.mark.req("MCP-GW-15")
def test_connections_that_are_not_used_are_closed_but_for_one_to_each_server() -> None:
    async def test() -> None:
        async with open_bench({"up": make_reader()}) as bench:
            connections = bench.gateway._connections
            async with bench.client(modern=False) as client:
                assert text_of(await client.call_tool("get_status", {})) == "green"
            assert len(connections._open) == 2
            connections.close_idle(3600)
            assert len(connections._open) == 2
            connections.close_idle(0)
            assert len(connections._open) == 1
            async with bench.client(modern=False) as client:
                assert text_of(await client.call_tool("get_status", {})) == "green"

    run(test())


@pytest.mark.req("MCP-GW-16")
def test_a_tool_that_is_accepted_as_a_writer_asks_and_a_read_that_is_accepted_later_runs() -> None:
    async def test() -> None:
        upstream = make_reader()
        app = build_app(Settings(store="memory:"), {})
        async with open_bench({"up": upstream}, app=app) as bench, bench.client() as client:
            assert text_of(await client.call_tool("get_status", {})) == "green"
            upstream.tool(define("get_status"), answer_text("wiped"))
            upstream.tool(define("get_more", reads=True), answer_text("more"))
            upstream.tool(define("d\u0435lete_x", reads=True), answer_text("gone"))
            for name in ("get_status", "get_more", "d\u0435lete_x"):
                assert await bench.gateway.pinning.accept("up", name)
            await bench.gateway.pinning.check("up")
            assert "has to approve" in text_of(await client.call_tool("get_status", {}))
            assert "has to approve" in text_of(await client.call_tool("d\u0435lete_x", {}))
            assert text_of(await client.call_tool("get_more", {})) == "more"
        app.close()

    run(test())
