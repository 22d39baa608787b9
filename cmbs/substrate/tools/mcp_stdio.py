"""A program that speaks MCP on its standard streams, with a bound on what it may say at once.

Threads read and write the pipes: they need no child watcher of the event loop, of which there may be another kind in
the process, and a program that does not read cannot hold up other calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import anyio.to_thread
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

_GRACE_SECONDS = 2.0
_CHUNK = 65_536
# A program that has not read a message for so long gets no more of them.
_DEAF_SECONDS = 60.0

Incoming = SessionMessage | Exception
# A line with one of these was meant as a message; programs print other things where they should not.
_SIGNS_OF_A_MESSAGE = (b'"jsonrpc"', b'"result"', b'"error"')


class UnreadableMessage(ValueError):
    """A line that was meant as a message and is none. Which request it was the answer to cannot be known."""


class StdioProgram:
    """A program and its two ends; `stdio_program` starts and stops it."""

    def __init__(self, command: list[str], env: dict[str, str], cwd: str | None, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        # It sent more at once than it may: whatever it was going to say is lost.
        self.said_too_much = False
        # It says no more, or does not hear any more.
        self._is_over = False
        self._writes_since: float | None = None
        # A session of its own: an interrupt at our terminal is not for it, and all of its children can be ended.
        self._process = subprocess.Popen(  # noqa: S603 - the operator's own configuration
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A buffer of our own has a lock, and who waits in a write would keep `stop` from closing it.
            bufsize=0,
            env={**get_default_environment(), **env},
            cwd=cwd,
            start_new_session=True,
        )
        self._input = cast("io.FileIO", self._process.stdin)
        self._output = io.BufferedReader(cast("io.FileIO", self._process.stdout), _CHUNK)

    @property
    def alive(self) -> bool:
        """Whether it runs, hears, and has not said its last word."""
        return not self._is_over and self._process.poll() is None

    @property
    def listens(self) -> bool:
        """Whether it is alive and reads what it is sent."""
        since = self._writes_since
        return self.alive and (since is None or time.monotonic() - since < _DEAF_SECONDS)

    def read(self, loop: asyncio.AbstractEventLoop, into: MemoryObjectSendStream[Incoming]) -> None:
        """Hand on what it says, line by line, until it says no more; in a thread of its own."""
        try:
            for line in self._lines():
                asyncio.run_coroutine_threadsafe(into.send(_message(line)), loop).result()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, asyncio.CancelledError, RuntimeError):
            pass  # the session has ended
        finally:
            self._is_over = True
            # The loop may be gone, and those who waited with it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(into.close)

    def write(self, message: SessionMessage) -> None:
        """Say something to it; blocks while it does not listen."""
        text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
        rest = memoryview(text.encode() + b"\n")
        self._writes_since = time.monotonic()
        try:
            while rest:
                rest = rest[self._input.write(rest) :]
        except (OSError, ValueError):
            self._is_over = True
            raise
        self._writes_since = None

    def stop(self, reader: threading.Thread) -> None:
        """Let it end by itself, then ask it to, then make it; `reader` is the thread that reads what it says."""
        with contextlib.suppress(OSError):
            self._input.close()
        for signal_number in (None, signal.SIGTERM, signal.SIGKILL):
            if signal_number is not None:
                self._signal(signal_number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_SECONDS)
                break
        reader.join(_GRACE_SECONDS)
        if reader.is_alive():
            # A child of it holds the other end.
            self._signal(signal.SIGKILL)
            reader.join(_GRACE_SECONDS)
        # One that has left the session may hold it for good; then so does our reader, which is a daemon.
        if not reader.is_alive():
            self._output.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _lines(self) -> Iterator[bytes]:
        while line := self._output.readline(self._max_message_bytes + 1):
            if len(line) > self._max_message_bytes:
                self.said_too_much = True
                return
            yield line


@asynccontextmanager
async def stdio_program(
    program: StdioProgram,
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
    """The program as a transport of the MCP SDK; it is stopped in the end, whatever happens."""
    into, said = anyio.create_memory_object_stream[Incoming](0)
    to_say, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    reader = threading.Thread(
        target=program.read, args=(asyncio.get_running_loop(), into), name="mcp stdio", daemon=True
    )
    reader.start()

    async def write() -> None:
        async with outgoing:
            async for message in outgoing:
                try:
                    await anyio.to_thread.run_sync(program.write, message, abandon_on_cancel=True)
                except (OSError, ValueError):
                    # Those who wait for an answer learn that there will be none.
                    into.close()
                    return

    try:
        async with anyio.create_task_group() as writing:
            writing.start_soon(write)
            try:
                yield said, to_say
            finally:
                said.close()
                to_say.close()
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(program.stop, reader)
                writing.cancel_scope.cancel()
    finally:
        into.close()
        outgoing.close()


def _message(line: bytes) -> Incoming:
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as exc:
        is_meant = line.lstrip().startswith(b"{") and any(sign in line for sign in _SIGNS_OF_A_MESSAGE)
        # The session passes over what is no message.
        return UnreadableMessage(str(exc)) if is_meant else exc
