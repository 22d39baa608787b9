"""Hypothesis strategies for kits. Needs `hypothesis`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from cmbs.kit.model import (
    NO_DATA,
    Constant,
    CutPoints,
    Gaps,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    NormalBand,
    Reading,
    Reduction,
    Soundness,
    Tail,
    Window,
)
from cmbs.testing.strategies.belief import attributes, ids

_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_POSITIVE = st.floats(min_value=1e-100, max_value=1e100)
# No id of a kit has a NUL.
_IDS = ids().filter(lambda text: "\0" not in text)
_OUTCOME_IDS = _IDS.filter(lambda outcome_id: outcome_id != NO_DATA)


@st.composite
def kits(
    draw: st.DrawFn, max_hypotheses: int = 8, max_probes: int = 5, *, deterministic: bool = False, min_probes: int = 0
) -> Kit:
    """Kits that break no rule, with hostile ids; in deterministic ones, every hypothesis has one outcome of a probe."""
    names = draw(st.lists(_IDS, min_size=1, max_size=max_hypotheses, unique=True))
    hypotheses = tuple(
        KitHypothesis(
            name,
            draw(ids()),
            draw(_POSITIVE),
            tuple(draw(st.lists(_IDS, max_size=2, unique=True))),
            draw(attributes()),
        )
        for name in names
    )
    asked = draw(st.lists(_IDS, min_size=min_probes, max_size=max_probes, unique=True))
    probes = tuple(draw(_probes(probe_id, names, deterministic=deterministic)) for probe_id in asked)
    return Kit(draw(_IDS), draw(_IDS), draw(ids()), hypotheses, probes, draw(ids()), draw(ids()))


def drop_windows(kit: Kit) -> Kit:
    """The kit with probes that are answered by naming an outcome: a probe with a window reads samples alone."""
    return replace(kit, probes=tuple(replace(probe, window=None) for probe in kit.probes))


@st.composite
def responses(draw: st.DrawFn, probe: KitProbe) -> Any:
    """What a probe can read: an outcome, a number where it reads them, a window where it declares one, no data."""
    if probe.window is not None:
        return draw(windows(probe) | st.sampled_from([NO_DATA, None]))
    choices: list[st.SearchStrategy[Any]] = [st.sampled_from([each.outcome_id for each in probe.outcomes])]
    choices.append(st.sampled_from([NO_DATA, None]))
    if probe.reading is not None:
        choices.append(_NUMBERS)
    return draw(st.one_of(choices))


@st.composite
def windows(draw: st.DrawFn, probe: KitProbe) -> list[float]:
    """Samples that the window of a probe reduces; the probe declares one."""
    window = probe.window or Window(Reduction.MEAN)
    fewest = window.n or window.k or 1
    return draw(st.lists(_NUMBERS, min_size=fewest, max_size=window.n or fewest + 4))


@st.composite
def _probes(draw: st.DrawFn, probe_id: str, names: list[str], *, deterministic: bool) -> KitProbe:
    offered = draw(st.lists(_OUTCOME_IDS, min_size=1, max_size=4, unique=True))
    # Every hypothesis has an outcome and every outcome a hypothesis: otherwise a rule would be broken.
    most = 1 if deterministic else len(offered)
    has = {name: draw(st.sets(st.sampled_from(offered), min_size=1, max_size=most)) for name in names}
    used = [outcome_id for outcome_id in offered if any(outcome_id in each for each in has.values())]
    outcomes = tuple(
        KitOutcome(
            outcome_id,
            frozenset(name for name in names if outcome_id not in has[name]),
            draw(st.sampled_from(Soundness)),
            draw(ids()),
        )
        for outcome_id in used
    )
    reading = draw(_readings(used))
    window = None if reading is None else draw(_windows_over(reading))
    return KitProbe(probe_id, draw(ids()), outcomes, reading, window)


@st.composite
def _windows_over(draw: st.DrawFn, reading: Reading) -> Window | None:
    offered = sorted(reading.outcome_ids())
    counting = [Reduction.ANY, Reduction.K_OF_N] if len(offered) == 2 else []  # noqa: PLR2004
    match draw(st.sampled_from([None, Reduction.MEAN, *counting])):
        case None:
            return None
        case Reduction.MEAN:
            return Window(Reduction.MEAN, n=draw(st.none() | st.integers(1, 5)), gaps=draw(st.sampled_from(Gaps)))
        case reduction:
            k = draw(st.integers(1, 4)) if reduction is Reduction.K_OF_N else None
            n = draw(st.none() | st.integers(k or 1, 5))
            return Window(reduction, k, n, draw(st.sampled_from(offered)), draw(st.sampled_from(Gaps)))


@st.composite
def _readings(draw: st.DrawFn, outcome_ids: list[str]) -> Reading | None:
    kinds = ["none", "cuts", "band"][: 1 + len(outcome_ids)]
    match draw(st.sampled_from(kinds)):
        case "cuts":
            cuts = sorted(draw(st.lists(_NUMBERS, min_size=1, max_size=4, unique=True)))
            return CutPoints(tuple(cuts), tuple(draw(st.sampled_from(outcome_ids)) for _ in range(len(cuts) + 1)))
        case "band":
            normal, abnormal = draw(st.permutations(outcome_ids))[:2]
            tail = draw(st.sampled_from(Tail))
            constant = draw(st.none() | st.sampled_from(Constant))
            mad = draw(_POSITIVE if constant is None else _POSITIVE | st.just(0.0))
            return NormalBand(normal, abnormal, draw(_NUMBERS), mad, draw(_POSITIVE), tail, constant)
        case _:
            return None
