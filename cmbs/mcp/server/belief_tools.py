"""Tools of the belief plane: open, read, ask, observe, explain, conclude. Every answer carries its handles."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cmbs.api.observations import ObserveResponse
from cmbs.api.sessions import ApprovalResponse, DeclareConclusionResponse, EliminateResponse
from cmbs.belief.kernel.titles import MAX_TITLE_LENGTH
from cmbs.client import AsyncClient
from cmbs.errors import Conflict, InvalidRequest
from cmbs.mcp.asking import describe_failure
from cmbs.mcp.server.answers import Json
from cmbs.mcp.server.table import ToolRow

_MAX_LISTED = 50
# Of a session over hypotheses that an agent lists, and no graph.
_ONTOLOGY = {
    "hypothesis_space_id": "listed-by-agent",
    "hypothesis_version": "1",
    "causal_graph_ref": "none:",
    "causal_graph_version": "1",
}

SessionId = Annotated[str, Meta(description="The session, as `open_case` or `find_sessions` gave it.", min_length=1)]
Limit = Annotated[int, Meta(description="How many to list.", ge=1, le=_MAX_LISTED)]
Space = Annotated[str, Meta(description="The space in which actions are proposed.", min_length=1)]
Handles = Annotated[dict[str, Any], Meta(description="Ids to call other tools with.")]
LeftOut = Annotated[dict[str, int], Meta(description="How many items of which list were left out, to be short.")]


class Answer(msgspec.Struct, kw_only=True):
    """What every answer has."""

    handles: Handles = {}
    left_out: LeftOut = {}


class Belief(Answer, kw_only=True):
    """What may still be true."""

    n_survivors: Annotated[int, Meta(description="How many hypotheses may still be true.")]
    bits: Annotated[float, Meta(description="How much is still open: the logarithm of that number, to base 2.")]
    survivors: Annotated[list[str], Meta(description="Some of them, sorted by id.")]
    attributes: Annotated[dict[str, Any], Meta(description="What is known of those, by id.")] = {}
    active_obligation_id: Annotated[str | None, Meta(description="What has to be met before a conclusion.")] = None
    terminated: bool = False


class OpenCaseArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A kit, or a list of hypotheses; and a space, for actions that depend on what is believed."""

    kit: Annotated[str | None, Meta(description="A kit on record, which knows hypotheses and probes.")] = None
    symptoms: Annotated[
        list[str] | None, Meta(description="For a kit over a causal graph: the nodes that show something wrong.")
    ] = None
    hypotheses: Annotated[list[str] | None, Meta(description="Or else everything that may be the case.")] = None
    about: Annotated[str, Meta(description="What is to be found out, for people.")] = ""
    space_id: Annotated[str | None, Meta(description="Also open a case in this space.")] = None
    case_id: Annotated[str | None, Meta(description="The id of that case; by default the session's.")] = None


class SessionArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A session."""

    session_id: SessionId


class ReadBeliefArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A session, and how many survivors to list."""

    session_id: SessionId
    top: Limit = 10


class FindSessionsArgs(msgspec.Struct, forbid_unknown_fields=True):
    """How many of the newest sessions to list."""

    limit: Limit = 10


class FoundSessions(Answer, kw_only=True):
    """The newest sessions, the newest first."""

    sessions: list[dict[str, Any]]


class NextProbesArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A session with a kit, and how many probes to list."""

    session_id: SessionId
    limit: Limit = 5


class Probes(Answer, kw_only=True):
    """What is worth asking, the best first, and what was asked already: do not ask that again."""

    probes: list[dict[str, Any]]
    n_probes: int
    asked: Annotated[list[dict[str, Any]], Meta(description="What was seen already, the newest first.")]
    n_survivors: int


class ObserveArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A probe of the session's kit, and what was seen."""

    session_id: SessionId
    probe_id: Annotated[str, Meta(description="As `next_probes` lists it.", min_length=1)]
    response: Annotated[Any, Meta(description="What was seen: the id of an outcome, a number, or null for no data.")]
    source_id: Annotated[str | None, Meta(description="Where it was seen; by default you.")] = None
    observation_id: Annotated[str | None, Meta(description="For a new look at a probe that was asked before.")] = None
    note: Annotated[str, Meta(description="How it was seen, for people.")] = ""


class RuleOutArgs(msgspec.Struct, forbid_unknown_fields=True):
    """An observation that contradicts hypotheses, for sessions without a kit."""

    session_id: SessionId
    hypotheses: Annotated[list[str], Meta(description="What the observation contradicts.", min_length=1)]
    observation_id: Annotated[str, Meta(description="A name for what was seen; the same again changes nothing.")]
    because: Annotated[str, Meta(description="What was seen, and why that contradicts them.", min_length=1)]
    source_id: Annotated[str, Meta(description="Where it was seen.")] = "agent"


class Observed(Answer, kw_only=True):
    """What an observation ruled out, and what is left."""

    ruled_out: Annotated[list[str], Meta(description="What it ruled out that was still possible.")]
    n_survivors: int
    survivors: list[str]
    repeated: Annotated[bool, Meta(description="It was known already; this is what was recorded then.")] = False
    seen_before: Annotated[list[dict[str, Any]], Meta(description="Earlier looks at the same probe.")] = []
    note: str = ""


class WhyArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A session and one of its hypotheses."""

    session_id: SessionId
    hypothesis_id: Annotated[str, Meta(min_length=1)]


class Why(Answer, kw_only=True):
    """What ruled a hypothesis out, or that nothing did."""

    ruled_out: bool
    by: Annotated[
        dict[str, Any], Meta(description="Source, observation, probe and reason, as they were recorded.")
    ] = {}
    at: str | None = None


class Obligations(Answer, kw_only=True):
    """The obligations of a session: what has to be ruled out before a conclusion counts."""

    obligations: list[dict[str, Any]]


class LeaveObligationArgs(msgspec.Struct, forbid_unknown_fields=True):
    """An obligation that is met."""

    session_id: SessionId
    obligation_id: Annotated[str, Meta(min_length=1)]


class ConcludeArgs(msgspec.Struct, forbid_unknown_fields=True):
    """What you take for the case."""

    session_id: SessionId
    conclusion_id: Annotated[str, Meta(description="The hypothesis that is left.", min_length=1)]
    end: Annotated[bool, Meta(description="Also ask for the end of the session.")] = False


class Verdict(Answer, kw_only=True):
    """Whether it was taken, why not, and what to do next."""

    accepted: bool
    ended: bool = False
    reason: str = ""
    next: str = ""
    n_survivors: int = 0


def _handles(session_id: str, event_id: str | None = None, **more: Any) -> Json:
    event = {} if event_id is None else {"event_id": event_id}
    return {"session_id": session_id, **event, **more}


async def read_belief(api: AsyncClient, args: ReadBeliefArgs) -> Json:
    """Counts, and the first few survivors."""
    page = await api.list_survivors(args.session_id, limit=args.top)
    return {
        "n_survivors": page.n_survivors,
        "bits": page.entropy_proxy,
        "survivors": page.survivors,
        "attributes": page.attributes,
        "active_obligation_id": page.active_obligation_id,
        "terminated": page.terminated,
        "handles": _handles(args.session_id, page.audit_head_event_id),
    }


async def open_case(api: AsyncClient, args: OpenCaseArgs) -> Json:
    """Declare a session, and open a case for it where a space is named."""
    if (args.kit is None) == (args.hypotheses is None):
        raise InvalidRequest(
            "a case is opened with a kit or with hypotheses, one of the two",
            {
                "field": "kit",
                "next": "name a kit (the resource `cmbs://kits` lists them), or list what may be the case",
            },
        )
    over: Json = (
        {"hypotheses": args.hypotheses, "ontology": _ONTOLOGY}
        if args.kit is None
        else {"kit": args.kit, "symptoms": args.symptoms}
    )
    title = " ".join(args.about.split())[:MAX_TITLE_LENGTH] or None
    session_id = (await api.declare_session(**over, metadata={"about": args.about}, title=title)).session_id
    belief = await read_belief(api, ReadBeliefArgs(session_id))
    if args.space_id is not None:
        case_id = args.case_id or session_id
        step = await api.open_case(args.space_id, case_id, session_id, [(await api.whoami()).id])
        if step.granted:
            belief["handles"] |= {"space_id": args.space_id, "case_id": case_id}
        else:
            belief["handles"]["case_refused"] = step.reason_code if step.refusal is None else step.refusal.next
    return belief


async def find_sessions(api: AsyncClient, args: FindSessionsArgs) -> Json:
    """The newest sessions that the caller may read."""
    page = await api.request("list_sessions", order="newest", limit=args.limit)
    return {"sessions": page["sessions"], "handles": {}}


async def next_probes(api: AsyncClient, args: NextProbesArgs) -> Json:
    """What is worth asking, and what is known already."""
    page = await api.request("list_probes", session_id=args.session_id, limit=args.limit)
    return {
        "probes": page["probes"],
        "n_probes": page["n_probes"],
        "asked": page["asked"],
        "n_survivors": page["n_survivors"],
        "handles": _handles(args.session_id, page["audit_head_event_id"]),
    }


async def observe(api: AsyncClient, args: ObserveArgs) -> Json:
    """Record what was seen of a probe. Another response under the same key is told what is known."""
    try:
        answer = await api.observe(
            args.session_id,
            args.probe_id,
            args.response,
            source_id=args.source_id,
            observation_id=args.observation_id,
            justification={"note": args.note} if args.note else None,
        )
    except Conflict as exc:
        return await _tell_known(api, args, exc)
    return {
        **_tell_observed(answer),
        "seen_before": answer.seen_before,
        "note": "this was recorded before; nothing new is ruled out by seeing it again" if answer.replayed else "",
        "handles": _handles(args.session_id, answer.audit_event_id, probe_id=args.probe_id),
    }


async def _tell_known(api: AsyncClient, args: ObserveArgs, conflict: Conflict) -> Json:
    """What was seen of a probe before, where the same look is said to have seen something else."""
    page = await api.request("list_probes", fields=["asked"], session_id=args.session_id, limit=1)
    known = [each for each in page["asked"] if each["probe_id"] == args.probe_id]
    belief = await read_belief(api, ReadBeliefArgs(args.session_id))
    return {
        "ruled_out": [],
        "n_survivors": belief["n_survivors"],
        "survivors": belief["survivors"],
        "repeated": True,
        "seen_before": known,
        "note": f"not recorded: {describe_failure(conflict)}; for a new look, give an `observation_id` of its own",
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
    return {
        **_tell_observed(answer),
        "note": f"gone before, or unknown: {', '.join(ignored[:10])}" if ignored else "",
        "handles": _handles(args.session_id, answer.audit_event_id),
    }


def _tell_observed(answer: ObserveResponse | EliminateResponse) -> Json:
    """What was ruled out, and what is left: of a repeat only how much, since the answer is that of then."""
    survivors = [] if answer.current is not None else answer.snapshot.survivors or []
    return {
        "ruled_out": answer.applied_eliminated,
        "n_survivors": (answer.current or answer.snapshot).n_survivors,
        "survivors": survivors[:_MAX_LISTED],
        "repeated": answer.replayed,
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


async def list_obligations(api: AsyncClient, args: SessionArgs) -> Json:
    """Active and exited obligations."""
    found = await api.request("list_obligations", session_id=args.session_id)
    active = [each["obligation_id"] for each in found["obligations"] if each["state"] == "active"]
    return {"obligations": found["obligations"], "handles": _handles(args.session_id, active_obligation_ids=active)}


async def leave_obligation(api: AsyncClient, args: LeaveObligationArgs) -> Json:
    """Ask to exit an obligation."""
    answer = await api.request_exit(args.session_id, args.obligation_id)
    return _tell_verdict(args.session_id, answer, accepted=answer.approved)


async def conclude(api: AsyncClient, args: ConcludeArgs) -> Json:
    """State a conclusion, and ask for the end where it was accepted."""
    answer = await api.declare_conclusion(args.session_id, args.conclusion_id)
    verdict = _tell_verdict(args.session_id, answer, accepted=answer.accepted)
    if args.end and answer.accepted:
        asked = await api.request_termination(args.session_id)
        verdict["ended"] = asked.approved
        if not asked.approved:
            ending = _tell_verdict(args.session_id, asked, accepted=False)
            verdict |= {"reason": ending["reason"], "next": ending["next"]}
    return verdict


def _tell_verdict(session_id: str, answer: ApprovalResponse | DeclareConclusionResponse, *, accepted: bool) -> Json:
    refusal = answer.refusal
    return {
        "accepted": accepted,
        "reason": answer.reason if refusal is None else refusal.message,
        "next": "" if refusal is None else refusal.next,
        "n_survivors": answer.snapshot.n_survivors,
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
        "find_sessions",
        "Find sessions",
        "The newest investigations. Call this first if you do not know the session that you were working on.",
        FindSessionsArgs,
        FoundSessions,
        find_sessions,
        reads=True,
    ),
    ToolRow(
        "read_belief",
        "Read belief",
        "What may still be true: how many hypotheses are left, and the first few of them. What is not among the "
        "survivors was ruled out, and need not be looked at again.",
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
        "State what is the case. Refused while an obligation is active. With `end`, also ask for the end of the "
        "session, which takes one survivor.",
        ConcludeArgs,
        Verdict,
        conclude,
    ),
)
