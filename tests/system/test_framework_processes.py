"""An agent and its server as processes that end: the one in the middle of a call, the other of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cmbs.client import connect
from tests.support.agent_frameworks import SPACE, World, set_up
from tests.support.http_server import serving

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 120


def run_agent(module: str, server: str, case_id: str, directory: Path, what: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", f"tests.support.{module}", server, case_id, str(directory), what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    return done.returncode, done.stdout.splitlines() if done.returncode in (0, 9) else [done.stderr]


@pytest.mark.req("FRAME-06")
@pytest.mark.parametrize(
    "module",
    [
        "framework_agent",
        pytest.param("framework_agent_openai", marks=pytest.mark.deep),
        pytest.param("framework_agent_pydantic", marks=pytest.mark.deep),
    ],
)
def test_a_run_goes_on_after_agent_and_server_were_ended_and_no_call_runs_twice(module: str, tmp_path: Path) -> None:
    with serving(tmp_path, "--store", "sqlite:///cmbs.db") as server:
        with connect(server.url, actor="operator:ops") as operator, connect(server.url, actor="agent:planner") as agent:
            set_up(operator)
            case_id = str(World(server.url, operator, agent).open_case().case_id)
        assert run_agent(module, server.url, case_id, tmp_path, "start") == (0, ["waits"])
        server.kill()
    with serving(tmp_path, "--store", "sqlite:///cmbs.db") as server:
        with connect(server.url, actor="operator:ops") as operator:
            (asked,) = operator.each(operator.list_approvals, SPACE, status="pending")
            assert operator.approve(SPACE, asked.approval_id).step.granted
        # The first call runs. The process ends in the middle of the second.
        assert run_agent(module, server.url, case_id, tmp_path, "resume")[0] == 9
        code, told = run_agent(module, server.url, case_id, tmp_path, "resume")
        # The model makes the second call once more: it is unknown still.
        assert (code, [each.partition(":")[0] for each in told]) == (0, ["web is up", "Unknown", "Unknown", "finished"])
        with connect(server.url, actor="operator:ops") as operator:
            outcomes = {each.status for each in operator.each(operator.list_executions, SPACE)}
    assert (tmp_path / "ran.txt").read_text("utf-8").split() == ["web", "cache"]
    assert outcomes == {"succeeded", "running"}
