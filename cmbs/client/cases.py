"""A case as an agent works on it: observe, ask what next and why, conclude, act, wait. Each is described once.

A method yields the calls that it takes; `Case` sends them and waits, `AsyncCase` sends them when awaited.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypedDict
from uuid import uuid4

from cmbs.client.belief import BeliefOperations
from cmbs.client.calls import Json, Moment
from cmbs.client.observations import ObservationOperations
from cmbs.client.operations import AsyncRunner, AsyncSender, Steps, SyncRunner, SyncSender, workflow
from cmbs.client.results.belief import Belief, Conclusion, Elimination, Result
from cmbs.client.results.observations import Observation, ProbesPage
from cmbs.client.results.policies import Explanation
from cmbs.client.results.spaces import Proposal, RecordedOutcome, Step, WithdrawnProposal
from cmbs.client.service import ServiceOperations
from cmbs.client.spaces import SpaceOperations
from cmbs.errors import Conflict, Forbidden, InvalidRequest, RecordNotFound
from cmbs.system import SystemClock

# A proposal that is one of these may still change.
_UNSETTLED = ("asked", "parked", "running")
# The longest that one request waits; servers hold none much longer.
_POLL_SECONDS = 20
_WAIT_SECONDS = 60


class Why(Result, frozen=True):
    """Why a hypothesis is, or is not, among the survivors.

    Of one that was ruled out: the event, who reported what was seen, the observation and its justification, and a proof
    that can be checked without the server. Of one that survives, only the proof that it does.
    """

    hypothesis_id: str
    survives: bool
    proof: dict[str, Any]
    seq: int | None = None
    event_id: str | None = None
    ts: str | None = None
    source_id: str | None = None
    observation_id: str | None = None
    probe: dict[str, Any] | None = None
    justification: dict[str, Any] | None = None
    actor: dict[str, Any] | None = None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        if self.survives:
            return f"`{self.hypothesis_id}` survives: nothing that was seen speaks against it"
        seen = (
            ""
            if self.probe is None
            else f", which saw `{json.dumps(self.probe['response'])}` at `{self.probe['probe_id']}`"
        )
        return f"`{self.hypothesis_id}` was ruled out at seq {self.seq} by `{self.source_id}`{seen}"


class CaseOptions(TypedDict, total=False):
    """What a case is about.

    `kit` is one on record, with `symptoms` where it is over a causal graph; without it, `ontology` and `hypotheses`
    declare the session, or `session_id` names one that is there. With `space`, proposals can be made under the case:
    `case_id` names it, `agents` are those who may act under it (by default the one of the key), and `attributes` are
    for policies to read. `title` and `labels` are what session and case are found by.
    """

    kit: str | Mapping[str, str]
    symptoms: Sequence[str]
    space: str
    case_id: str
    session_id: str
    agents: Sequence[str]
    attributes: Mapping[str, Json]
    ontology: Mapping[str, str]
    hypotheses: Sequence[str]
    metadata: Mapping[str, Json]
    title: str
    labels: Mapping[str, str]


class CaseWorkflows:
    """What an agent does with a case."""

    def __init__(self, options: CaseOptions) -> None:
        self._options = options
        self._session_id: str | None = options.get("session_id")
        self._has_opened_case = False
        # The case of the space; None where no space was named, or the key may not open one.
        self.case_id: str | None = None
        # Who proposes: the actor of the key.
        self.agent_id = ""

    @property
    def session_id(self) -> str:
        """The session of the case."""
        if self._session_id is None:
            raise InvalidRequest("the case is not open; use it in a `with` block")
        return self._session_id

    @workflow
    def open(self) -> Steps[None]:
        """Find the case of the space, or open a session and, where the key may, a case over it."""
        options = self._options
        if "space" in options:
            self.agent_id = (yield ServiceOperations.whoami.build()).id
            if "case_id" in options and (yield from self._join(options["space"], options["case_id"])):
                return
        if self._session_id is None:
            opened = yield BeliefOperations.declare_session.build(
                options.get("ontology"),
                options.get("hypotheses"),
                kit=options.get("kit"),
                symptoms=options.get("symptoms"),
                metadata=options.get("metadata"),
                policy={"conclusions": "survivors"},
                title=options.get("title"),
                labels=options.get("labels"),
            )
            self._session_id = opened.session_id
        if "space" in options:
            yield from self._open_case(options["space"])

    def _join(self, space_id: str, case_id: str) -> Steps[bool]:
        """Take the session of a case that is there."""
        try:
            record = yield SpaceOperations.get_case.build(space_id, case_id)
        except RecordNotFound:
            return False
        if self._session_id not in (None, record.session_id):
            raise InvalidRequest(
                f"case `{case_id}` is over session `{record.session_id}`, not `{self._session_id}`",
                {"field": "session_id", "found": self._session_id, "accepted": record.session_id},
            )
        self._session_id, self.case_id = record.session_id, case_id
        return True

    def _open_case(self, space_id: str) -> Steps[None]:
        case_id = self._options.get("case_id", f"case-{uuid4()}")
        call = SpaceOperations.open_case.build(
            space_id,
            case_id=case_id,
            session_id=self.session_id,
            agents=self._options.get("agents", [self.agent_id]),
            attributes=self._options.get("attributes"),
            title=self._options.get("title"),
            labels=self._options.get("labels"),
        )
        try:
            step: Step = yield call
        except Forbidden:
            # Gates then see no case, and refuse what needs one.
            return
        if step.granted:
            self.case_id, self._has_opened_case = case_id, True

    # --- belief ---

    @workflow
    def observe(
        self,
        probe_id: str,
        response: Json,
        *,
        source_id: str | None = None,
        observation_id: str | None = None,
        justification: Mapping[str, Json] | None = None,
        seen_at: str | None = None,
    ) -> Steps[Observation]:
        """Tell what was seen of a probe; the kit works out what that rules out."""
        result: Observation = yield ObservationOperations.observe.build(
            self.session_id,
            probe_id,
            response,
            source_id=source_id,
            observation_id=observation_id,
            justification=justification,
            seen_at=seen_at,
        )
        return result

    @workflow
    def rule_out(
        self,
        source_id: str,
        hypotheses: Sequence[str],
        *,
        observation_id: str | None = None,
        justification: Mapping[str, Json] | None = None,
    ) -> Steps[Elimination]:
        """Eliminate hypotheses by hand, in a case without a kit."""
        result: Elimination = yield BeliefOperations.eliminate.build(
            self.session_id, source_id, hypotheses, observation_id=observation_id, justification=justification
        )
        return result

    @workflow
    def next_probes(self, limit: int = 5) -> Steps[ProbesPage]:
        """What is worth asking next, the best first, and what was asked already."""
        page: ProbesPage = yield ObservationOperations.list_probes.build(self.session_id, limit=limit).call
        return page

    @workflow
    def belief(self, *, at: Moment | None = None) -> Steps[Belief]:
        """What may still be true."""
        result: Belief = yield BeliefOperations.query_belief.build(self.session_id, at=at)
        return result

    @workflow
    def why(self, hypothesis_id: str) -> Steps[Why]:
        """Why a hypothesis was ruled out, down to what was seen and a proof of it; or that it survives."""
        try:
            proof = yield BeliefOperations.prove_session_elimination.build(self.session_id, hypothesis_id)
        except Conflict:
            proof = yield BeliefOperations.prove_session_membership.build(self.session_id, hypothesis_id)
            return Why(hypothesis_id=hypothesis_id, survives=True, proof=proof)
        entry = json.loads(proof["cause"]["entry"])
        payload = entry["payload"]
        return Why(
            hypothesis_id=hypothesis_id,
            survives=False,
            proof=proof,
            seq=entry["seq"],
            event_id=entry["event_id"],
            ts=entry["ts"],
            source_id=payload.get("source_id"),
            observation_id=payload.get("observation_id"),
            probe=payload.get("probe"),
            justification=payload.get("justification"),
            actor=entry.get("actor"),
        )

    @workflow
    def conclude(self, hypothesis_id: str, *, context: Mapping[str, Json] | None = None) -> Steps[Conclusion]:
        """State a conclusion. One that does not survive is refused, and the result says what may be concluded."""
        result: Conclusion = yield BeliefOperations.declare_conclusion.build(
            self.session_id, hypothesis_id, context=context
        )
        return result

    # --- action ---

    @workflow
    def act(
        self,
        tool_id: str,
        args: Mapping[str, Json],
        *,
        token: str | None = None,
        idempotency_key: str | None = None,
        inputs: Sequence[str] = (),
        wait: int = _WAIT_SECONDS,
    ) -> Steps[Proposal]:
        """Propose a call of a tool under the case, and wait until it is settled or so many seconds are over.

        What is not let through is a result: `refusals` say why, and what to do. `idempotency_key` names the call, which
        runs once under it; by default every call is another.
        """
        space = yield SpaceOperations.get_space.build(self.space_id)
        call = {
            "type": "tool_call",
            "tool_id": tool_id,
            "args": args,
            "capability_token_id": token,
            "idempotency_key": idempotency_key or str(uuid4()),
        }
        proposal: Proposal = yield SpaceOperations.propose.build(
            self.space_id,
            proposal_id=str(uuid4()),
            state_snapshot_id=space.state_snapshot_id,
            provenance={
                "source": self.agent_id,
                "timestamp": SystemClock().now(),
                "inputs": list(inputs),
                "permissions": [] if token is None else [token],
            },
            candidates=[call],
            case_id=self.case_id,
        )
        return (yield from self._await_settled(proposal, wait))

    @workflow
    def wait(self, proposal_id: str, seconds: int = _WAIT_SECONDS) -> Steps[Proposal]:
        """Wait until a proposal is neither asked, parked nor running, or so many seconds are over."""
        proposal: Proposal = yield SpaceOperations.get_proposal.build(self.space_id, proposal_id)
        return (yield from self._await_settled(proposal, seconds))

    def _await_settled(self, proposal: Proposal, seconds: int) -> Steps[Proposal]:
        while seconds > 0 and proposal.status in _UNSETTLED:
            asked = min(seconds, _POLL_SECONDS)
            seconds -= asked
            proposal = yield SpaceOperations.get_proposal.build(self.space_id, proposal.proposal_id, wait=asked)
        return proposal

    @workflow
    def report(
        self, execution_id: str, status: str, *, result: Json = None, error: str | None = None
    ) -> Steps[RecordedOutcome]:
        """Report the outcome of a tool that the agent runs itself."""
        recorded: RecordedOutcome = yield SpaceOperations.report_outcome.build(
            self.space_id, execution_id, status, result=result, error=error
        )
        return recorded

    @workflow
    def withdraw(self, proposal_id: str, *, reason: str | None = None) -> Steps[WithdrawnProposal]:
        """Withdraw a proposal that waits."""
        result: WithdrawnProposal = yield SpaceOperations.withdraw_proposal.build(
            self.space_id, proposal_id, reason=reason
        )
        return result

    @workflow
    def explain(self, proposal_id: str) -> Steps[Explanation]:
        """Why a proposal was decided as it was, and the smallest change that would have turned it."""
        result: Explanation = yield SpaceOperations.explain_decision.build(self.space_id, proposal_id)
        return result

    @workflow
    def close(self, reason: str | None = None) -> Steps[None]:
        """Close the case in the space, if this one opened it: what waits under it is withdrawn."""
        if self._has_opened_case and self.case_id is not None:
            yield SpaceOperations.close_case.build(self.space_id, self.case_id, reason=reason)
            self._has_opened_case = False

    @property
    def space_id(self) -> str:
        """The space of the case; InvalidRequest where it has none."""
        if "space" not in self._options:
            raise InvalidRequest("this case has no space to act in; name one: `client.case(…, space=…)`")
        return self._options["space"]


class Case(CaseWorkflows, SyncRunner):
    """A case of a client that blocks.

    Leaving its `with` block closes what it opened in the space. After an exception it stays open: name its `case_id` to
    go on with it.
    """

    def __init__(self, sender: SyncSender, options: CaseOptions) -> None:
        super().__init__(options)
        self.sender = sender

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()


class AsyncCase(CaseWorkflows, AsyncRunner):
    """A case of a client that awaits; leaving its `async with` block does what that of `Case` does."""

    def __init__(self, sender: AsyncSender, options: CaseOptions) -> None:
        super().__init__(options)
        self.sender = sender

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
