"""The operations on calls: what every agent wants of a space, and what those do who run calls outside the server."""

from __future__ import annotations

from cmbs.api import space_requests as requests
from cmbs.api import spaces as schemas
from cmbs.api.errors import TransportCode
from cmbs.api.operation import Operation, Parameter
from cmbs.api.operations.reads import READ_ERRORS, SPACE, describe_read
from cmbs.api.parameters import CURSOR, LIMIT
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Scope

_BULK = ("args", "result")
_ERRORS = (*READ_ERRORS, ErrorCode.RECORD_NOT_FOUND, ErrorCode.CONFLICT)
_WAIT_SECONDS = Parameter(
    "wait_seconds",
    "Seconds to wait for news before the answer, which then is as it is. The longest is a setting of the server.",
    {"type": "integer", "minimum": 0, "maximum": 3600},
    0,
)


def _describe_step(path: str, operation_id: str, summary: str, description: str, scope: Scope, body: type) -> Operation:
    return Operation(
        "POST",
        f"{SPACE}/calls/{{call_id}}/{path}",
        operation_id,
        summary,
        description,
        schemas.CallResponse,
        body,
        errors=_ERRORS,
        body_required=operation_id != "withdraw_call",
        scope=scope,
        bulk=_BULK,
    )


CALL_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        f"{SPACE}/calls",
        "make_call",
        "Call a tool",
        "PROPOSE, of one call. The server takes the newest state and a token of the caller's. The registration of the"
        " tool says who runs it: the server, the caller, or an executor. A writing call without an idempotency key"
        " joins the same call of the same actor and case while that is open or in doubt; `joined` says so. A call that"
        " is not let through has a `refusal`. A program that runs calls for an agent sends its own credential in"
        " `Cmbs-Executor`, beside the agent's.",
        schemas.CallResponse,
        requests.MakeCallRequest,
        errors=(*_ERRORS, TransportCode.BUSY),
        scope=Scope.SPACES_PROPOSE,
        has_own_key=True,
        bulk=_BULK,
    ),
    describe_read(
        "calls",
        "list_calls",
        "List calls that wait for you to run them",
        "Those that are allowed and that this caller may claim, the oldest first. With `wait_seconds` the answer comes"
        " as soon as there is one.",
        schemas.CallsPage,
        (CURSOR, LIMIT, _WAIT_SECONDS),
        (TransportCode.BUSY,),
        tuple(f"calls.{part}" for part in _BULK),
    ),
    describe_read(
        "calls/{call_id}",
        "get_call",
        "One call",
        "Where it stands now, or, with `wait_seconds`, as soon as it has ended or the caller has to run it.",
        schemas.CallResponse,
        (_WAIT_SECONDS,),
        (ErrorCode.RECORD_NOT_FOUND, TransportCode.BUSY),
        _BULK,
    ),
    _describe_step(
        "claim",
        "claim_call",
        "Claim a call, to run it",
        "START. The call is decided again on the newest state: run it only if the answer says `running`. Exactly one"
        " claim succeeds; the same claim again is a repeat, another one a conflict. For the executor that the tool"
        " names, or for the agent that made the call.",
        Scope.SPACES_EXECUTE,
        requests.ClaimCallRequest,
    ),
    _describe_step(
        "outcome",
        "report_call",
        "Report what came of a call",
        "RECORD_OUTCOME. By the one who claimed it, with the nonce, also after its deadline; or by an operator for a"
        " call in doubt, which needs the scope `spaces:operate`. The first report counts.",
        Scope.SPACES_EXECUTE,
        requests.OutcomeRequest,
    ),
    _describe_step(
        "withdraw",
        "withdraw_call",
        "Withdraw a call that waits",
        "WITHDRAW, of its proposal: of all calls that were proposed together. What runs already goes on.",
        Scope.SPACES_PROPOSE,
        requests.ReasonRequest,
    ),
)
