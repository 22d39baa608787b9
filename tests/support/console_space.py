"""A space for tests of the console: a policy file with gates, a case on an incident, and proposals in every state."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.support.console_story import Incident

SPACE, CASE = "ops", "INC-2291"
OPERATOR = {"x-cmbs-actor": "operator:console"}
AGENT = {"x-cmbs-actor": "agent:metrics"}
POLICY = """\
# What agents may do in the space `ops`. Everything else is denied.
format: 2
title: Operations
tools: [{tool_id: service.restart}, {tool_id: deployment.rollback}, {tool_id: ticket.file}]
rules:
  - name: restart_when_known
    allow: service.restart
    when: >
      case.belief.n_survivors == 1 &&
      case.belief.active_obligation_id == null &&
      args.service == "orders"
    otherwise: defer
    because: restart only what is known to be the cause
  - name: rollback_by_a_person
    allow: deployment.rollback
    when: fact.rollback_window == "open"
    otherwise: ask
    because: a rollback is a person's call
  - name: tickets
    allow: ticket.file
    when: args.severity <= 4
  - name: goals
    allow: state
given:
  actor: agent:metrics
  capabilities:
    - {token_id: t-metrics, agent_id: metrics, tool_ids: [ticket.file]}
tests:
  - name: a small ticket is filed
    proposal:
      candidates:
        - type: tool_call
          tool_id: ticket.file
          args: {severity: 2}
          capability_token_id: t-metrics
          idempotency_key: a
    expect: {verdict: allow}
  - name: a ticket without a severity is not
    proposal:
      candidates:
        - type: tool_call
          tool_id: ticket.file
          args: {}
          capability_token_id: t-metrics
          idempotency_key: b
    expect: {verdict: deny}
"""
# Longer than any test: a call that runs must not fall in doubt, and so into the inbox, while tests look at it.
CALL_MS = 3_600_000
TOOLS = ("service.restart", "deployment.rollback", "ticket.file", "database.drop")


class Space:
    """A space over HTTP; agents propose in it."""

    def __init__(self, client: httpx2.Client, space_id: str = SPACE) -> None:
        self._client = client
        self.path = f"/v1/spaces/{space_id}"
        self.id = space_id
        # The sessions of cases, by the names that tests know them by.
        self.cases: dict[str, str] = {}

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str] = OPERATOR) -> dict[str, Any]:
        """One request that must succeed."""
        answer = self._client.post(path, json=body, headers=headers, timeout=60)
        assert answer.is_success, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def get(self, path: str) -> dict[str, Any]:
        """One read as the operator."""
        answer = self._client.get(f"{self.path}{path}", headers=OPERATOR)
        assert answer.is_success, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def create(self) -> None:
        """The space with its policy and its tools, and a token for the agent."""
        self.post("/v1/spaces", {"space_id": self.id, "operators_needed": 1})
        headers = {**OPERATOR, "content-type": "application/yaml"}
        answer = self._client.put(f"{self.path}/policy", content=POLICY, headers=headers, timeout=60)
        assert answer.is_success, answer.text
        for tool in TOOLS:
            tool_body = {"tool_id": tool, "kind": "caller", "args_schema": {"type": "object"}, "idempotent": False}
            self.post(f"{self.path}/tools", {**tool_body, "timeout_ms": CALL_MS})
        token = {"token_id": "t-metrics", "agent_id": "metrics", "tool_ids": list(TOOLS)}
        self.post(f"{self.path}/capabilities", token)

    def open_case(self, incident: Incident, case_id: str = CASE) -> None:
        """Name an incident, if it has no name and no other has this one, and admit it to the space."""
        named = self._client.get("/v1/sessions", params={"name": case_id}, headers=OPERATOR).json()
        said = self._client.get(f"/v1/sessions/{incident.id}/case", headers=OPERATOR).json()
        if not named["sessions"] and said["name"] is None:
            self.post(f"/v1/sessions/{incident.id}/name", {"name": case_id})
        self.cases[case_id] = incident.id
        self.post(
            f"{self.path}/cases", {"case_id": incident.id, "agents": ["metrics"], "attributes": {"severity": "2"}}
        )

    def propose(self, tool: str, args: dict[str, Any], key: str, case_id: str | None = CASE) -> dict[str, Any]:
        """A call that the agent proposes; the answer."""
        call = {"tool_id": tool, "args": args, "capability_token_id": "t-metrics", "idempotency_key": key}
        return self.propose_candidate({"type": "tool_call", **call}, key, case_id)

    def propose_candidate(self, candidate: dict[str, Any], key: str, case_id: str | None) -> dict[str, Any]:
        """A candidate that the agent proposes by itself; the answer."""
        snapshot = self.get("")["state_snapshot_id"]
        body = {
            "proposal_id": f"p-{key}",
            "state_snapshot_id": snapshot,
            "provenance": {
                "source": "metrics",
                "timestamp": "2026-11-17T03:04:51Z",
                "inputs": ["alert-17"],
                "permissions": [],
            },
            "candidates": [candidate],
            **({} if case_id is None else {"case_id": self.cases.get(case_id, case_id)}),
        }
        return self.post(f"{self.path}/proposals", body, AGENT)


def tell_space(client: httpx2.Client, incident: Incident, space_id: str = SPACE) -> Space:
    """A restart that waits, a rollback that asks, a ticket that runs, and a drop that is denied."""
    space = Space(client, space_id)
    space.create()
    space.open_case(incident)
    space.propose("ticket.file", {"severity": 2, "text": "checkout is slow"}, "ticket")
    space.propose("database.drop", {"name": "orders"}, "drop")
    space.propose("service.restart", {"service": "orders"}, "restart")
    space.propose("deployment.rollback", {"service": "catalogue", "to_revision": 41}, "rollback")
    return space
