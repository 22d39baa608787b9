"""What is sent to spaces, as types. An unknown field is an error; limits are the door's, with errors that name them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmbs.substrate.kernel.events import ConflictState, Evidence, MemoryKind, Mode, OutcomeStatus
from cmbs.substrate.kernel.model import Budget, Provenance, Scope, ToolKind

# What the door takes; it fits into a path as it is.
SPACE_ID_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"
Name = Annotated[str, Meta(min_length=1, extra_json_schema={"maxLength": 1024})]
Milliseconds = Annotated[int, Meta(ge=1)]
# JSON of the caller's own: kept as text until the door brings it into canonical form.
AnyJson = Annotated[msgspec.Raw, Meta(description="Any JSON value.")]
Args = Annotated[msgspec.Raw, Meta(description="A JSON object.", extra_json_schema={"type": "object"})]
JsonSchema = Annotated[
    msgspec.Raw, Meta(description="A JSON Schema, 2020-12.", extra_json_schema={"type": ["object", "boolean"]})
]
OptionalSchema = Annotated[
    msgspec.Raw | UnsetType,
    Meta(description="A JSON Schema, 2020-12, or null.", extra_json_schema={"type": ["object", "boolean", "null"]}),
]
Target = Annotated[
    msgspec.Raw | UnsetType,
    Meta(description="What the kind needs in order to run it.", extra_json_schema={"type": ["object", "null"]}),
]
Pairs = Annotated[dict[str, str], Meta(description="Texts by key, `namespace.rest`; structured values are JSON text.")]
Reason = Annotated[str, Meta(description="For people.", extra_json_schema={"maxLength": 4096})]
Moment = Annotated[str, Meta(description="RFC 3339.", extra_json_schema={"format": "date-time"})]


class CreateSpaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new space, under the policy that it starts with."""

    space_id: Annotated[str, Meta(pattern=SPACE_ID_PATTERN)]
    mode: Mode = Mode.ENFORCE
    policy: Annotated[Pairs, Meta(description="Pairs of policy.* and constraint.*, validated whole.")] = {}


class SetModeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From enforcing to observing, or back."""

    mode: Mode


class StateDeltaRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="state_delta"):
    """A patch of the state."""

    set: Pairs = {}
    unset: Annotated[list[str], Meta(description="Keys to take away.")] = []


class ToolCallRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="tool_call"):
    """A call of a tool."""

    tool_id: Name
    args: Args
    capability_token_id: Annotated[str | None, Meta(description="The token that covers it.")] = None
    idempotency_key: Annotated[str | None, Meta(description="Required where the tool writes; never runs twice.")] = None


class ProposeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody wants done, on the state that they saw."""

    proposal_id: Annotated[Name, Meta(description="Of your choice; the same again gives the first outcome again.")]
    state_snapshot_id: Annotated[Name, Meta(description="The state that you saw.")]
    provenance: Provenance
    candidates: Annotated[
        list[StateDeltaRequest | ToolCallRequest], Meta(description="State deltas and tool calls, in any order.")
    ]
    atomic: Annotated[bool, Meta(description="All or nothing.")] = True
    defer_ms: Annotated[Milliseconds, Meta(description="How long it may be parked.")] = 3_600_000
    ask_ms: Annotated[Milliseconds, Meta(description="How long somebody may take to approve it.")] = 3_600_000


class ApproveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Yes, to exactly what was asked."""

    uses: Annotated[int, Meta(ge=1, description="How many such calls it is good for.")] = 1
    expires_at: Annotated[Moment | None, Meta(description="Until when it is good.")] = None
    args_hash: Annotated[str | None, Meta(description="Of the args that you saw; refused if they are others.")] = None


class ReasonRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why."""

    reason: Reason = ""


class RetireToolRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing needs to be said."""


class OutcomeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of an execution."""

    status: OutcomeStatus
    result: Annotated[msgspec.Raw | UnsetType, Meta(description="Any JSON value.")] = UNSET
    error: Annotated[str | None, Meta(description="What went wrong.", extra_json_schema={"maxLength": 4096})] = None
    duration_ms: Annotated[int, Meta(ge=0)] = 0


class RegisterToolRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A tool, or a new version of one."""

    tool_id: Name
    kind: ToolKind
    args_schema: JsonSchema
    description: Reason = ""
    result_schema: OptionalSchema = UNSET
    target: Target = UNSET
    timeout_ms: Milliseconds = 30_000
    max_result_bytes: Annotated[int, Meta(ge=1)] = 1_048_576
    writes: Annotated[bool, Meta(description="It has effects: calls need an idempotency key.")] = True
    idempotent: Annotated[bool, Meta(description="A call in doubt may be run again.")] = False
    facts: Annotated[dict[str, str], Meta(description="Fact keys, and where in the result their values are.")] = {}


class IssueCapabilityRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an agent may use, and how far."""

    token_id: Name
    agent_id: Name
    tool_ids: Annotated[list[str], Meta(description="The tools that it covers.")]
    capabilities: Annotated[list[str], Meta(description="Names by which constraints mean it.")] = []
    scopes: Annotated[list[Scope], Meta(description="Bounds on arguments; all must hold.")] = []
    budget: Budget = Budget()
    expires_at: Moment | None = None
    parent_id: Annotated[str | None, Meta(description="The wider token that this one is a part of.")] = None


class PutMemoryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim to remember."""

    entry_id: Name
    kind: MemoryKind
    claim: AnyJson
    evidence: Evidence = Evidence()
    conflict_state: ConflictState = ConflictState.NONE
    ttl_ms: Annotated[Milliseconds | None, Meta(description="When it goes.")] = None
    review_at: Annotated[Moment | None, Meta(description="When it is to be looked at again.")] = None


class PromoteMemoryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A hypothesis or derived claim becomes more, on evidence that was not there before."""

    kind: MemoryKind
    evidence: Evidence


class DisputeMemoryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Other claims speak against it, or no longer do."""

    conflict_state: ConflictState
    because: Annotated[list[str], Meta(description="Ids of what speaks against it.")] = []


class ProposePolicyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of policy, for somebody else to authorise."""

    change_id: Name
    base_policy_hash: Annotated[Name, Meta(description="The policy that you saw.")]
    set: Pairs = {}
    unset: list[str] = []
    reason: Reason = ""
