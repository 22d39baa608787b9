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

from cmbs.audit.staging import Staging, staging
from cmbs.belief.restoring import refuse_reserved
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest, SessionNotFound
from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.ledger import Head, StoredEntry
from cmbs.ledger import format as known
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import HEADS_STREAM, KIT_PREFIX, NAMES_STREAM, SPACE_PREFIX
from cmbs.spi.stored_format import describe_other_fingerprint
from cmbs.streams.reading import read_chain

FORMAT = "cmbs/1/export"
_NEVER_EXPORTED = frozenset({KEYS_STREAM, HEADS_STREAM})


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
    """Take sessions in, once the whole file is verified: each stream by itself, and all with each other and with what
    is here. LedgerCorrupt or Conflict names what is wrong. Before that, nothing is written.

    Spaces go to `take_space`. InvalidRequest where the file is not an export, or not all of one, or has spaces and
    there is no `take_space`.
    """
    with staging() as staged:
        for number, line, entries in _read_streams(lines):
            stream_id = str(line.end_of)
            if stream_id.startswith(SPACE_PREFIX) and take_space is None:
                raise InvalidRequest(f"line {number}: there are spaces in this file, and they cannot be taken in here")
            if not stream_id.startswith((SPACE_PREFIX, KIT_PREFIX)) and stream_id != NAMES_STREAM:
                refuse_reserved(server.requests.text("session_id", stream_id))
            _stage(staged, number, line, entries)
        staged.check(server.log)
        for stream_id in staged.stream_ids:
            entries = staged.read(stream_id)
            head = Head(len(entries) - 1, entries[-1].event_hash)
            if stream_id.startswith(KIT_PREFIX):
                server.kits.import_kit(stream_id.removeprefix(KIT_PREFIX), entries, head)
            elif stream_id == NAMES_STREAM:
                server.names.import_names(entries, head)
            elif stream_id.startswith(SPACE_PREFIX) and take_space is not None:
                take_space(stream_id.removeprefix(SPACE_PREFIX), entries, head)
            else:
                server.import_session(stream_id, entries, head)
            yield Moved(stream_id, len(entries))


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


def _read_streams(lines: Iterable[bytes]) -> Iterator[tuple[int, _Line, list[StoredEntry]]]:
    """Each stream of a whole export: the number of the line that ends it, that line, and the entries."""
    entries: list[StoredEntry] = []
    streams, number = 0, 1
    announced: int | None = None
    for number, line in _read_numbered(lines):
        if announced is not None:
            raise InvalidRequest(f"line {number}: the export ended before this line")
        if line.event_hash is not None and bytes(line.entry):
            entries.append(StoredEntry(bytes(line.entry), _hash(number, line.event_hash)))
        elif line.end_of is not None:
            yield number, line, entries
            entries = []
            streams += 1
        elif line.sessions is not None:
            announced = line.sessions
        else:
            raise InvalidRequest(f"line {number}: neither an entry nor an end")
    if entries or announced != streams:
        raise InvalidRequest(f"line {number}: the file was cut off; nothing was taken in")


def _read_numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, _Line]]:
    """What follows the line that says what the file is, each with its number."""
    remaining = enumerate(check_header(lines), 1)
    next(remaining)
    return ((number, _read_line(number, text)) for number, text in remaining)


def _read_header(text: bytes) -> None:
    if known.is_earlier_document(_decode(1, text, _Named).format):
        raise InvalidRequest("line 1: an export of an earlier format, which this software does not read")
    line = _read_line(1, text)
    if line.format != FORMAT or line.left_out is None or not _NEVER_EXPORTED.issuperset(line.left_out):
        raise InvalidRequest(f"line 1: not an export, which begins with the format `{FORMAT}`")
    if line.fingerprint not in (None, known.FINGERPRINT):
        raise InvalidRequest(f"line 1: {describe_other_fingerprint(line.fingerprint, known.FINGERPRINT)}")


def _stage(staged: Staging, number: int, line: _Line, entries: list[StoredEntry]) -> None:
    """Verify a stream by itself, and keep it for the comparison with the others."""
    if line.end_of is None or line.head_seq is None or line.head_hash is None:
        raise InvalidRequest(f"line {number}: the end of a session names its head")
    try:
        staged.add(line.end_of, entries, Head(line.head_seq, _hash(number, line.head_hash)))
    except InvalidRequest as exc:
        raise InvalidRequest(f"line {number}: {exc.message}", exc.details) from exc


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
