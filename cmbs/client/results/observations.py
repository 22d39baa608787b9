"""Answers about observations, probes and kits."""

from __future__ import annotations

from typing import Any

from cmbs.client.results.belief import Belief, CurrentBelief, Result


class KitReference(Result, frozen=True):
    """One content of a kit."""

    id: str
    content_hash: str


class ObservationReading(Result, frozen=True):
    """What was made of an observation."""

    probe_id: str
    source_id: str
    observation_id: str
    ruled_out: int
    kit: KitReference | None = None
    outcome_id: str | None = None
    reading: dict[str, Any] | None = None
    seen_at: str | None = None


class Look(Result, frozen=True):
    """What was seen of a probe at one time."""

    audit_event_id: str
    seq: int
    ts: str
    source_id: str
    observation_id: str
    probe_id: str
    response: Any
    outcome_id: str | None
    seen_at: str | None
    actor_id: str | None


class Observation(Result, frozen=True):
    """Answer to an observation."""

    applied_eliminated: list[str]
    ignored_eliminated: list[str]
    snapshot: Belief
    audit_event_id: str
    observation: ObservationReading
    seen_before: list[Look]
    replayed: bool = False
    current: CurrentBelief | None = None


class ProbeAnswer(Result, frozen=True):
    """An answer that a probe may still have, and what it would leave."""

    outcome_id: str
    label: str
    soundness: str
    likelihood: float
    leaves: int
    rules_out: int


class Probe(Result, frozen=True):
    """A probe that can still rule something out."""

    probe_id: str
    prompt: str
    reads_numbers: bool
    expected_bits: float
    answers: list[ProbeAnswer]
    n_looks: int


class ProbesPage(Result, frozen=True):
    """A page of the probes that are worth asking, the best first. Nothing here decides: any probe may be asked."""

    probes: list[Probe]
    n_probes: int
    n_survivors: int
    audit_head_event_id: str
    asked: list[Look]
    n_asked: int
    next_cursor: str | None


class KitContent(Result, frozen=True):
    """A content of a kit that is on record."""

    kit_id: str
    version: str
    content_hash: str
    title: str
    media_type: str
    n_hypotheses: int
    n_probes: int
    n_bytes: int
    ts: str
    put_by: str
    audit_event_id: str


class KitWarning(Result, frozen=True):
    """What is doubtful about a kit, and where."""

    severity: str
    rule: str
    message: str
    path: list[str | int]
    line: int | None
    column: int | None


class KitPut(Result, frozen=True):
    """Answer to a kit that was put on record."""

    kit: KitContent
    warnings: list[KitWarning]
    replayed: bool = False


class KitsPage(Result, frozen=True):
    """A page of kits by id, each in its newest content."""

    kits: list[KitContent]
    next_cursor: str | None


class KitSource(Result, frozen=True):
    """A kit as it was written."""

    media_type: str
    text: str


class Kit(Result, frozen=True):
    """A kit: one content of it, the document, and every content by age."""

    kit: KitContent
    source: KitSource
    contents: list[KitContent]
