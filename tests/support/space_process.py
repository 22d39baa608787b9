"""Programs that use a space from a process of their own, for tests that kill them or let them race.

`stuck`: calls a tool that says that it runs, and then never comes back. `propose`: proposes as fast as it can, a line
for each proposal that was acknowledged.
"""

from __future__ import annotations

import sys
from threading import Event

from cmbs.errors import StoreUnavailable
from cmbs.stores import open_store
from cmbs.substrate.kernel.events import CreateSpace, IssueCapability, Propose, RegisterTool
from cmbs.substrate.kernel.model import Capability, Proposal, Provenance, StateDelta, Tool
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from cmbs.substrate.tools.runner import CallContext, ToolReply
from cmbs.system import RandomIds, SystemClock
from tests.support.spaces import AGENT, ANY, ROOT, SPACE, TOKEN, call, delta, http_tool


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class StuckRunner:
    """A runner whose calls begin, and never end."""

    def run(self, tool: Tool, args: bytes, context: CallContext) -> ToolReply:
        """Say that the effect has begun; the process is killed before it says anything else."""
        say(f"{tool.tool_id} {args.decode()} {context.execution_id}")
        Event().wait()
        raise RuntimeError("it came back")

    def close(self) -> None:
        pass


def open_server(url: str, runner: StuckRunner | None = None) -> SubstrateServer:
    """A server over the store that the processes share."""
    return SubstrateServer(log=open_store(url), clock=SystemClock(), ids=RandomIds(), runner=runner)


def stuck(url: str, idempotent: str) -> None:
    """Propose a call that gets stuck, a delta beside it, and wait to be killed."""
    server = open_server(url, StuckRunner())
    server.perform(SpaceCommand(SPACE, ROOT, CreateSpace(SPACE, policy={"constraint.any": ANY})))
    tool = http_tool("t", idempotent=idempotent == "idempotent")
    server.perform(SpaceCommand(SPACE, ROOT, RegisterTool(tool)))
    server.perform(SpaceCommand(SPACE, ROOT, IssueCapability(Capability(TOKEN, AGENT.id, ["t"]))))
    snapshot_id = server.current(SPACE).snapshot_id
    proposal = Proposal("p", snapshot_id, Provenance(AGENT.id, "now"), [call("t", {"x": 1}), delta(a="1")])
    server.perform(SpaceCommand(SPACE, AGENT, Propose(proposal)))
    Event().wait()


def propose(url: str, name: str, proposals: str) -> None:
    """Propose so many goals, each until it is committed; the same ids as every other process for every third."""
    server = open_server(url)
    server.ensure(SPACE, {"constraint.any": ANY})
    for number in range(int(proposals)):
        shared = number % 3 == 0
        proposal_id = f"shared-{number}" if shared else f"{name}-{number}"
        value = "same" if shared else name
        wanted = StateDelta({f"goal.{proposal_id}": value})
        proposal: Proposal | None = None
        while True:
            try:
                if proposal is None:
                    space = server.current(SPACE)
                    # A shared one must be the same proposal in every process, so it is made on the first snapshot.
                    snapshot_id = min(space.snapshots, key=space.snapshots.__getitem__) if shared else space.snapshot_id
                    proposal = Proposal(proposal_id, snapshot_id, Provenance(AGENT.id, "now"), [wanted])
                answer = server.perform(SpaceCommand(SPACE, AGENT, Propose(proposal)))
            except StoreUnavailable:
                # The same one again: the first may have been recorded, and only its answer lost.
                continue
            say(f"{answer.event.body.event_id} {proposal_id}")
            break
    server.close(close_log=True)


if __name__ == "__main__":
    if sys.argv[1] == "stuck":
        stuck(*sys.argv[2:])
    else:
        propose(*sys.argv[2:])
