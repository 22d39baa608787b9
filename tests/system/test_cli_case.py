"""`cmbs case …`: what an operator does at the store itself."""

import json
from pathlib import Path

import pytest

from cmbs.stores import SQLiteStore
from tests.support.cases import GATE
from tests.support.cli import invoke
from tests.support.spaces import World, call, caller_tool

OPENED = ("case", "open", "INC-1", "--session", "s-1", "--agent", "b", "--agent", "agent", "--space", "s")


@pytest.fixture
def space(place: Path) -> Path:
    world = World(SQLiteStore(place / "cmbs.db"))
    world.open(caller_tool("restart"), policy=GATE)
    world.close()
    return place


@pytest.mark.req("CASE-CLI-01")
@pytest.mark.usefixtures("space")
def test_cases_are_opened_listed_shown_and_closed() -> None:
    ran = invoke(*OPENED, "--attributes", '{"tier": 1}', "--by", "ops")
    assert (ran.exit_code, ran.stderr) == (0, "case INC-1 is open for session s-1\n")
    again = invoke(*OPENED, "--attributes", '{"tier": 1}')
    assert again.stderr == "case INC-1 is open for session s-1, as it was before\n"
    assert invoke(*OPENED).exit_code == 1
    listed = invoke("case", "list", "--space", "s")
    assert listed.stdout.startswith("INC-1  open    session s-1  agents agent, b  ")
    assert listed.stderr == "1 case\n"
    closed = invoke("case", "close", "INC-1", "--reason", "solved", "--space", "s", "--by", "lead")
    assert (closed.exit_code, closed.stderr) == (0, "case INC-1 is closed; 0 proposals waited under it\n")
    assert invoke("case", "list", "--status", "open", "--space", "s", "--json").stdout == ""
    [line] = invoke("case", "list", "--status", "closed", "--space", "s", "--json").stdout.splitlines()
    case = json.loads(line)
    assert (case["opened_by"], case["closed_by"], case["reason"]) == ("ops", "lead", "solved")
    assert (case["agents"], case["attributes"]) == (["agent", "b"], {"tier": 1})
    shown = json.loads(invoke("case", "show", "INC-1", "--space", "s").stdout)
    assert shown == {**case, "proposals": {}}


@pytest.mark.req("CASE-CLI-01")
def test_a_case_is_shown_with_its_proposals_and_closing_it_withdraws_them(space: Path) -> None:
    invoke(*OPENED)
    world = World(SQLiteStore(space / "cmbs.db"), space=1)
    world.propose(call("restart"), proposal_id="p", case_id="INC-1")
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
    assert "Missing option" in invoke("case", "open", "INC-1", "--session", "s").stderr
