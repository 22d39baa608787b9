"""What an adapter is made of: actions it offers, observations it reads, elimination messages it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

from cmbs.messages import BeliefSnapshot, Verb


@dataclass(frozen=True, slots=True)
class Action:
    """Something that could be done next to learn more; `prompt` is the instruction."""

    action_id: str
    prompt: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AdapterActionContext:
    """An action taken, the belief it was taken under, and whatever its adapter needs to read the observation."""

    action_id: str
    snapshot: BeliefSnapshot
    payload: Mapping[str, Any] = field(default_factory=dict)


# In place of what has to be given: fields after one with a default need one too.
_GIVEN: Any = object()


@dataclass(frozen=True, slots=True)
class EliminateMessage:
    """What an observation rules out, ready for a belief server. Only `verb` and `justification` may be left out."""

    verb: str = Verb.ELIMINATE.value
    source_id: str = _GIVEN
    observation_id: str = _GIVEN
    eliminated: Sequence[str] = _GIVEN
    justification: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        missing = [each.name for each in fields(self) if getattr(self, each.name) is _GIVEN]
        if missing:
            raise TypeError(f"EliminateMessage lacks `{missing[0]}`")


@runtime_checkable
class BeliefAdapter(Protocol):
    """The bridge between a domain and the belief protocol.

    An adapter interprets observations; the server never does. It holds no belief of its own: what is alive comes with
    each snapshot, and what it concludes leaves as messages.

    What MUST hold:

    - `list_actions` and `apply_action` change no belief, and the same snapshot gives the same actions.
    - `observe` gives the same messages for the same context and observation, with the same observation ids, so that
      sending them again is safe.
    - A message names only hypotheses that the observation contradicts; an observation that contradicts none gives none.

    What MAY differ: an action may be carried out by a person, a program or a model; the order of the actions is the
    adapter's preference and not binding.
    """

    def list_actions(self, snapshot: BeliefSnapshot) -> Sequence[Action]:
        """Return the actions that could tell the snapshot's survivors apart."""
        ...

    def apply_action(self, action_id: str, snapshot: BeliefSnapshot) -> AdapterActionContext:
        """Return the context in which the action's observation is to be read."""
        ...

    def observe(self, action_ctx: AdapterActionContext, raw_observation: Any) -> Sequence[EliminateMessage]:
        """Return the eliminations that an observation made under the context justifies."""
        ...
