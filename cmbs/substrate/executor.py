"""Running what was allowed, in a bounded number of threads, and reporting what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from cmbs.errors import BeliefServerError, CmbsError, StoreUnavailable
from cmbs.spi import Clock
from cmbs.substrate.kernel.events import OutcomeStatus, RecordOutcome
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.substrate.kernel.state import Execution
from cmbs.substrate.tools.runner import CallContext, OutcomeUnknown, ToolReply, ToolRunner
from cmbs.substrate.turns import Line, Turn, Turns

_log = logging.getLogger("cmbs.substrate")
# How long between attempts to record an outcome while the store is away; each is twice as long as the one before.
_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 2.0

Report = Callable[[str, str, RecordOutcome], None]
# Has an execution of a space started, if it still may be; the execution, None where it is not to be run.
Start = Callable[[str, str], Execution | None]


class ToolExecutor:
    """Runs what was started, and has started what waits for its turn."""

    def __init__(
        self, runner: ToolRunner | None, clock: Clock, report: Report, start: Start, limits: SpaceLimits
    ) -> None:
        self._runner = runner
        self._clock = clock
        self._report = report
        self._start = start
        self._closing = Event()
        self.turns = Turns(limits)
        self._pool = ThreadPoolExecutor(limits.executions_at_once, thread_name_prefix="cmbs-tool")

    def begin(self, space_id: str, execution: Execution) -> None:
        """Run what was started, now: its turn was taken before. After closing nothing begins: it will be in doubt."""
        line = Line(space_id, execution.agent_id)
        if not self._submit(self._run_one, line, execution):
            self.release(line)

    def wait(self, space_id: str, execution: Execution) -> None:
        """Have an execution started as soon as its turn comes."""
        self.turns.wait(Line(space_id, execution.agent_id), execution.intent.execution_id)
        self._call_next()

    def release(self, line: Line, count: int = 1) -> None:
        """Give back turns that were not needed."""
        self.turns.release(line, count)
        self._call_next()

    def close(self) -> None:
        """Wait for what runs; what has not begun does not begin."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, function: Callable[..., None], *arguments: object) -> bool:
        try:
            self._pool.submit(function, *arguments)
        except RuntimeError:
            _log.warning("a call does not begin: the server is closing")
            return False
        return True

    def _call_next(self) -> None:
        while not self._closing.is_set() and (turn := self.turns.call_next()) is not None:
            if not self._submit(self._start_one, turn):
                self.turns.release(turn.line)

    def _start_one(self, turn: Turn) -> None:
        """Have the call started whose turn has come, and run it; decided again, it may not be allowed any more."""
        line, execution_id = turn
        try:
            execution = self._start(line.space_id, execution_id)
            if execution is not None:
                self._carry_out(line.space_id, execution)
        except StoreUnavailable as exc:
            _log.warning("execution `%s` cannot be started yet: %s", execution_id, exc)
            if not self._closing.wait(_FIRST_PAUSE_SECONDS * 10):
                self.turns.wait(line, execution_id)
        except CmbsError as exc:
            # Another process was first, or it was withdrawn or has expired.
            _log.info("execution `%s` is not started: %s", execution_id, exc)
        finally:
            self.release(line)

    def _run_one(self, line: Line, execution: Execution) -> None:
        try:
            self._carry_out(line.space_id, execution)
        finally:
            self.release(line)

    def _carry_out(self, space_id: str, execution: Execution) -> None:
        intent = execution.intent
        try:
            if self._runner is None:
                if intent.attempt > 1:
                    # This attempt did not happen. Those before it have no known outcome, and others may come after it.
                    return
                outcome = RecordOutcome(intent.execution_id, OutcomeStatus.FAILED, error="this server runs no tools")
            else:
                call = CallContext(space_id, intent.execution_id, intent.idempotency_key, intent.attempt)
                outcome = _outcome(intent.execution_id, self._runner.run(execution.tool, execution.args, call))
        except OutcomeUnknown as exc:
            _log.warning("execution `%s` is in doubt: %s", intent.execution_id, exc)
            return
        except Exception:  # noqa: BLE001
            # Whether it happened is not known: nothing is recorded, and its deadline puts it in doubt.
            _log.exception("execution `%s` is in doubt: its runner failed", intent.execution_id)
            return
        self._record(space_id, execution, outcome)

    def _record(self, space_id: str, execution: Execution, outcome: RecordOutcome) -> None:
        """Record an outcome, however long the store is away; unless we are, and then it is in doubt."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                self._report(space_id, execution.tool.tool_id, outcome)
            except StoreUnavailable as exc:
                _log.warning("the outcome of `%s` cannot be recorded yet: %s", outcome.execution_id, exc)
            except BeliefServerError as exc:
                # It is settled already: by a late attempt of another process, or by an operator.
                _log.warning("the outcome of `%s` is not taken: %s", outcome.execution_id, exc)
                return
            except CmbsError:
                _log.exception("the outcome of `%s` cannot be recorded", outcome.execution_id)
                return
            else:
                return
            if self._closing.wait(pause):
                return
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)


def _outcome(execution_id: str, reply: ToolReply) -> RecordOutcome:
    return RecordOutcome(execution_id, reply.status, reply.result, reply.error, reply.duration_ms, reply.result_bytes)
