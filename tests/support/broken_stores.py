"""Stores that each break one law; tests/contract/test_contract_suites.py runs the shipped contracts over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from threading import Barrier, BrokenBarrierError
from typing import Any, TypeVar

import pytest
from msgspec import structs

from cmbs.errors import SessionNotFound, StoreUnavailable
from cmbs.ledger import GENESIS, Head, StoredEntry
from cmbs.spi import (
    Append,
    Opening,
    RecoveredState,
    SessionSummary,
    StaleHead,
    Tombstones,
)
from cmbs.spi import (
    EliminationProvenance as Provenance,
)
from cmbs.spi import (
    EliminationResult as Result,
)
from cmbs.spi.session_search import ListedSession, SessionQuery
from cmbs.stores.memory import InMemoryStore
from cmbs.testing.contracts.audit_log import AuditLogContract
from cmbs.testing.contracts.elimination_store import EliminationStoreContract
from cmbs.testing.contracts.session_search import SessionSearchContract
from cmbs.testing.contracts.store import StoreContract

S = TypeVar("S")
NOTHING: frozenset[str] = frozenset()
CONTRACTS = (EliminationStoreContract, AuditLogContract, StoreContract, SessionSearchContract)
# The test class of each broken store, and the test of its contract that must notice.
NOTICED_BY: dict[tuple[str, type], str] = {}


def breaks(contract: type, test: str, *, apart: bool = False) -> Callable[[type[S]], type[S]]:
    """Put a store under a contract of which `test` must fail; `apart`: each handle has data of its own."""

    def register(store: type[S]) -> type[S]:
        def open_store(_: Any) -> Callable[[], S]:
            kept = store()
            return store if apart else lambda: kept

        name = f"Test{store.__name__}"
        fixture = "open_log" if contract in (AuditLogContract, SessionSearchContract) else "open_store"
        assert callable(getattr(contract, test))
        globals()[name] = type(name, (contract,), {fixture: pytest.fixture(open_store), "__module__": __name__})
        NOTICED_BY[name, contract] = test
        return store

    return register


class Meeting:
    """Where two threads wait for each other, so that what is not atomic is caught at it."""

    def __init__(self) -> None:
        self._barrier = Barrier(2)

    def meet(self) -> None:
        try:
            self._barrier.wait(0.05)
        except BrokenBarrierError:
            with suppress(BrokenBarrierError):
                self._barrier.reset()


# --- elimination stores ---


@breaks(EliminationStoreContract, "test_store_01_everything_survives_at_first")
class BornWithATombstone(InMemoryStore):
    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        super().create_session(session_id, hypothesis_ids)
        self._streams[session_id].tombstones.add("d")


@breaks(EliminationStoreContract, "test_store_02_an_elimination_takes_out_what_it_applied")
class SurvivorsForEver(InMemoryStore):
    def get_survivors(self, session_id: str) -> frozenset[str]:
        return self.recover(session_id).hypothesis_ids


@breaks(EliminationStoreContract, "test_store_07_nothing_is_survivor_and_tombstone_at_once")
class SurvivorsWithTombstones(SurvivorsForEver):
    pass


class Answering(InMemoryStore):
    """Does what it should, and answers otherwise."""

    def answer(self, asked: frozenset[str], result: Result) -> Result:
        return result

    def eliminate(self, session_id: str, eliminated: AbstractSet[str], provenance: Provenance) -> Result:
        return self.answer(frozenset(eliminated), super().eliminate(session_id, eliminated, provenance))


@breaks(EliminationStoreContract, "test_store_03_the_same_ids_again_were_eliminated_before")
class AlwaysApplied(Answering):
    def answer(self, asked: frozenset[str], result: Result) -> Result:
        return Result(result.applied | result.already_eliminated, NOTHING)


@breaks(EliminationStoreContract, "test_store_04_ids_outside_the_universe_change_nothing_and_are_in_neither_set")
class UnknownIsGone(Answering):
    def answer(self, asked: frozenset[str], result: Result) -> Result:
        return Result(result.applied, asked - result.applied)


@breaks(EliminationStoreContract, "test_store_05_tombstones_add_up")
class TheLastAlone(InMemoryStore):
    def eliminate(self, session_id: str, eliminated: AbstractSet[str], provenance: Provenance) -> Result:
        self._stream(session_id).tombstones.clear()
        return super().eliminate(session_id, eliminated, provenance)


@breaks(EliminationStoreContract, "test_store_06_survivors_and_tombstones_are_of_the_universe")
class TombstonesForUnknownIds(InMemoryStore):
    def eliminate(self, session_id: str, eliminated: AbstractSet[str], provenance: Provenance) -> Result:
        result = super().eliminate(session_id, eliminated, provenance)
        self._stream(session_id).tombstones.update(eliminated)
        return result


@breaks(EliminationStoreContract, "test_store_08_what_is_recovered_fits_together")
class RecoversSurvivorsAsTheyWere(InMemoryStore):
    def recover(self, session_id: str) -> RecoveredState:
        universe, eliminated, _ = vars(super().recover(session_id)).values()
        return RecoveredState(universe, eliminated, universe)


@breaks(EliminationStoreContract, "test_store_09_eliminations_of_several_threads_are_all_applied_once")
class LosesUpdates(InMemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._meeting = Meeting()

    def eliminate(self, session_id: str, eliminated: AbstractSet[str], provenance: Provenance) -> Result:
        stream = self._stream(session_id)
        before = frozenset(stream.tombstones)
        self._meeting.meet()
        stream.tombstones = {*before, *eliminated}
        return Result(frozenset(eliminated) - before, frozenset(eliminated) & before)


@breaks(EliminationStoreContract, "test_store_10_an_elimination_of_nothing_is_nothing")
class RefusesNothing(Answering):
    def answer(self, asked: frozenset[str], result: Result) -> Result:
        if not asked:
            raise ValueError("nothing to eliminate")
        return result


@breaks(EliminationStoreContract, "test_a_session_is_created_once_and_keeps_its_universe")
class CreatesAnew(InMemoryStore):
    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        self._streams.pop(session_id, None)
        super().create_session(session_id, hypothesis_ids)


@breaks(EliminationStoreContract, "test_a_session_that_was_never_created_is_not_found")
class KnowsEverySession(InMemoryStore):
    def eliminate(self, session_id: str, eliminated: AbstractSet[str], provenance: Provenance) -> Result:
        if session_id not in self._streams:
            self.create_session(session_id, NOTHING)
        return super().eliminate(session_id, eliminated, provenance)


@breaks(EliminationStoreContract, "test_sessions_do_not_touch_each_other")
class OneSetForAll(InMemoryStore):
    def create_session(self, session_id: str, hypothesis_ids: frozenset[str]) -> None:
        super().create_session(session_id, hypothesis_ids)
        self._streams[session_id].tombstones = next(iter(self._streams.values())).tombstones


@breaks(EliminationStoreContract, "test_what_a_store_handed_out_does_not_change_later")
class HandsOutItsOwn(InMemoryStore):
    def get_eliminated(self, session_id: str) -> frozenset[str]:
        return self._stream(session_id).tombstones  # type: ignore[return-value]


@breaks(EliminationStoreContract, "test_another_handle_sees_the_same", apart=True)
class HandlesApart(InMemoryStore):
    pass


@breaks(EliminationStoreContract, "test_any_ids_in_any_order")
class TrimsIds(InMemoryStore):
    def eliminate(self, session_id: str, eliminated: AbstractSet[str], provenance: Provenance) -> Result:
        return super().eliminate(session_id, {each.strip() for each in eliminated}, provenance)


# --- audit logs ---


@breaks(AuditLogContract, "test_an_unknown_stream_has_nothing")
class RaisesForAbsence(InMemoryStore):
    def head(self, stream_id: str) -> Head | None:
        if stream_id not in self._streams:
            raise SessionNotFound(stream_id)
        return super().head(stream_id)


@breaks(AuditLogContract, "test_what_is_appended_comes_back_byte_for_byte_and_in_order")
class WritesItsOwnJson(InMemoryStore):
    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        kept = super().read(stream_id, after, limit, max_bytes)
        return [StoredEntry(each.raw.replace(b":", b": "), each.event_hash) for each in kept]


@breaks(AuditLogContract, "test_reading_begins_beyond_a_seq_and_ends_at_a_limit")
class ReadsFromTheSeqOn(InMemoryStore):
    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        return super().read(stream_id, max(after - 1, -1), limit, max_bytes)


@breaks(AuditLogContract, "test_reading_ends_with_the_entry_that_has_the_bytes_that_are_wanted")
class ReadsWhateverItsSize(InMemoryStore):
    def read(
        self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
    ) -> list[StoredEntry]:
        return super().read(stream_id, after, limit)


@breaks(AuditLogContract, "test_entries_of_a_space_are_found_by_their_keys_and_by_their_hashes")
class FirstEntryOfAKey(InMemoryStore):
    def find_keys(self, stream_id: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        found = super().find_keys(stream_id, ranges)
        return [(key, seq) for number, (key, seq) in enumerate(found) if number == 0 or found[number - 1][0] != key]


@breaks(AuditLogContract, "test_entries_of_a_space_are_found_by_their_keys_and_by_their_hashes")
class RangesWithoutTheirEnds(InMemoryStore):
    def find_keys(self, stream_id: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        return super().find_keys(stream_id, [(first, last - 1) for first, last in ranges])


@breaks(AuditLogContract, "test_hashes_are_those_of_the_entries_that_are_read")
class HashesFromTheStart(InMemoryStore):
    def hashes(self, stream_id: str, after: int = -1, limit: int | None = None) -> list[bytes]:
        return super().hashes(stream_id, min(after, 0), limit)


@breaks(AuditLogContract, "test_an_append_of_nothing_is_nothing")
class NeedsSomething(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        super().append([appends[0], *appends[1:]])


@breaks(AuditLogContract, "test_what_does_not_continue_its_stream_is_stale_and_its_group_is_not_written")
class TakesAnything(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        for item in appends:
            self._write(item)


@breaks(AuditLogContract, "test_a_large_group_is_written_whole_or_not_at_all")
class WritesAsItGoes(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        for item in appends:
            super().append([item])


@breaks(AuditLogContract, "test_a_session_is_declared_once")
class DeclaresAgain(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        for item in appends:
            if item.seq == 0:
                self._streams.pop(item.stream_id, None)
        super().append(appends)


@breaks(AuditLogContract, "test_a_fork_is_impossible_and_what_is_written_never_changes")
class LooksAtTheHashAlone(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        for item in appends:
            head = self.head(item.stream_id) or Head(-1, GENESIS)
            super().append([structs.replace(item, seq=head.seq + 1)])


@breaks(AuditLogContract, "test_an_observation_is_recorded_once_in_a_session")
class ForgetsObservations(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        super().append([structs.replace(item, unique_key=None) for item in appends])


@breaks(AuditLogContract, "test_observations_are_told_apart_whatever_their_ids")
class JoinsIds(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        super().append(
            [structs.replace(item, unique_key=item.unique_key and ("::".join(item.unique_key), "")) for item in appends]
        )


@breaks(AuditLogContract, "test_sessions_are_listed_by_age_and_then_by_id_page_by_page")
class ListsTheNewestFirst(InMemoryStore):
    def sessions(self, after: tuple[str, str] | None, limit: int) -> list[SessionSummary]:
        return super().sessions(after, limit)[::-1]


@breaks(AuditLogContract, "test_streams_of_other_kinds_are_listed_by_name_and_are_no_sessions")
class ListsEveryName(InMemoryStore):
    def streams(self, prefix: str, after: str | None, limit: int) -> list[str]:
        return [name for name in sorted(self._streams) if name >= prefix and name > (after or "")][:limit]


@breaks(AuditLogContract, "test_a_summary_is_of_the_newest_entry")
class SummarisesTheDeclaration(InMemoryStore):
    def sessions(self, after: tuple[str, str] | None, limit: int) -> list[SessionSummary]:
        return [each._replace(head_seq=0) for each in super().sessions(after, limit)]


@breaks(AuditLogContract, "test_inside_exclusive_reads_see_what_the_append_will_continue")
class BlindInside(InMemoryStore):
    _inside = False

    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:
        with super().exclusive(stream_ids):
            self._inside = True
            yield
            self._inside = False

    def head(self, stream_id: str) -> Head | None:
        return None if self._inside else super().head(stream_id)


@breaks(AuditLogContract, "test_a_writer_in_an_exclusive_block_cannot_be_overtaken")
class HoldsNoWriterOff(InMemoryStore):
    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:
        yield


@breaks(AuditLogContract, "test_an_exclusive_block_that_is_left_by_an_error_lets_others_in")
class StaysLocked(InMemoryStore):
    _locked = False

    @contextmanager
    def exclusive(self, stream_ids: Iterable[str]) -> Iterator[None]:
        self._locked = True
        with super().exclusive(stream_ids):
            yield
        self._locked = False

    def append(self, appends: Sequence[Append]) -> None:
        if self._locked:
            raise StoreUnavailable("locked")
        super().append(appends)


@breaks(AuditLogContract, "test_writers_that_race_leave_one_chain_with_everything_acknowledged_in_it_once")
class ChecksAndThenWrites(InMemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self._meeting = Meeting()

    def append(self, appends: Sequence[Append]) -> None:
        self._refuse_stale(appends)
        self._meeting.meet()
        for item in appends:
            self._write(item)


@breaks(AuditLogContract, "test_what_one_handle_wrote_another_reads_at_once_and_continues", apart=True)
class LogsApart(InMemoryStore):
    pass


@breaks(AuditLogContract, "test_what_was_acknowledged_is_there_after_closing_and_opening_again")
class ForgetsWhenClosed(InMemoryStore):
    def close(self) -> None:
        self._streams.clear()
        self._order.clear()


@breaks(AuditLogContract, "test_the_newest_checkpoint_is_kept_and_comes_back_byte_for_byte")
class KeepsTheLastCheckpoint(InMemoryStore):
    def put_checkpoint(self, stream_id: str, seq: int, data: bytes) -> None:
        self._streams[stream_id].checkpoint = (seq, data)


@breaks(AuditLogContract, "test_an_opening_is_what_is_read_one_by_one")
class OpensBeyondItsCheckpoint(InMemoryStore):
    def opening(self, stream_id: str) -> Opening:
        seq, data = self.checkpoint(stream_id) or (0, None)
        return Opening(self.head(stream_id), data, self.read(stream_id, -1, 1), self.read(stream_id, seq))


@breaks(AuditLogContract, "test_an_open_intent_lets_nothing_pass_but_its_own_entry")
class AppendsPastIntents(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        for item in appends:
            self._intents.pop(item.stream_id, None)
        super().append(appends)


@breaks(AuditLogContract, "test_an_intent_that_does_not_continue_its_stream_is_stale")
class IntendsAnything(InMemoryStore):
    def put_intent(self, append: Append) -> None:
        self._intents[append.stream_id] = append.entry


@breaks(AuditLogContract, "test_an_intent_is_dropped_by_its_hash_and_as_often_as_one_likes")
class DropsAnyIntent(InMemoryStore):
    def drop_intent(self, stream_id: str, event_hash: bytes) -> None:
        self._intents.pop(stream_id, None)


@breaks(AuditLogContract, "test_open_intents_are_listed_up_to_a_limit")
class ListsAllIntents(InMemoryStore):
    def open_intents(self, limit: int) -> list[str]:
        return sorted(self._intents)


# --- log and tombstones in one ---


class Changing(InMemoryStore):
    """Writes other tombstones than its entries say."""

    def changed(self, tombstones: Sequence[str]) -> list[str]:
        return list(tombstones)

    def append(self, appends: Sequence[Append]) -> None:
        super().append([structs.replace(item, tombstones=self._change(item.tombstones)) for item in appends])

    def _change(self, tombstones: Tombstones | None) -> Tombstones | None:
        return tombstones and structs.replace(tombstones, ids=self.changed(tombstones.ids))


@breaks(StoreContract, "test_tombstones_follow_the_log")
class LogsWithoutTombstones(Changing):
    def changed(self, tombstones: Sequence[str]) -> list[str]:
        return []


@breaks(StoreContract, "test_tombstones_follow_the_log_whatever_the_ids")
class CutsAtANul(Changing):
    def changed(self, tombstones: Sequence[str]) -> list[str]:
        return [each.split("\x00")[0] for each in tombstones]


@breaks(StoreContract, "test_an_append_that_is_refused_leaves_no_tombstones")
class TombstonesFirst(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        for item in appends:
            if item.stream_id in self._streams and item.tombstones is not None:
                self._streams[item.stream_id].tombstones.update(item.tombstones.ids)
        super().append(appends)


@breaks(StoreContract, "test_an_intent_is_no_tombstone")
class TombstonesOnIntent(InMemoryStore):
    def put_intent(self, append: Append) -> None:
        super().put_intent(append)
        if append.tombstones is not None:
            self._streams[append.stream_id].tombstones.update(append.tombstones.ids)


@breaks(StoreContract, "test_tombstones_cannot_be_added_past_the_log_of_a_session")
class EliminatesPastTheLog(InMemoryStore):
    def eliminate(self, session_id: str, eliminated: AbstractSet[str], provenance: Provenance) -> Result:
        self._stream(session_id).tombstones.update(eliminated)
        return Result(frozenset(eliminated), NOTHING)


@breaks(StoreContract, "test_a_session_without_a_log_is_in_no_list")
class HeadsWithoutALog(InMemoryStore):
    def head(self, stream_id: str) -> Head | None:
        return super().head(stream_id) or (Head(-1, GENESIS) if stream_id in self._streams else None)


# --- search for sessions ---


@breaks(SessionSearchContract, "test_what_is_found_is_what_the_entries_say")
class FindsWithoutTerms(InMemoryStore):
    def find_sessions(self, query: SessionQuery, after: tuple[str, str] | None, limit: int) -> list[ListedSession]:
        return super().find_sessions(structs.replace(query, terms=query.terms[:1], newest_first=False), after, limit)


@breaks(SessionSearchContract, "test_pages_stay_right_while_sessions_are_declared")
class PagesByNumber(InMemoryStore):
    def find_sessions(self, query: SessionQuery, after: tuple[str, str] | None, limit: int) -> list[ListedSession]:
        self.given = 0 if after is None else getattr(self, "given", 0)
        page = super().find_sessions(query, None, self.given + limit)[self.given :]
        self.given += len(page)
        return page


@breaks(SessionSearchContract, "test_what_was_not_written_is_not_found")
class ListsFirst(InMemoryStore):
    def append(self, appends: Sequence[Append]) -> None:
        for item in appends:
            with suppress(StaleHead):
                super().append([item])
        raise StaleHead("always")
