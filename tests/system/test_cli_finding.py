"""`cmbs sessions`, `cmbs inbox`, and lists of cases and proposals: what an operator looks for at the store itself."""

import json
from pathlib import Path

import pytest

from cmbs.adapters.sre.webshop import closed_kit
from cmbs.belief.server import BeliefServer
from cmbs.kit.writing import format_kit
from cmbs.stores import SQLiteStore
from cmbs.substrate.belief_source import ServedBelief
from tests.support.cases import CAUSES, GATE, ONTOLOGY
from tests.support.cli import invoke
from tests.support.spaces import World, call, caller_tool
from tests.support.store_fixture import declared

LONG_AGO = "2001-01-01T00:00:00Z"


@pytest.mark.req("FIND-SESSIONS-01", "FIND-TITLE-01")
def test_sessions_are_listed_by_what_they_are(place: Path) -> None:
    server = BeliefServer(store=SQLiteStore(place / "cmbs.db"))
    first = declared(server, title="Slow checkout", labels={"team": "payments"})
    second = declared(server)
    server.eliminate(second, "s", "1", list("abcd"))
    server.close()
    listed = invoke("sessions", "--newest")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [second, first]
    assert listed.stderr == "2 sessions\n"
    assert listed.stdout.splitlines()[1].endswith("Slow checkout  team:payments")
    limited = invoke("sessions", "--limit", "1")
    assert (limited.stdout.split()[0], limited.stderr) == (first, "1 session\nthere are more; `--limit` shows more\n")
    (line,) = invoke("sessions", "--state", "contradiction", "--source", "s", "--json").stdout.splitlines()
    assert (json.loads(line)["session_id"], json.loads(line)["trail"]) == (second, [[0, 4], [1, 0]])
    assert invoke("sessions", "--label", "team:payments", "--text", "slow").stdout.split()[0] == first
    assert invoke("sessions", "--agent", "x", "--kit", "y", "--since", LONG_AGO).stderr == "0 sessions\n"
    assert "name:value" in invoke("sessions", "--label", "team").stderr
    assert "`until` must be a moment" in invoke("sessions", "--until", "now").stderr


@pytest.mark.req("FIND-RECORDS-01", "FIND-INBOX-01")
def test_cases_proposals_and_what_waits_are_listed(place: Path) -> None:
    world = World(SQLiteStore(place / "cmbs.db"))
    world.open(caller_tool("restart"), policy=GATE)
    world.close()
    (place / "kit.json").write_text(format_kit(closed_kit(), "kit.json"), "utf-8")
    assert invoke("kit", "put", "kit.json").exit_code == 0
    other = BeliefServer(store=SQLiteStore(place / "cmbs.db")).declare_session(ONTOLOGY, CAUSES).session_id
    sessions = [other, invoke("declare", closed_kit().kit_id).stdout.strip()]
    for number, team in enumerate(("payments", "search")):
        assert invoke("case", "rename", sessions[number], f"INC-{number}").exit_code == 0
        names = ("--agent", "agent", "--space", "s", "--title", f"Case {number}", "--label", f"team:{team}")
        opened = invoke("case", "open", f"INC-{number}", *names)
        assert opened.exit_code == 0, opened.stderr
    store = SQLiteStore(place / "cmbs.db")
    world = World(store, space=1, belief=ServedBelief(BeliefServer(store=store)))
    for number in range(2):
        world.propose(call("restart"), proposal_id=f"p-{number}", case_id=sessions[number])
    world.close()
    listed = invoke("case", "list", "--space", "s", "--newest")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["INC-1", "INC-0"]
    assert listed.stdout.splitlines()[0].endswith("Case 1")
    found = invoke("case", "list", "--space", "s", "--label", "team:payments", "--since", LONG_AGO, "--json")
    assert [(case["name"], case["labels"]) for case in map(json.loads, found.stdout.splitlines())] == [
        ("INC-0", {"team": "payments"})
    ]
    assert invoke("case", "list", "--space", "s", "--until", LONG_AGO).stderr == "0 cases\n"
    of_space = ("space", "proposals", "--space", "s")
    of_kit = ("--kit", closed_kit().kit_id)
    assert invoke("case", "list", "--space", "s", *of_kit).stdout.split()[0] == "INC-1"
    assert invoke(*of_space, *of_kit).stdout.split()[0] == "p-1"
    assert invoke(*of_space, "--kit", "other").stderr == "0 proposals\n"
    proposals = invoke(*of_space, "--newest", "--tool", "restart", "--agent", "agent")
    assert [line.split()[0] for line in proposals.stdout.splitlines()] == ["p-1", "p-0"]
    one = invoke(*of_space, "--label", "team:search", "--json", "--since", LONG_AGO)
    assert json.loads(one.stdout)["proposal_id"] == "p-1"
    assert invoke(*of_space, "--until", LONG_AGO).stderr == "0 proposals\n"
    assert invoke(*of_space, "--limit", "1").stderr == "1 proposal\n"
    assert invoke("inbox").stderr == "0 things wait\n"
