"""The keys of a store: read, made and revoked in the log that all processes share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from threading import Lock
from typing import NamedTuple

from cmbs.errors import InvalidRequest
from cmbs.identity.kernel.model import KEYS_STREAM, Key, Keys, Role, Scope
from cmbs.identity.kernel.stream import CreateKey, KeyCommand, KeyKind, KeyRing, RevokeKey, Stamp
from cmbs.identity.tokens import new_key
from cmbs.messages import Actor, ActorKind
from cmbs.spi import AuditLog, Clock, IdSource
from cmbs.streams.server import StreamServer
from cmbs.system import RandomIds, SystemClock

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
        """The keys as they are now; several who ask at once are served by one look."""
        with self._lock:
            if self.age >= unless_younger:
                began = self._elapsed()
                self._advance(self._streams.peek(KEYS_STREAM))
                # From before the look: what was written while we looked may not have been seen.
                self._looked_at = began
            return self.keys

    def create(
        self,
        kind: ActorKind,
        actor_id: str,
        *,
        roles: Iterable[Role] = (),
        scopes: Iterable[Scope] = (),
        expires_at: str | None = None,
        label: str = "",
        by: Actor = COMMAND_LINE,
    ) -> Made:
        """A new key; durable when it returns."""
        now = self.clock.now()
        if expires_at is not None and expires_at <= now:
            raise InvalidRequest(f"`{expires_at}` has passed", {"field": "expires_at"})
        fresh = new_key()
        key = Key(fresh.key_id, fresh.key_hash.hex(), kind, actor_id, list(roles), list(scopes), expires_at, label)
        ring = self._write(KeyCommand(CreateKey(key), by))
        return Made(ring.keys.by_id[key.key_id].key, fresh.text)

    def revoke(self, key_id: str, reason: str = "", *, by: Actor = COMMAND_LINE) -> None:
        """Make a key useless, for good; every process knows within a second."""
        self._write(KeyCommand(RevokeKey(key_id, reason), by))

    def _write(self, command: KeyCommand) -> KeyRing:
        with self._lock:
            ring = self._streams.perform(command)
            self._advance(ring)
            return ring

    def _advance(self, ring: KeyRing | None) -> None:
        """Take newer keys over. A log that has lost some of them must not make a revoked key good again."""
        if ring is not None and (self._ring is None or ring.head.seq > self._ring.head.seq):
            self._ring = ring
