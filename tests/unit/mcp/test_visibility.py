"""Which tools an agent is shown: those that are denied to it always are left out, and no others."""

import json
from typing import Any

import pytest

from cmbs.bootstrap import Settings, build_app
from cmbs.mcp.asking import identify_caller, open_api
from tests.support.bounded import run
from tests.support.mcp_upstream import ScriptedUpstream, answer_text, define, open_bench, text_of

TOOLS = (
    "get_status",
    "get_secret",
    "get_other",
    "get_cluster",
    "get_asked",
    "get_unruled",
    "restart",
    "get_conditional",
)
RULES: list[dict[str, Any]] = [
    {"name": "scout-never", "deny": "up.get_secret", "when": 'actor.id == "scout"'},
    {"name": "only-medic", "allow": "up.get_other", "when": 'actor.id == "medic" && args.x == 1'},
    {"name": "not-production", "deny": "up.get_cluster", "when": 'args.cluster == "prod"'},
    {"name": "asks", "allow": "up.get_asked", "when": 'actor.id == "nobody"', "otherwise": "ask"},
    {"name": "writers-never", "deny": "*", "when": "tool.writes"},
    {"name": "on-a-fact", "allow": "up.get_conditional", "when": "fact.ready == true"},
    {"name": "reads", "allow": ["up.get_status", "up.get_secret", "up.get_cluster"]},
]


@pytest.mark.req("MCP-GW-19")
def test_an_agent_is_not_shown_what_the_policy_denies_to_it_always() -> None:
    async def test() -> None:
        upstream = ScriptedUpstream()
        for name in TOOLS:
            upstream.tool(define(name, reads=name != "restart"), answer_text(name))
        app = build_app(Settings(store="memory:"), {})
        operator = open_api(app).acting_as(identify_caller("operator:boss"))
        await operator.create_space("mcp", policy_file={"format": 2, "title": "t", "rules": RULES})
        shown = {}
        for agent in ("scout", "medic"):
            async with open_bench({"up": upstream}, app=app, agent=agent) as bench, bench.client() as client:
                shown[agent] = {each.name for each in (await client.list_tools()).tools}
        always = {"get_status", "get_cluster", "get_asked", "get_conditional"}
        assert shown == {"scout": always, "medic": always | {"get_secret", "get_other"}}
        # What is not shown is gated like any other, and another policy shows other tools.
        async with open_bench({"up": upstream}, app=app, agent="scout") as bench, bench.client() as client:
            assert "denies it" in text_of(await client.call_tool("get_secret", {}))
            allow_all = {"format": 2, "title": "t", "rules": [{"name": "all", "allow": "*"}]}
            await operator.put_policy("mcp", json.dumps(allow_all), media_type="application/json")
            assert {each.name for each in (await client.list_tools()).tools} == set(TOOLS)
        app.close()

    run(test())
