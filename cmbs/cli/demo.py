"""An incident to look at: the web shop is slow, two agents look into it through MCP, and one concludes too early.

The agents use the tools of `/mcp` and nothing else. One of them loses its memory in the middle, and goes on from what
the server knows. An operator, over HTTP, puts the kit on record and says how much has to be looked at.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

from cmbs.adapters.sre import FIRING, SILENT
from cmbs.adapters.sre.webshop import closed_kit
from cmbs.kit import NO_DATA, Kit
from cmbs.kit.writing import format_kit

if TYPE_CHECKING:
    from mcp import Client

Say = Callable[[str], None]
# Waits so many seconds.
Wait = Callable[[float], None]

# As long as it takes to read a line.
PAUSE_SECONDS = 1.5
METRICS, TRACES = "metrics", "traces"
OBLIGATION_ID = "look-before-concluding"
MIN_ELIMINATIONS = 18
_OPERATOR = "operator:demo"
_SECONDS = 30.0


class DemoStopped(Exception):
    """The server did not do as it should."""


@dataclass(frozen=True, slots=True)
class Look:
    """An agent looks at an alert."""

    agent: str
    probe_id: str
    finds: str


@dataclass(frozen=True, slots=True)
class Conclude:
    """An agent names what it takes for the cause; with `closes`, it wants the case closed."""

    agent: str
    conclusion_id: str
    closes: bool = False


@dataclass(frozen=True, slots=True)
class Leave:
    """An agent says that the obligation is met."""

    agent: str


@dataclass(frozen=True, slots=True)
class Forget:
    """An agent loses its memory, and asks the server what it was doing."""

    agent: str


Move = Look | Conclude | Leave | Forget

CAUSE = "orders-db-lock-contention"
STORY: tuple[Move, ...] = (
    Look(METRICS, "QueueBacklog@event-queue", SILENT),
    Look(TRACES, "ErrorRateHigh@storefront", SILENT),
    Conclude(TRACES, "card-provider-throttling"),
    # Nothing new: the other agent has looked there already.
    Look(TRACES, "QueueBacklog@event-queue", SILENT),
    Leave(TRACES),
    Look(TRACES, "SlowResponses@storefront", FIRING),
    Look(METRICS, "CpuSaturated@node-pool", SILENT),
    Leave(TRACES),
    Conclude(METRICS, CAUSE, closes=True),
    Forget(TRACES),
    Look(TRACES, "SlowResponses@image-store", SILENT),
    Look(METRICS, "CacheMissesHigh@basket-cache", SILENT),
    Look(TRACES, "SlowResponses@orders", FIRING),
    Conclude(TRACES, CAUSE, closes=True),
)


def play_in_background(
    base: str, say: Say, pause_seconds: float = PAUSE_SECONDS, wait: Wait = time.sleep
) -> threading.Thread:
    """Play the incident once the server answers; the thread ends by itself."""
    arguments = (base, say, pause_seconds, wait)
    thread = threading.Thread(target=_play_when_ready, args=arguments, name="cmbs-demo", daemon=True)
    thread.start()
    return thread


def _play_when_ready(base: str, say: Say, pause_seconds: float, wait: Wait) -> None:
    import httpx2

    # Without a proxy of the environment: the server is on this machine.
    with httpx2.Client(base_url=base, trust_env=False, timeout=_SECONDS) as client:
        for _ in range(100):
            # First wait, so that this thread does nothing while the server forks its processes.
            wait(0.1)
            try:
                client.get("/healthz").raise_for_status()
            except httpx2.HTTPError:
                continue
            break
        else:
            say("demo: the server did not answer in ten seconds")
            return
    try:
        play(base, say, lambda: wait(pause_seconds))
    except Exception as exc:  # noqa: BLE001 - a demo that fails says so, and stops nothing else
        say(f"demo: stopped: {_find_cause(exc)}")


def _find_cause(exc: BaseException) -> str:
    """What went wrong, out of the groups in which tasks raise."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return str(exc).strip() or type(exc).__name__


def play(base: str, say: Say, pause: Callable[[], None]) -> str:
    """Play the incident; the id of its session. `pause` is called before every step."""
    return tell(base, say, pause, STORY)


def tell(base: str, say: Say, pause: Callable[[], None], story: tuple[Move, ...]) -> str:
    """Play any story on the web shop's faults; the id of its session."""
    return asyncio.run(_Incident(base, say).play(story, pause))


class _Incident:
    """A session on a server, and agents that know the server alone: each move is made by a client of its own."""

    def __init__(self, base: str, say: Say) -> None:
        self._base = base
        self._say = say
        # A closed world, because in an open one a silent alert rules out nothing.
        self._kit: Kit = closed_kit()
        self._session_id = ""

    async def play(self, story: tuple[Move, ...], pause: Callable[[], None]) -> str:
        """Open a session, and let the agents do what the story says."""
        from cmbs.mcp.asking import identify_caller, open_api

        async with open_api(self._base) as api:
            operator = api.acting_as(identify_caller(_OPERATOR))
            await operator.put_kit(format_kit(self._kit, "kit.json"), media_type="application/json")
            opened = await self._call(METRICS, "open_case", kit_id=self._kit.kit_id, about="the shop is slow")
            self._session_id = opened["handles"]["session_id"]
            await operator.enter_obligation(self._session_id, OBLIGATION_ID, MIN_ELIMINATIONS)
        self._say(f"demo: the shop is slow; {opened['n_survivors']} known faults could be why")
        self._say(f"demo: no conclusion counts before {MIN_ELIMINATIONS} of them are ruled out")
        for move in story:
            await asyncio.to_thread(pause)
            self._say(f"demo: {move.agent:>7} · {await self._make(move)}")
        self._say(f"demo: read it back at {self._base}/v1/sessions/{self._session_id}/audit")
        return self._session_id

    async def _make(self, move: Move) -> str:
        """Do what an agent does; what came of it."""
        match move:
            case Look():
                return await self._look(move)
            case Conclude():
                return await self._conclude(move)
            case Leave():
                answer = await self._ask(move.agent, "leave_obligation", obligation_id=OBLIGATION_ID)
                return f"says that enough was looked at: {_describe_answer(answer)}"
            case Forget():
                return await self._remember(move)

    async def _look(self, look: Look) -> str:
        response = None if look.finds == NO_DATA else look.finds
        found = {"probe_id": look.probe_id, "response": response, "source_id": look.agent}
        answer = await self._ask(look.agent, "observe", **found)
        left = f"{answer['n_survivors']} left, {log2(answer['n_survivors'] or 1):.2f} bits"
        seen = f"{look.probe_id} is {look.finds}"
        if answer["ruled_out"]:
            return f"{seen}: {answer['n_ruled_out']} ruled out, {left}"
        sources = sorted({each["source_id"] for each in answer["seen_before"]} - {look.agent})
        told = f"{' and '.join(sources)} saw it before" if sources else "that rules out nothing"
        return f"{seen}: {told}, {left}"

    async def _conclude(self, move: Conclude) -> str:
        answer = await self._ask(move.agent, "conclude", hypothesis_id=move.conclusion_id, end=move.closes)
        told = f"concludes {move.conclusion_id} ({self._label(move.conclusion_id)}): {_describe_answer(answer)}"
        if not (move.closes and answer["accepted"]):
            return told
        return f"{told}; wants to close: " + ("closed" if answer["ended"] else f"not closed ({answer['reason']})")

    async def _remember(self, move: Forget) -> str:
        """What an agent finds out that knows nothing of what it did."""
        sessions = (await self._call(move.agent, "find_sessions", limit=1))["sessions"]
        self._session_id = sessions[0]["session_id"]
        known = await self._ask(move.agent, "next_probes")
        return f"forgets everything, and asks: {known['n_survivors']} left, {known['n_asked']} looks on record"

    def _label(self, fault_id: str) -> str:
        return next(each.label for each in self._kit.hypotheses if each.id == fault_id)

    async def _ask(self, agent: str, tool: str, **args: Any) -> dict[str, Any]:
        return await self._call(agent, tool, session_id=self._session_id, **args)

    async def _call(self, agent: str, tool: str, **args: Any) -> dict[str, Any]:
        """Call a tool as an agent; DemoStopped where the answer is an error."""
        async with _connect(f"{self._base}/mcp", agent) as client:
            result = await client.call_tool(tool, args)
        if result.is_error or result.structured_content is None:
            told = result.content[0] if result.content else None
            raise DemoStopped(getattr(told, "text", f"`{tool}` gave no answer"))
        return dict(result.structured_content)


@asynccontextmanager
async def _connect(url: str, agent: str) -> AsyncIterator[Client]:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"x-cmbs-actor": f"agent:{agent}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=_SECONDS, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


def _describe_answer(answer: dict[str, Any]) -> str:
    return "accepted" if answer["accepted"] else f"not accepted ({answer['reason']})"
