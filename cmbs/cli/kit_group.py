"""The group `cmbs kit` with all its commands."""

from __future__ import annotations

from cmbs.cli import kit_impact, kit_import, kit_record, kit_table
from cmbs.cli.kit import app

app.command("from-table")(kit_table.from_table)
app.command("impact")(kit_impact.impact)
app.command("put")(kit_record.put)
app.command("list")(kit_record.list_)
app.command("show")(kit_record.show)
kit_import.add_to(app)

__all__ = ["app"]
