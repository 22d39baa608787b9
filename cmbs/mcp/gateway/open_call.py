"""A call from the moment that it is made to its end, and the clients that wait for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from typing import Protocol

import msgspec
from mcp import MCPError

from cmbs.api.spaces import CallWaitKind
from cmbs.calls.gated_call import GatedCall
from cmbs.client import AsyncClient
from cmbs.ledger import canonical
from cmbs.mcp.gateway.ledger import Pin
from cmbs.substrate.kernel.words import CallStatus
from cmbs.substrate.tools.mcp_connection import NEWEST, Manner, Wire

INPUT_REQUIRED = "input_required"


class Listener(Protocol):
    """The client that waits for a call."""

    modern: bool
    # Whether it says that it can show its user a URL.
    takes_urls: bool

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Tell how far the call is."""
        ...

    async def ask(self, method: str, params: Wire) -> Wire:
        """Ask it something in the middle of the request; MCPError where that cannot be."""
        ...

    async def notify(self, method: str, params: Wire) -> None:
        """Hand on what the server says meanwhile, where the client wants to hear it."""
        ...


class CallRequest(msgspec.Struct, frozen=True):
    """One call: by whom, in which case, of which pinned tool, and what the upstream is sent for it."""

    agent: AsyncClient
    agent_id: str
    case_id: str | None
    pin: Pin
    method: str
    decided: Wire
    forwarded: Wire
    args: Wire
    manner: Manner = NEWEST

    @property
    def key(self) -> str:
        """What makes two calls the same."""
        named = [self.agent_id, self.case_id, self.pin.tool_id, self.args, self.forwarded]
        return sha256(canonical.encode(named)).hexdigest()


class OpenCall:
    """A call from the moment that it is made to its end."""

    def __init__(self, request: CallRequest, gated: GatedCall) -> None:
        self.request = request
        self.gated = gated
        self.answer: Wire | None = None
        self.error: MCPError | None = None
        # What the upstream asks of the user of a client that has to be asked by a result.
        self.question: Wire | None = None
        self.round = 0
        # Whether its client was shown where it is approved, and has answered that.
        self.is_offered = False
        self.is_offer_answered = False
        self.responses: asyncio.Future[Wire] | None = None
        self.listeners: list[Listener] = []
        self.task: asyncio.Task[None] | None = None
        self.is_called_off = False
        # When it ended.
        self.ended_at = 0.0
        self._moved = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether there is an answer, or an error to be handed on."""
        return self.answer is not None or self.error is not None

    @cached_property
    def size(self) -> int:
        """How many bytes its answer has, once there is one."""
        return len(msgspec.json.encode(self.answer))

    @property
    def is_waiting(self) -> bool:
        """Whether there is nothing to do here but wait: for an approval, a change, or what another process sent."""
        if self.is_over or not self.gated.is_made or self.gated.may_run:
            return False
        return self.gated.answer.status in (CallStatus.WAITING, CallStatus.RUNNING)

    @property
    def is_asked(self) -> bool:
        """Whether it waits for an approval."""
        waits_for = self.gated.answer.waits_for if self.is_waiting else None
        return waits_for is not None and waits_for.kind is CallWaitKind.APPROVAL

    def move(self) -> None:
        """Have those who wait look again."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def wait_moved(self, seconds: float | None) -> None:
        """Return when it has moved on, or when the time is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._moved.wait(), seconds)

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Tell every client that waits."""
        for listener in list(self.listeners):
            with suppress(Exception):
                await listener.progress(progress, total, message)

    async def notify(self, method: str, params: Wire) -> None:
        """Hand a message of the server to every client that waits."""
        for listener in list(self.listeners):
            with suppress(Exception):
                await listener.notify(method, params)
