"""What refusals are made from: a decision, and everything that says what can be done about it."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.arbitration.authority import may_read
from cmbs.substrate.kernel.events import Asked
from cmbs.substrate.kernel.model import Decision, Proposal
from cmbs.substrate.kernel.policy.policy import Policy
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.words import ProposalStatus

# Any key of the policy: who may read one, may read all.
_POLICY_KEY = "constraint.any"


class Refused(NamedTuple):
    """A decision as its reader may see it, and what stands around it.

    `space` is the space as it is when the refusal is made, and so may have moved on since the decision.
    """

    space: Space
    proposal: Proposal
    proposer: Actor
    decision: Decision
    reader: ActorKind
    # What the reader may see goes by it.
    readable: Policy
    # Where the proposal stands; None where it was not made, or only its decision is looked at.
    status: ProposalStatus | None
    # Candidates that were let through.
    ran: Collection[int] = ()
    asked: Collection[Asked] = ()
    parked_until: str | None = None
    # The moment of the decision; None where that is not known.
    now: str | None = None
    # What would have turned it, in words, where that was searched for.
    flip: str | None = None

    @property
    def reads_policy(self) -> bool:
        """Whether the reader may learn what rules ask for."""
        return may_read(self.readable, self.reader, _POLICY_KEY)

    def may_read(self, key: str) -> bool:
        """Whether the reader may see the value under a key of the state."""
        return may_read(self.readable, self.reader, key)

    @property
    def is_same_policy(self) -> bool:
        """Whether the policy of the decision is still in force."""
        return self.space.policy.policy_hash == self.decision.policy_hash
