"""Every operation of the API: the one table that routes, documents, clients and commands are made from."""

from __future__ import annotations

from cmbs.api.operation import Operation
from cmbs.api.operations.calls import CALL_OPERATIONS
from cmbs.api.operations.checkpoints import CHECKPOINT_OPERATIONS
from cmbs.api.operations.events import EVENT_OPERATIONS
from cmbs.api.operations.kits import KIT_OPERATIONS
from cmbs.api.operations.proofs import SPACE_PROOFS
from cmbs.api.operations.records import RECORDS
from cmbs.api.operations.sessions import SESSION_OPERATIONS
from cmbs.api.operations.spaces import INBOX_OPERATION, SPACE_OPERATIONS
from cmbs.api.operations.webhooks import WEBHOOK_OPERATIONS
from cmbs.api.operations.writes import WRITES

__all__ = ["ALL_OPERATIONS", "EVENT_OPERATIONS", "OPERATIONS", "OPERATION_OF"]

OPERATIONS: tuple[Operation, ...] = (
    *SESSION_OPERATIONS,
    *KIT_OPERATIONS,
    *SPACE_OPERATIONS,
    INBOX_OPERATION,
    *(operation for records in RECORDS for operation in records.operations),
    *WRITES,
    *CALL_OPERATIONS,
    *(proof.of_space() for proof in SPACE_PROOFS),
    *CHECKPOINT_OPERATIONS,
    *WEBHOOK_OPERATIONS,
)
# With those whose answers go on.
ALL_OPERATIONS: tuple[Operation, ...] = (*OPERATIONS, *EVENT_OPERATIONS)
OPERATION_OF: dict[str, Operation] = {operation.operation_id: operation for operation in ALL_OPERATIONS}
