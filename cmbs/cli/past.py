"""What commands read of the past: from a store, or from an export."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cmbs.audit.transfer import read_exported
from cmbs.cli.output import STANDARD_INPUT, existing_store
from cmbs.errors import SpaceNotFound
from cmbs.ledger import StoredEntry

if TYPE_CHECKING:
    from cmbs.stores import Store

_ENTRIES_PER_READ = 1_000


class Past(NamedTuple):
    """Where the past is read from: the entries of a stream, a part at a time or all at once.

    `complete`: a stream that is not there never was.
    """

    read: Callable[[str], Iterator[StoredEntry]]
    complete: bool

    def read_whole(self, stream_id: str) -> list[StoredEntry]:
        """All entries of a stream; none where it is not there."""
        return list(self.read(stream_id))


@contextmanager
def open_past(url: str, log: Path | None) -> Iterator[Past]:
    """The past in a store, or in an export."""
    if log is not None:
        # Any number of streams is read from it, and standard input can be read once.
        data = sys.stdin.buffer.read() if str(log) == STANDARD_INPUT else log.read_bytes()
        yield Past(lambda stream_id: iter(read_exported(BytesIO(data), stream_id) or ()), complete=False)
        return
    with closing(existing_store(url)) as store:
        yield Past(lambda stream_id: read_in_parts(store, stream_id), complete=True)


def read_in_parts(store: Store, stream_id: str) -> Iterator[StoredEntry]:
    """The entries of a stream, so many at a time."""
    seq = -1
    while entries := store.read(stream_id, seq, _ENTRIES_PER_READ):
        yield from entries
        seq += len(entries)


def check_there(entries: Iterator[StoredEntry], space_id: str) -> Iterator[StoredEntry]:
    """The entries of a space; SpaceNotFound where there are none."""
    first = next(entries, None)
    if first is None:
        raise SpaceNotFound(space_id)
    return chain([first], entries)
