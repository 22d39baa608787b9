"""The `cmbs` command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The extra that brings a package, where it is not `server`.
_EXTRAS = {"grpc": "tee", "google": "tee", "mcp": "tools", "mcp_types": "tools"}


@contextmanager
def name_the_missing_extra() -> Iterator[None]:
    """Exit with code 2 and the extra to install where an import lacks a package of another project."""
    try:
        yield
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.startswith("cmbs"):
            raise
        package = exc.name.partition(".")[0]
        extra = _EXTRAS.get(package, "server")
        sys.stderr.write(f"the `cmbs` command needs `{package}`: install it with `pip install 'cmbs[{extra}]'`\n")
        raise SystemExit(2) from exc


def main() -> None:
    """Run the command line."""
    with name_the_missing_extra():
        from cmbs.cli.app import app

        app()
