"""Compare the contracts with api/baseline.json: a change that is no addition must be named in CHANGELOG.md.

The contracts are files that others rely on: api/openapi.yaml, api/mcp-tools.json, api/cli.json, tests/requirements.toml
and the golden logs. The baseline is what they were at the last release; `--record` writes it when one is tagged. Each
element is named by itself, between backticks, under `Changed` or `Removed` of `Unreleased`.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from scripts.contracts import (
    CLI,
    GOLDEN_LOGS,
    HTTP,
    MCP,
    REQUIREMENTS,
    Elements,
    find_breaches,
    list_cli,
    list_golden_logs,
    list_http,
    list_mcp,
    list_requirements,
)

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "api" / "baseline.json"
CHANGELOG = ROOT / "CHANGELOG.md"
_SECTION = re.compile(r"^## \[?Unreleased\]?\s*$(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_CHANGES = re.compile(r"^### (?:Changed|Removed)\s*$(?P<text>.*?)(?=^### |\Z)", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"`([^`]+)`")
_VARIABLE = re.compile(r"\{[^}]*\}")


def read_contracts() -> dict[str, Elements]:
    """The contracts as they are in the files."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {
        HTTP: list_http(yaml.load((ROOT / "api" / "openapi.yaml").read_text("utf-8"), loader)),
        MCP: list_mcp(json.loads((ROOT / "api" / "mcp-tools.json").read_text("utf-8"))),
        CLI: list_cli(json.loads((ROOT / "api" / "cli.json").read_text("utf-8"))),
        REQUIREMENTS: list_requirements((ROOT / "tests" / "requirements.toml").read_text("utf-8")),
        GOLDEN_LOGS: list_golden_logs(ROOT / "tests" / "golden"),
    }


def read_named(changelog: str) -> set[str]:
    """What stands between backticks under `Changed` and `Removed` of `Unreleased`."""
    section = _SECTION.search(changelog)
    texts = [] if section is None else [match["text"] for match in _CHANGES.finditer(section["text"])]
    return {_plain(name) for text in texts for name in _NAMED.findall(text)}


def _plain(name: str) -> str:
    """A name without line breaks, and without the names of variables in a path."""
    return _VARIABLE.sub("{}", " ".join(name.split()))


def list_faults(before: Mapping[str, Elements], now: Mapping[str, Elements], changelog: str) -> Iterator[str]:
    """A line for each change that is no addition and that the changelog does not name."""
    named = read_named(changelog)
    for contract, elements in now.items():
        for breach in find_breaches(contract, before[contract], elements):
            names = (breach.element, *breach.aliases)
            if named.isdisjoint(map(_plain, names)):
                yield f"{contract}: `{breach.element}` {breach.what}: name {' or '.join(f'`{name}`' for name in names)}"


def baseline_text(contracts: Mapping[str, Elements]) -> str:
    """What the baseline holds: an element a line, in order."""
    parts = []
    for contract, elements in contracts.items():
        lines = [f"    {json.dumps(name)}: {json.dumps(elements[name], sort_keys=True)}" for name in sorted(elements)]
        parts.append(f"  {json.dumps(contract)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def is_tagged(directory: Path) -> bool:
    """Whether the commit that is checked out there is a release."""
    command = ["git", "tag", "--points-at", "HEAD", "--list", "v*"]
    return bool(subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout.strip())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="check_contracts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="write the baseline: only where HEAD has a tag `v…`")
    parser.add_argument("--force", action="store_true", help="record without a tag: for the very first baseline")
    options = parser.parse_args(arguments)
    if options.record and not options.force and not is_tagged(ROOT):
        print("HEAD has no tag `v…`: the baseline is what was released", file=sys.stderr)
        return 2
    now = read_contracts()
    if options.record:
        BASELINE.write_text(baseline_text(now), "utf-8")
        return 0
    faults = list(list_faults(json.loads(BASELINE.read_text("utf-8")), now, CHANGELOG.read_text("utf-8")))
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        print(
            "These changes are no additions. Undo them, or name each under `Changed` or `Removed` of `Unreleased` in"
            " CHANGELOG.md, between backticks, with what its users must do.",
            file=sys.stderr,
        )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
