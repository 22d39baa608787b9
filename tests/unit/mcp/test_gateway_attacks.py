"""What an attacker tries at a gateway: another call than the approved one, two effects, forged and unseen data."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import Conflict
from cmbs.mcp.asking import identify_caller
from cmbs.mcp.gateway.answers import HANDLES
from cmbs.substrate.kernel.events import hash_of_nonce
from tests.support.bounded import run
from tests.support.mcp_upstream import (
    GATEWAY,
    SPACE,
    Bench,
    Wire,
    answer_text,
    define,
    make_upstream,
    open_bench,
    text_of,
)

WRITES = {"note": "harmless"}
RESTART: dict[str, Any] = {"type": "tool_call", "tool_id": "up.restart"}


async def settled(bench: Bench, call_id: str) -> Any:
    """A call once it has ended, however that happens."""
    async with asyncio.timeout(20):
        while True:
            found = await bench.operator.get_call(SPACE, call_id, wait_seconds=5)
            if found.status not in ("waiting", "running"):
                return found


@pytest.mark.req("CALL-GATEWAY-01")
def test_an_agent_cannot_put_another_call_under_the_one_that_is_approved() -> None:
    """Approve A, run B: the ids of calls are made by the server, and none is found by what an agent chose."""

    async def test() -> None:
        upstream = make_upstream()
        upstream.tool(define("delete_all"), answer_text("deleted"))
        async with open_bench({"up": upstream}) as bench, bench.client() as client:
            agent = bench.api.acting_as(identify_caller("agent:agent"))
            waiting = await client.call_tool("delete_all", {"what": "EVERYTHING"})
            handles = waiting.meta[HANDLES] if waiting.meta else {}
            space = await bench.operator.get_space(SPACE)
            for proposal_id in (f"{handles['call_id']}", f"{handles['proposal_id']}x", "mcp-0-0"):
                harmless: dict[str, Any] = {
                    "type": "tool_call",
                    "tool_id": "up.restart",
                    "args": WRITES,
                    "idempotency_key": proposal_id,
                }
                provenance = {"source": "agent", "timestamp": "2026-01-01T00:00:00Z"}
                await agent.propose(SPACE, proposal_id, space.state_snapshot_id, provenance, [harmless])
            pending = [each async for each in bench.operator.each(bench.operator.list_approvals, SPACE)]
            dangerous = [each for each in pending if each.tool_id == "up.delete_all"]
            for each in (one for one in pending if one not in dangerous):
                await bench.operator.approve(SPACE, each.approval_id, call_hash=each.call_hash)
                ended = await bench.operator.get_proposal(SPACE, each.proposal_id, wait=20)
                assert ended.status == "committed"
            assert [name for name, _ in upstream.calls if name == "delete_all"] == []
            found = await bench.operator.get_call(SPACE, handles["call_id"])
            assert (found.status, found.tool_id) == ("waiting", "up.delete_all")

    run(test())


@pytest.mark.req("CALL-GATEWAY-02")
def test_two_gateways_over_one_space_run_what_was_approved_once_and_without_the_agent() -> None:
    async def test() -> None:
        upstream = make_upstream()
        app = create_app(BeliefServer())
        async with (
            open_bench({"up": upstream}, app=app) as one,
            open_bench({"up": upstream}, app=app) as two,
            one.client() as client,
        ):
            names = []
            for number in range(8):
                waiting = await client.call_tool("restart", {"n": number})
                names.append((waiting.meta or {})[HANDLES]["call_id"])
            await two.approve_all()
            ended = [await settled(one, name) for name in names]
            assert [each.status for each in ended] == ["done"] * 8
            assert sorted(args["n"] for name, args in upstream.calls if name == "restart") == list(range(8))
        app.close()

    run(test())


@pytest.mark.req("CALL-GATEWAY-02")
def test_approved_calls_of_a_tool_that_is_gone_hold_up_no_others() -> None:
    async def test() -> None:
        upstream = make_upstream()
        upstream.tool(define("retired"), answer_text("never"))
        app = create_app(BeliefServer(limits=Limits(page_size=1)))
        async with open_bench({"up": upstream}, app=app) as first, first.client() as client:
            for number in range(3):
                await client.call_tool("retired", {"n": number})
            waiting = await client.call_tool("restart", {})
        left = make_upstream()
        async with open_bench({"up": left}, app=app) as second:
            await second.approve_all()
            ended = await settled(second, (waiting.meta or {})[HANDLES]["call_id"])
            assert (ended.status, left.calls) == ("done", [("restart", {})])
        app.close()

    run(test())


@pytest.mark.req("CALL-GATEWAY-03")
def test_an_agent_neither_claims_nor_reports_a_call_that_the_gateway_runs() -> None:
    async def test() -> None:
        release, reached = asyncio.Event(), asyncio.Event()

        async def slow(ctx: Any, params: Wire) -> Wire:
            reached.set()
            await release.wait()
            return {"content": [{"type": "text", "text": "the real result"}]}

        upstream = make_upstream()
        upstream.tool(define("restart"), slow)
        async with open_bench({"up": upstream}) as bench, bench.client() as client:
            agent = bench.api.acting_as(identify_caller("agent:agent"))
            waiting = await client.call_tool("restart", {})
            call_id = (waiting.meta or {})[HANDLES]["call_id"]
            found = await agent.get_call(SPACE, call_id)
            assert found.call_hash is not None
            with pytest.raises(Conflict, match="waits for approval"):
                await agent.claim_call(SPACE, call_id, hash_of_nonce("n"), found.call_hash)
            await bench.approve_all()
            await asyncio.wait_for(reached.wait(), 20)
            with pytest.raises(Conflict, match="claimed before"):
                await bench.api.acting_as(identify_caller(GATEWAY)).claim_call(
                    SPACE, call_id, hash_of_nonce("n"), found.call_hash
                )
            stolen = await agent.claim_call(SPACE, call_id, hash_of_nonce("n"), found.call_hash)
            assert (stolen.status, stolen.refusal and stolen.refusal.code) == ("running", "NOT_AUTHORISED")
            for nonce in (None, "n"):
                forged = await agent.report_call(SPACE, call_id, "succeeded", result={"forged": True}, nonce=nonce)
                assert (forged.status, forged.refusal and forged.refusal.code) == ("running", "NOT_AUTHORISED")
            release.set()
            assert (await settled(bench, call_id)).result["content"][0]["text"] == "the real result"

    run(test())


@pytest.mark.req("CALL-GATEWAY-04")
def test_what_is_beside_the_arguments_reaches_an_upstream_only_where_the_policy_says_so() -> None:
    async def test() -> None:
        upstream = make_upstream()
        async with open_bench({"up": upstream}) as bench, bench.client() as client:
            meta: Any = {"ticket": "INC-1", "secret": "x"}
            assert text_of(await client.call_tool("get_status", {}, meta=meta)) == "green"
            policy_hash = (await bench.operator.get_space(SPACE)).policy_hash
            forwards = {"policy.forward.up.get_status": '["_meta.ticket"]'}
            await bench.operator.propose_policy_change(SPACE, "c", policy_hash, set_=forwards)
            second = bench.api.acting_as(identify_caller("operator:second"))
            if (await bench.operator.get_space(SPACE)).policy_hash == policy_hash:
                await second.authorise_policy_change(SPACE, "c")
            assert text_of(await client.call_tool("get_status", {}, meta=meta)) == "green"
            first, then = upstream.received
            assert [{"ticket", "secret"} & set(each["_meta"]) for each in (first, then)] == [set(), {"ticket"}]
            records = await bench.proposals()
            assert [each.candidates[0].forwarded for each in records] == [None, {"_meta.ticket": "INC-1"}]  # type: ignore[union-attr]

    run(test())


@pytest.mark.req("CALL-GATEWAY-05")
@pytest.mark.parametrize("gone", ["token", "tool"])
def test_a_call_whose_permission_went_after_it_was_approved_is_not_sent(gone: str) -> None:
    async def test() -> None:
        upstream = make_upstream()
        app = create_app(BeliefServer())
        async with open_bench({"up": upstream}, app=app) as bench, bench.client() as client:
            waiting = await client.call_tool("restart", {})
            call_id = (waiting.meta or {})[HANDLES]["call_id"]
        # No gateway runs: the call is approved, and waits for one.
        await bench.approve_all()
        found = await bench.operator.get_call(SPACE, call_id)
        if gone == "token":
            await bench.operator.revoke_capability(SPACE, found.capability_token_id or "")
        else:
            await bench.operator.retire_tool(SPACE, "up.restart")
        # It ends by itself, and cannot be claimed any more.
        ended = await bench.operator.get_call(SPACE, call_id, wait_seconds=20)
        assert (ended.status, ended.call_hash is not None) == ("denied", True)
        executor = bench.api.acting_as(identify_caller(GATEWAY))
        with pytest.raises(Conflict, match="not_started"):
            await executor.claim_call(SPACE, call_id, hash_of_nonce("n"), ended.call_hash or "")
        assert upstream.calls == []
        app.close()

    run(test())
