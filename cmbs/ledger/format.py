"""The one format of entries, states, exports and stores."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

Format: TypeAlias = Literal["cmbs/1"]
# Every entry and every export names it, and every store is marked with it. No earlier software wrote this name.
FORMAT: Format = "cmbs/1"
# What FORMAT means today: a digest over the types of all entries and states, and the places of state digests. Until the
# first release is tagged, these may change under the same name, and a store that was made with others is refused.
FINGERPRINT = "35b40a1377aa1f26"

_EARLIER_DOCUMENT = re.compile("cmbs(?:-[a-z]+)+/[0-9]+")


def is_earlier_document(name: object) -> bool:
    """Whether a document with this name of a format was written before the first format was fixed."""
    return isinstance(name, str) and _EARLIER_DOCUMENT.fullmatch(name) is not None
