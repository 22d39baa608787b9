"""The clock and the ids of the machine."""

from __future__ import annotations

import os
import time


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
        octets = bytearray(os.urandom(16))
        octets[6] = octets[6] & 0x0F | 0x40
        octets[8] = octets[8] & 0x3F | 0x80
        text = octets.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
