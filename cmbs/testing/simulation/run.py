"""One run: clients, two server processes, a scheduler, and a check after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple

import msgspec

from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError, StoreUnavailable
from cmbs.messages import BeliefSnapshot, OntologyBundle, SessionPolicy, Verb
from cmbs.spi import EliminationStore
from cmbs.stores.memory import InMemoryStore
from cmbs.testing.fakes.environment import ManualClock, SequentialIds
from cmbs.testing.fakes.failing_store import AnyStore
from cmbs.testing.history import METHOD_OF
from cmbs.testing.simulation.clients import Clients
from cmbs.testing.simulation.model import Disagreement, Model, Recorded, Request
from cmbs.testing.simulation.world import Crash, SimulatedLog, SimulatedRemote, SimulatedStore, World, require

_ONTOLOGY = OntologyBundle("simulated", "1", "graph://simulated", "1")
_PROCESSES = 2
_STEPS = 12
_ALL = 1_000
_FAULT_RATES = (0.0, 0.03, 0.1, 0.3)
_OVERTAKING_RATES = (0.0, 0.05, 0.2)
# Real time never decides: a time-out is told by the store, and this one is for a simulator that hangs.
_NEVER_SECONDS = 600.0


class Shape(StrEnum):
    """Where the tombstones are."""

    TOGETHER = "together"
    """In the log's transaction."""
    SAGA = "saga"
    """In a store of their own."""


class SimulationFailed(AssertionError):
    """A run in which server and model disagree; says how to see it again."""


class Summary(NamedTuple):
    """What a run came to."""

    seed: int
    counts: Counter[str]


@dataclass
class _Process:
    """A server process. When it dies, what it held in memory is gone; the stores stay."""

    name: str
    alive: bool = False
    busy: bool = False
    server: BeliefServer | None = None
    log: SimulatedLog | SimulatedStore | None = None
    # The newest event of each session that this process has shown: it must not go back behind it.
    shown: dict[str, int] = field(default_factory=dict)


@dataclass
class _Call:
    """A request on its way."""

    request: Request
    # What the model would have said at the start, and after each change by another process.
    codes: set[str | None]
    struck: int
    overtaken: bool = False


class _Simulation:
    def __init__(self, seed: int, shape: Shape, log: AnyStore, remote: EliminationStore, trace: list[str]) -> None:
        self._random = Random(f"{shape} {seed}")  # noqa: S311 - a number to repeat a run by
        self._shape = shape
        self._log = log
        self._remote = remote
        self._trace = trace
        self._world = World(self._random, 0.0, trace.append)
        self._model = Model()
        self._clients = Clients(self._random, self._model)
        self._clock = ManualClock()
        self._lives = 0
        self._overtaken_before = 0
        self._cached = self._random.choice((1, 2, 100))
        self._processes = [_Process(f"p{number}") for number in range(_PROCESSES)]
        self._calls: list[_Call] = []
        self._overtaking_rate = self._random.choice(_OVERTAKING_RATES)
        self._acknowledged: dict[tuple[str, str], Request] = {}
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        """Trouble, then rest, then the reckoning."""
        self._world.rate = self._random.choice(_FAULT_RATES)
        self._world.interrupt = self._interrupt
        self._world.sending = self._check_unsettled
        for _ in range(_STEPS):
            self._step()
        self._come_to_rest()

    # --- the scheduler ---

    def _step(self) -> None:
        self._overtaken_before = self.counts["overtaken"]
        for process in self._processes:
            if not process.alive:
                self._start(process)
        living = [process for process in self._processes if process.alive]
        if not living:
            return
        process, chance = self._random.choice(living), self._random.random()
        if chance < 0.06:
            self._trace.append(f"{process.name}: killed")
            self.counts["kills"] += 1
            process.alive = False
        elif chance < 0.12:
            self._world.arrive()
        elif chance < 0.15:
            self._clock.set(f"2026-01-01T00:00:{self._random.randrange(60):02d}.000000Z")
        else:
            self._act(process)
            return
        self._observe()

    def _act(self, process: _Process) -> None:
        if self._model.sessions and self._random.random() < 0.2:
            self._read(process, self._random.choice(sorted(self._model.sessions)))
        else:
            self._deliver(process, self._clients.next_request())

    def _interrupt(self, process: Any, method: str) -> None:
        """Between two steps of one process, another one does something."""
        if len(self._calls) > 1 or self._random.random() >= self._overtaking_rate:
            return
        # Others are held off while one has a transaction open.
        if any(other.log is not None and other.log.exclusive_now for other in self._processes):
            return
        for other in self._processes:
            if other.alive and not other.busy and other is not process:
                self._trace.append(f"  {process.name}: overtaken before {method}")
                self.counts["overtaken"] += 1
                self._act(other)
                for call in self._calls:
                    call.overtaken = True
                    call.codes.add(self._model.judge(call.request).code)
                return

    def _start(self, process: _Process) -> None:
        """A new life, which knows nothing but what is stored."""
        self._lives += 1
        process.alive = process.busy = True
        process.shown = {}
        options: dict[str, Any] = {
            "clock": self._clock,
            "ids": SequentialIds(self._lives),
            "limits": Limits(cached_sessions=self._cached),
            "store_timeout_seconds": _NEVER_SECONDS,
            "checks_in_background": False,
        }
        try:
            if self._shape is Shape.TOGETHER:
                process.log = SimulatedStore(self._log, self._world, process)
                process.server = BeliefServer(store=process.log, **options)
            else:
                process.log = SimulatedLog(self._log, self._world, process)
                remote = SimulatedRemote(self._remote, self._world, process)
                process.server = BeliefServer(store=remote, audit_log=process.log, **options)
            self._trace.append(f"{process.name}: life {self._lives}")
        except (Crash, StoreUnavailable) as exc:
            self._trace.append(f"{process.name}: life {self._lives} ended at its start, {type(exc).__name__}")
            process.alive = False
        finally:
            process.busy = False

    # --- requests ---

    def _deliver(self, process: _Process, request: Request) -> None:
        self._trace.append(f"{process.name} < {request}")
        self._model.register(request)
        self.counts["requests"] += 1
        call = _Call(request, {self._model.judge(request).code}, self._world.struck)
        self._calls.append(call)
        process.busy = True
        try:
            outcome = _perform(process.server, request)
        except Crash:
            self._trace.append(f"{process.name} > crashed")
            self.counts["crashes"] += 1
            self._observe()
        except BeliefServerError as exc:
            self._observe()
            self._check_error(call, exc)
        else:
            self._observe()
            self._check_outcome(process, request, outcome)
        finally:
            process.busy = False
            self._calls.pop()

    def _check_error(self, call: _Call, error: BeliefServerError) -> None:
        self._trace.append(f"   > {error.code}")
        troubled = call.overtaken or self._world.struck > call.struck
        if isinstance(error, StoreUnavailable):
            require(troubled, "unavailable, and nothing was wrong: {0}", error)
            self.counts["unavailable"] += 1
            return
        call.codes.add(self._model.judge(call.request).code)
        if error.message.startswith("simulated"):
            require(troubled, "refused, and the store did not: {0}", error)
            return
        require(error.code in call.codes, "{0} was answered with {1}, not {2}", call.request, error, call.codes)
        self._clients.settle(call.request)
        self.counts["refused"] += 1

    def _check_outcome(self, process: _Process, request: Request, outcome: Any) -> None:
        session_id = outcome.session_id if request.verb is Verb.DECLARE_SESSION else request.session_id
        session = self._model.sessions.get(session_id)
        require(session, "{0} was acknowledged, and its session is not stored", request)
        assert session is not None
        if request.verb is Verb.DECLARE_SESSION:
            index, result = 0, (session_id,)
            self._clients.add_session(session_id)
        else:
            earlier = session.judge(request).earlier
            require(earlier is not None, "{0} was acknowledged, and is not stored", request)
            index, result = earlier or 0, tuple(outcome[:-2])
            event_id = session.events[index].event_id
            require(outcome.audit_event_id == event_id, "{0} has another event now: {1}", request, event_id)
        recorded = session.events[index]
        require(result == recorded.result, "{0} was answered with {1}, not {2}", request, result, recorded.result)
        _check_snapshot(outcome.snapshot, session_id, recorded)
        self._trace.append(f"   > {recorded.event_id} {result}")
        process.shown[session_id] = max(index, process.shown.get(session_id, 0))
        self._acknowledged[session_id, recorded.event_id] = request
        self._clients.settle(request)

    def _read(self, process: _Process, session_id: str) -> None:
        session = self._model.sessions[session_id]
        first, struck = len(session.events) - 1, self._world.struck
        self._trace.append(f"{process.name} < QUERY_BELIEF {session_id}")
        process.busy = True
        try:
            assert process.server is not None
            belief = process.server.query_belief(session_id)
        except Crash:
            self.counts["crashes"] += 1
            return
        except StoreUnavailable as exc:
            require(self._world.struck > struck, "unavailable, and nothing was wrong: {0}", exc)
            return
        finally:
            process.busy = False
        self._observe()
        index = next((n for n, each in enumerate(session.events) if each.event_id == belief.audit_head_event_id), None)
        require(index is not None, "{0} is shown and not stored", belief)
        # While the log cannot be asked, the belief may be old; but never older than what this process has shown.
        oldest = process.shown.get(session_id, 0) if self._world.struck > struck else first
        require((index or 0) >= oldest, "event {0} is shown after event {1}", index, oldest)
        _check_snapshot(belief, session_id, session.events[index or 0])
        process.shown[session_id] = max(index or 0, process.shown.get(session_id, 0))
        self.counts["reads"] += 1

    # --- what is stored ---

    def _observe(self) -> None:
        """Take what is new in the log, and see that nothing that was there has changed."""
        for summary in self._log.sessions(None, _ALL):
            session_id = summary.session_id
            known = self._model.sessions.get(session_id)
            entries = [] if known is None else known.entries
            stored = self._log.read(session_id, len(entries) - 2)
            require(stored[:1] == entries[-1:] or not entries, "the end of `{0}` has changed", session_id)
            for entry in stored[1:] if entries else stored:
                self._model.take(session_id, entry)
                self.counts["entries"] += 1
        self._check_tombstones()

    def _check_unsettled(self, key: tuple[str, ...]) -> None:
        """What is in the log was settled, and is not sent again; unless another process settled it in this moment."""
        session = self._model.sessions.get(key[0])
        if session is not None and self.counts["overtaken"] == self._overtaken_before:
            require(len(key) > 1 and key[1:] not in session.observed, "{0} was settled and is sent again", key)

    def _check_tombstones(self) -> None:
        store: EliminationStore = self._log if self._shape is Shape.TOGETHER else self._remote
        for session_id, session in self._model.sessions.items():
            gone = session.universe - session.survivors
            extra = store.get_eliminated(session_id) - gone
            missing = gone - store.get_eliminated(session_id)
            require(not missing, "`{0}` has no tombstones of {1}", session_id, missing)
            intent = self._log.intent(session_id)
            doubtful = set() if intent is None else set(msgspec.json.decode(intent.raw)["delta"]["eliminated"])
            require(extra <= doubtful, "`{0}` has tombstones of {1} that no entry records", session_id, extra)

    # --- the end ---

    def _come_to_rest(self) -> None:
        """No more trouble: what was open is settled, what was not answered is answered, all of it once."""
        self._trace.append("rest")
        self.counts["faults"] = self._world.struck
        self._world.rate = self._overtaking_rate = 0.0
        for process in self._processes:
            process.alive = False
            self._start(process)
        require(not self._log.open_intents(_ALL), "what was in doubt is still in doubt after a restart")
        self._observe()
        while self._clients.unsettled:
            self._deliver(self._random.choice(self._processes), self._random.choice(self._clients.unsettled))
        grown = {session_id: len(session.entries) for session_id, session in self._model.sessions.items()}
        for request in list(self._acknowledged.values()):
            self._deliver(self._random.choice(self._processes), request)
        while self._world.late:
            self._world.arrive()
        self._observe()
        for session_id, session in self._model.sessions.items():
            require(len(session.entries) == grown[session_id], "a repeat in `{0}` was recorded", session_id)
            stored = self._log.read(session_id)
            require(stored == session.entries, "the log of `{0}` has changed", session_id)
            verify_session(session_id, stored, self._log.head(session_id))
            for process in self._processes:
                assert process.server is not None
                _check_snapshot(process.server.query_belief(session_id), session_id, session.events[-1])
        for session_id, event_id in self._acknowledged:
            events = {event.event_id for event in self._model.sessions[session_id].events}
            require(event_id in events, "event `{0}` was acknowledged and is gone", event_id)


def _perform(server: BeliefServer | None, request: Request) -> Any:
    assert server is not None
    if request.verb is Verb.DECLARE_SESSION:
        arguments = request.arguments
        policy = SessionPolicy(**arguments["policy"])
        return server.declare_session(_ONTOLOGY, arguments["hypotheses"], policy=policy, idempotency_key=request.key)
    method = getattr(server, METHOD_OF[request.verb])
    return method(request.session_id, **request.arguments, idempotency_key=request.key, if_match=request.if_match)


def _check_snapshot(belief: BeliefSnapshot, session_id: str, expected: Recorded) -> None:
    said = (belief.session_id, belief.survivors, belief.terminated, belief.active_obligation_id)
    meant = (session_id, sorted(expected.survivors), expected.terminated, (expected.active or (None,))[-1])
    require(said == meant, "the belief is {0}, not {1}", said, meant)
    event_id = belief.audit_head_event_id
    require(event_id == expected.event_id, "the belief is of `{0}`, not of `{1}`", event_id, expected.event_id)


def shape_of(seed: int) -> Shape:
    """The shape that a seed is run in where none is asked for."""
    return Shape.SAGA if seed % 2 else Shape.TOGETHER


def simulate(
    seed: int,
    shape: Shape | None = None,
    *,
    make_log: Callable[[], AnyStore] = InMemoryStore,
    make_remote: Callable[[], EliminationStore] = InMemoryStore,
    trace: list[str] | None = None,
) -> Summary:
    """Run one seed; SimulationFailed where anything is wrong. What happens is added to `trace`."""
    events: list[str] = [] if trace is None else trace
    shape = shape or shape_of(seed)
    simulation = _Simulation(seed, shape, make_log(), make_remote(), events)
    try:
        simulation.run()
    except (Exception, Disagreement) as exc:
        again = f"python -m cmbs.testing.simulation --shape {shape} --seed {seed}"
        last = "\n".join(events[-12:])
        raise SimulationFailed(f"seed {seed} ({shape}): {exc!r}\n{last}\nsee it again: {again}") from exc
    return Summary(seed, simulation.counts)
