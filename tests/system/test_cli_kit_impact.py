"""`cmbs kit impact`: what it prints, and the three exit codes that scripts rely on."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from cmbs.adapters.kits import load_kit
from cmbs.belief.server import BeliefServer
from cmbs.kit.provider import KitProvider, ontology_of
from cmbs.stores import open_store
from cmbs.substrate.belief_source import ServedBelief
from cmbs.testing import ManualClock, SequentialIds
from tests.support.cli import invoke
from tests.support.policies import allow, eq
from tests.support.spaces import SPACE, World, call, caller_tool

OLD = """\
id: coins
version: "1"
soundness: sound
hypotheses: [heads, tails, edge]
probes:
  - id: toss
    outcomes: [{id: heads, keeps: [heads]}, {id: other, eliminates: [heads]}]
"""
run = partial(invoke, "kit", "impact")


@pytest.fixture(autouse=True)
def session_id(place: Path) -> str:
    """A session of the old kit that one toss settles, and a space with an action that is gated on it."""
    (place / "old.yaml").write_text(OLD, "utf-8")
    (place / "same.yaml").write_text(OLD.replace('"1"', '"2"'), "utf-8")
    weaker = OLD.replace('"1"', '"2"').replace("keeps: [heads]", "eliminates: [tails]")
    (place / "weaker.yaml").write_text(weaker, "utf-8")
    (place / "without.yaml").write_text(weaker.replace("id: toss", "id: spin").replace("edge]", "rim]"), "utf-8")
    (place / "wrong.yaml").write_text(OLD.replace("keeps: [heads]", "eliminates: [tails]"), "utf-8")
    (place / "other.yaml").write_text(OLD.replace("coins", "dice"), "utf-8")
    store, clock = open_store("sqlite:///cmbs.db"), ManualClock()
    provider = KitProvider(load_kit(place / "old.yaml"))
    belief = BeliefServer(store=store, clock=clock, ids=SequentialIds(7), belief_provider=provider)
    session_id, _ = belief.declare_session(ontology_of(provider.kit), None)
    free = BeliefServer(store=store, clock=clock, ids=SequentialIds(8))
    free.declare_session(ontology_of(provider.kit), ["x"])
    world = World(store, belief=ServedBelief(belief), clock=clock)
    gate = allow("one", eq(f"$belief.{session_id}.n_survivors", 1), on_fail="defer")
    world.open(caller_tool("one", writes=False), policy={"constraint.one": json.dumps(gate)})
    belief.apply_probe(session_id, "toss", "heads")
    world.propose(call("one", key=None), proposal_id="p")
    world.close()
    belief.close()
    store.close()
    return session_id


@pytest.mark.req("KIT-IMPACT")
def test_a_kit_that_changes_nothing_ends_with_0() -> None:
    ran = run("old.yaml", "same.yaml")
    assert (ran.exit_code, ran.stdout) == (0, "coins 1 → 2: 1 session, 0 otherwise\n")


@pytest.mark.req("KIT-IMPACT")
def test_eliminations_gates_and_actions_that_would_be_otherwise_end_with_1(session_id: str) -> None:
    ran = run("old.yaml", "weaker.yaml")
    assert ran.exit_code == 1
    assert ran.stdout.splitlines() == [
        f"{session_id}: 1 of 1 elimination otherwise; 1 → 2 survivors",
        "    seq 1  toss: no longer edge",
        f"space {SPACE}:",
        "allow→defer  seq 3  p  by agent:agent  ALLOWED → ALLOW_UNMET",
        "    would no longer call one",
        "1 decision, 1 flip: 1 allow→defer",
        "coins 1 → 2: 1 session, 1 otherwise",
    ]
    told = json.loads(run("old.yaml", "weaker.yaml", "--space", SPACE, "--json").stdout)
    assert told["sessions"][0]["changes"][0]["no_longer"] == ["edge"]
    assert told["spaces"][0]["flips"][0]["touched"]["tool_ids"] == ["one"]


@pytest.mark.req("KIT-IMPACT")
def test_a_probe_or_hypothesis_that_is_gone_is_named(session_id: str) -> None:
    ran = run("old.yaml", "without.yaml")
    assert ran.exit_code == 1
    first, second, *_ = ran.stdout.splitlines()
    assert first.endswith("1 → 3 survivors; more hypotheses: rim; fewer hypotheses: edge")
    assert second.startswith("    seq 1  toss: refused: ")
    also = run("old.yaml", "weaker.yaml").stdout
    assert "also" not in also


@pytest.mark.req("KIT-IMPACT")
def test_what_could_not_be_done_ends_with_2(subtests: pytest.Subtests) -> None:
    for arguments, message in [
        (["old.yaml", "nothing.yaml"], "nothing.yaml"),
        (["old.yaml", "other.yaml"], "`coins` and `dice` are two kits, not versions of one"),
        (["old.yaml", "same.yaml", "--store", "sqlite:///absent.db"], "there is no store"),
        (["old.yaml", "same.yaml", "--space", "nowhere"], "nowhere"),
    ]:
        with subtests.test(arguments=arguments, message=message):
            ran = run(*arguments)
            assert ran.exit_code == 2
            assert message in ran.stderr


@pytest.mark.req("KIT-IMPACT")
def test_what_the_old_kit_does_not_explain_ends_with_2(session_id: str) -> None:
    ran = run("wrong.yaml", "same.yaml")
    assert ran.exit_code == 2
    assert f"{session_id}: the old kit does not explain what seq 1 eliminated\n" in ran.stdout
    assert "unknown  seq 3  p: what session" in ran.stderr


@pytest.mark.req("KIT-IMPACT")
def test_what_a_kit_eliminates_beside_is_told(place: Path) -> None:
    more = OLD.replace('"1"', '"2"').replace("eliminates: [heads]", "eliminates: [tails]")
    more = more.replace("keeps: [heads]", "eliminates: [heads, edge]")
    (place / "more.yaml").write_text(more, "utf-8")
    assert "    seq 1  toss: no longer tails; also heads\n" in run("old.yaml", "more.yaml").stdout


@pytest.mark.req("KIT-IMPACT")
def test_sessions_over_a_kit_on_record_are_looked_at(place: Path) -> None:
    assert invoke("kit", "put", "weaker.yaml").exit_code == 0
    store = open_store("sqlite:///cmbs.db")
    belief = BeliefServer(store=store)
    session_id = belief.declare_session(kit="coins").session_id
    belief.apply_probe(session_id, "toss", "heads")
    belief.close()
    store.close()
    ran = run("weaker.yaml", "without.yaml")
    assert ran.exit_code == 1
    assert ran.stdout.startswith(f"{session_id}: 1 of 1 elimination otherwise")
    # The same content in other bytes is not the one that the session names.
    (place / "rewritten.yaml").write_text("# rewritten\n" + (place / "weaker.yaml").read_text("utf-8"), "utf-8")
    ran = run("rewritten.yaml", "without.yaml")
    assert ran.exit_code == 2
    assert "1 session not looked at: declared from another content of coins 2" in ran.stdout
    assert "no session was looked at" in ran.stdout


@pytest.mark.req("KIT-IMPACT")
def test_where_no_session_is_of_the_kit_that_is_said() -> None:
    ran = run("other.yaml", "other.yaml")
    assert ran.exit_code == 0
    assert "no session was looked at: none was declared from this content of dice\n" in ran.stdout
