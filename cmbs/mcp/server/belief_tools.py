"""Tools of the belief plane: open, read, ask, observe, explain, conclude. Every answer carries its handles."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cmbs.api.observations import ObserveResponse
from cmbs.api.sessions import ApprovalResponse, DeclareConclusionResponse, EliminateResponse
from cmbs.belief.kernel.case_fields import MAX_TITLE_LENGTH
from cmbs.belief.kernel.comparisons import ChangeKind
from cmbs.belief.kernel.looks import MAX_PROBES
from cmbs.client import AsyncClient
from cmbs.errors import BeliefServerError, Conflict, InvalidRequest
from cmbs.mcp.server.answers import MAX_TOKENS, Answer, Json, ask_for_page, name_call, name_page
from cmbs.mcp.server.arguments import (
    Args,
    Because,
    EventId,
    Hypotheses,
    HypothesisId,
    KitId,
    Limit,
    ObligationId,
    ObservationId,
    PageArgs,
    ProbeId,
    SessionId,
    SourceId,
    SpaceId,
    Text,
    Tokens,
)
from cmbs.mcp.server.failures import advise_contradiction, describe_refusal, speak
from cmbs.mcp.server.table import ToolRow
from cmbs.messages import ConclusionRule

# Of what an observation ruled out, and of what it left: how many are listed. Pages of other tools have the rest.
_SHOWN = 20
_NOTHING_LEFT = (
    "nothing is left: every hypothesis was ruled out, so at least one observation is wrong. Conclude nothing."
)
# Of a session over hypotheses that an agent lists, and no graph.
_ONTOLOGY = {
    "hypothesis_space_id": "listed-by-agent",
    "hypothesis_version": "1",
    "causal_graph_ref": "none:",
    "causal_graph_version": "1",
}
# What was ruled out, or was never possible, is no conclusion.
_POLICY = {"conclusions": ConclusionRule.DECIDED.value}


class Belief(Answer, kw_only=True):
    """What may still be true; with how many bits are open."""

    n_survivors: int
    bits: float
    survivors: list[str]
    attributes: Json = {}
    active_obligation_id: str | None = None
    terminated: bool = False


class OpenCaseArgs(Args):
    """A kit, or a list of hypotheses; and a space, for actions that depend on what is believed."""

    kit_id: KitId | None = None
    symptoms: Annotated[
        list[str] | None, Meta(description="For a kit over a causal graph: nodes that show something wrong.")
    ] = None
    hypotheses: Annotated[list[str] | None, Meta(description="Without a kit: all that may be the case.")] = None
    about: Annotated[str, Meta(description="What is to be found out, for people.")] = ""
    space_id: SpaceId | None = None
    name: Annotated[str | None, Meta(description="A name for the case that no other has, such as INC-1042.")] = None


class SessionArgs(Args):
    """A session, of which everything is to be said."""

    session_id: SessionId
    max_tokens: Tokens = MAX_TOKENS


class ReadBeliefArgs(PageArgs):
    """A session, and which of its survivors to list."""

    session_id: SessionId
    text: Text | None = None


class ListRuledOutArgs(PageArgs):
    """A session, and which of what was ruled out in it to list."""

    session_id: SessionId
    event_id: EventId | None = None
    text: Text | None = None


class RuledOut(Answer, kw_only=True):
    """What was ruled out, the first of it first, with the observation that did it."""

    ruled_out: list[Json]
    n_ruled_out: int
    n_survivors: int


class NextProbesArgs(PageArgs, kw_only=True):
    """A session with a kit."""

    session_id: SessionId
    limit: Limit = 5


class Probes(Answer, kw_only=True):
    """What is worth asking, the best first, and what was asked already, the newest first: do not ask that again."""

    probes: list[Json]
    n_probes: int
    asked: list[Json]
    n_asked: int
    n_survivors: int


class ObserveArgs(Args):
    """A probe of the session's kit, and what was seen."""

    session_id: SessionId
    probe_id: ProbeId
    response: Annotated[Any, Meta(description="What was seen: the id of an outcome, a number, or null for no data.")]
    source_id: SourceId | None = None
    observation_id: ObservationId | None = None
    because: Because = ""


class RuleOutArgs(Args):
    """An observation that contradicts hypotheses, for sessions without a kit."""

    session_id: SessionId
    hypotheses: Hypotheses
    observation_id: ObservationId
    because: Because
    source_id: SourceId = "agent"


class Observed(Answer, kw_only=True):
    """What an observation ruled out that was still possible, and what is left; the first of each.

    `repeated`: it was known already, and this is what was recorded then.
    """

    ruled_out: list[str]
    n_ruled_out: int
    n_survivors: int
    survivors: list[str]
    repeated: bool = False
    seen_before: list[Json] = []
    note: str = ""


class WhyArgs(Args):
    """A session and one of its hypotheses."""

    session_id: SessionId
    hypothesis_id: HypothesisId
    max_tokens: Tokens = MAX_TOKENS


class Why(Answer, kw_only=True):
    """What ruled a hypothesis out, or that nothing did: source, observation, probe and reason, as recorded."""

    ruled_out: bool
    by: Json = {}
    at: str | None = None


class Contradiction(Answer, kw_only=True):
    """What explains that nothing is left: which observations to doubt, and which to make again."""

    contradiction: bool
    look_again: list[Json] = []
    explanations: list[Json] = []
    n_explanations: int = 0
    alone: list[Json] = []
    n_alone: int = 0


class Obligations(Answer, kw_only=True):
    """The obligations of a session: what has to be ruled out before a conclusion counts."""

    obligations: list[Json]
    n_obligations: int


class LeaveObligationArgs(Args):
    """An obligation that is met."""

    session_id: SessionId
    obligation_id: ObligationId


class ConcludeArgs(Args):
    """What you take for the case."""

    session_id: SessionId
    hypothesis_id: HypothesisId
    end: Annotated[bool, Meta(description="Also ask for the end of the session.")] = False


class Verdict(Answer, kw_only=True):
    """Whether it was accepted, why not, and what to do next."""

    accepted: bool
    ended: bool = False
    reason: str = ""
    n_survivors: int = 0


def _handles(session_id: str, event_id: str | None = None, **more: Any) -> Json:
    event = {} if event_id is None else {"event_id": event_id}
    return {"session_id": session_id, **event, **more}


def _warn(session_id: str, n_survivors: int) -> Json:
    """A warning and the tool to call, where the last survivor is gone."""
    return {} if n_survivors else {"warning": _NOTHING_LEFT, "next": advise_contradiction(session_id)}


async def read_belief(api: AsyncClient, args: ReadBeliefArgs) -> Json:
    """Counts, and a page of the survivors."""

    async def ask(limit: int) -> Json:
        page = await api.request(
            "list_survivors", session_id=args.session_id, text=args.text, cursor=args.cursor, limit=limit
        )
        return {
            "n_survivors": page["n_survivors"],
            "bits": page["entropy_proxy"],
            "survivors": page["survivors"],
            "attributes": page["attributes"],
            "active_obligation_id": page["active_obligation_id"],
            "terminated": page["terminated"],
            **name_page("read_belief", args, page["next_cursor"]),
            **_warn(args.session_id, page["n_survivors"]),
            "handles": _handles(args.session_id, page["audit_head_event_id"]),
        }

    return await ask_for_page(ask, args.limit, args.max_tokens)


async def list_ruled_out(api: AsyncClient, args: ListRuledOutArgs) -> Json:
    """A page of what was ruled out: in all, or by one event."""
    between: Json = {}
    if args.event_id is not None:
        place = await api.request(
            "session_diff", fields=["to_seq"], session_id=args.session_id, to=args.event_id, limit=1
        )
        between = {"from_": max(0, place["to_seq"] - 1), "to": place["to_seq"]}

    async def ask(limit: int) -> Json:
        page = await api.request(
            "session_diff", session_id=args.session_id, text=args.text, cursor=args.cursor, limit=limit, **between
        )
        ruled_out = [
            {"hypothesis_id": each["id"], "source_id": each["source_id"], "observation_id": each["observation_id"]}
            for each in page["changes"]
            if each["kind"] == ChangeKind.ELIMINATED
        ]
        return {
            "ruled_out": ruled_out,
            "n_ruled_out": page["counts"]["eliminated"],
            "n_survivors": page["n_survivors_after"],
            **name_page("list_ruled_out", args, page["next_cursor"]),
            "handles": _handles(args.session_id),
        }

    return await ask_for_page(ask, args.limit, args.max_tokens)


async def open_case(api: AsyncClient, args: OpenCaseArgs) -> Json:
    """Declare a session, and open a case for it where a space is named."""
    if (args.kit_id is None) == (args.hypotheses is None):
        raise InvalidRequest(
            "a case is opened with a kit or with hypotheses, one of the two",
            {"field": "kit_id", "next": "name a kit that `find_kits` lists, or list what may be the case"},
        )
    over: Json = {"hypotheses": args.hypotheses, "ontology": _ONTOLOGY} if args.kit_id is None else {"kit": args.kit_id}
    if args.space_id is not None:
        # Before anything is declared: there may be no such space.
        await api.request("get_space", fields=["space_id"], space_id=args.space_id)
    title = " ".join(args.about.split())[:MAX_TITLE_LENGTH] or None
    declared = await api.declare_session(
        **over, symptoms=args.symptoms, metadata={"about": args.about}, title=title, policy=_POLICY, name=args.name
    )
    session_id = declared.session_id
    belief = await read_belief(api, ReadBeliefArgs(session_id))
    if args.space_id is not None:
        belief |= await _open_in_space(api, args.space_id, belief["handles"])
    return belief


async def _open_in_space(api: AsyncClient, space_id: str, handles: Json) -> Json:
    """Handles of the case too, or a warning that there is none: the session is open in any case."""
    try:
        step = await api.open_case(space_id, handles["session_id"], agents=[(await api.whoami()).id])
    except BeliefServerError as exc:
        why = speak(exc.message) or "the cmbs server refused it"
    else:
        if step.granted:
            return {"handles": {**handles, "space_id": space_id, "case_id": handles["session_id"]}}
        why = (step.reason_code or "") if step.refusal is None else step.refusal.message
    return {"warning": f"the session is open, but no case in `{space_id}`: {why}; tell an operator"}


async def next_probes(api: AsyncClient, args: NextProbesArgs) -> Json:
    """What is worth asking, and what is known already."""

    async def ask(limit: int) -> Json:
        page = await api.request(
            "list_probes", session_id=args.session_id, cursor=args.cursor, limit=min(limit, MAX_PROBES)
        )
        return {
            "probes": page["probes"],
            "n_probes": page["n_probes"],
            "asked": page["asked"],
            "n_asked": page["n_asked"],
            "n_survivors": page["n_survivors"],
            **name_page("next_probes", args, page["next_cursor"]),
            **_warn(args.session_id, page["n_survivors"]),
            "handles": _handles(args.session_id, page["audit_head_event_id"]),
        }

    return await ask_for_page(ask, args.limit, args.max_tokens)


async def observe(api: AsyncClient, args: ObserveArgs) -> Json:
    """Record what was seen of a probe. Another response under the same key is answered with what is known."""
    try:
        answer = await api.observe(
            args.session_id,
            args.probe_id,
            args.response,
            source_id=args.source_id,
            observation_id=args.observation_id,
            justification={"note": args.because} if args.because else None,
        )
    except Conflict as exc:
        return await _tell_known(api, args, exc)
    return {
        **_tell_observed(args.session_id, answer),
        "seen_before": msgspec.to_builtins(answer.seen_before),
        "note": "this was recorded before; nothing new is ruled out by seeing it again" if answer.replayed else "",
        "handles": _handles(args.session_id, answer.audit_event_id, probe_id=args.probe_id),
    }


async def _tell_known(api: AsyncClient, args: ObserveArgs, conflict: Conflict) -> Json:
    """What was seen of a probe before, where the same look is said to have seen something else."""
    belief = await read_belief(api, ReadBeliefArgs(args.session_id, limit=_SHOWN))
    return {
        "ruled_out": [],
        "n_ruled_out": 0,
        "n_survivors": belief["n_survivors"],
        "survivors": belief["survivors"],
        "repeated": True,
        "seen_before": conflict.details.get("seen_before") or [],
        "note": f"not recorded: {speak(conflict.message) or 'something else is recorded'}. For a new look, give an "
        "`observation_id` of its own",
        "handles": _handles(args.session_id, probe_id=args.probe_id),
    }


async def rule_out(api: AsyncClient, args: RuleOutArgs) -> Json:
    """Eliminate by an observation of the caller's own."""
    answer = await api.eliminate(
        args.session_id,
        args.source_id,
        args.hypotheses,
        observation_id=args.observation_id,
        justification={"because": args.because},
    )
    ignored = answer.ignored_eliminated
    more = f" and {len(ignored) - _SHOWN} more" if len(ignored) > _SHOWN else ""
    return {
        **_tell_observed(args.session_id, answer),
        "note": f"gone before, or unknown: {', '.join(ignored[:_SHOWN])}{more}" if ignored else "",
        "handles": _handles(args.session_id, answer.audit_event_id),
    }


def _tell_observed(session_id: str, answer: ObserveResponse | EliminateResponse) -> Json:
    """What was ruled out, and what is left: of a repeat only how much, since the answer is that of then."""
    survivors = [] if answer.current is not None else answer.snapshot.survivors or []
    ruled_out = answer.applied_eliminated
    n_survivors = (answer.current or answer.snapshot).n_survivors
    more: Json = {}
    if len(ruled_out) > _SHOWN:
        more = {"more": name_call("list_ruled_out", _handles(session_id, answer.audit_event_id))}
    elif len(survivors) > _SHOWN:
        more = {"more": name_call("read_belief", _handles(session_id))}
    return {
        "ruled_out": ruled_out[:_SHOWN],
        "n_ruled_out": len(ruled_out),
        "n_survivors": n_survivors,
        "survivors": survivors[:_SHOWN],
        "repeated": answer.replayed,
        **more,
        **_warn(session_id, n_survivors),
    }


async def why_ruled_out(api: AsyncClient, args: WhyArgs) -> Json:
    """The event that ruled a hypothesis out, out of the proof that it did."""
    proof = f"cmbs://sessions/{args.session_id}/proofs/elimination/{args.hypothesis_id}"
    try:
        found = await api.prove_session_elimination(args.session_id, args.hypothesis_id)
    except Conflict:
        # It survives, so that there is nothing to prove.
        return {"ruled_out": False, "handles": _handles(args.session_id)}
    cause = msgspec.json.decode(found["cause"]["entry"])
    payload = cause["payload"]
    by = {
        name: payload[name] for name in ("source_id", "observation_id", "probe", "justification") if payload.get(name)
    }
    if "actor" in cause:
        by["actor"] = cause["actor"]
    return {
        "ruled_out": True,
        "by": by,
        "at": cause["ts"],
        "handles": _handles(args.session_id, cause["event_id"], proof=proof),
    }


async def explain_contradiction(api: AsyncClient, args: SessionArgs) -> Json:
    """Which observations to doubt, where nothing is left."""
    found = await api.request("session_contradiction", session_id=args.session_id)
    names = ("contradiction", "look_again", "explanations", "n_explanations", "alone", "n_alone")
    return {**{name: found[name] for name in names}, "handles": _handles(args.session_id)}


async def list_obligations(api: AsyncClient, args: SessionArgs) -> Json:
    """Active and exited obligations."""
    found = await api.request("list_obligations", session_id=args.session_id)
    active = [each["obligation_id"] for each in found["obligations"] if each["state"] == "active"]
    return {
        "obligations": found["obligations"],
        "n_obligations": len(found["obligations"]),
        "handles": _handles(args.session_id, active_obligation_ids=active[-_SHOWN:]),
    }


async def leave_obligation(api: AsyncClient, args: LeaveObligationArgs) -> Json:
    """Ask to exit an obligation."""
    answer = await api.request_exit(args.session_id, args.obligation_id)
    return _tell_verdict(args.session_id, answer, accepted=answer.approved)


async def conclude(api: AsyncClient, args: ConcludeArgs) -> Json:
    """State a conclusion, and ask for the end where it was accepted."""
    answer = await api.declare_conclusion(args.session_id, args.hypothesis_id)
    verdict = _tell_verdict(args.session_id, answer, accepted=answer.accepted)
    verdict["ended"] = False
    if args.end and answer.accepted:
        asked = await api.request_termination(args.session_id)
        verdict["ended"] = asked.approved
        if not asked.approved:
            ending = _tell_verdict(args.session_id, asked, accepted=False)
            verdict |= {name: ending[name] for name in ("reason", "next") if name in ending}
    return verdict


def _tell_verdict(session_id: str, answer: ApprovalResponse | DeclareConclusionResponse, *, accepted: bool) -> Json:
    n_survivors = answer.snapshot.n_survivors
    return {
        "accepted": accepted,
        **describe_refusal(answer.refusal, answer.reason, session_id, n_survivors),
        "n_survivors": n_survivors,
        "handles": _handles(session_id, answer.audit_event_id),
    }


BELIEF_TOOLS = (
    ToolRow(
        "open_case",
        "Open a case",
        "Begin an investigation: everything that may be the case survives at first, and what you observe rules it out "
        "for good. Name a kit, or list the hypotheses. Keep the session's id.",
        OpenCaseArgs,
        Belief,
        open_case,
        idempotent=False,
    ),
    ToolRow(
        "read_belief",
        "Read belief",
        "What may still be true: how many hypotheses are left, and a page of them. What is not among the survivors was "
        "ruled out, and need not be looked at again.",
        ReadBeliefArgs,
        Belief,
        read_belief,
        reads=True,
    ),
    ToolRow(
        "next_probes",
        "Next probes",
        "The probes that are worth asking now, the most informative first, and what was asked already. Ask one, then "
        "submit what you saw with `observe`.",
        NextProbesArgs,
        Probes,
        next_probes,
        reads=True,
    ),
    ToolRow(
        "observe",
        "Submit an observation",
        "Record what you saw of a probe; the kit works out what that rules out. A probe that was asked before is "
        "answered with what is known.",
        ObserveArgs,
        Observed,
        observe,
    ),
    ToolRow(
        "rule_out",
        "Rule out",
        "Rule out hypotheses by an observation of your own, in a session without a kit. For good: say what you saw.",
        RuleOutArgs,
        Observed,
        rule_out,
    ),
    ToolRow(
        "why_ruled_out",
        "Why was this ruled out",
        "Which observation ruled a hypothesis out, when, by which source, and where the proof of it is.",
        WhyArgs,
        Why,
        why_ruled_out,
        reads=True,
    ),
    ToolRow(
        "list_ruled_out",
        "List what was ruled out",
        "What was ruled out, in pages, each with the observation that did it.",
        ListRuledOutArgs,
        RuledOut,
        list_ruled_out,
        reads=True,
    ),
    ToolRow(
        "contradiction",
        "Explain a contradiction",
        "Where no survivor is left: which observations may be wrong, and which to make again.",
        SessionArgs,
        Contradiction,
        explain_contradiction,
        reads=True,
    ),
    ToolRow(
        "obligations",
        "Obligations",
        "What has to be ruled out before a conclusion counts, and how far that is.",
        SessionArgs,
        Obligations,
        list_obligations,
        reads=True,
    ),
    ToolRow(
        "leave_obligation",
        "Leave an obligation",
        "Say that an obligation is met. It is refused, with what is missing, where it is not.",
        LeaveObligationArgs,
        Verdict,
        leave_obligation,
    ),
    ToolRow(
        "conclude",
        "Conclude",
        "State what is the case: a survivor. Refused while an obligation is active. With `end`, also ask for the end "
        "of the session, which takes one survivor.",
        ConcludeArgs,
        Verdict,
        conclude,
    ),
)
