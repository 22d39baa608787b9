"""A space with a million settled proposals beside a small one, and other spaces while a large policy is put in force.

What is settled is in the ledger and not in the state, so the past of a space costs disk alone. `run` starts this module
as a process of its own for each space that is measured.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec
import psutil

from bench.harness import Effort, Result, at_most, microseconds, shown
from bench.servers import disk_directory
from bench.space_past import store_long_space
from cmbs.messages import Actor, ActorKind
from cmbs.stores import open_store
from cmbs.substrate.kernel.events import CreateSpace, Propose, ProposePolicy, SettlePolicy
from cmbs.substrate.kernel.model import Proposal, Provenance, StateDelta
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer

NAME = "settled_spaces"
EMPTY, SMALL, LARGE = 1, 10_000, 1_000_000
MEBIBYTE = 1 << 20
_PROPOSALS = 300
_POLICY_BYTES = 5_000_000
_RULE_BYTES = 400
_NEIGHBOURS = 4
_SPACE = "bench"
_AGENT, _ROOT, _OTHER = (
    Actor(ActorKind.AGENT, "agent"),
    Actor(ActorKind.OPERATOR, "root"),
    Actor(ActorKind.OPERATOR, "other"),
)
_ALLOW = json.dumps({"v": 1, "effect": "allow", "subject": None, "when": {"op": "missing", "args": ["$tool.id"]}})


class Measured(msgspec.Struct, frozen=True):
    """What one process saw of a space. Times are seconds, sizes bytes."""

    held: int
    first_use: float
    proposal: float


def run(effort: Effort) -> list[Result]:
    """Compare spaces by the length of their past, and proposals with and without a change of policy elsewhere."""
    with disk_directory() as directory:
        found: dict[int, list[Measured]] = {}
        for events in (EMPTY, SMALL, LARGE):
            _store(f"{directory}/{events}.db", events)
        for _ in range(max(1, effort.rounds // 3)):
            for events in (EMPTY, SMALL, LARGE):
                found.setdefault(events, []).append(_in_a_process(f"{directory}/{events}.db"))
        usual, meanwhile = measure_neighbours(f"{directory}/policy.db")
    return [*compare(found), _compare_policy(usual, meanwhile)]


def compare(found: dict[int, list[Measured]]) -> list[Result]:
    """The bars of a space with a long past."""
    empty, small, large = (_median(found[each]) for each in sorted(found))
    many = f"a space with {max(found):,} settled proposals"
    more = (large.held - empty.held) / MEBIBYTE
    return [
        Result(
            NAME,
            f"{many} in memory: {shown(large.held / MEBIBYTE)} MiB of RSS",
            f"an empty one: {shown(empty.held / MEBIBYTE)} MiB",
            more,
            at_most(200, "MiB more"),
        ),
        Result(
            NAME,
            f"first use of {many}: {microseconds(large.first_use)}",
            f"of one with {sorted(found)[1]:,}: {microseconds(small.first_use)}",
            large.first_use / small.first_use,
            at_most(3),
        ),
        Result(
            NAME,
            f"a proposal in {many}: {microseconds(large.proposal)}",
            f"in an empty one: {microseconds(empty.proposal)}",
            large.proposal / empty.proposal,
            at_most(1.5),
        ),
    ]


def _median(measured: list[Measured]) -> Measured:
    return Measured(
        int(statistics.median(each.held for each in measured)),
        statistics.median(each.first_use for each in measured),
        statistics.median(each.proposal for each in measured),
    )


def _compare_policy(usual: float, meanwhile: float) -> Result:
    return Result(
        NAME,
        f"p99 of proposals while a policy of {_POLICY_BYTES / 1e6:g} MB is put in force elsewhere: "
        f"{microseconds(meanwhile)}",
        f"their usual p99: {microseconds(usual)}",
        meanwhile / usual,
        at_most(3),
    )


# --- the past of a space ----------------------------------------------------------------------------------------------


def _store(path: str, events: int) -> None:
    with closing(open_store(f"sqlite:///{path}")) as log:
        store_long_space(log, events)
    # One use makes the checkpoint that a server would have made on the way.
    with closing(open_store(f"sqlite:///{path}")) as log:
        server = SubstrateServer(log=log, keeper_seconds=None)
        server.current(_SPACE)
        server.close()


def _in_a_process(path: str) -> Measured:
    command = [sys.executable, "-m", "bench.settled_spaces", path]
    found = subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[1])
    return msgspec.json.decode(found.stdout, type=Measured)


def measure(path: str) -> Measured:
    """Use a stored space for the first time, and then propose to it."""
    process = psutil.Process()
    with closing(open_store(f"sqlite:///{path}")) as log:
        server = SubstrateServer(log=log, keeper_seconds=None)
        start = time.perf_counter()
        snapshot_id = server.current(_SPACE).snapshot_id
        first_use = time.perf_counter() - start
        seconds = []
        for number in range(_PROPOSALS):
            start = time.perf_counter()
            snapshot_id = _propose(server, _SPACE, f"{process.pid}-{number}", snapshot_id)
            seconds.append(time.perf_counter() - start)
        gc.collect()
        held = process.memory_info().rss
        server.close()
    return Measured(held, first_use, statistics.median(seconds))


def _propose(server: SubstrateServer, space_id: str, name: str, snapshot_id: str) -> str:
    provenance = Provenance(_AGENT.id, "2026-01-31T09:30:00Z", ["observation-1"])
    proposal = Proposal(f"p-{name}", snapshot_id, provenance, [StateDelta({"goal.now": name})])
    answer = server.perform(SpaceCommand(space_id, _AGENT, Propose(proposal)))
    if not answer.event.result.changes.set:
        raise RuntimeError("a proposal that should have been committed was not")
    return answer.space.snapshot_id


# --- a policy elsewhere -----------------------------------------------------------------------------------------------


def measure_neighbours(path: str) -> tuple[float, float]:
    """The p99 of proposals to small spaces, before and while a large policy is proposed and settled in another."""
    with closing(open_store(f"sqlite:///{path}")) as log:
        server = SubstrateServer(log=log, keeper_seconds=None)
        names = [f"neighbour-{number}" for number in range(_NEIGHBOURS)]
        for name in (*names, "large"):
            server.perform(SpaceCommand(name, _ROOT, CreateSpace(name, policy={"constraint.any": _ALLOW})))
        first, second = _make_policy("first"), _make_policy("second")
        began = time.perf_counter()
        _put_policy(server, first)
        seconds = time.perf_counter() - began
        usual = _p99_while(server, names, "usual", lambda: time.sleep(seconds))
        meanwhile = _p99_while(server, names, "meanwhile", lambda: _put_policy(server, second))
        server.close()
    return usual, meanwhile


def _make_policy(version: str) -> ProposePolicy:
    rules = {
        f"constraint.rule-{number}": json.dumps(
            {
                "v": 1,
                "effect": "deny",
                "subject": {"tool_id": f"tool-{number}"},
                "when": {"op": "eq", "args": ["$args.region", f"region-{version}-{number}"]},
                "reason": "r" * (_RULE_BYTES - 200),
            }
        )
        for number in range(_POLICY_BYTES // _RULE_BYTES)
    }
    return ProposePolicy(version, "", rules)


def _put_policy(server: SubstrateServer, change: ProposePolicy) -> None:
    base = server.current("large").policy.policy_hash
    proposed = msgspec.structs.replace(change, base_policy_hash=base)
    server.perform(SpaceCommand("large", _ROOT, proposed))
    server.perform(SpaceCommand("large", _OTHER, SettlePolicy(change.change_id, authorise=True)))


def _p99_while(server: SubstrateServer, names: list[str], when: str, work: Callable[[], None]) -> float:
    done = threading.Event()
    taken: list[float] = []

    def ask(name: str) -> None:
        snapshot_id = server.current(name).snapshot_id
        for number in count():
            if done.is_set():
                return
            start = time.perf_counter()
            snapshot_id = _propose(server, name, f"{when}-{number}", snapshot_id)
            taken.append(time.perf_counter() - start)

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    work()
    done.set()
    for thread in threads:
        thread.join()
    return statistics.quantiles(taken, n=100)[98]


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(measure(sys.argv[1])))
