"""What a model reads where something was not done: in the words of the tools, with the call to make next.

The API describes failures in its own terms, for programs that send requests. A model has only these tools, so what
it reads names none of what it cannot see, and every failure names a tool with its arguments.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from cmbs.api.answers import RefusalDetail
from cmbs.api.errors import TransportCode
from cmbs.errors import BeliefServerError, CmbsError, ErrorCode
from cmbs.mcp.server.answers import Json, name_call
from cmbs.messages import Reason

# Of a failure of the way to the server, or of an answer that could not be read.
UNREACHABLE = "UNREACHABLE"
_MAX_SHOWN = 256
_MAX_TEXT = 2_000
# Terms of the API that no tool has. A text that has one of them is replaced by the one of its code. Between backticks
# are names and what the caller sent: there only what cannot be a word.
_CODED = (
    r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)\b|https?://|/v1\b|/openapi|(?<!\w)--[a-z]|\bHTTPS?(?:_\d+)?\b"
    r"|(?i:\b(?:authorization|bearer|content-type|if-match|retry-after|idempotency-key|x-cmbs-[a-z]+|set-cookie)\b)"
)
_API_TERMS = re.compile(
    rf"{_CODED}|(?i:\b(?:headers?|endpoints?|url|body|query|cookie|origin|media type)\b)"
    r"|(?i:\b(?:status|answered|answers)\s+(?:code\s+)?[1-5]\d\d\b)|\b[A-Z]+_[A-Z_]+\b"
)
_CODE_TERMS = re.compile(_CODED)
_QUOTED = re.compile(r"`[^`]*`")
# What the API calls an argument of a tool.
_NAMES = {
    "conclusion_id": "hypothesis_id",
    "eliminated": "hypotheses",
    "kit": "kit_id",
    "justification": "because",
    "next_cursor": "more",
}
# With what may follow a name, as in `eliminated[]`.
_API_NAMES = re.compile(rf"`({'|'.join(_NAMES)})((?:[.\[][^`]*)?)`")
_TOP = re.compile(r"[^.\[]*")


class Advice(NamedTuple):
    """What is said of one code: what happened, where the API's own sentence does not fit; what to do; with which tool.

    Without a tool it is the one that failed. `arguments` are those that go on from the call that failed.
    """

    do: str
    tool: str | None = None
    arguments: tuple[str, ...] = ()
    happened: str | None = None


_AGAIN = "correct the arguments and call it again: nothing was changed"
_LATER = "call it again later: nothing was changed"
_OPERATOR = "tell an operator"
_NOT_OFFERED = "the cmbs server does not offer what this tool needs; it may be another version"
_ADVICE: dict[str, Advice] = {
    ErrorCode.INVALID_REQUEST: Advice(_AGAIN, happened="an argument cannot be used"),
    ErrorCode.LIMIT_EXCEEDED: Advice("call it again with less", happened="an argument is larger than allowed"),
    ErrorCode.UNAUTHENTICATED: Advice(
        "have the user set a key that is valid", "whoami", happened="the cmbs server does not accept your key"
    ),
    ErrorCode.FORBIDDEN: Advice("read what you may do", "whoami", happened="you may not do this"),
    ErrorCode.INVALID_HYPOTHESIS_ID: Advice(
        "use ids of the session's hypotheses", "read_belief", ("session_id",), "these are no hypotheses of the session"
    ),
    ErrorCode.FREE_HAND_REFUSED: Advice(
        "take a probe, and submit what you see with `observe`",
        "next_probes",
        ("session_id",),
        "this session takes observations of its probes, and no lists of hypotheses",
    ),
    ErrorCode.UNKNOWN_PROBE: Advice(
        "use a probe of the session's kit", "next_probes", ("session_id",), "no such probe"
    ),
    ErrorCode.SESSION_NOT_FOUND: Advice("use a session that exists", "find_sessions", (), "no such session"),
    ErrorCode.SESSION_TERMINATED: Advice(
        "read what was found; open another case to go on", "read_belief", ("session_id",), "the session has ended"
    ),
    ErrorCode.OBLIGATION_NOT_FOUND: Advice(
        "use an obligation of the session", "obligations", ("session_id",), "no such obligation"
    ),
    ErrorCode.EVENT_NOT_FOUND: Advice(
        "use an event that an answer named", "list_ruled_out", ("session_id",), "no such event"
    ),
    ErrorCode.SPACE_NOT_FOUND: Advice("use a space that exists", "find_spaces", (), "no such space"),
    ErrorCode.RECORD_NOT_FOUND: Advice("use an id that an answer named", "find_sessions", (), "no such record"),
    ErrorCode.CONFLICT: Advice(
        "read what is recorded; the same call is refused again", None, (), "something else is recorded under this id"
    ),
    ErrorCode.STORE_UNAVAILABLE: Advice(_LATER, happened="the cmbs server cannot use its store"),
    ErrorCode.LEDGER_CORRUPT: Advice(
        f"do not rely on it; {_OPERATOR}", "find_sessions", (), "the record of this is damaged"
    ),
    ErrorCode.PROVIDER_BROKEN: Advice(
        f"take another probe; {_OPERATOR}", "next_probes", ("session_id",), "the provider of the session fails"
    ),
    TransportCode.NOT_FOUND: Advice(_OPERATOR, "whoami", happened=_NOT_OFFERED),
    TransportCode.METHOD_NOT_ALLOWED: Advice(_OPERATOR, "whoami", happened=_NOT_OFFERED),
    TransportCode.UNSUPPORTED_MEDIA_TYPE: Advice(_OPERATOR, "whoami", happened=_NOT_OFFERED),
    TransportCode.REQUEST_TIMEOUT: Advice(_LATER, happened="the call took too long to arrive"),
    TransportCode.BUSY: Advice(_LATER, happened="the cmbs server has as much to do as it can"),
    TransportCode.INTERNAL_ERROR: Advice(
        "read what is recorded before you repeat a call that writes; tell an operator",
        "find_sessions",
        happened="the cmbs server failed",
    ),
    UNREACHABLE: Advice(
        "read what is recorded before you repeat a call that writes; tell the user if it stays so",
        "find_sessions",
        happened="the cmbs server gave no answer",
    ),
}
# By what there is none of. Where a call failed for one of these, these tools list them.
_LISTED_BY: dict[str, Advice] = {
    "kit": Advice("use a kit on record", "find_kits"),
    "tool": Advice("use a tool of the space", "find_tools", ("space_id",)),
    "approval": Advice("use an approval of the space", "read_approvals", ("space_id",)),
    "call": Advice("use the id that `propose_action` gave", "read_approvals", ("space_id",)),
    "execution": Advice("use the id that `propose_action` gave", "read_approvals", ("space_id",)),
    "capability": Advice("leave the token out, or use one that you have", "whoami"),
    "case": Advice("use a case that an operator opened, or leave it out", "find_spaces"),
}


# Of the tools that need a kit, where the session has none.
_OF_KITS = ("next_probes", "observe")
_WITHOUT_KIT = Advice("rule out by observations of your own", "rule_out", ("session_id",))


class Failed(NamedTuple):
    """A failure as a model reads it: a sentence, its code, what it is about, and the call to make next."""

    text: str
    code: str
    details: Json
    next: Json


def describe_failure(failure: CmbsError, tool: str, arguments: Json, known: dict[str, set[str]]) -> Failed:
    """A failure of a call, in the words of the tools. `known` are the names of the arguments of every tool."""
    code = failure.code if isinstance(failure, BeliefServerError) else UNREACHABLE
    if code not in _ADVICE:
        # Of something between, or of a newer server.
        code = UNREACHABLE
    told = failure.details if isinstance(failure, BeliefServerError) else {}
    field = _name_field(told)
    advice = _advise(code, field, told, tool, arguments)
    happened = advice.happened or _ADVICE[code].happened or ""
    if isinstance(failure, BeliefServerError) and code in set(ErrorCode):
        happened = speak(failure.message) or happened
    do = advice.do
    if advice is _ADVICE[code] and code in (ErrorCode.INVALID_REQUEST, ErrorCode.LIMIT_EXCEEDED):
        do = speak(str(told.get("next") or "")) or do
    next_tool = advice.tool or tool
    # To the same tool, what was wrong is not sent again.
    wanted = (set(advice.arguments) if advice.tool else set(arguments) - {_top_of(field)}) & known[next_tool]
    kept = {name: value for name, value in arguments.items() if name in wanted and _is_short(value)}
    text = f"{code}: {happened}; {do}; call `{next_tool}`"
    details = _describe_details(field, told) if _top_of(field) in known[tool] else {}
    return Failed(text, code, details, {"do": do, **name_call(next_tool, kept)})


def describe_refusal(refusal: RefusalDetail | None, reason: str, session_id: str, n_survivors: int) -> Json:
    """Why a conclusion or the end of an obligation was refused, and the call that is advised."""
    if refusal is None:
        return {"reason": reason}
    message = refusal.message
    session = {"session_id": session_id}
    if n_survivors == 0 and reason in (Reason.NOT_SINGLETON, Reason.NOT_A_SURVIVOR):
        return {"reason": _name_tools(message), "next": advise_contradiction(session_id)}
    match reason:
        case Reason.NOT_A_SURVIVOR:
            do, call = "conclude a survivor, or rule out more first", name_call("read_belief", session)
        case Reason.OBLIGATION_ACTIVE | Reason.BELOW_THRESHOLD if refusal.reachable is not False:
            missing = max(0, (refusal.needed or 0) - (refusal.eliminated or 0))
            then = f"call `leave_obligation` for `{refusal.obligation_id}`"
            do = f"rule out {missing} more with `observe` or `rule_out`, then {then}" if missing else then
            obligation = {**session, "obligation_id": refusal.obligation_id}
            call = name_call("read_belief", session) if missing else name_call("leave_obligation", obligation)
        case Reason.OBLIGATION_ACTIVE | Reason.BELOW_THRESHOLD:
            do, call = "it cannot be met any more: tell an operator", name_call("obligations", session)
        case Reason.CONCLUSION_UNSTABLE:
            do, call = "conclude the same hypothesis again", name_call("read_belief", session)
        case Reason.NOT_SINGLETON:
            do, call = "rule out all but one with `observe` or `rule_out`", name_call("read_belief", session)
        case _:
            do, call = "go on", name_call("obligations", session)
    return {"reason": _name_tools(message), "next": {"do": do, **call}}


def advise_contradiction(session_id: str) -> Json:
    """The call to make where nothing is left."""
    do = "find out which observation is wrong; conclude nothing"
    return {"do": do, **name_call("contradiction", {"session_id": session_id})}


def _advise(code: str, field: str, details: Json, tool: str, arguments: Json) -> Advice:
    if code == ErrorCode.RECORD_NOT_FOUND:
        return _LISTED_BY.get(str(details.get("what")), _ADVICE[code])
    if code == ErrorCode.INVALID_REQUEST and field == "kit_id":
        return _LISTED_BY["kit"]
    if code == ErrorCode.INVALID_REQUEST and field == "session_id" and tool in _OF_KITS:
        return _WITHOUT_KIT
    if code == ErrorCode.CONFLICT:
        do = speak(str(details.get("next") or "")) or _ADVICE[code].do
        if "session_id" in arguments:
            return Advice(do, "read_belief", ("session_id",))
        return Advice(do, "read_approvals", ("space_id",)) if "space_id" in arguments else Advice(do, "find_sessions")
    return _ADVICE[code]


def _name_field(details: Json) -> str:
    """The argument that a failure is about, as the tools call it; empty where it is about none."""
    field = str(details.get("field") or "")
    top = _top_of(field)
    return _NAMES.get(top, top) + field[len(top) :]


def _top_of(field: str) -> str:
    """The argument that a part such as `hypotheses[3]` is of."""
    found = _TOP.match(field)
    return "" if found is None else found.group()


def _describe_details(field: str, details: Json) -> Json:
    """Which argument it is about, what was found there, and what is accepted."""
    told: dict[str, Any] = {"field": field, "found": details.get("found")}
    accepted = details.get("accepted")
    if isinstance(accepted, str):
        accepted = _name_tools(accepted)
    if accepted is not None and not has_api_terms(msgspec.json.encode(accepted).decode()):
        told["accepted"] = accepted
    return told


def speak(text: str) -> str:
    """A sentence of the API with the names that the tools have; nothing where it has terms that no tool has."""
    text = _name_tools(text)[:_MAX_TEXT]
    return "" if has_api_terms(text) else text


def has_api_terms(text: str) -> bool:
    """Whether a text speaks of requests, where a model only has tools."""
    return _CODE_TERMS.search(text) is not None or _API_TERMS.search(_QUOTED.sub("``", text)) is not None


def _name_tools(text: str) -> str:
    return _API_NAMES.sub(lambda found: f"`{_NAMES[found.group(1)]}{found.group(2)}`", text)


def _is_short(value: Any) -> bool:
    return isinstance(value, str | int) and len(str(value)) <= _MAX_SHOWN
