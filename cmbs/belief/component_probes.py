"""Which component to look at next, in a session over a kit of a causal graph.

The values are those of `cmbs.analysis.gain`, where all hypotheses weigh the same: one that no answer rules out is taken
to give each of them equally often. They are computed for all components at once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping
from typing import NamedTuple, TypeAlias

from cmbs.belief.kernel.causation import Causation
from cmbs.belief.kernel.looks import count_looks
from cmbs.belief.kernel.prospects import AnswerItem, ProbeItem
from cmbs.belief.kernel.session import Session
from cmbs.kit.graph_kit import Effect, GraphKit, GraphProbe


class ComponentGain(NamedTuple):
    """A probe of a component: how many survivors it may rule out, and the bits that are to be expected."""

    probe: GraphProbe
    component: str
    n_blocked: int
    bits: float


# The component, the place of the probe in the kit, and how many survivors the component blocks.
_Member: TypeAlias = tuple[str, int, int]


class RankedComponents:
    """Every probe of a component that can still rule something out, the best first, equals by name.

    Many components block as many survivors and are worth the same; only those that are shown are sorted.
    """

    def __init__(self, kit: GraphKit, ties: Mapping[float, list[_Member]]) -> None:
        """`ties` has by their bits the probes that are worth the same."""
        self._kit = kit
        self._ties = sorted(ties.items(), reverse=True)
        self.total = sum(map(len, ties.values()))

    def cut(self, first: int, limit: int) -> list[ComponentGain]:
        """Some of them, from a place of the ranking on."""
        found: list[ComponentGain] = []
        for bits, members in self._ties:
            if first >= len(members):
                first -= len(members)
                continue
            shown = sorted(members)[first : first + limit - len(found)]
            found += [ComponentGain(self._kit.probes[place], name, count, bits) for name, place, count in shown]
            first = 0
            if len(found) == limit:
                break
        return found


def rank_components(
    kit: GraphKit, causation: Causation, survivors: Collection[str], answered: Container[str]
) -> RankedComponents:
    """The probes of components, by what they are expected to eliminate of the survivors."""
    alive, nodes = len(survivors), causation.graph.nodes
    ties: dict[float, list[_Member]] = {}
    bits_of: dict[tuple[int, int], float] = {}
    for name, count in causation.count_blocked(survivors).items():
        node = nodes.get(name)
        # Where nothing would be left, the answer cannot occur.
        if node is None or count == alive or name in causation.symptoms:
            continue
        for place, probe in enumerate(kit.probes):
            if node.type not in probe.components or probe.name(name) in answered:
                continue
            if (place, count) not in bits_of:
                bits_of[place, count] = compute_bits(probe, alive, count)
            ties.setdefault(bits_of[place, count], []).append((name, place, count))
    return RankedComponents(kit, ties)


def compute_bits(probe: GraphProbe, alive: int, n_blocked: int) -> float:
    """The bits that asking is expected to eliminate."""
    left = alive - n_blocked
    n_through = sum(each.eliminates is Effect.THROUGH for each in probe.outcomes)
    return n_through * left / len(probe.outcomes) / alive * math.log2(alive / left)


def describe_component(gain: ComponentGain, alive: int, session: Session) -> ProbeItem:
    """A probe of a component, with what each answer would leave."""
    probe, blocked, left = gain.probe, gain.n_blocked, alive - gain.n_blocked
    n_nothing = sum(each.eliminates is Effect.NOTHING for each in probe.outcomes)
    answers = []
    for outcome in probe.outcomes:
        gone = blocked if outcome.eliminates is Effect.THROUGH else 0
        # What is not blocked gives every answer equally often; what is, only those that do not rule it out.
        likelihood = (left / len(probe.outcomes) + (0 if gone else blocked / n_nothing)) / alive
        answers.append(AnswerItem(outcome.outcome_id, outcome.label, outcome.soundness, likelihood, alive - gone, gone))
    name = probe.name(gain.component)
    looks = count_looks(session.looks, name)
    return ProbeItem(
        name, probe.ask(gain.component), probe.reads_numbers, probe.window is not None, gain.bits, answers, looks
    )
