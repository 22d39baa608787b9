"""Support for tests of cmbs and of what is plugged into it: a clock and ids that tests own, stores that fail on demand.

`cmbs.testing.strategies` has the Hypothesis strategies; it alone needs `hypothesis`, which cmbs does not install.
"""

from cmbs.testing.environment import ManualClock, SequentialIds
from cmbs.testing.failing_store import FailingEliminationStore, FailingLog, FailingStore, Moment
from cmbs.testing.history import Answer, Call, History, Played, declare, perform, play

__all__ = [
    "Answer",
    "Call",
    "FailingEliminationStore",
    "FailingLog",
    "FailingStore",
    "History",
    "ManualClock",
    "Moment",
    "Played",
    "SequentialIds",
    "declare",
    "perform",
    "play",
]
