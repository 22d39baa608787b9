"""A store with a row of every kind in it, and every way to change one behind its back."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg
from psycopg.rows import dict_row

from cmbs.audit.actors import ActorCheck
from cmbs.audit.fsck import check_database, check_stream, names_in
from cmbs.audit.plain_rows import rows_of
from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import StoreUnavailable
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.spi import EliminationProvenance
from cmbs.spi.stored_rows import (
    CHECKPOINTS,
    EVENTS,
    INTENTS,
    LISTINGS,
    LOOKUPS,
    SEALS,
    SESSIONS,
    TERMS,
    TOMBSTONES,
    UNIVERSES,
    Finding,
)
from cmbs.stores import Store, inspect_store, open_store
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.events import RegisterTool
from cmbs.substrate.kernel.replay import verify_space
from cmbs.testing import ManualClock, SequentialIds
from cmbs.testing.streams import stream
from tests.support.spaces import SPACE, STREAM, World, caller_tool, delta
from tests.support.store_fixture import declared

TABLES = (EVENTS, SESSIONS, TOMBSTONES, UNIVERSES, SEALS, CHECKPOINTS, INTENTS, LOOKUPS, LISTINGS, TERMS)
NAME_COLUMN = {table: "stream_id" if table in (EVENTS, INTENTS, LOOKUPS) else "session_id" for table in TABLES}
KEYS = {
    EVENTS: ("stream_id", "seq"),
    TOMBSTONES: ("session_id", "hypothesis_id"),
    LOOKUPS: ("stream_id", "key", "seq"),
    TERMS: ("session_id", "term"),
}
# One may be lost at any time, and the other is dropped where nothing came of it: that a row is gone is no fault.
MAY_BE_GONE = (CHECKPOINTS, INTENTS)
# Each of the two speaks of the other, and neither can say which of them is wrong where one is not there.
COUNTERPARTS = {UNIVERSES: SEALS, SEALS: UNIVERSES}
ORPHAN = "orphan"


def populate(store: Store) -> None:
    """Sessions with every verb, a space, keys, checkpoints, open intents, and a session that is tombstones alone."""
    clock, ids = ManualClock(), SequentialIds()
    server = BeliefServer(store=store, clock=clock, ids=ids)
    session_id = declared(server, title="one", labels={"team": "payments"})
    server.enter_obligation(session_id, "gate", 1)
    server.eliminate(session_id, "s", "1", ["a"])
    server.eliminate(session_id, "s", "2", ["b", "c"])
    server.request_exit(session_id, "gate")
    server.declare_conclusion(session_id, "d")
    server.request_termination(session_id)
    other = declared(server)
    server.eliminate(other, "s", "1", ["a"])
    entries = store.read(session_id)
    store.put_checkpoint(session_id, 4, freeze(verify_session(session_id, entries[:4])))
    registry = KeyRegistry(store, clock=clock, ids=ids)
    operator = registry.create(ActorKind.OPERATOR, "root", roles=[Role.OPERATOR]).key
    registry.revoke(registry.create(ActorKind.AGENT, "planner", roles=[Role.AGENT]).key.key_id, "lost")
    world = World(store, clock=clock, space=7)
    world.open(caller_tool("t"))
    world.say(RegisterTool(caller_tool("u")), operator.actor)
    world.propose(delta(one="1"))
    seq = world.space.head.seq
    store.put_checkpoint(STREAM, seq, freeze_space(verify_space(SPACE, store.read(STREAM, limit=seq))))
    world.close()
    items = stream(3)
    store.append(items[:2])
    store.put_intent(items[2])
    store.create_session("apart", frozenset("abcd"))
    store.eliminate("apart", {"a", "b"}, EliminationProvenance("s", "o"))
    store.create_session("untouched", frozenset("xy"))
    server.close()


def check_everything(url: str, *, schema: bool = True) -> list[Finding]:
    """What a whole check finds; a store that cannot be opened at all says why in one finding.

    Without the `schema`, which a changed row leaves as it is and which takes longest.
    """
    try:
        store = inspect_store(url)
    except StoreUnavailable as exc:
        return [Finding(str(exc), "refused")]
    with closing(store):
        found = check_database(store) if schema else rows_of(store).find_nameless_rows()
        actors = ActorCheck(store)
        try:
            names = list(names_in(store))
        except StoreUnavailable as exc:
            return [*found, Finding(str(exc))]
        return [*found, *(each for name in names for each in check_stream(store, name, actors).findings)]


class Database(Protocol):
    """A database in an intruder's hands: no guard holds, and all of them are back afterwards."""

    url: str

    def rows(self, table: str) -> list[dict[str, Any]]: ...
    def change(self, statement: str, *parameters: tuple[Any, ...]) -> bool:
        """Run a statement with each of the parameters; whether the database took one row of each."""
        ...

    def restore(self) -> None: ...
    def values_instead(self, table: str, column: str, value: Any) -> list[Any]: ...


class SQLiteDatabase:
    """A file; it is put back by copying."""

    def __init__(self, directory: Path, fill: Callable[[Store], None] = populate) -> None:
        self.path, self._good = directory / "cmbs.db", directory / "good.db"
        self.url = f"sqlite:///{self.path}"
        with closing(open_store(self.url)) as store:
            fill(store)
        with closing(sqlite3.connect(self.path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.nullable = {
                (table, row[1])
                for table in TABLES
                for row in connection.execute(f"PRAGMA table_info({table})")
                if not row[3] and not row[5]
            }
        shutil.copy(self.path, self._good)

    def rows(self, table: str) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]

    @contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            yield connection

    def change(self, statement: str, *parameters: tuple[Any, ...]) -> bool:
        with self.connect() as connection:
            triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
            connection.execute("BEGIN")
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            try:
                text = statement.replace("%s", "?").replace("cmbs.", "")
                changed = sum(connection.execute(text, each).rowcount for each in parameters)
            except sqlite3.IntegrityError:
                changed = 0
            for _, text in triggers:
                connection.execute(text)
            connection.execute("COMMIT")
        return changed == len(parameters)

    def restore(self) -> None:
        for suffix in ("-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        shutil.copy(self._good, self.path)

    def values_instead(self, table: str, column: str, value: Any) -> list[Any]:
        values: list[Any] = [None] if (table, column) in self.nullable and value is not None else []
        match value:
            case None:
                values += ["x", 7]
            case str():
                values += [value + "x", "", value.encode()]
            case int():
                values += [value + 1, value - 1, "x", 2**40]
            case bytes():
                values += [value[:-1] + bytes([value[-1] ^ 1]), value[:-1], b"", value.hex()]
            case _:
                raise TypeError(f"no value instead of {value!r}")
        return values


class PostgresDatabase:
    """A database; its rows are put back from copies."""

    def __init__(self, url: str, fill: Callable[[Store], None] = populate) -> None:
        self.url = url
        with closing(open_store(url)) as store:
            fill(store)
        self._good = {table: self.rows(table) for table in TABLES}
        with self.connect() as connection:
            self.nullable = {
                (table, column)
                for table, column in connection.execute(
                    "SELECT table_name, column_name FROM information_schema.columns"
                    " WHERE table_schema = 'cmbs' AND is_nullable = 'YES'"
                )
            }

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            yield connection

    def rows(self, table: str) -> list[dict[str, Any]]:
        with self.connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(f"SELECT * FROM cmbs.{table} ORDER BY 1, 2".encode()).fetchall()

    def change(self, statement: str, *parameters: tuple[Any, ...]) -> bool:
        with self.connect() as connection:
            connection.execute("SET session_replication_role = replica")
            try:
                return sum(connection.execute(statement.encode(), each).rowcount for each in parameters) == len(
                    parameters
                )
            except psycopg.errors.IntegrityError:
                return False

    def restore(self) -> None:
        with self.connect() as connection, connection.transaction():
            connection.execute("SET LOCAL session_replication_role = replica")
            for table, rows in self._good.items():
                connection.execute(f"DELETE FROM cmbs.{table}".encode())
                for row in rows:
                    connection.execute(*_insert(table, row))

    def values_instead(self, table: str, column: str, value: Any) -> list[Any]:
        values: list[Any] = [None] if (table, column) in self.nullable and value is not None else []
        match value:
            case None:
                values += [7 if column == "seq" else b"x"]
            case bool():
                values += [not value]
            case str():
                values += [value + "x", ""]
            case int():
                values += [value + 1, value - 1, 2**40]
            case bytes():
                values += [value[:-1] + bytes([value[-1] ^ 1]), value[:-1], b""]
            case _:
                raise TypeError(f"no value instead of {value!r}")
        return values


def _insert(table: str, row: dict[str, Any]) -> tuple[bytes, tuple[Any, ...]]:
    marks = ", ".join(["%s"] * len(row))
    return f"INSERT INTO cmbs.{table} ({', '.join(row)}) VALUES ({marks})".encode(), tuple(row.values())


class Mutation(NamedTuple):
    """A change to one row, and where a check must find it."""

    what: str
    table: str
    statement: str
    parameters: tuple[Any, ...]
    names: frozenset[str]
    seqs: frozenset[int | None]
    column: str = ""

    def is_located_by(self, finding: Finding) -> bool:
        """Whether a finding names what was changed."""
        return (
            finding.table == self.table
            and finding.stream_id in (*self.names, "")
            and finding.column in ("", self.column)
            and finding.seq in (*self.seqs, None)
        )

    def is_mislocated_by(self, finding: Finding) -> bool:
        """Whether a finding names something that is in order."""
        tables = {self.table, COUNTERPARTS.get(self.table)}
        return (
            finding.table not in tables
            or finding.stream_id not in (*self.names, "")
            or (finding.table == EVENTS and finding.seq not in (*self.seqs, None))
        )


def mutations_of(database: Database, rows_per_table: int) -> Iterator[Mutation]:
    """Every column of every table, row by row: changed, deleted, and copied to where it does not belong."""
    for table in TABLES:
        rows = database.rows(table)
        step = max(1, len(rows) // rows_per_table)
        for row in rows[::step]:
            yield from _mutations_of_row(database, table, row)
            yield from _orphans_of_row(table, row)


def _mutations_of_row(database: Database, table: str, row: dict[str, Any]) -> Iterator[Mutation]:
    name = row[NAME_COLUMN[table]]
    key = KEYS.get(table, (NAME_COLUMN[table],))
    where = " AND ".join(f"{column} = %s" for column in key)
    place = tuple(row[column] for column in key)
    seq = row.get("seq")
    for column, value in row.items():
        for instead in database.values_instead(table, column, value):
            names = {name, instead} if column == NAME_COLUMN[table] and isinstance(instead, str) else {name}
            seqs = {seq, instead} if column == "seq" and isinstance(instead, int) else {seq}
            yield Mutation(
                f"{table}.{column} of {place}: {value!r:.40} -> {instead!r:.40}",
                table,
                f"UPDATE cmbs.{table} SET {column} = %s WHERE {where}",
                (instead, *place),
                frozenset(names),
                frozenset(seqs),
                column,
            )
    if table not in MAY_BE_GONE:
        statement = f"DELETE FROM cmbs.{table} WHERE {where}"
        yield Mutation(f"{table} without {place}", table, statement, place, frozenset({name}), frozenset({seq}))


def _orphans_of_row(table: str, row: dict[str, Any]) -> Iterator[Mutation]:
    """The row again, under a name that is not there; of an event also at the end of its own stream."""
    copies = {NAME_COLUMN[table]: {**row, NAME_COLUMN[table]: ORPHAN}}
    if table == EVENTS:
        copies["seq"] = {**row, "seq": 1000, "event_id": "new", "prev_event_hash": bytes(31) + b"x", "source_id": None}
    for column, copy in copies.items():
        statement, parameters = _insert(table, copy)
        name = copy[NAME_COLUMN[table]]
        yield Mutation(
            f"{table} with a second row under {name}",
            table,
            statement.decode(),
            parameters,
            frozenset({name}),
            frozenset({copy.get("seq"), row.get("seq")}),
            column,
        )


__all__ = ["Mutation", "PostgresDatabase", "SQLiteDatabase", "check_everything", "mutations_of", "populate"]
