"""Plays cases: the part of a golden log in which proposals are joined to a session."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError
from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.substrate.kernel.events import CloseCase, OpenCase, SpaceMessage
from tests.support.spaces import AGENT, OTHER_AGENT, ROOT, World, call, change_policy, constraint, raw

ONTOLOGY = OntologyBundle("checkout-latency", "3", "graph://checkout", "v17")
PROBE = Actor(ActorKind.TOOL, "probe \U0001f600", authenticated=True)


def _say(world: World, message: SpaceMessage, actor: Actor) -> None:
    with suppress(BeliefServerError):
        world.say(message, actor)


def act_in_cases(world: World, belief: BeliefServer) -> None:
    """Cases opened, acted under and closed, by those who may and by those who may not."""
    attributes: dict[str, dict[str, Any]] = {
        "bad-deploy": {"component": "checkout", "\U0001f600": 1.5},
        "dns": {"component": "dns"},
    }
    session_id = belief.declare_session(
        ONTOLOGY,
        list(attributes),
        hypothesis_attributes=attributes,
        owner="ann \U0001f600",
        severity="high",
        agents=[AGENT.id, OTHER_AGENT.id],
        name="INC-1042",
    ).session_id
    elsewhere = belief.declare_session(ONTOLOGY, ["a", "b"], name="INC-1043").session_id
    belief.names.rename(elsewhere, "INC-1044", ROOT)
    belief.names.release(elsewhere, ROOT)
    belief.update_case(elsewhere, {"title": "a", "labels": {}, "owner": "ben", "severity": None, "agents": []})
    known = {"op": "eq", "args": ["$case.belief.survivor.component", "checkout"]}
    witnessed = {"op": "eq", "args": ["$case.belief.independent.n_survivors", 1]}
    deployed = {"op": "exists", "args": ["$case.attributes.\U0001f600", "$case.id"]}
    gate = constraint(
        v=2,
        effect="deny",
        subject={"tool_id": "ship"},
        on_fail="defer",
        when={"op": "not", "args": [{"op": "all", "args": [known, witnessed, deployed]}]},
    )
    change_policy(world, {"constraint.case": gate}, ["constraint.wait"])
    harness = Actor(ActorKind.ENCODER, "harness", authenticated=True, scopes=("spaces:cases",))
    opened = OpenCase(session_id, [AGENT.id], raw({"\U0001f600": True, "\uffee": [1.5]}))
    for step, actor in (
        (opened, AGENT),
        (opened, harness),
        (opened, ROOT),
        (msgspec.structs.replace(opened, agents=[OTHER_AGENT.id]), ROOT),
        (OpenCase("another", [OTHER_AGENT.id]), ROOT),
    ):
        _say(world, step, actor)
    for number, case_id in enumerate((opened.case_id, elsewhere, opened.case_id)):
        world.propose(call("ship", key=f"case {number}"), proposal_id=f"case {number}", case_id=case_id)
    world.propose(call("ship", key="no case"), proposal_id="no case")
    message = belief.requests.eliminate("monitor", "1", ["dns"], None)
    belief._sessions.perform(belief.requests.command(session_id, message, actor=PROBE))
    world.server.keep()
    for execution_id, each in sorted(world.space.executions.items()):
        if each.status == "running":
            world.report(execution_id)
    world.propose(call("pay", {"amount": 9}, key="case pay"), proposal_id="case pay", case_id=opened.case_id)
    for ending, actor in (
        (CloseCase(opened.case_id), AGENT),
        (CloseCase(opened.case_id, "solved"), harness),
        (CloseCase(opened.case_id, "solved"), ROOT),
        (opened, ROOT),
        (CloseCase(opened.case_id, "solved again"), ROOT),
        (CloseCase("never"), ROOT),
    ):
        _say(world, ending, actor)
