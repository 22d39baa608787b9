"""The example with two incidents, alone and against a Tee that listens."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.tee import listening

# The example is a program: each test starts a process that imports everything.
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "two_incidents.py"


def run_example(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.req("TEE-ANCHOR-01", "TEE-SESSION-01")
def test_two_incidents_see_the_graph_as_it_was_when_each_began(tmp_path: Path) -> None:
    nodes = [{"id": f"n{number}", "type": "SERVICE", "provenance": ["cmdb"]} for number in range(10)]
    edges = [
        {"source": "n0", "target": f"n{number}", "type": "DEPENDS_ON", "provenance": ["cmdb"]}
        for number in range(1, 10)
    ]
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps({"nodes": nodes, "edges": edges}), "utf-8")
    with listening(MemoryGraphStore()) as port:
        # Twice: the second time the graph is already there, and has grown.
        for size in (10, 11):
            ran = run_example(graph, f"127.0.0.1:{port}")
            assert ran.returncode == 0, ran.stdout + ran.stderr
            assert f"{size} hypotheses" in ran.stdout
            assert ran.stdout.endswith("both are right\n")


@pytest.mark.req("TEE-ANCHOR-01", "TEE-SESSION-01")
def test_the_example_runs_with_nothing_but_itself() -> None:
    ran = run_example()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.endswith("both are right\n")
    assert run_example("one", "two", "three").returncode == 1
