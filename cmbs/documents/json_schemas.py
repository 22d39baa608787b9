"""JSON Schemas of types."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import cleandoc
from typing import Any

import msgspec


def describe_types(types: Iterable[Any], ref_template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """The schemas of types and of what they are made of, by name. TypeError where a type has none.

    Docstrings, which describe them, are indented by some versions of Python and not by others: here by none.
    """
    schemas, components = msgspec.json.schema_components(types, ref_template=ref_template)
    for component in components.values():
        if "description" in component:
            component["description"] = cleandoc(component["description"])
    return schemas, components
