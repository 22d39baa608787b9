"""The documents keep their word: every runnable block runs, in order, file by file."""

import json
import os
import subprocess
import sys
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from cmbs.ledger.merkle import leaf_hash, root_of_hashes
from scripts.check_docs import ROOT, Block, markdown_files, read_document

SHELL_LANGUAGES = {"bash", "sh", "console"}


def is_runnable(block: Block) -> bool:
    if block.language == "python":
        return "no-run" not in block.words
    return block.language in SHELL_LANGUAGES and "run" in block.words


def documents_that_run() -> list[Path]:
    return [path for path in markdown_files() if any(map(is_runnable, read_document(path).blocks))]


def shell_script(block: Block) -> str:
    """The commands of a block; in a `console` block those are the lines after a prompt, the rest is output."""
    if block.language != "console":
        return block.text
    return "\n".join(line.removeprefix("$ ") for line in block.text.splitlines() if line.startswith("$ "))


def check_block_runs(path: Path, block: Block, namespace: dict[str, Any]) -> None:
    if block.language == "python":
        # The blank lines make a traceback point at the line in the document.
        exec(compile("\n" * (block.line - 1) + block.text, str(path), "exec"), namespace)
        return
    search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", shell_script(block)], check=True, env={**os.environ, "PATH": search_path}
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", documents_that_run(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_blocks_of_a_document_run_in_order(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runnable = [block for block in read_document(path).blocks if is_runnable(block)]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in runnable:
        check_block_runs(path, block, namespace)


UNIVERSE, FORGED_UNIVERSE = (
    root_of_hashes([leaf_hash(name.encode()) for name in names]).hex()
    for names in (("disk", "dns", "lock"), ("dns", "disk", "lock"))
)
# What a liar changes in the walk, everywhere at once.
FORGERIES = {
    "the root": {"ROOT=5078": "ROOT=5079"},
    "the session": {"SESSION=00000000": "SESSION=00000001"},
    "an observation": {"resolver-ok": "resolver-of"},
    "a declared id": {'"hypotheses":["disk"': '"hypotheses":["desk"'},
    "an id": {"leaf disk": "leaf desk"},
    "the survivors": {"bytes 05": "bytes 06"},
    "the order of ids, with a universe to fit": {
        "leaf disk); bytes $(leaf dns)": "leaf dns); bytes $(leaf disk)",
        UNIVERSE: FORGED_UNIVERSE,
    },
}


@pytest.mark.req("PROOF-03")
def test_the_walk_is_that_of_the_worked_example() -> None:
    vector = json.loads((ROOT / "tests/vectors/proofs/worked-example.json").read_text("utf-8"))["document"]
    root = b64decode(vector["stream"]["root"]).hex()
    entries = [vector["universe"]["declaration"]["entry"], vector["event"]["entry"]]
    walk = (ROOT / "docs/concepts/proofs.md").read_text("utf-8")
    assert [each for each in (*entries, f"ROOT={root}") if each not in walk] == []
    table = (ROOT / "docs/reference/proofs.md").read_text("utf-8")
    hashes = [leaf_hash(each.encode()).hex() for each in entries]
    assert [each for each in (*hashes, root) if f"`{each}`" not in table] == []


@pytest.mark.slow
@pytest.mark.req("PROOF-03")
def test_the_walk_with_sha256sum_finds_what_was_changed(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for case, changes in FORGERIES.items():
        with subtests.test(case=case):
            (walk,) = filter(is_runnable, read_document(ROOT / "docs" / "concepts" / "proofs.md").blocks)
            script = walk.text
            for old, new in changes.items():
                assert old in script
                script = script.replace(old, new)
            ran = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert (ran.stdout.count("good: ") < 3, "bad: " in ran.stdout, ran.stderr) == (True, True, "")
