"""What a release needs, in one run of an hour or so: `make test-deep`.

Every test at the effort `deep`, with coverage; every test file alone, in random order, at `fast`, and those that once
needed others also at `deep`; the tests of `make test` on a second Python. A stage that fails does not keep the others
from running. The summary at the end says what each found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SECOND_PYTHONS = ("python3.13", "python3.12", "python3.14")
# Where no backend may be missing, a second Python may not be missing either.
REQUIRED = "CMBS_REQUIRE_BACKENDS"
SECTION = re.compile(r"^=+ (?P<name>[^=]+?) =+$")
TOLD = {"faults", "changes behind the store's back"}
COUNTS = re.compile(r"^\d+ of \d+ runs passed")
# They passed only after others had run, and `fast` leaves out most of their tests, `ci` one of them.
ALONE_AT_DEEP = ("tests/transport/test_fuzz.py", "tests/transport/test_space_fuzz.py")
MIN_KERNELS, MIN_TOTAL = 100, 95


class Stage(NamedTuple):
    """One part, and what came of it."""

    name: str
    passed: bool
    minutes: float
    lines: list[str]
    ran: bool = True

    @property
    def outcome(self) -> str:
        """What the summary calls it. What did not run is never called good."""
        return "FAILED" if not self.passed else "ok" if self.ran else "NOT RUN"


def run_stage(name: str, *commands: list[str], variables: Mapping[str, str] | None = None) -> Stage:
    """Run its commands one after the other until one fails, showing what they print."""
    print(f"\n--- {name}", flush=True)
    began = time.monotonic()
    lines: list[str] = []
    code = 0
    for command in commands:
        with subprocess.Popen(
            command, cwd=ROOT, env=os.environ | dict(variables or {}), stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line.rstrip())
        code = process.returncode
        if code:
            lines.append(f"exit code {code}: {' '.join(command)}")
            break
    return Stage(name, not code, (time.monotonic() - began) / 60, [*choose_lines(lines)])


def choose_lines(lines: list[str]) -> Iterator[str]:
    """What of the output belongs in the summary: the counts of faults, mutations and runs, and the last line."""
    section = ""
    for line in lines:
        if found := SECTION.match(line):
            section = found["name"]
        elif line and (section in TOLD or COUNTS.match(line)):
            yield line
    last = next((line for line in reversed(lines) if line), "")
    if not COUNTS.match(last):
        yield last


def find_second_python() -> str | None:
    """Another interpreter on the PATH that starts; None where there is none."""
    for name in SECOND_PYTHONS:
        path = shutil.which(name)
        own = f"python{sys.version_info.major}.{sys.version_info.minor}"
        if (
            path
            and name != own
            and not subprocess.run([path, "--version"], check=False, capture_output=True).returncode
        ):
            return path
    return None


def test_everything(jobs: int, kernels: str) -> list[Stage]:
    """All tests, measured."""
    for old in ROOT.glob(".coverage*"):
        old.unlink()
    coverage = [sys.executable, "-m", "coverage"]
    pytest = ["-m", "pytest", "-n", str(jobs), "--dist", "worksteal"]
    return [
        run_stage(
            "every test, at the effort `deep`",
            [*coverage, "run", *pytest],
            variables={"CMBS_EFFORT": "deep"},
        ),
        run_stage(
            f"branch coverage of the kernels, {MIN_KERNELS} %",
            [*coverage, "combine", "--quiet"],
            [*coverage, "report", f"--include={kernels}", f"--fail-under={MIN_KERNELS}"],
        ),
        run_stage(
            f"branch coverage of all modules, at least {MIN_TOTAL} %",
            [*coverage, "report", "--format=total", f"--fail-under={MIN_TOTAL}"],
        ),
    ]


def test_alone(jobs: int) -> list[Stage]:
    """Each file in a process of its own. The counts say how many had nothing to run."""
    alone = [sys.executable, "scripts/run_alone.py", "--jobs", str(jobs)]
    return [
        run_stage("every test file alone, in random order", [*alone, "--effort", "fast"]),
        run_stage("the fuzz tests alone, at the effort `deep`", [*alone, "--effort", "deep", *ALONE_AT_DEEP]),
    ]


def test_second_python(python: str | None, jobs: int) -> Stage:
    """What `make test` runs, in an environment of its own."""
    name = "the tests of `make test`, on a second Python"
    path = python or find_second_python()
    if path is None:
        said = f"no {', '.join(SECOND_PYTHONS)} on the PATH: set SECOND_PYTHON to one"
        return Stage(name, os.environ.get(REQUIRED) != "1", 0.0, [f"NOT RUN: {said}"], ran=False)
    environment = f".venv-{Path(path).name.removeprefix('python') or 'second'}"
    make = ["make", f"VENV={environment}", f"PYTHON={path}", f"JOBS={jobs}", "CMBS_EFFORT=fast", "test"]
    return run_stage(f"{name} ({path})", make)


def print_summary(stages: list[Stage]) -> None:
    """One paragraph for each."""
    print("\n=== summary of make test-deep")
    for stage in stages:
        print(f"{stage.outcome:7} {stage.minutes:5.1f} min  {stage.name}")
        for line in stage.lines:
            print(f"{'':19} {line}")
    print(f"{sum(stage.minutes for stage in stages):.0f} minutes in all", flush=True)


def main() -> int:
    """The exit code: 1 where a stage failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--kernels", required=True, help="patterns of the files that must be covered whole, with commas between"
    )
    parser.add_argument("--second-python", default=None)
    chosen = parser.parse_args()
    parts: list[Callable[[], list[Stage]]] = [
        lambda: test_everything(chosen.jobs, chosen.kernels),
        lambda: test_alone(chosen.jobs),
        lambda: [test_second_python(chosen.second_python, chosen.jobs)],
    ]
    stages = [stage for part in parts for stage in part()]
    print_summary(stages)
    return not all(stage.passed for stage in stages)


if __name__ == "__main__":
    sys.exit(main())
