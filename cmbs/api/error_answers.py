"""The answer to a request that failed: one type for each code, told apart by `code`."""

from __future__ import annotations

from typing import Annotated, Generic, TypeAlias, TypeVar, get_args

from msgspec import Meta

from cmbs.api.answers import Answer
from cmbs.api.error_details import (
    BusyDetails,
    ConflictDetails,
    ErrorDetails,
    EventNotFoundDetails,
    ForbiddenDetails,
    FreeHandRefusedDetails,
    InternalErrorDetails,
    InvalidHypothesisIdDetails,
    InvalidRequestDetails,
    LedgerCorruptDetails,
    LimitExceededDetails,
    MethodNotAllowedDetails,
    NotFoundDetails,
    ObligationNotFoundDetails,
    ProviderBrokenDetails,
    RecordNotFoundDetails,
    RequestTimeoutDetails,
    SessionNotFoundDetails,
    SessionTerminatedDetails,
    SpaceNotFoundDetails,
    StoreUnavailableDetails,
    UnauthenticatedDetails,
    UnknownProbeDetails,
    UnsupportedMediaTypeDetails,
)

Details = TypeVar("Details", bound=ErrorDetails)


class Failure(Answer, Generic[Details], frozen=True, tag_field="code"):
    """What went wrong. The tag of a failure is its code: stable, and for programs."""

    message: Annotated[str, Meta(description="For people; the text may change.")]
    details: Annotated[Details | None, Meta(description="For programs; newer servers may say more.")]


# --- the codes of the protocol ----------------------------------------------------------------------------------------


class InvalidRequestError(Failure[InvalidRequestDetails], frozen=True, tag="INVALID_REQUEST"):
    """The request is malformed, out of range, or asks for what cannot be."""


class LimitExceededError(Failure[LimitExceededDetails], frozen=True, tag="LIMIT_EXCEEDED"):
    """The request is larger than a limit allows."""


class UnauthenticatedError(Failure[UnauthenticatedDetails], frozen=True, tag="UNAUTHENTICATED"):
    """The server has keys, and the request has none that is good."""


class ForbiddenError(Failure[ForbiddenDetails], frozen=True, tag="FORBIDDEN"):
    """The caller may not do this."""


class InvalidHypothesisIdError(Failure[InvalidHypothesisIdDetails], frozen=True, tag="INVALID_HYPOTHESIS_ID"):
    """An id is not in the declared universe."""


class FreeHandRefusedError(Failure[FreeHandRefusedDetails], frozen=True, tag="FREE_HAND_REFUSED"):
    """The session takes eliminations through probes alone."""


class UnknownProbeError(Failure[UnknownProbeDetails], frozen=True, tag="UNKNOWN_PROBE"):
    """The provider of the session has no such probe."""


class SessionNotFoundError(Failure[SessionNotFoundDetails], frozen=True, tag="SESSION_NOT_FOUND"):
    """There is no such session."""


class SessionTerminatedError(Failure[SessionTerminatedDetails], frozen=True, tag="SESSION_TERMINATED"):
    """The session has ended: it can be read, not changed."""


class ObligationNotFoundError(Failure[ObligationNotFoundDetails], frozen=True, tag="OBLIGATION_NOT_FOUND"):
    """The session never entered this obligation."""


class EventNotFoundError(Failure[EventNotFoundDetails], frozen=True, tag="EVENT_NOT_FOUND"):
    """The session has no such event."""


class SpaceNotFoundError(Failure[SpaceNotFoundDetails], frozen=True, tag="SPACE_NOT_FOUND"):
    """There is no such space."""


class RecordNotFoundError(Failure[RecordNotFoundDetails], frozen=True, tag="RECORD_NOT_FOUND"):
    """The space, or the server, has no such record."""


class ConflictError(Failure[ConflictDetails], frozen=True, tag="CONFLICT"):
    """What the request says does not fit what is there."""


class StoreUnavailableError(Failure[StoreUnavailableDetails], frozen=True, tag="STORE_UNAVAILABLE"):
    """The store cannot be used now: nothing was applied, and the request may be sent again."""


class LedgerCorruptError(Failure[LedgerCorruptDetails], frozen=True, tag="LEDGER_CORRUPT"):
    """A log does not verify: have an operator look at the store."""


class ProviderBrokenError(Failure[ProviderBrokenDetails], frozen=True, tag="PROVIDER_BROKEN"):
    """The hypothesis provider of the session fails or breaks its contract."""


# --- the codes of the way to the server -------------------------------------------------------------------------------


class NotFoundError(Failure[NotFoundDetails], frozen=True, tag="NOT_FOUND"):
    """There is no such path."""


class MethodNotAllowedError(Failure[MethodNotAllowedDetails], frozen=True, tag="METHOD_NOT_ALLOWED"):
    """The path does not have this method."""


class RequestTimeoutError(Failure[RequestTimeoutDetails], frozen=True, tag="REQUEST_TIMEOUT"):
    """The request did not arrive whole in time."""


class UnsupportedMediaTypeError(Failure[UnsupportedMediaTypeDetails], frozen=True, tag="UNSUPPORTED_MEDIA_TYPE"):
    """The operation does not read a body of this type."""


class BusyError(Failure[BusyDetails], frozen=True, tag="BUSY"):
    """The server has as much to do as it may have, or stops: try again later, as `Retry-After` says."""


class InternalError(Failure[InternalErrorDetails], frozen=True, tag="INTERNAL_ERROR"):
    """The server failed. Only then it is not known whether something has changed."""


# ----------------------------------------------------------------------------------------------------------------------

ApiError: TypeAlias = (
    InvalidRequestError
    | LimitExceededError
    | UnauthenticatedError
    | ForbiddenError
    | InvalidHypothesisIdError
    | FreeHandRefusedError
    | UnknownProbeError
    | SessionNotFoundError
    | SessionTerminatedError
    | ObligationNotFoundError
    | EventNotFoundError
    | SpaceNotFoundError
    | RecordNotFoundError
    | ConflictError
    | StoreUnavailableError
    | LedgerCorruptError
    | ProviderBrokenError
    | NotFoundError
    | MethodNotAllowedError
    | RequestTimeoutError
    | UnsupportedMediaTypeError
    | BusyError
    | InternalError
)
# By code.
FAILURES: dict[str, type[Failure[ErrorDetails]]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(ApiError)
}


class ErrorResponse(Answer, frozen=True):
    """The body of every failed request; the request changed nothing."""

    error: ApiError
