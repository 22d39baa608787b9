"""What you may plug into a belief server."""

from cmbs.spi.audit_log import (
    HEADS_PREFIX,
    RESERVED_PREFIXES,
    Append,
    AuditLog,
    LookupLog,
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
from cmbs.spi.hypothesis_provider import AttributedProvider, HypothesisProvider
from cmbs.spi.store_identity import ConnectedStore, IdentifiedStore, SourcedStore, StoreIdentity
from cmbs.spi.universe import AnchoredUniverse, UniverseSource

__all__ = [
    "HEADS_PREFIX",
    "RESERVED_PREFIXES",
    "AnchoredUniverse",
    "Append",
    "AttributedProvider",
    "AuditLog",
    "Clock",
    "ConnectedStore",
    "EliminationProvenance",
    "EliminationResult",
    "EliminationStore",
    "HypothesisProvider",
    "IdSource",
    "IdentifiedStore",
    "LookupLog",
    "Opening",
    "OpeningLog",
    "RecoveredState",
    "SessionState",
    "SessionSummary",
    "SourcedStore",
    "StaleHead",
    "StoreIdentity",
    "StreamHeadsLog",
    "Tombstones",
    "UniverseSource",
    "discover_providers",
    "is_reserved",
    "opening_of",
    "stream_heads_of",
]
