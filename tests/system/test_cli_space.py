"""`cmbs space`: what waits is listed and withdrawn, and governance is set, on the store itself."""

from contextlib import closing
from pathlib import Path

import pytest

from cmbs.stores import open_store
from cmbs.substrate.kernel.words import ProposalStatus
from tests.support.cli import invoke
from tests.support.http_server import run_cmbs
from tests.support.spaces import ANY, ASKING, SPACE, World, call, constraint, http_tool, status

WAITING = constraint(
    effect="deny", subject={"tool_id": "w"}, on_fail="defer", when={"op": "missing", "args": ["fact.go"]}
)


@pytest.mark.slow
@pytest.mark.req("GATES-WITHDRAW-01", "GATES-GOVERN-02")
def test_what_waits_is_listed_and_withdrawn_and_governance_takes_two_to_go_down(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cmbs.db'}"

    def run(*arguments: str) -> tuple[int, str, str]:
        ran = run_cmbs("space", *arguments, "--space", SPACE, "--store", url, directory=tmp_path)
        return ran.returncode, ran.stdout, ran.stderr

    with closing(open_store(url)) as store, closing(World(store)) as world:
        world.open(
            http_tool("t"),
            http_tool("w"),
            policy={"constraint.any": ANY, "constraint.ask": ASKING, "constraint.wait": WAITING},
        )
        world.propose(call("w"), proposal_id="p")
        world.propose(call("t"), proposal_id="q")
        listed = "p  parked   agent  waits for fact.go\nq  asked    agent  waits for an approval\n"
        assert run("waiting") == (0, listed, "2 proposals\n")
        assert run("withdraw", "p", "--reason", "over") == (0, "", "proposal p is withdrawn\n")
        assert run("withdraw", "p") == (0, "", "proposal p is withdrawn, as it was before\n")
        assert status(world.space, "p") is ProposalStatus.WITHDRAWN
        code, _, said = run("withdraw", "unknown")
        assert (code, "unknown" in said) == (2, True)
        asked = "a change of policy takes 2 operators; another operator has to say the same\n"
        assert run("governance", "1") == (0, "", asked)
        assert run("governance", "1", "--by", "second") == (0, "", "a change of policy takes 1 operator\n")
        assert world.space.operators_needed == 1


def test_a_store_in_memory_is_none_that_a_command_can_use() -> None:
    ran = invoke("space", "waiting", "--store", "memory:")
    assert (ran.exit_code, "lives in one process" in ran.stderr) == (2, True)
