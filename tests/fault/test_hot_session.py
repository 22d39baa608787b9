"""One session, eight processes at once: each gets its turn, nothing is applied twice, none sees an old head."""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.stores import open_store
from tests.fault.conftest import CheckFaults
from tests.support.contending import UNIVERSE
from tests.support.http_server import TIMEOUT_SECONDS, serving
from tests.support.load import declare_session
from tests.support.postgres import fresh_database
from tests.support.store_fixture import declared, verified
from tests.support.warm import start

pytestmark = pytest.mark.slow

PROCESSES = 8
# Writes that each process must get through while all the others go on without pause.
TURNS = 10
WORKERS = 4
EACH = 12


class Contender:
    """One process on the session, seen from outside."""

    def __init__(self, store_url: str, session_id: str, number: int) -> None:
        words = ("tests.support.contending", store_url, session_id, str(number))
        self.process: subprocess.Popen[str] = start(
            *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.number = number

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")

    def receive(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()


@contextmanager
def contenders(store_url: str, session_id: str) -> Iterator[list[Contender]]:
    with ExitStack() as processes:
        started = [Contender(store_url, session_id, number) for number in range(PROCESSES)]
        for contender in started:
            processes.enter_context(contender.process)
            processes.callback(contender.process.kill)
        assert [contender.receive() for contender in started] == [["ready"]] * PROCESSES
        yield started
        for contender in started:
            assert contender.process.stdin is not None
            contender.process.stdin.close()
        assert [contender.process.wait(TIMEOUT_SECONDS) for contender in started] == [0] * PROCESSES


class Contest:
    """What was answered while all of them wrote, and whether a reader elsewhere saw each write at once."""

    def __init__(self, reader: BeliefServer, session_id: str) -> None:
        self._reader = reader
        self._session_id = session_id
        self._changed = threading.Condition()
        self._turns: Counter[int] = Counter()
        # Observation and event id, once for each time that they were answered.
        self.answers: list[tuple[str, str]] = []
        self.stale_reads = 0

    def follow(self, contender: Contender) -> None:
        """Record what one process writes until it stops."""
        while (line := contender.receive()) != ["stopped"]:
            assert line[:1] == ["wrote"], line
            _, observation_id, event_id, n_survivors = line
            # Survivors only become fewer: a reader that sees more than there were after this write has not seen it.
            stale = self._reader.query_belief(self._session_id).n_survivors > int(n_survivors)
            with self._changed:
                self.answers.append((observation_id, event_id))
                self.stale_reads += stale
                self._turns[contender.number] += 1
                self._changed.notify_all()

    def wait_until_all_had_turns(self) -> None:
        """While the others do not pause: a process that starves fails this."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: all(self._turns[number] >= TURNS for number in range(PROCESSES)), TIMEOUT_SECONDS
            ), self._turns


def check_that_each_sees_what_any_wrote(started: list[Contender]) -> list[tuple[str, str]]:
    """Processes write in turn; after each write every one of them has it, however long it has held the session."""
    answers: list[tuple[str, str]] = []
    for writer in started:
        writer.send(f"write last.{writer.number}")
        _, observation_id, event_id, n_survivors = writer.receive()
        answers.append((observation_id, event_id))
        for reader in started:
            reader.send("read")
        assert [reader.receive() for reader in started] == [["read", event_id, n_survivors]] * PROCESSES
    return answers


@pytest.mark.req("STORE-PG-03", "BS-5.2-CONC-02", "BS-5.2-CONC-03", "FAULT-02")
def test_eight_processes_on_one_session_apply_each_observation_once_and_none_starves(
    store_url: str, check_faults: CheckFaults
) -> None:
    with closing(BeliefServer(store=open_store(store_url))) as reader:
        session_id = declared(reader, UNIVERSE)
        contest = Contest(reader, session_id)
        # In this order: where the contest fails its processes end first, and with them the threads that read from them.
        with ThreadPoolExecutor(PROCESSES) as threads, contenders(store_url, session_id) as started:
            following = [threads.submit(contest.follow, contender) for contender in started]
            for contender in started:
                contender.send("hammer")
            contest.wait_until_all_had_turns()
            for contender in started:
                contender.send("stop")
            for future in following:
                future.result(TIMEOUT_SECONDS)
            contest.answers += check_that_each_sees_what_any_wrote(started)
        assert contest.stale_reads == 0
        acknowledged = dict(contest.answers)
        # An observation that several made was answered with one event, to all of them.
        assert len(set(contest.answers)) == len(acknowledged)
        assert max(Counter(contest.answers).values()) == PROCESSES
        entries = reader.audit_trace(session_id)[1:]
        assert {entry.payload["observation_id"]: entry.event_id for entry in entries} == acknowledged
        assert len(entries) == len(acknowledged)
        assert verified(reader, session_id) == reader.query_belief(session_id)
    check_faults(store_url, [(session_id, event_id) for event_id in acknowledged.values()])


def write_over_http(url: str, session_id: str, number: int) -> list[tuple[str, str]]:
    """Write as one caller, each time over a connection of its own, and read back over another; what was answered."""
    answers: list[tuple[str, str]] = []
    path = f"{url}/v1/sessions/{session_id}"
    # Without certificates to load, a connection of its own costs next to nothing.
    with httpx2.Client(verify=False, timeout=TIMEOUT_SECONDS, headers={"connection": "close"}) as client:
        for step in range(EACH):
            own = f"{number}.{step}"
            for observation_id, gone in ((own, f"own.{own}"), (f"shared.{step}", f"shared.{step}")):
                seen = {"source_id": "caller", "observation_id": observation_id, "eliminated": [gone]}
                answer = client.post(f"{path}/eliminate", json=seen)
                assert answer.status_code == 200, answer.text
                answers.append((observation_id, answer.json()["audit_event_id"]))
                belief = client.get(path).json()
                assert gone not in belief["survivors"]
                assert belief["n_survivors"] <= answer.json()["snapshot"]["n_survivors"]
    return answers


@pytest.mark.postgres
@pytest.mark.req("STORE-PG-03", "CLI-SERVE-03", "FAULT-02")
def test_workers_over_one_database_act_as_one_server_on_a_hot_session(
    tmp_path: Path, check_faults: CheckFaults
) -> None:
    owned = [f"own.{number}.{step}" for number in range(PROCESSES) for step in range(EACH)]
    universe = [*owned, *(f"shared.{step}" for step in range(EACH)), "survivor"]
    with fresh_database() as store_url:
        with serving(tmp_path, "--store", store_url, "--workers", str(WORKERS)) as server:
            assert len(server.workers()) == WORKERS
            session_id = declare_session(server.url, "hot", universe)
            with ThreadPoolExecutor(PROCESSES) as threads:
                callers = threads.map(lambda number: write_over_http(server.url, session_id, number), range(PROCESSES))
                answers = [write for writes in callers for write in writes]
            acknowledged = dict(answers)
            assert len(set(answers)) == len(acknowledged) == PROCESSES * EACH + EACH
            for _ in range(2 * WORKERS):
                assert httpx2.get(f"{server.url}/v1/sessions/{session_id}").json()["survivors"] == ["survivor"]
            events = httpx2.get(f"{server.url}/v1/sessions/{session_id}/audit").json()["events"][1:]
            assert sorted(event["event_id"] for event in events) == sorted(acknowledged.values())
        check_faults(store_url, [(session_id, event_id) for event_id in acknowledged.values()])
