"""Small domains to analyse: kits and tables of every shape, and worlds in which a kit's probes are answered."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import strategies as st

from cmbs.analysis.appraisal import Move
from cmbs.analysis.table import Table, table_of
from cmbs.kit import Kit, KitHypothesis, KitOutcome, KitProbe, Soundness
from cmbs.kit.writing import format_kit

_PRIORS = (1.0, 1.0, 1.0, 0.5, 0.1, 3.0, 1e-3)


def kit_of(columns: Sequence[Sequence[frozenset[int]]], priors: Sequence[float]) -> Kit:
    """A kit of one probe a column; a column says for each hypothesis which outcomes it is consistent with."""
    ids = [f"h{number}" for number in range(len(priors))]
    probes = []
    for number, column in enumerate(columns):
        outcomes = sorted(frozenset().union(*column))
        probes.append(
            KitProbe(
                f"p{number}",
                "",
                tuple(
                    KitOutcome(
                        f"o{outcome}",
                        frozenset(each for each, own in zip(ids, column, strict=True) if outcome not in own),
                        Soundness.SOUND,
                    )
                    for outcome in outcomes
                ),
            )
        )
    hypotheses = tuple(KitHypothesis(each, prior=prior) for each, prior in zip(ids, priors, strict=True))
    return Kit("domain", "1", "", hypotheses, tuple(probes))


@st.composite
def kits(
    draw: st.DrawFn, *, hypotheses: int = 8, probes: int = 6, outcomes: int = 3, deterministic: bool = True
) -> Kit:
    """A kit; with `deterministic=False`, one in which hypotheses may leave open how a probe is answered."""
    size = draw(st.integers(1, hypotheses))
    cell: st.SearchStrategy[frozenset[int]] = st.integers(0, outcomes - 1).map(lambda each: frozenset({each}))
    if not deterministic:
        cell = st.frozensets(st.integers(0, outcomes - 1), min_size=1)
    columns = draw(st.lists(st.lists(cell, min_size=size, max_size=size), max_size=probes))
    uniform = draw(st.booleans())
    priors = [1.0] * size if uniform else draw(st.lists(st.sampled_from(_PRIORS), min_size=size, max_size=size))
    return kit_of(columns, priors)


def tables(
    *, hypotheses: int = 8, probes: int = 6, outcomes: int = 3, deterministic: bool = True
) -> st.SearchStrategy[Table]:
    """The tables of such kits."""
    return kits(hypotheses=hypotheses, probes=probes, outcomes=outcomes, deterministic=deterministic).map(table_of)


class World(NamedTuple):
    """A truth, how every probe is answered under it, and how likely all of that is."""

    truth: str
    answers: dict[str, str]
    chance: Fraction


def worlds(table: Table) -> Iterator[World]:
    """Every world there can be: each truth by its prior, each of its possible answers equally likely."""
    total = sum(table.weights)
    for truth, weight in zip(table.hypotheses, table.weights, strict=True):
        bit = table.bit(truth)
        possible = [[each.outcome_id for each in probe.outcomes if each.consistent & bit] for probe in table.probes]
        for answers in product(*possible):
            chance = Fraction(weight, total)
            for own in possible:
                chance /= len(own)
            yield World(truth, dict(zip((probe.probe_id for probe in table.probes), answers, strict=True)), chance)


def walk(table: Table, world: World, probe_ids: Sequence[str]) -> list[Move]:
    """The moves of asking probes in a world."""
    moves = []
    alive = table.everything
    for probe_id in probe_ids:
        probe = table.probe(probe_id)
        assert probe is not None
        answer = world.answers[probe_id]
        after = alive & (probe.consistent(answer) or 0)
        moves.append(Move(alive, after, probe, answer))
        alive = after
    return moves


def install(kit: Kit, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution that offers a kit, in a directory on the path, as `pip` would."""
    monkeypatch.syspath_prepend(str(directory))
    (directory / "offered.json").write_text(format_kit(kit, "kit.json"), "utf-8")
    (directory / "offered.py").write_text(
        "from pathlib import Path\nfrom cmbs.kit import KitProvider\nfrom cmbs.adapters.kits import load_kit\n"
        'provider = KitProvider(load_kit(Path(__file__).with_name("offered.json")))\n'
    )
    metadata = directory / "offered-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[cmbs.hypotheses]\noffered-kit = offered:provider\n")
    monkeypatch.delitem(sys.modules, "offered", raising=False)
