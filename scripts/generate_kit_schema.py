"""Write the JSON Schema of kits from the code, where people look and where the package brings it along.

tests/unit/kit/test_schema.py fails where a file is not what this writes.
"""

import json
import sys
from pathlib import Path

from cmbs.kit.schema import kit_schema

ROOT = Path(__file__).resolve().parent.parent
TARGETS = (ROOT / "api" / "kit.schema.json", ROOT / "cmbs" / "kit" / "kit.schema.json")


def schema_text() -> str:
    """What the files must hold."""
    return json.dumps(kit_schema(), indent=2) + "\n"


def main() -> int:
    for target in TARGETS:
        target.write_text(schema_text(), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
