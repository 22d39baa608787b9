"""The webhooks of a log: registered, listed, changed, and what is recorded of their deliveries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from cmbs.errors import InvalidRequest, LedgerCorrupt, LimitExceeded, RecordNotFound
from cmbs.ledger import Head
from cmbs.ledger.instants import later
from cmbs.messages import Actor, ActorKind
from cmbs.spi import AuditLog, Clock, IdSource
from cmbs.spi.audit_log import WEBHOOK_PREFIX, Append, stream_heads_of
from cmbs.spi.journal import JournalLog, JournalPlace
from cmbs.streams.server import StreamServer
from cmbs.system import RandomIds, SystemClock
from cmbs.webhooks.kernel.checking import Repeated
from cmbs.webhooks.kernel.events import (
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
    WebhookMessage,
    WebhookStamp,
)
from cmbs.webhooks.kernel.model import (
    MAX_OVERLAP_MS,
    Delivery,
    EventNote,
    Settings,
    name_delivery,
    place_of,
    validate_settings,
)
from cmbs.webhooks.kernel.payload import note_test
from cmbs.webhooks.kernel.stream import WebhookKind
from cmbs.webhooks.keys import WebhookKey
from cmbs.webhooks.sending import DEFAULT_RULES, EgressRules, Sent

MAX_WEBHOOKS = 100
DEFAULT_OVERLAP_SECONDS = 24 * 3600
_PAGE = 500
_log = logging.getLogger("cmbs.webhooks")
# What finds events and sends them is this software itself.
ENGINE = Actor(ActorKind.POLICY_ENGINE, "webhooks")


class Registered(NamedTuple):
    """A webhook, and its newest secret where it was just made: it is nowhere else."""

    webhook: Webhook
    secret: str | None


class WebhookRegistry:
    """The webhooks of a log. Methods may be called from several threads at once.

    Without a `key` there are no secrets: webhooks can be looked at and ended, and none is made or told anything.
    """

    def __init__(
        self,
        log: AuditLog,
        key: WebhookKey | None = None,
        rules: EgressRules = DEFAULT_RULES,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.log = log
        self.key = key
        self.clock = clock or SystemClock()
        ids = ids or RandomIds()
        self._rules = rules
        kind = WebhookKind(lambda command: WebhookStamp(command.by, ids.new_id(), self.clock.now()))
        self._streams: StreamServer[Webhook, WebhookCommand, Webhook] = StreamServer(
            log, kind, capacity=2 * MAX_WEBHOOKS, grouped=False
        )
        # Webhooks that were deleted are not read again.
        self._deleted: set[str] = set()

    # --- by operators ---

    def create(self, settings: Settings, by: Actor) -> Registered:
        """Register an endpoint; durable when it returns. The same registration again is the one that is there."""
        key = self._require_key()
        settings = validate_settings(settings)
        self._rules.check_url(settings.url)
        known = self._streams.peek(WEBHOOK_PREFIX + settings.webhook_id)
        count = sum(1 for _ in self.read_all())
        if known is None and count >= MAX_WEBHOOKS:
            raise LimitExceeded("webhooks", MAX_WEBHOOKS, count + 1)
        place = place_of(self._journal().journal_end())
        message = CreateWebhook(settings, key.mark(settings, 1), place)
        try:
            webhook = self._perform(settings.webhook_id, message, by)
        except Repeated:
            return Registered(self.get(settings.webhook_id), None)
        return Registered(webhook, key.derive_secret(webhook.webhook_id, 1))

    def rotate(
        self, webhook_id: str, generation: int, by: Actor, overlap_seconds: int = DEFAULT_OVERLAP_SECONDS
    ) -> Registered:
        """Make the secret of this generation, the one after the newest; the one before signs too for some time.

        Asked for the newest again, nothing changes, and the secret is not shown again.
        """
        key = self._require_key()
        if not 0 <= overlap_seconds * 1_000 <= MAX_OVERLAP_MS:
            raise InvalidRequest(
                f"`overlap_seconds` must be from 0 to {MAX_OVERLAP_MS // 1_000}", {"field": "overlap_seconds"}
            )
        webhook = self.get(webhook_id)
        self.require_genuine(webhook)
        until = later(self.clock.now(), overlap_seconds * 1_000)
        message = RotateSecret(generation, key.mark(webhook.settings, generation), until)
        try:
            webhook = self._perform(webhook_id, message, by)
        except Repeated:
            return Registered(self.get(webhook_id), None)
        return Registered(webhook, key.derive_secret(webhook_id, generation))

    def disable(self, webhook_id: str, reason: str, by: Actor) -> Webhook:
        """Tell it nothing for now; what happens meanwhile waits in the ledger."""
        return self._perform_once(webhook_id, DisableWebhook(reason), by)

    def enable(self, webhook_id: str, by: Actor, *, skip: bool = False) -> Webhook:
        """Tell it again, from where it stood; with `skip` without what happened meanwhile."""
        place = place_of(self._journal().journal_end()) if skip else None
        if place is not None and place.journal_place <= self.get(webhook_id).place.journal_place:
            place = None
        return self._perform_once(webhook_id, EnableWebhook(place), by)

    def delete(self, webhook_id: str, reason: str, by: Actor) -> Webhook:
        """End it for good; its stream stays on record."""
        return self._perform(webhook_id, DeleteWebhook(reason), by)

    def test(self, webhook_id: str, by: Actor) -> Delivery:
        """Have a test event sent."""
        stream_id = WEBHOOK_PREFIX + webhook_id
        note = note_test(webhook_id, stream_id, self.clock.now())
        webhook = self._perform(webhook_id, AddEvent(note), by)
        return webhook.pending[name_delivery(webhook_id, note, webhook.head_event_id)]

    def redeliver(self, webhook_id: str, delivery_id: str, by: Actor) -> Delivery:
        """Have something sent once more, under the same id."""
        webhook = self._perform_once(webhook_id, Redeliver(delivery_id), by)
        return webhook.pending.get(delivery_id) or webhook.settled[delivery_id]

    def get(self, webhook_id: str) -> Webhook:
        """A webhook; RecordNotFound where there is none, or where it was deleted."""
        webhook = self._streams.peek(WEBHOOK_PREFIX + webhook_id)
        if webhook is None or webhook.deleted_ts is not None:
            raise RecordNotFound("webhook", webhook_id, where="this server")
        return webhook

    def read_all(self) -> Iterator[Webhook]:
        """All that are not deleted, by id. One that does not verify is left out, and logged."""
        after: str | None = None
        while page := stream_heads_of(self.log, WEBHOOK_PREFIX, after, _PAGE):
            for stream_id, head in page:
                webhook = self._read(stream_id, head)
                if webhook is not None:
                    yield webhook
            after = page[-1][0]

    def require_genuine(self, webhook: Webhook) -> None:
        """InvalidRequest where a webhook was not registered with the key of this server."""
        if self.key is not None and not self.key.accepts(webhook):
            raise InvalidRequest(
                f"the webhook `{webhook.webhook_id}` was not registered with the webhook key of this server, so it is"
                " told nothing",
                {"webhook_id": webhook.webhook_id, "next": "start the server with that key, or register it again"},
            )

    # --- by what delivers ---

    def record_found(self, webhook: Webhook, place: JournalPlace, events: Sequence[EventNote]) -> Webhook:
        """Record how far the journal was read for a webhook, and what it is to be told; Conflict where it was read."""
        return self._perform(webhook.webhook_id, FindEvents(webhook.place, place_of(place), tuple(events)), ENGINE)

    def record_corruption(self, webhook_id: str, note: EventNote) -> None:
        """Have damage told, if it was not told before."""
        with suppress(Repeated):
            self._perform(webhook_id, AddEvent(note), ENGINE)

    def begin(self, webhook_id: str, delivery_id: str, holder: str, lease_ms: int) -> Webhook:
        """Take the right to send something; Conflict where another process has it, or it is not due."""
        until = later(self.clock.now(), lease_ms)
        return self._perform(webhook_id, BeginAttempt(delivery_id, holder, until), ENGINE)

    def end(self, webhook_id: str, delivery_id: str, number: int, sent: Sent, retry_ms: int) -> Webhook:
        """Record what came of a try, and when the next is due if one is needed."""
        retry_at = later(self.clock.now(), retry_ms)
        message = EndAttempt(delivery_id, number, sent.status, sent.duration_ms, sent.error, retry_at)
        return self._perform(webhook_id, message, ENGINE)

    def find_behind(self) -> list[str]:
        """The first few webhooks of which the log lacks what this process has seen of them."""
        return self._streams.find_behind()

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Refuse a webhook until the log contains this head, which was recorded of it and which the log lacks."""
        self._streams.expect_head(stream_id, head)

    def refuse_writes(self, reason: str | None) -> None:
        """Record nothing while the database lacks what was signed; None takes writes again."""
        self._streams.refuse_writes(reason)

    def observe_appends(self, observer: Callable[[Sequence[Append]], None]) -> None:
        """Tell `observer` of the entries that this process writes, once they are durable."""
        self._streams.observe_appends(observer)

    def close(self) -> None:
        """Let go of threads; the log stays open."""
        self._streams.close()

    def _perform(self, webhook_id: str, message: WebhookMessage, by: Actor) -> Webhook:
        return self._streams.perform(WebhookCommand(webhook_id, message, by))

    def _perform_once(self, webhook_id: str, message: WebhookMessage, by: Actor) -> Webhook:
        """As `_perform`; where it is so already, as it is."""
        try:
            return self._perform(webhook_id, message, by)
        except Repeated:
            return self.get(webhook_id)

    def _read(self, stream_id: str, head: Head) -> Webhook | None:
        if stream_id in self._deleted:
            return None
        webhook = self._streams.find_cached(stream_id)
        try:
            if webhook is None or webhook.head != head:
                webhook = self._streams.peek(stream_id)
        except LedgerCorrupt as exc:
            _log.error("a webhook is told nothing: %s", exc)
            return None
        if webhook is not None and webhook.deleted_ts is not None:
            self._deleted.add(stream_id)
            return None
        return webhook

    def _require_key(self) -> WebhookKey:
        if self.key is None:
            raise InvalidRequest(
                "this server has no webhook key, so it can make no secrets",
                {"next": "start it with `cmbs serve --webhook-key FILE`"},
            )
        return self.key

    def _journal(self) -> JournalLog:
        if not isinstance(self.log, JournalLog):
            raise InvalidRequest("this store cannot tell what is written to all streams, so it has no webhooks")
        return self.log
