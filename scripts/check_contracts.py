"""Compare the contracts with api/baseline.json: what is no addition must be named in CHANGELOG.md.

The contracts are what others rely on: api/openapi.yaml, api/mcp-tools.json, api/cli.json, the fields of `details` of
errors (those of their types, and those that documents name), tests/requirements.toml and the golden logs. The baseline
is the record of them as they are, so that its diff shows what a commit changes; `--record` writes it. A change that is
no addition is refused unless the list `#### Contracts`, under `Changed` of `Unreleased`, has the line that is printed.
What changes contracts and baseline alike, such as a replacement of text, is found by the baselines of the last two
commits and of the commit that CMBS_CONTRACTS_SINCE names. Until a release is tagged, golden logs may be written anew.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import chain
from pathlib import Path

import yaml

from cmbs.api.error_details import DETAILS_OF
from scripts.contracts import (
    CLI,
    ERRORS,
    GOLDEN_LOGS,
    HTTP,
    MCP,
    REQUIREMENTS,
    Elements,
    find_breaches,
    list_cli,
    list_errors,
    list_golden_logs,
    list_http,
    list_mcp,
    list_requirements,
)
from scripts.error_fields import list_fields_of

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "api" / "baseline.json"
CHANGELOG = ROOT / "CHANGELOG.md"
# A commit whose contracts must still hold, beside the last two: where a push or a pull request began.
SINCE = "CMBS_CONTRACTS_SINCE"
_ITEM = re.compile(r"^- (.*?)(?=^\S|^\s*$|\Z)", re.MULTILINE | re.DOTALL)


def read_contracts() -> dict[str, Elements]:
    """The contracts as they are in the files."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return {
        HTTP: list_http(yaml.load((ROOT / "api" / "openapi.yaml").read_text("utf-8"), loader)),
        MCP: list_mcp(json.loads((ROOT / "api" / "mcp-tools.json").read_text("utf-8"))),
        CLI: list_cli(json.loads((ROOT / "api" / "cli.json").read_text("utf-8"))),
        ERRORS: list_errors({code: list_fields_of(code) for code in DETAILS_OF}, read_pages().values()),
        REQUIREMENTS: list_requirements((ROOT / "tests" / "requirements.toml").read_text("utf-8")),
        GOLDEN_LOGS: list_golden_logs(ROOT / "tests" / "golden"),
    }


def read_pages() -> dict[str, str]:
    """The pages that say what is so; decisions and the changelog say what was."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    past = (path for path in paths if path == CHANGELOG or "adr" in path.parts)
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted({*paths}.difference(past))}


def read_named(changelog: str) -> set[str]:
    """The items of the list `#### Contracts` under `Changed` of `Unreleased`."""
    text = changelog
    for heading in ("## Unreleased", "### Changed", "#### Contracts"):
        level = heading.count("#")
        below = rf"^{heading}[ \t]*$(.*?)(?=^#{{1,{level}}} |\Z)"
        text = "\n".join(re.findall(below, text, re.MULTILINE | re.DOTALL))
    return {" ".join(item.split()) for item in _ITEM.findall(text)}


def read_released_logs(directory: Path) -> Elements:
    """The golden logs of the releases that this commit comes after: none where git or the tags are not at hand."""
    logs: Elements = {}
    for tag in _ask_git(directory, "tag", "--list", "v*", "--merged", "HEAD").split():
        if baseline := _ask_git(directory, "show", f"{tag}:./api/baseline.json"):
            logs |= json.loads(baseline).get(GOLDEN_LOGS, {})
    return logs


def read_committed(directory: Path) -> Iterator[dict[str, Elements]]:
    """The baselines of the last commits, the newest first: none where git is not at hand."""
    for revision in ("HEAD", "HEAD^", os.environ.get(SINCE)):
        if revision and (baseline := _ask_git(directory, "show", f"{revision}:./api/baseline.json")):
            yield json.loads(baseline)


def _ask_git(directory: Path, *arguments: str) -> str:
    try:
        return subprocess.run(["git", *arguments], cwd=directory, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def list_breaches(before: Mapping[str, Elements], now: Mapping[str, Elements]) -> Iterator[str]:
    """A line for each change that is no addition, as the changelog has to name it."""
    for contract, elements in now.items():
        for breach in find_breaches(contract, before.get(contract, {}), elements):
            yield f"{contract}: `{breach.element}` {breach.what}"


def list_faults(
    before: Mapping[str, Elements], now: Mapping[str, Elements], named: AbstractSet[str], released: Elements
) -> Iterator[str]:
    """A line for each change that may not be recorded, and for what is called gone and is there."""
    logs, logs_now = before.get(GOLDEN_LOGS, {}), now.get(GOLDEN_LOGS, {})
    if released:
        for line in list_breaches({GOLDEN_LOGS: logs | released}, {GOLDEN_LOGS: logs_now}):
            yield f"{line}: nothing in the changelog allows this once a release is tagged"
    # Before that, a log may be written anew and have another hash.
    logs = {} if released else {name: logs_now.get(name, {}) for name in logs}
    yield from (line for line in list_breaches({**before, GOLDEN_LOGS: logs}, now) if line not in named)
    gone = (f"{contract}: `{name}` is gone" for contract, elements in now.items() for name in elements)
    yield from (f"{line}: the changelog says so, and it is there" for line in gone if line in named)


def list_differences(before: Mapping[str, Elements], now: Mapping[str, Elements]) -> Iterator[str]:
    """A line for each element that is not as it is in the baseline."""
    for contract in now:
        old, new = before.get(contract, {}), now[contract]
        yield from (f"{contract}: `{name}`" for name in sorted(old | new) if old.get(name) != new.get(name))


def baseline_text(contracts: Mapping[str, Elements]) -> str:
    """What the baseline holds: an element a line, in order."""
    parts = []
    for contract, elements in contracts.items():
        lines = [f"    {json.dumps(name)}: {json.dumps(elements[name], sort_keys=True)}" for name in sorted(elements)]
        parts.append(f"  {json.dumps(contract)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="check_contracts", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", action="store_true", help="write the baseline, unless a change is refused")
    options = parser.parse_args(arguments)
    now, recorded, named = read_contracts(), BASELINE.read_text("utf-8"), read_named(CHANGELOG.read_text("utf-8"))
    before, released = json.loads(recorded), read_released_logs(ROOT)
    baselines = (before, *read_committed(ROOT))
    found = chain.from_iterable(list_faults(each, now, named, released) for each in baselines)
    if faults := list(dict.fromkeys(found)):
        print(*faults, sep="\n", file=sys.stderr)
        print(
            "\nThese changes are no additions. Undo them, or add each line, as it is, to the list `#### Contracts`"
            " under `Changed` of `Unreleased` in CHANGELOG.md, and say above that list what users must do.",
            file=sys.stderr,
        )
        if unused := sorted(named.difference(list_breaches(before, now))):
            print("\nLines of that list that no change needs now:", *unused, sep="\n", file=sys.stderr)
        return 1
    if options.record:
        BASELINE.write_text(baseline_text(now), "utf-8")
    elif recorded != baseline_text(now):
        print(*list_differences(before, now), sep="\n", file=sys.stderr)
        print(
            "\napi/baseline.json is not as these are: run `python -m scripts.check_contracts --record` and commit it.",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
