"""The ledger: canonical bytes, hash chain, survivor commitment. Pure."""

from cmbs.ledger.chronicle import Chronicle
from cmbs.ledger.entry import (
    GENESIS,
    Delta,
    EntryBody,
    Head,
    StoredEntry,
    from_audit_entry,
    hash_entry,
    seal,
    to_audit_entry,
)
from cmbs.ledger.survivors import Survivors, Universe, commitment
from cmbs.ledger.verify import check_head, verify_chain

__all__ = [
    "GENESIS",
    "Chronicle",
    "Delta",
    "EntryBody",
    "Head",
    "StoredEntry",
    "Survivors",
    "Universe",
    "check_head",
    "commitment",
    "from_audit_entry",
    "hash_entry",
    "seal",
    "to_audit_entry",
    "verify_chain",
]
