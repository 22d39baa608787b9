"""What is found out about decisions, as it is told: reasons, turning points, mismatches of tests, times of flips;
and what changed in a space between two moments.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cmbs.substrate.kernel.model import Failure, ReasonCode, Stage, TraceStep, Verdict
from cmbs.substrate.kernel.words import FlipStatus, SpaceChangeKind


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fact that would have to be otherwise: a state key, or `$belief.<session_id>.<field>`.

    `to` is absent where it would have to be gone, and where `withheld`: then the asker may not read it, or may not read
    the policy that it follows from.
    """

    reference: str
    now: str | None = None
    to: str | None = None
    withheld: bool = False


class Flip(msgspec.Struct, frozen=True, omit_defaults=True):
    """The smallest change of facts that turns the decision, and how good that answer is.

    Of a BOUND or UNKNOWN one: no change of up to `ruled_out` facts turns it.
    """

    status: FlipStatus
    changes: list[Change] = []
    verdict: Verdict | None = None
    ruled_out: int = 0
    note: str | None = None


class Speaker(msgspec.Struct, frozen=True, omit_defaults=True):
    """A constraint, group or invariant that made the verdict, and everything that its predicates looked at.

    `value` is its text, and `origin` where it stands in the policy file, for those who may read the policy; `origins`
    are the conditions that the steps asked, by their `at`.
    """

    key: str
    value: str | None = None
    reason: str | None = None
    steps: list[TraceStep] = []
    origin: Origin | None = None
    origins: dict[str, Origin] = {}


class Because(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why one candidate was decided as it was."""

    candidate: int
    verdict: Verdict
    reason_code: ReasonCode
    stage: Stage | None = None
    failure: Failure | None = None
    speakers: list[Speaker] = []
    # Whether an approval would let it pass.
    approvable: bool = False
    # Constraints that only observe, and hold: what they say was not done.
    observed: list[Speaker] = []


class Mismatch(msgspec.Struct, frozen=True):
    """Something that is not as it was expected: where, what was expected, what there is."""

    at: str
    expected: Any
    found: Any


class UnknownDecision(msgspec.Struct, frozen=True):
    """A decision of which it cannot be known what it would have been: what these sessions said then is not known."""

    seq: int
    event_id: str
    ts: str
    verb: str
    proposal_id: str
    session_ids: list[str]


class TimelinePart(msgspec.Struct, frozen=True):
    """How many decisions there were in one part of the time, by verdict."""

    part: int
    allow: int
    defer: int
    deny: int


class Timeline(msgspec.Struct, frozen=True):
    """When decisions were made: the time from the first one to the last in equal parts, and those that have any."""

    first_ts: str
    last_ts: str
    n_parts: int
    parts: list[TimelinePart]


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where in the policy file something stands; `condition` is what is written there, of a condition."""

    line: int
    column: int
    rule: str
    condition: str | None = None


class SpaceChangeItem(msgspec.Struct, frozen=True):
    """One thing that is another than it was, and the last event that touched it."""

    seq: Annotated[int, Meta(ge=0)]
    kind: SpaceChangeKind
    id: Annotated[str, Meta(description="The key of the state, or the id of the record.")]
    event_id: str
    before: Annotated[str | None, Meta(description="Of keys of the state: the value before; null if there was none.")]
    after: Annotated[
        str | None,
        Meta(description="Of keys of the state: the value after, null if it is gone; else how the record stands."),
    ]

    @property
    def place(self) -> tuple[int, SpaceChangeKind, str]:
        """Where it stands among others."""
        return self.seq, self.kind, self.id
