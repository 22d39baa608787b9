"""Processes of the tests, forked from a warm one: imports are paid for once, and not by every process.

`start` and `run` take what `subprocess.Popen` and `subprocess.run` take, but for the command: its first word is `cmbs`,
or the name of a module. What is started is a process like any other. It has a pid, signals reach it, and a kill is a
kill. Where an operating system does not fork well, the same words start a new interpreter.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.warm_host import CMBS_COMMAND, NUMBER

CMBS = Path(sys.executable).parent / "cmbs"
ROOT = Path(__file__).resolve().parents[2]
# The words that rich reads when it is imported; see `tests.support.http_server.environment_with`.
TERMINAL = {"COLUMNS": "200", "TERM": "dumb", "NO_COLOR": "1"}
WARM = sys.platform == "linux"


@cache
def _host() -> socket.socket:
    """Where to ask the host of this process for processes; started when it is first needed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("CMBS_", "COV"))}
    host = subprocess.Popen(
        [sys.executable, "-m", "tests.support.warm_host", str(theirs.fileno()), str(CMBS)],
        cwd=ROOT,
        env={**inherited, **TERMINAL},
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    atexit.register(_end_host, host, ours)
    return ours


def _end_host(host: subprocess.Popen[bytes], requests: socket.socket) -> None:
    requests.close()
    host.wait()


class WarmProcess(subprocess.Popen[Any]):
    """A process that the host forked: what differs from `Popen` is how it begins, and who is told that it ended."""

    _answers: socket.socket

    def _execute_child(self, args: list[str], *others: Any) -> None:
        """See `Popen`: of the arguments, those that say where it runs and what its streams are."""
        cwd, env = others[4], others[5]
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = others[9:15]
        program = {
            "words": [os.fspath(word) for word in args],
            "directory": os.fspath(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
        }
        self._answers, theirs = socket.socketpair()
        streams = [given if given >= 0 else own for given, own in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))]
        with theirs:
            socket.send_fds(_host(), [json.dumps(program).encode()], [theirs.fileno(), *streams])
        self.pid = self._receive()
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _receive(self) -> int:
        number: int = NUMBER.unpack(self._answers.recv(NUMBER.size, socket.MSG_WAITALL))[0]
        return number

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """What `os.waitpid` would say."""
        if wait_flags & os.WNOHANG and not select.select([self._answers], [], [], 0)[0]:
            return 0, 0
        status = self._receive()
        self._answers.close()
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid == self.pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def start(*words: str | Path, **options: Any) -> subprocess.Popen[Any]:
    """A process that runs `cmbs`, or a module, with the words after it."""
    named = [os.fspath(word) for word in words]
    return WarmProcess(named, **options) if WARM else subprocess.Popen(command_line(*named), **options)


def command_line(*words: str) -> list[str]:
    """The same for a new interpreter: the `cmbs` that is installed, or `python -m`."""
    return [str(CMBS), *words[1:]] if words[0] == CMBS_COMMAND else [sys.executable, "-m", *words]


def run(
    *words: str | Path,
    directory: Path,
    environment: Mapping[str, str] | None = None,
    given: str | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one to its end; what it printed, and its exit code."""
    pipe = subprocess.PIPE
    stdin = subprocess.DEVNULL if given is None else pipe
    with start(*words, cwd=directory, env=environment, stdin=stdin, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            printed, complained = process.communicate(given, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess([os.fspath(word) for word in words], process.returncode, printed, complained)
