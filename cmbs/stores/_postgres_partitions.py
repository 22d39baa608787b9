"""Tables that are hash-partitioned by stream: a stream lies in one partition, with everything that is unique in it.

The partitions are made of the tables of the one schema. Only an empty database is partitioned:
logs are carried over by `cmbs export` and `cmbs import`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
from psycopg import sql

# Every table but `format` and `journal_base` belongs to streams, by a column of one of these names.
_TABLES = """
SELECT c.relname, a.attname, c.relkind = 'p' FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname IN ('stream_id', 'session_id')
WHERE c.relnamespace = 'cmbs'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY c.relname
"""
_COUNT = """
SELECT count(*) FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhparent
WHERE c.relnamespace = 'cmbs'::regnamespace AND c.relname = 'audit_events' AND c.relkind = 'p'
"""
_CONSTRAINTS = """
SELECT format('ALTER TABLE cmbs.%%I ADD CONSTRAINT %%I %%s', %(table)s::text, conname, pg_get_constraintdef(oid))
FROM pg_constraint WHERE conrelid = %(qualified)s::regclass AND contype IN ('p', 'u', 'c') ORDER BY conname
"""
_INDEXES = """
SELECT pg_get_indexdef(indexrelid) FROM pg_index AS i WHERE indrelid = %(qualified)s::regclass
AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = i.indexrelid) ORDER BY 1
"""
# Those of rows are handed down to partitions by the database; those of statements are not.
_TRIGGERS = """
SELECT pg_get_triggerdef(oid), (tgtype & 1) = 0 FROM pg_trigger
WHERE tgrelid = %(qualified)s::regclass AND NOT tgisinternal ORDER BY tgname
"""


class _Definitions(NamedTuple):
    """What belongs to a table beside its columns, as SQL."""

    constraints: list[str]
    indexes: list[str]
    triggers: list[tuple[str, bool]]


def count_partitions(connection: psycopg.Connection[Any]) -> int:
    """How many partitions the log has; 0 where it is one table."""
    row = connection.execute(_COUNT).fetchone()
    return int(row[0]) if row else 0


def partition_tables(connection: psycopg.Connection[Any], partitions: int) -> None:
    """Cut every table of an empty database in so many partitions; DatabaseError where something is in it."""
    with connection.transaction():
        for table, key, is_partitioned in connection.execute(_TABLES).fetchall():
            name = sql.Identifier("cmbs", table)
            if is_partitioned:
                raise psycopg.DatabaseError("the tables are partitioned already; their number cannot be changed")
            connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(name))
            if connection.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(name)).fetchone():
                raise psycopg.DatabaseError(
                    f"`{table}` is not empty: export what is there, and import it into a database that is partitioned"
                )
            _partition(connection, table, key, partitions)


def _partition(connection: psycopg.Connection[Any], table: str, key: str, partitions: int) -> None:
    definitions = _read_definitions(connection, table)
    name, plain = sql.Identifier("cmbs", table), sql.Identifier("cmbs", f"{table}_plain")
    connection.execute(sql.SQL("ALTER TABLE {} RENAME TO {}").format(name, sql.Identifier(f"{table}_plain")))
    connection.execute(
        sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS INCLUDING STORAGE) PARTITION BY HASH ({})").format(
            name, plain, sql.Identifier(key)
        )
    )
    connection.execute(sql.SQL("DROP TABLE {}").format(plain))
    parts = [f"{table}_{number}" for number in range(partitions)]
    for number, part in enumerate(parts):
        connection.execute(
            sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES WITH (MODULUS {}, REMAINDER {})").format(
                sql.Identifier("cmbs", part), name, sql.Literal(partitions), sql.Literal(number)
            )
        )
    for definition in (*definitions.constraints, *definitions.indexes):
        connection.execute(definition.encode())
    for definition, of_statement in definitions.triggers:
        for target in [table, *(parts if of_statement else [])]:
            connection.execute(definition.replace(f" ON cmbs.{table} ", f" ON cmbs.{target} ").encode())


def _read_definitions(connection: psycopg.Connection[Any], table: str) -> _Definitions:
    names = {"table": table, "qualified": f"cmbs.{table}"}
    return _Definitions(
        [row[0] for row in connection.execute(_CONSTRAINTS, names)],
        [row[0] for row in connection.execute(_INDEXES, names)],
        connection.execute(_TRIGGERS, names).fetchall(),
    )
