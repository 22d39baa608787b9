"""What the README says that the server is worth is what the command prints, and windows keep the truth over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.check_docs import ROOT
from tests.support.cli import invoke
from tests.support.http_server import serving

pytestmark = pytest.mark.slow

COMMAND = "cmbs bench agents --forget 0.2"


@pytest.mark.deep
@pytest.mark.req("WORTH-03")
def test_the_table_in_the_readme_is_what_the_command_prints() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    result = invoke(*COMMAND.split()[1:])
    assert result.exit_code == 0, result.output
    assert COMMAND in readme
    assert result.stdout.strip() in readme


@pytest.mark.req("WORTH-03", "WORTH-04")
def test_agents_that_forget_can_be_had_as_json_over_a_sample_of_one_kit() -> None:
    arguments = ["bench", "agents", "webshop-closed", "--forget", "0.5", "--sample", "2", "--json"]
    found = json.loads(invoke(*arguments).stdout)
    assert [(row["kit_id"], row["memory"], row["games"]) for row in found] == [
        ("webshop-closed", "alone", 2),
        ("webshop-closed", "with the server", 2),
    ]
    missing = invoke("bench", "agents")
    assert missing.exit_code == 2
    assert "--forget" in missing.output


@pytest.mark.req("KIT-19")
def test_the_truth_survives_in_a_session_for_each_incident_of_a_telemetry_set_sent_as_windows(tmp_path: Path) -> None:
    example = ROOT / "examples" / "telemetry_incidents.py"
    with serving(tmp_path) as server:
        done = subprocess.run(
            [sys.executable, example, server.url], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the truth survived in 12 of 12" in done.stdout
