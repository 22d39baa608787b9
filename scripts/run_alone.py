"""Runs every test file alone, in random order: `scripts/run_alone.py [--times 10] [--jobs 2] [--effort ci] [FILE ...]`.

A file that passes only after another one has run, or only in the order in which it is written, fails here. Each run is
a process of its own, with a seed of its own. It is forked from one that has imported pytest and libraries that no test
depends on being loaded: nothing of ours, and nothing that makes examples. At the end come the failures, each with the
command that repeats it, and the counts. A file whose tests are all left out at the effort has not passed: it is counted
by itself.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# What takes long to import. Hypothesis and Schemathesis are not here: what they make may depend on what is loaded.
PRELOADED = (
    "pytest",
    "xdist.plugin",
    "pytest_randomly",
    "anyio",
    "granian",
    "grpc",
    "httpx2",
    "jsonschema_rs",
    "mcp",
    "msgspec",
    "psutil",
    "psycopg",
    "rich.console",
    "starlette.applications",
    "typer.testing",
    "yaml",
)
NOTHING_SELECTED = 5
# What `tests/support/effort.py` reads, and what it takes where nothing is said.
VARIABLE, DEFAULT_EFFORT = "CMBS_EFFORT", "fast"


class Run(NamedTuple):
    """One file with one seed."""

    path: str
    seed: int

    @property
    def arguments(self) -> list[str]:
        """Those of pytest."""
        return ["-q", "-p", "no:cacheprovider", f"--randomly-seed={self.seed}", self.path]

    @property
    def command(self) -> str:
        """What repeats it by hand."""
        effort = f"{VARIABLE}={os.environ[VARIABLE]}"
        return shlex.join([effort, "pytest", *self.arguments])


class Outcome(NamedTuple):
    """What came of all runs: those that failed with what they printed, and how many selected no test."""

    failed: list[tuple[Run, int, Path]]
    n_nothing: int


def fork(run: Run, output: Path) -> int:
    """Start it; the id of its process."""
    pid = os.fork()
    if pid:
        return pid
    with output.open("wb") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    # Plugins are imported already: what they assert is not rewritten, and they assert nothing.
    arguments = ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning", *run.arguments]
    sys.argv = ["pytest", *arguments]
    sys.exit(importlib.import_module("pytest").main(arguments))


def run_all(runs: list[Run], jobs: int, scratch: Path) -> Outcome:
    """Run them, so many at a time."""
    failed: list[tuple[Run, int, Path]] = []
    n_nothing = 0
    running: dict[int, tuple[Run, Path]] = {}
    waiting = list(enumerate(runs))[::-1]
    while waiting or running:
        while waiting and len(running) < jobs:
            number, run = waiting.pop()
            output = scratch / f"{number}.txt"
            running[fork(run, output)] = (run, output)
        pid, status = os.wait()
        run, output = running.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        if code in {0, NOTHING_SELECTED}:
            n_nothing += code == NOTHING_SELECTED
            output.unlink()
        else:
            failed.append((run, code, output))
            print(f"failed with {code}: {run.command}", flush=True)
    return Outcome(failed, n_nothing)


def find_files(given: list[str]) -> list[str]:
    """The files that were named, or all of them."""
    places = [Path(each) for each in given] or [ROOT / "tests"]
    found = [path for place in places for path in ([place] if place.is_file() else sorted(place.rglob("test_*.py")))]
    return [os.path.relpath(path, ROOT) for path in found]


def main() -> int:
    """The exit code: 1 where any run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="files or directories; all tests where none is named")
    parser.add_argument("--times", type=int, default=1, help="how often each file runs, with a new seed each time")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument(
        "--seed", type=int, default=None, help="what the seeds come from; printed where it is not given"
    )
    effort = os.environ.get(VARIABLE) or DEFAULT_EFFORT
    parser.add_argument(
        "--effort", default=effort, help=f"fast, ci or deep; what {VARIABLE} says where it is not given"
    )
    chosen = parser.parse_args()
    os.environ[VARIABLE] = chosen.effort
    seed = random.SystemRandom().getrandbits(32) if chosen.seed is None else chosen.seed
    files = find_files(chosen.files)
    os.chdir(ROOT)
    for name in PRELOADED:
        importlib.import_module(name)
    seeds = random.Random(seed)
    runs = [Run(path, seeds.getrandbits(32)) for _ in range(chosen.times) for path in files]
    print(f"{len(files)} files, {chosen.times} times each, --effort {chosen.effort} --seed {seed}", flush=True)
    began = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="cmbs-alone-"))
    failed, n_nothing = run_all(runs, chosen.jobs, scratch)
    for run, _, output in failed:
        print(f"\n--- {run.command}\n{output.read_text('utf-8', 'replace')[-4000:]}")
    print()
    for run, code, output in failed:
        print(f"  {code}: {run.command}  (all of it: {output})")
    minutes = (time.monotonic() - began) / 60
    n_passed = len(runs) - len(failed) - n_nothing
    print(
        f"{n_passed} of {len(runs)} runs passed, {len(failed)} failed, "
        f"{n_nothing} had nothing selected at this effort ({chosen.effort}), in {minutes:.1f} minutes"
    )
    if not failed:
        scratch.rmdir()
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
