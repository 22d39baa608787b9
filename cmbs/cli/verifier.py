"""`cmbs verifier`: hand out the file that checks exports and proofs on a machine without `cmbs`."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from cmbs.cli.output import STANDARD_INPUT, failing_cleanly


def verifier(
    file: Annotated[
        str, typer.Option("--out", help="Where to; - is standard output.", metavar="FILE")
    ] = STANDARD_INPUT,
) -> None:
    """Write the offline verifier: one file that checks exports and proofs without cmbs."""
    source = files("cmbs").joinpath("offline_verifier.py").read_bytes()
    with failing_cleanly():
        if file == STANDARD_INPUT:
            sys.stdout.buffer.write(source)
            sys.stdout.buffer.flush()
        else:
            Path(file).write_bytes(source)
