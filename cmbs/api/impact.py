"""Types of what a policy file would have made of a space's past."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from cmbs.api.answers import Answer, Count, Partial
from cmbs.api.entries import RecordedActor
from cmbs.api.sessions import Sha256
from cmbs.ledger.instants import Timestamp
from cmbs.substrate.kernel.insight.findings import Timeline, UnknownDecision
from cmbs.substrate.kernel.model import Failure, ReasonCode, Verdict
from cmbs.substrate.kernel.words import FlipKind


class DecidingRule(Partial, frozen=True):
    """A rule that spoke in a decision; the place is that in the file that was sent."""

    key: str
    line: int | None = None
    column: int | None = None
    name: str | None = None
    condition: str | None = None


class ImpactDecision(Partial, frozen=True):
    """A decision, without its trace."""

    verdict: Verdict
    reason_code: ReasonCode
    failure: Failure | None = None
    rules: list[DecidingRule] = []


class FlipItem(Answer, frozen=True):
    """A decision that would have been another, and what the allowed one of the two does."""

    kind: FlipKind
    seq: Count
    event_id: str
    ts: Timestamp
    verb: str
    proposal_id: str
    actor: RecordedActor
    before: ImpactDecision
    after: ImpactDecision
    set: dict[str, str]
    unset: list[str]
    tool_ids: list[str]


class PolicyImpact(Answer, kw_only=True, frozen=True):
    """What another policy would have made of the past. Flips to `allow` come first."""

    old_policy_hash: Sha256
    new_policy_hash: Sha256
    decisions: Annotated[int, Meta(ge=0, description="Decisions of the past.")]
    counts: Annotated[dict[str, int], Meta(description="Flips by kind.")]
    otherwise: Annotated[int, Meta(ge=0, description="The same verdict for another reason.")]
    n_flips: Count
    flips: Annotated[list[FlipItem], Meta(description="At most `limit` of them.")]
    n_unknown: Count
    unknown: Annotated[
        list[UnknownDecision], Meta(description="Decisions whose sessions cannot be read as of then; at most `limit`.")
    ]
    timeline: Timeline | None
