"""The closed sets of words that records of a space, and what is found out about them, are described with."""

from __future__ import annotations

from enum import StrEnum

# The executor of a `caller` tool that names none: the agent that makes the call.
CALLER = "caller"


class ProposalStatus(StrEnum):
    """Where a proposal stands."""

    DENIED = "denied"
    ASKED = "asked"
    PARKED = "parked"
    # Allowed, with calls that wait to be started, and none under way.
    READY = "ready"
    # Allowed, with executions that have no outcome yet.
    RUNNING = "running"
    COMMITTED = "committed"
    # Allowed, but an execution failed, or the state had moved when the deltas were to be committed.
    FAILED = "failed"
    EXPIRED = "expired"
    REJECTED = "rejected"
    # By its author, by an operator, or with its case, while it waited.
    WITHDRAWN = "withdrawn"


class ExecutionStatus(StrEnum):
    """Where an execution stands."""

    # Allowed, and not started: it waits for its turn, or for its executor to claim it.
    READY = "ready"
    RUNNING = "running"
    IN_DOUBT = "in_doubt"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    RESULT_REFUSED = "result_refused"
    # It was allowed, and ended before it was started: not allowed any more, withdrawn or expired.
    NOT_STARTED = "not_started"


class CallStatus(StrEnum):
    """Where a call stands, in one word."""

    # It ran, and succeeded.
    DONE = "done"
    FAILED = "failed"
    # For an approval, a change, its turn, or its executor.
    WAITING = "waiting"
    RUNNING = "running"
    DENIED = "denied"
    # It was started, and its outcome is not known.
    IN_DOUBT = "in_doubt"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


class ApprovalStatus(StrEnum):
    """Where a request for approval stands."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    # With its proposal, or because a later decision on that asks for nothing, or for another approval.
    WITHDRAWN = "withdrawn"


class PolicyChangeStatus(StrEnum):
    """Where a proposed change of policy stands."""

    PENDING = "pending"
    APPLIED = "applied"
    REJECTED = "rejected"


class CaseStatus(StrEnum):
    """Whether actions can be taken under a case."""

    OPEN = "open"
    CLOSED = "closed"


class WaitKind(StrEnum):
    """What is waited for."""

    APPROVAL = "approval"
    EXECUTION_IN_DOUBT = "execution_in_doubt"
    POLICY_CHANGE = "policy_change"
    OBSERVE_MODE = "observe_mode"
    GOVERNANCE = "governance"


class SpaceChangeKind(StrEnum):
    """What can be another than it was."""

    FACT = "fact"
    POLICY = "policy"
    MODE = "mode"
    GOVERNANCE = "governance"
    TOOL = "tool"
    CAPABILITY = "capability"
    PROPOSAL = "proposal"
    APPROVAL = "approval"
    EXECUTION = "execution"
    POLICY_CHANGE = "policy_change"
    MEMORY = "memory"
    CASE = "case"


class FlipStatus(StrEnum):
    """How good the answer is."""

    # These changes turn the decision, and no smaller number of changes does.
    SMALLEST = "smallest"
    # These changes turn it; whether fewer would is not known.
    BOUND = "bound"
    # No change of facts turns it.
    NONE = "none"
    # None was found, and not everything was looked at.
    UNKNOWN = "unknown"


class FlipKind(StrEnum):
    """From which verdict to which; what would now be let through first, as that is what one has to look at."""

    DENY_TO_ALLOW = "deny→allow"
    DEFER_TO_ALLOW = "defer→allow"
    DENY_TO_DEFER = "deny→defer"
    ALLOW_TO_DENY = "allow→deny"
    ALLOW_TO_DEFER = "allow→defer"
    DEFER_TO_DENY = "defer→deny"
