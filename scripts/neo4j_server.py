"""A real Neo4j Community server for tests and for play: the kernel with Bolt, on loopback, from two Maven artifacts.

`python scripts/neo4j_server.py` runs one until it is interrupted. Java 17 and, once, Maven are needed; the jars, some
120 MB, are kept in the user's cache, `XDG_CACHE_HOME` or `~/.cache`. There is no password: it is for loopback only.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

KERNEL = Path(__file__).resolve().parent / "neo4j-kernel"
JAVA_VERSION = 17
DOWNLOAD_SECONDS = 900
START_SECONDS = 180
STOP_SECONDS = 60
HEAP = "1g"
# For a server that does little before it ends: code is compiled quickly rather than well, which halves the work.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Neo4jMissing(Exception):
    """No Neo4j can be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Neo4jServer:
    """A running kernel. It stops when the process that started it ends: it reads a pipe that this process holds."""

    process: subprocess.Popen[str]
    url: str

    def stop(self) -> None:
        """Let the kernel shut down, and wait until it has."""
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


def start(directory: Path, port: int = 0, options: Sequence[str] = ()) -> Neo4jServer:
    """A server over the data in `directory`, ready for connections; port 0 is any free one, `options` are the JVM's."""
    java, jars = _java(), kernel_jars()
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "kernel.log"
    command = [java, f"-Xmx{HEAP}", *options, "-cp", f"{jars}/*"]
    command += [str(KERNEL / "Neo4jKernel.java"), str(directory), str(port)]
    with log.open("w") as stderr:
        # A session of its own: an interrupt at the terminal reaches only its parent, which then stops it.
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    assert process.stdout
    too_late = threading.Timer(START_SECONDS, process.kill)
    too_late.start()
    try:
        ready = next((line for line in process.stdout if line.startswith("ready ")), None)
    finally:
        too_late.cancel()
    if ready is None:
        Neo4jServer(process, "").kill()
        raise Neo4jMissing(f"the kernel did not start: {log.read_text('utf-8')[-2000:].strip()}")
    return Neo4jServer(process, f"bolt://127.0.0.1:{int(ready.split()[1])}")


def _java() -> str:
    """The Java to run; the message says what is missing."""
    java = shutil.which("java")
    if java is None:
        raise Neo4jMissing(f"Neo4j needs Java {JAVA_VERSION} or newer: there is no `java` on the path")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < JAVA_VERSION:
        raise Neo4jMissing(f"Neo4j needs Java {JAVA_VERSION} or newer: `java -version` says {told.strip()!r}")
    return java


def kernel_jars() -> Path:
    """The directory of the jars, fetched by Maven the first time; several processes may ask at once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cmbs"
    # Named after the pom: another version is another directory.
    jars = cache / f"neo4j-{hashlib.sha256((KERNEL / 'pom.xml').read_bytes()).hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with hold_lock(cache / "neo4j.lock"):
        if not jars.exists():
            _fetch(jars)
    return jars


def _fetch(jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Neo4jMissing("Neo4j is fetched by Maven the first time: there is no `mvn` on the path")
    print(f"fetching Neo4j into {jars}, about 120 MB", file=sys.stderr, flush=True)
    # Beside its final name, and renamed when complete: an interrupted download is never taken for the whole.
    with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
        fetched = Path(scratch) / "jars"
        command = [maven, "--quiet", "--batch-mode", "--file", str(KERNEL / "pom.xml")]
        command += ["dependency:copy-dependencies", f"-DoutputDirectory={fetched}"]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DOWNLOAD_SECONDS)
        except subprocess.TimeoutExpired as exc:
            raise Neo4jMissing(f"Maven did not fetch Neo4j in {DOWNLOAD_SECONDS} s") from exc
        if ran.returncode != 0:
            raise Neo4jMissing(f"Maven could not fetch Neo4j: {(ran.stdout + ran.stderr)[-2000:].strip()}")
        fetched.rename(jars)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock file; it is released with the process, too."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def temporary_server() -> Iterator[Neo4jServer]:
    """A server over an empty directory, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="cmbs-neo4j-") as directory:
        server = start(Path(directory))
        try:
            yield server
        finally:
            server.stop()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run a Neo4j Community server on loopback until interrupted.")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--data", type=Path, help="where the graph is kept; by default it is not")
    place.add_argument("--scratch", type=Path, help="like --data, but removed when the server that ran there has ended")
    parser.add_argument("--port", type=int, default=7687, help="the port for Bolt; 0 takes a free one")
    parser.add_argument("--short-lived", action="store_true", help="start sooner, run slower")
    parser.add_argument("--while-pid", type=int, help="stop when this process has ended")
    options = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    directory: Path = options.data or options.scratch or Path(tempfile.mkdtemp(prefix="cmbs-neo4j-"))
    try:
        server = start(directory.resolve(), options.port, SHORT_LIVED if options.short_lived else ())
    except Neo4jMissing as exc:
        if not options.data and not options.scratch:
            shutil.rmtree(directory)
        print(exc, file=sys.stderr)
        return 1
    try:
        print(server.url, flush=True)
        _watch(server, options.while_pid, ended)
    finally:
        server.stop()
        if not options.data:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


def _watch(server: Neo4jServer, pid: int | None, ended: threading.Event) -> None:
    """Until there is a reason to stop: a signal, the end of the process watched, or that of the kernel."""
    try:
        watched = psutil.Process(pid) if pid is not None else None
        while not ended.wait(0.5) and server.process.poll() is None:
            # A process whose parent has not waited for it is still in the table of processes.
            if watched and (not watched.is_running() or watched.status() == psutil.STATUS_ZOMBIE):
                return
    except psutil.NoSuchProcess:
        return


if __name__ == "__main__":
    sys.exit(main())
