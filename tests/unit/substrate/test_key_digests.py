"""Digests of buckets: one for each, of exactly the rows that are in it, however they came there."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from cmbs.substrate.kernel.key_digests import (
    HASH_BUCKETS,
    LOOKUP_BUCKETS,
    BucketDigests,
    Buckets,
    digest_rows,
    freeze_digests,
    hash_key,
    thaw_digests,
)

KEYS = st.integers(-(2**63), 2**63 - 1)
# Few buckets, so that rows meet in them.
ENTRIES = st.lists(st.frozensets(KEYS, max_size=3), max_size=12)
FEW = Buckets(1)


def fold(entries: list[frozenset[int]], buckets: Buckets = FEW) -> BucketDigests:
    digests: BucketDigests = Map()
    for seq, keys in enumerate(entries):
        digests = buckets.add(digests, seq, sorted(keys))
    return digests


def rows_of(entries: list[frozenset[int]], bucket: int) -> list[tuple[int, int]]:
    return [(key, seq) for seq, keys in enumerate(entries) for key in keys if FEW.bucket_of(key) == bucket]


@given(ENTRIES, st.randoms())
def test_the_digest_of_a_bucket_is_that_of_its_rows_in_any_order(entries: list[frozenset[int]], random: object) -> None:
    digests = fold(entries)
    for bucket in (-1, 0):
        rows = rows_of(entries, bucket)
        random.shuffle(rows)  # type: ignore[attr-defined]
        assert (bucket in digests) == bool(rows)
        assert digests.get(bucket, digest_rows([])) == digest_rows(rows)


@given(
    st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=8), st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=8)
)
def test_other_rows_have_another_digest(rows: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    assert (digest_rows(rows) == digest_rows(others)) == (sorted(rows) == sorted(others))
    for place in range(len(rows)):
        key, seq = rows[place]
        changed = [*rows[:place], *rows[place + 1 :]]
        assert digest_rows(rows) != digest_rows(changed)
        assert digest_rows(rows) != digest_rows([*rows, rows[place]])
        assert digest_rows(rows) != digest_rows([*changed, (key, seq + 1)])
        assert digest_rows(rows) != digest_rows([*changed, (key ^ 1, seq)])


@given(KEYS, st.sampled_from([LOOKUP_BUCKETS, HASH_BUCKETS, FEW]))
def test_every_key_is_in_the_range_of_its_bucket_alone(key: int, buckets: Buckets) -> None:
    bucket = buckets.bucket_of(key)
    first, last = buckets.range_of(bucket)
    assert first <= key <= last
    assert last - first + 1 == 2**64 // 2**buckets.bits
    assert {buckets.bucket_of(each) for each in (first, last)} == {bucket}
    assert -(2 ** (buckets.bits - 1)) <= bucket < 2 ** (buckets.bits - 1)


@given(ENTRIES)
def test_frozen_digests_come_back_and_have_one_form(entries: list[frozenset[int]]) -> None:
    digests = fold(entries, LOOKUP_BUCKETS)
    frozen = freeze_digests(digests)
    assert thaw_digests(frozen) == digests
    assert freeze_digests(thaw_digests(frozen)) == frozen
    assert len(frozen) == 34 * len(digests)
    if frozen:
        with pytest.raises(ValueError, match="not digests"):
            thaw_digests(frozen[:-1])


def test_what_is_hashed_is_as_documented() -> None:
    """SHA-256 of 32 zero bytes, the key and the seq; then of that and the next."""
    first = sha256(bytes(32) + bytes.fromhex("ffffffffffffffff") + bytes.fromhex("0000000000000003")).digest()
    second = sha256(first + bytes.fromhex("0000000000000001") + bytes.fromhex("0000000000000004")).digest()
    assert digest_rows([(1, 4), (-1, 3)]) == second
    assert hash_key(b"\xff" * 8 + bytes(24)) == -1
