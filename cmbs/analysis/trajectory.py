"""A session's log as a path: what each elimination asked for, what it changed, and what was left.

Nothing here knows a domain. Bits are by count: log2 of the survivors before over those after, so that they add up to
log2 of the universe over what survives, whatever the order of the eliminations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from cmbs.errors import InvalidRequest
from cmbs.messages import AuditEntry, Verb


class Redundancy(StrEnum):
    """Why an elimination eliminated nothing. Where several hold, the first in this order is given.

    `DUPLICATE`: the same source had reported the same before: the same answer to the same probe, or the same ids.
    `RECALL_FAILURE`: every id it names had been eliminated by the same source.
    `CROSS_AGENT`: every id it names was gone, and other sources had a part in that.
    `PREDICTABLE`: it names no id, and its probe could not have answered otherwise. Only a kit can tell.
    `NO_EFFECT`: it names no id of the universe: it looked, and nothing followed.
    """

    DUPLICATE = "duplicate"
    RECALL_FAILURE = "recall_failure"
    CROSS_AGENT = "cross_agent"
    PREDICTABLE = "predictable"
    NO_EFFECT = "no_effect"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """A probe that an elimination follows from, and what was answered."""

    probe_id: str
    response: Any


@dataclass(frozen=True, slots=True)
class Step:
    """One elimination. `asked` are the ids of the universe that it names, `eliminated` those that still survived.

    `redundancy` is None where something was eliminated. Whether a `NO_EFFECT` was predictable is not known here.
    """

    seq: int
    event_id: str
    ts: str
    source_id: str
    observation_id: str
    asked: frozenset[str]
    eliminated: frozenset[str]
    before: int
    after: int
    redundancy: Redundancy | None
    probe: ProbeAnswer | None = None

    @property
    def bits(self) -> float | None:
        """What it gained; None where it left nothing, which no number of bits describes."""
        return bits_of_counts(self.before, self.after)


@dataclass(frozen=True)
class Trajectory:
    """A session as its eliminations."""

    session_id: str
    space_id: str
    space_version: str
    started: str
    universe: frozenset[str]
    steps: tuple[Step, ...]
    events: int
    refusals: int

    @cached_property
    def survivors(self) -> frozenset[str]:
        """What is left."""
        return self.universe.difference(*(step.eliminated for step in self.steps))

    @property
    def bits(self) -> float | None:
        """What all eliminations gained together; None where they left nothing."""
        return bits_of_counts(len(self.universe), len(self.survivors))

    def killer_of(self, hypothesis_id: str) -> Step | None:
        """The elimination that took a hypothesis out; None for one that survives."""
        return next((step for step in self.steps if hypothesis_id in step.eliminated), None)


def bits_of_counts(before: int, after: int) -> float | None:
    """log2 of one number of survivors over a later one; None where none are left of some."""
    if before == after:
        return 0.0
    return math.log2(before / after) if after else None


def trajectory_of(entries: Iterable[AuditEntry]) -> Trajectory:
    """Read a whole log, from its declaration on; InvalidRequest where it does not begin with one."""
    log = iter(entries)
    first = next(log, None)
    if first is None or first.verb != Verb.DECLARE_SESSION:
        raise InvalidRequest("a trajectory begins with the declaration of its session")
    universe = frozenset(first.payload["hypotheses"])
    reader = _Reader(universe)
    events, refusals = 1, 0
    for entry in log:
        events += 1
        refusals += _is_refusal(entry.outcome)
        if entry.verb == Verb.ELIMINATE:
            reader.read(entry)
    space_id, space_version = _space(first.payload)
    return Trajectory(
        session_id=first.stream_id,
        space_id=space_id,
        space_version=space_version,
        started=first.ts,
        universe=universe,
        steps=tuple(reader.steps),
        events=events,
        refusals=refusals,
    )


def _space(declaration: Mapping[str, Any]) -> tuple[str, str]:
    """Which hypothesis space a session is about: that of its provider, else what its ontology says."""
    provider = declaration.get("provider")
    if provider is not None:
        return provider["id"], provider["version"]
    ontology = declaration["ontology"]
    return ontology["hypothesis_space_id"], ontology["hypothesis_version"]


class _Reader:
    """Follows a log, with what each source has reported and eliminated."""

    def __init__(self, universe: frozenset[str]) -> None:
        self.steps: list[Step] = []
        self._universe = universe
        self._alive = len(universe)
        self._eliminator: dict[str, str] = {}
        self._reports: set[tuple[object, ...]] = set()

    def read(self, entry: AuditEntry) -> None:
        """Take in one ELIMINATE."""
        payload = entry.payload
        source_id = payload["source_id"]
        asked = self._universe.intersection(payload["eliminated"])
        eliminated = frozenset(entry.delta_eliminated)
        probe = _probe_of(payload)
        report = _report(source_id, probe, asked)
        redundancy = None if eliminated else self._redundancy(source_id, report, asked)
        before, self._alive = self._alive, self._alive - len(eliminated)
        self._eliminator.update(dict.fromkeys(eliminated, source_id))
        if report is not None:
            self._reports.add(report)
        self.steps.append(
            Step(
                seq=entry.seq,
                event_id=entry.event_id,
                ts=entry.ts,
                source_id=source_id,
                observation_id=payload["observation_id"],
                asked=asked,
                eliminated=eliminated,
                before=before,
                after=self._alive,
                redundancy=redundancy,
                probe=probe,
            )
        )

    def _redundancy(self, source_id: str, report: tuple[object, ...] | None, asked: frozenset[str]) -> Redundancy:
        if report in self._reports:
            return Redundancy.DUPLICATE
        if not asked:
            return Redundancy.NO_EFFECT
        if all(self._eliminator[hypothesis_id] == source_id for hypothesis_id in asked):
            return Redundancy.RECALL_FAILURE
        return Redundancy.CROSS_AGENT


def _report(source_id: str, probe: ProbeAnswer | None, asked: frozenset[str]) -> tuple[object, ...] | None:
    """What makes two reports of a source the same; None for one that says nothing that could be compared."""
    if probe is not None:
        return source_id, probe.probe_id, repr(probe.response)
    return (source_id, asked) if asked else None


def _probe_of(payload: Mapping[str, Any]) -> ProbeAnswer | None:
    """The probe of an elimination: of a provider-backed session, or named in the justification."""
    recorded = payload.get("probe") or payload.get("justification")
    if not isinstance(recorded, Mapping) or not isinstance(recorded.get("probe_id"), str):
        return None
    return ProbeAnswer(recorded["probe_id"], recorded.get("response", recorded.get("outcome_id")))


def _is_refusal(outcome: Mapping[str, Any] | None) -> bool:
    """Whether a request was answered with no."""
    return outcome is not None and (outcome.get("approved") is False or outcome.get("accepted") is False)


def seconds_between(earlier: str, later: str) -> float:
    """The seconds from one timestamp of the ledger to another."""
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
