"""Every column of every table of both databases, changed behind the store's back: each change is found and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.mutation_summary import check_counts
from tests.support.mutations import TABLES, PostgresDatabase, SQLiteDatabase, check_everything, mutations_of
from tests.support.postgres import fresh_database

pytestmark = pytest.mark.usefixtures("digests_everywhere")

Record = Callable[[str, object], None]
# So many rows of each table, spread over it.
ROWS = {"sqlite": 8, "postgres": 3}
# What follows from no entry alone: `test_journal.py` and `test_store_formats.py` change these.
ELSEWHERE = {"sqlite": {"format"}, "postgres": {"format", "journal", "journal_base"}}
LISTED = {
    "sqlite": "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    "postgres": "SELECT table_name FROM information_schema.tables WHERE table_schema = 'cmbs'"
    " AND table_type = 'BASE TABLE'",
}


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SQLiteDatabase | PostgresDatabase]:
    if request.param == "sqlite":
        yield SQLiteDatabase(tmp_path)
        return
    with fresh_database() as url:
        yield PostgresDatabase(url)


@pytest.mark.slow
@pytest.mark.req("FSCK-03")
def test_no_table_is_left_out(database: SQLiteDatabase | PostgresDatabase, request: pytest.FixtureRequest) -> None:
    place = request.node.callspec.params["database"]
    with database.connect() as connection:
        there = {name for (name,) in connection.execute(LISTED[place])}
    assert there == {*TABLES, *ELSEWHERE[place]}
    assert all(database.rows(table) for table in TABLES)


@pytest.mark.deep
@pytest.mark.req("FSCK-03")
def test_every_changed_row_is_found_and_named(
    database: SQLiteDatabase | PostgresDatabase, request: pytest.FixtureRequest, record_property: Record
) -> None:
    assert check_everything(database.url) == []
    tried = 0
    missed: list[str] = []
    mislocated: list[str] = []
    place = request.node.callspec.params["database"]
    for mutation in mutations_of(database, ROWS[place]):
        if database.change(mutation.statement, mutation.parameters):
            tried += 1
            findings = check_everything(database.url, schema=False)
            if not any(mutation.is_located_by(each) for each in findings):
                (mislocated if findings else missed).append(f"{mutation.what}: {[*map(repr, findings)]}")
            elif any(mutation.is_mislocated_by(each) for each in findings):
                mislocated.append(f"{mutation.what}: {[*map(repr, findings)]}")
        database.restore()
    assert tried > 100
    check_counts(record_property, f"rows, {place}", tried, missed, mislocated)
