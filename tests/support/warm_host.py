"""The process that `tests.support.warm` forks programs from. It has imported what they need, and runs nothing itself.

It has one thread, opens no connection and no event loop, so a fork of it is as good as a new interpreter, without the
second or two that imports take. It reads requests from a socket and ends with the process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import multiprocessing.spawn
import multiprocessing.util
import os
import runpy
import select
import signal
import socket
import struct
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

# What the commands, the servers and the writers of the tests import.
PRELOADED = (
    "anyio._backends._asyncio",
    "cmbs.belief_api",
    "cmbs.cli.app",
    "cmbs.cli.serve",
    "cmbs.cli.serving",
    "cmbs.cli.tee",
    "cmbs.mcp.server.mounting",
    "cmbs.stores.postgres",
    "cmbs.stores.tee",
    "cmbs.substrate.tools.opening",
    "cmbs.tee.server",
    "cmbs.tee.stores",
    "granian.asgi",
    "granian._loops",
    "uvicorn",
)
REQUEST_BYTES = 1 << 20
NUMBER = struct.Struct("!q")
# The first word of a request; any other is the name of a module to run.
CMBS_COMMAND = "cmbs"


class Host:
    """Forks a process for each request, tells its pid, and its wait status once it has ended."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._callers: dict[int, socket.socket] = {}
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)

    def serve(self) -> dict[str, Any] | None:
        """Serve until the process that asks has ended; in a process that was forked: what it is to be."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The test run may be interrupted from its terminal: it ends us when it is done.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        while True:
            readable, _, _ = select.select([self._requests, self._woken], [], [])
            if self._woken in readable:
                self._tell_ends()
            if self._requests not in readable:
                continue
            request, descriptors, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES, 4)
            if not request:
                self._end_children()
                return None
            if self._fork(*descriptors):
                return _become(json.loads(request), descriptors[1:])

    def _fork(self, answers: int, *streams: int) -> bool:
        """Whether this is now the new process."""
        pid = os.fork()
        if not pid:
            return True
        for stream in streams:
            os.close(stream)
        caller = self._callers[pid] = socket.socket(fileno=answers)
        with contextlib.suppress(OSError):
            caller.sendall(NUMBER.pack(pid))
        return False

    def _tell_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                with self._callers.pop(pid) as caller, contextlib.suppress(OSError):
                    caller.sendall(NUMBER.pack(status))

    def _end_children(self) -> None:
        for pid in self._callers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _become(program: dict[str, Any], streams: list[int]) -> dict[str, Any]:
    """Leave behind all that is the host's: sockets, signals, environment, directory."""
    signal.set_wakeup_fd(-1)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    reset_process(())
    os.environ.clear()
    os.environ.update(program["environment"])
    os.chdir(program["directory"])
    open_standard_streams()
    return program


def reset_process(kept: tuple[int, ...]) -> None:
    """Be as a new interpreter is: no open files but the standard ones and those given, no signal handlers."""
    beginning = 3
    for descriptor in sorted({*kept, os.sysconf("SC_OPEN_MAX")}):
        os.closerange(beginning, descriptor)
        beginning = max(beginning, descriptor + 1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def open_standard_streams() -> None:
    """Python's own objects over the descriptors 0, 1 and 2, which are now other files."""
    sys.stdin = sys.__stdin__ = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8")  # type: ignore[misc]
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for name, number, errors in (("stdout", 1, "strict"), ("stderr", 2, "backslashreplace")):
        raw = io.BufferedWriter(io.FileIO(number, "w", closefd=False))
        stream = io.TextIOWrapper(raw, "utf-8", errors, line_buffering=unbuffered or name == "stderr")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def fork_workers() -> None:
    """Let `multiprocessing` fork what it would spawn, while this process has one thread and so can be forked."""
    spawn = multiprocessing.util.spawnv_passfds

    def start(path: bytes, arguments: Sequence[Any], passed: Sequence[int]) -> int:
        is_worker = any("spawn_main" in os.fsdecode(word) for word in arguments)
        if not is_worker or len([*Path("/proc/self/task").iterdir()]) > 1:
            return spawn(path, arguments, passed)
        pid = os.fork()
        return pid or _be_worker(os.fsdecode(arguments[-2]), passed)

    setattr(multiprocessing.util, spawn.__name__, start)


def _be_worker(words: str, passed: Sequence[int]) -> NoReturn:
    """What `multiprocessing` has its command line do: `... spawn_main(tracker_fd=5, pipe_handle=7)`."""
    code = 1
    try:
        reset_process(tuple(passed))
        named = dict(part.split("=") for part in words.partition("spawn_main(")[2].rstrip(")").split(", "))
        sys.argv = ["-c", "--multiprocessing-fork"]
        multiprocessing.spawn.spawn_main(**{name: int(value) for name, value in named.items()})
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 1
    finally:
        # Not up through the frames of the process that was forked: they are not ours.
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def run(program: dict[str, Any], script: str) -> None:
    """Be the program: `cmbs` with its arguments, or a module."""
    name, *arguments = program["words"]
    main = types.ModuleType("__main__")
    main.__dict__["__file__"] = script
    sys.modules["__main__"] = main
    fork_workers()
    if name == CMBS_COMMAND:
        sys.argv = [script, *arguments]
        importlib.import_module("cmbs.cli").main()
    else:
        sys.argv = [name, *arguments]
        runpy.run_module(name, run_name="__main__", alter_sys=True)


def main() -> None:
    """`python -m tests.support.warm_host REQUESTS SCRIPT`: a socket, and the path of the `cmbs` command."""
    requests, script = int(sys.argv[1]), sys.argv[2]
    for name in PRELOADED:
        importlib.import_module(name)
    # What is there now is never collected, so that no fork copies its pages to look at it.
    gc.freeze()
    program = Host(socket.socket(fileno=requests)).serve()
    if program is not None:
        run(program, script)


if __name__ == "__main__":
    main()
