"""What to do about a rule of the policy that stands in the way: a constraint, an exclusive group, an invariant. Pure.

The text of a rule is walked beside the trace of the decision, so that what is named is what the rule really found. An
agent does not read the policy: it learns which rule decided, the rule's own reason, and what the rule found where it
may read that. What a rule asks of *belief* it learns too, because to bring that about is its work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from cmbs.messages import UnknownIndependence
from cmbs.refusals import Fault, Refusal, quote, refuse_faults, show_value
from cmbs.substrate.kernel.insight.refused import Refused
from cmbs.substrate.kernel.model import CandidateDecision, ReasonCode, StateDelta, ToolCall, TraceStep
from cmbs.substrate.kernel.policy.constraints import Malformed
from cmbs.substrate.kernel.policy.operators import ORDERS
from cmbs.substrate.kernel.policy.predicates import UNTOLD, show_distinctly
from cmbs.substrate.kernel.policy.references import UNKNOWN_INDEPENDENCE, walk
from cmbs.substrate.kernel.words import CaseStatus

_BELIEF = ("$belief.", "$case.")
_INDEPENDENT = ".independent."
_COUNT = ".n_survivors"
_ARGUMENT = "$args."
_SURVIVOR = ".survivor."
_PRESENCE = frozenset({"exists", "missing"})
_ORDER_WORDS = {"lt": "below", "le": "at most", "gt": "above", "ge": "at least"}
_OPPOSITES = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
# The keywords of schemas that have words.
_KEYWORDS: dict[str, Callable[[Any], str]] = {
    "type": lambda said: f"of type {' or '.join(said) if isinstance(said, list) else said}",
    "const": lambda said: f"`{show_distinctly(said)}`",
    "enum": lambda said: f"one of {', '.join(f'`{show_distinctly(each)}`' for each in said)}",
    "minimum": lambda said: f"at least `{show_distinctly(said)}`",
    "maximum": lambda said: f"at most `{show_distinctly(said)}`",
    "exclusiveMinimum": lambda said: f"above `{show_distinctly(said)}`",
    "exclusiveMaximum": lambda said: f"below `{show_distinctly(said)}`",
    "pattern": lambda said: f"a text that matches `{said}`",
}
_WITHHELD = "it reads something that you may not read"
_ASK = "ask an operator"
# Nothing else helps where it cannot be known what others ruled out.
_OTHER_AGENT = "or have another agent propose it"
_REMEDIES = {
    UnknownIndependence.DECLARED: "have an operator or the harness declare the session of a new case, and propose under"
    f" that case; {_OTHER_AGENT}",
    UnknownIndependence.FORKED: f"have an operator fork it, and propose under the case of that fork; {_OTHER_AGENT}",
    UnknownIndependence.PUT_KIT: "have an operator put a version of the kit on record, and propose under a case over"
    f" that version; {_OTHER_AGENT}",
    UnknownIndependence.NO_KEYS: "have an operator make keys with `cmbs keys create`, and propose under a case that was"
    " declared with a key",
}
_MAX_CASES_SHOWN = 20


class Leaf(NamedTuple):
    """A predicate that stands in the way: what it asks, of which reference, and whether it should hold."""

    op: str
    args: tuple[Any, ...]
    wanted: bool
    # What the trace has of it, as far as the reader may see.
    steps: tuple[TraceStep, ...]


def find_leaves(
    node: Mapping[str, Any], at: str, steps: Mapping[str, Sequence[TraceStep]], *, wanted: bool
) -> list[Leaf]:
    """The predicates in `node` that keep it from being as `wanted`; of alternatives, the fewest."""
    op, args = node["op"], node["args"]
    if op == "not":
        return find_leaves(args[0], f"{at}.args[0]", steps, wanted=not wanted)
    if op not in {"all", "any"}:
        seen = steps.get(at, ())
        # A step that the reader may not see stands in the way as far as can be told, and so does belief that is not.
        stands_aside = seen and seen[0].passed is wanted and not any(map(_is_untold, seen))
        return [] if stands_aside else [Leaf(op, tuple(args), wanted, tuple(seen))]
    parts = [find_leaves(each, f"{at}.args[{place}]", steps, wanted=wanted) for place, each in enumerate(args)]
    if (op == "all") is wanted:
        return [leaf for part in parts for leaf in part]
    return min(parts, key=len)


def _leaves_of(refused: Refused, key: str, candidate: int, *, wanted: bool) -> list[Leaf]:
    steps: dict[str, list[TraceStep]] = {}
    for step in refused.decision.trace:
        if step.key == key and step.at is not None and step.candidate in (None, candidate):
            steps.setdefault(step.at, []).append(step)
    text = refused.space.policy.pairs.get(key)
    # Another candidate of the proposal may have been decided again since, under a policy without this rule.
    if not refused.is_same_policy or text is None:
        return []
    content = msgspec.json.decode(text)
    # An invariant without a version is the predicate itself, and its places begin there.
    at, when = ("when", content.get("when")) if "v" in content else ("", content)
    return [] if when is None else find_leaves(when, at, steps, wanted=wanted)


# --- constraints and invariants ---------------------------------------------------------------------------------------


def advise_on_constraints(refused: Refused, decided: CandidateDecision) -> Refusal:
    """A constraint denies it, or the one that could allow it does not."""
    denies = decided.reason_code is ReasonCode.CONSTRAINT_DENIED
    found = [_leaves_of(refused, key, decided.candidate, wanted=not denies) for key in decided.matched]
    # Every denial has to give way; of permissions one is enough.
    leaves = [leaf for each in found for leaf in each] if denies else min(found, key=len)
    named = quote(decided.matched)
    message = f"{named} denies it" if denies else f"{named} does not allow it as things are"
    return _advise_on_leaves(refused, decided, f"{message}{_reason(decided)}", leaves)


def advise_on_invariant(refused: Refused, decided: CandidateDecision) -> Refusal:
    """The state after the commit would break an invariant."""
    leaves = [leaf for key in decided.matched for leaf in _leaves_of(refused, key, decided.candidate, wanted=True)]
    return _advise_on_leaves(refused, decided, f"the state would break {quote(decided.matched)}", leaves)


def _reason(decided: CandidateDecision) -> str:
    return f" ({decided.reason})" if decided.reason else ""


def _advise_on_leaves(refused: Refused, decided: CandidateDecision, message: str, leaves: list[Leaf]) -> Refusal:
    faults = [_describe_leaf(refused, leaf) for leaf in leaves]
    visible = [fault for fault in faults if fault is not None]
    unknown = _find_unknown(leaves)
    steps = [_REMEDIES[unknown]] if unknown is not None else [_next_step(refused, fault) for fault in visible]
    withheld = len(visible) < len(faults)
    if not refused.is_same_policy:
        steps = ["propose it again: the policy is another by now"]
    elif refused.flip is not None:
        in_belief = [_next_step(refused, fault) for fault in visible if fault.field.startswith(_BELIEF)]
        steps = ["; ".join([refused.flip, *(in_belief if unknown is None else steps)])]
    elif withheld or not steps:
        steps.append(f"{_ASK} what would be allowed")
    next_step = ", and ".join(dict.fromkeys(steps))
    told = "; ".join([message, *(fault.message for fault in visible[:3]), *([_WITHHELD] if withheld else [])])
    if not visible:
        return Refusal(code=decided.reason_code, message=told, next=next_step, rules=decided.matched)
    made = refuse_faults(decided.reason_code, visible, next_step, rules=decided.matched)
    return msgspec.structs.replace(made, message=told)


def _describe_leaf(refused: Refused, leaf: Leaf) -> Fault | None:
    """What a predicate found, and what it asks for where the reader may learn that; None where it may see nothing."""
    if not leaf.steps:
        return None
    survivor = next((each for each in leaf.steps if _is_unknown_survivor(leaf, each)), None)
    if survivor is not None:
        return _describe_survivor(refused, leaf, survivor)
    step = next((each for each in leaf.steps if _is_open(leaf, each)), leaf.steps[0])
    reference = _name(step.reference or "")
    found = _find_argument(refused, step) or step.found
    told = "missing" if found is None else f"`{found}`"
    if _is_untold(step):
        told += f" ({step.note})"
    tells = refused.reads_policy or any(each.reference and each.reference.startswith(_BELIEF) for each in leaf.steps)
    if not tells:
        return Fault(reference, f"`{reference}` is {told}", found)
    accepted = _describe_accepted(leaf)
    return Fault(reference, f"`{reference}` is {told}, and must be {_words(accepted)}", found, accepted)


def _find_argument(refused: Refused, step: TraceStep) -> str | None:
    """An argument of a call as people are shown it, where the trace has its text alone; None of anything else."""
    candidate = None if step.candidate is None else refused.proposal.candidates[step.candidate]
    if step.found is None or not isinstance(candidate, ToolCall) or not (step.reference or "").startswith(_ARGUMENT):
        return None
    path = tuple((step.reference or "").removeprefix(_ARGUMENT).split("."))
    value = walk(msgspec.json.decode(candidate.args), path)
    return show_distinctly(value) if isinstance(value, str) else None


def _name(reference: str) -> str:
    """A reference as refusals name it: arguments as they are named in the call."""
    return reference.replace("$args", "args", 1)


def _is_unknown_survivor(leaf: Leaf, step: TraceStep) -> bool:
    """Whether a predicate compares with the one hypothesis that is left, or with what was declared of it, in vain."""
    reads_survivor = _SURVIVOR in f"{step.reference}." and (step.reference or "").startswith("$case.belief.")
    return reads_survivor and step.found is None and leaf.op not in _PRESENCE and not _is_untold(step)


def _describe_survivor(refused: Refused, leaf: Leaf, step: TraceStep) -> Fault:
    """That what a predicate compares with is not known yet, and how many hypotheses are left."""
    reference = step.reference or ""
    others = [_name(each.reference) for each in leaf.steps if each.reference and each.reference != reference]
    checked = f"`{others[0]}` cannot be checked" if others else f"`{reference}` is not known"
    left = _count_left(refused, reference)
    if left == 1:
        return Fault(reference, f"nothing is declared of the survivor as `{reference}` asks, so {checked}")
    known = "no survivor is left" if left == 0 else "no survivor is known yet"
    return Fault(reference, f"{known}, so {checked}")


def _count_left(refused: Refused, reference: str) -> int | None:
    """How many hypotheses were left where a reference reads the survivor; None where no rule asked."""
    owner = f"{reference}.".partition(_SURVIVOR)[0]
    found = (each.found for each in refused.decision.trace if each.reference == owner + _COUNT)
    text = next((each for each in found if each is not None), None)
    return None if text is None else int(text)


def _is_untold(step: TraceStep) -> bool:
    return step.note is not None and step.note.startswith(UNTOLD)


def _find_unknown(leaves: Sequence[Leaf]) -> UnknownIndependence | None:
    """Why it cannot be known what others ruled out, where a predicate asks for that: nothing else helps then."""
    notes = {step.note for leaf in leaves for step in leaf.steps}
    return next((each for each, text in UNKNOWN_INDEPENDENCE.items() if UNTOLD + text in notes), None)


def _is_open(leaf: Leaf, step: TraceStep) -> bool:
    """Of several references of one predicate: whether this is one that it fails for."""
    absent = step.found is None or step.found == "null"
    return leaf.op not in _PRESENCE or absent is ((leaf.op == "exists") is leaf.wanted)


def _describe_accepted(leaf: Leaf) -> Any:
    """What would satisfy a predicate: a value, or a rule."""
    if leaf.op in _PRESENCE:
        return {"exists": (leaf.op == "exists") is leaf.wanted}
    first, second = leaf.args
    asked = show_value(second)
    rule = asked if leaf.op == "eq" else {leaf.op: asked}
    if leaf.op == "in" and isinstance(first, dict) and "literal" in first:
        # Of `"x" in list` the list is what was found.
        rule = {"contains": show_value(first["literal"])}
    return rule if leaf.wanted else {"not": rule}


def _words(accepted: Any) -> str:
    """What would satisfy a predicate, in words."""
    if not isinstance(accepted, dict) or len(accepted) != 1:
        return _value(accepted)
    ((op, said),) = accepted.items()
    words = _RULES.get(op)
    return _value(accepted) if words is None else words(said)


def _words_against(rule: Any) -> str:
    if isinstance(rule, dict) and len(rule) == 1:
        ((op, said),) = rule.items()
        if op == "ne":
            return _value(said)
        if op in ORDERS:
            return f"{_ORDER_WORDS[_OPPOSITES[op]]} {_value(said)}"
    return f"other than {_words(rule)}"


def _list_words(said: Any) -> str:
    if not isinstance(said, list):
        return f"in {_value(said)}"
    return f"one of {', '.join(map(_value, said))}" if said else "nothing that there is"


def _order_words(op: str) -> Callable[[Any], str]:
    return lambda said: f"{_ORDER_WORDS[op]} {_value(said)}"


def _value(value: Any) -> str:
    """A value of a rule: a literal, or what another reference finds."""
    match value:
        case {"ref": str(reference)}:
            return f"what `{_name(reference)}` is"
        case {"literal": literal}:
            return f"`{show_distinctly(literal)}`"
        case _:
            return f"`{show_distinctly(value)}`"


def _schema_words(rule: Any) -> str:
    if isinstance(rule, str):
        return f"as the schema `{rule}` asks"
    if not isinstance(rule, dict) or not rule or not rule.keys() <= _KEYWORDS.keys():
        return "as a schema in the rule asks"
    return " and ".join(_KEYWORDS[name](said) for name, said in rule.items())


_RULES: dict[str, Callable[[Any], str]] = {
    "exists": lambda said: "there" if said else "absent",
    "not": _words_against,
    "ne": lambda said: f"other than {_value(said)}",
    "in": _list_words,
    "contains": lambda said: f"a list with {_value(said)}",
    "prefix": lambda said: f"a text that begins with {_value(said)}",
    "schema": _schema_words,
    **{op: _order_words(op) for op in sorted(ORDERS)},
}


# --- what to do -------------------------------------------------------------------------------------------------------


def _next_step(refused: Refused, fault: Fault) -> str:
    reference = fault.field
    if reference.startswith(_BELIEF):
        return _step_in_belief(refused, fault)
    if reference.startswith("args"):
        return f"propose it with another `{reference}`"
    if reference.startswith("$"):
        return f"{_ASK}: `{reference}` cannot be changed by a proposal"
    if reference.startswith("goal."):
        return _step_for_goal(refused, reference)
    return f"wait until a tool or an encoder reports another `{reference}`"


def _step_for_goal(refused: Refused, reference: str) -> str:
    """What to do about a goal: where the proposal writes it itself, to change it first does not help."""
    for each in refused.proposal.candidates:
        if isinstance(each, StateDelta):
            written = next((key for key in (*each.set, *each.unset) if f"{reference}.".startswith(f"{key}.")), None)
            if written is not None:
                return f"propose another value of `{written}`" if written in each.set else f"do not unset `{written}`"
    return f"propose a change of `{reference}` first"


def _step_in_belief(refused: Refused, fault: Fault) -> str:
    """What brings a session to where a gate asks it to be."""
    reference = fault.field
    where = f"session `{_session_of(reference)}`" if reference.startswith("$belief.") else "the session of the case"
    if not reference.startswith(("$belief.", "$case.belief.")):
        return f"have an operator admit the case with another `{reference}`"
    if _SURVIVOR in f"{reference}." and fault.accepted is None and fault.found is None:
        return _step_to_survivor(_count_left(refused, reference), where)
    if reference.endswith(_COUNT) and fault.found is not None:
        return _step_to_count(fault, where)
    if reference.endswith(".active_obligation_id") and fault.accepted is None and fault.found is not None:
        return f"leave obligation `{fault.found}` of {where} first, or have an operator lift it where it cannot be met"
    if fault.found is None:
        return f"open {where}, and narrow it down there"
    if reference.endswith(".terminated"):
        ended = f"begin a new session: {where} has ended"
        return ended if fault.found == "true" else f"conclude in {where}, and request its termination"
    return f"go on in {where} until it is so"


def _step_to_survivor(left: int | None, where: str) -> str:
    if left == 1:
        return f"have an operator declare a new session that says of its hypotheses what the rule asks, or {_ASK}"
    if left == 0:
        return f"begin a new session: {where} has no hypothesis left, and none comes back"
    return f"rule out more hypotheses in {where}, until one is left"


def _step_to_count(fault: Fault, where: str) -> str:
    bound = find_bound(fault.accepted)
    if bound is None:
        return f"begin a new session: {where} has `{fault.found}` hypotheses left, and none comes back"
    left = int(fault.found) - bound
    whose = ", by probes of other actors than the proposer," if _INDEPENDENT in fault.field else ""
    if left > 0:
        return f"eliminate {left} more of the hypotheses{whose} in {where}"
    return f"begin a new session: {where} has too few hypotheses left, and none comes back"


def find_bound(accepted: Any) -> int | None:
    """How many hypotheses may be left, where a rule says so, or where one fewer than it names is enough."""
    match accepted:
        case {"schema": {"maximum": most}} | {"le": most} | {"not": {"gt": most}}:
            bound = most
        case {"lt": above} | {"not": {"ge": above}} | {"ne": above} | {"not": int(above)}:
            bound = above - 1 if type(above) is int else None
        case {"in": [*values]}:
            bound = max((each for each in values if type(each) is int), default=None)
        case {"not": {"ne": number}}:
            bound = number
        case _:
            bound = accepted
    return bound if type(bound) is int and bound >= 0 else None


def _session_of(reference: str) -> str:
    return reference.removeprefix("$belief.").rpartition(".")[0]


# --- rules without predicates -----------------------------------------------------------------------------------------


def advise_on_no_allow(refused: Refused, decided: CandidateDecision) -> Refusal:
    """Nothing in the policy allows it, and what is not allowed is denied."""
    candidate = refused.proposal.candidates[decided.candidate]
    field, found, what = "type", "state_delta", "changes of the state"
    if not isinstance(candidate, StateDelta):
        field, found, what = "tool_id", candidate.tool_id, f"calls of `{candidate.tool_id}`"
    return Refusal(
        code=decided.reason_code,
        message=f"no rule of the policy allows {what}",
        next=f"do without it, or {_ASK} for a rule that allows it",
        field=field,
        found=found,
    )


def advise_on_no_case(refused: Refused, decided: CandidateDecision) -> Refusal:
    """A rule reads the case of the proposal, and it names none that its actor may act under."""
    found = refused.proposal.case_id
    agent_id = refused.proposer.id
    mine = sorted(
        case_id
        for case_id, case in refused.space.cases.items()
        # Not under the one that was named: the session of that case has another list by now.
        if case.status is CaseStatus.OPEN and agent_id in case.known_agents and case_id != found
    )
    if isinstance(found, msgspec.UnsetType):
        message = "the policy asks for the case that this belongs to, and the proposal names none"
        otherwise = f"{_ASK} to open a case for it"
    else:
        message = f"case `{found}` is not open, or `{agent_id}` may not act under it"
        otherwise = f"{_ASK} to admit the case, or to add `{agent_id}` to its `agents`"
    return Refusal(
        code=decided.reason_code,
        message=message,
        next="name an open case that you may act under as `case_id`" if mine else otherwise,
        field="case_id",
        found=None if isinstance(found, msgspec.UnsetType) else found,
        accepted=mine[:_MAX_CASES_SHOWN] or None,
        rules=decided.matched,
    )


def advise_on_malformed(refused: Refused, decided: CandidateDecision) -> Refusal:
    """A rule that cannot be read denies whatever it may concern."""
    faults = []
    for key in decided.matched:
        _, compiled = refused.space.policy.compiled.get(key, ("", None))
        why = f": {compiled.at} {compiled.message}" if isinstance(compiled, Malformed) and refused.reads_policy else ""
        faults.append(Fault(key, f"`{key}` of the policy cannot be read{why}, so what it may concern is denied"))
    return refuse_faults(decided.reason_code, faults, f"{_ASK} to mend the policy", rules=decided.matched)


def advise_on_exclusive_goals(refused: Refused, decided: CandidateDecision) -> Refusal:
    """Goals of one group cannot both be set."""
    deltas = [each for each in refused.proposal.candidates if isinstance(each, StateDelta)]
    to_set = {key for delta in deltas for key in delta.set}
    unset = {key for delta in deltas for key in delta.unset}
    faults = []
    for group in refused.space.policy.groups:
        if group.key in decided.matched:
            crowd = sorted(
                goal
                for goal in group.goals or ()
                if (goal in to_set or goal in refused.space.state) and goal not in unset
            )
            shown = [goal for goal in crowd if goal in to_set or refused.may_read(goal)]
            faults.append(Fault(group.key, f"of {quote(shown)} only one may be set at a time", shown))
    faults = faults or [Fault("set", "goals that exclude each other would be set")]
    return refuse_faults(
        decided.reason_code, faults, "unset the others in the same proposal, or leave this one", rules=decided.matched
    )
