"""Every object of the schema of both databases, dropped, changed or added to: a check names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cmbs.stores import open_store
from tests.support.effort import EFFORT
from tests.support.mutation_summary import check_counts
from tests.support.mutations import NAME_COLUMN, SQLiteDatabase, check_everything
from tests.support.postgres import fresh_database

pytestmark = pytest.mark.usefixtures("digests_everywhere")

Record = Callable[[str, object], None]


def sqlite_changes(objects: list[tuple[str, str, str, str]]) -> Iterator[tuple[str, list[str]]]:
    """The name that a finding must have, and what is done."""
    for kind, name, table, text in objects:
        if kind == "table":
            # Text in `sqlite_schema` is the schema: this is how constraints are taken out of a table.
            yield (
                name,
                [
                    "PRAGMA writable_schema = 1",
                    f"UPDATE sqlite_schema SET sql = replace(sql, ' NOT NULL', '') WHERE name = '{name}'",
                    "PRAGMA writable_schema = 0",
                ],
            )
            yield f"{name}_more", [f"CREATE TABLE {name}_more AS SELECT * FROM {name}"]
            yield f"{name}_often", [f"CREATE INDEX {name}_often ON {name} ({NAME_COLUMN.get(name, name)})"]
            hooked = f"CREATE TRIGGER {name}_hook AFTER INSERT ON {name} BEGIN DELETE FROM {name}; END"
            yield f"{name}_hook", [hooked]
        else:
            yield name, [f"DROP {kind} {name}"]
        if kind == "trigger":
            timing = "BEFORE INSERT" if "BEFORE INSERT" in text else "BEFORE DELETE"
            yield (
                name,
                [f"DROP TRIGGER {name}", f"CREATE TRIGGER {name} {timing} ON {table} WHEN 0 BEGIN SELECT 1; END"],
            )
            yield name, [f"DROP TRIGGER {name}", text.replace("BEGIN", "BEGIN SELECT 1;", 1)]
        if kind == "view":
            yield name, [f"DROP VIEW {name}", f"CREATE VIEW {name} AS SELECT 1 AS session_id"]
        if kind == "index":
            yield name, [f"DROP INDEX {name}", f"CREATE INDEX {name} ON {table} (session_id)"]


@pytest.mark.slow
@pytest.mark.req("FSCK-03")
def test_every_change_to_the_schema_of_a_file_is_named(tmp_path: Path, record_property: Record) -> None:
    database = SQLiteDatabase(tmp_path)
    with database.connect() as connection:
        objects = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
    changes = list(sqlite_changes(objects))
    missed = []
    for name, statements in changes:
        with database.connect() as connection:
            for statement in statements:
                connection.execute(statement)
        found = {(finding.table, finding.column) for finding in check_everything(database.url)}
        if found != {("sqlite_schema", name)}:
            missed.append(f"{statements}: {found}")
        database.restore()
    assert len(changes) > 80
    check_counts(record_property, "schema, sqlite", len(changes), missed)


@pytest.mark.req("FSCK-03")
def test_a_table_that_was_dropped_is_named_and_the_rest_is_still_looked_at(tmp_path: Path) -> None:
    database = SQLiteDatabase(tmp_path)
    for table in ("checkpoints", "tombstones", "seals"):
        with database.connect() as connection:
            connection.execute("PRAGMA foreign_keys = 0")
            connection.execute(f"DROP TABLE {table}")
        findings = check_everything(database.url)
        assert table in {finding.column for finding in findings if finding.table == "sqlite_schema"}
        database.restore()


def postgres_changes(connection: psycopg.Connection[Any]) -> Iterator[tuple[str, str]]:
    """The name that a finding must have, and what is done."""
    namespace = "'cmbs'::regnamespace"
    for table, trigger in connection.execute(
        f"SELECT c.oid::regclass::text, t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        f" WHERE c.relnamespace = {namespace} AND NOT t.tgisinternal".encode()
    ).fetchall():
        yield f"{table}.{trigger}", f"DROP TRIGGER {trigger} ON {table}"
        yield f"{table}.{trigger}", f"ALTER TABLE {table} DISABLE TRIGGER {trigger}"
    for table, constraint in connection.execute(
        f"SELECT conrelid::regclass::text, conname FROM pg_constraint WHERE connamespace = {namespace}"
        f" AND contype IN ('u', 'c', 'f')".encode()
    ).fetchall():
        yield f"{table}.{constraint}", f"ALTER TABLE {table} DROP CONSTRAINT {constraint}"
    for table, column, kind, must_be in connection.execute(
        b"SELECT c.table_name, c.column_name, c.data_type, c.is_nullable = 'NO' AND NOT EXISTS ("
        b" SELECT FROM information_schema.key_column_usage AS k JOIN information_schema.table_constraints AS t"
        b" USING (constraint_schema, constraint_name, table_name) WHERE constraint_schema = 'cmbs'"
        b" AND t.constraint_type = 'PRIMARY KEY' AND table_name = c.table_name AND k.column_name = c.column_name)"
        b" FROM information_schema.columns AS c WHERE c.table_schema = 'cmbs'"
    ).fetchall():
        if must_be:
            yield f"{table}.{column}", f"ALTER TABLE cmbs.{table} ALTER {column} DROP NOT NULL"
        default = {"boolean": "true", "bigint": "7"}.get(kind, "'x'")
        yield f"{table}.{column}", f"ALTER TABLE cmbs.{table} ALTER {column} SET DEFAULT {default}"
    for (function,) in connection.execute(
        f"SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = {namespace}".encode()
    ).fetchall():
        yield function, f"ALTER FUNCTION {function} SECURITY DEFINER"
        body = f"replace(pg_get_functiondef('{function}'::regprocedure), 'BEGIN', 'BEGIN NULL;')"
        yield function, f"DO $do$ BEGIN EXECUTE {body}; END $do$"
    yield "sessions_by_age", "DROP INDEX cmbs.sessions_by_age"
    yield "sessions_more", "CREATE INDEX sessions_more ON cmbs.sessions (head_seq)"
    yield "sessions.more", "ALTER TABLE cmbs.sessions ADD COLUMN more text"
    yield "more", "CREATE VIEW cmbs.more AS SELECT 1 AS one"
    yield "sessions.quiet", "CREATE RULE quiet AS ON DELETE TO cmbs.sessions DO INSTEAD NOTHING"
    yield "cmbs.hook()", "CREATE FUNCTION cmbs.hook() RETURNS int LANGUAGE sql AS 'SELECT 1'"
    yield "sessions.hidden", "CREATE POLICY hidden ON cmbs.sessions USING (false)"
    yield (
        "cmbs.intents.hook",
        ("CREATE TRIGGER hook BEFORE INSERT ON cmbs.intents FOR EACH ROW EXECUTE FUNCTION cmbs.only_forward()"),
    )


@pytest.mark.deep
@pytest.mark.postgres
@pytest.mark.req("FSCK-03")
def test_every_change_to_the_schema_of_a_database_is_named(record_property: Record) -> None:
    with fresh_database() as url, psycopg.connect(url, autocommit=True) as connection:
        assert check_everything(url) == []
        changes = list(postgres_changes(connection))
    assert len(changes) > 60
    tried = changes if EFFORT.everything else changes[::4]
    missed = []
    for name, statement in tried:
        with fresh_database() as url:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(statement.encode())
            findings = check_everything(url)
        # An index goes with its constraint, and only so.
        found = {finding.column.removeprefix("cmbs.") for finding in findings}
        if name.removeprefix("cmbs.") not in found or {finding.table for finding in findings} != {"schema"}:
            missed.append(f"{statement}: {found}")
    check_counts(record_property, "schema, postgres", len(tried), missed)


@pytest.mark.postgres
@pytest.mark.req("FSCK-03")
def test_a_check_of_the_schema_leaves_the_database_as_it_was() -> None:
    with fresh_database() as url, closing(open_store(url)) as store:
        with psycopg.connect(url) as connection:
            catalog = (
                "SELECT oid, relname, relfilenode FROM pg_class WHERE relnamespace = 'cmbs'::regnamespace ORDER BY 1"
            )
            before = connection.execute(catalog).fetchall()
        assert check_everything(url) == []
        with psycopg.connect(url) as connection:
            assert connection.execute(catalog).fetchall() == before
            schemas = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'cmbs%'").fetchall()
        assert schemas == [("cmbs",)]
        assert store.sessions(None, 1) == []
