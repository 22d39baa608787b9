"""Webhooks over HTTP: registered, looked at and ended by operators, and what was delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from cmbs.api import webhooks as schemas
from cmbs.http.exchange import Request, Response, cursor_of
from cmbs.http.spaces.reading import PageSize, require_operator
from cmbs.messages import Actor
from cmbs.webhooks.kernel.events import Webhook
from cmbs.webhooks.kernel.model import Delivery, Filters, Settings
from cmbs.webhooks.kernel.payload import write_body
from cmbs.webhooks.registry import Registered, WebhookRegistry

_ENCODE = msgspec.json.Encoder().encode
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
        return Response(200, _ENCODE({"webhooks": webhooks, "next_cursor": more}))

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
        return Response(200, _ENCODE({"delivery": _describe_delivery(delivery)}))

    async def redeliver(self, request: Request) -> Response:
        """Send something once more."""
        name, delivery_id = request.params["webhook_id"], request.params["delivery_id"]
        delivery = await self._run(request, lambda actor: self._registry.redeliver(name, delivery_id, actor))
        return Response(200, _ENCODE({"delivery": _describe_delivery(delivery)}))

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
        return Response(200, _ENCODE({"deliveries": deliveries, "next_cursor": more}))

    async def _answer(self, request: Request, act: Callable[[str, Actor], Webhook]) -> Response:
        name = request.params["webhook_id"]
        webhook = await self._run(request, lambda actor: act(name, actor))
        return Response(200, _ENCODE({"webhook": self._describe(webhook)}))

    async def _run(self, request: Request, act: Callable[[Actor], Any]) -> Any:
        require_operator(request.actor)
        return await asyncio.to_thread(act, request.actor)

    def _encode_registered(self, registered: Registered) -> bytes:
        content: dict[str, Any] = {"webhook": self._describe(registered.webhook)}
        content |= {"replayed": True} if registered.secret is None else {"secret": registered.secret}
        return _ENCODE(content)

    def _describe(self, webhook: Webhook) -> dict[str, Any]:
        settings, key = webhook.settings, self._registry.key
        status = "active" if webhook.disabled is None else "disabled"
        if key is not None and not key.accepts(webhook):
            status = "unusable"
        optional = {
            "overlap_until": webhook.overlap_until,
            "disabled_because": webhook.disabled,
            "disabled_reason": webhook.disabled_reason or None,
            "disabled_ts": webhook.disabled_ts,
            "failing_since": webhook.failing_since,
        }
        return {
            "webhook_id": settings.webhook_id,
            "url": settings.url,
            "events": settings.events,
            "filters": settings.filters,
            "description": settings.description,
            "status": status,
            "secret_generation": webhook.generation,
            "created_ts": webhook.created_ts,
            "created_by": webhook.created_by.id,
            "n_pending": len(webhook.pending),
            "audit_event_id": webhook.head_event_id,
            **{name: value for name, value in optional.items() if value is not None},
        }


def _status_of(delivery: Delivery) -> str:
    return "pending" if delivery.settled is None else delivery.settled.value


def _place_of(delivery: Delivery) -> tuple[str, str]:
    return delivery.ts, delivery.delivery_id


def _describe_delivery(delivery: Delivery) -> dict[str, Any]:
    attempts = [
        {
            "number": each.number,
            "ts": each.ts,
            "status": each.status,
            "duration_ms": each.duration_ms,
            "error": each.error or None,
        }
        for each in delivery.attempts
    ]
    return {
        "delivery_id": delivery.delivery_id,
        "type": delivery.event.type,
        "status": _status_of(delivery),
        "ts": delivery.ts,
        "n_attempts": delivery.n_attempts,
        "attempts": attempts,
        "payload": msgspec.Raw(write_body(delivery.event)),
        **({} if delivery.next_at is None else {"next_at": delivery.next_at}),
    }
