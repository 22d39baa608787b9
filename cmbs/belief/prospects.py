"""What a probe that was not asked yet may come to."""

from __future__ import annotations

from typing import NamedTuple


class AnswerProspect(NamedTuple):
    """What one answer to a probe would leave."""

    outcome_id: str
    label: str
    soundness: str
    # How likely it is, by the priors of what survives; hypotheses that leave the answer open give each their share.
    likelihood: float
    leaves: int
    rules_out: int


class ProbeProspect(NamedTuple):
    """A probe that could rule something out: the bits that are to be expected, and what each answer would leave."""

    probe_id: str
    prompt: str
    reads_numbers: bool
    expected_bits: float
    answers: list[AnswerProspect]
    # How often it was looked at already, by other sources or without data.
    n_looks: int
