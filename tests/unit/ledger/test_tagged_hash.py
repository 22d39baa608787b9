"""Hashes under a tag: what is hashed alike under one name is another hash under any other."""

from __future__ import annotations

from hashlib import sha256

from cmbs.ledger.tagged_hash import Domain, describe_large_result, hash_tagged


def test_the_same_bytes_have_another_hash_in_each_domain() -> None:
    assert len({hash_tagged(domain, b"bytes") for domain in Domain}) == len(Domain)


def test_a_hash_is_that_of_the_tag_a_zero_byte_and_the_bytes() -> None:
    assert hash_tagged(Domain.ARGS, b"bytes") == sha256(b"cmbs/1/args\0bytes").digest()


def test_a_large_result_is_described_by_its_hash_and_its_size() -> None:
    expected = sha256(b"cmbs/1/large-result\0[1,2]").hexdigest()
    assert describe_large_result(b"[1,2]") == {"hash": expected, "bytes": 5}
