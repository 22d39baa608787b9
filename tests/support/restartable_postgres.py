"""A PostgreSQL of a test's own, that may be stopped, frozen and killed without taking other tests along."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support.effort import require_marker
from tests.support.http_server import TIMEOUT_SECONDS
from tests.support.postgres import skip_without_server, start_cluster

MAX_STARTS = 4


class RestartablePostgres:
    """A cluster in a directory of its own. It may go and come back; its data and its URL stay."""

    def __init__(self) -> None:
        self._server: Any = start_cluster(Path(tempfile.mkdtemp(prefix="cmbs-pg-")))
        self.url = str(self._server.get_uri())

    def processes(self) -> list[psutil.Process]:
        """The postmaster, and every process that it started."""
        postmaster = psutil.Process(self._server.get_pid())
        return [postmaster, *postmaster.children(recursive=True)]

    def kill(self) -> None:
        """End all of it without any warning, as a machine that loses its power would."""
        doomed = self.processes()
        _signal(doomed, signal.SIGKILL)
        _, alive = psutil.wait_procs(doomed, TIMEOUT_SECONDS)
        assert alive == []

    def freeze(self) -> None:
        """Let it keep its connections and answer none of them, as behind a network that lost its way."""
        # The postmaster first, so that it starts nothing new behind our back.
        for process in self.processes():
            _signal([process], signal.SIGSTOP)
        _signal(self.processes(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        _signal(self.processes(), signal.SIGCONT)

    def stop(self) -> None:
        """Shut it down in good order."""
        self._server.stop()

    def start(self) -> None:
        """Start it again on the same data; returns once it takes connections."""
        for attempt in range(1, MAX_STARTS + 1):
            # On a busy machine recovery may outlast the time that the package gives it: then look again.
            try:
                self._server.ensure_postgres_running()
            except (subprocess.SubprocessError, AssertionError):
                if attempt == MAX_STARTS:
                    raise
            else:
                return

    def discard(self) -> None:
        """Leave nothing behind, whatever the test did."""
        with suppress(psutil.NoSuchProcess):
            self.thaw()
        self._server.cleanup()


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


@contextmanager
def restartable_postgres() -> Iterator[RestartablePostgres]:
    """A cluster for one test; skips the test where none can be started, as `tests.support.postgres` does."""
    require_marker("postgres")
    try:
        cluster = RestartablePostgres()
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is the reason to skip
        skip_without_server(exc)
    try:
        yield cluster
    finally:
        cluster.discard()
