"""Calls through a gateway: each is gated, claimed before it is sent to its upstream, and recorded.

A call belongs to the ledger and not to the request that brought it: it goes on where the client goes away, and the
same call by the same actor, in the same case, joins it while it is open. Its value is then that of the ledger. What an
operator approves later is sent by whichever gateway process claims it first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import mcp_types
import msgspec
from mcp import MCPError

from cmbs.api.spaces import CallResponse
from cmbs.calls.gated_call import CallRequest as GatedRequest
from cmbs.calls.gated_call import GatedCall
from cmbs.client.exchange import may_pass
from cmbs.errors import CmbsError, Conflict, InvalidRequest
from cmbs.ledger import canonical
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.mcp.asking import MAX_WAIT_SECONDS, describe_failure
from cmbs.mcp.gateway import answers
from cmbs.mcp.gateway.ledger import GatewayLedger, Pin
from cmbs.mcp.gateway.offers import MAX_INPUT_SECONDS, OFFER_ROUND, Offers, read_state, write_state
from cmbs.mcp.gateway.open_call import INPUT_REQUIRED, CallRequest, Listener, OpenCall
from cmbs.mcp.gateway.upstream_requests import answer_question, build_params, find_method, flatten, unflatten
from cmbs.substrate.kernel.words import CallStatus
from cmbs.substrate.tools.mcp_connection import UpstreamBroke, UpstreamFailed, UpstreamUnfit, Wire
from cmbs.substrate.tools.mcp_connections import Connections

_log = logging.getLogger("cmbs.gateway")
_REFUSED = "result_refused"
_GOING_ON = (CallStatus.WAITING, CallStatus.RUNNING)
_MAX_ROUNDS = 10
_LOOK_SECONDS = 0.5
# Of calls that ended without a client to take the answer: how many, of how many bytes together, and for how long.
_MAX_UNCLAIMED = 1_000
_MAX_UNCLAIMED_BYTES = 16_777_216
_UNCLAIMED_SECONDS = 600.0
# In the middle of one call.
_MAX_QUESTIONS = 50
_CONFIRMED = "confirmation by the user of the host"
_REPORT_PAUSES = (0.05, 0.2, 1.0, 2.0, 5.0)


class Calls:
    """The calls that are open, and how a new one is made."""

    def __init__(
        self,
        ledger: GatewayLedger,
        connections: Connections,
        pins: Callable[[], Sequence[Pin]],
        wait_seconds: float,
        offers: Offers,
        reload: Callable[[], Awaitable[None]],
        is_suspended: Callable[[Pin], bool],
    ) -> None:
        self._is_suspended = is_suspended
        self._ledger = ledger
        self._reload = reload
        self._offers = offers
        self._connections = connections
        self._pins = pins
        self._wait_seconds = wait_seconds
        self._open: dict[str, OpenCall] = {}
        self._asking: dict[str, OpenCall] = {}
        # Calls that a task of this process follows, by their ids.
        self._following: dict[str, OpenCall] = {}

    async def call(self, request: CallRequest, listener: Listener) -> Wire:
        """Make a call, or join the same one; returns when it is over, asks something, or has waited for too long."""
        key = request.key
        call = self._open.get(key)
        while call is not None and call.is_called_off and call.task is not None and not call.is_over:
            await asyncio.wait({call.task})
            call = self._open.get(key)
        if call is not None and call.is_over and not call.listeners:
            self._drop(key, call)
            if _is_kept(call) and call.answer is not None:
                has_run = call.gated.is_made and call.gated.answer.execution_id is not None
                return answers.repeat_value(call.answer, call.gated.call_id) if has_run else call.answer
            call = None
        if call is None:
            call = self._open[key] = OpenCall(request, self._gate(request))
            call.task = asyncio.create_task(self._run(call))
        return await self._attend(key, call, listener)

    def _gate(self, request: CallRequest) -> GatedCall:
        asked = GatedRequest(
            tool_id=request.pin.tool_id,
            args=request.args,
            case_id=request.case_id,
            forwarded=flatten(request.forwarded) or None,
            tool_hash=request.pin.tool_hash,
        )
        return GatedCall(self._ledger.space_id, asked, runner=self._ledger.executor_id)

    async def resume(self, request: CallRequest, listener: Listener, state: str, responses: Wire) -> Wire:
        """Go on with a call that asked something; each state is good once, and its use is recorded."""
        proposal_id, number = read_state(state)
        offered = self._open.get(request.key)
        if number == OFFER_ROUND and offered is not None and self._offers.is_open(offered, proposal_id):
            await self._offers.take_answer(offered, responses)
            return await self._attend(request.key, offered, listener)
        call = self._asking.get(proposal_id)
        if call is None or call.request.key != request.key or call.round != number or call.responses is None:
            await self._ledger.note("forged", {"noticed": "request state that is not open", "agent": request.agent_id})
            return answers.build_error(
                "Not done: this answer belongs to no question that is open. Nothing was changed.\nCall the tool again."
            )
        await self._confirm(call, responses)
        waiting, call.responses, call.question = call.responses, None, None
        waiting.set_result(responses)
        return await self._attend(request.key, call, listener)

    def cancel(self, request: CallRequest) -> None:
        """Call off a call, where no other client waits for it."""
        call = self._open.get(request.key)
        if call is not None and not call.listeners and call.task is not None and not call.is_waiting:
            call.is_called_off = True
            call.task.cancel()

    async def aclose(self) -> None:
        """Stop what runs; what was sent and not answered stays in doubt."""
        tasks = [call.task for call in self._open.values() if call.task is not None and not call.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _attend(self, key: str, call: OpenCall, listener: Listener) -> Wire:
        began = waits_since = time.monotonic()
        call.listeners.append(listener)
        try:
            while not call.is_over and call.question is None:
                left = None
                if self._offers.is_due(call, listener):
                    if listener.modern:
                        return self._offers.build_question(call)
                    await self._offers.ask(call, listener, began)
                    waits_since = time.monotonic()
                    continue
                if call.is_waiting:
                    left = self._wait_seconds - (time.monotonic() - waits_since)
                    if left <= 0:
                        return answers.tell_call(call.gated.answer)
                    elapsed, waits_for = time.monotonic() - began, call.gated.answer.waits_for
                    kind = "a change" if waits_for is None else waits_for.kind.value
                    await listener.progress(elapsed / 1_000, None, f"waits for: {kind}")
                    left = min(left, 5.0)
                await call.wait_moved(left)
        finally:
            call.listeners.remove(listener)
        if call.question is not None:
            return call.question
        self._drop(key, call)
        if call.error is not None:
            raise call.error
        return call.answer or {}

    async def _run(self, call: OpenCall, call_id: str | None = None) -> None:
        try:
            if call_id is not None:
                await self._ledger.executor.run(call.gated.resume(call_id))
            call.answer = await self._carry_out(call)
        except MCPError as exc:
            call.error = exc
        except CmbsError as exc:
            call.answer = answers.tell_failure(exc)
        except Exception:  # noqa: BLE001 - whatever it is, those who wait for the call are told
            _log.exception("a call of `%s` failed", call.request.pin.tool_id)
            call.answer = answers.build_error("Unknown: the gateway failed. Read the state before you go on.")
        finally:
            if not call.is_over:
                call.answer = answers.build_error("The call was called off.")
            if call.gated.is_made:
                self._asking.pop(call.gated.answer.proposal_id, None)
            call.ended_at = time.monotonic()
            call.move()
            if not call.listeners:
                self._limit_unclaimed()

    def _limit_unclaimed(self) -> None:
        """Keep what came of calls that no client took, for the clients that ask again; within bounds."""
        unclaimed = [(key, each) for key, each in self._open.items() if each.is_over and not each.listeners]
        unclaimed.sort(key=lambda item: item[1].ended_at, reverse=True)
        size = count = 0
        for key, each in unclaimed:
            size, count = size + each.size, count + 1
            if not _is_kept(each) or size > _MAX_UNCLAIMED_BYTES or count > _MAX_UNCLAIMED:
                self._drop(key, each)

    def _drop(self, key: str, call: OpenCall) -> None:
        if self._open.get(key) is call:
            del self._open[key]

    # --- the gate ---

    async def _carry_out(self, call: OpenCall) -> Wire:
        """Make the call, wait until it is this gateway's to send, and send it; or hand on what came of it elsewhere."""
        request, gated = call.request, call.gated
        if not gated.is_made:
            await self._ledger.ensure_token(request.agent_id, self._pins())
            await request.agent.run(gated.begin())
        self._following[gated.call_id] = call
        try:
            while not gated.may_run and gated.answer.status in _GOING_ON:
                call.move()
                if not gated.is_ready:
                    await request.agent.run(gated.wait(MAX_WAIT_SECONDS))
                elif gated.answer.tool_hash != request.pin.tool_hash or self._is_suspended(request.pin):
                    return await self._give_up(call)
                else:
                    await self._ledger.executor.run(gated.claim())
            return await self._execute(call) if gated.may_run else _value_of(gated.answer)
        finally:
            del self._following[gated.call_id]

    async def _give_up(self, call: OpenCall) -> Wire:
        """Withdraw a call of a tool that is registered otherwise than this process knows it."""
        await call.request.agent.run(call.gated.withdraw("the tool was changed meanwhile"))
        await self._reload()
        return answers.build_error(
            f"Not done: `{call.request.pin.name}` was changed meanwhile. Nothing was changed.\n"
            "List the tools again, and call it as it is now.",
            answers.list_handles(call.gated.answer),
        )

    async def run_approved(self) -> None:
        """Send what was allowed and has no request of a client behind it any more, whichever process made it."""
        executor = self._ledger.executor
        while True:
            try:
                pages = executor.each(executor.list_calls, self._ledger.space_id, wait_seconds=MAX_WAIT_SECONDS)
                found = [each async for each in pages]
            except CmbsError as exc:
                _log.warning("calls that wait cannot be listed: %s", exc)
                found = []
                await asyncio.sleep(_LOOK_SECONDS * 4)
            for each in found:
                request = self._request_of(each)
                if each.call_id not in self._following and request is not None:
                    self._begin_detached(each, request)
            if found:
                # The others are claimed by those who follow them.
                await asyncio.sleep(_LOOK_SECONDS)

    def _begin_detached(self, found: CallResponse, request: CallRequest) -> None:
        key = request.key
        if key in self._open and not self._open[key].is_over:
            return
        gated = GatedCall(self._ledger.space_id, runner=self._ledger.executor_id)
        call = self._open[key] = OpenCall(request, gated)

        call.task = asyncio.create_task(self._run(call, found.call_id))

    def _request_of(self, found: CallResponse) -> CallRequest | None:
        """The request of a call that another process made; None where its tool is not one of ours as it was decided."""
        pin = next((each for each in self._pins() if each.tool_id == found.tool_id), None)
        if pin is None or pin.tool_hash != found.tool_hash or not isinstance(found.args, Mapping):
            return None
        if self._is_suspended(pin):
            return None
        method, decided = find_method(pin.name, found.args)
        forwarded = unflatten(found.forwarded or {})
        return CallRequest(
            self._ledger.executor, found.actor.id, found.case_id, pin, method, decided, forwarded, dict(found.args)
        )

    # --- running ---

    async def _execute(self, call: OpenCall) -> Wire:
        """Send the call, and record what came of it before anything is said of it."""
        began = time.monotonic()
        pin, gated = call.request.pin, call.gated
        error: MCPError | None = None
        answer: Wire | None = None
        outcome: Wire
        try:
            answer = await self._exchange(call)
            outcome = _outcome_of(answer)
        except MCPError as exc:
            error, outcome = exc, {"status": "failed", "error": f"{exc.code}: {exc.message}"}
        except UpstreamFailed as exc:
            outcome = {"status": "failed", "error": str(exc)}
        except UpstreamUnfit as exc:
            outcome = {"status": _REFUSED, "error": str(exc)}
        except (UpstreamBroke, TimeoutError, asyncio.CancelledError) as exc:
            why = _interruption(exc, pin)
            if pin.writes:
                # Nothing is reported: at its deadline the space puts it in doubt, for an operator to look at.
                return answers.tell_unknown(gated.answer, why)
            outcome = {"status": "timed_out" if isinstance(exc, TimeoutError) else "failed", "error": why}
        outcome["duration_ms"] = round((time.monotonic() - began) * 1_000)
        if not await self._report(call, outcome):
            return answers.tell_unknown(gated.answer, "the outcome could not be recorded")
        if error is not None:
            raise error
        return answers.tell_call(gated.answer) if answer is None or "result" not in outcome else answer

    async def _exchange(self, call: OpenCall) -> Wire:
        """The exchange with the upstream, with the questions that it asks on the way."""
        request, seconds = call.request, call.request.pin.timeout_ms / 1_000
        # What was decided, and what was let through beside it, as the decision says: nothing else is sent.
        decided = find_method(request.pin.name, call.gated.answer.args or {})[1]
        if "arguments" not in request.decided and not decided.get("arguments", True):
            del decided["arguments"]
        first = params = build_params(request.method, decided, unflatten(call.gated.answer.forwarded or {}))
        for number in range(1, _MAX_ROUNDS + 1):
            connection = await self._connections.reach(request.pin.upstream, request.agent_id, request.manner, seconds)
            peer = _PeerOfCall(self, call)
            result = await connection.request(request.method, params, call.progress, peer, seconds)
            if result.get("resultType") != INPUT_REQUIRED:
                return result
            call.round = number
            responses = await self._answer_inputs(call, result)
            params = answer_question(first, responses, result.get("requestState"))
        raise UpstreamFailed(f"the server asked something {_MAX_ROUNDS} times")

    async def _answer_inputs(self, call: OpenCall, result: Wire) -> Wire:
        listener = call.listeners[0] if call.listeners else None
        if listener is not None and not listener.modern:
            asked = result.get("inputRequests") or {}
            responses = {
                name: await listener.ask(str(each.get("method")), each.get("params") or {})
                for name, each in asked.items()
            }
            await self._confirm(call, responses)
            return responses
        call.responses = asyncio.get_running_loop().create_future()
        call.question = {**result, "requestState": write_state(call.gated.answer.proposal_id, call.round)}
        self._asking[call.gated.answer.proposal_id] = call
        call.move()
        async with asyncio.timeout(MAX_INPUT_SECONDS):
            return await call.responses

    async def relay_question(self, call: OpenCall, method: str, params: Wire) -> Wire:
        """Ask the client of a call what its upstream asks in the middle of it."""
        if not call.listeners:
            raise MCPError(code=mcp_types.INVALID_REQUEST, message="the client of this call is gone")
        call.round += 1
        if call.round > _MAX_QUESTIONS:
            message = f"the client was asked {_MAX_QUESTIONS} times in the middle of this call"
            raise MCPError(code=mcp_types.INVALID_REQUEST, message=message)
        answer = await call.listeners[0].ask(method, params)
        try:
            await self._confirm(call, {method.partition("/")[0]: answer})
        except CmbsError as exc:
            raise MCPError(code=mcp_types.INTERNAL_ERROR, message=describe_failure(exc)) from exc
        return answer

    async def _confirm(self, call: OpenCall, responses: Wire) -> None:
        """Record what the host answered; what its user said is a confirmation, which is no approval."""
        proposal_id = call.gated.answer.proposal_id
        actions = {
            name: each["action"] for name, each in responses.items() if isinstance(each, Mapping) and "action" in each
        }
        claim = {
            "noticed": _CONFIRMED if actions else "answer of the host to a question of the server",
            "proposal_id": proposal_id,
            "round": call.round,
            "actions": actions,
            "responses_hash": hash_tagged(Domain.ANSWERS, canonical.encode(responses)).hex(),
        }
        if not await self._ledger.use_once(f"mcp-input-{proposal_id}-{call.round}", claim):
            raise Conflict("this question was answered before", {"next": "call the tool again"})

    async def _report(self, call: OpenCall, outcome: Wire) -> bool:
        """Record an outcome, also where the server is away for a moment; whether it is recorded."""
        for pause in (*_REPORT_PAUSES, None):
            try:
                await self._ledger.executor.run(call.gated.report(**outcome))
            except CmbsError as exc:
                if isinstance(exc, InvalidRequest) and outcome.pop("result", None) is not None:
                    # It has numbers that are none, for example. That the call was made is on record.
                    outcome |= {"status": _REFUSED, "error": "the result cannot be recorded"}
                    return await self._report(call, outcome)
                if not may_pass(exc):
                    _log.warning("the outcome of `%s` is not taken: %s", call.gated.call_id, exc)
                    return False
                if pause is not None:
                    await asyncio.sleep(pause)
            else:
                return call.gated.answer.outcome is not None
        return False


def _is_kept(call: OpenCall) -> bool:
    """Whether what came of a call is the answer to the same call later.

    A failure is not: the same call is made again, or is found in the ledger. A refusal is, once.
    """
    if call.answer is None or call.is_called_off or time.monotonic() - call.ended_at > _UNCLAIMED_SECONDS:
        return False
    has_run = call.gated.is_made and call.gated.answer.execution_id is not None
    return call.answer.get("isError") is not True or not has_run


class _PeerOfCall:
    """What the upstream of a call reaches of its clients."""

    def __init__(self, calls: Calls, call: OpenCall) -> None:
        self._calls = calls
        self._call = call

    async def ask(self, method: str, params: Wire) -> Wire:
        """See `Peer.ask`."""
        return await self._calls.relay_question(self._call, method, params)

    async def notify(self, method: str, params: Wire) -> None:
        """See `Peer.notify`."""
        await self._call.notify(method, params)


def _outcome_of(result: Wire) -> Wire:
    """What is recorded of a result."""
    if result.get("isError") is not True:
        return {"status": "succeeded", "result": result}
    texts = [str(each.get("text")) for each in result.get("content", ()) if isinstance(each, dict) and "text" in each]
    return {"status": "failed", "result": result, "error": " ".join(texts) or "it failed"}


def _value_of(found: CallResponse) -> Wire:
    """What came of a call that another process sent, or this one before; or why nothing did."""
    result = found.result
    if found.status not in (CallStatus.DONE, CallStatus.FAILED) or not isinstance(result, dict):
        return answers.tell_call(found)
    if result.keys() == {"text"}:
        result = msgspec.json.decode(result["text"])
    if result.keys() == {"hash", "bytes"}:
        text = f"Done before, with a result of {result['bytes']} bytes that is too large to be given again."
        return answers.build_error(text, answers.list_handles(found))
    return answers.repeat_value(result, found.call_id)


def _interruption(exc: BaseException, pin: Pin) -> str:
    if isinstance(exc, TimeoutError):
        return f"no answer within {pin.timeout_ms} ms"
    return "the client called it off" if isinstance(exc, asyncio.CancelledError) else str(exc)
