"""What was appended to any stream of a log, in one order: the Journal SPI, an ability that a log may have."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable


class JournalPlace(NamedTuple):
    """A place in the order of a log. Places are compared as they are; the one of an entry names it."""

    position: int
    stream_id: str = ""
    seq: int = -1


# Before every entry.
JOURNAL_BEGINNING = JournalPlace(0)


@runtime_checkable
class JournalLog(Protocol):
    """A log that tells what was appended, whichever process did it.

    What MUST hold: every entry of every stream has one place, and those of one stream are in the order of their `seq`.
    Once `journal` has told a place, no entry ever appears at or before it: a reader that goes on after the last place
    that it was told misses nothing, whatever is written meanwhile. An entry is told some time after it is durable.

    What MAY differ: how long that takes, and the order of entries of different streams.
    """

    def journal(self, after: JournalPlace, limit: int) -> list[JournalPlace]:
        """The places of the entries beyond `after`, in order, at most `limit`."""
        ...

    def journal_end(self) -> JournalPlace:
        """A place that every entry which is appended from now on will be beyond."""
        ...
