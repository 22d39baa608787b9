"""A kit over a causal graph: which nodes may be the cause, and what can be asked of each component.

The graph is not in the kit. An outcome says what it eliminates in a word: nothing, or whatever could only have come
through the component that was asked about. What that is follows from the graph and the symptoms of a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cmbs.errors import InvalidKit
from cmbs.kit.model import KitOutcome, KitProbe, Reading, Soundness, Window

# Between the id of a probe and the component that it is asked of.
SEPARATOR = ":"
# Stands in a prompt for the component.
PLACEHOLDER = "{component}"


class NodeKind(StrEnum):
    """The types that nodes of a causal graph have."""

    SERVICE = "SERVICE"
    DEPENDENCY = "DEPENDENCY"
    INFRASTRUCTURE = "INFRASTRUCTURE"
    MECHANISM = "MECHANISM"


EVERY_KIND = frozenset(NodeKind)


class Effect(StrEnum):
    """What an outcome eliminates.

    `THROUGH`: the component, and every hypothesis that reaches no symptom but through it.
    `NOTHING`: nothing.
    """

    THROUGH = "through"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class GraphOutcome:
    """What may be the answer for a component, what that eliminates, and how far the elimination is to be trusted."""

    outcome_id: str
    eliminates: Effect
    soundness: Soundness
    label: str = ""


@dataclass(frozen=True, slots=True)
class GraphProbe:
    """A question that can be asked of every component of some kinds."""

    probe_id: str
    prompt: str
    components: frozenset[NodeKind]
    outcomes: tuple[GraphOutcome, ...]
    reading: Reading | None = None
    window: Window | None = None

    def __post_init__(self) -> None:
        if SEPARATOR in self.probe_id:
            raise InvalidKit(f"the id of a probe of components has no `{SEPARATOR}`, and `{self.probe_id}` has")
        if {each.eliminates for each in self.outcomes} != set(Effect):
            raise InvalidKit(
                f"probe `{self.probe_id}` needs an outcome that eliminates `{Effect.THROUGH}`, to be worth asking, and "
                f"one that eliminates `{Effect.NOTHING}`, for what is wrong"
            )

    def name(self, component: str) -> str:
        """The id of the probe of one component."""
        return f"{self.probe_id}{SEPARATOR}{component}"

    def ask(self, component: str) -> str:
        """The prompt for one component."""
        return self.prompt.replace(PLACEHOLDER, component)

    def expand(self, component: str, blocked: frozenset[str]) -> KitProbe:
        """The probe of one component; `blocked` is what could only have come through it."""
        outcomes = tuple(
            KitOutcome(
                each.outcome_id,
                blocked if each.eliminates is Effect.THROUGH else frozenset(),
                each.soundness,
                each.label,
            )
            for each in self.outcomes
        )
        return KitProbe(self.name(component), self.ask(component), outcomes, self.reading, self.window)

    @property
    def reads_numbers(self) -> bool:
        """Whether one number is an answer."""
        return self.reading is not None and self.window is None

    def outcome(self, outcome_id: str) -> GraphOutcome | None:
        """The outcome of that id; None where there is none."""
        return next((each for each in self.outcomes if each.outcome_id == outcome_id), None)


@dataclass(frozen=True, slots=True)
class GraphKit:
    """Hypotheses from a causal graph: the nodes of some kinds that can have caused the symptoms of a session.

    `assumption` is what has to be true of the world for an elimination to be right; every event that
    rests on it has it.
    """

    kit_id: str
    version: str
    title: str
    hypotheses: frozenset[NodeKind]
    assumption: str
    probes: tuple[GraphProbe, ...]
    description: str = ""
    source: str = ""

    def find_probe(self, probe_id: str) -> tuple[GraphProbe, str] | None:
        """The probe and the component that an id such as `health:db` names; None where it names none."""
        name, separator, component = probe_id.partition(SEPARATOR)
        found = next((each for each in self.probes if each.probe_id == name), None)
        return None if found is None or not separator or not component else (found, component)
