"""Refusals in full: what was wrong, where, what was found, what would be accepted, and what to do next. Pure.

A refusal that the protocol records is a reason and no more. What goes with it follows from the session at that moment,
so it is worked out when a caller is answered, and recorded nowhere.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple, TypeAlias, assert_never

import msgspec

from cmbs.belief.kernel.events import DeclareConclusion, Message, RequestExit
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.nearest import MAX_COMPARED, find_nearest
from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.survivors import Survivors
from cmbs.belief.kernel.views import active_at, reach_at, survivors_at
from cmbs.errors import InvalidHypothesisId
from cmbs.messages import ReachDetail, Reason

# `code`, `message`, `field`, `found`, `accepted`, `next`, and the numbers that the reason is about.
RefusalContent: TypeAlias = dict[str, Any]

# How many ids a refusal lists.
_MAX_LISTED = 20
# How many unknown ids are compared.
_MAX_UNKNOWN = 3


class _Moment(NamedTuple):
    """A session right before the event that refused: a refusal changes nothing, so also right after it."""

    session: Session
    seq: int
    survivors: Survivors
    active: tuple[str, ...]


def refusal_of(answer: Answer, next_probe: str | None = None) -> RefusalContent | None:
    """Why a request was refused, in full; None where it was not. `next_probe` can tell the survivors apart."""
    session, message, seq = answer.session, answer.message, answer.seq
    verdict = session.events.at(seq)[1]
    if verdict is None or verdict.granted:
        return None
    moment = _Moment(session, seq, survivors_at(session, seq), active_at(session, seq))
    content = {"code": verdict.reason.value, **_explain(moment, message, verdict.reason)}
    return content if next_probe is None else {**content, "next": f"observe `{next_probe}`, which can tell them apart"}


def _explain(moment: _Moment, message: Message, reason: Reason) -> RefusalContent:
    match reason:
        case Reason.OBLIGATION_NOT_ACTIVE:
            return _explain_exited(moment, message)
        case Reason.BELOW_THRESHOLD:
            return _explain_threshold(moment, message)
        case Reason.OBLIGATION_ACTIVE:
            return _explain_active(moment)
        case Reason.NOT_SINGLETON:
            return _explain_survivors(moment, message)
        case Reason.CONCLUSION_UNSTABLE:
            return _explain_conclusions(moment)
        case Reason.NOT_A_SURVIVOR:
            return _explain_conclusion(moment, message)
        case Reason.APPROVED | Reason.ACCEPTED | Reason.FORCED:  # pragma: no cover - these grant
            raise ValueError(reason)
        case _:
            assert_never(reason)


def _explain_exited(moment: _Moment, message: Message) -> RefusalContent:
    name = _obligation_of(message)
    exited_seq = moment.session.obligations[name].exited_seq
    return {
        "message": f"obligation `{name}` was left at seq {exited_seq} already; there is nothing more to do for it",
        "field": "obligation_id",
        "found": name,
        "accepted": list(moment.active[-_MAX_LISTED:]),
        "next": "go on; name an obligation that is active to leave another one",
        "exited_seq": exited_seq,
    }


def _explain_threshold(moment: _Moment, message: Message) -> RefusalContent:
    name = _obligation_of(message)
    reach = _reach(moment, name)
    return {
        "message": f"obligation `{name}` asks for {_describe_reach(reach)}",
        "field": "obligation_id",
        "found": reach.eliminated,
        "accepted": reach.needed,
        "next": _describe_way_out(moment.session, name, reach),
        "obligation_id": name,
        **msgspec.structs.asdict(reach),
    }


def _explain_active(moment: _Moment) -> RefusalContent:
    name = moment.active[-1]
    reach = _reach(moment, name)
    others = f" and {len(moment.active) - 1} more" if len(moment.active) > 1 else ""
    return {
        "message": f"obligation `{name}`{others} must be left first: it asks for {_describe_reach(reach)}",
        "field": "active_obligation_id",
        "found": list(moment.active[-_MAX_LISTED:]),
        "accepted": None,
        "next": _describe_way_out(moment.session, name, reach),
        "obligation_id": name,
        **msgspec.structs.asdict(reach),
    }


def _explain_survivors(moment: _Moment, message: Message) -> RefusalContent:
    survivors, session = moment.survivors, moment.session
    alive = len(survivors)
    rule = (
        "a conclusion names the only survivor"
        if isinstance(message, DeclareConclusion)
        else "a session ends with one survivor"
    )
    if alive:
        then = f"eliminate {alive - 1} more, with observations that contradict them"
    elif session.policy.allow_force:
        then = 'nothing is left to conclude; end it with `{"force": true}` in the context, or fork it before the error'
    else:
        then = "nothing is left to conclude; fork it at an event before the error, or declare another session"
    return {
        "message": f"{rule}, and {alive} are left",
        "field": "n_survivors",
        "found": alive,
        "accepted": 1,
        "next": then,
        "n_survivors": alive,
        "survivors": _list_few(survivors),
    }


def _explain_conclusions(moment: _Moment) -> RefusalContent:
    window = moment.session.policy.stability_window
    newest = [conclusion_id for seq, conclusion_id in moment.session.conclusions.newest_first() if seq < moment.seq][
        :window
    ]
    same = 0
    for conclusion_id in newest:
        if conclusion_id != newest[0]:
            break
        same += 1
    wanted = newest[0] if newest else next(iter(moment.survivors))
    return {
        "message": f"the last {window} accepted conclusions must be the same, and only {same} are",
        "field": "policy.stability_window",
        "found": same,
        "accepted": window,
        "next": f"declare the same conclusion {window - same} times more, such as `{wanted}`",
        "conclusions": newest[:_MAX_LISTED],
    }


def _explain_conclusion(moment: _Moment, message: Message) -> RefusalContent:
    conclusion_id = message.conclusion_id if isinstance(message, DeclareConclusion) else ""
    nearest = find_nearest(conclusion_id, list(islice(moment.survivors, MAX_COMPARED)))
    known, rule = conclusion_id in moment.session.universe, moment.session.policy.conclusions
    why = "was eliminated" if known else "is no hypothesis of this session"
    if not moment.survivors:
        then = "nothing is left to conclude; fork it at an event before the error, or declare another session"
    elif nearest is not None and not known:
        then = f"conclude `{nearest}`, if that is meant"
    else:
        then = "conclude a hypothesis that survives, or eliminate further"
    return {
        "message": f"`{conclusion_id}` {why}, and the policy of this session says `conclusions: {rule}`",
        "field": "conclusion_id",
        "found": conclusion_id,
        "accepted": _list_few(moment.survivors),
        "next": then,
        "n_survivors": len(moment.survivors),
    }


# --- ids that are not known -------------------------------------------------------------------------------------------


def explain_unknown(session: Session, error: InvalidHypothesisId) -> InvalidHypothesisId:
    """The error with the ids of the session that were probably meant."""
    nearest: dict[str, str] = {}
    for unknown in error.unknown[:_MAX_UNKNOWN]:
        found = find_nearest(unknown, session.universe.ids)
        if found is not None:
            nearest[unknown] = found
    return InvalidHypothesisId(error.unknown, nearest, error.details["field"])


# --- words ------------------------------------------------------------------------------------------------------------


def _obligation_of(message: Message) -> str:
    if not isinstance(message, RequestExit):  # pragma: no cover - the reasons of an exit are given for exits alone
        raise TypeError(type(message).__name__)
    return message.obligation_id


def _reach(moment: _Moment, obligation_id: str) -> ReachDetail:
    return reach_at(moment.session, obligation_id, moment.seq)


def _describe_reach(reach: ReachDetail) -> str:
    return f"{reach.needed} eliminations, {reach.eliminated} were made, and {reach.alive} hypotheses are alive"


def _describe_way_out(session: Session, obligation_id: str, reach: ReachDetail) -> str:
    missing = reach.needed - reach.eliminated
    if reach.reachable:
        what = f"eliminate {missing} more, then" if missing > 0 else "first"
        return f"{what} ask to leave `{obligation_id}` with REQUEST_EXIT"
    stuck = f"no elimination can open `{obligation_id}` any more; have an operator lift it with `lift_obligation`"
    return f'{stuck}, or end the session with `{{"force": true}}`' if session.policy.allow_force else stuck


def _list_few(survivors: Survivors) -> list[str] | str:
    """The survivors, or that there are too many to list."""
    few = list(islice(survivors, _MAX_LISTED + 1))
    return few if len(few) <= _MAX_LISTED else f"one of {len(survivors)} survivors"
