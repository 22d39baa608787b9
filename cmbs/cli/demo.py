"""An incident to look at: the web shop is slow, two agents look into it, and one of them concludes too early."""

from __future__ import annotations

import http.client
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from cmbs.adapters import KitAdapter
from cmbs.adapters.sre import FIRING, SILENT
from cmbs.adapters.sre.webshop import closed_kit
from cmbs.kit import Kit, ontology_of
from cmbs.messages import BeliefSnapshot

Say = Callable[[str], None]
# Waits so many seconds.
Wait = Callable[[float], None]

# Without a proxy of the environment: the server is on this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# What a broken connection or a cut answer raises.
_BROKEN = (OSError, http.client.HTTPException, msgspec.DecodeError)

# As long as it takes to read a line.
PAUSE_SECONDS = 1.5
METRICS, TRACES = "metrics", "traces"
OBLIGATION_ID = "look-before-concluding"
MIN_ELIMINATIONS = 18


@dataclass(frozen=True, slots=True)
class Look:
    """An agent looks at an alert."""

    agent: str
    probe_id: str
    finds: str


@dataclass(frozen=True, slots=True)
class Conclude:
    """An agent names what it takes for the cause."""

    agent: str
    conclusion_id: str


@dataclass(frozen=True, slots=True)
class Close:
    """An agent wants the case closed."""

    agent: str


@dataclass(frozen=True, slots=True)
class Leave:
    """An agent says that the obligation is met."""

    agent: str


Move = Look | Conclude | Close | Leave

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
    Close(METRICS),
    Look(TRACES, "SlowResponses@image-store", SILENT),
    Look(METRICS, "CacheMissesHigh@basket-cache", SILENT),
    Look(TRACES, "SlowResponses@orders", FIRING),
    Conclude(TRACES, CAUSE),
    Close(METRICS),
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
    for _ in range(100):
        # First wait, so that this thread does nothing while the server forks its processes.
        wait(0.1)
        try:
            _call(base, "GET", "/healthz")
        except _BROKEN:
            continue
        break
    else:
        say("demo: the server did not answer in ten seconds")
        return
    try:
        play(base, say, lambda: wait(pause_seconds))
    except _BROKEN as exc:
        say(f"demo: stopped: {str(exc).strip()}")


def play(base: str, say: Say, pause: Callable[[], None]) -> str:
    """Play the incident; the id of its session. `pause` is called before every step."""
    return tell(base, say, pause, STORY)


def tell(base: str, say: Say, pause: Callable[[], None], story: tuple[Move, ...]) -> str:
    """Play any story on the web shop's faults; the id of its session."""
    return _Incident(base, say).play(story, pause)


class _Incident:
    """A session on a server, and agents that know the faults of the web shop."""

    def __init__(self, base: str, say: Say) -> None:
        self._base = base
        self._say = say
        # A closed world, because in an open one a silent alert rules out nothing.
        self._kit: Kit = closed_kit()
        self._agents = {agent: KitAdapter(self._kit, agent) for agent in (METRICS, TRACES)}
        self._path = ""
        self._belief: dict[str, Any] = {}

    def play(self, story: tuple[Move, ...], pause: Callable[[], None]) -> str:
        """Open a session, and let the agents do what the story says."""
        ontology = ontology_of(self._kit)
        body = {"ontology": ontology.to_dict(), "hypotheses": sorted(self._kit.hypothesis_ids)}
        opened = self._post("/v1/sessions", body)
        session_id: str = opened["session_id"]
        self._path = f"/v1/sessions/{session_id}"
        self._say(
            f"demo: the shop is slow; {len(self._kit.hypotheses)} known faults could be why (session {session_id})"
        )
        obligation = {"obligation_id": OBLIGATION_ID, "min_total_eliminations": MIN_ELIMINATIONS}
        self._post(f"{self._path}/obligations", obligation)
        self._say(f"demo: no conclusion counts before {MIN_ELIMINATIONS} of them are ruled out")
        for move in story:
            pause()
            self._say(f"demo: {move.agent:>7} · {self._make(move)}")
        self._say(f"demo: read it back at {self._base}{self._path}/audit")
        return session_id

    def _make(self, move: Move) -> str:
        """Do what an agent does; what came of it."""
        match move:
            case Look():
                return self._look(move)
            case Conclude():
                answer = self._post(f"{self._path}/conclusions", {"conclusion_id": move.conclusion_id})
                accepted = _describe_answer(answer, "accepted")
                return f"concludes {move.conclusion_id} ({self._label(move.conclusion_id)}): {accepted}"
            case Close():
                return f"wants to close: {_describe_answer(self._post(f'{self._path}/terminate', {}), 'approved')}"
            case Leave():
                answer = self._post(f"{self._path}/obligations/{OBLIGATION_ID}/exit", {})
                return f"says that enough was looked at: {_describe_answer(answer, 'approved')}"

    def _look(self, look: Look) -> str:
        adapter = self._agents[look.agent]
        action = adapter.apply_action(look.probe_id, self._snapshot())
        messages = adapter.observe(action, look.finds)
        if not messages:
            return f"{look.probe_id} is {look.finds}: that rules out nothing"
        (message,) = messages
        body = {
            "source_id": message.source_id,
            "observation_id": message.observation_id,
            "eliminated": list(message.eliminated),
            "justification": message.justification,
        }
        answer = self._post(f"{self._path}/eliminate", body)
        self._belief = answer["snapshot"]
        gone = len(answer["applied_eliminated"])
        left = f"{self._belief['n_survivors']} left, {self._belief['entropy_proxy']:.2f} bits"
        return f"{look.probe_id} is {look.finds}: {gone} ruled out, {left}"

    def _snapshot(self) -> BeliefSnapshot:
        alive = self._belief.get("survivors", self._kit.hypothesis_ids)
        return BeliefSnapshot(self._path, ontology_of(self._kit), alive)

    def _label(self, fault_id: str) -> str:
        return next(each.label for each in self._kit.hypotheses if each.id == fault_id)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return _call(self._base, "POST", path, body)


def _describe_answer(answer: dict[str, Any], field: str) -> str:
    return field if answer[field] else f"not {field} ({answer['reason']})"


def _call(base: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else msgspec.json.encode(body)
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(base + path, data, headers, method=method)  # noqa: S310 - our own server
    with _OPENER.open(request, timeout=10) as response:
        answer: dict[str, Any] = msgspec.json.decode(response.read())
    return answer
