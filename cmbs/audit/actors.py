"""Actors in entries, held against the register of keys: an authenticated one had a key that was good at that moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.identity.kernel.model import KEYS_STREAM, Keys
from cmbs.identity.kernel.stream import verify_keys
from cmbs.messages import Actor
from cmbs.spi import AuditLog
from cmbs.spi.stored_rows import EVENTS, Finding

# A revoked key is refused everywhere within a second; but a request that was let in before may wait to be written, and
# the clocks of machines differ.
_SLACK = timedelta(seconds=60)


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

    def _judge(self, acted: _Acted, actor: Actor, key_id: str) -> str | None:
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
        moment = datetime.fromisoformat(acted.ts)
        if moment < datetime.fromisoformat(record.created_ts) - _SLACK:
            return f"the key `{key_id}` was made later, at {record.created_ts}"
        for ended, word in ((record.revoked_ts, "revoked"), (record.key.expires_at, "expired")):
            if ended is not None and moment > datetime.fromisoformat(ended) + _SLACK:
                return f"the key `{key_id}` was {word} before, at {ended}"
        return None


def _read_keys(log: AuditLog) -> Keys | None:
    try:
        head = log.head(KEYS_STREAM)
        # The head first: a register that grows meanwhile is longer, and still good.
        return verify_keys(log.read(KEYS_STREAM, limit=1 if head is None else head.seq + 1), head)
    except (LedgerCorrupt, StoreUnavailable, TypeError):  # a recorded head that was changed by hand may be no number
        return None
