"""The wheel holds the built console. An editable install does not: `make console` builds it in place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ConsoleHook(BuildHookInterface[Any]):
    """Builds the console before a wheel is made, where its sources are there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the hook's interface
        """Called by hatch; a console that cannot be built leaves a wheel without one, and says so."""
        if version == "editable" or not (Path(self.root) / "console" / "package.json").is_file():
            return
        sys.path.insert(0, self.root)
        from scripts.build_console import main  # noqa: PLC0415 - not there in an editable install from elsewhere

        if main([]):
            self.app.display_warning("the wheel has no web console: it could not be built")
