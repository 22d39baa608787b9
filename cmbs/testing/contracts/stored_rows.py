"""The contract of a store that shows its rows, as tests. Needs `pytest`.

::

    class TestMyRows(StoredRowsContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: MyStore(tmp_path / "my.db")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Protocol

import pytest

from cmbs.spi import AuditLog, EliminationProvenance, EliminationStore
from cmbs.spi.stored_rows import Row, StoredRows
from cmbs.testing.streams import space_stream, stream

SEEN = EliminationProvenance("source", "observation")
PAGE = 100
SHORT_PAGE = 2


class StoreWithRows(AuditLog, EliminationStore, StoredRows, Protocol):
    """A store that is log and tombstones in one, and shows its rows."""


class StoredRowsContract:
    """The contract of `StoredRows`. Subclass it as `Test…` and supply the fixture `open_store`, of an empty store."""

    @pytest.fixture
    def store(self, open_store: Callable[[], StoreWithRows]) -> Iterator[StoreWithRows]:
        """An empty store."""
        store = open_store()
        yield store
        store.close()

    def test_an_empty_store_has_no_rows_and_nothing_wrong(self, store: StoreWithRows) -> None:
        """And it knows itself for one that shows its rows."""
        assert isinstance(store, StoredRows)
        assert (store.check_schema(), store.find_nameless_rows(), store.row_names(None, PAGE)) == ([], [], [])
        page = store.rows("none", None, PAGE)
        assert (list(page.events), page.beside) == ([], page.beside)
        assert page.beside is not None
        assert not any(page.beside)

    def test_the_rows_that_are_there_are_those_that_are_expected(self, store: StoreWithRows) -> None:
        """After every append, value by value and type by type."""
        items = stream(events=4)
        for number, item in enumerate(items):
            store.append([item])
            page = store.rows(item.stream_id, None, PAGE)
            expected = [store.expect_event(each) for each in items[: number + 1]]
            assert [dict(row) for row in page.events] == [dict(row) for row in expected]
            types = [[type(row[column]) for column in row] for row in expected]
            assert [[type(row[column]) for column in row] for row in page.events] == types
            assert page.beside is not None
            assert page.beside.session == store.expect_session(items[0], item)
        assert (store.check_schema(), store.find_nameless_rows(), store.check_journal()) == ([], [], [])

    def test_what_stands_beside_comes_with_the_last_page(self, store: StoreWithRows) -> None:
        """A full page may not be the last."""
        items = stream(events=5)
        store.append(items)
        seen: list[object] = []
        after: object = None
        while True:
            page = store.rows(items[0].stream_id, after, SHORT_PAGE)
            seen += [row["seq"] for row in page.events]
            if page.beside is not None:
                break
            assert len(page.events) == SHORT_PAGE
            after = page.events[-1]["seq"]
        assert seen == [0, 1, 2, 3, 4]

    def test_a_page_ends_with_the_bytes_that_are_wanted(self, store: StoreWithRows) -> None:
        """One row is there in any case, and what stands beside comes with the last page, whatever ended it."""
        items = stream(events=5)
        store.append(items)
        seen: list[object] = []
        after: object = None
        for wanted in (1, len(items[1].entry.raw) + len(items[2].entry.raw), 2**31):
            page = store.rows(items[0].stream_id, after, PAGE, wanted)
            seen.append([row["seq"] for row in page.events])
            assert (page.beside is None) == (wanted < 2**31)
            after = page.events[-1]["seq"]
        assert seen == [[0], [1, 2], [3, 4]]

    def test_the_keys_of_a_space_are_those_that_are_expected(self, store: StoreWithRows) -> None:
        """Page by page, value by value."""
        items = space_stream()
        store.append(items)
        store.append(stream())
        expected = [dict(row) for item in items for row in store.expect_lookups(item)]
        assert len(expected) > len(items)
        seen: list[dict[str, object]] = []
        row: Row | None = None
        while page := store.lookup_rows(items[0].stream_id, row, SHORT_PAGE):
            assert len(page) <= SHORT_PAGE
            seen += map(dict, page)
            row = page[-1]
        assert seen == sorted(expected, key=lambda each: (each["key"], each["seq"]))
        assert list(store.lookup_rows(stream()[0].stream_id, None, PAGE)) == []

    def test_an_event_is_found_by_the_one_before(self, store: StoreWithRows) -> None:
        """Wherever it stands."""
        items = stream()
        store.append(items)
        for before, item in pairwise(items):
            found = store.row_following(item.stream_id, before.entry.event_hash)
            assert found == store.expect_event(item)
        assert store.row_following(items[0].stream_id, items[-1].entry.event_hash) is None

    def test_every_table_is_shown_and_every_name_is_listed(self, store: StoreWithRows) -> None:
        """Intents, checkpoints, and sessions that have no log."""
        first, second, third = stream()
        store.append([first])
        store.put_intent(second)
        store.put_checkpoint(first.stream_id, 0, b"data")
        store.create_session("apart", frozenset("ab"))
        store.eliminate("apart", {"a"}, SEEN)
        beside = store.rows(first.stream_id, None, PAGE).beside
        assert beside is not None
        assert beside.intent == store.expect_intent(second)
        assert beside.checkpoint is not None
        assert (beside.checkpoint["seq"], beside.checkpoint["data"]) == (0, b"data")
        apart = store.rows("apart", None, PAGE).beside
        assert apart is not None
        assert list(apart.tombstones) == [store.expect_tombstone("apart", "a")]
        assert apart.universe is not None
        names = sorted([first.stream_id, "apart"])
        assert store.row_names(None, PAGE) == names
        assert [store.row_names(None, 1), store.row_names(names[0], 1), store.row_names(names[1], 1)] == [
            names[:1],
            names[1:],
            [],
        ]
        store.append([second, third])
