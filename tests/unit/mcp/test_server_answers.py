"""No answer and no resource of the MCP server is longer than 4,000 tokens, unless more is asked for; pages have all."""

import json
from typing import Any

import pytest
from mcp import Client

from cmbs.client import AsyncClient
from cmbs.kit.model import Kit, KitHypothesis, KitOutcome, KitProbe, Soundness
from cmbs.kit.writing import format_kit
from tests.support.bounded import run
from tests.support.mcp_belief import MAX_BYTES, Wire, call, follow, served

ONTOLOGY = {
    "hypothesis_space_id": "s",
    "hypothesis_version": "1",
    "causal_graph_ref": "none:",
    "causal_graph_version": "1",
}
HYPOTHESES = [f"hypothesis-{'x' * 150}-{number:04}" for number in range(400)]


async def open_case(client: Client, hypotheses: list[str]) -> str:
    opened = await call(client, "open_case", hypotheses=hypotheses)
    return str(opened["handles"]["session_id"])


async def walk(client: Client, answer: Wire, member: str) -> list[Any]:
    """What all pages list, from an answer on."""
    items = list(answer[member])
    while "more" in answer:
        answer = await follow(client, answer["more"])
        items += answer[member]
    return items


async def read(client: Client, uri: str, max_bytes: int = MAX_BYTES) -> Wire:
    (content,) = (await client.read_resource(uri)).contents
    text: str = content.text  # type: ignore[union-attr]
    assert len(text.encode()) <= max_bytes
    found: Wire = json.loads(text)
    return found


async def declare(operator: AsyncClient, attributes: Wire) -> str:
    declared = await operator.declare_session(
        hypotheses=list(attributes), hypothesis_attributes=attributes, ontology=ONTOLOGY
    )
    return declared.session_id


@pytest.mark.req("MCP-SERVER-04", "MCP-SERVER-09")
def test_the_survivors_of_a_large_session_come_in_pages_that_fit_and_together_are_all() -> None:
    async def test() -> None:
        async with served() as (client, _):
            session_id = await open_case(client, HYPOTHESES)
            first = await call(client, "read_belief", session_id=session_id, limit=1000)
            assert first["n_survivors"] == len(HYPOTHESES) > len(first["survivors"]) > 10
            assert await walk(client, first, "survivors") == HYPOTHESES
            some = await call(client, "read_belief", session_id=session_id, text="-000", limit=1000)
            assert await walk(client, some, "survivors") == HYPOTHESES[:10]
            whole = await call(client, "read_belief", session_id=session_id, limit=1000, max_tokens=50_000)
            assert (whole["survivors"], "more" in whole) == (HYPOTHESES, False)

    run(test())


@pytest.mark.req("MCP-SERVER-04", "MCP-SERVER-09")
def test_what_is_known_of_hypotheses_makes_pages_shorter_and_is_cut_in_one_that_is_too_long_by_itself() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            known = dict.fromkeys(("symptom", "runbook", "owner"), "症" * 900)
            session_id = await declare(operator, {f"h-{number:02}": known for number in range(20)})
            first = await call(client, "read_belief", session_id=session_id, limit=20)
            assert first["attributes"] == dict.fromkeys(first["survivors"], known)
            assert len(await walk(client, first, "survivors")) == 20
            text = "症" * 20_000
            session_id = await declare(operator, {"h-1": {"runbook": text}, "h-2": {}})
            cut = await call(client, "read_belief", session_id=session_id)
            assert len(cut["attributes"]["h-1"]["runbook"]) < len(text)
            assert cut["more"]["arguments"]["max_tokens"] > 4_000
            whole = await follow(client, cut["more"])
            assert whole["attributes"]["h-1"]["runbook"] == text

    run(test())


@pytest.mark.req("MCP-SERVER-09")
def test_what_an_observation_ruled_out_is_counted_and_listed_in_pages_of_that_observation_alone() -> None:
    async def test() -> None:
        async with served() as (client, _):
            session_id = await open_case(client, HYPOTHESES)
            args = {"session_id": session_id, "because": "seen"}
            await call(client, "rule_out", **args, hypotheses=HYPOTHESES[:5], observation_id="first")
            answer = await call(client, "rule_out", **args, hypotheses=HYPOTHESES[:300], observation_id="second")
            assert (answer["n_ruled_out"], len(answer["ruled_out"]), len(answer["survivors"])) == (295, 20, 20)
            assert (answer["n_survivors"], answer["note"].startswith("gone before")) == (100, True)
            listed = await walk(client, await follow(client, answer["more"]), "ruled_out")
            assert sorted(each["hypothesis_id"] for each in listed) == HYPOTHESES[5:300]
            assert {each["observation_id"] for each in listed} == {"second"}
            everything = await call(client, "list_ruled_out", session_id=session_id)
            assert everything["n_ruled_out"] == len(await walk(client, everything, "ruled_out")) == 300
            few = await call(client, "rule_out", **args, hypotheses=HYPOTHESES[300:310], observation_id="third")
            left = await walk(client, await follow(client, few["more"]), "survivors")
            assert left == HYPOTHESES[310:]

    run(test())


@pytest.mark.req("MCP-SERVER-09")
def test_a_resource_of_a_large_session_fits_and_names_the_uri_of_what_is_left_out() -> None:
    async def test() -> None:
        async with served() as (client, _):
            session_id = await open_case(client, HYPOTHESES)
            await call(
                client,
                "rule_out",
                session_id=session_id,
                hypotheses=HYPOTHESES[:300],
                observation_id="one",
                because="seen",
            )
            page = await read(client, f"cmbs://sessions/{session_id}?limit=1000")
            assert page["n_survivors"] == 100
            survivors = page["survivors"]
            while "more" in page:
                page = await read(client, page["more"]["uri"])
                survivors += page["survivors"]
            assert survivors == HYPOTHESES[300:]
            proof = f"cmbs://sessions/{session_id}/proofs/elimination/{HYPOTHESES[0]}"
            part = await read(client, proof)
            assert (part["whole"], part["kind"], part["hypothesis_id"]) == (False, "elimination", HYPOTHESES[0])
            whole = await read(client, part["more"]["uri"], part["n_tokens"] * 4)
            assert whole["cause"]
            assert "whole" not in whole

    run(test())


@pytest.mark.req("MCP-SERVER-09")
def test_obligations_and_results_that_are_too_long_are_cut_and_the_call_that_is_named_has_all_of_them() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            session_id = await open_case(client, ["a", "b"])
            for number in range(80):
                await operator.enter_obligation(session_id, f"{number}-{'o' * 200}", 1)
            cut = await call(client, "obligations", session_id=session_id)
            assert cut["n_obligations"] == 80 == len(cut["obligations"]) + cut["left_out"]["obligations"]
            assert len((await follow(client, cut["more"]))["obligations"]) == 80
            policy: Wire = {"format": 2, "rules": [{"name": "all", "allow": "look"}]}
            await operator.create_space("ops", policy_file=policy)
            await operator.register_tool("ops", "look", "caller", {"type": "object"})
            await operator.issue_capability("ops", "t", "scout", ["look"])
            made = await call(client, "propose_action", space_id="ops", tool_id="look")
            text = "line " * 10_000
            begun = await follow(client, made["next"])
            done = await call(client, "report_action", **begun["next"]["arguments"], result=text)
            assert len(done["result"]) < len(text)
            assert (await follow(client, done["more"]))["result"] == text

    run(test())


def kit_of(kit_id: str, size: int) -> str:
    hypotheses = tuple(KitHypothesis(f"h-{number}", label="x" * 900) for number in range(size))
    outcomes = (KitOutcome("yes", frozenset(), Soundness.SOUND), KitOutcome("no", frozenset({"h-0"}), Soundness.SOUND))
    kit = Kit(kit_id, "1", f"{kit_id} {'t' * 200}", hypotheses, (KitProbe("p", "Is it?", outcomes),))
    return format_kit(kit, "kit.json")


@pytest.mark.req("MCP-SERVER-09", "MCP-SERVER-10")
def test_lists_of_kits_sessions_and_spaces_are_short_and_name_the_next_page() -> None:
    count = 70

    async def test() -> None:
        async with served() as (client, operator):
            for number in range(count):
                await operator.put_kit(
                    kit_of(f"kit-{number:03}", 30 if number == 0 else 2), media_type="application/json"
                )
                await operator.declare_session(hypotheses=["a"], ontology=ONTOLOGY, title=f"{number:03} {'s' * 190}")
                await operator.create_space(f"space-{number:03}-{'x' * 110}")
            for name, member, found in (
                ("find_kits", "kits", "kit_id"),
                ("find_sessions", "sessions", "session_id"),
                ("find_spaces", "spaces", "space_id"),
            ):
                listed = await walk(client, await call(client, name, limit=1000), member)
                assert len({each[found] for each in listed}) == len(listed) == count
            (only,) = (await call(client, "find_sessions", text="007 "))["sessions"]
            assert only["title"].startswith("007 ")
            uris, cursor = [], None
            while True:
                listed_page = await client.list_resources(cursor=cursor)
                assert len(listed_page.model_dump_json(by_alias=True, exclude_none=True)) <= MAX_BYTES
                uris += [str(each.uri) for each in listed_page.resources]
                if (cursor := listed_page.next_cursor) is None:
                    break
            assert len(set(uris)) == len(uris) == count + 1
            page = await read(client, "cmbs://kits?limit=1000")
            assert len(page["kits"]) < count
            assert (await read(client, page["more"]["uri"]))["kits"][0]["kit_id"] > page["kits"][-1]["kit_id"]
            kit = await read(client, "cmbs://kits/kit-000")
            assert (kit["whole"], kit["kit"]["kit_id"]) == (False, "kit-000")
            assert "x" * 900 in (await read(client, kit["more"]["uri"], kit["n_tokens"] * 4))["source"]["text"]

    run(test())


@pytest.mark.req("MCP-SERVER-09")
@pytest.mark.parametrize("modern", [True, False])
def test_what_a_host_loads_before_the_first_call_is_short(modern: bool) -> None:
    async def test() -> None:
        async with served(modern=modern) as (client, _):
            tools = await client.list_tools()
            assert len(tools.model_dump_json(by_alias=True, exclude_none=True).encode()) <= 5_000 * 4
            for listed in (await client.list_prompts(), await client.list_resource_templates()):
                assert len(listed.model_dump_json(by_alias=True, exclude_none=True).encode()) <= MAX_BYTES

    run(test())
