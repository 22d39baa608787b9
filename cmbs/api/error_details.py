"""What the `details` of an error say, for each code.

A reader passes over members that it does not know: a newer server may say more. A member that is None by default is
left out where it does not apply. Beside these, `details` of errors that are raised in Python may have names of this
process, such as that of a variable of its environment; no server answers with them.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from cmbs.api.answers import Answer, DocumentFinding, Partial
from cmbs.api.errors import TransportCode
from cmbs.belief.kernel.looks import LookItem
from cmbs.errors import ErrorCode, KeyRefused

_SESSION = Meta(description="The session.")
_FORBIDDEN_REASONS = [
    "missing_scope",
    "forged_actor",
    "not_an_executor",
    "operators_only",
    "remote_without_key",
    "not_an_operator",
    "not_an_observer",
    "foreign_host",
    "foreign_origin",
]


class ErrorDetails(Partial, frozen=True, kw_only=True):
    """What the details of every error say."""

    next: Annotated[str, Meta(description="What to do.")]


class ClientErrorDetails(ErrorDetails, frozen=True, kw_only=True):
    """What the details of every error say that the caller can mend: those with a status below 500."""

    field: Annotated[
        str,
        Meta(
            description="What is wrong: a dotted path in the body with the numbers of items in lists, or the name of a"
            " parameter, a header or a limit; `body` for all of it."
        ),
    ]
    found: Annotated[
        Any,
        Meta(
            description="What was found there: the value, or what kind of value it is; null for nothing, or for what"
            " cannot be shown."
        ),
    ]
    accepted: Annotated[
        Any, Meta(description='What would be accepted: a value, several, a rule such as `{"minimum": 1}`, or words.')
    ]


# --- parts ------------------------------------------------------------------------------------------------------------


class RequestFault(Partial, frozen=True, kw_only=True):
    """One of the things that are wrong with a request, or with the policy in it."""

    message: Annotated[str, Meta(description="What is wrong, for people.")]
    field: Annotated[str | None, Meta(description="Where in the body or the query.")] = None
    found: Annotated[Any, Meta(description="What was found there.")] = None
    accepted: Annotated[Any, Meta(description="What would be accepted.")] = None
    key: Annotated[str | None, Meta(description="Of a policy: the key that is wrong.")] = None
    at: Annotated[str | None, Meta(description="Of a policy: the place in the value of the key.")] = None
    line: Annotated[int | None, Meta(description="Of a policy file: the line, counted from 1.")] = None
    column: Annotated[int | None, Meta(description="Of a policy file: the column, counted from 1.")] = None
    rule: Annotated[str | None, Meta(description="Of a policy file: the rule that stands there.")] = None
    condition: Annotated[str | None, Meta(description="Of a policy file: the condition that stands there.")] = None


class EliminatedBy(Answer, frozen=True):
    """The event that eliminated a hypothesis."""

    seq: Annotated[int, Meta(description="Its number.")]
    event_id: Annotated[str, Meta(description="Its id.")]


# --- details of the codes of the protocol -----------------------------------------------------------------------------


class InvalidRequestDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a request that is malformed, out of range, or asks for something that cannot be."""

    faults: Annotated[
        list[RequestFault] | None,
        Meta(
            description="Everything that is wrong with a body, a query or a policy; the first is told at the top too."
        ),
    ] = None
    findings: Annotated[
        list[DocumentFinding] | None, Meta(description="What is wrong with a kit or a policy file.")
    ] = None
    parameter: Annotated[str | None, Meta(description="The query parameter.")] = None
    allowed: Annotated[
        list[str] | None, Meta(description="Of an unknown query parameter: those that the operation has.")
    ] = None
    header: Annotated[str | None, Meta(description="The header, in lower case.")] = None
    key: Annotated[str | None, Meta(description="The key of an object, of the state or of a policy.")] = None
    body: Annotated[str | None, Meta(description="The id that the body has, where it is not that of the path.")] = None
    path: Annotated[str | None, Meta(description="The id that the path has, where it is not that of the body.")] = None
    where: Annotated[str | None, Meta(description="What holds a key that belongs in `Authorization` alone.")] = None
    actor: Annotated[str | None, Meta(description="The kind of actor that may not do this.")] = None
    session_id: Annotated[str | None, _SESSION] = None
    webhook_id: Annotated[str | None, Meta(description="The webhook.")] = None
    what: Annotated[str | None, Meta(description="What kind of thing is not on record.")] = None
    id: Annotated[str | None, Meta(description="The id under which nothing is on record.")] = None
    kit: Annotated[str | None, Meta(description="The kit that this server does not have.")] = None
    kit_id: Annotated[str | None, Meta(description="The kit that does not fit the session.")] = None
    unknown: Annotated[
        list[str] | None, Meta(description="Hypotheses of the session that the kit does not know; at most 100.")
    ] = None
    probe_id: Annotated[str | None, Meta(description="The probe to which the response does not fit.")] = None
    outcomes: Annotated[list[str] | None, Meta(description="The outcomes that the probe has; at most 100.")] = None
    size: Annotated[
        int | None,
        Meta(description="The size of the last checkpoint, which is smaller than the one that was asked about."),
    ] = None


class LimitExceededDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a request that is well formed, and larger than a limit allows."""

    limit: Annotated[str, Meta(description="The limit.")]
    maximum: Annotated[int, Meta(description="What it allows.")]
    actual: Annotated[int, Meta(description="What was asked for.")]
    agent_id: Annotated[str | None, Meta(description="Of a limit for each agent: the agent.")] = None


class UnauthenticatedDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a request without a good key, where the server has keys."""

    reason: Annotated[str, Meta(description="Why there is no good key.", extra_json_schema={"enum": [*KeyRefused]})]


class ForbiddenDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a request that its caller may not make."""

    reason: Annotated[str, Meta(description="Why it is refused.", extra_json_schema={"enum": _FORBIDDEN_REASONS})]
    scope: Annotated[str | None, Meta(description="Of `missing_scope`: the scope.")] = None
    kind: Annotated[str | None, Meta(description="Of `operators_only`: the kind of the actor.")] = None


class InvalidHypothesisIdDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of ids that are not in the declared universe, where ids are validated; `accepted` has the nearest known ones."""

    unknown: Annotated[list[str], Meta(description="The ids that are not in the universe; at most 100.")]


class FreeHandRefusedDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a list of ids, where the session takes eliminations through probes alone."""

    session_id: Annotated[str, _SESSION]


class UnknownProbeDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a probe that the session's provider does not have."""

    probe_id: Annotated[str, Meta(description="The id that no probe of the provider has.")]


class SessionNotFoundDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a session that does not exist."""

    session_id: Annotated[str, Meta(description="The id that no session has.")]


class SessionTerminatedDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a write to a session that has ended."""

    session_id: Annotated[str, _SESSION]


class ObligationNotFoundDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of an obligation that the session never entered."""

    obligation_id: Annotated[str, Meta(description="The id that no obligation has.")]


class EventNotFoundDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of an event that the session does not have."""

    event: Annotated[str, Meta(description="The number or the id that no event of the session has.")]


class SpaceNotFoundDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a space that does not exist."""

    space_id: Annotated[str, Meta(description="The id that no space has.")]


class RecordNotFoundDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a proposal, an approval, a tool or another record that the space, or the server, does not have."""

    what: Annotated[str, Meta(description="What kind of record.")]
    id: Annotated[str, Meta(description="The id under which there is none.")]


class ConflictDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of an id or key that stands for something else, of a step that comes too late, and of a head that has moved on.

    With status 412 the request named a head, and `expected` and `actual` are the two heads.
    """

    expected: Annotated[
        str | None, Meta(description="The head, policy hash or graph version that the request expects.")
    ] = None
    actual: Annotated[str | None, Meta(description="The one that there is.")] = None
    status: Annotated[str | None, Meta(description="The status that is in the way.")] = None
    outcome: Annotated[str | None, Meta(description="The outcome of the execution that is on record.")] = None
    idempotency_key: Annotated[str | None, Meta(description="The key that another request was sent under.")] = None
    event_id: Annotated[str | None, Meta(description="The event that is on record, or that the proof is about.")] = None
    seq: Annotated[int | None, Meta(description="The number of the event that the proof is about.")] = None
    verb: Annotated[str | None, Meta(description="The verb of that event.")] = None
    hypothesis_id: Annotated[str | None, Meta(description="The hypothesis that the proof is about.")] = None
    eliminated_by: Annotated[
        EliminatedBy | None, Meta(description="Of a hypothesis that did not survive: the event that eliminated it.")
    ] = None
    session_id: Annotated[str | None, _SESSION] = None
    obligation_id: Annotated[str | None, Meta(description="The obligation that was entered before.")] = None
    source_id: Annotated[str | None, Meta(description="The source of the observation.")] = None
    observation_id: Annotated[str | None, Meta(description="The observation that is on record.")] = None
    probe_id: Annotated[str | None, Meta(description="The probe that was looked at before.")] = None
    seen_before: Annotated[
        list[LookItem] | None,
        Meta(description="What was seen of the probe, the newest first: as in the answer to an observation."),
    ] = None
    stream_id: Annotated[str | None, Meta(description="The stream of which another log is here.")] = None
    space_id: Annotated[str | None, Meta(description="The space that was created before.")] = None
    proposal_id: Annotated[str | None, Meta(description="The proposal.")] = None
    approval_id: Annotated[str | None, Meta(description="The approval.")] = None
    execution_id: Annotated[str | None, Meta(description="The execution.")] = None
    call_id: Annotated[str | None, Meta(description="The call.")] = None
    case_id: Annotated[str | None, Meta(description="The case.")] = None
    name: Annotated[str | None, Meta(description="The name that another case has, whose session is named.")] = None
    change_id: Annotated[str | None, Meta(description="The change of policy.")] = None
    token_id: Annotated[str | None, Meta(description="The capability that was revoked before.")] = None


class StoreUnavailableDetails(ErrorDetails, frozen=True, kw_only=True):
    """Of a store that cannot be read or written, or does not agree with the log; nothing was applied."""

    session_id: Annotated[str | None, Meta(description="The session that takes no writes.")] = None
    reason: Annotated[
        str | None,
        Meta(description="In what the log and the elimination store, or what was signed, differ."),
    ] = None
    expected: Annotated[str | None, Meta(description="The elimination store that the sessions are in.")] = None
    causal_graph_version: Annotated[
        str | None, Meta(description="The version of the causal graph that the session is over.")
    ] = None
    behind: Annotated[
        list[str] | None, Meta(description="Streams of which the store has less than was seen of it.")
    ] = None
    disagreeing: Annotated[
        list[str] | None, Meta(description="Sessions on which the elimination store and the log differ.")
    ] = None


class LedgerCorruptDetails(ErrorDetails, frozen=True, kw_only=True):
    """Of a log that does not verify."""

    stream_id: Annotated[str, Meta(description="The stream.")]
    seq: Annotated[int, Meta(description="The number of the first event that does not verify.")]
    event_id: Annotated[str | None, Meta(description="The id of that event; null if it has none that can be read.")]
    reason: Annotated[str, Meta(description="Why it does not verify.")]


class ProviderBrokenDetails(ErrorDetails, frozen=True, kw_only=True):
    """Of a hypothesis provider that raises, or that answers what no provider may."""

    provider: Annotated[str | None, Meta(description="The id of the provider.")] = None
    probe_id: Annotated[str | None, Meta(description="The probe that it was asked about.")] = None


# --- details of the codes of the way to the server --------------------------------------------------------------------


class NotFoundDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a path that does not exist."""


class MethodNotAllowedDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a method that the path does not have."""

    allowed: Annotated[list[str], Meta(description="The methods that it has.")]


class RequestTimeoutDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a request that did not arrive whole in time."""


class UnsupportedMediaTypeDetails(ClientErrorDetails, frozen=True, kw_only=True):
    """Of a body in a language that the operation does not read."""

    content_type: Annotated[str | None, Meta(description="The type that it was sent as; null for none.")]


class BusyDetails(ErrorDetails, frozen=True, kw_only=True):
    """Of a server that has as much to do as it may have, or that stops."""

    limit: Annotated[str | None, Meta(description="The limit that is reached; absent where the server stops.")] = None
    maximum: Annotated[int | None, Meta(description="What it allows.")] = None


class InternalErrorDetails(ErrorDetails, frozen=True, kw_only=True):
    """Of a fault of the server itself. Only then it is not known whether something has changed."""


# By code. CONFLICT has the same details with both of its statuses.
DETAILS_OF: dict[str, type[ErrorDetails]] = {
    ErrorCode.INVALID_REQUEST: InvalidRequestDetails,
    ErrorCode.LIMIT_EXCEEDED: LimitExceededDetails,
    ErrorCode.UNAUTHENTICATED: UnauthenticatedDetails,
    ErrorCode.FORBIDDEN: ForbiddenDetails,
    ErrorCode.INVALID_HYPOTHESIS_ID: InvalidHypothesisIdDetails,
    ErrorCode.FREE_HAND_REFUSED: FreeHandRefusedDetails,
    ErrorCode.UNKNOWN_PROBE: UnknownProbeDetails,
    ErrorCode.SESSION_NOT_FOUND: SessionNotFoundDetails,
    ErrorCode.SESSION_TERMINATED: SessionTerminatedDetails,
    ErrorCode.OBLIGATION_NOT_FOUND: ObligationNotFoundDetails,
    ErrorCode.EVENT_NOT_FOUND: EventNotFoundDetails,
    ErrorCode.SPACE_NOT_FOUND: SpaceNotFoundDetails,
    ErrorCode.RECORD_NOT_FOUND: RecordNotFoundDetails,
    ErrorCode.CONFLICT: ConflictDetails,
    ErrorCode.STORE_UNAVAILABLE: StoreUnavailableDetails,
    ErrorCode.LEDGER_CORRUPT: LedgerCorruptDetails,
    ErrorCode.PROVIDER_BROKEN: ProviderBrokenDetails,
    TransportCode.NOT_FOUND: NotFoundDetails,
    TransportCode.METHOD_NOT_ALLOWED: MethodNotAllowedDetails,
    TransportCode.REQUEST_TIMEOUT: RequestTimeoutDetails,
    TransportCode.UNSUPPORTED_MEDIA_TYPE: UnsupportedMediaTypeDetails,
    TransportCode.BUSY: BusyDetails,
    TransportCode.INTERNAL_ERROR: InternalErrorDetails,
}
