"""What delivers: finds in the journal what endpoints are told, and sends it until it is taken or given up.

Every process over a store may run one. The first that reads a part of the journal records what it found. A try begins
with an entry that gives one process the right to it until a moment: a process that dies loses nothing, and no event is
sent by two at a time. Writers are never waited for, and never wait: they set a flag.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Event, Lock, Thread
from typing import NamedTuple

from cmbs.belief.server import BeliefServer
from cmbs.errors import CmbsError, Conflict, LedgerCorrupt, LimitExceeded, StoreUnavailable
from cmbs.ledger import Head
from cmbs.spi.audit_log import SPACE_PREFIX, Append, is_reserved
from cmbs.spi.journal import JournalLog, JournalPlace
from cmbs.substrate.server import SubstrateServer
from cmbs.webhooks.finding import Finder, Found
from cmbs.webhooks.kernel.events import Webhook
from cmbs.webhooks.kernel.model import (
    MAX_EVENTS_AT_ONCE,
    MAX_PENDING,
    Delivery,
    EventType,
    Subject,
    is_wanted,
)
from cmbs.webhooks.kernel.payload import note_corruption, write_body
from cmbs.webhooks.keys import WebhookKey
from cmbs.webhooks.registry import WebhookRegistry
from cmbs.webhooks.sending import Sender
from cmbs.webhooks.signing import sign

DEFAULT_RETRY_SECONDS = 5.0
MAX_RETRY_SECONDS = 24 * 3600.0
_RETRY_FACTOR = 4.0
_JITTER = 0.2
# Requests under way, of one process and to one endpoint.
MAX_IN_FLIGHT = 32
MAX_IN_FLIGHT_EACH = 4
# How often what other processes wrote is looked for, and how often where no endpoint is registered.
_LOOK_SECONDS = 0.25
_IDLE_SECONDS = 2.0
_MIN_PAUSE_SECONDS = 0.05
_PLACES_AT_ONCE = 500
# How far the journal was read is recorded with what was found, and after so many entries without anything.
_PLACES_BETWEEN_RECORDS = 5_000
# A try must be on record as ended within its time-out and this.
_LEASE_GRACE_SECONDS = 5.0
_MAX_DAMAGED = 1_000
_log = logging.getLogger("cmbs.webhooks")


class _Damage(NamedTuple):
    stream_id: str
    seq: int
    reason: str


class Dispatcher:
    """Delivers to the webhooks of a registry, from `start` to `close`.

    `retry_seconds` is how long after the first failure the second try comes; each pause is four times the one before.
    """

    def __init__(
        self,
        registry: WebhookRegistry,
        belief: BeliefServer,
        spaces: SubstrateServer,
        sender: Sender,
        *,
        retry_seconds: float = DEFAULT_RETRY_SECONDS,
        lease_grace_seconds: float = _LEASE_GRACE_SECONDS,
    ) -> None:
        self.registry = registry
        self._belief = belief
        self._spaces = spaces
        self._sender = sender
        self._retry_seconds = retry_seconds
        self._lease_ms = round((sender.timeout_seconds + lease_grace_seconds) * 1_000)
        self._finder = Finder(belief, spaces, self.notice)
        # So that people can tell which process tried what.
        self._holder = f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"
        # How far this process has read for each webhook, and how many entries since that was recorded.
        self._positions: dict[str, JournalPlace] = {}
        self._passed: dict[str, int] = defaultdict(int)
        self._damaged: OrderedDict[tuple[str, int], _Damage] = OrderedDict()
        self._told: set[tuple[str, str, int]] = set()
        self._unusable: set[str] = set()
        self._lock = Lock()
        self._in_flight: set[tuple[str, str]] = set()
        self._workers = ThreadPoolExecutor(MAX_IN_FLIGHT, "cmbs-webhook")
        self._wakeup = Event()
        self._stop = Event()
        self._thread: Thread | None = None
        registry.observe_appends(self.note_appends)

    # --- what others tell it ---

    def note_appends(self, _: Sequence[Append]) -> None:
        """Look soon; an observer of what servers write."""
        self._wakeup.set()

    def notice(self, error: LedgerCorrupt) -> None:
        """Have damage told to the endpoints that want to know. Quick; never raises."""
        self._note_damage(_Damage(error.stream_id, error.seq, error.reason))

    def notice_lost(self, stream_id: str, head: Head) -> None:
        """The same for a stream that lacks a head which was recorded of it."""
        self._note_damage(_Damage(stream_id, head.seq, "the stream lacks a head that was recorded of it"))

    def _note_damage(self, damage: _Damage) -> None:
        with self._lock:
            if len(self._damaged) < _MAX_DAMAGED:
                self._damaged.setdefault((damage.stream_id, damage.seq), damage)
        self._wakeup.set()

    # --- its life ---

    def start(self) -> None:
        """Deliver, in threads of its own."""
        if self._thread is None and self.registry.key is not None and isinstance(self.registry.log, JournalLog):
            self._thread = Thread(target=self._work, name="cmbs-webhooks", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Call off what is under way, have that on record, and stop. The log stays open."""
        self._stop.set()
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join()
        self._sender.close()
        self._workers.shutdown()
        self.registry.close()

    def _work(self) -> None:
        while not self._stop.is_set():
            # Before the look: what is written while it goes on is looked for again.
            self._wakeup.clear()
            pause = _LOOK_SECONDS
            try:
                pause = self.run_once()
            except StoreUnavailable as exc:
                _log.warning("webhooks wait for the store: %s", exc)
                pause = _IDLE_SECONDS
            except Exception:  # noqa: BLE001 - the thread must live on
                _log.exception("webhooks: this round failed, and is tried again")
                pause = _IDLE_SECONDS
            # At a bounded rate, however much is written.
            self._stop.wait(_MIN_PAUSE_SECONDS)
            self._wakeup.wait(pause)

    def run_once(self) -> float:
        """One round: find what is new, and begin what is due. How long the next may wait, if nothing happens."""
        key, log = self.registry.key, self.registry.log
        if key is None or not isinstance(log, JournalLog):
            return _IDLE_SECONDS
        webhooks = self._list_usable(key)
        if not webhooks:
            return _IDLE_SECONDS
        self._tell_damage(webhooks)
        has_more = self._find(log, webhooks)
        self._send_due(self._list_usable(key))
        return 0.0 if has_more else _LOOK_SECONDS

    def _list_usable(self, key: WebhookKey) -> list[Webhook]:
        return [each for each in self.registry.read_all() if each.is_active and self._is_usable(key, each)]

    def _is_usable(self, key: WebhookKey, webhook: Webhook) -> bool:
        """Whether a webhook was registered with our key: one that was not is told nothing, and logged once."""
        if key.accepts(webhook):
            self._unusable.discard(webhook.webhook_id)
            return True
        if webhook.webhook_id not in self._unusable:
            self._unusable.add(webhook.webhook_id)
            _log.error(
                "webhook `%s` is told nothing: it was not registered with the webhook key of this server",
                webhook.webhook_id,
            )
        return False

    # --- finding ---

    def _find(self, journal: JournalLog, webhooks: Sequence[Webhook]) -> bool:
        """Read the journal a page further for each; whether there is more right away.

        Those that stand at the same place, as they do once they have caught up, share what is read.
        """
        groups: dict[JournalPlace, list[Webhook]] = defaultdict(list)
        for webhook in webhooks:
            recorded = webhook.place.journal_place
            groups[max(recorded, self._positions.get(webhook.webhook_id, recorded))].append(webhook)
        has_more = False
        for position, group in groups.items():
            places = journal.journal(position, _PLACES_AT_ONCE)
            if not places:
                continue
            wanted = frozenset(EventType(event) for webhook in group for event in webhook.settings.events)
            found = self._finder.find(places, wanted)
            for webhook in group:
                self._take(webhook, places, found)
            has_more |= len(places) == _PLACES_AT_ONCE
        return has_more

    def _take(self, webhook: Webhook, places: Sequence[JournalPlace], found: Sequence[Found]) -> None:
        """Record for a webhook what it is to be told of a page."""
        matching = [each for each in found if is_wanted(webhook.settings, each.note.type, each.subject)]
        end, webhook_id = places[-1], webhook.webhook_id
        room = min(MAX_EVENTS_AT_ONCE, MAX_PENDING - len(webhook.pending))
        taken = matching
        if len(matching) > room:
            # What there is no room for waits in the journal. Of one entry all is taken, or nothing.
            end = matching[room].place
            taken = [each for each in matching[:room] if each.place < end]
            if not taken:
                return
            end = taken[-1].place
        self._passed[webhook_id] += len(places)
        try:
            if taken or self._passed[webhook_id] >= _PLACES_BETWEEN_RECORDS:
                self.registry.record_found(webhook, end, [each.note for each in taken])
                self._passed[webhook_id] = 0
        except (Conflict, LimitExceeded):
            # Another process was first, or the webhook is disabled: the next round goes by what is recorded.
            self._positions.pop(webhook_id, None)
            return
        self._positions[webhook_id] = end

    def _tell_damage(self, webhooks: Sequence[Webhook]) -> None:
        behind = [*self._belief.find_behind(), *self._spaces.find_behind(), *self.registry.find_behind()]
        for stream_id in behind:
            self._note_damage(_Damage(stream_id, 0, "its past does not verify, or the store is behind what was seen"))
        with self._lock:
            damaged = list(self._damaged.values())
        for damage in damaged:
            note = note_corruption(damage.stream_id, damage.seq, damage.reason, self.registry.clock.now())
            for webhook in webhooks:
                told = (webhook.webhook_id, damage.stream_id, damage.seq)
                if told in self._told or not is_wanted(webhook.settings, note.type, _subject_of(damage.stream_id)):
                    continue
                try:
                    self.registry.record_corruption(webhook.webhook_id, note)
                except (Conflict, LimitExceeded) as exc:
                    _log.warning("damage of `%s` is not told to `%s` yet: %s", *told[1::-1], exc)
                    continue
                self._told.add(told)

    # --- sending ---

    def _send_due(self, webhooks: Sequence[Webhook]) -> None:
        now = self.registry.clock.now()
        for webhook in webhooks:
            for delivery in [each for each in webhook.pending.values() if each.is_due(now)]:
                job = (webhook.webhook_id, delivery.delivery_id)
                with self._lock:
                    to_it = sum(1 for webhook_id, _ in self._in_flight if webhook_id == webhook.webhook_id)
                    full = to_it >= MAX_IN_FLIGHT_EACH or len(self._in_flight) >= MAX_IN_FLIGHT
                    if full or job in self._in_flight:
                        continue
                    self._in_flight.add(job)
                self._workers.submit(self._attempt, *job)

    def _attempt(self, webhook_id: str, delivery_id: str) -> None:
        try:
            if not self._stop.is_set():
                self._deliver(webhook_id, delivery_id)
        except Conflict:
            pass  # another process has it, or has ended it
        except CmbsError as exc:
            # Its lease ends, and then it is tried again, under the same id.
            _log.warning("a try to deliver `%s` to `%s` is not on record: %s", delivery_id, webhook_id, exc)
        except Exception:  # noqa: BLE001 - no caller would hear of it
            _log.exception("a try to deliver `%s` to `%s` failed", delivery_id, webhook_id)
        finally:
            with self._lock:
                self._in_flight.discard((webhook_id, delivery_id))
            self._wakeup.set()

    def _deliver(self, webhook_id: str, delivery_id: str) -> None:
        key = self.registry.key
        webhook = self.registry.begin(webhook_id, delivery_id, self._holder, self._lease_ms)
        delivery = webhook.pending[delivery_id]
        self.registry.require_genuine(webhook)
        if key is None or delivery.lease is None:  # pragma: no cover - it has just begun
            return
        body = write_body(delivery.event)
        now = self.registry.clock.now()
        headers = sign(delivery_id, _to_seconds(now), body, key.secrets_of(webhook, now))
        sent = self._sender.send(webhook.settings.url, body, headers)
        after = self.registry.end(webhook_id, delivery_id, delivery.lease.number, sent, self._choose_delay(delivery))
        if not after.is_active and webhook.is_active:
            _log.error("webhook `%s` is disabled: %s", webhook_id, after.disabled_reason)

    def _choose_delay(self, delivery: Delivery) -> int:
        """Milliseconds until the next try: longer each time, and not the same for all that failed together."""
        pause = min(self._retry_seconds * _RETRY_FACTOR ** (delivery.n_recent - 1), MAX_RETRY_SECONDS)
        return round(pause * random.uniform(1 - _JITTER, 1 + _JITTER) * 1_000)  # noqa: S311 - nothing to guess


def _subject_of(stream_id: str) -> Subject:
    if stream_id.startswith(SPACE_PREFIX):
        return Subject(None, stream_id.removeprefix(SPACE_PREFIX), None)
    return Subject(None if is_reserved(stream_id) else stream_id, None, None)


def _to_seconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp())
