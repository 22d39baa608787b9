"""Support for tests of cmbs and of what is plugged into it: a clock and ids that tests own, stores that fail on demand.

- `cmbs.testing.strategies`: Hypothesis strategies, one module a plane. They need `hypothesis`.
- `cmbs.testing.contracts`: the contract of each SPI as a test class to subclass. They need `pytest`.
- `cmbs.testing.fakes`: `ManualClock`, `SequentialIds`, `FailingStore`.
- `cmbs.testing.simulation`: servers, clients and faults from one seed.

cmbs installs neither `pytest` nor `hypothesis`.
"""

from cmbs.testing.fakes.environment import ManualClock, SequentialIds
from cmbs.testing.fakes.failing_store import FailingEliminationStore, FailingLog, FailingStore, Moment
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
