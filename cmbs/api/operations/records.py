"""The records of a space: one table of what is listed and read under `/v1/spaces/{space_id}`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from cmbs.api import spaces as schemas
from cmbs.api.errors import TransportCode
from cmbs.api.operation import Operation, Parameter
from cmbs.api.operations.reads import describe_read
from cmbs.api.parameters import CASE_FILTERS, CURSOR, LIMIT, RECORD_FILTERS, WAIT
from cmbs.errors import ErrorCode
from cmbs.substrate.kernel.words import ApprovalStatus, CaseStatus, ExecutionStatus, ProposalStatus

# What a caller knows already, or can do without, of a proposal and of an execution.
PROPOSAL_BULK = ("candidates", "provenance", "decision.trace")
EXECUTION_BULK = ("args", "result")


@dataclass(frozen=True, slots=True)
class Records:
    """One kind of record: GET of `path` lists the records a page at a time, GET of an id below it reads one.

    With `statuses`, a list can be filtered by status, and by `narrowing`. `query` is what one record can be asked with,
    `bulk` what a minimal answer leaves out of it.
    """

    path: str
    id_name: str
    noun: str
    get_id: str
    item: type[msgspec.Struct]
    page: type[msgspec.Struct]
    order: str = "sorted by id"
    statuses: type[StrEnum] | None = None
    operators_only: bool = False
    narrowing: tuple[Parameter, ...] = ()
    query: tuple[Parameter, ...] = ()
    bulk: tuple[str, ...] = ()

    @property
    def filters(self) -> tuple[Parameter, ...]:
        """What a list can be filtered by."""
        if self.statuses is None:
            return self.narrowing
        known = [each.value for each in self.statuses]
        status = Parameter("status", "Only those with this status.", {"type": "string", "enum": known}, known[0])
        return (status, *self.narrowing)

    @property
    def plural(self) -> str:
        """The field of the state that holds the records, by id."""
        return self.path.replace("/", "_")

    @property
    def collection(self) -> str:
        """The field of a page that holds the records."""
        return self.path.rpartition("/")[2]

    @property
    def list_id(self) -> str:
        """The operation that lists the records."""
        return f"list_{self.plural}"

    @property
    def operations(self) -> tuple[Operation, Operation]:
        """The operation that lists the records, and the one that reads one of them."""
        restriction = " For operators." if self.operators_only else ""
        return (
            describe_read(
                self.path,
                self.list_id,
                f"List {self.plural.replace('_', ' ')}, {self.order}",
                f"A page at a time.{restriction}",
                self.page,
                (CURSOR, LIMIT, *self.filters),
                bulk=tuple(f"{self.collection}.{part}" for part in self.bulk),
            ),
            describe_read(
                f"{self.path}/{{{self.id_name}}}",
                self.get_id,
                f"One {self.noun}",
                f"The {self.noun} as it is now.{restriction}",
                self.item,
                self.query,
                (ErrorCode.RECORD_NOT_FOUND, TransportCode.BUSY) if self.query else (ErrorCode.RECORD_NOT_FOUND,),
                self.bulk,
            ),
        )


_BY_AGE = "the oldest first"
_EITHER_WAY = "the oldest first or the newest"
PROPOSALS = Records(
    "proposals",
    "proposal_id",
    "proposal",
    "get_proposal",
    schemas.ProposalResponse,
    schemas.ProposalsPage,
    _EITHER_WAY,
    ProposalStatus,
    narrowing=RECORD_FILTERS,
    query=(WAIT,),
    bulk=PROPOSAL_BULK,
)
APPROVALS = Records(
    "approvals",
    "approval_id",
    "approval",
    "get_approval",
    schemas.ApprovalItem,
    schemas.ApprovalsPage,
    _EITHER_WAY,
    ApprovalStatus,
    narrowing=RECORD_FILTERS,
    bulk=("args",),
)
EXECUTIONS = Records(
    "executions",
    "execution_id",
    "execution",
    "get_execution",
    schemas.ExecutionResponse,
    schemas.ExecutionsPage,
    _EITHER_WAY,
    ExecutionStatus,
    narrowing=RECORD_FILTERS,
    bulk=EXECUTION_BULK,
)
TOOLS = Records(
    "tools",
    "tool_id",
    "tool",
    "get_tool",
    schemas.ToolResponse,
    schemas.ToolsPage,
    bulk=("args_schema", "result_schema", "target"),
)
CAPABILITIES = Records(
    "capabilities",
    "token_id",
    "capability",
    "get_capability",
    schemas.CapabilityResponse,
    schemas.CapabilitiesPage,
)
CASES = Records(
    "cases",
    "case_id",
    "case",
    "get_case",
    schemas.CaseResponse,
    schemas.CasesPage,
    _EITHER_WAY,
    CaseStatus,
    narrowing=CASE_FILTERS,
)
MEMORY = Records(
    "memory", "entry_id", "memory entry", "get_memory", schemas.MemoryResponse, schemas.MemoryPage, _BY_AGE
)
POLICY_CHANGES = Records(
    "policy/changes",
    "change_id",
    "policy change",
    "get_policy_change",
    schemas.PolicyChangeResponse,
    schemas.PolicyChangesPage,
    _BY_AGE,
    operators_only=True,
    bulk=("set",),
)
RECORDS = (PROPOSALS, APPROVALS, EXECUTIONS, TOOLS, CAPABILITIES, CASES, MEMORY, POLICY_CHANGES)
