"""The largest of everything that a Tee takes. Where a belief server has the same limit, the number is the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cmbs.errors import InvalidGraph
from cmbs.tee.kernel.lattice import Edge, Node, Provenance

_MAX_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class TeeLimits:
    """The names are those of the errors. Lengths are in characters."""

    id_length: int = 1_024
    label_length: int = 4_096
    # Of a source and of a trigger.
    provenance_length: int = 1_024
    # Of one node or edge, in one request.
    provenance_per_thing: int = 1_000
    things_per_delta: int = 200_000
    ids_per_request: int = 2_000_000

    def check_number(self, name: str, actual: int) -> None:
        """Refuse more things in a request than a limit allows."""
        maximum: int = getattr(self, name)
        if actual > maximum:
            raise InvalidGraph(
                f"`{name}` allows at most {maximum}, got {actual}: send them in several requests",
                {"field": name, "found": actual, "accepted": {"maximum": maximum}, "next": "send several requests"},
            )

    def check_ids(self, ids: Iterable[str]) -> None:
        """Refuse an id that is too long."""
        for each in ids:
            self._check_length("id_length", each, each)

    def check_node(self, node: Node) -> None:
        """Refuse a node that is too large."""
        self._check_length("id_length", node.id, node.id)
        self._check_length("label_length", node.label, node.id)
        self._check_provenance(node.provenance, node.id)

    def check_edge(self, edge: Edge) -> None:
        """Refuse an edge that is too large."""
        self.check_ids(edge.key[:2])
        self._check_provenance(edge.provenance, edge.key.source)

    def check_provenance(self, said: Provenance, owner: str) -> None:
        """Refuse a source or a trigger that is too long."""
        self._check_length("provenance_length", said.source, owner)
        self._check_length("provenance_length", said.trigger, owner)

    def _check_provenance(self, provenance: tuple[Provenance, ...], owner: str) -> None:
        if len(provenance) > self.provenance_per_thing:
            maximum, name = self.provenance_per_thing, owner[:_MAX_SHOWN_CHARS]
            raise InvalidGraph(
                f"`provenance_per_thing` allows at most {maximum}, got {len(provenance)} of `{name}`",
                {"field": "provenance", "found": len(provenance), "accepted": {"maxItems": maximum}},
            )
        for each in provenance:
            self.check_provenance(each, owner)

    def _check_length(self, name: str, text: str, owner: str) -> None:
        maximum: int = getattr(self, name)
        if len(text) > maximum:
            raise InvalidGraph(
                f"`{name}` allows at most {maximum} characters, got {len(text)} in `{owner[:_MAX_SHOWN_CHARS]}`",
                {"field": name.removesuffix("_length"), "found": len(text), "accepted": {"maxLength": maximum}},
            )
