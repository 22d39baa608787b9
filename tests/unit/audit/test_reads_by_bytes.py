"""A log is read by pages of bounded bytes, however large its events are: over HTTP, by followers, fsck and others."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cmbs.audit.fsck import check_stream
from cmbs.audit.transfer import export_lines
from cmbs.belief import reader
from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.http.live import journal, sources
from cmbs.http.live.feed import Page, Place, Source
from cmbs.http.live.journal import JournalSource
from cmbs.http.live.sources import SessionSource, SpaceSource
from cmbs.http.service import Service
from cmbs.http.spaces import reading
from cmbs.http.spaces.reading import Spaces
from cmbs.spi.audit_log import PAGE_BYTES
from cmbs.spi.journal import JOURNAL_BEGINNING
from cmbs.stores import Store, open_store
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.server import SubstrateServer
from cmbs.transparency.stream_trees import StreamTrees
from tests.support.in_process import Client, client_of
from tests.support.space_client import OPS
from tests.support.spaces import SPACE, World, delta
from tests.support.store_fixture import StoreFixture, declared

SMALL = 4_000
HOW_MANY = 40


class Served:
    """A session and a space of many events, written in turn, and their servers."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.belief = BeliefServer(store=self.store)
        self.world = World(self.store, belief=ServedBelief(self.belief))
        self.world.open()
        self.session_id = declared(self.belief)
        for number in range(HOW_MANY):
            self.belief.eliminate(self.session_id, "s", str(number), ["a"], {"log": "x" * (number % 7) * 300})
            self.world.propose(delta(one=str(number)))
        self.spaces = SubstrateServer(log=self.store, belief=ServedBelief(self.belief), keeper_seconds=None)

    def largest(self, stream_id: str) -> int:
        return max(len(stored.raw) for stored in self.store.read(stream_id))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    for module in (reader, reading, sources, journal):
        monkeypatch.setattr(module, "PAGE_BYTES", SMALL)
    made = Served()
    yield made
    made.spaces.close()
    made.world.close()
    made.belief.close()


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with client_of(BeliefApp(Service(served.belief, spaces=served.spaces))) as client:
        yield client


def read_all(client: Client, path: str, items: str) -> tuple[list[Any], int]:
    """What all pages have, in order, and how many there were. None is larger than it may be."""
    found: list[Any] = []
    cursor: dict[str, str] = {}
    for pages in range(1, 10_000):
        answer = client.get(path, params=cursor, headers={"x-cmbs-actor": OPS})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert body[items]
        found += body[items]
        if body["next_cursor"] is None:
            return found, pages
        # Entries within the bytes, or one; each goes out with its hash.
        assert len(answer.content) < 2 * SMALL + len(body[items]) * 400 or len(body[items]) == 1
        cursor = {"cursor": body["next_cursor"]}
    raise AssertionError("the pages do not end")


@pytest.mark.req("READ-BYTES-01")
def test_pages_of_an_audit_end_after_so_many_bytes_and_together_have_every_event(
    served: Served, client: Client
) -> None:
    paths = {served.session_id: f"/v1/sessions/{served.session_id}", f"space:{SPACE}": f"/v1/spaces/{SPACE}"}
    for stream_id, path in paths.items():
        events, pages = read_all(client, f"{path}/audit", "events")
        assert [each["seq"] for each in events] == list(range(len(served.store.read(stream_id))))
        assert pages > 5
    decisions, pages = read_all(client, f"/v1/spaces/{SPACE}/decisions", "decisions")
    assert len(decisions) == HOW_MANY
    assert pages > 5


@pytest.mark.req("READ-BYTES-01")
def test_followers_are_told_every_event_once_in_pages_of_so_many_bytes(served: Served) -> None:
    def walk(read: Callable[[Place, int], Page], start: Place) -> list[Page]:
        pages: list[Page] = []
        while not pages or pages[-1].is_full:
            pages.append(read(pages[-1].end if pages else start, 64))
            assert len(pages) < 1_000
        return pages

    told: list[tuple[Source, Place, int | None]] = [
        (SessionSource(served.belief, served.session_id), Place(-1), len(served.store.read(served.session_id))),
        (SpaceSource(served.spaces, SPACE), Place(-1), len(served.store.read(f"space:{SPACE}"))),
        (JournalSource(served.belief, Spaces(served.belief, served.spaces)), JOURNAL_BEGINNING, None),
    ]
    for source, start, count in told:
        pages = walk(source.read, start)
        places = [item.place for page in pages for item in page.items]
        assert places == sorted(set(places))
        assert len(places) == (len(served.store.journal(JOURNAL_BEGINNING, 10_000)) if count is None else count)
        assert len(pages) > 5
        for page in pages:
            # The last of each stream may be beyond.
            assert sum(len(item.frame) for item in page.items) < 3 * SMALL + 2 * served.largest(served.session_id)


# --- memory ---

EVENT_BYTES = 700_000
EVENTS = 100


def write_large(store: Store) -> str:
    """A session of 70 MB."""
    server = BeliefServer(store=store)
    session_id = declared(server)
    for number in range(EVENTS):
        server.eliminate(session_id, "s", str(number), ["a"], {"log": "x" * EVENT_BYTES})
    server._sessions.close()
    return session_id


def measure(action: Callable[[], object]) -> int:
    """The most bytes that were held while something ran."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.req("READ-BYTES-01")
@pytest.mark.parametrize("place", ["sqlite", pytest.param("postgres", marks=pytest.mark.deep)])
def test_no_reader_of_a_large_log_holds_more_than_a_few_pages_of_it(place: str, tmp_path: Path) -> None:
    with StoreFixture.at(place, tmp_path) as fixture, closing(open_store(fixture.url)) as store:
        session_id = write_large(store)
        head = store.head(session_id)
        assert head is not None
        store.put_checkpoint(session_id, 0, b"none")

        def replay() -> None:
            server = BeliefServer(store=store)
            assert server.query_belief(session_id).survivors
            server._sessions.close()

        def page() -> None:
            server = BeliefServer(store=store)
            seen = 0
            cursor: str | None = None
            while seen == 0 or cursor is not None:
                entries, cursor = server.audit_page(session_id, cursor)
                seen += len(entries)
            assert seen == EVENTS + 1
            server._sessions.close()

        actions: dict[str, Callable[[], object]] = {
            "fsck": lambda: check_stream(store, session_id),
            "export": lambda: sum(map(len, export_lines(store, [session_id]))),
            "replay": replay,
            "pages": page,
            "trees": lambda: StreamTrees(store).measure(session_id, None),
        }
        for name, action in actions.items():
            # A page, what comes after it from the database, and what is made of an entry.
            assert measure(action) < 4 * PAGE_BYTES, name
