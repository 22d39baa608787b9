"""A case as an agent works on it: observe, ask what next and why, conclude, act, wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cmbs.api.call import Json, Moment
from cmbs.api.observations import ObserveResponse, ProbesPage
from cmbs.api.sessions import DeclareConclusionResponse, EliminateResponse, SessionCase, Snapshot
from cmbs.api.spaces import CallResponse, ExplainResponse
from cmbs.api.steps import Steps
from cmbs.calls.gated_call import CallRequest, GatedCall
from cmbs.client.case_options import CaseOptions, Why, read_elimination, refuse_admission
from cmbs.errors import Conflict, Forbidden, InvalidRequest, RecordNotFound
from cmbs.messages import ActorKind
from cmbs.substrate.kernel.words import CaseStatus

if TYPE_CHECKING:
    from cmbs.client.async_clients import AsyncClient

# For a tool that the server runs to come back; an approval takes longer, and has `wait`.
_ACT_SECONDS = 5
_WAIT_SECONDS = 60


class AsyncCase:
    """What an agent does with a case: an investigation, which is a session, and the space where it may act.

    Leaving its `async with` block closes the case in the space, if the block admitted it there. After an exception it
    stays open: name the case to go on with it.
    """

    def __init__(self, client: AsyncClient, case: str | None, options: CaseOptions) -> None:
        self.client = client
        self._named = case
        self._options = options
        self._case_id: str | None = None
        self._has_admitted = False
        # Who proposes: the actor of the key.
        self.agent_id = ""
        # The calls that were made or asked about here, with the secrets of their claims.
        self._calls: dict[str, GatedCall] = {}

    @property
    def case_id(self) -> str:
        """The id of the case, which is that of its session."""
        if self._case_id is None:
            raise InvalidRequest("the case is not open; use it in a `with` block")
        return self._case_id

    @property
    def session_id(self) -> str:
        """The session of the case, which has its id."""
        return self.case_id

    @property
    def space_id(self) -> str:
        """The space of the case; InvalidRequest where it has none."""
        if "space" not in self._options:
            raise InvalidRequest("this case has no space to act in; name one: `client.case(…, space=…)`")
        return self._options["space"]

    async def open(self) -> None:
        """Find the case that was named, or declare another; with a space, see that it is admitted there.

        Forbidden where it is not, and this key may not admit it.
        """
        options = self._options
        whoami = await self.client.whoami() if "space" in options else None
        if whoami is not None:
            self.agent_id = whoami.id
        if self._named is not None:
            self._case_id = (await self._find(self._named)).session_id
        else:
            if whoami is not None and whoami.kind is ActorKind.AGENT:
                raise refuse_admission(options["space"], None)
            opened = await self.client.declare_session(
                ontology=options.get("ontology"),
                hypotheses=options.get("hypotheses"),
                kit=options.get("kit"),
                symptoms=options.get("symptoms"),
                metadata=options.get("metadata"),
                policy={"conclusions": "decided"},
                title=options.get("title"),
                labels=options.get("labels"),
                owner=options.get("owner"),
                severity=options.get("severity"),
                agents=options.get("agents"),
                name=options.get("name"),
            )
            self._case_id = opened.session_id
        if "space" in options:
            await self._enter(options["space"])

    async def _find(self, case: str) -> SessionCase:
        """The case that was named; InvalidRequest where it is also said how to declare it."""
        declares = sorted(self._options.keys() - {"space", "agents", "attributes"})
        if declares:
            raise InvalidRequest(
                f"case `{case}` is there already; leave `{declares[0]}` out, or do not name the case",
                {"field": declares[0], "next": "declare another case, or update this one"},
            )
        return await self.client.describe_case(case)

    async def _enter(self, space_id: str) -> None:
        """Act in a space: the case is admitted there already, or it is now."""
        try:
            if (await self.client.get_case(space_id, self.case_id)).status is CaseStatus.OPEN:
                return
        except RecordNotFound:
            pass
        try:
            step = await self.client.open_case(
                space_id,
                self.case_id,
                agents=self._options.get("agents", await self._choose_agents()),
                attributes=self._options.get("attributes"),
                title=self._options.get("title"),
                labels=self._options.get("labels"),
            )
        except Forbidden as exc:
            raise refuse_admission(space_id, self.case_id) from exc
        if not step.granted:
            raise refuse_admission(space_id, self.case_id)
        self._has_admitted = True

    async def _choose_agents(self) -> list[str]:
        """All that the case lists; where it lists none, the actor of the key."""
        return [] if (await self.client.describe_case(self.case_id)).agents is not None else [self.agent_id]

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
        call = await self._find_call(call_id)
        return await self._go_on(call, call.wait(seconds))

    async def claim(self, call_id: str) -> bool:
        """Claim a call that is yours to run, which decides it again. True once, and to one alone: then run it."""
        call = await self._find_call(call_id)
        return not call.may_run and await self.client.run(call.claim())

    async def report(self, call_id: str, status: str, *, result: Json = None, error: str | None = None) -> CallResponse:
        """Report the outcome of a call that you ran. Only the case object that claimed it can."""
        call = await self._find_call(call_id)
        return await self._go_on(call, call.report(status, result=result, error=error))

    async def withdraw(self, call_id: str, *, reason: str = "") -> CallResponse:
        """Withdraw a call that was not started."""
        call = await self._find_call(call_id)
        return await self._go_on(call, call.withdraw(reason))

    async def _find_call(self, call_id: str) -> GatedCall:
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
        call = await self._find_call(call_id)
        return await self.client.explain_decision(self.space_id, call.answer.proposal_id)

    async def close(self, reason: str | None = None) -> None:
        """Close the case in the space, if this one admitted it: what waits under it is withdrawn."""
        if self._has_admitted:
            await self.client.close_case(self.space_id, self.case_id, reason=reason)
            self._has_admitted = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
