"""Why nothing is left of a session, and which reports to doubt. Pure.

A report is an ELIMINATE event. A cause can be true only if every report that speaks against it is wrong. So each cause
is explained by one set of reports, and the smallest of these sets need the fewest mistakes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from cmbs.belief.kernel.comparisons import Count
from cmbs.belief.kernel.looks import Applied, Observation
from cmbs.belief.kernel.session import Session

# How many causes and explanations are named, beside how many there are.
MAX_NAMED = 100
# Causes with the fewest reports against them are looked at, and then those with more, up to so many.
MAX_GROUPED = 10_000
# How many explanations are kept, and how many steps the search for the shortest list takes at most.
MAX_KEPT = 1_000
MAX_STEPS = 20_000

# Places of reports, in the order in which they came.
_Places: TypeAlias = tuple[int, ...]


class ReportItem(msgspec.Struct, frozen=True):
    """A report, by where it stands in the log."""

    seq: Count
    event_id: str
    source_id: str
    observation_id: str
    probe_id: Annotated[str | None, Meta(description="What was asked, where a provider worked out what it rules out.")]


class LoneWordItem(msgspec.Struct, frozen=True):
    """A cause that one report alone speaks against."""

    hypothesis_id: str
    report: ReportItem


class ExplanationItem(msgspec.Struct, frozen=True):
    """Reports that, all wrong, would let these causes be true, and fewer would not."""

    reports: list[ReportItem]
    causes: Annotated[list[str], Meta(description=f"The first {MAX_NAMED}, by id.")]
    n_causes: Count


class ContradictionResponse(msgspec.Struct, frozen=True):
    """What explains that nothing is left of a session; empty lists where something is."""

    contradiction: bool
    left_none: Annotated[ReportItem | None, Meta(description="The report after which nothing was left.")]
    smallest: Annotated[Count, Meta(description="How many reports must be wrong at least.")]
    alone: Annotated[
        list[LoneWordItem], Meta(description=f"Causes that one report alone speaks against: the first {MAX_NAMED}.")
    ]
    n_alone: Count
    explanations: Annotated[list[ExplanationItem], Meta(description=f"The smallest first, {MAX_NAMED} at most.")]
    n_explanations: Annotated[Count, Meta(description="How many were found; more where it is not exhaustive.")]
    exhaustive: Annotated[bool, Meta(description="Whether these are all; the smallest always are looked for.")]
    look_again: Annotated[
        list[ReportItem],
        Meta(description="Reports to take again: at least one is wrong, if no more are wrong than must be."),
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


def explain_contradiction(session: Session) -> ContradictionResponse:
    """Which reports to doubt where nothing is left; where something is, that it is no contradiction."""
    if len(session.survivors) > 0:
        return NO_CONTRADICTION
    observations = list(session.observations)
    groups, is_exhaustive = _group_causes(session.universe.ids, observations)
    kept, is_whole = _keep_minimal(groups)
    smallest = len(kept[0])
    first = [places for places in groups if len(places) == smallest]
    again, is_shortest = find_shortest_list(first)

    def report(place: int) -> ReportItem:
        (source_id, observation_id), record = observations[place]
        return ReportItem(record.seq, session.events.at(record.seq)[0], source_id, observation_id, record.probe_id)

    lone = sorted((cause, places[0]) for places in first if smallest == 1 for cause in groups[places])
    return ContradictionResponse(
        contradiction=True,
        left_none=report(_find_last_drop(observations)),
        smallest=smallest,
        alone=[LoneWordItem(cause, report(place)) for cause, place in lone[:MAX_NAMED]],
        n_alone=len(lone),
        explanations=[
            ExplanationItem([*map(report, places)], sorted(groups[places])[:MAX_NAMED], len(groups[places]))
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
    ids: Sequence[str], observations: Sequence[tuple[Observation, Applied]]
) -> tuple[dict[_Places, list[str]], bool]:
    """Causes by the reports that speak against them, and whether these are all causes.

    Those with the fewest reports, and then those with more, as long as there are not too many.
    """
    counts: Counter[str] = Counter()
    for _, record in observations:
        counts.update(record.applied)
        counts.update(record.ignored)
    sizes = Counter(counts[each] for each in ids)
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
    return groups, taken == len(ids)


def _keep_minimal(groups: Iterable[_Places]) -> tuple[list[_Places], bool]:
    """The sets of which no part is another one, the smallest first; and whether these are all."""
    kept: list[_Places] = []
    by_first: dict[int, list[frozenset[int]]] = {}
    for places in sorted(groups, key=lambda each: (len(each), each)):
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
