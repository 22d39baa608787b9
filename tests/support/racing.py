"""Programs that race for one belief session from two processes, a round for each line that they read.

`enter`: enters an obligation on the session. `act`: proposes the call that is allowed while no obligation is open. A
line is `<round> <session_id>`; each says when it began and ended, on the monotonic clock that processes share.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing

from cmbs.belief.server import BeliefServer
from cmbs.stores import open_store
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import Propose
from cmbs.substrate.kernel.model import Proposal, Provenance
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from tests.support.space_process import say
from tests.support.spaces import AGENT, call

OBLIGATION = "look"
PROPOSAL = "restart"


def space_of(number: int) -> str:
    """The space of a round."""
    return f"round-{number}"


def enter(url: str) -> None:
    """Enter an obligation in each round."""
    with closing(BeliefServer(store=open_store(url))) as belief:
        for line in sys.stdin:
            number, session_id = line.split()
            began = time.monotonic_ns()
            belief.enter_obligation(session_id, OBLIGATION, 2)
            say(f"{number} {began} {time.monotonic_ns()}")


def act(url: str) -> None:
    """Propose the call in each round."""
    log = open_store(url)
    belief = BeliefServer(store=log)
    with closing(SubstrateServer(log=log, belief=ServedBelief(belief), keeper_seconds=None)) as server:
        for line in sys.stdin:
            number, _ = line.split()
            space_id = space_of(int(number))
            snapshot_id = server.current(space_id).snapshot_id
            began = time.monotonic_ns()
            proposal = Proposal(PROPOSAL, snapshot_id, Provenance(AGENT.id, "now"), [call("restart")])
            server.perform(SpaceCommand(space_id, AGENT, Propose(proposal)))
            say(f"{number} {began} {time.monotonic_ns()}")


if __name__ == "__main__":
    {"enter": enter, "act": act}[sys.argv[1]](sys.argv[2])
