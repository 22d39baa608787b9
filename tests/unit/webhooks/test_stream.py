"""The stream of a webhook: what each message does, what is refused, and that replay gives the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cmbs.errors import Conflict, InvalidRequest, LedgerCorrupt, LimitExceeded, RecordNotFound
from cmbs.ledger import StoredEntry, hash_entry
from cmbs.ledger.instants import later
from cmbs.messages import Actor, ActorKind
from cmbs.spi.journal import JournalPlace
from cmbs.webhooks.kernel import model
from cmbs.webhooks.kernel import stream as stream_module
from cmbs.webhooks.kernel.checking import Repeated, check_message
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
    DisabledBecause,
    EventNote,
    EventType,
    Place,
    Settings,
    Settled,
    name_delivery,
)
from cmbs.webhooks.kernel.payload import note_corruption, note_test
from cmbs.webhooks.kernel.stream import WebhookFolding, WebhookKind, decide, evolve

NOW = "2026-01-01T00:00:00.000000Z"
OPS = Actor(ActorKind.OPERATOR, "ops")
STREAM = "webhook:pager"
MARK = "ab" * 32
ALL = tuple(each.value for each in model.SUBSCRIBABLE)
SETTINGS = Settings("pager", "https://alerts.example/cmbs", ALL)
MINUTE = 60_000


class Stream:
    """A webhook that is lived through, with a clock that is told what time it is."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.now = NOW
        self.entries: list[StoredEntry] = []
        self.webhook: Webhook | None = None
        self.perform(CreateWebhook(settings, MARK, Place(0)))

    def perform(self, message: WebhookMessage) -> Webhook:
        stamp = WebhookStamp(OPS, f"event-{len(self.entries)}", self.now)
        event = decide(STREAM, self.webhook, message, stamp)
        self.webhook = evolve(self.webhook, event)
        self.entries.append(event.stored)
        return self.webhook

    @property
    def state(self) -> Webhook:
        assert self.webhook is not None
        return self.webhook

    def pass_time(self, milliseconds: int) -> None:
        self.now = later(self.now, milliseconds)

    def find(self, *seqs: int) -> list[str]:
        """Have conclusions found; the ids of their deliveries."""
        notes = tuple(conclusion(seq) for seq in seqs)
        place = self.state.place
        self.perform(FindEvents(place, Place(place.position + 1), notes))
        return [name_delivery("pager", each) for each in notes]

    def attempt(self, delivery_id: str, status: int | None = 500, retry_ms: int | None = 0) -> Webhook:
        """One try, from its beginning to its end."""
        begun = self.perform(BeginAttempt(delivery_id, "process", later(self.now, MINUTE)))
        lease = begun.pending[delivery_id].lease
        assert lease is not None
        retry_at = None if retry_ms is None else later(self.now, retry_ms)
        error = "" if status == 204 else "it failed"
        return self.perform(EndAttempt(delivery_id, lease.number, status, 12, error, retry_at))


def conclusion(seq: int, stream_id: str = "session-1") -> EventNote:
    return EventNote(EventType.SESSION_CONCLUDED, stream_id, seq, NOW, msgspec.Raw(b'{"seq":%d}' % seq))


@pytest.fixture
def stream() -> Stream:
    return Stream()


@pytest.mark.req("WEBHOOK-01", "WEBHOOK-05")
def test_a_whole_life_is_replayed_to_the_same_state(stream: Stream) -> None:
    first, second = stream.find(1, 2)
    stream.attempt(first, 204)
    stream.attempt(second)
    stream.perform(RotateSecret(2, "cd" * 32, later(NOW, MINUTE)))
    stream.perform(DisableWebhook("moving"))
    stream.perform(EnableWebhook(Place(9)))
    stream.perform(Redeliver(first))
    stream.perform(AddEvent(note_test("pager", STREAM, NOW)))
    stream.perform(AddEvent(note_corruption("space:shop", 3, "another hash", NOW)))
    stream.perform(DeleteWebhook("over"))
    kept = WebhookFolding().catch_up(STREAM, None, stream.entries)
    assert kept == stream.webhook
    assert model.place_of(JournalPlace(9)) == stream.state.place
    folded = None
    for stored in stream.entries:
        folded, append = WebhookFolding().fold(folded, stored)
        assert append.entry == stored
    assert folded == kept
    assert stream.state.pending == {}
    assert stream.state.place == Place(9)


@pytest.mark.req("WEBHOOK-01", "WEBHOOK-08")
def test_an_entry_that_was_changed_or_made_by_hand_does_not_verify(stream: Stream) -> None:
    stream.find(1)
    raw = stream.entries[0].raw.replace(b"alerts.example", b"thiefs.example")
    with pytest.raises(LedgerCorrupt):
        WebhookFolding().catch_up(STREAM, None, [StoredEntry(raw, hash_entry(raw)), stream.entries[1]])
    with pytest.raises(LedgerCorrupt, match="expected `webhook:other`"):
        WebhookFolding().catch_up("webhook:other", None, stream.entries)
    raw = stream.entries[0].raw.replace(b'"format":"cmbs/1",', b"")
    with pytest.raises(LedgerCorrupt, match="an entry of an earlier format"):
        WebhookFolding().catch_up(STREAM, None, [StoredEntry(raw, hash_entry(raw))])


def test_a_kind_decides_on_the_newest_state(stream: Stream) -> None:
    kind = WebhookKind(lambda command: WebhookStamp(command.by, "e", NOW))
    create = WebhookCommand("pager", CreateWebhook(SETTINGS, MARK, Place(0)), OPS)
    assert kind.opens(create)
    assert not kind.opens(WebhookCommand("pager", DeleteWebhook(), OPS))
    event = decide(STREAM, None, create.message, WebhookStamp(OPS, "e", NOW))
    after, (state, append) = kind.decide(None, create)
    assert after is state
    assert append.stream_id == STREAM
    assert kind.not_found(STREAM).details["id"] == "pager"
    assert kind.owns(STREAM)
    assert not kind.owns("kit:pager")
    with pytest.raises(RecordNotFound):
        kind.decide(None, WebhookCommand("pager", DeleteWebhook(), OPS))
    with pytest.raises(TypeError):
        evolve(None, decide(STREAM, stream.webhook, DeleteWebhook(), WebhookStamp(OPS, "e", NOW)))
    with pytest.raises(TypeError, match="once"):
        stream_module._apply(stream.state, create.message, event.body)
    with pytest.raises(TypeError, match="once"):
        check_message(stream.state, create.message, WebhookStamp(OPS, "e", NOW))


@pytest.mark.req("WEBHOOK-01")
def test_the_same_registration_again_is_a_repeat_and_another_a_conflict(stream: Stream) -> None:
    with pytest.raises(Repeated):
        stream.perform(CreateWebhook(SETTINGS, MARK, Place(0)))
    with pytest.raises(Conflict, match="other settings"):
        stream.perform(CreateWebhook(msgspec.structs.replace(SETTINGS, events=(ALL[0],)), MARK, Place(0)))
    stream.perform(DeleteWebhook())
    with pytest.raises(Conflict, match="was deleted"):
        stream.perform(CreateWebhook(SETTINGS, MARK, Place(0)))
    with pytest.raises(RecordNotFound):
        stream.perform(DisableWebhook())
    with pytest.raises(InvalidRequest, match="64 hexadecimal"):
        decide(STREAM, None, CreateWebhook(SETTINGS, "short", Place(0)), WebhookStamp(OPS, "e", NOW))


@pytest.mark.req("WEBHOOK-02")
def test_secrets_are_numbered_and_overlap_for_a_bounded_time(stream: Stream) -> None:
    with pytest.raises(Repeated):
        stream.perform(RotateSecret(1, MARK, NOW))
    with pytest.raises(Conflict, match="generation 2"):
        stream.perform(RotateSecret(3, MARK, NOW))
    with pytest.raises(InvalidRequest):
        stream.perform(RotateSecret(2, "", NOW))
    with pytest.raises(InvalidRequest, match="overlap_until"):
        stream.perform(RotateSecret(2, MARK, later(NOW, model.MAX_OVERLAP_MS + 1)))
    with pytest.raises(InvalidRequest, match="overlap_until"):
        stream.perform(RotateSecret(2, MARK, "tomorrow"))
    assert stream.perform(RotateSecret(2, MARK, later(NOW, 1))).generation == 2


def test_disabling_and_enabling_are_said_once(stream: Stream) -> None:
    with pytest.raises(Repeated):
        stream.perform(EnableWebhook())
    with pytest.raises(LimitExceeded):
        stream.perform(DisableWebhook("a" * 501))
    disabled = stream.perform(DisableWebhook("moving"))
    assert (disabled.disabled, disabled.disabled_reason, disabled.is_active) == (
        DisabledBecause.OPERATOR,
        "moving",
        False,
    )
    with pytest.raises(Repeated):
        stream.perform(DisableWebhook())
    with pytest.raises(InvalidRequest, match="backwards"):
        stream.perform(EnableWebhook(Place(0)))
    with pytest.raises(Conflict, match="disabled"):
        stream.find(1)
    with pytest.raises(Conflict, match="disabled"):
        stream.perform(AddEvent(note_corruption("a", 1, "bad", NOW)))
    # A test may be asked for; it is sent once the webhook is enabled.
    stream.perform(AddEvent(note_test("pager", STREAM, NOW)))
    (waiting,) = stream.state.pending
    with pytest.raises(Conflict, match="disabled"):
        stream.perform(BeginAttempt(waiting, "process", later(NOW, 1)))
    assert stream.perform(EnableWebhook()).place == Place(0)


# --- what is found ---


@pytest.mark.req("WEBHOOK-06")
def test_the_journal_is_read_once_and_forwards(stream: Stream) -> None:
    stream.find(1)
    with pytest.raises(Conflict, match="read further"):
        stream.perform(FindEvents(Place(0), Place(5), (conclusion(2),)))
    with pytest.raises(InvalidRequest, match="backwards"):
        stream.perform(FindEvents(Place(1), Place(1)))
    with pytest.raises(InvalidRequest, match="twice"):
        stream.perform(FindEvents(Place(1), Place(2), (conclusion(1),)))
    with pytest.raises(InvalidRequest, match="twice"):
        stream.perform(FindEvents(Place(1), Place(2), (conclusion(2), conclusion(2))))
    assert stream.perform(FindEvents(Place(1), Place(7))).place == Place(7)


def spoil(**change: Any) -> EventNote:
    return msgspec.structs.replace(conclusion(1), **change)


@pytest.mark.parametrize(
    ("note", "error"),
    [
        (spoil(type=EventType.TEST), InvalidRequest),
        (spoil(type=EventType.LEDGER_CORRUPT), InvalidRequest),
        (spoil(ts="now"), InvalidRequest),
        (spoil(stream_id=""), InvalidRequest),
        (spoil(data=msgspec.Raw(b"[1]")), InvalidRequest),
        (spoil(data=msgspec.Raw(b'{"a": 1}')), InvalidRequest),
        (spoil(data=msgspec.Raw(b'{"a":"%b"}' % (b"a" * model.MAX_DATA_BYTES))), LimitExceeded),
    ],
)
def test_what_is_found_must_be_an_event(stream: Stream, note: EventNote, error: type[Exception]) -> None:
    with pytest.raises(error):
        stream.perform(FindEvents(Place(0), Place(1), (note,)))


def test_what_was_not_asked_for_is_not_found() -> None:
    stream = Stream(msgspec.structs.replace(SETTINGS, events=("gate.opened",)))
    with pytest.raises(InvalidRequest, match="not looked for"):
        stream.find(1)
    for event in (note_corruption("a", 1, "bad", NOW), conclusion(1)):
        with pytest.raises(InvalidRequest, match="not wanted"):
            stream.perform(AddEvent(event))


@pytest.mark.req("WEBHOOK-09")
def test_what_waits_is_bounded(stream: Stream) -> None:
    with pytest.raises(LimitExceeded, match="events_at_once"):
        stream.find(*range(model.MAX_EVENTS_AT_ONCE + 1))
    for start in range(0, model.MAX_PENDING, 100):
        stream.find(*range(start, start + 100))
    for refused in (
        lambda: stream.find(9_999),
        lambda: stream.perform(AddEvent(note_test("pager", STREAM, NOW))),
        lambda: stream.perform(AddEvent(note_corruption("a", 1, "bad", NOW))),
    ):
        with pytest.raises(LimitExceeded, match="pending_deliveries"):
            refused()


@pytest.mark.req("WEBHOOK-04")
def test_damage_is_told_once_for_each_place_of_a_stream(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    stream.perform(AddEvent(note_corruption("a", 1, "bad", NOW)))
    with pytest.raises(Repeated):
        stream.perform(AddEvent(note_corruption("a", 1, "worse", NOW)))
    monkeypatch.setattr("cmbs.webhooks.kernel.checking.MAX_CORRUPTIONS", 1)
    with pytest.raises(LimitExceeded, match="corruptions"):
        stream.perform(AddEvent(note_corruption("a", 2, "bad", NOW)))


# --- tries ---


@pytest.mark.req("WEBHOOK-06")
def test_one_process_at_a_time_has_the_right_to_send(stream: Stream) -> None:
    (delivery_id,) = stream.find(1)
    begin = BeginAttempt(delivery_id, "first", later(NOW, MINUTE))
    stream.perform(begin)
    with pytest.raises(Conflict):
        stream.perform(begin)
    stream.pass_time(MINUTE)
    again = stream.perform(BeginAttempt(delivery_id, "second", later(stream.now, MINUTE)))
    delivery = again.pending[delivery_id]
    # The first try has no outcome, and that is listed.
    assert [(each.number, each.status) for each in delivery.attempts] == [(1, None)]
    assert delivery.lease is not None
    assert delivery.lease.number == 2
    with pytest.raises(Conflict, match="not the one under way"):
        stream.perform(EndAttempt(delivery_id, 1, 204, 5))
    assert stream.perform(EndAttempt(delivery_id, 2, 204, 5)).settled[delivery_id].settled is Settled.DELIVERED
    with pytest.raises(Conflict):
        stream.perform(EndAttempt(delivery_id, 2, 204, 5))


@pytest.mark.parametrize(
    ("build", "error"),
    [
        (lambda _: BeginAttempt("msg_other", "p", later(NOW, 1)), Conflict),
        (lambda name: BeginAttempt(name, "", later(NOW, 1)), LimitExceeded),
        (lambda name: BeginAttempt(name, "p" * 129, later(NOW, 1)), LimitExceeded),
        (lambda name: BeginAttempt(name, "p", later(NOW, model.MAX_LEASE_MS + 1)), InvalidRequest),
    ],
)
def test_a_try_that_may_not_begin_is_refused(
    stream: Stream, build: Callable[[str], WebhookMessage], error: type[Exception]
) -> None:
    (delivery_id,) = stream.find(1)
    with pytest.raises(error):
        stream.perform(build(delivery_id))


def test_an_outcome_that_makes_no_sense_is_refused(stream: Stream) -> None:
    (delivery_id,) = stream.find(1)
    stream.perform(BeginAttempt(delivery_id, "p", later(NOW, 1)))
    with pytest.raises(LimitExceeded):
        stream.perform(EndAttempt(delivery_id, 1, 500, 1, "a" * 301))
    with pytest.raises(InvalidRequest):
        stream.perform(EndAttempt(delivery_id, 1, 500, -1, "bad"))
    with pytest.raises(InvalidRequest):
        stream.perform(EndAttempt(delivery_id, 1, None, 1, ""))
    with pytest.raises(InvalidRequest, match="retry_at"):
        stream.perform(EndAttempt(delivery_id, 1, 500, 1, "bad", later(NOW, model.MAX_DELAY_MS + 1)))


@pytest.mark.req("WEBHOOK-05")
def test_what_fails_is_due_again_and_given_up_in_the_end(stream: Stream) -> None:
    (delivery_id,) = stream.find(1)
    after = stream.attempt(delivery_id, 500, MINUTE)
    assert not after.pending[delivery_id].is_due(stream.now)
    stream.pass_time(MINUTE)
    assert after.pending[delivery_id].is_due(stream.now)
    for _ in range(model.MAX_ATTEMPTS - 1):
        after = stream.attempt(delivery_id)
    assert after.settled[delivery_id].settled is Settled.FAILED
    assert after.settled[delivery_id].n_attempts == model.MAX_ATTEMPTS
    assert not after.settled[delivery_id].is_due(stream.now)
    # By hand it is tried as often again, and one success ends the failing.
    for _ in range(2):
        stream.perform(Redeliver(delivery_id))
        for _ in range(model.MAX_ATTEMPTS):
            after = stream.attempt(delivery_id)
    assert len(after.settled[delivery_id].attempts) == model.MAX_ATTEMPTS_LISTED
    stream.perform(Redeliver(delivery_id))
    after = stream.attempt(delivery_id, 204)
    assert (after.failing_since, after.n_failures, after.is_active) == (None, 0, True)


def test_without_a_moment_to_try_again_it_is_given_up(stream: Stream) -> None:
    (delivery_id,) = stream.find(1)
    assert stream.attempt(delivery_id, None, None).settled[delivery_id].settled is Settled.FAILED


@pytest.mark.req("WEBHOOK-05")
def test_an_endpoint_that_is_gone_is_disabled(stream: Stream) -> None:
    first, second = stream.find(1, 2)
    after = stream.attempt(first, 410)
    assert (after.disabled, after.settled[first].settled) == (DisabledBecause.GONE, Settled.FAILED)
    assert second in after.pending


@pytest.mark.req("WEBHOOK-05")
def test_an_endpoint_that_fails_for_days_is_disabled_and_says_so(stream: Stream) -> None:
    delivery_id = ""
    for _ in range(model.MIN_ATTEMPTS_BEFORE_DISABLING):
        (delivery_id,) = stream.find(stream.state.head.seq + 1)
        after = stream.attempt(delivery_id)
        assert after.is_active
        stream.pass_time(model.DISABLED_AFTER_MS // model.MIN_ATTEMPTS_BEFORE_DISABLING)
    begun = stream.perform(BeginAttempt(delivery_id, "p", later(stream.now, 1)))
    assert begun.failing_since == NOW
    other = next(name for name in begun.pending if name != delivery_id)
    lease = stream.perform(BeginAttempt(other, "p", later(stream.now, 1))).pending[other].lease
    assert lease is not None
    after = stream.perform(EndAttempt(delivery_id, 2, 500, 1, "bad", stream.now))
    assert after.disabled is DisabledBecause.FAILING
    assert after.disabled_reason.startswith("11 tries failed since 2026-01-01")
    # A try that was under way ends, and changes nothing of that.
    after = stream.perform(EndAttempt(other, lease.number, 410, 1, "bad", stream.now))
    assert after.disabled is DisabledBecause.FAILING
    assert stream.perform(EnableWebhook()).failing_since is None


@pytest.mark.req("WEBHOOK-05")
def test_only_the_newest_of_what_is_over_is_listed(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cmbs.webhooks.kernel.stream.MAX_SETTLED", 2)
    ids = stream.find(1, 2, 3)
    for each in ids:
        stream.attempt(each, 204)
    assert list(stream.state.settled) == ids[1:]
    with pytest.raises(RecordNotFound):
        stream.perform(Redeliver(ids[0]))


def test_what_is_due_or_under_way_is_not_asked_for_again(stream: Stream) -> None:
    (delivery_id,) = stream.find(1)
    with pytest.raises(Repeated):
        stream.perform(Redeliver(delivery_id))
    stream.attempt(delivery_id, 500, MINUTE)
    assert stream.perform(Redeliver(delivery_id)).pending[delivery_id].is_due(stream.now)
    stream.perform(BeginAttempt(delivery_id, "p", later(NOW, 1)))
    with pytest.raises(Repeated):
        stream.perform(Redeliver(delivery_id))
