"""What the state of a space knows of the keys of its entries, also of those that have left it: a digest for each bucket.

A store keeps rows of keys and seqs, by which entries are found again (`lookup_keys`). Keys are hashes; their first bits
tell in which bucket they are. The digest of a bucket is folded from its rows in the order of the stream. It is part of
the state, so that the digests in the chain vouch for it, and it tells whether a store has exactly these rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from struct import Struct, error

from immutables import Map

# So many buckets fill up within some ten thousand entries, and take half a megabyte then. A million proposals have some
# hundred rows in each, all of which a lookup reads.
_BUCKET_BITS = 14
_KEY_BITS = 64
_WIDTH = _KEY_BITS - _BUCKET_BITS
_EMPTY = bytes(32)
# What is hashed: the digest so far, the key, the seq.
_FOLDED = Struct(">32sqq")
# What is frozen: the bucket, its digest.
_FROZEN = Struct(">h32s")

# The digests of the buckets that have rows.
KeyDigests = Map[int, bytes]


def bucket_of(key: int) -> int:
    """The bucket of a key: its first bits, as a signed number."""
    return key >> _WIDTH


def range_of(bucket: int) -> tuple[int, int]:
    """The first and the last key that belong to a bucket."""
    return bucket << _WIDTH, (bucket + 1 << _WIDTH) - 1


def add_keys(digests: KeyDigests, seq: int, keys: Iterable[int]) -> KeyDigests:
    """The digests with the keys, which are sorted, of one entry more."""
    for key in keys:
        bucket = bucket_of(key)
        digests = digests.set(bucket, _fold(digests.get(bucket, _EMPTY), key, seq))
    return digests


def digest_rows(rows: Iterable[tuple[int, int]]) -> bytes:
    """The digest of a bucket with these rows of a key and a seq, in any order."""
    digest = _EMPTY
    for seq, key in sorted((seq, key) for key, seq in rows):
        digest = _fold(digest, key, seq)
    return digest


def _fold(digest: bytes, key: int, seq: int) -> bytes:
    return sha256(_FOLDED.pack(digest, key, seq)).digest()


def freeze_digests(digests: KeyDigests) -> bytes:
    """The digests as bytes: each bucket and its digest, by bucket."""
    return b"".join([_FROZEN.pack(bucket, digests[bucket]) for bucket in sorted(digests)])


def thaw_digests(data: bytes) -> KeyDigests:
    """The digests that were frozen; ValueError where the bytes are none."""
    try:
        return Map(_FROZEN.iter_unpack(data))
    except error as exc:
        raise ValueError("not digests of buckets") from exc
