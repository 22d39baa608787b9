"""What a probe that was not asked yet may come to. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cmbs.belief.kernel.comparisons import Count
from cmbs.kit.model import Soundness


class AnswerItem(msgspec.Struct, frozen=True):
    """An answer that a probe may still have, and what it would leave."""

    outcome_id: str
    label: str
    soundness: Soundness
    likelihood: Annotated[float, Meta(ge=0, le=1, description="By the priors of the kit over what survives.")]
    leaves: Count
    rules_out: Count


class ProbeItem(msgspec.Struct, frozen=True):
    """A probe that can still rule something out."""

    probe_id: str
    prompt: str
    reads_numbers: Annotated[bool, Meta(description="Whether one number is an answer.")]
    takes_window: Annotated[bool, Meta(description="Whether a list of samples is the only answer, beside `no-data`.")]
    expected_bits: Annotated[float, Meta(ge=0, description="What its answer is expected to rule out.")]
    answers: list[AnswerItem]
    n_looks: Annotated[int, Meta(ge=0, description="How often it was looked at already, without data.")]
