"""Actors in entries, held against the register of keys: an authenticated one had a key that was good at that moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cached_property

import msgspec

from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.identity.kernel.model import KEYS_STREAM, KeyRecord, Keys
from cmbs.identity.kernel.stream import CreateKey, KeyVerb, read_key_event, verify_keys
from cmbs.messages import Actor
from cmbs.spi import AuditLog
from cmbs.spi.journal import JOURNAL_BEGINNING, JournalLog
from cmbs.spi.stored_rows import EVENTS, Finding
from cmbs.streams.reading import read_pages

# A revoked key is refused everywhere within a second; but a request that was let in before may wait to be written, and
# the clocks of machines differ.
_SLACK = timedelta(seconds=60)
_PLACES_AT_ONCE = 5_000


class _Acted(msgspec.Struct):
    ts: str
    seq: int
    actor: Actor | None = None


_ACTED = msgspec.json.Decoder(_Acted)


class ActorCheck:
    """The keys that a log knows. `imported` accepts keys that it does not: streams come in without theirs.

    Where the register of keys does not verify, which is a finding of its own, no actor is judged by it.
    """

    def __init__(self, log: AuditLog, *, imported: bool = False) -> None:
        self._log = log
        self._imported = imported
        self._keys = _read_keys(log)

    @cached_property
    def _order(self) -> _Order:
        return _Order(self._log)

    def check(self, stream_id: str, raw: bytes) -> Iterator[Finding]:
        """What is wrong with the actor of an entry that was verified before."""
        # Most entries name no key, and to decode an entry takes longer than to look.
        if b'"key_id":"' not in raw:
            return
        acted = _ACTED.decode(raw)
        actor = acted.actor
        if actor is None or not actor.authenticated or actor.key_id is None:
            return
        what = self._judge(acted, actor, actor.key_id)
        if what is not None:
            yield Finding(f"actor: {what}", EVENTS, stream_id, acted.seq, "entry", actor.key_id)
            return
        record = None if self._keys is None else self._keys.by_id.get(actor.key_id)
        if record is not None:
            yield from self._judge_moment(stream_id, acted, record)

    def _judge(self, acted: _Acted, actor: Actor, key_id: str) -> str | None:
        """What is wrong with an actor, whenever it acted."""
        if self._keys is not None and key_id not in self._keys.by_id and not self._imported:
            # A live store: the key may be younger than the last look.
            self._keys = _read_keys(self._log)
        if self._keys is None:
            return None
        record = self._keys.by_id.get(key_id)
        if record is None:
            if self._imported:
                return None
            return f"the key `{key_id}` is not in the register (keys stay behind when a stream is imported)"
        expected = record.actor
        if (actor.kind, actor.id) != (expected.kind, expected.id):
            return f"the key `{key_id}` is that of `{expected.kind}:{expected.id}`"
        if actor != expected:
            return f"the key `{key_id}` has other roles or scopes: {', '.join(record.grants.to_texts())}"
        expires = record.key.expires_at
        if expires is not None and datetime.fromisoformat(acted.ts) > datetime.fromisoformat(expires) + _SLACK:
            return f"the key `{key_id}` was expired before, at {expires}"
        return None

    def _judge_moment(self, stream_id: str, acted: _Acted, record: KeyRecord) -> Iterator[Finding]:
        """Whether the key was there, and not revoked yet, when the entry says that it was written.

        Clocks of servers differ, and jump. The order in which the store took entries does not: where that says that the
        key was good, it was the clock that was wrong.
        """
        key_id, moment = record.key.key_id, datetime.fromisoformat(acted.ts)
        made = datetime.fromisoformat(record.created_ts)
        revoked = None if record.revoked_ts is None else datetime.fromisoformat(record.revoked_ts)
        if moment < made - _SLACK:
            is_good = self._order.has_before(stream_id, acted.seq, KeyVerb.CREATE_KEY, key_id) is False
            what = f"the key `{key_id}` was made later, at {record.created_ts}"
            clock = f"it is dated {made - moment} before the key `{key_id}` was made, and was written after that"
        elif revoked is not None and moment > revoked + _SLACK:
            is_good = self._order.has_before(stream_id, acted.seq, KeyVerb.REVOKE_KEY, key_id) is True
            what = f"the key `{key_id}` was revoked before, at {record.revoked_ts}"
            clock = f"it is dated {moment - revoked} after the key `{key_id}` was revoked, and was written before that"
        else:
            return
        if is_good:
            told = f"clock: {clock}: the clocks of the servers differed"
            yield Finding(told, EVENTS, stream_id, acted.seq, "entry", key_id, is_note=True)
        else:
            yield Finding(f"actor: {what}", EVENTS, stream_id, acted.seq, "entry", key_id)


class _Order:
    """In which order a store took entries, and what became of keys. Looked up only for entries that are in doubt."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        # For an entry of the register of keys, the last entry of each stream before it; None where nothing tells.
        self._before: dict[tuple[KeyVerb, str], dict[str, int] | None] = {}

    def has_before(self, stream_id: str, seq: int, verb: KeyVerb, key_id: str) -> bool | None:
        """Whether an entry was written before this was done to a key; None where the store does not tell."""
        if (verb, key_id) not in self._before:
            self._before[verb, key_id] = self._read(verb, key_id)
        before = self._before[verb, key_id]
        return None if before is None else seq <= before.get(stream_id, -1)

    def _read(self, verb: KeyVerb, key_id: str) -> dict[str, int] | None:
        log = self._log
        if not isinstance(log, JournalLog):
            return None
        last: dict[str, int] = {}
        try:
            at = self._find_seq(verb, key_id)
            place = JOURNAL_BEGINNING
            while places := log.journal(place, _PLACES_AT_ONCE):
                for place in places:
                    if (place.stream_id, place.seq) == (KEYS_STREAM, at):
                        return last
                    last[place.stream_id] = max(place.seq, last.get(place.stream_id, -1))
        except StoreUnavailable:
            return None
        return None

    def _find_seq(self, verb: KeyVerb, key_id: str) -> int | None:
        """The entry in which this was done to a key. The register was verified before."""
        for page in read_pages(self._log, KEYS_STREAM):
            for event in map(read_key_event, page):
                message = event.message
                named = message.key.key_id if isinstance(message, CreateKey) else message.key_id
                if (event.body.verb, named) == (verb, key_id):
                    return event.body.seq
        return None


def _read_keys(log: AuditLog) -> Keys | None:
    try:
        head = log.head(KEYS_STREAM)
        # The head first: a register that grows meanwhile is longer, and still good.
        return verify_keys(log.read(KEYS_STREAM, limit=1 if head is None else head.seq + 1), head)
    except (LedgerCorrupt, StoreUnavailable, TypeError):  # a recorded head that was changed by hand may be no number
        return None
