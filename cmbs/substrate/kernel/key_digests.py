"""What the state of a space knows of all its entries, also of those that have left it, so that they are found again.

A store finds entries by rows of a key and a seq: lookup keys (`ledger.lookup_keys`), and event hashes. Keys are hashes;
their first bits tell in which bucket a row is. The digest of a bucket is folded from its rows in the order of the
stream. It is part of the state, so that the digests in the chain vouch for it, and it tells whether a store has exactly
these rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from struct import Struct, error
from typing import NamedTuple

from immutables import Map

_KEY_BITS = 64
_KEY_BYTES = _KEY_BITS // 8
_EMPTY = bytes(32)
# What is hashed: the digest so far, the key, the seq.
_FOLDED = Struct(">32sqq")
# What is frozen: the bucket, its digest.
_FROZEN = Struct(">h32s")

# The digests of the buckets that have rows.
BucketDigests = Map[int, bytes]
Row = tuple[int, int]


class Buckets(NamedTuple):
    """Keys, which are signed numbers of 64 bits, parted by so many of their first bits."""

    bits: int

    def bucket_of(self, key: int) -> int:
        """The bucket of a key: its first bits, as a signed number."""
        return key >> _KEY_BITS - self.bits

    def range_of(self, bucket: int) -> tuple[int, int]:
        """The first and the last key that belong to a bucket."""
        width = _KEY_BITS - self.bits
        return bucket << width, (bucket + 1 << width) - 1

    def add(self, digests: BucketDigests, seq: int, keys: Iterable[int]) -> BucketDigests:
        """The digests with the keys, which are sorted, of one entry more."""
        for key in keys:
            bucket = self.bucket_of(key)
            digests = digests.set(bucket, _fold(digests.get(bucket, _EMPTY), key, seq))
        return digests


# Every proposal is looked up by its lookup keys. A million proposals have some hundred in each bucket, all of which a
# lookup reads. Digests of so many buckets take half a megabyte.
LOOKUP_BUCKETS = Buckets(14)
# Only what is based on a snapshot of long ago is looked up by its hash.
HASH_BUCKETS = Buckets(12)


def hash_key(event_hash: bytes) -> int:
    """The key of an event hash: its first bits."""
    return int.from_bytes(event_hash[:_KEY_BYTES], "big", signed=True)


def digest_rows(rows: Iterable[Row]) -> bytes:
    """The digest of a bucket with these rows of a key and a seq, in any order."""
    digest = _EMPTY
    for seq, key in sorted((seq, key) for key, seq in rows):
        digest = _fold(digest, key, seq)
    return digest


def _fold(digest: bytes, key: int, seq: int) -> bytes:
    return sha256(_FOLDED.pack(digest, key, seq)).digest()


def freeze_digests(digests: BucketDigests) -> bytes:
    """The digests as bytes: each bucket and its digest, by bucket."""
    return b"".join([_FROZEN.pack(bucket, digests[bucket]) for bucket in sorted(digests)])


def thaw_digests(data: bytes) -> BucketDigests:
    """The digests that were frozen; ValueError where the bytes are none."""
    try:
        return Map(_FROZEN.iter_unpack(data))
    except error as exc:
        raise ValueError("not digests of buckets") from exc
