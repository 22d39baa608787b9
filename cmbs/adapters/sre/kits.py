"""Two kits of one system: which known fault is it, and which component did it begin with.

Two rules eliminate, and each can be wrong in its own way:

- What is seen has to be explained. A fault whose list lacks the alert, or a component from which nothing spreads there,
  does not explain it. That is only as good as the lists are complete.
- What is expected has to be seen. A silent alert then eliminates every fault that raises it. That also needs alerts
  that never fail to fire, and a look at the right moment: it is left out unless the world is said to be closed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from enum import StrEnum
from typing import Any

from cmbs.adapters.sre.faults import Alert, Component, KnownFault, System
from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.kit import Kit, KitHypothesis, KitOutcome, KitProbe, Soundness
from cmbs.kit.writing import content_version

# Beyond, the eliminations of a structural kit (a set of components for each component) are more than a kit may have.
MAX_COMPONENTS = 2_000
FIRING, SILENT = "firing", "silent"
AFFECTED, HEALTHY = "affected", "healthy"
_NOTHING: frozenset[str] = frozenset()


class World(StrEnum):
    """What silence means: nothing, or that what would not have been silent is out."""

    OPEN = "open"
    CLOSED = "closed"


def signature_kit(system: System, world: World = World.OPEN) -> Kit:
    """Hypothesis: a known fault. Probe: `alert@target`, `firing` or `silent`. The version follows from the content.

    An alert that every fault raises tells none of them from another, and is no probe.
    """
    if not system.faults:
        raise InvalidRequest(f"no fault of `{system.system_id}` is known, so there is none to recognise")
    raised_by: dict[Alert, set[str]] = defaultdict(set)
    for fault in system.faults:
        for alert in fault.alerts:
            raised_by[alert].add(fault.fault_id)
    all_ids = frozenset(fault.fault_id for fault in system.faults)
    kit = Kit(
        kit_id=f"{system.system_id}-signature",
        version="",
        title=f"{system.title}: which known fault is it",
        hypotheses=tuple(
            KitHypothesis(fault.fault_id, fault.label, attributes=_place_of(fault)) for fault in system.faults
        ),
        probes=tuple(
            KitProbe(
                alert.id,
                f"Is the alert {alert.name} firing at {alert.target}?",
                _outcomes((FIRING, SILENT), all_ids, frozenset(raised_by[alert]), world),
            )
            for alert in sorted(raised_by)
            if raised_by[alert] != all_ids
        ),
        description=_description(
            "An alert that fires eliminates the faults whose list of alerts lacks it", "list it", world
        ),
        source=system.source,
    )
    return _set_version(kit, world)


def structural_kit(system: System, world: World = World.OPEN) -> Kit:
    """Hypothesis: the component that it began with. Probe: whether a component is `affected` or `healthy`.

    A component that all trouble reaches tells nothing, and is no probe. The version follows from the content.
    """
    components = sorted({component for fault in system.faults for component in fault.components})
    if not components:
        raise InvalidRequest(f"no component of `{system.system_id}` is known")
    if len(components) > MAX_COMPONENTS:
        raise LimitExceeded("components", MAX_COMPONENTS, len(components))
    causes_of = _causes_of(system)
    all_ids = frozenset(component.id for component in components)
    upstream = {each: frozenset(other.id for other in _upstream(each, causes_of)) for each in components}
    kit = Kit(
        kit_id=f"{system.system_id}-structure",
        version="",
        title=f"{system.title}: which component did it begin with",
        hypotheses=tuple(
            KitHypothesis(each.id, each.label, attributes={"component": each.id, "type": each.node_type})
            for each in components
        ),
        probes=tuple(
            KitProbe(
                component.id,
                f"Does the trouble show at {component.label}?",
                _outcomes((AFFECTED, HEALTHY), all_ids, upstream[component], world),
            )
            for component in components
            if upstream[component] != all_ids
        ),
        description=_description(
            "A component that shows the trouble eliminates those from which no declared propagation leads to it",
            "would have reached it",
            world,
        ),
        source=system.source,
    )
    return _set_version(kit, world)


def cycles(system: System) -> list[frozenset[str]]:
    """The components that pass trouble on to each other in circles: where it shows does not tell them apart."""
    causes_of = _causes_of(system)
    upstream = {component: _upstream(component, causes_of) for component in causes_of}
    circles = {
        frozenset(other.id for other in above if component in upstream.get(other, set()))
        for component, above in upstream.items()
    }
    return sorted((circle for circle in circles if len(circle) > 1), key=lambda circle: (-len(circle), min(circle)))


def _causes_of(system: System) -> Mapping[Component, AbstractSet[Component]]:
    found: dict[Component, set[Component]] = defaultdict(set)
    for fault in system.faults:
        for source, target in fault.propagations:
            found[target].add(source)
    return dict(found)


def _upstream(component: Component, causes_of: Mapping[Component, AbstractSet[Component]]) -> set[Component]:
    """The component and everything from which declared propagation leads to it, around circles too."""
    found = {component}
    waiting = deque(found)
    while waiting:
        new = causes_of.get(waiting.popleft(), set()) - found
        found |= new
        waiting.extend(new)
    return found


def _outcomes(
    names: tuple[str, str], all_ids: frozenset[str], explained_by: frozenset[str], world: World
) -> tuple[KitOutcome, KitOutcome]:
    seen, silent = names
    if world is World.OPEN:
        return (
            KitOutcome(seen, all_ids - explained_by, Soundness.HEURISTIC),
            KitOutcome(silent, _NOTHING, Soundness.SOUND),
        )
    return (
        KitOutcome(seen, all_ids - explained_by, Soundness.CLOSED_WORLD),
        KitOutcome(silent, explained_by, Soundness.CLOSED_WORLD),
    )


def _set_version(kit: Kit, world: World) -> Kit:
    # A response means something else in the other world, or when more faults are known: that is another version.
    return replace(kit, version=f"{world}-{content_version(kit)}")


def _description(first_rule: str, expecting: str, world: World) -> str:
    if world is World.OPEN:
        return (
            f"{first_rule}: a rule of thumb, as good as the lists are complete, and for one fault at a time. Silence "
            "eliminates nothing."
        )
    return (
        f"{first_rule}; silence eliminates those that {expecting}. Both hold in a closed world: one fault at a time, "
        "lists that are complete, and alerts that never fail to fire."
    )


def _place_of(fault: KnownFault) -> dict[str, Any]:
    """Where a fault begins, as attributes of its hypothesis: all components, and the one where it is one."""
    components = sorted(component.id for component in fault.root_causes)
    return {"components": components} | ({"component": components[0]} if len(components) == 1 else {})
