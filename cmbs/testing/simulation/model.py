"""What the protocol asks for, once more and small: dicts and sets, no code of the server.

The model does not guess which requests were carried out. It reads the stored log, takes each entry for the request that
it records, and says what that entry and the answer to that request have to be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from cmbs.ledger import StoredEntry
from cmbs.messages import Verb

_GENESIS = "00" * 32


class Disagreement(BaseException):
    """The server and the model tell different stories. No ordinary exception: no server code may swallow it."""


class Request(NamedTuple):
    """What a client sends until it is answered. It is known by its key, or by its observation."""

    verb: Verb
    session_id: str
    arguments: Mapping[str, Any]
    key: str | None
    if_match: str | None = None

    @property
    def observation(self) -> tuple[str, str] | None:
        """Of an elimination: who saw what."""
        if self.verb is not Verb.ELIMINATE:
            return None
        return self.arguments["source_id"], self.arguments["observation_id"]

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items() if name != "ontology")
        key = "" if self.key is None else f", key={self.key!r}"
        return f"{self.verb.value}({shown}{key}{'' if self.if_match is None else f', if_match={self.if_match!r}'})"


class Recorded(NamedTuple):
    """An event, what the answer to its request says, and the belief right after it."""

    event_id: str
    result: tuple[Any, ...]
    survivors: frozenset[str]
    active: tuple[str, ...]
    terminated: bool


class Judgement(NamedTuple):
    """What a request comes to now: an error code, an earlier event, or a new one with this result."""

    code: str | None = None
    earlier: int | None = None
    result: tuple[Any, ...] = ()


@dataclass
class SessionModel:
    """One session, from its log alone."""

    universe: frozenset[str]
    policy: Mapping[str, Any]
    survivors: frozenset[str]
    observed: dict[tuple[str, str], tuple[frozenset[str], int]] = field(default_factory=dict)
    keyed: dict[str, tuple[Verb, Mapping[str, Any], int]] = field(default_factory=dict)
    # Threshold, how many were gone at entry, whether it is still open.
    obligations: dict[str, tuple[int, int, bool]] = field(default_factory=dict)
    conclusions: list[str] = field(default_factory=list)
    terminated: bool = False
    events: list[Recorded] = field(default_factory=list)
    entries: list[StoredEntry] = field(default_factory=list)

    @property
    def gone(self) -> int:
        """How many hypotheses are eliminated."""
        return len(self.universe) - len(self.survivors)

    @property
    def active(self) -> tuple[str, ...]:
        """The open obligations, in the order of entry."""
        return tuple(name for name, (_, _, is_open) in self.obligations.items() if is_open)

    def judge(self, request: Request) -> Judgement:
        """What the protocol says to a request in this state."""
        if request.key is not None and request.key in self.keyed:
            verb, arguments, index = self.keyed[request.key]
            same = (verb, arguments) == (request.verb, request.arguments)
            return Judgement(earlier=index) if same else Judgement("CONFLICT")
        judgement = self._judge_verb(request)
        recorded = judgement.code is None and judgement.earlier is None
        if recorded and request.if_match not in (None, self.events[-1].event_id):
            return Judgement("CONFLICT")
        return judgement

    def _judge_verb(self, request: Request) -> Judgement:
        arguments = request.arguments
        observation = request.observation
        if observation is not None and observation in self.observed:
            ids, index = self.observed[observation]
            return Judgement(earlier=index) if ids == frozenset(arguments["eliminated"]) else Judgement("CONFLICT")
        if self.terminated:
            return Judgement("SESSION_TERMINATED")
        match request.verb:
            case Verb.ELIMINATE:
                return self._judge_elimination(frozenset(arguments["eliminated"]))
            case Verb.ENTER_OBLIGATION:
                return Judgement("CONFLICT" if arguments["obligation_id"] in self.obligations else None)
            case Verb.REQUEST_EXIT:
                return self._judge_exit(arguments["obligation_id"])
            case Verb.DECLARE_CONCLUSION:
                return Judgement(result=self._judge_conclusion(arguments["conclusion_id"]))
            case Verb.REQUEST_TERMINATION:
                return Judgement(result=self._judge_termination(forced=bool(arguments["context"])))
            case _:
                raise Disagreement(f"{request.verb} is no request to a session")

    def _judge_elimination(self, asked: frozenset[str]) -> Judgement:
        if self.policy["validate_hypotheses"] and asked - self.universe:
            return Judgement("INVALID_HYPOTHESIS_ID")
        applied = asked & self.survivors
        return Judgement(result=(sorted(applied), sorted(asked - applied)))

    def _judge_exit(self, obligation_id: str) -> Judgement:
        if obligation_id not in self.obligations:
            return Judgement("OBLIGATION_NOT_FOUND")
        threshold, gone_at_entry, is_open = self.obligations[obligation_id]
        if not is_open:
            return Judgement(result=(False, "obligation_not_active"))
        enough = self.gone - gone_at_entry >= threshold
        return Judgement(result=(True, "approved") if enough else (False, "below_threshold"))

    def _judge_conclusion(self, conclusion_id: str) -> tuple[bool, str]:
        if self.active:
            return False, "obligation_active"
        if self.policy.get("conclusions") == "survivors" and conclusion_id not in self.survivors:
            return False, "not_a_survivor"
        return True, "accepted"

    def _judge_termination(self, *, forced: bool) -> tuple[bool, str]:
        window = self.policy["stability_window"]
        tail = self.conclusions[-window:] if window else []
        if self.active:
            refusal = "obligation_active"
        elif len(self.survivors) != 1:
            refusal = "not_singleton"
        elif len(tail) != window or len(set(tail)) > 1:
            refusal = "conclusion_unstable"
        else:
            return True, "approved"
        return (True, "forced") if forced and self.policy["allow_force"] else (False, refusal)

    def record(self, request: Request, event_id: str, result: tuple[Any, ...]) -> None:
        """Let a request have happened."""
        index, arguments = len(self.events), request.arguments
        match request.verb:
            case Verb.ELIMINATE:
                self.survivors -= frozenset(result[0])
                self.observed[request.observation or ("", "")] = (frozenset(arguments["eliminated"]), index)
            case Verb.ENTER_OBLIGATION:
                self.obligations[arguments["obligation_id"]] = (arguments["min_total_eliminations"], self.gone, True)
            case Verb.REQUEST_EXIT if result[0]:
                threshold, gone_at_entry, _ = self.obligations[arguments["obligation_id"]]
                self.obligations[arguments["obligation_id"]] = (threshold, gone_at_entry, False)
            case Verb.DECLARE_CONCLUSION if result[0]:
                self.conclusions.append(arguments["conclusion_id"])
            case Verb.REQUEST_TERMINATION if result[0]:
                self.terminated = True
        if request.key is not None:
            self.keyed[request.key] = (request.verb, arguments, index)
        self.events.append(Recorded(event_id, result, self.survivors, self.active, self.terminated))


class Model:
    """Every session that the log tells of, and every request that was ever sent."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionModel] = {}
        self._by_key: dict[tuple[str, str], list[Request]] = {}
        self._declarations: dict[str, Request] = {}
        self._event_ids: set[str] = set()

    def register(self, request: Request) -> None:
        """Record a request that was sent: an entry must have one that leads to it."""
        if request.verb is Verb.DECLARE_SESSION:
            self._declarations[request.key or ""] = request
            return
        for name in (request.key, repr(request.observation)):
            if name is not None and request not in self._by_key.setdefault((request.session_id, name), []):
                self._by_key[request.session_id, name].append(request)

    def judge(self, request: Request) -> Judgement:
        """What a request comes to as of the entries taken so far."""
        if request.verb is Verb.DECLARE_SESSION:
            return Judgement()
        session = self.sessions.get(request.session_id)
        return Judgement("SESSION_NOT_FOUND") if session is None else session.judge(request)

    def take(self, session_id: str, stored: StoredEntry) -> None:
        """Take the next entry of a log: it must be asked for, in its place, new, and what its request leads to."""
        entry = json.loads(stored.raw)
        session = self.sessions.get(session_id)
        self._check_place(session_id, session, entry, stored)
        if session is None:
            self._take_declaration(session_id, entry, stored)
            return
        for request in self._candidates(session_id, entry):
            judgement = session.judge(request)
            applied = judgement.result[0] if request.verb is Verb.ELIMINATE and judgement.result else []
            if judgement.code is not None or judgement.earlier is not None or entry["delta"]["eliminated"] != applied:
                continue
            if request.verb is not Verb.ELIMINATE and _verdict(entry) != judgement.result:
                continue
            session.entries.append(stored)
            session.record(request, entry["event_id"], judgement.result)
            return
        raise Disagreement(f"entry {entry['seq']} of `{session_id}` is not what any request leads to: {entry}")

    def _check_place(
        self, session_id: str, session: SessionModel | None, entry: Mapping[str, Any], stored: StoredEntry
    ) -> None:
        entries = [] if session is None else session.entries
        previous = entries[-1].event_hash.hex() if entries else _GENESIS
        if (entry["stream_id"], entry["seq"], entry["prev_event_hash"]) != (session_id, len(entries), previous):
            raise Disagreement(f"entry {entry['seq']} of `{session_id}` does not follow entry {len(entries) - 1}")
        if sha256(b"\x00" + stored.raw).digest() != stored.event_hash:
            raise Disagreement(f"entry {entry['seq']} of `{session_id}` has the hash of something else")
        if entry["event_id"] in self._event_ids:
            raise Disagreement(f"event `{entry['event_id']}` is there twice")
        self._event_ids.add(entry["event_id"])

    def _take_declaration(self, session_id: str, entry: Mapping[str, Any], stored: StoredEntry) -> None:
        request = self._declarations.get(entry.get("idempotency_key", ""))
        if request is None or entry["verb"] != Verb.DECLARE_SESSION.value:
            raise Disagreement(f"no request declared `{session_id}`: {entry}")
        universe = frozenset(request.arguments["hypotheses"])
        if entry["payload"]["hypotheses"] != sorted(universe):
            raise Disagreement(f"`{session_id}` was declared over other hypotheses")
        session = SessionModel(universe, request.arguments["policy"], universe, entries=[stored])
        session.events.append(Recorded(entry["event_id"], (session_id,), universe, (), terminated=False))
        self.sessions[session_id] = session

    def _candidates(self, session_id: str, entry: Mapping[str, Any]) -> list[Request]:
        payload = entry["payload"]
        if entry["verb"] == Verb.ELIMINATE.value:
            known_as = repr((payload["source_id"], payload["observation_id"]))
        else:
            known_as = entry.get("idempotency_key", "")
        return [
            request
            for request in self._by_key.get((session_id, known_as), [])
            if request.verb.value == entry["verb"]
            and request.key == entry.get("idempotency_key")
            and all(payload.get(name) == value for name, value in request.arguments.items())
        ]


def _verdict(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    outcome = entry["outcome"]
    if outcome is None:
        return ()
    return bool(outcome.get("approved") or outcome.get("accepted")), outcome["reason"]
