"""The notary over every store: what it records and signs, and what it refuses to sign."""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest, LedgerCorrupt, RecordNotFound, StoreUnavailable
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.ledger import Head, hash_entry
from cmbs.ledger.merkle import root_of_hashes
from cmbs.ledger.proofs import verify_consistency
from cmbs.messages import ActorKind
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.system import RandomIds
from cmbs.transparency.kernel.checkpoint import Checkpoint, check_signature
from cmbs.transparency.kernel.documents import verify_record
from cmbs.transparency.kernel.faults import FaultKind
from cmbs.transparency.kernel.records import HeadRecord, Stamp, decide, verify_heads
from cmbs.transparency.key_files import KeyFiles
from cmbs.transparency.notary import Notary
from tests.support.signing import NOW, files_in, notary_of
from tests.support.store_fixture import StoreFixture, declared, tampering
from tests.support.subtests import for_each


def publish_size(notary: Notary) -> tuple[int, bytes]:
    _, size, root = Checkpoint.parse(notary.publish().text)
    return size, root


@pytest.mark.req("TLOG-SIGN-01")
def test_the_heads_of_changed_streams_are_recorded_and_signed(stored: StoreFixture, tmp_path: Path) -> None:
    server = stored.open()
    with closing(notary_of(server, tmp_path)) as notary:
        assert publish_size(notary) == (0, root_of_hashes([]))
        first, second = declared(server), declared(server)
        server.eliminate(first, "source", "1", ["a"])
        size, root = publish_size(notary)
        entries = server.log.read(HEADS_STREAM)
        assert (size, root) == (2, root_of_hashes([hash_entry(entry.raw) for entry in entries]))
        assert publish_size(notary) == (size, root)
        server.eliminate(first, "source", "2", ["b"])
        note, path = notary.consistency(size)
        assert Checkpoint.parse(note.text).size == 2
        newer = notary.publish()
        note, path = notary.consistency(size)
        assert note == newer
        assert verify_consistency(size, root, 3, Checkpoint.parse(note.text).root, path)
        assert check_signature(note, notary.keys().keys) is None
        record = verify_record(notary.record_of(first))
        log = server.log.read(first)
        assert record == HeadRecord(
            log[-1].event_hash.hex(), root_of_hashes([each.event_hash for each in log]).hex(), 3, first
        )
        assert isinstance(verify_record(notary.record_of(second)), HeadRecord)
        with pytest.raises(RecordNotFound):
            notary.record_of("unknown")
        with pytest.raises(InvalidRequest):
            notary.consistency(4)
    heads = verify_heads(server.log.read(HEADS_STREAM), server.log.head(HEADS_STREAM))
    assert heads is not None
    assert set(heads.records) == {first, second}


@pytest.mark.req("TLOG-SIGN-02")
def test_two_processes_share_a_log_and_a_key(stored: StoreFixture, tmp_path: Path) -> None:
    one, other = stored.open(), stored.open()
    with closing(notary_of(one, tmp_path)) as left, closing(notary_of(other, tmp_path)) as right:
        session_id = declared(one)
        assert publish_size(left)[0] == 1
        other.eliminate(session_id, "source", "1", ["a"])
        own = declared(other)
        assert publish_size(right)[0] == 3
        one.eliminate(own, "source", "2", ["b"])
        assert publish_size(left)[0] == 4
        assert left.checkpoint() == right.checkpoint()
        # Of what the other has recorded before, nothing is recorded again.
        left.note_change(session_id)
        right.note_change(own)
        assert (publish_size(left)[0], publish_size(right)[0]) == (4, 4)
        assert isinstance(verify_record(left.record_of(session_id)), HeadRecord)


@pytest.mark.req("TLOG-SIGN-03")
def test_streams_that_nothing_told_of_are_found_in_the_background(stored: StoreFixture, tmp_path: Path) -> None:
    server = stored.open()
    session_id = declared(server)
    KeyRegistry(server.log).create(ActorKind.OPERATOR, "ops", roles=[Role.OPERATOR])
    with closing(Notary(server.log, files_in(tmp_path))) as notary:
        assert all(notary._sweep())
        assert publish_size(notary)[0] == 2
        assert all(notary._sweep())
        assert publish_size(notary)[0] == 2
        assert {each.stream_id for each in (verify_record(notary.record_of(session_id)),)} == {session_id}
        assert isinstance(verify_record(notary.record_of("identity:keys")), HeadRecord)


@pytest.mark.req("TLOG-SIGN-01")
def test_the_timer_signs_and_closing_signs_the_rest(sqlite: StoreFixture, tmp_path: Path) -> None:
    server = sqlite.open()
    notary = notary_of(server, tmp_path, interval_seconds=0.01)
    notary.start()
    notary.start()
    declared(server)
    for _ in range(1000):
        if Checkpoint.parse(notary.checkpoint().text).size:
            break
        notary._stop.wait(0.01)
    assert Checkpoint.parse(notary.checkpoint().text).size == 1
    declared(server)
    notary.close()
    note = files_in(tmp_path).read_note()
    assert note is not None
    assert Checkpoint.parse(note.text).size == 2


def check_refusal(notary: Notary, kind: FaultKind) -> None:
    with pytest.raises(LedgerCorrupt, match="no checkpoint is signed"):
        notary.publish()
    assert notary.fault is not None
    assert notary.fault.kind is kind
    with pytest.raises(StoreUnavailable, match=kind):
        notary.check_ready()


@pytest.mark.req("TLOG-REFUSE-01")
@pytest.mark.parametrize("restarted", [False, True])
def test_an_older_or_emptied_database_is_not_signed_until_it_is_good_again(
    sqlite: StoreFixture, tmp_path: Path, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = sqlite.open()
    notary = notary_of(server, tmp_path)
    declared(server)
    assert publish_size(notary)[0] == 1
    server.close()
    backup, newest = tmp_path / "backup.db", tmp_path / "newest.db"
    shutil.copy(sqlite.path, backup)
    server = sqlite.open()
    notary = notary_of(server, tmp_path)
    session_id = declared(server)
    kept = notary.publish()
    server.close()
    shutil.copy(sqlite.path, newest)
    for path, kind in ((backup, FaultKind.PUT_BACK), (None, FaultKind.EMPTIED)):
        sqlite.path.unlink()
        if path is not None:
            shutil.copy(path, sqlite.path)
        log = sqlite.store()
        if restarted:
            notary = Notary(log, files_in(tmp_path))
        else:
            notary._log = notary._trees._log = log
        with caplog.at_level(logging.ERROR):
            check_refusal(notary, kind)
        assert str(kind) in caplog.text
        # Another stream that is written meanwhile does not make it good.
        declared(BeliefServer(store=log))
        check_refusal(notary, kind)
        assert notary.checkpoint() == kept
        log.close()
    sqlite.path.unlink()
    shutil.copy(newest, sqlite.path)
    log = sqlite.store()
    notary._log = notary._trees._log = log
    assert notary.publish() == kept
    notary.check_ready()
    assert isinstance(verify_record(notary.record_of(session_id)), HeadRecord)


@pytest.mark.req("TLOG-REFUSE-01")
@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("DELETE FROM {table} WHERE {id} = '{session}'", FaultKind.DELETED),
        ("UPDATE sessions SET head_seq = 0 WHERE session_id = '{session}'", FaultKind.TRUNCATED),
        ("UPDATE sessions SET head_hash = zeroblob(32) WHERE session_id = '{session}'", FaultKind.FORKED),
    ],
)
def test_a_stream_that_lost_its_recorded_head_stops_all_signing(
    sqlite: StoreFixture, tmp_path: Path, statement: str, kind: FaultKind
) -> None:
    server = sqlite.open()
    session_id = declared(server)
    server.eliminate(session_id, "source", "1", ["a"])
    notary = notary_of(server, tmp_path)
    notary.note_change(session_id)
    kept = notary.publish()
    saved = tmp_path / "saved.db"
    with tampering(sqlite.path) as connection:
        connection.execute("VACUUM INTO ?", (str(saved),))
    triggers = [name for (name,) in _triggers(sqlite.path)]
    with tampering(sqlite.path, *triggers) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for table, column in (("audit_events", "stream_id"), ("sessions", "session_id")):
            connection.execute(statement.format(table=table, id=column, session=session_id))
    notary = Notary(server.log, files_in(tmp_path))
    notary._catch_up()
    assert all(notary._sweep())
    check_refusal(notary, kind)
    assert notary.checkpoint() == kept
    assert notary.fault is not None
    assert notary.fault.stream_id == session_id


def _triggers(path: Path) -> list[tuple[str]]:
    with tampering(path) as connection:
        return connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()


@pytest.mark.req("TLOG-REFUSE-01")
def test_what_this_process_wrote_and_the_store_lost_is_noticed_before_it_was_recorded(
    sqlite: StoreFixture, tmp_path: Path
) -> None:
    server = sqlite.open()
    session_id = declared(server)
    notary = notary_of(server, tmp_path)
    notary.note_change(session_id)
    notary.publish()
    server.eliminate(session_id, "source", "1", ["a"])
    server.eliminate(session_id, "source", "2", ["b"])
    triggers = [name for (name,) in _triggers(sqlite.path)]
    hashes = [entry.event_hash for entry in server.log.read(session_id)]
    with tampering(sqlite.path, *triggers) as connection:
        connection.execute("DELETE FROM audit_events WHERE stream_id = ? AND seq = 2", (session_id,))
        connection.execute(
            "UPDATE sessions SET head_seq = 1, head_hash = ? WHERE session_id = ?", (hashes[1], session_id)
        )
    check_refusal(notary, FaultKind.TRUNCATED)
    assert notary.fault is not None
    assert notary.fault.stream_id == session_id


@pytest.mark.req("TLOG-REFUSE-01")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("UPDATE sessions SET head_hash = zeroblob(32) WHERE session_id = ?", FaultKind.FORKED),
        ("UPDATE audit_events SET entry = x'7b7d' WHERE stream_id = ? AND seq = 2", FaultKind.FORKED),
        ("DELETE FROM audit_events WHERE stream_id = ? AND seq = 2", FaultKind.FORKED),
        ("UPDATE sessions SET head_seq = 0 WHERE session_id = ?", FaultKind.PUT_BACK),
        ("DELETE FROM sessions WHERE session_id = ?", FaultKind.EMPTIED),
    ],
)
def test_records_that_were_tampered_with_stop_all_signing(
    sqlite: StoreFixture, tmp_path: Path, statement: str, kind: FaultKind, restarted: bool
) -> None:
    server, other = sqlite.open(), sqlite.open()
    with closing(notary_of(other, tmp_path)) as elsewhere, closing(notary_of(server, tmp_path)) as notary:
        declared(server)
        declared(server)
        kept = notary.publish()
        # One more record, that only another process has read.
        declared(other)
        newer = elsewhere.publish()
        with tampering(sqlite.path, *(name for (name,) in _triggers(sqlite.path))) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            connection.execute(statement, (HEADS_STREAM,))
        again = Notary(sqlite.store(), files_in(tmp_path)) if restarted else notary
        check_refusal(again, kind)
        with pytest.raises(LedgerCorrupt):
            again.consistency(1)
        with pytest.raises(LedgerCorrupt):
            again.record_of("any")
        assert again.checkpoint() == newer != kept


def record_forged(log: AuditLog, record: HeadRecord) -> None:
    """Append a well-formed record, as an account that can write to the database can."""
    known = verify_heads(log.read(HEADS_STREAM), log.head(HEADS_STREAM))
    of_stream = None if known is None else known.records.get(record.stream_id)
    log.append([decide(log.head(HEADS_STREAM), of_stream, record, Stamp(RandomIds().new_id(), NOW)).append])


@pytest.mark.req("TLOG-REFUSE-01")
@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("forgery", ["longer", "other root", "other head", "no stream", "covered"])
def test_a_record_that_its_stream_does_not_bear_out_is_not_signed(
    sqlite: StoreFixture, tmp_path: Path, forgery: str, restarted: bool
) -> None:
    server = sqlite.open()
    log = server.log
    lost: list[tuple[str, Head]] = []
    with closing(notary_of(server, tmp_path)) as notary:
        notary.observe_faults(lambda stream_id, head: lost.append((stream_id, head)))
        session_id = declared(server)
        kept = notary.publish()
        server.eliminate(session_id, "source", "1", ["a"])
        hashes = [entry.event_hash for entry in log.read(session_id)]
        root, other = root_of_hashes(hashes).hex(), "ab" * 32
        record = {
            "longer": HeadRecord(other, root_of_hashes([*hashes, bytes.fromhex(other)]).hex(), 3, session_id),
            "other root": HeadRecord(hashes[-1].hex(), other, 2, session_id),
            "other head": HeadRecord(other, root, 2, session_id),
            "no stream": HeadRecord(other, other, 1, "no such session"),
            "covered": HeadRecord(other, other, 2, session_id),
        }[forgery]
        record_forged(log, record)
        if forgery == "covered":
            # A good record after it does not make it good.
            server.eliminate(session_id, "source", "2", ["b"])
            hashes = [entry.event_hash for entry in log.read(session_id)]
            record_forged(log, HeadRecord(hashes[-1].hex(), root_of_hashes(hashes).hex(), 3, session_id))
        again = notary
        if restarted:
            again = Notary(log, files_in(tmp_path))
            again.observe_faults(lambda stream_id, head: lost.append((stream_id, head)))
        size = len(log.read(HEADS_STREAM))
        for _ in range(2):
            kind = {"longer": FaultKind.TRUNCATED, "no stream": FaultKind.DELETED}.get(forgery, FaultKind.FORKED)
            check_refusal(again, kind)
            assert all(again._sweep())
            assert again.fault is not None
            assert again.fault.stream_id == record.stream_id
        assert again.checkpoint() == kept
        assert len(log.read(HEADS_STREAM)) == size
        assert lost == [(record.stream_id, record.head)]


@pytest.mark.req("TLOG-SIGN-02")
def test_records_of_a_process_that_did_not_come_to_sign_them_are_measured_and_signed(
    stored: StoreFixture, tmp_path: Path
) -> None:
    one, other = stored.open(), stored.open()
    with closing(notary_of(one, tmp_path)) as left, closing(notary_of(other, tmp_path)) as right:
        session_id = declared(one)
        assert publish_size(left)[0] == 1
        one.eliminate(session_id, "source", "1", ["a"])
        assert all(right._sweep())
        one.eliminate(session_id, "source", "2", ["b"])
        assert publish_size(left)[0] == 3
        one.eliminate(session_id, "source", "3", ["c"])
        assert publish_size(right)[0] == 3
        assert publish_size(left)[0] == 4
        assert isinstance(verify_record(right.record_of(session_id)), HeadRecord)


@pytest.mark.req("TLOG-REFUSE-01")
def test_a_register_that_lost_its_recorded_head_is_reported_before_the_start_returns(
    sqlite: StoreFixture, tmp_path: Path
) -> None:
    server = sqlite.open()
    registry = KeyRegistry(server.log)
    registry.create(ActorKind.OPERATOR, "ops", roles=[Role.OPERATOR])
    registry.create(ActorKind.OPERATOR, "more", roles=[Role.OPERATOR])
    with closing(notary_of(server, tmp_path)) as notary:
        notary.note_change("identity:keys")
        notary.publish()
    entries = server.log.read("identity:keys")
    with tampering(sqlite.path, *(name for (name,) in _triggers(sqlite.path))) as connection:
        connection.execute("DELETE FROM audit_events WHERE stream_id = 'identity:keys' AND seq = 1")
        connection.execute(
            "UPDATE sessions SET head_seq = 0, head_hash = ? WHERE session_id = 'identity:keys'",
            (entries[0].event_hash,),
        )
    lost: list[tuple[str, Head]] = []
    with closing(Notary(server.log, files_in(tmp_path))) as notary:
        notary.observe_faults(lambda stream_id, head: lost.append((stream_id, head)))
        notary.start()
        expected = [("identity:keys", Head(1, entries[1].event_hash))]
        assert lost == expected
        with pytest.raises(StoreUnavailable, match="truncated: identity:keys"):
            notary.check_ready()
        check_refusal(notary, FaultKind.TRUNCATED)
        late: list[tuple[str, Head]] = []
        notary.observe_faults(lambda stream_id, head: late.append((stream_id, head)))
        assert (lost, late) == (expected, expected)


@pytest.mark.req("TLOG-REFUSE-01")
@pytest.mark.parametrize("problem", ["emptied checkpoint", "binary checkpoint", "open key", "no key"])
def test_files_that_cannot_be_used_any_more_are_a_fault_until_they_can(
    sqlite: StoreFixture, tmp_path: Path, problem: str
) -> None:
    server = sqlite.open()
    with closing(notary_of(server, tmp_path)) as notary:
        declared(server)
        notary.publish()
        path = tmp_path / ("signing.key.checkpoint" if "checkpoint" in problem else "signing.key")
        content = path.read_bytes()
        if problem == "open key":
            path.chmod(0o644)
        elif problem == "no key":
            path.unlink()
        else:
            path.write_bytes(b"" if problem == "emptied checkpoint" else b"\xff")
        with pytest.raises(StoreUnavailable, match="cannot use the signing key"):
            notary.check_ready()
        declared(server)
        with pytest.raises(StoreUnavailable, match="cannot use the signing key"):
            notary.publish()
        assert notary.fault is not None
        assert notary.fault.kind is FaultKind.UNUSABLE_FILES
        path.write_bytes(content)
        path.chmod(0o600)
        assert publish_size(notary)[0] == 2
        notary.check_ready()


@pytest.mark.req("TLOG-REFUSE-01")
def test_another_log_under_the_same_key_is_not_signed(sqlite: StoreFixture, tmp_path: Path) -> None:
    server = sqlite.open()
    with closing(notary_of(server, tmp_path)) as notary:
        declared(server)
        notary.publish()
    with StoreFixture.at("memory", tmp_path) as fixture:
        other = fixture.open()
        impostor = KeyFiles.open(tmp_path / "impostor.key", "example.com/log", NOW)
        with closing(Notary(other.log, impostor)) as alone:
            other.observe_appends(alone.note_appends)
            declared(other, "abcdef")
            alone.publish()
        with closing(Notary(other.log, files_in(tmp_path))) as notary:
            check_refusal(notary, FaultKind.FORKED)


@pytest.mark.req("TLOG-REFUSE-01")
def test_the_timer_names_what_is_wrong_and_goes_on(
    sqlite: StoreFixture, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = sqlite.open()
    notary = notary_of(server, tmp_path)
    declared(server)
    kept = notary.publish()
    with StoreFixture.at("memory", tmp_path) as fixture:
        empty = fixture.store()
        again = Notary(empty, files_in(tmp_path), interval_seconds=0.01)
        again.start()
        for _ in range(1000):
            if again.fault is not None:
                break
            again._stop.wait(0.01)
        with pytest.raises(StoreUnavailable, match="emptied"):
            again.check_ready()
        again._log = again._trees._log = server.log
        for _ in range(1000):
            if "signed again" in caplog.text:
                break
            again._stop.wait(0.01)
        again.check_ready()
        again._log = again._trees._log = empty
        again.close()
    assert "no checkpoint is signed: emptied" in caplog.text
    assert "checkpoints are signed again" in caplog.text
    assert "no checkpoint at the end" in caplog.text
    assert files_in(tmp_path).read_note() == kept


@for_each(
    "record",
    [
        HeadRecord("0" * 64, "0" * 64, 0, "session"),
        HeadRecord("0" * 63, "0" * 64, 1, "session"),
        HeadRecord("0" * 64, "G" * 64, 1, "session"),
        HeadRecord("0" * 64, "0" * 64, 1, HEADS_STREAM),
    ],
)
def test_a_record_that_cannot_be_is_refused(record: HeadRecord) -> None:
    with pytest.raises(InvalidRequest):
        decide(None, None, record, Stamp("id", NOW))


@pytest.mark.req("TLOG-SIGN-01")
def test_records_are_verified_like_every_stream(sqlite: StoreFixture, tmp_path: Path) -> None:
    server = sqlite.open()
    with closing(notary_of(server, tmp_path)) as notary:
        declared(server)
        declared(server)
        notary.publish()
    entries, head = server.log.read(HEADS_STREAM), server.log.head(HEADS_STREAM)
    for bad in (entries[:1], entries[1:], entries[::-1], [entries[0], entries[0]]):
        with pytest.raises(LedgerCorrupt):
            verify_heads(bad, head)
    assert verify_heads([], None) is None
