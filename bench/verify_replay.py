"""Verification of small sessions, which is replay: every message is decided again and must give the recorded bytes.

It waits for nothing and uses one processor, so its seconds are seconds of processor time: what else runs on the machine
then counts for less.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import Executor
from hashlib import sha256
from itertools import islice

import msgspec

from bench.harness import ONTOLOGY, SOURCE, Effort, Result, at_least, hypothesis_ids, interleaved, shown
from cmbs.audit.verify import every_core
from cmbs.belief.kernel.events import (
    Declare,
    DeclareConclusion,
    Eliminate,
    EnterObligation,
    Event,
    Message,
    RequestExit,
    Stamp,
)
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.session import decide, decide_declare, evolve
from cmbs.ledger import StoredEntry, canonical
from cmbs.messages import SessionPolicy

NAME = "verify_replay"
SESSION_SIZE = 100
EVENTS = 1_000
SESSIONS = 20
# Out of ten events, seven eliminate, and the other three open a gate, leave it and conclude.
ELIMINATIONS = EVENTS * 7 // 10
EVENTS_PER_SECOND = 35_000


def run(effort: Effort) -> list[Result]:
    """Compare verify and replay with hashing and parsing the same bytes, which no verifier can do without."""
    logs = {f"session-{number:04d}": _log(f"session-{number:04d}") for number in range(SESSIONS)}
    with every_core() as executor:
        _verify_on_every_core(logs, executor)  # the processes are up before anything is measured
        contestants = {
            "verify": lambda: _verify_on_every_core(logs, executor),
            "one core": lambda: _verify(logs),
            "parse": lambda: _hash_and_parse(logs),
        }
        rates = interleaved(contestants, effort.rounds)
    verify, one_core, parse = rates["verify"], rates["one core"], rates["parse"]
    sessions = f"{SESSIONS} sessions of {EVENTS:,} events, n = {SESSION_SIZE}"
    return [
        Result(
            NAME,
            f"verify and replay of {sessions}: {shown(verify)} events/s, {shown(one_core)} a core",
            f"sha256 and json.loads of the same bytes, one core: {shown(parse)} events/s, {one_core / parse:.2f} of it",
            verify,
            at_least(EVENTS_PER_SECOND, "events/s"),
        )
    ]


def _object(content: dict[str, object]) -> msgspec.Raw:
    return msgspec.Raw(canonical.encode(content))


def _messages() -> list[Message]:
    """A session's life: an elimination in seven takes out something new, and every gate is passed."""
    ids = hypothesis_ids(SESSION_SIZE)
    messages: list[Message] = []
    eliminations = 0
    for number in range(EVENTS):
        match number % 10:
            case 0:
                messages.append(EnterObligation(f"obligation-{number // 10}", 0))
            case 8:
                messages.append(RequestExit(f"obligation-{number // 10}", _object({"asked_by": SOURCE})))
            case 9:
                messages.append(DeclareConclusion(f"conclusion-{number % 3}"))
            case _:
                gone = ids[eliminations * (SESSION_SIZE - 1) // ELIMINATIONS]
                justification = _object({"probe": f"probe-{number}", "value": number})
                messages.append(Eliminate(SOURCE, f"observation-{number}", [gone], justification))
                eliminations += 1
    return messages


def _log(session_id: str) -> list[StoredEntry]:
    """The whole log of one session, as a store keeps it."""
    declare = Declare(ONTOLOGY, hypothesis_ids(SESSION_SIZE), SessionPolicy())
    event = decide_declare(session_id, declare, _stamp(session_id, 0))
    session = evolve(None, event)
    log = [event.stored]
    for number, message in enumerate(islice(_messages(), EVENTS - 1), start=1):
        decided = decide(session, message, _stamp(session_id, number))
        if not isinstance(decided, Event):
            raise TypeError("a generated message repeats an earlier one")
        session = evolve(session, decided)
        log.append(decided.stored)
    return log


def _stamp(session_id: str, number: int) -> Stamp:
    """An event id and a time that look like real ones, and are the same in every run."""
    digits = sha256(f"{session_id} {number}".encode()).hexdigest()
    event_id = f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"
    return Stamp(event_id, f"2026-01-01T00:{number // 60 % 60:02d}:{number % 60:02d}.{number:06d}Z")


def _verify_on_every_core(logs: dict[str, list[StoredEntry]], executor: Executor) -> float:
    start = time.perf_counter()
    packed = [([each.raw for each in log], [each.event_hash for each in log]) for log in logs.values()]
    for survivors in executor.map(_verify_packed, logs, packed):
        if survivors == SESSION_SIZE:
            raise AssertionError("nothing was eliminated in the replay")
    return SESSIONS * EVENTS / (time.perf_counter() - start)


def _verify_packed(session_id: str, log: tuple[list[bytes], list[bytes]]) -> int:
    """In another process: lists of bytes get there much faster than lists of records."""
    return len(verify_session(session_id, map(StoredEntry, *log)).survivors)


def _verify(logs: dict[str, list[StoredEntry]]) -> float:
    start = time.process_time()
    for session_id, log in logs.items():
        if len(verify_session(session_id, log).survivors) == SESSION_SIZE:
            raise AssertionError("nothing was eliminated in the replay")
    return SESSIONS * EVENTS / (time.process_time() - start)


def _hash_and_parse(logs: dict[str, list[StoredEntry]]) -> float:
    start = time.process_time()
    for log in logs.values():
        for stored in log:
            sha256(b"\x00" + stored.raw).digest()
            json.loads(stored.raw)
    return SESSIONS * EVENTS / (time.process_time() - start)
