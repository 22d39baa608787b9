"""What an MCP client gets without a call of a tool: notifications of changes, messages for its log, completion."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import mcp_types
import pytest
from mcp import MCPError

from cmbs.adapters.sre.webshop import closed_kit
from cmbs.client import AsyncClient
from cmbs.kit.writing import format_kit
from tests.support.bounded import run
from tests.support.mcp_belief import Wire, call, served

KIT = format_kit(closed_kit(), "kit.json")
ONTOLOGY = {
    "hypothesis_space_id": "s",
    "hypothesis_version": "1",
    "causal_graph_ref": "none:",
    "causal_graph_version": "1",
}


async def declare(operator: AsyncClient, *hypotheses: str) -> str:
    return (await operator.declare_session(hypotheses=hypotheses, ontology=ONTOLOGY)).session_id


@pytest.mark.req("MCP-SERVER-15")
def test_a_stream_of_the_new_era_tells_of_each_change_of_the_sessions_that_it_names() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            watched, other = await declare(operator, "a", "b"), await declare(operator, "a", "b")
            uri = f"cmbs://sessions/{watched}"
            async with client.listen(resource_subscriptions=[uri, "cmbs://sessions/none", "cmbs://kits"]) as stream:
                # What there is not, and what does not change, is not promised.
                assert stream.honored.resource_subscriptions == [uri]
                await operator.eliminate(other, "o", ["a"], observation_id="1")
                await operator.eliminate(watched, "o", ["a"], observation_id="1")
                event: Any = await anext(aiter(stream))
                assert event.uri == uri
                await operator.eliminate(watched, "o", ["b"], observation_id="2")
                assert (await anext(aiter(stream))).uri == uri  # type: ignore[union-attr]

    run(test())


@pytest.mark.req("MCP-SERVER-15")
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_connection_of_the_handshake_era_subscribes_and_unsubscribes() -> None:
    async def test() -> None:
        told: asyncio.Queue[str] = asyncio.Queue()

        async def note(message: Any) -> None:
            if isinstance(message, mcp_types.ResourceUpdatedNotification):
                await told.put(str(message.params.uri))

        async with served(modern=False, message_handler=note) as (client, operator):
            first, second = await declare(operator, "a", "b"), await declare(operator, "a", "b")
            for session_id in (first, second, second):
                await client.subscribe_resource(f"cmbs://sessions/{session_id}")
            await operator.eliminate(first, "o", ["a"], observation_id="1")
            assert await told.get() == f"cmbs://sessions/{first}"
            await client.unsubscribe_resource(f"cmbs://sessions/{first}")
            await client.unsubscribe_resource(f"cmbs://sessions/{first}")
            await operator.eliminate(first, "o", ["b"], observation_id="2")
            await operator.eliminate(second, "o", ["a"], observation_id="1")
            assert await told.get() == f"cmbs://sessions/{second}"
            assert told.empty()
            # Again, at once: what ends then is the subscription before, and not this one.
            uri = f"cmbs://sessions/{second}"
            for _ in range(2):
                await client.unsubscribe_resource(uri)
                await client.subscribe_resource(uri)
            await operator.eliminate(second, "o", ["b"], observation_id="2")
            assert await told.get() == uri
            await client.unsubscribe_resource(uri)
            await operator.enter_obligation(second, "more", 1)
            await client.subscribe_resource(uri)
            await operator.enter_obligation(second, "even more", 1)
            assert await told.get() == uri
            assert told.empty()
            for uri in ("cmbs://sessions/none", "cmbs://kits"):
                with pytest.raises(MCPError):
                    await client.subscribe_resource(uri)

    run(test())


@pytest.mark.req("MCP-SERVER-15")
def test_one_client_subscribes_to_so_many_sessions_and_no_more() -> None:
    async def test() -> None:
        async with served() as (client, _):
            uris = [f"cmbs://sessions/{number}" for number in range(51)]
            with pytest.raises(MCPError, match="50 sessions"):
                async with client.listen(resource_subscriptions=uris):
                    pass

    run(test())


@pytest.mark.req("MCP-SERVER-15")
def test_all_clients_together_watch_so_many_sessions_and_no_more_until_one_goes() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            uris = [f"cmbs://sessions/{await declare(operator, 'a')}" for _ in range(50)]
            async with AsyncExitStack() as stack:
                for _ in range(3):
                    await stack.enter_async_context(client.listen(resource_subscriptions=uris))
                async with client.listen(resource_subscriptions=uris):
                    with pytest.raises(MCPError, match="watches 200 sessions"):
                        async with client.listen(resource_subscriptions=uris[:1]):
                            pass
                async with client.listen(resource_subscriptions=uris) as stream:
                    assert len(stream.honored.resource_subscriptions or ()) == 50

    run(test())


class Log:
    def __init__(self) -> None:
        self.messages: list[mcp_types.LoggingMessageNotificationParams] = []

    async def __call__(self, message: mcp_types.LoggingMessageNotificationParams) -> None:
        self.messages.append(message)

    def take(self) -> list[tuple[str, str]]:
        taken: list[tuple[str, str]] = [(each.level, each.data["tool"]) for each in self.messages]
        self.messages.clear()
        return taken


async def use_tools(client: Any) -> None:
    """A read, a write, a failure, and what leaves nothing."""
    opened = await call(client, "open_case", hypotheses=["a"])
    session_id = opened["handles"]["session_id"]
    await call(client, "read_belief", session_id=session_id)
    assert (await client.call_tool("read_belief", {"session_id": "none"})).is_error
    args: Wire = {"session_id": session_id, "hypotheses": ["a"], "observation_id": "o", "because": "seen"}
    await call(client, "rule_out", **args)


ALL = [("info", "open_case"), ("debug", "read_belief"), ("warning", "read_belief"), ("warning", "rule_out")]


@pytest.mark.req("MCP-SERVER-16")
@pytest.mark.parametrize(("level", "first"), [("debug", 0), ("warning", 2), ("error", 4), (None, 4)])
def test_a_request_of_the_new_era_has_the_messages_that_it_asks_for(level: Any, first: int) -> None:
    async def test() -> None:
        log = Log()
        async with served(logging_callback=log, log_level=level) as (client, _):
            await use_tools(client)
            assert log.take() == ALL[first:]

    run(test())


@pytest.mark.req("MCP-SERVER-16")
@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
def test_a_connection_of_the_handshake_era_has_messages_from_the_level_that_it_set() -> None:
    async def test() -> None:
        log = Log()
        async with served(modern=False, logging_callback=log) as (client, _):
            await use_tools(client)
            assert log.take() == ALL[2:]
            await client.set_logging_level("debug")
            await use_tools(client)
            (failed,) = [each for each in log.messages if "failure" in each.data]
            assert failed.data["failure"].startswith("SESSION_NOT_FOUND")
            assert log.take() == ALL
            await client.set_logging_level("emergency")
            await use_tools(client)
            assert log.take() == []

    run(test())


@pytest.mark.req("MCP-SERVER-17")
@pytest.mark.parametrize("modern", [True, False])
def test_ids_of_what_there_is_complete_the_arguments_of_prompts_and_uris(modern: bool) -> None:
    async def test() -> None:
        async with served(modern=modern) as (client, operator):
            await operator.put_kit(KIT, media_type="application/json")
            kit = closed_kit()
            session_id = (await call(client, "open_case", kit_id=kit.kit_id))["handles"]["session_id"]
            listed = await declare(operator, "disk-full", "disk-slow", "memory")
            await operator.eliminate(listed, "o", ["disk-slow"], observation_id="1")
            await operator.create_space("ops")
            for tool_id in ("restart", "rollback"):
                await operator.register_tool("ops", tool_id, "caller", {"type": "object"})

            async def complete(where: str, name: str, typed: str, **known: str) -> list[str]:
                uri = "cmbs://" in where
                ref = mcp_types.ResourceTemplateReference(uri=where) if uri else mcp_types.PromptReference(name=where)
                found = await client.complete(ref, {"name": name, "value": typed}, known)
                assert found.completion.has_more is False
                return list(found.completion.values)

            templates = {
                each.name: each.uri_template for each in (await client.list_resource_templates()).resource_templates
            }
            assert set(await complete("resume", "session_id", "")) == {session_id, listed}
            assert await complete(templates["session"], "session_id", session_id[:9]) == [session_id]
            assert await complete("investigate", "kit_id", kit.kit_id[:3].upper()) == [kit.kit_id]
            assert await complete("act", "space_id", "o") == ["ops"]
            assert await complete("act", "tool_id", "re", space_id="ops") == ["restart"]
            assert await complete("act", "tool_id", "re") == []
            probes = await complete("probe", "probe_id", "", session_id=session_id)
            (page,) = [await call(client, "next_probes", session_id=session_id, limit=200, max_tokens=100_000)]
            assert probes == [each["probe_id"] for each in page["probes"]][:100]
            membership, proof = templates["membership proof"], templates["proof"]
            assert await complete(membership, "hypothesis_id", "disk", session_id=listed) == ["disk-full"]
            assert await complete(proof, "hypothesis_id", "disk", session_id=listed) == ["disk-slow"]
            assert await complete("investigate", "question", "wh") == []
            for where in ("nothing", "cmbs://nothing"):
                with pytest.raises(MCPError, match="there is no"):
                    await complete(where, "session_id", "")

    run(test())


@pytest.mark.req("MCP-SERVER-17")
def test_a_completion_is_cut_where_there_are_too_many_and_says_so() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            short = await declare(operator, *(f"h-{number:03}" for number in range(150)))
            long = await declare(operator, *(f"h-{'x' * 900}-{number:03}" for number in range(90)))
            for session_id, most in ((short, 100), (long, 20)):
                ref = mcp_types.ResourceTemplateReference(
                    uri="cmbs://sessions/{session_id}/proofs/membership/{hypothesis_id}{?max_tokens}"
                )
                found = await client.complete(ref, {"name": "hypothesis_id", "value": ""}, {"session_id": session_id})
                assert 10 <= len(found.completion.values) <= most
                assert found.completion.has_more

    run(test())


@pytest.mark.req("MCP-SERVER-15", "MCP-SERVER-16")
@pytest.mark.parametrize("modern", [True, False])
def test_a_server_on_standard_streams_says_what_it_can(modern: bool) -> None:
    async def test() -> None:
        async with served(modern=modern) as (client, _):
            can = client.server_capabilities
            assert can is not None
            assert (can.logging is not None, can.completions is not None) == (True, True)
            assert can.resources is not None
            assert can.resources.subscribe is True

    run(test())
