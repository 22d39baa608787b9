"""The state of a space of 100,000 events as it was, checked by hash and link and folded, beside verification of it all.

`/state?at=` and `state_at` answer with it. No checkpoint and no cache is involved: the log is read from its first entry
to the moment that is asked for, here the last one but one, and nothing is decided again.
"""

from __future__ import annotations

import json
import time
from contextlib import closing

from bench.harness import Effort, Result, at_least, at_most, interleaved, shown
from bench.servers import disk_directory
from cmbs.belief.kernel.events import Stamp
from cmbs.ledger.state_digest import bind_state, digest_of, is_digest_point
from cmbs.messages import Actor, ActorKind
from cmbs.spi import Append, AuditLog
from cmbs.stores import open_store
from cmbs.substrate.kernel.checkpoint import STATE_DIGESTS, freeze_space
from cmbs.substrate.kernel.decide import decide, evolve
from cmbs.substrate.kernel.events import CreateSpace, Propose, SpaceEvent
from cmbs.substrate.kernel.kind import append_of_space
from cmbs.substrate.kernel.model import Proposal, Provenance, StateDelta
from cmbs.substrate.kernel.replay import verify_space
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.past_states import state_at

NAME = "space_past"
EVENTS = 100_000
KEYS = 1_000
_AT_ONCE = 500
_SPACE, _STREAM = "bench", "space:bench"
_OPERATOR, _AGENT = Actor(ActorKind.OPERATOR, "bench"), Actor(ActorKind.AGENT, "agent")
_ALLOW = json.dumps({"v": 1, "effect": "allow", "subject": None, "when": {"op": "missing", "args": ["$tool.id"]}})


def run(effort: Effort) -> list[Result]:
    """Read the state of long ago, and verify the whole log, in turns."""
    with disk_directory() as directory, closing(open_store(f"sqlite:///{directory}/bench.db")) as log:
        space = store_long_space(log, EVENTS)
        seconds = interleaved(
            {
                "past": lambda: _seconds_of_past(log, space),
                "verified": lambda: _seconds_of_verification(log, space),
            },
            max(1, effort.rounds // 3),
        )
    measured = f"the state of a space of {EVENTS:,} events one event ago: {shown(seconds['past'])} s"
    baseline = f"verification of the whole log: {shown(seconds['verified'])} s"
    return [
        Result(NAME, measured, baseline, seconds["verified"] / seconds["past"], at_least(8)),
        Result(NAME, measured, baseline, seconds["past"], at_most(1, "s")),
    ]


def store_long_space(log: AuditLog, events: int) -> Space:
    """Write a space of so many events, each but the first a commit; the space after them."""
    provenance = Provenance(_AGENT.id, "2026-01-31T09:30:00Z", ["observation-1"])
    create = CreateSpace(_SPACE, policy={"constraint.deltas": _ALLOW})
    space = _step(log, None, create, _OPERATOR, 0)[0]
    appends: list[Append] = []
    for number in range(1, events):
        change = StateDelta({f"goal.{number % KEYS}": f"value {number}"})
        message = Propose(Proposal(f"proposal-{number}", space.snapshot_id, provenance, [change]))
        space, append = _step(None, space, message, _AGENT, number)
        appends.append(append)
        if len(appends) == _AT_ONCE or number == events - 1:
            log.append(appends)
            appends = []
    return space


def _step(
    log: AuditLog | None, space: Space | None, message: CreateSpace | Propose, actor: Actor, number: int
) -> tuple[Space, Append]:
    moment = f"2026-02-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}.{number:06}Z"
    event = decide(space, message, actor, Stamp(f"00000000-0000-4000-8000-{number:012}", moment), _SPACE)
    if not isinstance(event, SpaceEvent):
        raise TypeError("a generated message repeats an earlier one")
    if space is not None and is_digest_point(number, STATE_DIGESTS.spacing):
        event = bind_state(event, digest_of(freeze_space(space)))
    append = append_of_space(event)
    if log is not None:
        log.append([append])
    return evolve(space, event), append


def _seconds_of_past(log: AuditLog, space: Space) -> float:
    start = time.perf_counter()
    found = state_at(log, space, space.head.seq - 1)
    seconds = time.perf_counter() - start
    if len(found.state) != KEYS + 1:
        raise RuntimeError("the state of the past is not what was written")
    return seconds


def _seconds_of_verification(log: AuditLog, space: Space) -> float:
    start = time.perf_counter()
    verify_space(_SPACE, log.read(_STREAM), space.head)
    return time.perf_counter() - start
