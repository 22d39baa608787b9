"""The schema of a PostgreSQL database, from its catalogs, compared with the one that is made in an empty database."""

from __future__ import annotations

import re
from typing import Any

import psycopg

from cmbs.spi.stored_rows import Finding, show
from cmbs.stores._postgres_partitions import count_partitions, partition_tables
from cmbs.stores._postgres_schema import SCHEMA, create_schema, is_marked

# Every object in the schema as (kind, name, definition); owners and grants are the business of who runs the database.
_CATALOG = rb"""
SELECT 'table', c.relname::text, concat_ws(' ', c.relkind, c.relpersistence, c.relrowsecurity, c.relforcerowsecurity,
        c.relispartition, array_to_string(c.reloptions, ','), pg_get_partkeydef(c.oid),
        pg_get_expr(c.relpartbound, c.oid))
    FROM pg_class c WHERE c.relnamespace = 'cmbs'::regnamespace AND c.relkind IN ('r', 'p', 'f', 'm', 'S')
UNION ALL
SELECT 'view', c.relname::text, pg_get_viewdef(c.oid)
    FROM pg_class c WHERE c.relnamespace = 'cmbs'::regnamespace AND c.relkind = 'v'
UNION ALL
SELECT 'column', c.relname || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attnotnull THEN 'NOT NULL' END, l.collname, a.attstorage, a.attidentity, a.attgenerated,
        pg_get_expr(d.adbin, d.adrelid))
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p', 'f', 'm')
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'cmbs'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT 'index', c.relname::text, concat_ws(' ', pg_get_indexdef(i.indexrelid), i.indisvalid, i.indisready)
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relnamespace = 'cmbs'::regnamespace
UNION ALL
SELECT 'constraint', conrelid::regclass || '.' || conname, concat_ws(' ', pg_get_constraintdef(oid), convalidated)
    FROM pg_constraint WHERE connamespace = 'cmbs'::regnamespace
UNION ALL
SELECT 'trigger', t.tgrelid::regclass || '.' || t.tgname, concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'cmbs'::regnamespace AND NOT t.tgisinternal
UNION ALL
SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
    FROM pg_proc p WHERE p.pronamespace = 'cmbs'::regnamespace AND p.prokind IN ('f', 'p')
UNION ALL
SELECT 'rule', r.tablename || '.' || r.rulename, r.definition FROM pg_rules r WHERE r.schemaname = 'cmbs'
UNION ALL
SELECT 'policy', y.tablename || '.' || y.policyname, concat_ws(' ', y.permissive, y.roles::text, y.cmd, y.qual,
        y.with_check)
    FROM pg_policies y WHERE y.schemaname = 'cmbs'
"""
_BODIES = re.compile(r"CREATE FUNCTION cmbs\.(\w+)\(.*?AS \$\$(.*?)\$\$;", re.DOTALL)
_TRIGGERS = re.compile(r"CREATE TRIGGER (\w+) [^;]*? ON cmbs\.(\w+)")
# Where the stored schema stands aside for a moment that no other connection sees.
_ASIDE = "cmbs_being_checked"


class _Undo(Exception):
    """Nothing of it is to stay."""


def find_schema_faults(connection: psycopg.Connection[Any]) -> list[Finding]:
    """What differs in the schema; it is made anew for comparison, in a transaction that is then rolled back."""
    stored = _read_catalog(connection)
    partitions = count_partitions(connection)
    expected: dict[tuple[str, str], str] = {}
    try:
        with connection.transaction():
            connection.execute(f"ALTER SCHEMA cmbs RENAME TO {_ASIDE}".encode())
            create_schema(connection)
            if partitions > 0:
                partition_tables(connection, partitions)
            expected = _read_catalog(connection)
            raise _Undo
    except _Undo:
        pass
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction) as exc:
        return [Finding(f"it could not be compared: {exc}", "schema")]
    differing = sorted(key for key in {*stored, *expected} if stored.get(key) != expected.get(key))
    return [_describe_fault(key, stored.get(key), expected.get(key)) for key in differing]


def _read_catalog(connection: psycopg.Connection[Any]) -> dict[tuple[str, str], str]:
    return {(kind, name): definition for kind, name, definition in connection.execute(_CATALOG)}


def _describe_fault(key: tuple[str, str], found: str | None, wanted: str | None) -> Finding:
    kind, name = key
    if found is None:
        what = f"the {kind} `{name}` is missing"
    elif wanted is None:
        what = f"the {kind} `{name}` does not belong here"
    else:
        what = f"the {kind} `{name}` was changed: it is {show(found)}, expected {show(wanted)}"
    return Finding(what, "schema", column=name, stored=found, expected=wanted)


def refuse_faulty_schema(connection: psycopg.Connection[Any]) -> None:
    """DatabaseError where a function or trigger that writing relies on is missing, changed or switched off."""
    bodies = dict(
        connection.execute("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'cmbs'::regnamespace").fetchall()
    )
    triggers = connection.execute(
        "SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE c.relnamespace = 'cmbs'::regnamespace AND t.tgenabled IN ('O', 'A')"
    ).fetchall()
    faults = [
        f"the function `{name}` is not the one that belongs here"
        for name, body in _BODIES.findall(SCHEMA)
        if bodies.get(name) != body
    ]
    faults += [
        f"the trigger `{name}` on `{table}` is missing or switched off"
        for name, table in sorted(set(_TRIGGERS.findall(SCHEMA)) - set(triggers))
    ]
    if faults:
        raise psycopg.DatabaseError(
            f"{faults[0]}; nothing was written. `cmbs fsck` says what else differs: put it back as it was, or restore a"
            " backup"
        )


def refuse_other_database(connection: psycopg.Connection[Any]) -> None:
    """DatabaseError where there is no store in this database, StoreRefused where it has another format."""
    if not is_marked(connection):
        raise psycopg.DatabaseError("there is no cmbs store in this database")
