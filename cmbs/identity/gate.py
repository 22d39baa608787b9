"""Who is asking, and may they: the one place that decides, for every route of both planes and both interfaces.

With keys in the store, a request needs one, and the actor is the key's. Without, only this machine is served, and
callers may say who they are; nobody checks it, and they are recorded as unauthenticated.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Callable
from typing import TypeAlias

from cmbs.addresses import is_remote
from cmbs.errors import Forbidden, InvalidRequest, KeyRefused, StoreUnavailable, Unauthenticated
from cmbs.identity.kernel.model import KeyRecord, Keys, KeyStatus, Scope, read_claimed_actor, require
from cmbs.identity.registry import KeyRegistry
from cmbs.identity.tokens import PREFIX, hash_of, holds_key, key_id_of
from cmbs.messages import Actor

# The value of a header by its lower-case name; InvalidRequest where it cannot be told.
Lookup: TypeAlias = Callable[[str], str | None]

# From this age on, what is known of the keys is looked up again, beside the requests that go on with what is known.
_OLD_SECONDS = 0.4
# From this one on, requests wait for it: a revoked key is refused everywhere within a second.
_TOO_OLD_SECONDS = 0.9
_NOBODY = bytes(32)
# So many callers are remembered, if what they say of themselves is no longer than this.
_KNOWN = 256
_KNOWN_LENGTH = 512
_BEARER = "bearer "
_REFUSAL_OF = {KeyStatus.EXPIRED: KeyRefused.EXPIRED, KeyStatus.REVOKED: KeyRefused.REVOKED}


class Gate:
    """Decides about requests. `anyone` lets other machines in without keys: whoever embeds us has looked at them."""

    def __init__(self, registry: KeyRegistry, *, anyone: bool = False) -> None:
        self._registry = registry
        self._anyone = anyone
        self._looking: asyncio.Future[Keys] | None = None
        # Who was found to be on this machine, by address, host and origin.
        self._at_home: set[tuple[str, str | None, str | None]] = set()

    @property
    def is_current(self) -> bool:
        """Whether what is known of the keys is young enough to decide by; if not, `catch_up` first."""
        return self._registry.age < _OLD_SECONDS

    async def catch_up(self) -> None:
        """Look at the keys again, and wait for that only where it has been too long.

        Where they cannot be read, nobody is let in: a key that was revoked must not be good again because of that.
        Where there were none, there is none to revoke, and this machine reads on what the server has in memory.
        """
        registry = self._registry
        if not registry.blocking:
            registry.look(_OLD_SECONDS)
            return
        looking = self._looking
        if looking is None or looking.done() or looking.get_loop() is not asyncio.get_running_loop():
            looking = asyncio.ensure_future(asyncio.to_thread(registry.look, _OLD_SECONDS))
            looking.add_done_callback(_forget)
            self._looking = looking
        if registry.age >= _TOO_OLD_SECONDS:
            try:
                await asyncio.shield(looking)
            except StoreUnavailable:
                if not registry.had_none:
                    raise

    def admit(self, header: Lookup, peer: str | None, needed: Scope) -> Actor:
        """Who is asking, if they may; Unauthenticated or Forbidden if not. `peer` is the address of the caller."""
        known = self._registry.keys.by_id
        if not known:
            if peer is not None and not self._anyone:
                self._refuse_strangers(peer, header("host"), header("origin"))
            return read_claimed_actor(header("x-cmbs-actor"))
        record = self._authenticated(header("authorization"))
        require(record.granted, needed)
        claimed = header("x-cmbs-actor")
        if claimed is not None and claimed != f"{record.actor.kind}:{record.actor.id}":
            raise Forbidden("`X-Cmbs-Actor` names somebody else than the key does", {"reason": "forged_actor"})
        return record.actor

    def _refuse_strangers(self, peer: str, host: str | None, origin: str | None) -> None:
        """Forbidden for others; whoever was let in before is not looked at again."""
        asking = (peer, host, origin)
        if asking in self._at_home:
            return
        _refuse_strangers(peer, host, origin)
        if sum(map(len, filter(None, asking))) <= _KNOWN_LENGTH:
            if len(self._at_home) >= _KNOWN:
                self._at_home.clear()
            self._at_home.add(asking)

    def _authenticated(self, authorization: str | None) -> KeyRecord:
        """The key that was presented, if it is one of ours and still good."""
        if authorization is None:
            raise Unauthenticated(KeyRefused.MISSING, "send a key: `Authorization: Bearer cmbs_…`")
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise Unauthenticated(KeyRefused.MALFORMED, "`Authorization` must be `Bearer` and a key")
        text = authorization[len(_BEARER) :].strip()
        key_id = key_id_of(text)
        if key_id is None:
            raise Unauthenticated(KeyRefused.MALFORMED, f"that is not a key, which begins with `{PREFIX}`")
        record = self._registry.keys.by_id.get(key_id)
        # As much work for an id that nobody has. What became of a key is told only to whoever holds all of it.
        kept = _NOBODY if record is None else record.key_hash
        if not hmac.compare_digest(hash_of(text), kept) or record is None:
            raise Unauthenticated(KeyRefused.UNKNOWN, "nobody here has that key")
        if record.revoked_ts is not None or record.key.expires_at is not None:
            status = record.status(self._registry.clock.now())
            if status is not KeyStatus.ACTIVE:
                raise Unauthenticated(_REFUSAL_OF[status], f"the key `{key_id}` is {status}")
        return record


def refuse_keys_in(what: str, data: bytes) -> None:
    """InvalidRequest where a key stands somewhere else than in its header: from there it would get into the ledger."""
    if holds_key(data):
        raise InvalidRequest(f"{what} holds a key, which belongs in `Authorization` alone; revoke it", {"where": what})


def _refuse_strangers(peer: str, host: str | None, origin: str | None) -> None:
    """Forbidden for other machines, and for pages of theirs: a browser here asks for whatever name they gave us.

    It also lets any page send a request without a body to an address of ours, and says whose page it was.
    """
    if is_remote(peer):
        raise Forbidden(
            "this server has no keys yet, and then serves only its own machine", {"reason": "remote_without_key"}
        )
    if host is not None and _is_address(peer) and not _is_own_name(host):
        raise Forbidden(
            "this server has no keys yet, and then answers to `localhost` and loopback addresses alone",
            {"reason": "foreign_host"},
        )
    if origin is not None and not _is_own_name(origin.partition("://")[2]):
        raise Forbidden(
            "this server has no keys yet, and then answers to no pages of others", {"reason": "foreign_origin"}
        )


def _is_own_name(host: str) -> bool:
    """Whether a `Host` is a name that no other machine can give us."""
    name = re.sub(r":[0-9]*$", "", host).strip("[]").lower().rstrip(".")
    return name == "localhost" or name.endswith(".localhost") or (_is_address(name) and not is_remote(name))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _forget(looked: asyncio.Future[Keys]) -> None:
    """Whoever waits hears of a failure; nobody else needs to."""
    if not looked.cancelled():
        looked.exception()
