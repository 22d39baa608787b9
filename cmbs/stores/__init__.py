"""Drivers: where sessions live."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from cmbs.errors import InvalidRequest
from cmbs.spi import EliminationProvenance, EliminationResult, EliminationStore, RecoveredState
from cmbs.stores.memory import InMemoryStore
from cmbs.stores.sqlite import InspectedSQLiteStore, SQLiteStore

if TYPE_CHECKING:
    from cmbs.stores.postgres import PostgresStore
    from cmbs.stores.tee import TeeStore
    from cmbs.tee.tokens import Token

Store: TypeAlias = "InMemoryStore | SQLiteStore | PostgresStore"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")
_SHAPES = "`memory:`, `sqlite:///relative.db`, `sqlite:////absolute/path.db` or `postgresql://user@host/database`"


def sqlite_path(url: str) -> Path | None:
    """The file that an SQLite URL names; None for any other URL."""
    prefix = "sqlite:///"
    return Path(unquote(url.removeprefix(prefix))) if url.startswith(prefix) and url != prefix else None


def open_store(url: str, timeout_seconds: float = 10.0) -> Store:
    """The store that a URL names: in memory, in an SQLite file, or in a PostgreSQL database.

    `timeout_seconds` is how long a caller waits for others who write, or for a database that does not answer.
    """
    if url == "memory:":
        return InMemoryStore()
    path = sqlite_path(url)
    if path is not None:
        return SQLiteStore(path, timeout_seconds)
    if url.startswith(POSTGRES_SCHEMES):
        return open_postgres(url, timeout_seconds)
    raise InvalidRequest(f"`{url}` is not a store; use {_SHAPES}", {"url": url})


def inspect_store(url: str, timeout_seconds: float = 10.0) -> Store:
    """The store that a URL names, as it is: where it has this format, whatever it lacks is no reason to refuse it.

    To be looked at, by `cmbs fsck` and `cmbs verify`, and not written to.
    """
    path = sqlite_path(url)
    if path is not None:
        return InspectedSQLiteStore(path, timeout_seconds)
    if url.startswith(POSTGRES_SCHEMES):
        return open_postgres(url, timeout_seconds, inspected=True)
    return open_store(url, timeout_seconds)


def open_postgres(url: str, timeout_seconds: float = 10.0, *, inspected: bool = False) -> PostgresStore:
    """The store in a PostgreSQL database; InvalidRequest where the driver is not installed."""
    try:
        from cmbs.stores.postgres import InspectedPostgresStore, PostgresStore
    except ImportError as exc:
        raise InvalidRequest("a PostgreSQL store needs the `postgres` extra: `pip install 'cmbs[postgres]'`") from exc
    return InspectedPostgresStore(url, timeout_seconds) if inspected else PostgresStore(url, timeout_seconds)


def open_tee(
    endpoint: str,
    *,
    token: Token | None = None,
    authorities: bytes | None = None,
    certificate: tuple[bytes, bytes] | None = None,
    timeout_seconds: float = 10.0,
) -> TeeStore:
    """The elimination store in the Tee at `host:port`. It keeps no events: a log goes beside it."""
    host, _, port = endpoint.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and "/" not in endpoint):
        raise InvalidRequest(f"`{endpoint}` is not where a Tee can listen; use `host:port`", {"endpoint": endpoint})
    try:
        from cmbs.stores.tee import TeeStore
    except ImportError as exc:
        raise InvalidRequest("tombstones in Tee need the `tee` extra: `pip install 'cmbs[tee]'`") from exc
    return TeeStore(
        endpoint, token=token, authorities=authorities, certificate=certificate, timeout_seconds=timeout_seconds
    )


__all__ = [
    "POSTGRES_SCHEMES",
    "EliminationProvenance",
    "EliminationResult",
    "EliminationStore",
    "InMemoryStore",
    "RecoveredState",
    "SQLiteStore",
    "Store",
    "inspect_store",
    "open_postgres",
    "open_store",
    "open_tee",
    "sqlite_path",
]
