"""What the state of a space knows of all its entries, also of those that have left it, so that they are found again.

A store finds entries by rows of a key and a seq: lookup keys (`ledger.lookup_keys`), and event hashes. Keys are hashes;
their first bits tell in which bucket a row is. The digest of a bucket is folded from its rows in the order of the
stream. It is part of the state, so that the digests in the chain vouch for it, and it tells whether a store has exactly
these rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

import msgspec
from immutables import Map

from cmbs.ledger.tagged_hash import Domain, hash_tagged

_KEY_BITS = 64
_KEY_BYTES = _KEY_BITS // 8
_DIGEST_BYTES = 32
_EMPTY = bytes(_DIGEST_BYTES)
# What is hashed: the digest so far, the key, the seq.
_FOLDED = Struct(">32sqq")

_PAGE_BITS = 6
_LAST_SLOT = (1 << _PAGE_BITS) - 1
_SLOTS_BYTES = 8
_NUMBER_BYTES = 2

Row = tuple[int, int]


class BucketDigests(msgspec.Struct, frozen=True):
    """The digests of the buckets that have rows, by pages of 64 buckets: a state has few objects, and freezes quickly.

    A page says in 8 bytes which of its buckets have rows, the least bit being the first; then come their digests.
    """

    pages: Map[int, bytes] = Map()

    def find(self, bucket: int) -> bytes | None:
        """The digest of a bucket; None where it has no rows."""
        page = self.pages.get(bucket >> _PAGE_BITS, bytes(_SLOTS_BYTES))
        slots, place = _find_place(page, bucket)
        return page[place : place + _DIGEST_BYTES] if slots >> (bucket & _LAST_SLOT) & 1 else None

    def set(self, bucket: int, digest: bytes) -> BucketDigests:
        """The digests with this one for a bucket."""
        page = self.pages.get(bucket >> _PAGE_BITS, bytes(_SLOTS_BYTES))
        slots, place = _find_place(page, bucket)
        bit = 1 << (bucket & _LAST_SLOT)
        rest = page[place + _DIGEST_BYTES :] if slots & bit else page[place:]
        changed = b"".join(((slots | bit).to_bytes(_SLOTS_BYTES, "big"), page[_SLOTS_BYTES:place], digest, rest))
        return BucketDigests(self.pages.set(bucket >> _PAGE_BITS, changed))


def _find_place(page: bytes, bucket: int) -> tuple[int, int]:
    """Which buckets of a page have rows, and where the digest of this one is in it, or would be."""
    slots = int.from_bytes(page[:_SLOTS_BYTES], "big")
    before = slots & (1 << (bucket & _LAST_SLOT)) - 1
    return slots, _SLOTS_BYTES + _DIGEST_BYTES * before.bit_count()


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
            digests = digests.set(bucket, _fold(digests.find(bucket) or _EMPTY, key, seq))
        return digests


# Every proposal is looked up by its lookup keys. A million proposals have some thirty in each bucket, all of which a
# lookup reads. Digests of so many buckets take two megabytes.
LOOKUP_BUCKETS = Buckets(16)
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
    return hash_tagged(Domain.BUCKET, _FOLDED.pack(digest, key, seq))


def freeze_digests(digests: BucketDigests) -> bytes:
    """The digests as bytes: the number of each page and the page, by number."""
    pages = digests.pages
    return b"".join([number.to_bytes(_NUMBER_BYTES, "big", signed=True) + pages[number] for number in sorted(pages)])


def thaw_digests(data: bytes) -> BucketDigests:
    """The digests that were frozen; ValueError where the bytes are none."""
    pages: dict[int, bytes] = {}
    start = 0
    while start < len(data):
        first = start + _NUMBER_BYTES
        number = int.from_bytes(data[start:first], "big", signed=True)
        slots = int.from_bytes(data[first : first + _SLOTS_BYTES], "big")
        start = first + _SLOTS_BYTES + _DIGEST_BYTES * slots.bit_count()
        pages[number] = data[first:start]
    if start != len(data):
        raise ValueError("not digests of buckets")
    return BucketDigests(Map(pages))
