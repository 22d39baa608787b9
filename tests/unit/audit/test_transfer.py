"""Sessions move between stores byte for byte, and nothing that does not verify comes in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from cmbs.audit.transfer import Moved, export_lines, import_lines
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, InvalidRequest, LedgerCorrupt, SessionNotFound
from cmbs.ledger.format import FINGERPRINT
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import History, ManualClock, SequentialIds, play
from cmbs.testing.strategies import belief as strategies
from tests.support.store_fixture import BACKENDS, NO_SUCH_SESSION, StoreFixture, declared
from tests.support.subtests import for_each


def server_over(store: InMemoryStore, space: int = 0) -> BeliefServer:
    return BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds(space))


@pytest.fixture
def source() -> InMemoryStore:
    """Two sessions."""
    store = InMemoryStore()
    server = server_over(store)
    for _ in range(2):
        server.eliminate(declared(server), "s", "1", ["a"])
    return store


@pytest.fixture
def sessions(source: InMemoryStore) -> list[str]:
    return [summary.session_id for summary in source.sessions(None, 10)]


@pytest.fixture
def lines(source: InMemoryStore, sessions: list[str]) -> list[bytes]:
    return list(export_lines(source, sessions))


@pytest.mark.req("TRANSFER-01")
@pytest.mark.parametrize("place", BACKENDS)
def test_sessions_arrive_byte_for_byte_and_can_be_continued(
    place: str, source: InMemoryStore, sessions: list[str], lines: list[bytes], tmp_path: Path
) -> None:
    with StoreFixture.at(place, tmp_path) as fixture:
        server = fixture.open()
        assert list(import_lines(server, lines)) == [Moved(session_id, 2) for session_id in sessions]
        for session_id in sessions:
            assert server.log.read(session_id) == source.read(session_id)
        assert fixture.store().recover(sessions[0]) == source.recover(sessions[0])
        assert list(export_lines(fixture.store(), sessions)) == lines
        assert server.eliminate(sessions[0], "s", "2", ["b"]).snapshot.survivors == ["c", "d"]


@pytest.mark.req("TRANSFER-01")
@given(history=strategies.histories())
def test_any_history_survives_the_journey(history: History) -> None:
    source, target = InMemoryStore(), InMemoryStore()
    session_id, _ = play(server_over(source), history)
    lines = [line + b"\n" for line in export_lines(source, [session_id])]
    assert all(line.count(b"\n") == 1 for line in lines)
    assert [moved.session_id for moved in import_lines(server_over(target), lines)] == [session_id]
    assert target.read(session_id) == source.read(session_id)
    assert target.sessions(None, 1) == source.sessions(None, 1)


@pytest.mark.req("TRANSFER-01")
def test_what_is_there_already_is_left_and_what_is_missing_is_added(
    source: InMemoryStore, sessions: list[str], lines: list[bytes]
) -> None:
    target = InMemoryStore()
    for _ in range(2):
        list(import_lines(server_over(target), lines))
    server_over(source, 5).eliminate(sessions[0], "s", "2", ["b"])
    list(import_lines(server_over(target), export_lines(source, sessions)))
    assert target.read(sessions[0]) == source.read(sessions[0])
    list(import_lines(server_over(target), lines))
    assert len(target.read(sessions[0])) == 3


@pytest.mark.req("TRANSFER-01")
def test_another_log_of_the_same_session_is_a_conflict(sessions: list[str], lines: list[bytes]) -> None:
    target = InMemoryStore()
    forked = InMemoryStore()
    for store in (target, forked):
        list(import_lines(server_over(store), lines))
    server_over(forked, 5).eliminate(sessions[0], "s", "2", ["b"])
    server_over(target, 6).eliminate(sessions[0], "s", "2", ["c"])
    with pytest.raises(Conflict, match="another log"):
        list(import_lines(server_over(target), export_lines(forked, sessions)))


def test_more_entries_than_are_read_at_once_are_all_exported(
    source: InMemoryStore, sessions: list[str], lines: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cmbs.streams.reading._EVENTS_READ_AT_ONCE", 1)
    assert list(export_lines(source, sessions)) == lines


def test_no_sessions_are_an_export_too() -> None:
    lines = list(export_lines(InMemoryStore(), []))
    assert len(lines) == 2
    assert list(import_lines(BeliefServer(), lines)) == []


def test_a_session_that_is_not_there_or_not_whole_is_not_exported(source: InMemoryStore, sessions: list[str]) -> None:
    with pytest.raises(SessionNotFound):
        list(export_lines(source, [NO_SUCH_SESSION]))
    del source._streams[sessions[0]].entries[1]
    with pytest.raises(LedgerCorrupt, match="bad at seq 1"):
        list(export_lines(source, sessions))


# --- what does not come in ---

Change = Callable[[list[bytes]], list[bytes]]
# Lines: format, two entries and an end for each of two sessions, the count.
CORRUPT: dict[str, Change] = {
    "an edited entry": lambda lines: [each.replace(b'["a"]', b'["b"]') for each in lines],
    "an entry left out": lambda lines: [*lines[:2], *lines[3:]],
    "entries in another order": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "an entry of another session": lambda lines: [*lines[:3], lines[4], *lines[3:]],
    "another head": lambda lines: [*lines[:3], lines[3].replace(b'"head_seq":1', b'"head_seq":2'), *lines[4:]],
    "no entries": lambda lines: [lines[0], *lines[3:]],
}
INVALID: dict[str, Change] = {
    "nothing": lambda _: [],
    "no format": lambda lines: lines[1:],
    "another format": lambda lines: [b'{"format":"cmbs/2/export"}', *lines[1:]],
    "a first line that is a list": lambda lines: [b"[]", *lines[1:]],
    "no JSON": lambda lines: [lines[0], b"{"],
    "no UTF-8": lambda lines: [lines[0], b'{"end_of":"\xff"}'],
    "an unknown member": lambda lines: [lines[0], b'{"x":1}'],
    "an empty object": lambda lines: [lines[0], b"{}"],
    "an entry without a hash": lambda lines: [lines[0], b'{"entry":{}}'],
    "a hash that is none": lambda lines: [lines[0], b'{"event_hash":"xyz","entry":{}}'],
    "an end without a head": lambda lines: [*lines[:3], b'{"end_of":"s"}'],
    "a head that is none": lambda lines: [*lines[:3], b'{"end_of":"s","head_seq":1,"head_hash":"x"}'],
    "cut within a session": lambda lines: lines[:6],
    "cut between sessions": lambda lines: lines[:4],
    "cut before the count": lambda lines: lines[:-1],
    "another count": lambda lines: [*lines[:-1], b'{"sessions":3}'],
    "more after the count": lambda lines: [*lines, lines[1]],
}


@pytest.mark.req("TRANSFER-01")
@pytest.mark.parametrize("case", CORRUPT)
def test_a_session_that_does_not_verify_does_not_come_in(sessions: list[str], lines: list[bytes], case: str) -> None:
    target = InMemoryStore()
    with pytest.raises(LedgerCorrupt, match=sessions[0]):
        list(import_lines(server_over(target), CORRUPT[case](lines)))
    assert target.sessions(None, 10) == []


@pytest.mark.req("TRANSFER-01")
@for_each("case", INVALID)
def test_a_file_that_is_no_export_or_not_a_whole_one_is_refused(lines: list[bytes], case: str) -> None:
    target = InMemoryStore()
    with pytest.raises(InvalidRequest, match="line"):
        list(import_lines(server_over(target), INVALID[case](lines)))
    assert target.sessions(None, 10) == []


@pytest.mark.req("TRANSFER-03")
def test_an_export_says_what_it_leaves_out_and_one_that_does_not_is_refused(lines: list[bytes]) -> None:
    header = {"format": "cmbs/1/export", "left_out": ["identity:keys"], "fingerprint": FINGERPRINT}
    assert json.loads(lines[0]) == header
    with pytest.raises(InvalidRequest, match="line 1: not an export"):
        list(import_lines(BeliefServer(), [b'{"format":"cmbs/1/export"}', *lines[1:]]))


@pytest.mark.req("TRANSFER-03")
@pytest.mark.parametrize("more", [{}, {"left_out": ["identity:keys"]}, {"written_by": "cmbs"}])
def test_an_export_of_an_earlier_format_is_refused_as_such(lines: list[bytes], more: dict[str, Any]) -> None:
    header = json.dumps({"format": "cmbs-export/1", **more})
    with pytest.raises(InvalidRequest) as refused:
        list(import_lines(BeliefServer(), [header.encode(), *lines[1:]]))
    assert refused.value.message == "line 1: an export of an earlier format, which this software does not read"


@pytest.mark.req("TRANSFER-03")
def test_an_export_of_another_development_version_is_refused_and_one_that_names_none_is_not(lines: list[bytes]) -> None:
    said = (
        "line 1: it was written by another development version of cmbs before the first release, with other types of"
        f" entries or other tables (fingerprint `others`, and here it is `{FINGERPRINT}`)"
    )
    with pytest.raises(InvalidRequest) as refused:
        list(import_lines(BeliefServer(), [lines[0].replace(FINGERPRINT.encode(), b"others"), *lines[1:]]))
    assert refused.value.message == said
    without = b'{"format":"cmbs/1/export","left_out":["identity:keys"]}'
    assert len(list(import_lines(BeliefServer(), [without, *lines[1:]]))) == 2
