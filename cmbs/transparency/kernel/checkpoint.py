"""Checkpoints (C2SP tlog-checkpoint): the size and the root of a log as the text of a signed note."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from cmbs.errors import InvalidRequest
from cmbs.ledger.format import is_earlier_document
from cmbs.ledger.proofs import MAX_SIZE, verify_consistency
from cmbs.transparency.kernel.faults import Fault, FaultKind
from cmbs.transparency.kernel.notes import Note, SigningKey, VerifierKey
from cmbs.transparency.kernel.published import KEYS_FORMAT, LogKey, LogKeys

_SUCCESSION = "cmbs/1/checkpoint-key-succession"
_SIZE = re.compile(r"0|[1-9][0-9]{0,15}")
_ROOT_BYTES = 32
_FEWEST_LINES = 3


class Checkpoint(NamedTuple):
    """How large a log is, and the root over its leaves. `origin` names the log."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The text of the note."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """The checkpoint in a note's text; lines beyond the third are opaque. InvalidRequest where it is none."""
        lines = text.removesuffix("\n").split("\n")
        try:
            root = base64.b64decode(lines[2], validate=True) if len(lines) >= _FEWEST_LINES else b""
        except binascii.Error:
            root = b""
        if len(root) != _ROOT_BYTES or not all(lines) or not _SIZE.fullmatch(lines[1]) or int(lines[1]) > MAX_SIZE:
            raise InvalidRequest("not a checkpoint, which has an origin, a size and a root, a line each")
        return cls(lines[0], int(lines[1]), root)


def parse_keys(data: bytes) -> LogKeys:
    """The document in these bytes; InvalidRequest where they hold none."""
    try:
        plain = msgspec.json.decode(data)
        if isinstance(plain, dict) and is_earlier_document(plain.get("format")):
            raise InvalidRequest("keys of an earlier format, which this software does not read")
        document = msgspec.convert(plain, LogKeys)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidRequest(f"not the keys of a log: {exc}") from exc
    if document.format != KEYS_FORMAT or not document.keys:
        raise InvalidRequest(f"not the keys of a log, which are of the format `{KEYS_FORMAT}`")
    for key in document.keys:
        VerifierKey.parse(key.vkey)
    return document


def retire_key(keys: LogKeys, old: SigningKey, new: SigningKey, size: int, now: str) -> LogKeys:
    """The keys once `new` signs in the place of `old`, which has signed no more than `size` leaves.

    InvalidRequest where `old` is not the key that signs.
    """
    if old.verifier.text != keys.keys[-1].vkey:
        raise InvalidRequest(f"`{old.verifier.text}` is not the last key of the log, `{keys.keys[-1].vkey}`")
    text = f"{_SUCCESSION}\n{keys.origin}\n{size}\n{now}\n{new.verifier.text}\n"
    note = Note(text, (old.sign(text),)).encoded
    last = msgspec.structs.replace(keys.keys[-1], retired_ts=now, retired_size=size, succession=note)
    return LogKeys(keys.origin, [*keys.keys[:-1], last, LogKey(new.verifier.text, now)])


def list_reachable(keys: LogKeys, trusted: Iterable[str]) -> list[LogKey]:
    """Of these keys those that are trusted, and those that a trusted one names as the key after it.

    When a trusted key was retired is taken from what it signed itself, not from the document.
    """
    known = set(trusted)
    found = []
    for key in keys.keys:
        if key.vkey not in known:
            continue
        retired = None if key.succession is None else _read_succession(keys.origin, key)
        if retired is None:
            found.append(LogKey(key.vkey, key.created_ts))
        else:
            successor, size, ts = retired
            known.add(successor)
            found.append(LogKey(key.vkey, key.created_ts, ts, size, key.succession))
    missing = known - {key.vkey for key in found}
    return [*found, *(LogKey(vkey, "") for vkey in sorted(missing))]


def _read_succession(origin: str, key: LogKey) -> tuple[str, int, str] | None:
    """The next key, the size and the time of retirement that a key signed; None where it signed no such thing."""
    try:
        note, verifier = Note.parse(key.succession or ""), VerifierKey.parse(key.vkey)
        kind, named, size, ts, successor = note.text.removesuffix("\n").split("\n")
        VerifierKey.parse(successor)
    except (InvalidRequest, ValueError):
        return None
    is_signed = any(verifier.verifies(note.text, each) for each in note.signatures)
    if not is_signed or (kind, named) != (_SUCCESSION, origin) or not _SIZE.fullmatch(size):
        return None
    return successor, int(size), ts


def check_signature(note: Note, keys: Sequence[LogKey]) -> Fault | None:
    """What is wrong with the signatures of a checkpoint, by the keys of its log that the reader trusts."""
    checkpoint = Checkpoint.parse(note.text)
    retired: Fault | None = None
    is_good = False
    for key in keys:
        verifier = VerifierKey.parse(key.vkey)
        for signature in filter(verifier.is_named_by, note.signatures):
            if not verifier.verifies(note.text, signature):
                return Fault(FaultKind.FORGED_SIGNATURE, f"the signature of `{key.vkey}` is not over this checkpoint")
            if key.retired_size is not None and checkpoint.size > key.retired_size:
                retired = Fault(
                    FaultKind.RETIRED_KEY,
                    f"it is of size {checkpoint.size} and signed by `{key.vkey}`, a key that was retired at size"
                    f" {key.retired_size} on {key.retired_ts}",
                )
            else:
                is_good = True
    if is_good:
        return None
    signers = ", ".join(f"`{each.name}` ({each.key_id.hex()})" for each in note.signatures)
    return retired or Fault(FaultKind.UNKNOWN_KEY, f"none of its signatures is of a key that is trusted: {signers}")


def compare_checkpoints(kept: Checkpoint, other: Checkpoint, path: Sequence[bytes] | None) -> Fault | None:
    """What two checkpoints of one log say against each other; `path` proves that the smaller is in the larger.

    Without a path only checkpoints of one size can be compared.
    """
    if kept.origin != other.origin:
        return Fault(FaultKind.OTHER_LOG, f"one is of the log `{kept.origin}`, the other of `{other.origin}`")
    older, newer = sorted((kept, other), key=lambda each: each.size)
    if older.size == newer.size:
        if older.root == newer.root:
            return None
        return Fault(
            FaultKind.SPLIT_VIEW,
            f"two trees of size {kept.size} were signed: root {kept.root.hex()} and root {other.root.hex()}",
        )
    if path is None:
        return Fault(
            FaultKind.UNPROVED, f"sizes {older.size} and {newer.size} cannot be compared without a consistency proof"
        )
    if verify_consistency(older.size, older.root, newer.size, newer.root, path):
        return None
    return Fault(
        FaultKind.SPLIT_VIEW,
        f"the tree of size {newer.size} (root {newer.root.hex()}) does not continue the tree of size {older.size}"
        f" (root {older.root.hex()})",
    )
