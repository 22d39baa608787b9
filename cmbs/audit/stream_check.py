"""One stream: every message decided again, and every row of every table compared with what the store would write.

The expectation is never read from the row that it judges: the log is folded to `Append`s, and the store says which rows
it makes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, runtime_checkable

from cmbs.audit.actors import ActorCheck
from cmbs.audit.tombstone_check import check_logged, check_sealed
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import GENESIS, StoredEntry, hash_entry
from cmbs.ledger.entry import read_link
from cmbs.ledger.state_digest import Spacing, find_binding
from cmbs.spi import Append
from cmbs.spi.audit_log import PAGE_BYTES
from cmbs.spi.stored_rows import (
    CHECKPOINTS,
    EVENTS,
    INTENTS,
    LISTINGS,
    LOOKUPS,
    SESSIONS,
    TERMS,
    Finding,
    Row,
    RowsBeside,
    StoredRows,
    differ,
    find_value,
    show,
)
from cmbs.streams.kinds import Folding, S

PAGE = 500
_LAST_SEQ = 2**63 - 1
_NO_LIMIT = 2**31 - 1


class _Folded(NamedTuple, Generic[S]):
    """Where a fold stands: the state, and the first and the newest entry as they were written."""

    verified: S | None
    state: S
    first: Append
    newest: Append


@runtime_checkable
class _HasCheckpoints(Protocol):
    """A kind of stream that has checkpoints."""

    @property
    def spacing(self) -> Spacing: ...


class StreamCheck(Generic[S]):
    """The check of one stream. `pace` is told how many events were looked at, and may take its time."""

    def __init__(
        self,
        rows: StoredRows,
        folding: Folding[S],
        stream_id: str,
        actors: ActorCheck | None,
        pace: Callable[[int], None],
    ) -> None:
        self._rows = rows
        self._folding = folding
        self._stream_id = stream_id
        self._actors = actors
        self._pace = pace
        self._folded: _Folded[S] | None = None
        # What entries eliminated, and which of them did.
        self._eliminated: dict[str, int] = {}
        # The keys by which entries are found again, and the seqs of these.
        self._lookups: set[tuple[object, object]] = set()
        # What the session is found by, and the rows of that.
        self._terms: dict[object, Row] = {}
        # The places of rows that were found out of their order.
        self._moved: set[object] = set()
        # The fold after certain events.
        self._points: dict[int, _Folded[S] | None] = {}
        # Whether the chain is broken: what follows can be compared with itself alone.
        self._broken = False
        self.events = 0
        self.findings: list[Finding] = []

    @property
    def state(self) -> S | None:
        """What the log proves; None where it does not verify to its end."""
        return None if self._folded is None or self._broken else self._folded.state

    def run(self) -> None:
        """Look at everything under this name.

        A stream that grows meanwhile is read up to the head that it had at first, and the rest of it at one moment
        with what stands beside: a writer that is faster than this must not keep it going for ever.
        """
        after: object = None
        limit: int = PAGE
        max_bytes: int | None = PAGE_BYTES
        recorded_head: object = None
        while True:
            page = self._rows.rows(self._stream_id, after, limit, max_bytes)
            if after is None:
                beside = page.beside or self._read_beside()
                self._choose_points(beside)
                recorded_head = None if beside.session is None else beside.session["head_seq"]
            for row in page.events:
                self._take(row)
            self.events += len(page.events)
            self._pace(len(page.events))
            if page.beside is not None:
                self._finish(page.beside)
                return
            after = page.events[-1]["seq"]
            if isinstance(after, int) and isinstance(recorded_head, int) and after >= recorded_head:
                limit, max_bytes = _NO_LIMIT, None

    def _read_beside(self) -> RowsBeside:
        return self._rows.rows(self._stream_id, _LAST_SEQ, PAGE).beside or RowsBeside()

    def _choose_points(self, beside: RowsBeside) -> None:
        """Keep the fold at the events that the checkpoint and the recorded head say they are of."""
        for row, column in ((beside.checkpoint, "seq"), (beside.session, "head_seq")):
            seq = None if row is None else row[column]
            if isinstance(seq, int):
                self._points[seq] = None

    # --- events ---

    def _take(self, row: Row) -> None:
        """The next row in the order of `seq`, which may not be the next event."""
        if row["seq"] in self._moved or (row["seq"] != self._next_seq and self._is_misplaced(EVENTS, row)):
            return
        while not self._broken and not self._is_next(row):
            seq = self._next_seq
            found = self._rows.row_following(self._stream_id, self._head_hash)
            if found is not None and self._is_next(found):
                self._moved.add(found["seq"])
                self._fold(found)
            if self._next_seq == seq and not self._broken:
                self._report("the row is missing", EVENTS, seq=seq)
                self._broken = True
        if self._broken:
            self._compare_alone(row)
        else:
            self._fold(row)

    def _is_misplaced(self, table: str, row: Row) -> bool:
        """Whether a row holds an intact entry of another stream, or one that was here before; reports it if so."""
        raw = _as_bytes(row["entry"])
        if row["event_hash"] != hash_entry(raw):
            return False
        try:
            link = read_link(raw)
        except ValueError:
            return False
        if link.stream_id != self._stream_id:
            values = (self._stream_id, link.stream_id)
            self.findings.append(find_value(table, self._stream_id, link.seq, "stream_id", values))
            return True
        if table == EVENTS and link.seq < self._next_seq and not self._broken:
            self._compare_alone(row)
            return True
        return False

    @property
    def _next_seq(self) -> int:
        return 0 if self._folded is None else self._folded.newest.seq + 1

    @property
    def _head_hash(self) -> bytes:
        return GENESIS if self._folded is None else self._folded.newest.entry.event_hash

    def _is_next(self, row: Row) -> bool:
        """Whether a row is of the next event, by its place or by what its entry says."""
        if row["seq"] == self._next_seq:
            return True
        try:
            return read_link(_as_bytes(row["entry"])).seq == self._next_seq
        except ValueError:
            return False

    def _fold(self, row: Row) -> None:
        raw = _as_bytes(row["entry"])
        stored = StoredEntry(raw, hash_entry(raw))
        seq = self._next_seq
        try:
            if row["event_hash"] != stored.event_hash and self._is_linked(row["event_hash"]):
                recorded, actual = _as_bytes(row["event_hash"]).hex(), stored.event_hash.hex()
                raise LedgerCorrupt(self._stream_id, seq, f"its hash is `{actual}`, and the chain has `{recorded}`")
            self._folded = self._step(self._folded, stored)
        except LedgerCorrupt as exc:
            if not self._is_misplaced(EVENTS, row):
                self._report(str(exc), EVENTS, seq=seq, column="entry")
                self._broken = True
            return
        if seq in self._points:
            self._points[seq] = self._folded
        item = self._folded.newest
        if item.tombstones is not None:
            self._eliminated.update(dict.fromkeys(item.tombstones.ids, seq))
        self._compare(EVENTS, seq, row, self._rows.expect_event(item))
        self._lookups.update((each["key"], each["seq"]) for each in self._rows.expect_lookups(item))
        for term in () if item.session is None else item.session.lost_terms:
            self._terms.pop(term, None)
        self._terms.update((each["term"], each) for each in self._rows.expect_terms(item))
        if self._actors is not None:
            self.findings += self._actors.check(self._stream_id, raw)

    def _step(self, folded: _Folded[S] | None, stored: StoredEntry) -> _Folded[S]:
        """Decide the message again, and fold its entry.

        On a state each: to go on twice from the same one would copy it every time.
        """
        verified, before = (None, None) if folded is None else (folded.verified, folded.state)
        verified = self._folding.catch_up(self._stream_id, verified, [stored])
        state, item = self._folding.fold(before, stored)
        return _Folded(verified, state, item if folded is None else folded.first, item)

    def _is_linked(self, event_hash: object) -> bool:
        """Whether the chain goes on from this hash, or ends in it: then it is that of the true entry."""
        if not isinstance(event_hash, bytes):
            return False
        session = self._read_beside().session
        if session is not None and session.get("head_hash") == event_hash:
            return True
        return self._rows.row_following(self._stream_id, event_hash) is not None

    def _compare_alone(self, row: Row) -> None:
        """Compare a row with its own entry: behind a break of the chain there is nothing else."""
        raw = _as_bytes(row["entry"])
        try:
            link = read_link(raw)
            expected: dict[str, object] = {
                "stream_id": link.stream_id,
                "seq": link.seq,
                "event_id": link.event_id,
                "prev_event_hash": bytes.fromhex(link.prev_event_hash),
                "event_hash": hash_entry(raw),
            }
        except ValueError as exc:
            seq = row["seq"] if isinstance(row["seq"], int) else None
            self._report(str(exc), EVENTS, seq=seq, column="entry")
            return
        self._compare(EVENTS, link.seq, row, expected)

    # --- what stands beside ---

    def _finish(self, beside: RowsBeside) -> None:
        logged = self._folded is not None or self._broken
        self._check_session(beside.session)
        if not self._broken:
            self._check_intent(beside.intent)
            self._check_checkpoint(beside.checkpoint)
            self._check_lookups()
            self._check_listing(beside)
        if not self._broken and self._folded is not None:
            session = self._folded.first.session
            universe = () if session is None else session.universe
            self.findings += check_logged(self._rows, self._stream_id, beside, universe, self._eliminated)
        self.findings += check_sealed(self._rows, self._stream_id, beside, logged=logged)
        if not (logged or self.findings or beside.intent or beside.universe):
            self._report(str(self._folding.not_found(self._stream_id)), "")

    def _check_session(self, row: Row | None) -> None:
        folded = self._folded
        if row is None:
            if folded is not None:
                self._report("the row is missing", SESSIONS)
            return
        if folded is None:
            if not self._broken:
                self._report("there are no events under this name", SESSIONS)
            return
        if self._broken:
            return
        head_seq, last = row["head_seq"], folded.newest.seq
        if isinstance(head_seq, int) and head_seq != last and row["head_hash"] != folded.newest.entry.event_hash:
            if head_seq > last:
                what = f"the row is missing: `{SESSIONS}` records a head at seq {head_seq}"
                self._report(what, EVENTS, seq=last + 1)
                self._broken = True
                return
            earlier = self._points.get(head_seq)
            if earlier is not None and not _differing(row, self._rows.expect_session(earlier.first, earlier.newest)):
                what = f"the row is beyond the head, which `{SESSIONS}` records at seq {head_seq}"
                self._report(what, EVENTS, seq=head_seq + 1)
                return
        self._compare(SESSIONS, None, row, self._rows.expect_session(folded.first, folded.newest))

    def _check_intent(self, row: Row | None) -> None:
        if row is None or self._is_misplaced(INTENTS, row):
            return
        raw = _as_bytes(row["entry"])
        try:
            intended = self._step(self._folded, StoredEntry(raw, hash_entry(raw)))
        except LedgerCorrupt as exc:
            what = f"the open intent does not continue the log: {exc.message}"
            if self._folded is None:
                what = f"an intent is open for a session that was never declared: {exc.message}"
            self._report(what, INTENTS, seq=self._next_seq, column="entry")
            return
        item = intended.newest
        self._compare(INTENTS, item.seq, row, self._rows.expect_intent(item))

    def _check_checkpoint(self, row: Row | None) -> None:
        if row is None:
            return
        seq, data = row["seq"], row["data"]
        if self._folded is None:
            self._report("there are no events under this name", CHECKPOINTS)
        elif not isinstance(seq, int) or not 0 <= seq <= self._folded.newest.seq:
            self._report(f"the checkpoint is of seq {seq}, beyond the log", CHECKPOINTS, column="seq")
        elif not isinstance(data, bytes):
            self._report("the checkpoint is not of bytes", CHECKPOINTS, seq=seq, column="data")
        elif not isinstance(self._folding, _HasCheckpoints):
            self._report("a stream of this kind has no checkpoints", CHECKPOINTS, seq=seq)
        else:
            at = self._points.get(seq)
            # None where a live process has put another checkpoint there since: that one is for the next check.
            if at is not None and find_binding(data, at.newest.entry) is None:
                self._report(f"the checkpoint of seq {seq} does not fit the log", CHECKPOINTS, seq=seq)

    def _check_lookups(self) -> None:
        """Compare all keys of the entries with their rows. Those of entries that were written since are left alone."""
        missing = set(self._lookups)
        last = self._next_seq - 1
        row: Row | None = None
        while page := self._rows.lookup_rows(self._stream_id, row, PAGE):
            for row in page:
                key, seq = row["key"], row["seq"]
                if isinstance(seq, int) and seq > last and self._is_newer(seq):
                    continue
                if (key, seq) in missing:
                    missing.remove((key, seq))
                else:
                    at = seq if isinstance(seq, int) else None
                    self._report(f"no entry at {show(seq)} has the key {show(key)}", LOOKUPS, seq=at)
        for key, seq in sorted(missing, key=str):
            at = seq if isinstance(seq, int) else None
            self._report(f"the row of the key {show(key)} is missing", LOOKUPS, seq=at)

    def _check_listing(self, beside: RowsBeside) -> None:
        """Compare what lists say of a session, and all that it is found by, with what its log leads to."""
        expected = None if self._folded is None else self._rows.expect_listing(self._folded.newest)
        if beside.listing is not None and expected is not None:
            self._compare(LISTINGS, None, beside.listing, expected)
        elif expected is not None:
            self._report("the row is missing", LISTINGS)
        elif beside.listing is not None:
            self._report("there is no session under this name", LISTINGS)
        missing = dict(self._terms)
        for row in beside.terms:
            wanted = missing.pop(row["term"], None) if isinstance(row["term"], bytes) else None
            if wanted is None:
                self._report(f"nothing in the session leads to the term {show(row['term'])}", TERMS)
            else:
                self._compare(TERMS, None, row, wanted)
        for term in missing:
            self._report(f"the row of the term {show(term)} is missing", TERMS)

    def _is_newer(self, seq: int) -> bool:
        """Whether an entry was written at this place since the others were read."""
        session = self._read_beside().session
        head_seq = None if session is None else session["head_seq"]
        return isinstance(head_seq, int) and seq <= head_seq

    def _compare(self, table: str, seq: int | None, row: Row, expected: Row) -> None:
        self.findings += [
            find_value(table, self._stream_id, seq, column, (row[column], expected[column]))
            for column in _differing(row, expected)
        ]

    def _report(self, what: str, table: str, *, seq: int | None = None, column: str = "") -> None:
        self.findings.append(Finding(what, table, self._stream_id, seq, column))


def _differing(row: Row, expected: Row) -> Sequence[str]:
    """The columns that do not hold what they should; a column that is not there is a fault of the schema."""
    return [column for column in expected if column in row and differ(row[column], expected[column])]


def entries_of(rows: StoredRows, stream_id: str) -> Iterator[StoredEntry]:
    """The entries of a stream, a page at a time."""
    after: object = None
    while True:
        page = rows.rows(stream_id, after, PAGE, PAGE_BYTES)
        for row in page.events:
            yield StoredEntry(_as_bytes(row["entry"]), _as_bytes(row["event_hash"]))
        if page.beside is not None:
            return
        after = page.events[-1]["seq"]


def _as_bytes(value: object) -> bytes:
    """What a column of bytes holds, whatever it holds."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")
