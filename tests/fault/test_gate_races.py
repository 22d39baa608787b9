"""A race between an obligation that is entered and a call that is allowed, in two processes over one store."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

import msgspec
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.messages import OntologyBundle
from cmbs.stores import Store, open_store
from cmbs.substrate.kernel.events import CreateSpace, IssueCapability, RegisterTool
from cmbs.substrate.kernel.model import Capability, Verdict
from cmbs.substrate.kernel.replay import read_space_event, readings_in, verify_belief_pins, verify_space
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from tests.support.effort import read_effort
from tests.support.racing import OBLIGATION, PROPOSAL, space_of
from tests.support.spaces import AGENT, ROOT, TOKEN, caller_tool, constraint
from tests.support.warm import start

pytestmark = pytest.mark.slow

ONTOLOGY = OntologyBundle("checkout-latency", "3", "graph://checkout", "v17")
# Of ten rounds eight are races: 120 of them at `ci` on each database, and ten times as many at `deep`.
ROUNDS, PERIOD = 1_500 if read_effort().everything else 150, 10


class Span(NamedTuple):
    """When a request was sent, and when it was acknowledged."""

    began: int
    ended: int


class Racer:
    """One of the two processes."""

    def __init__(self, kind: str, url: str) -> None:
        pipe = subprocess.PIPE
        self.process = start("tests.support.racing", kind, url, stdin=pipe, stdout=pipe, text=True)

    def send(self, number: int, session_id: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{number} {session_id}\n")
        self.process.stdin.flush()

    def wait(self, number: int) -> Span:
        assert self.process.stdout is not None
        said, began, ended = self.process.stdout.readline().split()
        assert int(said) == number
        return Span(int(began), int(ended))

    def stop(self) -> int:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        return self.process.wait()


@contextmanager
def racing(url: str) -> Iterator[tuple[Racer, Racer]]:
    racers = Racer("enter", url), Racer("act", url)
    try:
        yield racers
    finally:
        codes = [racer.stop() for racer in racers]
    assert codes == [0, 0]


def prepare(url: str) -> list[str]:
    """A session with one cause left and no obligation, and a space gated on it, for every round."""
    store = open_store(url)
    session_ids = []
    with closing(BeliefServer(store=store)) as belief:
        spaces = SubstrateServer(log=store, keeper_seconds=None)
        for number in range(ROUNDS):
            session_id, _ = belief.declare_session(ONTOLOGY, ["deploy", "dns"])
            belief.eliminate(session_id, "probe", "dns", ["dns"])
            session_ids.append(session_id)
            known = [
                {"op": "eq", "args": [f"$belief.{session_id}.n_survivors", 1]},
                {"op": "eq", "args": [f"$belief.{session_id}.active_obligation_id", None]},
            ]
            gate = constraint(subject={"tool_id": "restart"}, when={"op": "all", "args": known}, on_fail="defer")
            space_id = space_of(number)
            for message in (
                CreateSpace(space_id, policy={"constraint.gate": gate}),
                RegisterTool(caller_tool("restart")),
                IssueCapability(Capability(TOKEN, AGENT.id, ["restart"])),
            ):
                spaces.perform(SpaceCommand(space_id, ROOT, message))
        spaces.close()
    store.close()
    return session_ids


def run_round(entering: Racer, acting: Racer, number: int, session_id: str) -> tuple[Span, Span]:
    """One after the other, in either order, in the first two rounds of a period; at once in the others."""
    if number % PERIOD == 0:
        entering.send(number, session_id)
        entered = entering.wait(number)
        acting.send(number, session_id)
        return entered, acting.wait(number)
    acting.send(number, session_id)
    if number % PERIOD == 1:
        acted = acting.wait(number)
        entering.send(number, session_id)
        return entering.wait(number), acted
    entering.send(number, session_id)
    acted = acting.wait(number)
    return entering.wait(number), acted


def judge(store: Store, number: int, session_id: str, entered: Span, acted: Span) -> bool:
    """Whether the call runs; an assertion fails where it runs on a belief that the log contradicts.

    The log contradicts what a call runs on, where
    - the session, at the head that the decision pins, did not say what the decision read (`verify_belief_pins`),
    - or what it said there does not hold the gate open: more than one cause left, or an obligation active,
    - or the pin is older than an entry that was acknowledged before the call was sent. An obligation that is entered
      while the call is being decided may come before or after it; the pin says which, and the verdict follows the pin.
    """
    stream_id = f"space:{space_of(number)}"
    entries, log = store.read(stream_id), store.read(session_id)
    space = verify_space(space_of(number), entries, store.head(stream_id))
    assert verify_belief_pins(entries, {session_id: log}) == 1
    (reading,) = [each for stored in entries for each in readings_in(read_space_event(stored))]
    obligated = [msgspec.json.decode(stored.raw)["verb"] for stored in log].index("ENTER_OBLIGATION")
    is_open = reading.head_seq < obligated
    assert (reading.n_survivors, reading.active_obligation_id) == (1, None if is_open else OBLIGATION)
    runs = bool(space.executions)
    assert runs is (space.proposals[PROPOSAL].decision.verdict is Verdict.ALLOW) is is_open
    if entered.ended < acted.began:
        assert not runs, f"round {number}: the obligation was acknowledged before the call was sent"
    if acted.ended < entered.began:
        assert runs, f"round {number}: the obligation was sent after the call was decided"
    return runs


@pytest.mark.req("GATES-RACE-01")
def test_no_call_runs_on_a_belief_that_the_log_contradicts(store_url: str) -> None:
    session_ids = prepare(store_url)
    with racing(store_url) as (entering, acting):
        spans = [run_round(entering, acting, number, session_id) for number, session_id in enumerate(session_ids)]
    with closing(open_store(store_url)) as store:
        ran = [judge(store, number, session_ids[number], *spans[number]) for number in range(ROUNDS)]
    # Those that follow each other end as they must.
    assert (set(ran[::PERIOD]), set(ran[1::PERIOD])) == ({False}, {True})
    # Many others were true races, each sent before the other was answered; how many is up to the machine.
    met = [entered.began < acted.ended and acted.began < entered.ended for entered, acted in spans]
    assert sum(met) > ROUNDS / 10
