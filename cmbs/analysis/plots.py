"""Plots as SVG text: no script, no font, no file beside it. Everything that comes from a session is escaped."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

# Told apart without red against green, on white and on black.
COLOURS = ("#3b82c4", "#e08a1e", "#2f9e8f", "#b0559e", "#8a7a2c", "#6b6f76")
_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 12, 40
_TICKS = 5
_LABEL_LENGTH = 24


class Line(NamedTuple):
    """A line through points, with a name that shows under the pointer."""

    name: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """A bar of one or more parts, on top of each other; each part has a value and one of the plot's series."""

    name: str
    parts: Sequence[float]


class Dot(NamedTuple):
    """A point with a name that shows under the pointer."""

    name: str
    x: float
    y: float


def line_plot(lines: Sequence[Line], x_label: str, y_label: str) -> str:
    """Lines over a common pair of axes, both from 0."""
    right = max((x for line in lines for x, _ in line.points), default=0.0)
    top = max((y for line in lines for _, y in line.points), default=0.0)
    x_of, y_of = _make_scale(0, right, _LEFT, _WIDTH - _RIGHT), _make_scale(0, top, _HEIGHT - _BOTTOM, _TOP)
    drawn = [
        f'<polyline fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="1.5" points="'
        + " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in line.points)
        + f'"><title>{escape_text(line.name)}</title></polyline>'
        for number, line in enumerate(lines)
    ]
    return _frame(drawn, _axes((0, right, x_of), (0, top, y_of)), x_label, y_label)


def bar_plot(bars: Sequence[Bar], series: Sequence[str], y_label: str) -> str:
    """Stacked bars, one after the other, with a legend of what the parts are."""
    top = max((math.fsum(bar.parts) for bar in bars), default=0.0)
    y_of = _make_scale(0, top, _HEIGHT - _BOTTOM, _TOP)
    room = (_WIDTH - _LEFT - _RIGHT) / max(len(bars), 1)
    drawn = []
    for number, bar in enumerate(bars):
        left, base = _LEFT + number * room + room * 0.1, 0.0
        for index, value in enumerate(bar.parts):
            low, high = y_of(base), y_of(base + value)
            if value > 0:
                title = escape_text(f"{bar.name}: {series[index]} {_number(value)}")
                drawn.append(
                    f'<rect x="{left:.1f}" y="{high:.1f}" width="{room * 0.8:.1f}" height="{low - high:.1f}" '
                    f'fill="{COLOURS[index % len(COLOURS)]}"><title>{title}</title></rect>'
                )
            base += value
    legend = "".join(
        f'<tspan fill="{COLOURS[index % len(COLOURS)]}" dx="8">■ {escape_text(name)}</tspan>'
        for index, name in enumerate(series)
    )
    drawn.append(f'<text x="{_LEFT}" y="{_HEIGHT - 10}" class="legend">{legend}</text>')
    return _frame(drawn, _axes(None, (0, top, y_of)), "", y_label)


def dot_plot(dots: Sequence[Dot], x_label: str, y_label: str) -> str:
    """Points over a common pair of axes, which show 0 in both directions."""
    xs, ys = [0.0, *(dot.x for dot in dots)], [0.0, *(dot.y for dot in dots)]
    x_of = _make_scale(min(xs), max(xs), _LEFT, _WIDTH - _RIGHT)
    y_of = _make_scale(min(ys), max(ys), _HEIGHT - _BOTTOM, _TOP)
    drawn = [
        f'<line x1="{x_of(0):.1f}" x2="{x_of(0):.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" class="zero"/>',
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y_of(0):.1f}" y2="{y_of(0):.1f}" class="zero"/>',
    ]
    drawn += [
        f'<circle cx="{x_of(dot.x):.1f}" cy="{y_of(dot.y):.1f}" r="4" fill="{COLOURS[0]}" fill-opacity="0.7">'
        f"<title>{escape_text(dot.name)}</title></circle>"
        for dot in dots
    ]
    axes = _axes((min(xs), max(xs), x_of), (min(ys), max(ys), y_of))
    return _frame(drawn, axes, x_label, y_label)


def shorten(name: str) -> str:
    """A name that fits beside others."""
    return name if len(name) <= _LABEL_LENGTH else f"{name[: _LABEL_LENGTH - 1]}…"


def _make_scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Where a value is on an axis; in its middle where there is only one value."""
    extent = high - low

    def place(value: float) -> float:
        share = (value - low) / extent if extent else 0.5
        return start + share * (end - start)

    return place


def _axes(
    x: tuple[float, float, Callable[[float], float]] | None, y: tuple[float, float, Callable[[float], float]]
) -> list[str]:
    drawn = []
    low, high, y_of = y
    for tick in _ticks(low, high):
        place = f"{y_of(tick):.1f}"
        drawn.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{place}" y2="{place}" class="grid"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{place}" dy="4" text-anchor="end">{_number(tick)}</text>')
    if x is not None:
        low, high, x_of = x
        for tick in _ticks(low, high):
            place = f"{x_of(tick):.1f}"
            drawn.append(f'<text x="{place}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{_number(tick)}</text>')
    return drawn


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from the first in the range to the last."""
    if high <= low:
        return [low]
    rough = (high - low) / _TICKS
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= rough)
    return [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _frame(drawn: Sequence[str], axes: Sequence[str], x_label: str, y_label: str) -> str:
    upright = f'transform="rotate(-90 12 {_TOP})"'
    labels = [
        f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 8}" text-anchor="end">{escape_text(x_label)}</text>',
        f'<text x="12" y="{_TOP}" text-anchor="end" {upright}>{escape_text(y_label)}</text>',
    ]
    content = "\n".join([*axes, *drawn, *labels])
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape_text(y_label)}">\n{content}\n</svg>'


def escape_text(text: str) -> str:
    """Text as XML can hold it: escaped, and without characters that no document may contain."""
    return escape("".join(each if each.isprintable() else "\ufffd" for each in text))


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
