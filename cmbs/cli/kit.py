"""`cmbs kit …`: domains as files."""

from __future__ import annotations

import typer

app = typer.Typer(name="kit", help="Domains as files: hypotheses and the probes that tell them apart.", no_args_is_help=True)
