"""The words of SS-01 as frozen types: actors, proposals, tools, capabilities, decisions.

Opaque parts (args, schemas, results) are canonical bytes once a request is validated, so that no caller can change what
was decided through an object that it still holds. Times are RFC 3339 text in UTC with microseconds: their order is that
of text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from cmbs.messages import Actor, ActorKind, UnknownIndependence

__all__ = ["Actor", "ActorKind"]

NAMESPACES = ("policy", "constraint", "goal", "fact")
NULL = msgspec.Raw(b"null")
Name = Annotated[str, Meta(min_length=1, extra_json_schema={"maxLength": 1024})]
Moment = Annotated[str, Meta(description="RFC 3339.", extra_json_schema={"format": "date-time"})]


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a proposal comes from. `source` is the actor's own id, `permissions` are capability tokens of its own."""

    source: str
    timestamp: str
    inputs: list[str] = []
    permissions: list[str] = []


class StateDelta(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="state_delta"):
    """A patch of the state."""

    set: dict[str, str] = {}
    unset: list[str] = []


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="tool_call"):
    """A call of a tool; `args` is a canonical JSON object.

    `forwarded` are the fields of the request beside its arguments that the policy lets through to the tool, also a
    canonical JSON object; unset where there are none.
    """

    tool_id: str
    args: msgspec.Raw
    capability_token_id: str | None = None
    idempotency_key: str | None = None
    forwarded: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


Candidate: TypeAlias = StateDelta | ToolCall


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an actor wants done, on the state that it saw."""

    proposal_id: str
    state_snapshot_id: str
    provenance: Provenance
    candidates: list[Candidate]
    atomic: bool = True
    # The case that it belongs to. Unset, it is not written.
    case_id: str | msgspec.UnsetType = msgspec.UNSET


class Verdict(StrEnum):
    """What validation comes to."""

    ALLOW = "allow"
    DENY = "deny"
    DEFER = "defer"


class Failure(StrEnum):
    """What happens to what is not allowed; the strictest first."""

    BLOCK = "block"
    DEGRADE = "degrade"
    ASK = "ask"
    DEFER = "defer"


class Stage(StrEnum):
    """The stages of validation, in their order. The first that fails decides."""

    SHAPE = "shape"
    FRESHNESS = "freshness"
    AUTHORITY = "authority"
    TOOL = "tool"
    CAPABILITY = "capability"
    CONSTRAINTS = "constraints"
    CONFLICTS = "conflicts"
    INVARIANTS = "invariants"


class ReasonCode(StrEnum):
    """Why a candidate, or a whole proposal, was decided as it was. A closed set."""

    ALLOWED = "ALLOWED"
    # shape
    NOTHING_PROPOSED = "NOTHING_PROPOSED"
    KEY_OUTSIDE_NAMESPACES = "KEY_OUTSIDE_NAMESPACES"
    CONFLICTING_CANDIDATES = "CONFLICTING_CANDIDATES"
    FORGED_PROVENANCE = "FORGED_PROVENANCE"
    UNKNOWN_SNAPSHOT = "UNKNOWN_SNAPSHOT"
    # freshness
    STALE_SNAPSHOT = "STALE_SNAPSHOT"
    # authority
    AUTHORITY_DENIED = "AUTHORITY_DENIED"
    # tool
    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    TOOL_RETIRED = "TOOL_RETIRED"
    ARGS_INVALID = "ARGS_INVALID"
    IDEMPOTENCY_KEY_REQUIRED = "IDEMPOTENCY_KEY_REQUIRED"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    # capability
    CAPABILITY_REQUIRED = "CAPABILITY_REQUIRED"
    CAPABILITY_UNKNOWN = "CAPABILITY_UNKNOWN"
    CAPABILITY_OTHER_AGENT = "CAPABILITY_OTHER_AGENT"
    CAPABILITY_EXPIRED = "CAPABILITY_EXPIRED"
    CAPABILITY_REVOKED = "CAPABILITY_REVOKED"
    CAPABILITY_TOOL = "CAPABILITY_TOOL"
    CAPABILITY_SCOPE = "CAPABILITY_SCOPE"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"
    # constraints
    MALFORMED_CONSTRAINT = "MALFORMED_CONSTRAINT"
    # What a constraint or an invariant reads of a case, and there is none that is open and for this actor.
    NO_CASE = "NO_CASE"
    CONSTRAINT_DENIED = "CONSTRAINT_DENIED"
    ALLOW_UNMET = "ALLOW_UNMET"
    NO_ALLOW = "NO_ALLOW"
    # conflicts and invariants
    EXCLUSIVE_GOALS = "EXCLUSIVE_GOALS"
    MALFORMED_POLICY = "MALFORMED_POLICY"
    INVARIANT_VIOLATED = "INVARIANT_VIOLATED"
    # nothing wrong with it, but its atomic proposal fails
    HELD_BACK = "HELD_BACK"


REASON_ORDER: dict[ReasonCode, int] = {reason: place for place, reason in enumerate(ReasonCode)}


class ToolKind(StrEnum):
    """How a tool is run."""

    PYTHON = "python"
    HTTP = "http"
    MCP = "mcp"
    CALLER = "caller"


class Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool as an operator registered it.

    `writes`: it has effects, so that calls need an idempotency key. `idempotent`: running it again does no harm, so
    that a call in doubt may be retried. `facts`: fact keys to set from paths into the result, the tool as provenance;
    those of a `caller` tool, whose results are the agent's own words, only with `caller_facts`. `target` is what the
    kind needs to run it; the kernel never looks into it.
    """

    tool_id: str
    kind: ToolKind
    args_schema: msgspec.Raw
    description: str = ""
    result_schema: msgspec.Raw = NULL
    target: msgspec.Raw = NULL
    timeout_ms: int = 30_000
    max_result_bytes: int = 1_048_576
    writes: bool = True
    idempotent: bool = False
    facts: dict[str, str] = {}
    retired: bool = False
    caller_facts: bool | msgspec.UnsetType = msgspec.UNSET
    # Who runs calls of a `caller` tool: the id of an executor, or unset for the agent that made the call.
    executor: str | msgspec.UnsetType = msgspec.UNSET


class ScopeMatch(StrEnum):
    """How a scope compares an argument."""

    EXACT = "exact"
    PREFIX = "prefix"


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bound on one argument: the text, whole number or flag at `path` in the args equals or starts with `value`."""

    path: str
    match: ScopeMatch
    value: str | int | bool


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much may be used; None is without bound. `bytes` counts args and results, `wall_ms` the time of execution."""

    calls: int | None = None
    bytes: int | None = None
    wall_ms: int | None = None


class Spent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a budget is gone."""

    calls: int = 0
    bytes: int = 0
    wall_ms: int = 0


class Capability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tools that an agent may call, and the limits. A child is no wider than its parent, and spends its budget."""

    token_id: Name
    agent_id: Name
    tool_ids: Annotated[list[str], Meta(description="The tools that the token covers.")]
    capabilities: Annotated[list[str], Meta(description="Names by which constraints refer to the token.")] = []
    scopes: Annotated[list[Scope], Meta(description="Bounds on args; all must hold.")] = []
    budget: Budget = Budget()
    expires_at: Moment | None = None
    parent_id: Annotated[str | None, Meta(description="The wider token that this one is issued under.")] = None


class IndependentReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What would be left in a session if nothing that this actor eliminated had been eliminated.

    `unknown` says why that counts for nothing: the actor has a part in what the others eliminated.
    """

    actor_id: str
    n_survivors: int
    # As in the reading that it is part of.
    survivors: list[str] | None = None
    survivor_attributes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    unknown: UnknownIndependence | msgspec.UnsetType = msgspec.UNSET


# Of one session. A reading that carried more would make the ledger of the space a copy of the session's.
MAX_READ_SURVIVORS = 100
MAX_READ_CONCLUSIONS = 100


class BeliefReading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the belief plane said of one session, and the audit head that it was read at.

    An input of a decision like any other, recorded with it: replay needs no belief plane, and a verifier with
    that session's log can check the reading. `found` is false for a session that does not exist.
    """

    session_id: str
    found: bool
    head_seq: int = -1
    head_event_id: str = ""
    head_event_hash: str = ""
    # `entropy_proxy` is its logarithm, and so needs no place of its own.
    n_survivors: int = 0
    terminated: bool = False
    active_obligation_id: str | None = None
    # None where there are more than a reading carries.
    survivors: list[str] | None = None
    # The newest that a reading carries.
    concluded: list[str] = []
    # What was declared of the one hypothesis that is left, a canonical JSON object; unset where there is none of both.
    survivor_attributes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    # Only where a policy asks for it, of the actor whose proposal is decided.
    independent: IndependentReading | msgspec.UnsetType = msgspec.UNSET
    # Who may work on the session as a case, sorted; unset where that is not restricted.
    agents: list[str] | msgspec.UnsetType = msgspec.UNSET


class TraceStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that validation looked at: where, what it asked, what it found, and whether that was good."""

    stage: Stage
    passed: bool
    candidate: int | None = None
    # The constraint, exclusive group or invariant that asked.
    key: str | None = None
    # The place in its `when`, as in `when.args[0]`, and the operator there.
    at: str | None = None
    op: str | None = None
    reference: str | None = None
    # The text that was found, shortened to a limit; absent where nothing was.
    found: str | None = None
    note: str | None = None


class CandidateDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was decided of one candidate; `candidate` is its place in the proposal."""

    candidate: int
    verdict: Verdict
    reason_code: ReasonCode
    failure: Failure | None = None
    stage: Stage | None = None
    # Constraint, group or invariant keys that made the verdict.
    matched: tuple[str, ...] = ()
    reason: str | None = None
    # What a deferred one waits for: state keys, `$belief.<session_id>` and `$case.<case_id>`.
    waits_for: tuple[str, ...] = ()
    # Of a degraded one: the value of `policy.degrade.<tool_id>`.
    offer: str | None = None


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was decided of a proposal. Deterministic: same state, policy and proposal, same bytes."""

    verdict: Verdict
    reason_code: ReasonCode
    policy_hash: str
    state_snapshot_id: str
    candidates: tuple[CandidateDecision, ...]
    failure: Failure | None = None
    stage: Stage | None = None
    # Made in observe mode: recorded, and not enforced.
    observed: bool = False
    trace: tuple[TraceStep, ...] = ()
