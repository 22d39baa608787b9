"""Drivers: where the graph lives."""

from __future__ import annotations

from urllib.parse import unquote

from cmbs.errors import InvalidRequest
from cmbs.tee.kernel.store import GraphStore
from cmbs.tee.stores.memory import MemoryGraphStore
from cmbs.tee.stores.sqlite import SQLiteGraphStore

_FILE = "sqlite:///"
_SERVER = ("neo4j://", "neo4j+s://", "neo4j+ssc://", "bolt://", "bolt+s://", "bolt+ssc://")
_SHAPES = "`memory:`, `sqlite:///relative.db`, `sqlite:////absolute/path.db` or `neo4j://user:password@host`"


def open_graph_store(url: str) -> GraphStore:
    """The graph store that a URL names: in memory, in an SQLite file, or in a Neo4j database."""
    if url == "memory:":
        return MemoryGraphStore()
    if url.startswith(_FILE) and url != _FILE:
        return SQLiteGraphStore(unquote(url.removeprefix(_FILE)))
    if url.startswith(_SERVER):
        try:
            from cmbs.tee.stores.neo4j import Neo4jGraphStore
        except ImportError as exc:
            raise InvalidRequest("a graph in Neo4j needs the `neo4j` extra: `pip install 'cmbs[neo4j]'`") from exc
        return Neo4jGraphStore(url)
    # The URL is not quoted: there may be a password in it.
    raise InvalidRequest(f"the given URL is not a graph store; use {_SHAPES}")
