"""`cmbs diff`, `cmbs fork` and `cmbs sources`, and what `cmbs verify` says of a fork."""

from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.stores import SQLiteStore
from tests.support.cli import invoke
from tests.support.spaces import ANY, World, delta
from tests.support.store_fixture import NO_SUCH_SESSION, declared


@pytest.fixture
def session_id(place: Path) -> str:
    server = BeliefServer(store=SQLiteStore(place / "cmbs.db"))
    opened = declared(server)
    server.eliminate(opened, "logs", "o1", ["a"])
    server.eliminate(opened, "metrics", "o1", ["a", "b"])
    server.declare_conclusion(opened, "b")
    server.close()
    return opened


def test_a_difference_is_printed_with_its_counts(session_id: str) -> None:
    ran = invoke("diff", session_id, "0")
    assert ran.exit_code == 0
    assert ran.stdout.splitlines() == [
        "4 survivors after event 0",
        "     1 eliminated a by logs, o1",
        "     2 eliminated b by metrics, o1",
        "     3 concluded b",
        "2 survivors after event 3",
        "2 eliminated, 0 obligation entered, 0 obligation exited, 1 concluded, 0 terminated, 0 refused",
    ]
    cut = invoke("diff", session_id, "0", "3", "--limit", "1")
    assert (len(cut.stdout.splitlines()), cut.stderr) == (4, "not all changes are shown; `--limit` shows more\n")
    assert invoke("diff", NO_SUCH_SESSION, "0").exit_code == 1
    assert invoke("diff", session_id, "9").exit_code == 1


def test_a_difference_of_a_space_is_printed_too(place: Path) -> None:
    world = World(SQLiteStore(place / "cmbs.db"))
    world.open(policy={"constraint.any": ANY})
    world.propose(delta(a="1"), proposal_id="p")
    world.propose(delta(a="2"), proposal_id="q")
    world.propose(delta(["goal.a"]), proposal_id="r")
    last = world.space.head.seq
    world.close()
    ran = invoke("diff", "space:s", str(last - 2), str(last - 1))
    assert ran.stdout.splitlines() == [
        f"{last - 1:>6} fact goal.a: 1 -> 2",
        f"{last - 1:>6} proposal q: committed",
        "2 changes, 0 refused",
    ]
    ran = invoke("diff", "space:s", str(last - 1), "--limit", "1")
    assert ran.stdout.splitlines() == [f"{last:>6} fact goal.a: 2 -> gone", "2 changes, 0 refused"]
    assert "not all changes" in ran.stderr


@pytest.mark.req("FORK-03")
def test_a_fork_is_made_and_verify_says_where_it_comes_from(session_id: str, tmp_path: Path) -> None:
    ran = invoke("fork", session_id, "--at", "1")
    assert (ran.exit_code, ran.stderr) == (0, f"forked from event 1 of {session_id}, 3 survivors\n")
    forked = ran.stdout.strip()
    verified = invoke("verify", forked)
    assert verified.exit_code == 0
    assert f"2 events, 3 of 4 survive, forked from event 1 of {session_id}, head " in verified.stdout
    file = str(tmp_path / "export.jsonl")
    assert invoke("export", file, "--session", forked).exit_code == 0
    assert invoke("import", file, "--store", "sqlite:///other.db").exit_code == 0
    elsewhere = invoke("verify", "--store", "sqlite:///other.db")
    assert (elsewhere.exit_code, "which is not in this store" in elsewhere.stdout) == (0, True)


def test_sources_are_printed_as_a_table(session_id: str) -> None:
    ran = invoke("sources", session_id)
    assert ran.exit_code == 0
    for words in ("logs", "metrics", "logs and metrics: both listed 1, 50% of either's"):
        assert words in ran.stdout
    assert invoke("sources", NO_SUCH_SESSION).exit_code == 1
