"""A scenario in the shape of ITBench; and the benchmark itself, where ITBENCH_DATA names it or it lies beside us."""

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

# A small scenario of our own.
TRUTH: dict[str, Any] = {
    "alerts": [
        {"id": "Slow", "group_id": "shop-service-1", "metadata": {"description": "the shop is slow"}},
        {"id": "Restarting", "group_id": "shop-pod-1"},
    ],
    "groups": [
        {"id": "shop-service-1", "kind": "Service", "namespace": "web", "filter": ["shop\\b"]},
        {"id": "shop-pod-1", "kind": "Pod", "namespace": "web", "root_cause": True},
    ],
    "propagations": [{"source": "shop-pod-1", "target": "shop-service-1", "condition": "…", "effect": "…"}],
}
SETUP = {"spec": {"faults": [{"injections": [{"id": "memory-hog"}, {"id": "memory-hog"}]}]}}


def load_derived(name: str) -> Any:
    """A file that was derived from the scenarios by other means: what an importer can be held against."""
    return json.loads((DIRECTORY / name).read_text(encoding="utf-8"))
