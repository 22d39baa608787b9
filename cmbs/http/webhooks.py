"""Webhooks over HTTP: registered, looked at and ended by operators, and what was delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from cmbs.api import webhooks as schemas
from cmbs.http.exchange import Request, Response, build_answer, cursor_of, encode_answer
from cmbs.http.spaces.reading import PageSize, require_operator
from cmbs.messages import Actor
from cmbs.webhooks.kernel.events import Webhook
from cmbs.webhooks.kernel.model import Delivery, Filters, Settings
from cmbs.webhooks.kernel.payload import write_body
from cmbs.webhooks.registry import Registered, WebhookRegistry

_CREATED = 201


class WebhookRoutes:
    """The handlers. Each works in a thread: the registry waits for the store."""

    def __init__(self, registry: WebhookRegistry, page_size: PageSize) -> None:
        self._registry = registry
        self._page_size = page_size

    async def create_webhook(self, request: Request) -> Response:
        """Register an endpoint."""
        asked: schemas.CreateWebhookRequest = request.message
        filters = Filters(tuple(asked.filters.session_ids), tuple(asked.filters.space_ids), dict(asked.filters.labels))
        settings = Settings(asked.webhook_id, asked.url, tuple(asked.events), filters, asked.description)
        registered = await self._run(request, lambda actor: self._registry.create(settings, actor))
        location = ("location", f"webhooks/{quote(settings.webhook_id, safe='')}")
        return Response(_CREATED, self._encode_registered(registered), [location])

    async def list_webhooks(self, request: Request) -> Response:
        """A page of webhooks."""
        limit, after = self._page_size(request.query.get("limit")), request.after or ""
        found = await self._run(
            request, lambda _: [each for each in self._registry.read_all() if each.webhook_id > after]
        )
        found.sort(key=lambda each: each.webhook_id)
        more = cursor_of(found[limit - 1].webhook_id) if len(found) > limit else None
        webhooks = [self._describe(each) for each in found[:limit]]
        return Response(200, encode_answer(schemas.WebhooksPage(webhooks, more)))

    async def get_webhook(self, request: Request) -> Response:
        """A webhook."""
        return await self._answer(request, lambda name, _: self._registry.get(name))

    async def rotate_webhook_secret(self, request: Request) -> Response:
        """Make a new secret."""
        asked: schemas.RotateSecretRequest = request.message
        name = request.params["webhook_id"]
        registered = await self._run(
            request, lambda actor: self._registry.rotate(name, asked.generation, actor, asked.overlap_seconds)
        )
        return Response(200, self._encode_registered(registered))

    async def disable_webhook(self, request: Request) -> Response:
        """Tell it nothing for now."""
        asked: schemas.DisableWebhookRequest = request.message
        return await self._answer(request, lambda name, actor: self._registry.disable(name, asked.reason, actor))

    async def enable_webhook(self, request: Request) -> Response:
        """Tell it again."""
        asked: schemas.EnableWebhookRequest = request.message
        return await self._answer(request, lambda name, actor: self._registry.enable(name, actor, skip=asked.skip))

    async def delete_webhook(self, request: Request) -> Response:
        """End it."""
        asked: schemas.DeleteWebhookRequest = request.message
        return await self._answer(request, lambda name, actor: self._registry.delete(name, asked.reason, actor))

    async def test_webhook(self, request: Request) -> Response:
        """Queue a test event."""
        name = request.params["webhook_id"]
        delivery = await self._run(request, lambda actor: self._registry.test(name, actor))
        return Response(200, encode_answer(schemas.DeliveryResponse(_describe_delivery(delivery))))

    async def redeliver(self, request: Request) -> Response:
        """Send something once more."""
        name, delivery_id = request.params["webhook_id"], request.params["delivery_id"]
        delivery = await self._run(request, lambda actor: self._registry.redeliver(name, delivery_id, actor))
        return Response(200, encode_answer(schemas.DeliveryResponse(_describe_delivery(delivery))))

    async def list_deliveries(self, request: Request) -> Response:
        """A page of deliveries, the newest first."""
        limit, status = self._page_size(request.query.get("limit")), request.query.get("status")
        parts = request.after_of(2)
        before = None if parts is None else tuple(parts)
        webhook = await self._run(request, lambda _: self._registry.get(request.params["webhook_id"]))
        found = [
            each
            for each in (*webhook.pending.values(), *webhook.settled.values())
            if status in (None, _status_of(each)) and (before is None or _place_of(each) < before)
        ]
        found.sort(key=_place_of, reverse=True)
        more = cursor_of(*_place_of(found[limit - 1])) if len(found) > limit else None
        deliveries = [_describe_delivery(each) for each in found[:limit]]
        return Response(200, encode_answer(schemas.DeliveriesPage(deliveries, more)))

    async def _answer(self, request: Request, act: Callable[[str, Actor], Webhook]) -> Response:
        name = request.params["webhook_id"]
        webhook = await self._run(request, lambda actor: act(name, actor))
        return Response(200, encode_answer(schemas.WebhookResponse(self._describe(webhook))))

    async def _run(self, request: Request, act: Callable[[Actor], Any]) -> Any:
        require_operator(request.actor)
        return await asyncio.to_thread(act, request.actor)

    def _encode_registered(self, registered: Registered) -> bytes:
        secret = registered.secret
        return encode_answer(
            schemas.WebhookSecretResponse(self._describe(registered.webhook), secret, replayed=secret is None)
        )

    def _describe(self, webhook: Webhook) -> schemas.WebhookItem:
        key = self._registry.key
        status = "active" if webhook.disabled is None else "disabled"
        if key is not None and not key.accepts(webhook):
            status = "unusable"
        return build_answer(
            schemas.WebhookItem,
            webhook.settings,
            webhook,
            status=status,
            secret_generation=webhook.generation,
            created_by=webhook.created_by.id,
            n_pending=len(webhook.pending),
            audit_event_id=webhook.head_event_id,
            disabled_because=webhook.disabled,
            disabled_reason=webhook.disabled_reason or None,
        )


def _status_of(delivery: Delivery) -> str:
    return "pending" if delivery.settled is None else delivery.settled.value


def _place_of(delivery: Delivery) -> tuple[str, str]:
    return delivery.ts, delivery.delivery_id


def _describe_delivery(delivery: Delivery) -> schemas.DeliveryItem:
    attempts = [build_answer(schemas.AttemptItem, each, error=each.error or None) for each in delivery.attempts]
    return build_answer(
        schemas.DeliveryItem,
        delivery,
        type=delivery.event.type,
        status=_status_of(delivery),
        attempts=attempts,
        payload=msgspec.Raw(write_body(delivery.event)),
    )
