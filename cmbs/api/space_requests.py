"""Request bodies of spaces: the fields of a kernel message that a caller may set, described for the OpenAPI document.

An unknown field is an error. Limits that an operator can change are checked by the kernel, with errors that name them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmbs.api.sessions import Labels, Sha256, Title
from cmbs.substrate.kernel.events import ConflictState, Evidence, MemoryKind, Mode, OperatorsNeeded, OutcomeStatus
from cmbs.substrate.kernel.model import Moment, Name, Provenance, ToolKind

# Such an id needs no escaping in a path.
SPACE_ID_PATTERN = "^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"
Milliseconds = Annotated[int, Meta(ge=1)]
# JSON that belongs to the caller: the kernel brings it into canonical form.
AnyJson = Annotated[Any, Meta(description="Any JSON value.")]
Args = Annotated[Any, Meta(description="A JSON object.", extra_json_schema={"type": "object"})]
JsonSchema = Annotated[
    Any, Meta(description="A JSON Schema, 2020-12.", extra_json_schema={"type": ["object", "boolean"]})
]
OptionalSchema = Annotated[
    Any,
    Meta(description="A JSON Schema, 2020-12, or null.", extra_json_schema={"type": ["object", "boolean", "null"]}),
]
Target = Annotated[
    Any,
    Meta(description="What this kind of tool needs to be run.", extra_json_schema={"type": ["object", "null"]}),
]
Pairs = Annotated[
    dict[str, str], Meta(description="Strings by key, `namespace.rest`; structured values are JSON text.")
]
Reason = Annotated[str, Meta(description="Free text for people.", extra_json_schema={"maxLength": 4096})]


class CreateSpaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new space and its first policy."""

    space_id: Annotated[str, Meta(pattern=SPACE_ID_PATTERN)]
    mode: Mode = Mode.ENFORCE
    policy: Annotated[Pairs, Meta(description="Pairs of policy.* and constraint.*, validated together.")] = {}
    policy_file: Annotated[
        Any,
        Meta(description="A policy file, in place of the pairs.", extra_json_schema={"type": "object"}),
    ] = UNSET
    operators_needed: Annotated[
        OperatorsNeeded | UnsetType,
        Meta(description="How many operators a change of policy takes. By default 2 if several operators hold keys."),
    ] = UNSET


class StateDeltaRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="state_delta"):
    """A patch of the state."""

    set: Pairs = {}
    unset: Annotated[list[str], Meta(description="Keys to remove.")] = []


class ToolCallRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="tool_call"):
    """A call of a tool."""

    tool_id: Name
    args: Args
    capability_token_id: Annotated[str | None, Meta(description="The token that covers it.")] = None
    idempotency_key: Annotated[
        str | None, Meta(description="Required if the tool writes; a call under one key runs once.")
    ] = None


class ProposeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of the state and calls of tools, based on a state that the caller read."""

    proposal_id: Annotated[
        Name, Meta(description="Chosen by the caller; repeating the proposal gives the first answer again.")
    ]
    state_snapshot_id: Annotated[Name, Meta(description="The state that the caller read.")]
    provenance: Provenance
    candidates: Annotated[
        list[StateDeltaRequest | ToolCallRequest], Meta(description="State deltas and tool calls, in any order.")
    ]
    atomic: Annotated[bool, Meta(description="All or nothing.")] = True
    case_id: Annotated[Name | UnsetType, Meta(description="The case that it belongs to.")] = UNSET
    defer_ms: Annotated[Milliseconds, Meta(description="How long it may stay parked.")] = 3_600_000
    ask_ms: Annotated[Milliseconds, Meta(description="How long it may wait for approval.")] = 3_600_000


class ApproveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Approval of exactly the call or change that was asked about."""

    uses: Annotated[int, Meta(ge=1, description="How many such calls it covers.")] = 1
    expires_at: Annotated[Moment | None, Meta(description="When it expires.")] = None
    call_hash: Annotated[
        Sha256 | None, Meta(description="The `call_hash` that the approver was shown; refused if it differs.")
    ] = None


class CallClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That the caller runs the call itself as soon as it is allowed."""

    nonce_hash: Annotated[Sha256, Meta(description="The SHA-256 of a secret that the outcome has to present.")]
    tool_hash: Annotated[
        Sha256 | UnsetType,
        Meta(description="The registration of the tool that the caller goes by; not claimed if it is another."),
    ] = UNSET


class MakeCallRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a tool."""

    tool_id: Name
    args: Args = {}
    case_id: Annotated[Name | UnsetType, Meta(description="The case that it belongs to.")] = UNSET
    capability_token_id: Annotated[
        str | None, Meta(description="The token that covers it. By default one of the caller's that does.")
    ] = None
    idempotency_key: Annotated[
        str | None,
        Meta(description="A call under one key runs once. Without one, a writing call joins the same open call."),
    ] = None
    joins: Annotated[
        bool,
        Meta(description="With a key: whether it joins the same open writing call under another key, as without one."),
    ] = False
    forwarded: Annotated[
        Any,
        Meta(
            description="Fields of the request beside its arguments. What the policy does not let through is left out.",
            extra_json_schema={"type": "object"},
        ),
    ] = UNSET
    claim: CallClaim | UnsetType = UNSET
    wait_seconds: Annotated[int, Meta(ge=0, le=3600, description="How long to wait for it to end.")] = 0
    defer_ms: Annotated[Milliseconds, Meta(description="How long it may wait for what it depends on.")] = 3_600_000
    ask_ms: Annotated[Milliseconds, Meta(description="How long it may wait for approval.")] = 3_600_000


class ClaimCallRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim of a call, by the one who runs it."""

    nonce_hash: Annotated[Sha256, Meta(description="The SHA-256 of a secret that the outcome has to present.")]
    call_hash: Annotated[
        Sha256, Meta(description="The `call_hash` of what is going to be sent; a conflict if another was decided.")
    ]


class ReasonRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The reason for a step."""

    reason: Reason = ""


class RetireToolRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty object."""


class OutcomeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The outcome of a call."""

    status: OutcomeStatus
    result: Annotated[Any, Meta(description="Any JSON value.")] = UNSET
    error: Annotated[str | None, Meta(description="What failed.", extra_json_schema={"maxLength": 4096})] = None
    duration_ms: Annotated[int, Meta(ge=0)] = 0
    nonce: Annotated[str | UnsetType, Meta(description="The secret of the claim, if the call was claimed.")] = UNSET


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
    writes: Annotated[bool, Meta(description="The tool has effects, so calls need an idempotency key.")] = True
    idempotent: Annotated[bool, Meta(description="A call in doubt may be repeated.")] = False
    facts: Annotated[dict[str, str], Meta(description="Fact keys, and the path of each value in the result.")] = {}
    caller_facts: Annotated[
        bool | UnsetType, Meta(description="Results of a `caller` tool, which its agent reports, set its facts.")
    ] = UNSET
    executor: Annotated[
        Name | UnsetType,
        Meta(description="Who runs calls of a `caller` tool: the id of an executor; by default the calling agent."),
    ] = UNSET


class OpenCaseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A case to admit to the space: the belief session that gates read for it, and who may act under it here."""

    case_id: Annotated[Name, Meta(description="The session, by its id or the name of its case.")]
    agents: Annotated[
        list[str],
        Meta(
            description="Of the agents that the case lists, only these may act under it here; without any, all that it"
            " lists. Where it lists none, these count."
        ),
    ] = []
    attributes: Annotated[
        Any,
        Meta(description="A JSON object for policies to read.", extra_json_schema={"type": "object"}),
    ] = UNSET
    title: Title = UNSET
    labels: Labels = UNSET


class PutMemoryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim to keep in memory."""

    entry_id: Name
    kind: MemoryKind
    claim: AnyJson
    evidence: Evidence = Evidence()
    conflict_state: ConflictState = ConflictState.NONE
    ttl_ms: Annotated[Milliseconds | None, Meta(description="How long it is kept.")] = None
    review_at: Annotated[Moment | None, Meta(description="When it is due for review.")] = None


class PromoteMemoryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The new kind of a hypothesis or derived claim, and the new evidence for it."""

    kind: MemoryKind
    evidence: Evidence


class DisputeMemoryRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether other claims contradict this one."""

    conflict_state: ConflictState
    because: Annotated[list[str], Meta(description="Ids of what contradicts it.")] = []


class ProposePolicyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of policy, to be authorised by another operator."""

    change_id: Name
    base_policy_hash: Annotated[Name, Meta(description="The policy that the caller read.")]
    set: Pairs = {}
    unset: list[str] = []
    reason: Reason = ""
