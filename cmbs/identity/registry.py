"""The keys of a store: read, made and revoked in the log that all processes share."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from threading import Lock
from typing import NamedTuple

from cmbs.errors import InvalidRequest, LedgerCorrupt
from cmbs.identity.kernel.model import KEYS_STREAM, Key, Keys, KeyStatus
from cmbs.identity.kernel.scopes import Role, choose_kind
from cmbs.identity.kernel.stream import CreateKey, KeyCommand, KeyKind, KeyRing, RevokeKey, Stamp
from cmbs.identity.tokens import new_key
from cmbs.ledger import Head, hash_entry
from cmbs.messages import Actor, ActorKind
from cmbs.spi import AuditLog, Clock, IdSource
from cmbs.spi.audit_log import find_keyed_entry
from cmbs.streams.recorded_heads import find_recorded_head
from cmbs.streams.server import StreamServer
from cmbs.system import RandomIds, SystemClock

_log = logging.getLogger("cmbs.identity")
# Keys that were looked at so long ago are good enough to count.
_RECENT_SECONDS = 1.0
# A process that can write to the store may make keys: there is no key yet that could say who that is.
COMMAND_LINE = Actor(ActorKind.OPERATOR, "command-line")


class Made(NamedTuple):
    """A new key. `text` is what its holder presents; it is nowhere else."""

    key: Key
    text: str


class KeyRegistry:
    """The keys of a log. Methods may be called from several threads at once."""

    def __init__(
        self,
        log: AuditLog,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self.clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._elapsed = elapsed
        self._lock = Lock()
        kind = KeyKind(lambda by: Stamp(by, self._ids.new_id(), self.clock.now()))
        self._streams: StreamServer[KeyRing, KeyCommand, KeyRing] = StreamServer(log, kind, capacity=1, grouped=False)
        self._ring: KeyRing | None = None
        self._looked_at = float("-inf")
        self._distrusted = False
        # Whether an entry was written with a key; searched for once, and only where there is no register.
        self._was_keyed: bool | None = None
        # Whether the register was compared with what was recorded of it before this process began.
        self._was_compared = False

    @property
    def blocking(self) -> bool:
        """Whether looking waits for a device or a network."""
        return self._log.blocking

    @property
    def keys(self) -> Keys:
        """The keys as they were when this process last looked."""
        return Keys() if self._ring is None else self._ring.keys

    @property
    def age(self) -> float:
        """How many seconds ago that was; infinite where it never did."""
        return self._elapsed() - self._looked_at

    @property
    def had_none(self) -> bool:
        """Whether this process has looked before, and there was no key."""
        return self._looked_at > float("-inf") and not self.keys.by_id

    def look(self, unless_younger: float = 0.0) -> Keys:
        """The keys as they are now; several who ask at once are served by one look.

        LedgerCorrupt where the register does not verify, is gone, or is behind what this process has seen of it or what
        was recorded of it. For the latter, the newest records are searched once (see `find_recorded_head`).
        """
        with self._lock:
            if self.age >= unless_younger:
                began = self._elapsed()
                try:
                    self._ring = self._read()
                except LedgerCorrupt as exc:
                    if not self._distrusted:
                        _log.error("no request is admitted, because the register of keys cannot be trusted: %s", exc)
                    self._distrusted = True
                    raise
                self._distrusted = False
                # From before the look: what was written while we looked may not have been seen.
                self._looked_at = began
            return self.keys

    def count_operators(self) -> int:
        """How many operators hold a key that is good now. Several keys of one operator count once."""
        now = self.clock.now()
        holders = {
            record.key.actor_id
            for record in self.look(_RECENT_SECONDS).by_id.values()
            if record.key.kind is ActorKind.OPERATOR and record.status(now) is KeyStatus.ACTIVE
        }
        return len(holders)

    def create(
        self,
        kind: ActorKind | None,
        actor_id: str,
        *,
        roles: Iterable[Role] = (),
        scopes: Iterable[str] = (),
        expires_at: str | None = None,
        label: str = "",
        by: Actor = COMMAND_LINE,
    ) -> Made:
        """A new key; durable when it returns. Without a `kind`, the holder is of the kind that the roles are for.

        A scope may name one session or space: `belief:write@<id>`, or `…@<beginning of ids>*`.
        """
        roles = list(roles)
        now = self.clock.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidRequest(f"`{expires_at}` has passed", {"field": "expires_at"})
        fresh = new_key()
        chosen = choose_kind(kind, roles)
        named = [str(scope) for scope in scopes]
        key = Key(fresh.key_id, fresh.key_hash.hex(), chosen, actor_id, roles, named, expires_at, label)
        ring = self._write(KeyCommand(CreateKey(key), by))
        return Made(ring.keys.by_id[key.key_id].key, fresh.text)

    def revoke(self, key_id: str, reason: str = "", *, by: Actor = COMMAND_LINE) -> None:
        """Make a key useless, for good; every process knows within a second."""
        self._write(KeyCommand(RevokeKey(key_id, reason), by))

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Admit no request until the register contains this head, which was recorded of it and which the log lacks."""
        self._streams.expect_head(stream_id, head)

    def refuse_writes(self, reason: str | None) -> None:
        """Change no key while the database lacks what was signed; None takes changes again."""
        self._streams.refuse_writes(reason)

    def _write(self, command: KeyCommand) -> KeyRing:
        with self._lock:
            self._compare_with_record()
            self._ring = self._streams.perform(command)
            return self._ring

    def _compare_with_record(self) -> None:
        """Have the register refused where it lacks what was recorded of it: what it lost then may be a revocation."""
        if self._was_compared:
            return
        recorded = find_recorded_head(self._log, KEYS_STREAM)
        if recorded is not None and not self._streams.streams.seen.is_stored(KEYS_STREAM, recorded):
            self.expect_head(KEYS_STREAM, recorded)
        self._was_compared = True

    def _read(self) -> KeyRing | None:
        """The register; None where there never was one. A register that was lost must not make a server an open one."""
        self._compare_with_record()
        ring = self._streams.peek(KEYS_STREAM)
        if ring is not None:
            # The head alone says little: without its entry, the next process would not know of a revocation.
            newest = self._log.read(KEYS_STREAM, ring.head.seq - 1, 1)
            if not newest or hash_entry(newest[0].raw) != ring.head.event_hash:
                raise LedgerCorrupt(KEYS_STREAM, ring.head.seq, "the entry of its head is gone, or another")
        # What is lost while this process runs, it has seen. What was lost before shows in what was done with keys.
        if ring is None and self._was_keyed is None:
            keyed = find_keyed_entry(self._log)
            self._was_keyed = keyed is not None
            if keyed is not None:
                # Not in the error, which any caller may see.
                _log.error(
                    "there is no register of keys, but seq %d of `%s` was written with a key", keyed[1], keyed[0]
                )
        if ring is None and self._was_keyed:
            raise LedgerCorrupt(
                KEYS_STREAM,
                0,
                "it is gone, and entries were written with keys; restore it, or begin another with `cmbs keys create`",
            )
        return ring
