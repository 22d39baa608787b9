"""Checks exports and proofs of cmbs on a machine without cmbs: one file, Python 3.11 or newer, the standard library.

    python -I offline_verifier.py FILE... [--heads KEPT] [--checkpoint NOTE --key VKEY] [--json]
        [--kind KIND --stream STREAM --at SEQ --hypothesis ID]

It was written from the documents (docs/reference/export.md, proofs.md, checkpoints.md and the two protocols), not from
the code that writes what it reads. Copy it anywhere; it imports nothing of cmbs. `cmbs` itself checks proofs with it:
there is one verifier of proofs. Sessions are decided again by `cmbs verify` too, with other code.

Exit codes: 0 all is good, and rests on nothing but what was given; 1 something is bad, and the first bad place is
named; 2 a file cannot be read, is neither an export nor a proof, or has another format, or the command line is wrong;
3 what could be checked is good, but something that was asked for could not be checked; 4 good if something holds that
was not given: each such condition is a line that begins with `if`.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import copy
import hashlib
import json
import re
import shutil
import sys
import tempfile
import zlib
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

GOOD, BAD, UNREADABLE, INCOMPLETE, UNANCHORED = 0, 1, 2, 3, 4

# Of entries. That of a document is `cmbs/1/<what it is>`, and so is the tag of a hash.
FORMAT = "cmbs/1"
EXPORT_FORMAT, PROOF_FORMAT, HEADS_FORMAT = f"{FORMAT}/export", f"{FORMAT}/proof", f"{FORMAT}/heads"
MAX_LINE_BYTES = 512 * 1024 * 1024
MAX_PROOF_BYTES = 64 * 1024 * 1024
# A bitmap is compressed: what it claims to unpack to is bounded too.
MAX_BITMAP_BYTES = 128 * 1024 * 1024
MAX_WHOLE_NUMBER = 2**53 - 1
BLOCK_BYTES = 128
BLOCK_BITS = 8 * BLOCK_BYTES
HASH_BYTES = 32
NO_HASH = "0" * 64
SPACE_PREFIX = "space:"
KIT_PREFIX = "kit:"
NAMES_STREAM = "names:server"

# What has a meaning in a quotation itself.
QUOTED = "`\\"
HEX_HASH = re.compile(r"[0-9a-f]{64}")
LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
NOT_OF_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
MAX_LINE_LENGTH = 200
MAX_LABELS = 32
MAX_CASE_AGENTS = 100
MAX_AGENT_ID_LENGTH = 1024
CASE_TEXTS = {"title": 200, "owner": 200, "severity": 40}
CASE_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
UUID = re.compile("[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)
VERB = re.compile("[A-Z_]{1,64}")
# Strings with the escapes of RFC 8785 and no others; outside of strings, no white space.
CANONICAL_STRING = r'"(?:[^"\\\x00-\x1f]++|\\["\\bfnrt]|\\u00(?:0[0-7bef]|1[0-9a-f]))*+"'
CANONICAL_TEXT = re.compile(rf'(?:{CANONICAL_STRING}|[^"\s]++)*+')


def quote(text: str) -> str:
    """A text out of a file between backticks: it can neither end its quotation nor begin a line of its own."""
    return f"`{escape(text)}`"


def escape(text: str) -> str:
    """A text with all that could pass for something else written as its code point."""
    if text.isprintable() and not any(each in text for each in QUOTED):
        return text
    points = ((each, ord(each)) for each in text)
    return "".join(
        each
        if each.isprintable() and each not in QUOTED
        else f"\\u{point:04x}"
        if point <= 0xFFFF
        else f"\\U{point:08x}"
        for each, point in points
    )


class Refused(Exception):
    """What is wrong, and in which field; line and event are added where they are known."""

    def __init__(self, reason: str, field: str | None = None, **place: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = {"field": field, **place}

    def locate(self, **place: Any) -> Refused:
        """The same, with what was not known where it was found."""
        self.place = {**place, **{name: value for name, value in self.place.items() if value is not None}}
        return self

    def describe(self) -> str:
        names = {"line": "line {}", "seq": "event {}", "stream": "of {}", "field": "field {}"}
        shown = {name: value for name, value in self.place.items() if value is not None}
        shown |= {name: quote(shown[name]) for name in ("stream", "field") if name in shown}
        parts = [text.format(shown[name]) for name, text in names.items() if name in shown]
        place = ", ".join(parts).replace(", of", " of")
        return f"{place}: {self.reason}" if place else self.reason


class Unreadable(Exception):
    """A file that is not there, that is neither an export nor a proof, or that other software wrote."""


NEWER_FORMAT = re.compile(r"cmbs/(?:[2-9]|[1-9][0-9]+)(?:/.*)?", re.ASCII)
EARLIER_FORMAT = re.compile(r"cmbs(?:-[a-z]+)+/[0-9]+", re.ASCII)


def check_format(record: dict[str, Any], expected: str) -> None:
    """Unreadable for a document or an entry that names another format, Refused for one that names none."""
    # The first names of entries were numbers, in another member.
    found = record.get("format", "cmbs-entry/0" if "v" in record else None)
    if found == expected:
        return
    if isinstance(found, str) and EARLIER_FORMAT.fullmatch(found):
        raise Unreadable("of an earlier format, which this software does not read")
    if isinstance(found, str) and NEWER_FORMAT.fullmatch(found):
        raise Unreadable(
            f"of the format {quote(found)}, which is newer than this software, which reads `{FORMAT}` alone"
        )
    raise Refused(f"not `{expected}`", "format")


# --- hashes and trees: docs/reference/proofs.md, "Hashes" ---


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def hash_tagged(domain: str, data: bytes) -> bytes:
    return sha256(f"{FORMAT}/{domain}\0".encode() + data)


def leaf(data: bytes) -> bytes:
    return sha256(b"\x00" + data)


def node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right)


def build_levels(leaves: list[bytes]) -> list[list[bytes]]:
    """An RFC 6962 tree from leaf hashes to root; the last node of an odd level is promoted as it is."""
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        above = [node(below[at], below[at + 1]) for at in range(0, len(below) - 1, 2)]
        levels.append(above + below[len(above) * 2 :])
    return levels


class GrowingTree:
    """The root of a stream's tree after each entry, in memory that grows with its logarithm."""

    def __init__(self) -> None:
        self.size = 0
        self._peaks: list[bytes] = []

    def append(self, leaf_hash: bytes) -> None:
        rest = self.size
        while rest & 1:
            leaf_hash = node(self._peaks.pop(), leaf_hash)
            rest >>= 1
        self._peaks.append(leaf_hash)
        self.size += 1

    def root(self) -> bytes:
        *peaks, root = self._peaks
        while peaks:
            root = node(peaks.pop(), root)
        return root


def root_from(leaves: dict[int, bytes], size: int, path: bytes, place: str) -> bytes:
    """The root that follows from some leaf hashes, by index, the size of the tree and a path."""
    if not leaves or max(leaves) >= size:
        raise Refused("the index is not below the size of the tree", place)
    hashes = iter(path[at : at + HASH_BYTES] for at in range(0, len(path), HASH_BYTES))
    nodes = leaves
    while size > 1:
        above: dict[int, bytes] = {}
        for position in sorted(nodes):
            sibling = position ^ 1
            if position // 2 in above:
                continue
            if sibling >= size:
                above[position // 2] = nodes[position]
                continue
            other = nodes.get(sibling) or next(hashes, None)
            if other is None:
                raise Refused("the path is too short", place)
            pair = (nodes[position], other) if sibling > position else (other, nodes[position])
            above[position // 2] = node(*pair)
        nodes, size = above, (size + 1) // 2
    if next(hashes, None) is not None:
        raise Refused("the path is too long", place)
    return nodes[0]


def check_consistency(old: Tree, new: Tree, path: bytes, place: str) -> None:
    """RFC 9162, 2.1.4.2: the tree of `new` begins with the leaves of `old`."""
    hashes = [path[at : at + HASH_BYTES] for at in range(0, len(path), HASH_BYTES)]
    if not 1 <= old.size <= new.size:
        raise Refused("the older size is not from 1 to the newer one", place)
    if old.size == new.size:
        if hashes or old.root != new.root:
            raise Refused("of two equal sizes, the roots differ or the path is not empty", place)
        return
    if old.size & (old.size - 1) == 0:
        hashes.insert(0, old.root)
    if not hashes:
        raise Refused("the path is too short", place)
    if fold_consistency(old.size - 1, new.size - 1, hashes, place) != (old.root, new.root):
        raise Refused("the newer log does not begin with the older one", place)


def fold_consistency(first: int, second: int, hashes: list[bytes], place: str) -> tuple[bytes, bytes]:
    """The two roots that a consistency path leads to, from the indexes of the last leaves."""
    while first & 1:
        first, second = first >> 1, second >> 1
    old_root = new_root = hashes[0]
    for each in hashes[1:]:
        if second == 0:
            raise Refused("the path is too long", place)
        if first & 1 or first == second:
            old_root, new_root = node(each, old_root), node(each, new_root)
            while first and not first & 1:
                first, second = first >> 1, second >> 1
        else:
            new_root = node(new_root, each)
        first, second = first >> 1, second >> 1
    if second:
        raise Refused("the path is too short", place)
    return old_root, new_root


def commitment(stream_id: str, prev: bytes, root: bytes) -> bytes:
    parts = (b"cmbs/survivors/v1", stream_id.encode(), prev, root)
    return sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts))


# --- JSON, read strictly, and its canonical form (RFC 8785) ---


def read_unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise Refused("a key appears twice in an object")
    return record


def read_ordered_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names: list[Any] = [name for name, _ in pairs]
    if not all(name.isascii() for name in names):
        names = [name.encode("utf-16-be", "surrogatepass") for name in names]
    if not all(before < after for before, after in pairwise(names)):
        raise Refused("not canonical: the keys of an object are repeated or not in order")
    return dict(pairs)


def read_whole(literal: str) -> int:
    value = int(literal)
    if abs(value) > MAX_WHOLE_NUMBER or literal == "-0":
        raise Refused(f"not canonical: the number {literal[:40]}")
    return value


def read_float(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")) or write_number(value) != literal:
        raise Refused(f"not canonical: the number {literal[:40]}")
    return value


def write_number(value: float) -> str:
    """A number as ECMAScript prints it."""
    if value == 0:
        return "0"
    sign, digit_tuple, exponent = Decimal(repr(value)).as_tuple()
    digits = "".join(map(str, digit_tuple)).rstrip("0")
    point = len(digit_tuple) + int(exponent)
    minus = "-" if sign else ""
    if len(digits) <= point <= 21:
        return minus + digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{minus}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{minus}0.{'0' * -point}{digits}"
    fraction = "." + digits[1:] if digits[1:] else ""
    return f"{minus}{digits[0]}{fraction}e{point - 1:+d}"


def refuse_constant(literal: str) -> Any:
    raise Refused(f"not JSON: {literal}")


def read_json(text: str, **hooks: Callable[..., Any]) -> Any:
    options = {"object_pairs_hook": read_unique_object, "parse_constant": refuse_constant, **hooks}
    try:
        value = json.loads(text, **options)  # type: ignore[arg-type]
        if "\\u" in text:
            # Half of a surrogate pair can be escaped, and is no text that could be hashed or signed.
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refused("not a text of Unicode: half of a surrogate pair") from None
    except (ValueError, RecursionError) as exc:
        raise Refused(f"not JSON: {exc}") from None
    return value


def decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise Refused(f"not UTF-8 at byte {exc.start}") from None


def read_canonical(text: str) -> Any:
    """The value of a JSON text that is in canonical form, byte for byte."""
    numbers = {"parse_int": read_whole, "parse_float": read_float}
    value = read_json(text, object_pairs_hook=read_ordered_object, **numbers)
    if not CANONICAL_TEXT.fullmatch(text):
        raise Refused("not canonical: white space, or a character that is escaped otherwise")
    return value


def write_compact(value: Any) -> str:
    """One text for one value: `true` and `1` have two, although Python takes them for equal."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def hash_policy(state: dict[str, str]) -> str:
    """The hash of the canonical object of all pairs of a state that are its policy."""
    pairs = [(name, text) for name, text in state.items() if name.startswith(("policy.", "constraint."))]
    ordered = dict(sorted(pairs, key=lambda pair: pair[0].encode("utf-16-be")))
    return hash_tagged("policy", json.dumps(ordered, ensure_ascii=False, separators=(",", ":")).encode()).hex()


# --- fields ---


def take_fields(value: Any, place: str, required: str, optional: str = "") -> dict[str, Any]:
    """The value, which is an object with exactly these fields."""
    if not isinstance(value, dict):
        raise Refused("not an object", place or None)
    prefix = f"{place}." if place else ""
    for name in required.split():
        if name not in value:
            raise Refused("missing", prefix + name)
    for name in value:
        if name not in required.split() and name not in optional.split():
            raise Refused("not a field that is defined", prefix + name)
    return value


def take_text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise Refused("not a text", place)
    return value


def check_case_fields(payload: dict[str, Any], least: int) -> None:
    """What is said of a case: lines of text, names of labels, agents; so many labels and agents where there are any.

    An update, of none at least, takes a text away by null.
    """
    labels = payload.get("labels", {"none": "none"})
    if not isinstance(labels, dict) or not least <= len(labels) <= MAX_LABELS:
        raise Refused(f"not an object of {least} to {MAX_LABELS} texts", "payload.labels")
    for name in labels:
        if LABEL_NAME.fullmatch(name) is None:
            raise Refused("not a name of a label", f"payload.labels.{name}")
    lines = [(f"payload.labels.{name}", value, MAX_LINE_LENGTH) for name, value in labels.items()]
    for name, longest in CASE_TEXTS.items():
        text = payload.get(name, "none")
        if text is not None or least:
            lines.append((f"payload.{name}", text, longest))
    agents = take_ids(payload.get("agents", ["none"]), "payload.agents")
    if not least <= len(agents) <= MAX_CASE_AGENTS:
        raise Refused(f"not {least} to {MAX_CASE_AGENTS} agents", "payload.agents")
    if any(not 0 < len(agent_id) <= MAX_AGENT_ID_LENGTH for agent_id in agents):
        raise Refused("not ids of agents", "payload.agents")
    for place, line, longest in lines:
        if len(take_text(line, place)) > longest or not line.strip(" ") or NOT_OF_A_LINE.search(line):
            raise Refused("not a line of text", place)


def take_number(value: Any, place: str, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_WHOLE_NUMBER:
        raise Refused(f"not a whole number from {least}", place)
    return value


def take_list(value: Any, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise Refused("not a list", place)
    return value


def take_ids(value: Any, place: str) -> list[str]:
    """Texts, sorted by code point, without repeats."""
    ids = take_list(value, place)
    if not all(isinstance(each, str) for each in ids) or not all(before < after for before, after in pairwise(ids)):
        raise Refused("not a list of ids, sorted and without repeats", place)
    return ids


def take_hex(value: Any, place: str) -> bytes:
    if not isinstance(value, str) or not HEX_HASH.fullmatch(value):
        raise Refused("not 64 lower-case hexadecimal digits", place)
    return bytes.fromhex(value)


def take_bytes(value: Any, place: str) -> bytes:
    try:
        data = base64.b64decode(take_text(value, place), validate=True)
    except (binascii.Error, ValueError):
        raise Refused("not base64", place) from None
    if base64.b64encode(data).decode() != value:
        raise Refused("not the base64 text of its bytes", place)
    return data


def take_hash(value: Any, place: str) -> bytes:
    data = take_bytes(value, place)
    if len(data) != HASH_BYTES:
        raise Refused("not 32 bytes", place)
    return data


def take_path(value: Any, place: str) -> bytes:
    data = take_bytes(value, place)
    if len(data) % HASH_BYTES:
        raise Refused("not a multiple of 32 bytes", place)
    return data


class Tree(NamedTuple):
    """A size and a root: what a proof rests on."""

    size: int
    root: bytes


class Head(NamedTuple):
    """The last entry of a stream at some time."""

    seq: int
    event_hash: bytes


# --- signed checkpoints: docs/reference/checkpoints.md ---

LOG_SIGNATURE, COSIGNATURE = 1, 4
KEY_ID_BYTES, SIGNATURE_BYTES, TIME_BYTES = 4, 64, 8
MAX_NOTE_LENGTH = 65_536


class VerifyKey(NamedTuple):
    """A public key, with the name and the id by which signature lines mean it.

    One that was retired has signed no checkpoint of more than `retired_size` records.
    """

    name: str
    key_id: bytes
    kind: int
    public: bytes
    retired_size: int | None = None

    @classmethod
    def parse(cls, vkey: str, retired_size: int | None = None) -> VerifyKey:
        name, _, rest = vkey.strip().partition("+")
        digits, _, encoded = rest.partition("+")
        data = take_bytes(encoded, "key")
        key_id = sha256(f"{name}\n".encode() + data)[:KEY_ID_BYTES]
        key = cls(name, key_id, data[0] if data else 0, data[1:], retired_size)
        if not name or key.kind not in {LOG_SIGNATURE, COSIGNATURE} or len(key.public) != HASH_BYTES:
            raise Refused("not an Ed25519 key of a log or of a witness", "key")
        if digits != key.key_id.hex():
            raise Refused("the key id is not that of name and key", "key")
        return key

    def has_signed(self, note: Note) -> bool | None:
        """Whether there is a good signature by this key; None where this machine cannot tell. A bad one is refused."""
        answer: bool | None = False
        for name, data in note.signatures:
            if (name, data[:KEY_ID_BYTES]) != (self.name, self.key_id):
                continue
            text, signature = note.text.encode(), data[KEY_ID_BYTES:]
            if self.kind == COSIGNATURE:
                time, signature = signature[:TIME_BYTES], signature[TIME_BYTES:]
                text = f"cosignature/v1\ntime {int.from_bytes(time, 'big')}\n".encode() + text
            if len(signature) != SIGNATURE_BYTES:
                raise Refused(f"a signature of {quote(name)} has another length", "note")
            answer = verify_signature(self.public, signature, text)
            if answer is False:
                raise Refused(f"the signature of {quote(name)} is forged", "note")
        is_retired = self.retired_size is not None and note.tree.size > self.retired_size
        return False if is_retired else answer


def verify_signature(public: bytes, signature: bytes, text: bytes) -> bool | None:
    """By the package `cryptography`, where there is one: the standard library has no Ed25519, and we write none."""
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - it is used where it is installed
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    except ImportError:
        return None
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


class Note(NamedTuple):
    """A C2SP signed note that is a checkpoint: the text, what it says, and the signature lines."""

    text: str
    origin: str
    tree: Tree
    signatures: list[tuple[str, bytes]]

    @classmethod
    def parse(cls, encoded: str) -> Note:
        text, separator, lines = encoded.rpartition("\n\n")
        if len(encoded) > MAX_NOTE_LENGTH or not separator or not lines.endswith("\n"):
            raise Refused("not a signed note", "note")
        signatures = []
        for line in lines.removesuffix("\n").split("\n"):
            dash, name, *rest = [*line.split(" "), "", ""][: max(3, line.count(" ") + 1)]
            data = take_bytes(rest[0], "note")
            if dash != "\u2014" or not name or len(rest) != 1 or len(data) <= KEY_ID_BYTES:
                raise Refused("not a signature line", "note")
            signatures.append((name, data))
        parts = text.split("\n")
        if len(parts) != 3 or not parts[0] or not re.fullmatch("0|[1-9][0-9]{0,15}", parts[1]):
            raise Refused("not the text of a checkpoint: origin, size and root", "note")
        return cls(text + "\n", parts[0], Tree(int(parts[1]), take_hash(parts[2], "note")), signatures)


@dataclass
class Known:
    """What the reader kept, and whose signatures the reader believes."""

    heads: dict[str, list[Head]] = field(default_factory=dict)
    trees: dict[str, list[Tree]] = field(default_factory=dict)
    universes: dict[str, Tree] = field(default_factory=dict)
    checkpoints: list[Note] = field(default_factory=list)
    keys: list[VerifyKey] = field(default_factory=list)
    # What was asked for and could not be checked on this machine, or with these files.
    unchecked: list[str] = field(default_factory=list)

    def copy(self) -> Known:
        """The same, apart from it: what a document adds to one is not in the other."""
        return copy.deepcopy(self)

    def knows_tree(self, stream_id: str, tree: Tree, place: str) -> bool:
        """Whether this root at this size was kept; another one for the same size is refused."""
        kept = [each for each in self.trees.get(stream_id, []) if each.size == tree.size]
        if any(each != tree for each in kept):
            what = f"{quote(stream_id)} has another root at size {tree.size} than the one that was kept"
            raise Refused(what, place)
        return bool(kept)

    def knows_universe(self, stream_id: str, size: int, root: bytes | None, place: str) -> bool:
        kept = self.universes.get(stream_id)
        if kept is not None and (kept.size != size or root not in (None, kept.root)):
            raise Refused(f"{quote(stream_id)} has another universe than the one that was kept", place)
        return kept is not None

    def knows_head(self, stream_id: str, head: Head, place: str) -> bool:
        """Whether this entry was kept as a head; another one at the same seq is refused."""
        kept = [each for each in self.heads.get(stream_id, []) if each.seq == head.seq]
        if any(each != head for each in kept):
            raise Refused(f"another entry than the head that was kept at seq {head.seq}", place)
        return bool(kept)

    def list_sizes(self, stream_id: str) -> list[int]:
        """How many entries a stream had each time that something of it was kept."""
        heads = [each.seq + 1 for each in self.heads.get(stream_id, [])]
        return [*heads, *(each.size for each in self.trees.get(stream_id, []))]

    def keep_record(self, payload: dict[str, Any]) -> None:
        """Take in what a record of a checkpoint says of a stream."""
        stream_id, size = payload["stream_id"], payload["size"]
        head, tree = Head(size - 1, bytes.fromhex(payload["head_hash"])), Tree(size, bytes.fromhex(payload["root"]))
        self.keep_head(stream_id, head, "entry.payload.head_hash")
        self.keep_tree(stream_id, tree, "entry.payload.root")

    def keep_head(self, stream_id: str, head: Head, place: str) -> None:
        if not self.knows_head(stream_id, head, place):
            self.heads.setdefault(stream_id, []).append(head)

    def keep_tree(self, stream_id: str, tree: Tree, place: str) -> None:
        if not self.knows_tree(stream_id, tree, place):
            self.trees.setdefault(stream_id, []).append(tree)

    def keep_universe(self, stream_id: str, universe: Tree, place: str) -> None:
        if not self.knows_universe(stream_id, universe.size, universe.root, place):
            self.universes[stream_id] = universe

    def believes(self, note: Note) -> bool:
        """Whether a checkpoint is signed by the reader's keys, or is one that was kept. A contradiction is refused."""
        same_size = [
            each for each in self.checkpoints if (each.origin, each.tree.size) == (note.origin, note.tree.size)
        ]
        if any(each.tree != note.tree for each in same_size):
            raise Refused(f"split view: the checkpoint of size {note.tree.size} that was kept has another root", "note")
        answers = {key: key.has_signed(note) for key in self.keys}
        by_log = [answer for key, answer in answers.items() if key.kind == LOG_SIGNATURE and key.name == note.origin]
        by_witnesses = [answer for key, answer in answers.items() if key.kind == COSIGNATURE]
        needs_log = bool(by_log) or not by_witnesses
        if self.keys and (False in by_witnesses or (needs_log and not {True, None} & {*by_log})):
            retired = "".join(
                f"; {quote(key.name)} was retired at size {key.retired_size}"
                for key in self.keys
                if key.retired_size is not None and key.retired_size < note.tree.size
            )
            raise Refused(f"the checkpoint of {quote(note.origin)} is not signed by the given key{retired}", "note")
        if None in answers.values():
            what = f"signature not checked: {quote(note.origin)} at size {note.tree.size} (no package `cryptography`)"
            if what not in self.unchecked:
                self.unchecked.append(what)
        return bool(same_size) or True in by_log


# --- proof documents: docs/reference/proofs.md ---


@dataclass(frozen=True)
class Question:
    """What a proof is to answer; of what is None, nothing is asked."""

    kind: str | None = None
    stream: str | None = None
    at: int | None = None
    hypothesis: str | None = None

    @property
    def is_asked(self) -> bool:
        return any(each is not None for each in vars(self).values())


@dataclass
class Proven:
    """What a proof states, what that rests on, and what the document says beside it that no commitment covers."""

    kind: str
    statement: str = ""
    rests_on: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    # The question that it answers; None for documents of checkpoints.
    answers: Question | None = None

    def hold_against(self, asked: Question) -> list[str]:
        """What it rests on for a reader who asked this; Refused where it answers another question."""
        if self.answers is None:
            if asked.is_asked:
                raise Refused(f"a document of the kind {quote(self.kind)} answers no such question", "kind")
            return self.rests_on
        answered, given = vars(self.answers), vars(asked)
        for name, value in answered.items():
            if given[name] is not None and given[name] != value:
                shown = quote(value) if isinstance(value, str) else "not there" if value is None else value
                raise Refused(f"the proof answers another question: its {name} is {shown}", name)
        left_open = [f"--{name}" for name, value in answered.items() if value is not None and given[name] is None]
        if not left_open:
            return self.rests_on
        return [*self.rests_on, f"this is the answer to what you ask: {', '.join(left_open)} was not given"]


class Included(NamedTuple):
    """An entry of a stream, with its event hash."""

    entry: dict[str, Any]
    event_hash: bytes

    @property
    def seq(self) -> int:
        return int(self.entry["seq"])

    @property
    def name(self) -> str:
        return f"event {self.seq} of {quote(self.entry['stream_id'])}"

    @property
    def title(self) -> str:
        """The name, what was asked, and when."""
        return f"{self.name} ({self.entry['verb']}, {self.entry['ts']})"

    def previous(self) -> bytes:
        return take_hex(self.entry["prev_event_hash"], "event.entry.prev_event_hash")

    def check_commitment(self, which: str, root: bytes, place: str) -> None:
        recorded = take_hex(self.entry.get(f"survivors_{which}_hash"), f"{place}.entry.survivors_{which}_hash")
        if commitment(self.entry["stream_id"], self.previous(), root) != recorded:
            raise Refused(f"{self.name} does not commit to these survivors", place)


class Flip(NamedTuple):
    """What was cleared between two survivor roots; without roots where nothing was."""

    universe_size: int
    cleared: list[int]
    roots: tuple[bytes, bytes] | None


class ProvenStream(NamedTuple):
    """The stream that a proof is about, at a size. `is_kept`: the reader kept this root, or believes who signed it."""

    name: str
    tree: Tree
    is_kept: bool


def read_entry(text: str, place: str) -> dict[str, Any]:
    """An entry of any kind: canonical, and with what every entry has."""
    try:
        entry = read_canonical(text)
    except Refused as refused:
        raise refused.locate(field=place) from None
    if not isinstance(entry, dict):
        raise Refused("not an object", place)
    for name in ("stream_id", "event_id", "prev_event_hash"):
        take_text(entry.get(name), f"{place}.{name}")
    for name, form in {"ts": TIMESTAMP, "verb": VERB}.items():
        if form.fullmatch(take_text(entry.get(name), f"{place}.{name}")) is None:
            raise Refused(f"not a {name} that an entry can have", f"{place}.{name}")
    take_number(entry.get("seq"), f"{place}.seq")
    return entry


class ProofCheck:
    """Checks one proof document against what the reader kept."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._proven = Proven("")

    def check(self, text: str) -> Proven:
        document = read_json(text)
        if not isinstance(document, dict):
            raise Refused("not an object")
        return self.check_document(document)

    def check_document(self, document: dict[str, Any]) -> Proven:
        check_format(document, PROOF_FORMAT)
        kind = document.get("kind")
        checks: dict[Any, tuple[Callable[[dict[str, Any]], str], str, str]] = {
            "inclusion": (self._check_inclusion, "stream event", ""),
            "consistency": (self._check_consistency, "stream old path", ""),
            "membership": (
                self._check_membership,
                "stream hypothesis_id event universe position universe_path survivors",
                "",
            ),
            "elimination": (
                self._check_elimination,
                "stream hypothesis_id event universe universe_path survivors cause flip",
                "",
            ),
            "transition": (self._check_transition, "stream_id seq prev_event_hash before after flip", "recorded"),
            "refusal": (self._check_refusal, "stream event", ""),
            "decision": (self._check_decision, "stream event readings", ""),
            "checkpoint": (self._check_checkpoint, "note origin size root", ""),
            "checkpoint-consistency": (self._check_checkpoint_consistency, "note from_size size path", ""),
            "checkpoint-record": (self._check_checkpoint_record, "note size leaf_index entry path", ""),
        }
        if not isinstance(kind, str) or kind not in checks:
            raise Refused("not a kind of proof", "kind")
        check, required, optional = checks[kind]
        self._proven = Proven(kind)
        self._proven.statement = check(take_fields(document, "", f"format kind {required}", optional))
        return self._proven

    # The parts of documents.

    def _answer(self, stream_id: str, seq: int, hypothesis_id: str | None = None) -> None:
        self._proven.answers = Question(self._proven.kind, stream_id, seq, hypothesis_id)

    def _rest_on(self, condition: str) -> None:
        if condition not in self._proven.rests_on:
            self._proven.rests_on.append(condition)

    def _leave_open(self, claim: str) -> None:
        if claim not in self._proven.not_checked:
            self._proven.not_checked.append(claim)

    def _read_tree(self, value: dict[str, Any], stream_id: str, place: str) -> tuple[Tree, Head]:
        """Size and root of `stream` or `old`, and the head under it."""
        size = take_number(value["size"], f"{place}.size", 1)
        root = take_hash(value["root"], f"{place}.root")
        head = take_hash(value["head"], f"{place}.head")
        path = take_path(value["head_path"], f"{place}.head_path")
        if root_from({size - 1: head}, size, path, f"{place}.head_path") != root:
            raise Refused("the head is not the last entry under the root", f"{place}.head")
        self._known.knows_head(stream_id, Head(size - 1, head), f"{place}.head")
        return Tree(size, root), Head(size - 1, head)

    def _read_stream(self, value: Any, place: str = "stream") -> ProvenStream:
        record = take_fields(value, place, "id size root head head_path", "anchor")
        stream_id = take_text(record["id"], f"{place}.id")
        tree, head = self._read_tree(record, stream_id, place)
        if "anchor" in record:
            self._read_anchor(record["anchor"], stream_id, tree, head, f"{place}.anchor")
        return ProvenStream(stream_id, tree, self._known.knows_tree(stream_id, tree, f"{place}.root"))

    def _read_anchor(self, value: Any, stream_id: str, tree: Tree, head: Head, place: str) -> None:
        """The record of this stream in a signed log; where its note is believed, the root is one that is known."""
        if not isinstance(value, dict) or value.get("kind") != "checkpoint-record":
            raise Refused("not the record of a signed log", place)
        record = look_up(value, "entry", "payload")
        stated = {
            "stream_id": stream_id,
            "size": tree.size,
            "root": tree.root.hex(),
            "head_hash": head.event_hash.hex(),
        }
        for name, expected in stated.items():
            if look_up(record, name) != expected:
                raise Refused("the record is of another stream, or of this one at another size", f"{place}.{name}")
        try:
            ProofCheck(self._known).check_document(value)
        except Refused as refused:
            raise Refused(refused.reason, f"{place}.{refused.place['field'] or 'kind'}") from None

    def _rest_on_root(self, stream: ProvenStream) -> None:
        if not stream.is_kept:
            root, size = stream.tree.root.hex(), stream.tree.size
            self._rest_on(f"the stream {quote(stream.name)} has the root {root} at size {size}")

    def _read_included(self, value: Any, stream: ProvenStream, place: str) -> Included:
        record = take_fields(value, place, "entry path")
        text = take_text(record["entry"], f"{place}.entry")
        entry, event_hash = read_entry(text, f"{place}.entry"), leaf(text.encode())
        if entry["stream_id"] != stream.name:
            raise Refused("an entry of another stream", f"{place}.entry.stream_id")
        path = take_path(record["path"], f"{place}.path")
        if root_from({entry["seq"]: event_hash}, stream.tree.size, path, f"{place}.path") != stream.tree.root:
            raise Refused("the entry is not in the log under this root", f"{place}.entry")
        # An entry that was once the head that the reader kept needs nothing else to vouch for it.
        if not self._known.knows_head(stream.name, Head(entry["seq"], event_hash), f"{place}.entry"):
            self._rest_on_root(stream)
        return Included(entry, event_hash)

    def _read_universe(self, value: Any, stream: ProvenStream, place: str = "universe") -> Tree:
        record = take_fields(value, place, "size root", "declaration")
        universe = Tree(take_number(record["size"], f"{place}.size", 1), take_hash(record["root"], f"{place}.root"))
        known = self._known.knows_universe(stream.name, *universe, place=f"{place}.root")
        if "declaration" in record:
            included = self._read_included(record["declaration"], stream, f"{place}.declaration")
            check_declaration(included.entry, universe, f"{place}.declaration")
        elif not known:
            ids = f"{universe.size} different ids, sorted"
            self._rest_on(f"the universe of {quote(stream.name)} has {ids}, and the root {universe.root.hex()}")
        return universe

    def _check_ids(self, ids: dict[int, str], universe: Tree, path: Any, place: str) -> None:
        """These ids are at these places of the universe: two ids at one place, or one id at two, there cannot be."""
        leaves = {position: leaf(name.encode()) for position, name in ids.items()}
        if root_from(leaves, universe.size, take_path(path, place), place) != universe.root:
            raise Refused("the ids are not at these places of the universe", place)

    def _read_bit(self, value: Any, position: int, universe: Tree, event: Included) -> bool:
        """The bit of an id in the survivors to which an event commits."""
        record = take_fields(value, "survivors", "block path")
        block = take_bytes(record["block"], "survivors.block")
        if len(block) != BLOCK_BYTES:
            raise Refused("not 128 bytes", "survivors.block")
        path = take_path(record["path"], "survivors.path")
        blocks = -(-universe.size // BLOCK_BITS)
        root = root_from({position // BLOCK_BITS: leaf(block)}, blocks, path, "survivors.path")
        event.check_commitment("after", root, "event")
        at = position % BLOCK_BITS
        return bool(block[at // 8] >> at % 8 & 1)

    def _read_flip(self, value: Any) -> Flip:
        record = take_fields(value, "flip", "universe_size cleared blocks path")
        size = take_number(record["universe_size"], "flip.universe_size", 1)
        cleared = [take_number(each, "flip.cleared") for each in take_list(record["cleared"], "flip.cleared")]
        if not all(before < after for before, after in pairwise(cleared)) or (cleared and cleared[-1] >= size):
            raise Refused("not ascending, or beyond the universe", "flip.cleared")
        blocks, path = take_bytes(record["blocks"], "flip.blocks"), take_path(record["path"], "flip.path")
        numbers = sorted({bit // BLOCK_BITS for bit in cleared})
        if len(blocks) != BLOCK_BYTES * len(numbers):
            raise Refused("not the blocks of the cleared bits", "flip.blocks")
        if not cleared:
            if path:
                raise Refused("not empty where nothing was cleared", "flip.path")
            return Flip(size, cleared, None)
        before = {number: blocks[at * BLOCK_BYTES :][:BLOCK_BYTES] for at, number in enumerate(numbers)}
        after = {number: bytearray(block) for number, block in before.items()}
        for bit in cleared:
            place, mask = bit % BLOCK_BITS // 8, 1 << bit % 8
            if not after[bit // BLOCK_BITS][place] & mask:
                raise Refused(f"bit {bit} was not set before", "flip.cleared")
            after[bit // BLOCK_BITS][place] ^= mask
        count = -(-size // BLOCK_BITS)
        roots = [
            root_from({number: leaf(bytes(block)) for number, block in each.items()}, count, path, "flip.path")
            for each in (before, after)
        ]
        return Flip(size, cleared, (roots[0], roots[1]))

    def _check_flip(self, flip: Flip, stream_id: str, previous: bytes, before: bytes, after: bytes) -> None:
        if flip.roots is None:
            if before != after:
                raise Refused("nothing was cleared, and the commitments differ", "flip.cleared")
        elif (before, after) != tuple(commitment(stream_id, previous, root) for root in flip.roots):
            raise Refused("the commitments before and after are others", "flip")

    # Checkpoints of the server.

    def _read_note(self, document: dict[str, Any]) -> Note:
        note = Note.parse(take_text(document["note"], "note"))
        if take_number(document["size"], "size") != note.tree.size:
            raise Refused("another size than that of the note", "size")
        if not self._known.believes(note):
            self._rest_on(f"the log {quote(note.origin)} has the root {note.tree.root.hex()} at size {note.tree.size}")
        return note

    def _check_checkpoint(self, document: dict[str, Any]) -> str:
        note = self._read_note(document)
        if (document["origin"], document["root"]) != (note.origin, note.tree.root.hex()):
            raise Refused("another origin or root than that of the note", "origin")
        return f"the log {quote(note.origin)} has {note.tree.size} records"

    def _check_checkpoint_consistency(self, document: dict[str, Any]) -> str:
        note, size = self._read_note(document), take_number(document["from_size"], "from_size", 1)
        path = b"".join(take_hex(each, "path") for each in take_list(document["path"], "path"))
        kept = [each for each in self._known.checkpoints if (each.origin, each.tree.size) == (note.origin, size)]
        for old in kept[:1]:
            check_consistency(old.tree, note.tree, path, "path")
        log = f"the log {quote(note.origin)}"
        if not kept:
            what = f"no checkpoint of {quote(note.origin)} with size {size} was given to compare with"
            self._known.unchecked.append(what)
            return f"{log} has {note.tree.size} records; that it continues an older one was not checked"
        return f"{log} with {note.tree.size} records begins with the {size} of the kept checkpoint"

    def _check_checkpoint_record(self, document: dict[str, Any]) -> str:
        note = self._read_note(document)
        payload = self._read_record(document, note)
        if not self._proven.rests_on:
            self._known.keep_record(payload)
        return (
            f"the log {quote(note.origin)} records that {quote(payload['stream_id'])} has the root {payload['root']} "
            f"at size {payload['size']}"
        )

    def _read_record(self, document: dict[str, Any], note: Note) -> dict[str, Any]:
        """The record of a stream's head, which is in the log under the note."""
        if isinstance(document["entry"], dict):
            check_format(document["entry"], FORMAT)
        entry = take_fields(document["entry"], "entry", ENVELOPE)
        index = take_number(document["leaf_index"], "leaf_index")
        path = b"".join(take_hex(each, "path") for each in take_list(document["path"], "path"))
        # Its keys are ASCII and it holds no floats: this is its canonical form.
        entry_hash = leaf(write_compact(entry).encode())
        if root_from({index: entry_hash}, note.tree.size, path, "path") != note.tree.root:
            raise Refused("forged record: the log under the note does not hold it", "entry")
        if (entry["stream_id"], entry["verb"], entry["seq"]) != ("heads:server", "RECORD_HEAD", index):
            raise Refused("not the record of a head", "entry")
        payload = take_fields(entry["payload"], "entry.payload", "head_hash root size stream_id")
        take_text(payload["stream_id"], "entry.payload.stream_id")
        take_number(payload["size"], "entry.payload.size", 1)
        for name in ("head_hash", "root"):
            take_hex(payload[name], f"entry.payload.{name}")
        return payload

    # The kinds.

    def _read_event(self, document: dict[str, Any]) -> tuple[ProvenStream, Included]:
        """The stream, and the entry in it that the proof is about."""
        stream = self._read_stream(document["stream"])
        return stream, self._read_included(document["event"], stream, "event")

    def _check_inclusion(self, document: dict[str, Any]) -> str:
        stream, event = self._read_event(document)
        self._answer(stream.name, event.seq)
        return f"{event.title} is in the log"

    def _check_consistency(self, document: dict[str, Any]) -> str:
        stream = self._read_stream(document["stream"])
        record = take_fields(document["old"], "old", "size root head head_path")
        old, _ = self._read_tree(record, stream.name, "old")
        check_consistency(old, stream.tree, take_path(document["path"], "path"), "path")
        if not self._known.knows_tree(stream.name, old, "old.root"):
            self._rest_on_root(stream)
        self._answer(stream.name, old.size - 1)
        return (
            f"{quote(stream.name)} with the root {stream.tree.root.hex()} at size {stream.tree.size} begins with all "
            f"{old.size} entries under the root {old.root.hex()}"
        )

    def _check_membership(self, document: dict[str, Any]) -> str:
        stream, event = self._read_event(document)
        universe = self._read_universe(document["universe"], stream)
        name = take_text(document["hypothesis_id"], "hypothesis_id")
        position = take_number(document["position"], "position")
        self._check_ids({position: name}, universe, document["universe_path"], "universe_path")
        if not self._read_bit(document["survivors"], position, universe, event):
            raise Refused(f"{quote(name)} did not survive {event.name}", "survivors")
        self._answer(stream.name, event.seq, name)
        return f"{quote(name)} survived after {event.name}"

    def _check_elimination(self, document: dict[str, Any]) -> str:
        stream, event = self._read_event(document)
        cause = self._read_included(document["cause"], stream, "cause")
        universe = self._read_universe(document["universe"], stream)
        name = take_text(document["hypothesis_id"], "hypothesis_id")
        if cause.seq > event.seq:
            raise Refused(f"the cause is after {event.name}", "cause")
        flip = self._read_flip(document["flip"])
        ids = self._read_recorded_flip(cause, flip, universe, "cause")
        if name not in ids:
            raise Refused(f"{cause.name} did not eliminate {quote(name)}", "hypothesis_id")
        position = flip.cleared[ids.index(name)]
        self._check_ids({position: name}, universe, document["universe_path"], "universe_path")
        if self._read_bit(document["survivors"], position, universe, event):
            raise Refused(f"{quote(name)} survived {event.name}", "survivors")
        self._answer(stream.name, event.seq, name)
        return f"{quote(name)} was gone after {event.name}, eliminated by {cause.title}"

    def _read_recorded_flip(self, event: Included, flip: Flip, universe: Tree, place: str) -> list[str]:
        """The ids that an entry lists as eliminated, one for each bit that its commitments say it cleared."""
        if flip.universe_size != universe.size:
            raise Refused("another size than that of the universe", "flip.universe_size")
        before, after = (
            take_hex(event.entry.get(f"survivors_{which}_hash"), f"{place}.entry.survivors_{which}_hash")
            for which in ("before", "after")
        )
        self._check_flip(flip, event.entry["stream_id"], event.previous(), before, after)
        ids = take_ids(look_up(event.entry, "delta", "eliminated"), f"{place}.entry.delta.eliminated")
        if len(ids) != len(flip.cleared):
            raise Refused("not as many ids as bits were cleared", f"{place}.entry.delta.eliminated")
        return ids

    def _check_transition(self, document: dict[str, Any]) -> str:
        stream_id, seq = take_text(document["stream_id"], "stream_id"), take_number(document["seq"], "seq")
        previous = take_hash(document["prev_event_hash"], "prev_event_hash")
        before, after = take_hash(document["before"], "before"), take_hash(document["after"], "after")
        flip = self._read_flip(document["flip"])
        self._check_flip(flip, stream_id, previous, before, after)
        self._answer(stream_id, seq)
        bits = ", ".join(map(str, flip.cleared)) or "none"
        statement = f"event {seq} of {quote(stream_id)} cleared exactly these bits: {bits}"
        hashes = {"prev_event_hash": previous, "survivors_before_hash": before, "survivors_after_hash": after}
        if "recorded" in document:
            expected = {"stream_id": stream_id, "seq": seq, **{name: value.hex() for name, value in hashes.items()}}
            ids = self._check_recorded(document["recorded"], flip, expected)
            return f"{statement}, which are {', '.join(map(quote, ids)) or 'none'}"
        if not self._known.knows_universe(stream_id, flip.universe_size, None, "flip.universe_size"):
            self._rest_on(f"the universe of {quote(stream_id)} has {flip.universe_size} ids")
        self._rest_on(
            f"entry {seq} of {quote(stream_id)} follows {previous.hex()} and commits to {before.hex()} before "
            f"and {after.hex()} after"
        )
        return statement

    def _check_recorded(self, value: Any, flip: Flip, expected: dict[str, Any]) -> list[str]:
        """The ids of a transition, by the entry that recorded it and their way into the universe."""
        record = take_fields(value, "recorded", "stream event universe universe_path")
        stream = self._read_stream(record["stream"], "recorded.stream")
        event = self._read_included(record["event"], stream, "recorded.event")
        universe = self._read_universe(record["universe"], stream, "recorded.universe")
        for name, each in expected.items():
            if event.entry.get(name) != each:
                raise Refused("not that of the transition", f"recorded.event.entry.{name}")
        ids = self._read_recorded_flip(event, flip, universe, "recorded.event")
        place = "recorded.universe_path"
        if ids:
            self._check_ids(dict(zip(flip.cleared, ids, strict=True)), universe, record["universe_path"], place)
        elif take_path(record["universe_path"], place):
            raise Refused("not empty where nothing was cleared", place)
        return ids

    def _check_refusal(self, document: dict[str, Any]) -> str:
        stream, event = self._read_event(document)
        if not is_refusal(event.entry):
            raise Refused(f"{event.title} is no refusal", "event.entry.outcome")
        self._answer(stream.name, event.seq)
        return f"{event.title} was denied"

    def _check_decision(self, document: dict[str, Any]) -> str:
        stream, event = self._read_event(document)
        if not is_permission(event.entry):
            raise Refused(f"{event.title} allows nothing", "event.entry.outcome")
        recorded = list_readings(event.entry)
        readings = take_list(document["readings"], "readings")
        if len(recorded) != len(readings):
            raise Refused("not one for each recorded reading", "readings")
        found = [
            self._check_reading(said, shown, f"readings.{at}")
            for at, (said, shown) in enumerate(zip(recorded, readings, strict=True))
        ]
        self._answer(stream.name, event.seq)
        observed = look_up(event.entry, "outcome", "decision", "observed") is True
        return "; ".join([f"{event.title} was allowed{' (observed, not enforced)' if observed else ''}", *found])

    def _check_reading(self, said: dict[str, Any], shown: Any, place: str) -> str:
        """Compare what an entry of a space says of a session with the evidence."""
        session_id = take_text(said.get("session_id"), "event.entry.payload.belief")
        name = quote(session_id)
        if shown is None:
            if said.get("found") is not False:
                raise Refused(f"there is no evidence of session {name}", place)
            self._leave_open(f"that there was no session {name}, as the entry says")
            return f"session {name} was recorded as not found"
        record = take_fields(shown, place, "stream event universe bitmap universe_path")
        stream = self._read_stream(record["stream"], f"{place}.stream")
        if (stream.name, said.get("found")) != (session_id, True):
            raise Refused("another session than that of the reading", f"{place}.stream.id")
        event = self._read_included(record["event"], stream, f"{place}.event")
        universe = self._read_universe(record["universe"], stream, f"{place}.universe")
        bitmap = self._read_bitmap(record["bitmap"], universe, event, place)
        ended = event.entry["verb"] == "REQUEST_TERMINATION" and look_up(event.entry, "outcome", "approved") is True
        shown_values = {
            "found": True,
            "head_seq": event.seq,
            "head_event_id": event.entry["event_id"],
            "head_event_hash": event.event_hash.hex(),
            "n_survivors": int.from_bytes(bitmap, "little").bit_count(),
            "terminated": ended,
        }
        for key, value in shown_values.items():
            if said.get(key) != value or isinstance(said.get(key), bool) != isinstance(value, bool):
                raise Refused(f"the reading says otherwise of session {name}", f"{place}.{key}")
        path = take_path(record["universe_path"], f"{place}.universe_path")
        self._check_listed(said.get("survivors"), bitmap, universe, path, f"{place}.universe_path")
        rest = {key: said.get(key) for key in ("active_obligation_id", "concluded")}
        rest |= {key: said[key] for key in ("survivor_attributes", "independent", "agents") if key in said}
        self._leave_open(f"what the entry says beside the survivors of {name}: {write_compact(rest)}")
        return f"on session {name} after event {event.seq}, with {said['n_survivors']} survivors"

    def _read_bitmap(self, value: Any, universe: Tree, event: Included, place: str) -> bytes:
        """The bits of all survivors to which an event commits."""
        size = -(-universe.size // 8)
        unpacker = zlib.decompressobj()
        try:
            bitmap = unpacker.decompress(take_bytes(value, f"{place}.bitmap"), min(size, MAX_BITMAP_BYTES) + 1)
        except zlib.error:
            raise Refused("not in zlib form", f"{place}.bitmap") from None
        if len(bitmap) != size or not unpacker.eof or unpacker.unused_data:
            raise Refused("not one bit for each id", f"{place}.bitmap")
        if bitmap[-1] >> (universe.size - 1) % 8 + 1:
            raise Refused("a bit beyond the universe is set", f"{place}.bitmap")
        padded = bitmap.ljust(-(-universe.size // BLOCK_BITS) * BLOCK_BYTES, b"\x00")
        leaves = [leaf(padded[at : at + BLOCK_BYTES]) for at in range(0, len(padded), BLOCK_BYTES)]
        event.check_commitment("after", build_levels(leaves)[-1][0], f"{place}.event")
        return bitmap

    def _check_listed(self, survivors: Any, bitmap: bytes, universe: Tree, path: bytes, place: str) -> None:
        count = int.from_bytes(bitmap, "little").bit_count()
        if survivors is None or survivors == []:
            if path or (survivors == [] and count):
                raise Refused("not what the reading lists", place)
            return
        if not isinstance(survivors, list) or len(survivors) != count:
            raise Refused("the reading lists others than the survivors", place)
        # Most bytes are zero, and are not looked at one by one.
        some = ((8 * found.start(), found.group()[0]) for found in re.finditer(rb"[^\x00]", bitmap))
        bits = [at + bit for at, byte in some for bit in range(8) if byte >> bit & 1]
        leaves = {bit: leaf(take_text(name, place).encode()) for bit, name in zip(bits, survivors, strict=True)}
        if root_from(leaves, universe.size, path, place) != universe.root:
            raise Refused("the reading lists others than the survivors", place)


def check_declaration(entry: dict[str, Any], universe: Tree, place: str) -> None:
    """The first entry of a session declares this universe: ids in order, each once, under this root."""
    if (entry["seq"], entry["verb"]) != (0, "DECLARE_SESSION"):
        raise Refused("not the declaration of a session", place)
    ids = take_ids(look_up(entry, "payload", "hypotheses"), f"{place}.entry.payload.hypotheses")
    outcome = {"universe_root": universe.root.hex(), "universe_size": universe.size}
    if write_compact(entry.get("outcome")) != write_compact(outcome):
        raise Refused("the declaration commits to another universe", f"{place}.entry.outcome")
    if len(ids) != universe.size or hash_universe(ids) != universe.root:
        raise Refused("the declaration commits to other ids than it lists", f"{place}.entry.payload.hypotheses")


def hash_universe(ids: Iterable[str]) -> bytes:
    return build_levels([leaf(name.encode()) for name in ids])[-1][0]


def look_up(record: Any, *names: str) -> Any:
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def is_refusal(entry: dict[str, Any]) -> bool:
    """Whether an entry records that something was denied, in a session or in a space."""
    outcome = entry.get("outcome")
    if entry["stream_id"].startswith(SPACE_PREFIX):
        decision = look_up(outcome, "decision")
        denied: bool = look_up(decision, "verdict") == "deny" and look_up(decision, "observed") is not True
        return denied or look_up(outcome, "granted") is False
    if entry["verb"] == "DECLARE_CONCLUSION":
        return look_up(outcome, "accepted") is False
    return entry["verb"] in {"REQUEST_EXIT", "REQUEST_TERMINATION"} and look_up(outcome, "approved") is False


def is_permission(entry: dict[str, Any]) -> bool:
    """Whether an entry of a space records that a proposal was allowed."""
    allows: bool = look_up(entry, "outcome", "decision", "verdict") == "allow"
    return allows and entry["stream_id"].startswith(SPACE_PREFIX) and not is_refusal(entry)


def list_readings(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """What sessions said, as an entry of a space records it."""
    place, recorded = "event.entry.payload.belief", look_up(entry, "payload", "belief")
    readings = take_list([] if recorded is None else recorded, place)
    if not all(isinstance(each, dict) for each in readings):
        raise Refused("not an object", place)
    return readings


# --- streams, entry by entry: docs/reference/export.md ---

# What a policy may say beside what it must, and the words for it; the first holds where it does not.
POLICY_WORDS = {
    "conclusions": ("any", "not_eliminated", "survivors", "decided"),
    "eliminations": ("any", "observations"),
    "foreign_tombstones": ("ignore", "eliminate"),
    "looks": ("any", "once"),
}
MAX_LISTED_SURVIVORS = MAX_LISTED_CONCLUSIONS = 100
ACTOR_KINDS = frozenset({"policy_engine", "operator", "agent", "encoder", "tool", "executor"})
SPACE_VERBS = (
    "CREATE_SPACE SET_MODE SET_GOVERNANCE PROPOSE WAKE WITHDRAW APPROVE REJECT EXPIRE START RECORD_OUTCOME "
    "MARK_IN_DOUBT PROPOSE_POLICY SETTLE_POLICY REGISTER_TOOL RETIRE_TOOL ISSUE_CAPABILITY REVOKE_CAPABILITY "
    "PUT_MEMORY PROMOTE_MEMORY DISPUTE_MEMORY OPEN_CASE CLOSE_CASE"
)
ENVELOPE = "event_id format outcome payload prev_event_hash seq stream_id ts verb"
READING = (
    "session_id found head_seq head_event_id head_event_hash n_survivors terminated active_obligation_id survivors "
    "concluded"
)
INDEPENDENT = "actor_id n_survivors survivors"
NO_READING: tuple[Any, ...] = (-1, "", "", 0, False, None, None, [])


def take_bool(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise Refused("neither true nor false", place)
    return value


def take_object(value: Any, place: str) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise Refused("neither null nor an object", place)
    return value


def check_actor(value: Any) -> None:
    actor = take_fields(value, "actor", "authenticated id key_id kind", "roles scopes")
    take_bool(actor["authenticated"], "actor.authenticated")
    take_text(actor["id"], "actor.id")
    if actor["key_id"] is not None:
        take_text(actor["key_id"], "actor.key_id")
    if take_text(actor["kind"], "actor.kind") not in ACTOR_KINDS:
        raise Refused("not a kind of actor", "actor.kind")
    for name in ("roles", "scopes"):
        if name in actor:
            take_ids(actor[name], f"actor.{name}")


class Stream(ABC):
    """The chain of one stream: form, hash, link and what may occur only once."""

    # Whether every thousandth entry carries a state digest; otherwise they are ever farther apart.
    HAS_EVEN_DIGESTS = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0
        self.head = bytes(HASH_BYTES)
        self.digests = 0
        self.key_ids = 0
        self._digest_point = 1000
        self._occurred: set[tuple[str, ...]] = set()

    def append(self, event_hash: bytes, raw: bytes) -> dict[str, Any]:
        """Check the next entry against everything before it, and take it in."""
        entry = self.read_entry(event_hash, raw)
        self._check_envelope(entry)
        self.check_content(entry, event_hash)
        self.size += 1
        self.head = event_hash
        return entry

    @staticmethod
    def read_entry(event_hash: bytes, raw: bytes) -> dict[str, Any]:
        if leaf(raw) != event_hash:
            raise Refused("not the hash of the entry", "event_hash")
        entry = read_canonical(decode_text(raw))
        if not isinstance(entry, dict):
            raise Refused("not an object", "entry")
        check_format(entry, FORMAT)
        return entry

    @abstractmethod
    def check_content(self, entry: dict[str, Any], event_hash: bytes) -> None:
        """What holds for this kind of stream."""
        ...

    def occur_once(self, place: str, *key: str) -> None:
        if (place, *key) in self._occurred:
            raise Refused("it occurs for the second time in this stream", place)
        self._occurred.add((place, *key))

    def _check_envelope(self, entry: dict[str, Any]) -> None:
        expected = {"stream_id": self.name, "seq": self.size, "prev_event_hash": self.head.hex()}
        for name, value in expected.items():
            if entry.get(name) != value or isinstance(entry[name], bool):
                raise Refused(f"not {quote(str(value))}, which follows from the entries before", name)
        if not TIMESTAMP.fullmatch(take_text(entry.get("ts"), "ts")):
            raise Refused("not of the form YYYY-MM-DDThh:mm:ss.ffffffZ", "ts")
        self.occur_once("event_id", take_text(entry.get("event_id"), "event_id"))
        take_text(entry.get("verb"), "verb")
        if "actor" in entry:
            check_actor(entry["actor"])
            self.key_ids += entry["actor"]["key_id"] is not None
        if "idempotency_key" in entry:
            key = take_text(entry["idempotency_key"], "idempotency_key")
            self.occur_once("idempotency_key", key, *self._find_key_owner(entry))
        self._check_digest(entry)

    @abstractmethod
    def _find_key_owner(self, entry: dict[str, Any]) -> tuple[str, ...]:
        """Whose an idempotency key is."""
        ...

    def _check_digest(self, entry: dict[str, Any]) -> None:
        at_point = self.size == self._digest_point
        if at_point:
            self._digest_point += 1000 if self.HAS_EVEN_DIGESTS else max(1000, self._digest_point // 4)
        if at_point != ("state" in entry):
            raise Refused("a state digest is missing, or where none belongs", "state")
        if "state" in entry:
            take_hex(entry["state"], "state")
            self.digests += 1


class Survivors:
    """One bit for each id of a universe, and the tree over its blocks."""

    def __init__(self, universe: list[str]) -> None:
        self.universe = universe
        self.count = len(universe)
        blocks = -(-len(universe) // BLOCK_BITS)
        self._bitmap = bytearray(((1 << len(universe)) - 1).to_bytes(blocks * BLOCK_BYTES, "little"))
        self._levels = build_levels([self._hash_block(number) for number in range(blocks)])

    @property
    def root(self) -> bytes:
        return self._levels[-1][0]

    def list_ids(self) -> list[str]:
        return [name for at, name in enumerate(self.universe) if self._bitmap[at // 8] >> at % 8 & 1]

    def find(self, name: str) -> int | None:
        """The place of an id in the universe."""
        at = bisect_left(self.universe, name)
        return at if at < len(self.universe) and self.universe[at] == name else None

    def is_alive(self, name: str) -> bool:
        at = self.find(name)
        return at is not None and bool(self._bitmap[at // 8] >> at % 8 & 1)

    def eliminate(self, names: Iterable[str]) -> None:
        """Clear the bits of ids that survive, and hash what lies above them again."""
        changed: set[int] = set()
        for name in names:
            at = bisect_left(self.universe, name)
            self._bitmap[at // 8] &= ~(1 << at % 8)
            self.count -= 1
            changed.add(at // BLOCK_BITS)
        for number in changed:
            self._levels[0][number] = self._hash_block(number)
        for below, above in pairwise(self._levels):
            changed = {number // 2 for number in changed}
            for number in changed:
                pair = below[2 * number : 2 * number + 2]
                above[number] = node(*pair) if len(pair) > 1 else pair[0]

    def _hash_block(self, number: int) -> bytes:
        return leaf(bytes(self._bitmap[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES]))


@dataclass
class Obligation:
    """A gate: how much must be eliminated after it was entered."""

    threshold: int
    eliminated_before: int
    left: bool = False


class Effect(NamedTuple):
    """What an entry of a session must say that came of its message."""

    outcome: dict[str, Any] | None
    eliminated: list[str]
    has_notes: bool = False


def is_repeated(origin: dict[str, Any] | None, seq: int) -> bool:
    """Whether a session with this origin repeats an entry of it at this place."""
    return origin is not None and 0 < seq <= origin["seq"] - len(origin.get("without", ()))


def find_sender(origin: dict[str, Any] | None, seq: int, entry: dict[str, Any]) -> str | None:
    """The authenticated actor who sent the message of an entry first; None where none is on record."""
    if is_repeated(origin, seq):
        sender: str | None = entry["payload"].get("first_sent_by")
        return sender
    return str(entry["actor"]["id"]) if "actor" in entry else None


class Session(Stream):
    """A session, decided again message by message."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.survivors = Survivors([])
        self.universe_root = b""
        self.origin: dict[str, Any] | None = None
        self._policy: dict[str, Any] = {}
        self._has_provider = False
        # The kit on record that the session is over, and which source looked at which probe of it.
        self._kit: dict[str, Any] | None = None
        self._looks: set[tuple[str, str]] = set()
        # What follows from the document of that kit, which is not read here: what observations rule out, and ties.
        self.kit_observations = self.ties = 0
        self._obligations: dict[str, Obligation] = {}
        self._active: dict[str, None] = {}
        self.conclusions: list[str] = []
        self._terminated = False
        self._attributes: dict[str, Any] = {}
        # Who may work on it as a case; None where that is not restricted.
        self._agents: list[str] | None = None
        # By the id of an authenticated actor: every hypothesis that it spoke against.
        self._spoken: dict[str, set[str]] = {}
        self._declared_by: str | None = None
        self._kit_put_by: str | None = None

    def read_reading(self, entry: dict[str, Any], without: str | None) -> dict[str, Any]:
        """What a space must have read right after the entry, which is the newest one; also without this actor."""
        few = self.survivors.count <= MAX_LISTED_SURVIVORS
        reading = {
            "session_id": self.name,
            "found": True,
            "head_seq": self.size - 1,
            "head_event_id": entry["event_id"],
            "head_event_hash": self.head.hex(),
            "n_survivors": self.survivors.count,
            "terminated": self._terminated,
            "active_obligation_id": next(reversed(self._active), None),
            "survivors": self.survivors.list_ids() if few else None,
            "concluded": self.conclusions[-MAX_LISTED_CONCLUSIONS:],
        }
        if without is not None:
            gone = set().union(*(ids for name, ids in self._spoken.items() if name != without))
            count = len(self.survivors.universe) - len(gone)
            few = count <= MAX_LISTED_SURVIVORS
            left = [name for name in self.survivors.universe if name not in gone] if few else None
            independent: dict[str, Any] = {"actor_id": without, "n_survivors": count, "survivors": left}
            unknown = self._explain_unknown(without)
            if unknown is not None:
                independent["unknown"] = unknown
            reading["independent"] = self._with_attributes(independent)
        if self._agents is not None:
            reading["agents"] = self._agents
        return self._with_attributes(reading)

    def _explain_unknown(self, actor_id: str) -> str | None:
        """Why it cannot be known what others than this actor ruled out; None where it can."""
        earlier = [] if self.origin is None else self.origin["declared_by"]
        if actor_id in earlier:
            return "declared"
        if actor_id == self._declared_by:
            return "forked" if earlier else "declared"
        if actor_id == self._kit_put_by:
            return "put_kit"
        return "no_keys" if None in [*earlier, self._declared_by] else None

    def _with_attributes(self, reading: dict[str, Any]) -> dict[str, Any]:
        """A reading with what was declared of the one hypothesis that is left in it."""
        left = reading["survivors"]
        attributes = self._attributes.get(left[0]) if left is not None and len(left) == 1 else None
        if attributes is None:
            return reading
        return {**reading, "survivor_attributes": attributes}

    def _check_authority(self, entry: dict[str, Any]) -> None:
        """What is for operators or observers alone. What a fork repeats was allowed where it was said."""
        if is_repeated(self.origin, self.size):
            return
        for_operators = entry["verb"] == "UPDATE_CASE" and {"agents", "lift_obligation"} & set(entry["payload"])
        if for_operators and "actor" in entry and entry["actor"]["kind"] != "operator":
            raise Refused("not an operator, who alone changes the agents of a case and lifts obligations", "actor.kind")
        if entry["verb"] != "ELIMINATE":
            return
        if "first_sent_by" in entry["payload"]:
            raise Refused("it repeats nothing of another session", "payload.first_sent_by")
        observers = self._policy.get("observers")
        if observers is not None and look_up(entry, "actor", "id") not in observers:
            raise Refused("not one of the observers of the session", "actor.id")
        is_list = entry["payload"]["probe"] is None and self._takes_probes_alone()
        if is_list and look_up(entry, "actor", "kind") != "operator":
            raise Refused("a list of ids, not by an operator, in a session that takes probes alone", "payload.probe")

    def _update(self, payload: Any) -> Effect:
        if not take_fields(payload, "payload", "", "agents labels lift_obligation owner severity title"):
            raise Refused("it changes nothing", "payload")
        check_case_fields(payload, 0)
        self._agents = payload.get("agents", self._agents)
        if "lift_obligation" in payload:
            name = take_text(payload["lift_obligation"], "payload.lift_obligation")
            if name not in self._active:
                raise Refused("not an active obligation", "payload.lift_obligation")
            self._obligations[name].left = True
            del self._active[name]
        return Effect(None, [])

    def _hear(self, entry: dict[str, Any]) -> None:
        """Who spoke against which hypotheses, and who declared the session."""
        sender = find_sender(self.origin, self.size, entry)
        if entry["verb"] == "DECLARE_SESSION":
            self._declared_by = sender
        if entry["verb"] == "ELIMINATE" and sender is not None:
            asked = (name for name in entry["payload"]["eliminated"] if self.survivors.find(name) is not None)
            self._spoken.setdefault(sender, set()).update(asked)

    def check_content(self, entry: dict[str, Any], event_hash: bytes) -> None:  # noqa: ARG002 - a space needs it
        hashes = "survivors_before_hash survivors_after_hash"
        take_fields(entry, "", f"{ENVELOPE} delta {hashes}", "idempotency_key notes actor state")
        if "actor" in entry and not entry["actor"]["authenticated"]:
            raise Refused("an actor that was not authenticated", "actor.authenticated")
        if (entry["verb"] == "DECLARE_SESSION") != (self.size == 0):
            raise Refused("the first entry, and no other, is DECLARE_SESSION", "verb")
        if self._terminated:
            raise Refused("nothing follows an approved termination", "verb")
        decide = self._verbs().get(entry["verb"])
        if decide is None:
            raise Refused("not a verb of sessions", "verb")
        effect = decide(entry["payload"])
        self._check_authority(entry)
        self._hear(entry)
        delta = take_fields(entry["delta"], "delta", "eliminated")
        if delta["eliminated"] != effect.eliminated:
            raise Refused("not those of the asked ids that survived", "delta.eliminated")
        if write_compact(entry["outcome"]) != write_compact(effect.outcome):
            raise Refused(f"not {write_compact(effect.outcome)}, which follows from the rules", "outcome")
        if ("notes" in entry) != effect.has_notes:
            raise Refused("missing, or where none belongs", "notes")
        if "notes" in entry:
            take_text(entry["notes"], "notes")
        self._check_commitment(entry, "survivors_before_hash")
        self.survivors.eliminate(effect.eliminated)
        self._check_commitment(entry, "survivors_after_hash")

    def _check_commitment(self, entry: dict[str, Any], name: str) -> None:
        if commitment(self.name, self.head, self.survivors.root).hex() != entry[name]:
            raise Refused("not the commitment to the survivors", name)

    def _verbs(self) -> dict[str, Callable[[Any], Effect]]:
        return {
            "DECLARE_SESSION": self._declare,
            "ELIMINATE": self._eliminate,
            "ENTER_OBLIGATION": self._enter,
            "REQUEST_EXIT": self._exit,
            "DECLARE_CONCLUSION": self._conclude,
            "REQUEST_TERMINATION": self._terminate,
            "UPDATE_CASE": self._update,
        }

    def _declare(self, payload: Any) -> Effect:
        optional = "agents hypothesis_attributes labels origin owner severity store_id symptoms title"
        take_fields(payload, "payload", "hypotheses metadata ontology policy provider", optional)
        universe = take_ids(payload["hypotheses"], "payload.hypotheses")
        if not universe:
            raise Refused("empty", "payload.hypotheses")
        take_object(payload["metadata"], "payload.metadata")
        names = "causal_graph_ref causal_graph_version hypothesis_space_id hypothesis_version"
        for name, value in take_fields(payload["ontology"], "payload.ontology", names).items():
            take_text(value, f"payload.ontology.{name}")
        self._take_policy(payload["policy"])
        if take_text(payload.get("store_id", "none"), "payload.store_id") == "":
            raise Refused("empty", "payload.store_id")
        check_case_fields(payload, 1)
        self._agents = payload.get("agents")
        self._has_provider = payload["provider"] is not None
        if self._has_provider:
            self._take_provider(payload["provider"])
        if "symptoms" in payload and (
            not take_ids(payload["symptoms"], "payload.symptoms") or not (payload["provider"] or {}).get("content_hash")
        ):
            raise Refused("empty, or of a session that is not over a kit", "payload.symptoms")
        if "origin" in payload:
            self._take_origin(payload["origin"])
        if "hypothesis_attributes" in payload:
            self._check_attributes(payload["hypothesis_attributes"], frozenset(universe))
        self.survivors = Survivors(universe)
        self._attributes = payload.get("hypothesis_attributes", {})
        self.universe_root = hash_universe(universe)
        return Effect({"universe_root": self.universe_root.hex(), "universe_size": len(universe)}, [])

    def _take_policy(self, policy: Any) -> None:
        names = "allow_force stability_window validate_hypotheses"
        self._policy = take_fields(policy, "payload.policy", names, f"{' '.join(POLICY_WORDS)} observers")
        if "observers" in self._policy and not take_ids(self._policy["observers"], "payload.policy.observers"):
            raise Refused("empty", "payload.policy.observers")
        for name, words in POLICY_WORDS.items():
            if self._policy.get(name, words[0]) not in words:
                raise Refused(f"none of {', '.join(words)}", f"payload.policy.{name}")
        take_bool(self._policy["allow_force"], "payload.policy.allow_force")
        take_bool(self._policy["validate_hypotheses"], "payload.policy.validate_hypotheses")
        take_number(self._policy["stability_window"], "payload.policy.stability_window")

    def _take_provider(self, provider: Any) -> None:
        for name, value in take_fields(provider, "payload.provider", "id version", "content_hash put_by").items():
            take_text(value, f"payload.provider.{name}")
        if "content_hash" in provider:
            take_hex(provider["content_hash"], "payload.provider.content_hash")
            self._kit = {"id": provider["id"], "content_hash": provider["content_hash"]}
        self._kit_put_by = provider.get("put_by")

    def _take_origin(self, origin: Any) -> None:
        place = "payload.origin"
        self.origin = take_fields(origin, place, "declared_by event_hash seq session_id", "without")
        declared_by = take_list(origin["declared_by"], f"{place}.declared_by")
        if not declared_by or not all(each is None or isinstance(each, str) for each in declared_by):
            raise Refused("not a list of ids, one at least", f"{place}.declared_by")
        take_hex(origin["event_hash"], f"{place}.event_hash")
        take_number(origin["seq"], f"{place}.seq")
        take_text(origin["session_id"], f"{place}.session_id")
        self._check_left_out(origin)

    def _check_left_out(self, origin: dict[str, Any]) -> None:
        if "without" not in origin:
            return
        place = "payload.origin.without"
        left_out = [take_number(seq, place, 1) for seq in take_list(origin["without"], place)]
        if not left_out or left_out != sorted(set(left_out)) or left_out[-1] > origin["seq"]:
            raise Refused("not some of the events that are repeated, in order", place)

    def _check_attributes(self, attributes: Any, universe: frozenset[str]) -> None:
        place = "payload.hypothesis_attributes"
        if not isinstance(attributes, dict) or not attributes or not attributes.keys() <= universe:
            raise Refused("not an object of hypotheses of the universe", place)
        for name, values in attributes.items():
            if not isinstance(values, dict) or not values:
                raise Refused("not an object of names and values", f"{place}.{name}")

    def _find_key_owner(self, entry: dict[str, Any]) -> tuple[str, ...]:
        return ("of", entry["actor"]["id"]) if "actor" in entry else ("of none",)

    def _eliminate(self, payload: Any) -> Effect:
        take_fields(payload, "payload", "eliminated justification observation_id probe source_id", "first_sent_by")
        take_text(payload.get("first_sent_by", ""), "payload.first_sent_by")
        asked = take_ids(payload["eliminated"], "payload.eliminated")
        take_object(payload["justification"], "payload.justification")
        observation = [take_text(payload[name], f"payload.{name}") for name in ("source_id", "observation_id")]
        if payload["probe"] is not None:
            if not self._has_provider:
                raise Refused("a probe in a session without a provider", "payload.probe")
            self._look(payload["probe"], observation[0])
        self.occur_once("payload.observation_id", *observation)
        if self._policy["validate_hypotheses"] and any(self.survivors.find(name) is None for name in asked):
            raise Refused("an id that is not in the universe", "payload.eliminated")
        gone = [name for name in asked if self.survivors.is_alive(name)]
        return Effect(None, gone, has_notes=payload["probe"] is None and self._takes_probes_alone())

    def _takes_probes_alone(self) -> bool:
        return self._policy.get("eliminations") == "observations"

    def _look(self, probe: Any, source_id: str) -> None:
        take_fields(probe, "payload.probe", "probe_id response", "kit outcome_id reading seen_at")
        probe_id = take_text(probe["probe_id"], "payload.probe.probe_id")
        if probe.get("kit") != self._kit or ("kit" in probe) != (self._kit is not None):
            raise Refused("not the kit that the session was declared over", "payload.probe.kit")
        if probe.get("outcome_id") is not None:
            take_text(probe["outcome_id"], "payload.probe.outcome_id")
        if "reading" in probe and not isinstance(probe["reading"], dict):
            raise Refused("not an object", "payload.probe.reading")
        if "seen_at" in probe and not TIMESTAMP.fullmatch(take_text(probe["seen_at"], "payload.probe.seen_at")):
            raise Refused("not of the form YYYY-MM-DDThh:mm:ss.ffffffZ", "payload.probe.seen_at")
        if (source_id, probe_id) in self._looks and self._policy.get("looks") == "once":
            raise Refused("a second look of a source that may look once", "payload.probe.probe_id")
        self._looks.add((source_id, probe_id))
        self.kit_observations += self._kit is not None

    def _enter(self, payload: Any) -> Effect:
        take_fields(payload, "payload", "min_total_eliminations obligation_id")
        threshold = take_number(payload["min_total_eliminations"], "payload.min_total_eliminations")
        name = take_text(payload["obligation_id"], "payload.obligation_id")
        if name in self._obligations:
            raise Refused("it was entered before", "payload.obligation_id")
        self._obligations[name] = Obligation(threshold, self._eliminated)
        self._active[name] = None
        return Effect(None, [])

    @property
    def _eliminated(self) -> int:
        return len(self.survivors.universe) - self.survivors.count

    def _exit(self, payload: Any) -> Effect:
        take_fields(payload, "payload", "context obligation_id")
        take_object(payload["context"], "payload.context")
        name = take_text(payload["obligation_id"], "payload.obligation_id")
        obligation = self._obligations.get(name)
        if obligation is None:
            raise Refused("it was never entered", "payload.obligation_id")
        if obligation.left:
            return Effect({"approved": False, "reason": "obligation_not_active"}, [])
        if self._eliminated - obligation.eliminated_before < obligation.threshold:
            return Effect({"approved": False, "reason": "below_threshold"}, [])
        obligation.left = True
        del self._active[name]
        return Effect({"approved": True, "reason": "approved"}, [])

    def _conclude(self, payload: Any) -> Effect:
        take_fields(payload, "payload", "conclusion_id context", "tied_by")
        if "tied_by" in payload:
            take_hex(payload["tied_by"], "payload.tied_by")
            self.ties += 1
        take_object(payload["context"], "payload.context")
        name = take_text(payload["conclusion_id"], "payload.conclusion_id")
        if self._active:
            return Effect({"accepted": False, "reason": "obligation_active"}, [])
        rule, alive = self._policy.get("conclusions"), self.survivors.is_alive(name)
        is_gone = not alive and self.survivors.find(name) is not None
        if (rule in {"survivors", "decided"} and not alive) or (rule == "not_eliminated" and is_gone):
            return Effect({"accepted": False, "reason": "not_a_survivor"}, [])
        is_tied = self._kit is not None and payload.get("tied_by") == self._kit["content_hash"]
        if rule == "decided" and not is_tied and self.survivors.count != 1:
            return Effect({"accepted": False, "reason": "not_singleton"}, [])
        self.conclusions.append(name)
        return Effect({"accepted": True, "reason": "accepted"}, [])

    def _terminate(self, payload: Any) -> Effect:
        take_fields(payload, "payload", "context")
        context = take_object(payload["context"], "payload.context")
        force = context is not None and context.get("force") is True
        refusal = self._refuse_termination()
        if refusal is None or (force and self._policy["allow_force"]):
            self._terminated = True
            return Effect({"approved": True, "reason": "forced" if refusal else "approved"}, [])
        return Effect({"approved": False, "reason": refusal}, [], has_notes=force)

    def _refuse_termination(self) -> str | None:
        window = self._policy["stability_window"]
        last = self.conclusions[-window:] if window else []
        if self._active:
            return "obligation_active"
        if self.survivors.count != 1:
            return "not_singleton"
        return "conclusion_unstable" if len(last) < window or len(set(last)) > 1 else None


class KitContents(Stream):
    """The contents that a kit had, each named by its hash."""

    def check_content(self, entry: dict[str, Any], event_hash: bytes) -> None:  # noqa: ARG002 - a space needs it
        take_fields(entry, "", f"{ENVELOPE} actor")
        if entry["verb"] != "PUT_KIT" or entry["outcome"] is not None:
            raise Refused("not a PUT_KIT without an outcome", "verb")
        names = "content_hash document hypotheses kit_id media_type probes title version"
        payload = take_fields(entry["payload"], "payload", names)
        for name in ("kit_id", "version", "title", "document"):
            take_text(payload[name], f"payload.{name}")
        if self.name != KIT_PREFIX + payload["kit_id"]:
            raise Refused("not the kit of its stream", "payload.kit_id")
        if payload["media_type"] not in ("application/yaml", "application/json"):
            raise Refused("not a language of kits", "payload.media_type")
        take_number(payload["hypotheses"], "payload.hypotheses")
        take_number(payload["probes"], "payload.probes")
        if hash_tagged("kit", payload["document"].encode()).hex() != payload["content_hash"]:
            raise Refused("not the hash of the document", "payload.content_hash")
        self.occur_once("payload.content_hash", payload["content_hash"], payload["media_type"])

    def _find_key_owner(self, entry: dict[str, Any]) -> tuple[str, ...]:  # noqa: ARG002 - there is none
        raise Refused("kits have no idempotency keys", "idempotency_key")

    def _check_digest(self, entry: dict[str, Any]) -> None:
        if "state" in entry:
            raise Refused("kits have no state digests", "state")


class CaseNames(Stream):
    """Which case has which name: one each."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # By the name in lower case, and by the session.
        self._holders: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def count_names(self) -> int:
        return len(self._names)

    def check_content(self, entry: dict[str, Any], event_hash: bytes) -> None:  # noqa: ARG002 - a space needs it
        take_fields(entry, "", f"{ENVELOPE} actor")
        if entry["outcome"] is not None:
            raise Refused("names have no outcome", "outcome")
        claims = entry["verb"] == "CLAIM_NAME"
        if not claims and entry["verb"] != "RELEASE_NAME":
            raise Refused("not a verb of names", "verb")
        payload = take_fields(entry["payload"], "payload", f"name session_id{' instead_of' if claims else ''}")
        name = take_text(payload["name"], "payload.name")
        session_id = take_text(payload["session_id"], "payload.session_id")
        if CASE_NAME.fullmatch(name) is None or UUID.fullmatch(name) is not None:
            raise Refused("not a name of a case", "payload.name")
        given_up = payload["instead_of"] if claims else name
        if self._names.get(session_id) != given_up or (claims and name == given_up):
            raise Refused("not the name that the case has", "payload.instead_of" if claims else "payload.name")
        actor = entry["actor"]
        if given_up is not None:
            if actor["authenticated"] and actor["kind"] != "operator":
                raise Refused("not an operator, who alone renames cases", "actor.kind")
            del self._holders[given_up.lower()], self._names[session_id]
        if claims:
            if name.lower() in self._holders:
                raise Refused("another case has the name", "payload.name")
            self._holders[name.lower()] = session_id
            self._names[session_id] = name

    def _find_key_owner(self, entry: dict[str, Any]) -> tuple[str, ...]:  # noqa: ARG002 - there is none
        raise Refused("names have no idempotency keys", "idempotency_key")

    def _check_digest(self, entry: dict[str, Any]) -> None:
        if "state" in entry:
            raise Refused("names have no state digests", "state")


class Place(NamedTuple):
    """Where an entry of an export is."""

    line: int
    stream: str
    seq: int


@dataclass
class Claims:
    """What entries say of sessions, to be held against these sessions where they are in the same file."""

    # By session and seq: the distinct readings, each where it occurs first.
    readings: dict[str, dict[int, dict[str, Place]]] = field(default_factory=dict)
    # By session: the last moment at which there was none, and where that is said.
    absences: dict[str, tuple[str, Place]] = field(default_factory=dict)
    # By session and event: said to be an accepted conclusion.
    conclusions: dict[str, dict[str, Place]] = field(default_factory=dict)
    forks: list[tuple[dict[str, Any], Place]] = field(default_factory=list)


class Space(Stream):
    """A space: its chain, its state map, and what it says of sessions. Its decisions are not made again."""

    HAS_EVEN_DIGESTS = True

    def __init__(self, name: str, claims: Claims, undecided: Counter[str], place: Callable[[], Place]) -> None:
        super().__init__(name)
        self._claims = claims
        self._undecided = undecided
        self._place = place
        self._state: dict[str, str] = {}
        self._snapshot_id = NO_HASH
        self._policy_hash = ""

    def _find_key_owner(self, entry: dict[str, Any]) -> tuple[str, ...]:
        actor = take_object(entry.get("actor"), "actor") or {}
        return ("of", str(actor.get("kind")), str(actor.get("id")))

    def check_content(self, entry: dict[str, Any], event_hash: bytes) -> None:
        take_fields(entry, "", f"{ENVELOPE} actor", "idempotency_key state")
        if entry["verb"] not in SPACE_VERBS.split():
            raise Refused("not a verb of spaces", "verb")
        if (entry["verb"] == "CREATE_SPACE") != (self.size == 0):
            raise Refused("the first entry, and no other, is CREATE_SPACE", "verb")
        for name in ("payload", "outcome"):
            if not isinstance(entry[name], dict):
                raise Refused("not an object", name)
        if self.size == 0:
            self._create(entry["payload"], entry["outcome"])
            self._snapshot_id = event_hash.hex()
        else:
            self._check_decision(entry["outcome"].get("decision"))
        self._undecided[entry["verb"]] += 1
        if entry["verb"] == "PROPOSE":
            proposal_id = take_text(
                look_up(entry["payload"], "proposal", "proposal_id"), "payload.proposal.proposal_id"
            )
            self.occur_once("payload.proposal.proposal_id", proposal_id)
        for reading in take_list(entry["payload"].get("belief", []), "payload.belief"):
            self._claim_reading(reading, entry["ts"])
        self._claim_conclusion(entry["payload"])
        self._change(entry["outcome"].get("changes", {}), event_hash)

    def _create(self, payload: dict[str, Any], outcome: dict[str, Any]) -> None:
        if payload.get("space_id") != self.name.removeprefix(SPACE_PREFIX):
            raise Refused("not the id in the name of the stream", "payload.space_id")
        self._set(payload.get("policy"), "payload.policy")
        if self._state != (look_up(outcome, "changes", "set") or {}):
            raise Refused("not the policy that the space was created with", "outcome.changes.set")
        self._policy_hash = hash_policy(self._state)

    def _set(self, pairs: Any, place: str) -> None:
        if not isinstance(pairs, dict) or not all(isinstance(text, str) for text in pairs.values()):
            raise Refused("not an object of texts", place)
        self._state.update(pairs)

    def _check_decision(self, decision: Any) -> None:
        if decision is None:
            return
        if not isinstance(decision, dict):
            raise Refused("not an object", "outcome.decision")
        if decision.get("policy_hash") != self._policy_hash:
            raise Refused("not the hash of the policy before this entry", "outcome.decision.policy_hash")
        if decision.get("state_snapshot_id") != self._snapshot_id:
            raise Refused("not the snapshot before this entry", "outcome.decision.state_snapshot_id")

    def _change(self, value: Any, event_hash: bytes) -> None:
        changes = take_fields(value, "outcome.changes", "", "set unset")
        self._set(changes.get("set", {}), "outcome.changes.set")
        unset = take_list(changes.get("unset", []), "outcome.changes.unset")
        for name in unset:
            if self._state.pop(take_text(name, "outcome.changes.unset"), None) is None:
                raise Refused(f"{quote(name)} is not in the state", "outcome.changes.unset")
        if changes:
            self._snapshot_id = event_hash.hex()
            if any(name.startswith(("policy.", "constraint.")) for name in [*changes.get("set", {}), *unset]):
                self._policy_hash = hash_policy(self._state)

    def _claim_reading(self, value: Any, ts: str) -> None:
        reading = take_fields(value, "payload.belief", READING, "survivor_attributes independent agents")
        if "independent" in reading:
            place = "payload.belief.independent"
            independent = take_fields(reading["independent"], place, INDEPENDENT, "survivor_attributes unknown")
            take_text(independent["actor_id"], f"{place}.actor_id")
        take_ids(reading.get("agents", []), "payload.belief.agents")
        session_id = take_text(reading["session_id"], "payload.belief.session_id")
        if take_bool(reading["found"], "payload.belief.found"):
            seq = take_number(reading["head_seq"], "payload.belief.head_seq")
            by_seq = self._claims.readings.setdefault(session_id, {}).setdefault(seq, {})
            by_seq.setdefault(write_compact(reading), self._place())
            return
        rest = [reading[name] for name in READING.split()[2:]]
        if write_compact(rest) != write_compact(NO_READING) or len(reading) > len(READING.split()):
            raise Refused("says something of a session that it did not find", "payload.belief")
        if ts > self._claims.absences.get(session_id, ("",))[0]:
            self._claims.absences[session_id] = (ts, self._place())

    def _claim_conclusion(self, payload: dict[str, Any]) -> None:
        session_id = look_up(payload, "evidence", "confirmed_in_session_id")
        event_id = look_up(payload, "evidence", "confirmed_by_event_id")
        if payload.get("confirming_event_found") is True and isinstance(session_id, str) and isinstance(event_id, str):
            self._claims.conclusions.setdefault(session_id, {}).setdefault(event_id, self._place())


# --- an export, line by line ---

ENTRY_OPENING, ENTRY_MIDDLE = b'{"event_hash":"', b'","entry":'
ENTRY_AT = len(ENTRY_OPENING) + 2 * HASH_BYTES + len(ENTRY_MIDDLE)
RESERVED_PREFIXES = ("identity:", "heads:")
NEVER_EXPORTED = frozenset({"identity:keys", "heads:server"})


def split_entry(line: bytes) -> tuple[bytes, bytes]:
    """The hash and the bytes of the entry in a line."""
    middle = line[len(ENTRY_OPENING) + 2 * HASH_BYTES : ENTRY_AT]
    if not line.startswith(ENTRY_OPENING) or middle != ENTRY_MIDDLE or not line.endswith(b"}"):
        raise Refused("not the line of an entry")
    return take_hex(decode_text(line[len(ENTRY_OPENING) :][: 2 * HASH_BYTES]), "event_hash"), line[ENTRY_AT:-1]


def read_lines(file: IO[bytes], first: int = 1) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of each line, from where the file is."""
    offset = file.tell()
    number = first
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise Refused(f"longer than {MAX_LINE_BYTES} bytes", line=number)
        yield number, offset, line.removesuffix(b"\n")
        offset += len(line)
        number += 1


class Located(NamedTuple):
    """Where a stream of the file begins, and what is known of it."""

    offset: int
    line: int
    size: int
    first_ts: str


class ExportCheck:
    """Checks an export in two passes: every stream by itself, then what streams say of each other.

    Memory is taken by the stream that is being read (its universe, and what may occur only once), by a few words for
    each stream of the file, and by the distinct belief readings.
    """

    def __init__(self, file: IO[bytes], known: Known) -> None:
        self._file = file
        self._known = known
        self._claims = Claims()
        self._stream: Stream | None = None
        self._begin = Located(0, 0, 0, "")
        self._tree = GrowingTree()
        self._line = 0
        self._counted = False
        # Of each stream that has grown since a head of it was kept: by how many entries.
        self._grown: list[int] = []
        self.streams: dict[str, Located] = {}
        counted = "sessions spaces kits names events readings digests key_ids kit_observations ties"
        self.figures = dict.fromkeys(counted.split(), 0)
        self.rests_on: list[str] = []
        self.not_checked: list[str] = []
        # The entries of spaces whose outcomes nothing here decides again, by verb.
        self._undecided: Counter[str] = Counter()

    def run(self) -> None:
        """Refused at the first bad place, Unreadable where other software wrote it."""
        try:
            for number, offset, line in read_lines(self._file):
                self._line = number
                self._read_line(line, offset)
            if not self._counted:
                self._line += 1
                raise Refused("the file ends before its count: it was cut off")
        except Refused as refused:
            stream = self._stream
            raise refused.locate(line=self._line, stream=stream and stream.name, seq=stream and stream.size) from None
        except Unreadable as exc:
            raise Unreadable(f"line {self._line}: {exc}") from None
        self._compare_streams()
        self._list_what_is_open()

    def _read_line(self, line: bytes, offset: int) -> None:
        if self._counted:
            raise Refused("a line after the count")
        if self._line == 1:
            self._read_header(line)
        elif line.startswith(ENTRY_OPENING):
            self._read_entry(line, offset)
        else:
            record = read_json(decode_text(line))
            if isinstance(record, dict) and "end_of" in record:
                self._end_stream(take_fields(record, "", "end_of head_seq head_hash"))
            else:
                self._count(take_fields(record, "", "sessions"))

    def _read_header(self, line: bytes) -> None:
        header = read_json(decode_text(line))
        if isinstance(header, dict):
            check_format(header, EXPORT_FORMAT)
        # Which development version wrote it decides nothing here.
        take_fields(header, "", "format left_out", "fingerprint")
        take_text(header.get("fingerprint", ""), "fingerprint")
        left_out = take_list(header["left_out"], "left_out")
        if not all(isinstance(each, str) and each in NEVER_EXPORTED for each in left_out):
            raise Refused("not streams that are never exported", "left_out")

    def _read_entry(self, line: bytes, offset: int) -> None:
        event_hash, raw = split_entry(line)
        if self._stream is None:
            entry = Stream.read_entry(event_hash, raw)
            self._stream = self._open_stream(take_text(entry.get("stream_id"), "stream_id"))
            self._begin = Located(offset, self._line, 0, take_text(entry.get("ts"), "ts"))
            self._tree = GrowingTree()
        stream = self._stream
        stream.append(event_hash, raw)
        self._tree.append(event_hash)
        self._hold_against_kept(stream, event_hash)
        self.figures["events"] += 1

    def _hold_against_kept(self, stream: Stream, event_hash: bytes) -> None:
        seq = stream.size - 1
        try:
            self._known.knows_head(stream.name, Head(seq, event_hash), "event_hash")
            if any(each.size == stream.size for each in self._known.trees.get(stream.name, [])):
                self._known.knows_tree(stream.name, Tree(stream.size, self._tree.root()), "event_hash")
        except Refused as refused:
            raise refused.locate(seq=seq) from None

    def _open_stream(self, name: str) -> Stream:
        if name in self.streams:
            raise Refused(f"{quote(name)} occurs for the second time", "stream_id")
        if name.startswith(RESERVED_PREFIXES):
            raise Refused(f"{quote(name)} is never exported", "stream_id")
        if name.startswith(SPACE_PREFIX):
            return Space(name, self._claims, self._undecided, lambda: self._place(name))
        if name == NAMES_STREAM:
            return CaseNames(name)
        return KitContents(name) if name.startswith(KIT_PREFIX) else Session(name)

    def _place(self, name: str) -> Place:
        return Place(self._line, name, self._stream.size if self._stream else 0)

    def _end_stream(self, record: dict[str, Any]) -> None:
        stream = self._stream
        if stream is None:
            raise Refused("the end of a stream without entries", "end_of")
        if record["end_of"] != stream.name:
            raise Refused("not the stream of the entries before", "end_of")
        if take_number(record["head_seq"], "head_seq") != stream.size - 1:
            raise Refused("not the seq of the last entry", "head_seq")
        if take_hex(record["head_hash"], "head_hash") != stream.head:
            raise Refused("not the hash of the last entry", "head_hash")
        kept = max(self._known.list_sizes(stream.name), default=0)
        if kept > stream.size:
            raise Refused(f"truncated: it had {kept} entries when its head was kept", "head_seq")
        if 0 < kept < stream.size:
            self._grown.append(stream.size - kept)
        if isinstance(stream, Session):
            self._check_universe(stream)
            self.figures["kit_observations"] += stream.kit_observations
            self.figures["ties"] += stream.ties
        self.streams[stream.name] = self._begin._replace(size=stream.size)
        kinds: dict[type[Stream], str] = {Session: "sessions", Space: "spaces", KitContents: "kits", CaseNames: "names"}
        self.figures[kinds[type(stream)]] += stream.count_names() if isinstance(stream, CaseNames) else 1
        self.figures["digests"] += stream.digests
        self.figures["key_ids"] += stream.key_ids
        self._stream = None

    def _check_universe(self, session: Session) -> None:
        kept = self._known.universes.get(session.name)
        if kept is not None and kept != Tree(len(session.survivors.universe), session.universe_root):
            raise Refused("another universe than the one that was kept", "payload.hypotheses", seq=0)
        if session.origin is not None:
            self._claims.forks.append((session.origin, Place(self._begin.line, session.name, 0)))

    def _count(self, record: dict[str, Any]) -> None:
        if self._stream is not None:
            raise Refused("the entries of a stream without an end", "sessions")
        if take_number(record["sessions"], "sessions") != len(self.streams):
            raise Refused(f"not {len(self.streams)}, the number of streams in the file", "sessions")
        self._counted = True

    # What streams say of each other.

    def _compare_streams(self) -> None:
        claims = self._claims
        for session_id in sorted({*claims.readings, *claims.conclusions} & {*self.streams}):
            self._compare_session(session_id)
        for session_id, (ts, place) in claims.absences.items():
            if session_id in self.streams and self.streams[session_id].first_ts < ts:
                raise Refused(f"{quote(session_id)} was there at that time", "payload.belief", **place._asdict())
        for origin, place in claims.forks:
            if origin["session_id"] in self.streams:
                self._compare_fork(origin, place)

    def _read_entries(self, name: str, file: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The entries of a stream that was read before; the file may have changed since, so all is checked again."""
        located = self.streams[name]
        file.seek(located.offset)
        for _, (_, _, line) in zip(range(located.size), read_lines(file, located.line), strict=False):
            yield split_entry(line)

    def _compare_session(self, session_id: str) -> None:
        readings = self._claims.readings.get(session_id, {})
        conclusions = dict(self._claims.conclusions.get(session_id, {}))
        session = Session(session_id)
        for event_hash, raw in self._read_entries(session_id, self._file):
            entry = session.append(event_hash, raw)
            for text, place in readings.get(session.size - 1, {}).items():
                without = look_up(json.loads(text), "independent", "actor_id")
                if text != write_compact(session.read_reading(entry, without)):
                    raise Refused(f"not what {quote(session_id)} says", "payload.belief", **place._asdict())
                self.figures["readings"] += 1
            if entry["verb"] == "DECLARE_CONCLUSION" and entry["outcome"]["accepted"]:
                conclusions.pop(entry["event_id"], None)
        beyond = [place for seq in readings if seq >= session.size for place in readings[seq].values()]
        for place in sorted(beyond)[:1]:
            raise Refused(f"{quote(session_id)} has no such entry", "payload.belief.head_seq", **place._asdict())
        for place in sorted(conclusions.values())[:1]:
            what = f"not an accepted conclusion of {quote(session_id)}"
            raise Refused(what, "payload.evidence.confirmed_by_event_id", **place._asdict())

    def _compare_fork(self, origin: dict[str, Any], place: Place) -> None:
        size, left_out = origin["seq"] + 1, frozenset(origin.get("without", ()))
        own_size = size - len(left_out)
        if self.streams[place.stream].size < own_size or self.streams[origin["session_id"]].size < size:
            raise Refused("the origin or the fork is shorter", "payload.origin.seq", **place._asdict())
        ours = self._hash_messages(place.stream, own_size)
        try:
            theirs = self._hash_messages(origin["session_id"], size, left_out, of_origin=True)
        except Refused as refused:
            raise refused.locate(**place._asdict()) from None
        if theirs[1] != origin["event_hash"]:
            raise Refused("not the hash of that event", "payload.origin.event_hash", **place._asdict())
        for seq, (our, their) in enumerate(zip(ours[0], theirs[0], strict=True)):
            if our != their:
                where = {**place._asdict(), "seq": seq, "line": place.line + seq}
                raise Refused(f"not what {quote(origin['session_id'])} was asked", "payload", **where)
        first = Stream.read_entry(*next(self._read_entries(origin["session_id"], self._file)))
        earlier = look_up(first, "payload", "origin", "declared_by") or []
        if origin["declared_by"] != list(dict.fromkeys([*earlier, look_up(first, "actor", "id")])):
            raise Refused("not those who declared the origin", "payload.origin.declared_by", **place._asdict())

    def _hash_messages(
        self, name: str, size: int, left_out: frozenset[int] = frozenset(), *, of_origin: bool = False
    ) -> tuple[list[bytes], str]:
        """A hash of each of the first messages of a stream but for those left out, and the event hash of the last.

        Those of an origin as a fork repeats them: with who sent each report first.
        """
        messages, last, origin = [], b"", None
        for seq, (event_hash, raw) in enumerate(self._read_entries(name, self._file)):
            entry = Stream.read_entry(event_hash, raw)
            last = event_hash
            if seq in left_out:
                if entry["verb"] != "ELIMINATE":
                    raise Refused(f"event {seq} of {quote(name)} is no elimination", "payload.origin.without")
                if seq == size - 1:
                    break
                continue
            origin = entry["payload"].get("origin") if seq == 0 else origin
            payload = {key: value for key, value in entry["payload"].items() if key != "origin" or entry["seq"]}
            if of_origin and entry["verb"] == "ELIMINATE":
                sender = find_sender(origin, seq, entry)
                payload |= {} if sender is None else {"first_sent_by": sender}
            messages.append(sha256(write_compact([entry["verb"], payload]).encode()))
            if seq == size - 1:
                break
        return messages, last.hex()

    def _list_what_is_open(self) -> None:
        claims, notes, figures = self._claims, self.not_checked, self.figures
        if self._undecided:
            verbs = ", ".join(f"{count} {verb}" for verb, count in sorted(self._undecided.items()))
            notes.append(
                f"the outcomes of {self._undecided.total()} entries of {figures['spaces']} spaces ({verbs}): whether"
                " their verdicts, traces, approvals, budgets, capabilities and changes of the state follow from what"
                " was asked and from the policy, and whether readings of sessions are missing; `cmbs import` and"
                " `cmbs verify` decide them again"
            )
        if figures["kit_observations"] or figures["ties"]:
            notes.append(
                f"what {figures['kit_observations']} observations over kits rule out, and {figures['ties']} ties,"
                " follow from documents that this verifier does not read; `cmbs verify` reads them"
            )
        missing = {*claims.readings, *claims.conclusions, *claims.absences} - {*self.streams}
        if missing:
            notes.append(f"what spaces say of {len(missing)} sessions that are not in the file")
        for origin, place in claims.forks:
            if origin["session_id"] not in self.streams:
                notes.append(f"the origin of the fork {quote(place.stream)}, which is not in the file")
        if figures["digests"]:
            notes.append(f"{figures['digests']} digests of states")
        if figures["key_ids"]:
            notes.append(
                f"whether the keys of {figures['key_ids']} entries were good: the register of keys is never exported"
            )
        unkept = sum(not self._known.list_sizes(name) for name in self.streams)
        if unkept:
            self.rests_on.append(f"{unkept} streams are those of the server, and whole: no head of them was kept")
        if self._grown:
            self.rests_on.append(
                f"the last {sum(self._grown)} entries of {len(self._grown)} streams, which are newer than their kept"
                " heads, are those of the server, and no later ones are missing"
            )


# --- files, output and the command line ---


@dataclass
class Report:
    """What was found in one file."""

    file: str
    kind: str = "unknown"
    status: str = "good"
    problem: str | None = None
    place: dict[str, Any] = field(default_factory=dict)
    statement: str | None = None
    rests_on: list[str] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)
    not_checked: list[str] = field(default_factory=list)
    streams: list[str] = field(default_factory=list)
    # Whether it is a proof of something in a stream, held against the question of the reader.
    is_answer: bool = False

    def describe(self) -> Iterator[str]:
        if self.status != "good":
            yield f"{'bad ' if self.status == 'bad' else 'unreadable'} {escape(self.file)}: {self.problem}"
            return
        if self.kind == "export":
            some = [name for name in ("kits", "names") if self.figures[name]]
            names = ("sessions", "spaces", *some, "events", "readings")
            figures = ", ".join(f"{self.figures[name]} {name}" for name in names)
            yield f"good {escape(self.file)}: export, {figures}"
        else:
            yield f"good {escape(self.file)}: {self.kind}: {self.statement}"
        yield from (f"if   {each}" for each in self.rests_on)
        yield from (f"not checked offline: {each}" for each in self.not_checked)


def is_export(start: bytes) -> bool:
    names = rb"cmbs(?:/[0-9]+/export|-export/[0-9]+)"
    return re.match(rb'\s*\{\s*"(?:format"\s*:\s*"%b|event_hash"|end_of")' % names, start) is not None


def check_file(file: IO[bytes], report: Report, known: Known, asked: Question) -> None:
    """Check one open file; what its first line begins with says which kind it is of."""
    start = file.readline(MAX_PROOF_BYTES)
    file.seek(0)
    if is_export(start):
        report.kind = "export"
        check = ExportCheck(file, known)
        check.run()
        report.figures, report.not_checked, report.streams = check.figures, check.not_checked, [*check.streams]
        report.rests_on = check.rests_on
        return
    data = file.read(MAX_PROOF_BYTES + 1)
    if re.search(rb'"cmbs(?:/[0-9]+/proof|-proof/[0-9]+)"', data) is None or len(data) > MAX_PROOF_BYTES:
        raise Unreadable(f"neither an export nor a proof of the format `{FORMAT}`")
    report.kind = "proof"
    proven = ProofCheck(known).check(decode_text(data))
    report.kind, report.statement, report.not_checked = proven.kind, proven.statement, proven.not_checked
    # Documents of checkpoints go with the proof that is asked for, and are none.
    report.is_answer = proven.answers is not None
    report.rests_on = proven.hold_against(asked if report.is_answer else Question())


@contextmanager
def open_twice(name: str) -> Iterator[IO[bytes]]:
    """A file that can be read twice; what comes through a pipe is copied."""
    if name != "-":
        with Path(name).open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.seek(0)
        yield file


def check_path(name: str, known: Known, asked: Question) -> Report:
    """Check one file, and say what was found; nothing that a file holds makes this raise."""
    report = Report(name)
    try:
        with open_twice(name) as file:
            check_file(file, report, known, asked)
    except Refused as refused:
        report.status, report.problem = "bad", refused.describe()
        report.place = {key: value for key, value in refused.place.items() if value is not None}
    except RecursionError:
        report.status, report.problem = "bad", "nested too deeply"
    except (Unreadable, OSError) as exc:
        report.status, report.problem = "unreadable", str(exc)
    return report


def load_kept(text: str, known: Known) -> None:
    """Take in what the reader kept: heads, roots, a signed note, or documents that hold one."""
    if not text.lstrip().startswith("{"):
        known.checkpoints.append(Note.parse(text))
        return
    try:
        documents = [read_json(text)]
    except Refused:
        documents = [read_json(line) for line in text.splitlines()]
    for document in documents:
        if not isinstance(document, dict):
            raise Refused("not an object")
        if "format" in document:
            check_format(document, PROOF_FORMAT if "note" in document else HEADS_FORMAT)
        if {*document} & {"streams", "universes", "heads"}:
            load_anchors(take_fields(document, "", "", "streams universes heads"), known)
        elif "format" in document and "note" in document:
            known.checkpoints.append(Note.parse(take_text(document["note"], "note")))
            ProofCheck(known).check(json.dumps(document))
        elif document != {"format": HEADS_FORMAT}:
            take_fields(document, "", "stream_id size head_hash")
            stream_id, size = take_text(document["stream_id"], "stream_id"), take_number(document["size"], "size", 1)
            head = Head(size - 1, take_hex(document["head_hash"], "head_hash"))
            known.keep_head(stream_id, head, "head_hash")


def load_anchors(anchors: dict[str, Any], known: Known) -> None:
    def tree(value: Any) -> Tree:
        take_fields(value, "kept", "size root")
        return Tree(take_number(value["size"], "kept.size", 1), take_hex(value["root"], "kept.root"))

    for stream_id, trees in (take_object(anchors.get("streams"), "streams") or {}).items():
        for each in take_list(trees, "streams"):
            known.keep_tree(stream_id, tree(each), "streams")
    for session_id, universe in (take_object(anchors.get("universes"), "universes") or {}).items():
        known.keep_universe(session_id, tree(universe), "universes")
    for stream_id, heads in (take_object(anchors.get("heads"), "heads") or {}).items():
        for head in take_list(heads, "heads"):
            take_fields(head, "kept", "seq event_hash")
            kept = Head(take_number(head["seq"], "kept.seq"), take_hex(head["event_hash"], "kept.event_hash"))
            known.keep_head(stream_id, kept, "heads")


def load_known(options: argparse.Namespace) -> Known:
    """What the options name; Unreadable where that is not of any form that is known."""
    known = Known()
    for name in [*options.heads, *options.checkpoint]:
        try:
            load_kept(decode_text(Path(name).read_bytes()), known)
        except (Refused, Unreadable, OSError, RecursionError) as exc:
            raise Unreadable(f"{name}: {exc}") from None
    try:
        known.keys = [VerifyKey.parse(each) for each in options.key]
    except (Refused, UnicodeEncodeError) as exc:
        raise Unreadable(f"--key: {exc}") from None
    return known


def check_checkpoints(known: Known, names: Sequence[str]) -> list[Report]:
    """The signatures of the checkpoints that were kept, where there is a key to check them with."""
    reports = []
    for note in known.checkpoints:
        report = Report(", ".join(names), "checkpoint")
        report.statement = f"the log {quote(note.origin)} had {note.tree.size} records"
        try:
            if known.keys:
                known.believes(note)
            else:
                known.unchecked.append(
                    f"signature not checked: {quote(note.origin)} at size {note.tree.size} (no --key)"
                )
        except Refused as refused:
            report.status, report.problem, report.place = "bad", refused.describe(), {"field": "note"}
        reports.append(report)
    return reports


def verify(options: argparse.Namespace) -> tuple[int, list[Report], list[str]]:
    """The exit code, what was found in each file, and what was asked for and could not be checked."""
    known = load_known(options)
    reports = check_checkpoints(known, [*options.heads, *options.checkpoint])
    # Exports last: records of checkpoints say which heads their streams must have.
    asked = Question(options.kind, options.stream, options.at, options.hypothesis)
    found = {name: check_path(name, known, asked) for name in sorted(options.files, key=reads_late)}
    reports += [found[name] for name in options.files]
    exports = [each for each in reports if each.kind == "export" and each.status == "good"]
    if exports:
        there = {name for each in exports for name in each.streams}
        for name in sorted({*known.heads, *known.trees} - there):
            if not name.startswith(RESERVED_PREFIXES):
                known.unchecked.append(f"{quote(name)}, of which a head was kept, is in none of the files")
    if asked.is_asked and not any(each.is_answer for each in reports):
        known.unchecked.append("the question: none of the files is a proof that could answer it")
    statuses = {each.status for each in reports}
    if "bad" in statuses:
        return BAD, reports, known.unchecked
    if "unreadable" in statuses:
        return UNREADABLE, reports, known.unchecked
    if known.unchecked:
        return INCOMPLETE, reports, known.unchecked
    return UNANCHORED if any(each.rests_on for each in reports) else GOOD, reports, known.unchecked


def reads_late(name: str) -> bool:
    try:
        with Path(name).open("rb") as file:
            return is_export(file.readline(MAX_PROOF_BYTES))
    except OSError:
        return True


def write_line(text: str) -> None:
    """A line for people; control characters of a file do not reach their terminal."""
    plain = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    sys.stdout.write(plain + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the files that are named; the exit code."""
    parser = argparse.ArgumentParser(description="Check exports and proofs of cmbs, without cmbs.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="an export or a proof; - is standard input")
    parser.add_argument("--heads", action="append", default=[], metavar="KEPT", help="heads or roots that you kept")
    parser.add_argument("--checkpoint", action="append", default=[], metavar="NOTE", help="a checkpoint that you kept")
    parser.add_argument("--key", action="append", default=[], metavar="VKEY", help="the public key of the log")
    asked = parser.add_argument_group("what the proofs are to answer; what they leave open is a condition, exit code 4")
    asked.add_argument("--kind", metavar="KIND", help="the kind of proof, like membership")
    asked.add_argument("--stream", metavar="STREAM", help="the session, or a space as space:ID")
    asked.add_argument("--at", type=int, metavar="SEQ", help="the seq of the event; of consistency, the last older one")
    asked.add_argument("--hypothesis", metavar="ID", help="the hypothesis of a membership or an elimination")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_intermixed_args(arguments)
    try:
        code, reports, unchecked = verify(options)
    except Unreadable as exc:
        code, reports, unchecked = UNREADABLE, [Report("arguments", status="unreadable", problem=str(exc))], []
    if options.json:
        files = [{**vars(each), "streams": len(each.streams)} for each in reports]
        sys.stdout.write(json.dumps({"exit_code": code, "files": files, "unchecked": unchecked}) + "\n")
        return code
    for line in (line for each in reports for line in each.describe()):
        write_line(line)
    for each in unchecked:
        write_line(f"asked for, not checked: {each}")
    return code


if __name__ == "__main__":
    sys.exit(main())
