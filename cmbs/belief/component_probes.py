"""Which component to look at next, in a session over a kit of a causal graph.

The values are those of `cmbs.analysis.gain`, where all hypotheses weigh the same: one that no answer rules out is taken
to give each of them equally often. They are computed for all components at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container
from typing import NamedTuple

from cmbs.belief.kernel.causation import Causation
from cmbs.belief.kernel.looks import count_looks
from cmbs.belief.kernel.session import Session
from cmbs.belief.prospects import AnswerProspect, ProbeProspect
from cmbs.kit.graph_kit import Effect, GraphKit, GraphProbe


class ComponentGain(NamedTuple):
    """A probe of a component: how many survivors it may rule out, and the bits that are to be expected."""

    probe: GraphProbe
    component: str
    n_blocked: int
    bits: float


def rank_components(
    kit: GraphKit, causation: Causation, survivors: Collection[str], answered: Container[str]
) -> list[ComponentGain]:
    """Every probe of a component that can still rule something out, the best first, equals by name."""
    alive, nodes = len(survivors), causation.graph.nodes
    # Where nothing would be left, the answer cannot occur.
    counts = {
        name: count
        for name, count in causation.count_blocked(survivors).items()
        if count < alive and name in nodes and name not in causation.symptoms
    }
    found = [
        ComponentGain(probe, name, count, compute_bits(probe, alive, count))
        for probe in kit.probes
        for name, count in counts.items()
        if nodes[name].type in probe.components and probe.name(name) not in answered
    ]
    return sorted(found, key=lambda gain: (-gain.bits, gain.component, gain.probe.probe_id))


def compute_bits(probe: GraphProbe, alive: int, n_blocked: int) -> float:
    """The bits that asking is expected to eliminate."""
    left = alive - n_blocked
    n_through = sum(each.eliminates is Effect.THROUGH for each in probe.outcomes)
    return n_through * left / len(probe.outcomes) / alive * math.log2(alive / left)


def describe_component(gain: ComponentGain, alive: int, session: Session) -> ProbeProspect:
    """A probe of a component, with what each answer would leave."""
    probe, blocked, left = gain.probe, gain.n_blocked, alive - gain.n_blocked
    n_nothing = sum(each.eliminates is Effect.NOTHING for each in probe.outcomes)
    answers = []
    for outcome in probe.outcomes:
        gone = blocked if outcome.eliminates is Effect.THROUGH else 0
        # What is not blocked gives every answer equally often; what is, only those that do not rule it out.
        likelihood = (left / len(probe.outcomes) + (0 if gone else blocked / n_nothing)) / alive
        answers.append(
            AnswerProspect(outcome.outcome_id, outcome.label, outcome.soundness.value, likelihood, alive - gone, gone)
        )
    name = probe.name(gain.component)
    looks = count_looks(session.looks, name)
    return ProbeProspect(name, probe.ask(gain.component), probe.reading is not None, gain.bits, answers, looks)
