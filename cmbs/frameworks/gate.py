"""One call of an agent's own tool loop, from its proposal to its outcome. The frameworks differ only around it.

A call is known by its id in the framework, its tool and its arguments: the same call, asked about again after an
interruption or a restart, is the same proposal. The server decides, and what it says of a proposal is read each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import anyio.to_thread
import msgspec

from cmbs.api.call import Call, build_call, find_operation
from cmbs.api.spaces import ExecutionResponse, ProposalResponse
from cmbs.client import AsyncCase, Case
from cmbs.api.steps import Steps
from cmbs.errors import BeliefServerError, Conflict, InvalidRequest, RecordNotFound
from cmbs.frameworks.answers import (
    ENDED,
    WAITING,
    Answer,
    Question,
    build_question,
    convert_to_json,
    shorten_result,
    tell_denied,
    tell_error,
    tell_outcome,
    tell_unknown,
    tell_unrecorded,
    tell_withdrawn,
)
from cmbs.system import SystemClock

T = TypeVar("T")

_STALE = ("STALE_SNAPSHOT", "UNKNOWN_SNAPSHOT")
# Ended without having run: these waited, whatever the newest decision says.
_GIVEN_UP = ("rejected", "expired", "withdrawn")
_NOT_BEGUN = "its time was over before it was begun: nothing was done"
_MAX_PROPOSALS = 10
_MAX_LISTED = 100
_MAX_ERROR_CHARACTERS = 4_000
_POLL_SECONDS = 20
_CLAIM_TTL_MS = 30 * 86_400_000


class ToolRequest(NamedTuple):
    """A call as the framework has it. `thread` is the run or conversation within which `call_id` is one call's own."""

    tool_id: str
    args: Mapping[str, Any]
    call_id: str
    thread: str = ""


class Run(NamedTuple):
    """A call that is this process's to run, once, and to report."""

    execution_id: str
    proposal_id: str


class Standing(NamedTuple):
    """A call as the server has it. An `answer` without a proposal says why there is none."""

    proposal: ProposalResponse | None = None
    execution: ExecutionResponse | None = None
    answer: Answer | None = None

    @property
    def waits(self) -> bool:
        """Whether it waits, for an approval or for what it depends on."""
        return self.proposal is not None and self.proposal.status in WAITING

    @property
    def has_waited(self) -> bool:
        """Whether it ever waited. Once that is so it stays so: what asks by it asks again after every restart."""
        proposal = self.proposal
        return proposal is not None and (
            proposal.status in (*WAITING, *_GIVEN_UP) or proposal.decided_seq != proposal.seq
        )

    @property
    def question(self) -> Question:
        """What is asked of the framework's user about a call that has waited."""
        if self.proposal is None:
            raise InvalidRequest("there is no proposal to ask about")
        return build_question(self.proposal)


Begun: TypeAlias = "Run | Answer | Standing"


class Gate:
    """Proposes the calls of one agent under one case, and records their outcomes.

    Args:
        case: An open case. One that blocks serves every framework, on any event loop: awaited, it works in a thread.
            One that awaits belongs to its event loop.
        token: The capability token of the agent.
        prefix: What stands before the name of a tool in its id in the space.
        wait: How many seconds a call that waits is waited for before the framework's user is asked.
    """

    def __init__(self, case: Case | AsyncCase, *, token: str | None = None, prefix: str = "", wait: int = 0) -> None:
        self._case: Final = case
        self._token = token
        self._prefix = prefix
        self._wait = wait
        # Proposals of this process that nothing was begun for: they are its own to run. Of others, that is not known.
        self._own: set[str] = set()

    def request(
        self, tool: str, args: Mapping[str, Any], call_id: str | None, thread: str | None = None
    ) -> ToolRequest:
        """The call of a tool by its name; InvalidRequest where it has no id, since it could not be known again."""
        if not call_id:
            raise InvalidRequest(f"the call of `{tool}` has no id, so that it would not be known again after a restart")
        return ToolRequest(self._prefix + tool, convert_to_json(args), call_id, thread or "")

    def run(self, steps: Steps[T]) -> T:
        """The result of steps, from code that blocks; InvalidRequest where the case is one that awaits."""
        if isinstance(self._case, AsyncCase):
            raise InvalidRequest("a case that awaits cannot serve code that blocks: open it with `connect`")
        return self._case.client.run(steps)

    async def run_async(self, steps: Steps[T]) -> T:
        """The result of steps, awaited."""
        if isinstance(self._case, AsyncCase):
            return await self._case.client.run(steps)
        return await anyio.to_thread.run_sync(partial(self._case.client.run, steps))

    # --- before the call ---

    def look(self, request: ToolRequest) -> Steps[Standing]:
        """Where a call stands: it is proposed unless it was before. Nothing is begun."""
        standing = Standing()
        for number in range(_MAX_PROPOSALS):
            try:
                standing = yield from self._look_at(request, self._identify(request, number))
            except BeliefServerError as exc:
                return Standing(answer=tell_error(exc))
            stale = standing.proposal is not None and standing.proposal.decision.reason_code in _STALE
            missed = standing.execution is not None and standing.execution.error == _NOT_BEGUN
            if not stale and not missed:
                break
        return standing

    def begin(self, request: ToolRequest) -> Steps[Begun]:
        """Begin a call: a `Run` where it is to be run now, the standing where it waits, else what the model is told.

        One is begun once, whatever happens to the processes that ask. An approval is good until the call's time is
        over; after that it is proposed anew.
        """
        while True:
            standing = yield from self.look(request)
            proposal, execution = standing.proposal, standing.execution
            if proposal is None or standing.waits:
                return standing.answer or standing
            if execution is None:
                return tell_denied(proposal)
            if execution.status in ENDED:
                return tell_outcome(execution)
            is_own = self._take(proposal.proposal_id)
            if execution.proposal_id != proposal.proposal_id:
                # Answered by the run of the same call under another id.
                return tell_unknown(execution)
            if standing.has_waited:
                is_own = yield from self._claim(execution)
            if not is_own:
                return tell_unknown(execution)
            run = Run(execution.execution_id, proposal.proposal_id)
            if execution.status == "running":
                return run
            yield from self._report(run, "failed", error=_NOT_BEGUN)

    def find(self, proposal_id: str) -> Steps[Standing]:
        """Where a proposal stands."""
        proposal: ProposalResponse = yield self._ask("get_proposal", proposal_id=proposal_id)
        return (yield from self._stand(proposal))

    def withdraw(self, proposal_id: str, reason: str) -> Steps[Answer]:
        """Withdraw a call that waits, because the framework's user said no or made it another; what is told of it.

        What was begun meanwhile, because it was approved, and that no process runs, is reported as not done.
        """
        standing = yield from self.find(proposal_id)
        if standing.waits:
            try:
                yield self._ask("withdraw_proposal", proposal_id=proposal_id, reason=reason)
            except BeliefServerError:
                # It moved on in between.
                standing = yield from self.find(proposal_id)
        execution = standing.execution
        if execution is None or execution.status in ENDED:
            return tell_withdrawn(proposal_id, reason)
        if not (yield from self._claim(execution)):
            return tell_unknown(execution)
        yield from self._report(Run(execution.execution_id, proposal_id), "failed", error=f"not done: {reason}")
        return tell_withdrawn(proposal_id, reason)

    # --- after the call ---

    def succeed(self, run: Run, result: Any) -> Steps[Answer | None]:
        """Record what a call returned; what the model is told instead where it could not be recorded."""
        return (yield from self._report(run, "succeeded", result=shorten_result(convert_to_json(result))))

    def fail(self, run: Run, error: BaseException | str) -> Steps[Answer | None]:
        """Record that a call failed, or ran out of time."""
        status = "timed_out" if isinstance(error, TimeoutError) else "failed"
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        return (yield from self._report(run, status, error=text[:_MAX_ERROR_CHARACTERS]))

    # --- steps ---

    def _ask(self, operation_id: str, **arguments: Any) -> Call[Any]:
        """The call of an operation on the space of the case."""
        return build_call(find_operation(operation_id), {"space_id": self._case.space_id, **arguments})

    def _take(self, proposal_id: str) -> bool:
        try:
            self._own.remove(proposal_id)
        except KeyError:
            return False
        return True

    def _identify(self, request: ToolRequest, number: int) -> str:
        """The id of a proposal: what is called, by whom and in which case; then which call of it; then how often."""
        call = self._hash(request.thread, request.call_id)
        return f"{self._name_alike(request)}-{call}-{number}"

    def _name_alike(self, request: ToolRequest) -> str:
        case = self._case
        return f"call-{self._hash(case.agent_id, case.case_id, request.tool_id, request.args)}"

    @staticmethod
    def _hash(*parts: Any) -> str:
        return sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()[:24]

    def _look_at(self, request: ToolRequest, proposal_id: str) -> Steps[Standing]:
        try:
            proposal: ProposalResponse = yield self._ask("get_proposal", proposal_id=proposal_id)
        except RecordNotFound:
            key = (yield from self._find_alike(request)) or proposal_id
            self._own.add(proposal_id)
            try:
                proposal = yield from self._propose(request, proposal_id, key)
            except Conflict:
                # Another process made the same proposal in between: it is that one's to run.
                self._own.discard(proposal_id)
                proposal = yield self._ask("get_proposal", proposal_id=proposal_id)
        seconds = self._wait
        while seconds > 0 and proposal.status in WAITING:
            asked = min(seconds, _POLL_SECONDS)
            seconds -= asked
            proposal = yield self._ask("get_proposal", proposal_id=proposal_id, wait=asked)
        if proposal.status != "running":
            self._own.discard(proposal_id)
        return (yield from self._stand(proposal))

    def _stand(self, proposal: ProposalResponse) -> Steps[Standing]:
        execution_ids = [*proposal.execution_ids, *proposal.answered_by.values()]
        if not execution_ids:
            return Standing(proposal)
        execution = yield self._ask("get_execution", execution_id=execution_ids[0])
        return Standing(proposal, execution)

    def _find_alike(self, request: ToolRequest) -> Steps[str | None]:
        """The idempotency key of the same call that runs, or ran and was not reported: the space answers by it."""
        page = yield self._ask(
            "list_proposals",
            limit=_MAX_LISTED,
            status="running",
            agent=self._case.agent_id,
            tool=request.tool_id,
            case_id=self._case.case_id,
        )
        alike = self._name_alike(request)
        for proposal in page.proposals:
            if proposal.proposal_id.startswith(alike):
                standing = yield from self._stand(proposal)
                if standing.execution is not None:
                    return standing.execution.idempotency_key
        return None

    def _propose(self, request: ToolRequest, proposal_id: str, key: str) -> Steps[ProposalResponse]:
        space = yield self._ask("get_space")
        call = {
            "type": "tool_call",
            "tool_id": request.tool_id,
            "args": request.args,
            "capability_token_id": self._token,
            "idempotency_key": key,
        }
        proposal: ProposalResponse = yield self._ask(
            "propose",
            proposal_id=proposal_id,
            state_snapshot_id=space.state_snapshot_id,
            provenance={
                "source": self._case.agent_id,
                "timestamp": SystemClock().now(),
                "inputs": [],
                "permissions": [] if self._token is None else [self._token],
            },
            candidates=[call],
            case_id=self._case.case_id,
        )
        return proposal

    def _claim(self, execution: ExecutionResponse) -> Steps[bool]:
        """Whether this process is the one that begins a call which was let through after it had waited."""
        step = yield self._ask(
            "put_memory",
            entry_id=f"begun-{execution.execution_id}",
            kind="derived",
            claim={"begun": execution.execution_id, "proposal_id": execution.proposal_id},
            ttl_ms=_CLAIM_TTL_MS,
        )
        return bool(step.granted)

    def _report(self, run: Run, status: str, *, result: Any = None, error: str | None = None) -> Steps[Answer | None]:
        outcome = {"execution_id": run.execution_id, "status": status, "error": error}
        try:
            try:
                yield self._ask("report_outcome", **outcome, result=result)
            except InvalidRequest:
                # Numbers beyond those of the ledger, for example: the text is kept as text.
                text = {"text": msgspec.json.encode(result).decode()}
                yield self._ask("report_outcome", **outcome, result=text)
        except BeliefServerError as exc:
            return tell_unrecorded(run.execution_id, exc)
        return None
