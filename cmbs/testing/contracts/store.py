"""The contract of a store that is `EliminationStore` and `AuditLog` in one, as tests. Needs `pytest`.

::

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: MyStore(tmp_path / "my.db")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from msgspec import structs

from cmbs.errors import Conflict
from cmbs.spi import EliminationProvenance, RecoveredState, StaleHead
from cmbs.testing.fakes.failing_store import AnyStore
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS
from cmbs.testing.streams import stream

OpenStore = Callable[[], AnyStore]

UNIVERSE = frozenset("abcd")
SEEN = EliminationProvenance("source", "observation")
NOTHING: frozenset[str] = frozenset()


class StoreContract:
    """What binds log and tombstones, beyond the contracts that each has for itself.

    Subclass it as `Test…` and supply the fixture `open_store`, as for `EliminationStoreContract`, of an empty store.
    """

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Iterator[AnyStore]:
        """An empty store."""
        with ExitStack() as stack:
            store = open_store()
            stack.callback(store.close)
            yield store

    def test_tombstones_follow_the_log(self, store: AnyStore) -> None:
        """After each append they are what the entries so far eliminated."""
        items = stream()
        session_id, gone = items[0].stream_id, NOTHING
        for item in items:
            store.append([item])
            gone |= frozenset(item.tombstones.ids if item.tombstones else ())
            assert store.recover(session_id) == RecoveredState(UNIVERSE, gone, UNIVERSE - gone)
        assert gone == frozenset("ab")
        assert (store.get_survivors(session_id), store.get_eliminated(session_id)) == (frozenset("cd"), gone)

    def test_tombstones_follow_the_log_whatever_the_ids(self, store: AnyStore) -> None:
        """Each hostile id, one after the other."""
        items = stream(hypotheses=sorted(HOSTILE_IDS), events=len(HOSTILE_IDS))
        store.append(items)
        everything, gone = (
            frozenset(HOSTILE_IDS),
            frozenset(each for item in items if item.tombstones for each in item.tombstones.ids),
        )
        assert len(gone) == len(HOSTILE_IDS) - 1
        assert store.recover(items[0].stream_id) == RecoveredState(everything, gone, everything - gone)

    def test_an_append_that_is_refused_leaves_no_tombstones(self, store: AnyStore) -> None:
        """Entry and tombstones are written together or not at all."""
        declaration, first, second = stream()
        store.append([declaration])
        for group in ([first, structs.replace(second, seq=9)], [second], [first, first]):
            with pytest.raises(StaleHead):
                store.append(group)
            assert store.get_eliminated(declaration.stream_id) == NOTHING
        store.append([first, second])
        assert store.get_eliminated(declaration.stream_id) == frozenset("ab")

    def test_an_intent_is_no_tombstone(self, store: AnyStore) -> None:
        """What is only intended did not happen."""
        declaration, first, _ = stream()
        store.append([declaration])
        store.put_intent(first)
        assert store.get_survivors(first.stream_id) == UNIVERSE
        store.append([first])
        assert store.get_survivors(first.stream_id) == frozenset("bcd")

    def test_tombstones_cannot_be_added_past_the_log_of_a_session(self, store: AnyStore) -> None:
        """A `Conflict`: log and tombstones would tell different stories."""
        declaration, first, _ = stream()
        store.append([declaration])
        with pytest.raises(Conflict):
            store.eliminate(declaration.stream_id, {"d"}, SEEN)
        with pytest.raises(Conflict):
            store.create_session(declaration.stream_id, frozenset("abc"))
        store.create_session(declaration.stream_id, UNIVERSE)
        store.append([first])
        assert store.get_eliminated(declaration.stream_id) == frozenset("a")

    def test_a_session_without_a_log_is_in_no_list(self, store: AnyStore) -> None:
        """One that was only created has tombstones, and no events."""
        store.create_session("apart", UNIVERSE)
        store.eliminate("apart", {"a"}, SEEN)
        assert (store.read("apart"), store.head("apart"), store.sessions(None, 10)) == ([], None, [])
        assert store.get_survivors("apart") == frozenset("bcd")
