"""What the way to the log needs to know of a kind of stream: how its state follows from entries, and what is decided.

Belief sessions and spaces are such kinds. Everything else, cache, locks and group commit, is the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from cmbs.errors import BeliefServerError, LedgerCorrupt
from cmbs.ledger import Head, StoredEntry
from cmbs.spi.audit_log import Append


class State(Protocol):
    """What a stream comes to: a value, right after its head."""

    @property
    def head(self) -> Head:
        """Where the stream ends."""
        ...


class Addressed(Protocol):
    """A command on its way to a stream."""

    @property
    def stream_id(self) -> str:
        """The stream that it is for."""
        ...


S = TypeVar("S", bound=State)
C_contra = TypeVar("C_contra", bound=Addressed, contravariant=True)
A_co = TypeVar("A_co", covariant=True)


class Folding(Protocol[S]):
    """How states follow from entries."""

    def owns(self, stream_id: str) -> bool:
        """Whether a stream of this name is of this kind."""
        ...

    def not_found(self, stream_id: str) -> BeliefServerError:
        """The error of a stream that is not there."""
        ...

    def catch_up(self, stream_id: str, state: S | None, entries: Sequence[StoredEntry]) -> S | None:
        """Verify `entries` as what follows `state`, and fold them in. LedgerCorrupt names the first bad one."""
        ...

    def freeze(self, state: S) -> bytes:
        """The state as bytes, for a checkpoint."""
        ...

    def thaw(self, stream_id: str, data: bytes, first: StoredEntry, at: StoredEntry) -> S | None:
        """The state that a checkpoint holds, if it fits the stream's first entry and the one that it stands at."""
        ...


class StreamKind(Folding[S], Protocol[S, C_contra, A_co]):
    """How states follow from entries, and what commands come to."""

    def opens(self, command: C_contra) -> bool:
        """Whether the command may begin a stream."""
        ...

    def decided(self, state: S | None, command: C_contra) -> tuple[A_co, S | None, Append | None]:
        """The answer to a command, the state after it, and the entry to write before either may be seen.

        Without a state and an entry it repeats what was answered before. Raises what the caller is to be told instead.
        """
        ...

    def appended(self, state: S | None, stored: StoredEntry) -> tuple[S, Append]:
        """The state after an entry that was verified, and what a log is given to write of it."""
        ...


def verified(kind: Folding[S], stream_id: str, entries: Sequence[StoredEntry]) -> S:
    """The state that a whole stream proves."""
    state = kind.catch_up(stream_id, None, entries)
    if state is None:
        raise LedgerCorrupt(stream_id, 0, "the log is empty")
    return state
