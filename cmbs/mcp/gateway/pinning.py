"""Pins: what agents see of upstream servers is what an operator pinned, and every difference waits for an operator.

A server that is new to the space is pinned as it is found, by the operator who put it into the configuration. From then
on the server is looked at when the gateway starts, when it says that its lists changed, and every now and then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

import mcp_types
import msgspec
from mcp import MCPError

from cmbs.errors import BeliefServerError, CmbsError, InvalidRequest
from cmbs.ledger import canonical
from cmbs.mcp.gateway.definitions import (
    COMPLETE,
    GET_PROMPT,
    READ_RESOURCE,
    READS,
    Change,
    ChangeKind,
    describe_change,
    expose_name,
    find_changes,
)
from cmbs.mcp.gateway.ledger import GatewayLedger, Pin, ensure_space
from cmbs.substrate.tools.mcp_connection import Connection, UpstreamBroke, UpstreamFailed, Wire
from cmbs.substrate.tools.mcp_connections import Connections

_log = logging.getLogger("cmbs.gateway")
# Of one list of a server, over all of its pages.
_MAX_LISTED = 5_000
_MAX_LISTED_BYTES = 8_388_608
_MAX_PAGES = 200
_LIST_SECONDS = 30
_MAX_NOTED_BYTES = 32_768
# Of one server: how many changes are noted in a stretch of time. The rest are counted in one note.
_MAX_NOTES = 20
_NOTES_SECONDS = 3_600.0
# The name under which changes of a server itself are told.
OF_SERVER = "(server)"
# Reading a resource, filling in a prompt and completing an argument are calls too: these are what they are pinned as,
# by the capability of the server.
_READ = {"readOnlyHint": True}
_ASIDE: dict[str, Wire] = {
    "resources": {
        "name": READ_RESOURCE,
        "description": "Reads a resource of the server.",
        "inputSchema": {"type": "object", "required": ["uri"], "properties": {"uri": {"type": "string"}}},
        "annotations": _READ,
    },
    "prompts": {
        "name": GET_PROMPT,
        "description": "Fills in a prompt of the server.",
        "inputSchema": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        "annotations": _READ,
    },
    "completions": {
        "name": COMPLETE,
        "description": "Completes an argument of a prompt or of a resource template of the server.",
        "inputSchema": {"type": "object", "required": ["ref", "argument"]},
        "annotations": _READ,
    },
}


class Pinning:
    """The pins of a gateway, and what has changed since."""

    def __init__(self, ledger: GatewayLedger, connections: Connections, timeout_ms: int) -> None:
        self._ledger = ledger
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._pins: dict[str, Pin] = {}
        # Every pin, tools and what is beside them; and the tools alone, by the names that agents see.
        self.pins: tuple[Pin, ...] = ()
        self.tools: dict[str, Pin] = {}
        self._servers: dict[str, Wire] = {}
        # What waits for an operator, by server and then by name.
        self._changes: dict[str, dict[str, Change]] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._loading = asyncio.Lock()
        self._notes: dict[str, _NoteBudget] = {}
        # Servers that could not be looked at the last time, and why.
        self.unseen: dict[str, str] = {}
        # What servers declared that they can do, when they were last looked at.
        self.declared: dict[str, mcp_types.ServerCapabilities] = {}
        # Told what agents now see another list of.
        self.on_changed: Callable[[Literal["tools", "prompts"]], None] = lambda _: None

    @property
    def several(self) -> bool:
        """Whether names carry the server that they belong to."""
        return len(self._connections.config.servers) > 1

    @property
    def prompts(self) -> dict[str, tuple[str, Wire]]:
        """The pinned prompts and their servers, by the names that agents see."""
        return {
            expose_name(upstream, prompt["name"], several=self.several): (upstream, prompt)
            for upstream, said in sorted(self._servers.items())
            for prompt in said.get("prompts", ())
        }

    @property
    def instructions(self) -> str | None:
        """The pinned instructions, under the names of their servers where there are several."""
        told = {name: said["instructions"] for name, said in self._servers.items() if said.get("instructions")}
        if not self.several:
            return next(iter(told.values()), None)
        return "\n\n".join(f"{name}:\n{text}" for name, text in sorted(told.items())) or None

    def beside(self, upstream: str, name: str) -> Pin | None:
        """The pin of something beside tools: reading resources, filling in prompts."""
        return self._pins.get(f"{upstream}.{name}")

    def serving(self, name: str) -> list[str]:
        """The servers that have something beside tools."""
        return [upstream for upstream in sorted(self._connections.config.servers) if self.beside(upstream, name)]

    def find_suspension(self, pin: Pin) -> Change | None:
        """The change because of which a tool is not called."""
        change = self._changes.get(pin.upstream, {}).get(pin.name)
        return change if change is not None and change.suspends else None

    def list_changes(self) -> dict[str, list[Change]]:
        """What waits for an operator, by server."""
        return {name: list(changes.values()) for name, changes in sorted(self._changes.items()) if changes}

    async def start(self, seconds: float | None = None) -> set[asyncio.Task[None]]:
        """Read the pins, and look at every server; of several, one that does not answer in time holds up no other.

        Pins servers that are new. Gives the looks that go on. A server that cannot be looked at keeps its pins.
        """
        await ensure_space(self._ledger.operator, self._ledger.space_id)
        await self.reload()
        looks = {asyncio.create_task(self.check(name)) for name in self._connections.config.servers}
        # Without another to wait for it, the only server has all of its time.
        _, pending = await asyncio.wait(looks, timeout=seconds if self.several else None)
        return pending

    async def check(self, upstream: str) -> None:
        """Look at a server again, and at the pins: another process may have accepted something."""
        async with self._locks.setdefault(upstream, asyncio.Lock()):
            try:
                look = await self._look(upstream)
                if look is not None:
                    await self.reload()
                    await self._take(upstream, *look)
            except CmbsError as exc:
                _log.warning("what %s says cannot be compared: %s", upstream, exc)
            except Exception as exc:  # noqa: BLE001 - whatever a server says, it is looked at again, and so are the others
                self.unseen[upstream] = str(exc)
                _log.exception("%s cannot be looked at", upstream)

    async def accept(self, upstream: str, name: str, expected: str | None = None) -> Change | None:
        """Pin what a server says now of one name, as an operator; None where nothing has changed about it.

        With `expected`, only where that is the hash of it: what was looked at is what is pinned.
        """
        look = await self._look(upstream)
        if look is None:
            raise InvalidRequest(f"`{upstream}` cannot be looked at: {self.unseen[upstream]}")
        tools, said = look
        await self.reload()
        await self._compare(upstream, tools, said)
        change = self._changes[upstream].get(name)
        if change is None:
            return None
        if expected not in (None, change.after):
            raise InvalidRequest(
                f"`{name}` is another by now",
                {"field": "now", "found": expected, "accepted": change.after, "next": "look at the changes again"},
            )
        if name == OF_SERVER:
            await self._ledger.pin_server(upstream, said)
        elif change.kind is ChangeKind.GONE:
            await self._ledger.retire(f"{upstream}.{name}")
        else:
            await self._ledger.pin_tool(upstream, tools[name], self._timeout_ms)
            if change.was is not None:
                await self._ledger.retire(f"{upstream}.{change.was}")
        return change

    async def _look(self, upstream: str) -> tuple[dict[str, Wire], Wire] | None:
        """What a server says now; None where it cannot be looked at, and `unseen` says why."""
        self.unseen.pop(upstream, None)
        try:
            connection = self._connections.any_connection(upstream)
            found = await read_server(connection)
        except (UpstreamFailed, UpstreamBroke, MCPError) as exc:
            self.unseen[upstream] = str(exc)
            _log.warning("%s cannot be looked at: %s", upstream, exc)
            return None
        if connection.session is not None and connection.session.server_capabilities is not None:
            self.declared[upstream] = connection.session.server_capabilities
        return found

    async def _take(self, upstream: str, tools: Mapping[str, Wire], said: Wire) -> None:
        """Pin a server that is new to the space; of one that is known, note what has changed."""
        if upstream in self._servers or any(pin.upstream == upstream for pin in self.pins):
            await self._compare(upstream, tools, said)
            return
        await self._pin_server(upstream, tools, said)
        await self.reload()

    async def reload(self) -> None:
        """Read the pins again, as the space has them now."""
        # One after another, or the pins of one look could be those from before another.
        async with self._loading:
            pins, servers = await self._ledger.pins()
            ours, before = self._connections.config.servers, (self.tools, self.prompts)
            self._pins = {pin.tool_id: pin for pin in pins if pin.upstream in ours}
            self._servers = {name: said for name, said in servers.items() if name in ours}
            tools = (pin for pin in pins if pin.tool_id in self._pins and pin.name not in READS)
            self.tools = {expose_name(pin.upstream, pin.name, several=self.several): pin for pin in tools}
            if self.pins != tuple(self._pins.values()):
                self.pins = tuple(self._pins.values())
            if before[0] != self.tools:
                self.on_changed("tools")
            if before[1] != self.prompts:
                self.on_changed("prompts")

    async def _pin_server(self, upstream: str, tools: Mapping[str, Wire], said: Wire) -> None:
        for name in sorted(tools):
            try:
                await self._ledger.pin_tool(upstream, tools[name], self._timeout_ms)
            except CmbsError as exc:
                _log.warning("`%s` of %s cannot be pinned, and is not offered: %s", name, upstream, exc)
        try:
            await self._ledger.pin_server(upstream, said)
        except CmbsError as exc:
            _log.warning("instructions and prompts of %s cannot be pinned, and are not offered: %s", upstream, exc)
            await self._ledger.pin_server(upstream, {})

    async def _compare(self, upstream: str, tools: Mapping[str, Wire], said: Wire) -> None:
        pinned = {pin.name: pin.definition for pin in self.pins if pin.upstream == upstream}
        changes = {change.name: change for change in find_changes(pinned, tools)}
        of_server = {OF_SERVER: said}
        for change in find_changes({OF_SERVER: self._servers.get(upstream, {})}, of_server):
            changes[OF_SERVER] = change
        before = self._changes.get(upstream, {})
        self._changes[upstream] = changes
        for name, change in changes.items():
            if before.get(name) != change:
                await self._note(upstream, change, tools.get(name, said if name == OF_SERVER else None))

    async def _note(self, upstream: str, change: Change, definition: Wire | None) -> None:
        budget = self._notes.setdefault(upstream, _NoteBudget())
        left = budget.spend()
        if left < 0:
            return
        if left == 0:
            _log.warning("%s changes all the time: what else changes is not noted for a while", upstream)
            many = {"noticed": "changes too many to note", "upstream": upstream, "stretch": budget.number}
            await self._ledger.note("changes", many)
            return
        _log.warning("`%s` of %s %s; it waits for an operator", change.name, upstream, describe_change(change))
        claim: Wire = {
            "noticed": "definition changed",
            "upstream": upstream,
            "name": change.name,
            "kind": change.kind.value,
            "before": change.before,
            "after": change.after,
            "fields": list(change.fields),
        }
        if definition is not None and len(canonical.encode(definition)) <= _MAX_NOTED_BYTES:
            claim["definition"] = definition
        await self._ledger.note("change", claim)


class _NoteBudget:
    """How many changes of one server are still noted in this stretch of time."""

    def __init__(self) -> None:
        self.number = 0
        self._until = 0.0
        self._left = 0

    def spend(self) -> int:
        """How many were left: 0 for the first that is one too many, and less than that for the others."""
        now = time.monotonic()
        if now >= self._until:
            self._until, self._left = now + _NOTES_SECONDS, _MAX_NOTES
            self.number += 1
        left, self._left = self._left, self._left - 1
        return left


async def read_server(connection: Connection) -> tuple[dict[str, Wire], Wire]:
    """The definitions that a server lists, by name, and what it says of itself: instructions and prompts."""
    session = await connection.wait_ready()
    capabilities = session.server_capabilities
    tools: dict[str, Wire] = {}
    said: Wire = {}
    if session.instructions:
        said["instructions"] = session.instructions
    if capabilities is None or capabilities.tools is not None:
        listed = await list_all(connection, "tools/list", "tools")
        tools = {each["name"]: each for each in listed if _is_sound(each, connection.where)}
    for kind, definition in _ASIDE.items():
        if capabilities is not None and getattr(capabilities, kind) is not None:
            tools[definition["name"]] = definition
    if GET_PROMPT in tools:
        prompts = await list_all(connection, "prompts/list", "prompts")
        sound = [each for each in prompts if _is_sound(each, connection.where)]
        said["prompts"] = sorted(sound, key=lambda each: str(each["name"]))
    return tools, said


async def list_all(connection: Connection, method: str, collection: str) -> list[Any]:
    """All items of a list, page after page; UpstreamFailed where it is none, has no end, or does not come in time."""
    items: list[Any] = []
    cursor: Any = None
    size = 0
    try:
        async with asyncio.timeout(_LIST_SECONDS):
            for _ in range(_MAX_PAGES):
                page = await connection.request(method, {} if cursor is None else {"cursor": cursor})
                found = page.get(collection)
                if not isinstance(found, list):
                    raise UpstreamFailed(f"{connection.where} answers `{method}` without a list of `{collection}`")
                size += len(msgspec.json.encode(page))
                if size > _MAX_LISTED_BYTES:
                    raise UpstreamFailed(
                        f"{connection.where} lists `{collection}` of more than {_MAX_LISTED_BYTES} bytes"
                    )
                items += found
                cursor = page.get("nextCursor")
                if cursor is None:
                    return items
                if not found or len(items) > _MAX_LISTED:
                    break
    except MCPError as exc:
        # Servers declare what they do not serve.
        if exc.code == mcp_types.METHOD_NOT_FOUND:
            return items
        raise
    except TimeoutError as exc:
        raise UpstreamFailed(f"{connection.where} did not answer `{method}` within {_LIST_SECONDS} s") from exc
    raise UpstreamFailed(f"{connection.where} has more than {_MAX_LISTED} `{collection}`, or pages without end")


def _is_sound(definition: Wire, where: str) -> bool:
    """Whether the ledger can keep it; what it cannot is as good as gone. That it is one of MCP, the SDK has seen."""
    name = str(definition.get("name", ""))
    try:
        canonical.encode(definition)
    except BeliefServerError as exc:
        _log.warning("%s lists `%s` in a way that cannot be recorded; it is not offered: %s", where, name, exc)
        return False
    # A name that does not print reads as another one.
    return bool(name) and name.isprintable()
