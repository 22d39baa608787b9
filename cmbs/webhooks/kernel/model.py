"""Webhooks as values: what an endpoint is told, what it wants to be told, and how often it is tried. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.spi.journal import JournalPlace

MAX_URL_LENGTH = 2_048
MAX_ID_LENGTH = 128
MAX_DESCRIPTION_LENGTH = 500
# Of each filter.
MAX_FILTER_VALUES = 100
MAX_FILTER_LENGTH = 512
# An event is tried so often before it is given up; by hand it can be tried again.
MAX_ATTEMPTS = 10
# So many events wait for one endpoint at most. What comes after them waits in the ledger, where it is anyway.
MAX_PENDING = 500
# So many events that are over are listed; of each, so many tries. All are in the stream.
MAX_SETTLED = 500
MAX_ATTEMPTS_LISTED = 20
# So many damaged streams are told of.
MAX_CORRUPTIONS = 1_000
MAX_EVENTS_AT_ONCE = 100
# What is said of one event.
MAX_DATA_BYTES = 65_536
# An endpoint that failed for so long without one success is disabled.
DISABLED_AFTER_MS = 5 * 24 * 3_600_000
MIN_ATTEMPTS_BEFORE_DISABLING = 10
# How long the secret before the newest one can sign beside it.
MAX_OVERLAP_MS = 7 * 24 * 3_600_000
# How far ahead a try can be put off, and how long one can take.
MAX_DELAY_MS = 2 * 24 * 3_600_000
MAX_LEASE_MS = 10 * 60_000
MAX_ERROR_LENGTH = 300
# Where an endpoint says that it is gone for good.
GONE = 410
_OK = range(200, 300)
_ID = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_ID_LENGTH - 1}}}")
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\]")


class EventType(StrEnum):
    """What an endpoint can be told."""

    GATE_OPENED = "gate.opened"
    APPROVAL_WANTED = "approval.wanted"
    SESSION_CONCLUDED = "session.concluded"
    SESSION_CONTRADICTION = "session.contradiction"
    LEDGER_CORRUPT = "ledger.corrupt"
    # Only when an operator asks for it; it need not be subscribed to.
    TEST = "webhook.test"


SUBSCRIBABLE = tuple(each for each in EventType if each is not EventType.TEST)


class Filters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an endpoint wants of its events. Where nothing is named, all; of streams, those of either list."""

    session_ids: tuple[str, ...] = ()
    space_ids: tuple[str, ...] = ()
    # All of them must be labels of the session, or of the case.
    labels: dict[str, str] = {}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator registers. It does not change: another endpoint is another webhook."""

    webhook_id: str
    url: str
    # Sorted, each once.
    events: tuple[str, ...]
    filters: Filters = Filters()
    description: str = ""


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place in the journal of the log."""

    position: int
    stream_id: str = ""
    seq: int = -1

    @property
    def journal_place(self) -> JournalPlace:
        """As journals have it."""
        return JournalPlace(self.position, self.stream_id, self.seq)


def place_of(place: JournalPlace) -> Place:
    """A place of a journal, as it is recorded."""
    return Place(*place)


class EventNote(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that happened, as it is told: where it stands in the ledger, and `data`, a small canonical object."""

    type: EventType
    stream_id: str
    seq: int
    ts: str
    data: msgspec.Raw


class DisabledBecause(StrEnum):
    """Why an endpoint is told nothing."""

    OPERATOR = "operator"
    # It answered 410.
    GONE = "gone"
    # It failed for days.
    FAILING = "failing"


class Settled(StrEnum):
    """How it ended."""

    DELIVERED = "delivered"
    FAILED = "failed"


class Attempt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One try. Without a status, no answer came; `error` says what is known of that."""

    number: int
    ts: str
    status: int | None
    duration_ms: int | None
    error: str


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A try under way: which process it is of, and until when no other may begin one."""

    number: int
    holder: str
    ts: str
    until: str


class Delivery(msgspec.Struct, frozen=True):
    """An event on its way to an endpoint, or there, or given up."""

    delivery_id: str
    event: EventNote
    # When it was found.
    ts: str
    # When it may be tried next; None once it is over.
    next_at: str | None
    # Tries that began, and those of them since it was last asked for.
    n_attempts: int = 0
    n_recent: int = 0
    # The newest of those that ended.
    attempts: tuple[Attempt, ...] = ()
    lease: Lease | None = None
    settled: Settled | None = None

    def is_due(self, now: str) -> bool:
        """Whether a try may begin."""
        if self.next_at is None or self.next_at > now:
            return False
        return self.lease is None or self.lease.until <= now


class Subject(NamedTuple):
    """What filters go by."""

    session_id: str | None = None
    space_id: str | None = None
    # None where they cannot be known.
    labels: dict[str, str] | None = None


def name_delivery(webhook_id: str, event: EventNote, event_id: str = "") -> str:
    """The id of a delivery: the same for the same event, and for a test by the entry that asks for it."""
    parts = (webhook_id, event.type, event.stream_id, str(event.seq), event_id)
    text = "\x00".join(f"{len(part)}:{part}" for part in parts)
    return f"msg_{sha256(text.encode()).hexdigest()[:32]}"


def is_wanted(settings: Settings, kind: EventType, subject: Subject) -> bool:
    """Whether an endpoint wants to be told.

    Damage is told where the labels of the stream cannot be read.
    """
    filters = settings.filters
    if kind not in settings.events:
        return False
    if (filters.session_ids or filters.space_ids) and not (
        subject.session_id in filters.session_ids or subject.space_id in filters.space_ids
    ):
        return False
    return subject.labels is None or filters.labels.items() <= subject.labels.items()


def is_success(status: int | None) -> bool:
    """Whether an answer says that the event was taken."""
    return status is not None and status in _OK


# --- validation -------------------------------------------------------------------------------------------------------


def validate_settings(settings: Settings) -> Settings:
    """The settings in the one form that is recorded; InvalidRequest names the field that makes no sense."""
    if _ID.fullmatch(settings.webhook_id) is None:
        raise InvalidRequest(
            f"`webhook_id` must be 1 to {MAX_ID_LENGTH} letters, digits, dots, dashes and underscores",
            {"field": "webhook_id", "found": settings.webhook_id[:MAX_ID_LENGTH]},
        )
    split_url(settings.url)
    accepted = [each.value for each in SUBSCRIBABLE]
    for event in settings.events:
        if event not in accepted:
            raise InvalidRequest(
                f"there is no event `{event[:MAX_ID_LENGTH]}`; there are {', '.join(accepted)}",
                {"field": "events", "found": event[:MAX_ID_LENGTH], "accepted": accepted},
            )
    if not settings.events:
        raise InvalidRequest("name at least one event", {"field": "events", "accepted": accepted})
    if len(settings.description) > MAX_DESCRIPTION_LENGTH:
        raise LimitExceeded(
            "description_length", MAX_DESCRIPTION_LENGTH, len(settings.description), field="description"
        )
    return msgspec.structs.replace(
        settings, events=tuple(sorted(set(settings.events))), filters=_validate_filters(settings.filters)
    )


def split_url(url: str) -> SplitResult:
    """The parts of an address that can be sent to; InvalidRequest where it is none.

    No user, password or fragment: credentials do not belong there, and the other is never sent.
    """
    problem = None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    if len(url) > MAX_URL_LENGTH:
        problem = f"at most {MAX_URL_LENGTH} characters"
    elif _UNSAFE.search(url) or parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        problem = "an absolute `https` or `http` address, in ASCII"
    elif parts.username is not None or parts.password is not None:
        problem = "an address without a user and password"
    elif parts.fragment:
        problem = "an address without a fragment"
    if problem is not None:
        raise InvalidRequest(f"`url` must be {problem}", {"field": "url", "accepted": problem})
    return parts


def _validate_filters(filters: Filters) -> Filters:
    texts = [*filters.session_ids, *filters.space_ids, *filters.labels, *filters.labels.values()]
    count = max(len(filters.session_ids), len(filters.space_ids), len(filters.labels))
    if count > MAX_FILTER_VALUES:
        raise LimitExceeded("filter_values", MAX_FILTER_VALUES, count, field="filters")
    longest = max(map(len, texts), default=0)
    if longest > MAX_FILTER_LENGTH:
        raise LimitExceeded("filter_length", MAX_FILTER_LENGTH, longest, field="filters")
    return Filters(
        tuple(sorted(set(filters.session_ids))),
        tuple(sorted(set(filters.space_ids))),
        dict(sorted(filters.labels.items())),
    )
