"""Validation of requests to a space: a message in its one form, or a clear error before anything is done.

Everything that comes from outside has a limit here, and every limit has a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.belief.kernel.case_fields import build_case_fields
from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.ledger import canonical
from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.ledger.instants import parse_instant
from cmbs.messages import Actor
from cmbs.substrate.kernel.calls import MakeCall, SpaceRequest
from cmbs.substrate.kernel.events import (
    STREAM_PREFIX,
    Approve,
    CloseCase,
    CreateSpace,
    DisputeMemory,
    Expire,
    IssueCapability,
    MarkInDoubt,
    OpenCase,
    PromoteMemory,
    Propose,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetGovernance,
    SettlePolicy,
    SpaceMessage,
    Start,
    Wake,
    Withdraw,
)
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.substrate.kernel.memory import validate_promotion, validate_put
from cmbs.substrate.kernel.model import Candidate, StateDelta, ToolCall, ToolKind
from cmbs.substrate.kernel.retention import Recalled, Unknown
from cmbs.substrate.kernel.targets import check_target
from cmbs.substrate.kernel.words import CALLER

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SPACE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}")
__all__ = ["SpaceCommand", "SpaceLimits", "SpaceRequestValidator"]

# What is around a caller's own JSON in an entry: it must still be within the depth of the ledger then.
_MAX_OWN_DEPTH = canonical.MAX_DEPTH - 8


class SpaceCommand(msgspec.Struct, frozen=True):
    """A message on its way to a space, and who sends it. `if_match` is the event id that the caller saw as the head.

    The server adds `recalled`, what it found in the ledger of what has left the state; `looked_up`, what it looked for;
    and `looked_up_seq`, where the space ended when it did.
    """

    space_id: str
    actor: Actor
    message: SpaceRequest
    idempotency_key: str | None = None
    if_match: str | None = None
    recalled: Recalled | None = None
    looked_up: Unknown | None = None
    looked_up_seq: int = -1

    @property
    def stream_id(self) -> str:
        """The stream of the space."""
        return STREAM_PREFIX + self.space_id


class SpaceRequestValidator:
    """Brings messages into their one form, within limits. Pure."""

    def __init__(self, limits: SpaceLimits) -> None:
        self.limits = limits
        # What has no entry has nothing to check.
        self._checks: dict[type[SpaceRequest], Callable[[Any], SpaceRequest]] = {
            Propose: self._propose,
            RecordOutcome: self._outcome,
            Approve: self._approve,
            CreateSpace: self._create,
            SetGovernance: self._governance,
            ProposePolicy: self._policy,
            RegisterTool: self._tool,
            IssueCapability: self._capability,
            PutMemory: self._put_memory,
            PromoteMemory: self._promote_memory,
            DisputeMemory: self._dispute_memory,
            Wake: self._check_name("proposal_id"),
            Expire: self._check_name("id"),
            Start: self._start,
            MakeCall: self._make_call,
            MarkInDoubt: self._check_name("execution_id"),
            Reject: self._check_name("approval_id"),
            SettlePolicy: self._check_name("change_id"),
            Withdraw: self._check_name("proposal_id"),
            RetireTool: self._check_name("tool_id"),
            RevokeCapability: self._check_name("token_id"),
            OpenCase: self._open_case,
            CloseCase: self._check_name("case_id"),
        }

    def validate(self, command: SpaceCommand) -> SpaceCommand:
        """The command in its one form; InvalidRequest or LimitExceeded says what is wrong with it."""
        self.space_id(command.space_id)
        if command.idempotency_key is not None:
            self.name("idempotency_key", command.idempotency_key)
        check = self._checks.get(type(command.message))
        message = command.message if check is None else check(command.message)
        if isinstance(message, CreateSpace) and message.space_id != command.space_id:
            raise InvalidRequest("`space_id` is not that of the space", {"field": "space_id"})
        return msgspec.structs.replace(command, message=message)

    @staticmethod
    def space_id(space_id: Any) -> str:
        """An id that fits into a path."""
        if not isinstance(space_id, str) or _SPACE_ID.fullmatch(space_id) is None:
            raise InvalidRequest(
                "`space_id` must be 1 to 128 letters, digits or `._~-`, the first a letter or digit",
                {"field": "space_id"},
            )
        return space_id

    # --- one by one ---

    def _check_name(self, field: str) -> Callable[[Any], SpaceMessage]:
        """The check of a message that names one thing, and may say why."""

        def check(message: Any) -> SpaceMessage:
            self.name(field, getattr(message, field))
            self.text("reason", getattr(message, "reason", ""))
            return cast("SpaceMessage", message)

        return check

    def _approve(self, message: Approve) -> Approve:
        self.name("approval_id", message.approval_id)
        self._whole("uses", message.uses)
        if message.expires_at is None:
            return message
        return msgspec.structs.replace(message, expires_at=parse_instant(message.expires_at, "expires_at"))

    def _create(self, message: CreateSpace) -> CreateSpace:
        self._pairs("policy", message.policy, self.limits.policy_keys)
        self._source(message)
        if message.operators_needed is not msgspec.UNSET:
            self._whole("operators_needed", message.operators_needed)
        return message

    def _governance(self, message: SetGovernance) -> SetGovernance:
        self._whole("operators_needed", message.operators_needed)
        return message

    def _policy(self, message: ProposePolicy) -> ProposePolicy:
        self.name("change_id", message.change_id)
        self.name("base_policy_hash", message.base_policy_hash)
        self._pairs("set", message.set, self.limits.policy_keys)
        self._names("unset", message.unset, self.limits.policy_keys)
        self.text("reason", message.reason)
        self._source(message)
        return msgspec.structs.replace(message, unset=sorted(set(message.unset)))

    def _source(self, message: CreateSpace | ProposePolicy) -> None:
        """The file of a policy: text, as large as a policy may be."""
        if message.source is msgspec.UNSET:
            return
        size = _utf8_length("source", message.source.text)
        if size > self.limits.policy_source_bytes:
            raise LimitExceeded("policy_source_bytes", self.limits.policy_source_bytes, size, "source")

    def _open_case(self, message: OpenCase) -> OpenCase:
        limits = self.limits
        self.name("case_id", message.case_id)
        agents = sorted(set(message.agents))
        if len(agents) > limits.agents_per_case:
            raise LimitExceeded("agents_per_case", limits.agents_per_case, len(agents), "agents")
        for agent_id in agents:
            self.name("agents", agent_id)
        bound = limits.case_attribute_bytes
        attributes = self._json("attributes", message.attributes, "case_attribute_bytes", bound)
        if bytes(attributes)[:1] != b"{":
            raise InvalidRequest("`attributes` must be an object", {"field": "attributes"})
        title, labels = (None if isinstance(each, UnsetType) else each for each in (message.title, message.labels))
        build_case_fields(title, labels)
        return msgspec.structs.replace(message, agents=agents, attributes=attributes, labels=labels or UNSET)

    def _put_memory(self, message: PutMemory) -> PutMemory:
        self.name("entry_id", message.entry_id)
        self._names("source_chunk_ids", message.evidence.source_chunk_ids, self.limits.ids_per_message)
        claim = self._json("claim", message.claim, "claim_bytes", self.limits.claim_bytes)
        return validate_put(msgspec.structs.replace(message, claim=claim))

    def _promote_memory(self, message: PromoteMemory) -> PromoteMemory:
        self.name("entry_id", message.entry_id)
        self._names("source_chunk_ids", message.evidence.source_chunk_ids, self.limits.ids_per_message)
        return validate_promotion(message)

    def _dispute_memory(self, message: DisputeMemory) -> DisputeMemory:
        self.name("entry_id", message.entry_id)
        self._names("because", message.because, self.limits.ids_per_message)
        return message

    def _propose(self, message: Propose) -> Propose:
        proposal, limits = message.proposal, self.limits
        provenance = proposal.provenance
        self.name("proposal_id", proposal.proposal_id)
        self.name("state_snapshot_id", proposal.state_snapshot_id)
        if not isinstance(proposal.case_id, msgspec.UnsetType):
            self.name("case_id", proposal.case_id)
        self.name("provenance.source", provenance.source)
        self.name("provenance.timestamp", provenance.timestamp)
        self._names("provenance.inputs", provenance.inputs, limits.ids_per_message)
        self._names("provenance.permissions", provenance.permissions, limits.ids_per_message)
        if len(proposal.candidates) > limits.candidates_per_proposal:
            raise LimitExceeded("candidates_per_proposal", limits.candidates_per_proposal, len(proposal.candidates))
        self._waits(message)
        candidates = [self._candidate(candidate) for candidate in proposal.candidates]
        return msgspec.structs.replace(message, proposal=msgspec.structs.replace(proposal, candidates=candidates))

    def _start(self, message: Start) -> Start:
        self.name("execution_id", message.execution_id)
        for name in ("nonce_hash", "call_hash"):
            self._hash(name, getattr(message, name))
        return message

    def _make_call(self, message: MakeCall) -> MakeCall:
        if not isinstance(message.case_id, UnsetType):
            self.name("case_id", message.case_id)
        self._waits(message)
        if not isinstance(message.claim, UnsetType):
            self._hash("claim.nonce_hash", message.claim.nonce_hash)
            self._hash("claim.tool_hash", message.claim.tool_hash)
        call = self._candidate(message.call)
        return msgspec.structs.replace(message, call=cast("ToolCall", call))

    def _waits(self, message: Propose | MakeCall) -> None:
        """How long a call may wait, for what it depends on and for an approval."""
        for field, wait in (("defer_ms", message.defer_ms), ("ask_ms", message.ask_ms)):
            if not 1 <= self._whole(field, wait) <= self.limits.wait_ms:
                raise InvalidRequest(f"`{field}` must be from 1 to {self.limits.wait_ms}", {"field": field})

    @staticmethod
    def _hash(field: str, value: str | UnsetType) -> None:
        if not isinstance(value, UnsetType) and _SHA256.fullmatch(value) is None:
            raise InvalidRequest(
                f"`{field}` must be a SHA-256 hash, in 64 lower-case hexadecimal digits",
                {"field": field, "found": value[:64], "accepted": "64 hexadecimal digits"},
            )

    def _candidate(self, candidate: Candidate) -> Candidate:
        limits = self.limits
        if isinstance(candidate, StateDelta):
            size = self._pairs("set", candidate.set, limits.keys_per_proposal)
            if size > limits.delta_bytes:
                raise LimitExceeded("delta_bytes", limits.delta_bytes, size, "set")
            self._names("unset", candidate.unset, limits.keys_per_proposal)
            return candidate
        self.name("tool_id", candidate.tool_id)
        for name in ("capability_token_id", "idempotency_key"):
            value = getattr(candidate, name)
            if value is not None:
                self.name(name, value)
        args = self._json("args", candidate.args, "space_args_bytes", limits.space_args_bytes)
        if bytes(args)[:1] != b"{":
            raise InvalidRequest("`args` must be an object", {"field": "args"})
        if isinstance(candidate.forwarded, UnsetType):
            return msgspec.structs.replace(candidate, args=args)
        forwarded = self._json("forwarded", candidate.forwarded, "space_args_bytes", limits.space_args_bytes)
        if bytes(forwarded)[:1] != b"{":
            raise InvalidRequest("`forwarded` must be an object", {"field": "forwarded"})
        return msgspec.structs.replace(candidate, args=args, forwarded=forwarded)

    def _outcome(self, message: RecordOutcome) -> RecordOutcome:
        self.name("execution_id", message.execution_id)
        if not isinstance(message.nonce, UnsetType):
            self.name("nonce", message.nonce)
        if message.error is not None:
            self.text("error", message.error)
        for name in ("duration_ms", "result_bytes"):
            self._count(name, getattr(message, name))
        result = self._json("result", message.result, "space_result_bytes", self.limits.space_result_bytes)
        return msgspec.structs.replace(message, result=result)

    def _tool(self, message: RegisterTool) -> RegisterTool:
        tool, limits = message.tool, self.limits
        self.name("tool_id", tool.tool_id)
        self.text("description", tool.description)
        opaque = {
            name: self._json(name, getattr(tool, name), "space_schema_bytes", limits.space_schema_bytes)
            for name in ("args_schema", "result_schema", "target")
        }
        for name in ("timeout_ms", "max_result_bytes"):
            self._count(name, getattr(tool, name))
        self._pairs("facts", tool.facts, limits.ids_per_message)
        tool = msgspec.structs.replace(tool, **opaque)
        if not isinstance(tool.executor, UnsetType):
            self.name("executor", tool.executor)
            if tool.kind is not ToolKind.CALLER:
                raise InvalidRequest(
                    "the server runs this tool itself; only tools of the kind `caller` have an `executor`",
                    {"field": "executor", "found": tool.executor, "accepted": "kind: caller"},
                )
            # One way to say it: without an executor, the agent that makes the call runs it.
            tool = msgspec.structs.replace(tool, executor=UNSET if tool.executor == CALLER else tool.executor)
        check_target(tool)
        return RegisterTool(tool)

    def _capability(self, message: IssueCapability) -> IssueCapability:
        token = message.capability
        self.name("token_id", token.token_id)
        self.name("agent_id", token.agent_id)
        if token.parent_id is not None:
            self.name("parent_id", token.parent_id)
        self._names("tool_ids", token.tool_ids, self.limits.ids_per_message)
        self._names("capabilities", token.capabilities, self.limits.ids_per_message)
        for scope in token.scopes:
            self.name("scopes[].path", scope.path)
            if isinstance(scope.value, str):
                self.text("scopes[].value", scope.value)
            elif not isinstance(scope.value, bool):
                self._whole("scopes[].value", scope.value)
        for name in ("calls", "bytes", "wall_ms"):
            bound = getattr(token.budget, name)
            if bound is not None:
                self._count(f"budget.{name}", bound)
        if token.expires_at is None:
            return message
        until = parse_instant(token.expires_at, "expires_at")
        return IssueCapability(msgspec.structs.replace(token, expires_at=until))

    # --- single values ---

    def name(self, field: str, value: Any) -> str:
        """An id or a key: not empty, of Unicode scalar values, within the limit."""
        if not isinstance(value, str) or not value:
            raise InvalidRequest(f"`{field}` must be text, and not empty", {"field": field})
        if len(value) > self.limits.space_id_length:
            raise LimitExceeded("space_id_length", self.limits.space_id_length, len(value), field)
        _utf8_length(field, value)
        return value

    def text(self, field: str, value: Any) -> str:
        """Free text within the limit."""
        if not isinstance(value, str):
            raise InvalidRequest(f"`{field}` must be text", {"field": field})
        if len(value) > self.limits.space_text_length:
            raise LimitExceeded("space_text_length", self.limits.space_text_length, len(value), field)
        _utf8_length(field, value)
        return value

    def _names(self, field: str, values: Collection[str], maximum: int) -> None:
        if len(values) > maximum:
            raise LimitExceeded("ids_per_message", maximum, len(values), field)
        for value in values:
            self.name(field, value)

    def _pairs(self, field: str, pairs: Mapping[str, str], maximum: int) -> int:
        """Check keys and their values; returns the bytes of the values."""
        if len(pairs) > maximum:
            raise LimitExceeded("keys_per_proposal", maximum, len(pairs), field)
        total = 0
        for key, value in pairs.items():
            self.name(field, key)
            if not isinstance(value, str):
                raise InvalidRequest(f"the value of `{key}` must be text", {"field": field, "key": key})
            size = _utf8_length(f"{field}.{key}", value)
            if size > self.limits.space_value_bytes:
                raise LimitExceeded("space_value_bytes", self.limits.space_value_bytes, size, f"{field}.{key}")
            total += size
        return total

    def _json(self, field: str, value: Any, limit: str, maximum: int) -> msgspec.Raw:
        """A caller's own data, as plain JSON values or as text, as canonical JSON."""
        if isinstance(value, msgspec.Raw):
            text = bytes(value)
            # Before it is parsed: whatever is in it, this much is not looked at.
            if len(text) > 4 * maximum:
                raise LimitExceeded(limit, maximum, len(text), field)
            if not text:
                raise InvalidRequest(f"`{field}` is missing", {"field": field})
            value = canonical.decode(text)
        canon = canonical.encode(value, _MAX_OWN_DEPTH)
        if len(canon) > maximum:
            raise LimitExceeded(limit, maximum, len(canon), field)
        return msgspec.Raw(canon)

    def _count(self, field: str, value: int) -> None:
        if self._whole(field, value) < 0:
            raise InvalidRequest(f"`{field}` must not be negative", {"field": field})

    @staticmethod
    def _whole(field: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            raise InvalidRequest(f"`{field}` must be a whole number that is exact in I-JSON", {"field": field})
        return value


def _utf8_length(field: str, value: str) -> int:
    try:
        return len(value.encode())
    except UnicodeEncodeError as exc:
        raise InvalidRequest(f"`{field}` holds a lone surrogate, which is not text", {"field": field}) from exc
