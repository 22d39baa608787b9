"""What a scenario says, as far as it can be used, and a note of everything in it that cannot.

A ground truth of version 1 comes in two layouts: under `spec:`, and with the same fields at the top. Nothing in a
document is trusted to have the shape that it should.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cmbs.adapters.itbench.naming import CLUSTER, Entity, canonical_name, entity_of, kind_in
from cmbs.adapters.sre.faults import Alert, KnownFault


class Reason(StrEnum):
    """Why something is worth a note. Each value says it in a line."""

    # The scenario is not used at all.
    NO_GROUND_TRUTH = "there is no `groundtruth_v1.yaml`, and nothing else says which alerts a fault raises and where"
    UNREADABLE = "the file cannot be read"
    NO_ALERTS = "no alert is left to recognise the fault by"
    # A part of it is not used.
    SIDE_UNREADABLE = "the file cannot be read, and the scenario is used without it"
    MALFORMED = "an entry does not have the shape that it should"
    DANGLING = "it refers to a group that the scenario does not have"
    SELF_LOOP = "a propagation from a thing to itself says nothing about what moves where"
    NO_INJECTION = "the scenario says of no fault that it is injected"
    NO_ROOT_CAUSE = "no group is the root cause, so the fault has no place in the graph"
    # It is used, after a decision.
    RESOLVED = "it refers to a group by another id; the group of that kind and name is meant"
    SAME_ID = "two groups have the same id; the first counts"
    CLUSTER_WIDE = f"an alert without a group counts as one of the whole cluster, `{CLUSTER}`"
    DISAGREEMENT = "the root causes of the two ground truths have no name in common; version 1 counts"

    @property
    def effect(self) -> Effect:
        """What becomes of that which the note is on."""
        return _EFFECTS[self]


class Effect(StrEnum):
    """What becomes of something that is worth a note."""

    SCENARIO_UNUSED = "scenarios that were not used"
    PART_UNUSED = "parts that were not used"
    USED = "used, after a decision"


_EFFECTS = {
    Reason.NO_GROUND_TRUTH: Effect.SCENARIO_UNUSED,
    Reason.UNREADABLE: Effect.SCENARIO_UNUSED,
    Reason.NO_ALERTS: Effect.SCENARIO_UNUSED,
    Reason.SIDE_UNREADABLE: Effect.PART_UNUSED,
    Reason.MALFORMED: Effect.PART_UNUSED,
    Reason.DANGLING: Effect.PART_UNUSED,
    Reason.SELF_LOOP: Effect.PART_UNUSED,
    Reason.NO_INJECTION: Effect.PART_UNUSED,
    Reason.NO_ROOT_CAUSE: Effect.PART_UNUSED,
    Reason.RESOLVED: Effect.USED,
    Reason.SAME_ID: Effect.USED,
    Reason.CLUSTER_WIDE: Effect.USED,
    Reason.DISAGREEMENT: Effect.USED,
}


@dataclass(frozen=True, slots=True)
class Note:
    """Something in a scenario that was not used as it stands."""

    scenario_id: str
    reason: Reason
    what: str


@dataclass(slots=True)
class _Reader:
    """Reads one scenario; keeps the notes."""

    scenario_id: str
    notes: list[Note] = field(default_factory=list)
    groups: dict[str, Entity] = field(default_factory=dict)

    def note(self, reason: Reason, what: str) -> None:
        self.notes.append(Note(self.scenario_id, reason, what))

    def entries(self, document: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
        """The entries of a list that are mappings; an absent list has none."""
        found = document.get(name)
        if found is None:
            return
        if not isinstance(found, list):
            self.note(Reason.MALFORMED, f"`{name}` is no list")
            return
        for number, entry in enumerate(found):
            if isinstance(entry, Mapping):
                yield entry
            else:
                self.note(Reason.MALFORMED, f"`{name}[{number}]` is no mapping")

    def text(self, entry: Mapping[str, Any], name: str, where: str) -> str | None:
        """A text that must be there, and can be part of an id."""
        found = entry.get(name)
        if not isinstance(found, str) or not found.strip():
            self.note(Reason.MALFORMED, f"`{name}` of an entry in `{where}` is no text")
            return None
        # They divide the parts of ids, and in a part they could make two things one.
        if "/" in found or "@" in found:
            self.note(Reason.MALFORMED, f"`{name}` of an entry in `{where}` has a slash or an at sign: `{found}`")
            return None
        return found

    def read_groups(self, truth: Mapping[str, Any]) -> frozenset[Entity]:
        """Take in the groups; the ones that are root causes."""
        causes = set()
        for group in self.entries(truth, "groups"):
            group_id, kind = self.text(group, "id", "groups"), self.text(group, "kind", "groups")
            has_namespace = group.get("namespace") not in (None, "")
            namespace = self.text(group, "namespace", "groups") if has_namespace else CLUSTER
            if group_id is None or kind is None or namespace is None:
                continue
            entity = entity_of(group_id, kind, namespace if has_namespace else None)
            if self.groups.setdefault(group_id, entity) != entity:
                self.note(Reason.SAME_ID, f"`{group_id}` is {self.groups[group_id].id} and {entity.id}")
                continue
            if group.get("root_cause") is True:
                causes.add(entity)
        if not causes:
            self.note(Reason.NO_ROOT_CAUSE, "`groups`")
        return frozenset(causes)

    def resolve(self, reference: str, where: str) -> Entity | None:
        """The thing that an id refers to; a dangling one may still name a group's kind and name."""
        if reference in self.groups:
            return self.groups[reference]
        meant = (kind_in(reference), canonical_name(reference))
        for entity in self.groups.values():
            if (entity.kind, entity.name) == meant:
                self.note(Reason.RESOLVED, f"`{reference}` in {where} is {entity.id}")
                return entity
        self.note(Reason.DANGLING, f"`{reference}` in {where}")
        return None

    def read_alerts(self, truth: Mapping[str, Any]) -> Iterator[Alert]:
        """The alerts that have a name and a place."""
        for entry in self.entries(truth, "alerts"):
            name = self.text(entry, "id", "alerts")
            if name is None:
                continue
            if entry.get("group_id") is None:
                self.note(Reason.CLUSTER_WIDE, f"`{name}`")
                yield Alert(name, CLUSTER)
                continue
            group_id = self.text(entry, "group_id", "alerts")
            entity = self.resolve(group_id, f"the alert `{name}`") if group_id is not None else None
            if entity is not None:
                yield Alert(name, entity.name)

    def read_propagations(self, truth: Mapping[str, Any]) -> Iterator[tuple[Entity, Entity]]:
        """What spreads from where to where."""
        for entry in self.entries(truth, "propagations"):
            source_id = self.text(entry, "source", "propagations")
            target_id = self.text(entry, "target", "propagations")
            if source_id is None or target_id is None:
                continue
            source = self.resolve(source_id, f"the propagation to `{target_id}`")
            target = self.resolve(target_id, f"the propagation from `{source_id}`")
            if source is None or target is None:
                continue
            if source == target:
                self.note(Reason.SELF_LOOP, f"`{source_id}` to `{target_id}`, both {source.id}")
                continue
            yield source, target

    def read_injections(self, setup: Mapping[str, Any] | None) -> tuple[str, ...]:
        """The faults that the scenario injects, each once."""
        found = set()
        for fault in self.entries(_spec(setup or {}), "faults"):
            for injection in self.entries(fault, "injections"):
                name = self.text(injection, "id", "injections")
                if name is not None:
                    found.add(name)
        if not found:
            self.note(Reason.NO_INJECTION, "`scenario.yaml`")
        return tuple(sorted(found))

    def compare(self, causes: frozenset[Entity], second: Mapping[str, Any] | None) -> None:
        """Note where the ground truth of version 2 names other root causes; one that names none says nothing."""
        named = set()
        for entry in self.entries(_spec(second or {}), "entities"):
            about = entry.get("metadata")
            name = about.get("name") if isinstance(about, Mapping) else None
            if isinstance(name, str):
                named.add(canonical_name(name))
        ours = {cause.name for cause in causes}
        if named and ours and not any(_alike(one, other) for one in ours for other in named):
            self.note(Reason.DISAGREEMENT, f"{', '.join(sorted(ours))} and {', '.join(sorted(named))}")


def read_scenario(
    scenario_id: str,
    truth: Mapping[str, Any],
    setup: Mapping[str, Any] | None = None,
    second_truth: Mapping[str, Any] | None = None,
) -> tuple[KnownFault | None, list[Note]]:
    """A scenario from its documents, with the notes on it; None where it has no alert to be recognised by.

    `truth` is `groundtruth_v1.yaml`, `setup` is `scenario.yaml`, `second_truth` is `groundtruth.yaml`.
    """
    reader = _Reader(scenario_id)
    fields = _spec(truth)
    causes = reader.read_groups(fields)
    alerts = frozenset(reader.read_alerts(fields))
    propagations = set(reader.read_propagations(fields))
    injections = reader.read_injections(setup)
    reader.compare(causes, second_truth)
    if not alerts:
        reader.note(Reason.NO_ALERTS, "`alerts`")
        return None, reader.notes
    named = ", ".join(cause.id for cause in sorted(causes))
    number = scenario_id.removeprefix("scenario_")
    fault = KnownFault(
        fault_id=scenario_id,
        label=f"{' + '.join(injections) or 'nothing injected'}: {named or 'no component named'}",
        mechanism_id=f"fault/{number}/{'+'.join(injections) or 'nothing-injected'}",
        provenance=f"itbench:{scenario_id}",
        root_causes=frozenset(each.component() for each in causes),
        components=frozenset(each.component() for each in reader.groups.values()),
        alerts=alerts,
        propagations=frozenset((source.component(), target.component()) for source, target in propagations),
    )
    return fault, reader.notes


def _spec(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a document, in either layout."""
    spec = document.get("spec")
    return spec if isinstance(spec, Mapping) else document


def _alike(one: str, other: str) -> bool:
    return one in other or other in one
