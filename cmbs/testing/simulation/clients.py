"""Those who ask: they send requests, send them again until they are answered, and sometimes after that."""

from __future__ import annotations

from random import Random
from typing import Any

from cmbs.messages import Verb
from cmbs.testing.simulation.model import Model, Request

_MOST_SESSIONS = 3
_VERBS = (
    *[Verb.ELIMINATE] * 10,
    *[Verb.ENTER_OBLIGATION] * 3,
    *[Verb.REQUEST_EXIT] * 4,
    *[Verb.DECLARE_CONCLUSION] * 3,
    Verb.REQUEST_TERMINATION,
)
_IDS = [f"h{number}" for number in range(12)]


class Clients:
    """All clients together. They know the sessions whose declaration was answered."""

    def __init__(self, random: Random, model: Model) -> None:
        self._random = random
        self._model = model
        self._sessions: list[str] = []
        self._sent: list[Request] = []
        self.unsettled: list[Request] = []
        self._declarations = 0
        self._numbers = 0

    def next_request(self) -> Request:
        """A new request, one that still waits for its answer, or a stray copy of any."""
        chance = self._random.random()
        if self.unsettled and chance < 0.3:
            return self._random.choice(self.unsettled)
        if self._sent and chance < 0.4:
            return self._random.choice(self._sent)
        request = self._new_request()
        self._sent.append(request)
        self.unsettled.append(request)
        return request

    def add_session(self, session_id: str) -> None:
        """A session can be used from here on."""
        if session_id not in self._sessions:
            self._sessions.append(session_id)

    def settle(self, request: Request) -> None:
        """A request has its answer."""
        self.unsettled = [waiting for waiting in self.unsettled if waiting != request]

    def _new_request(self) -> Request:
        random = self._random
        if not self._sessions or (self._declarations < _MOST_SESSIONS and random.random() < 0.08):
            self._declarations += 1
            return self._declaration(f"session-{self._declarations}")
        self._numbers += 1
        session_id, verb = random.choice(self._sessions), random.choice(_VERBS)
        key: str | None = f"request-{self._numbers}"
        if verb is Verb.ELIMINATE and random.random() < 0.7:
            key = None
        if_match = None
        if random.random() < 0.15:
            # The head as it is, or as it was some time ago.
            if_match = random.choice(self._model.sessions[session_id].events[-3:]).event_id
        return Request(verb, session_id, self._arguments(verb), key, if_match)

    def _declaration(self, key: str) -> Request:
        random = self._random
        policy = {
            "allow_force": random.random() < 0.5,
            "stability_window": random.choice((0, 0, 1, 2)),
            "validate_hypotheses": random.random() < 0.3,
            "conclusions": random.choice(("any", "survivors")),
        }
        hypotheses = _IDS[: random.randint(1, len(_IDS))]
        return Request(Verb.DECLARE_SESSION, "", {"hypotheses": hypotheses, "policy": policy}, key)

    def _arguments(self, verb: Verb) -> dict[str, Any]:
        """Names come from small pools, so that they meet: an observation with other ids, a second entry."""
        random = self._random
        match verb:
            case Verb.ELIMINATE:
                return {
                    "source_id": random.choice(("s", "t")),
                    "observation_id": f"o{random.randrange(20)}",
                    "eliminated": sorted(random.sample([*_IDS, "unknown"], random.randrange(4))),
                }
            case Verb.ENTER_OBLIGATION:
                return {"obligation_id": f"g{random.randrange(4)}", "min_total_eliminations": random.randrange(3)}
            case Verb.REQUEST_EXIT:
                return {"obligation_id": f"g{random.randrange(4)}"}
            case Verb.DECLARE_CONCLUSION:
                return {"conclusion_id": random.choice(("x", "y", *_IDS))}
            case _:
                return {"context": {"force": True} if random.random() < 0.5 else None}
