"""The text of a key: `cmbs_<key id>_<secret>`. The id is no secret; of the whole, only a hash is kept.

The secret is 256 random bits, so there is nothing to guess and a plain SHA-256 is enough: what makes password hashes
slow is there for words that people choose.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from typing import NamedTuple

PREFIX = "cmbs_"
_ID_BYTES = 8
_SECRET_BYTES = 32
_KEY = re.compile(r"cmbs_([0-9a-f]{16})_[0-9a-f]{64}")
_KEY_IN_BYTES = re.compile(rb"(cmbs_[0-9a-f]{16})_[0-9a-f]{64}")
# What a key consists of is ASCII; the rest may stay as it is.
_ESCAPED_IN_JSON = re.compile(rb"\\u00([3-7][0-9a-fA-F])")
_ESCAPED_IN_URL = re.compile(rb"%([3-7][0-9a-fA-F])")
_DOMAIN = b"cmbs api key v1\x00"


class NewKey(NamedTuple):
    """A key that was just made: the only time that its text is there."""

    key_id: str
    text: str
    key_hash: bytes


def new_key() -> NewKey:
    """A new random key."""
    key_id = secrets.token_hex(_ID_BYTES)
    text = f"{PREFIX}{key_id}_{secrets.token_hex(_SECRET_BYTES)}"
    return NewKey(key_id, text, hash_of(text))


def hash_of(text: str) -> bytes:
    """What is kept of a key."""
    return sha256(_DOMAIN + text.encode()).digest()


def key_id_of(text: str) -> str | None:
    """The id in the text of a key; None where it is no key at all."""
    found = _KEY.fullmatch(text)
    return found[1] if found else None


def holds_key(data: bytes) -> bool:
    """Whether the text of a key is somewhere in these bytes, also if escaped as JSON and URLs do."""
    if b"\\u00" in data:
        data = _ESCAPED_IN_JSON.sub(_unescape, data)
    if b"%" in data:
        data = _ESCAPED_IN_URL.sub(_unescape, data)
    return b"cmbs_" in data and _KEY_IN_BYTES.search(data) is not None


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode())


def without_keys(data: bytes) -> bytes:
    """The same bytes with every key cut down to its id."""
    return _KEY_IN_BYTES.sub(rb"\1_***", data) if b"cmbs_" in data else data
