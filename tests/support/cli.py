"""The command `cmbs` in the process of a test."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from cmbs.cli.app import app


def invoke(*arguments: str, given: bytes | str | None = None, **variables: str) -> Result:
    """Run a command, on a terminal wide enough for any line, with this on its standard input."""
    return CliRunner().invoke(app, list(arguments), input=given, env={"COLUMNS": "200", "NO_COLOR": "1", **variables})
