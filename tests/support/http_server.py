"""`cmbs serve` as a process of its own, on a port of its own, as an operator would run it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx2
import psutil

from tests.support.warm import CMBS, TERMINAL, run, start

# How long anything may take before a test gives up. Nothing waits for it where all is well.
TIMEOUT_SECONDS = 60.0
# Between two looks at something that another process has to do first.
_GLANCE = 0.02
# Below the ports that Linux hands out, and others in each process of a run of the tests.
_PORTS_OF_A_PROCESS = 100
_FIRST_PORT = 12_000 + os.getpid() % 200 * _PORTS_OF_A_PROCESS
_PORTS = cycle(range(_FIRST_PORT, _FIRST_PORT + _PORTS_OF_A_PROCESS))


def free_port() -> int:
    """A port that no process listens on.

    Not one of those that the system hands out: another process may be given it before the server listens on it.
    """
    for port in islice(_PORTS, _PORTS_OF_A_PROCESS):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")


def open_client(url: str, **options: Any) -> httpx2.Client:
    """A client of a server on this machine."""
    if url.startswith("http:"):
        # Without TLS there is nothing to verify, and to read the certificates of the system takes 50 ms.
        options["verify"] = False
    return httpx2.Client(base_url=url, **{"timeout": TIMEOUT_SECONDS, **options})


def environment_with(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command: ours, without settings of cmbs that happen to be there."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CMBS_")}
    # A terminal that is as wide as the longest line: what is printed must not depend on where the tests run.
    return {**inherited, **TERMINAL, **variables}


def run_cmbs(
    *arguments: str, directory: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    environment = environment_with(variables or {})
    return run("cmbs", *arguments, directory=directory, environment=environment, timeout=TIMEOUT_SECONDS)


class ServerProcess:
    """One run of `cmbs serve`. `connection` is what an httpx2 client needs to reach it, beside the URL.

    `command` is a command that is installed, run in an interpreter of its own; without it, a warm process is forked,
    but for PostgreSQL: a worker that was forked with libpq loaded may end when its database is killed.
    """

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        port: int | None = None,
        variables: Mapping[str, str] | None = None,
        connection: Mapping[str, Any] | None = None,
        command: Path | None = None,
    ) -> None:
        self.port = free_port() if port is None else port
        scheme, host = ("https", "localhost") if "--tls-cert" in arguments else ("http", "127.0.0.1")
        self.url = f"{scheme}://{host}:{self.port}"
        self._connection = dict(connection or {})
        self.socket_file = directory / arguments[arguments.index("--uds") + 1] if "--uds" in arguments else None
        self._printed = directory / f"serve-{self.port}.txt"
        words = ("serve", "--port", str(self.port), *arguments)
        if command is None and any(word.startswith("postgres") for word in arguments):
            command = CMBS
        with self._printed.open("wb") as printed:
            options: dict[str, Any] = {"cwd": directory, "env": environment_with(variables or {}), "stdout": printed}
            options["stderr"] = subprocess.STDOUT
            self.process = (
                start("cmbs", *words, **options) if command is None else subprocess.Popen([command, *words], **options)
            )

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._printed.read_text("utf-8")

    def client(self, **options: Any) -> httpx2.Client:
        """A client of it."""
        if self.socket_file is not None:
            options["transport"] = httpx2.HTTPTransport(uds=str(self.socket_file), verify=False)
        return open_client(self.url, **self._connection, **options)

    def wait_until_ready(self) -> None:
        """Return once it answers; fail where it ended instead, or does neither."""
        with self.client() as client:
            for _ in range(int(TIMEOUT_SECONDS / _GLANCE)):
                with suppress(httpx2.TransportError):
                    if self._answers(client):
                        return
                try:
                    code = self.process.wait(_GLANCE)
                except subprocess.TimeoutExpired:
                    continue
                raise AssertionError(f"it ended with {code}: {self.output}")
        raise AssertionError(f"it does not answer: {self.output}")

    def _answers(self, client: httpx2.Client) -> bool:
        if self.socket_file is not None:
            # By hand: httpx2 leaves a socket open where a socket file is not there yet.
            with socket.socket(socket.AF_UNIX) as probe:
                if probe.connect_ex(str(self.socket_file)):
                    return False
        return client.get("/readyz").status_code == httpx2.codes.OK

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Return once something is so; fail where it never is."""
        for _ in range(int(TIMEOUT_SECONDS / _GLANCE)):
            if is_so():
                return
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_GLANCE)
        raise AssertionError(f"it did not come to that: {self.output}")

    def children(self) -> list[psutil.Process]:
        """Every process that it started."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def workers(self) -> list[psutil.Process]:
        """The processes that serve, without the one that tidies up after processes."""
        return [child for child in self.children() if "resource_tracker" not in _command_line(child)]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT_SECONDS)

    def kill(self) -> None:
        """End it without any warning, workers and all, as a machine that loses its power would."""
        doomed = [*self.children(), psutil.Process(self.process.pid)]
        for process in doomed:
            process.kill()
        self.process.wait(TIMEOUT_SECONDS)
        _, alive = psutil.wait_procs(doomed, TIMEOUT_SECONDS)
        assert alive == []

    def discard(self) -> None:
        """Leave nothing behind, whatever the test did."""
        if self.process.poll() is None:
            self.kill()


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextmanager
def serving(directory: Path, *arguments: str, **options: Any) -> Iterator[ServerProcess]:
    """A server that answers, and is stopped in the end if the test did not; the options are those of the process."""
    server = ServerProcess(directory, *arguments, **options)
    try:
        server.wait_until_ready()
        yield server
        if server.process.poll() is None:
            server.stop()
    finally:
        server.discard()
