"""Write the commands and their options to api/cli.json; tests/system/test_contracts.py fails if it is out of date.

docs/reference/cli.md says in prose what they are for.
"""

import json
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from cmbs.cli.app import COMMANDS, load_command

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "api" / "cli.json"


def cli_text() -> str:
    """Return what the file must hold."""
    commands = {name: found for each in COMMANDS for name, found in _describe(f"cmbs {each}", load_command(each))}
    return json.dumps(commands, indent=2, ensure_ascii=False) + "\n"


def _describe(name: str, command: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """A command and those below it: for each parameter, by the names that it is given with, what it takes."""
    parameters = {given: meaning for parameter in command.params for given, meaning in _list_names(parameter)}
    for position, given in enumerate((given for given in parameters if not given.startswith("-")), 1):
        parameters[given]["position"] = position
    yield name, parameters
    for each, below in getattr(command, "commands", {}).items():
        yield from _describe(f"{name} {each}", below)


def _list_names(parameter: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    annotation = parameter.type_descriptor.annotation
    meaning: dict[str, Any] = {"type": "flag" if getattr(parameter, "is_flag", False) else annotation.__name__}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        meaning = {"enum": [member.value for member in annotation]}
    for limit, value in {"minimum": parameter.min, "maximum": parameter.max, "env": parameter.envvar}.items():
        if value is not None:
            meaning[limit] = value
    if parameter.default is not None and not callable(parameter.default):
        meaning["default"] = str(parameter.default)
    if parameter.required:
        meaning["required"] = True
    if parameter.multiple or parameter.nargs != 1:
        meaning["repeated"] = True
    names = parameter.opts if any(option.startswith("-") for option in parameter.opts) else [parameter.name.upper()]
    for option in (*names, *parameter.secondary_opts):
        yield option, meaning


def main() -> int:
    TARGET.write_text(cli_text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
