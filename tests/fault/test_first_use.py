"""The first key and the first import by several processes at once: each is done, or says clearly why it is not."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from cmbs.audit.transfer import export_lines
from cmbs.belief.server import BeliefServer
from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.identity.kernel.stream import verify_keys
from cmbs.stores import open_store
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import ManualClock, SequentialIds
from tests.fault.conftest import CheckFaults
from tests.support.effort import EFFORT
from tests.support.http_server import TIMEOUT_SECONDS
from tests.support.store_fixture import declared
from tests.support.warm import start

pytestmark = pytest.mark.slow

PROCESSES = 4


def run_at_once(commands: list[tuple[str, str, str]]) -> list[str]:
    """Run a process for each, let all of them act in the same moment; what each of them printed."""
    with ExitStack() as running:
        processes = [
            running.enter_context(
                start(
                    "tests.support.first_use",
                    *command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for command in commands
        ]
        for process in processes:
            running.callback(process.kill)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        printed = [process.communicate(timeout=TIMEOUT_SECONDS)[0].strip() for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes)
    return printed


@pytest.mark.req("FIRST-01")
def test_first_keys_that_are_made_at_once_are_all_there(store_url: str) -> None:
    open_store(store_url).close()
    made = run_at_once([("key", store_url, f"agent{number}") for number in range(PROCESSES)])
    assert all(line.startswith("made ") for line in made), made
    with closing(open_store(store_url)) as store:
        keys = verify_keys(store.read(KEYS_STREAM), store.head(KEYS_STREAM))
    assert keys.by_id.keys() == {line.removeprefix("made ") for line in made}


def export_of(space: int, gone: str, path: Path) -> str:
    """An export of one session that eliminated something; the id of the session, which follows from `space` alone."""
    log = InMemoryStore()
    server = BeliefServer(store=log, clock=ManualClock(), ids=SequentialIds(space))
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", [gone])
    path.write_bytes(b"\n".join(export_lines(log, [session_id])))
    return session_id


@pytest.mark.req("FIRST-01", "TRANSFER-01")
def test_first_imports_of_one_log_are_one_and_of_another_log_a_conflict(
    store_url: str, tmp_path: Path, check_faults: CheckFaults
) -> None:
    open_store(store_url).close()
    for attempt in range(max(3, min(EFFORT.kills, 20))):
        files = [tmp_path / f"{attempt}-{gone}" for gone in "ab"]
        (session_id,) = {export_of(attempt, file.name[-1], file) for file in files}
        printed = run_at_once([("import", store_url, str(files[number % 2])) for number in range(PROCESSES)])
        done = [number % 2 for number, line in enumerate(printed) if line == f"imported {session_id}"]
        refused = [line for line in printed if not line.startswith("imported")]
        # One of the two logs is there for both processes that brought it; the two that brought the other are told so.
        assert (done, len(refused)) == ([done[0]] * 2, 2), printed
        assert set(refused) == {f"CONFLICT another log of `{session_id}` is here already"}
        with closing(open_store(store_url)) as store:
            assert list(export_lines(store, [session_id])) == files[done[0]].read_bytes().splitlines()
    check_faults(store_url, [])
