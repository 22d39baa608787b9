"""One gated call, from what an agent asks for to its outcome. It sends nothing itself: it yields calls of the API.

What drives it sends each of them, and gives back its answer or its error: clients that block or await, and so the
MCP server, hooks and frameworks. What may be run is `may_run`, and nothing else: the server has then started the call
for the nonce of this object alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from cmbs.api.call import Call, build_call, encode, find_operation
from cmbs.api.spaces import CallResponse, CallWaitKind
from cmbs.api.steps import Steps
from cmbs.errors import Conflict, InvalidRequest, LimitExceeded
from cmbs.ledger.tagged_hash import describe_large_result
from cmbs.substrate.kernel.events import OutcomeStatus, hash_of_nonce
from cmbs.substrate.kernel.words import CALLER, CallStatus

# Beyond this a result is recorded by its hash alone.
MAX_RESULT_BYTES = 65_536
MAX_ERROR_CHARACTERS = 4_000
# The longest that one request waits; servers hold none much longer.
POLL_SECONDS = 20
_NONCE_BYTES = 32
_GOING_ON = (CallStatus.WAITING, CallStatus.RUNNING)


class CallRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for: a call of a tool, and how long it may wait. `joins` is that of `make_call`."""

    tool_id: str
    args: Mapping[str, Any]
    case_id: str | None = None
    token: str | None = None
    idempotency_key: str | None = None
    joins: bool = False
    forwarded: Mapping[str, Any] | None = None
    # The registration of the tool that the holder goes by: a call of another one is not claimed at once.
    tool_hash: str | None = None
    defer_ms: int | None = None
    ask_ms: int | None = None


class GatedCall:
    """A call in a space, as one who makes or runs it goes on with it.

    Args:
        space_id: The space.
        request: What is asked for; None to go on with a call that was made before.
        runner: As whom the holder runs calls: the id of an executor, or `caller`, the agent that makes the call.
        nonce: The secret of a claim that was made before; by default a new one.
    """

    def __init__(
        self,
        space_id: str,
        request: CallRequest | None = None,
        *,
        runner: str = CALLER,
        nonce: str | None = None,
    ) -> None:
        self.space_id = space_id
        self.request = request
        self.nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._runner = runner
        self._answer: CallResponse | None = None
        self._is_ours = False

    # --- where it stands ---

    @property
    def answer(self) -> CallResponse:
        """What the server said last; InvalidRequest before the first answer."""
        if self._answer is None:
            raise InvalidRequest("the call was not made yet")
        return self._answer

    @property
    def is_made(self) -> bool:
        """Whether the server has said anything of it."""
        return self._answer is not None

    @property
    def call_id(self) -> str:
        """The id of the call, which the server chose."""
        return self.answer.call_id

    @property
    def may_run(self) -> bool:
        """Whether the holder runs it now, once: it is started, by the claim of this object."""
        return self._is_ours and self.answer.status is CallStatus.RUNNING

    @property
    def is_done(self) -> bool:
        """Whether it ran and succeeded, so that its result is on record."""
        return self.answer.status is CallStatus.DONE

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.answer.status not in (*_GOING_ON, CallStatus.IN_DOUBT)

    @property
    def is_ready(self) -> bool:
        """Whether it is allowed, and waits for the holder to claim it."""
        waits_for = self.answer.waits_for
        return waits_for is not None and waits_for.kind is CallWaitKind.EXECUTOR and self._may_claim()

    @property
    def waits(self) -> bool:
        """Whether it waits, for an approval, a change, its turn or another executor."""
        return self.answer.status is CallStatus.WAITING and not self.is_ready

    # --- steps ---

    def make(self) -> Steps[CallResponse]:
        """Make the call, or join the same one. If it is the holder's to run, it waits to be claimed."""
        return (yield from self._make(None))

    def begin(self) -> Steps[CallResponse]:
        """Make the call, and claim it at once if it is allowed and the holder's to run."""
        claim = {"nonce_hash": hash_of_nonce(self.nonce)}
        if self.request is not None and self.request.tool_hash is not None:
            claim["tool_hash"] = self.request.tool_hash
        answer = yield from self._make(claim)
        if not answer.joined:
            self._is_ours = answer.is_claimed and answer.refusal is None
        else:
            # Where the answer to an earlier attempt was lost, it is ours already: the same claim again is a repeat.
            yield from self.claim()
        return self.answer

    def resume(self, call_id: str) -> Steps[CallResponse]:
        """Read a call that was made before."""
        return (yield from self._ask("get_call", call_id=call_id))

    def wait(self, seconds: int) -> Steps[CallResponse]:
        """Wait for so long at most, until it is over or there is something for the holder to do."""
        yield from self._wait(seconds)
        return self.answer

    def proceed(self, seconds: int) -> Steps[CallResponse]:
        """Wait as `wait` does, and claim the call as soon as it is the holder's to run."""
        while True:
            seconds = yield from self._wait(seconds)
            if not self.is_ready or (yield from self.claim()) or seconds <= 0:
                return self.answer

    def claim(self) -> Steps[bool]:
        """Claim the call, if it is the holder's to run; whether it runs it now.

        It is decided again, so that it may wait or end instead.
        """
        answer = self.answer
        is_begun = answer.is_claimed and answer.status is CallStatus.RUNNING and self._may_claim()
        if not self.is_ready and not is_begun:
            return False
        try:
            yield from self._ask(
                "claim_call", call_id=answer.call_id, nonce_hash=hash_of_nonce(self.nonce), call_hash=answer.call_hash
            )
        except Conflict:
            # Another process has claimed it, or its time is over.
            self._is_ours = False
            yield from self.resume(answer.call_id)
            return False
        self._is_ours = self.answer.is_claimed and self.answer.refusal is None
        return self.may_run

    def report(
        self,
        status: OutcomeStatus | str,
        *,
        result: Any = None,
        error: str | None = None,
        duration_ms: int = 0,
    ) -> Steps[CallResponse]:
        """Report what came of a call that the holder ran. A large result is recorded by its hash."""
        outcome = {
            "call_id": self.call_id,
            "status": OutcomeStatus(status),
            "error": None if error is None else error[:MAX_ERROR_CHARACTERS],
            "duration_ms": duration_ms,
            "nonce": self.nonce,
        }
        try:
            return (yield from self._ask("report_call", **outcome, result=shorten_result(result)))
        except (InvalidRequest, LimitExceeded):
            # Numbers beyond those of the ledger, for example: the text is kept as text.
            return (yield from self._ask("report_call", **outcome, result={"text": encode(result).decode()}))

    def withdraw(self, reason: str) -> Steps[CallResponse]:
        """Withdraw a call that was not started. One that moved on meanwhile is read instead."""
        try:
            return (yield from self._ask("withdraw_call", call_id=self.call_id, reason=reason))
        except Conflict:
            return (yield from self.resume(self.call_id))

    def _may_claim(self) -> bool:
        """Whether the call is the holder's to run: others are not shown its hash."""
        return self.answer.executor == self._runner and self.answer.call_hash is not None

    def _wait(self, seconds: int) -> Steps[int]:
        """The seconds that are left."""
        while seconds > 0 and self.answer.status in _GOING_ON and not self.is_ready and not self.may_run:
            asked = min(seconds, POLL_SECONDS)
            seconds -= asked
            yield from self._ask("get_call", call_id=self.call_id, wait_seconds=asked)
        return seconds

    def _make(self, claim: Mapping[str, str] | None) -> Steps[CallResponse]:
        asked = self.request
        if asked is None:
            raise InvalidRequest("this is a call that was made before: resume it")
        return (
            yield from self._ask(
                "make_call",
                tool_id=asked.tool_id,
                args=dict(asked.args),
                case_id=asked.case_id,
                capability_token_id=asked.token,
                idempotency_key=asked.idempotency_key,
                joins=asked.joins or None,
                forwarded=asked.forwarded,
                claim=claim,
                defer_ms=asked.defer_ms,
                ask_ms=asked.ask_ms,
            )
        )

    def _ask(self, operation_id: str, **arguments: Any) -> Steps[CallResponse]:
        call: Call[Any] = build_call(find_operation(operation_id), {"space_id": self.space_id, **arguments})
        answer: CallResponse = yield call
        self._require_same(answer)
        self._answer = answer
        return answer

    def _require_same(self, answer: CallResponse) -> None:
        """Conflict for an answer about another call than the one that was asked for: that one must never be run."""
        asked = self.request
        if asked is None:
            return
        args = msgspec.json.decode(encode(asked.args))
        # A case may be asked for by its name, and is answered by its id.
        is_other_case = (answer.case_id is None) != (asked.case_id is None)
        if (answer.tool_id, answer.args) != (asked.tool_id, args) or is_other_case:
            raise Conflict(
                f"`{answer.call_id}` is another call than the one that was made",
                {
                    "field": "call_id",
                    "found": answer.call_id,
                    "next": "make the call anew, under another idempotency key",
                },
            )


def shorten_result(value: Any) -> Any:
    """A result as it is kept: all of it, or its hash where it is too large."""
    data = encode(value)
    return value if len(data) <= MAX_RESULT_BYTES else describe_large_result(data)
