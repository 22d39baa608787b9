"""The notary: records the heads of streams that changed, and signs checkpoints over the records.

It signs nothing that does not continue what it signed before, and no record of another process that the stream does not
bear out. Where the database was emptied, cut or put back, it stops, and says so, until the database is good again.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Lock, RLock, Thread
from typing import Any

from cmbs.errors import CmbsError, InvalidRequest, LedgerCorrupt, RecordNotFound, StoreUnavailable
from cmbs.ledger import Head
from cmbs.ledger.merkle import EMPTY_ROOT
from cmbs.spi import AuditLog, Clock, IdSource
from cmbs.spi.audit_log import HEADS_STREAM, IDENTITY_PREFIX, PAGE_BYTES, Append, StaleHead
from cmbs.system import RandomIds, SystemClock
from cmbs.transparency.kernel.checkpoint import Checkpoint
from cmbs.transparency.kernel.documents import describe_record
from cmbs.transparency.kernel.faults import NOT_SIGNED, Fault, FaultKind
from cmbs.transparency.kernel.notes import Note
from cmbs.transparency.kernel.published import LogKeys, RecordProof
from cmbs.transparency.kernel.records import (
    HeadRecord,
    HeadsLog,
    RecordEvent,
    Stamp,
    catch_up,
    decide,
    read_record,
)
from cmbs.transparency.key_files import KeyFiles, UnusableFiles
from cmbs.transparency.stream_trees import StreamTrees, list_streams
from cmbs.transparency.witness_client import WitnessAddress, WitnessClient, WitnessRefused

DEFAULT_INTERVAL_SECONDS = 10.0
# In the background, so many streams a second are compared with their records; then there is a rest.
MAX_STREAMS_SWEPT_PER_SECOND = 200
SWEEP_REST_SECONDS = 60.0
_ENTRIES_AT_ONCE = 500
_MAX_ATTEMPTS = 16
# Of a stream that this process writes, so many hashes are held until they are recorded.
_MAX_HASHES_HELD = 10_000
# A single stream may be cut by itself. Where several end too early, all of the database is older than it was.
_LOST = (FaultKind.TRUNCATED, FaultKind.DELETED)
_FEWEST_LOST = 2
_log = logging.getLogger("cmbs.transparency")


class _Refusal(Exception):
    """The database does not continue what was signed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class Notary:
    """Records and signs for one log. Methods may be called from several threads at once.

    `note_change` is what writers tell of their streams. With `start`, checkpoints are signed every `interval_seconds`
    if anything has changed, and all streams are compared with their records in the background.
    """

    def __init__(
        self,
        log: AuditLog,
        files: KeyFiles,
        *,
        interval_seconds: float = DEFAULT_INTERVAL_SECONDS,
        witnesses: Iterable[WitnessAddress] = (),
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self._log = log
        self._files = files
        self._interval = interval_seconds
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._trees = StreamTrees(log)
        self._heads: HeadsLog | None = None
        # Held while the records are read and written; a process has one thread that signs at a time.
        self._lock = RLock()
        # Streams that changed, and the hashes of what this process has written to them, from a seq on.
        self._changed: dict[str, tuple[int, list[bytes]]] = {}
        self._changed_lock = Lock()
        self._fault: Fault | None = None
        # Why nothing may be written, because the database as a whole was put back; and who is told of that.
        self._rollback: str | None = None
        self._rollback_observers: list[Callable[[str | None], None]] = []
        self._stream_faults: OrderedDict[str, Fault] = OrderedDict()
        # Records that this process did not write, and that are not signed: until their streams bear them out.
        self._foreign: list[HeadRecord] = []
        self._foreign_fault: Fault | None = None
        self._lost_heads: dict[str, Head] = {}
        self._fault_observers: list[Callable[[str, Head], None]] = []
        self._witnesses = [WitnessClient(address) for address in witnesses]
        self._witness_problems: dict[str, str] = {}
        self._stop = Event()
        self._thread: Thread | None = None

    # --- what is asked ---

    def note_change(self, stream_id: str) -> None:
        """Have the head of a stream recorded with the next checkpoint."""
        with self._changed_lock:
            self._changed.setdefault(stream_id, (0, []))

    def note_appends(self, appends: Sequence[Append]) -> None:
        """The same for the stream of these entries, which were just written in this order. Quick; never raises."""
        if not appends:
            return
        first = appends[0]
        with self._changed_lock:
            seq, hashes = self._changed.get(first.stream_id, (0, []))
            # Hashes that do not fit together, or too many of them, are read from the log in the end.
            if not hashes:
                seq = first.seq
            if seq + len(hashes) == first.seq and len(hashes) < _MAX_HASHES_HELD:
                hashes += [append.entry.event_hash for append in appends]
            self._changed[first.stream_id] = seq, hashes

    def observe_faults(self, callback: Callable[[str, Head], None]) -> None:
        """Have `callback` called once for each stream that lacks its recorded head, or has another; those known, now.

        It is given the id of the stream and the recorded head, in the thread that found it. It must not raise.
        """
        with self._lock:
            self._fault_observers.append(callback)
            for stream_id, head in self._lost_heads.items():
                callback(stream_id, head)

    def observe_rollback(self, callback: Callable[[str | None], None]) -> None:
        """Have `callback` told why the database as a whole does not continue what was signed, and None once it does.

        It is called at once where that is known, and must not raise. A stream that lost its head by itself is told by
        `observe_faults`: the others go on.
        """
        with self._lock:
            self._rollback_observers.append(callback)
            callback(self._rollback)

    def publish(self) -> Note:
        """Record what has changed, sign it, and have it cosigned.

        LedgerCorrupt where nothing may be signed, StoreUnavailable where nothing can be.
        """
        try:
            note = self._record_and_sign()
        except _Refusal as exc:
            raise LedgerCorrupt(HEADS_STREAM, 0, f"{NOT_SIGNED}{exc}") from exc
        return self._cosign(note) if self._witnesses else note

    def checkpoint(self) -> Note:
        """The checkpoint that was signed last; the first is signed when it is asked for."""
        note = self._files.read_note()
        return self.publish() if note is None else note

    def keys(self) -> LogKeys:
        """The public keys of the log, with the retired ones."""
        return self._files.read_keys()

    def consistency(self, old_size: int) -> tuple[Note, list[bytes]]:
        """The last checkpoint, and what proves that it continues the tree of `old_size` records."""
        note = self.checkpoint()
        size = Checkpoint.parse(note.text).size
        if old_size > size:
            raise InvalidRequest(f"the last checkpoint is of size {size}, and `from` is {old_size}", {"size": size})
        return note, self._path(old_size, size)

    def record_of(self, stream_id: str) -> RecordProof:
        """The newest record of a stream with its proof; RecordNotFound where there is none."""
        with self._lock:
            self._catch_up_or_fail()
            index = None if self._heads is None else self._heads.indexes.get(stream_id)
            if self._heads is None or index is None:
                raise RecordNotFound("head of", stream_id)
            note = self.checkpoint()
            size = Checkpoint.parse(note.text).size
            if index >= size:
                # Recorded by another process, which has not signed it yet.
                note = self.publish()
                size = Checkpoint.parse(note.text).size
            path = self._heads.tree.inclusion_path(index, size)
        (entry,) = self._log.read(HEADS_STREAM, index - 1, 1)
        return describe_record(note, index, entry, path)

    @property
    def fault(self) -> Fault | None:
        """Why nothing is signed; None where all is well."""
        return self._fault

    def check_ready(self) -> None:
        """StoreUnavailable where nothing is signed: the database does not continue what was, or the key is unusable."""
        if self._fault is not None:
            raise StoreUnavailable(f"{NOT_SIGNED}{self._fault}")
        self._files.check()

    # --- its life ---

    def start(self) -> None:
        """Compare the register of keys with its record, then sign on a timer, in a thread of its own."""
        if self._thread is None:
            self._check_at_start()
            self._thread = Thread(target=self._work, name="cmbs-notary", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread, then sign what has changed since. The log stays open."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            try:
                self._record_and_sign()
            except (CmbsError, OSError, _Refusal) as exc:
                _log.warning("no checkpoint at the end: %s", exc)
        for witness in self._witnesses:
            witness.close()

    def _work(self) -> None:
        pause = min(1.0, self._interval)
        due = time.monotonic() + self._interval
        sweep, rest_until = self._sweep(), 0.0
        while not self._stop.wait(pause):
            now = time.monotonic()
            try:
                if now >= rest_until and next(sweep, None) is None:
                    sweep, rest_until = self._sweep(), now + SWEEP_REST_SECONDS
                if now >= due:
                    due = now + self._interval
                    self.publish()
            except LedgerCorrupt as exc:
                self._remember_fault(self._fault or Fault(FaultKind.FORKED, str(exc)))
            except Exception as exc:  # noqa: BLE001 - the thread must live on: the store may answer again
                _log.warning("no checkpoint this time: %s", exc)
                sweep, rest_until = self._sweep(), now + self._interval

    def _check_at_start(self) -> None:
        """Read the records, and see whether they continue what was signed before anything is recorded.

        The register of keys is measured before a request is admitted by it.
        """
        try:
            with self._lock:
                try:
                    self._catch_up()
                finally:
                    for stream_id in () if self._heads is None else self._heads.records:
                        if stream_id.startswith(IDENTITY_PREFIX):
                            self._measure(stream_id)
                self._measure_foreign()
                self._refuse_faults()
        except _Refusal as exc:
            self._remember_fault(exc.fault)
        except UnusableFiles as exc:
            self._remember_fault(Fault(FaultKind.UNUSABLE_FILES, exc.message))
        except Exception as exc:  # noqa: BLE001 - the store may answer when the first checkpoint is due
            _log.warning("the records cannot be read yet: %s", exc)

    def _sweep(self) -> Iterator[bool]:
        """Compare all streams with their records and all records with their streams, a page at a time."""
        for listed in list_streams(self._log, MAX_STREAMS_SWEPT_PER_SECOND):
            with self._lock:
                records = {} if self._heads is None else self._heads.records
                sizes = {stream_id: record.size for stream_id, _ in listed if (record := records.get(stream_id))}
            self._record_swept([stream_id for stream_id, size in listed if sizes.get(stream_id) != size])
            yield True
        with self._lock:
            known = [] if self._heads is None else list(self._heads.records.values())
        for start in range(0, len(known), MAX_STREAMS_SWEPT_PER_SECOND):
            page = known[start : start + MAX_STREAMS_SWEPT_PER_SECOND]
            self._record_swept([record.stream_id for record in page if self._log.head(record.stream_id) != record.head])
            yield True

    def _record_swept(self, stream_ids: list[str]) -> None:
        """Record streams as they are found, so that a large store is not recorded all at once."""
        try:
            with self._lock:
                self._catch_up()
                self._measure_foreign()
                self._record(stream_ids)
        except _Refusal as exc:
            self._remember_fault(exc.fault)

    # --- recording ---

    def _record_and_sign(self) -> Note:
        with self._changed_lock:
            changed, self._changed = self._changed, {}
        changed |= {stream_id: (0, []) for stream_id in self._stream_faults if stream_id not in changed}
        try:
            with self._lock:
                self._catch_up()
                self._measure_foreign()
                for stream_id, (seq, hashes) in changed.items():
                    self._trees.extend(stream_id, seq, hashes)
                self._record(sorted(changed))
                note = self._sign()
        except BaseException as exc:
            for stream_id in changed:
                self.note_change(stream_id)
            if isinstance(exc, _Refusal):
                self._remember_fault(exc.fault)
            elif isinstance(exc, UnusableFiles):
                self._remember_fault(Fault(FaultKind.UNUSABLE_FILES, exc.message))
            raise
        self._remember_fault(None)
        return note

    def _catch_up(self) -> Note | None:
        """Read what other processes have recorded; the note that was signed last, which the records continue.

        _Refusal where they do not, or do not continue those read before.
        """
        kept = self._files.read_note()
        self._read_records(0 if kept is None else Checkpoint.parse(kept.text).size)
        self._check_kept(kept)
        return kept

    def _read_records(self, signed_size: int) -> None:
        head, known = self._log.head(HEADS_STREAM), self._heads
        if known is not None and (head is None or head.seq < known.head.seq):
            raise _Refusal(_describe_older(0 if head is None else head.seq + 1, known.head.seq + 1))
        if head is None:
            return
        try:
            while self._heads is None or self._heads.head.seq < head.seq:
                after = -1 if self._heads is None else self._heads.head.seq
                entries = self._log.read(HEADS_STREAM, after, _ENTRIES_AT_ONCE, PAGE_BYTES)
                if not entries:
                    raise LedgerCorrupt(HEADS_STREAM, after + 1, f"it is not there, and the head is at seq {head.seq}")
                try:
                    self._heads = catch_up(self._heads, entries)
                finally:
                    # Of entries that do not verify, those before the first bad one have been taken in.
                    reached = -1 if self._heads is None else self._heads.head.seq
                    unsigned = entries[max(0, signed_size - after - 1) : reached - after]
                    self._foreign += [read_record(entry).body.payload for entry in unsigned]
        except LedgerCorrupt as exc:
            raise _Refusal(Fault(FaultKind.FORKED, str(exc))) from exc
        if self._heads.head.seq == head.seq and self._heads.head != head:
            raise _Refusal(Fault(FaultKind.FORKED, f"another record is at seq {head.seq} than was read before"))

    def _catch_up_or_fail(self) -> None:
        """Make sure that the records are at hand that were signed; LedgerCorrupt where the log does not hold them."""
        try:
            self._catch_up()
        except _Refusal as exc:
            raise LedgerCorrupt(HEADS_STREAM, 0, str(exc)) from exc

    def _record(self, stream_ids: Sequence[str]) -> None:
        """Append a record for each stream that has grown since its last one."""
        for start in range(0, len(stream_ids), _ENTRIES_AT_ONCE):
            wanted = stream_ids[start : start + _ENTRIES_AT_ONCE]
            for _ in range(_MAX_ATTEMPTS):
                events = list(self._decide(wanted))
                if self._foreign_fault is not None:
                    # What is appended to a forged record would have to go with it.
                    break
                try:
                    if events:
                        self._log.append([event.append for event in events])
                except StaleHead:
                    # Another process has recorded in between.
                    self._catch_up()
                    continue
                self._heads = _fold(self._heads, events)
                break
            else:
                raise StoreUnavailable("the records kept changing under this write; try again")
        self._refuse_faults()

    def _refuse_faults(self) -> None:
        for fault in (self._foreign_fault, *self._stream_faults.values()):
            if fault is not None:
                raise _Refusal(fault)

    def _measure_foreign(self) -> None:
        """Compare what other processes have recorded with the streams themselves."""
        pending, self._foreign, self._foreign_fault = self._foreign, [], None
        for position, record in enumerate(pending):
            try:
                fault = self._trees.check(record)
            except BaseException:
                self._foreign += pending[position:]
                raise
            if fault is not None:
                self._foreign.append(record)
                self._foreign_fault = self._foreign_fault or fault
                self._report_lost(record)

    def _measure(self, stream_id: str) -> HeadRecord | None:
        """What to record of a stream now, if anything; what is wrong with it is noted."""
        known = None if self._heads is None else self._heads.records.get(stream_id)
        found = self._trees.measure(stream_id, known)
        self._stream_faults.pop(stream_id, None)
        if not isinstance(found, Fault):
            return found
        self._stream_faults[stream_id] = found
        if known is not None:
            self._report_lost(known)
        return None

    def _report_lost(self, record: HeadRecord) -> None:
        if record.stream_id not in self._lost_heads:
            self._lost_heads[record.stream_id] = record.head
            for callback in self._fault_observers:
                callback(record.stream_id, record.head)

    def _decide(self, stream_ids: Iterable[str]) -> Iterator[RecordEvent]:
        head = None if self._heads is None else self._heads.head
        for stream_id in stream_ids:
            found = self._measure(stream_id)
            if found is not None:
                known = None if self._heads is None else self._heads.records.get(stream_id)
                event = decide(head, known, found, Stamp(self._ids.new_id(), self._clock.now()))
                head = event.head
                yield event

    # --- signing ---

    def _check_kept(self, kept: Note | None) -> None:
        """_Refusal where the records do not continue the tree that was signed last."""
        if kept is None:
            return
        signed, size = Checkpoint.parse(kept.text), 0 if self._heads is None else self._heads.tree.size
        if size < signed.size:
            raise _Refusal(_describe_older(size, signed.size))
        if self._root_at(signed.size) != signed.root:
            raise _Refusal(
                Fault(FaultKind.FORKED, f"the first {signed.size} records are not those that were signed before")
            )

    def _sign(self) -> Note:
        """Sign the records as they are, unless that was done. Other processes with this key wait meanwhile."""
        with self._files.lock():
            key = self._files.read_key()
            # Another process may have signed what it has recorded since we looked.
            kept = self._catch_up()
            self._measure_foreign()
            self._refuse_faults()
            size = 0 if self._heads is None else self._heads.tree.size
            text = Checkpoint(key.name, size, self._root_at(size)).text
            if kept is not None and kept.text == text and any(map(key.verifier.is_named_by, kept.signatures)):
                return kept
            note = Note(text, (key.sign(text),))
            self._files.keep_note(note)
        return note

    def _root_at(self, size: int) -> bytes:
        return EMPTY_ROOT if self._heads is None else self._heads.tree.root_at(size)

    def _path(self, old_size: int, size: int) -> list[bytes]:
        with self._lock:
            self._catch_up_or_fail()
            return [] if self._heads is None else self._heads.tree.consistency_path(old_size, size)

    def _cosign(self, note: Note) -> Note:
        """The checkpoint with the cosignatures that could be had in time."""
        missing = [each for each in self._witnesses if not any(map(each.address.key.is_named_by, note.signatures))]
        size = Checkpoint.parse(note.text).size

        def ask(witness: WitnessClient) -> Any:
            try:
                return witness.cosign(note, lambda old_size: self._path(old_size, size))
            except WitnessRefused as exc:
                self._report(witness.address.url, str(exc))
                return None

        if not missing:
            return note
        with ThreadPoolExecutor(len(missing), "cmbs-witnesses") as executor:
            signatures = [each for each in executor.map(ask, missing) if each is not None]
        with self._files.lock():
            kept = self._files.read_note()
            # A newer checkpoint may have been signed meanwhile; it has cosignatures of its own.
            if signatures and kept is not None and kept.text == note.text:
                self._files.keep_note(kept.with_signatures(*signatures))
        return note.with_signatures(*signatures)

    def _report(self, url: str, problem: str) -> None:
        """Log why a witness has not cosigned, once for each reason."""
        if self._witness_problems.get(url) != problem:
            self._witness_problems[url] = problem
            _log.warning("the witness `%s` has not cosigned: %s", url, problem)

    def _remember_fault(self, fault: Fault | None) -> None:
        if fault != self._fault:
            if fault is None:
                _log.warning("checkpoints are signed again")
            else:
                _log.error("no checkpoint is signed: %s", fault)
        self._fault = fault
        if fault is None or fault.kind is not FaultKind.UNUSABLE_FILES:
            self._tell_rollback(None if fault is None else self._describe_rollback(fault))

    def _describe_rollback(self, fault: Fault) -> str | None:
        """Why the database must have been put back or cut as a whole; None where a single stream is damaged."""
        if not fault.stream_id:
            return str(fault)
        lost = [each for each in self._stream_faults.values() if each.kind in _LOST]
        if len(lost) < _FEWEST_LOST:
            return None
        return (
            f"{FaultKind.PUT_BACK}: {len(lost)} streams end before what was seen of them, `{lost[0].stream_id}` first"
        )

    def _tell_rollback(self, reason: str | None) -> None:
        with self._lock:
            if reason != self._rollback:
                self._rollback = reason
                for callback in self._rollback_observers:
                    callback(reason)


def _fold(heads: HeadsLog | None, events: Iterable[RecordEvent]) -> HeadsLog | None:
    for event in events:
        if heads is None:
            heads = HeadsLog(event)
        else:
            heads.fold(event)
    return heads


def _describe_older(size: int, signed_size: int) -> Fault:
    if size == 0:
        return Fault(FaultKind.EMPTIED, f"the database has no records, and size {signed_size} was signed")
    return Fault(
        FaultKind.PUT_BACK, f"the database has {size} records, and size {signed_size} was signed: it is an older copy"
    )
