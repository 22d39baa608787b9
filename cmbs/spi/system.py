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
        """A version 4 UUID. Many are made at a time: to ask the kernel for each takes longer than all the rest."""
        try:
            return _SPARE.pop()
        except IndexError:
            _SPARE.extend(_made())
            return self.new_id()


_AT_A_TIME = 64
# Taken from the end, which no two threads can do at once.
_SPARE: list[str] = []
if hasattr(os, "register_at_fork"):
    # Or parent and child would hand out the same ones.
    os.register_at_fork(after_in_child=_SPARE.clear)


def _made() -> list[str]:
    """New ids; the standard library takes three times as long to write one down."""
    digits = os.urandom(16 * _AT_A_TIME).hex()
    texts = [digits[start : start + 32] for start in range(0, len(digits), 32)]
    return [f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:]}" for text in texts]
