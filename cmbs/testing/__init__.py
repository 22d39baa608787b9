"""Support for tests of cmbs and of what is plugged into it: a clock and ids that tests own, stores that fail on demand.

`cmbs.testing.strategies` has the Hypothesis strategies, `cmbs.testing.kits` those for kits; both need `hypothesis`. The
contracts that every store must keep are test classes to subclass: `EliminationStoreContract` in
`cmbs.testing.elimination_store`, `AuditLogContract` in `cmbs.testing.audit_log`, and `StoreContract` in
`cmbs.testing.store` for a store that is both. `HypothesisProviderContract` in `cmbs.testing.hypothesis_provider` is the
same for providers. They need `pytest`. cmbs installs neither.
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
