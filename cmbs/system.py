"""The clock and the ids of the machine."""

from __future__ import annotations

import os
import struct
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
        """A version 4 UUID. Many are made at a time: to ask the kernel for each takes longer than all the rest."""
        try:
            return _SPARE.pop()
        except IndexError:
            _SPARE.extend(_made())
            return self.new_id()


_AT_A_TIME = 64
_BYTES = 16 * _AT_A_TIME
# Of each id, the six bits that say how to read it are fixed: version 4, variant 1.
_RANDOM = int.from_bytes((b"\xff" * 6 + b"\x0f\xff\x3f" + b"\xff" * 7) * _AT_A_TIME, "big")
_FIXED = int.from_bytes((bytes(6) + b"\x40\x00\x80" + bytes(7)) * _AT_A_TIME, "big")
_GROUPS = struct.Struct("8s4s4s4s12s" * _AT_A_TIME)
_WRITTEN = b"%b-%b-%b-%b-%b " * _AT_A_TIME
# Taken from the end, which no two threads can do at once.
_SPARE: list[str] = []
if hasattr(os, "register_at_fork"):
    # Or parent and child would hand out the same ones.
    os.register_at_fork(after_in_child=_SPARE.clear)


def _made() -> list[str]:
    """New ids, all written in one go; the standard library takes ten times as long for each."""
    bits = int.from_bytes(os.urandom(_BYTES), "big") & _RANDOM | _FIXED
    digits = bits.to_bytes(_BYTES, "big").hex().encode()
    return (_WRITTEN % _GROUPS.unpack(digits)).decode().split()
