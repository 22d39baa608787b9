"""The MCP server: cases, actions, resources, prompts, and what every tool promises."""

import json

import jsonschema_rs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp.client._memory import InMemoryTransport

from cmbs.adapters.sre.webshop import closed_kit
from cmbs.cli.demo import CAUSE
from cmbs.kit.provider import KitProvider
from cmbs.kit.writing import format_kit
from cmbs.mcp.asking import open_api
from cmbs.mcp.server.answers import fit
from cmbs.mcp.server.serving import TOOLS, McpServer
from tests.support.bounded import run
from tests.support.http_server import free_port
from tests.support.mcp_belief import AGENT, MAX_BYTES, Wire, call, refuse, served
from tests.support.mcp_upstream import text_of

KIT = format_kit(closed_kit(), "kit.json")


class World:
    """What an agent finds when it looks: never what would rule out the real cause."""

    def __init__(self) -> None:
        self._provider = KitProvider(closed_kit())
        self.looks: list[str] = []

    def look(self, probe: Wire) -> str:
        self.looks.append(probe["probe_id"])
        for answer in probe["answers"]:
            verdicts = self._provider.apply_probe(probe["probe_id"], answer["outcome_id"])
            if not verdicts.get(CAUSE, False):
                return str(answer["outcome_id"])
        raise AssertionError(probe)


async def investigate(client: Client, session_id: str, world: World, looks: int | None = None) -> Wire:
    """A scripted agent: asks the best probe, looks, and submits what it saw, until it is done or has looked enough."""
    while True:
        page = await call(client, "next_probes", session_id=session_id)
        if page["n_survivors"] == 1 or not page["probes"] or len(world.looks) == looks:
            return page
        probe = page["probes"][0]
        await call(client, "observe", session_id=session_id, probe_id=probe["probe_id"], response=world.look(probe))


@pytest.mark.req("MCP-SERVER-01", "MCP-SERVER-02")
@pytest.mark.parametrize("modern", [True, False])
def test_an_agent_solves_the_incident_of_the_demo_through_mcp_alone(modern: bool) -> None:
    async def test() -> None:
        async with served(modern=modern) as (client, operator):
            await operator.put_kit(KIT, media_type="application/json")
            opened = await call(client, "open_case", kit_id=closed_kit().kit_id, about="the shop is slow")
            session_id = opened["handles"]["session_id"]
            (listed,) = (await operator.list_sessions()).sessions
            assert (listed.session_id, listed.title) == (session_id, "the shop is slow")
            await operator.enter_obligation(session_id, "look", 5)
            early = await call(client, "conclude", session_id=session_id, hypothesis_id=CAUSE)
            assert (early["accepted"], bool(early["next"])) == (False, True)
            told = await call(client, "obligations", session_id=session_id)
            assert told["handles"]["active_obligation_ids"] == ["look"]
            refused = await call(client, "leave_obligation", session_id=session_id, obligation_id="look")
            assert refused["accepted"] is False
            world = World()
            await investigate(client, session_id, world)
            assert len(world.looks) == len(set(world.looks))
            belief = await call(client, "read_belief", session_id=session_id)
            assert belief["survivors"] == [CAUSE]
            assert (await call(client, "leave_obligation", session_id=session_id, obligation_id="look"))["accepted"]
            done = await call(client, "conclude", session_id=session_id, hypothesis_id=CAUSE, end=True)
            assert (done["accepted"], done["ended"]) == (True, True)

    run(test())


@pytest.mark.req("MCP-SERVER-02")
def test_an_agent_whose_memory_is_wiped_goes_on_without_looking_at_anything_twice() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            await operator.put_kit(KIT, media_type="application/json")
            first = (await call(client, "open_case", kit_id=closed_kit().kit_id))["handles"]["session_id"]
            world = World()
            await investigate(client, first, world, looks=2)
            seen = list(world.looks)
            # All that is left is the server.
            prompt = await client.get_prompt("resume", {})
            assert "find_sessions" in prompt.messages[0].content.text  # type: ignore[union-attr]
            found = (await call(client, "find_sessions"))["sessions"][0]["session_id"]
            assert found == first
            page = await call(client, "next_probes", session_id=found)
            assert [each["probe_id"] for each in page["asked"]] == seen[::-1]
            await investigate(client, found, world)
            assert len(world.looks) == len(set(world.looks))
            assert (await call(client, "read_belief", session_id=found))["survivors"] == [CAUSE]
            gone = "card-provider-throttling"
            why = await call(client, "why_ruled_out", session_id=found, hypothesis_id=gone)
            assert (why["ruled_out"], why["by"]["source_id"]) == (True, "observer")
            proof = json.loads((await client.read_resource(why["handles"]["proof"])).contents[0].text)  # type: ignore[union-attr]
            assert (proof["kind"], proof["hypothesis_id"]) == ("elimination", gone)
            alive = await call(client, "why_ruled_out", session_id=found, hypothesis_id=CAUSE)
            assert alive["ruled_out"] is False

    run(test())


@pytest.mark.req("MCP-SERVER-03")
def test_a_probe_that_was_asked_before_is_answered_with_what_is_known() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            await operator.put_kit(KIT, media_type="application/json")
            session_id = (await call(client, "open_case", kit_id=closed_kit().kit_id))["handles"]["session_id"]
            probe = (await call(client, "next_probes", session_id=session_id, limit=1))["probes"][0]
            world = World()
            saw = world.look(probe)
            other = next(each["outcome_id"] for each in probe["answers"] if each["outcome_id"] != saw)
            args = {"session_id": session_id, "probe_id": probe["probe_id"]}
            first = await call(client, "observe", **args, response=saw)
            again = await call(client, "observe", **args, response=saw)
            assert (again["repeated"], again["n_survivors"]) == (True, first["n_survivors"])
            contrary = await call(client, "observe", **args, response=other)
            assert (contrary["repeated"], contrary["ruled_out"]) == (True, [])
            assert contrary["seen_before"][0]["response"] == saw
            assert "observation_id" in contrary["note"]

    run(test())


@pytest.mark.req("MCP-SERVER-04")
def test_every_tool_has_annotations_schemas_and_a_bounded_definition() -> None:
    async def test() -> None:
        async with served() as (client, _):
            listed = (await client.list_tools()).tools
            assert [each.name for each in listed] == list(TOOLS)
            for tool in listed:
                assert tool.annotations is not None
                assert tool.annotations.destructive_hint is False
                assert tool.annotations.read_only_hint is TOOLS[tool.name].reads
                for schema in (tool.input_schema, tool.output_schema):
                    assert schema is not None
                    assert schema["type"] == "object"
                    jsonschema_rs.Draft202012Validator(schema)
            assert (await client.call_tool("whoami", {})).structured_content == {
                "kind": "agent",
                "id": "scout",
                "authenticated": False,
                "roles": [],
                "scopes": (await call(client, "whoami"))["scopes"],
                "handles": {},
            }
            assert {each.name for each in (await client.list_prompts()).prompts} == {
                "investigate",
                "probe",
                "resume",
                "act",
            }
            assert len((await client.list_resource_templates()).resource_templates) == 7

    run(test())


@pytest.mark.req("MCP-SERVER-05")
def test_bad_arguments_and_unknown_things_are_errors_that_the_model_sees() -> None:
    async def test() -> None:
        async with served() as (client, _):
            for name, args, told in (
                ("read_belief", {}, "session_id"),
                ("read_belief", {"session_id": "none"}, "SESSION_NOT_FOUND"),
                ("read_belief", {"session_id": "s", "limit": 10_000}, "<= 1000"),
                ("open_case", {}, "a kit or with hypotheses"),
                ("propose_action", {"space_id": "none", "tool_id": "t"}, "SPACE_NOT_FOUND"),
                ("no_such_tool", {}, "there is no tool"),
            ):
                result = await client.call_tool(name, args)
                assert result.is_error
                assert told in result.content[0].text  # type: ignore[union-attr]
            for uri in ("cmbs://sessions/none", "cmbs://nothing", "other://kits"):
                with pytest.raises(MCPError, match="NOT_FOUND"):
                    await client.read_resource(uri)
            with pytest.raises(MCPError, match="there is no prompt"):
                await client.get_prompt("none", {})

    run(test())


@pytest.mark.req("MCP-SERVER-05")
def test_a_cmbs_server_that_is_away_is_an_error_that_the_model_sees() -> None:
    async def test() -> None:
        async with (
            open_api(f"http://127.0.0.1:{free_port()}") as api,
            Client(InMemoryTransport(McpServer(api, AGENT).build()), cache=None) as client,
        ):
            told, beside = await refuse(client, "read_belief", session_id="s")
            assert "the cmbs server gave no answer" in told
            assert beside["next"]["tool"] == "find_sessions"
            with pytest.raises(MCPError, match="gave no answer"):
                await client.list_resources()

    run(test())


@pytest.mark.req("MCP-SERVER-06")
def test_an_action_is_proposed_waited_for_reported_and_withdrawn_and_never_approved_over_mcp() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            session = await call(client, "open_case", hypotheses=["a", "b"], about="which")
            session_id = session["handles"]["session_id"]
            policy: Wire = {
                "format": 2,
                "rules": [
                    {"name": "known", "allow": "restart", "when": "case.belief.n_survivors == 1", "otherwise": "ask"}
                ],
            }
            await operator.create_space("ops", policy_file=policy)
            await operator.register_tool("ops", "restart", "caller", {"type": "object"})
            await operator.issue_capability("ops", "t", "scout", ["restart"])
            await operator.name_case(session_id, name="INC")
            await operator.open_case("ops", "INC", agents=["scout"])
            asked = await call(client, "propose_action", space_id="ops", tool_id="restart", case_id="INC")
            assert (asked["status"], asked["waits_for"]["kind"]) == ("waiting", "approval")
            assert "Then you claim it and run it" in asked["message"]
            assert "approve" not in TOOLS
            pending = (await call(client, "read_approvals", space_id="ops"))["approvals"]
            assert [each["approval_id"] for each in pending] == asked["handles"]["approval_ids"]
            call_id = asked["handles"]["call_id"]
            gone = await call(client, "withdraw_action", space_id="ops", call_id=call_id, because="look first")
            assert gone["status"] == "withdrawn"
            ruled = await call(
                client, "rule_out", session_id=session_id, hypotheses=["a"], observation_id="saw", because="it is up"
            )
            assert ruled["survivors"] == ["b"]
            allowed = await call(client, "propose_action", space_id="ops", tool_id="restart", case_id="INC")
            assert (allowed["status"], allowed["next"]["tool"]) == ("waiting", "begin_action")
            begun = await call(client, "begin_action", **allowed["next"]["arguments"])
            assert (begun["status"], begun["next"]["tool"]) == ("running", "report_action")
            done = await call(client, "report_action", **begun["next"]["arguments"], result={"up": True})
            assert (done["status"], done["result"]) == ("done", {"up": True})
            waited = await call(client, "wait_for_action", **allowed["next"]["arguments"], seconds=1)
            assert (waited["status"], waited["result"]) == ("done", {"up": True})

    run(test())


@pytest.mark.req("MCP-SERVER-05")
def test_an_error_is_cut_as_an_answer_is() -> None:
    async def test() -> None:
        async with served() as (client, _):
            result = await client.call_tool("x" * 100_000, {})
            assert result.is_error
            assert len(text_of(result)) < MAX_BYTES

    run(test())


JSON = st.recursive(
    st.integers() | st.text(max_size=2_000),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=2_000), inner, max_size=20),
    max_leaves=40,
)


@pytest.mark.slow
@pytest.mark.req("MCP-SERVER-04")
@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e", "f", "g"]), JSON))
@example(dict.fromkeys("abcdefg", "症" * 5000))
@example({"a": {"k" * 20_000: 1}, "b": [["x" * 30] * 2_000]})
def test_any_answer_can_be_made_to_fit_with_its_types_and_says_what_is_missing(answer: Wire) -> None:
    handles = {"handles": {"session_id": "s" * 500}}
    fitted = fit({**answer, **handles})
    assert len(json.dumps(fitted, ensure_ascii=False, separators=(",", ":")).encode()) <= MAX_BYTES
    assert fitted.items() >= handles.items()
    assert {name: type(fitted[name]) for name in answer} == {name: type(value) for name, value in answer.items()}
    for name, value in answer.items():
        if isinstance(value, list | dict):
            assert len(fitted[name]) + fitted.get("left_out", {}).get(name, 0) == len(value)
    assert fit(fitted) == fitted
