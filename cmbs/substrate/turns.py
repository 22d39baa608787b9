"""Whose turn it is: how many tool calls run at once, in all, of one space, and of one agent in it.

What finds no turn waits in a line of its space and agent. The lines have their turns one after the other, so that no
agent's many calls hold up another's few.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from threading import Lock
from typing import NamedTuple

from cmbs.substrate.kernel.limits import SpaceLimits


class Line(NamedTuple):
    """Who waits in it: the calls of one agent in one space."""

    space_id: str
    agent_id: str


class Turn(NamedTuple):
    """A call whose turn has come; it is given back with `Turns.release`."""

    line: Line
    execution_id: str


class Turns:
    """Counts what runs, and keeps what waits."""

    def __init__(self, limits: SpaceLimits) -> None:
        self._limits = limits
        self._lock = Lock()
        self._running = 0
        self._of_space: Counter[str] = Counter()
        self._of_line: Counter[Line] = Counter()
        self._waiting: OrderedDict[Line, deque[str]] = OrderedDict()
        self._known: set[tuple[str, str]] = set()

    def take(self, line: Line, count: int) -> bool:
        """Take so many turns at once, all or none; not before those that wait in the line already."""
        with self._lock:
            if line in self._waiting or not self._has_room(line, count):
                return False
            self._add(line, count)
            return True

    def force(self, line: Line) -> None:
        """Take a turn even where there is none: for what has started already."""
        with self._lock:
            self._add(line, 1)

    def release(self, line: Line, count: int = 1) -> None:
        """Give turns back."""
        if count:
            with self._lock:
                self._add(line, -count)

    def wait(self, line: Line, execution_id: str) -> None:
        """Put a call into its line, if it is not there already."""
        with self._lock:
            if (line.space_id, execution_id) not in self._known:
                self._known.add((line.space_id, execution_id))
                self._waiting.setdefault(line, deque()).append(execution_id)

    def call_next(self) -> Turn | None:
        """The next call whose turn has come, with the turn taken for it; None while there is none."""
        with self._lock:
            for line in self._waiting:
                if self._has_room(line, 1):
                    break
            else:
                return None
            waiting = self._waiting[line]
            execution_id = waiting.popleft()
            self._known.discard((line.space_id, execution_id))
            # The line goes to the end, or away.
            self._waiting.move_to_end(line)
            if not waiting:
                del self._waiting[line]
            self._add(line, 1)
            return Turn(line, execution_id)

    def _has_room(self, line: Line, count: int) -> bool:
        limits = self._limits
        return (
            self._running + count <= limits.executions_at_once
            and self._of_space[line.space_id] + count <= limits.space_executions_at_once
            and self._of_line[line] + count <= limits.agent_executions_at_once
        )

    def _add(self, line: Line, count: int) -> None:
        self._running += count
        self._of_space[line.space_id] += count
        self._of_line[line] += count
        # What nothing runs of any more is forgotten.
        if not self._of_space[line.space_id]:
            del self._of_space[line.space_id]
        if not self._of_line[line]:
            del self._of_line[line]
