"""Hashes that a ledger records of states, requests and documents: SHA-256 under a tag."""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
from typing import Any

from cmbs.ledger.format import FORMAT


class Domain(StrEnum):
    """What a hash is of. Of the same bytes, each has another hash."""

    STATE = "state"
    POLICY = "policy"
    KIT = "kit"
    ARGS = "args"
    # The args of a call and what is forwarded with them; and all that an approver is shown of a call.
    FORWARDED = "forwarded"
    CALL = "call"
    DELTA = "delta"
    TOOL = "tool"
    RESULT = "result"
    REQUEST = "request"
    RESPONSE = "response"
    # What a user answered to the questions of a tool.
    ANSWERS = "answers"
    LARGE_RESULT = "large-result"
    DEFINITION = "definition"
    LOOKUP = "lookup"
    BUCKET = "bucket"


# Ended by a zero byte, which no name has: no tag is the beginning of another.
_TAGS = {domain: f"{FORMAT}/{domain}\0".encode() for domain in Domain}


def hash_tagged(domain: Domain, data: bytes) -> bytes:
    """The SHA-256 of the tag of `domain` and of `data`: `cmbs/1/<domain>`, a zero byte, the bytes."""
    return sha256(_TAGS[domain] + data).digest()


def describe_large_result(data: bytes) -> dict[str, Any]:
    """What is recorded in place of a result that is too large to keep: the hash of its JSON, and the size."""
    return {"hash": hash_tagged(Domain.LARGE_RESULT, data).hex(), "bytes": len(data)}
