"""A server with keys of several kinds, and a space with a gate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.server import SubstrateServer
from tests.support.cases import CAUSES, GATE, ONTOLOGY
from tests.support.in_process import Client, client_of
from tests.support.space_client import call

TOOL = {"tool_id": "restart", "kind": "caller", "args_schema": {"type": "object"}}
TOKEN = {"token_id": "token", "agent_id": "planner", "tool_ids": ["restart"]}


class Served:
    """A server with keys: an operator's, a harness's, two agents', a probe's."""

    def __init__(self, client: Client, registry: KeyRegistry) -> None:
        self._client = client
        self._registry = registry
        self.operator = self.key(None, "ops", Role.OPERATOR)
        self.harness = self.key(ActorKind.ENCODER, "harness", Role.HARNESS)
        self.planner = self.key(ActorKind.AGENT, "planner", Role.AGENT)
        self.other = self.key(ActorKind.AGENT, "other", Role.AGENT)
        self.probe = self.key(ActorKind.TOOL, "probe", "belief:write", "belief:read")
        self.post("/v1/spaces", {"space_id": "s", "policy": GATE}, self.operator)
        self.post("/v1/spaces/s/tools", TOOL, self.operator)
        for token in (TOKEN, {**TOKEN, "token_id": "token of other", "agent_id": "other"}):
            self.post("/v1/spaces/s/capabilities", token, self.operator)

    def key(self, kind: ActorKind | None, name: str, *granted: str) -> dict[str, str]:
        roles = [Role(each) for each in granted if each in list(Role)]
        made = self._registry.create(kind, name, roles=roles, scopes=[each for each in granted if ":" in each])
        return {"authorization": f"Bearer {made.text}"}

    def get(self, path: str, headers: dict[str, str]) -> Any:
        return self._client.get(path, headers=headers)

    def post(self, path: str, body: Any, headers: dict[str, str]) -> Any:
        return self._client.post(path, body, headers=headers)

    def declare(self, name: str) -> str:
        """An incident of this name, declared by the harness; its id."""
        declared = {"ontology": ONTOLOGY.to_dict(), "hypotheses": CAUSES, "name": name}
        session_id: str = self.post("/v1/sessions", declared, self.harness).json()["session_id"]
        return session_id

    def begin(self, case_id: str, agents: list[str]) -> str:
        """An incident of this name, begun by the harness and admitted to the space."""
        session_id = self.declare(case_id)
        case = {"case_id": case_id, "agents": agents, "attributes": {"tier": 1}}
        assert self.post("/v1/spaces/s/cases", case, self.harness).json()["granted"]
        return session_id

    def rule_out(self, session_id: str, cause: str, headers: dict[str, str]) -> None:
        body = {"source_id": "monitor", "observation_id": cause, "eliminated": [cause]}
        assert self.post(f"/v1/sessions/{session_id}/eliminate", body, headers).status_code == 200

    def restart(
        self,
        proposal_id: str,
        case_id: str | None,
        who: dict[str, str] | None = None,
        token: str | None = None,
        space_id: str = "s",
    ) -> dict[str, Any]:
        """A proposal of the planner, or of another holder of a key with a token of its own."""
        headers = who or self.planner
        actor_id = self.get("/v1/whoami", headers).json()["id"]
        snapshot = self.get(f"/v1/spaces/{space_id}", headers).json()["state_snapshot_id"]
        made = call("restart", key=proposal_id)
        made["capability_token_id"] = token or {"planner": "token", "other": "token of other"}[actor_id]
        body = {
            "proposal_id": proposal_id,
            "state_snapshot_id": snapshot,
            "provenance": {"source": actor_id, "timestamp": "2026-01-01T00:00:00Z"},
            "candidates": [made],
            **({} if case_id is None else {"case_id": case_id}),
        }
        answer: dict[str, Any] = self.post(f"/v1/spaces/{space_id}/proposals", body, headers).json()
        return answer


@contextmanager
def serving_with_keys() -> Iterator[Served]:
    """Such a server, in this process."""
    log = InMemoryStore()
    registry, belief = KeyRegistry(log), BeliefServer(store=log)
    spaces = SubstrateServer(log=log, belief=ServedBelief(belief), keeper_seconds=None)
    app = BeliefApp(Service(belief, Gate(registry), spaces=spaces))
    with client_of(app) as client:
        yield Served(client, registry)
    app.close()
