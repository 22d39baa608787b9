"""The story that the examples of spaces in the OpenAPI document tell: a service is restarted, after somebody was asked.

Everything in it is what a server answers, to the last hash, when it is asked these things in this order.
"""

import asyncio
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx

from cmbs.belief.server import BeliefServer
from cmbs.http.app import BeliefApp
from cmbs.http.spaces.operations import SPACE_OPERATIONS
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.server import SubstrateServer
from cmbs.testing import ManualClock, SequentialIds

EXAMPLES = Path(__file__).resolve().parent.parent / "cmbs" / "http" / "spaces" / "examples.json"
_OPERATIONS = {operation.operation_id: operation for operation in SPACE_OPERATIONS}
_OPS, _LEAD, _PLANNER = "operator:ops", "operator:lead", "agent:planner"
_ASK_OUTSIDE_MAINTENANCE = {
    "v": 1,
    "effect": "allow",
    "subject": {"tool_id": "service.restart"},
    "when": {"op": "eq", "args": ["fact.maintenance", "yes"]},
    "on_fail": "ask",
    "reason": "a restart outside maintenance needs a person",
}
_DELTAS = {"v": 1, "effect": "allow", "subject": None, "when": {"op": "missing", "args": ["$tool.id"]}}
_POLICY = {
    "constraint.deltas": json.dumps(_DELTAS),
    "constraint.restart": json.dumps(_ASK_OUTSIDE_MAINTENANCE),
    "policy.memory.confidence_threshold": "0.8",
}
_TOOL = {
    "tool_id": "service.restart",
    "kind": "caller",
    "description": "Restarts one service",
    "args_schema": {
        "type": "object",
        "properties": {"service": {"type": "string", "maxLength": 64}},
        "required": ["service"],
        "additionalProperties": False,
    },
    "facts": {"fact.checkout.restarted_at": "at"},
}
_TOKEN = {
    "token_id": "restart-checkout",
    "agent_id": "planner",
    "tool_ids": ["service.restart"],
    "capabilities": ["restart"],
    "scopes": [{"path": "service", "match": "exact", "value": "checkout"}],
    "budget": {"calls": 3},
    "expires_at": "2026-03-02T00:00:00Z",
}


class Story:
    """Tells the story to a server, and writes down what both said."""

    def __init__(self) -> None:
        self.ids = {
            "space_id": "shop",
            "proposal_id": "restart-1",
            "tool_id": "service.restart",
            "token_id": "restart-checkout",
            "entry_id": "checkout-leaks",
            "change_id": "no-deltas",
        }
        self.requests: dict[str, Any] = {}
        self.responses: dict[str, Any] = {}
        self._clock = ManualClock("2026-03-01T10:50:00.000000Z", tick=timedelta(seconds=7, microseconds=31_416))
        self._app = _app(self._clock)

    async def tell(self) -> None:
        """From the first message to the last."""
        transport = httpx.ASGITransport(self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as self._client:
            await self._prologue()
            await self._restart()
            await self._afterwards()
            for operation in SPACE_OPERATIONS:
                if operation.method == "GET":
                    await self._read(operation.operation_id)
        self._app.close()

    async def _prologue(self) -> None:
        await self._say(_OPS, "create_space", {"space_id": "shop", "policy": _POLICY})
        await self._say(_OPS, "register_tool", _TOOL)
        await self._say(_OPS, "issue_capability", _TOKEN)

    async def _restart(self) -> None:
        proposed = await self._say(_PLANNER, "propose", self._proposal("restart-1"))
        self.ids["approval_id"] = proposed["approval_ids"][0]
        await self._say(_PLANNER, "explain_proposal", self._proposal("restart-2"))
        approval = {"uses": 1, "args_hash": proposed["decision"]["candidates"] and await self._args_hash()}
        approved = await self._say(_LEAD, "approve", approval)
        self.ids["execution_id"] = approved["proposal"]["execution_ids"][0]
        outcome = {"status": "succeeded", "result": {"at": "2026-03-01T10:51:30Z"}, "duration_ms": 1840}
        await self._say(_PLANNER, "report_outcome", outcome)
        second = await self._post(_PLANNER, "propose", self._proposal("restart-2"))
        first, self.ids["approval_id"] = self.ids["approval_id"], second["approval_ids"][0]
        await self._say(_LEAD, "reject", {"reason": "once is enough"})
        self.ids["approval_id"] = first

    async def _afterwards(self) -> None:
        claim = {"service": "checkout", "leaks": "memory"}
        put = {"entry_id": "checkout-leaks", "kind": "hypothesis", "claim": claim, "ttl_ms": 86_400_000}
        await self._say(_PLANNER, "put_memory", {**put, "evidence": {"source_chunk_ids": ["heap-1"]}})
        evidence = {"source_chunk_ids": ["heap-2", "heap-3"], "confidence_milli": 900}
        await self._say(_PLANNER, "promote_memory", {"kind": "fact", "evidence": evidence})
        await self._say(_OPS, "dispute_memory", {"conflict_state": "possible", "because": ["heap-4"]})
        policy_hash = self.responses["create_space"]["policy_hash"]
        change = {"change_id": "no-deltas", "base_policy_hash": policy_hash, "unset": ["constraint.deltas"]}
        await self._say(_OPS, "propose_policy_change", {**change, "reason": "nobody needs them"})
        await self._say(_LEAD, "reject_policy_change", {"reason": "somebody does"})
        self.ids["change_id"] = "threshold"
        change = {"change_id": "threshold", "base_policy_hash": policy_hash}
        await self._post(
            _OPS, "propose_policy_change", {**change, "set": {"policy.memory.confidence_threshold": "0.9"}}
        )
        await self._say(_LEAD, "authorise_policy_change", {"reason": "agreed"})
        await self._say(_OPS, "set_space_mode", {"mode": "observe"})
        await self._say(_OPS, "revoke_capability", {"reason": "the incident is over"})
        await self._say(_OPS, "retire_tool", {})

    def _proposal(self, proposal_id: str) -> dict[str, Any]:
        call = {
            "type": "tool_call",
            "tool_id": "service.restart",
            "args": {"service": "checkout"},
            "capability_token_id": "restart-checkout",
            "idempotency_key": proposal_id,
        }
        return {
            "proposal_id": proposal_id,
            "state_snapshot_id": self.responses["create_space"]["state_snapshot_id"],
            "provenance": {
                "source": "planner",
                "timestamp": "2026-03-01T10:50:20Z",
                "inputs": ["ticket-7"],
                "permissions": ["restart-checkout"],
            },
            "candidates": [call],
        }

    async def _args_hash(self) -> str:
        asked = await self._client.get(self._path("get_approval"), headers={"x-cmbs-actor": _LEAD})
        found: str = asked.json()["args_hash"]
        return found

    async def _say(self, actor: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        self.requests[name] = body
        self.responses[name] = await self._post(actor, name, body)
        told: dict[str, Any] = self.responses[name]
        return told

    async def _post(self, actor: str, name: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self._client.post(self._path(name), json=body, headers={"x-cmbs-actor": actor})
        if answer.status_code != _OPERATIONS[name].status:
            raise RuntimeError(f"{name}: {answer.text}")
        told: dict[str, Any] = answer.json()
        return told

    async def _read(self, name: str) -> None:
        paged = {"space_audit": {"limit": "1"}, "list_decisions": {"limit": "1"}, "list_deltas": {"limit": "1"}}
        answer = await self._client.get(self._path(name), params=paged.get(name), headers={"x-cmbs-actor": _OPS})
        if answer.is_error:
            raise RuntimeError(f"{name}: {answer.text}")
        self.responses[name] = answer.json()

    def _path(self, name: str) -> str:
        return _OPERATIONS[name].path.format(**self.ids)


def _app(clock: ManualClock) -> BeliefApp:
    log = InMemoryStore()
    spaces = SubstrateServer(log=log, clock=clock, ids=SequentialIds(), keeper_seconds=None)
    return BeliefApp(BeliefServer(store=log), spaces=spaces)


def space_examples() -> str:
    """The examples as JSON: the ids of the story, what was sent, and what came back."""
    story = Story()
    asyncio.run(story.tell())
    told = {"ids": story.ids, "requests": story.requests, "responses": story.responses}
    return "\n".join(_lines(told)) + "\n"


def _lines(told: dict[str, Any]) -> Iterator[str]:
    yield from json.dumps(told, indent=1, ensure_ascii=False).splitlines()
