"""Python callables as tools: each call in a thread of its own, which its caller waits for no longer than allowed."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, wait
from contextvars import ContextVar
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeAlias, TypeVar

import msgspec

from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.ledger import canonical
from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.targets import python_target
from cmbs.substrate.tools.runner import CallContext, ResultRefused, ToolFailed, time_out_error

TOOL_GROUP = "cmbs.tools"
# A thread cannot be ended from outside: one that runs past its time-out runs on. So many may, before new calls fail.
MAX_RUNNING = 64

T = TypeVar("T")
PythonTool: TypeAlias = Callable[..., Any]

_call: ContextVar[CallContext] = ContextVar("cmbs_tool_call")


def current_call() -> CallContext:
    """Within a tool: the call that it carries out. LookupError elsewhere."""
    return _call.get()


def running_call() -> CallContext | None:
    """The call that is being carried out here; None where there is none."""
    return _call.get(None)


def enter_call(call: CallContext) -> None:
    """Make this the call that the present thread, or the present task, carries out."""
    _call.set(call)


class PythonTools:
    """Carries out calls of registered callables, plain or async, with the args as keyword arguments.

    What they return must be JSON. An async one that runs out of time is cancelled; a plain one is left to itself.
    """

    def __init__(self, callables: Mapping[str, PythonTool] | None = None, max_running: int = MAX_RUNNING) -> None:
        self._callables = dict(callables or {})
        self._places = threading.BoundedSemaphore(max_running)
        self._max_running = max_running

    def register(self, name: str, function: PythonTool) -> None:
        """Offer one more callable; a name stands for one callable, for good."""
        if self._callables.setdefault(name, function) is not function:
            raise InvalidRequest(f"another callable is registered as `{name}`", {"callable": name})

    def execute(self, tool: Tool, args: bytes, call: CallContext) -> bytes:
        """See `Executor.execute`."""
        name = python_target(tool).callable or tool.tool_id
        function = self._callables.get(name)
        if function is None:
            raise ToolFailed(f"no callable is registered as `{name}`")
        if not self._places.acquire(blocking=False):
            raise ToolFailed(f"{self._max_running} calls of Python tools are still running")
        seconds = tool.timeout_ms / 1_000

        def carry_out() -> Any:
            try:
                enter_call(call)
                value = function(**msgspec.json.decode(args))
                return asyncio.run(_await(value, seconds)) if inspect.isawaitable(value) else value
            finally:
                self._places.release()

        run = start_thread(carry_out, f"tool {tool.tool_id}")
        wait([run], seconds)
        failure = run.exception() if run.done() else _TimeOver()
        if isinstance(failure, _TimeOver):
            raise time_out_error(tool) from failure
        if failure is not None:
            raise ToolFailed(f"{type(failure).__name__}: {failure}") from failure
        try:
            return canonical.encode(run.result())
        except BeliefServerError as exc:
            raise ResultRefused(f"the result cannot be recorded: {exc.message}") from exc

    def close(self) -> None:
        """Nothing is held; threads that still run are daemons."""


class _TimeOver(Exception):
    """The time of a call is over."""


async def _await(value: Awaitable[Any], seconds: float) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await value
    except TimeoutError as exc:
        if limit.expired():
            raise _TimeOver from exc
        raise


def start_thread(work: Callable[[], T], name: str) -> Future[T]:
    """Run `work` in a thread of its own, which does not keep the process from ending, as those of a pool would."""
    future: Future[T] = Future()

    def run() -> None:
        future.set_running_or_notify_cancel()
        try:
            future.set_result(work())
        except BaseException as exc:  # noqa: BLE001 - whatever it raises, SystemExit included, is its outcome
            future.set_exception(exc)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def discover_python_tools() -> dict[str, PythonTool]:
    """Callables that installed distributions offer under the entry-point group `cmbs.tools`, by entry-point name."""
    found: dict[str, EntryPoint] = {}
    for entry_point in sorted(entry_points(group=TOOL_GROUP), key=lambda each: (each.name, each.value)):
        if found.setdefault(entry_point.name, entry_point) is not entry_point:
            raise InvalidRequest(f"two tools are named `{entry_point.name}`", {"tool": entry_point.name})
    return {name: _load(entry_point) for name, entry_point in found.items()}


def _load(entry_point: EntryPoint) -> PythonTool:
    try:
        function = entry_point.load()
    except Exception as exc:
        raise InvalidRequest(
            f"tool `{entry_point.name}` (`{entry_point.value}`) does not load: {type(exc).__name__}: {exc}",
            {"tool": entry_point.name},
        ) from exc
    if not callable(function):
        raise InvalidRequest(
            f"tool `{entry_point.name}` (`{entry_point.value}`) cannot be called", {"tool": entry_point.name}
        )
    return function  # type: ignore[no-any-return]
