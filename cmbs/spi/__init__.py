"""What you may plug into a belief server."""

from cmbs.spi.audit_log import (
    HEADS_PREFIX,
    RESERVED_PREFIXES,
    Append,
    AuditLog,
    Opening,
    OpeningLog,
    SessionState,
    SessionSummary,
    StaleHead,
    StreamHeadsLog,
    Tombstones,
    is_reserved,
    opening_of,
    stream_heads_of,
)
from cmbs.spi.discovery import discover_providers
from cmbs.spi.elimination_store import EliminationProvenance, EliminationResult, EliminationStore, RecoveredState
from cmbs.spi.environment import Clock, IdSource
from cmbs.spi.hypothesis_provider import HypothesisProvider
from cmbs.spi.universe import AnchoredUniverse, UniverseSource

__all__ = [
    "HEADS_PREFIX",
    "RESERVED_PREFIXES",
    "AnchoredUniverse",
    "Append",
    "AuditLog",
    "Clock",
    "EliminationProvenance",
    "EliminationResult",
    "EliminationStore",
    "HypothesisProvider",
    "IdSource",
    "Opening",
    "OpeningLog",
    "RecoveredState",
    "SessionState",
    "SessionSummary",
    "StaleHead",
    "StreamHeadsLog",
    "Tombstones",
    "UniverseSource",
    "discover_providers",
    "is_reserved",
    "opening_of",
    "stream_heads_of",
]
