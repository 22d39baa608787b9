"""Forging a log: change it, then make every hash fit again. Uses none of our own hashing."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import rfc8785

from cmbs.messages import AuditEntry

Content = list[dict[str, Any]]


def rehash(content: Content) -> list[AuditEntry]:
    """Entries whose place, previous hash and own hash fit together, whatever they say."""
    previous = "0" * 64
    entries: list[AuditEntry] = []
    for seq, each in enumerate(content):
        each["seq"], each["prev_event_hash"] = seq, previous
        each.pop("event_hash", None)
        previous = hashlib.sha256(b"\x00" + rfc8785.dumps(each)).hexdigest()
        entries.append(AuditEntry.from_dict({**each, "event_hash": previous}))
    return entries


def as_content(entries: Iterable[AuditEntry]) -> Content:
    """A log as plain data of its own."""
    return [copy.deepcopy(entry.to_dict()) for entry in entries]


def forge(entries: Iterable[AuditEntry], change: Callable[[Content], Any]) -> list[AuditEntry]:
    """A log that was changed and hashed anew from its beginning."""
    content = as_content(entries)
    change(content)
    return rehash(content)


def tamper(entries: Iterable[AuditEntry], change: Callable[[Content], Any]) -> list[AuditEntry]:
    """A log that was changed, and its hashes left as they were."""
    content = as_content(entries)
    change(content)
    return [AuditEntry.from_dict(each) for each in content]
