"""A guard around functions of your own process: calling one means proposing the call, and it runs only when allowed.

    guard = Guard(server, tools, "ops", Actor(ActorKind.AGENT, "scout"), "scout-token")

    @guard.tool("service.restart")
    def restart(service: str) -> dict[str, str]: ...

    guard.enrol(operator)
    restart("api")

What runs is what was decided: the function gets its arguments from the ledger, and its caller gets the result from
there. So they are JSON, or types that msgspec turns into JSON and back: dataclasses, enumerations, dates, and so on.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

import msgspec

from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.ledger import canonical
from cmbs.messages import Actor
from cmbs.spi import Clock, IdSource
from cmbs.substrate.guard.refusals import (
    ALLOWED_SO_FAR,
    CallFailed,
    CallInDoubt,
    GuardError,
    ProposalPending,
    refusal_of,
)
from cmbs.substrate.guard.signatures import Signature
from cmbs.substrate.kernel.calls import MakeCall, SpaceRequest
from cmbs.substrate.kernel.events import IssueCapability, Propose, RegisterTool, SpaceMessage, Withdraw
from cmbs.substrate.kernel.insight.advice import advise_on_record
from cmbs.substrate.kernel.insight.step_advice import advise_on_step
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import NULL, Capability, Tool, ToolCall, ToolKind
from cmbs.substrate.kernel.proposals import GRACE_MS
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import Execution, ProposalRecord
from cmbs.substrate.kernel.words import ExecutionStatus, ProposalStatus
from cmbs.substrate.server import SubstrateServer
from cmbs.substrate.tools.python import PythonTools, current_call, enter_call, running_call, start_thread
from cmbs.system import RandomIds, SystemClock

P = ParamSpec("P")
R = TypeVar("R")

# Beyond the moment at which an execution is in doubt: time for the scheduler to notice.
_NOTICE_SECONDS = 2.0
_GLANCE_SECONDS = 0.2
_MAX_RAISED = 1_000


class Guard:
    """Functions of this process as tools of one space, called by one agent under one capability token."""

    def __init__(
        self,
        server: SubstrateServer,
        tools: PythonTools,
        space_id: str,
        agent: Actor,
        capability_token_id: str,
        *,
        wait_seconds: float = 0.0,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        """`tools` are those that the server's runner runs. `wait_seconds` is how long a call that is deferred, or needs
        an approval, waits for it; then, or at once, it raises, and the proposal stays where it is.
        """
        self._server = server
        self._tools = tools
        self._space_id = space_id
        self._agent = agent
        self._token_id = capability_token_id
        self._wait_seconds = wait_seconds
        self._run: str | None = None
        # How often a call failed, by what its key is made from: it may be tried again, and needs another key then.
        self._failures: Counter[str] = Counter()
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._guarded: dict[str, Tool] = {}
        # What functions raised, by execution: more than the ledger can tell their callers.
        self._raised: dict[str, BaseException] = {}

    @property
    def server(self) -> SubstrateServer:
        """The server of the space."""
        return self._server

    @property
    def space_id(self) -> str:
        """The space in which calls are proposed."""
        return self._space_id

    def key_by_args(self, run: str) -> None:
        """Make calls of a tool with effects that have the same args one call: within a case, or else within `run`.

        Otherwise every call has an idempotency key of its own.
        """
        self._run = run

    # --- making tools ---

    def tool(
        self,
        tool_id: str,
        *,
        args_schema: Mapping[str, Any] | None = None,
        result_schema: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Callable[[Callable[P, R]], GuardedTool[P, R]]:
        """Turn a function, plain or async, into a tool of the space.

        The schema of the args follows from the signature where none is given. `more` is what else a `Tool` has:
        `description`, `timeout_ms`, `max_result_bytes`, `writes`, `idempotent`, `facts`.
        """

        def decorate(function: Callable[P, R]) -> GuardedTool[P, R]:
            signature = Signature.of(function)
            schema = signature.schema() if args_schema is None else dict(args_schema)
            described = {"description": inspect.getdoc(function) or ""} | more
            tool = Tool(
                tool_id=tool_id,
                kind=ToolKind.PYTHON,
                args_schema=_raw(schema),
                result_schema=NULL if result_schema is None else _raw(dict(result_schema)),
                **described,
            )
            made = GuardedTool(self, tool, function, signature)
            self._tools.register(tool_id, made.carry_out)
            self._guarded[tool_id] = tool
            return made

        return decorate

    def enrol(self, operator: Actor, *, issue: bool = True) -> None:
        """Register the tools with the space, and issue the agent's token for them, where they are not there yet.

        With `issue=False` the token is issued elsewhere.
        """
        space = self._server.current(self._space_id)
        for tool_id, tool in self._guarded.items():
            if space.tools.get(tool_id) != tool:
                self._perform_granted(operator, RegisterTool(tool))
        if issue and self._token_id not in space.capabilities:
            token = Capability(self._token_id, self._agent.id, sorted(self._guarded))
            self._perform_granted(operator, IssueCapability(token))

    def _perform_granted(self, operator: Actor, message: SpaceMessage) -> None:
        answer = self._perform(operator, message)
        refusal = advise_on_step(answer)
        if not answer.event.result.granted and refusal is not None:
            said = f"{refusal.code}: {refusal.sentence}"
            raise GuardError(f"the space refuses `{type(message).__name__}`: {said}")

    # --- calling them ---

    def wait(self, proposal_id: str, seconds: float) -> Any:
        """The result, as plain data, of a call that was deferred or needed an approval; raises as a call does."""
        record = self._server.wait_for(self._space_id, proposal_id, seconds)
        return self._result(record)

    def withdraw(self, proposal_id: str, reason: str = "") -> None:
        """Take back a call that is deferred or needs an approval; an error where it waits for nothing."""
        self._perform_granted(self._agent, Withdraw(proposal_id, reason))

    def call(self, tool: Tool, args: bytes, key: str | None = None, case_id: str | None = None) -> Any:
        """Make one call, wait for it, and give its result."""
        base = self._base_of_key(tool, args, case_id)
        record = self._make(tool, args, key or f"{base}-{self._failures[base]}", case_id)
        if record.status in (ProposalStatus.ASKED, ProposalStatus.PARKED) and self._wait_seconds > 0:
            proposal_id = record.message.proposal.proposal_id
            record = self._server.wait_for(self._space_id, proposal_id, self._wait_seconds)
        try:
            return self._result(record)
        except CallFailed:
            self._failures[base] += 1
            raise

    def _base_of_key(self, tool: Tool, args: bytes, case_id: str | None) -> str:
        """What the key of a call is made from that names none: its args, or an id that no other call has."""
        if self._run is None or not tool.writes:
            return self._ids.new_id()
        scope = ("run", self._run) if case_id is None else ("case", case_id)
        return sha256(canonical.encode([*scope, tool.tool_id]) + args).hexdigest()

    def _perform(self, actor: Actor, message: SpaceRequest) -> SpaceAnswer:
        return self._server.perform(SpaceCommand(self._space_id, actor, message))

    def _make(self, tool: Tool, args: bytes, key: str, case_id: str | None) -> ProposalRecord:
        call = ToolCall(tool.tool_id, msgspec.Raw(args), self._token_id, key)
        answer = self._perform(self._agent, MakeCall(call, msgspec.UNSET if case_id is None else case_id))
        made = answer.event.message
        if not isinstance(made, Propose):  # pragma: no cover - a call becomes a proposal
            raise TypeError(made)
        proposal_id = made.proposal.proposal_id
        return self._server.settled.with_proposal(answer.space, proposal_id).proposals[proposal_id]

    def _result(self, record: ProposalRecord) -> Any:
        """The result of a proposal's one call; an error where there is none, or none yet."""
        if record.status not in ALLOWED_SO_FAR:
            space = self._server.current(self._space_id)
            raise refusal_of(record, advise_on_record(space, record, self._agent, self._clock.now()))
        record, execution = self._wait_for_end(record)
        if execution.status is ExecutionStatus.NOT_STARTED and record.status not in ALLOWED_SO_FAR:
            return self._result(record)
        raised = self._raised.pop(execution.intent.execution_id, None)
        match execution.status:
            case ExecutionStatus.SUCCEEDED:
                return msgspec.json.decode(execution.result)
            case ExecutionStatus.RUNNING | ExecutionStatus.IN_DOUBT:
                raise CallInDoubt(record, execution) from raised
            case _:
                raise CallFailed(record, execution) from raised

    def _wait_for_end(self, record: ProposalRecord) -> tuple[ProposalRecord, Execution]:
        """The proposal and its execution, once that has ended or is in doubt, or should have been long ago."""
        execution = self._execution(record)
        seconds = (execution.tool.timeout_ms + GRACE_MS) / 1_000 + _NOTICE_SECONDS
        until = time.monotonic() + seconds
        while execution.status in (ExecutionStatus.READY, ExecutionStatus.RUNNING) and time.monotonic() < until:
            # A proposal whose call is in doubt still waits: it is looked at every now and then.
            record = self._server.wait_for(self._space_id, record.message.proposal.proposal_id, _GLANCE_SECONDS)
            execution = self._execution(record)
            if execution.status is ExecutionStatus.READY:
                # Its turn has not come: its time begins then.
                until = time.monotonic() + seconds
        return record, execution

    def _execution(self, record: ProposalRecord) -> Execution:
        space = self._server.current(self._space_id)
        # The newest: those before it were not started.
        for execution_id in reversed(record.execution_ids):
            return self._server.settled.with_execution(space, execution_id).executions[execution_id]
        raise ProposalPending(record)

    def require_own_call(self, tool_id: str) -> None:
        """GuardError where no call that this space has decided is being carried out."""
        call = running_call()
        if call is None or call.space_id != self._space_id:
            raise GuardError(f"`{tool_id}` runs only where a call of it was allowed in space `{self._space_id}`")

    def keep_raised(self, exc: BaseException) -> None:
        """Keep what a function raised for the caller that waits here."""
        self._raised[current_call().execution_id] = exc
        while len(self._raised) > _MAX_RAISED:
            # Of calls that have no waiting caller.
            self._raised.pop(next(iter(self._raised)), None)


class _Manner(NamedTuple):
    """Under which idempotency key, and in which case, a function is called."""

    key: str | None = None
    case_id: str | None = None


class GuardedTool(Generic[P, R]):
    """A function behind its guard: call it as you would call the function."""

    def __init__(self, guard: Guard, tool: Tool, function: Callable[P, R], signature: Signature) -> None:
        functools.update_wrapper(self, function)
        # Unwrapping the decorated function would get past the guard; its signature can be had without that.
        del self.__wrapped__  # type: ignore[attr-defined]
        self.__signature__ = inspect.signature(function)
        self.__name__ = getattr(function, "__name__", tool.tool_id)
        self.tool = tool
        self.guard = guard
        self._function = function
        self._signature = signature
        self._is_async = inspect.iscoroutinefunction(function)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The result, or a GuardError that says why there is none. An async function gives an awaitable of it."""
        return self._call(_Manner(), args, kwargs)

    def under_key(self, idempotency_key: str) -> Callable[P, R]:
        """The same function, for a call that must not happen twice: under one key it runs once."""
        return self._bind(_Manner(key=idempotency_key))

    def in_case(self, case_id: str, idempotency_key: str | None = None) -> Callable[P, R]:
        """The same function, for calls that belong to one case."""
        return self._bind(_Manner(idempotency_key, case_id))

    def _bind(self, manner: _Manner) -> Callable[P, R]:
        def call_so(*args: P.args, **kwargs: P.kwargs) -> R:
            return self._call(manner, args, kwargs)

        functools.update_wrapper(call_so, self._function)
        del call_so.__wrapped__  # type: ignore[attr-defined]
        call_so.__signature__ = self.__signature__  # type: ignore[attr-defined]
        return call_so

    def _call(self, manner: _Manner, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        raw = self._signature.encode(args, kwargs)
        if self._is_async:
            return cast("R", self._call_async(raw, manner))
        return cast("R", self._signature.result(self.guard.call(self.tool, raw, *manner)))

    async def _call_async(self, raw: bytes, manner: _Manner) -> Any:
        self._loop = asyncio.get_running_loop()
        # Not in a pool: calls that wait for other calls could use it up.
        work = functools.partial(self.guard.call, self.tool, raw, *manner)
        return self._signature.result(await asyncio.wrap_future(start_thread(work, "guarded call")))

    def carry_out(self, **args: Any) -> Any:
        """Run the function, on the args as they were decided. For the runner of tools, in a thread of its own.

        Only there, and for calls of the guard's own space: another one has another policy.
        """
        self.guard.require_own_call(self.tool.tool_id)
        try:
            value = self._function(**self._signature.decode(args))  # type: ignore[call-arg]
            if inspect.iscoroutine(value):
                value = self._on_the_loop(value)
            return msgspec.to_builtins(value)
        except BaseException as exc:
            self.guard.keep_raised(exc)
            raise

    def _on_the_loop(self, work: Any) -> Any:
        """What a coroutine comes to: on the loop of its caller, where its connections are, as long as that runs."""
        call = current_call()

        async def within_the_call() -> Any:
            enter_call(call)
            return await work

        # The runner gives up first, and says so; this limit ends the coroutine.
        limit = asyncio.wait_for(within_the_call(), self.tool.timeout_ms / 1_000 + _NOTICE_SECONDS)
        if self._loop is not None and self._loop.is_running():
            return asyncio.run_coroutine_threadsafe(limit, self._loop).result()
        return asyncio.run(limit)


def _raw(value: Any) -> msgspec.Raw:
    try:
        return msgspec.Raw(canonical.encode(value))
    except BeliefServerError as exc:
        raise InvalidRequest(f"the schema of a tool must be JSON: {exc.message}") from exc
