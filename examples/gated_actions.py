"""What may be done follows from what may still be believed: `python examples/gated_actions.py [DIRECTORY]`.

An agent looks into a slow checkout. It may restart the service, through a real HTTP endpoint, only when its session has
one survivor and no open obligation; before that the call is deferred, and wakes by itself. It may file a ticket, with a
real MCP server, when a person approves. It may never drop the database. In the end both logs are verified offline.

Without a directory everything lies in a temporary one. Ends with 1 where something is not as it should be.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from cmbs.belief.server import BeliefServer
from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.stores import open_store
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import (
    Approve,
    CreateSpace,
    IssueCapability,
    Propose,
    RegisterTool,
    SpaceMessage,
    StepResult,
)
from cmbs.substrate.kernel.model import Capability, Proposal, Provenance, Tool, ToolCall, ToolKind
from cmbs.substrate.kernel.policy.file import compile_file
from cmbs.substrate.kernel.replay import verify_belief_pins, verify_space
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from cmbs.substrate.tools.opening import open_tools

OPERATOR = Actor(ActorKind.OPERATOR, "root")
ON_CALL = Actor(ActorKind.OPERATOR, "on-call")
AGENT = Actor(ActorKind.AGENT, "scout")
SPACE, TOKEN = "ops", "scout-token"
PATIENCE_SECONDS = 30.0
SECRET = "Bearer example-of-a-token"


POLICY = """
format: 2
rules:
  # What a tool's result says of facts is a change of the state, and needs a permission as others do.
  - name: facts_of_tools
    allow: state
  - name: restart_when_known
    allow: service.restart
    when: >
      belief["SESSION"].n_survivors == 1 &&
      belief["SESSION"].active_obligation_id == null
    otherwise: defer
  - name: ticket
    allow: ticket.file
  - name: ticket_is_asked_for
    deny: ticket.file
    when: args.severity <= 2
    otherwise: ask
    because: severity 1 and 2 wake people up
"""


def policy_for(session_id: str) -> dict[str, str]:
    """The rules of the house, compiled to constraints."""
    return compile_file(POLICY.replace("SESSION", session_id).encode(), "policy.yaml").pairs


def tools(control_url: str) -> list[Tool]:
    """A restart over HTTP, a ticket over MCP, and something that nobody may do."""
    service = raw({"type": "object", "properties": {"service": {"type": "string"}}, "required": ["service"]})
    ticket = raw({"type": "object", "required": ["title", "severity"]})
    restart = {
        "url": control_url + "/services/{service}/restart",
        "headers": {"Authorization": "CMBS_TOOL_SECRET_CONTROL"},
    }
    return [
        Tool(
            "service.restart",
            ToolKind.HTTP,
            service,
            target=raw(restart),
            result_schema=raw({"type": "object", "required": ["state"]}),
            facts={"fact.checkout_state": "state"},
        ),
        Tool("ticket.file", ToolKind.MCP, ticket, target=raw({"server": "desk", "tool": "file_ticket"})),
        Tool("database.drop", ToolKind.HTTP, raw({}), target=raw({"url": control_url + "/database/drop"})),
    ]


class Ops:
    """The space, and short ways to talk to it."""

    def __init__(self, server: SubstrateServer) -> None:
        self.server = server

    def tell(self, message: SpaceMessage, actor: Actor = OPERATOR) -> StepResult:
        """Send a message; what came of it."""
        return self.server.perform(SpaceCommand(SPACE, actor, message)).event.result

    def propose(self, tool_id: str, args: dict[str, Any]) -> str:
        """Propose one call; the id of the proposal."""
        snapshot_id = self.server.current(SPACE).snapshot_id
        provenance = Provenance(AGENT.id, "2026-01-31T09:30:00Z", permissions=[TOKEN])
        call = ToolCall(tool_id, raw(args), TOKEN, f"key of {tool_id}")
        proposal_id = f"to call {tool_id}"
        result = self.tell(Propose(Proposal(proposal_id, snapshot_id, provenance, [call])), AGENT)
        if result.decision is None:
            raise ValueError("a proposal is always decided")
        print(f"  {tool_id}: {result.decision.verdict.value}, {result.decision.candidates[0].reason_code.value}")
        return proposal_id

    def outcome(self, proposal_id: str) -> tuple[str, Any]:
        """Where a proposal stands once nothing is left to wait for, and what its call came to."""
        record = self.server.wait_for(SPACE, proposal_id, PATIENCE_SECONDS)
        executions = self.server.current(SPACE).executions
        results = [msgspec.json.decode(executions[each].result) for each in record.execution_ids]
        print(f"  {proposal_id}: {record.status.value} {json.dumps(results)}")
        return record.status.value, results


def main(directory: Path) -> int:
    book = directory / "tickets.jsonl"
    desk = str(Path(__file__).with_name("incident_desk.py"))
    servers = {"servers": {"desk": {"transport": "stdio", "command": [sys.executable, desk, "stdio", str(book)]}}}
    (directory / "servers.json").write_text(json.dumps(servers), "utf-8")
    environment = {"CMBS_TOOL_SERVERS": str(directory / "servers.json"), "CMBS_TOOL_SECRET_CONTROL": SECRET}
    store = open_store(f"sqlite:///{directory / 'cmbs.db'}")
    belief = BeliefServer(store=store)
    substrate = SubstrateServer(log=store, belief=ServedBelief(belief), runner=open_tools(environment))
    with control() as (url, restarted):
        try:
            good = act(belief, Ops(substrate), url, restarted, book)
            good = verified(belief, substrate) and good
        finally:
            substrate.close()
            belief.close()
    print("everything is as it should be" if good else "something is not as it should be")
    return 0 if good else 1


def act(belief: BeliefServer, ops: Ops, url: str, restarted: list[str], book: Path) -> bool:
    """The incident, from what is believed to what is done about it."""
    ontology = OntologyBundle("checkout-latency", "3", "graph://checkout", "v17")
    session_id, _ = belief.declare_session(ontology, ["bad-deploy", "disk-full", "dns"])
    belief.enter_obligation(session_id, "look-before-you-leap", 2)
    ops.tell(CreateSpace(SPACE, policy=policy_for(session_id)))
    for tool in tools(url):
        ops.tell(RegisterTool(tool))
    ops.tell(IssueCapability(Capability(TOKEN, AGENT.id, [tool.tool_id for tool in tools(url)])))

    print("three causes are possible, and the agent wants to act")
    restart = ops.propose("service.restart", {"service": "checkout"})
    dropped = ops.outcome(ops.propose("database.drop", {}))
    ticket = ops.propose("ticket.file", {"title": "checkout is slow", "severity": 1})
    print(f"  restarted so far: {restarted}")
    nothing_yet = restarted == [] and not book.exists()

    print("somebody approves the ticket")
    (approval_id,) = ops.server.current(SPACE).proposals[ticket].approval_ids
    ops.tell(Approve(approval_id), ON_CALL)
    filed = ops.outcome(ticket)

    print("the other causes are ruled out, and the obligation is met")
    belief.eliminate(session_id, "probe://disk", "df-1", ["disk-full"])
    belief.eliminate(session_id, "probe://dns", "dig-1", ["dns"])
    belief.request_exit(session_id, "look-before-you-leap")
    done = ops.outcome(restart)
    fact = ops.server.current(SPACE).state.get("fact.checkout_state")
    print(f"  restarted so far: {restarted}, fact.checkout_state is {fact}")
    return (nothing_yet, dropped, filed, done, restarted, fact) == (
        True,
        ("denied", []),
        ("committed", [{"severity": 1, "ticket_id": "INC-1"}]),
        ("committed", [{"service": "checkout", "state": "up"}]),
        ["checkout"],
        "up",
    )


def verified(belief: BeliefServer, substrate: SubstrateServer) -> bool:
    """Whether the two logs alone prove all of it."""
    entries = substrate.stored_entries(SPACE)
    space = verify_space(SPACE, entries, substrate.head(SPACE))
    sessions = [summary.session_id for summary in belief.list_sessions()]
    logs = {session_id: list(belief.stored_entries(session_id)) for session_id in sessions}
    pins = verify_belief_pins(entries, logs)
    secret = any(SECRET.split()[1].encode() in entry.raw for entry in entries)
    print(f"{len(entries)} entries verify, {pins} readings of the belief plane are what it said, no credential in them")
    return space.snapshot_id == substrate.current(SPACE).snapshot_id and pins > 1 and not secret


@contextmanager
def control() -> Iterator[tuple[str, list[str]]]:
    """A service control on loopback that wants to be told the token; its URL, and what it restarted."""
    restarted: list[str] = []

    class Control(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            _, services, service, verb = self.path.split("/")
            self.rfile.read(int(self.headers["content-length"]))
            if (services, verb, self.headers["authorization"]) != ("services", "restart", SECRET):
                self.send_error(403)
                return
            restarted.append(service)
            body = json.dumps({"service": service, "state": "up"}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name that it overrides
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Control) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", restarted
        finally:
            server.shutdown()
            thread.join()


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
