"""A kit as a belief adapter: its probes are actions, and what they find becomes elimination messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cmbs.adapters.types import Action, AdapterActionContext, EliminateMessage
from cmbs.errors import InvalidRequest, UnknownProbe
from cmbs.kit.model import Kit, KitOutcome, KitProbe
from cmbs.kit.responses import read_response
from cmbs.messages import BeliefSnapshot


class KitAdapter:
    """Serves one kit through the `BeliefAdapter` SPI.

    `source_id` is who the messages say has looked. An observation is named for its probe, as a server does that has
    the kit as its provider: one source answers a probe once, and another answer to it is a conflict.
    """

    __slots__ = ("kit", "source_id")

    def __init__(self, kit: Kit, source_id: str = "kit") -> None:
        self.kit = kit
        self.source_id = source_id

    def list_actions(self, snapshot: BeliefSnapshot) -> Sequence[Action]:
        """The probes, in the kit's order, with an outcome that would eliminate some survivors and leave others."""
        survivors = frozenset(snapshot.survivors)
        return [_action(probe) for probe in self.kit.probes if _tells_apart(probe, survivors)]

    def apply_action(self, action_id: str, snapshot: BeliefSnapshot) -> AdapterActionContext:
        """The context of a probe; the payload says of which kit and version."""
        self._probe(action_id)
        return AdapterActionContext(action_id, snapshot, {"kit_id": self.kit.kit_id, "version": self.kit.version})

    def observe(self, action_ctx: AdapterActionContext, raw_observation: Any) -> Sequence[EliminateMessage]:
        """One message, or none where the observation is no data or its outcome eliminates nothing.

        The message names everything that the outcome eliminates, alive or not: the same observation then is the same
        message, whatever else was found in between.
        """
        probe = self._probe(action_ctx.action_id)
        asked_of = (action_ctx.payload.get("kit_id"), action_ctx.payload.get("version"))
        if asked_of != (self.kit.kit_id, self.kit.version):
            raise InvalidRequest(
                f"probe `{probe.probe_id}` was put for kit `{asked_of[0]}` version `{asked_of[1]}`, and this is "
                f"`{self.kit.kit_id}` version `{self.kit.version}`"
            )
        outcome, record = read_response(probe, raw_observation)
        if outcome is None or not outcome.eliminates:
            return []
        return [
            EliminateMessage(
                source_id=self.source_id,
                observation_id=probe.probe_id,
                eliminated=sorted(outcome.eliminates),
                justification=self._justification(probe, outcome, record),
            )
        ]

    def _probe(self, probe_id: str) -> KitProbe:
        probe = self.kit.probe(probe_id)
        if probe is None:
            raise UnknownProbe(probe_id)
        return probe

    def _justification(self, probe: KitProbe, outcome: KitOutcome, record: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "kit_id": self.kit.kit_id,
            "kit_version": self.kit.version,
            "probe_id": probe.probe_id,
            "outcome_id": outcome.outcome_id,
            "soundness": outcome.soundness.value,
            **record,
        }


def _tells_apart(probe: KitProbe, survivors: frozenset[str]) -> bool:
    return any(0 < len(survivors & outcome.eliminates) < len(survivors) for outcome in probe.outcomes)


def _action(probe: KitProbe) -> Action:
    outcomes = [{"outcome_id": each.outcome_id, "label": each.label} for each in probe.outcomes]
    return Action(probe.probe_id, probe.prompt, {"outcomes": outcomes, "reads_numbers": probe.reads_numbers})
