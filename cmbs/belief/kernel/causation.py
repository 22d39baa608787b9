"""What can have caused the symptoms of a session, and what could only have come through one component. Pure.

Fault and symptom are joined by paths along causation. A component that is healthy takes part in none of them, where a
healthy component does not pass a fault on: what reaches no symptom without it is then not the cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from cmbs.belief.kernel.session import Session
from cmbs.kit.graph_kit import GraphKit
from cmbs.spi.graph_search import GraphNode, WholeGraph

_NONE = -1


class CausalGraph:
    """A graph as of a version, by number: the causes of each of its nodes. Immutable.

    The ends of an edge that are no nodes take part in paths all the same.
    """

    def __init__(self, graph: WholeGraph) -> None:
        self.nodes: dict[str, GraphNode] = {node.hypothesis_id: node for node in graph.nodes}
        self._numbers = {name: number for number, name in enumerate(self.nodes)}
        self._causes: list[list[int]] = [[] for _ in self._numbers]
        for cause, effect in graph.links:
            self._causes[self._number(effect)].append(self._number(cause))
        self.names = list(self._numbers)

    def _number(self, name: str) -> int:
        number = self._numbers.setdefault(name, len(self._causes))
        if number == len(self._causes):
            self._causes.append([])
        return number

    def find(self, name: str) -> int:
        """The number of a node."""
        return self._numbers[name]

    def reach_causes(self, effects: Iterable[int], without: int = _NONE) -> list[int]:
        """What can cause any of these effects, themselves included, where one node takes no part in it."""
        seen = bytearray(len(self._causes))
        if without != _NONE:
            seen[without] = 1
        found = []
        for effect in effects:
            if not seen[effect]:
                seen[effect] = 1
                found.append(effect)
        causes = self._causes
        for each in found:  # which grows meanwhile
            for cause in causes[each]:
                if not seen[cause]:
                    seen[cause] = 1
                    found.append(cause)
        return found

    def find_dominators(self, effects: Sequence[int]) -> tuple[list[int], list[int]]:
        """The dominator tree of the search from these effects towards causes, by the places of nodes in it.

        The first list has the nodes by place; place 0 is the search itself, and no node. The second has the place of
        the nearest node that is on every path to an effect, which comes before. After Lengauer and Tarjan, with path
        compression: a few steps for each edge, times the logarithm of their number.
        """
        order, parents, followers = self._walk(effects)
        size = len(order)
        semi, best, dominators = list(range(size)), list(range(size)), [0] * size
        ancestors = [_NONE] * size
        buckets: list[list[int]] = [[] for _ in range(size)]

        def evaluate(place: int) -> int:
            if ancestors[place] == _NONE:
                return place
            path, each = [], place
            while ancestors[ancestors[each]] != _NONE:
                path.append(each)
                each = ancestors[each]
            for below in reversed(path):
                above = ancestors[below]
                if semi[best[above]] < semi[best[below]]:
                    best[below] = best[above]
                ancestors[below] = ancestors[above]
            return best[place]

        for place in range(size - 1, 0, -1):
            semi[place] = min(semi[evaluate(each)] for each in followers[place])
            buckets[semi[place]].append(place)
            parent = ancestors[place] = parents[place]
            for each in buckets[parent]:
                nearest = evaluate(each)
                dominators[each] = nearest if semi[nearest] < semi[each] else parent
            buckets[parent] = []
        for place in range(1, size):
            if dominators[place] != semi[place]:
                dominators[place] = dominators[dominators[place]]
        return order, dominators

    def _walk(self, effects: Sequence[int]) -> tuple[list[int], list[int], list[list[int]]]:
        """A walk in depth: the nodes in its order, where each was reached from, and where each can be reached from."""
        places = [_NONE] * len(self._causes)
        order, parents, followers = [_NONE], [0], list[list[int]]([[]])
        stack = [(0, iter(effects))]
        while stack:
            place, rest = stack[-1]
            for cause in rest:
                known = places[cause]
                if known == _NONE:
                    places[cause] = len(order)
                    stack.append((len(order), iter(self._causes[cause])))
                    order.append(cause)
                    parents.append(place)
                    followers.append([place])
                    break
                followers[known].append(place)
            else:
                stack.pop()
        return order, parents, followers


class Causation:
    """What can have caused some symptoms, which are nodes of the graph."""

    def __init__(self, graph: CausalGraph, symptoms: Iterable[str]) -> None:
        self.graph = graph
        self.symptoms = frozenset(symptoms)
        self._effects = [graph.find(each) for each in sorted(self.symptoms)]
        self._reached = frozenset(graph.reach_causes(self._effects))

    def list_causes(self) -> list[GraphNode]:
        """The nodes that can have caused a symptom; a symptom can have caused itself."""
        names, nodes = self.graph.names, self.graph.nodes
        return [nodes[name] for name in (names[each] for each in self._reached) if name in nodes]

    def find_blocked(self, component: str) -> frozenset[str]:
        """What can have caused a symptom through this component alone, itself included."""
        left = self.graph.reach_causes(self._effects, self.graph.find(component))
        names = self.graph.names
        return frozenset(names[each] for each in self._reached.difference(left))

    @cached_property
    def _dominators(self) -> tuple[list[int], list[int]]:
        return self.graph.find_dominators(self._effects)

    def count_blocked(self, alive: Iterable[str]) -> dict[str, int]:
        """Of those that are alive, how many each node blocks: the size of `find_blocked` of all nodes at once.

        A node that blocks none is left out.
        """
        order, dominators = self._dominators
        alive, names = frozenset(alive), self.graph.names
        counts = [0, *(int(names[each] in alive) for each in order[1:])]
        for place in range(len(order) - 1, 0, -1):
            counts[dominators[place]] += counts[place]
        return {names[node]: count for node, count in zip(order[1:], counts[1:], strict=True) if count}


def describe_reading(session: Session, kit: GraphKit, component: str) -> dict[str, str]:
    """What an event says of the graph and the assumption that its elimination rests on."""
    version = session.ontology.causal_graph_version
    return {"component": component, "causal_graph_version": version, "assumption": kit.assumption}
