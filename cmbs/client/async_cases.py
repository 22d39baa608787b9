"""A case as an agent works on it: observe, ask what next and why, conclude, act, wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from cmbs.api.call import Json, Moment
from cmbs.api.observations import ObserveResponse, ProbesPage
from cmbs.api.sessions import DeclareConclusionResponse, EliminateResponse, Snapshot
from cmbs.api.spaces import CallResponse, ExplainResponse
from cmbs.api.steps import Steps
from cmbs.calls.gated_call import CallRequest, GatedCall
from cmbs.client.case_options import CaseOptions, Why, read_elimination
from cmbs.errors import Conflict, Forbidden, InvalidRequest, RecordNotFound

if TYPE_CHECKING:
    from cmbs.client.async_clients import AsyncClient

# For a tool that the server runs to come back; an approval takes longer, and has `wait`.
_ACT_SECONDS = 5
_WAIT_SECONDS = 60


class AsyncCase:
    """What an agent does with a case.

    Leaving its `async with` block closes what it opened in the space. After an exception it stays open: name its
    `case_id` to go on with it.
    """

    def __init__(self, client: AsyncClient, options: CaseOptions) -> None:
        self.client = client
        self._options = options
        self._session_id: str | None = options.get("session_id")
        self._has_opened_case = False
        # The case of the space; None where no space was named, or the key may not open one.
        self.case_id: str | None = None
        # Who acts: the actor of the key.
        self.agent_id = ""
        # The calls that were made or asked about here, with the secrets of their claims.
        self._calls: dict[str, GatedCall] = {}

    @property
    def session_id(self) -> str:
        """The session of the case."""
        if self._session_id is None:
            raise InvalidRequest("the case is not open; use it in a `with` block")
        return self._session_id

    @property
    def space_id(self) -> str:
        """The space of the case; InvalidRequest where it has none."""
        if "space" not in self._options:
            raise InvalidRequest("this case has no space to act in; name one: `client.case(…, space=…)`")
        return self._options["space"]

    async def open(self) -> None:
        """Find the case of the space, or open a session and, where the key may, a case over it."""
        options = self._options
        if "space" in options:
            self.agent_id = (await self.client.whoami()).id
            if "case_id" in options and await self._join(options["space"], options["case_id"]):
                return
        if self._session_id is None:
            opened = await self.client.declare_session(
                ontology=options.get("ontology"),
                hypotheses=options.get("hypotheses"),
                kit=options.get("kit"),
                symptoms=options.get("symptoms"),
                metadata=options.get("metadata"),
                policy={"conclusions": "survivors"},
                title=options.get("title"),
                labels=options.get("labels"),
            )
            self._session_id = opened.session_id
        if "space" in options:
            await self._open_case(options["space"])

    async def _join(self, space_id: str, case_id: str) -> bool:
        """Take the session of a case that is there."""
        try:
            record = await self.client.get_case(space_id, case_id)
        except RecordNotFound:
            return False
        if self._session_id not in (None, record.session_id):
            raise InvalidRequest(
                f"case `{case_id}` is over session `{record.session_id}`, not `{self._session_id}`",
                {"field": "session_id", "found": self._session_id, "accepted": record.session_id},
            )
        self._session_id, self.case_id = record.session_id, case_id
        return True

    async def _open_case(self, space_id: str) -> None:
        case_id = self._options.get("case_id", f"case-{uuid4()}")
        try:
            step = await self.client.open_case(
                space_id,
                case_id,
                self.session_id,
                self._options.get("agents", [self.agent_id]),
                attributes=self._options.get("attributes"),
                title=self._options.get("title"),
                labels=self._options.get("labels"),
            )
        except Forbidden:
            # Gates then see no case, and refuse what needs one.
            return
        if step.granted:
            self.case_id, self._has_opened_case = case_id, True

    # --- belief ---

    async def observe(
        self,
        probe_id: str,
        response: Json,
        *,
        source_id: str | None = None,
        observation_id: str | None = None,
        justification: Mapping[str, Json] | None = None,
        seen_at: str | None = None,
    ) -> ObserveResponse:
        """Tell what was seen of a probe; the kit works out what that rules out."""
        return await self.client.observe(
            self.session_id,
            probe_id,
            response,
            source_id=source_id,
            observation_id=observation_id,
            justification=justification,
            seen_at=seen_at,
        )

    async def rule_out(
        self,
        source_id: str,
        hypotheses: Sequence[str],
        *,
        observation_id: str | None = None,
        justification: Mapping[str, Json] | None = None,
    ) -> EliminateResponse:
        """Eliminate hypotheses by hand, in a case without a kit."""
        return await self.client.eliminate(
            self.session_id, source_id, hypotheses, observation_id=observation_id, justification=justification
        )

    async def next_probes(self, limit: int = 5) -> ProbesPage:
        """What is worth asking next, the best first, and what was asked already."""
        return await self.client.list_probes(self.session_id, limit=limit)

    async def belief(self, *, at: Moment | None = None) -> Snapshot:
        """What may still be true."""
        return await self.client.query_belief(self.session_id, at=at)

    async def why(self, hypothesis_id: str) -> Why:
        """Why a hypothesis was ruled out, down to what was seen and a proof of it; or that it survives."""
        try:
            return read_elimination(
                hypothesis_id, await self.client.prove_session_elimination(self.session_id, hypothesis_id)
            )
        except Conflict:
            proof = await self.client.prove_session_membership(self.session_id, hypothesis_id)
            return Why(hypothesis_id=hypothesis_id, survives=True, proof=proof)

    async def conclude(
        self, hypothesis_id: str, *, context: Mapping[str, Json] | None = None
    ) -> DeclareConclusionResponse:
        """State a conclusion. One that does not survive is refused, and the result says what may be concluded."""
        return await self.client.declare_conclusion(self.session_id, hypothesis_id, context=context)

    # --- action ---

    async def act(
        self,
        tool_id: str,
        args: Mapping[str, Json],
        *,
        token: str | None = None,
        idempotency_key: str | None = None,
        wait: int = _ACT_SECONDS,
    ) -> CallResponse:
        """Call a tool under the case, and wait for so many seconds at most until it is over or waits for you.

        What is not let through is a result: `refusal` says why, and what to do. `executor` says who runs it: `server`,
        the id of an executor, or `caller`, which is you: then `claim` it, run it if that says so, and `report`.
        `idempotency_key` names the call, which runs once under it. Without one, a writing call joins the same one while
        that is open.
        """
        asked = CallRequest(
            tool_id=tool_id, args=args, case_id=self.case_id, token=token, idempotency_key=idempotency_key
        )
        call = GatedCall(self.space_id, asked)
        await self.client.run(call.make())
        return await self._go_on(call, call.wait(wait))

    async def wait(self, call_id: str, seconds: int = _WAIT_SECONDS) -> CallResponse:
        """Wait until a call is over or waits for you to claim it, or so many seconds are over."""
        call = await self._find(call_id)
        return await self._go_on(call, call.wait(seconds))

    async def claim(self, call_id: str) -> bool:
        """Claim a call that is yours to run, which decides it again. True once, and to one alone: then run it."""
        call = await self._find(call_id)
        return not call.may_run and await self.client.run(call.claim())

    async def report(self, call_id: str, status: str, *, result: Json = None, error: str | None = None) -> CallResponse:
        """Report the outcome of a call that you ran. Only the case object that claimed it can."""
        call = await self._find(call_id)
        return await self._go_on(call, call.report(status, result=result, error=error))

    async def withdraw(self, call_id: str, *, reason: str = "") -> CallResponse:
        """Withdraw a call that was not started."""
        call = await self._find(call_id)
        return await self._go_on(call, call.withdraw(reason))

    async def _find(self, call_id: str) -> GatedCall:
        """A call as the server has it now."""
        call = self._calls.get(call_id) or GatedCall(self.space_id)
        await self._go_on(call, call.resume(call_id))
        return call

    async def _go_on(self, call: GatedCall, steps: Steps[CallResponse]) -> CallResponse:
        """What steps of a call come to; one that is over need not be kept."""
        answer = await self.client.run(steps)
        if call.is_over:
            self._calls.pop(call.call_id, None)
        else:
            self._calls.setdefault(call.call_id, call)
        return answer

    async def explain(self, call_id: str) -> ExplainResponse:
        """Why a call was decided as it was, and the smallest change that would have turned it."""
        call = await self._find(call_id)
        return await self.client.explain_decision(self.space_id, call.answer.proposal_id)

    async def close(self, reason: str | None = None) -> None:
        """Close the case in the space, if this one opened it: what waits under it is withdrawn."""
        if self._has_opened_case and self.case_id is not None:
            await self.client.close_case(self.space_id, self.case_id, reason=reason)
            self._has_opened_case = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
