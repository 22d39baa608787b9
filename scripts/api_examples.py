"""Record the examples of the OpenAPI document by playing two incidents against an application in memory.

In the first, hypotheses about a slow checkout are eliminated; in the second, a service is restarted after approval. The
examples are what a server answers, down to the hashes, when it gets these requests in this order.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from cmbs.api.call import build_call
from cmbs.api.examples import EVENT_IDS, SESSION_ID
from cmbs.api.operations import EVENT_OPERATIONS, OPERATIONS
from cmbs.api.operations.graphs import GRAPH_OPERATIONS
from cmbs.belief.server import BeliefServer
from cmbs.http.app import BeliefApp
from cmbs.http.service import Service
from cmbs.spi import discover_providers
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import hash_of_nonce
from cmbs.substrate.server import SubstrateServer
from cmbs.testing import ManualClock, SequentialIds
from cmbs.transparency.kernel.notes import Algorithm, SigningKey
from cmbs.transparency.key_files import KeyFiles
from cmbs.transparency.notary import Notary
from cmbs.webhooks.dispatcher import Dispatcher
from cmbs.webhooks.keys import WebhookKey
from cmbs.webhooks.registry import WebhookRegistry
from cmbs.webhooks.sending import Sender
from scripts.api_graph import record_graph

Send = Callable[..., httpx2.Response]
EXAMPLES = Path(__file__).resolve().parent.parent / "cmbs" / "api" / "examples.json"
_OPERATIONS = {operation.operation_id: operation for operation in OPERATIONS}
# The fork, and its events.
_FORK_IDS = (
    "b40e9d27-8c15-4f6a-9e30-d7a2c1485f6b",
    "6cf1a803-2d97-4b5e-8f42-0e9b7d36a1c4",
    "f39d5e17-b04c-4a82-9613-58c7e2d0ab9f",
    "8e27c4b1-95fa-4d30-a7e6-13b0f9d682c5",
)
# A kit, the session over it, and its events.
_KIT_IDS = (
    "1e5c72d9-4f08-4b6a-a3d1-80b9f7e2c645",
    "d2f60b84-7a3c-4e19-b5d8-c04e9a17f263",
    "4b8e1c95-60da-4f72-8a3e-97d5b2c60f18",
    "a7d93f02-e85b-4c46-91b7-3c0f6e24d8a5",
    "59c0d4e8-3a17-4d92-b6f5-e1827c0a94d3",
)
_NONCE = "5b1f0c6e-0c0b-4a53-9a56-2f2d4ab4a1c7"
_OPS, _LEAD, _PLANNER = "operator:ops", "operator:lead", "agent:planner"
_QUERIES = {
    "list_sessions": {"label": "team:payments", "order": "newest", "include": "trail"},
    "list_survivors": {"limit": "1"},
    "session_diff": {"from": "0", "limit": "2"},
    "space_diff": {"from": "0", "limit": "1"},
    "audit_trace": {"since_event_id": EVENT_IDS[1], "limit": "1"},
    "session_analysis": {"truth": "slow-dns"},
    "space_audit": {"limit": "1"},
    "list_decisions": {"limit": "1"},
    "list_deltas": {"limit": "1"},
    "prove_consistency": {"from": "1"},
}
# What a proof of each kind is about, in these incidents.
PROVEN = {
    "prove_session_inclusion": {"at": "1"},
    "prove_session_consistency": {"old_size": "2"},
    "prove_session_membership": {"hypothesis_id": "slow-dns"},
    "prove_session_elimination": {"hypothesis_id": "cpu-saturation"},
    "prove_session_transition": {"at": "2"},
    "prove_session_refusal": {"at": "5"},
    "prove_space_inclusion": {"at": "4"},
    "prove_space_consistency": {"old_size": "3"},
    "prove_space_refusal": {"at": "4"},
    "prove_space_decision": {"at": "6"},
}
# In the order in which they are sent.
_BELIEF: dict[str, dict[str, Any]] = {
    "declare_session": {
        "ontology": {
            "hypothesis_space_id": "checkout-latency",
            "hypothesis_version": "4",
            "causal_graph_ref": "graphstore://shop",
            "causal_graph_version": "v17",
        },
        "hypotheses": ["cpu-saturation", "db-lock-contention", "slow-dns"],
        "metadata": {"incident": "INC-1042"},
        "policy": {"stability_window": 1},
        "title": "checkout is slow",
        "labels": {"team": "payments"},
        "owner": "ann",
        "severity": "high",
        "agents": ["planner"],
        "name": "checkout-is-slow",
    },
    "enter_obligation": {"obligation_id": "rule-out-one", "min_total_eliminations": 1},
    "eliminate": {
        "source_id": "adapter://sre",
        "observation_id": "cpu-normal-10:42",
        "eliminated": ["cpu-saturation"],
        "justification": {"query": "node_cpu_seconds_total", "p95": 0.31},
    },
    "request_exit": {"context": {"asked_by": "planner"}},
    "declare_conclusion": {"conclusion_id": "slow-dns", "context": {"confidence": "high"}},
    "request_termination": {"context": {"asked_by": "planner"}},
    "update_case": {"severity": "critical"},
    "fork_session": {"at": 2},
}
# A kit, a session over it, and an observation in it.
_KIT = {
    "format": 1,
    "id": "checkout-latency",
    "version": "4",
    "title": "Why checkout is slow",
    "soundness": "sound",
    "hypotheses": [
        {"id": "cpu-saturation", "attributes": {"component": "checkout"}},
        {"id": "db-lock-contention", "attributes": {"component": "orders-db"}},
        {"id": "slow-dns", "attributes": {"component": "dns"}},
    ],
    "probes": [
        {
            "id": "cpu",
            "prompt": "What is the CPU load of checkout?",
            "reading": {"cuts": [0.8], "outcomes": ["normal", "high"]},
            "outcomes": [
                {"id": "normal", "eliminates": ["cpu-saturation"]},
                {"id": "high", "keeps": ["cpu-saturation"]},
            ],
        },
        {
            "id": "resolve",
            "prompt": "Is resolving the name of the database slow?",
            "outcomes": [{"id": "yes", "keeps": ["slow-dns"]}, {"id": "no", "eliminates": ["slow-dns"]}],
        },
    ],
}
_KIT_SESSION = {"kit": "checkout-latency", "policy": {"eliminations": "observations"}}
_OBSERVATION = {
    "probe_id": "cpu",
    "response": 0.31,
    "source_id": "adapter://sre",
    "justification": {"query": "node_cpu_seconds_total"},
    "seen_at": "2026-03-01T10:55:00Z",
}
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
_FILE = {
    "format": 2,
    "title": "who may restart what",
    "rules": [
        {"name": "deltas", "allow": "state"},
        {
            "name": "restart",
            "allow": "service.restart",
            "when": 'fact.maintenance == "yes"',
            "otherwise": "ask",
            "because": "a restart outside maintenance needs a person",
        },
    ],
    "memory": {"confidence_threshold": 0.8},
    "tests": [
        {
            "name": "a goal",
            "proposal": {"candidates": [{"type": "state_delta", "set": {"goal.calm": "yes"}}]},
            "expect": {"verdict": "allow", "matched": ["deltas"]},
        }
    ],
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
}


# Disabled before anything happens that it would be told: no request leaves the machine, and its name leads nowhere.
_WEBHOOK = {
    "webhook_id": "on-call",
    "url": "https://alerts.example/cmbs",
    "events": ["approval.wanted", "session.contradiction"],
    "filters": {"labels": {"team": "payments"}},
    "description": "pages the team that is on call",
}


_CASE_IDS = [f"6f0c2b1d-7e3a-4b58-9c41-0d9e8f7a6b5{number}" for number in range(3)]


class _ListedIds:
    """An `IdSource` of the ids that the examples of errors and headers name too."""

    def __init__(self) -> None:
        declared, *others = EVENT_IDS
        updated, named, renamed = _CASE_IDS
        listed = [SESSION_ID, declared, named, *others, updated, *_FORK_IDS, renamed, *_KIT_IDS]
        self._ids = iter(listed)

    def new_id(self) -> str:
        return next(self._ids)


class Recorder:
    """Plays the incidents against an application, and records what was sent and answered.

    Operations on a causal graph are played by `scripts.api_graph`, for they need a Tee.
    """

    def __init__(self, send: Send, token_expires_at: str = "2026-03-02T00:00:00Z") -> None:
        self._request = send
        self._token = {**_TOKEN, "expires_at": token_expires_at}
        self.ids = {
            "session_id": SESSION_ID,
            "obligation_id": "rule-out-one",
            "space_id": "shop",
            "proposal_id": "restart-1",
            "tool_id": "service.restart",
            "token_id": "restart-checkout",
            "entry_id": "checkout-leaks",
            "change_id": "no-deltas",
            "case_id": "INC-1042",
            "kit_id": "checkout-latency",
            "webhook_id": "on-call",
        }
        # A session over a kit, for what other sessions do not have.
        self.kit_session_id = ""
        self.requests: dict[str, Any] = {}
        self.responses: dict[str, Any] = {}

    def play(self, queries: Mapping[str, dict[str, str]] = _QUERIES) -> None:
        """Send every request, then read everything."""
        for name, body in _BELIEF.items():
            self._record(_PLANNER, name, body)
            self.ids["session_id"] = self.responses["declare_session"]["session_id"]
        self._restart()
        self._govern()
        self.ids["stream_id"] = self.ids["session_id"]
        self._record(_OPS, "sign_checkpoint", {})
        # Now, so that the checkpoint does not depend on which of two random ids comes first.
        self._observe()
        self._tell_others()
        for name, operation in _OPERATIONS.items():
            if operation.method == "GET" and operation not in GRAPH_OPERATIONS and name not in self.responses:
                self.responses[name] = self._send(_OPS, name, params={**PROVEN, **queries}.get(name))

    def _observe(self) -> None:
        session_id = self.ids["session_id"]
        self._record(_OPS, "put_kit", _KIT)
        self.kit_session_id = self._send(_PLANNER, "declare_session", json=_KIT_SESSION)["session_id"]
        self.ids["session_id"] = self.kit_session_id
        self._record(_PLANNER, "observe", _OBSERVATION)
        self.responses["list_probes"] = self._send(_PLANNER, "list_probes")
        self.ids["session_id"] = session_id

    def _tell_others(self) -> None:
        self._record(_OPS, "create_webhook", _WEBHOOK)
        self._record(_OPS, "disable_webhook", {"reason": "the endpoint is being moved"})
        self._record(_OPS, "rotate_webhook_secret", {"generation": 2, "overlap_seconds": 3600})
        queued = self._record(_OPS, "test_webhook", {})
        self.ids["delivery_id"] = queued["delivery"]["delivery_id"]
        self._record(_OPS, "redeliver", {})
        self.responses["list_deliveries"] = self._send(_OPS, "list_deliveries", params={"status": "pending"})
        # Another, of which nothing waits.
        shown, self.ids["webhook_id"] = self.ids["webhook_id"], "audit"
        other = {**_WEBHOOK, "webhook_id": "audit", "filters": {"session_ids": ["none"]}}
        self._send(_OPS, "create_webhook", json=other)
        self._send(_OPS, "disable_webhook", json={})
        self._record(_OPS, "enable_webhook", {"skip": True})
        self._record(_OPS, "delete_webhook", {"reason": "it was a trial"})
        self.ids["webhook_id"] = shown

    def _restart(self) -> None:
        self._record(_OPS, "create_space", {"space_id": "shop", "policy": _POLICY, "operators_needed": 2})
        self._record(_OPS, "register_tool", _TOOL)
        self._record(_OPS, "issue_capability", self._token)
        self._record(_OPS, "name_case", {"name": "INC-1042"})
        case = {"case_id": "INC-1042", "agents": ["planner"]}
        self._record(_OPS, "open_case", {**case, "title": "checkout is slow", "attributes": {"services": ["checkout"]}})
        # Denied: the call needs a key, so that it is made once.
        unkeyed = self._proposal("restart-0")
        unkeyed["candidates"][0].pop("idempotency_key")
        self._send(_PLANNER, "propose", json=unkeyed)
        proposed = self._record(_PLANNER, "propose", self._proposal("restart-1"))
        first = self.ids["approval_id"] = proposed["approval_ids"][0]
        self._record(_PLANNER, "explain_proposal", self._proposal("restart-2"))
        call_hash = self._send(_LEAD, "get_approval")["call_hash"]
        approved = self._record(_LEAD, "approve", {"uses": 1, "call_hash": call_hash})
        self.ids["execution_id"] = approved["proposal"]["execution_ids"][0]
        self.ids["call_id"] = proposed["calls"]["0"]
        self.responses["list_calls"] = self._send(_PLANNER, "list_calls")
        self._record(_PLANNER, "claim_call", {"nonce_hash": hash_of_nonce(_NONCE), "call_hash": call_hash})
        outcome = {"status": "succeeded", "result": {"at": "2026-03-01T10:51:30Z"}, "duration_ms": 1840}
        self._record(_PLANNER, "report_call", {**outcome, "nonce": _NONCE})
        made = self._record(
            _PLANNER,
            "make_call",
            {"tool_id": "service.restart", "args": {"service": "checkout"}, "case_id": "INC-1042"},
        )
        shown, self.ids["call_id"] = self.ids["call_id"], made["call_id"]
        self._record(_PLANNER, "withdraw_call", {"reason": "one restart is enough"})
        self.ids["call_id"] = shown
        second = self._send(_PLANNER, "propose", json=self._proposal("restart-2"))
        self.ids["approval_id"] = second["approval_ids"][0]
        self._record(_LEAD, "reject", {"reason": "one restart is enough"})
        self._send(_PLANNER, "propose", json=self._proposal("restart-3"))
        shown, self.ids["proposal_id"] = self.ids["proposal_id"], "restart-3"
        self._record(_PLANNER, "withdraw_proposal", {"reason": "the service has recovered"})
        self.ids["approval_id"], self.ids["proposal_id"] = first, shown

    def _govern(self) -> None:
        claim = {"service": "checkout", "leaks": "memory"}
        put = {"entry_id": "checkout-leaks", "kind": "hypothesis", "claim": claim, "ttl_ms": 86_400_000}
        self._record(_PLANNER, "put_memory", {**put, "evidence": {"source_chunk_ids": ["heap-1"]}})
        evidence = {"source_chunk_ids": ["heap-2", "heap-3"], "confidence_milli": 900}
        self._record(_PLANNER, "promote_memory", {"kind": "fact", "evidence": evidence})
        self._record(_OPS, "dispute_memory", {"conflict_state": "possible", "because": ["heap-4"]})
        base = {"base_policy_hash": self.responses["create_space"]["policy_hash"]}
        change = {"change_id": "no-deltas", **base, "unset": ["constraint.deltas"], "reason": "no agent needs them"}
        self._record(_OPS, "propose_policy_change", change)
        self._record(_LEAD, "reject_policy_change", {"reason": "the planner needs them"})
        self.ids["change_id"] = "threshold"
        change = {"change_id": "threshold", **base, "set": {"policy.memory.confidence_threshold": "0.9"}}
        self._send(_OPS, "propose_policy_change", json=change)
        self._record(_LEAD, "authorise_policy_change", {"reason": "agreed"})
        self._record(_OPS, "check_policy", _FILE)
        self._record(_OPS, "policy_impact", _FILE)
        self.ids["change_id"] = self._record(_OPS, "put_policy", _FILE)["change_id"]
        self._send(_LEAD, "authorise_policy_change", json={})
        self._record(_OPS, "set_space_governance", {"operators_needed": 1})
        self._record(_OPS, "set_space_mode", {"mode": "observe"})
        self._record(_OPS, "close_case", {"reason": "the cause is found"})
        self._record(_OPS, "revoke_capability", {"reason": "the incident is over"})
        self._record(_OPS, "retire_tool", {})

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
            "case_id": "INC-1042",
        }

    def _record(self, actor: str, name: str, body: dict[str, Any]) -> Any:
        self.requests[name] = body
        self.responses[name] = self._send(actor, name, json=body)
        return self.responses[name]

    def _send(self, actor: str, name: str, **options: Any) -> Any:
        operation = _OPERATIONS[name]
        path = operation.path.format(**self.ids)
        headers = {"x-cmbs-actor": actor, "accept": "application/json"}
        if name == "put_policy":
            # So that the id of the change is the same every time.
            headers["idempotency-key"] = "restart-file"
        answer = self._request(operation.method, path, headers=headers, **options)
        if answer.status_code != operation.status:
            raise RuntimeError(f"{name}: {answer.text}")
        return answer.json()


async def _stay() -> None:
    """Never leave."""
    await asyncio.get_running_loop().create_future()


async def _follow_all(service: Service, ids: Mapping[str, str]) -> dict[str, Any]:
    """What followers from the beginning are sent: head, first entry and end. Nothing is served after it."""
    streams = {}
    for operation in EVENT_OPERATIONS:
        call = build_call(operation, {**{name: ids[name] for name in operation.path_names}, "from": 0})
        stream: Any = await service.call(call, {"x-cmbs-actor": _OPS}, _stay)
        streams[operation.operation_id] = stream.body.chunks(asyncio.get_running_loop().create_future())
    begun = {name: [await anext(chunks), await anext(chunks)] for name, chunks in streams.items()}
    service.drain()
    followed = {}
    for name, chunks in streams.items():
        sent = [*begun[name], *[chunk async for chunk in chunks]]
        events = b"".join(sent).decode().split("\n\n")
        # There is nothing after the blank line behind the last event.
        followed[name] = {"events": "\n\n".join([*events[:2], *events[-2:]])}
    return followed


def record_examples() -> str:
    """Return the examples as JSON: ids, requests and responses."""
    log = InMemoryStore()
    clock = ManualClock("2026-03-01T10:40:00.000000Z", tick=timedelta(seconds=31, microseconds=250_417))
    space_clock = ManualClock("2026-03-01T10:50:00.000000Z", tick=timedelta(seconds=7, microseconds=31_416))
    belief = BeliefServer(store=log, clock=clock, ids=_ListedIds(), providers=discover_providers)
    seen = ServedBelief(belief)
    spaces = SubstrateServer(log=log, clock=space_clock, ids=SequentialIds(), belief=seen, keeper_seconds=None)
    with TemporaryDirectory() as directory, asyncio.Runner() as runner:
        files = KeyFiles(Path(directory) / "signing.key")
        files.adopt(SigningKey("example.com/log", Algorithm.ED25519, bytes(range(32))), "2026-03-01T10:00:00.000000Z")
        notary = Notary(log, files, clock=space_clock, ids=SequentialIds())
        belief.observe_appends(notary.note_appends)
        spaces.observe_appends(notary.note_appends)
        registry = WebhookRegistry(log, WebhookKey(bytes(range(32))), clock=space_clock, ids=SequentialIds())
        dispatcher = Dispatcher(registry, belief, spaces, Sender())
        app = BeliefApp(Service(belief, spaces=spaces, notary=notary, dispatcher=dispatcher))
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")
        recorder = Recorder(lambda *request, **options: runner.run(client.request(*request, **options)))
        recorder.play()
        runner.run(client.aclose())
        followed = runner.run(_follow_all(app.service, recorder.ids))
        app.close()
    responses = {**recorder.responses, **record_graph(), **followed}
    recorded = {"ids": recorder.ids, "requests": recorder.requests, "responses": responses}
    return json.dumps(recorded, indent=1, ensure_ascii=False) + "\n"
