"""What is worth asking next of a kit of 100,000 hypotheses and 200 probes, beside a count by numpy over the same table.

The whole answer is measured, after the first time: survivors as a mask, the values of all probes, and a page of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np

from bench.harness import Effort, Result, at_most
from cmbs.belief.server import BeliefServer
from cmbs.kit import Kit, KitHypothesis, KitOutcome, KitProbe, KitProvider, Soundness, ontology_of

NAME = "next_probes"
HYPOTHESES, PROBES = 100_000, 200
# What one probe rules out: a kit holds 5,000,000 such ids in all.
_RULED_OUT = 24_000
_MOST_TIMES = 3.0


def run(effort: Effort) -> list[Result]:
    """Rank the probes of a kit without priors, and of one with."""
    rounds = 2 * effort.rounds + 1
    results = []
    for name, priors in (
        ("all as likely", [1.0]),
        ("priors of three digits", [each / 1000 for each in range(1, 1000)]),
    ):
        kit = _make_kit(priors)
        server = BeliefServer(belief_provider=KitProvider(kit))
        session_id, _ = server.declare_session(ontology_of(kit), [])
        server.eliminate(session_id, "bench", "half", [f"h{number}" for number in range(0, HYPOTHESES, 2)])
        table, alive = _make_table(kit)
        asked = _measure(rounds, lambda: server.probes(session_id))  # noqa: B023 - measured before the next round
        counted = _measure(rounds, lambda: (table & alive).sum(axis=1))  # noqa: B023
        measured = f"next probes, {name}: {asked * 1000:.0f} ms"
        baseline = f"numpy, a count for each outcome: {counted * 1000:.0f} ms"
        results.append(Result(NAME, measured, baseline, asked / counted, at_most(_MOST_TIMES)))
        server.close()
    return results


def _measure(rounds: int, work: Callable[[], object]) -> float:
    """The median processor time of a call, the first one left out."""
    work()
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return sorted(times)[rounds // 2]


def _make_kit(priors: list[float]) -> Kit:
    dice = random.Random(0)
    ids = [f"h{number}" for number in range(HYPOTHESES)]
    hypotheses = tuple(KitHypothesis(each, prior=dice.choice(priors)) for each in ids)
    probes = []
    for number in range(PROBES):
        gone = frozenset(dice.sample(ids, _RULED_OUT))
        outcomes = (KitOutcome("normal", gone, Soundness.SOUND), KitOutcome("abnormal", frozenset(), Soundness.SOUND))
        probes.append(KitProbe(f"p{number}", "", outcomes))
    return Kit("bench", "1", "", hypotheses, tuple(probes))


def _make_table(kit: Kit) -> tuple[np.ndarray, np.ndarray]:
    """Which hypotheses each outcome leaves, and which are alive, as bytes."""
    place = {each.id: number for number, each in enumerate(kit.hypotheses)}
    table = np.ones((2 * PROBES, HYPOTHESES), dtype=np.uint8)
    for row, outcome in enumerate(each for probe in kit.probes for each in probe.outcomes):
        table[row, [place[gone] for gone in outcome.eliminates]] = 0
    alive = np.zeros(HYPOTHESES, dtype=np.uint8)
    alive[1::2] = 1
    return table, alive
