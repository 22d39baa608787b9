"""What an audit log does, in every store; the one in memory is the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from cmbs.ledger import Head
from cmbs.spi import Append, AuditLog, StaleHead
from cmbs.stores import Store
from cmbs.stores.memory import InMemoryStore
from tests.support.appends import stream
from tests.support.homes import BACKENDS, Home

Change = Callable[[Append], Append]
STALE: dict[str, Change] = {
    "a seq that was used": lambda item: structs.replace(item, seq=item.seq - 1),
    "a seq too far": lambda item: structs.replace(item, seq=item.seq + 1),
    "the previous hash of a beginning": lambda item: structs.replace(item, prev_event_hash=bytes(32)),
    "another previous hash": lambda item: structs.replace(item, prev_event_hash=bytes(range(32))),
    "an observation that was recorded": lambda item: structs.replace(item, observation_id="observation 1"),
    "a stream that is not there": lambda item: structs.replace(item, stream_id="nobody"),
}


@pytest.fixture(params=BACKENDS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with Home.at(request.param, tmp_path) as home:
        yield home.store()


@pytest.mark.req("BS-5.1-STORE-08")
def test_only_a_store_that_waits_for_a_device_is_blocking(log: Store) -> None:
    assert isinstance(log, AuditLog)
    assert log.blocking is not isinstance(log, InMemoryStore)


@pytest.mark.req("BS-5.1-STORE-08")
def test_what_is_appended_comes_back_byte_for_byte_and_in_order(log: Store) -> None:
    first, second = stream(1), stream(2)
    log.append([first[0]])
    log.append([second[0], first[1], second[1]])
    log.append([first[2]])
    entries = [item.entry for item in first]
    session_id = first[0].stream_id
    assert log.read(session_id) == entries
    assert log.read(session_id, 0) == entries[1:]
    assert log.read(session_id, 0, 1) == entries[1:2]
    assert log.read(session_id, 2) == []
    assert log.read(session_id, limit=0) == []
    assert log.head(session_id) == Head(2, entries[2].event_hash)
    assert log.read(second[0].stream_id) == [item.entry for item in second[:2]]


@pytest.mark.req("BS-5.1-STORE-08")
def test_an_unknown_stream_has_no_entries_and_no_head(log: Store) -> None:
    assert (log.read("nobody"), log.head("nobody"), log.sessions(None, 10)) == ([], None, [])
    log.create_session("apart", frozenset("ab"))
    assert (log.read("apart"), log.head("apart"), log.sessions(None, 10)) == ([], None, [])


@pytest.mark.req("BS-5.1-STORE-08", "ARCH-4-02")
@pytest.mark.parametrize("case", STALE)
def test_what_does_not_continue_its_stream_is_stale_and_its_group_is_not_written(log: Store, case: str) -> None:
    declaration, first, second, third = stream(events=4)
    other = stream(7)[0]
    log.append([declaration, first, second])
    for group in ([STALE[case](third)], [other, STALE[case](third)], [STALE[case](third), other]):
        with pytest.raises(StaleHead):
            log.append(group)
        assert len(log.read(declaration.stream_id)) == 3
        assert log.head(other.stream_id) is None
    log.append([other, third])
    assert len(log.read(declaration.stream_id)) == 4


@pytest.mark.req("BS-5.1-STORE-08", "ARCH-4-02")
def test_an_observation_twice_in_one_group_is_stale(log: Store) -> None:
    declaration, first, second = stream()
    with pytest.raises(StaleHead):
        log.append([declaration, first, structs.replace(second, observation_id=first.observation_id)])
    assert log.head(declaration.stream_id) is None
    log.append([declaration, first, second])
    assert len(log.read(declaration.stream_id)) == 3


@pytest.mark.req("BS-5.1-STORE-08")
def test_a_second_declaration_is_stale(log: Store) -> None:
    declaration = stream()[0]
    log.append([declaration])
    for group in ([declaration], [stream(3)[0], declaration]):
        with pytest.raises(StaleHead):
            log.append(group)
    assert len(log.sessions(None, 10)) == 1


@pytest.mark.req("BS-5.1-STORE-08")
def test_inside_exclusive_reads_see_what_the_append_will_continue(log: Store) -> None:
    declaration, elimination, _ = stream()
    log.append([declaration])
    with log.exclusive([declaration.stream_id]):
        assert log.head(declaration.stream_id) == Head(0, declaration.entry.event_hash)
        assert log.read(declaration.stream_id) == [declaration.entry]
        assert [summary.head_seq for summary in log.sessions(None, 1)] == [0]
        log.append([elimination])
    assert log.head(declaration.stream_id) == Head(1, elimination.entry.event_hash)


@pytest.mark.req("BS-5.1-STORE-08")
def test_sessions_are_listed_by_age_and_then_by_id(log: Store) -> None:
    newer, older = stream(1), stream(2)
    moved = [structs.replace(item, ts="2020-01-01T00:00:00.000000Z") for item in older]
    twin = [structs.replace(item, ts=newer[0].ts) for item in stream(3)]
    for group in (newer, moved, twin):
        log.append(group)
    listed = log.sessions(None, 10)
    assert [summary.session_id for summary in listed] == [moved[0].stream_id, newer[0].stream_id, twin[0].stream_id]
    assert log.sessions((listed[0].created_ts, listed[0].session_id), 1) == listed[1:2]
    assert log.sessions((listed[1].created_ts, listed[1].session_id), 9) == listed[2:]
    assert log.sessions(("9", ""), 9) == []


def test_closing_is_harmless_and_a_memory_store_outlives_it() -> None:
    store = InMemoryStore()
    store.append(stream())
    store.close()
    store.close()
    assert len(store.sessions(None, 1)) == 1


# --- checkpoints and intents ---


@pytest.mark.req("ARCH-4-CHECKPOINT-01")
def test_the_newest_checkpoint_is_kept_and_comes_back_byte_for_byte(log: Store) -> None:
    session_id = stream()[0].stream_id
    assert log.checkpoint(session_id) is None
    log.append(stream())
    for seq, data in ((1, b"first"), (2, b"\x00second\xff"), (1, b"late")):
        log.put_checkpoint(session_id, seq, data)
    assert log.checkpoint(session_id) == (2, b"\x00second\xff")
    log.put_checkpoint(session_id, 2, b"rebuilt")
    assert log.checkpoint(session_id) == (2, b"rebuilt")
    assert log.checkpoint("nobody") is None


@pytest.mark.req("ARCH-4-SAGA-01")
@pytest.mark.parametrize("length", [0, 1, 2])
def test_an_open_intent_lets_nothing_pass_but_its_own_entry(log: Store, length: int) -> None:
    items, other = stream(), stream(5)[0]
    session_id, intended = items[0].stream_id, items[length]
    for item in items[:length]:
        log.append([item])
    log.put_intent(intended)
    assert log.intent(session_id) == intended.entry
    assert log.open_intents(10) == [session_id]
    rival = structs.replace(intended, entry=intended.entry._replace(event_hash=bytes(32)))
    for group in ([rival], [other, rival]):
        with pytest.raises(StaleHead):
            log.append(group)
    with pytest.raises(StaleHead):
        log.put_intent(rival)
    assert log.read(session_id) == [item.entry for item in items[:length]]
    log.append([intended])
    assert (log.intent(session_id), log.open_intents(10)) == (None, [])
    assert log.head(session_id) == Head(length, intended.entry.event_hash)


@pytest.mark.req("ARCH-4-SAGA-01")
def test_an_intent_that_does_not_continue_its_stream_is_stale(log: Store) -> None:
    declaration, first, second = stream()
    with pytest.raises(StaleHead):
        log.put_intent(first)
    log.append([declaration, first])
    for stale in (declaration, first, structs.replace(second, prev_event_hash=bytes(range(32)))):
        with pytest.raises(StaleHead):
            log.put_intent(stale)
    assert log.open_intents(10) == []


@pytest.mark.req("ARCH-4-SAGA-01")
def test_an_intent_is_dropped_by_its_hash_and_as_often_as_one_likes(log: Store) -> None:
    declaration, first, _ = stream()
    log.append([declaration])
    log.put_intent(first)
    log.drop_intent(first.stream_id, bytes(32))
    assert log.intent(first.stream_id) == first.entry
    for _ in range(2):
        log.drop_intent(first.stream_id, first.entry.event_hash)
    assert log.intent(first.stream_id) is None
    log.append([first])
    assert log.head(first.stream_id) == Head(1, first.entry.event_hash)


@pytest.mark.req("ARCH-4-SAGA-01")
def test_open_intents_are_listed_up_to_a_limit(log: Store) -> None:
    declarations = [stream(space)[0] for space in range(1, 4)]
    for declaration in declarations:
        log.put_intent(declaration)
    assert log.open_intents(2) == [declaration.stream_id for declaration in declarations[:2]]
    assert len(log.open_intents(10)) == 3
