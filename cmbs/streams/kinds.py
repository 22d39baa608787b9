"""What the runtime needs to know of a kind of stream: how its state follows from entries, and what is decided.

Belief sessions, spaces and the register of keys are such kinds. Cache, locks, group commit and checkpoints are the same
for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from cmbs.errors import BeliefServerError
from cmbs.ledger import StoredEntry
from cmbs.ledger.replay import StreamState
from cmbs.ledger.state_digest import Spacing
from cmbs.spi.audit_log import Append


class Command(Protocol):
    """A command to a stream."""

    @property
    def stream_id(self) -> str:
        """The stream that it is for."""
        ...


S = TypeVar("S", bound=StreamState)
C = TypeVar("C", bound=Command)
C_contra = TypeVar("C_contra", bound=Command, contravariant=True)
A = TypeVar("A")
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

    def fold(self, state: S | None, stored: StoredEntry) -> tuple[S, Append]:
        """The state after an entry that was verified, and what a log is given to write of it."""
        ...


class StreamKind(Folding[S], Protocol[S, C_contra, A_co]):
    """How states follow from entries, and what commands come to."""

    def opens(self, command: C_contra) -> bool:
        """Whether the command may begin a stream."""
        ...

    def decide(self, state: S | None, command: C_contra) -> tuple[A_co, tuple[S, Append] | None]:
        """The answer to a command; and the state after it with the entry to write before either may be seen.

        None in their place where it repeats what was answered before. Raises what the caller is to be told instead.
        """
        ...


class CheckpointCodec(Protocol[S]):
    """How a state is kept in a checkpoint."""

    @property
    def spacing(self) -> Spacing:
        """How far apart new entries carry state digests."""
        ...

    def freeze(self, state: S) -> bytes:
        """The state as bytes: those that state digests are computed over."""
        ...

    def thaw(self, stream_id: str, data: bytes, first: StoredEntry, at: StoredEntry) -> S | None:
        """The state right before the entry `at`, if that entry carries the digest of `data`; None otherwise.

        `first` is the first entry of the stream; where it is not the one that the state began with, None as well.
        """
        ...
