"""Many callers at once, in threads, event loops and processes: nothing lost, nothing twice, one unbroken chain."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from cmbs.belief.kernel.requests import Command, Limits
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, HeadMismatch, LedgerCorrupt, SessionNotFound, StoreUnavailable
from cmbs.ledger import StoredEntry
from cmbs.messages import EliminateOutcome
from cmbs.spi import Append
from cmbs.stores import SQLiteStore
from tests.support.plain_store import PlainStore
from tests.support.store_fixture import NO_SUCH_SESSION, ONTOLOGY, StoreFixture, declared, tampering, verified

pytestmark = pytest.mark.slow

THREADS = 32
EACH = 6
UNIVERSE = [f"h{number:03}" for number in range(THREADS * EACH)]
# Longer than any test may take; reached only by a deadlock, which then fails the test instead of holding it up.
FOR_EVER = 60.0

T = TypeVar("T")


class GatedStore(SQLiteStore):
    """A store whose appends wait at a gate while it is shut, and which counts those that went through."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()
        self.groups: list[int] = []

    def append(self, appends: Sequence[Append]) -> None:
        self.waiting.set()
        assert self.gate.wait(FOR_EVER)
        self.groups.append(len(appends))
        super().append(appends)

    def shut(self) -> None:
        self.gate.clear()
        self.waiting.clear()


def open_gated(fixture: StoreFixture) -> tuple[GatedStore, BeliefServer, str]:
    """A store that is shut, its server, and a session that was declared before."""
    store = GatedStore(fixture.path)
    server = fixture.open(store=store)
    session_id = declared(server)
    store.shut()
    return store, server, session_id


def at_once(act: Callable[[int], T], count: int = THREADS) -> list[T]:
    """Call `act(number)` in `count` threads that begin together."""
    begin = threading.Barrier(count)

    def run(number: int) -> T:
        begin.wait()
        return act(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def check_one_chain(server: BeliefServer, session_id: str, acknowledged: dict[str, str]) -> None:
    """Every acknowledged observation is in the log once, under the event id that was told, and the chain is whole."""
    entries = server.audit_trace(session_id)
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    eliminations = [entry for entry in entries if entry.verb == "ELIMINATE"]
    recorded = {entry.payload["observation_id"]: entry.event_id for entry in eliminations}
    assert len(recorded) == len(eliminations)
    assert recorded == acknowledged
    assert verified(server, session_id) == server.query_belief(session_id)


# --- threads ---


@pytest.mark.req("BS-5.2-CONC-01", "BS-5.2-CONC-03")
@pytest.mark.parametrize("count", [1, 2], ids=["one server", "two servers"])
def test_threads_on_one_session_leave_one_chain_with_everything_in_it_once(fixture: StoreFixture, count: int) -> None:
    servers = [fixture.open() for _ in range(count)]
    session_id = declared(servers[0], UNIVERSE)

    def eliminate(number: int) -> list[EliminateOutcome]:
        mine = UNIVERSE[number * EACH : (number + 1) * EACH]
        return [
            servers[(number + step) % count].eliminate(session_id, f"s{number}", each, [each])
            for step, each in enumerate(mine[:-1])
        ]

    outcomes = [outcome for mine in at_once(eliminate) for outcome in mine]
    acknowledged = {outcome.applied_eliminated[0]: outcome.audit_event_id for outcome in outcomes}
    assert len(acknowledged) == THREADS * (EACH - 1)
    for server in [*servers, fixture.open()]:
        check_one_chain(server, session_id, acknowledged)
    for outcome in outcomes:
        assert outcome.snapshot == servers[0].query_belief(session_id, at=outcome.audit_event_id)


@pytest.mark.req("BS-5.2-CONC-01")
@pytest.mark.parametrize("cached_sessions", [1, 2, 100])
def test_threads_on_many_sessions_do_not_disturb_each_other_whatever_is_cached(
    fixture: StoreFixture, cached_sessions: int
) -> None:
    server = fixture.open(limits=Limits(cached_sessions=cached_sessions))
    session_ids = [declared(server, "abcdefgh") for _ in range(8)]

    def eliminate(number: int) -> tuple[str, str, str]:
        session_id, hypothesis_id = session_ids[number % 8], "abcdefgh"[number // 8]
        outcome = server.eliminate(session_id, "s", hypothesis_id, [hypothesis_id])
        assert outcome.applied_eliminated == [hypothesis_id]
        return session_id, hypothesis_id, outcome.audit_event_id

    done = at_once(eliminate)
    for session_id in session_ids:
        check_one_chain(server, session_id, {observed: event for owner, observed, event in done if owner == session_id})


@pytest.mark.req("BS-5.2-CONC-02")
def test_the_same_request_from_many_threads_is_applied_once_and_answered_alike(fixture: StoreFixture) -> None:
    server = fixture.open()
    session_id = declared(server)
    server.enter_obligation(session_id, "gate", 0)
    requests: list[Callable[[int], Any]] = [
        lambda _: server.eliminate(session_id, "s", "o", ["a", "z"]),
        lambda _: server.request_exit(session_id, "gate", idempotency_key="leave"),
        lambda _: server.declare_conclusion(session_id, "c", idempotency_key="conclude"),
        lambda _: server.declare_session(ONTOLOGY, ["a"], idempotency_key="declare"),
    ]
    for request in requests:
        answers = at_once(request, 8)
        assert all(answer == answers[0] for answer in answers)
    assert len(server.audit_trace(session_id)) == 5
    assert len(server.list_sessions()) == 2
    assert verified(server, session_id) == server.query_belief(session_id)


@pytest.mark.req("BS-5.2-CONC-02")
def test_of_many_who_enter_one_obligation_or_expect_one_head_exactly_one_succeeds(fixture: StoreFixture) -> None:
    server = fixture.open()
    session_id = declared(server)
    head = server.query_belief(session_id).audit_head_event_id

    def enter(number: int) -> str:
        try:
            return server.enter_obligation(session_id, "gate", number).audit_event_id
        except Conflict:
            return "refused"

    def conclude(number: int) -> str:
        try:
            return server.declare_conclusion(session_id, f"c{number}", if_match=head).audit_event_id
        except HeadMismatch:
            return "refused"

    for race in (conclude, enter):
        assert at_once(race, 8).count("refused") == 7
    assert len(server.audit_trace(session_id)) == 3


@pytest.mark.req("BS-4.1-MONO-01", "BS-2.2-SNAP-05")
def test_readers_beside_writers_see_survivors_that_only_become_fewer(fixture: StoreFixture) -> None:
    writer, reader = fixture.open(), fixture.open()
    session_id = declared(writer, UNIVERSE)
    done = threading.Event()

    def write() -> None:
        for number, hypothesis_id in enumerate(UNIVERSE[:100]):
            writer.eliminate(session_id, "s", str(number), [hypothesis_id])
        done.set()

    def read(server: BeliefServer) -> list[tuple[int, str | None]]:
        seen: list[tuple[int, str | None]] = []
        while not done.is_set():
            snapshot = server.query_belief(session_id)
            seen.append((len(snapshot.survivors), snapshot.audit_head_event_id))
            assert len(server.audit_trace(session_id)) >= len(UNIVERSE) - seen[-1][0] + 1
        return seen

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read, server) for server in (writer, reader, reader)]
        pool.submit(write).result()
        for seen in (future.result() for future in reading):
            assert [count for count, _ in seen] == sorted((count for count, _ in seen), reverse=True)
            for count, event_id in seen[:: max(1, len(seen) // 10)]:
                assert writer.query_belief(session_id, at=event_id).n_survivors == count


# --- the writer that all share ---


@pytest.mark.req("BS-5.1-STORE-06")
def test_writes_that_wait_are_committed_together_and_each_caller_hears_of_its_own(sqlite_fixture: StoreFixture) -> None:
    store = GatedStore(sqlite_fixture.path)
    server = sqlite_fixture.open(store=store)
    session_id, other = declared(server, UNIVERSE), declared(server)
    server.eliminate(session_id, "s", "taken", ["h000"])
    server.query_belief(other)
    store.shut()
    commands = [
        Command(session_id, server.requests.eliminate("s", "taken", ["h001"], None)),
        Command(other, server.requests.request_exit("never entered", None)),
    ]
    for number in range(2, 20):
        message = server.requests.eliminate("s", str(number), [UNIVERSE[number], "a"], None)
        commands.append(Command((session_id, other)[number % 2], message))

    async def together() -> list[Any]:
        first = asyncio.ensure_future(
            server.perform_async(Command(other, server.requests.eliminate("s", "1", ["b"], None)))
        )
        assert await asyncio.to_thread(store.waiting.wait, FOR_EVER)
        waiting = [asyncio.ensure_future(server.perform_async(command)) for command in commands]
        await asyncio.sleep(0)
        store.gate.set()
        return await asyncio.gather(first, *waiting, return_exceptions=True)

    first, *answers = asyncio.run(together())
    assert first.applied_eliminated == ["b"]
    assert [type(answer).__name__ for answer in answers[:2]] == ["Conflict", "ObligationNotFound"]
    assert [answer.applied_eliminated for answer in answers[2:4]] == [["h002"], ["a"]]
    assert store.groups[-2:] == [1, 18]
    assert verified(server, session_id).n_survivors == len(UNIVERSE) - 10
    assert verified(server, other).survivors == ["c", "d"]


@pytest.mark.req("BS-5.1-STORE-06")
def test_a_crowd_is_written_in_groups_of_bounded_size(sqlite_fixture: StoreFixture) -> None:
    store, server, session_id = open_gated(sqlite_fixture)

    async def crowd() -> list[Any]:
        messages = [server.requests.eliminate("s", str(number), [], None) for number in range(600)]
        waiting = [asyncio.ensure_future(server.perform_async(Command(session_id, each))) for each in messages]
        assert await asyncio.to_thread(store.waiting.wait, FOR_EVER)
        store.gate.set()
        return await asyncio.gather(*waiting)

    assert len({outcome.audit_event_id for outcome in asyncio.run(crowd())}) == 600
    assert sum(store.groups) == 601
    assert max(store.groups) == 256
    assert len(server.audit_trace(session_id)) == 601


@pytest.mark.req("BS-5.1-STORE-06")
def test_a_result_that_cannot_be_delivered_does_not_stop_the_writer(sqlite_fixture: StoreFixture) -> None:
    server = sqlite_fixture.open()
    session_id = declared(server)
    group = server._sessions._group
    assert group is not None

    def fail(_: object) -> None:
        raise ConnectionError("the caller is gone")

    group.submit(Command(session_id, server.requests.eliminate("s", "1", ["a"], None))).add_done_callback(fail)
    assert server.eliminate(session_id, "s", "2", ["b"]).snapshot.survivors == ["c", "d"]


@pytest.mark.req("BS-5.1-STORE-06")
def test_closing_a_server_writes_what_waits(sqlite_fixture: StoreFixture) -> None:
    store, server, session_id = open_gated(sqlite_fixture)
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(server.eliminate, session_id, "s", each, [each]) for each in "abc"]
        assert store.waiting.wait(FOR_EVER)
        closing = pool.submit(server.close)
        store.gate.set()
        closing.result()
        refused = [future for future in waiting if future.exception() is not None]
    assert all(isinstance(future.exception(), StoreUnavailable) for future in refused)
    acknowledged = {future.result().applied_eliminated[0] for future in waiting if future not in refused}
    assert len(acknowledged) >= 1
    server.close()
    with pytest.raises(StoreUnavailable):
        server.eliminate(session_id, "s", "late", ["d"])
    gone = {*"abcd"} - {*verified(sqlite_fixture.open(), session_id).survivors}
    assert gone == acknowledged


@pytest.mark.req("BS-5.2-CONC-04")
def test_a_session_that_takes_long_to_load_does_not_hold_up_another_one(sqlite_fixture: StoreFixture) -> None:
    loading, go_on = threading.Event(), threading.Event()

    class SlowlyRead(SQLiteStore):
        def read(
            self, stream_id: str, after: int = -1, limit: int | None = None, max_bytes: int | None = None
        ) -> list[StoredEntry]:
            if stream_id == slow:
                loading.set()
                assert go_on.wait(FOR_EVER)
            return super().read(stream_id, after, limit, max_bytes)

    slow = declared(sqlite_fixture.open())
    server = sqlite_fixture.open(store=SlowlyRead(sqlite_fixture.path))
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(server.eliminate, slow, "s", "o", ["a"])
        assert loading.wait(FOR_EVER)
        quick = declared(server)
        assert server.eliminate(quick, "s", "o", ["a"]).applied_eliminated == ["a"]
        assert not held.done()
        go_on.set()
        assert held.result().applied_eliminated == ["a"]


@pytest.mark.req("BS-5.1-STORE-06")
def test_in_one_group_neither_an_unknown_nor_a_broken_session_spoils_the_others(sqlite_fixture: StoreFixture) -> None:
    server = sqlite_fixture.open()
    broken, healthy = declared(server), declared(server)
    sqlite_fixture.open().eliminate(broken, "elsewhere", "1", ["a"])
    with tampering(sqlite_fixture.path, "audit_events_no_update") as database:
        database.execute("UPDATE audit_events SET entry = x'7b7d' WHERE stream_id = ? AND seq = 1", (broken,))
    declaration = server.declaration(ONTOLOGY, ["a", "b"], idempotency_key="k")
    message = server.requests.eliminate("s", "o", ["a"], None)
    early = Command(declaration.session_id, server.requests.eliminate("s", "early", ["b"], None))
    results = server._sessions._writer.run(
        [early, Command(broken, message), Command(NO_SUCH_SESSION, message), Command(healthy, message), declaration]
    )
    assert isinstance(results[1], LedgerCorrupt)
    assert isinstance(results[2], SessionNotFound)
    assert not isinstance(results[3], Exception)
    assert not isinstance(results[4], Exception)
    assert server.query_belief(healthy).survivors == ["b", "c", "d"]
    assert verified(server, declaration.session_id).session_id == declaration.session_id


# --- event loops ---


@pytest.mark.req("BS-5.2-CONC-01")
@pytest.mark.parametrize("remote", [False, True], ids=["one store", "a plain store beside it"])
def test_tasks_on_one_event_loop_leave_one_chain_too(fixture: StoreFixture, remote: bool) -> None:
    options = {"store": PlainStore(), "audit_log": fixture.store()} if remote else {}
    server = fixture.open(**options)
    session_id = declared(server, UNIVERSE)
    fresh = fixture.open(**options)

    async def eliminate_all() -> list[Any]:
        messages = [server.requests.eliminate("s", each, [each], None) for each in UNIVERSE[:40]]
        commands = [Command(session_id, message) for message in messages]
        commands.append(Command(NO_SUCH_SESSION, messages[0]))
        asked = [(server, fresh)[number % 2] for number in range(len(commands))]
        work = [each.perform_async(command) for each, command in zip(asked, commands, strict=True)]
        return await asyncio.gather(*work, return_exceptions=True)

    *outcomes, missing = asyncio.run(eliminate_all())
    assert isinstance(missing, SessionNotFound)
    acknowledged = {outcome.applied_eliminated[0]: outcome.audit_event_id for outcome in outcomes}
    check_one_chain(server, session_id, acknowledged)
    again = asyncio.run(eliminate_all())
    assert again[:-1] == outcomes


@pytest.mark.req("BS-5.2-CONC-04")
def test_callers_that_went_away_with_their_event_loop_do_not_stop_the_writer(sqlite_fixture: StoreFixture) -> None:
    store, server, session_id = open_gated(sqlite_fixture)
    command = Command(session_id, server.requests.eliminate("s", "left", ["a"], None))

    async def submitted() -> None:
        await asyncio.sleep(0)
        assert await asyncio.to_thread(store.waiting.wait, FOR_EVER)

    loop = asyncio.new_event_loop()
    task = loop.create_task(server.perform_async(command))
    loop.run_until_complete(submitted())
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    store.gate.set()
    with ThreadPoolExecutor(1) as pool:
        after = pool.submit(server.eliminate, session_id, "s", "stayed", ["b"]).result(FOR_EVER)
    assert after.snapshot.survivors == ["c", "d"]
    assert asyncio.run(server.perform_async(command)).snapshot.survivors == ["b", "c", "d"]


def test_a_caller_that_no_longer_waits_does_not_keep_others_of_its_loop_from_hearing(
    sqlite_fixture: StoreFixture,
) -> None:
    store, server, session_id = open_gated(sqlite_fixture)

    async def one_leaves() -> Any:
        messages = [server.requests.eliminate("s", each, [each], None) for each in "ab"]
        left, stayed = (asyncio.ensure_future(server.perform_async(Command(session_id, each))) for each in messages)
        assert await asyncio.to_thread(store.waiting.wait, FOR_EVER)
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        store.gate.set()
        return await asyncio.wait_for(stayed, FOR_EVER)

    assert asyncio.run(one_leaves()).applied_eliminated == ["b"]
    assert server.query_belief(session_id).survivors == ["c", "d"]


# --- processes ---


def hammer(path: Path, session_id: str, number: int, acknowledged: Any) -> None:
    """One process: eliminations of its own, one that every process makes, and its acknowledgements."""
    server = BeliefServer(store=SQLiteStore(path))
    for each in UNIVERSE[number * EACH : (number + 1) * EACH]:
        outcome = server.eliminate(session_id, "process", each, [each])
        acknowledged.put((each, outcome.audit_event_id))
    shared = server.eliminate(session_id, "process", "shared", [UNIVERSE[-1]])
    acknowledged.put(("shared", shared.audit_event_id))
    server.close()


@pytest.mark.slow
@pytest.mark.req("BS-5.2-CONC-03", "BS-5.2-CONC-02")
def test_processes_on_one_session_of_one_file_leave_one_chain(sqlite_fixture: StoreFixture) -> None:
    server = sqlite_fixture.open()
    session_id = declared(server, UNIVERSE)
    spawn = multiprocessing.get_context("spawn")
    acknowledged = spawn.SimpleQueue()
    processes = [
        spawn.Process(target=hammer, args=(sqlite_fixture.path, session_id, number, acknowledged))
        for number in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    heard = [acknowledged.get() for _ in range(4 * (EACH + 1))]
    assert len(dict(heard)) == 4 * EACH + 1
    assert len(set(heard)) == 4 * EACH + 1
    check_one_chain(server, session_id, dict(heard))
