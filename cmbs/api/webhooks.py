"""Types of webhooks and their deliveries."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from cmbs.api.answers import Answer, Count, Page, Partial, Replayed
from cmbs.api.sessions import NextCursor
from cmbs.ledger.instants import Timestamp
from cmbs.webhooks.kernel.model import (
    MAX_DESCRIPTION_LENGTH,
    MAX_FILTER_LENGTH,
    MAX_FILTER_VALUES,
    MAX_ID_LENGTH,
    MAX_OVERLAP_MS,
    MAX_URL_LENGTH,
)

EventName = Literal[
    "gate.opened", "approval.wanted", "session.concluded", "session.contradiction", "ledger.corrupt", "webhook.test"
]
Subscribed = Literal["gate.opened", "approval.wanted", "session.concluded", "session.contradiction", "ledger.corrupt"]
_FilterText = Annotated[str, Meta(max_length=MAX_FILTER_LENGTH)]
_Reason = Annotated[str, Meta(max_length=MAX_DESCRIPTION_LENGTH, description="Why; it is recorded.")]


class WebhookFilters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of its events an endpoint wants; without any, all. A stream of either list will do."""

    session_ids: Annotated[
        list[_FilterText],
        Meta(max_length=MAX_FILTER_VALUES, description="These sessions, and cases over them."),
    ] = []
    space_ids: Annotated[list[_FilterText], Meta(max_length=MAX_FILTER_VALUES, description="These spaces.")] = []
    labels: Annotated[
        dict[str, _FilterText],
        Meta(max_length=MAX_FILTER_VALUES, description="All of these labels, of the session or of the case."),
    ] = {}


class CreateWebhookRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An endpoint, and what it is to be told."""

    webhook_id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MAX_ID_LENGTH,
            pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description="A name of your choice; the same registration again changes nothing.",
        ),
    ]
    url: Annotated[
        str,
        Meta(
            max_length=MAX_URL_LENGTH,
            description="`https`, or `http` on the server's own machine. Private networks are a setting of the server.",
        ),
    ]
    events: Annotated[list[Subscribed], Meta(min_length=1, description="What it is told.")]
    filters: WebhookFilters = WebhookFilters()
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION_LENGTH)] = ""


class RotateSecretRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which secret to make."""

    generation: Annotated[
        int, Meta(ge=1, le=2**31, description="The number of the new secret: one more than `secret_generation`.")
    ]
    overlap_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_OVERLAP_MS // 1_000,
            description="How long requests are signed with the secret before as well.",
        ),
    ] = 24 * 3600


class DisableWebhookRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why it is told nothing."""

    reason: _Reason = ""


class EnableWebhookRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From where on it is told."""

    skip: Annotated[
        bool, Meta(description="Whether to leave out what happened while it was disabled, and what was not looked at.")
    ] = False


class DeleteWebhookRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why it ends."""

    reason: _Reason = ""


class TestWebhookRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing needs to be said."""


class RedeliverRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing needs to be said."""


class WebhookItem(Partial, frozen=True):
    """A webhook; never its secret."""

    webhook_id: str
    url: str
    events: list[Subscribed]
    filters: WebhookFilters
    description: str
    status: Annotated[
        Literal["active", "disabled", "unusable"],
        Meta(description="`unusable`: it was not registered with the webhook key of this server, and is told nothing."),
    ]
    secret_generation: Annotated[int, Meta(ge=1, description="Which secret signs.")]
    created_ts: Timestamp
    created_by: str
    n_pending: Annotated[Count, Meta(description="Deliveries that wait, or are under way.")]
    audit_event_id: Annotated[str, Meta(description="The newest entry of its stream, `webhook:` and its id.")]
    overlap_until: Annotated[Timestamp | None, Meta(description="Until when the secret before signs as well.")] = None
    disabled_because: Annotated[
        Literal["operator", "gone", "failing"] | None,
        Meta(description="`gone`: it answered 410. `failing`: no try succeeded for days."),
    ] = None
    disabled_reason: str | None = None
    disabled_ts: Timestamp | None = None
    failing_since: Annotated[Timestamp | None, Meta(description="The first failure since the last success.")] = None


class WebhookResponse(Answer, frozen=True):
    """A webhook."""

    webhook: WebhookItem


class WebhookSecretResponse(Partial, frozen=True):
    """A webhook, and its new secret: this once, and nowhere else."""

    webhook: WebhookItem
    secret: Annotated[
        str | None, Meta(description="What signatures are checked with. Not sent again for a repeated request.")
    ] = None
    replayed: Replayed = False

    def __repr__(self) -> str:
        shown = "None" if self.secret is None else "'whsec_…'"
        return f"{type(self).__name__}(webhook={self.webhook!r}, secret={shown}, replayed={self.replayed!r})"


class WebhooksPage(Page[WebhookItem], frozen=True):
    """A page of webhooks by id."""

    collection: ClassVar[str] = "webhooks"
    webhooks: list[WebhookItem]
    next_cursor: NextCursor


class AttemptItem(Answer, frozen=True):
    """One try."""

    number: Annotated[int, Meta(ge=1)]
    ts: Timestamp
    status: Annotated[int | None, Meta(description="The status of the answer; null where none came.")]
    duration_ms: Annotated[int | None, Meta(description="How long it took; null where that is not known.")]
    error: Annotated[str | None, Meta(description="What went wrong; null for a success.")]


class DeliveryItem(Partial, frozen=True):
    """An event that an endpoint is told, and every try; of very many tries, the newest."""

    delivery_id: Annotated[str, Meta(description="The `webhook-id` of the request: the same at every try.")]
    type: EventName
    status: Literal["pending", "delivered", "failed"]
    ts: Annotated[Timestamp, Meta(description="When it was found.")]
    n_attempts: Count
    attempts: list[AttemptItem]
    payload: Annotated[dict[str, Any], Meta(description="What is sent.")]
    next_at: Annotated[Timestamp | None, Meta(description="When it is tried next.")] = None


class DeliveryResponse(Answer, frozen=True):
    """A delivery."""

    delivery: DeliveryItem


class DeliveriesPage(Page[DeliveryItem], frozen=True):
    """A page of deliveries, the newest first."""

    collection: ClassVar[str] = "deliveries"
    deliveries: list[DeliveryItem]
    next_cursor: NextCursor
