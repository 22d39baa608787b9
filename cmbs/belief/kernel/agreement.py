"""A session held against what an elimination store has of it. Pure.

The log is what happened. A store agrees where it has the universe of the session and a tombstone for everything that
the log eliminated. Tombstones beyond these are *foreign*: others put them there, and they contradict nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from msgspec import UNSET

from cmbs.belief.kernel.session import Session
from cmbs.messages import EliminationRule, ForeignRule
from cmbs.spi.elimination_store import EliminationProvenance, RecoveredState

_MAX_NAMED = 5
_MAX_ID_CHARS = 512
_UNKNOWN = "unknown"


class StoreState(StrEnum):
    """What is known of a session's tombstones in their store."""

    UNCHECKED = "unchecked"
    AGREES = "agrees"
    DISAGREES = "disagrees"


class ForeignTombstones(NamedTuple):
    """Tombstones that others put into a session, with one provenance; the ids sorted."""

    source_id: str
    trigger: str
    hypothesis_ids: tuple[str, ...]

    def split(self, most: int) -> Iterator[ForeignTombstones]:
        """The same in parts of at most so many ids."""
        for start in range(0, len(self.hypothesis_ids), most):
            yield self._replace(hypothesis_ids=self.hypothesis_ids[start : start + most])


class StoreReport(NamedTuple):
    """Whether a store agrees with the log of a session, why not, and what is foreign in it."""

    state: StoreState
    reason: str = ""
    foreign: tuple[ForeignTombstones, ...] = ()

    @property
    def n_foreign(self) -> int:
        """How many hypotheses others ruled out."""
        return sum(len(each.hypothesis_ids) for each in self.foreign)


class Difference(NamedTuple):
    """Where a store differs from the log."""

    # In the universe of one of them alone.
    misplaced: frozenset[str]
    # Eliminated in the log, without a tombstone in the store.
    missing: frozenset[str]
    # With a tombstone in the store, alive in the log.
    foreign: frozenset[str]

    @property
    def reason(self) -> str:
        """Why the store does not agree; empty where it does."""
        if self.misplaced:
            return f"its universe in the elimination store is another one: {name_some(self.misplaced)}"
        if self.missing:
            return f"the elimination store lacks tombstones: {name_some(self.missing)}"
        return ""


def find_eliminated(session: Session) -> frozenset[str]:
    """What the log has eliminated."""
    return frozenset(session.universe.ids).difference(session.survivors)


def find_difference(before: Session, after: Session, recovered: RecoveredState) -> Difference:
    """Hold a session against a store that was asked between two moments of it.

    What was eliminated before must be in the store by then; what is in the store may be eliminated only after.
    """
    universe = frozenset(before.universe.ids)
    return Difference(
        universe ^ recovered.hypothesis_ids,
        find_eliminated(before) - recovered.eliminated,
        (recovered.eliminated & universe) - find_eliminated(after),
    )


def group_foreign(
    foreign: frozenset[str], sources: Mapping[EliminationProvenance, frozenset[str]]
) -> tuple[ForeignTombstones, ...]:
    """Foreign tombstones by provenance, in the order of sources; those of which none is known are `unknown`."""
    found = [
        ForeignTombstones(said.source_id or _UNKNOWN, said.trigger or _UNKNOWN, tuple(sorted(ids & foreign)))
        for said, ids in sources.items()
        if ids & foreign
    ]
    rest = foreign.difference(*sources.values())
    if rest:
        found.append(ForeignTombstones(_UNKNOWN, _UNKNOWN, tuple(sorted(rest))))
    return tuple(sorted(found))


def observation_of(foreign: ForeignTombstones) -> tuple[str, str]:
    """The source and the observation under which foreign tombstones become an elimination.

    They follow from the tombstones, so that of many servers that see the same ones, one records them.
    """
    digest = sha256("\0".join(foreign.hypothesis_ids).encode()).hexdigest()[:16]
    return foreign.source_id[:_MAX_ID_CHARS], f"foreign:{digest}:{foreign.trigger[:_MAX_ID_CHARS]}"


def takes_foreign(session: Session) -> bool:
    """Whether what others rule out in the store becomes eliminations of the session.

    Not where only the response to a probe eliminates, or only named observers: no actor is known, and no probe.
    """
    policy = session.policy
    asked = policy.foreign_tombstones is ForeignRule.ELIMINATE
    restricted = policy.eliminations is EliminationRule.OBSERVATIONS or policy.observers is not UNSET
    return asked and not restricted and session.terminated_seq is None


def name_some(ids: Iterable[str]) -> str:
    """The first few ids, and how many others there are."""
    ordered = sorted(ids)
    more = f" and {len(ordered) - _MAX_NAMED} more" if len(ordered) > _MAX_NAMED else ""
    return ", ".join(f"`{each}`" for each in ordered[:_MAX_NAMED]) + more
