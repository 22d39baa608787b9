"""Measuring streams: from what a process wrote itself, from the log, and where the two do not fit what is known."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.ledger.merkle import root_of_hashes
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.stores import SQLiteStore
from cmbs.transparency import stream_trees
from cmbs.transparency.kernel.checkpoint import Checkpoint
from cmbs.transparency.kernel.faults import Fault, FaultKind
from cmbs.transparency.kernel.records import HeadRecord, verify_heads
from cmbs.transparency.stream_trees import StreamTrees, list_streams
from tests.support.signing import notary_of
from tests.support.store_fixture import StoreFixture, declared, tampering


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        yield fixture


def measure_by_hand(server: BeliefServer, session_id: str, size: int) -> HeadRecord:
    hashes = [entry.event_hash for entry in server.log.read(session_id)[:size]]
    return HeadRecord(hashes[-1].hex(), root_of_hashes(hashes).hex(), size, session_id)


@pytest.mark.req("TLOG-SIGN-01")
def test_a_stream_is_measured_from_the_log_and_from_what_was_written(stored: StoreFixture) -> None:
    server = stored.open()
    session_id = declared(server)
    trees = StreamTrees(server.log)
    first = trees.measure(session_id, None)
    assert first == measure_by_hand(server, session_id, 1)
    assert isinstance(first, HeadRecord)
    assert trees.measure(session_id, first) is None
    for number, hypothesis in enumerate("abc"):
        server.eliminate(session_id, "source", str(number), [hypothesis])
    hashes = [entry.event_hash for entry in server.log.read(session_id)]
    # Hashes that do not follow are left to be read; those that do are taken over, and the rest comes next time.
    trees.extend(session_id, 2, hashes[2:])
    trees.extend(session_id, 1, hashes[1:3])
    second = trees.measure(session_id, first)
    assert second == measure_by_hand(server, session_id, 3)
    assert isinstance(second, HeadRecord)
    assert trees.measure(session_id, second) == measure_by_hand(server, session_id, 4)
    assert StreamTrees(server.log).measure(session_id, first) == measure_by_hand(server, session_id, 4)
    assert trees.measure("unknown", None) is None


@pytest.mark.req("TLOG-REFUSE-01")
def test_a_stream_with_another_past_is_a_fork(stored: StoreFixture) -> None:
    server = stored.open()
    session_id = declared(server)
    server.eliminate(session_id, "source", "1", ["a"])
    first, second = (measure_by_hand(server, session_id, size) for size in (1, 2))
    wrong = {"root": "0" * 64, "head_hash": "0" * 64}
    for known in (msgspec.structs.replace(first, **wrong), msgspec.structs.replace(second, **wrong)):
        fault = StreamTrees(server.log).measure(session_id, known)
        assert isinstance(fault, Fault)
        assert (fault.kind, fault.stream_id) == (FaultKind.FORKED, session_id)
    # A process that wrote something else than the log has.
    trees = StreamTrees(server.log)
    trees.extend(session_id, 0, [bytes(32), bytes(32)])
    fault = trees.measure(session_id, None)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.FORKED


@pytest.mark.req("TLOG-REFUSE-01")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM audit_events WHERE stream_id = ? AND seq = 1",
        "UPDATE audit_events SET event_hash = zeroblob(32) WHERE stream_id = ? AND seq = 1",
        "UPDATE sessions SET head_hash = zeroblob(32) WHERE session_id = ?",
    ],
)
def test_damage_is_found_while_a_stream_is_read(stored: StoreFixture, statement: str) -> None:
    server = stored.open()
    session_id = declared(server)
    server.eliminate(session_id, "source", "1", ["a"])
    with tampering(stored.path) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    with tampering(stored.path, *(name for (name,) in names)) as connection:
        connection.execute(statement, (session_id,))
    fault = StreamTrees(SQLiteStore(stored.path)).measure(session_id, None)
    assert isinstance(fault, Fault)
    assert fault.kind is FaultKind.FORKED


def test_the_cache_of_trees_is_bounded(stored: StoreFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_trees, "_MAX_CACHED_TREES", 2)
    server = stored.open()
    trees = StreamTrees(server.log)
    sessions = [declared(server) for _ in range(4)]
    assert [trees.measure(each, None) for each in sessions] == [measure_by_hand(server, each, 1) for each in sessions]
    assert list(trees._cached) == sessions[2:]
    assert [name for page in list_streams(server.log, 3) for name, _ in page] == sessions


@pytest.mark.req("TLOG-SIGN-02")
def test_notaries_that_record_at_once_lose_and_repeat_nothing(stored: StoreFixture, tmp_path: Path) -> None:
    servers = [stored.open() for _ in range(4)]
    notaries = [notary_of(server, tmp_path) for server in servers]
    sessions = [declared(server) for server in servers for _ in range(5)]

    def work(number: int) -> None:
        for turn in range(10):
            servers[number].eliminate(sessions[5 * number + turn % 5], "source", str(turn), ["a"])
            notaries[number].publish()

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(work, range(4)))
    for notary in notaries:
        notary.publish()
        notary.close()
    log = servers[0].log
    heads = verify_heads(log.read(HEADS_STREAM), log.head(HEADS_STREAM))
    assert heads is not None
    assert {name: record.size for name, record in heads.records.items()} == dict.fromkeys(sessions, 3)
    note = notaries[0].checkpoint()
    assert Checkpoint.parse(note.text)[1:] == (heads.tree.size, heads.tree.root_at(heads.tree.size))
    with closing(notaries[0]) as again:
        assert again.publish() == note
