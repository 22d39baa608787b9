"""Tools of the MCP server by themselves: finding tools of a space, the last survivor, refused conclusions, repeats."""

from typing import Any

import pytest
from mcp import Client
from mcp.client._memory import InMemoryTransport

from cmbs.adapters.sre.webshop import closed_kit
from cmbs.bootstrap import Settings, build_app
from cmbs.client import AsyncClient
from cmbs.identity.kernel.scopes import Role
from cmbs.kit.writing import format_kit
from cmbs.mcp.asking import identify_caller, open_api
from cmbs.mcp.server.prompts import fill_prompt
from cmbs.mcp.server.serving import McpServer
from tests.support.bounded import run
from tests.support.mcp_belief import OPERATOR, Wire, call, follow, refuse, served

KIT = format_kit(closed_kit(), "kit.json")
SCHEMA: Wire = {"type": "object", "properties": {"pod": {"type": "string"}}, "required": ["pod"]}
POLICY: Wire = {
    "format": 2,
    "rules": [
        {"name": "look", "allow": "look"},
        {"name": "restart", "allow": "restart", "when": "args.pod == 'a'", "otherwise": "ask"},
        {"name": "known", "allow": "fix", "when": "case.belief.n_survivors == 1", "otherwise": "ask"},
        {"name": "never", "deny": "drop"},
    ],
}


async def open_case(client: Client, *hypotheses: str) -> str:
    return str((await call(client, "open_case", hypotheses=list(hypotheses)))["handles"]["session_id"])


async def rule_out(client: Client, session_id: str, *hypotheses: str) -> Wire:
    name = "saw-" + "-".join(hypotheses)
    args: Wire = {"session_id": session_id, "hypotheses": list(hypotheses), "observation_id": name, "because": "seen"}
    return await call(client, "rule_out", **args)


async def prepare_space(operator: AsyncClient) -> None:
    await operator.create_space("ops", policy_file=POLICY)
    schemas: Wire = {"look": {"type": "object"}, "restart": SCHEMA, "fix": SCHEMA, "drop": SCHEMA}
    for tool_id, schema in schemas.items():
        await operator.register_tool("ops", tool_id, "caller", schema, description=f"Does {tool_id}.")
    await operator.register_tool("ops", "old", "caller", {"type": "object"})
    await operator.retire_tool("ops", "old")
    await operator.issue_capability("ops", "t", "scout", ["look", "restart", "fix", "drop"])


@pytest.mark.req("MCP-SERVER-10")
def test_the_tools_of_a_space_are_found_with_their_schema_and_whether_they_ask_now() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            await prepare_space(operator)
            (space,) = (await call(client, "find_spaces"))["spaces"]
            assert space == {"space_id": "ops"}
            found = {each["tool_id"]: each for each in (await call(client, "find_tools", space_id="ops"))["tools"]}
            assert {name: each["asks"] for name, each in found.items()} == {
                "look": "no",
                "restart": "depends",
                "fix": "depends",
                "drop": "depends",
            }
            assert (found["restart"]["args_schema"], found["look"]["description"]) == (SCHEMA, "Does look.")
            session_id = await open_case(client, "a", "b")
            await operator.name_case(session_id, name="INC")
            await operator.open_case("ops", "INC", agents=["scout"])

            async def asks(tool_id: str, pod: str, **more: str) -> str:
                args = found[tool_id]["next"]["arguments"] | {"args": {"pod": pod}, **more}
                (tool,) = (await call(client, "find_tools", **args))["tools"]
                assert bool(tool.get("why")) == (tool["asks"] != "no")
                return str(tool["asks"])

            assert [await asks("restart", pod) for pod in "ab"] == ["no", "yes"]
            assert (await asks("fix", "a"), await asks("drop", "a")) == ("depends", "denied")
            elsewhere = await open_case(client, "x", "y")
            assert [await asks("fix", "a", case_id=each) for each in ("INC", elsewhere)] == ["yes", "denied"]
            await rule_out(client, session_id, "a")
            assert await asks("fix", "a", case_id="INC") == "no"
            # Nothing of it is recorded.
            assert (await operator.list_proposals("ops")).proposals == []
            # A proposal comes to what was said.
            kinds = {"no": "executor", "yes": "approval", "denied": None}
            for tool_id, pod in (("restart", "a"), ("restart", "b"), ("drop", "a")):
                asked = await asks(tool_id, pod)
                made = await call(client, "propose_action", space_id="ops", tool_id=tool_id, args={"pod": pod})
                assert (made["waits_for"] or {}).get("kind") == kinds[asked]
            # Observe mode stops no call.
            await operator.set_space_mode("ops", "observe")
            await operator.acting_as(identify_caller("operator:second")).set_space_mode("ops", "observe")
            assert await asks("drop", "a") == "no"

    run(test())


@pytest.mark.req("MCP-SERVER-12")
def test_a_key_that_may_not_propose_finds_tools_that_deny_its_calls() -> None:
    async def test() -> None:
        app = build_app(Settings(store="memory:"), {})
        api = open_api(app)
        try:
            await prepare_space(api.acting_as(OPERATOR))
            key = app.service.gate._registry.create(None, "watcher", roles=[Role.READER]).text
            server = McpServer(api, identify_caller("", key)).build()
            async with Client(InMemoryTransport(server), cache=None) as client:
                tools = (await call(client, "find_tools", space_id="ops"))["tools"]
                assert {each["asks"] for each in tools} == {"denied"}
                told, beside = await refuse(client, "open_case", hypotheses=["a"])
                assert "lacks the scope `belief:write`" in told
                assert beside["next"]["tool"] == "whoami"
        finally:
            app.close()

    run(test())


@pytest.mark.req("MCP-SERVER-05")
def test_a_case_that_cannot_be_opened_in_a_space_leaves_no_session_or_one_that_the_answer_names() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            await prepare_space(operator)
            for args in ({"space_id": "none"}, {"symptoms": ["x"]}):
                await refuse(client, "open_case", hypotheses=["a"], **args)
            assert (await operator.list_sessions()).sessions == []
            opened = await call(client, "open_case", hypotheses=["a"], space_id="ops")
            assert "no case in `ops`" in opened["warning"]
            named = {"hypotheses": ["a"], "name": "INC-1"}
            assert not (await client.call_tool("open_case", named)).is_error
            assert (await call(client, "read_belief", session_id="INC-1"))["n_survivors"] == 1
            assert (await client.call_tool("open_case", named)).is_error
            listed = {each.session_id for each in (await operator.list_sessions()).sessions}
            assert opened["handles"]["session_id"] in listed
            wrong = await call(client, "propose_action", space_id="ops", tool_id="restart", args={"pod": 3})
            assert (wrong["status"], wrong["next"]["tool"]) == ("denied", "find_tools")
            await follow(client, wrong["next"])

    run(test())


@pytest.mark.req("MCP-SERVER-13")
def test_the_answer_that_rules_out_the_last_survivor_warns_and_names_the_tool_that_explains_it() -> None:
    async def test() -> None:
        async with served() as (client, _):
            session_id = await open_case(client, "a", "b")
            first = await rule_out(client, session_id, "a")
            assert "warning" not in first
            last = await rule_out(client, session_id, "b")
            assert (last["n_survivors"], last["next"]["tool"]) == (0, "contradiction")
            assert "at least one observation is wrong" in last["warning"]
            told = await follow(client, last["next"])
            assert (told["contradiction"], told["n_alone"]) == (True, 2)
            assert {each["observation_id"] for each in told["look_again"]} == {"saw-a", "saw-b"}
            later = await call(client, "read_belief", session_id=session_id)
            assert (later["warning"], later["next"]) == (last["warning"], last["next"])
            refused = await call(client, "conclude", session_id=session_id, hypothesis_id="b", end=True)
            assert (refused["accepted"], refused["next"]["tool"]) == (False, "contradiction")

    run(test())


@pytest.mark.req("MCP-SERVER-14")
@pytest.mark.parametrize("with_kit", [True, False])
def test_what_was_ruled_out_or_is_unknown_is_not_concluded_and_the_refusal_says_what_to_do(with_kit: bool) -> None:
    async def test() -> None:
        async with served() as (client, operator):
            await operator.put_kit(KIT, media_type="application/json")
            if with_kit:
                opened = await call(client, "open_case", kit_id=closed_kit().kit_id)
                session_id = opened["handles"]["session_id"]
                probe = (await call(client, "next_probes", session_id=session_id))["probes"][0]
                args = {"probe_id": probe["probe_id"], "response": probe["answers"][0]["outcome_id"]}
                gone = (await call(client, "observe", session_id=session_id, **args))["ruled_out"][0]
            else:
                session_id, gone = await open_case(client, "a", "b", "c"), "a"
                await rule_out(client, session_id, gone)
            left: list[str] = []
            for hypothesis_id, why in ((gone, "was eliminated"), ("made-up", "is no hypothesis")):
                refused = await call(client, "conclude", session_id=session_id, hypothesis_id=hypothesis_id, end=True)
                assert (refused["accepted"], refused["ended"]) == (False, False)
                assert why in refused["reason"]
                left = (await follow(client, refused["next"]))["survivors"]
                assert hypothesis_id not in left
            early = await call(client, "conclude", session_id=session_id, hypothesis_id=left[0])
            assert (early["accepted"], "the only survivor" in early["reason"]) == (False, True)

    run(test())


@pytest.mark.req("MCP-SERVER-12")
def test_a_refusal_names_what_is_missing_and_the_call_that_is_next() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            session_id = await open_case(client, "a", "b", "c")
            await operator.enter_obligation(session_id, "look", 1)
            early = await call(client, "conclude", session_id=session_id, hypothesis_id="a")
            assert (early["accepted"], early["next"]["tool"]) == (False, "read_belief")
            assert "rule out 1 more" in early["next"]["do"]
            await rule_out(client, session_id, "c")
            ready = await call(client, "conclude", session_id=session_id, hypothesis_id="a")
            assert (await follow(client, ready["next"]))["accepted"]
            many = await call(client, "conclude", session_id=session_id, hypothesis_id="a", end=True)
            assert (many["accepted"], many["ended"], many["next"]["tool"]) == (False, False, "read_belief")
            again = await call(client, "leave_obligation", session_id=session_id, obligation_id="look")
            assert (again["accepted"], again["next"]["tool"]) == (False, "obligations")
            await operator.enter_obligation(session_id, "impossible", 9)
            never = await call(client, "leave_obligation", session_id=session_id, obligation_id="impossible")
            assert "tell an operator" in never["next"]["do"]

    run(test())


@pytest.mark.req("MCP-SERVER-03")
def test_a_probe_is_answered_with_what_was_seen_even_if_others_were_taken_since() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            await operator.put_kit(KIT, media_type="application/json")
            opened = await call(client, "open_case", kit_id=closed_kit().kit_id)
            session_id = opened["handles"]["session_id"]
            seen: list[tuple[str, str]] = []
            while len(seen) < 3:
                probe = (await call(client, "next_probes", session_id=session_id, limit=1))["probes"][0]
                saw = max(probe["answers"], key=lambda each: int(each["leaves"]))["outcome_id"]
                await call(client, "observe", session_id=session_id, probe_id=probe["probe_id"], response=saw)
                seen.append((probe["probe_id"], saw))
            probe_id, saw = seen[0]
            contrary = await call(client, "observe", session_id=session_id, probe_id=probe_id, response=None)
            assert (contrary["repeated"], contrary["ruled_out"]) == (True, [])
            assert [(each["probe_id"], each["response"]) for each in contrary["seen_before"]] == [(probe_id, saw)]

    run(test())


@pytest.mark.req("MCP-SERVER-06", "CALL-CLAIM-02", "CALL-CLAIM-03", "CALL-ID-01")
def test_a_call_of_your_own_is_begun_by_one_and_reported_by_its_nonce_alone() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            await prepare_space(operator)
            args: dict[str, Any] = {"space_id": "ops", "tool_id": "look"}
            made = await call(client, "propose_action", **args)
            again = await call(client, "propose_action", **args)
            assert (again["handles"], again["next"]) == (made["handles"], made["next"])
            assert "was not made again" in again["message"]
            other = await call(client, "propose_action", **args, args={"deep": True})
            assert other["handles"]["call_id"] != made["handles"]["call_id"]
            begun = await follow(client, made["next"])
            late = await follow(client, made["next"])
            assert [each["status"] for each in (begun, late)] == ["running", "running"]
            assert ["nonce" in each["handles"] for each in (begun, late)] == [True, False]
            assert "begun by another process" in late["message"]
            report = begun["next"]["arguments"]
            refused = await call(client, "report_action", **{**report, "nonce": "guessed"})
            assert (refused["status"], "nonce" in refused["message"]) == ("running", True), refused
            assert (await call(client, "report_action", **report))["status"] == "done"
            theirs = operator.acting_as(identify_caller("agent:other"))
            await operator.issue_capability("ops", "u", "other", ["look"])
            call_id = (await theirs.make_call("ops", "look")).call_id
            stranger = await call(client, "begin_action", space_id="ops", call_id=call_id)
            assert ("nonce" in stranger["handles"], "for the agent that made it" in stranger["message"]) == (
                False,
                True,
            )
            assert (await theirs.get_call("ops", call_id)).status == "waiting"
            begun_by_them = await theirs.make_call("ops", "look", args={"x": 1}, claim={"nonce_hash": "0" * 64})
            stranger = await call(client, "begin_action", space_id="ops", call_id=begun_by_them.call_id)
            assert "nonce" not in stranger["handles"]
            assert "by the agent that made it" in stranger["message"]

    run(test())


@pytest.mark.req("MCP-SERVER-01")
def test_what_fills_one_place_of_a_prompt_is_no_place_of_another_argument() -> None:
    filled = fill_prompt("investigate", {"question": "why {kit_id}?", "kit_id": "shop"})
    assert filled is not None
    text = filled["messages"][0]["content"]["text"]
    assert text.startswith("Find out: why {kit_id}?")
    assert "with the kit `shop`" in text
