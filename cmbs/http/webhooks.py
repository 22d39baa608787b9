"""Webhooks over HTTP: registered, looked at and ended by operators, and what was delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from cmbs.errors import ErrorCode, InvalidRequest
from cmbs.http import webhook_schemas as schemas
from cmbs.http.exchange import Request, Response, cursor_of, from_cursor, whole_number
from cmbs.http.operation import CURSOR, LIMIT, Operation, Parameter
from cmbs.http.spaces.reading import PageSize, require_operator
from cmbs.identity import Reach, Scope
from cmbs.messages import Actor
from cmbs.webhooks.kernel.events import Webhook
from cmbs.webhooks.kernel.model import Delivery, Filters, Settings
from cmbs.webhooks.kernel.payload import write_body
from cmbs.webhooks.registry import Registered, WebhookRegistry

_ENCODE = msgspec.json.Encoder().encode
_CREATED = 201
_STATUSES = ("pending", "delivered", "failed")
_ERRORS = (ErrorCode.STORE_UNAVAILABLE, ErrorCode.LEDGER_CORRUPT, ErrorCode.LIMIT_EXCEEDED)
_OF_ONE = (*_ERRORS, ErrorCode.RECORD_NOT_FOUND)
_WRITE = (*_OF_ONE, ErrorCode.CONFLICT)
_STATUS = Parameter("status", "Only those that stand so.", {"type": "string", "enum": list(_STATUSES)}, "pending")


def _describe_operation(
    method: str,
    path: str,
    name: str,
    summary: str,
    description: str,
    response: type,
    body: type | None = None,
    **more: Any,
) -> Operation:
    return Operation(
        method,
        f"/v1/webhooks{path}",
        name,
        summary,
        f"{description} For operators.",
        response,
        body,
        scope=Scope.SPACES_READ if body is None else Scope.SPACES_OPERATE,
        reach=Reach.ALL,
        recorded=False,
        **more,
    )


WEBHOOK_OPERATIONS = (
    _describe_operation(
        "POST",
        "",
        "create_webhook",
        "Register an endpoint that is told what happens",
        "CREATE_WEBHOOK. From now on, it is sent the events that it names, signed after Standard Webhooks. The answer"
        " has the secret, this once.",
        schemas.WebhookSecretResponse,
        schemas.CreateWebhookRequest,
        status=_CREATED,
        errors=(*_ERRORS, ErrorCode.CONFLICT),
    ),
    _describe_operation(
        "GET",
        "",
        "list_webhooks",
        "List webhooks",
        "By id. Those that were deleted are left out.",
        schemas.WebhooksPage,
        query=(CURSOR, LIMIT),
        errors=_ERRORS,
    ),
    _describe_operation(
        "GET",
        "/{webhook_id}",
        "get_webhook",
        "A webhook",
        "Where it stands, and why it is told nothing if that is so.",
        schemas.WebhookResponse,
        errors=_OF_ONE,
    ),
    _describe_operation(
        "POST",
        "/{webhook_id}/rotate",
        "rotate_webhook_secret",
        "Make a new secret",
        "ROTATE_SECRET. Requests are signed with both for some time, so that a receiver can change over.",
        schemas.WebhookSecretResponse,
        schemas.RotateSecretRequest,
        errors=_WRITE,
    ),
    _describe_operation(
        "POST",
        "/{webhook_id}/disable",
        "disable_webhook",
        "Tell an endpoint nothing for now",
        "DISABLE_WEBHOOK. What happens meanwhile is told once it is enabled.",
        schemas.WebhookResponse,
        schemas.DisableWebhookRequest,
        errors=_WRITE,
        body_required=False,
    ),
    _describe_operation(
        "POST",
        "/{webhook_id}/enable",
        "enable_webhook",
        "Tell an endpoint again",
        "ENABLE_WEBHOOK. From where it stood, or, with `skip`, from now on.",
        schemas.WebhookResponse,
        schemas.EnableWebhookRequest,
        errors=_WRITE,
        body_required=False,
    ),
    _describe_operation(
        "POST",
        "/{webhook_id}/delete",
        "delete_webhook",
        "End a webhook",
        "DELETE_WEBHOOK. It is told nothing any more, not even what waits. Its stream stays on record, and its id is"
        " not free again.",
        schemas.WebhookResponse,
        schemas.DeleteWebhookRequest,
        errors=_WRITE,
        body_required=False,
    ),
    _describe_operation(
        "POST",
        "/{webhook_id}/test",
        "test_webhook",
        "Send a test event",
        "ADD_EVENT. Queues an event `webhook.test`, which is sent as any other; look for it in the deliveries.",
        schemas.DeliveryResponse,
        schemas.TestWebhookRequest,
        errors=_WRITE,
        body_required=False,
    ),
    _describe_operation(
        "GET",
        "/{webhook_id}/deliveries",
        "list_deliveries",
        "What an endpoint was told, and every try",
        "What waits, and the newest of what is over, the newest first. All of it is in the stream of the webhook.",
        schemas.DeliveriesPage,
        query=(CURSOR, LIMIT, _STATUS),
        errors=_OF_ONE,
    ),
    _describe_operation(
        "POST",
        "/{webhook_id}/deliveries/{delivery_id}/redeliver",
        "redeliver",
        "Send an event once more",
        "REDELIVER. Under the same id, whether it was taken or given up; what waits is tried at once.",
        schemas.DeliveryResponse,
        schemas.RedeliverRequest,
        errors=_WRITE,
        body_required=False,
    ),
)


class WebhookRoutes:
    """The handlers. Each works in a thread: the registry waits for the store."""

    def __init__(self, registry: WebhookRegistry, page_size: PageSize) -> None:
        self._registry = registry
        self._page_size = page_size

    async def create_webhook(self, request: Request) -> Response:
        """Register an endpoint."""
        request.query()
        asked: schemas.CreateWebhookRequest = request.message
        filters = Filters(tuple(asked.filters.session_ids), tuple(asked.filters.space_ids), dict(asked.filters.labels))
        settings = Settings(asked.webhook_id, asked.url, tuple(asked.events), filters, asked.description)
        registered = await self._run(request, lambda actor: self._registry.create(settings, actor))
        location = ("location", f"webhooks/{quote(settings.webhook_id, safe='')}")
        return Response(_CREATED, self._encode_registered(registered), [location])

    async def list_webhooks(self, request: Request) -> Response:
        """A page of webhooks."""
        query, limit = self._read_page(request)
        after = from_cursor(query["cursor"], 1)[0] if "cursor" in query else ""
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
        request.query()
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
        request.query()
        name = request.params["webhook_id"]
        delivery = await self._run(request, lambda actor: self._registry.test(name, actor))
        return Response(200, _ENCODE({"delivery": _describe_delivery(delivery)}))

    async def redeliver(self, request: Request) -> Response:
        """Send something once more."""
        request.query()
        name, delivery_id = request.params["webhook_id"], request.params["delivery_id"]
        delivery = await self._run(request, lambda actor: self._registry.redeliver(name, delivery_id, actor))
        return Response(200, _ENCODE({"delivery": _describe_delivery(delivery)}))

    async def list_deliveries(self, request: Request) -> Response:
        """A page of deliveries, the newest first."""
        query, limit = self._read_page(request, "status")
        status = query.get("status")
        if status not in (None, *_STATUSES):
            raise InvalidRequest(
                f"`status` must be one of {', '.join(_STATUSES)}",
                {"parameter": "status", "field": "status", "accepted": list(_STATUSES)},
            )
        before = tuple(from_cursor(query["cursor"], 2)) if "cursor" in query else None
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

    def _read_page(self, request: Request, *names: str) -> tuple[dict[str, str], int]:
        query = request.query("cursor", "limit", *names)
        return query, self._page_size(whole_number("limit", query["limit"]) if "limit" in query else None)

    async def _answer(self, request: Request, act: Callable[[str, Actor], Webhook]) -> Response:
        request.query()
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
