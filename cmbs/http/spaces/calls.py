"""Calls over HTTP: made, claimed, reported, withdrawn, and waited for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from heapq import nsmallest
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.api import space_requests as requests
from cmbs.api import spaces as schemas
from cmbs.errors import Conflict
from cmbs.http.exchange import Request, Response, cursor_of, encode_answer, value_of, whole_number
from cmbs.http.headers import REPLAYED, say_head
from cmbs.http.spaces.reading import PageSize, Spaces
from cmbs.http.spaces.views import Reader, show_call
from cmbs.http.waiting import Waiting, read_seconds
from cmbs.identity.gate import Gate
from cmbs.identity.kernel.scopes import Need, Reach, Scope
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.call_records import CallRecord, find_call_record, find_live_call
from cmbs.substrate.kernel.calls import MakeCall, is_executor, name_call
from cmbs.substrate.kernel.events import STREAM_PREFIX, Claim, Propose, RecordOutcome, Start, Withdraw, hash_of_nonce
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.model import Failure, ToolCall
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.words import CallStatus, ExecutionStatus
from cmbs.substrate.listing import Position

T = TypeVar("T")
EXECUTOR_HEADER = "cmbs-executor"


class CallRoutes:
    """The handlers of calls."""

    def __init__(self, spaces: Spaces, page_size: PageSize, waiting: Waiting, gate: Gate) -> None:
        self._spaces = spaces
        self._page_size = page_size
        self._waiting = waiting
        self._gate = gate

    async def make_call(self, request: Request) -> Response:
        """Make a call, or join the same one."""
        body: requests.MakeCallRequest = request.message
        message = MakeCall(
            ToolCall(
                body.tool_id,
                body.args,
                body.capability_token_id,
                body.idempotency_key or request.idempotency_key,
                body.forwarded,
            ),
            body.case_id,
            self._read_claim(request, body),
            body.defer_ms,
            body.ask_ms,
            body.joins,
        )
        answer = await self._perform(request, message, keyed=False)
        made = answer.event.message
        if not isinstance(made, Propose):  # pragma: no cover - a call becomes a proposal
            raise TypeError(made)
        call_id = name_call(answer.event.body.event_id, 0)
        if body.wait_seconds:
            found = await self._wait(request, call_id, read_seconds(body.wait_seconds))
        else:
            found = await self._find(request, call_id, answer.space)
        return self._respond(request, found, answer)

    async def get_call(self, request: Request) -> Response:
        """One call, as soon as there is news of it, or as it is."""
        call_id, seconds = request.params["call_id"], read_seconds(request.query.get("wait_seconds", 0))
        found = await (self._wait(request, call_id, seconds) if seconds else self._find(request, call_id))
        return self._respond(request, found)

    async def list_calls(self, request: Request) -> Response:
        """The calls that wait for the caller to run them."""
        seconds = read_seconds(request.query.get("wait_seconds", 0))
        server, space_id = self._spaces.server, request.params["space_id"]
        now, looked_at = asyncio.get_running_loop().time, -math.inf

        async def has_any() -> bool:
            nonlocal looked_at
            # What this process writes is in its cache; what others write is looked for at the rate of all that waits.
            space = server.find_cached(space_id)
            if space is None or not server.log.blocking or now() - looked_at >= self._waiting.look_seconds:
                looked_at = now()
                space = await self._read(lambda: server.current(space_id))
            return bool(_list_claimable(space, request))

        if seconds:
            await self._waiting.wait(STREAM_PREFIX + space_id, seconds, has_any, request.gone())
        limit, parts = self._page_size(request.query.get("limit")), request.after_of(2)
        after = None if parts is None else Position(whole_number("cursor", parts[0]), parts[1])
        return await self._read(lambda: self._show_page(request, limit, after))

    async def claim_call(self, request: Request) -> Response:
        """START, by the one who runs the call."""
        body: requests.ClaimCallRequest = request.message
        found = await self._find(request)
        if found.execution is None:
            raise _no_execution(found)
        message = Start(_execution_of(found), body.nonce_hash, body.call_hash)
        answer = await self._perform(request, message, self._runner_of(request))
        return self._respond(request, await self._find(request, space=answer.space), answer)

    async def report_call(self, request: Request) -> Response:
        """RECORD_OUTCOME, by the one who ran the call."""
        if request.actor.kind is ActorKind.OPERATOR:
            request.grants.require(Need(Scope.SPACES_OPERATE, Reach.ONE, request.params["space_id"]))
        body: requests.OutcomeRequest = request.message
        found = self._find_claimed(request, body.nonce) or await self._find(request)
        result: Any = value_of(body.result)
        message = RecordOutcome(
            _execution_of(found),
            body.status,
            result,
            body.error,
            body.duration_ms,
            len(msgspec.json.encode(result)),
            nonce=body.nonce,
        )
        answer = await self._perform(request, message, self._runner_of(request))
        return self._respond(request, await self._find(request, space=answer.space), answer)

    async def withdraw_call(self, request: Request) -> Response:
        """WITHDRAW, of the proposal of the call."""
        found = await self._find(request)
        answer = await self._perform(request, Withdraw(found.proposal_id, request.message.reason))
        return self._respond(request, await self._find(request, space=answer.space), answer)

    def _read_claim(self, request: Request, body: requests.MakeCallRequest) -> Claim | UnsetType:
        """The claim of a call that its sender runs itself, and who that is."""
        if isinstance(body.claim, UnsetType):
            return UNSET
        runner = self._runner_of(request)
        executor = UNSET if runner is request.actor else runner
        return Claim(body.claim.nonce_hash, body.claim.tool_hash, executor)

    def _runner_of(self, request: Request) -> Actor:
        """Who runs calls for the sender of a request: the executor whose credential comes with it, or the sender."""
        credential = request.header(EXECUTOR_HEADER)
        if credential is None:
            return request.actor
        needed = Need(Scope.SPACES_EXECUTE, Reach.ONE, request.params["space_id"])
        return self._gate.admit_executor(credential, needed)

    async def _perform(
        self, request: Request, message: Any, actor: Actor | None = None, *, keyed: bool = True
    ) -> SpaceAnswer:
        key = request.idempotency_key if keyed else None
        command = SpaceCommand(request.params["space_id"], actor or request.actor, message, key, request.if_match)
        return await self._spaces.server.perform_async(command)

    async def _find(self, request: Request, call_id: str | None = None, space: Space | None = None) -> CallRecord:
        server, space_id = self._spaces.server, request.params["space_id"]
        name = call_id or request.params["call_id"]
        if space is not None and (found := find_live_call(space, name)) is not None:
            return found
        return await self._read(lambda: find_call_record(server.settled, space or server.current(space_id), name))

    def _find_claimed(self, request: Request, nonce: str | UnsetType) -> CallRecord | None:
        """The call whose run was claimed with this nonce, if this process knows of it: no other run is meant."""
        space = self._spaces.server.find_cached(request.params["space_id"])
        if space is None or isinstance(nonce, UnsetType):
            return None
        found = find_live_call(space, request.params["call_id"])
        execution = None if found is None else found.execution
        return found if execution is not None and execution.nonce_hash == hash_of_nonce(nonce) else None

    async def _wait(self, request: Request, call_id: str, seconds: int) -> CallRecord:
        """The call once the caller has nothing more to wait for, or as it is when the time is over."""
        found, runner = await self._find(request, call_id), self._runner_of(request)

        async def is_settled() -> bool:
            nonlocal found
            found = await self._find(request, call_id)
            return found.is_settled_for(request.actor) or found.is_for(runner)

        await self._waiting.wait(STREAM_PREFIX + request.params["space_id"], seconds, is_settled, request.gone())
        return found

    async def _read(self, read: Callable[[], T]) -> T:
        return await asyncio.to_thread(read) if self._spaces.server.log.blocking else read()

    def _show_page(self, request: Request, limit: int, after: Position | None) -> Response:
        server = self._spaces.server
        space = server.current(request.params["space_id"])
        reader = Reader(request.actor, space.policy)
        places = [each for each in _list_claimable(space, request) if after is None or each > after]
        page = nsmallest(limit + 1, places)
        shown = []
        for place in page[:limit]:
            execution = space.executions[place.record_id]
            record = space.proposals[execution.proposal_id]
            call_id = name_call(record.event_id, execution.intent.candidate)
            shown.append(show_call(find_call_record(server.settled, space, call_id), reader))
        cursor = cursor_of(*map(str, page[limit - 1])) if len(page) > limit else None
        return Response(200, encode_answer(schemas.CallsPage(shown, cursor)))

    def _respond(self, request: Request, found: CallRecord, answer: SpaceAnswer | None = None) -> Response:
        reader = Reader(request.actor, found.space.policy)
        if answer is None:
            return Response(200, encode_answer(show_call(found, reader)))
        shown = show_call(found, reader, answer)
        place = REPLAYED if answer.repeated else say_head(answer.space.head.seq, answer.space.head_event_id)
        return Response(200, encode_answer(shown), [place])


def _list_claimable(space: Space, request: Request) -> list[Position]:
    """Where the calls stand that wait for the caller to run them."""
    running = map(space.executions.__getitem__, space.running)
    return [
        Position(each.started_seq, each.intent.execution_id)
        for each in running
        if each.status is ExecutionStatus.READY and is_executor(each, request.actor)
    ]


def _no_execution(found: CallRecord) -> Conflict:
    """Why a call cannot be claimed that was not let through."""
    status = found.status.value
    waits = found.status is CallStatus.WAITING
    kind = ("approval" if found.decision.failure is Failure.ASK else "a change") if waits else ""
    return Conflict(
        f"call `{found.call_id}` waits for {kind}" if waits else f"call `{found.call_id}` is {status}",
        {
            "call_id": found.call_id,
            "field": "status",
            "found": status,
            "accepted": "a call that waits for its executor",
            "next": "read the call, and wait for it" if waits else "make the call again, if it is still wanted",
        },
    )


def _execution_of(found: CallRecord) -> str:
    """The execution of a call; a name that none has, where there is none."""
    execution = found.execution
    return found.call_id if execution is None else execution.intent.execution_id
