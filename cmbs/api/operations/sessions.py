"""The operations on sessions, and on the server itself."""

from __future__ import annotations

from cmbs.analysis.findings import Analysis
from cmbs.api import answers, entries, histories, observations, sessions
from cmbs.api.errors import TransportCode
from cmbs.api.operation import Operation, Parameter
from cmbs.api.operations.graphs import GRAPH_OPERATIONS
from cmbs.api.operations.proofs import SESSION_PROOFS
from cmbs.api.parameters import AFTER, AT, CURSOR, FROM, ID_TEXT, LIMIT, SESSION_FILTERS, SINCE_EVENT, TO, WAIT
from cmbs.belief.kernel.contradictions import ContradictionResponse
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Reach, Scope

_STORE = (ErrorCode.STORE_UNAVAILABLE,)
_SESSION = (*_STORE, ErrorCode.SESSION_NOT_FOUND, ErrorCode.LEDGER_CORRUPT, ErrorCode.LIMIT_EXCEEDED)
_WRITE = (*_SESSION, ErrorCode.SESSION_TERMINATED, ErrorCode.CONFLICT)

_SURVIVORS = ("snapshot.survivors",)

_KIT = Parameter("kit", "The id of an installed kit to compare the session with.", {"type": "string"})
_PROBES_LIMIT = Parameter("limit", "How many probes at most, and how many earlier looks.", observations.PROBES_LIMIT, 3)
_TRUTH = Parameter("truth", "The hypothesis that is known to be true.", {"type": "string"})

SESSION_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/sessions",
        "declare_session",
        "Open a session over a fixed set of hypotheses",
        "DECLARE_SESSION. All hypotheses survive at first. The policy cannot be changed later. If the server has a"
        " causal graph, hypotheses that are not in it are refused.",
        sessions.DeclareSessionResponse,
        sessions.DeclareSessionRequest,
        201,
        errors=(
            *_STORE,
            ErrorCode.CONFLICT,
            ErrorCode.LIMIT_EXCEEDED,
            ErrorCode.LEDGER_CORRUPT,
            ErrorCode.INVALID_HYPOTHESIS_ID,
        ),
        scope=Scope.BELIEF_WRITE,
        bulk=_SURVIVORS,
        reach=Reach.ALL,
    ),
    Operation(
        "GET",
        "/v1/sessions",
        "list_sessions",
        "List sessions, by what they are found by",
        "Those that the key may read and that all filters take, the oldest first or the newest. Sessions that are"
        " declared while you read the pages are at the end, or, the newest first, before the first page.",
        sessions.SessionsPage,
        query=(CURSOR, LIMIT, *SESSION_FILTERS),
        errors=(*_STORE, ErrorCode.LIMIT_EXCEEDED),
        reach=Reach.ANY,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}",
        "query_belief",
        "The hypotheses that may still be true",
        "QUERY_BELIEF. Now, right after an earlier event, or, with `wait`, as soon as there is news.",
        sessions.Snapshot,
        query=(AT, WAIT, AFTER),
        errors=(*_SESSION, ErrorCode.EVENT_NOT_FOUND, TransportCode.BUSY),
        bulk=("survivors",),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/case",
        "describe_case",
        "What a session says of itself as a case",
        "Its name, title, owner, severity and labels, and who may work on it.",
        sessions.SessionCase,
        errors=_SESSION,
        beyond_stream=True,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/case",
        "update_case",
        "Change what a case says of itself, or lift an obligation",
        "UPDATE_CASE. Only what is sent changes. Only operators change who may work on the case, and lift obligations.",
        sessions.UpdateCaseResponse,
        sessions.UpdateCaseRequest,
        errors=(*_WRITE, ErrorCode.OBLIGATION_NOT_FOUND),
        body_required=False,
        scope=Scope.BELIEF_WRITE,
        bulk=_SURVIVORS,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/name",
        "name_case",
        "Name a case, or release its name",
        "A name is unique in the server. For operators; a declaration can name its case too.",
        sessions.SessionCase,
        sessions.NameCaseRequest,
        errors=(*_SESSION, ErrorCode.CONFLICT),
        body_required=False,
        scope=Scope.BELIEF_WRITE,
        recorded=False,
        beyond_stream=True,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/eliminate",
        "eliminate",
        "Eliminate hypotheses for good",
        "ELIMINATE. Repeating an observation with the same ids gives the first answer again; with other ids it is a"
        " conflict.",
        sessions.EliminateResponse,
        sessions.EliminateRequest,
        errors=(*_WRITE, ErrorCode.INVALID_HYPOTHESIS_ID, ErrorCode.FREE_HAND_REFUSED),
        scope=Scope.BELIEF_WRITE,
        has_own_key=True,
        made_up=("observation_id",),
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/observations",
        "observe",
        "Tell what was seen",
        "ELIMINATE. A probe and the response to it; the session's kit works out what that rules out, and an observation"
        " that rules out nothing is recorded too. The same answer again is answered with what was seen then. Another"
        " answer of the same source is a conflict, unless it is a look of its own, under another `observation_id`.",
        observations.ObserveResponse,
        observations.ObserveRequest,
        errors=(*_WRITE, ErrorCode.INVALID_HYPOTHESIS_ID, ErrorCode.UNKNOWN_PROBE, ErrorCode.PROVIDER_BROKEN),
        scope=Scope.BELIEF_WRITE,
        has_own_key=True,
        bulk=_SURVIVORS,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/probes",
        "list_probes",
        "What is worth asking next",
        "The probes that can still rule something out, by expected bits, with what each answer would leave; and what"
        " was asked already. It only informs: any probe may be asked. Only in sessions over a kit.",
        observations.ProbesPage,
        query=(CURSOR, _PROBES_LIMIT, AT),
        errors=(*_SESSION, ErrorCode.EVENT_NOT_FOUND),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/survivors",
        "list_survivors",
        "Page through the survivors",
        "For universes that are too large for one response. With `at`, all pages show the same event. With `text`, a"
        " page may be short or empty although others follow: it ends where enough ids were looked at.",
        sessions.SurvivorsPage,
        query=(CURSOR, LIMIT, AT, ID_TEXT),
        errors=(*_SESSION, ErrorCode.EVENT_NOT_FOUND),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/audit",
        "audit_trace",
        "The events of a session, as they were hashed",
        "AUDIT_TRACE. Each event is the stored bytes with `event_hash` put before the closing brace. A page at a time,"
        " from the beginning, after `since_event_id`, or where `cursor` says. Hashes and links are checked on the way.",
        entries.AuditTraceResponse,
        query=(SINCE_EVENT, CURSOR, LIMIT),
        errors=(*_SESSION, ErrorCode.EVENT_NOT_FOUND),
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/fork",
        "fork_session",
        "Fork a session at an event",
        "Opens a session that begins as this one was right after an event. Its declaration names that event, and the"
        " messages up to there are decided again as its own. Not where tombstones are kept in a store of their own.",
        histories.ForkSessionResponse,
        histories.ForkSessionRequest,
        201,
        errors=(*_SESSION, ErrorCode.CONFLICT, ErrorCode.EVENT_NOT_FOUND),
        body_required=False,
        scope=Scope.BELIEF_WRITE,
        bulk=_SURVIVORS,
        reach=Reach.ALL,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/diff",
        "session_diff",
        "What happened between two events",
        "Eliminations with their source, obligations entered and exited, conclusions, termination and refusals. With"
        " `text`, a page may be short or empty although others follow.",
        histories.SessionDiffPage,
        query=(FROM, TO, CURSOR, LIMIT, ID_TEXT),
        errors=(*_SESSION, ErrorCode.EVENT_NOT_FOUND),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/sources",
        "compare_sources",
        "Compare the sources of a session",
        "What each source eliminated, alone and after others, the conclusions that it contradicts, and how far the"
        " sources agree in pairs.",
        histories.SourcesPage,
        query=(CURSOR, LIMIT),
        errors=_SESSION,
        bulk=("agreements",),
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/contradiction",
        "session_contradiction",
        "Which reports to doubt, where nothing is left",
        "The causes that one report alone speaks against, the smallest sets of reports whose being wrong would explain"
        " the contradiction, and the shortest list of looks to take again. A fork goes on without a doubted report.",
        ContradictionResponse,
        errors=_SESSION,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/obligations",
        "list_obligations",
        "The obligations of a session",
        "Active and exited ones, in the order of entry.",
        answers.ObligationsResponse,
        errors=_SESSION,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/obligations",
        "enter_obligation",
        "Enter an obligation to eliminate",
        "ENTER_OBLIGATION. Until enough is eliminated and it is exited, nothing can be concluded and the session cannot"
        " end.",
        sessions.EnterObligationResponse,
        sessions.EnterObligationRequest,
        errors=_WRITE,
        scope=Scope.BELIEF_WRITE,
        bulk=_SURVIVORS,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/obligations/{obligation_id}/exit",
        "request_exit",
        "Ask to exit an obligation",
        "REQUEST_EXIT. Approved once enough was eliminated since it was entered.",
        sessions.ApprovalResponse,
        sessions.RequestExitRequest,
        errors=(*_WRITE, ErrorCode.OBLIGATION_NOT_FOUND),
        body_required=False,
        scope=Scope.BELIEF_WRITE,
        bulk=_SURVIVORS,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/conclusions",
        "declare_conclusion",
        "State a conclusion",
        "DECLARE_CONCLUSION. Accepted while no obligation is active.",
        sessions.DeclareConclusionResponse,
        sessions.DeclareConclusionRequest,
        errors=_WRITE,
        scope=Scope.BELIEF_WRITE,
        bulk=_SURVIVORS,
    ),
    Operation(
        "POST",
        "/v1/sessions/{session_id}/terminate",
        "request_termination",
        "Ask to end the session",
        "REQUEST_TERMINATION. Approved with one survivor, no active obligation and stable conclusions, or by force"
        " where the policy allows it.",
        sessions.ApprovalResponse,
        sessions.RequestTerminationRequest,
        errors=_WRITE,
        body_required=False,
        scope=Scope.BELIEF_WRITE,
        bulk=_SURVIVORS,
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
        bulk=("timeline",),
        beyond_stream=True,
    ),
    *GRAPH_OPERATIONS,
    *(proof.of_session() for proof in SESSION_PROOFS),
    Operation(
        "GET",
        "/v1/whoami",
        "whoami",
        "Who the server takes you for",
        "The actor, the roles and the scopes of the key, and where a scope holds for single sessions or spaces alone. "
        "Any key will do.",
        sessions.WhoAmI,
        scope=None,
        any_key=True,
    ),
    Operation(
        "GET",
        "/healthz",
        "healthz",
        "Whether the process is alive",
        "Answers without a request to the store.",
        sessions.Health,
        scope=None,
    ),
    Operation(
        "GET",
        "/readyz",
        "readyz",
        "Whether the stores answer and are whole",
        "Reads from the store, and asks Tee which one it is where tombstones are there. 503 also where the store is "
        "behind what this process has seen of it, which `behind` names, where there is no register of keys to go by, "
        "and where nothing is signed because the store does not continue "
        "what was signed before.",
        sessions.Health,
        errors=_STORE,
        scope=None,
    ),
)
