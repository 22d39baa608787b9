"""The resources of a space: one table of the records that are listed and read under `/v1/spaces/{space_id}`.

A row says where the records are in the state and how one is shown. From it come the two operations of the OpenAPI
document; the two handlers in `cmbs.http.spaces.reading` serve every row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from cmbs.errors import ErrorCode
from cmbs.http.belief.listing import ORDER
from cmbs.http.errors import TransportCode
from cmbs.http.operation import CURSOR, LIMIT, WAIT, Operation, Parameter
from cmbs.http.spaces import schemas, views
from cmbs.http.spaces.filters import CASE_FILTERS, RECORD_FILTERS
from cmbs.http.spaces.views import Reader
from cmbs.identity import Scope
from cmbs.substrate.kernel.state import ApprovalStatus, CaseStatus, ExecutionStatus, ProposalStatus, Space
from cmbs.substrate.listing import Listed

SPACE = "/v1/spaces/{space_id}"
# What a caller knows already, or can do without, of a proposal and of an execution.
PROPOSAL_BULK = ("candidates", "provenance", "decision.trace")
EXECUTION_BULK = ("args", "result")
READ_ERRORS = (
    ErrorCode.STORE_UNAVAILABLE,
    ErrorCode.SPACE_NOT_FOUND,
    ErrorCode.LEDGER_CORRUPT,
    ErrorCode.LIMIT_EXCEEDED,
)


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of record: GET of `path` lists the records a page at a time, GET of an id below it reads one.

    Lists are in the order of `position` and then of the id; those of `listed` records the oldest first. With `statuses`
    they can be filtered by status.
    """

    path: str
    id_name: str
    noun: str
    get_id: str
    item: type
    show: Callable[[Space, Any, Reader], msgspec.Struct]
    position: Callable[[Any], int] | None = None
    statuses: type[StrEnum] | None = None
    operators_only: bool = False
    # Of records that leave the state once they are settled.
    listed: Listed | None = None
    # What a list can be asked for, beside the status.
    narrowing: tuple[Parameter, ...] = ()
    # What one record can be asked with.
    query: tuple[Parameter, ...] = ()
    # The parts of a record that a minimal answer leaves out.
    bulk: tuple[str, ...] = ()

    @property
    def filters(self) -> tuple[Parameter, ...]:
        """What a list can be filtered by."""
        filters: tuple[Parameter, ...] = ()
        if self.statuses is not None:
            known = [each.value for each in self.statuses]
            schema = {"type": "string", "enum": known}
            filters = (Parameter("status", "Only those with this status.", schema, known[0]),)
        return (*filters, *self.narrowing)

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
        """The two operations as the document describes them."""
        order = "sorted by id" if self.position is None and self.listed is None else "the oldest first"
        if ORDER in self.narrowing:
            order += " or the newest"
        listed = f"{self.plural.replace('_', ' ')}, {order}"
        restriction = " For operators." if self.operators_only else ""
        page_name = f"{self.plural.title().replace('_', '')}Page"
        page = schemas.page_type(page_name, self.collection, self.item, f"A page of {listed}.")
        query: tuple[Parameter, ...] = (CURSOR, LIMIT, *self.filters)
        one, about = f"{self.path}/{{{self.id_name}}}", f"The {self.noun} as it is now.{restriction}"
        return (
            describe_read(
                self.path,
                self.list_id,
                f"List {listed}",
                f"A page at a time.{restriction}",
                page,
                query,
                bulk=tuple(f"{self.collection}.{part}" for part in self.bulk),
            ),
            describe_read(
                one,
                self.get_id,
                f"One {self.noun}",
                about,
                self.item,
                self.query,
                (ErrorCode.RECORD_NOT_FOUND, TransportCode.BUSY) if self.query else (ErrorCode.RECORD_NOT_FOUND,),
                self.bulk,
            ),
        )


def describe_read(
    path: str,
    operation_id: str,
    summary: str,
    description: str,
    response: type,
    query: tuple[Parameter, ...] = (),
    errors: tuple[ErrorCode | TransportCode, ...] = (),
    bulk: tuple[str, ...] = (),
) -> Operation:
    """Describe a GET below a space; `errors` are those beside the ones that every read can have."""
    return Operation(
        "GET",
        f"{SPACE}/{path}".rstrip("/"),
        operation_id,
        summary,
        description,
        response,
        query=query,
        errors=(*READ_ERRORS, *errors),
        scope=Scope.SPACES_READ,
        bulk=bulk,
    )


def _seq_of(record: Any) -> int:
    seq: int = record.seq
    return seq


RESOURCES = (
    Resource(
        "proposals",
        "proposal_id",
        "proposal",
        "get_proposal",
        schemas.ProposalResponse,
        views.show_proposal,
        statuses=ProposalStatus,
        listed=Listed.PROPOSALS,
        narrowing=RECORD_FILTERS,
        query=(WAIT,),
        bulk=PROPOSAL_BULK,
    ),
    Resource(
        "approvals",
        "approval_id",
        "approval",
        "get_approval",
        schemas.ApprovalItem,
        views.show_approval,
        statuses=ApprovalStatus,
        listed=Listed.APPROVALS,
        narrowing=RECORD_FILTERS,
        bulk=("args",),
    ),
    Resource(
        "executions",
        "execution_id",
        "execution",
        "get_execution",
        schemas.ExecutionResponse,
        views.show_execution,
        statuses=ExecutionStatus,
        listed=Listed.EXECUTIONS,
        narrowing=RECORD_FILTERS,
        bulk=EXECUTION_BULK,
    ),
    Resource(
        "tools",
        "tool_id",
        "tool",
        "get_tool",
        schemas.ToolResponse,
        views.show_tool,
        bulk=("args_schema", "result_schema", "target"),
    ),
    Resource(
        "capabilities", "token_id", "capability", "get_capability", schemas.CapabilityResponse, views.show_capability
    ),
    Resource(
        "cases",
        "case_id",
        "case",
        "get_case",
        schemas.CaseResponse,
        views.show_case,
        _seq_of,
        CaseStatus,
        narrowing=CASE_FILTERS,
    ),
    Resource("memory", "entry_id", "memory entry", "get_memory", schemas.MemoryResponse, views.show_memory, _seq_of),
    Resource(
        "policy/changes",
        "change_id",
        "policy change",
        "get_policy_change",
        schemas.PolicyChangeResponse,
        views.show_policy_change,
        _seq_of,
        operators_only=True,
        bulk=("set",),
    ),
)
