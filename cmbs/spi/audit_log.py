"""Where the events of sessions live: the Audit Log SPI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from cmbs.ledger import Head, StoredEntry
from cmbs.ledger.listing import Listing
from cmbs.ledger.lookup_keys import lookup_keys
from cmbs.spi.elimination_store import EliminationProvenance

# Names of streams that are no belief sessions. Each ends in a colon, whose next character is a semicolon.
SPACE_PREFIX = "space:"
IDENTITY_PREFIX = "identity:"
HEADS_PREFIX = "heads:"
KIT_PREFIX = "kit:"
WEBHOOK_PREFIX = "webhook:"
NAMES_PREFIX = "names:"
# Where the heads of all other streams are recorded.
HEADS_STREAM = f"{HEADS_PREFIX}server"
# Which case has which name.
NAMES_STREAM = f"{NAMES_PREFIX}server"
RESERVED_PREFIXES = (SPACE_PREFIX, IDENTITY_PREFIX, HEADS_PREFIX, KIT_PREFIX, WEBHOOK_PREFIX, NAMES_PREFIX)


def is_reserved(stream_id: str) -> bool:
    """Whether this is the name of a stream of another kind than a belief session."""
    return stream_id.startswith(RESERVED_PREFIXES)


def beyond(prefix: str) -> str:
    """The first text, by code point, that is beyond all that begin with a prefix; `prefix` must not be empty."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


# What readers of many entries hold at once, and what the last of them has beyond: a whole request may be in one.
PAGE_BYTES = 8 * 1024 * 1024


def take_page(entries: Iterable[StoredEntry], max_bytes: int) -> list[StoredEntry]:
    """The first of some entries, up to the one with which they have so many bytes together."""
    page: list[StoredEntry] = []
    for stored in entries:
        page.append(stored)
        max_bytes -= len(stored.raw)
        if max_bytes <= 0:
            break
    return page


class StaleHead(Exception):
    """An optimistic concurrency conflict: an append does not continue the stored head. Nothing was written.

    A signal between a log and its writer, never an answer to a caller.
    """


class Tombstones(msgspec.Struct, frozen=True):
    """What an entry newly eliminates, and where that came from."""

    ids: Sequence[str]
    provenance: EliminationProvenance


class SessionState(msgspec.Struct, frozen=True):
    """What the list of sessions says of a session after an entry. `universe` is that of a declaration, sorted."""

    n_survivors: int
    terminated: bool
    universe: Sequence[str] = ()
    # What a list says of the session, by what it is newly found, and by what no longer; derived from the entries alone.
    listing: Listing | None = None
    terms: Sequence[bytes] = ()
    lost_terms: Sequence[bytes] = ()


class Append(msgspec.Struct, frozen=True):
    """One entry to write, of a stream of any kind."""

    stream_id: str
    seq: int
    event_id: str
    prev_event_hash: bytes
    entry: StoredEntry
    ts: str
    # A log MUST refuse the same key twice in a stream: an observation of a session, a proposal of a space.
    unique_key: tuple[str, str] | None = None
    # A log that is an elimination store too writes these in the same transaction.
    tombstones: Tombstones | None = None
    # Of a session only.
    session: SessionState | None = None
    # Not for the log to write: the frozen state whose digest the entry carries. The runtime keeps it, by
    # `put_checkpoint`, once the entry is durable.
    checkpoint: bytes | None = None


class SessionSummary(NamedTuple):
    """A session in a list of sessions."""

    session_id: str
    created_ts: str
    universe_size: int
    n_survivors: int
    terminated: bool
    head_seq: int
    head_event_id: str


class EntryLog(Protocol):
    """What is asked of a log by those who only read entries: every `AuditLog` is one."""

    def head(self, stream_id: str) -> Head | None:
        """Where the stream ends; None where there is none."""
        ...

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        """Entries with a `seq` beyond `after`, in order; an unknown stream has none.

        At most `limit`; the one with which they have `max_bytes` together is the last.
        """
        ...


@runtime_checkable
class AuditLog(Protocol):
    """Append-only streams of entries, one per session, and one per space or register of another plane.

    What MUST hold: when `append` returns, every entry of it is durable, and visible to every reader of every process;
    when it raises, none is. No two entries of a stream share a `seq`, a `prev_event_hash` or a `unique_key`,
    whichever process writes; none is ever changed or removed. Bytes come back exactly as they went in. Methods may be
    called from several threads at once. A log that cannot be reached or written raises `StoreUnavailable`.

    What MAY differ: whether an append in an `exclusive` block that is then left by an error is there; how long a
    checkpoint is kept; what a closed log does. `cmbs.testing.contracts.audit_log` is this contract as tests.
    """

    @property
    def blocking(self) -> bool:
        """Whether `append` waits for a device or a network, so that many waiting appends are better written as one."""
        ...

    def append(self, appends: Sequence[Append]) -> None:
        """Write all entries, of any number of streams, or none. `StaleHead` where one does not continue its stream."""
        ...

    def exclusive(self, stream_ids: Iterable[str]) -> AbstractContextManager[None]:
        """Hold off other writers of these streams, so that a reader who then appends cannot be overtaken.

        Inside, the caller's `head` and `read` see what its one `append`, the last thing in the block, will continue.
        """
        ...

    def head(self, stream_id: str) -> Head | None:
        """Where the stream ends; None where there is none."""
        ...

    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        """Entries with a `seq` beyond `after`, in order; an unknown stream has none.

        At most `limit`; the one with which they have `max_bytes` together is the last.
        """
        ...

    def hashes(self, stream_id: str, after: int = -1, limit: int | None = None) -> list[bytes]:
        """The `event_hash` of each entry that `read` gives, without the entries: the leaves of the stream's tree."""
        ...

    def sessions(self, after: tuple[str, str] | None, limit: int) -> list[SessionSummary]:
        """Sessions in the order of (created_ts, session_id), from the first beyond `after` on.

        Streams under one of `RESERVED_PREFIXES` are no sessions, and are left out.
        """
        ...

    def streams(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """The names of streams that begin with `prefix`, which is one of `RESERVED_PREFIXES` or begins with one.

        In the order of their code points, from the first beyond `after` on.
        """
        ...

    def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
        """Keep the state right before the entry `seq`, in place of any older. It may be lost at any time."""
        ...

    def checkpoint(self, stream_id: str) -> tuple[int, bytes] | None:
        """The newest checkpoint that is kept, and its seq; None where there is none.

        Readers believe it only where the entry at that seq carries its digest.
        """
        ...

    def put_intent(self, append: Append) -> None:
        """Record that this entry is about to be carried out elsewhere and then appended. Durable when it returns.

        `StaleHead` where the entry does not continue its stream, or another intent of the stream is open. While one is
        open, `append` MUST refuse any other entry of the stream (`StaleHead`); appending the entry itself closes it.
        """
        ...

    def intent(self, stream_id: str) -> StoredEntry | None:
        """The open intent of a stream; None where there is none."""
        ...

    def open_intents(self, limit: int) -> list[str]:
        """Streams that have an open intent."""
        ...

    def drop_intent(self, stream_id: str, event_hash: bytes) -> None:
        """Close an intent that was refused elsewhere, so that nothing came of it. Harmless where it is closed."""
        ...

    def close(self) -> None:
        """Release what the log holds. Closing twice is harmless."""
        ...


class Opening(NamedTuple):
    """What the first use of a stream reads. Without a head there is no stream, without a checkpoint no entries."""

    head: Head | None
    checkpoint: bytes | None
    # The declaration, then the entry that the checkpoint stands at and what followed, as much as one page has.
    declaration: list[StoredEntry]
    entries: list[StoredEntry]


@runtime_checkable
class OpeningLog(Protocol):
    """A log that is far away, and reads an opening in one exchange instead of four.

    What MUST hold: the answer is what `opening_of` puts together from `head`, `checkpoint` and `read`, asked in this
    order. A stream that grows meanwhile may be longer than its head says, never shorter.
    """

    def opening(self, stream_id: str) -> Opening:
        """What the first use of a stream reads."""
        ...


def opening_of(log: AuditLog, stream_id: str) -> Opening:
    """What the first use of a stream reads, from any log."""
    if isinstance(log, OpeningLog):
        return log.opening(stream_id)
    head = log.head(stream_id)
    kept = None if head is None else log.checkpoint(stream_id)
    if kept is None:
        return Opening(head, None, [], [])
    seq, data = kept
    return Opening(head, data, log.read(stream_id, -1, 1), log.read(stream_id, seq - 1, max_bytes=PAGE_BYTES))


# How the canonical bytes of an entry begin whose actor was authenticated: the name of no other field comes before.
AUTHENTICATED = b'{"actor":{"authenticated":true,'


@runtime_checkable
class KeyedEntriesLog(Protocol):
    """A log that outlives its process, and can tell whether it was lately written with keys.

    What MUST hold: the first entry and the newest ones of the streams that were begun last are looked at, a bounded
    number of each, so that a start takes no longer over a long log. Once there is a key, every stream that is begun
    over HTTP begins with an entry that was written with one.
    """

    def find_keyed_entry(self) -> tuple[str, int] | None:
        """The stream and seq of some entry whose actor was authenticated by a key; None where none is found."""
        ...


def find_keyed_entry(log: AuditLog) -> tuple[str, int] | None:
    """Some entry that was written with a key, outside of the register of keys itself, whose actors have none."""
    return log.find_keyed_entry() if isinstance(log, KeyedEntriesLog) else None


@runtime_checkable
class StreamHeadsLog(Protocol):
    """A log that lists streams together with where they end, in one exchange.

    What MUST hold: the answer is what `stream_heads_of` puts together from `streams` and `head`.
    """

    def stream_heads(self, prefix: str, after: str | None, limit: int) -> list[tuple[str, Head]]:
        """The streams that `streams` gives, and their heads."""
        ...


def stream_heads_of(log: AuditLog, prefix: str, after: str | None, limit: int) -> list[tuple[str, Head]]:
    """Streams by name, from beyond `after` on, and where each ends; from any log."""
    if isinstance(log, StreamHeadsLog):
        return log.stream_heads(prefix, after, limit)
    heads = [(name, log.head(name)) for name in log.streams(prefix, after, limit)]
    return [(name, head) for name, head in heads if head is not None]


@runtime_checkable
class LookupLog(Protocol):
    """A log that finds entries of spaces again by what they are about, however long the stream.

    What MUST hold: the answers are what `find_keys` and `find_hashes` put together from `read` and `hashes`. What is
    kept for it is written with the entry, or not at all, and is derived from its bytes alone (`lookup_keys`).
    """

    def find_keys(self, stream_id: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Each key of a space in these ranges with the seq of an entry that has it, for all such entries, sorted.

        A range is its first and its last key. Ranges do not overlap, and there are no more than a message has names.
        """
        ...

    def find_hashes(self, stream_id: str, first: bytes, last: bytes) -> list[tuple[bytes, int]]:
        """The event hashes of a stream from the first to the last of these, with their seqs, sorted."""
        ...


_ENTRIES_SEARCHED_AT_ONCE = 1_000


def find_keys(log: AuditLog, stream_id: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each key of a space in these ranges with the seq of an entry that has it, sorted; of any log."""
    if isinstance(log, LookupLog):
        return log.find_keys(stream_id, ranges)
    found: list[tuple[int, int]] = []
    after = -1
    while page := log.read(stream_id, after, _ENTRIES_SEARCHED_AT_ONCE):
        for seq, stored in enumerate(page, after + 1):
            keys = lookup_keys(stored.raw)
            found += [(key, seq) for key in keys if any(first <= key <= last for first, last in ranges)]
        after += len(page)
    return sorted(found)


def find_hashes(log: AuditLog, stream_id: str, first: bytes, last: bytes) -> list[tuple[bytes, int]]:
    """The event hashes of a stream from the first to the last of these, with their seqs, sorted; of any log."""
    if isinstance(log, LookupLog):
        return log.find_hashes(stream_id, first, last)
    found: list[tuple[bytes, int]] = []
    after = -1
    while page := log.hashes(stream_id, after, _ENTRIES_SEARCHED_AT_ONCE):
        found += [(each, seq) for seq, each in enumerate(page, after + 1) if first <= each <= last]
        after += len(page)
    return sorted(found)


def keys_of_append(item: Append) -> list[int]:
    """Under which keys an entry is to be found: of a space alone."""
    return lookup_keys(item.entry.raw) if item.stream_id.startswith(SPACE_PREFIX) else []
