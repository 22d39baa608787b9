"""What is published of a log: signed checkpoints, its keys, and proofs, as JSON documents."""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT = "cmbs/1/proof"


CHECKPOINT_KIND = "checkpoint"


CONSISTENCY_KIND = "checkpoint-consistency"


RECORD_KIND = "checkpoint-record"


class SignedCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signed checkpoint. `note` is all of it; the other fields repeat what its text says. `root` is in hex."""

    note: str
    origin: str
    size: int
    root: str
    format: str = FORMAT
    kind: str = CHECKPOINT_KIND


class ConsistencyProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That the tree of the note continues the tree of the first `from_size` records. Hashes are in hex."""

    note: str
    from_size: int
    size: int
    path: list[str]
    format: str = FORMAT
    kind: str = CONSISTENCY_KIND


class RecordProof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That the tree of the note has the `entry` at `leaf_index`.

    The canonical bytes of the entry (RFC 8785) after a zero byte are what the leaf is the SHA-256 of. Its `payload` is
    the record: how many entries the stream had, the root over them, the hash of the last one.
    """

    note: str
    leaf_index: int
    size: int
    entry: dict[str, Any]
    path: list[str]
    format: str = FORMAT
    kind: str = RECORD_KIND


KEYS_FORMAT = "cmbs/1/checkpoint-keys"


class LogKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A public key of a log, and until when it signed.

    A retired key has signed nothing of more than `retired_size` leaves. `succession` is its last signature: a note that
    names the key after it.
    """

    vkey: str
    created_ts: str
    retired_ts: str | None = None
    retired_size: int | None = None
    succession: str | None = None


class LogKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a log, the oldest first; the last one signs."""

    origin: str
    keys: list[LogKey]
    format: str = KEYS_FORMAT
