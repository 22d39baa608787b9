"""`cmbs kit`: what it prints, what it writes, and the exit codes that scripts rely on."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from cmbs.adapters.kits import load_kit
from cmbs.cli.kit import read_or_fail
from cmbs.kit.schema import kit_schema
from tests.support.cli import invoke

pytestmark = pytest.mark.slow

GOOD = """\
id: coins
version: "1"
soundness: sound
hypotheses: [heads, tails, edge]
probes:
  - id: toss
    outcomes: [{id: heads, keeps: [heads]}, {id: other, eliminates: [heads]}]
"""
BAD = GOOD.replace("id: other", "id: 12")
run = partial(invoke, "kit")
TABLE = "animal,legs,weight,flies\ndog,4,30.5,no\nbat,2,0.02,yes\nhen,2,2,\n"


@pytest.fixture(autouse=True)
def place(place: Path) -> Path:
    for name, text in (("good.yaml", GOOD), ("bad.yaml", BAD), ("animals.csv", TABLE)):
        (place / name).write_text(text, "utf-8")
    return place


# --- check ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-14")
def test_a_good_kit_is_told_in_figures_and_its_warnings_by_line() -> None:
    result = run("check", "good.yaml")
    assert result.exit_code == 0
    assert "kit coins, version 1" in result.stdout
    cells = [[cell.strip() for cell in line.split("│")[1:3]] for line in result.stdout.splitlines() if "│" in line]
    assert [*cells] == [
        ["hypotheses", "3"],
        ["told apart into classes", "2"],
        ["largest class", "2"],
        ["residual bits", "0.667"],
        ["probes", "1"],
        ["of them deterministic", "1"],
        ["outcomes", "2"],
        ["eliminations", "3"],
        ["outcomes, sound", "2"],
    ]
    assert result.stdout.splitlines()[-1] == "good.yaml: good, 1 warning"
    assert result.stderr == (
        "warning good.yaml:4:21: no probe tells 2 hypotheses apart: `tails`, `edge`; they leave 0.667 bits of the kit "
        "undecided [indistinguishable]\n"
    )


@pytest.mark.req("KIT-14")
def test_a_bad_kit_is_told_by_file_line_and_rule() -> None:
    result = run("check", "bad.yaml", "good.yaml")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[0] == (
        "error   bad.yaml:7:50: `probes[0].outcomes[1].id` must be a text, and `12` without quotes is a number; "
        'write "12" [number-for-text]'
    )
    assert result.stdout.splitlines()[0] == "bad.yaml: no kit, 1 error"
    assert result.stdout.splitlines()[-1] == "good.yaml: good, 1 warning"


@pytest.mark.req("KIT-14")
def test_the_exit_code_says_whether_kits_are_good_bad_or_unread(subtests: pytest.Subtests) -> None:
    for arguments, code in [
        (["good.yaml"], 0),
        (["--strict", "good.yaml"], 1),
        (["bad.yaml"], 1),
        (["absent.yaml"], 2),
        (["."], 2),
        ([], 2),
        (["--json", "bad.yaml"], 1),
        (["--json", "good.yaml"], 0),
    ]:
        with subtests.test(arguments=arguments, code=code):
            result = run("check", *arguments)
            assert result.exit_code == code
            assert bool(result.stderr) == ("--json" not in arguments)


@pytest.mark.req("KIT-14")
def test_everything_is_there_as_json() -> None:
    bad, good = json.loads(run("check", "--json", "bad.yaml", "good.yaml").stdout)
    assert (bad["file"], bad["good"], "kit" in bad) == ("bad.yaml", False, False)
    assert [(each["rule"], each["line"], each["column"]) for each in bad["findings"]] == [("number-for-text", 7, 50)]
    assert good["kit"] == {
        "id": "coins",
        "version": "1",
        "hypotheses": 3,
        "probes": 1,
        "deterministic_probes": 1,
        "outcomes": 2,
        "eliminations": 3,
        "soundness": {"sound": 2},
        "classes": 2,
        "indistinguishable": [["tails", "edge"]],
        "residual_bits": pytest.approx(2 / 3),
    }


def test_a_kit_may_come_from_standard_input() -> None:
    assert run("check", "-", given=GOOD).stdout.splitlines()[-1] == "-: good, 1 warning"
    refused = run("check", "-", given=BAD)
    assert (refused.exit_code, refused.stdout) == (1, "<stdin>: no kit, 1 error\n")


def test_what_a_kit_says_changes_nothing_on_a_terminal(place: Path) -> None:
    (place / "odd.yaml").write_text(GOOD.replace("[heads, tails, edge]", '[heads, tails, edge, "\\e[2J"]'), "utf-8")
    result = run("check", "odd.yaml")
    assert "`\\x1b[2J`" in result.stderr
    assert "\x1b" not in result.output


def test_without_yaml_a_kit_in_yaml_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "cmbs.documents.yaml_text", raising=False)
    monkeypatch.delattr("cmbs.documents.yaml_text", raising=False)
    result = run("check", "good.yaml")
    assert result.exit_code == 2
    assert "YAML needs PyYAML: install it with `pip install 'cmbs[kits]'`" in result.stderr


def test_other_commands_read_a_kit_or_say_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert read_or_fail("good.yaml").kit_id == "coins"
    with pytest.raises(typer.Exit) as ended:
        read_or_fail("bad.yaml")
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err.startswith("error   bad.yaml:7:50: ")


@pytest.mark.req("KIT-13")
def test_the_schema_is_printed() -> None:
    assert json.loads(run("schema").stdout) == kit_schema()


@pytest.mark.req("KIT-14")
def test_residual_bits_are_a_bound_where_an_answer_may_tell_less_than_it_could(place: Path) -> None:
    # Whatever is answered, the edge stays: no class has two members, and still something is left to decide.
    (place / "open.yaml").write_text(GOOD.replace("keeps: [heads]", "keeps: [heads, edge]"), "utf-8")
    assert "residual bits, at least" in run("check", "open.yaml").stdout
    assert "at least" not in run("check", "good.yaml").stdout


def test_of_very_many_warnings_the_first_are_told(place: Path) -> None:
    names = ", ".join(f"a{number}, b{number}" for number in range(102))
    probes = "".join(
        f"  - {{id: p{number}, outcomes: [{{id: x, eliminates: [a{number}, b{number}]}}, {{id: y, eliminates: []}}]}}\n"
        for number in range(102)
    )
    text = f'id: k\nversion: "1"\nsoundness: sound\nhypotheses: [{names}]\nprobes:\n{probes}'
    (place / "many.yaml").write_text(text, "utf-8")
    result = run("check", "many.yaml")
    lines = result.stderr.splitlines()
    assert (len(lines), lines[-1]) == (101, "and 2 more warnings; `--json` has them all")
    assert result.stdout.splitlines()[-1] == "many.yaml: good, 102 warnings"
    assert len(json.loads(run("check", "--json", "many.yaml").stdout)[0]["findings"]) == 102


# --- from-table -------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-11")
def test_a_table_becomes_a_kit_that_checks(subtests: pytest.Subtests) -> None:
    for name in ["kit.yaml", "kit.json"]:
        with subtests.test(name=name):
            result = run("from-table", "animals.csv", "--id", "animal", "--drop", "weight", "-o", name)
            assert (result.exit_code, result.stderr) == (0, "")
            assert "kit animals, version sha256-" in result.stdout
            kit = load_kit(name)
            assert (kit.kit_id, kit.title) == ("animals", "Made from animals.csv")
            assert [each.probe_id for each in kit.probes] == ["legs", "flies"]
            assert run("check", name).exit_code == 0


def test_a_kit_may_go_to_standard_output_and_a_table_come_from_standard_input() -> None:
    options = ["--id", "animal", "--kit-version", "7", "--title", "T", "--text", "weight", "-o", "-"]
    result = run("from-table", "-", *options, given=TABLE)
    data: Any = yaml.safe_load(result.stdout)
    assert (data["id"], data["version"], data["title"]) == ("table", "7", "T")
    assert "reading" not in data["probes"][1]


@pytest.mark.req("KIT-11")
def test_the_options_reach_the_kit(place: Path) -> None:
    (place / "t.csv").write_text("id|eats|n|m|who|p\na|x+y|1|high|A|2\nb|x|2|?||1\nc|z|3|normal||1\n", "utf-8")
    (place / "s.csv").write_text("id|m\nx|1\ny|2\nz|3\n", "utf-8")
    options = "--id id --delimiter | --split eats --separator + --yes-no eats --numeric n --bands 3 --baseline s.csv"
    more = (
        "--threshold 2 --no-data ? --label who --prior p --kit-id mine --soundness heuristic --max-values 5 -o k.json"
    )
    result = run("from-table", "t.csv", *options.split(), *more.split())
    assert result.exit_code == 0, result.stderr
    kit = load_kit("k.json")
    assert kit.kit_id == "mine"
    assert [each.probe_id for each in kit.probes] == ["eats=x", "eats=y", "eats=z", "n", "m"]
    assert (kit.hypotheses[0].label, kit.hypotheses[0].prior) == ("A", 2)
    assert {each.soundness.value for probe in kit.probes for each in probe.outcomes if each.eliminates} == {"heuristic"}


@pytest.mark.req("KIT-11")
def test_a_table_of_cases_becomes_a_kit(place: Path) -> None:
    (place / "t.csv").write_text("fault,alerts,zone\ndisk,slow;full,a\ndisk,full,b\ndns,slow,a\n", "utf-8")
    refused = run("from-table", "t.csv", "--id", "fault", "--split-all", "-o", "k.json")
    assert (refused.exit_code, "group them by id" in refused.stderr) == (1, True)
    result = run("from-table", "t.csv", "--id", "fault", "--split-all", "--group-by-id", "-o", "k.json")
    assert result.exit_code == 0, result.stderr
    kit = load_kit("k.json")
    assert [each.id for each in kit.hypotheses] == ["disk", "dns"]
    full = kit.probe("alerts")
    assert full is not None
    assert {each.outcome_id: sorted(each.eliminates) for each in full.outcomes} == {"full": ["dns"], "slow": []}


def test_columns_that_ask_nothing_are_noted(place: Path) -> None:
    (place / "t.csv").write_text("id,x,y\na,1,2\nb,1,3\n", "utf-8")
    result = run("from-table", "t.csv", "--id", "id", "-o", "k.yaml")
    assert result.stderr == "note    column `x` has one value, so it asks nothing\n"


@pytest.mark.req("KIT-12")
def test_a_table_that_makes_no_kit_leaves_no_file(subtests: pytest.Subtests, place: Path) -> None:
    for arguments, code, said in [
        (["--id", "Animal"], 1, "animals.csv:1:1: no column `Animal`; did you mean `animal` [unknown-field]"),
        (["--id", "animal", "--drop", "wings"], 1, "animals.csv:1:1: no column `wings`; known are animal"),
        (["--id", "animal", "--max-values", "2", "--text", "weight"], 1, "column `weight` has 3 values, more than 2"),
        (["--id", "animal", "--delimiter", "tabs"], 2, "`--delimiter` must be one character or `tab`, not `tabs`"),
        (["--id", "animal", "--separator", ""], 2, "`--separator` must not be empty"),
        (["--id", "animal", "--text", "legs", "--numeric", "legs"], 2, "cannot be both `--numeric` and `--text`"),
        (["--id", "animal", "--baseline", "absent.csv"], 2, "No such file or directory"),
        (["--id", "animal", "--bands", "1"], 2, "--bands"),
        ([], 2, "--id"),
    ]:
        with subtests.test(arguments=arguments, code=code, said=said):
            result = run("from-table", "animals.csv", "-o", "kit.yaml", *arguments)
            assert result.exit_code == code
            assert said in result.stderr
            assert not (place / "kit.yaml").exists()


def test_a_tab_may_divide_the_cells(place: Path) -> None:
    (place / "t.tsv").write_text(TABLE.replace(",", "\t"), "utf-8")
    assert run("from-table", "t.tsv", "--id", "animal", "--delimiter", "tab", "-o", "k.json").exit_code == 0


def test_nothing_is_written_over_unless_it_is_meant(place: Path) -> None:
    made = ["from-table", "animals.csv", "--id", "animal", "-o"]
    (place / "kit.yaml").write_text("mine", "utf-8")
    refused = run(*made, "kit.yaml")
    assert (refused.exit_code, (place / "kit.yaml").read_text("utf-8")) == (2, "mine")
    assert "`kit.yaml` is there already; `--force` overwrites it" in refused.stderr
    assert run(*made, "kit.yaml", "--force").exit_code == 0
    assert load_kit("kit.yaml").kit_id == "animals"
    refused = run(*made, "animals.csv", "--force")
    assert (refused.exit_code, (place / "animals.csv").read_text("utf-8")) == (2, TABLE)
    assert "`animals.csv` is read by this command" in refused.stderr


def test_a_table_that_is_more_than_a_kit_can_hold_leaves_no_file(place: Path) -> None:
    (place / "t.csv").write_text(f"id,what,x\na,{'w' * 10_001},1\nb,,2\n", "utf-8")
    result = run("from-table", "t.csv", "--id", "id", "--label", "what", "-o", "k.json")
    assert result.exit_code == 1
    assert "a kit file has at most 10,000 characters of a text, and here are 10,001" in result.stderr
    assert not (place / "k.json").exists()
