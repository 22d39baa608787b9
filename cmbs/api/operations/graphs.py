"""The operations on the causal graph of a session."""

from __future__ import annotations

from cmbs.api.graphs import GraphSearchPage, SessionGraphResponse
from cmbs.api.operation import Operation, Parameter
from cmbs.api.parameters import AT, CURSOR
from cmbs.errors import ErrorCode
from cmbs.spi.graph_search import MAX_DEPTH, MAX_PAGE_SIZE

_ERRORS = (
    ErrorCode.STORE_UNAVAILABLE,
    ErrorCode.SESSION_NOT_FOUND,
    ErrorCode.LEDGER_CORRUPT,
    ErrorCode.LIMIT_EXCEEDED,
)
_LIMIT = Parameter(
    "limit", "How many items at most; 100 by default.", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE}
)
_SYMPTOM = Parameter(
    "symptom",
    "A node that shows something wrong; once for each, up to 100.",
    {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 100},
    ["web-alert"],
    required=True,
)
_NODE = Parameter("node", "The node to begin at.", {"type": "string", "minLength": 1}, "db", required=True)
_DEPTH = Parameter(
    "max_depth",
    "How many edges a search goes far; 5 by default.",
    {"type": "integer", "minimum": 1, "maximum": MAX_DEPTH},
    5,
)
_NO_GRAPH = " Refused where the server has no Tee, and for sessions over a provider."

GRAPH_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/v1/sessions/{session_id}/graph",
        "session_graph",
        "The causal graph of a session",
        "Nodes, then edges, as of the version that the session is anchored at, each with what the session says of it."
        " What is on a page never changes but for the states, which `at` pins." + _NO_GRAPH,
        SessionGraphResponse,
        query=(CURSOR, _LIMIT, AT),
        errors=(*_ERRORS, ErrorCode.EVENT_NOT_FOUND),
        beyond_stream=True,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/explain",
        "explain_symptoms",
        "Which nodes can explain symptoms",
        "Those that are not eliminated and reach at least one symptom: those that explain the most first, then the"
        " nearest, each with a shortest path." + _NO_GRAPH,
        GraphSearchPage,
        query=(_SYMPTOM, _DEPTH, CURSOR, _LIMIT),
        errors=_ERRORS,
        beyond_stream=True,
    ),
    Operation(
        "GET",
        "/v1/sessions/{session_id}/impact",
        "node_impact",
        "What a node can affect",
        "The nodes that it reaches and that are not eliminated, the nearest first, each with a shortest path."
        + _NO_GRAPH,
        GraphSearchPage,
        query=(_NODE, _DEPTH, CURSOR, _LIMIT),
        errors=_ERRORS,
        beyond_stream=True,
    ),
)
