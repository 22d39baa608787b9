"""The group `cmbs kit` with all its commands."""

from __future__ import annotations

from cmbs.cli import kit_import, kit_table
from cmbs.cli.kit import app

app.command("from-table")(kit_table.from_table)
kit_import.add_to(app)

__all__ = ["app"]
