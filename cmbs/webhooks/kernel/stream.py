"""The stream of a webhook: what each message does to it. Pure; deciding again must give the recorded bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from cmbs.errors import Conflict, InvalidRequest, RecordNotFound
from cmbs.ledger import GENESIS, Head, StoredEntry, replay, seal
from cmbs.ledger.canonical import encode_frame
from cmbs.ledger.instants import later
from cmbs.spi.audit_log import WEBHOOK_PREFIX, Append
from cmbs.webhooks.kernel.checking import Repeated, check_mark, check_message
from cmbs.webhooks.kernel.events import (
    MESSAGE_OF,
    VERB_OF,
    AddEvent,
    BeginAttempt,
    CreateWebhook,
    DeleteWebhook,
    DisableWebhook,
    EnableWebhook,
    EndAttempt,
    FindEvents,
    Redeliver,
    RotateSecret,
    Webhook,
    WebhookCommand,
    WebhookEntry,
    WebhookEvent,
    WebhookMessage,
    WebhookStamp,
)
from cmbs.webhooks.kernel.model import (
    DISABLED_AFTER_MS,
    GONE,
    MAX_ATTEMPTS,
    MAX_ATTEMPTS_LISTED,
    MAX_SETTLED,
    MIN_ATTEMPTS_BEFORE_DISABLING,
    Attempt,
    Delivery,
    DisabledBecause,
    EventNote,
    EventType,
    Lease,
    Settled,
    is_success,
    name_delivery,
    validate_settings,
)

_LOST = "no outcome is on record: the process that tried has ended, or was too slow"
_HERE = "this server"


class WebhookFolding:
    """How a webhook follows from the entries of its stream."""

    def owns(self, stream_id: str) -> bool:
        """Every stream under the prefix of webhooks."""
        return stream_id.startswith(WEBHOOK_PREFIX)

    def not_found(self, stream_id: str) -> RecordNotFound:
        """No such webhook."""
        return RecordNotFound("webhook", stream_id.removeprefix(WEBHOOK_PREFIX), where=_HERE)

    def catch_up(self, stream_id: str, state: Webhook | None, entries: Sequence[StoredEntry]) -> Webhook | None:
        """Every message is decided again."""
        return replay.catch_up(_RULES, stream_id, state, entries)

    def fold(self, state: Webhook | None, stored: StoredEntry) -> tuple[Webhook, Append]:
        """The webhook after one entry more."""
        event = read_webhook_event(stored)
        return evolve(state, event), _append_of(event)


class WebhookKind(WebhookFolding):
    """The streams of webhooks, and what commands come to: the webhook after it."""

    def __init__(self, stamp: Callable[[WebhookCommand], WebhookStamp]) -> None:
        self._stamp = stamp

    def opens(self, command: WebhookCommand) -> bool:
        """A registration does."""
        return isinstance(command.message, CreateWebhook)

    def decide(self, state: Webhook | None, command: WebhookCommand) -> tuple[Webhook, tuple[Webhook, Append]]:
        """Decide on the newest state."""
        event = decide(command.stream_id, state, command.message, self._stamp(command))
        after = evolve(state, event)
        return after, (after, _append_of(event))


# --- deciding ---------------------------------------------------------------------------------------------------------


def decide(stream_id: str, webhook: Webhook | None, message: WebhookMessage, stamp: WebhookStamp) -> WebhookEvent:
    """The event that a message leads to; a refusal is raised, and not recorded."""
    if isinstance(message, CreateWebhook):
        message = _decide_create(stream_id, webhook, message)
    elif webhook is None or webhook.deleted_ts is not None:
        raise RecordNotFound("webhook", stream_id.removeprefix(WEBHOOK_PREFIX), where=_HERE)
    else:
        check_message(webhook, message, stamp)
    seq, previous = (0, GENESIS) if webhook is None else (webhook.head.seq + 1, webhook.head.event_hash)
    body = WebhookEntry(
        stamp.actor,
        stamp.event_id,
        None,
        msgspec.Raw(encode_frame(message)),
        previous.hex(),
        seq,
        stream_id,
        stamp.ts,
        VERB_OF[type(message)],
    )
    return WebhookEvent(message, body, seal(body))


def _decide_create(stream_id: str, webhook: Webhook | None, message: CreateWebhook) -> CreateWebhook:
    settings = validate_settings(message.settings)
    webhook_id = settings.webhook_id
    if WEBHOOK_PREFIX + webhook_id != stream_id:
        raise InvalidRequest(f"it registers `{webhook_id}`, which is not that of its stream", {"field": "webhook_id"})
    if webhook is not None:
        if webhook.settings == settings and webhook.deleted_ts is None:
            raise Repeated(f"the webhook `{webhook_id}` is registered", {"webhook_id": webhook_id})
        said = "was deleted" if webhook.deleted_ts is not None else "is registered with other settings"
        raise Conflict(
            f"the webhook `{webhook_id}` {said}",
            {"field": "webhook_id", "found": webhook_id, "next": "register it under another id"},
        )
    check_mark(message.mark)
    return replace(message, settings=settings)


# --- evolving ---------------------------------------------------------------------------------------------------------


def evolve(webhook: Webhook | None, event: WebhookEvent) -> Webhook:
    """The webhook after an event."""
    message, body = event.message, event.body
    head = Head(body.seq, event.stored.event_hash)
    if isinstance(message, CreateWebhook):
        return Webhook(message.settings, message.mark, body.ts, body.actor, message.place, head, body.event_id)
    if webhook is None:
        raise TypeError("a webhook begins with its registration")
    return replace(_apply(webhook, message, body), head=head, head_event_id=body.event_id)


def _apply(webhook: Webhook, message: WebhookMessage, body: WebhookEntry) -> Webhook:
    match message:
        case RotateSecret():
            return replace(
                webhook, generation=message.generation, mark=message.mark, overlap_until=message.overlap_until
            )
        case DisableWebhook(reason=reason):
            return _disable(webhook, DisabledBecause.OPERATOR, reason, body.ts)
        case EnableWebhook(place=place):
            return replace(
                webhook,
                disabled=None,
                disabled_reason="",
                disabled_ts=None,
                failing_since=None,
                n_failures=0,
                place=place or webhook.place,
            )
        case DeleteWebhook():
            # What waits is not told any more.
            return replace(webhook, deleted_ts=body.ts, pending={})
        case FindEvents(place=place, events=events):
            found = (_queue(name_delivery(webhook.webhook_id, each), each, body.ts) for each in events)
            pending = {**webhook.pending, **{each.delivery_id: each for each in found}}
            return replace(webhook, place=place, pending=pending)
        case _:
            return _apply_to_delivery(webhook, message, body)


def _apply_to_delivery(webhook: Webhook, message: WebhookMessage, body: WebhookEntry) -> Webhook:
    match message:
        case AddEvent(event=note):
            return _add(webhook, note, body)
        case BeginAttempt():
            return _begin(webhook, message, body)
        case EndAttempt():
            return _end(webhook, message, body.ts)
        case Redeliver():
            return _redeliver(webhook, message, body.ts)
        case _:
            raise TypeError("a webhook begins with its registration, once")


def _queue(delivery_id: str, event: EventNote, ts: str) -> Delivery:
    return Delivery(delivery_id, event, ts, ts)


def _add(webhook: Webhook, event: EventNote, body: WebhookEntry) -> Webhook:
    is_test = event.type is EventType.TEST
    delivery_id = name_delivery(webhook.webhook_id, event, body.event_id if is_test else "")
    pending = {**webhook.pending, delivery_id: _queue(delivery_id, event, body.ts)}
    corruptions = webhook.corruptions if is_test else webhook.corruptions | {delivery_id}
    return replace(webhook, pending=pending, corruptions=corruptions)


def _disable(webhook: Webhook, because: DisabledBecause, reason: str, ts: str) -> Webhook:
    return replace(webhook, disabled=because, disabled_reason=reason, disabled_ts=ts)


def _begin(webhook: Webhook, message: BeginAttempt, body: WebhookEntry) -> Webhook:
    delivery = webhook.pending[message.delivery_id]
    lost = delivery.lease
    attempts = delivery.attempts
    if lost is not None:
        attempts = (*attempts, Attempt(lost.number, lost.ts, None, None, _LOST))[-MAX_ATTEMPTS_LISTED:]
    begun = replace(
        delivery,
        n_attempts=delivery.n_attempts + 1,
        n_recent=delivery.n_recent + 1,
        attempts=attempts,
        lease=Lease(delivery.n_attempts + 1, message.holder, body.ts, message.until),
    )
    return replace(webhook, pending={**webhook.pending, begun.delivery_id: begun})


def _end(webhook: Webhook, message: EndAttempt, ts: str) -> Webhook:
    delivery = webhook.pending[message.delivery_id]
    began = ts if delivery.lease is None else delivery.lease.ts
    attempt = Attempt(message.number, began, message.status, message.duration_ms, message.error)
    delivery = replace(delivery, attempts=(*delivery.attempts, attempt)[-MAX_ATTEMPTS_LISTED:], lease=None)
    if is_success(message.status):
        return replace(_settle(webhook, delivery, Settled.DELIVERED), failing_since=None, n_failures=0)
    since, n_failures = webhook.failing_since or began, webhook.n_failures + 1
    webhook = replace(webhook, failing_since=since, n_failures=n_failures)
    if message.retry_at is None or delivery.n_recent >= MAX_ATTEMPTS or message.status == GONE:
        webhook = _settle(webhook, delivery, Settled.FAILED)
    else:
        waiting = replace(delivery, next_at=message.retry_at)
        webhook = replace(webhook, pending={**webhook.pending, waiting.delivery_id: waiting})
    if webhook.disabled is not None:
        return webhook
    if message.status == GONE:
        return _disable(webhook, DisabledBecause.GONE, "the endpoint answered 410: it is gone", ts)
    if n_failures >= MIN_ATTEMPTS_BEFORE_DISABLING and ts >= later(since, DISABLED_AFTER_MS):
        said = f"{n_failures} tries failed since {since}, and none succeeded"
        return _disable(webhook, DisabledBecause.FAILING, said, ts)
    return webhook


def _settle(webhook: Webhook, delivery: Delivery, how: Settled) -> Webhook:
    pending = {name: each for name, each in webhook.pending.items() if name != delivery.delivery_id}
    over = {**webhook.settled, delivery.delivery_id: replace(delivery, settled=how, next_at=None)}
    newest = dict(list(over.items())[-MAX_SETTLED:])
    return replace(webhook, pending=pending, settled=newest)


def _redeliver(webhook: Webhook, message: Redeliver, ts: str) -> Webhook:
    known = webhook.pending.get(message.delivery_id) or webhook.settled[message.delivery_id]
    again = replace(known, next_at=ts, n_recent=0, settled=None)
    settled = {name: each for name, each in webhook.settled.items() if name != known.delivery_id}
    return replace(webhook, pending={**webhook.pending, known.delivery_id: again}, settled=settled)


# --- the stream -------------------------------------------------------------------------------------------------------


# Made here, by one thread: msgspec crashes where several meet a type for the first time.
_ENTRIES = msgspec.json.Decoder(WebhookEntry)
_MESSAGES = {verb: msgspec.json.Decoder(kind) for verb, kind in MESSAGE_OF.items()}


def read_webhook_event(stored: StoredEntry) -> WebhookEvent:
    """The event that stored bytes hold; ValueError where they hold none."""
    body = _ENTRIES.decode(stored.raw)
    return WebhookEvent(_MESSAGES[body.verb].decode(body.payload), body, stored)


def _decide_again(stream_id: str, webhook: Webhook | None, recorded: WebhookEvent) -> WebhookEvent:
    body = recorded.body
    return decide(stream_id, webhook, recorded.message, WebhookStamp(body.actor, body.event_id, body.ts))


_RULES = replay.ReplayRules(read_webhook_event, _decide_again, evolve)


def _append_of(event: WebhookEvent) -> Append:
    body = event.body
    return Append(body.stream_id, body.seq, body.event_id, bytes.fromhex(body.prev_event_hash), event.stored, body.ts)
