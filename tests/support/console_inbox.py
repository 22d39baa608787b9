"""A second space for tests of the console, in which everything that can wait for a person does."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.support.console_space import OPERATOR, Space
from tests.support.console_story import Incident

SPACE, CASE = "payments", "INC-2304"
SECOND = {"x-cmbs-actor": "operator:night-shift"}
POLICY = """\
format: 2
title: Payments
tools: [{tool_id: traffic.drain}, {tool_id: refund.send}]
rules:
  - name: drain_when_known
    allow: traffic.drain
    when: case.belief.n_survivors == 1
    otherwise: ask
    because: with more than one cause left, a person drains traffic
  - name: refunds
    allow: refund.send
  - name: goals
    allow: state
  - name: goals_by_a_person
    deny: state
    when: actor.kind == "agent"
    otherwise: ask
    because: a goal is a person's call
"""


class Payments(Space):
    """The space, and the incident that its case is about."""

    def __init__(self, client: httpx2.Client) -> None:
        super().__init__(client, SPACE)

    def put_policy(self, policy: str, headers: dict[str, str]) -> dict[str, Any]:
        """Propose a policy file."""
        answer = self._client.put(
            f"{self.path}/policy", content=policy, headers={**headers, "content-type": "application/yaml"}, timeout=60
        )
        assert answer.is_success, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def create(self) -> None:
        """The space, with a tool that keeps a fact and one that runs out of time at once."""
        self.post("/v1/spaces", {"space_id": self.id, "operators_needed": 1})
        self.put_policy(POLICY, OPERATOR)
        tool = {"kind": "caller", "args_schema": {"type": "object"}, "idempotent": False}
        drain = {"tool_id": "traffic.drain", "facts": {"fact.drained": "/pool"}, "caller_facts": True}
        self.post(f"{self.path}/tools", {**tool, **drain})
        self.post(f"{self.path}/tools", {**tool, "tool_id": "refund.send", "timeout_ms": 1})
        token = {"token_id": "t-metrics", "agent_id": "metrics", "tool_ids": ["traffic.drain", "refund.send"]}
        self.post(f"{self.path}/capabilities", token)

    def ask_for_goal(self, value: str, key: str) -> None:
        """A goal that the agent wants set."""
        candidate = {"type": "state_delta", "set": {"goal.restore": value}, "unset": []}
        self.propose_candidate(candidate, key, CASE)


def tell_inbox(client: httpx2.Client, incident: Incident) -> Payments:
    """Two approvals, an execution in doubt, a change of policy and one of mode, each of which waits."""
    space = Payments(client)
    space.create()
    space.open_case(incident, CASE)
    space.propose("traffic.drain", {"pool": "checkout-eu", "share": 0.5}, "drain", CASE)
    space.ask_for_goal("checkout", "goal")
    space.propose("refund.send", {"order": "A-1731", "amount": 40}, "refund", CASE)
    space.post(f"{space.path}/governance", {"operators_needed": 2})
    space.put_policy(POLICY.replace("n_survivors == 1", "n_survivors <= 2"), SECOND)
    space.post(f"{space.path}/mode", {"mode": "observe"}, SECOND)
    return space
