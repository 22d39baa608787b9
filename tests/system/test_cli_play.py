"""`cmbs play`, `cmbs kit import` and `cmbs kit builtin` as a person at a terminal, or a script, meets them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from cmbs.adapters.kits import load_kit
from cmbs.adapters.sre import World, signature_kit, structural_kit
from cmbs.adapters.sre.webshop import webshop
from cmbs.adapters.twenty_questions import things_kit
from cmbs.cli import play
from cmbs.cli.kit_import import BuiltIn
from cmbs.kit.parse import parse_kit
from cmbs.tee.graph_json import read_graph
from tests.support.cli import invoke
from tests.support.http_server import environment_with
from tests.support.itbench import SCENARIOS, SETUP, TRUTH, needs_itbench

pytestmark = pytest.mark.slow

SMALL = str(Path(__file__).resolve().parents[2] / "examples" / "eight_animals.yaml")


# --- cmbs play 20q ----------------------------------------------------------------------------------------------------


@pytest.mark.req("20Q-04")
def test_a_game_on_a_pipe_is_played_to_its_end_and_its_log_verifies(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'games.db'}"
    ran = invoke("play", "20q", "--kit", SMALL, "--store", store, given="y\ny\ny\ny\n")
    assert ran.exit_code == 0, ran.output
    assert "Think of something; I know 8 things." in ran.output
    # What was typed is shown, for input from a pipe is not echoed.
    assert " 1. Is it often seen swimming? [y/n/?] y\n" in ran.output
    assert "Got it in 4: duck." in ran.output
    session_id = ran.output.rsplit("session ", 1)[1].split(":")[0]
    verified = invoke("verify", session_id, "--store", store)
    assert verified.exit_code == 0
    assert "1 of 8 survive" in verified.output


@pytest.mark.req("20Q-04")
def test_without_any_input_the_game_ends_in_good_order() -> None:
    ran = invoke("play", "20q")
    assert ran.exit_code == 0
    assert "I know 100 things" in ran.output
    assert "1 event, verified" in ran.output


@pytest.mark.req("20Q-04")
def test_interrupting_is_quitting(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupt)
    ran = invoke("play", "20q")
    assert ran.exit_code == 0
    assert "1 event, verified" in ran.output


@pytest.mark.req("20Q-04")
def test_one_can_watch_an_oracle() -> None:
    ran = invoke("play", "20q", "--oracle", "violin")
    assert ran.exit_code == 0
    assert "Think of something" not in ran.output
    assert "violin." in ran.output
    assert "verified, head " in ran.output


def test_what_cannot_be_played_says_why(subtests: pytest.Subtests) -> None:
    for arguments, code, wrong in [
        (("--oracle", "unicorn"), 2, "kit `twenty-questions` has no `unicorn`"),
        (("--kit", "nowhere.yaml"), 2, "nowhere.yaml"),
        (("--store", "carrier-pigeon://"), 2, "carrier-pigeon"),
        (("--turns", "0"), 2, "Invalid value for '--turns'"),
    ]:
        with subtests.test(arguments=arguments, code=code, wrong=wrong):
            ran = invoke("play", "20q", *arguments)
            assert ran.exit_code == code
            assert wrong in ran.output


def test_what_a_kit_says_cannot_change_the_terminal(tmp_path: Path) -> None:
    kit = tmp_path / "odd.json"
    outcomes = [{"id": "yes", "eliminates": ["b"]}, {"id": "no", "eliminates": ["a"]}]
    probes = [{"id": "p", "prompt": "\x1b[2Jreally?", "outcomes": outcomes}]
    kit.write_text(
        json.dumps({"id": "odd", "version": "1", "soundness": "sound", "hypotheses": ["a", "b"], "probes": probes})
    )
    ran = invoke("play", "20q", "--kit", str(kit), given="y\ny\n")
    assert ran.exit_code == 0, ran.output
    assert "\x1b" not in ran.output
    assert "\\x1b[2Jreally?" in ran.output


@pytest.mark.slow
@pytest.mark.req("20Q-04")
def test_a_terminal_without_block_characters_gets_others() -> None:
    command = [sys.executable, "-m", "cmbs", "play", "20q", "--kit", SMALL, "--oracle", "duck"]
    variables = environment_with({"PYTHONIOENCODING": "ascii"})
    ran = subprocess.run(command, env=variables, capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert b"####" in ran.stdout
    assert b"Got it in 4: duck." in ran.stdout


def test_what_an_encoding_can_show() -> None:
    assert [play._can_show(each, "█") for each in ("utf-8", "ascii", "no-such")] == [True, False, False]


def test_on_a_terminal_what_is_typed_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("maybe\n"))
    assert play._ask("well? ") == "maybe"
    assert capsys.readouterr().out == "well? "


# --- cmbs kit import itbench ------------------------------------------------------------------------------------------


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    """Two scenarios, and a folder that cannot be used."""
    home = tmp_path / "scenarios"
    other = TRUTH | {"alerts": [{"id": "Hot"}]}
    for number, truth in ((1, TRUTH), (2, other)):
        folder = home / f"scenario_{number}"
        folder.mkdir(parents=True)
        (folder / "groundtruth_v1.yaml").write_text(yaml.safe_dump(truth))
        (folder / "scenario.yaml").write_text(yaml.safe_dump(SETUP))
    (home / "scenario_3").mkdir()
    return home


@pytest.mark.req("ITB-05")
def test_an_import_writes_two_kits_and_a_graph_and_says_what_was_of_no_use(scenarios: Path, tmp_path: Path) -> None:
    ran = invoke("kit", "import", "itbench", str(scenarios), "--output", str(tmp_path / "new" / "kits"))
    assert ran.exit_code == 0, ran.output
    assert "3 scenario folders: 2 used, 1 not" in ran.output
    assert "    scenario_3: `groundtruth_v1.yaml`" in ran.output
    kits = tmp_path / "new" / "kits"
    assert sorted(path.name for path in kits.iterdir()) == [
        "itbench-graph.json",
        "itbench-signature.yaml",
        "itbench-structure.yaml",
    ]
    signature, structure = (load_kit(kits / f"itbench-{each}.yaml") for each in ("signature", "structure"))
    assert [kit.version.startswith("open-sha256-") for kit in (signature, structure)] == [True, True]
    assert signature.hypothesis_ids == {"scenario_1", "scenario_2"}
    assert all(not probe.outcomes[1].eliminates for kit in (signature, structure) for probe in kit.probes)
    assert len(read_graph((kits / "itbench-graph.json").read_bytes()).edges) == 3
    checked = invoke("kit", "check", str(kits / "itbench-signature.yaml"))
    assert checked.exit_code == 0


@pytest.mark.req("ITB-05")
def test_a_closed_world_is_asked_for(scenarios: Path, tmp_path: Path) -> None:
    arguments = ("--closed-world", "--format", "json", "--quiet", "-o", str(tmp_path))
    ran = invoke("kit", "import", "itbench", str(scenarios), *arguments)
    assert ran.exit_code == 0, ran.output
    kit = load_kit(tmp_path / "itbench-signature.json")
    assert kit.version.startswith("closed-sha256-")
    assert all(outcome.eliminates for probe in kit.probes for outcome in probe.outcomes)
    assert "scenario_3: " not in ran.output
    assert "1 × there is no `groundtruth_v1.yaml`" in ran.output


@pytest.mark.req("ITB-05")
def test_a_file_that_is_there_is_not_overwritten_unless_asked(scenarios: Path, tmp_path: Path) -> None:
    (tmp_path / "itbench-graph.json").write_text("mine")
    arguments = ("kit", "import", "itbench", str(scenarios), "-o", str(tmp_path))
    refused = invoke(*arguments)
    assert refused.exit_code == 2
    assert "is there already; `--force` overwrites it" in refused.output
    assert (tmp_path / "itbench-graph.json").read_text() == "mine"
    assert not (tmp_path / "itbench-signature.yaml").exists()
    assert invoke(*arguments, "--force").exit_code == 0
    assert read_graph((tmp_path / "itbench-graph.json").read_bytes()).nodes


@pytest.mark.req("ITB-05")
def test_what_no_kit_can_hold_is_not_written(scenarios: Path, tmp_path: Path) -> None:
    truth = TRUTH | {"alerts": [{"id": "x" * 5_000}]}
    (scenarios / "scenario_1" / "groundtruth_v1.yaml").write_text(yaml.safe_dump(truth))
    ran = invoke("kit", "import", "itbench", str(scenarios), "-o", str(tmp_path / "out"))
    assert ran.exit_code == 2
    assert "itbench-signature: a kit file has at most 1,024 characters of an id" in ran.output
    assert not (tmp_path / "out").exists()


def test_a_directory_without_scenarios_is_no_benchmark(tmp_path: Path) -> None:
    ran = invoke("kit", "import", "itbench", str(tmp_path), "-o", str(tmp_path / "out"))
    assert ran.exit_code == 2
    assert "there is no `scenario_*` folder in" in ran.output
    assert not (tmp_path / "out").exists()


@needs_itbench
@pytest.mark.req("ITB-05")
def test_the_benchmark_is_imported_with_its_circles_named(tmp_path: Path) -> None:
    ran = invoke("kit", "import", "itbench", str(SCENARIOS), "-o", str(tmp_path))
    assert ran.exit_code == 0, ran.output
    assert "67 scenario folders: 61 used, 6 not" in ran.output
    assert "10 components spread to each other in a circle: " in ran.output
    assert "itbench-signature.yaml: 61 hypotheses, 77 probes, version open-sha256-" in ran.output


# --- cmbs kit builtin -------------------------------------------------------------------------------------------------


@pytest.mark.req("SRE-KIT-06", "20Q-04")
def test_the_kits_that_come_along_can_be_had_as_files(tmp_path: Path) -> None:
    kits = {
        BuiltIn.TWENTY_QUESTIONS: things_kit(),
        BuiltIn.WEBSHOP_SIGNATURE: signature_kit(webshop()),
        BuiltIn.WEBSHOP_STRUCTURE: structural_kit(webshop()),
    }
    assert set(kits) == set(BuiltIn)
    for name, kit in kits.items():
        printed = invoke("kit", "builtin", name.value)
        assert parse_kit(printed.output.encode(), "kit.yaml").kit == kit
        for ending in ("yaml", "json"):
            path = tmp_path / f"{name}.{ending}"
            assert invoke("kit", "builtin", name.value, "-o", str(path)).exit_code == 0
            assert load_kit(path) == kit
    again = invoke("kit", "builtin", "twenty-questions", "-o", str(tmp_path / "twenty-questions.yaml"))
    assert again.exit_code == 2
    closed = invoke("kit", "builtin", "webshop-signature", "--closed-world")
    assert parse_kit(closed.output.encode(), "kit.yaml").kit == signature_kit(webshop(), World.CLOSED)
