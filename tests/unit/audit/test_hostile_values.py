"""Any value in any column of a file: a finding of `fsck` and `verify`, and an error or an answer of a server.

SQLite keeps a value of any type in a column of any type: an intruder who can write to the file puts anything anywhere.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

from cmbs.audit import stream_check
from cmbs.belief.server import BeliefServer
from cmbs.errors import StoreUnavailable
from cmbs.http import BeliefApp
from cmbs.http.live.journal import JournalSource
from cmbs.http.service import Service
from cmbs.http.spaces.reading import Spaces
from cmbs.spi import EliminationProvenance
from cmbs.spi.journal import JOURNAL_BEGINNING
from cmbs.stores import Store, open_store
from cmbs.streams import self_check
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.server import SubstrateServer
from cmbs.testing.streams import stream
from tests.support.cli import invoke
from tests.support.effort import EFFORT
from tests.support.in_process import Client, client_of
from tests.support.mutations import KEYS, NAME_COLUMN, TABLES, SQLiteDatabase, populate
from tests.support.space_client import OPS
from tests.unit.audit.test_served_after_damage import populate as populate_served

pytestmark = pytest.mark.usefixtures("digests_everywhere")
# `ci` tries every seventh.
STRIDE = 1 if EFFORT.everything else 7
NAMED = re.compile(r'"code": ?"(LEDGER_CORRUPT|STORE_UNAVAILABLE)"')
# As SQL: a parameter could be no text that is not UTF-8.
VALUES = {
    "a blob": "x'ff00'",
    "an empty blob": "x''",
    "text that is not UTF-8": "CAST(x'ff' AS TEXT)",
    "text with a NUL": "CAST(x'610062' AS TEXT)",
    "empty text": "''",
    "text": "'x'",
    "a number": "7",
    "a negative number": "-1",
    "the largest number": "9223372036854775807",
    "a fraction": "1.5",
    "infinity": "9e999",
    "nothing": "NULL",
    "long text": "printf('%.*c', 100000, 'x')",
}
# A row of these may be gone or another at any time, and what it says is compared with nothing.
FORMAT_TABLE = "format"
LISTS = ("/v1/sessions", "/v1/spaces", "/readyz")
PATHS = (*LISTS, "/v1/sessions?text=one", "/v1/sessions?label=team:payments", "/v1/inbox", "/v1/kits")


class Change(NamedTuple):
    """One value in one column of one row."""

    table: str
    column: str
    value: str
    statement: str
    name: object


def changes(database: SQLiteDatabase) -> Iterator[Change]:
    """Every value in every column, of the first and the last row of every table."""
    for table in (*TABLES, FORMAT_TABLE):
        rows = database.rows(table)
        if not rows:
            continue
        for row in {0: rows[0], len(rows) - 1: rows[-1]}.values():
            keys = KEYS.get(table, (NAME_COLUMN.get(table, "format"),))
            place = " AND ".join(f"{key} = {_quote(row[key])}" for key in keys)
            for column in row:
                for name, value in VALUES.items():
                    statement = f"UPDATE {table} SET {column} = {value} WHERE {place} AND {column} IS NOT {value}"
                    yield Change(table, column, name, statement, row.get(NAME_COLUMN.get(table, "")))


def _quote(value: object) -> str:
    with closing(sqlite3.connect(":memory:")) as connection:
        return str(connection.execute("SELECT quote(?)", (value,)).fetchone()[0])


def populate_open(store: Store) -> None:
    """A row of every kind, and no keys: callers are let in as they are."""
    populate_served(store)
    items = stream(3)
    store.append(items[:2])
    store.put_intent(items[2])
    store.create_session("apart", frozenset("abcd"))
    store.eliminate("apart", {"a", "b"}, EliminationProvenance("s", "o"))


@contextmanager
def each_change(directory: Path, fill: Callable[[Store], None] = populate) -> Iterator[Iterator[Change]]:
    """The changes that the file takes, each while it is there."""
    database = SQLiteDatabase(directory, fill)

    def run() -> Iterator[Change]:
        for change in islice(changes(database), None, None, STRIDE):
            if database.change(change.statement, ()):
                yield change
            database.restore()

    yield run()


@pytest.mark.slow
@pytest.mark.req("FSCK-06")
def test_any_value_in_any_column_is_a_finding_and_no_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The next page is asked for by values of the last row, whatever these are.
    monkeypatch.setattr(stream_check, "PAGE", 2)
    url = f"sqlite:///{tmp_path / 'cmbs.db'}"
    tried = 0
    wrong: list[str] = []
    with each_change(tmp_path) as changed:
        for change in changed:
            tried += 1
            for command in (("fsck", url), ("verify", "--store", url)):
                ran = invoke(*command)
                refused = change.table == FORMAT_TABLE and ran.exit_code == 2
                found = ran.exit_code == 1 and "bad  " in ran.stderr
                if not isinstance(ran.exception, SystemExit) or not (refused or found):
                    wrong.append(f"{change[:3]}: {command[0]}: {ran.exit_code} {ran.exception!r} {ran.stderr[:300]}")
    assert tried > 500 // STRIDE
    assert not wrong, "\n".join([f"{len(wrong)} of {tried}", *wrong])


@contextmanager
def serve(url: str) -> Iterator[tuple[Store, BeliefServer, SubstrateServer, Client]]:
    store = open_store(url)
    belief = BeliefServer(store=store)
    spaces = SubstrateServer(log=store, belief=ServedBelief(belief), keeper_seconds=None)
    try:
        with client_of(BeliefApp(Service(belief, spaces=spaces))) as client:
            yield store, belief, spaces, client
    finally:
        spaces.close()
        belief.close()


def list_ids(client: Client) -> set[object]:
    """The sessions of a list, a page of one at a time: what cannot be listed ends no page."""
    found: set[object] = set()
    cursor: dict[str, str] = {}
    while True:
        answer = client.get("/v1/sessions", params={"limit": "1", **cursor})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        found |= {each["session_id"] for each in body["sessions"]}
        if body["next_cursor"] is None:
            return found
        cursor = {"cursor": body["next_cursor"]}


@pytest.mark.slow
@pytest.mark.req("FSCK-06")
def test_a_server_over_any_value_in_any_column_answers_or_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_check, "_DELAY_SECONDS", 3600.0)
    url = f"sqlite:///{tmp_path / 'cmbs.db'}"
    wrong: list[str] = []
    with each_change(tmp_path, populate_open) as changed:
        with serve(url) as (*_, client):
            everything = list_ids(client)
        for change in changed:
            if change.table == FORMAT_TABLE:
                continue
            with serve(url) as (store, belief, spaces, client):
                answers = {path: client.get(path, headers={"x-cmbs-actor": OPS}) for path in PATHS}
                for path, answer in answers.items():
                    refused = answer.status_code >= 500 and NAMED.search(answer.text) is not None
                    if not (refused or answer.status_code == 200) or (path in LISTS and answer.status_code != 200):
                        wrong.append(f"{change[:3]}: {path}: {answer.status_code} {answer.text[:200]}")
                missing = everything - list_ids(client) - {change.name}
                if missing:
                    wrong.append(f"{change[:3]}: {missing} are not listed")
                # Who follows all streams hears of the others.
                page = JournalSource(belief, Spaces(belief, spaces)).read(JOURNAL_BEGINNING, 1_000)
                if not page.items or not store.journal_end().stream_id:
                    wrong.append(f"{change[:3]}: nothing is told to followers")
    assert not wrong, "\n".join(wrong)


@pytest.mark.req("FSCK-06")
def test_a_universe_and_tombstones_that_are_none_are_an_error(tmp_path: Path) -> None:
    database = SQLiteDatabase(tmp_path)
    for value in VALUES.values():
        for table, column in (("universes", "hypothesis_ids"), ("tombstones", "hypothesis_id")):
            database.change(f"UPDATE {table} SET {column} = {value} WHERE session_id = 'apart'", ())
            with closing(open_store(database.url)) as store:
                for session_id in ("apart", "untouched"):
                    with suppress(StoreUnavailable):
                        assert store.recover(session_id).survivors <= frozenset("abcdxy")
            database.restore()
