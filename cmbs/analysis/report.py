"""Many analyses side by side: a table, and what a page that needs nothing beside it shows of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from cmbs.analysis.findings import Analysis, RegretFinding
from cmbs.analysis.optimum import Method
from cmbs.analysis.trajectory import Redundancy
from cmbs.messages import AuditEntry, Verb

# Sessions whose logs are in a page, and how long these may be: the table has all sessions.
MAX_DRAWN = 60
MAX_EVENTS_DRAWN = 2_000
# Larger universes are drawn by their counts.
MAX_IDS_DRAWN = 2_000

COLUMNS = (
    "session",
    "universe",
    "left",
    "bits",
    "eliminations",
    "bits each",
    "redundant",
    "certificate",
    "resolved",
    "truth",
    "regret",
    "luck",
    "against",
)

_PAYLOAD = (
    "title",
    "source_id",
    "observation_id",
    "probe",
    "obligation_id",
    "min_total_eliminations",
    "conclusion_id",
    "ontology",
)
_IDS = ("hypotheses", "hypothesis_attributes", "eliminated")
_OUTCOME = ("approved", "accepted", "reason")


class DrawnLog(NamedTuple):
    """A log as a page draws it: with ids, or with how many were left after each elimination."""

    events: list[dict[str, Any]]
    with_ids: bool


class ReportedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session on the page: its line of the table, and its log where that is drawn."""

    session_id: str
    row: tuple[str, ...]
    kinds: list[tuple[str, int]]
    regret: float | None
    luck: float | None
    events: list[dict[str, Any]] | None
    with_ids: bool


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the page about many sessions shows."""

    title: str
    columns: tuple[str, ...]
    summary: list[tuple[str, str]]
    sessions: list[ReportedSession]


def row_of(analysis: Analysis) -> tuple[str, ...]:
    """A session as a line of the table, in the order of `COLUMNS`; a dash where there is nothing to say."""
    kit = analysis.kit
    return (
        analysis.session_id,
        f"{analysis.universe_size:,}",
        f"{analysis.n_survivors:,}",
        _decimal(analysis.bits),
        f"{analysis.eliminations:,}",
        _decimal(analysis.efficiency),
        f"{analysis.redundancy.share:.0%}",
        f"{analysis.certificate.size:,}" + ("" if analysis.certificate.exact else "?"),
        "yes" if analysis.resolution.resolved else "no",
        _truth(analysis),
        "–" if kit is None else describe_regret(kit.regret),
        _decimal(None if kit is None else kit.regret.luck),
        "–" if kit is None else kit.regret.method.value,
    )


def summary_of(analyses: Sequence[Analysis]) -> list[tuple[str, str]]:
    """What can be said of all sessions together."""
    eliminations = sum(each.eliminations for each in analyses)
    redundant = sum(each.redundancy.total for each in analyses)
    bits = [each.bits for each in analyses if each.bits is not None]
    truths = [each.truth for each in analyses if each.truth is not None]
    kits = [each.kit.regret for each in analyses if each.kit is not None]
    lines = [
        ("sessions", f"{len(analyses):,}"),
        ("resolved", f"{sum(each.resolution.resolved for each in analyses):,}"),
        ("eliminations", f"{eliminations:,}"),
        ("redundant", f"{redundant / eliminations:.1%}" if eliminations else "–"),
        ("bits gained, mean", _decimal(math.fsum(bits) / len(bits) if bits else None)),
        ("contradictions (nothing left)", f"{sum(not each.n_survivors for each in analyses):,}"),
    ]
    if truths:
        lines.append(("truth survived", f"{sum(each.survived for each in truths):,} of {len(truths):,}"))
        lines.append(("truth found", f"{sum(each.found for each in truths):,} of {len(truths):,}"))
    if kits:
        lines.append(("probes, mean", _decimal(sum(each.probes for each in kits) / len(kits))))
    # By each method for itself: probes lost against the optimum and against a bound do not add up to anything.
    for method in Method:
        own = [each for each in kits if each.method is method]
        for name in ("regret", "luck", "beyond_at_most"):
            known = [value for each in own if (value := getattr(each, name)) is not None]
            if known:
                noun = name.replace("_", " ")
                lines.append((f"{noun}, mean ({method})", _decimal(math.fsum(known) / len(known))))
    return lines


def describe_regret(finding: RegretFinding) -> str:
    """What the choices cost; where only a bound is known, by how much they and luck together are beyond it at most."""
    if finding.beyond_at_most is not None:
        return f"at most {_decimal(finding.beyond_at_most)}"
    return _decimal(finding.regret)


def draw_log(entries: Sequence[AuditEntry]) -> DrawnLog | None:
    """What a page needs of a log; None where it is too long to be drawn."""
    if len(entries) > MAX_EVENTS_DRAWN:
        return None
    universe = len(entries[0].payload["hypotheses"])
    with_ids = universe <= MAX_IDS_DRAWN
    left, events = universe, []
    for entry in entries:
        left -= len(entry.delta_eliminated)
        events.append(_draw_event(entry, universe, left, with_ids=with_ids))
    return DrawnLog(events, with_ids)


def _draw_event(entry: AuditEntry, universe: int, left: int, *, with_ids: bool) -> dict[str, Any]:
    members = (*_PAYLOAD, *_IDS) if with_ids else _PAYLOAD
    event: dict[str, Any] = {"seq": entry.seq, "event_id": entry.event_id, "ts": entry.ts, "verb": entry.verb}
    event["payload"] = {name: entry.payload[name] for name in members if name in entry.payload}
    if entry.verb == Verb.DECLARE_SESSION:
        event["outcome"] = {"universe_size": universe}
    else:
        outcome = entry.outcome or {}
        event["outcome"] = {name: outcome[name] for name in _OUTCOME if name in outcome}
    if entry.verb == Verb.ELIMINATE:
        event |= {"delta": entry.delta} if with_ids else {"left": left}
    return event


def build_report(analyses: Sequence[Analysis], logs: Mapping[str, DrawnLog | None], title: str) -> Report:
    """What a page says of many sessions; the logs are by session, of those that are drawn."""
    return Report(
        title=title,
        columns=COLUMNS,
        summary=summary_of(analyses),
        sessions=[_report_session(each, logs.get(each.session_id)) for each in analyses],
    )


def _report_session(analysis: Analysis, log: DrawnLog | None) -> ReportedSession:
    # Only where an optimum is known: a bound does not say what was lost by choices.
    regret = None if analysis.kit is None else analysis.kit.regret
    return ReportedSession(
        session_id=analysis.session_id,
        row=row_of(analysis),
        kinds=_count_kinds(analysis),
        regret=None if regret is None else regret.regret,
        luck=None if regret is None else regret.luck,
        events=None if log is None else log.events,
        with_ids=log is not None and log.with_ids,
    )


def _count_kinds(analysis: Analysis) -> list[tuple[str, int]]:
    kinds = [
        (kind.value.replace("_", " "), sum(event.redundancy is kind for event in analysis.timeline))
        for kind in Redundancy
    ]
    return [("effective", analysis.eliminations - sum(n for _, n in kinds)), *kinds]


def _truth(analysis: Analysis) -> str:
    if analysis.truth is None:
        return "–"
    if not analysis.truth.survived:
        return "killed"
    return "found" if analysis.truth.found else "alive"


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:z.3f}"
