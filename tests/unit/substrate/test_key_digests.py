"""Digests of buckets: one for each, of exactly the rows that are in it, however they came there."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    digests = BucketDigests()
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
        assert digests.find(bucket) == (digest_rows(rows) if rows else None)


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
    rows = sum(map(len, entries))
    assert len(frozen) <= (2 + 8 + 32) * rows
    if frozen:
        with pytest.raises(ValueError, match="not digests"):
            thaw_digests(frozen[:-1])


@given(st.lists(st.integers(-200, 200)))
def test_digests_are_found_under_the_buckets_that_they_were_set_for(buckets: list[int]) -> None:
    digests, expected = BucketDigests(), {}
    for number, bucket in enumerate(buckets):
        expected[bucket] = bytes([number % 256]) * 32
        digests = digests.set(bucket, expected[bucket])
    assert {each: digests.find(each) for each in range(-201, 202)} == {
        each: expected.get(each) for each in range(-201, 202)
    }
    assert thaw_digests(freeze_digests(digests)) == digests


def test_what_is_frozen_is_as_documented() -> None:
    """The number of a page, a bit for each bucket that has rows, and their digests."""
    digests = BucketDigests().set(65, b"b" * 32).set(64, b"a" * 32).set(-1, b"c" * 32)
    assert freeze_digests(digests) == (
        bytes.fromhex("ffff8000000000000000")
        + b"c" * 32
        + bytes.fromhex("00010000000000000003")
        + b"a" * 32
        + b"b" * 32
    )


def test_what_is_hashed_is_as_documented() -> None:
    """SHA-256 of the tag, 32 zero bytes, the key and the seq; then of the tag, that and the next."""
    tag = b"cmbs/1/bucket\0"
    first = sha256(tag + bytes(32) + bytes.fromhex("ffffffffffffffff") + bytes.fromhex("0000000000000003")).digest()
    second = sha256(tag + first + bytes.fromhex("0000000000000001") + bytes.fromhex("0000000000000004")).digest()
    assert digest_rows([(1, 4), (-1, 3)]) == second
    assert hash_key(b"\xff" * 8 + bytes(24)) == -1
