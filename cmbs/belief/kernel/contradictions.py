"""Why nothing is left of a session, and which reports to doubt. Pure.

A report is an ELIMINATE event. A cause can be true only if every report that speaks against it is wrong. So each cause
is explained by one set of reports. Heuristic reports are doubted before sound ones: of two sets, the one with fewer
sound reports comes first, then the one with fewer that are sound in a closed world, and so on; of sets that are alike
in that, the one whose causes have the larger prior.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta, UnsetType

from cmbs.belief.kernel.comparisons import Count
from cmbs.belief.kernel.events import Eliminate, Message
from cmbs.belief.kernel.looks import Applied, Observation
from cmbs.belief.kernel.session import Session
from cmbs.kit.model import Soundness

# How many causes and explanations are named, beside how many there are.
MAX_NAMED = 100
# Causes with the fewest reports against them are looked at, and then those with more, up to so many.
MAX_GROUPED = 10_000
# How many explanations are kept, and how many steps the search for the shortest list takes at most.
MAX_KEPT = 1_000
MAX_STEPS = 20_000

# Places of reports, in the order in which they came.
_Places: TypeAlias = tuple[int, ...]

# From the first to be doubted to the last. One that says nothing of its soundness is doubted as a rule of thumb is.
_DOUBTED_FIRST = (Soundness.HEURISTIC, Soundness.STATISTICAL, Soundness.CLOSED_WORLD, Soundness.SOUND)


class Known(NamedTuple):
    """What is known beside the session: how sound reports are, by seq, and the priors of causes, which are weights."""

    soundness: Mapping[int, Soundness] = MappingProxyType({})
    priors: Mapping[str, float] = MappingProxyType({})


NOTHING_KNOWN = Known()


class ReportItem(msgspec.Struct, frozen=True):
    """A report, by where it stands in the log."""

    seq: Count
    event_id: str
    source_id: str
    observation_id: str
    probe_id: Annotated[str | None, Meta(description="What was asked, where a provider worked out what it rules out.")]
    soundness: Annotated[Soundness | None, Meta(description="How sound the kit says that it is; null where none does.")]


class LoneWordItem(msgspec.Struct, frozen=True):
    """A cause that one report alone speaks against."""

    hypothesis_id: str
    report: ReportItem


class ExplanationItem(msgspec.Struct, frozen=True):
    """Reports that, all wrong, would let these causes be true, and fewer would not."""

    reports: list[ReportItem]
    causes: Annotated[list[str], Meta(description=f"The first {MAX_NAMED}, by id.")]
    n_causes: Count
    prior: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(description="The share of all of them in the prior of the kit; null where no kit has one."),
    ]


class ContradictionResponse(msgspec.Struct, frozen=True):
    """What explains that nothing is left of a session; empty lists where something is."""

    contradiction: bool
    left_none: Annotated[ReportItem | None, Meta(description="The report after which nothing was left.")]
    smallest: Annotated[Count, Meta(description="How many reports must be wrong at least.")]
    alone: Annotated[
        list[LoneWordItem], Meta(description=f"Causes that one report alone speaks against: the first {MAX_NAMED}.")
    ]
    n_alone: Count
    explanations: Annotated[
        list[ExplanationItem],
        Meta(
            description="Those with the fewest sound reports first, then those with the fewest of the next weaker"
            f" soundness, and so on; of those alike, the one with the larger prior. {MAX_NAMED} at most."
        ),
    ]
    n_explanations: Annotated[Count, Meta(description="How many were found; more where it is not exhaustive.")]
    exhaustive: Annotated[bool, Meta(description="Whether these are all; the first ones always are looked for.")]
    look_again: Annotated[
        list[ReportItem],
        Meta(description="Reports to take again: one at least of each explanation that costs as little as the first."),
    ]
    shortest: Annotated[bool, Meta(description="Whether no shorter list would do; false where the search was cut.")]


NO_CONTRADICTION = ContradictionResponse(
    contradiction=False,
    left_none=None,
    smallest=0,
    alone=[],
    n_alone=0,
    explanations=[],
    n_explanations=0,
    exhaustive=True,
    look_again=[],
    shortest=True,
)


def read_soundness(message: Message) -> Soundness | None:
    """How sound an observation says that it is; None for anything else, and where nothing of the kind is said."""
    if not isinstance(message, Eliminate) or message.probe is None or isinstance(message.probe.reading, UnsetType):
        return None
    said = msgspec.json.decode(message.probe.reading).get("soundness")
    return next((each for each in Soundness if each == said), None)


def _scale_priors(priors: Mapping[str, float], ids: Iterable[str]) -> dict[str, float]:
    """The weights of causes over the largest of them, so that no sum overflows; 0 where none is known."""
    weights = {each: priors.get(each, 0.0) for each in ids}
    largest = max(weights.values(), default=0.0) or 1.0
    return {each: weight / largest for each, weight in weights.items()}


def explain_contradiction(session: Session, known: Known = NOTHING_KNOWN) -> ContradictionResponse:
    """Which reports to doubt where nothing is left; where something is, that it is no contradiction."""
    if len(session.survivors) > 0:
        return NO_CONTRADICTION
    observations = list(session.observations)
    doubts = [_DOUBTED_FIRST.index(known.soundness.get(record.seq, _DOUBTED_FIRST[0])) for _, record in observations]
    # One report of a soundness weighs more than all reports of those below.
    weights = [(len(observations) + 1) ** doubt for doubt in doubts]
    groups, smallest, is_exhaustive = _group_causes(session.universe.ids, observations, weights)
    shares = _scale_priors(known.priors, session.universe.ids)
    total = math.fsum(shares.values())

    def prior(places: _Places) -> float:
        return min(1.0, math.fsum(shares[each] for each in groups[places]) / total) if total else 0.0

    costs = {places: sum(weights[place] for place in places) for places in groups}
    kept, is_whole = _keep_minimal(sorted(groups, key=lambda places: (costs[places], -prior(places), places)))
    first = [places for places in groups if costs[places] == costs[kept[0]]]
    again, is_shortest = find_shortest_list(first)

    def report(place: int) -> ReportItem:
        (source_id, observation_id), record = observations[place]
        event_id, soundness = session.events.at(record.seq)[0], known.soundness.get(record.seq)
        return ReportItem(record.seq, event_id, source_id, observation_id, record.probe_id, soundness)

    lone = sorted(
        (costs[places], -known.priors.get(cause, 0.0), cause, places[0])
        for places in groups
        if len(places) == 1
        for cause in groups[places]
    )
    return ContradictionResponse(
        contradiction=True,
        left_none=report(_find_last_drop(observations)),
        smallest=smallest,
        alone=[LoneWordItem(cause, report(place)) for _, _, cause, place in lone[:MAX_NAMED]],
        n_alone=len(lone),
        explanations=[
            ExplanationItem(
                [*map(report, places)],
                sorted(groups[places])[:MAX_NAMED],
                len(groups[places]),
                prior(places) if total else None,
            )
            for places in kept[:MAX_NAMED]
        ],
        n_explanations=len(kept),
        exhaustive=is_exhaustive and is_whole,
        look_again=[report(place) for place in again],
        shortest=is_shortest,
    )


def _find_last_drop(observations: Sequence[tuple[Observation, Applied]]) -> int:
    return max(place for place, (_, record) in enumerate(observations) if record.applied)


def _group_causes(
    ids: Sequence[str], observations: Sequence[tuple[Observation, Applied]], weights: Sequence[int]
) -> tuple[dict[_Places, list[str]], int, bool]:
    """Causes by the reports that speak against them, the fewest reports against one, and whether these are all causes.

    Those with the least weight of reports, and then those with more, as long as there are not too many.
    """
    counted: dict[int, Counter[str]] = {weight: Counter() for weight in weights}
    for (_, record), weight in zip(observations, weights, strict=True):
        counted[weight].update(record.applied)
        counted[weight].update(record.ignored)
    counts = {each: sum(weight * found[each] for weight, found in counted.items()) for each in ids}
    fewest = min(sum(found[each] for found in counted.values()) for each in ids)
    sizes = Counter(counts.values())
    most = taken = 0
    for size in sorted(sizes):
        if taken and taken + sizes[size] > MAX_GROUPED:
            break
        most, taken = size, taken + sizes[size]
    wanted = {each for each in ids if counts[each] <= most}
    against: dict[str, list[int]] = {each: [] for each in wanted}
    for place, (_, record) in enumerate(observations):
        for ids_of_report in (record.applied, record.ignored):
            for each in wanted.intersection(ids_of_report):
                against[each].append(place)
    groups: dict[_Places, list[str]] = {}
    for each, places in against.items():
        groups.setdefault(tuple(places), []).append(each)
    return groups, fewest, taken == len(ids)


def _keep_minimal(groups: Iterable[_Places]) -> tuple[list[_Places], bool]:
    """The sets of which no part is another one, in their order, in which no set is before a part of it; whether all."""
    kept: list[_Places] = []
    by_first: dict[int, list[frozenset[int]]] = {}
    for places in groups:
        whole = frozenset(places)
        if any(other <= whole for place in places for other in by_first.get(place, ())):
            continue
        if len(kept) == MAX_KEPT:
            return kept, False
        kept.append(places)
        by_first.setdefault(places[0], []).append(whole)
    return kept, True


def find_shortest_list(sets: Sequence[_Places], max_steps: int = MAX_STEPS) -> tuple[list[int], bool]:
    """A shortest list of places that has one of every set, sorted; False where the search for it was cut short."""
    families = [frozenset(places) for places in dict.fromkeys(sets)]
    best = _choose_greedily(families)
    steps = 0
    # What is chosen, and the sets that it has none of.
    waiting: list[tuple[frozenset[int], list[frozenset[int]]]] = [(frozenset(), families)]
    while waiting:
        chosen, left = waiting.pop()
        if not left:
            best = chosen
            continue
        if len(chosen) + _count_disjoint(left) >= len(best):
            continue
        steps += 1
        if steps > max_steps:
            return sorted(best), False
        waiting += [(chosen | {place}, [each for each in left if place not in each]) for place in min(left, key=len)]
    return sorted(best), True


def _choose_greedily(families: Iterable[frozenset[int]]) -> frozenset[int]:
    left, chosen = list(families), set[int]()
    while left:
        counts = Counter(place for each in left for place in each)
        place = max(counts, key=lambda each: (counts[each], -each))
        chosen.add(place)
        left = [each for each in left if place not in each]
    return frozenset(chosen)


def _count_disjoint(left: Iterable[frozenset[int]]) -> int:
    """How many of the sets have nothing in common: each needs a place of its own."""
    seen: set[int] = set()
    count = 0
    for each in left:
        if seen.isdisjoint(each):
            seen |= each
            count += 1
    return count
