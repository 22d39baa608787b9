"""Checking a store: all that is derived is compared with the log, and each thing that is wrong is named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from msgspec import UNSET, structs

from cmbs.audit import plain_rows, stream_check
from cmbs.audit.actors import ActorCheck
from cmbs.audit.fsck import check_database, check_stream, names_in
from cmbs.audit.plain_rows import PlainRows, all_sessions
from cmbs.audit.recorded_heads import check_recorded_heads
from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.cli.checking import Pace
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.kernel.stream import CreateKey, KeyCommand
from cmbs.identity.registry import COMMAND_LINE, KeyRegistry
from cmbs.ledger import StoredEntry
from cmbs.messages import Actor, ActorKind
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.events import RegisterTool
from cmbs.testing import FailingLog, ManualClock, SequentialIds
from cmbs.testing.streams import stream
from cmbs.transparency.kernel.records import HeadRecord, Stamp, decide
from cmbs.transparency.stream_trees import StreamTrees
from tests.support.spaces import STREAM, World, caller_tool
from tests.support.store_fixture import BACKENDS, NO_SUCH_SESSION, StoreFixture, declared, tampering
from tests.support.subtests import for_each

pytestmark = pytest.mark.usefixtures("digests_everywhere")


@pytest.fixture(params=BACKENDS)
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at(request.param, tmp_path) as fixture:
        yield fixture


def lived(server: BeliefServer) -> str:
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["a"])
    server.eliminate(session_id, "s", "2", ["b"])
    return session_id


@pytest.mark.req("FSCK-01")
def test_a_store_that_is_well_has_nothing_wrong(fixture: StoreFixture) -> None:
    store = fixture.store()
    sessions = [lived(fixture.open(store=store)) for _ in range(2)]
    entries = store.read(sessions[0])
    store.put_checkpoint(sessions[0], 2, freeze(verify_session(sessions[0], entries[:2])))
    assert [summary.session_id for summary in all_sessions(store)] == sessions
    assert check_database(store) == []
    assert [check_stream(store, session_id)[:3] for session_id in sessions] == [(each, 3, []) for each in sessions]


@pytest.mark.req("FSCK-01")
def test_an_intent_that_continues_the_log_is_not_wrong(fixture: StoreFixture) -> None:
    store, items = fixture.store(), stream()
    store.append(items[:2])
    store.put_intent(items[2])
    assert check_stream(store, items[0].stream_id)[:3] == (items[0].stream_id, 2, [])


def test_all_sessions_are_listed_whatever_the_size_of_a_page(
    fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = [declared(fixture.open()) for _ in range(3)]
    monkeypatch.setattr(plain_rows, "_PAGE", 2)
    assert [summary.session_id for summary in all_sessions(fixture.store())] == sessions


@pytest.mark.req("FSCK-01")
def test_a_session_that_is_not_there_is_a_finding(fixture: StoreFixture) -> None:
    (what,) = check_stream(fixture.store(), NO_SUCH_SESSION).findings
    assert NO_SUCH_SESSION in str(what)


@pytest.mark.req("FSCK-01")
@pytest.mark.parametrize("wrong", ["", "root", "head_hash", "size"])
def test_a_stream_holds_all_of_what_was_recorded_of_it_last(fixture: StoreFixture, wrong: str) -> None:
    store = fixture.store()
    server = fixture.open(store=store)
    session_id, other = lived(server), lived(server)
    found = StreamTrees(store).measure(session_id, None)
    assert isinstance(found, HeadRecord)
    forged: dict[str, dict[str, Any]] = {
        "": {},
        "root": {"root": "0" * 64},
        "head_hash": {"head_hash": "0" * 64},
        "size": {"size": 2},
    }
    event = decide(None, None, structs.replace(found, **forged[wrong]), Stamp(NO_SUCH_SESSION, fixture.clock.now()))
    store.append([event.append])
    # It may have grown since.
    server.eliminate(session_id, "s", "3", ["c"])
    assert [each for name in (HEADS_STREAM, session_id) for each in check_stream(store, name).findings] == []
    reports = list(check_recorded_heads(store))
    assert [(each.stream_id, len(each.findings)) for each in reports] == ([(session_id, 1)] if wrong else [])
    assert all("forked: it is another log up to seq" in str(each.findings[0]) for each in reports)
    assert list(check_recorded_heads(store, [other])) == []


# --- with the store in hands, and no guards ---


def edit_an_entry(store: InMemoryStore, session_id: str) -> None:
    entries = store._streams[session_id].entries
    entries[1] = StoredEntry(entries[1].raw.replace(b'["a"]', b'["c"]'), entries[1].event_hash)


def cut_the_tail(store: InMemoryStore, session_id: str) -> None:
    del store._streams[session_id].entries[2]


def change_the_universe(store: InMemoryStore, session_id: str) -> None:
    store._streams[session_id].universe = ("a", "b", "c", "x")


def add_a_tombstone(store: InMemoryStore, session_id: str) -> None:
    store._streams[session_id].tombstones.add("d")


def remove_a_tombstone(store: InMemoryStore, session_id: str) -> None:
    store._streams[session_id].tombstones.discard("b")


def keep_nonsense(store: InMemoryStore, session_id: str) -> None:
    store.put_checkpoint(session_id, 1, b"nonsense")


def keep_what_is_to_come(store: InMemoryStore, session_id: str) -> None:
    store.put_checkpoint(session_id, 3, b"")


def keep_another_state(store: InMemoryStore, session_id: str) -> None:
    session = verify_session(session_id, store.read(session_id)[:2])
    store.put_checkpoint(session_id, 2, freeze(structs.replace(session, active=("gate",))))


def intend_nonsense(store: InMemoryStore, session_id: str) -> None:
    store._intents[session_id] = store.read(session_id)[1]


def relist(**members: Any) -> Callable[[InMemoryStore, str], None]:
    """Let the derived row of the session say something else."""

    def fault(store: InMemoryStore, session_id: str) -> None:
        newest = store._streams[session_id].newest
        assert newest is not None
        assert newest.session is not None
        session = {name: members.pop(name) for name in [*members] if hasattr(newest.session, name)}
        newest = structs.replace(newest, session=structs.replace(newest.session, **session))
        store._streams[session_id].newest = structs.replace(newest, **members)

    fault.__name__ = f"relist_{'_'.join(members)}"
    return fault


def move_in_the_list(store: InMemoryStore, session_id: str) -> None:
    moved = "2000-01-01T00:00:00.000000Z"
    store._streams[session_id].created_ts = moved
    store._order = sorted((moved if each == session_id else ts, each) for ts, each in store._order)


FAULTS: dict[Callable[[InMemoryStore, str], None], str] = {
    edit_an_entry: "bad at seq 1",
    cut_the_tail: "audit_events seq 2: the row is missing: `sessions` records a head at seq 2",
    change_the_universe: "the stored universe is not the declared one",
    add_a_tombstone: "`d` has a tombstone, and no event eliminated it",
    remove_a_tombstone: "`b` was eliminated, and has no tombstone",
    keep_nonsense: "the checkpoint of seq 1 does not fit the log",
    keep_what_is_to_come: "the checkpoint is of seq 3, beyond the log",
    keep_another_state: "the checkpoint of seq 2 does not fit the log",
    intend_nonsense: "the open intent does not continue the log",
    relist(n_survivors=3): "sessions.n_survivors: stored is `3`, and the log leads to `2`",
    relist(terminated=True): "sessions.terminated: stored is `True`, and the log leads to `False`",
    relist(seq=7): "sessions.head_seq: stored is `7`, and the log leads to `2`",
    relist(event_id="x"): "sessions.head_event_id: stored is `x`",
    move_in_the_list: "sessions.listed: stored is `False`",
}


@pytest.mark.req("FSCK-01")
@for_each("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_is_wrong_is_named_and_the_other_session_is_well(fault: Callable[[InMemoryStore, str], None]) -> None:
    store = InMemoryStore()
    server = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds())
    session_id, other = lived(server), lived(server)
    fault(store, session_id)
    (what,) = check_stream(store, session_id).findings
    assert FAULTS[fault] in str(what)
    assert check_stream(store, other).findings == []


@pytest.mark.req("FSCK-01")
def test_a_row_that_the_database_derived_wrongly_is_named(tmp_path: Path) -> None:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        session_id, other = lived(fixture.open()), lived(fixture.open())
        with tampering(fixture.path, "sessions_only_forward") as database:
            database.execute("UPDATE sessions SET universe_size = 9 WHERE session_id = ?", (session_id,))
        store = fixture.store()
        (what,) = check_stream(store, session_id).findings
        assert str(what) == "sessions.universe_size: stored is `9`, and the log leads to `4`"
        assert check_stream(store, other).findings == []


@pytest.mark.req("FSCK-01")
def test_sessions_of_one_moment_are_found_among_each_other(
    fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_rows, "_NEIGHBOURS", 2)
    store = fixture.store()
    server = BeliefServer(store=store, clock=ManualClock(tick=timedelta()), ids=SequentialIds())
    sessions = [declared(server) for _ in range(5)]
    listed = [PlainRows(store).rows(session_id, None, 9).beside for session_id in sessions]
    assert [beside and beside.session and beside.session["session_id"] for beside in listed] == sessions
    server.close()


@pytest.mark.req("FSCK-01")
def test_a_declaration_in_doubt_is_not_wrong_and_any_other_intent_without_a_session_is(fixture: StoreFixture) -> None:
    store, (declaration, elimination, _) = fixture.store(), stream()
    store.put_intent(declaration)
    # A log takes for a beginning what says that it is one; whether it is shows in its bytes.
    stray = structs.replace(elimination, stream_id=NO_SUCH_SESSION, seq=0, prev_event_hash=bytes(32))
    store.put_intent(stray)
    assert sorted(names_in(store)) == sorted([declaration.stream_id, NO_SUCH_SESSION])
    assert check_stream(store, declaration.stream_id).findings == []
    (what,) = check_stream(store, NO_SUCH_SESSION).findings
    assert (what.table, what.column, what.expected) == ("intents", "stream_id", elimination.stream_id)
    assert list(all_sessions(store)) == []


# --- actors ---


@pytest.mark.req("FSCK-04")
def test_an_actor_is_held_against_the_register_of_keys() -> None:
    clock, store = ManualClock(), InMemoryStore()
    registry = KeyRegistry(store, clock=clock, ids=SequentialIds(1))
    good = registry.create(ActorKind.OPERATOR, "root", roles=[Role.OPERATOR]).key.actor
    short = registry.create(
        ActorKind.OPERATOR, "guest", roles=[Role.OPERATOR], expires_at="2026-01-01T00:10:00.000000Z"
    ).key.actor
    lost = registry.create(ActorKind.OPERATOR, "old", roles=[Role.OPERATOR]).key
    registry.revoke(lost.key_id, "lost")
    world = World(store, clock=clock, space=7)
    world.create()
    unknown = structs.replace(good, key_id="0" * 16)
    forged = structs.replace(good, id="other")
    inflated = structs.replace(good, scopes=("spaces:cases",))
    deflated = structs.replace(good, roles=UNSET)

    def use(number: int, actor: Actor) -> list[str]:
        world.say(RegisterTool(caller_tool(f"t{number}")), actor)
        return [str(each) for each in check_stream(store, STREAM, ActorCheck(store)).findings[len(said) :]]

    said: list[str] = []
    for number, (actor, expected) in enumerate(
        [
            (good, None),
            (short, None),
            (lost.actor, None),  # within the time that other processes take to hear of it
            (unknown, "is not in the register"),
            (forged, "is that of `operator:root`"),
            (inflated, "has other roles or scopes"),
            (deflated, "has other roles or scopes"),
        ]
    ):
        new = use(number, actor)
        assert new == [] if expected is None else len(new) == 1 and expected in new[0]
        said += new
    clock.advance(timedelta(hours=1))
    for number, (actor, expected) in enumerate([(short, "was expired before"), (lost.actor, "was revoked before")], 10):
        (new_one,) = use(number, actor)
        assert expected in new_one
        said.append(new_one)
    assert all(each.startswith("audit_events.entry seq ") for each in said)
    imported = check_stream(store, STREAM, ActorCheck(store, imported=True)).findings
    assert len(imported) == len(said) - 1
    assert check_stream(InMemoryStore(), STREAM, ActorCheck(InMemoryStore())).events == 0
    world.close()


@pytest.mark.req("FSCK-04")
def test_a_clock_that_was_wrong_is_worth_a_look_and_an_actor_before_its_key_is_forged(fixture: StoreFixture) -> None:
    store, clock, behind = fixture.store(), ManualClock("2026-01-02T00:00:00Z"), ManualClock("2026-01-01T00:00:00Z")
    registry = KeyRegistry(store, clock=clock, ids=SequentialIds(1))
    key = registry.create(ActorKind.OPERATOR, "root", roles=[Role.OPERATOR]).key
    with closing(World(store, clock=behind, space=7)) as world:
        world.create()
        # The clock of this server is a day behind that of the one where the key was made.
        world.say(RegisterTool(caller_tool("a")), key.actor)
        # And it jumps ahead, before the key is revoked.
        behind.advance(timedelta(days=3))
        world.say(RegisterTool(caller_tool("b")), key.actor)
        registry.revoke(key.key_id, "lost")
        findings = check_stream(store, STREAM, ActorCheck(store)).findings
        assert [(each.seq, each.is_note) for each in findings] == [(1, True), (2, True)]
        assert "clock: it is dated" in str(findings[0])
        assert "was written after that" in str(findings[0])
        assert "was written before that" in str(findings[1])
        # One that acts after the revocation is no matter of clocks, nor is one that acted before its key was made.
        world.say(RegisterTool(caller_tool("c")), key.actor)
        early = structs.replace(key.actor, key_id="0" * 16)
        world.say(RegisterTool(caller_tool("d")), early)
        clock.advance(timedelta(days=9))
        made = structs.replace(key, key_id="0" * 16, key_hash="1" * 64)
        registry._write(KeyCommand(CreateKey(made), COMMAND_LINE))
        *_, late, forged = check_stream(store, STREAM, ActorCheck(store)).findings
        assert [(each.seq, each.is_note) for each in (late, forged)] == [(3, False), (4, False)]
        assert "was revoked before" in str(late)
        assert "was made later" in str(forged)


@pytest.mark.req("FSCK-04")
def test_an_actor_is_judged_by_time_alone_where_the_order_of_entries_is_not_told() -> None:
    inner, clock = InMemoryStore(), ManualClock("2026-01-02T00:00:00Z")
    key = (
        KeyRegistry(inner, clock=clock, ids=SequentialIds(1))
        .create(ActorKind.OPERATOR, "root", roles=[Role.OPERATOR])
        .key
    )
    with closing(World(inner, clock=ManualClock("2026-01-01T00:00:00Z"), space=7)) as world:
        world.create()
        world.say(RegisterTool(caller_tool("a")), key.actor)
        plain = FailingLog(inner)
        (finding,) = check_stream(plain, STREAM, ActorCheck(plain)).findings
        assert not finding.is_note
        assert "was made later" in str(finding)


# --- a store in use, and a long stream ---


@pytest.mark.req("FSCK-05")
def test_a_store_that_is_written_to_meanwhile_has_nothing_wrong(
    fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_check, "PAGE", 3)
    server = fixture.open()
    session_id = declared(server)

    def write() -> None:
        for number in range(200):
            server.eliminate(session_id, "s", str(number), ["a"] if number == 3 else [])

    writer = Thread(target=write)
    writer.start()
    store = fixture.store()
    reports = [check_stream(store, session_id, ActorCheck(store)) for _ in range(5)]
    writer.join()
    reports.append(check_stream(store, session_id))
    assert [report.findings for report in reports] == [[]] * 6
    assert reports[-1].events == 201


@pytest.mark.req("FSCK-05")
def test_a_long_stream_is_read_by_pages_and_each_is_paced(
    fixture: StoreFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_check, "PAGE", 4)
    store, items = fixture.store(), stream(hypotheses="abcdefghijkl", events=11)
    store.append(items)
    looked: list[int] = []
    report = check_stream(store, items[0].stream_id, pace=looked.append)
    assert (report.findings, report.events, looked) == ([], 11, [4, 4, 3])


@pytest.mark.req("FSCK-05")
def test_a_rate_is_kept_by_waiting() -> None:
    shown: list[int] = []
    pace = Pace(1000, shown.append)
    began = time.monotonic()
    for _ in range(3):
        pace(100)
    assert time.monotonic() - began >= 0.3
    assert shown == [100, 200, 300]
