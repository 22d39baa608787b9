"""Rows by which entries of a space are found again decide nothing: one that is gone or moved is noticed and refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import LedgerCorrupt
from cmbs.ledger import StoredEntry
from cmbs.ledger.lookup_keys import Lookup, lookup_key
from cmbs.stores import Store, open_store
from cmbs.substrate import past_keys
from cmbs.substrate.kernel.events import Propose
from cmbs.substrate.past_keys import KeyIndex
from cmbs.testing import ManualClock
from tests.support.epochs import epochs_of
from tests.support.mutations import SQLiteDatabase
from tests.support.spaces import AGENT, STREAM, World, call, caller_tool, delta, eventually

EXECUTION = "x-00000007-0000-4000-8000-000000000004-0"
CALL = lookup_key(Lookup.CALL, "t", "k1")
WIPE = "DELETE FROM cmbs.lookup_keys WHERE key = %s"


def populate(store: Store) -> None:
    """A call that has run, and has left the state."""
    world = World(store, clock=ManualClock(), space=7)
    world.open(caller_tool("t"))
    assert world.start(call("t"), proposal_id="p") == EXECUTION
    world.report(EXECUTION, result=1)
    world.report(world.start(call("t", key="other"), proposal_id="o"), result=2)
    world.say(Propose(world.proposal(delta(a="1"), proposal_id="q")), AGENT, idempotency_key="r")
    for number in range(8):
        world.propose(delta(passing=str(number)))
    world.close()


@pytest.fixture(autouse=True)
def short_epochs() -> Iterator[None]:
    with epochs_of(4):
        yield


@pytest.fixture
def database(tmp_path: Path, short_epochs: None) -> SQLiteDatabase:
    return SQLiteDatabase(tmp_path, populate)


@pytest.fixture
def world(database: SQLiteDatabase) -> Iterator[World]:
    store = open_store(database.url)
    world = World(store, clock=ManualClock(), space=9)
    yield world
    world.close()
    store.close()


def call_again(world: World, key: str = "k1") -> tuple[int, str | None]:
    """How many calls a proposal begins, and which one answers it."""
    result = world.propose(call("t", key=key)).event.result
    return len(result.intents), result.answered_by.get("0")


@pytest.mark.req("NOTHING-DERIVED-01")
def test_a_call_whose_row_was_deleted_does_not_run_again(database: SQLiteDatabase, world: World) -> None:
    assert call_again(world, "other")[0] == 0
    assert database.change(WIPE, (CALL,))
    head = world.space.head
    for _ in range(2):
        with pytest.raises(LedgerCorrupt, match="lookup_keys"):
            call_again(world)
    assert world.space.head == head
    assert world.server.find_behind() == [STREAM]


@pytest.mark.req("NOTHING-DERIVED-01")
def test_nor_does_it_after_a_restart(database: SQLiteDatabase, world: World) -> None:
    assert database.change(WIPE, (CALL,))
    with pytest.raises(LedgerCorrupt, match="lookup_keys"):
        call_again(world)
    database.restore()


@pytest.mark.req("NOTHING-DERIVED-01")
@pytest.mark.parametrize("lookup", [Lookup.PROPOSAL, Lookup.EXECUTION])
@pytest.mark.parametrize("seq", [0, -1, "x", 10**6])
def test_a_record_whose_row_was_moved_is_not_shown_otherwise(
    database: SQLiteDatabase, world: World, lookup: Lookup, seq: object
) -> None:
    key = lookup_key(lookup, "p" if lookup is Lookup.PROPOSAL else EXECUTION)
    newest = "SELECT max(seq) FROM cmbs.lookup_keys WHERE key = %s"
    moved = f"UPDATE cmbs.lookup_keys SET seq = %s WHERE key = %s AND seq = ({newest})"
    assert database.change(moved, (seq, key, key))
    with pytest.raises(LedgerCorrupt, match="lookup_keys"):
        world.server.settled.with_proposal(world.space, "p")


@pytest.mark.req("NOTHING-DERIVED-01")
def test_rows_that_lead_nowhere_are_passed_over(database: SQLiteDatabase, world: World) -> None:
    for seq in ("x", -3, 2, 10**6):
        assert database.change("INSERT INTO cmbs.lookup_keys VALUES (%s, %s, %s)", (STREAM, CALL, seq))
    assert call_again(world) == (0, EXECUTION)


@pytest.mark.req("NOTHING-DERIVED-01")
def test_a_long_past_is_read_in_the_background_and_what_was_believed_meanwhile_is_judged(
    database: SQLiteDatabase, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(past_keys, "MAX_ENTRIES_AT_ONCE", 2)
    monkeypatch.setattr(past_keys, "_PAGE", 3)
    assert database.change(WIPE, (CALL,))
    with caplog.at_level(logging.ERROR, "cmbs.substrate"):
        # On record, and for `verify` to name: the past was not read yet.
        assert call_again(world)[0] == 1
        assert eventually(lambda: world.server.find_behind() == [STREAM])
    assert "lookup_keys" in caplog.text
    with pytest.raises(LedgerCorrupt, match="lookup_keys"):
        world.propose(delta(a="2"))


@pytest.mark.req("NOTHING-DERIVED-01")
def test_a_long_past_that_is_whole_is_found_to_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_keys, "MAX_ENTRIES_AT_ONCE", 2)
    assert call_again(world) == (0, EXECUTION)
    keys = world.server.settled.keys
    assert eventually(lambda: keys._pasts[STREAM].index.covered >= 0 and not keys._pasts[STREAM].is_waiting)
    assert call_again(world) == (0, EXECUTION)
    assert world.server.find_behind() == []


def test_the_past_that_was_used_least_recently_is_forgotten_and_read_again(
    database: SQLiteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_keys, "MAX_KEYS", 1)
    store = open_store(database.url)
    world = World(store, clock=ManualClock(), space=9)
    keys = world.server.settled.keys
    assert call_again(world) == (0, EXECUTION)
    keys._past("space:other")
    assert list(keys._pasts) == ["space:other"]
    assert keys._n_keys == 0
    assert call_again(world) == (0, EXECUTION)
    world.close()
    store.close()


@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=3), max_size=20))
def test_an_index_finds_every_entry_of_a_key(entries: list[list[str]]) -> None:
    index, expected = KeyIndex(), set()
    raws = []
    for seq, names in enumerate(entries):
        statuses = ",".join(f'"{name}":"committed"' for name in dict.fromkeys(names))
        raw = f'{{"event_id":"{seq}","verb":"PROPOSE","payload":{{}},"outcome":{{"statuses":{{{statuses}}}}}}}'.encode()
        raws.append(StoredEntry(raw, bytes(32)))
        expected |= {(lookup_key(Lookup.PROPOSAL, name), seq) for name in names}
    index.extend(raws)
    wanted = [lookup_key(Lookup.PROPOSAL, name) for name in "abcdef"]
    assert set(index.find(wanted)) == expected
    assert index.covered == len(entries) - 1
