"""How many bytes a store takes for an event: at most twice its canonical bytes and 300 more."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.replay import verify_session
from cmbs.spi import Append
from cmbs.stores import open_store
from cmbs.testing.streams import stream
from tests.support.postgres import fresh_database

MAX_SHARE = 2
MAX_OVERHEAD_BYTES = 300
GROUP = 100


def long_session() -> list[Append]:
    """One id is eliminated at a time, until few are left."""
    return stream(hypotheses=[f"hypothesis-{number:05d}" for number in range(3000)], events=3000)


def short_sessions() -> list[Append]:
    return [item for number in range(150) for item in stream(number, [f"h{each}" for each in range(12)], 12)]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'cmbs.db'}"
        return
    with fresh_database() as url:
        yield url


def measure(url: str) -> int:
    """The bytes of all tables and indexes."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            (pages,), (size,) = (
                connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
            )
            (free,) = connection.execute("PRAGMA freelist_count").fetchone()
            return int((pages - free) * size)
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            " WHERE relnamespace = 'cmbs'::regnamespace AND relkind = 'r'"
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.req("STORE-SIZE-01")
@pytest.mark.parametrize("events", [long_session, short_sessions])
def test_an_event_takes_at_most_twice_its_bytes_and_a_little(
    place: str, events: Callable[[], list[Append]], record_property: Callable[[str, object], None]
) -> None:
    items = events()
    with closing(open_store(place)) as store:
        empty = measure(place)
        for start in range(0, len(items), GROUP):
            store.append(items[start : start + GROUP])
        if items[-1].seq > 1000:
            last = items[-1]
            entries = [item.entry for item in items]
            store.put_checkpoint(last.stream_id, last.seq, freeze(verify_session(last.stream_id, entries)))
        taken = measure(place) - empty
    canonical = sum(len(item.entry.raw) for item in items)
    allowed = MAX_SHARE * canonical + MAX_OVERHEAD_BYTES * len(items)
    record_property("bytes", {"place": place, "stored": taken // len(items), "canonical": canonical // len(items)})
    assert taken <= allowed
