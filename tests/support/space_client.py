"""A client of one space over HTTP, and the actors that send its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import hash_of_nonce
from cmbs.substrate.server import SubstrateServer
from cmbs.testing import ManualClock, SequentialIds
from tests.support.in_process import client_of

OPS, LEAD, PLANNER, OTHER, ENCODER = "operator:ops", "operator:lead", "agent:planner", "agent:other", "encoder:probe"
ALLOW = '{"v":1,"effect":"allow","subject":null}'
ASK = '{"v":1,"effect":"deny","subject":{"tool_id":"risky"},"on_fail":"ask"}'
POLICY = {"constraint.any": ALLOW, "constraint.risky": ASK, "policy.private": '["fact.secret."]'}


class SpaceClient:
    """Sends requests about one space, each with an actor."""

    def __init__(self, request: Callable[..., httpx2.Response], space_id: str = "s") -> None:
        self._request = request
        self.space_id = space_id

    def get(self, path: str = "", who: str = OPS, **options: Any) -> httpx2.Response:
        return self._request("GET", self._path(path), headers={"x-cmbs-actor": who}, **options)

    def post(self, path: str, body: Any = None, who: str = OPS, **headers: str) -> httpx2.Response:
        sent = {} if body is None else {"json": body}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._request("POST", self._path(path), headers={"x-cmbs-actor": who, **named}, **sent)

    def post_raw(self, path: str, content: bytes, who: str = OPS) -> httpx2.Response:
        """POST bytes that claim to be JSON."""
        headers = {"content-type": "application/json", "x-cmbs-actor": who}
        return self._request("POST", self._path(path), content=content, headers=headers)

    def declare(self, body: Any, who: str = OPS) -> httpx2.Response:
        """Declare a session beside the space."""
        return self._request("POST", "/v1/sessions", headers={"x-cmbs-actor": who}, json=body)

    def create(self, policy: dict[str, str] | None = None, **options: Any) -> dict[str, Any]:
        body = {"space_id": self.space_id, "policy": POLICY if policy is None else policy, **options}
        answer = self._request("POST", "/v1/spaces", headers={"x-cmbs-actor": OPS}, json=body)
        assert answer.status_code == 201, answer.text
        created: dict[str, Any] = answer.json()
        return created

    def equip(self, *tool_ids: str, agent: str = "planner", token: str = "token", **parts: Any) -> None:
        """Register tools that the agent runs itself, and issue a token for all of them."""
        for tool_id in tool_ids:
            tool = {"tool_id": tool_id, "kind": "caller", "args_schema": {"type": "object"}, **parts}
            assert self.post("/tools", tool).json()["granted"]
        issued = {"token_id": token, "agent_id": agent, "tool_ids": list(tool_ids)}
        assert self.post("/capabilities", issued).json()["granted"]

    def proposal(self, *candidates: dict[str, Any], who: str = PLANNER, **parts: Any) -> dict[str, Any]:
        """A proposal on the newest snapshot."""
        return {
            "proposal_id": "p1",
            "state_snapshot_id": self.get().json()["state_snapshot_id"],
            "provenance": {"source": who.partition(":")[2], "timestamp": "2026-01-01T00:00:00Z"},
            "candidates": list(candidates),
            **parts,
        }

    def propose(self, *candidates: dict[str, Any], who: str = PLANNER, **parts: Any) -> dict[str, Any]:
        """Propose on the newest snapshot, and return the answer."""
        answer = self.post("/proposals", self.proposal(*candidates, who=who, **parts), who)
        assert answer.status_code == 200, answer.text
        proposed: dict[str, Any] = answer.json()
        return proposed

    def run(self, call_id: str, outcome: dict[str, Any], who: str = PLANNER) -> dict[str, Any]:
        """Claim a call, as the one who runs it, and report what came of it."""
        nonce = f"nonce of {call_id}"
        claim = {"call_hash": self.get(f"/calls/{call_id}").json()["call_hash"], "nonce_hash": hash_of_nonce(nonce)}
        claimed = self.post(f"/calls/{call_id}/claim", claim, who)
        assert claimed.json()["status"] == "running", claimed.text
        reported: dict[str, Any] = self.post(f"/calls/{call_id}/outcome", {**outcome, "nonce": nonce}, who).json()
        return reported

    def policy_change(self, change_id: str = "c", **parts: Any) -> dict[str, Any]:
        """A change of the newest policy."""
        return {"change_id": change_id, "base_policy_hash": self.get().json()["policy_hash"], **parts}

    def change_policy(self, **pairs: str) -> None:
        """Set pairs of the policy, by two operators; the first underscore of a name is a dot."""
        change = self.policy_change(set={name.replace("_", ".", 1): text for name, text in pairs.items()})
        assert self.post("/policy/changes", change).json()["granted"]
        assert self.post("/policy/changes/c/authorise", who=LEAD).json()["granted"]

    def _path(self, path: str) -> str:
        return f"/v1/spaces/{self.space_id}{path}"


def delta(unset: tuple[str, ...] = (), /, **pairs: str) -> dict[str, Any]:
    """A delta; the first underscore of a name is the dot after the namespace."""
    named = {name.replace("_", ".", 1): text for name, text in pairs.items()}
    return {"type": "state_delta", "set": named, "unset": list(unset)}


def call(tool_id: str, args: Any = None, *, key: str | None = "k1", token: str | None = "token") -> dict[str, Any]:
    found = {"type": "tool_call", "tool_id": tool_id, "args": args or {}, "capability_token_id": token}
    return {**found, "idempotency_key": key}


def app_over(log: InMemoryStore, clock: ManualClock | None = None, number: int = 0) -> BeliefApp:
    """An application over a log, with a clock that a test owns and without a scheduler of deadlines."""
    server = BeliefServer(store=log)
    ids = SequentialIds(number)
    belief = ServedBelief(server)
    spaces = SubstrateServer(log=log, clock=clock or ManualClock(), ids=ids, belief=belief, keeper_seconds=None)
    return BeliefApp(Service(server, spaces=spaces))


@contextmanager
def space_client(app: BeliefApp) -> Iterator[SpaceClient]:
    """A client of an application for as long as a test needs it."""
    with client_of(app) as client:
        yield SpaceClient(client.request)
    app.close()
