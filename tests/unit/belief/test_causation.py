"""What could only have come through a component: compared with searches without it, and with faults that spread."""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.analysis.gain import Belief, gains
from cmbs.analysis.table import table_of
from cmbs.belief.component_probes import rank_components
from cmbs.belief.kernel.causation import CausalGraph, Causation
from cmbs.kit.graph_kit import EVERY_KIND, Effect, GraphKit, GraphOutcome, GraphProbe
from cmbs.kit.model import Kit, KitHypothesis, Soundness
from cmbs.spi.graph_search import GraphNode, WholeGraph

OUTCOMES = (
    GraphOutcome("healthy", Effect.THROUGH, Soundness.CLOSED_WORLD),
    GraphOutcome("unhealthy", Effect.NOTHING, Soundness.CLOSED_WORLD),
    GraphOutcome("cannot tell", Effect.NOTHING, Soundness.CLOSED_WORLD),
)
HEALTH = GraphProbe("health", "Is {component} healthy?", EVERY_KIND, OUTCOMES)
KIT = GraphKit("components", "1", "", EVERY_KIND, "a healthy component does not pass a fault on", (HEALTH,))


class World(NamedTuple):
    """A graph as pairs of cause and effect, and where something shows."""

    nodes: list[str]
    links: list[tuple[str, str]]
    symptoms: list[str]

    @property
    def graph(self) -> CausalGraph:
        nodes = tuple(GraphNode(each, "", "SERVICE") for each in self.nodes)
        return CausalGraph(WholeGraph(nodes, tuple(self.links)))

    def explains(self, cause: str, without: str | None = None) -> bool:
        """Whether a cause reaches a symptom where one node takes no part: step by step, for one cause alone."""
        reached = {cause} - {without}
        for _ in self.nodes:
            reached |= {effect for start, effect in self.links if start in reached and effect != without}
        return bool(reached & {*self.symptoms} - {without})


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    # An end of an edge need be no node.
    end = st.sampled_from([*nodes, "elsewhere"])
    links = draw(st.lists(st.tuples(end, end).filter(lambda each: each[0] != each[1]), max_size=24))
    return World(nodes, links, draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True)))


@pytest.mark.req("GRAPH-KIT-01")
@given(world=worlds())
def test_what_is_ruled_out_is_what_reaches_no_symptom_without_the_component(world: World) -> None:
    causation = Causation(world.graph, world.symptoms)
    causes = {each.hypothesis_id for each in causation.list_causes()}
    assert causes == {each for each in world.nodes if world.explains(each)}
    for component in world.nodes:
        blocked = causation.find_blocked(component).intersection(world.nodes)
        assert blocked == {each for each in causes if not world.explains(each, without=component)}


@pytest.mark.req("GRAPH-KIT-01")
@given(world=worlds(), data=st.data())
def test_counting_for_all_components_at_once_is_counting_for_each(world: World, data: st.DataObject) -> None:
    causation = Causation(world.graph, world.symptoms)
    causes = sorted(each.hypothesis_id for each in causation.list_causes())
    alive = data.draw(st.sets(st.sampled_from(causes)))
    counts = causation.count_blocked(alive)
    for component in world.nodes:
        assert counts.get(component, 0) == len(causation.find_blocked(component) & alive)


@pytest.mark.req("GRAPH-KIT-01")
@pytest.mark.parametrize("shape", ["chain with ways back", "grid", "random"])
def test_counting_stays_right_in_graphs_that_are_deep(shape: str) -> None:
    chance, size = random.Random(shape), 400
    names = [f"n{number}" for number in range(size)]
    if shape == "chain with ways back":
        pairs = [(step, step - 1) for step in range(1, size)] + [(step, size - 1) for step in range(size // 2)]
    elif shape == "grid":
        pairs = [(step, step - 1) for step in range(1, size)] + [(step, step - 20) for step in range(20, size)]
    else:
        pairs = [(chance.randrange(size), chance.randrange(size)) for _ in range(size * 2)]
    links = [(names[cause], names[effect]) for cause, effect in pairs if cause != effect]
    causation = Causation(World(names, links, names[:2]).graph, names[:2])
    causes = {each.hypothesis_id for each in causation.list_causes()}
    counts = causation.count_blocked(causes)
    for component in chance.sample(names, 60):
        assert counts.get(component, 0) == len(causation.find_blocked(component))


@pytest.mark.req("GRAPH-KIT-01")
@given(world=worlds(), data=st.data())
def test_the_cause_is_never_ruled_out_where_healthy_components_pass_no_fault_on(
    world: World, data: st.DataObject
) -> None:
    cause = data.draw(st.sampled_from(world.nodes))
    faulty = {cause}
    for start, effect in data.draw(st.permutations(world.links * 2)):
        if start in faulty and data.draw(st.booleans()):
            faulty.add(effect)
    shows = data.draw(st.lists(st.sampled_from(sorted(faulty & {*world.nodes})), min_size=1, unique=True))
    causation = Causation(world.graph, shows)
    assert cause in {each.hypothesis_id for each in causation.list_causes()}
    for component in world.nodes:
        if component not in faulty:
            assert cause not in causation.find_blocked(component)


@pytest.mark.req("GRAPH-KIT-05")
@given(world=worlds(), data=st.data())
def test_components_are_worth_what_the_same_kit_as_a_table_says(world: World, data: st.DataObject) -> None:
    causation = Causation(world.graph, world.symptoms)
    causes = sorted(each.hypothesis_id for each in causation.list_causes())
    components = [each for each in world.nodes if each not in world.symptoms]
    probes = tuple(HEALTH.expand(each, causation.find_blocked(each).intersection(causes)) for each in components)
    table = table_of(Kit("table", "1", "", tuple(map(KitHypothesis, causes)), probes))
    alive = data.draw(st.sets(st.sampled_from(causes), min_size=1))
    answered = frozenset(data.draw(st.sets(st.sampled_from([each.probe_id for each in probes] or ["none"]))))
    expected = {
        each.probe_id: each.bits for each in gains(table, Belief(table.mask_of(alive), table.weights, answered))
    }
    ranked = rank_components(KIT, causation, alive, answered)
    whole = ranked.cut(0, 100)
    assert len(whole) == ranked.total
    assert {each.probe.name(each.component): each.bits for each in whole} == pytest.approx(expected)
    assert whole == sorted(whole, key=lambda each: (-each.bits, each.component))
    for first in range(len(whole) + 1):
        assert ranked.cut(first, 2) == whole[first : first + 2]
