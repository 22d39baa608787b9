"""Two PostgreSQL nodes, a primary and its standby: one is killed, the other promoted, the first rejoins behind it.

What a failover manager does in production is done here by hand, in the same order: promote, let the new primary go on
without a synchronous standby, rewind the old one, and wait for replication to be synchronous again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg

from tests.support.effort import require_marker
from tests.support.http_server import TIMEOUT_SECONDS
from tests.support.postgres import postgres_program, skip_without_server, start_cluster

# Where the tests run as root, the development package makes this account to run its clusters as.
ACCOUNT = "pgserver"
# Between two looks at something that another process has to do first.
_GLANCE_SECONDS = 0.05
_PAUSE = threading.Event()
# Sockets in one directory have ports for names; no process listens on the network.
_FIRST_PORT = 54_000
NODES = 2
_SETTINGS = {
    "listen_addresses": "",
    "wal_level": "replica",
    "wal_keep_size": "1GB",
    "hot_standby": "on",
    "synchronous_commit": "on",
    "max_connections": "100",
    "shared_buffers": "16MB",
    # Tests kill processes, never the machine.
    "fsync": "off",
    # A standby that has lost its primary looks for the new one at once.
    "wal_retrieve_retry_interval": "100ms",
}


class Node:
    """One cluster. What makes it this one is given when it starts: `pg_rewind` copies the files of the other node."""

    def __init__(self, directory: Path, number: int, user: str | None) -> None:
        self.name = f"node{number}"
        self.port = _FIRST_PORT + number
        self.data = directory / self.name
        self._directory = directory
        self._user = user
        self.conninfo = f"host={directory} port={self.port} user=postgres dbname=postgres"

    def run(self, program: str, *arguments: str) -> None:
        """Run a program of PostgreSQL to its end, as the account that owns the data."""
        log = self._directory / f"{self.name}-{program}.txt"
        with log.open("wb") as printed:
            code = subprocess.run(
                [postgres_program(program), *arguments],
                stdout=printed,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                user=self._user,
                check=False,
            ).returncode
        assert code == 0, f"{program} ended with {code}: {log.read_text('utf-8')}"

    def start(self) -> None:
        """Start it; returns once it takes connections."""
        given = f"-p {self.port} -k {self._directory} -c cluster_name={self.name}"
        log = str(self._directory / f"{self.name}.log")
        self.run("pg_ctl", "start", "-w", "-t", str(int(TIMEOUT_SECONDS)), "-D", str(self.data), "-l", log, "-o", given)

    def processes(self) -> list[psutil.Process]:
        """The postmaster, and every process that it started; none where it does not run."""
        try:
            postmaster = psutil.Process(int((self.data / "postmaster.pid").read_text("ascii").split()[0]))
            return [postmaster, *postmaster.children(recursive=True)]
        except (OSError, psutil.NoSuchProcess):
            return []

    def kill(self) -> None:
        """End all of it without any warning, as a machine that loses its power would."""
        doomed = self.processes()
        for process in doomed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        until = time.monotonic() + TIMEOUT_SECONDS
        while any(map(_is_alive, doomed)):
            assert time.monotonic() < until, "it does not die"
            _PAUSE.wait(_GLANCE_SECONDS / 10)
        # As after a loss of power: no process has the number that stands in these.
        for lock in (self.data / "postmaster.pid", self._directory / f".s.PGSQL.{self.port}.lock"):
            lock.unlink(missing_ok=True)

    def freeze_receiver(self) -> psutil.Process:
        """Stop the process that receives from the primary: from here on this node lags behind."""
        (receiver,) = [process for process in self.processes() if "walreceiver" in " ".join(process.cmdline())]
        receiver.send_signal(signal.SIGSTOP)
        return receiver

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement outside of a transaction; its rows."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def set_synchronous(self, standbys: str) -> None:
        """Say which standbys a commit waits for: `*` for any, nothing for none."""
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
        self.execute("SELECT pg_reload_conf()")


class StandbyPostgres:
    """A primary and a standby. `url` names both, and asks for the one that can be written to."""

    def __init__(self, directory: Path, user: str | None) -> None:
        self._directory = directory
        self.primary, self.standby = (Node(directory, number, user) for number in range(NODES))
        ports = f"{self.primary.port},{self.standby.port}"
        self.url = (
            f"postgresql://postgres@/postgres?host={directory},{directory}&port={ports}&target_session_attrs=read-write"
        )
        self.primary.run("initdb", "-D", str(self.primary.data), "-U", "postgres", "-A", "trust", "--no-sync")
        with (self.primary.data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.writelines(f"{name} = '{value}'\n" for name, value in _SETTINGS.items())
        self.primary.start()
        self.standby.run(
            "pg_basebackup", "-D", str(self.standby.data), "-d", self.primary.conninfo, "-R", "--checkpoint=fast"
        )
        self.standby.start()

    def become_synchronous(self) -> None:
        """From now on a commit is acknowledged when both nodes have it; returns once that is so."""
        self.primary.set_synchronous("*")
        self.wait_for("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'")

    def wait_until_streaming(self) -> None:
        """Return once the standby has all that the primary has."""
        self.wait_for("SELECT 1 FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()")

    def promote(self) -> None:
        """Let the standby be the primary; it goes on without waiting for a standby of its own."""
        self.standby.run("pg_ctl", "promote", "-w", "-D", str(self.standby.data))
        self.primary, self.standby = self.standby, self.primary
        self.primary.set_synchronous("")

    def rejoin(self) -> None:
        """Take the killed node back as a standby: what only it has is undone, then it follows the new primary."""
        old = self.standby
        # Kills come before a node makes a checkpoint by itself; recovery would read all WAL since the beginning.
        self.primary.execute("CHECKPOINT")
        old.run("pg_rewind", "-D", str(old.data), f"--source-server={self.primary.conninfo}", "-R", "--no-sync")
        old.start()
        self.become_synchronous()
        old.execute("CHECKPOINT")

    def wait_for(self, statement: str) -> None:
        """Return once a query of the primary has a row; fail where it never has one."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while not self.primary.execute(statement):
            assert time.monotonic() < until, f"it did not come to that: {statement}"
            _PAUSE.wait(_GLANCE_SECONDS)

    def discard(self) -> None:
        """Leave nothing behind, whatever the test did."""
        for node in (self.primary, self.standby):
            for process in node.processes():
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)
            node.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


def _is_alive(process: psutil.Process) -> bool:
    """Whether it still runs: one that is dead and was not collected yet does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def standby_postgres() -> Iterator[StandbyPostgres]:
    """Two nodes for one test; skips the test where none can be started, as `tests.support.postgres` does."""
    require_marker("postgres")
    directory = Path(tempfile.mkdtemp(prefix="cmbs-ha-"))
    user = None
    try:
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = ACCOUNT
            start_cluster(directory / "account").cleanup()
            shutil.chown(directory, user, user)
        cluster = StandbyPostgres(directory, user)
    except Exception as exc:  # noqa: BLE001 - whatever it is, it is the reason to skip
        for number in range(NODES):
            Node(directory, number, user).kill()
        shutil.rmtree(directory, ignore_errors=True)
        skip_without_server(exc)
    try:
        yield cluster
    finally:
        cluster.discard()
