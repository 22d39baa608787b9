"""The ITBench data, where it is at hand: in the directory that ITBENCH_DATA names, or beside the repository."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

BESIDE = Path(__file__).parents[2].parent / "shared" / "data" / "itbench"
DIRECTORY = Path(os.environ.get("ITBENCH_DATA") or BESIDE)
SCENARIOS = DIRECTORY / "raw"

needs_itbench = pytest.mark.skipif(
    not SCENARIOS.is_dir(), reason="needs the ITBench data: ITBENCH_DATA names a directory with its scenarios in `raw`"
)


def derived(name: str) -> Any:
    """A file that was derived from the scenarios by other means: what an importer can be held against."""
    return json.loads((DIRECTORY / name).read_text(encoding="utf-8"))
