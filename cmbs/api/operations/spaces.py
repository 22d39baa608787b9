"""The operations on spaces that are like no other."""

from __future__ import annotations

from dataclasses import replace

from cmbs.api import space_requests as requests
from cmbs.api import spaces as schemas
from cmbs.api.errors import TransportCode
from cmbs.api.impact import PolicyImpact
from cmbs.api.inbox import InboxPage
from cmbs.api.operation import Operation, Parameter, TextFile
from cmbs.api.operations.reads import READ_ERRORS, SPACE, describe_read
from cmbs.api.parameters import CASE, CURSOR, FROM, LIMIT, SINCE_EVENT, TO
from cmbs.api.space_requests import SPACE_ID_PATTERN
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Reach, Scope
from cmbs.substrate.kernel.words import WaitKind

_PAGE = (CURSOR, LIMIT)
_SNAPSHOT = Parameter("at", "A `state_snapshot_id`, or a seq: the state right after it.", {"type": "string"}, "0")
_PREFIX = Parameter("prefix", "Only keys that begin with this.", {"type": "string"}, "fact.")

_NOW = Parameter("now", "`true`: how it would be decided now.", {"type": "string", "enum": ["true", "false"]}, "true")
_BASE = Parameter(
    "base_policy_hash",
    "The policy that the file is to replace: a conflict, if the policy is another by now.",
    {"type": "string"},
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
)
_REASON = Parameter("reason", "Free text for people.", {"type": "string", "maxLength": 4096}, "after INC-204")

SPACE_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "POST",
        "/v1/spaces",
        "create_space",
        "Create a space",
        "CREATE_SPACE. The first policy never needs a second operator. Without a policy nothing is allowed in the"
        " space. For operators.",
        schemas.SpaceResponse,
        requests.CreateSpaceRequest,
        201,
        errors=(
            ErrorCode.STORE_UNAVAILABLE,
            ErrorCode.CONFLICT,
            ErrorCode.LIMIT_EXCEEDED,
            ErrorCode.LEDGER_CORRUPT,
        ),
        scope=Scope.SPACES_OPERATE,
        reach=Reach.ANY,  # the id is in the body, and is held against the key before the space is made
    ),
    Operation(
        "GET",
        "/v1/spaces",
        "list_spaces",
        "List spaces",
        "Those that the key may read, sorted by id. Where they are found by a case, a page may be empty and still have"
        " a `next_cursor`.",
        schemas.SpacesPage,
        query=(replace(CASE, description="Only those that admitted this case, by its id or name."), *_PAGE),
        errors=(ErrorCode.STORE_UNAVAILABLE, ErrorCode.LIMIT_EXCEEDED),
        scope=Scope.SPACES_READ,
        reach=Reach.ANY,
    ),
    describe_read(
        "", "get_space", "A space as it is now", "Its mode, policy, newest snapshot and counts.", schemas.SpaceResponse
    ),
    describe_read(
        "state",
        "read_state",
        "The state, now or at any snapshot",
        "Sorted by key. Keys that the caller may not read are left out: for all but operators these are policy.*,"
        " constraint.* and the keys that `policy.private` names.",
        schemas.StateResponse,
        (_SNAPSHOT, _PREFIX, *_PAGE),
        (ErrorCode.EVENT_NOT_FOUND,),
    ),
    describe_read(
        "diff",
        "space_diff",
        "What changed between two moments",
        "Facts, policy, mode, tools, capabilities, proposals, approvals, executions and memory that are another after"
        " `to` than after `from`. Keys that the caller may not read are left out, and for all but operators changes of"
        " policy too.",
        schemas.SpaceDiffPage,
        (FROM, TO, *_PAGE),
        (ErrorCode.EVENT_NOT_FOUND,),
    ),
    describe_read(
        "deltas", "list_deltas", "List commits, the oldest first", "A page at a time.", schemas.CommitsPage, _PAGE
    ),
    describe_read(
        "decisions",
        "list_decisions",
        "List decisions, the oldest first",
        "A page at a time.",
        schemas.DecisionsPage,
        _PAGE,
        bulk=("decisions.decision.trace",),
    ),
    describe_read(
        "audit",
        "space_audit",
        "The entries of a space's stream, as they were hashed",
        "Each entry is the stored bytes with `event_hash` put before the closing brace. Nothing is left out. For"
        " operators.",
        schemas.SpaceAuditResponse,
        (SINCE_EVENT, *_PAGE),
        (ErrorCode.EVENT_NOT_FOUND,),
    ),
    replace(
        describe_read(
            "policy",
            "read_policy",
            "The policy, by key, and the file that it was written as",
            "Pairs and file as JSON; the file alone, as it was written, where `Accept` asks for `application/yaml`. For"
            " operators.",
            schemas.PolicyPage,
            _PAGE,
            (ErrorCode.RECORD_NOT_FOUND,),
        ),
        file=True,
    ),
    Operation(
        "PUT",
        f"{SPACE}/policy",
        "put_policy",
        "Make a file the policy",
        "PROPOSE_POLICY of everything that the file changes. The answer says whether it is in force, or waits for"
        " another operator. What is wrong with the file is told with lines and columns. For operators.",
        schemas.PolicyPut,
        TextFile,
        query=(_BASE, _REASON),
        errors=(*READ_ERRORS, ErrorCode.CONFLICT),
        scope=Scope.SPACES_OPERATE,
    ),
    Operation(
        "POST",
        f"{SPACE}/policy/check",
        "check_policy",
        "Look a policy file through",
        "What is wrong with it, what its tests come to, and which keys it would change. Nothing is recorded. For"
        " operators.",
        schemas.PolicyCheck,
        TextFile,
        errors=(*READ_ERRORS, TransportCode.BUSY),
        scope=Scope.SPACES_OPERATE,
        recorded=False,
    ),
    Operation(
        "POST",
        f"{SPACE}/policy/impact",
        "policy_impact",
        "Try a policy file on the past",
        "Decides every proposal of the space again under the file: which decisions flip, by which line, and what they"
        " touch. Sessions are read from their logs as of each decision. Nothing is recorded. For operators.",
        PolicyImpact,
        TextFile,
        query=(LIMIT,),
        errors=(*READ_ERRORS, TransportCode.BUSY),
        scope=Scope.SPACES_OPERATE,
        recorded=False,
    ),
    Operation(
        "POST",
        f"{SPACE}/explain",
        "explain_proposal",
        "Explain what would be decided about a proposal",
        "A dry run on the current state and policy: the decision, its reasons, and the smallest change of facts that"
        " would change it. Nothing is recorded.",
        schemas.ExplainResponse,
        requests.ProposeRequest,
        errors=(*READ_ERRORS, TransportCode.BUSY),
        scope=Scope.SPACES_PROPOSE,
        recorded=False,
        bulk=("decision.trace",),
    ),
    describe_read(
        "proposals/{proposal_id}/explain",
        "explain_decision",
        "Explain the decision on a proposal",
        "The newest decision, made again on the state that it was made on: which stage, which constraint, which"
        " predicate, what it found, and the smallest change of facts that would have changed the decision. With `now`,"
        " how the same proposal would be decided now, for the one who made it: for that one and for operators.",
        schemas.ExplainResponse,
        (_NOW,),
        (ErrorCode.RECORD_NOT_FOUND, ErrorCode.EVENT_NOT_FOUND, TransportCode.BUSY),
        ("decision.trace",),
    ),
)
_KIND = Parameter(
    "kind", "Only this kind.", {"type": "string", "enum": [each.value for each in WaitKind]}, WaitKind.APPROVAL.value
)
_SPACE = Parameter("space_id", "Only of this space.", {"type": "string", "pattern": SPACE_ID_PATTERN}, "shop")
INBOX_OPERATION = Operation(
    "GET",
    "/v1/inbox",
    "list_inbox",
    "What waits for a person, across spaces",
    "Requests for approval, executions in doubt, and changes that take a second operator: those that this key could"
    " settle now, and none that its own actor asked for. By space, and then the oldest first.",
    InboxPage,
    query=(CURSOR, LIMIT, _KIND, _SPACE),
    errors=(ErrorCode.STORE_UNAVAILABLE, ErrorCode.LIMIT_EXCEEDED, ErrorCode.LEDGER_CORRUPT, ErrorCode.SPACE_NOT_FOUND),
    scope=Scope.SPACES_READ,
    reach=Reach.ANY,
)
