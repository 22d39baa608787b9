"""Many analyses side by side: a table, and a page with plots that needs nothing beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cmbs.analysis.findings import Analysis, RegretFinding
from cmbs.analysis.optimum import Method
from cmbs.analysis.plots import Bar, Dot, Line, bar_plot, dot_plot, escape_text, line_plot, shorten
from cmbs.analysis.trajectory import Redundancy

# Sessions that a plot draws; more would be unreadable, and the table has all of them.
MAX_DRAWN = 60

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

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2126; --faint: #d9dde2; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e6ea; --faint: #3a4047; --paper: #15181c; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 1100px; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--faint); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; max-width: 24rem; overflow: hidden; text-overflow: ellipsis; }
svg { width: 100%; max-width: 760px; height: auto; display: block; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); }
svg .grid { stroke: var(--faint); } svg .zero { stroke: var(--ink); stroke-opacity: .5; }
"""


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


def html_report(analyses: Sequence[Analysis], title: str) -> str:
    """A page about many sessions: self-contained, without scripts, everything from sessions escaped."""
    summary = "".join(
        f"<tr><td>{escape_text(name)}</td><td>{escape_text(value)}</td></tr>" for name, value in summary_of(analyses)
    )
    head = "".join(f"<th>{escape_text(name)}</th>" for name in COLUMNS)
    rows = "\n".join(_row(each) for each in analyses)
    drawn = analyses[:MAX_DRAWN]
    note = f"<p>The plots show the first {MAX_DRAWN} sessions.</p>" if len(analyses) > MAX_DRAWN else ""
    plots = "\n".join(f"<h2>{escape_text(name)}</h2>\n{plot}" for name, plot in _plots(drawn))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape_text(title)}</h1>\n"
        f"<table>{summary}</table>\n{note}\n{plots}\n<h2>Sessions</h2>\n"
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n'
        "</body>\n</html>\n"
    )


def _row(analysis: Analysis) -> str:
    first, *others = row_of(analysis)
    cells = "".join(f"<td>{escape_text(value)}</td>" for value in others)
    return f'<tr><td title="{escape_text(first)}">{escape_text(first)}</td>{cells}</tr>'


def _plots(analyses: Sequence[Analysis]) -> list[tuple[str, str]]:
    plots = [
        ("How the survivors became fewer", line_plot([_funnel(each) for each in analyses], "elimination", "bits left")),
        (
            "What the eliminations were",
            bar_plot(
                [Bar(each.session_id, _kinds(each)) for each in analyses],
                ("effective", *(kind.value.replace("_", " ") for kind in Redundancy)),
                "eliminations",
            ),
        ),
    ]
    # Only where an optimum is known: a bound does not say what was lost by choices.
    known = [(each.session_id, each.kit.regret) for each in analyses if each.kit is not None]
    dots = [
        Dot(f"{shorten(name)}: regret {found.regret:.2f}, luck {found.luck:.2f}", found.regret, found.luck)
        for name, found in known
        if found.regret is not None and found.luck is not None
    ]
    if dots:
        plots.append(
            ("Skill and luck, in probes", dot_plot(dots, "regret (lost by choices)", "luck (saved by answers)"))
        )
    return plots


def _funnel(analysis: Analysis) -> Line:
    counts = [analysis.universe_size, *(event.after for event in analysis.timeline)]
    last = len(counts) - 1
    # Only the ends of what is level: a page of long sessions would be too long to open.
    corners = [
        number
        for number, count in enumerate(counts)
        if number in (0, last) or not counts[number - 1] == count == counts[number + 1]
    ]
    return Line(analysis.session_id, [(number, math.log2(max(counts[number], 1))) for number in corners])


def _kinds(analysis: Analysis) -> list[float]:
    kinds = [sum(event.redundancy is kind for event in analysis.timeline) for kind in Redundancy]
    return [analysis.eliminations - sum(kinds), *kinds]


def _truth(analysis: Analysis) -> str:
    if analysis.truth is None:
        return "–"
    if not analysis.truth.survived:
        return "killed"
    return "found" if analysis.truth.found else "alive"


def _decimal(value: float | None) -> str:
    return "–" if value is None else f"{value:z.3f}"
