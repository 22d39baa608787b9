"""The contract of an `EliminationStore` as tests, T-STORE-01 to T-STORE-10, for every store. Needs `pytest`.

::

    class TestMyStore(EliminationStoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: MyStore(tmp_path / "my.db")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from threading import Barrier
from typing import ClassVar
from uuid import uuid4

import pytest

from cmbs.errors import Conflict, SessionNotFound
from cmbs.spi import EliminationProvenance, EliminationResult, EliminationStore, RecoveredState
from cmbs.testing.fakes.threads import run_together
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS

OpenStore = Callable[[], EliminationStore]

UNIVERSE = frozenset("abcd")
SEEN = EliminationProvenance("source", "observation")
NOTHING: frozenset[str] = frozenset()
_THREADS = 4
_EACH = 20
_OVERLAP = 5
_WALKS = 5
_STEPS = 12


class EliminationStoreContract:
    """Subclass it as `Test…` and supply the fixture `open_store`: a function that opens the store.

    Each call gives a handle of its own on the same data, as another process would have it; where all is in one object,
    that object. What was opened is closed after the test, if it has a `close`. Sessions have fresh ids, so that tests
    may share a database.
    """

    hypothesis_ids: ClassVar[tuple[str, ...]] = HOSTILE_IDS
    """What is tried as ids. A store with rules of its own about ids leaves out what it refuses."""

    @pytest.fixture
    def opened(self, open_store: OpenStore) -> Iterator[OpenStore]:
        """As `open_store`, and closes what was opened."""
        with ExitStack() as stack:

            def open_and_close() -> EliminationStore:
                store = open_store()
                stack.callback(getattr(store, "close", lambda: None))
                return store

            yield open_and_close

    @pytest.fixture
    def store(self, opened: OpenStore) -> EliminationStore:
        """A store."""
        return opened()

    @pytest.fixture
    def session_id(self, store: EliminationStore) -> str:
        """A new session over `UNIVERSE`."""
        session_id = str(uuid4())
        store.create_session(session_id, UNIVERSE)
        return session_id

    def test_store_01_everything_survives_at_first(self, store: EliminationStore, session_id: str) -> None:
        """T-STORE-01."""
        assert isinstance(store, EliminationStore)
        assert store.get_survivors(session_id) == UNIVERSE
        assert store.get_eliminated(session_id) == NOTHING

    def test_store_02_an_elimination_takes_out_what_it_applied(self, store: EliminationStore, session_id: str) -> None:
        """T-STORE-02."""
        assert store.eliminate(session_id, {"a", "b"}, SEEN) == EliminationResult(frozenset("ab"), NOTHING)
        assert store.get_survivors(session_id) == frozenset("cd")

    def test_store_03_the_same_ids_again_were_eliminated_before(self, store: EliminationStore, session_id: str) -> None:
        """T-STORE-03."""
        store.eliminate(session_id, {"a", "b"}, SEEN)
        assert store.eliminate(session_id, {"a", "b"}, SEEN) == EliminationResult(NOTHING, frozenset("ab"))
        assert store.eliminate(session_id, {"b", "c"}, SEEN) == EliminationResult(frozenset("c"), frozenset("b"))
        assert store.get_survivors(session_id) == frozenset("d")

    def test_store_04_ids_outside_the_universe_change_nothing_and_are_in_neither_set(
        self, store: EliminationStore, session_id: str
    ) -> None:
        """T-STORE-04."""
        assert store.eliminate(session_id, {"y", "z"}, SEEN) == EliminationResult(NOTHING, NOTHING)
        assert store.eliminate(session_id, {"a", "z"}, SEEN) == EliminationResult(frozenset("a"), NOTHING)
        assert store.get_survivors(session_id) == frozenset("bcd")

    def test_store_05_tombstones_add_up(self, store: EliminationStore, session_id: str) -> None:
        """T-STORE-05."""
        for hypothesis_id in "abc":
            store.eliminate(session_id, {hypothesis_id}, SEEN)
        assert store.get_eliminated(session_id) == frozenset("abc")

    def test_store_06_survivors_and_tombstones_are_of_the_universe(
        self, store: EliminationStore, session_id: str
    ) -> None:
        """T-STORE-06."""
        for asked in ({"a", "z"}, {"z"}, {"b", "y"}):
            store.eliminate(session_id, asked, SEEN)
            assert store.get_survivors(session_id) | store.get_eliminated(session_id) <= UNIVERSE

    def test_store_07_nothing_is_survivor_and_tombstone_at_once(self, store: EliminationStore, session_id: str) -> None:
        """T-STORE-07."""
        for asked in ({"a"}, {"a", "b"}, UNIVERSE):
            store.eliminate(session_id, asked, SEEN)
            assert store.get_survivors(session_id) & store.get_eliminated(session_id) == NOTHING

    def test_store_08_what_is_recovered_fits_together(self, store: EliminationStore, session_id: str) -> None:
        """T-STORE-08."""
        assert store.recover(session_id) == RecoveredState(UNIVERSE, NOTHING, UNIVERSE)
        store.eliminate(session_id, {"a", "z"}, SEEN)
        recovered = store.recover(session_id)
        assert recovered == RecoveredState(UNIVERSE, frozenset("a"), frozenset("bcd"))
        assert recovered.survivors == recovered.hypothesis_ids - recovered.eliminated

    def test_store_09_eliminations_of_several_threads_are_all_applied_once(self, store: EliminationStore) -> None:
        """T-STORE-09: each thread has ids of its own and shares some with the next."""
        session_id = str(uuid4())
        step = _EACH - _OVERLAP
        everything = frozenset(str(number) for number in range(_THREADS * step + _OVERLAP))
        store.create_session(session_id, everything | {"stays"})
        begin = Barrier(_THREADS)
        results: list[EliminationResult] = []

        def eliminate(number: int) -> None:
            begin.wait()
            for each in range(number * step, number * step + _EACH):
                results.append(store.eliminate(session_id, {str(each)}, SEEN))  # noqa: PERF401 - seen as they come

        run_together(eliminate, _THREADS)
        applied = sorted(hypothesis_id for result in results for hypothesis_id in result.applied)
        assert applied == sorted(everything)
        assert store.get_eliminated(session_id) == everything
        assert store.get_survivors(session_id) == {"stays"}

    def test_store_10_an_elimination_of_nothing_is_nothing(self, store: EliminationStore, session_id: str) -> None:
        """T-STORE-10."""
        assert store.eliminate(session_id, NOTHING, SEEN) == EliminationResult(NOTHING, NOTHING)
        assert store.get_survivors(session_id) == UNIVERSE

    def test_a_session_is_created_once_and_keeps_its_universe(self, store: EliminationStore, session_id: str) -> None:
        """Creation is idempotent, and another universe is a `Conflict`."""
        store.eliminate(session_id, {"a"}, SEEN)
        store.create_session(session_id, UNIVERSE)
        for other in (frozenset("abc"), frozenset("abcde")):
            with pytest.raises(Conflict):
                store.create_session(session_id, other)
        assert store.recover(session_id) == RecoveredState(UNIVERSE, frozenset("a"), frozenset("bcd"))

    def test_a_session_that_was_never_created_is_not_found(self, store: EliminationStore) -> None:
        """`SessionNotFound`, and asking does not create it."""
        unknown = str(uuid4())
        with pytest.raises(SessionNotFound):
            store.eliminate(unknown, {"a"}, SEEN)
        for use in (store.get_survivors, store.get_eliminated, store.recover):
            with pytest.raises(SessionNotFound):
                use(unknown)

    def test_sessions_do_not_touch_each_other(self, store: EliminationStore, session_id: str) -> None:
        """Tombstones are of one session."""
        other = str(uuid4())
        store.create_session(other, UNIVERSE)
        store.eliminate(session_id, {"a"}, SEEN)
        assert store.eliminate(other, {"a", "b"}, SEEN) == EliminationResult(frozenset("ab"), NOTHING)
        assert store.get_survivors(session_id) == frozenset("bcd")

    def test_what_a_store_handed_out_does_not_change_later(self, store: EliminationStore, session_id: str) -> None:
        """No caller gets a live container."""
        before = store.recover(session_id)
        survivors, eliminated = store.get_survivors(session_id), store.get_eliminated(session_id)
        store.eliminate(session_id, {"a"}, SEEN)
        assert before == RecoveredState(UNIVERSE, NOTHING, UNIVERSE)
        assert (survivors, eliminated) == (UNIVERSE, NOTHING)

    def test_another_handle_sees_the_same(self, opened: OpenStore, store: EliminationStore, session_id: str) -> None:
        """What is written through one handle is there for the next, at once."""
        store.eliminate(session_id, {"a"}, SEEN)
        other = opened()
        assert other.recover(session_id) == RecoveredState(UNIVERSE, frozenset("a"), frozenset("bcd"))
        assert other.eliminate(session_id, {"a", "b"}, SEEN) == EliminationResult(frozenset("b"), frozenset("a"))
        assert store.get_survivors(session_id) == frozenset("cd")

    @pytest.mark.parametrize("seed", range(_WALKS))
    def test_any_ids_in_any_order(self, store: EliminationStore, seed: int) -> None:
        """Ids are opaque: what is eliminated is exactly what was asked for, whatever it is called."""
        chance, session_id = Random(seed), str(uuid4())  # noqa: S311 - a walk that can be taken again
        ids = list(self.hypothesis_ids)
        universe = frozenset(chance.sample(ids, len(ids) * 3 // 4))
        store.create_session(session_id, universe)
        gone: frozenset[str] = NOTHING
        for _ in range(_STEPS):
            asked = frozenset(chance.sample(ids, chance.randrange(5)))
            result = store.eliminate(session_id, asked, SEEN)
            assert result == EliminationResult((asked & universe) - gone, asked & gone)
            gone |= result.applied
            assert store.recover(session_id) == RecoveredState(universe, gone, universe - gone)
