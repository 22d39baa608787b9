"""One decision in process: a call of one tool that one constraint permits, among many, beside the peers.

The peers decide the same: this agent may call this tool with this path. Each is used as fast as it goes: policies,
entities and requests parsed beforehand where it has a way to keep them. Only the whole of arbitration is timed of ours:
provenance, freshness, args against their schema, capability token, constraints, the decision with its trace.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from bench.harness import Effort, Result, at_least, at_most, interleaved, microseconds
from cmbs.substrate.kernel.arbitration.arbitrate import arbitrate
from cmbs.substrate.kernel.model import Proposal, Verdict
from cmbs.substrate.kernel.state import Space
from cmbs.testing.spaces import AGENT, NOW, call, payload, predicate, proposal, space, token, tool

NAME = "decisions"
SIZES = (10, 1_000, 10_000)
FEW, SOME, MANY = SIZES
PATH = "/data/x"
ARGS_SCHEMA = msgspec.Raw(
    b'{"additionalProperties":false,"properties":{"path":{"type":"string"}},"required":["path"],"type":"object"}'
)
# Many short rounds: what else the machine does then falls on all of them. Few calls of those that take milliseconds.
CALLS, SLOW_CALLS = 40, 3
ROUNDS_PER_EFFORT = 30

Decide = Callable[[], Any]


def run(effort: Effort) -> list[Result]:
    """Compare sizes with each other and with the peers in the same rounds."""
    subjects = {f"cmbs {size}": _rounds(_ours(size), CALLS) for size in SIZES}
    subjects["cedar one"] = _rounds(cedar_one_policy(), CALLS)
    subjects["cedar some"] = _rounds(cedar_many_policies(SOME), SLOW_CALLS)
    found = interleaved(subjects, effort.rounds * ROUNDS_PER_EFFORT)
    peers = {"casbin": casbin, "rego-cpp, a compiled bundle": rego}
    slow = {f"{peer} {size}": _rounds(begin(size), SLOW_CALLS) for peer, begin in peers.items() for size in SIZES}
    found |= interleaved(slow, effort.rounds)
    ours = found[f"cmbs {FEW}"]
    measured = f"a decision, one constraint of {FEW}: {microseconds(ours)}"
    return [
        Result(
            NAME,
            f"a decision, one constraint of {MANY:,}: {microseconds(found[f'cmbs {MANY}'])} "
            f"(of {SOME:,}: {microseconds(found[f'cmbs {SOME}'])})",
            f"one of {FEW}: {microseconds(ours)}",
            found[f"cmbs {MANY}"] / ours,
            at_most(1.5),
        ),
        Result(
            NAME,
            f"{measured}, speed-up",
            f"cedarpy, one policy and entities, all parsed beforehand: {microseconds(found['cedar one'])}",
            found["cedar one"] / ours,
            at_least(2),
        ),
        Result(
            NAME,
            f"a decision, one constraint of {SOME:,}: {microseconds(found[f'cmbs {SOME}'])}, speed-up",
            f"cedarpy, {SOME:,} policies parsed beforehand: {microseconds(found['cedar some'])}",
            found["cedar some"] / found[f"cmbs {SOME}"],
            at_least(50),
        ),
        *(
            Result(
                NAME,
                f"{measured}, speed-up",
                f"{peer}: {' / '.join(microseconds(found[f'{peer} {size}']) for size in SIZES)} "
                f"at {' / '.join(f'{size:,}' for size in SIZES)}",
                found[f"{peer} {FEW}"] / ours,
                at_least(5),
            )
            for peer in peers
        ),
    ]


def measure_beside_cedar(effort: Effort) -> float:
    """How many times faster a decision by one constraint of a few is than that of Cedar with one policy."""
    subjects = {"ours": _rounds(_ours(FEW), CALLS), "cedar": _rounds(cedar_one_policy(), CALLS)}
    found = interleaved(subjects, effort.rounds * ROUNDS_PER_EFFORT)
    return found["cedar"] / found["ours"]


def _rounds(decide: Decide, calls: int) -> Callable[[], float]:
    """The median time of a call, round by round."""
    decide()

    def measure() -> float:
        times = []
        for _ in range(calls):
            start = time.perf_counter()
            decide()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    return measure


def _ours(size: int) -> Decide:
    kept, asked = space_and_proposal(size)
    arbitration = arbitrate(kept, asked, AGENT, NOW, {})
    if arbitration.decision.verdict is not Verdict.ALLOW:
        raise AssertionError("the decision that is timed is not the one that is meant")
    return lambda: arbitrate(kept, asked, AGENT, NOW, {})


def space_and_proposal(size: int) -> tuple[Space, Proposal]:
    """A space with `size` constraints, each on a tool of its own, and a proposal to call one of the tools."""
    when = predicate("eq", "$args.path", PATH)
    pairs = {
        f"constraint.c{number}": payload(subject={"tool_id": f"tool.{number}"}, when=when) for number in range(size)
    }
    called = tool_called(size)
    kept = space(
        pairs,
        tools=(tool(called, args_schema=ARGS_SCHEMA),),
        tokens=(token(tool_ids=[called], capabilities=["files"]),),
    )
    return kept, proposal(call(called, {"path": PATH}))


def tool_called(size: int) -> str:
    """The tool that is called: in the middle, so that no scan finds it at the first or the last place."""
    return f"tool.{size // 2}"


# --- peers ------------------------------------------------------------------------------------------------------------

_AGENT = {"type": "Agent", "id": "agent-1"}


def _cedar_request(size: int) -> dict[str, Any]:
    return {
        "principal": _AGENT,
        "action": {"type": "Action", "id": "call"},
        "resource": {"type": "Tool", "id": tool_called(size)},
        # Text is faster than a dictionary, which cedarpy turns into text first.
        "context": json.dumps({"path": PATH}),
    }


def cedar_one_policy() -> Decide:
    """One policy; who may call which tool is said by entities."""
    import cedarpy

    policies = cedarpy.PolicySet.from_str(
        'permit(principal, action == Action::"call", resource)'
        f' when {{ principal in resource.callers && context.path == "{PATH}" }};'
    )
    entities: list[dict[str, Any]] = [
        entity
        for number in range(FEW)
        for entity in (
            {"uid": {"type": "Callers", "id": str(number)}, "attrs": {}, "parents": []},
            {
                "uid": {"type": "Tool", "id": f"tool.{number}"},
                "attrs": {"callers": {"__entity": {"type": "Callers", "id": str(number)}}},
                "parents": [],
            },
        )
    ]
    entities.append(
        {"uid": _AGENT, "attrs": {}, "parents": [{"type": "Callers", "id": str(FEW // 2)}]},
    )
    kept, asked = cedarpy.Entities.from_json_str(json.dumps(entities)), _cedar_request(FEW)
    return _require_allowed(lambda: cedarpy.is_authorized(asked, policies, kept), lambda answer: answer.allowed)


def cedar_many_policies(size: int) -> Decide:
    """One policy a tool."""
    import cedarpy

    policies = cedarpy.PolicySet.from_str(
        "\n".join(
            f'permit(principal, action == Action::"call", resource == Tool::"tool.{number}")'
            f' when {{ context.path == "{PATH}" }};'
            for number in range(size)
        )
    )
    no_entities, asked = cedarpy.Entities.from_json_str("[]"), _cedar_request(size)
    return _require_allowed(lambda: cedarpy.is_authorized(asked, policies, no_entities), lambda answer: answer.allowed)


def casbin(size: int) -> Decide:
    """Access control by lists: who, what, and the path."""
    import casbin as library

    model = library.Model()
    model.load_model_from_text(
        "[request_definition]\nr = sub, obj, path\n[policy_definition]\np = sub, obj, path\n"
        "[policy_effect]\ne = some(where (p.eft == allow))\n"
        "[matchers]\nm = r.sub == p.sub && r.obj == p.obj && r.path == p.path\n"
    )
    enforcer = library.Enforcer(model)
    for number in range(size):
        enforcer.add_policy("agent-1", f"tool.{number}", PATH)
    return _require_allowed(lambda: enforcer.enforce("agent-1", tool_called(size), PATH), bool)


def rego(size: int) -> Decide:
    """A rule that looks the tool up in data."""
    import regopy

    interpreter = regopy.Interpreter()
    interpreter.add_module(
        "policy", "package policy\nimport rego.v1\nallow if { data.paths[input.tool] == input.path }"
    )
    interpreter.add_data({"paths": {f"tool.{number}": PATH for number in range(size)}})
    bundle = interpreter.build("data.policy.allow")
    asked = json.dumps({"tool": tool_called(size), "path": PATH})

    def decide() -> Any:
        interpreter.set_input_term(asked)
        return interpreter.query_bundle(bundle)

    return _require_allowed(decide, lambda answer: str(answer) == '{"expressions":[true]}')


def _require_allowed(decide: Decide, is_allowed: Callable[[Any], bool]) -> Decide:
    if not is_allowed(decide()):
        raise AssertionError("the peer decides something else")
    return decide
