"""The operations of the API: the table that requests are dispatched from and that the OpenAPI file describes."""

from __future__ import annotations

from cmbs.analysis import Analysis
from cmbs.errors import ErrorCode
from cmbs.http.belief import history_schemas, schemas
from cmbs.http.checkpoints import CHECKPOINT_OPERATIONS
from cmbs.http.errors import TransportCode
from cmbs.http.operation import AT, CURSOR, FROM, LIMIT, SINCE, TO, Operation, Parameter
from cmbs.http.proofs import SESSION_PROOFS, SPACE_PROOFS
from cmbs.http.spaces.operations import SPACE_OPERATIONS
from cmbs.identity import Scope

_STORE = (ErrorCode.STORE_UNAVAILABLE,)
_SESSION = (*_STORE, ErrorCode.SESSION_NOT_FOUND, ErrorCode.LEDGER_CORRUPT, ErrorCode.LIMIT_EXCEEDED)
_WRITE = (*_SESSION, ErrorCode.SESSION_TERMINATED, ErrorCode.CONFLICT)

_KIT = Parameter("kit", "The id of an installed kit to compare the session with.", {"type": "string"})
_TRUTH = Parameter("truth", "The hypothesis that is known to be true.", {"type": "string"})

_BELIEF: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/sessions",
        "declare_session",
        "Open a session over a fixed set of hypotheses",
        "DECLARE_SESSION. All hypotheses survive at first. The policy cannot be changed later. If the server has a"
        " causal graph, hypotheses that are not in it are refused.",
        schemas.DeclareSessionResponse,
        schemas.DeclareSessionRequest,
        201,
        errors=(
            *_STORE,
            ErrorCode.CONFLICT,
            ErrorCode.LIMIT_EXCEEDED,
            ErrorCode.LEDGER_CORRUPT,
            ErrorCode.INVALID_HYPOTHESIS_ID,
        ),
        scope=Scope.BELIEF_WRITE,
    ),
    Operation(
        "GET",
        "/v1/sessions",
        "list_sessions",
        "List sessions, the oldest first",
        "Sessions that are declared while you read the pages come at the end.",
        schemas.SessionsPage,
        query=(CURSOR, LIMIT),
        errors=(*_STORE, ErrorCode.LIMIT_EXCEEDED),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}",
        "query_belief",
        "The hypotheses that may still be true",
        "QUERY_BELIEF. Now, or right after an earlier event.",
        schemas.Snapshot,
        query=(AT,),
        errors=(*_SESSION, ErrorCode.EVENT_NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/eliminate",
        "eliminate",
        "Eliminate hypotheses for good",
        "ELIMINATE. Repeating an observation with the same ids gives the first answer again; with other ids it is a"
        " conflict.",
        schemas.EliminateResponse,
        schemas.EliminateRequest,
        errors=(*_WRITE, ErrorCode.INVALID_HYPOTHESIS_ID),
        scope=Scope.BELIEF_WRITE,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/survivors",
        "list_survivors",
        "Page through the survivors",
        "For universes that are too large for one response. With `at`, all pages show the same event.",
        schemas.SurvivorsPage,
        query=(CURSOR, LIMIT, AT),
        errors=(*_SESSION, ErrorCode.EVENT_NOT_FOUND),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/audit",
        "audit_trace",
        "The events of a session, as they were hashed",
        "AUDIT_TRACE. Each event is the stored bytes with `event_hash` put before the closing brace. A page at a time,"
        " from the beginning, after `since_event_id`, or where `cursor` says. Hashes and links are checked on the way.",
        schemas.AuditTraceResponse,
        query=(SINCE, CURSOR, LIMIT),
        errors=(*_SESSION, ErrorCode.EVENT_NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/fork",
        "fork_session",
        "Fork a session at an event",
        "Opens a session that begins as this one was right after an event. Its declaration names that event, and the"
        " messages up to there are decided again as its own. Not where tombstones are kept in a store of their own.",
        history_schemas.ForkSessionResponse,
        history_schemas.ForkSessionRequest,
        201,
        errors=(*_SESSION, ErrorCode.CONFLICT, ErrorCode.EVENT_NOT_FOUND),
        body_required=False,
        scope=Scope.BELIEF_WRITE,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/diff",
        "session_diff",
        "What happened between two events",
        "Eliminations with their source, obligations entered and exited, conclusions, termination and refusals.",
        history_schemas.SessionDiffPage,
        query=(FROM, TO, CURSOR, LIMIT),
        errors=(*_SESSION, ErrorCode.EVENT_NOT_FOUND),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/sources",
        "compare_sources",
        "Compare the sources of a session",
        "What each source eliminated, alone and after others, the conclusions that it contradicts, and how far the"
        " sources agree in pairs.",
        history_schemas.SourcesPage,
        query=(CURSOR, LIMIT),
        errors=_SESSION,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/obligations",
        "list_obligations",
        "The obligations of a session",
        "Active and exited ones, in the order of entry.",
        schemas.ObligationsResponse,
        errors=_SESSION,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/obligations",
        "enter_obligation",
        "Enter an obligation to eliminate",
        "ENTER_OBLIGATION. Until enough is eliminated and it is exited, nothing can be concluded and the session cannot"
        " end.",
        schemas.EnterObligationResponse,
        schemas.EnterObligationRequest,
        errors=_WRITE,
        scope=Scope.BELIEF_WRITE,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/obligations/{obligation_id}/exit",
        "request_exit",
        "Ask to exit an obligation",
        "REQUEST_EXIT. Approved once enough was eliminated since it was entered.",
        schemas.ApprovalResponse,
        schemas.RequestExitRequest,
        errors=(*_WRITE, ErrorCode.OBLIGATION_NOT_FOUND),
        body_required=False,
        scope=Scope.BELIEF_WRITE,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/conclusions",
        "declare_conclusion",
        "State a conclusion",
        "DECLARE_CONCLUSION. Accepted while no obligation is active.",
        schemas.DeclareConclusionResponse,
        schemas.DeclareConclusionRequest,
        errors=_WRITE,
        scope=Scope.BELIEF_WRITE,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/terminate",
        "request_termination",
        "Ask to end the session",
        "REQUEST_TERMINATION. Approved with one survivor, no active obligation and stable conclusions, or by force"
        " where the policy allows it.",
        schemas.ApprovalResponse,
        schemas.RequestTerminationRequest,
        errors=_WRITE,
        body_required=False,
        scope=Scope.BELIEF_WRITE,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/analysis",
        "session_analysis",
        "Analyse the eliminations of a session",
        "Bits, redundancy, and the events that explain the survivors; with the kit of the session also gains, luck and"
        " regret. The kit is the installed one that the session was declared over, or the one that `kit` names.",
        Analysis,
        query=(_KIT, _TRUTH),
        errors=(*_SESSION, ErrorCode.INVALID_HYPOTHESIS_ID, TransportCode.BUSY),
    ),
    *(proof.of_session() for proof in SESSION_PROOFS),
    Operation(
        "GET",
        "/healthz",
        "healthz",
        "Whether the process is alive",
        "Answers without a request to the store.",
        schemas.Health,
        scope=None,
    ),
    Operation(
        "GET",
        "/readyz",
        "readyz",
        "Whether the store answers and is whole",
        "Reads from the store. 503 also where it is behind what this process has seen of it, which `behind` names, and "
        "where there is no register of keys to go by, and where nothing is signed because the store does not continue "
        "what was signed before.",
        schemas.Health,
        errors=_STORE,
        scope=None,
    ),
)
OPERATIONS: tuple[Operation, ...] = (
    *_BELIEF,
    *SPACE_OPERATIONS,
    *(proof.of_space() for proof in SPACE_PROOFS),
    *CHECKPOINT_OPERATIONS,
)
