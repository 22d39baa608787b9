"""Results of operations on webhooks."""

from __future__ import annotations

from typing import Any

from cmbs.client.results.belief import Result


class WebhookFilters(Result, frozen=True):
    """What of its events an endpoint wants; where nothing is named, all."""

    session_ids: list[str]
    space_ids: list[str]
    labels: dict[str, str]


class WebhookItem(Result, frozen=True):
    """A webhook; never its secret."""

    webhook_id: str
    url: str
    events: list[str]
    filters: WebhookFilters
    description: str
    status: str
    secret_generation: int
    created_ts: str
    created_by: str
    n_pending: int
    audit_event_id: str
    overlap_until: str | None = None
    disabled_because: str | None = None
    disabled_reason: str | None = None
    disabled_ts: str | None = None
    failing_since: str | None = None


class Webhook(Result, frozen=True):
    """Answer with a webhook."""

    webhook: WebhookItem


class WebhookSecret(Result, frozen=True):
    """Answer with a webhook and its new secret, which is not sent again."""

    webhook: WebhookItem
    secret: str | None = None
    replayed: bool = False

    def __repr__(self) -> str:
        shown = "None" if self.secret is None else "'whsec_…'"
        return f"WebhookSecret(webhook={self.webhook!r}, secret={shown}, replayed={self.replayed!r})"


class WebhooksPage(Result, frozen=True):
    """A page of webhooks by id."""

    webhooks: list[WebhookItem]
    next_cursor: str | None


class DeliveryAttempt(Result, frozen=True):
    """One try."""

    number: int
    ts: str
    status: int | None
    duration_ms: int | None
    error: str | None


class DeliveryItem(Result, frozen=True):
    """An event that an endpoint is told, and its tries."""

    delivery_id: str
    type: str
    status: str
    ts: str
    n_attempts: int
    attempts: list[DeliveryAttempt]
    payload: dict[str, Any]
    next_at: str | None = None


class Delivery(Result, frozen=True):
    """Answer with a delivery."""

    delivery: DeliveryItem


class DeliveriesPage(Result, frozen=True):
    """A page of deliveries, the newest first."""

    deliveries: list[DeliveryItem]
    next_cursor: str | None
