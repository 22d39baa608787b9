"""A kit as YAML that people read: blocks for what is long, one line for ids, quotes where YAML would misread a word."""

from __future__ import annotations

from typing import Any

import yaml

from cmbs.kit.model import Kit
from cmbs.kit.writing import Row, kit_data

_WIDTH = 120


# In C where PyYAML was built with it, which is several times sooner done.
_BASE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BASE):  # type: ignore[misc]
    """Every value where it is used."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _row(dumper: Any, row: Row) -> Any:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", row, flow_style=True)


def _text(dumper: Any, text: str) -> Any:
    # Line ends of every kind are folded in the other styles, and do not come back as they were.
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')


_Dumper.add_representer(Row, _row)
_Dumper.add_representer(str, _text)


def yaml_text(kit: Kit) -> str:
    """The kit as YAML."""
    return str(yaml.dump(kit_data(kit), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH))
