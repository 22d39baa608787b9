"""What may be recorded of a webhook that is there: every message is checked against its state. Pure."""

from __future__ import annotations

import re

from cmbs.errors import Conflict, InvalidRequest, LimitExceeded, RecordNotFound
from cmbs.ledger import canonical, replay
from cmbs.ledger.instants import later
from cmbs.webhooks.kernel.events import (
    AddEvent,
    BeginAttempt,
    DeleteWebhook,
    DisableWebhook,
    EnableWebhook,
    EndAttempt,
    FindEvents,
    Redeliver,
    RotateSecret,
    Webhook,
    WebhookMessage,
    WebhookStamp,
)
from cmbs.webhooks.kernel.model import (
    MAX_CORRUPTIONS,
    MAX_DATA_BYTES,
    MAX_DELAY_MS,
    MAX_DESCRIPTION_LENGTH,
    MAX_ERROR_LENGTH,
    MAX_EVENTS_AT_ONCE,
    MAX_ID_LENGTH,
    MAX_LEASE_MS,
    MAX_OVERLAP_MS,
    MAX_PENDING,
    EventNote,
    EventType,
    Place,
    name_delivery,
)

_MARK = re.compile(r"[0-9a-f]{64}")


class Repeated(Conflict):
    """What is asked for is so already; nothing is recorded."""


def check_message(webhook: Webhook, message: WebhookMessage, stamp: WebhookStamp) -> None:
    """Whether a message may be recorded of a webhook that is there."""
    match message:
        case RotateSecret():
            _check_rotation(webhook, message, stamp)
        case DisableWebhook() | DeleteWebhook():
            _check_ending(webhook, message)
        case EnableWebhook():
            _check_enabling(webhook, message)
        case FindEvents():
            _check_found(webhook, message)
        case AddEvent(event=event):
            _check_added(webhook, event)
        case BeginAttempt():
            _check_begin(webhook, message, stamp)
        case EndAttempt():
            _check_end(webhook, message, stamp)
        case Redeliver(delivery_id=delivery_id):
            _check_redelivery(webhook, delivery_id, stamp)
        case _:
            raise TypeError("a webhook begins with its registration, once")


def _check_ending(webhook: Webhook, message: DisableWebhook | DeleteWebhook) -> None:
    if len(message.reason) > MAX_DESCRIPTION_LENGTH:
        raise LimitExceeded("reason_length", MAX_DESCRIPTION_LENGTH, len(message.reason), field="reason")
    if isinstance(message, DisableWebhook) and webhook.disabled is not None:
        raise Repeated(f"the webhook `{webhook.webhook_id}` is disabled", {"status": "disabled"})


def _check_enabling(webhook: Webhook, message: EnableWebhook) -> None:
    if webhook.disabled is None:
        raise Repeated(f"the webhook `{webhook.webhook_id}` is active", {"status": "active"})
    if message.place is not None and not _is_beyond(message.place, webhook.place):
        raise InvalidRequest("the journal is not read backwards", {"field": "place"})


def _check_rotation(webhook: Webhook, message: RotateSecret, stamp: WebhookStamp) -> None:
    if message.generation == webhook.generation:
        raise Repeated(
            f"the secret of `{webhook.webhook_id}` is of generation {webhook.generation}",
            {"generation": webhook.generation},
        )
    if message.generation != webhook.generation + 1:
        raise Conflict(
            f"the next secret of `{webhook.webhook_id}` is of generation {webhook.generation + 1}",
            {"field": "generation", "found": message.generation, "accepted": webhook.generation + 1},
        )
    check_mark(message.mark)
    _check_moment("overlap_until", message.overlap_until, stamp, MAX_OVERLAP_MS)


def _check_found(webhook: Webhook, message: FindEvents) -> None:
    _require_active(webhook)
    if message.after != webhook.place:
        raise Conflict("the journal was read further for this webhook", {"field": "after"})
    if not _is_beyond(message.place, message.after):
        raise InvalidRequest("the journal is not read backwards", {"field": "place"})
    if len(message.events) > MAX_EVENTS_AT_ONCE:
        raise LimitExceeded("events_at_once", MAX_EVENTS_AT_ONCE, len(message.events))
    _check_room(webhook, len(message.events))
    ids = [name_delivery(webhook.webhook_id, each) for each in message.events]
    known = [each for each in ids if each in webhook.pending or each in webhook.settled]
    if known or len(set(ids)) != len(ids):
        raise InvalidRequest("it finds an event twice", {"field": "events"})
    for event in message.events:
        if event.type in (EventType.TEST, EventType.LEDGER_CORRUPT) or event.type not in webhook.settings.events:
            raise InvalidRequest(f"`{event.type}` is not looked for in the journal", {"field": "events"})
        _check_note(event)


def _check_added(webhook: Webhook, event: EventNote) -> None:
    _check_note(event)
    if event.type is EventType.TEST:
        _check_room(webhook, 1)
        return
    if event.type is not EventType.LEDGER_CORRUPT or event.type not in webhook.settings.events:
        raise InvalidRequest(f"`{event.type}` is found in the journal, or not wanted", {"field": "event"})
    _require_active(webhook)
    if name_delivery(webhook.webhook_id, event) in webhook.corruptions:
        raise Repeated(f"damage at seq {event.seq} of `{event.stream_id}` was told of", {"seq": event.seq})
    if len(webhook.corruptions) >= MAX_CORRUPTIONS:
        raise LimitExceeded("corruptions", MAX_CORRUPTIONS, MAX_CORRUPTIONS + 1)
    _check_room(webhook, 1)


def _check_begin(webhook: Webhook, message: BeginAttempt, stamp: WebhookStamp) -> None:
    _require_active(webhook)
    delivery = webhook.pending.get(message.delivery_id)
    if delivery is None or not delivery.is_due(stamp.ts):
        raise Conflict(f"delivery `{message.delivery_id}` is not due, or over, or another process has it")
    if not 0 < len(message.holder) <= MAX_ID_LENGTH:
        raise LimitExceeded("holder_length", MAX_ID_LENGTH, len(message.holder), field="holder")
    _check_moment("until", message.until, stamp, MAX_LEASE_MS)


def _check_end(webhook: Webhook, message: EndAttempt, stamp: WebhookStamp) -> None:
    delivery = webhook.pending.get(message.delivery_id)
    lease = None if delivery is None else delivery.lease
    if lease is None or lease.number != message.number:
        raise Conflict(f"try {message.number} of delivery `{message.delivery_id}` is not the one under way")
    if len(message.error) > MAX_ERROR_LENGTH:
        raise LimitExceeded("error_length", MAX_ERROR_LENGTH, len(message.error))
    if message.duration_ms < 0 or (message.status is None and not message.error):
        raise InvalidRequest("a try takes no negative time, and without an answer it has an error")
    if message.retry_at is not None:
        _check_moment("retry_at", message.retry_at, stamp, MAX_DELAY_MS)


def _check_redelivery(webhook: Webhook, delivery_id: str, stamp: WebhookStamp) -> None:
    pending = webhook.pending.get(delivery_id)
    if pending is None and delivery_id not in webhook.settled:
        raise RecordNotFound("delivery", delivery_id, where=f"the newest of webhook `{webhook.webhook_id}`")
    if pending is None:
        _check_room(webhook, 1)
    elif pending.is_due(stamp.ts) or pending.lease is not None:
        raise Repeated(f"delivery `{delivery_id}` is due, or under way", {"delivery_id": delivery_id})


def _require_active(webhook: Webhook) -> None:
    if webhook.disabled is not None:
        raise Conflict(
            f"the webhook `{webhook.webhook_id}` is disabled",
            {"status": "disabled", "next": "enable it, when the endpoint works again"},
        )


def _check_room(webhook: Webhook, count: int) -> None:
    if len(webhook.pending) + count > MAX_PENDING:
        raise LimitExceeded("pending_deliveries", MAX_PENDING, len(webhook.pending) + count)


def check_mark(mark: str) -> None:
    """InvalidRequest where this can be no mark."""
    if _MARK.fullmatch(mark) is None:
        raise InvalidRequest("a mark has 64 hexadecimal digits", {"field": "mark"})


def _check_moment(field: str, moment: str, stamp: WebhookStamp, max_ms: int) -> None:
    if not replay.is_moment(moment) or moment > later(stamp.ts, max_ms):
        raise InvalidRequest(f"`{field}` must be a moment at most {max_ms} ms from now", {"field": field})


def _check_note(event: EventNote) -> None:
    if not replay.is_moment(event.ts) or not event.stream_id:
        raise InvalidRequest("an event has a stream and a moment", {"field": "event"})
    data = canonical.decode(bytes(event.data))
    if len(bytes(event.data)) > MAX_DATA_BYTES:
        raise LimitExceeded("event_bytes", MAX_DATA_BYTES, len(bytes(event.data)), field="data")
    if not isinstance(data, dict) or canonical.encode(data) != bytes(event.data):
        raise InvalidRequest("the data of an event is a canonical object", {"field": "data"})


def _is_beyond(place: Place, other: Place) -> bool:
    return place.journal_place > other.journal_place
