"""Calls through a gateway: each is a proposal first, runs at the upstream where it is allowed, and is recorded.

A call belongs to its proposal and not to the request that brought it: it goes on where the client goes away, and the
same call by the same actor, in the same case, joins it while it is open. Its value is then that of the ledger.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

import mcp_types
import msgspec
from mcp import MCPError

from cmbs.api.spaces import ExecutionResponse
from cmbs.client import AsyncClient
from cmbs.client.exchange import may_pass
from cmbs.errors import CmbsError, Conflict, InvalidRequest, LimitExceeded, RecordNotFound
from cmbs.ledger import canonical
from cmbs.ledger.tagged_hash import Domain, describe_large_result, hash_tagged
from cmbs.mcp.asking import describe_failure
from cmbs.mcp.gateway import answers
from cmbs.mcp.gateway.connection import UpstreamBroke, UpstreamFailed, UpstreamSaidTooMuch, Wire
from cmbs.mcp.gateway.connections import Connections
from cmbs.mcp.gateway.ledger import MAX_RESULT_BYTES, GatewayLedger, Pin
from cmbs.mcp.gateway.offers import MAX_INPUT_SECONDS, OFFER_ROUND, Offers, read_state, write_state
from cmbs.mcp.gateway.open_call import INPUT_REQUIRED, WAITING, CallRequest, Listener, OpenCall
from cmbs.mcp.gateway.upstream_requests import answer_question, build_params

_log = logging.getLogger("cmbs.gateway")
_REFUSED = "result_refused"
_ENDED = ("succeeded", "failed", "timed_out", _REFUSED)
_STALE = ("STALE_SNAPSHOT", "UNKNOWN_SNAPSHOT")
_MAX_PROPOSALS = 10
_MAX_ROUNDS = 10
_LOOK_SECONDS = 0.5
_MAX_ERROR_CHARACTERS = 4_000
# Of calls that ended without a client to take the answer: how many, of how many bytes together, and for how long.
_MAX_UNCLAIMED = 1_000
_MAX_UNCLAIMED_BYTES = 16_777_216
_UNCLAIMED_SECONDS = 600.0
# Of calls of which the next number is known.
_MAX_NUMBERS = 10_000
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
    ) -> None:
        self._ledger = ledger
        self._offers = offers
        self._connections = connections
        self._pins = pins
        self._wait_seconds = wait_seconds
        self._open: dict[str, OpenCall] = {}
        self._asking: dict[str, OpenCall] = {}
        # The number of the newest proposal for a call. Lost, it is found again in the ledger.
        self._numbers: dict[str, int] = {}
        # Calls whose outcome the caller was told is unknown: once it is recorded, the value is owed.
        self._owed: set[str] = set()

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
                runs = call.record.get("execution_ids")
                return answers.repeat_value(call.answer, runs[0]) if runs else call.answer
            call = None
        if call is None:
            call = self._open[key] = OpenCall(request)
            call.task = asyncio.create_task(self._run(key, call))
        return await self._attend(key, call, listener)

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
                        return answers.tell_waiting(call.record)
                    elapsed = time.monotonic() - began
                    await listener.progress(elapsed / 1_000, None, f"waits: {call.record['status']}")
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

    async def _run(self, key: str, call: OpenCall) -> None:
        try:
            call.answer = await self._carry_out(key, call)
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
            self._asking.pop(call.record.get("proposal_id", ""), None)
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

    # --- proposing ---

    async def _carry_out(self, key: str, call: OpenCall) -> Wire:
        request = call.request
        call.record, is_new = await self._propose(key, request)
        if not is_new and call.record["execution_ids"]:
            answer = await self._follow(key, call)
            if answer is not None:
                return answer
            call.record, is_new = await self._propose(key, request)
        while call.record["status"] in WAITING:
            call.move()
            call.record = await self._ledger.wait(request.agent, call.record["proposal_id"])
        if call.record["status"] != "running":
            self._settle(key)
            return answers.tell_denied(call.record)
        return await self._execute(key, call)

    async def _propose(self, key: str, request: CallRequest) -> tuple[Wire, bool]:
        """The proposal for a call, and whether it is new: one that is open, or whose outcome is unknown, stands."""
        ledger, agent = self._ledger, request.agent
        token_id = await ledger.token(request.agent_id, self._pins())
        record: Wire = {}
        for _ in range(_MAX_PROPOSALS):
            proposal_id = _proposal_id(key, self._numbers.get(key, 0))
            try:
                record = await ledger.propose(
                    agent, request.agent_id, request.pin, proposal_id, request.args, token_id, request.case_id
                )
            except Conflict:
                record = await ledger.proposal(agent, proposal_id)
                if record["status"] in (*WAITING, "running") or key in self._owed:
                    return record, False
                await self._skip_settled(key, agent)
                continue
            if record["decision"]["reason_code"] not in _STALE:
                return record, True
            await ledger.refresh()
            self._settle(key)
        return record, True

    async def _skip_settled(self, key: str, agent: AsyncClient) -> None:
        """Find the first number without a proposal, in steps that double: this process did not make them."""
        low, step = self._numbers.get(key, 0), 1
        while await self._exists(key, low + step, agent):
            low, step = low + step, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if await self._exists(key, middle, agent) else (low, middle)
        newest = await self._ledger.proposal(agent, _proposal_id(key, low))
        self._number(key, low if newest["status"] in (*WAITING, "running") else high)

    async def _exists(self, key: str, number: int, agent: AsyncClient) -> bool:
        try:
            await self._ledger.proposal(agent, _proposal_id(key, number))
        except RecordNotFound:
            return False
        return True

    def _settle(self, key: str) -> None:
        """The next call of the same is another one."""
        self._owed.discard(key)
        self._number(key, self._numbers.get(key, 0) + 1)

    def _number(self, key: str, number: int) -> None:
        self._numbers.pop(key, None)
        self._numbers[key] = number
        while len(self._numbers) > _MAX_NUMBERS:
            oldest = next(iter(self._numbers))
            self._owed.discard(oldest)
            del self._numbers[oldest]

    async def _follow(self, key: str, call: OpenCall) -> Wire | None:
        """What came of a call that another process, or this one before, sent; None where it can be made again."""
        agent, pin = call.request.agent, call.request.pin
        while True:
            execution = await self._ledger.execution(agent, call.record["execution_ids"][0])
            if execution.status in _ENDED:
                self._settle(key)
                return _value_of(execution, call.record)
            # What this process sent, and got no answer to, has nothing more to come.
            if execution.status == "in_doubt" or key in self._owed:
                if not pin.writes or pin.idempotent:
                    self._settle(key)
                    return None
                return self._tell_unknown(key, call, "it is in doubt")
            # Where the process that sent it is gone, its deadline comes in the end.
            await asyncio.sleep(_LOOK_SECONDS)

    # --- running ---

    async def _execute(self, key: str, call: OpenCall) -> Wire:
        """Send the call, and record what came of it before anything is said of it."""
        began = time.monotonic()
        pin = call.request.pin
        error: MCPError | None = None
        try:
            result = await self._exchange(call)
            answer, outcome = result, _outcome_of(result)
        except MCPError as exc:
            error, answer = exc, {}
            outcome = {"status": "failed", "error": f"{exc.code}: {exc.message}"[:_MAX_ERROR_CHARACTERS]}
        except UpstreamFailed as exc:
            answer, outcome = answers.tell_failed(str(exc), call.record), {"status": "failed", "error": str(exc)}
        except UpstreamSaidTooMuch as exc:
            answer, outcome = answers.tell_refused(str(exc), call.record), {"status": _REFUSED, "error": str(exc)}
        except (UpstreamBroke, TimeoutError, asyncio.CancelledError) as exc:
            why = _interruption(exc, pin)
            if pin.writes:
                # Nothing is reported: at its deadline the space puts it in doubt, for an operator to look at.
                return self._tell_unknown(key, call, why)
            status = "timed_out" if isinstance(exc, TimeoutError) else "failed"
            answer, outcome = answers.tell_failed(why, call.record), {"status": status, "error": why}
        duration_ms = round((time.monotonic() - began) * 1_000)
        if not await self._report(call, {**outcome, "duration_ms": duration_ms}):
            return self._tell_unknown(key, call, "the outcome could not be recorded")
        self._settle(key)
        if error is not None:
            raise error
        return answer

    def _tell_unknown(self, key: str, call: OpenCall, why: str) -> Wire:
        self._number(key, self._numbers.get(key, 0))
        self._owed.add(key)
        return answers.tell_unknown(call.record, why)

    async def _exchange(self, call: OpenCall) -> Wire:
        """The exchange with the upstream, with the questions that it asks on the way."""
        request, seconds = call.request, call.request.pin.timeout_ms / 1_000
        first = params = build_params(request.method, request.decided, request.forwarded)
        for number in range(1, _MAX_ROUNDS + 1):
            connection = await self._connections.reach(request.pin.upstream, request.agent_id, request.manner, seconds)
            async with asyncio.timeout(seconds):
                result = await connection.request(request.method, params, call.progress, _PeerOfCall(self, call))
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
        call.question = {**result, "requestState": write_state(call.record["proposal_id"], call.round)}
        self._asking[call.record["proposal_id"]] = call
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
        proposal_id = call.record["proposal_id"]
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
        agent, execution_id = call.request.agent, call.record["execution_ids"][0]
        for pause in (*_REPORT_PAUSES, None):
            try:
                await self._ledger.report(agent, execution_id, outcome)
            except CmbsError as exc:
                # The ledger cannot keep it as JSON: numbers or depths beyond its own. The text is kept as text.
                is_unkept = isinstance(exc, InvalidRequest | LimitExceeded)
                if is_unkept and "text" not in (outcome.get("result") or {}):
                    text = msgspec.json.encode(outcome.get("result")).decode()
                    return await self._report(call, {**outcome, "result": {"text": text}})
                if not may_pass(exc):
                    _log.warning("the outcome of `%s` is not taken: %s", execution_id, exc)
                    return False
                if pause is not None:
                    await asyncio.sleep(pause)
            else:
                return True
        return False


def _is_kept(call: OpenCall) -> bool:
    """Whether what came of a call is the answer to the same call later.

    A failure is not: the same call is made again, or is found in the ledger. A refusal is, once.
    """
    if call.answer is None or call.is_called_off or time.monotonic() - call.ended_at > _UNCLAIMED_SECONDS:
        return False
    return call.answer.get("isError") is not True or not call.record.get("execution_ids")


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


def _proposal_id(key: str, number: int) -> str:
    return f"mcp-{key[:40]}-{number}"


def _outcome_of(result: Wire) -> Wire:
    """What is recorded of a result: all of it, or its hash where it is too large."""
    data = msgspec.json.encode(result)
    kept = result if len(data) <= MAX_RESULT_BYTES else describe_large_result(data)
    if result.get("isError") is not True:
        return {"status": "succeeded", "result": kept}
    texts = [str(each.get("text")) for each in result.get("content", ()) if isinstance(each, dict) and "text" in each]
    return {"status": "failed", "result": kept, "error": " ".join(texts)[:_MAX_ERROR_CHARACTERS] or "it failed"}


def _value_of(execution: ExecutionResponse, record: Wire) -> Wire:
    """The recorded value of a run, as an answer."""
    result = execution.result
    if execution.status == _REFUSED:
        return answers.tell_refused(execution.error or "its result does not fit", record)
    if isinstance(result, dict) and result.keys() == {"text"}:
        result = msgspec.json.decode(result["text"])
    if not isinstance(result, dict):
        return answers.tell_failed(execution.error or "it failed", record)
    if result.keys() == {"hash", "bytes"}:
        text = f"Done before, with a result of {result['bytes']} bytes that is too large to be given again."
        return answers.build_error(text, answers.list_handles(record))
    return answers.repeat_value(result, execution.execution_id)


def _interruption(exc: BaseException, pin: Pin) -> str:
    if isinstance(exc, TimeoutError):
        return f"no answer within {pin.timeout_ms} ms"
    return "the client called it off" if isinstance(exc, asyncio.CancelledError) else str(exc)
