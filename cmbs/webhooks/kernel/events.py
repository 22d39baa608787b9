"""What is recorded in the stream of a webhook: its registration, what was found for it, and every try. Pure.

Of its secrets, nothing is recorded. `mark` is a keyed hash over the registration and the number of the newest secret:
who has no webhook key can neither make one nor tell a secret from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from cmbs.ledger import Head, StoredEntry
from cmbs.ledger.format import FORMAT
from cmbs.messages import Actor
from cmbs.spi.audit_log import WEBHOOK_PREFIX
from cmbs.webhooks.kernel.model import Delivery, DisabledBecause, EventNote, Place, Settings


class WebhookVerb(StrEnum):
    """The verbs of a webhook's stream."""

    CREATE_WEBHOOK = "CREATE_WEBHOOK"
    ROTATE_SECRET = "ROTATE_SECRET"  # noqa: S105 - a verb
    DISABLE_WEBHOOK = "DISABLE_WEBHOOK"
    ENABLE_WEBHOOK = "ENABLE_WEBHOOK"
    DELETE_WEBHOOK = "DELETE_WEBHOOK"
    FIND_EVENTS = "FIND_EVENTS"
    ADD_EVENT = "ADD_EVENT"
    BEGIN_ATTEMPT = "BEGIN_ATTEMPT"
    END_ATTEMPT = "END_ATTEMPT"
    REDELIVER = "REDELIVER"


class CreateWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new endpoint, which is told what is written from `place` on."""

    settings: Settings
    mark: str
    place: Place


class RotateSecret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another secret signs; the one before signs beside it until `overlap_until`."""

    generation: int
    mark: str
    overlap_until: str


class DisableWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint is told nothing for now."""

    reason: str = ""


class EnableWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint is told again: from where it stood, or from `place` on, without what happened before."""

    place: Place | None = None


class DeleteWebhook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The endpoint is told nothing any more, for good."""

    reason: str = ""


class FindEvents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The journal was read from `after`, where it had been read to, up to `place`, and these are to be told."""

    after: Place
    place: Place
    events: tuple[EventNote, ...] = ()


class AddEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that is no entry is to be told: damage, or a test."""

    event: EventNote


class BeginAttempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process is about to send, and none else may until then."""

    delivery_id: str
    holder: str
    until: str


class EndAttempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of a try; `retry_at` is when to try again, if that is to be."""

    delivery_id: str
    number: int
    status: int | None
    duration_ms: int
    error: str = ""
    retry_at: str | None = None


class Redeliver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Send what is over once more, or what waits at once."""

    delivery_id: str


WebhookMessage: TypeAlias = (
    CreateWebhook
    | RotateSecret
    | DisableWebhook
    | EnableWebhook
    | DeleteWebhook
    | FindEvents
    | AddEvent
    | BeginAttempt
    | EndAttempt
    | Redeliver
)
MESSAGE_OF: dict[WebhookVerb, type[WebhookMessage]] = {
    WebhookVerb.CREATE_WEBHOOK: CreateWebhook,
    WebhookVerb.ROTATE_SECRET: RotateSecret,
    WebhookVerb.DISABLE_WEBHOOK: DisableWebhook,
    WebhookVerb.ENABLE_WEBHOOK: EnableWebhook,
    WebhookVerb.DELETE_WEBHOOK: DeleteWebhook,
    WebhookVerb.FIND_EVENTS: FindEvents,
    WebhookVerb.ADD_EVENT: AddEvent,
    WebhookVerb.BEGIN_ATTEMPT: BeginAttempt,
    WebhookVerb.END_ATTEMPT: EndAttempt,
    WebhookVerb.REDELIVER: Redeliver,
}
VERB_OF: dict[type[WebhookMessage], WebhookVerb] = {kind: verb for verb, kind in MESSAGE_OF.items()}


class WebhookEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="format", tag=FORMAT):
    """The content of an entry."""

    actor: Actor
    event_id: str
    outcome: None
    payload: msgspec.Raw
    prev_event_hash: str
    seq: int
    stream_id: str
    ts: str
    verb: WebhookVerb


class WebhookStamp(NamedTuple):
    """What the outside world adds to a decision."""

    actor: Actor
    event_id: str
    ts: str


class WebhookEvent(NamedTuple):
    """A decision, ready to be written: the message, the content of its entry, and the exact bytes."""

    message: WebhookMessage
    body: WebhookEntry
    stored: StoredEntry


class WebhookCommand(NamedTuple):
    """A message on its way to a webhook, and who sends it."""

    webhook_id: str
    message: WebhookMessage
    by: Actor

    @property
    def stream_id(self) -> str:
        """The stream of the webhook."""
        return WEBHOOK_PREFIX + self.webhook_id


class Webhook(msgspec.Struct, frozen=True):
    """A webhook as its stream says it is."""

    settings: Settings
    mark: str
    created_ts: str
    created_by: Actor
    # How far the journal was read for it.
    place: Place
    head: Head
    head_event_id: str
    generation: int = 1
    # Until when the secret before the newest one signs too.
    overlap_until: str | None = None
    disabled: DisabledBecause | None = None
    disabled_reason: str = ""
    disabled_ts: str | None = None
    deleted_ts: str | None = None
    # The first failure since the last success, and how many there were.
    failing_since: str | None = None
    n_failures: int = 0
    # What waits, the oldest first; and what is over, in the order in which it ended.
    pending: dict[str, Delivery] = {}
    settled: dict[str, Delivery] = {}
    # Damage that was told of, by the id of the delivery.
    corruptions: frozenset[str] = frozenset()

    @property
    def webhook_id(self) -> str:
        """Its id."""
        return self.settings.webhook_id

    @property
    def is_active(self) -> bool:
        """Whether it is told."""
        return self.disabled is None and self.deleted_ts is None
