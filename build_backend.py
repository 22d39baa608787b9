"""The build backend: hatchling's, which finds the web console built before it packs a wheel or an sdist.

A wheel or sdist without the console is never made: `python -m hatchling build`, which does not come by here, is stopped
by a build hook. An sdist holds the console already built, so a wheel made from it
needs no Node. An editable install holds none and builds none: `make console` builds it in place.
"""

from __future__ import annotations

import tomllib
from typing import Any

from hatchling import build as hatchling
from hatchling.build import build_editable, get_requires_for_build_editable
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

from scripts.build_console import ROOT, NodeMissing, find_npm, is_built
from scripts.build_console import main as run_console_task

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

Settings = dict[str, Any] | None


class ConsoleCheck(BuildHookInterface[Any]):
    """Refuses to pack anything but an editable install while the console is not built. It builds nothing."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        if version != "editable" and not is_built():
            raise SystemExit("no package is made without the web console: run `make console`")


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """What the build of an sdist needs: Node too, where the console is still to be built."""
    return [*hatchling.get_requires_for_build_sdist(config_settings), *_require_node()]


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What the build of a wheel needs: Node too, where the console is still to be built."""
    return [*hatchling.get_requires_for_build_wheel(config_settings), *_require_node()]


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build the console, and pack its sources and what was built of them."""
    _build_console()
    return hatchling.build_sdist(sdist_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build the console, and pack it with the code."""
    _build_console()
    return hatchling.build_wheel(wheel_directory, config_settings, metadata_directory)


def _require_node() -> list[str]:
    """The package that brings Node, where it is needed and the machine has none."""
    if is_built():
        return []
    try:
        find_npm()
    except NodeMissing:
        groups = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
        return list(groups["console"])
    return []


def _build_console() -> None:
    if run_console_task(["build"]):
        raise SystemExit("no package is made without the web console: see above why it was not built")
