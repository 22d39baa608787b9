"""Running what was allowed, in a bounded number of threads, and reporting what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from cmbs.errors import BeliefServerError, CmbsError, StoreUnavailable
from cmbs.spi import Clock
from cmbs.substrate.kernel.events import Intent, OutcomeStatus, RecordOutcome
from cmbs.substrate.kernel.state import Execution
from cmbs.substrate.tools.runner import CallContext, OutcomeUnknown, ToolReply, ToolRunner

_log = logging.getLogger("cmbs.substrate")
# How long between attempts to record an outcome while the store is away; each is twice as long as the one before.
_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 2.0

Report = Callable[[str, str, RecordOutcome], None]
# Whether an attempt at an execution of a space is still the one that is waited for.
IsWanted = Callable[[str, Intent], bool]


class ToolExecutor:
    """Runs intents that are in the log."""

    def __init__(
        self, runner: ToolRunner | None, clock: Clock, report: Report, is_wanted: IsWanted, max_running: int
    ) -> None:
        self._runner = runner
        self._is_wanted = is_wanted
        self._clock = clock
        self._report = report
        self._closing = Event()
        self._pool = ThreadPoolExecutor(max_running, thread_name_prefix="cmbs-tool")

    def begin(self, space_id: str, execution: Execution) -> None:
        """Run it soon. After closing nothing begins any more: it will be in doubt."""
        try:
            self._pool.submit(self._carry_out, space_id, execution)
        except RuntimeError:
            _log.warning("execution `%s` does not begin: the server is closing", execution.intent.execution_id)

    def close(self) -> None:
        """Wait for what runs; what has not begun does not begin."""
        self._closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _carry_out(self, space_id: str, execution: Execution) -> None:
        intent = execution.intent
        try:
            if not self._is_wanted(space_id, intent):
                return
            # So many may have been waiting that its time was over before its turn came.
            late = self._clock.now() >= intent.deadline
            if self._runner is None or late:
                if intent.attempt > 1 or (late and execution.tool.idempotent):
                    # This attempt did not happen. Those before it have no known outcome, and others may come after it.
                    return
                why = "this server runs no tools" if self._runner is None else "there was no turn for it in time"
                outcome = RecordOutcome(intent.execution_id, OutcomeStatus.FAILED, error=why)
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
