"""What each extra promises: the modules that import where it alone is installed."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import cmbs

ROOT = Path(__file__).resolve().parents[2]

# What is installed, as it is written in brackets, to the beginnings of the names of the modules that must import then.
# A module is listed by its longest beginning here, so all that no line names imports with the bare install.
MODULES = {
    "": ["cmbs"],
    "kits": ["cmbs.documents.yaml_text"],
    "substrate": [
        "cmbs.audit.spaces",
        "cmbs.substrate",
        "cmbs.testing.spaces",
        "cmbs.testing.streams",
        "cmbs.webhooks.finding",
    ],
    "tools": [
        "cmbs.substrate.tools.event_loop",
        "cmbs.substrate.tools.http",
        "cmbs.substrate.tools.mcp",
    ],
    "checkpoints": [
        "cmbs.audit.anchors",
        "cmbs.audit.checkpoints",
        "cmbs.audit.kept_heads",
        "cmbs.audit.recorded_heads",
        "cmbs.transparency",
        "cmbs.webhooks.keys",
        "cmbs.webhooks.signing",
    ],
    "client": ["cmbs.client", "cmbs.frameworks"],
    "langchain": ["cmbs.frameworks.langchain"],
    "openai-agents": ["cmbs.frameworks.openai_agents"],
    "pydantic-ai": ["cmbs.frameworks.pydantic_ai"],
    "postgres": ["cmbs.stores._postgres_", "cmbs.stores.postgres"],
    "tee": [
        "cmbs.mcp.deciders.proto",
        "cmbs.stores._tee_",
        "cmbs.stores.tee",
        "cmbs.tee",
        "cmbs.testing.contracts.graph_samples",
    ],
    "neo4j": ["cmbs.tee.stores._neo4j_rows", "cmbs.tee.stores.neo4j"],
    "server": [
        "cmbs.belief_api",
        "cmbs.cli",
        "cmbs.http",
        "cmbs.webhooks.dispatcher",
        "cmbs.webhooks.registry",
        "cmbs.webhooks.sending",
    ],
    "server,tools": ["cmbs.mcp"],
    "server,tools,tee": ["cmbs.mcp.deciders.agentgateway"],
}
# Frameworks that take seconds to import: what installs them for real tries these, and nothing else does.
SLOW_TO_IMPORT = ("langchain", "openai-agents", "pydantic-ai")
# For the tests of those who write a store or a source of hypotheses, and bring pytest and Hypothesis themselves.
FOR_TESTS = ("cmbs.testing.contracts", "cmbs.testing.strategies")

# Imports every module that it is given, and prints what does not import.
IMPORT_ALL = """
import importlib, json, sys

failed = {}
for name in json.load(sys.stdin):
    try:
        importlib.import_module(name)
    except Exception as exc:
        failed[name] = f"{type(exc).__name__}: {exc}"
print(json.dumps(failed))
"""

# Put before a program, it makes the environment look as if some packages were not installed.
_HIDE = """
import os, sys

class _Hidden:
    names = frozenset(os.environ["CMBS_TEST_HIDDEN"].split(","))

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"`{name}` is not installed", name=name)

sys.meta_path.insert(0, _Hidden())
"""


def read_project() -> dict[str, Any]:
    """The contents of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return table


def list_modules() -> dict[str, list[str]]:
    """The modules of each line of the table: together all there are, but those for tests."""
    lines = {beginning: extras for extras, beginnings in MODULES.items() for beginning in beginnings}
    listed: dict[str, list[str]] = {extras: [] for extras in MODULES}
    for name in _walk(Path(cmbs.__file__).parent, "cmbs"):
        beginnings = [each for each in lines if name.startswith(each)]
        extras = lines[max(beginnings, key=len)]
        if extras or not name.startswith(FOR_TESTS):
            listed[extras].append(name)
    return listed


def _walk(directory: Path, name: str) -> Iterable[str]:
    yield name
    for module in pkgutil.iter_modules([str(directory)]):
        if module.ispkg:
            yield from _walk(directory / module.name, f"{name}.{module.name}")
        elif module.name != "__main__":
            yield f"{name}.{module.name}"


def find_distributions(extras: str) -> set[str]:
    """The distributions that `cmbs[extras]` brings here, by their normalised names, without `cmbs` itself."""
    project = read_project()["project"]
    optional: Mapping[str, list[str]] = project["optional-dependencies"]
    waiting = [Requirement(f"cmbs[{extras}]"), *map(Requirement, project["dependencies"])]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            if name == "cmbs":
                waiting += map(Requirement, optional.get(extra, []))
                continue
            for needed in map(Requirement, metadata.requires(name) or []):
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return {name for name, _ in seen} - {"cmbs"}


@cache
def _read_owners() -> dict[str, set[str]]:
    """The distributions that bring each package at the top."""
    found = metadata.packages_distributions()
    return {name: {canonicalize_name(each) for each in owners} for name, owners in found.items()}


def run_with_only(
    extras: str, program: str, *arguments: str, text: str = "", cwd: Path
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that finds nothing installed but `cmbs[extras]`, whatever else there is."""
    # coverage: it may be measuring that very process.
    visible = find_distributions(extras) | {"cmbs", "coverage"}
    hidden = [name for name, owners in _read_owners().items() if not visible & owners]
    return subprocess.run(
        [sys.executable, "-c", _HIDE + program, *arguments],
        cwd=cwd,
        env={**os.environ, "CMBS_TEST_HIDDEN": ",".join(hidden)},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )


def read_failures(ran: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What `IMPORT_ALL` printed: each module that did not import, and why."""
    assert ran.returncode == 0, ran.stderr
    failures: dict[str, str] = json.loads(ran.stdout)
    return failures
