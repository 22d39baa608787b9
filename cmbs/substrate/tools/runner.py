"""Runs an allowed call, once, within its time and its size, and says what came of it in a form that may be recorded.

A runner decides nothing and records nothing: the intent is in the ledger before it is asked, and its caller
records the outcome. Retries are up to the caller too: nothing here ever sends a call twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.ledger import canonical
from cmbs.substrate.kernel.events import OutcomeStatus
from cmbs.substrate.kernel.model import NULL, Tool, ToolKind
from cmbs.substrate.kernel.policy.schemas import SchemaFault, compile_schema_text, failures
from cmbs.substrate.tools.credentials import Credentials

MAX_ERROR_LENGTH = 500


class CallContext(NamedTuple):
    """What a call is, to its executor. `attempt` counts from 1; every attempt has the same ids and key."""

    space_id: str
    execution_id: str
    idempotency_key: str | None
    attempt: int


class ToolReply(NamedTuple):
    """What came of a call. `result` is canonical JSON, and null unless the call succeeded.

    `result_bytes` is the size of what came back, also where it was refused.
    """

    status: OutcomeStatus
    result: msgspec.Raw
    error: str | None
    duration_ms: int
    result_bytes: int


class OutcomeUnknown(Exception):
    """Whether a call that has effects took place is not known: it was sent, and its answer never came.

    To record it as failed would be a guess. The execution is in doubt.
    """


class ToolFailed(Exception):
    """The call did not take place, or the tool says that it failed."""


class ToolTimedOut(Exception):
    """The tool did not answer in its time. What it does may still happen."""


class ResultRefused(Exception):
    """The call took place, and its result is nothing that can be taken over; `size` is how much of it was seen."""

    def __init__(self, message: str, size: int = 0) -> None:
        super().__init__(message)
        self.size = size


class ToolRunner(Protocol):
    """Carries out calls. Threads may share one."""

    def run(self, tool: Tool, args: bytes, call: CallContext) -> ToolReply:
        """Carry out one call of a python, http or mcp tool; `args` is a canonical JSON object.

        MUST try it at most once and return within the tool's time-out and some grace. MUST NOT let a credential into
        the reply. Raises OutcomeUnknown, and nothing else.
        """
        ...

    def close(self) -> None:
        """Let go of connections and processes. Calls under way end as they can."""
        ...


class Executor(Protocol):
    """Carries out calls of one kind of tool."""

    def execute(self, tool: Tool, args: bytes, call: CallContext) -> bytes:
        """The result as JSON text, or null where there is none.

        Raises InvalidRequest where the target makes no sense, and ToolFailed, ToolTimedOut, ResultRefused or
        OutcomeUnknown. Anything else is a defect, and the outcome is then unknown too.
        """
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Runner:
    """A `ToolRunner` with an executor for each kind; those of kinds that are never called are never made."""

    def __init__(
        self,
        executors: Mapping[ToolKind, Callable[[], Executor]],
        credentials: Credentials | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._makers = dict(executors)
        self._credentials = Credentials() if credentials is None else credentials
        self._monotonic = monotonic
        self._executors: dict[ToolKind, Executor] = {}

    def run(self, tool: Tool, args: bytes, call: CallContext) -> ToolReply:
        """See `ToolRunner.run`."""
        began = self._monotonic()
        status, result, error, size = self._outcome(tool, args, call)
        duration_ms = max(0, round((self._monotonic() - began) * 1_000))
        return ToolReply(status, result, None if error is None else self._clean(error), duration_ms, size)

    def close(self) -> None:
        """See `ToolRunner.close`."""
        for executor in list(self._executors.values()):
            executor.close()

    def _outcome(
        self, tool: Tool, args: bytes, call: CallContext
    ) -> tuple[OutcomeStatus, msgspec.Raw, str | None, int]:
        try:
            raw = self._executor(tool).execute(tool, args, call)
            return OutcomeStatus.SUCCEEDED, self._accept(tool, raw), None, len(raw)
        except ToolFailed as exc:
            return OutcomeStatus.FAILED, NULL, str(exc), 0
        except InvalidRequest as exc:
            return OutcomeStatus.FAILED, NULL, exc.message, 0
        except ToolTimedOut as exc:
            return OutcomeStatus.TIMED_OUT, NULL, str(exc), 0
        except ResultRefused as exc:
            return OutcomeStatus.RESULT_REFUSED, NULL, str(exc), exc.size
        except OutcomeUnknown as exc:
            if tool.writes:
                raise OutcomeUnknown(self._clean(str(exc))) from exc
            # Without effects there is nothing to be in doubt about.
            return OutcomeStatus.FAILED, NULL, str(exc), 0
        except Exception as exc:
            # A defect of ours or of a plug-in, before or after the effect: only a guess would say which.
            raise OutcomeUnknown(self._clean(f"{type(exc).__name__}: {exc}")) from exc

    def _executor(self, tool: Tool) -> Executor:
        executor = self._executors.get(tool.kind)
        if executor is None:
            make = self._makers.get(tool.kind)
            if make is None:
                raise ToolFailed(f"this server runs no `{tool.kind}` tools")
            # Two threads may both make one: the first to be kept is used, and the other never did anything.
            executor = self._executors.setdefault(tool.kind, make())
        return executor

    def _accept(self, tool: Tool, raw: bytes) -> msgspec.Raw:
        if len(raw) > tool.max_result_bytes:
            raise too_large(tool, len(raw))
        try:
            result = canonical.canonicalize(raw)
        except BeliefServerError as exc:
            raise ResultRefused(f"the result cannot be recorded: {exc.message}", len(raw)) from exc
        if self._credentials.are_in(result):
            raise ResultRefused("the result holds a credential of the tool", len(raw))
        if tool.result_schema != NULL:
            _check_schema(tool, result, len(raw))
        return msgspec.Raw(result)

    def _clean(self, error: str) -> str:
        """An error that may be recorded: one line of bounded length without credentials."""
        text = self._credentials.redact(" ".join(error.split()))
        # A lone surrogate is not text, and the ledger takes only text.
        text = text.encode("utf-8", "replace").decode()
        return text if len(text) <= MAX_ERROR_LENGTH else text[: MAX_ERROR_LENGTH - 1] + "…"


def too_large(tool: Tool, size: int) -> ResultRefused:
    """The refusal of a result beyond the tool's limit."""
    return ResultRefused(f"the result has at least {size} bytes, `{tool.tool_id}` allows {tool.max_result_bytes}", size)


def time_out_error(tool: Tool) -> ToolTimedOut:
    """That the tool's time is over."""
    return ToolTimedOut(f"`{tool.tool_id}` gave no answer within {tool.timeout_ms} ms")


def _check_schema(tool: Tool, result: bytes, size: int) -> None:
    try:
        validator = compile_schema_text(bytes(tool.result_schema))
    except SchemaFault as exc:
        raise ResultRefused(f"the result schema of `{tool.tool_id}` cannot be used: {exc}", size) from exc
    value = canonical.decode(result)
    if validator.is_valid(value):
        return
    first = failures(validator, value)[0]
    raise ResultRefused(f"the result does not fit its schema at `{first.path}`: {first.message}", size)
