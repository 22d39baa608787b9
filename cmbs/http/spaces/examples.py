"""The examples of spaces in the OpenAPI document: one small story, as a server answered it.

`examples.json` is written by `scripts/generate_openapi.py`, which plays the story; a test plays it again.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec


class SpaceExamples(msgspec.Struct, frozen=True):
    """The ids of the story, what was sent, and what came back, by operation."""

    ids: dict[str, str]
    requests: dict[str, dict[str, Any]]
    responses: dict[str, dict[str, Any]]


def space_examples() -> SpaceExamples:
    """The story as it was last written down."""
    return msgspec.json.decode(files("cmbs.http.spaces").joinpath("examples.json").read_bytes(), type=SpaceExamples)
