"""What an analysis finds, as types: the same for Python, for JSON and for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cmbs.analysis.optimum import Method
from cmbs.analysis.trajectory import Redundancy

Count = Annotated[int, Meta(ge=0)]
Bits = Annotated[float, Meta(ge=0)]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A probe of the kit that was asked, set against what else could have been asked. In bits, then in probes."""

    probe_id: str
    outcome_id: Annotated[str | None, Meta(description="What it answered; null where there was no data.")]
    gain: Annotated[float | None, Meta(description="The bits of prior mass it took; null where it left nothing.")]
    expected_gain: Annotated[float, Meta(ge=0, description="The bits it was expected to take.")]
    luck: Annotated[float | None, Meta(description="gain - expected_gain; on average over truths it is 0.")]
    best_gain: Annotated[
        Bits | None,
        Meta(description="The largest expected gain there was; null where looking would have taken too long."),
    ]
    best_probe_id: Annotated[str | None, Meta(description="The first probe with that gain; null where none is left.")]
    value_ratio: Annotated[
        Bits | None, Meta(description="expected_gain over best_gain; null where nothing was to be gained.")
    ]
    regret: Annotated[
        float | None,
        Meta(
            description="Expected probes lost by asking this one; never below 0 if exact, null where only a bound is "
            "known."
        ),
    ]
    probe_luck: Annotated[
        float | None,
        Meta(
            description="Expected probes saved by the answer that came; 0 on average, null where only a bound is known."
        ),
    ]


class EventFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One elimination."""

    seq: Count
    event_id: str
    ts: str
    source_id: str
    observation_id: str
    before: Annotated[int, Meta(ge=0, description="Survivors before it.")]
    after: Annotated[int, Meta(ge=0, description="Survivors after it.")]
    bits: Annotated[Bits | None, Meta(description="log2 of before over after; null where nothing was left.")]
    redundancy: Annotated[Redundancy | None, Meta(description="Why it eliminated nothing; null where it did.")]
    choice: Annotated[
        Choice | None, Meta(description="With a kit, where the event is the answer to one of its probes.")
    ]


class SourceFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What one source contributed."""

    source_id: str
    eliminations: Count
    redundant: Count
    bits: Annotated[Bits | None, Meta(description="Null where it eliminated the last survivor.")]


class RedundancyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """How many eliminations eliminated nothing, and why; the five classes are disjoint."""

    duplicate: Count
    recall_failure: Count
    cross_agent: Count
    no_effect: Count
    predictable: Count
    total: Count
    share: Annotated[float, Meta(ge=0, le=1, description="Of all eliminations; 0 where there are none.")]


class CertificateFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The fewest eliminations that explain what is left."""

    size: Count
    event_ids: list[str]
    exact: Annotated[bool, Meta(description="Whether fewer are known not to do; else they are a greedy choice.")]
    at_least: Annotated[int, Meta(ge=0, description="No fewer than this can explain it.")]


class ResolutionFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one class is left (without a kit: one hypothesis), and since when."""

    resolved: bool
    seq: Annotated[Count | None, Meta(description="The event that resolved it; 0 if it was from the start.")]
    eliminations: Annotated[Count | None, Meta(description="How many eliminations that took.")]
    seconds: Annotated[float | None, Meta(description="How long after the declaration that was.")]


class TruthFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the hypothesis that is known to be true."""

    hypothesis_id: str
    survived: bool
    found: Annotated[bool, Meta(description="Resolved, and the truth is in what is left.")]
    killed_by_event_id: Annotated[str | None, Meta(description="The event that eliminated it.")]
    killed_by_seq: Count | None
    killed_by_source_id: str | None


class RegretFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Probes asked, against the fewest that were to be expected.

    probes + probes_left = optimum + regret - luck - outside, wherever an optimum is known.
    """

    method: Annotated[
        Method,
        Meta(description="What the optimum is: exact, that of greedy choice, or not known beyond a lower bound."),
    ]
    reason: Annotated[str, Meta(description="Why it is not exact; empty where it is.")]
    optimum: Annotated[
        float | None,
        Meta(description="Expected probes from the start, by that method; null where only a bound is known."),
    ]
    optimum_at_least: Annotated[float, Meta(ge=0, description="No strategy expects fewer probes from the start.")]
    probes: Annotated[int, Meta(ge=0, description="Probes of the kit that were asked.")]
    probes_left: Annotated[
        float | None, Meta(description="Expected probes still to ask; null where only a bound is known.")
    ]
    regret: Annotated[
        float | None, Meta(description="What the choices of probes cost; null where only a bound is known.")
    ]
    luck: Annotated[float | None, Meta(description="What the answers saved; null where only a bound is known.")]
    outside: Annotated[
        float | None,
        Meta(
            description="What events saved that are no answer to a probe of the kit; null where only a bound is known."
        ),
    ]
    beyond_at_most: Annotated[
        float | None,
        Meta(
            description="Where only a bound is known: probes asked, and at most still to ask, beyond it. Choices, luck "
            "and what no strategy can do are in it."
        ),
    ]


class GainFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A probe that can still rule something out."""

    probe_id: str
    expected_gain: Annotated[float, Meta(ge=0)]


class StrategyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a strategy narrows the kit down, whatever the session did."""

    strategy: Annotated[Method, Meta(description="`greedy` asks what tells most each time; `exact` is the optimum.")]
    bits_left: Annotated[
        list[Bits] | None,
        Meta(
            description="The bits left after each probe, from none on, by count, on average over the priors of the "
            "kit; null where finding out takes too long."
        ),
    ]
    reason: Annotated[str, Meta(description="Why there is none; empty where there is.")]


class KitFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What an analysis finds with the kit of the session."""

    kit_id: str
    version: str
    deterministic: Annotated[bool, Meta(description="Whether each hypothesis determines the answer to every probe.")]
    classes: Annotated[int, Meta(ge=0, description="Sets of hypotheses that no probe tells apart, at the start.")]
    classes_left: Count
    residual_bits: Annotated[float, Meta(ge=0, description="What no probe can decide, on average, at the start.")]
    residual_bits_left: Annotated[float, Meta(ge=0, description="The same for what survives.")]
    undecided: Annotated[list[list[str]], Meta(description="Survivors that no probe tells apart, class by class.")]
    gain: Annotated[float | None, Meta(description="Bits of prior mass taken by the answers to probes.")]
    expected_gain: Annotated[float, Meta(description="What the probes asked were expected to take: skill.")]
    luck: Annotated[float | None, Meta(description="gain - expected_gain.")]
    shortfall: Annotated[
        float | None, Meta(description="What the best probe at each step was expected to take beyond that.")
    ]
    value_ratio: Annotated[
        float | None, Meta(description="The mean over probes asked while something was to be gained.")
    ]
    unmatched: Annotated[int, Meta(ge=0, description="Eliminations that are no answer to a probe of this kit.")]
    remaining: Annotated[list[GainFinding], Meta(description="Probes that can still rule something out, best first.")]
    regret: RegretFinding
    strategies: Annotated[list[StrategyFinding], Meta(description="The greedy strategy, then the optimal one.")]


class Analysis(msgspec.Struct, frozen=True, kw_only=True):
    """What a session's path was worth."""

    session_id: str
    universe_size: Count
    n_survivors: Count
    events: Annotated[int, Meta(ge=0, description="Every event of the log.")]
    refusals: Annotated[int, Meta(ge=0, description="Requests that were answered with no.")]
    eliminations: Annotated[int, Meta(ge=0, description="ELIMINATE events.")]
    bits: Annotated[
        Bits | None, Meta(description="log2 of the universe over the survivors; null where nothing is left.")
    ]
    bits_left: Annotated[float, Meta(ge=0, description="log2 of the survivors; 0 for one or none.")]
    efficiency: Annotated[Bits | None, Meta(description="Bits for each elimination; null where there is none.")]
    redundancy: RedundancyFinding
    resolution: ResolutionFinding
    truth: Annotated[TruthFinding | None, Meta(description="Where the truth was given.")]
    certificate: CertificateFinding
    sources: Annotated[list[SourceFinding], Meta(description="Sorted by source_id.")]
    kit: Annotated[KitFinding | None, Meta(description="Where the kit of the session is known.")]
    timeline: Annotated[list[EventFinding], Meta(description="Every elimination, in order.")]
