"""The clock and the ids of the machine."""

from __future__ import annotations

import os
import time

# Of the digit that says how to read a UUID, two bits are fixed.
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class SystemClock:
    """The machine's clock."""

    __slots__ = ("_formatted",)

    def __init__(self) -> None:
        # Formatting a date costs more than all else here, and a busy second has thousands of events. One tuple, so that
        # threads never see the second of one moment with the text of another.
        self._formatted = (-1, "")

    def now(self) -> str:
        """The present moment in UTC."""
        second, nanos = divmod(time.time_ns(), 1_000_000_000)
        known, text = self._formatted
        if second != known:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._formatted = (second, text)
        return f"{text}.{nanos // 1000:06d}Z"


class RandomIds:
    """Random UUIDs."""

    __slots__ = ()

    def new_id(self) -> str:
        """A version 4 UUID; the standard library's takes three times as long to write one down."""
        text = os.urandom(16).hex()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:]}"
