"""Moving sessions, spaces and kits between stores, byte for byte: JSON lines out, verified on the way in.

The first line says what the file is, and that the key register stays behind: the actors that entries name cannot be
checked at the target. Each further line holds one entry, its exact bytes as they were hashed, and its hash. The lines
of a stream follow each other; the last one is followed by a line that closes it with its head. The last line of all
says how many streams there are, so that a file that was cut off anywhere is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest, SessionNotFound
from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.ledger import Head, StoredEntry
from cmbs.ledger import format as known
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import KIT_PREFIX, NAMES_STREAM
from cmbs.spi.stored_format import describe_other_fingerprint
from cmbs.streams.reading import read_chain

FORMAT = "cmbs/1/export"


class _Named(msgspec.Struct, frozen=True):
    """What can be said of a first line of any format."""

    format: object = None


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    format: str | None = None
    # Streams that are never in an export, of a first line.
    left_out: list[str] | None = None
    # Of a first line, until the first release: which types of entries the software had that wrote it.
    fingerprint: str | None = None
    event_hash: str | None = None
    entry: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    end_of: str | None = None
    head_seq: int | None = None
    head_hash: str | None = None
    sessions: int | None = None


_LineT = TypeVar("_LineT", _Named, _Line)
# Takes a space in: its id, its entries, its head.
TakeSpace: TypeAlias = Callable[[str, Sequence[StoredEntry], Head], None]
_SPACE = "space:"


class Moved(NamedTuple):
    """A session, a space or a kit that came in; a space or a kit by the name of its stream."""

    session_id: str
    events: int


def export_lines(log: AuditLog, session_ids: Iterable[str]) -> Iterator[bytes]:
    """The lines of an export, without line ends; spaces and kits go by the names of their streams.

    Hashes and links are checked on the way: LedgerCorrupt where a stream does not lead to its head.
    """
    yield msgspec.json.encode({"format": FORMAT, "left_out": [KEYS_STREAM], "fingerprint": known.FINGERPRINT})
    sessions = 0
    for session_id in session_ids:
        sessions += 1
        head = log.head(session_id)
        if head is None:
            raise SessionNotFound(session_id)
        for entry in read_chain(log, session_id, head):
            yield b'{"event_hash":"%b","entry":%b}' % (entry.event_hash.hex().encode(), entry.raw)
        yield msgspec.json.encode({"end_of": session_id, "head_seq": head.seq, "head_hash": head.event_hash.hex()})
    yield msgspec.json.encode({"sessions": sessions})


def check_header(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The same lines, of which the first was read: InvalidRequest where it is not that of an export."""
    remaining = iter(lines)
    first = next(remaining, b"{}")
    _read_header(first)
    return chain([first], remaining)


def import_lines(server: BeliefServer, lines: Iterable[bytes], take_space: TakeSpace | None = None) -> Iterator[Moved]:
    """Take sessions in; each is verified whole before a byte of it is written. LedgerCorrupt names what is wrong.

    Spaces go to `take_space`. InvalidRequest where the file is not an export, or not all of one, or has spaces and
    there is no `take_space`; what was before that place was taken in.
    """
    entries: list[StoredEntry] = []
    sessions, number = 0, 1
    announced: int | None = None
    for number, line in _read_numbered(lines):
        if announced is not None:
            raise InvalidRequest(f"line {number}: the export ended before this line")
        if line.event_hash is not None and bytes(line.entry):
            entries.append(StoredEntry(bytes(line.entry), _hash(number, line.event_hash)))
        elif line.end_of is not None:
            yield _take_in(server, take_space, number, line, entries)
            entries = []
            sessions += 1
        elif line.sessions is not None:
            announced = line.sessions
        else:
            raise InvalidRequest(f"line {number}: neither an entry nor an end")
    if entries or announced != sessions:
        raise InvalidRequest(f"line {number}: the file was cut off; {sessions} sessions before were taken in")


def read_exported(lines: Iterable[bytes], stream_id: str) -> list[StoredEntry] | None:
    """The entries of one stream of an export, as they stand there; None where it is not among them.

    Which stream a line is of is known when its stream ends.
    """
    entries: list[StoredEntry] = []
    for number, line in _read_numbered(lines):
        if line.event_hash is not None:
            entries.append(StoredEntry(bytes(line.entry), _hash(number, line.event_hash)))
        elif line.end_of == stream_id:
            return entries
        elif line.end_of is not None:
            entries = []
    return None


def _read_numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, _Line]]:
    """What follows the line that says what the file is, each with its number."""
    remaining = enumerate(check_header(lines), 1)
    next(remaining)
    return ((number, _read_line(number, text)) for number, text in remaining)


def _read_header(text: bytes) -> None:
    if known.is_earlier_document(_decode(1, text, _Named).format):
        raise InvalidRequest("line 1: an export of an earlier format, which this software does not read")
    line = _read_line(1, text)
    if line.format != FORMAT or line.left_out is None:
        raise InvalidRequest(f"line 1: not an export, which begins with the format `{FORMAT}`")
    if line.fingerprint not in (None, known.FINGERPRINT):
        raise InvalidRequest(f"line 1: {describe_other_fingerprint(line.fingerprint, known.FINGERPRINT)}")


def _take_in(
    server: BeliefServer, take_space: TakeSpace | None, number: int, line: _Line, entries: list[StoredEntry]
) -> Moved:
    if line.end_of is None or line.head_seq is None or line.head_hash is None:
        raise InvalidRequest(f"line {number}: the end of a session names its head")
    head = Head(line.head_seq, _hash(number, line.head_hash))
    if line.end_of.startswith(KIT_PREFIX):
        server.kits.import_kit(line.end_of.removeprefix(KIT_PREFIX), entries, head)
    elif line.end_of == NAMES_STREAM:
        server.names.import_names(entries, head)
    elif not line.end_of.startswith(_SPACE):
        server.import_session(line.end_of, entries, head)
    elif take_space is None:
        raise InvalidRequest(f"line {number}: there are spaces in this file, and they cannot be taken in here")
    else:
        take_space(line.end_of.removeprefix(_SPACE), entries, head)
    return Moved(line.end_of, len(entries))


def _read_line(number: int, text: bytes) -> _Line:
    return _decode(number, text, _Line)


def _decode(number: int, text: bytes, type_: type[_LineT]) -> _LineT:
    try:
        return msgspec.json.decode(text, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise InvalidRequest(f"line {number}: {exc}") from exc


def _hash(number: int, text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as exc:
        raise InvalidRequest(f"line {number}: `{text}` is not a hash") from exc
