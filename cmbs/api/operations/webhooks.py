"""The operations on webhooks."""

from __future__ import annotations

from typing import Any

from cmbs.api import webhooks as schemas
from cmbs.api.operation import Operation, Parameter
from cmbs.api.parameters import CURSOR, LIMIT
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Reach, Scope

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
