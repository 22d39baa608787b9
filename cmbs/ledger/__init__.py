"""The ledger: canonical bytes, entries, hash chain and Merkle trees. Pure."""

from cmbs.ledger.chain import check_head, verify_chain
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

__all__ = [
    "GENESIS",
    "Chronicle",
    "Delta",
    "EntryBody",
    "Head",
    "StoredEntry",
    "check_head",
    "from_audit_entry",
    "hash_entry",
    "seal",
    "to_audit_entry",
    "verify_chain",
]
