"""`cmbs case …`: what an operator does at the store itself."""

import json
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.stores import SQLiteStore
from cmbs.substrate.belief_source import ServedBelief
from tests.support.cases import CAUSES, GATE, ONTOLOGY, NamedIds
from tests.support.cli import invoke
from tests.support.spaces import World, call, caller_tool

OPENED = ("case", "open", "INC-1", "--agent", "b", "--agent", "agent", "--space", "s")


@pytest.fixture
def space(place: Path) -> Path:
    store = SQLiteStore(place / "cmbs.db")
    BeliefServer(store=store, ids=_ids()).declare_session(ONTOLOGY, CAUSES, name="INC-1", owner="ann")
    world = World(store)
    world.open(caller_tool("restart"), policy=GATE)
    world.close()
    return place


def _ids() -> NamedIds:
    ids = NamedIds()
    ids.next_id = "s-1"
    return ids


@pytest.mark.req("CASE-CLI-01")
@pytest.mark.usefixtures("space")
def test_cases_are_opened_listed_shown_and_closed() -> None:
    ran = invoke(*OPENED, "--attributes", '{"tier": 1}', "--by", "ops")
    assert (ran.exit_code, ran.stderr) == (0, "case INC-1 is open in space s\n")
    again = invoke(*OPENED, "--attributes", '{"tier": 1}')
    assert again.stderr == "case INC-1 is open in space s, as it was before\n"
    assert invoke(*OPENED).exit_code == 1
    listed = invoke("case", "list", "--space", "s")
    assert listed.stdout.startswith("INC-1 (s-1)  open    agents agent, b  ")
    assert listed.stderr == "1 case\n"
    closed = invoke("case", "close", "INC-1", "--reason", "solved", "--space", "s", "--by", "lead")
    assert (closed.exit_code, closed.stderr) == (0, "case INC-1 is closed; 0 proposals waited under it\n")
    assert invoke("case", "list", "--status", "open", "--space", "s", "--json").stdout == ""
    [line] = invoke("case", "list", "--status", "closed", "--space", "s", "--json").stdout.splitlines()
    case = json.loads(line)
    assert (case["opened_by"], case["closed_by"], case["reason"]) == ("ops", "lead", "solved")
    assert (case["agents"], case["attributes"]) == (["agent", "b"], {"tier": 1})
    shown = json.loads(invoke("case", "show", "INC-1", "--space", "s").stdout)
    assert shown == {**case, "owner": "ann", "severity": None, "case_agents": None, "proposals": {}}
    assert invoke(*OPENED).stderr == "case INC-1 is open in space s\n"


@pytest.mark.req("CASE-CLI-01", "CASE-NAME-02", "CASE-FIELDS-02")
@pytest.mark.usefixtures("space")
def test_a_case_is_changed_and_renamed() -> None:
    changed = invoke(
        "case", "update", "INC-1", "--severity", "high", "--owner", "", "--label", "a:b", "--agent", "agent"
    )
    assert (changed.exit_code, changed.stderr) == (0, "case INC-1 is changed\n")
    assert invoke("case", "update", "INC-1", "--title", "Slow").exit_code == 0
    assert invoke("case", "open", "INC-1", "--space", "s").exit_code == 0
    shown = json.loads(invoke("case", "show", "s-1", "--space", "s").stdout)
    assert [shown[name] for name in ("name", "owner", "severity", "case_agents")] == ["INC-1", None, "high", ["agent"]]
    assert invoke("case", "rename", "INC-1", "INC-2").stderr == "case s-1 is named INC-2\n"
    assert "INC-1" in invoke("case", "rename", "INC-1", "INC-3").stderr
    assert invoke("case", "rename", "inc-2").stderr == "case s-1 has no name\n"
    assert "INC-2" in invoke("case", "show", "INC-2", "--space", "s").stderr


@pytest.mark.req("CASE-CLI-01")
def test_a_case_is_shown_with_its_proposals_and_closing_it_withdraws_them(space: Path) -> None:
    invoke(*OPENED)
    store = SQLiteStore(space / "cmbs.db")
    world = World(store, space=1, belief=ServedBelief(BeliefServer(store=store)))
    world.propose(call("restart"), proposal_id="p", case_id="s-1")
    world.close()
    assert json.loads(invoke("case", "show", "INC-1", "--space", "s").stdout)["proposals"] == {"p": "parked"}
    assert invoke("case", "close", "INC-1", "--space", "s").stderr.endswith("1 proposal waited under it\n")
    assert json.loads(invoke("case", "show", "INC-1", "--space", "s").stdout)["proposals"] == {"p": "withdrawn"}


@pytest.mark.usefixtures("space")
def test_what_cannot_be_done_is_said() -> None:
    for arguments, message in (
        (("case", "show", "INC-9", "--space", "s"), "INC-9"),
        (("case", "close", "INC-9", "--space", "s"), "INC-9"),
        (("case", "list", "--space", "nowhere"), "nowhere"),
        (("case", "list", "--store", "memory:"), "name a store that servers share"),
        ((*OPENED, "--attributes", "[1]"), "must be an object"),
        ((*OPENED, "--attributes", "{"), "JSON"),
    ):
        ran = invoke(*arguments)
        assert ran.exit_code != 0
        assert message in ran.stderr
    assert "lists no agents" in invoke("case", "open", "INC-1", "--space", "s").stderr
    assert "say what is to change" in invoke("case", "update", "INC-1").stderr
