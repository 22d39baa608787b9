"""The journal: entries of all streams in one order, in which none appears before one that was told."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from cmbs.audit.fsck import check_database
from cmbs.audit.plain_rows import rows_of
from cmbs.ledger import GENESIS, StoredEntry, hash_entry
from cmbs.spi.audit_log import Append, AuditLog
from cmbs.spi.journal import JOURNAL_BEGINNING, JournalLog, JournalPlace
from cmbs.stores import inspect_store, open_store
from cmbs.stores._postgres_journal import rebase_journal
from tests.support.effort import EFFORT
from tests.support.postgres import fresh_database
from tests.support.store_fixture import BACKENDS, StoreFixture


def entry(stream_id: str, seq: int, previous: bytes) -> Append:
    raw = f'{{"seq":{seq},"stream_id":"{stream_id}"}}'.encode()
    stored = StoredEntry(raw, hash_entry(raw))
    return Append(stream_id, seq, f"{stream_id}-{seq}", previous, stored, "2026-01-01T00:00:00.000000Z")


def chain(stream_id: str, count: int) -> list[Append]:
    written: list[Append] = []
    for seq in range(count):
        written.append(entry(stream_id, seq, written[-1].entry.event_hash if written else GENESIS))
    return written


def read_all(log: AuditLog, after: JournalPlace = JOURNAL_BEGINNING, limit: int = 3) -> list[JournalPlace]:
    assert isinstance(log, JournalLog)
    places: list[JournalPlace] = []
    while page := log.journal(places[-1] if places else after, limit):
        assert len(page) <= limit
        places += page
    assert places == sorted(set(places))
    return places


@pytest.mark.req("LIVE-08")
@pytest.mark.parametrize("place", BACKENDS)
def test_the_journal_has_every_entry_once_and_those_of_a_stream_in_order(place: str, tmp_path: Path) -> None:
    with StoreFixture.at(place, tmp_path) as fixture:
        log = fixture.store()
        assert isinstance(log, JournalLog)
        assert log.journal(JOURNAL_BEGINNING, 10) == []
        one, two = chain("one", 5), chain("space:two", 4)
        log.append(one[:2])
        log.append([*two[:1], *one[2:3]])
        middle = read_all(log)[-1]
        end = log.journal_end()
        log.append([*one[3:], *two[1:]])
        told = [(each.stream_id, each.seq) for each in read_all(log)]
        assert sorted(told) == [*((("one", seq)) for seq in range(5)), *(("space:two", seq) for seq in range(4))]
        assert [seq for name, seq in told if name == "one"] == list(range(5))
        assert [(each.stream_id, each.seq) for each in read_all(log, middle)] == told[4:]
        # What comes after an end is told after it.
        assert [(each.stream_id, each.seq) for each in read_all(log, end)] == told[4:]


@pytest.mark.req("LIVE-08")
@pytest.mark.parametrize("place", BACKENDS)
def test_a_reader_beside_many_writers_is_told_every_entry(place: str, tmp_path: Path) -> None:
    writers, rounds = 4, EFFORT.examples_for(40)
    with StoreFixture.at(place, tmp_path) as fixture:
        logs = [fixture.store() for _ in range(writers)]
        reading = fixture.store()
        done = threading.Event()
        told: list[JournalPlace] = []

        def read() -> None:
            while not done.is_set():
                told.extend(read_all(reading, told[-1] if told else JOURNAL_BEGINNING, 7))

        def write(number: int) -> None:
            # Two streams in one commit, in an order that others hold the other way round: no two are locked alike.
            mine, ours = chain(f"mine-{number}", rounds), chain(f"ours-{number % 2}-{number}", rounds)
            for pair in zip(mine, ours, strict=True):
                logs[number].append(pair if number % 2 else pair[::-1])

        reader = threading.Thread(target=read)
        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        for thread in (reader, *threads):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        reader.join()
        told += read_all(reading, told[-1] if told else JOURNAL_BEGINNING)
        assert told == read_all(reading)
        by_stream: dict[str, list[int]] = {}
        for each in told:
            by_stream.setdefault(each.stream_id, []).append(each.seq)
        assert len(by_stream) == 2 * writers
        assert set(map(tuple, by_stream.values())) == {tuple(range(rounds))}


@pytest.mark.req("LIVE-08")
@pytest.mark.postgres
def test_no_place_is_told_above_a_transaction_that_may_still_write() -> None:
    with fresh_database() as url:
        log, other = open_store(url), open_store(url)
        assert isinstance(log, JournalLog)
        one, two = chain("one", 2), chain("two", 2)
        log.append(one[:1])
        log.append(two[:1])
        with log.exclusive(["one"]):
            # This transaction has its id; the other begins later, and is done earlier.
            other.append(two[1:])
            assert isinstance(other, JournalLog)
            assert [each.stream_id for each in read_all(other)] == ["one", "two"]
            end = other.journal_end()
            log.append(one[1:])
        told = read_all(other)
        assert [(each.stream_id, each.seq) for each in told][2:] == [("one", 1), ("two", 1)]
        assert read_all(other, end) == told[2:]
        log.close()
        other.close()


@pytest.mark.req("LIVE-08")
@pytest.mark.postgres
def test_a_transaction_in_another_database_of_the_server_is_not_waited_for() -> None:
    with fresh_database() as url, fresh_database() as elsewhere, psycopg.connect(elsewhere) as connection:
        # This transaction has its id, and keeps it as long as it is open.
        connection.execute("SELECT pg_current_xact_id()")
        log = open_store(url)
        log.append(chain("one", 2))
        assert isinstance(log, JournalLog)
        told = read_all(log)
        assert [(each.stream_id, each.seq) for each in told] == [("one", 0), ("one", 1)]
        end = log.journal_end()
        log.append(chain("two", 1))
        assert [each.stream_id for each in read_all(log, end)] == ["two"]
        log.close()


@pytest.mark.req("LIVE-08")
@pytest.mark.postgres
def test_an_entry_is_never_before_the_one_that_it_follows() -> None:
    with fresh_database() as url:
        log, other = open_store(url), open_store(url)
        one, two = chain("one", 2), chain("two", 3)
        log.append([one[0], two[0]])
        # A transaction that has its id, and then writes to a stream that a younger one has written to meanwhile.
        with log.exclusive(["one"]):
            other.append(two[1:2])
            log.append([one[1], two[2]])
        told = [(each.stream_id, each.seq) for each in read_all(other, limit=1)]
        assert [seq for name, seq in told if name == "two"] == [0, 1, 2]
        assert len(told) == 5
        log.close()
        other.close()


@pytest.mark.req("LIVE-08")
@pytest.mark.postgres
def test_a_database_from_a_server_with_higher_ids_goes_on_above_them() -> None:
    with fresh_database() as url:
        log = open_store(url)
        log.append(chain("one", 1))
        log.close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE cmbs.journal DISABLE TRIGGER append_only")
            connection.execute("UPDATE cmbs.journal SET position = position + 1000000")
            connection.execute("ALTER TABLE cmbs.journal ENABLE TRIGGER append_only")
        # As after a restore: it is opened anew.
        log = open_store(url)
        told = read_all(log)
        assert [each.stream_id for each in told] == ["one"]
        log.append(chain("two", 1))
        assert [each.stream_id for each in read_all(log, told[-1])] == ["two"]
        with psycopg.connect(url, autocommit=True) as connection:
            before = connection.execute("SELECT base FROM cmbs.journal_base").fetchone()
            rebase_journal(connection)
            assert connection.execute("SELECT base FROM cmbs.journal_base").fetchone() == before
        assert before is not None
        assert before[0] > 0
        assert rows_of(log).check_journal() == []
        log.close()


# What an intruder does to the journal, and the column that a check names.
FORGERIES = {
    "a run in the middle is gone": ("DELETE FROM cmbs.journal WHERE seq = 2", {"seq"}),
    "the last run is gone": ("DELETE FROM cmbs.journal WHERE seq = 4", {"last_seq"}),
    "a run begins later": ("UPDATE cmbs.journal SET seq = 3 WHERE seq = 2", {"seq"}),
    "a run ends earlier": ("UPDATE cmbs.journal SET last_seq = 4 WHERE seq = 4", {"last_seq"}),
    "a run ends before it begins": ("UPDATE cmbs.journal SET last_seq = -1 WHERE seq = 0", {"seq", "last_seq"}),
    "a run is before the one that it follows": ("UPDATE cmbs.journal SET position = 1 WHERE seq = 4", {"position"}),
    "a run is of the future": ("UPDATE cmbs.journal SET position = 1e15 WHERE seq = 4", {"position"}),
    "a stream that is not there": ("INSERT INTO cmbs.journal VALUES ('ghost', 0, 0, 0)", {"last_seq"}),
    "a run is of another stream": ("UPDATE cmbs.journal SET stream_id = 'ghost' WHERE seq = 2", {"seq", "last_seq"}),
    "there is no base": ("DELETE FROM cmbs.journal_base", {""}),
    "there are two bases": ("INSERT INTO cmbs.journal_base VALUES (0)", {""}),
    "the base is higher": ("UPDATE cmbs.journal_base SET base = base + 7", {"base"}),
    "the base is lower": ("UPDATE cmbs.journal_base SET base = base - 7", {"base"}),
}


@pytest.mark.req("LIVE-08")
@pytest.mark.postgres
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_journal_that_does_not_fit_the_entries_is_found(forgery: str) -> None:
    statement, columns = FORGERIES[forgery]
    written = chain("one", 6)
    with fresh_database() as url, closing(open_store(url)) as log:
        for first in range(0, 6, 2):
            log.append(written[first : first + 2])
        assert rows_of(log).check_journal() == []
        with psycopg.connect(url, autocommit=True) as intruder:
            intruder.execute("SET session_replication_role = replica")
            intruder.execute(statement.encode())
        assert {each.column for each in check_database(log)} == columns


@pytest.mark.req("LIVE-08")
def test_rows_of_a_file_that_are_out_of_order_are_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cmbs.db'}"
    with closing(open_store(url)) as log:
        log.append(chain("one", 3))
        assert rows_of(log).check_journal() == []
    with closing(sqlite3.connect(tmp_path / "cmbs.db")) as intruder:
        for (name,) in intruder.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            intruder.execute(f"DROP TRIGGER {name}")
        intruder.execute("UPDATE audit_events SET rowid = 9 WHERE seq = 1")
        intruder.commit()
    with closing(inspect_store(url)) as log:
        (found,) = rows_of(log).check_journal()
    assert (found.table, found.stream_id, found.seq, found.column) == ("audit_events", "one", 2, "rowid")
