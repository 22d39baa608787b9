"""Which waiting proposals of a space are to be looked at again, and what came of looking: without recording anything.

What is known here is only in memory. A process that begins looks at everything that waits once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from immutables import Map

from cmbs.errors import BeliefServerError
from cmbs.substrate.belief_source import BeliefSource
from cmbs.substrate.kernel.events import Wake
from cmbs.substrate.kernel.model import BeliefReading, Tool
from cmbs.substrate.kernel.state import GrantKey, Parked, ProposalRecord, Space
from cmbs.substrate.kernel.waiting import would_change
from cmbs.substrate.kernel.words import ApprovalStatus

BELIEF = "$belief."
# How many proposals are looked at before other threads of the process have a turn.
_LOOKS_IN_A_TURN = 4
# Why proposals are looked at that wait for none of the keys that changed.
POLICY, TOOLS, APPROVALS, BEGINNING = "$policy", "$tools", "$approvals", "$start"


class SharedReadings:
    """Readings of the belief plane for many decisions of one moment: each session is read once."""

    def __init__(self, source: BeliefSource | None) -> None:
        self._source = source
        self._known: dict[tuple[str, str | None], BeliefReading] = {}

    def read(self, session_id: str, independent_of: str | None = None) -> BeliefReading:
        """What a session said when it was first asked for, of this actor where one is named; without a belief plane,
        that there is no such session.
        """
        known = self._known.get((session_id, independent_of))
        if known is None:
            known = BeliefReading(session_id, found=False)
            if self._source is not None:
                known = self._source.read(session_id, independent_of)
            self._known[session_id, independent_of] = known
        return known

    def heads(self) -> dict[str, str]:
        """The heads at which sessions were first read: one that has moved since is looked at again."""
        heads: dict[str, str] = {}
        for (session_id, _), reading in self._known.items():
            heads.setdefault(session_id, reading.head_event_hash)
        return heads


# What the belief plane says, as far as a waiting proposal may be decided by it.
ReadFor = Callable[[Space, ProposalRecord, SharedReadings], list[BeliefReading]]


class _Look(NamedTuple):
    """Where a waiting proposal was found to stand as it stood: at which place of the space, with which heads."""

    seq: int
    heads: Mapping[str, str]


class _Rules(NamedTuple):
    """What of a space concerns every waiting proposal."""

    policy_hash: str
    tools: Map[str, Tool]
    grants: Map[GrantKey, str]


class WaitingWatch:
    """What this process knows of the waiting proposals of one space."""

    def __init__(self) -> None:
        self._rules: _Rules | None = None
        self._looks: dict[str, _Look] = {}
        # Those that are to be looked at, and why.
        self._queue: dict[str, list[str]] = {}
        # The seq of the space and the heads of sessions at which it was last searched.
        self._searched: tuple[int, dict[str, str]] | None = None

    @property
    def has_more(self) -> bool:
        """Whether something is left to be looked at."""
        return bool(self._queue)

    def search(self, space: Space, readings: SharedReadings) -> None:
        """Find the proposals for which something has changed since they were decided or last looked at."""
        sessions = [key.removeprefix(BELIEF) for key in space.waiting if key.startswith(BELIEF)]
        searched = (space.head.seq, {session_id: readings.read(session_id).head_event_hash for session_id in sessions})
        if searched == self._searched:
            return
        self._searched = searched
        general = self._compare_rules(space)
        for proposal_id, parked in space.parked.items():
            because = [*general, *self._find_moved_keys(space, parked, readings)]
            if because:
                self._queue[proposal_id] = because
        if general:
            asked = (each for each in space.approvals.values() if each.status is ApprovalStatus.PENDING)
            for approval in asked:
                self._queue.setdefault(approval.proposal_id, general)
        self._looks = {each: look for each, look in self._looks.items() if each in space.parked}

    def look(
        self,
        space: Space,
        read: ReadFor,
        readings: SharedReadings,
        now: str,
        most: int,
        yield_turn: Callable[[], object],
    ) -> list[Wake]:
        """Look at some of those that were found; the messages for those whose outcome would change.

        `yield_turn` is called after every few, so that threads that write do not wait for all of them.
        """
        wakes: list[Wake] = []
        portion = list(islice(self._queue.items(), most))
        for number, (proposal_id, because) in enumerate(portion):
            if number % _LOOKS_IN_A_TURN == 0:
                yield_turn()
            del self._queue[proposal_id]
            if _may_change(space, proposal_id, read, readings, now):
                wakes.append(Wake(proposal_id, because))
        heads, woken = readings.heads(), {wake.proposal_id for wake in wakes}
        for proposal_id, _ in portion:
            if proposal_id not in woken and proposal_id in space.parked:
                self._looks[proposal_id] = _Look(space.head.seq, heads)
        return wakes

    def put_back(self, wakes: Iterable[Wake]) -> None:
        """Have proposals looked at again whose messages could not be sent."""
        for wake in wakes:
            self._queue.setdefault(wake.proposal_id, wake.because)

    def _compare_rules(self, space: Space) -> list[str]:
        """What has changed of all that concerns every waiting proposal."""
        before, after = self._rules, _Rules(space.policy.policy_hash, space.tools, space.grants)
        self._rules = after
        if before is None:
            return [BEGINNING]
        found = []
        if before.policy_hash != after.policy_hash:
            found.append(POLICY)
        if before.tools is not after.tools and before.tools != after.tools:
            found.append(TOOLS)
        # One that is used up changes nothing for those that still wait.
        if before.grants is not after.grants and any(key not in before.grants for key in after.grants):
            found.append(APPROVALS)
        return found

    def _find_moved_keys(self, space: Space, parked: Parked, readings: SharedReadings) -> list[str]:
        """What has changed, of all that a parked proposal waits for, since it was decided or last looked at."""
        look = self._looks.get(parked.proposal_id)
        if look is None:
            heads = {reading.session_id: reading.head_event_hash for reading in parked.belief}
            look = _Look(space.proposals[parked.proposal_id].decided_seq, heads)
        moved = []
        for key in parked.waits_for:
            if key.startswith(BELIEF):
                session_id = key.removeprefix(BELIEF)
                changed = readings.read(session_id).head_event_hash != look.heads.get(session_id)
            else:
                changed = _find_last_change(space, key) > look.seq
            if changed:
                moved.append(key)
        return moved


def _find_last_change(space: Space, key: str) -> int:
    """The seq of the last change of something in the space that proposals can wait for."""
    return space.changed.get(key, -1)


def _may_change(space: Space, proposal_id: str, read: ReadFor, readings: SharedReadings, now: str) -> bool:
    record = space.proposals.get(proposal_id)
    if record is None:
        return False
    try:
        return would_change(space, proposal_id, read(space, record, readings), now)
    except BeliefServerError:
        # The rules say what it is, when they are asked.
        return True
