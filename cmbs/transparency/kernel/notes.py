"""Signed notes (C2SP signed-note) and timestamped cosignatures (C2SP tlog-cosignature), with Ed25519."""

from __future__ import annotations

import base64
import binascii
import re
from enum import IntEnum
from hashlib import sha256
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from cmbs.errors import InvalidRequest

MAX_NOTE_BYTES = 65_536
MAX_SIGNATURES = 64
_KEY_BYTES = 32
_KEY_ID_BYTES = 4
_TIME_BYTES = 8
_SIGNATURE_BYTES = 64
_PRIVATE = "PRIVATE+KEY+"
# A name has no Unicode space and no plus, which separate the parts of lines and keys.
_NAME = re.compile(r"[^\s+\x00-\x1f\x7f]+")
_LINE = re.compile(r"— (?P<name>[^\s+]+) (?P<signature>[A-Za-z0-9+/]+={0,2})")
_KEY = re.compile(r"(?P<name>[^\s+]+)\+(?P<key_id>[0-9a-f]{8})\+(?P<key>[A-Za-z0-9+/]+={0,2})")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
_SHOWN = 80  # characters of a text that is not what it should be


class Algorithm(IntEnum):
    """The type byte of a key: what its signatures are over."""

    ED25519 = 1
    COSIGNATURE_V1 = 4


class Signature(NamedTuple):
    """One signature of a note. `key_id` is a hint: a signature counts once it was verified with a known key."""

    name: str
    key_id: bytes
    value: bytes

    @property
    def line(self) -> str:
        """The line that it is in a note, with its line end."""
        return f"— {self.name} {base64.b64encode(self.key_id + self.value).decode()}\n"

    @property
    def time(self) -> int:
        """When a cosignature was made, in POSIX seconds; meaningless for any other signature."""
        return int.from_bytes(self.value[:_TIME_BYTES], "big")


class VerifierKey(NamedTuple):
    """A public key and its name."""

    name: str
    algorithm: Algorithm
    public_key: bytes

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """The key that a `vkey` stands for: name, key id and key, joined by plus signs."""
        key = cls(*_parse_key(text, text))
        try:
            Ed25519PublicKey.from_public_bytes(key.public_key)
        except ValueError as exc:  # pragma: no cover - every 32 bytes are taken here, and refused when they verify
            raise _not_a_key(text) from exc
        if key.text != text:
            raise InvalidRequest(f"`{text[:_SHOWN]}` is not a key: its id is not that of its name and bytes")
        return key

    @property
    def key_id(self) -> bytes:
        """The first bytes of the hash of name, type and key."""
        content = self.name.encode() + b"\n" + bytes([self.algorithm]) + self.public_key
        return sha256(content).digest()[:_KEY_ID_BYTES]

    @property
    def text(self) -> str:
        """The key as a `vkey`."""
        key = base64.b64encode(bytes([self.algorithm]) + self.public_key).decode()
        return f"{self.name}+{self.key_id.hex()}+{key}"

    def is_named_by(self, signature: Signature) -> bool:
        """Whether a signature says that it is of this key."""
        return signature.name == self.name and signature.key_id == self.key_id

    def verifies(self, text: str, signature: Signature) -> bool:
        """Whether a signature is of this key, and over this text."""
        time, value = None, signature.value
        if self.algorithm is Algorithm.COSIGNATURE_V1:
            time, value = signature.time, signature.value[_TIME_BYTES:]
        if not self.is_named_by(signature) or len(value) != _SIGNATURE_BYTES:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(value, _message(text, time))
        except InvalidSignature:
            return False
        return True


class SigningKey(NamedTuple):
    """A private key and its name. Its text is a secret."""

    name: str
    algorithm: Algorithm
    seed: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.verifier.text!r})"

    @classmethod
    def parse(cls, text: str) -> SigningKey:
        """The key in a line of a key file; an error never repeats it."""
        if not text.startswith(_PRIVATE):
            raise InvalidRequest(f"not a signing key: it begins with `{_PRIVATE}`")
        key = cls(*_parse_key(text.removeprefix(_PRIVATE), "that"))
        if key.text != text:
            raise InvalidRequest("not a signing key: its id is not that of its name and bytes")
        return key

    @property
    def verifier(self) -> VerifierKey:
        """The public key."""
        private = Ed25519PrivateKey.from_private_bytes(self.seed)
        return VerifierKey(self.name, self.algorithm, private.public_key().public_bytes_raw())

    @property
    def text(self) -> str:
        """The line of a key file."""
        key = base64.b64encode(bytes([self.algorithm]) + self.seed).decode()
        return f"{_PRIVATE}{self.name}+{self.verifier.key_id.hex()}+{key}"

    def sign(self, text: str) -> Signature:
        """A signature over a text."""
        value = Ed25519PrivateKey.from_private_bytes(self.seed).sign(_message(text, None))
        return Signature(self.name, self.verifier.key_id, value)

    def cosign(self, text: str, time: int) -> Signature:
        """A cosignature: that at this time (POSIX seconds) no larger consistent tree was known than in this text."""
        value = Ed25519PrivateKey.from_private_bytes(self.seed).sign(_message(text, time))
        return Signature(self.name, self.verifier.key_id, time.to_bytes(_TIME_BYTES, "big") + value)


class Note(NamedTuple):
    """A text that ends in a line end, and signatures of it that nothing is known of yet."""

    text: str
    signatures: tuple[Signature, ...]

    @classmethod
    def parse(cls, encoded: str) -> Note:
        """The note in these characters; InvalidRequest where they are none."""
        if len(encoded) > MAX_NOTE_BYTES or _CONTROL.search(encoded):
            raise InvalidRequest("not a signed note: too long, or with control characters")
        # The text may have empty lines of its own: the last one separates.
        text, separator, lines = encoded.rpartition("\n\n")
        if not separator or not lines.endswith("\n"):
            raise InvalidRequest("not a signed note: a text, an empty line, and signatures that end in a line end")
        return cls(text + "\n", parse_signatures(lines))

    @property
    def encoded(self) -> str:
        """The note as it is sent and kept."""
        return f"{self.text}\n{''.join(signature.line for signature in self.signatures)}"

    def with_signatures(self, *more: Signature) -> Note:
        """The note with these signatures too; of each key the newest is kept."""
        kept = {(each.name, each.key_id): each for each in (*self.signatures, *more)}
        return Note(self.text, tuple(kept.values()))


def parse_signatures(lines: str) -> tuple[Signature, ...]:
    """Signature lines, each with its line end; InvalidRequest where they are not."""
    found = []
    for line in lines.removesuffix("\n").split("\n"):
        match = _LINE.fullmatch(line)
        decoded = b"" if match is None else _decode(match["signature"])
        if match is None or len(decoded) <= _KEY_ID_BYTES:
            raise InvalidRequest(f"not the signature line of a note: `{line[:_SHOWN]}`")
        found.append(Signature(match["name"], decoded[:_KEY_ID_BYTES], decoded[_KEY_ID_BYTES:]))
    if len(found) > MAX_SIGNATURES:
        raise InvalidRequest(f"a note has at most {MAX_SIGNATURES} signatures here, got {len(found)}")
    return tuple(found)


def validate_name(name: str) -> str:
    """A name that a key may have."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"a key has a name without spaces and plus signs, got `{name[:_SHOWN]}`")
    return name


def _parse_key(text: str, shown: str) -> tuple[str, Algorithm, bytes]:
    match = _KEY.fullmatch(text)
    decoded = b"" if match is None else _decode(match["key"])
    if match is None or len(decoded) != 1 + _KEY_BYTES or decoded[0] not in set(Algorithm):
        raise _not_a_key(shown)
    return match["name"], Algorithm(decoded[0]), decoded[1:]


def _not_a_key(shown: str) -> InvalidRequest:
    return InvalidRequest(f"`{shown[:_SHOWN]}` is not an Ed25519 key like `name+0a1b2c3d+AbCd…`")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise InvalidRequest(f"`{text[:_SHOWN]}` is not base64") from exc


def _message(text: str, time: int | None) -> bytes:
    """What is signed: the text, or under a cosignature the time and the text."""
    return text.encode() if time is None else f"cosignature/v1\ntime {time}\n{text}".encode()
