"""Hypothesis strategies for what a space decides on: predicates, constraints, policies, states, proposals.

The words are few, so that constraints match, references find something and candidates clash in most examples.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st
from immutables import Map

from cmbs.ledger import canonical
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import Mode
from cmbs.substrate.kernel.model import (
    BeliefReading,
    Budget,
    Candidate,
    Capability,
    IndependentReading,
    Proposal,
    Scope,
    ScopeMatch,
    StateDelta,
    ToolCall,
)
from cmbs.substrate.kernel.policy.references import EvaluationContext
from cmbs.substrate.kernel.state import Space
from cmbs.testing import spaces

TOOL_IDS = ("email.send", "fs.write")
NAMES = ("net", "prod")
SESSIONS = ("s1", "s.2")
KEYS = ("fact.env", "fact.env.name", "fact.doc", "goal.a", "goal.b")
VALUES = ("prod", "dev", '{"name":"prod"}', "1", "true", "null")
LITERALS: tuple[Any, ...] = ("prod", "dev", 1, True, None, {"name": "prod"})
PATHS = ("x", "y", "/data/a", "/data/../b")
REFERENCES = (
    *KEYS,
    "fact.doc.name",
    "$args.path",
    "$args.set.goal.a",
    "$args",
    "$tool.id",
    "$actor.id",
    "$belief.s1.n_survivors",
    "$belief.s.2.active_obligation_id",
)
# For payloads of version 2 alone.
SECOND_REFERENCES = (
    "$tool.writes",
    "$case.id",
    "$case.attributes.name",
    "$case.belief.n_survivors",
    "$case.belief.survivor",
    "$case.belief.survivor.name",
    "$case.belief.independent.n_survivors",
)
T = TypeVar("T")

# None of these is a constraint.
MALFORMED = (
    "",
    "{",
    "null",
    "[]",
    "{}",
    '{"v":3,"effect":"allow","subject":null}',
    '{"v":true,"effect":"allow","subject":null}',
    '{"v":1,"effect":"permit","subject":null}',
    '{"v":1,"effect":"allow","subject":{"tool_id":"fs.write"},"extra":1}',
    '{"v":1,"effect":"allow","subject":{"tool_id":"fs.write","capability":"net"}}',
    '{"v":1,"effect":"allow","subject":null,"when":{"op":"matches","args":["fact.env","x"]}}',
    '{"v":1,"effect":"allow","effect":"deny","subject":null}',
)


def _rarely(usual: st.SearchStrategy[T], rare: st.SearchStrategy[T], one_in: int = 12) -> st.SearchStrategy[T]:
    """Mostly `usual`: alternatives as such are drawn as often as each other, however often one is written down."""
    return st.integers(1, one_in).flatmap(lambda number: rare if number == one_in else usual)


@cache
def states() -> st.SearchStrategy[dict[str, str]]:
    """Some facts and goals."""
    return st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


@cache
def readings() -> st.SearchStrategy[dict[str, BeliefReading]]:
    """What the belief plane says of some sessions; of others nothing is known."""
    reading = st.builds(
        BeliefReading,
        st.sampled_from(SESSIONS),
        st.booleans(),
        n_survivors=st.integers(0, 3),
        active_obligation_id=st.sampled_from([None, "o"]),
        survivors=st.sampled_from([None, ["h1"]]),
        independent=st.builds(
            IndependentReading, st.sampled_from([spaces.AGENT.id, "other"]), st.integers(0, 3), st.just(["h1"])
        )
        | st.just(msgspec.UNSET),
    )
    return st.lists(reading, max_size=2).map(lambda drawn: {each.session_id: each for each in drawn})


@cache
def predicates(version: int = 1) -> st.SearchStrategy[dict[str, Any]]:
    """Any predicate of payloads of this version that can be compiled without named schemas."""
    reference = st.sampled_from(REFERENCES)
    several = st.lists(reference, min_size=1, max_size=2)
    literal = st.sampled_from(LITERALS)
    schema = st.sampled_from([True, {"type": "string"}, {"maximum": 1}, {"required": ["name"]}])
    leaf = st.one_of(
        st.builds(lambda read, value: spaces.predicate("eq", read, value), reference, literal),
        st.builds(lambda read, many: spaces.predicate("in", read, many), reference, st.lists(literal, max_size=2)),
        st.builds(lambda read: spaces.predicate("exists", *read), several),
        st.builds(lambda read: spaces.predicate("missing", *read), several),
        st.builds(lambda read, value: spaces.predicate("schema", read, value), reference, schema),
        *([] if version == 1 else [comparisons()]),
    )

    def combine(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
        many = st.lists(parts, min_size=1, max_size=3)
        return st.one_of(
            many.map(lambda drawn: spaces.predicate("all", *drawn)),
            many.map(lambda drawn: spaces.predicate("any", *drawn)),
            parts.map(lambda drawn: spaces.predicate("not", drawn)),
        )

    return st.recursive(leaf, combine, max_leaves=4)


@cache
def comparisons() -> st.SearchStrategy[dict[str, Any]]:
    """A comparison of version 2, with a reference on one side or on both."""
    read = st.sampled_from([*REFERENCES, "$actor.kind", "$actor.roles"])
    wrapped = read.map(lambda text: {"ref": text})
    literal = st.sampled_from(LITERALS).map(lambda value: {"literal": value})
    op = st.sampled_from(["eq", "ne", "prefix", "lt", "le", "gt", "ge"])
    return st.one_of(
        st.builds(spaces.predicate, op, read, literal),
        st.builds(spaces.predicate, op | st.just("in"), literal, wrapped),
        st.builds(spaces.predicate, op | st.just("in"), read, wrapped),
    )


@cache
def constraints() -> st.SearchStrategy[str]:
    """The text of a constraint of either version that can be compiled."""
    tool = st.sampled_from(TOOL_IDS)
    subject = st.one_of(
        st.none(),
        tool.map(lambda name: {"tool_id": name}),
        st.sampled_from(NAMES).map(lambda name: {"capability": name}),
    )
    several = st.lists(tool | st.sampled_from(["*", "fs.*", "*.send"]), min_size=1, max_size=2)
    required = {"v": st.just(1), "effect": st.sampled_from(["allow", "allow", "allow", "deny"]), "subject": subject}
    optional = {
        "when": predicates(),
        "on_fail": st.sampled_from(["block", "ask", "defer"]),
        "reason": st.sampled_from(["because", ""]),
    }
    wider = {"v": st.just(2), "subject": subject | several.map(lambda names: {"tool_id": names})}
    more = {"when": predicates(2), "mode": st.sampled_from(["enforce", "enforce", "observe"])}
    first = st.fixed_dictionaries(required, optional=optional)
    second = st.fixed_dictionaries({**required, **wider}, optional={**optional, **more})
    return st.one_of(first, second).map(json.dumps)


@cache
def case_constraints() -> st.SearchStrategy[str]:
    """The text of a constraint that reads the case of a proposal."""
    literal, reference = st.sampled_from([*LITERALS, "h1", 2]), st.sampled_from(SECOND_REFERENCES)
    leaf = st.builds(lambda read, value: spaces.predicate("eq", read, value), reference, literal) | st.builds(
        spaces.predicate, st.sampled_from(["exists", "missing"]), reference
    )
    when = st.builds(
        lambda op, parts: spaces.predicate(op, *parts), st.sampled_from(["all", "any"]), st.lists(leaf, min_size=1)
    ) | leaf.map(lambda part: spaces.predicate("not", part))
    required = {
        "v": st.just(2),
        "effect": st.sampled_from(["allow", "deny"]),
        "subject": st.sampled_from([None, {"tool_id": TOOL_IDS[0]}, {"tool_id": TOOL_IDS[1]}]),
        "when": when,
    }
    return st.fixed_dictionaries(required, optional={"on_fail": st.sampled_from(["block", "ask", "defer"])}).map(
        json.dumps
    )


@cache
def invariants() -> st.SearchStrategy[str]:
    """The text of an invariant; of those that read a candidate, which none may, there are a few."""
    holding = st.sampled_from(KEYS).map(lambda key: spaces.predicate("not", spaces.predicate("eq", key, "dev")))
    return st.one_of(holding, holding, predicates()).map(json.dumps)


@cache
def policies() -> st.SearchStrategy[dict[str, str]]:
    """The pairs of a policy; now and then something in it is malformed."""
    text = _rarely(_rarely(constraints(), case_constraints(), 4), st.sampled_from(MALFORMED), 20)
    guards = st.dictionaries(st.sampled_from([f"constraint.{name}" for name in "abcd"]), text, max_size=4)
    rest = st.fixed_dictionaries(
        {},
        optional={
            "policy.exclusive.g": st.sampled_from(['["goal.a","goal.b"]'] * 4 + ["?"]),
            "policy.invariant.i": invariants(),
            "policy.degrade.fs.write": st.sampled_from(['{"mode":"slow"}', '{"tool_id":"email.send"}', "?"]),
        },
    )
    # Without one that permits, there is little else to see.
    permitting = st.just({"constraint.all": spaces.payload()})
    return st.builds(
        lambda *parts: {key: text for part in parts for key, text in part.items()},
        guards,
        rest,
        _rarely(permitting, st.just({}), 3),
    )


@cache
def calls() -> st.SearchStrategy[ToolCall]:
    """A call: three of four have what they need of a proposal."""
    args = st.sampled_from(PATHS).map(lambda path: msgspec.Raw(canonical.encode({"path": path})))
    keys = st.sampled_from([f"k{number}" for number in range(20)])
    good = st.builds(ToolCall, st.sampled_from(TOOL_IDS), args, st.sampled_from(["root", "child"]), keys)
    odd = st.builds(
        ToolCall,
        st.sampled_from([*TOOL_IDS, "gone"]),
        args,
        st.sampled_from(["root", None, "theirs", "none"]),
        keys | st.sampled_from(["k1", None]),
    )
    return _rarely(good, odd, 6)


@cache
def deltas() -> st.SearchStrategy[StateDelta]:
    """A delta: three of four are of goals."""
    goals, values = st.sampled_from(["goal.a", "goal.b", "goal.c", "goal.d"]), st.sampled_from(VALUES)
    anything = st.sampled_from(["goal.a", "fact.env", "policy.value.x", "elsewhere"])
    good = st.builds(StateDelta, st.dictionaries(goals, values, min_size=1, max_size=2)) | st.builds(
        StateDelta, st.just({}), st.lists(goals, min_size=1, max_size=2)
    )
    odd = st.builds(StateDelta, st.dictionaries(anything, values, max_size=2), st.lists(anything, max_size=1))
    return _rarely(good, odd, 6)


@cache
def candidates() -> st.SearchStrategy[list[Candidate]]:
    """Up to four candidates; rarely none."""
    either: st.SearchStrategy[Candidate] = calls() | deltas()
    return _rarely(st.lists(either, min_size=1, max_size=3), st.lists(either, max_size=4))


@cache
def actors() -> st.SearchStrategy[Actor]:
    """Mostly the agent that the tokens are of."""
    others = st.builds(Actor, st.sampled_from(ActorKind), st.sampled_from([spaces.AGENT.id, "other"]))
    return st.just(spaces.AGENT) | st.just(spaces.AGENT) | others


@cache
def scopes() -> st.SearchStrategy[Scope]:
    """A bound on the path of a call."""
    return st.builds(Scope, st.just("path"), st.sampled_from(ScopeMatch), st.sampled_from(["", "/data/", "x", *PATHS]))


@cache
def tokens() -> st.SearchStrategy[Capability]:
    """A token `root` of the agent."""
    bound = st.none() | st.integers(0, 2)
    return st.builds(
        Capability,
        st.just("root"),
        st.just(spaces.AGENT.id),
        st.sampled_from([*[TOOL_IDS] * 6, TOOL_IDS[:1], TOOL_IDS[1:]]).map(list),
        st.lists(st.sampled_from(NAMES), max_size=2),
        _rarely(st.just([]), st.lists(scopes(), max_size=1), 3),
        _rarely(st.just(Budget()), st.builds(Budget, bound, st.none(), bound), 3),
        st.sampled_from([*[None, spaces.LATER] * 4, spaces.EARLIER]),
    )


@cache
def proposals() -> st.SearchStrategy[Proposal]:
    """A proposal of the agent, on the current snapshot mostly."""
    seen = st.sampled_from([spaces.SNAPSHOT, spaces.SNAPSHOT, "snapshot-old"])
    snapshot = _rarely(seen, st.just("never"))
    return st.builds(
        lambda drawn, seen, atomic, case_id: spaces.proposal(*drawn, snapshot=seen, atomic=atomic, case_id=case_id),
        candidates(),
        snapshot,
        st.booleans(),
        st.sampled_from([msgspec.UNSET, *spaces.CASES, "gone"]),
    )


@cache
def any_spaces() -> st.SearchStrategy[Space]:
    """A space with any of these policies, states and tokens, enforcing or observing."""
    return st.builds(
        lambda pairs, state, root, mode, changed: spaces.space(
            pairs,
            state,
            tools=(spaces.tool(), spaces.tool("email.send", writes=False)),
            tokens=(
                root,
                _like(root, {"token_id": "child", "parent_id": "root", "capabilities": []}),
                _like(root, {"token_id": "theirs", "agent_id": "other"}),
            ),
            mode=mode,
            changed=Map(changed),
            cases=Map(spaces.CASES),
        ),
        policies(),
        states(),
        tokens(),
        st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.OBSERVE]),
        st.dictionaries(st.sampled_from(KEYS), st.sampled_from([5, 15])),
    )


def _like(root: Capability, fields: dict[str, Any]) -> Capability:
    return msgspec.structs.replace(root, **fields)


@cache
def facings() -> st.SearchStrategy[EvaluationContext]:
    """What predicates can see, of a call or of a delta."""
    paths, writes = st.sampled_from(PATHS), st.sampled_from((True, False, None))
    of_call = st.builds(lambda path, writes: ({"path": path}, "fs.write", None, writes), paths, writes)
    of_delta = deltas().map(lambda delta: ({"set": delta.set, "unset": delta.unset}, None))
    return st.builds(
        lambda state, belief, seen: EvaluationContext(state, belief, spaces.AGENT, *seen),
        states(),
        readings(),
        of_call | of_delta,
    )
