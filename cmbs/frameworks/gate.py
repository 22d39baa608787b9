"""The calls of an agent's own tool loop, each as a gated call. The frameworks differ only around it.

A call is known by its id in the framework, its tool and its arguments, which make its idempotency key: the same call,
asked about again after an interruption or a restart, is found by it. The server chooses the ids of calls, and decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar

import anyio.to_thread
import msgspec

from cmbs.api.call import Call, build_call, find_operation
from cmbs.api.steps import Steps
from cmbs.calls.gated_call import CallRequest, GatedCall
from cmbs.calls.sentences import (
    describe_error,
    describe_not_made,
    describe_refusal,
    describe_unrecorded,
    describe_withdrawn,
)
from cmbs.client import AsyncCase, Case
from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.frameworks.answers import Answer, build_answer, convert_to_json

T = TypeVar("T")

# How far back a call is looked for that another process made: the newest of its tool in the case.
_MAX_LISTED = 100
_MAX_KNOWN = 10_000
_FIELDS = ("proposals.status", "proposals.candidates", "proposals.calls")
_OPEN = ("asked", "parked", "ready", "running")


class ToolRequest(NamedTuple):
    """A call as the framework has it. `thread` is the run or conversation within which `call_id` is one call's own."""

    tool_id: str
    args: Mapping[str, Any]
    call_id: str
    thread: str = ""


class Gate:
    """Makes the calls of one agent under one case, and records their outcomes.

    Args:
        case: An open case. One that blocks serves every framework, on any event loop: awaited, it works in a thread.
            One that awaits belongs to its event loop.
        token: The capability token of the agent; by default the server takes one that is good for the call.
        prefix: What stands before the name of a tool in its id in the space.
        wait: How many seconds a call that waits is waited for before the framework's user is asked.
    """

    def __init__(self, case: Case | AsyncCase, *, token: str | None = None, prefix: str = "", wait: int = 0) -> None:
        self._case: Final = case
        self._token = token
        self._prefix = prefix
        self._wait = wait
        # The ids of the calls of this process, by their keys.
        self._known: dict[str, str] = {}

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

    def look(self, request: ToolRequest) -> Steps[GatedCall | Answer]:
        """The call as it stands, made unless it was before. It is not begun."""
        call = self._build(request)
        try:
            known = yield from self.find(request)
            yield from (call.make() if known is None else call.resume(known))
        except BeliefServerError as exc:
            return Answer(describe_error(exc))
        self._remember(request, call.call_id)
        return call

    def begin(self, request: ToolRequest) -> Steps[GatedCall | Answer]:
        """Begin a call: one that may be run now, or one that waits; else what the model is told.

        One is begun once, whatever happens to the processes that ask: the server starts it for one of them.
        """
        call = self._build(request)
        known = self._known.get(self._name(request))
        try:
            yield from (call.begin() if known is None else call.resume(known))
            self._remember(request, call.call_id)
            yield from call.proceed(self._wait)
        except BeliefServerError as exc:
            return Answer(describe_error(exc))
        return call if call.may_run or call.waits else build_answer(call)

    def find(self, request: ToolRequest) -> Steps[str | None]:
        """The id of a call that this process made, or another one not long ago; None where there is none."""
        known = self._known.get(self._name(request))
        if known is not None:
            return known
        listed: Call[Any] = build_call(
            find_operation("list_proposals"),
            {
                "space_id": self._case.space_id,
                "agent": self._case.agent_id,
                "tool": request.tool_id,
                "case_id": self._case.case_id,
                "order": "newest",
                "limit": _MAX_LISTED,
            },
        )
        page = yield listed.picking(_FIELDS)
        found = self._choose(request, page["proposals"])
        if found is not None:
            self._remember(request, found)
        return found

    def _choose(self, request: ToolRequest, proposals: list[dict[str, Any]]) -> str | None:
        """Of these, the newest first, the id of this call, or of the same one under another id, which it joined."""
        same: str | None = None
        for proposal in proposals:
            for place, call_id in proposal["calls"].items():
                candidate = proposal["candidates"][int(place)]
                if candidate["tool_id"] != request.tool_id or candidate.get("args") != request.args:
                    continue
                if candidate["idempotency_key"] == self._name(request):
                    return str(call_id)
                if same is None and proposal["status"] in _OPEN:
                    same = str(call_id)
        return same

    def withdraw(self, call_id: str | None, reason: str) -> Steps[Answer]:
        """Withdraw a call, because the framework's user said no or made it another; what is told of it.

        Also one that was approved meanwhile, unless a process has begun it.
        """
        if call_id is None:
            return Answer(describe_not_made(reason))
        call = GatedCall(self._case.space_id)
        try:
            yield from call.resume(call_id)
            return Answer(describe_withdrawn((yield from call.withdraw(reason)), reason))
        except BeliefServerError as exc:
            return Answer(describe_error(exc))

    # --- after the call ---

    def succeed(self, call: GatedCall, result: Any) -> Steps[Answer | None]:
        """Record what a call returned; what the model is told instead where it could not be recorded."""
        return (yield from self._report(call, "succeeded", result=convert_to_json(result)))

    def fail(self, call: GatedCall, error: BaseException | str) -> Steps[Answer | None]:
        """Record that a call failed, or ran out of time."""
        status = "timed_out" if isinstance(error, TimeoutError) else "failed"
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        return (yield from self._report(call, status, error=text))

    def _report(
        self, call: GatedCall, status: str, *, result: Any = None, error: str | None = None
    ) -> Steps[Answer | None]:
        try:
            answer = yield from call.report(status, result=result, error=error)
        except BeliefServerError as exc:
            return Answer(describe_unrecorded(call.answer, str(exc)))
        return None if call.is_over else Answer(describe_unrecorded(answer, describe_refusal(answer)))

    def _name(self, request: ToolRequest) -> str:
        """The idempotency key of a call."""
        named = msgspec.json.encode((self._case.case_id, request), order="deterministic")
        return f"call-{sha256(named).hexdigest()}"

    def _build(self, request: ToolRequest) -> GatedCall:
        asked = CallRequest(
            tool_id=request.tool_id,
            args=request.args,
            case_id=self._case.case_id,
            token=self._token,
            idempotency_key=self._name(request),
            joins=True,
        )
        return GatedCall(self._case.space_id, asked)

    def _remember(self, request: ToolRequest, call_id: str) -> None:
        self._known[self._name(request)] = call_id
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
