"""Proposals that are validated and durably committed, beside entries of the same size that are only appended.

Both go the same way: 32 threads wait for one writer, which writes what has come together while it wrote. What differs
is what the substrate adds: validation, arbitration with its trace, the canonical entry, the next state of the space.

The interpreter is left as it is, its turns of threads and its looks for garbage: 32 threads that wait are those of a
program that has the substrate in it, and what such a program sets is its own affair. A server process sets both, and
has one event loop and one writer instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count

import msgspec

from bench.harness import Effort, Result, at_least, interleaved, shown
from bench.servers import disk_directory
from bench.waiters import calls_per_second
from cmbs.errors import BeliefServerError, SessionNotFound
from cmbs.ledger import GENESIS, Head, StoredEntry, hash_entry
from cmbs.messages import Actor, ActorKind
from cmbs.spi import Append, AuditLog
from cmbs.stores import open_store
from cmbs.streams.server import StreamServer
from cmbs.substrate.kernel.events import CreateSpace, Propose
from cmbs.substrate.kernel.model import Proposal, Provenance, StateDelta
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from cmbs.system import RandomIds, SystemClock

NAME = "space_proposals"
WAITERS = 32
CONSTRAINTS = 1_000
_OPERATOR = Actor(ActorKind.OPERATOR, "bench")
_AGENT = Actor(ActorKind.AGENT, "agent")


def run(effort: Effort) -> list[Result]:
    """Compare proposals of 32 waiters, each with a space of its own, with bare appends of 32 waiters."""
    calls = effort.operations // 2 // WAITERS
    with disk_directory() as directory, closing(open_store(f"sqlite:///{directory}/bench.db")) as store:
        server = SubstrateServer(log=store)
        proposers = [_proposer(server, f"bench-{number}") for number in range(WAITERS)]
        size = _size(server, proposers[0])
        bare = _Bare(store, size)
        appenders = [bare.appender(f"bare-{number}") for number in range(WAITERS)]
        rates = interleaved(
            {
                "proposals": lambda: calls_per_second(proposers, calls),
                "appends": lambda: calls_per_second(appenders, calls),
            },
            effort.rounds,
        )
        bare.close()
        server.close()
    return [
        Result(
            NAME,
            f"proposals on SQLite with {WAITERS} waiting threads, {CONSTRAINTS:,} constraints: "
            f"{shown(rates['proposals'])}/s",
            f"bare appends of the same {size:,} bytes: {shown(rates['appends'])}/s",
            rates["proposals"] / rates["appends"],
            at_least(0.4),
        )
    ]


def _policy() -> dict[str, str]:
    """Constraints of which one concerns what is proposed."""
    others = {
        f"constraint.tool-{number}": json.dumps({"v": 1, "effect": "deny", "subject": {"tool_id": f"tool-{number}"}})
        for number in range(CONSTRAINTS - 1)
    }
    allow = {"op": "missing", "args": ["$tool.id"]}
    return {**others, "constraint.deltas": json.dumps({"v": 1, "effect": "allow", "subject": None, "when": allow})}


def _proposer(server: SubstrateServer, space_id: str) -> Callable[[], object]:
    """A caller that proposes one goal after the other, each on the snapshot that the one before led to."""
    space = server.perform(SpaceCommand(space_id, _OPERATOR, CreateSpace(space_id, policy=_policy()))).space
    snapshot_id = space.snapshot_id
    numbers = count()
    provenance = Provenance(_AGENT.id, "2026-01-31T09:30:00Z", ["observation-1"])

    def propose() -> None:
        nonlocal snapshot_id
        number = next(numbers)
        delta = StateDelta({f"goal.{number % 100}": f"value {number}"})
        proposal = Proposal(f"proposal-{number}", snapshot_id, provenance, [delta])
        answer = server.perform(SpaceCommand(space_id, _AGENT, Propose(proposal)))
        if not answer.event.result.changes.set:
            raise RuntimeError("a proposal that should have been committed was not")
        snapshot_id = answer.space.snapshot_id

    return propose


def _size(server: SubstrateServer, propose: Callable[[], object]) -> int:
    """How many bytes the entry of a proposal has."""
    propose()
    return len(server.stored_entries("bench-0")[-1].raw)


# --- what it is compared with -----------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, frozen=True):
    event_id: str
    payload: msgspec.Raw
    prev_event_hash: str
    seq: int
    stream_id: str
    ts: str


class _End(msgspec.Struct, frozen=True):
    head: Head


class _Note(msgspec.Struct, frozen=True):
    stream_id: str
    payload: msgspec.Raw


_ENCODER = msgspec.json.Encoder(order="sorted")


class _BareKind:
    """A stream of entries that mean nothing: an id, a time, a place in the chain, and so many bytes."""

    def __init__(self) -> None:
        self._clock, self._ids = SystemClock(), RandomIds()

    def owns(self, stream_id: str) -> bool:
        return bool(stream_id)

    def not_found(self, stream_id: str) -> BeliefServerError:
        return SessionNotFound(stream_id)

    def catch_up(self, stream_id: str, state: _End | None, entries: Sequence[StoredEntry]) -> _End | None:
        raise TypeError(f"{stream_id} has {len(entries)} entries after {state}, and none was expected")

    def opens(self, command: _Note) -> bool:
        return bool(command.stream_id)

    def decide(self, state: _End | None, command: _Note) -> tuple[int, tuple[_End, Append]]:
        seq, before = (0, GENESIS) if state is None else (state.head.seq + 1, state.head.event_hash)
        event_id, ts = self._ids.new_id(), self._clock.now()
        raw = _ENCODER.encode(_Entry(event_id, command.payload, before.hex(), seq, command.stream_id, ts))
        stored = StoredEntry(raw, hash_entry(raw))
        append = Append(command.stream_id, seq, event_id, before, stored, ts, unique_key=("note", event_id))
        return seq, (_End(Head(seq, stored.event_hash)), append)

    def fold(self, state: _End | None, stored: StoredEntry) -> tuple[_End, Append]:
        raise TypeError(state, stored)


class _Bare:
    """Appends through the writer that spaces use, of entries that need no decision."""

    def __init__(self, log: AuditLog, size: int) -> None:
        kind = _BareKind()
        self._streams = StreamServer(log, kind, WAITERS)
        around = len(_ENCODER.encode(_Entry("0" * 36, msgspec.Raw(b'""'), "0" * 64, 100, "bare-00", "0" * 27)))
        self._payload = msgspec.Raw(json.dumps("x" * (size - around)).encode())

    def appender(self, stream_id: str) -> Callable[[], object]:
        """A caller that appends one entry after the other."""
        note = _Note(stream_id, self._payload)
        return lambda: self._streams.perform(note)

    def close(self) -> None:
        """Write what waits."""
        self._streams.close()
