"""A kit as a hypothesis provider: the server asks it what a response rules out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cmbs.errors import UnknownProbe
from cmbs.kit.model import Kit
from cmbs.kit.responses import outcome_for
from cmbs.messages import OntologyBundle


class KitProvider:
    """Serves one kit through the `HypothesisProvider` SPI.

    A response is the id of an outcome, a number where the probe reads numbers, or no data (None or `no-data`), which
    rules out nothing. Anything else raises `InvalidRequest`.
    """

    __slots__ = ("kit",)

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    def id(self) -> str:
        """The kit's id."""
        return self.kit.kit_id

    def version(self) -> str:
        """The kit's version."""
        return self.kit.version

    def hypothesis_ids(self) -> frozenset[str]:
        """Every hypothesis of the kit."""
        return self.kit.hypothesis_ids

    def hypothesis_attributes(self) -> dict[str, Mapping[str, Any]]:
        """The attributes of those hypotheses that the kit gives any."""
        return {each.id: each.attributes for each in self.kit.hypotheses if each.attributes}

    def probe_ids(self) -> frozenset[str]:
        """Every probe of the kit."""
        return self.kit.probe_ids

    def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, bool]:
        """The mask of a response: what its outcome eliminates."""
        probe = self.kit.probe(probe_id)
        if probe is None:
            raise UnknownProbe(probe_id)
        outcome = outcome_for(probe, response)
        return dict.fromkeys(outcome.eliminates, True) if outcome is not None else {}


def ontology_of(kit: Kit) -> OntologyBundle:
    """The bundle to declare a session over a kit with; a kit is its own causal model."""
    return OntologyBundle(kit.kit_id, kit.version, f"kit:{kit.kit_id}", kit.version)
