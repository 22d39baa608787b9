"""The operations on webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cmbs.client.calls import Call, Json, PageCall, list_ids, omit_none, read, write
from cmbs.client.operations import listing, operation
from cmbs.client.results import webhooks as results

_WEBHOOK = "/v1/webhooks/{}"


class WebhookOperations:
    """Endpoints of others that are told what happens. All of it is for operators."""

    @operation
    def create_webhook(
        self,
        webhook_id: str,
        url: str,
        events: Sequence[str],
        *,
        filters: Mapping[str, Json] | None = None,
        description: str | None = None,
    ) -> Call[results.WebhookSecret]:
        """Register an endpoint. The secret in the answer is not sent again."""
        optional = omit_none(filters=filters, description=description)
        body = {"webhook_id": webhook_id, "url": url, "events": list_ids("events", events), **optional}
        return write("/v1/webhooks", answer=results.WebhookSecret, body=body, recorded=False)

    @listing
    def list_webhooks(
        self, *, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[results.WebhooksPage, results.WebhookItem]:
        """Webhooks by id."""
        call = read("/v1/webhooks", answer=results.WebhooksPage, cursor=cursor, limit=limit)
        return PageCall(call, lambda page: page.webhooks, lambda page: page.next_cursor)

    @operation
    def get_webhook(self, webhook_id: str) -> Call[results.Webhook]:
        """A webhook."""
        return read(_WEBHOOK, webhook_id, answer=results.Webhook)

    @operation
    def rotate_webhook_secret(
        self, webhook_id: str, generation: int, *, overlap_seconds: int | None = None
    ) -> Call[results.WebhookSecret]:
        """Make the secret of this generation, one more than that of the newest. It is not sent again."""
        body = {"generation": generation, **omit_none(overlap_seconds=overlap_seconds)}
        return write(f"{_WEBHOOK}/rotate", webhook_id, answer=results.WebhookSecret, body=body, recorded=False)

    @operation
    def disable_webhook(self, webhook_id: str, *, reason: str | None = None) -> Call[results.Webhook]:
        """Tell it nothing for now."""
        body = omit_none(reason=reason)
        return write(f"{_WEBHOOK}/disable", webhook_id, answer=results.Webhook, body=body, recorded=False)

    @operation
    def enable_webhook(self, webhook_id: str, *, skip: bool | None = None) -> Call[results.Webhook]:
        """Tell it again, from where it stood; with `skip` from now on."""
        body = omit_none(skip=skip)
        return write(f"{_WEBHOOK}/enable", webhook_id, answer=results.Webhook, body=body, recorded=False)

    @operation
    def delete_webhook(self, webhook_id: str, *, reason: str | None = None) -> Call[results.Webhook]:
        """End it for good."""
        body = omit_none(reason=reason)
        return write(f"{_WEBHOOK}/delete", webhook_id, answer=results.Webhook, body=body, recorded=False)

    @operation
    def test_webhook(self, webhook_id: str) -> Call[results.Delivery]:
        """Have a test event sent."""
        return write(f"{_WEBHOOK}/test", webhook_id, answer=results.Delivery, body={}, recorded=False)

    @listing
    def list_deliveries(
        self, webhook_id: str, *, status: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> PageCall[results.DeliveriesPage, results.DeliveryItem]:
        """What it was told and what waits, with every try, the newest first."""
        call = read(
            f"{_WEBHOOK}/deliveries",
            webhook_id,
            answer=results.DeliveriesPage,
            status=status,
            cursor=cursor,
            limit=limit,
        )
        return PageCall(call, lambda page: page.deliveries, lambda page: page.next_cursor)

    @operation
    def redeliver(self, webhook_id: str, delivery_id: str) -> Call[results.Delivery]:
        """Send an event once more, under the same id."""
        path = f"{_WEBHOOK}/deliveries/{{}}/redeliver"
        return write(path, webhook_id, delivery_id, answer=results.Delivery, body={}, recorded=False)
