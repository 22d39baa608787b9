"""Who is asking, and may they: the one place that decides, for every route of both planes.

With keys in the store, a request needs one, and the actor is the key's. Without keys, only this machine is served, and
callers may say who they are; that is not checked, and they are recorded as unauthenticated.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Callable
from typing import TypeAlias

from cmbs.addresses import is_remote
from cmbs.errors import Forbidden, InvalidRequest, KeyRefused, LedgerCorrupt, StoreUnavailable, Unauthenticated
from cmbs.identity.kernel.model import ANONYMOUS, KeyRecord, Keys, KeyStatus, read_claimed_actor
from cmbs.identity.kernel.scopes import Need
from cmbs.identity.registry import KeyRegistry
from cmbs.identity.tokens import PREFIX, hash_of, holds_key, key_id_of
from cmbs.ledger import Head
from cmbs.messages import Actor, ActorKind

# The value of a header by its lower-case name; InvalidRequest where it cannot be told.
Lookup: TypeAlias = Callable[[str], str | None]

# From this age on, what is known of the keys is looked up again, beside the requests that go on with what is known.
_OLD_SECONDS = 0.4
# From this one on, requests wait for it: a revoked key is refused everywhere within a second.
_TOO_OLD_SECONDS = 0.9
# What the presented key is compared with where no key has its id, so that both take as long.
_NO_KEY_HASH = bytes(32)
_BEARER = "bearer "
# Characters of a header that an error shows.
_SHOWN = 128
_OWN = "`localhost` or a loopback address"
_SAY_OWN = "use a loopback address, or have a key made with `cmbs keys create`"
# A name or an address and perhaps a port: no path, fragment or user, behind which another name could stand.
_HOST = re.compile(r"(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::[0-9]*)?")
_REFUSAL_OF = {KeyStatus.EXPIRED: KeyRefused.EXPIRED, KeyStatus.REVOKED: KeyRefused.REVOKED}


class Gate:
    """Decides about requests. `anyone` lets other machines in without keys: the embedding program has checked them."""

    def __init__(self, registry: KeyRegistry, *, anyone: bool = False) -> None:
        self._registry = registry
        self._anyone = anyone
        self._looking: asyncio.Future[Keys] | None = None

    async def _refresh(self) -> None:
        """Look at the keys again, and wait for that only where it has been too long.

        Where they cannot be read or trusted, no caller is let in: a key that was revoked must not be good again because
        of that. Where there were none, there is none to revoke: this machine reads on what the server has in memory.
        """
        registry = self._registry
        if not registry.blocking:
            registry.look(_OLD_SECONDS)
            return
        looking = self._looking
        if looking is None or looking.done() or looking.get_loop() is not asyncio.get_running_loop():
            looking = asyncio.ensure_future(asyncio.to_thread(registry.look, _OLD_SECONDS))
            looking.add_done_callback(_retrieve_exception)
            self._looking = looking
        if registry.age >= _TOO_OLD_SECONDS:
            try:
                await asyncio.shield(looking)
            except StoreUnavailable:
                if not registry.had_none:
                    raise

    def count_operators(self) -> int:
        """How many operators hold a key that is good now."""
        return self._registry.count_operators()

    def check_register(self) -> None:
        """Look at the keys; StoreUnavailable where there is no register of them to go by."""
        try:
            self._registry.look(_OLD_SECONDS)
        except LedgerCorrupt as exc:
            raise StoreUnavailable(f"no request is admitted: {exc.message}") from exc

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Admit no request until the register of keys contains this head; streams of other names are left alone."""
        self._registry.expect_head(stream_id, head)

    def refuse_writes(self, reason: str | None) -> None:
        """Change no key while the database lacks what was signed; None takes changes again."""
        self._registry.refuse_writes(reason)

    async def admit(self, header: Lookup, client: tuple[str, int] | None, needed: Need | None) -> Actor:
        """Who is asking, if they may; Unauthenticated or Forbidden if not.

        `client` is the address and port of the caller: None, or an empty address, over a unix socket. `needed` is what
        a key must be good for: None where any key will do. The actor carries the roles and scopes of the key.
        """
        if self._registry.age >= _OLD_SECONDS:
            await self._refresh()
        if not self._registry.keys.by_id:
            if not self._anyone:
                refuse_foreign(client[0] if client else "", header("host"), header("origin"))
            claimed = header("x-cmbs-actor")
            return ANONYMOUS if claimed is None else read_claimed_actor(claimed)
        record = self._authenticate(header("authorization"))
        if needed is not None:
            record.grants.require(needed)
        claimed = header("x-cmbs-actor")
        if claimed is not None and claimed != f"{record.actor.kind}:{record.actor.id}":
            raise Forbidden(
                "`X-Cmbs-Actor` names another actor than the key does",
                {
                    "reason": "forged_actor",
                    "field": "x-cmbs-actor",
                    "found": claimed[:_SHOWN],
                    "accepted": f"{record.actor.kind}:{record.actor.id}",
                    "next": "leave the header out: the key says who you are",
                },
            )
        return record.actor

    def admit_executor(self, credential: str, needed: Need) -> Actor:
        """Who runs the calls of an agent for it: a second credential beside the agent's, in a header of its own.

        `Bearer` and a key where the server has keys, and otherwise `executor:<id>`.
        """
        if not self._registry.keys.by_id:
            actor = read_claimed_actor(credential)
        else:
            record = self._authenticate(credential)
            record.grants.require(needed)
            actor = record.actor
        if actor.kind is not ActorKind.EXECUTOR:
            raise Forbidden(
                "`Cmbs-Executor` must be the key of an executor",
                {
                    "reason": "not_an_executor",
                    "field": "cmbs-executor",
                    "found": actor.kind.value,
                    "accepted": ActorKind.EXECUTOR.value,
                    "next": "have a key made with `cmbs keys create --role executor`",
                },
            )
        return actor

    def _authenticate(self, authorization: str | None) -> KeyRecord:
        """The record of the key that was presented, if it is one of ours and still good."""
        if authorization is None:
            raise Unauthenticated(KeyRefused.MISSING, "send a key: `Authorization: Bearer cmbs_…`")
        if authorization[: len(_BEARER)].lower() != _BEARER:
            raise Unauthenticated(KeyRefused.MALFORMED, "`Authorization` must be `Bearer` and a key")
        text = authorization[len(_BEARER) :].strip()
        key_id = key_id_of(text)
        if key_id is None:
            raise Unauthenticated(KeyRefused.MALFORMED, f"that is not a key, which begins with `{PREFIX}`")
        record = self._registry.keys.by_id.get(key_id)
        # What became of a key is said only to a caller who holds all of it.
        expected = _NO_KEY_HASH if record is None else record.key_hash
        if not hmac.compare_digest(hash_of(text), expected) or record is None:
            raise Unauthenticated(KeyRefused.UNKNOWN, "this server has no such key")
        if record.revoked_ts is not None or record.key.expires_at is not None:
            status = record.status(self._registry.clock.now())
            if status is not KeyStatus.ACTIVE:
                raise Unauthenticated(_REFUSAL_OF[status], f"the key `{key_id}` is {status}")
        return record


def refuse_keys_in(what: str, data: bytes) -> None:
    """InvalidRequest where a key stands somewhere else than in its header: from there it would get into the ledger."""
    if holds_key(data):
        raise InvalidRequest(f"{what} holds a key, which belongs in `Authorization` alone; revoke it", {"where": what})


def refuse_foreign(peer: str, host: str | None, origin: str | None) -> None:
    """Forbidden for other machines, and for web pages of other sites in a browser on this machine.

    A page can give our address a name of its own (DNS rebinding), which `Host` shows, and may send simple requests to
    any address, of which `Origin` says whose page it was. Both are checked over unix sockets too: a proxy may forward
    a browser's requests there.
    """
    if peer and is_remote(peer):
        raise Forbidden(
            "this server has no keys yet, and then serves only its own machine",
            {
                "reason": "remote_without_key",
                "field": "authorization",
                "found": "nothing",
                "accepted": "a request from this machine, or a key once there is one",
                "next": "have a key made with `cmbs keys create`, and send it",
            },
        )
    if host is not None and not _is_own_name(host):
        raise Forbidden(
            "this server has no keys yet, and then answers to `localhost` and loopback addresses alone",
            {"reason": "foreign_host", "field": "host", "found": host[:_SHOWN], "accepted": _OWN, "next": _SAY_OWN},
        )
    if origin is not None and not _is_own_name(origin.partition("://")[2]):
        raise Forbidden(
            "this server has no keys yet, and then answers to no pages of other sites",
            {
                "reason": "foreign_origin",
                "field": "origin",
                "found": origin[:_SHOWN],
                "accepted": _OWN,
                "next": _SAY_OWN,
            },
        )


def _is_own_name(host: str) -> bool:
    """Whether a `Host` is a name that no other machine can give us."""
    parts = _HOST.fullmatch(host.lower())
    if parts is None:
        return False
    if parts["name"] is None:
        return _is_address(parts["ipv6"]) and not is_remote(parts["ipv6"])
    name = parts["name"].rstrip(".")
    return name == "localhost" or name.endswith(".localhost") or (_is_address(name) and not is_remote(name))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _retrieve_exception(looked: asyncio.Future[Keys]) -> None:
    """A failure is raised to requests that wait for it; where none does, it need not be reported as never retrieved."""
    if not looked.cancelled():
        looked.exception()
