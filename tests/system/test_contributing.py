"""CONTRIBUTING.md is true: its diagram is the import contract, its paths exist, its efforts are those of the tests."""

import re
import tomllib

from hypothesis import settings

from scripts.check_docs import ROOT, read_document
from tests.support.effort import CI_MARKERS, EFFORTS, MARKERS

CONTRIBUTING = read_document(ROOT / "CONTRIBUTING.md")
# Placeholders such as `cmbs/substrate/tools/<kind>.py` name no file.
PATH = re.compile(r"`((?:cmbs|docs|examples|scripts|tests)/[\w./-]*)`")

KILLS = {1: "one", 2: "two", 20: "twenty"}


def test_the_diagram_of_the_layers_is_the_import_contract() -> None:
    (diagram,) = [block for block in CONTRIBUTING.blocks if "layers" in block.words]
    drawn = [re.split(r"\s{2,}", line, maxsplit=1)[0] for line in diagram.text.splitlines()]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    assert drawn == [layer for layer in layers if layer != "__main__"]


def test_the_paths_of_the_recipes_exist() -> None:
    named = [path for line in CONTRIBUTING.prose for path in PATH.findall(line)]
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_efforts_and_markers_are_those_of_the_tests() -> None:
    text = "\n".join(CONTRIBUTING.prose)
    for effort in EFFORTS.values():
        (row,) = re.findall(rf"^\| `{effort.name}` \|.*$", text, re.MULTILINE)
        assert f"{effort.examples:,} examples" in row
        assert f"{effort.seeds:,} " in row
        assert re.search(rf"\b{KILLS[effort.kills]} kills?\b", row)
        # What Hypothesis is told: see `tests/conftest.py`.
        assert settings.get_profile(effort.name).max_examples == effort.examples
    # `make test-ci` selects what `make test` leaves out, so a test without a marker never runs at the effort `ci`.
    assert f"\nMARKED := {' or '.join(CI_MARKERS)}\n" in (ROOT / "Makefile").read_text("utf-8")
    assert [name for name in MARKERS if f"@pytest.mark.{name}" not in text] == []
