"""A space for the tool calls of agent frameworks: what reads is allowed, `restart` asks, `scale` waits for belief."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from cmbs.api.spaces import ApprovalItem, ExecutionResponse, ProposalResponse
from cmbs.client import Case, Client, connect
from cmbs.frameworks.gate import Gate

SPACE = "shop"
TOKEN = "planner-token"
ONTOLOGY = {
    "hypothesis_space_id": "checkout",
    "hypothesis_version": "1",
    "causal_graph_ref": "none",
    "causal_graph_version": "1",
}
POLICY: dict[str, Any] = {
    "format": 2,
    "title": "tool calls of an agent",
    "rules": [
        {"name": "look", "allow": "look"},
        {"name": "restart", "allow": "restart", "when": "args.service == 'cache'", "otherwise": "ask"},
        {"name": "scale", "allow": "scale", "when": "case.belief.n_survivors == 1", "otherwise": "defer"},
    ],
}
# `drop` is registered, and no rule allows it.
TOOLS = ("look", "restart", "scale", "drop")


class World:
    """A server in this process, an operator and an agent of it, and the tools that the agent runs."""

    def __init__(self, address: str, operator: Client, agent: Client) -> None:
        self.address = address
        self.operator = operator
        self.agent = agent
        self.ran: list[str] = []
        self._numbers = count(1)

    def open_case(self) -> Case:
        """A new case that the operator's harness opened for the agent, joined by the agent."""
        name = f"INC-{next(self._numbers)}"
        self.operator.declare_session(ontology=ONTOLOGY, hypotheses=["cpu", "dns"], name=name)
        self.operator.open_case(SPACE, name, agents=["planner"])
        return self.join(name)

    def join(self, case_id: str) -> Case:
        """The case as a process of the agent sees it that has just started."""
        case = self.agent.case(case_id, space=SPACE)
        case.open()
        return case

    def open_gate(self, case: Case | None = None, **options: Any) -> Gate:
        return Gate(case or self.open_case(), token=TOKEN, **options)

    def act(self, name: str, **args: Any) -> str:
        """What every tool does: note that it ran."""
        self.ran.append(f"{name} {args.get('service', '')}".strip())
        if args.get("service") == "broken":
            raise ZeroDivisionError("it broke")
        return f"{name} of {args.get('service', 'all')}: done"

    def proposals(self, case: Case) -> list[ProposalResponse]:
        return list(self.operator.each(self.operator.list_proposals, SPACE, case_id=str(case.case_id)))

    def executions(self, case: Case) -> list[ExecutionResponse]:
        return list(self.operator.each(self.operator.list_executions, SPACE, case_id=str(case.case_id)))

    def approvals(self, case: Case) -> list[ApprovalItem]:
        """Those that are asked for in a case."""
        asked = self.operator.each(self.operator.list_approvals, SPACE, case_id=str(case.case_id), status="pending")
        return list(asked)

    def approve(self, case: Case) -> None:
        """As the operator, approve whatever is asked for in a case."""
        for approval in self.approvals(case):
            assert self.operator.approve(SPACE, approval.approval_id).step.granted

    def reject(self, case: Case, reason: str) -> None:
        for approval in self.approvals(case):
            assert self.operator.reject(SPACE, approval.approval_id, reason=reason).step.granted


def set_up(operator: Client) -> None:
    """The space, its tools, and the token of the agent."""
    operator.create_space(SPACE, policy_file=POLICY)
    for tool_id in TOOLS:
        writes = tool_id != "look"
        operator.register_tool(
            SPACE, tool_id=tool_id, kind="caller", args_schema={"type": "object"}, writes=writes, idempotent=not writes
        )
    operator.issue_capability(SPACE, token_id=TOKEN, agent_id="planner", tool_ids=list(TOOLS))


def build_restart(directory: str) -> Callable[..., str]:
    """A tool that notes in a file that it ran; with `crash` it ends the process in the middle of the call."""

    def restart(service: str, crash: bool = False) -> str:  # noqa: FBT002 - as a model calls it
        """Restart a service."""
        with Path(directory, "ran.txt").open("a") as notes:
            notes.write(f"{service}\n")
        if crash:
            os._exit(9)
        return f"{service} is up"

    return restart


@contextmanager
def open_world(store: str) -> Iterator[World]:
    with ExitStack() as opened:
        operator = opened.enter_context(connect(store, actor="operator:ops"))
        agent = opened.enter_context(connect(store, actor="agent:planner"))
        set_up(operator)
        yield World(store, operator, agent)
