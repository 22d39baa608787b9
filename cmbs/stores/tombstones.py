"""What elimination stores that keep their data elsewhere share: how a state follows from what was read."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

import msgspec

from cmbs.errors import Conflict, StoreUnavailable
from cmbs.ledger import Delta, StoredEntry
from cmbs.spi.elimination_store import RecoveredState

# What is hashed begins with what it is, so that no digest of one thing is that of another.
_SEAL = b"cmbs/1 seal\0"
_IDS = b"cmbs/1 ids\0"


def recover_state(universe: frozenset[str], eliminated: Iterable[str]) -> RecoveredState:
    """The state of a session with these tombstones."""
    gone = frozenset(eliminated)
    return RecoveredState(universe, gone, universe - gone)


def read_declared_universe(declaration: StoredEntry) -> frozenset[str]:
    """The universe of a session that has a log. Not verified: who reads the log does that."""
    return frozenset(msgspec.json.decode(declaration.raw)["payload"]["hypotheses"])


class _Changed(msgspec.Struct):
    delta: Delta


_CHANGED = msgspec.json.Decoder(_Changed)


def read_eliminated(stored: StoredEntry) -> list[str]:
    """What an entry says it eliminated, nothing where it is none. Not verified: who reads the log does that."""
    try:
        return _CHANGED.decode(stored.raw).delta.eliminated
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def write_universe(hypothesis_ids: frozenset[str]) -> bytes:
    """A universe as a store keeps it for a session that has no log."""
    return msgspec.json.encode(sorted(hypothesis_ids))


def read_universe(kept: bytes) -> frozenset[str]:
    """A universe from what `write_universe` gave; StoreUnavailable where it is something else."""
    try:
        return frozenset(msgspec.json.decode(kept, type=list[str]))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise StoreUnavailable(f"the universe of a session cannot be read, see `cmbs fsck`: {exc}") from exc


class Seal(NamedTuple):
    """What the row of `seals` holds of a session that has no log, and so no chain that would show a change."""

    universe_digest: bytes
    tombstones_digest: bytes
    # Of the name and both: which side of a difference is wrong can then be told.
    digest: bytes


def seal_session(session_id: str, universe: Iterable[str], eliminated: Iterable[str]) -> Seal:
    """The seal of a session as it is now."""
    return seal_digests(session_id, digest_ids(universe), digest_ids(eliminated))


def seal_digests(session_id: str, universe_digest: bytes, tombstones_digest: bytes) -> Seal:
    """The seal that holds these digests."""
    return Seal(
        universe_digest,
        tombstones_digest,
        sha256(_SEAL + universe_digest + tombstones_digest + session_id.encode(errors="surrogateescape")).digest(),
    )


def digest_ids(ids: Iterable[str]) -> bytes:
    """The digest of a set of ids."""
    encoded = sorted(each.encode(errors="surrogateescape") for each in ids)
    return sha256(_IDS + b"".join(len(each).to_bytes(8) + each for each in encoded)).digest()


def refuse_logged(session_id: str) -> Conflict:
    """The refusal to tombstone past a log: the two would tell different stories."""
    return Conflict(f"session `{session_id}` has a log here; eliminate through the server", {"session_id": session_id})


def refuse_other_universe(session_id: str) -> Conflict:
    """The refusal to create a session again over another universe."""
    return Conflict(f"session `{session_id}` exists with another universe", {"session_id": session_id})
