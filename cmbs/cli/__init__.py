"""The `cmbs` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        from cmbs.cli.commands import app
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.startswith("cmbs"):
            raise
        sys.stderr.write(f"the `cmbs` command needs `{exc.name}`: install it with `pip install 'cmbs[server]'`\n")
        raise SystemExit(2) from exc
    app()
