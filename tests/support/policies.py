"""Situations for policies: small vocabularies in which everything that predicates can ask comes up soon."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

from cmbs.ledger import canonical
from cmbs.substrate.kernel.insight.explanation import Hypothetical
from cmbs.substrate.kernel.insight.policy_tests import situation
from cmbs.substrate.kernel.model import Tool, ToolKind
from cmbs.substrate.kernel.policy.documents import Given, PolicyTest
from cmbs.substrate.kernel.policy.file import sections_of
from cmbs.substrate.kernel.policy.policy import Policy, compile_policy

TOOL_IDS = ("one", "two")
KEYS = ("fact.a", "fact.b", "goal.c", "fact.o.x", "fact.o")
REFERENCES = (
    *KEYS,
    "$args.n",
    "$args.set.goal.c",
    "$tool.id",
    "$actor.id",
    "$belief.S.n_survivors",
    "$belief.S.concluded",
)
LITERALS: tuple[Any, ...] = ("p", "q", "5", 5, 5.5, True, None, ["h"], {"x": "p"}, "one", "medic")
SCHEMAS: tuple[Any, ...] = (
    {"type": "string"},
    {"minimum": 2, "maximum": 5},
    {"type": "integer", "exclusiveMaximum": 6},
    {"enum": ["p", 5, None]},
    {"minLength": 1, "maxLength": 2},
    {"contains": {"const": "h"}},
    {"not": {"const": "q"}},
    {"anyOf": [{"type": "null"}, {"type": "array", "minItems": 1}]},
    {"required": ["x"]},
    {"pattern": "^p"},
    False,
    True,
    "named",
)


def policy_of(**values: Any) -> Policy:
    """A policy of constraints by their names; `__` in a name stands for a dot of a policy key."""
    return compile_policy(pairs_for(values))


def pairs_for(values: Mapping[str, Any]) -> dict[str, str]:
    """Pairs from decoded values."""
    pairs = {}
    for name, value in values.items():
        key = (
            f"policy.{name.removeprefix('policy__').replace('__', '.')}"
            if name.startswith("policy__")
            else f"constraint.{name}"
        )
        pairs[key] = value if isinstance(value, str) else json.dumps(value)
    return pairs


def allow(subject: Any = None, when: Any = None, **more: Any) -> dict[str, Any]:
    return _constraint("allow", subject, when, more)


def deny(subject: Any = None, when: Any = None, **more: Any) -> dict[str, Any]:
    return _constraint("deny", subject, when, more)


def _constraint(effect: str, subject: Any, when: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    subject = {"tool_id": subject} if isinstance(subject, str) else subject
    return {"v": 1, "effect": effect, "subject": subject, **({} if when is None else {"when": when}), **more}


def eq(reference: str, literal: Any) -> dict[str, Any]:
    return {"op": "eq", "args": [reference, literal]}


def op(name: str, *args: Any) -> dict[str, Any]:
    return {"op": name, "args": list(args)}


TOOLS = {
    tool_id: Tool(tool_id, ToolKind.CALLER, msgspec.Raw(b'{"type":"object"}'), writes=False) for tool_id in TOOL_IDS
}
TOKEN = {"token_id": "t", "agent_id": "medic", "tool_ids": list(TOOL_IDS), "capabilities": ["files"]}


def ask(
    policy: Policy,
    candidates: list[Any],
    *,
    state: Mapping[str, Any] | None = None,
    belief: Mapping[str, Any] | None = None,
    atomic: bool = True,
    approved: list[str] | None = None,
    **more: Any,
) -> Hypothetical:
    """A proposal of `medic`'s in a situation."""
    proposal = {"candidates": candidates, "atomic": atomic}
    said = {"name": "test", "proposal": proposal, "state": state or {}, "belief": belief or {}, **more}
    if approved:
        said["approved"] = approved
    given = {"actor": "agent:medic", "capabilities": [TOKEN]}
    test = msgspec.json.decode(canonical.encode(said), type=PolicyTest)
    return situation(msgspec.json.decode(canonical.encode(given), type=Given), test, policy, TOOLS)


def call(tool_id: str = "one", args: Any = None, token: str = "t") -> dict[str, Any]:
    return {"type": "tool_call", "tool_id": tool_id, "args": args or {}, "capability_token_id": token}


def delta(**texts: str) -> dict[str, Any]:
    return {"type": "state_delta", "set": {f"goal.{name}": text for name, text in texts.items()}}


# --- strategies -------------------------------------------------------------------------------------------------------

_probes = st.one_of(
    st.builds(eq, st.sampled_from(REFERENCES), st.sampled_from(LITERALS)),
    st.builds(
        lambda reference, literals: op("in", reference, literals),
        st.sampled_from(REFERENCES),
        st.lists(st.sampled_from(LITERALS), max_size=3),
    ),
    st.builds(
        lambda name, references: op(name, *references),
        st.sampled_from(["exists", "missing"]),
        st.lists(st.sampled_from(REFERENCES), min_size=1, max_size=2),
    ),
    st.builds(
        lambda reference, schema: op("schema", reference, schema), st.sampled_from(REFERENCES), st.sampled_from(SCHEMAS)
    ),
)
predicates = st.recursive(
    _probes,
    lambda inner: st.one_of(
        st.builds(lambda parts: op("all", *parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: op("any", *parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: op("not", part), inner),
    ),
    max_leaves=4,
)
constraints = st.builds(
    lambda effect, subject, when, on_fail: _constraint(effect, subject, when, {"on_fail": on_fail}),
    st.sampled_from(["allow", "allow", "deny"]),
    st.sampled_from([None, "one", "two", {"capability": "files"}]),
    st.one_of(st.none(), predicates),
    st.sampled_from(["block", "ask", "defer"]),
)
# --- version 2 ---

WIDE_REFERENCES = (*REFERENCES, "$actor.kind", "$actor.roles", "policy.value.v")
WIDE_LITERALS: tuple[Any, ...] = (*LITERALS, 6, "", "pp", "agent", ["oncall"], "oncall")
_NEW = ("ne", "lt", "le", "gt", "ge", "prefix")


def ref(text: str) -> dict[str, str]:
    return {"ref": text}


def literal(value: Any) -> dict[str, Any]:
    return {"literal": value}


_wide_references = st.sampled_from(WIDE_REFERENCES)
_wide_literals = st.sampled_from(WIDE_LITERALS)
_wide_probes = st.one_of(
    _probes,
    # A reference and a literal, one in either place.
    st.builds(op, st.sampled_from(("eq", *_NEW)), _wide_references, st.builds(literal, _wide_literals)),
    st.builds(
        op, st.sampled_from(("eq", "in", *_NEW)), st.builds(literal, _wide_literals), st.builds(ref, _wide_references)
    ),
    # Two references.
    st.builds(op, st.sampled_from(("eq", "in", *_NEW)), _wide_references, st.builds(ref, _wide_references)),
)
wide_predicates = st.recursive(
    _wide_probes,
    lambda inner: st.one_of(
        st.builds(lambda parts: op("all", *parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: op("any", *parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: op("not", part), inner),
    ),
    max_leaves=4,
)
_wide_subjects = st.sampled_from(
    [None, "one", "o*", "*", "*o", ["one", "two"], ["two", "*ne"], {"capability": "files"}]
).map(lambda subject: {"tool_id": subject} if isinstance(subject, str | list) else subject)
wide_constraints = st.one_of(
    constraints,
    st.builds(
        lambda effect, subject, when, on_fail, mode: {
            **_constraint(effect, subject, when, {"on_fail": on_fail, "mode": mode}),
            "v": 2,
        },
        st.sampled_from(["allow", "allow", "deny"]),
        _wide_subjects,
        st.one_of(st.none(), wide_predicates),
        st.sampled_from(["block", "ask", "defer"]),
        st.sampled_from(["enforce", "enforce", "observe"]),
    ),
)


@st.composite
def wide_policies(draw: st.DrawFn) -> dict[str, str]:
    """Pairs of a policy with constraints of both versions and invariants."""
    drawn = draw(st.lists(wide_constraints, max_size=4))
    drawn.append({**allow(None, draw(wide_predicates)), "v": 2})
    values: dict[str, Any] = {f"c{place}": each for place, each in enumerate(drawn)}
    values["policy__schema__named"] = {"enum": ["p", "q"]}
    values["policy__value__v"] = draw(st.sampled_from(["p", "5", "6", '["h"]', ""]))
    if draw(st.booleans()):
        values["policy__invariant__i"] = {"v": 2, "when": draw(wide_predicates.filter(_reads_no_candidate))}
    return pairs_for(values)


_texts = st.sampled_from(
    ["p", "q", "5", "5.5", '"5"', "true", "null", '["h"]', '{"x":"p"}', '{"x":{"y":1}}', "", "[]", "7", "ppp"]
)
states = st.dictionaries(st.sampled_from(KEYS), _texts, max_size=4)
beliefs = st.one_of(
    st.just({}),
    st.builds(
        lambda number, concluded: {"S": {"n_survivors": number, "concluded": concluded}},
        st.integers(0, 6),
        st.sampled_from([[], ["h"], ["other"]]),
    ),
)
candidates = st.one_of(
    st.builds(call, st.sampled_from(TOOL_IDS), st.sampled_from([{}, {"n": 5}, {"n": "p"}, {"n": None}])),
    st.builds(delta, c=st.sampled_from(["p", "q", "5"])),
)


@st.composite
def policies(draw: st.DrawFn) -> dict[str, str]:
    """Pairs of a policy with constraints, invariants and a group."""
    drawn = draw(st.lists(constraints, max_size=4))
    # Without an allow about everything most of what is proposed would be denied for want of one.
    drawn.append(allow(None, draw(predicates)))
    values: dict[str, Any] = {f"c{place}": each for place, each in enumerate(drawn)}
    values["policy__schema__named"] = {"enum": ["p", "q"]}
    for place, each in enumerate(draw(st.lists(predicates.filter(_reads_no_candidate), max_size=2))):
        values[f"policy__invariant__i{place}"] = each
    if draw(st.booleans()):
        values["policy__exclusive__g"] = ["goal.c", "goal.d"]
    return pairs_for(values)


def _reads_no_candidate(content: Any) -> bool:
    text = json.dumps(content)
    return not any(name in text for name in ("$args", "$tool", "$actor"))


def file_of(policy: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A policy file that is compiled to these keys and payloads, as data."""
    texts = {
        key: value if isinstance(value, str) else canonical.encode(value).decode() for key, value in policy.items()
    }
    return {"format": 2, **sections_of(texts), **more}
