"""How the records of a space are found and shown, for each kind of the table in `cmbs.api.operations.records`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from cmbs.api.operations import records
from cmbs.api.operations.records import Records
from cmbs.http.spaces import views
from cmbs.http.spaces.views import Reader
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.listing import Listed


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of record: lists are in the order of `position` and then of the id; those of `listed` by their age."""

    records: Records
    show: Callable[[Space, Any, Reader], msgspec.Struct]
    position: Callable[[Any], int] | None = None
    # Of records that leave the state once they are settled.
    listed: Listed | None = None


def _seq_of(record: Any) -> int:
    seq: int = record.seq
    return seq


RESOURCES = (
    Resource(records.PROPOSALS, views.show_proposal, listed=Listed.PROPOSALS),
    Resource(records.APPROVALS, views.show_approval, listed=Listed.APPROVALS),
    Resource(records.EXECUTIONS, views.show_execution, listed=Listed.EXECUTIONS),
    Resource(records.TOOLS, views.show_tool),
    Resource(records.CAPABILITIES, views.show_capability),
    Resource(records.CASES, views.show_case, _seq_of),
    Resource(records.MEMORY, views.show_memory, _seq_of),
    Resource(records.POLICY_CHANGES, views.show_policy_change, _seq_of),
)
