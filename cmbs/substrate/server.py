"""The substrate server: spaces of many callers over one log. Nothing is seen, and nothing runs, before it is durable.

Every method returns when what it did is in the log. The rules are in `cmbs.substrate.kernel.decide`. An allowed call
runs once its intent is in the log, never before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Condition

import msgspec

from cmbs.belief.kernel.events import Stamp
from cmbs.errors import (
    CmbsError,
    Conflict,
    EventNotFound,
    InvalidRequest,
    LimitExceeded,
    RecordNotFound,
    SpaceNotFound,
)
from cmbs.ledger import Head, StoredEntry
from cmbs.messages import Actor, ActorKind
from cmbs.refusals import find_nearest
from cmbs.spi import Append, AuditLog, Clock, IdSource, stream_heads_of
from cmbs.streams.cache import ByteBudget
from cmbs.streams.reading import read_entries, read_entry
from cmbs.streams.server import Preparation, StreamServer
from cmbs.substrate.belief_source import BeliefSource
from cmbs.substrate.executor import ToolExecutor
from cmbs.substrate.kernel.arbitration.arbitrate import Arbitration, arbitrate, belief_sessions
from cmbs.substrate.kernel.arbitration.cases import NeededReadings
from cmbs.substrate.kernel.calls import MakeCall, SpaceRequest, complete_call, is_run_by_server
from cmbs.substrate.kernel.cases import find_unknown_case
from cmbs.substrate.kernel.events import (
    STREAM_PREFIX,
    Approve,
    CreateSpace,
    Evidence,
    Mode,
    OpenCase,
    PromoteMemory,
    Propose,
    PutMemory,
    RecordOutcome,
    Start,
    Wake,
)
from cmbs.substrate.kernel.executions import sessions_of_outcome
from cmbs.substrate.kernel.insight.differences import SpaceDiff, list_changes
from cmbs.substrate.kernel.insight.flips import Hypothetical
from cmbs.substrate.kernel.kind import RepeatAnswer, SpaceAnswer, SpaceKind, space_id_of
from cmbs.substrate.kernel.lookups import find_unknown
from cmbs.substrate.kernel.model import BeliefReading, Candidate, Decision, Proposal, ToolCall
from cmbs.substrate.kernel.proposals import Unprepared, trace_decision
from cmbs.substrate.kernel.replay import read_space_event, verify_space
from cmbs.substrate.kernel.requests import SpaceCommand, SpaceLimits, SpaceRequestValidator
from cmbs.substrate.kernel.retention import NOTHING, UNSETTLED, has_recalled
from cmbs.substrate.kernel.sizes import weigh_space
from cmbs.substrate.kernel.state import MAX_OPERATORS, Approval, Execution, ProposalRecord, Space
from cmbs.substrate.kernel.words import ExecutionStatus
from cmbs.substrate.looking import SharedReadings
from cmbs.substrate.past_states import StateSnapshot, space_at, state_at
from cmbs.substrate.policies_ahead import compile_change, compile_first, is_large_change
from cmbs.substrate.rates import ProposalRate
from cmbs.substrate.scheduler import DeadlineScheduler
from cmbs.substrate.settled import SettledRecords
from cmbs.substrate.tools.runner import ToolRunner
from cmbs.substrate.turns import Line
from cmbs.system import RandomIds, SystemClock

ENGINE = Actor(ActorKind.POLICY_ENGINE, "policy_engine", authenticated=True)
DEFAULT_SPACE = "default"
KEEPER_SECONDS = 0.5
# How often a proposal is looked at again while a caller waits for it: writes of other processes are not signalled here.
_LOOK_AGAIN_SECONDS = 0.5


class SubstrateServer:
    """Holds spaces: what agents propose is decided here, and only what is allowed runs and is committed."""

    def __init__(  # noqa: PLR0913 - one parameter for each thing that it is given
        self,
        *,
        log: AuditLog,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        belief: BeliefSource | None = None,
        runner: ToolRunner | None = None,
        limits: SpaceLimits | None = None,
        keeper_seconds: float | None = KEEPER_SECONDS,
        default_space: bool = False,
        count_operator_keys: Callable[[], int] | None = None,
    ) -> None:
        """`keeper_seconds` is how often deadlines are looked after; with None not before `start` or `keep` is called.

        With `default_space` the space of that name comes into being when it is first asked for. A space whose creation
        does not say how many operators a change of policy takes, takes two where `count_operator_keys` gives more than
        one, and one where it does not; without that function, two.
        """
        self.requests = SpaceRequestValidator(limits or SpaceLimits())
        self.log = log
        self._clock = clock or SystemClock()
        self._ids = ids or RandomIds()
        self._belief = belief
        self._default_space = default_space
        self._count_operator_keys = count_operator_keys
        self._rate = ProposalRate(self._clock, self.requests.limits.agent_proposals_per_second)
        self._kind = kind = SpaceKind(self._stamp, self.requests.limits)
        self.settled = SettledRecords(log)
        preparation = Preparation(self._needs_lookup, self._look_up, Unprepared)
        budget = ByteBudget(self.requests.limits.cached_space_bytes, weigh_space)
        cached = self.requests.limits.cached_spaces
        self._spaces = StreamServer(log, kind, cached, codec=kind, preparation=preparation, budget=budget)
        self._moved = Condition()
        self._waiting = 0
        self._runner = runner
        self._executor = ToolExecutor(runner, self._clock, self._report, self._start, self.requests.limits)
        self._scheduler = DeadlineScheduler(self, self._clock, belief)
        if keeper_seconds is not None:
            self.start(keeper_seconds)

    # --- what is asked ---

    def perform(self, command: SpaceCommand) -> SpaceAnswer:
        """Carry out a command; returns when it is durable."""
        checked = self._admit(command)
        self._open_default(checked)
        compile_first(checked.message)
        with self._taking_turns(checked) as taken:
            return self._follow(self._spaces.perform(taken.command), taken)

    def perform_all(self, commands: Sequence[SpaceCommand]) -> list[SpaceAnswer | CmbsError]:
        """Carry out commands in their order, with as few writes as the log takes; what each of them came to."""
        checked = [self._admit(command) for command in commands]
        for command in checked:
            self._open_default(command)
        with ExitStack() as stack:
            taken = [stack.enter_context(self._taking_turns(command)) for command in checked]
            answers = self._spaces.perform_all([each.command for each in taken])
            return [
                answer if isinstance(answer, CmbsError) else self._follow(answer, each)
                for each, answer in zip(taken, answers, strict=True)
            ]

    async def perform_async(self, command: SpaceCommand) -> SpaceAnswer:
        """Carry out a command without holding a thread while it waits for its group."""
        creates = isinstance(command.message, CreateSpace)
        checked = await asyncio.to_thread(self._admit, command) if creates else self._admit(command)
        if self._is_to_be_opened(checked):
            await asyncio.to_thread(self._open_default, checked)
        if creates:
            await asyncio.to_thread(compile_first, checked.message)
        # A caller who goes away leaves nothing half done: what was written is followed all the same.
        return await asyncio.shield(asyncio.ensure_future(self._perform_whole(checked)))

    async def _perform_whole(self, checked: SpaceCommand) -> SpaceAnswer:
        with self._taking_turns(checked) as taken:
            answer = await self._spaces.perform_async(taken.command)
            if isinstance(answer, RepeatAnswer) and self.log.blocking:
                return await asyncio.to_thread(self._follow, answer, taken)
            return self._follow(answer, taken)

    def explain(self, space_id: str, actor: Actor, proposal: Proposal) -> Arbitration:
        """What would be decided of a proposal now. Records nothing."""
        return arbitrate(*self.hypothetical(space_id, actor, proposal))

    def hypothetical(self, space_id: str, actor: Actor, proposal: Proposal) -> Hypothetical:
        """Everything that a proposal would be decided on now."""
        command = SpaceCommand(space_id, actor, Propose(proposal))
        message = self.requests.validate(command).message
        if not isinstance(message, Propose):  # pragma: no cover - validation keeps the kind
            raise TypeError(message)
        space = self.current(space_id)
        self._refuse_unknown_case(space, message)
        readings = {reading.session_id: reading for reading in self._readings(space, message.proposal, actor)}
        return Hypothetical(space, message.proposal, actor, self._clock.now(), readings)

    def decision(self, space_id: str, proposal_id: str) -> Decision:
        """The newest decision on a proposal with its whole trace, also where the log has none: it is made again."""
        space = self.settled.with_proposal(self.current(space_id), proposal_id)
        record = space.proposals[proposal_id]
        if record.decision.trace:
            return record.decision
        decided = self.entry(space, record.decided_seq)
        return trace_decision(self.at(space_id, record.decided_seq - 1), read_space_event(decided))

    def ensure(self, space_id: str = DEFAULT_SPACE, policy: Mapping[str, str] | None = None) -> Space:
        """The space, created with this policy where it is not there yet."""
        space = self._spaces.peek(STREAM_PREFIX + self.requests.space_id(space_id))
        if space is not None:
            return space
        try:
            create = CreateSpace(space_id, Mode.ENFORCE, dict(policy or {}))
            return self.perform(SpaceCommand(space_id, ENGINE, create)).space
        except Conflict:
            return self.current(space_id)

    # --- what is there ---

    def current(self, space_id: str) -> Space:
        """The space as the log has it now; SpaceNotFound where there is none."""
        try:
            return self._spaces.current(STREAM_PREFIX + self.requests.space_id(space_id))
        except SpaceNotFound:
            if self._is_to_be(space_id):
                return self.ensure(space_id)
            raise

    def find_cached(self, space_id: str) -> Space | None:
        """The space as this process knows it, which may be older than the log; never touches the log."""
        return self._spaces.find_cached(STREAM_PREFIX + space_id)

    def at(self, space_id: str, place: str | int) -> Space:
        """The space right after a seq, or as of a snapshot id; EventNotFound where there is no such place."""
        space = self.current(space_id)
        seq = self._seq_of(space, place)
        if seq == space.head.seq:
            return space
        return space_at(self.log, space, seq)

    def state_at(self, space_id: str, place: str | int) -> StateSnapshot:
        """The state map right after a seq, or as of a snapshot id; quicker than the whole space that `at` gives."""
        space = self.current(space_id)
        return state_at(self.log, space, self._seq_of(space, place))

    def diff(self, space_id: str, start: str | int, end: str | int | None = None) -> SpaceDiff:
        """What is another right after `end`, by default now, than it was right after `start`: seqs or snapshot ids."""
        space, stream_id = self.current(space_id), STREAM_PREFIX + space_id
        first, last = self._seq_of(space, start), space.head.seq if end is None else self._seq_of(space, end)
        limit = self.requests.limits.diff_events
        if first > last:
            raise InvalidRequest(f"a difference goes forward, and seq {first} is after seq {last}")
        if last - first > limit:
            raise LimitExceeded("diff_events", limit, last - first)
        before, after = state_at(self.log, space, first), state_at(self.log, space, last)
        entries = read_entries(self.log, stream_id, space.tree, first, last - first)
        changes, refused = list_changes(map(read_space_event, entries), before.state, after.state)
        return SpaceDiff(space_id, first, last, before.snapshot_id, after.snapshot_id, refused, changes)

    def head(self, space_id: str) -> Head | None:
        """Where the stream of a space ends; None where there is none."""
        return self.log.head(STREAM_PREFIX + self.requests.space_id(space_id))

    def spaces(self, after: str | None = None, limit: int = 100) -> list[str]:
        """The ids of spaces, by name, from beyond `after` on."""
        last = None if after is None else STREAM_PREFIX + after
        return [space_id_of(name) for name in self.log.streams(STREAM_PREFIX, last, limit)]

    def heads(self, after: str | None = None, limit: int = 100) -> list[tuple[str, int]]:
        """The ids of spaces, by name, from beyond `after` on, and the seq that each ends at; none of them is loaded."""
        last = None if after is None else STREAM_PREFIX + after
        return [(space_id_of(name), head.seq) for name, head in stream_heads_of(self.log, STREAM_PREFIX, last, limit)]

    def stored_entries(self, space_id: str, after: int = -1, limit: int | None = None) -> list[StoredEntry]:
        """Entries beyond a seq, as the exact bytes that were hashed; LedgerCorrupt where they are others."""
        return list(self.iterate_entries(self.current(space_id), after, limit))

    def iterate_entries(self, space: Space, after: int = -1, limit: int | None = None) -> Iterator[StoredEntry]:
        """As `stored_entries` of a space that was read, one after the other: a page of them is in memory."""
        return read_entries(self.log, STREAM_PREFIX + space.space_id, space.tree, after, limit)

    def entry(self, space: Space, seq: int) -> StoredEntry:
        """One entry of a space; LedgerCorrupt where the log has another."""
        return read_entry(self.log, STREAM_PREFIX + space.space_id, space.tree, seq)

    def wait_for(self, space_id: str, proposal_id: str, timeout_seconds: float) -> ProposalRecord:
        """The proposal once nothing more is to be waited for, or as it is when the time is over."""
        until = time.monotonic() + timeout_seconds
        with self._moved:
            self._waiting += 1
        try:
            while True:
                record = self.settled.with_proposal(self.current(space_id), proposal_id).proposals[proposal_id]
                left = until - time.monotonic()
                if record.status not in UNSETTLED or left <= 0:
                    return record
                with self._moved:
                    self._moved.wait(min(left, _LOOK_AGAIN_SECONDS))
        finally:
            with self._moved:
                self._waiting -= 1

    def find_behind(self) -> list[str]:
        """The first few spaces, by the names of their streams, of which the log lacks what this server knows."""
        behind = self._spaces.find_behind()
        return [*behind, *(each for each in self.settled.keys.find_damaged() if each not in behind)]

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Refuse a space until the log contains this head, which was recorded of it and which the log lacks."""
        self._spaces.expect_head(stream_id, head)

    def refuse_writes(self, reason: str | None) -> None:
        """Write to no space while the database lacks what was signed; None takes writes again."""
        self._spaces.refuse_writes(reason)

    # --- moving spaces ---

    def import_space(self, space_id: str, entries: Sequence[StoredEntry], head: Head) -> None:
        """Take a space over from its log, byte for byte; LedgerCorrupt where it does not verify to `head`."""
        verify_space(self.requests.space_id(space_id), entries, head)
        self._spaces.adopt(STREAM_PREFIX + space_id, entries)

    # --- looking after ---

    def read_for(self, space: Space, record: ProposalRecord, readings: SharedReadings) -> list[BeliefReading]:
        """What the belief plane says, of all that a recorded proposal may be decided by."""
        return self._read(belief_sessions(space, record.message.proposal, record.actor), readings)

    def start(self, keeper_seconds: float = KEEPER_SECONDS) -> None:
        """Look after deadlines and wakes from now on, in a thread. Starting twice is harmless."""
        self._scheduler.start(keeper_seconds)

    def keep(self) -> None:
        """Look after deadlines and wakes once, now."""
        self._scheduler.tick()

    def resume(self, space: Space) -> None:
        """Have started what waits for its turn in a space: another process let it through, or this one before."""
        for execution_id in space.running:
            execution = space.executions[execution_id]
            if execution.status is ExecutionStatus.READY and is_run_by_server(execution.tool):
                self._executor.wait(space.space_id, execution)

    def observe_appends(self, observer: Callable[[Sequence[Append]], None]) -> None:
        """Tell `observer` of the entries that this server writes, each time of one stream, once they are durable.

        From the writing thread: it must be quick, and must not raise.
        """
        self._spaces.observe_appends(observer)

    def close(self, *, close_log: bool = False) -> None:
        """Stop the scheduler, wait for what runs as long as it may run, write what waits."""
        self._scheduler.stop()
        self._executor.close()
        self._spaces.close()
        if self._runner is not None:
            self._runner.close()
        if close_log:
            self.log.close()

    # --- on the way ---

    def _admit(self, command: SpaceCommand) -> SpaceCommand:
        """The command in its one form, with what its sender left to this server."""
        checked = self.requests.validate(command)
        message = checked.message
        if isinstance(message, (Propose, MakeCall)):
            self._rate.count(checked.space_id, checked.actor)
        elif (
            isinstance(message, CreateSpace)
            and message.operators_needed is msgspec.UNSET
            and self._count_operator_keys is not None
        ):
            needed = min(max(self._count_operator_keys(), 1), MAX_OPERATORS)
            return msgspec.structs.replace(checked, message=msgspec.structs.replace(message, operators_needed=needed))
        return checked

    def _seq_of(self, space: Space, place: str | int) -> int:
        seq = place if isinstance(place, int) else self.settled.find_commit(space, place)
        if seq is None or not 0 <= seq <= space.head.seq:
            raise EventNotFound(str(place))
        return seq

    def _open_default(self, command: SpaceCommand) -> None:
        """Create the default space for the first caller that asks for it."""
        if self._is_to_be_opened(command):
            self.ensure(command.space_id)

    def _is_to_be_opened(self, command: SpaceCommand) -> bool:
        asked = self._is_to_be(command.space_id) and not isinstance(command.message, CreateSpace)
        return asked and self._spaces.find_cached(command.stream_id) is None

    def _is_to_be(self, space_id: str) -> bool:
        return self._default_space and space_id == DEFAULT_SPACE

    def _needs_belief(self, space: Space, command: SpaceCommand) -> bool:
        """Whether the belief plane has to be asked before a command is decided, or a sender has spoken in its place."""
        message = command.message
        if isinstance(message, MakeCall):
            completed = self._complete(space, message, command.actor)
            return completed is not None and bool(belief_sessions(space, completed.proposal, command.actor))
        if isinstance(message, Propose):
            return bool(message.belief) or bool(belief_sessions(space, message.proposal, command.actor))
        return isinstance(message, (Start, Wake, Approve, RecordOutcome, PutMemory, PromoteMemory, OpenCase))

    def _needs_lookup(self, space: Space, command: SpaceCommand) -> bool:
        """Whether something has to be looked up for a command, or a sender has said what only the server may."""
        message = command.message
        is_forged = command.recalled is not None or has_recalled(message)
        return (
            is_forged
            or is_large_change(space, message)
            or find_unknown(space, command) != NOTHING
            or find_unknown_case(space, message) is not None
            or self._needs_belief(space, command)
        )

    def _look_up(self, space: Space, command: SpaceCommand) -> SpaceCommand:
        """The command with what the belief plane says, and with what the ledger has of what has left the state.

        A policy that it leads to is compiled here, and not in the writer that all spaces share.
        """
        compile_change(space, command.message)
        self._refuse_unknown_case(space, command.message)
        found = self.settled.look_up(space, command)
        return msgspec.structs.replace(found, message=self._with_belief(space, found.message, command.actor))

    def _complete(self, space: Space, message: MakeCall, actor: Actor) -> Propose | None:
        """What a call would become now; None where it repeats or joins another."""
        completed = complete_call(space, message, actor, Stamp("", self._clock.now()))
        return completed if isinstance(completed, Propose) else None

    def _refuse_unknown_case(self, space: Space, message: SpaceRequest) -> None:
        """RecordNotFound for a proposal that names a case of which neither the space nor the belief plane knows."""
        case_id = find_unknown_case(space, message)
        if case_id is not None and not any(reading.found for reading in self._read({case_id: None})):
            raise RecordNotFound("case", case_id, find_nearest(case_id, space.cases), "this server")

    def _with_belief(self, space: Space, message: SpaceRequest, actor: Actor) -> SpaceRequest:
        match message:
            case MakeCall():
                completed = self._complete(space, message, actor)
                readings = [] if completed is None else self._readings(space, completed.proposal, actor)
                return msgspec.structs.replace(message, belief=readings)
            case Propose():
                return _with_readings(message, self._readings(space, message.proposal, actor))
            case Wake() | Approve() | Start():
                record = _find_decided(space, message)
                return _with_readings(message, self._readings_for(space, record))
            case RecordOutcome():
                return _with_readings(message, self._read(sessions_of_outcome(space, message.execution_id)))
            case OpenCase():
                return _with_readings(message, self._read({message.case_id: None}))
            case PutMemory() | PromoteMemory():
                found = self._is_there(space, message.evidence)
                if found == message.confirming_event_found:
                    return message
                return msgspec.structs.replace(message, confirming_event_found=found)
            case _:
                return message

    def _readings_for(self, space: Space, record: ProposalRecord | None) -> list[BeliefReading]:
        """Read for the actor that proposed it, whatever has it decided again."""
        return [] if record is None else self._readings(space, record.message.proposal, record.actor)

    def _readings(self, space: Space, proposal: Proposal, actor: Actor) -> list[BeliefReading]:
        return self._read(belief_sessions(space, proposal, actor))

    def _read(self, needed: NeededReadings, shared: SharedReadings | None = None) -> list[BeliefReading]:
        """What the belief plane says of these sessions; where there is no belief plane, that there is none of them."""
        readings = SharedReadings(self._belief) if shared is None else shared
        return [readings.read(session_id, needed[session_id]) for session_id in sorted(needed)]

    def _is_there(self, space: Space, evidence: Evidence) -> bool:
        event_id = evidence.confirmed_by_event_id
        if event_id is None:
            return False
        if evidence.confirmed_in_session_id is None:
            return self.settled.confirms(space, event_id)
        return self._belief is not None and self._belief.is_conclusion(evidence.confirmed_in_session_id, event_id)

    @contextmanager
    def _taking_turns(self, command: SpaceCommand) -> Iterator[_TakenTurns]:
        """Take a turn for each call that the server might have to run; those that are not needed are given back.

        Where there is no turn for all of them, or it is not known how many, what is let through waits to be started.
        """
        line, count = self._count_calls(command)
        message = command.message
        waits = isinstance(message, (Propose, MakeCall, Wake, Approve))
        if waits and (count is None or (count and not self._executor.turns.take(line, count))):
            command = msgspec.structs.replace(command, message=msgspec.structs.replace(message, queued=True))
            count = 0
        taken = _TakenTurns(command, count or 0)
        try:
            yield taken
        finally:
            if taken.left:
                self._executor.release(line, taken.left)

    def _count_calls(self, command: SpaceCommand) -> tuple[Line, int | None]:
        """How many calls a command might have the server run, and whose they are; None where the space is not in memory
        and would have to say. Of a tool that is not known here, calls may be the server's to run.
        """
        message, actor = command.message, command.actor
        space = self._spaces.find_cached(command.stream_id)
        candidates: Sequence[Candidate] = ()
        if isinstance(message, MakeCall):
            candidates = [message.call]
        elif isinstance(message, Propose):
            candidates = message.proposal.candidates
        elif isinstance(message, (Wake, Approve)):
            if space is None:
                return Line(command.space_id, actor.id), None
            record = _find_decided(space, message)
            if record is not None:
                candidates, actor = record.message.proposal.candidates, record.actor
        tools = {} if space is None else space.tools
        called = (tools.get(each.tool_id) for each in candidates if isinstance(each, ToolCall))
        return Line(command.space_id, actor.id), sum(tool is None or is_run_by_server(tool) for tool in called)

    def _start(self, space_id: str, execution_id: str) -> Execution | None:
        """Have an execution started whose turn has come; None where it is not allowed any more."""
        answer = self._spaces.perform(SpaceCommand(space_id, ENGINE, Start(execution_id)))
        if isinstance(answer, RepeatAnswer):  # pragma: no cover - the server claims nothing
            return None
        self._note(answer)
        return answer.space.executions[execution_id] if answer.event.result.intents else None

    def _follow(self, answer: SpaceAnswer | RepeatAnswer, taken: _TakenTurns) -> SpaceAnswer:
        """The answer for the caller; and what it has let through begins."""
        if isinstance(answer, RepeatAnswer):
            event = read_space_event(self.entry(answer.space, answer.seq))
            then = event.message.belief if isinstance(event.message, Propose) else ()
            now = self._read({reading.session_id: _independent_of(reading) for reading in then})
            return SpaceAnswer(answer.space, answer.seq, event, repeated=True, belief_now=tuple(now))
        for intent in answer.event.result.intents:
            execution = answer.space.executions[intent.execution_id]
            if not is_run_by_server(execution.tool):
                continue
            if intent.ready:
                self._executor.wait(answer.space.space_id, execution)
            else:
                if not taken.use():
                    self._executor.turns.force(Line(answer.space.space_id, execution.agent_id))
                self._executor.begin(answer.space.space_id, execution)
        self._note(answer)
        return answer

    def _note(self, answer: SpaceAnswer) -> None:
        """Have those who wait look again."""
        self._scheduler.note(answer.space, answer.event)
        if self._waiting:
            with self._moved:
                self._moved.notify_all()

    def _report(self, space_id: str, tool_id: str, message: RecordOutcome) -> None:
        self.perform(SpaceCommand(space_id, Actor(ActorKind.TOOL, tool_id, authenticated=True), message))

    def _stamp(self, idempotency_key: str | None) -> Stamp:
        return Stamp(self._ids.new_id(), self._clock.now(), idempotency_key)


def _find_decided(space: Space, message: Wake | Approve | Start) -> ProposalRecord | None:
    """The proposal that a message has decided again; None where it is not there."""
    record: Approval | Execution | None = None
    match message:
        case Wake():
            return space.proposals.get(message.proposal_id)
        case Approve():
            record = space.approvals.get(message.approval_id)
        case Start():
            record = space.executions.get(message.execution_id)
    return None if record is None else space.proposals.get(record.proposal_id)


class _TakenTurns:
    """A command, and the turns that were taken for the calls that it may let through."""

    def __init__(self, command: SpaceCommand, left: int) -> None:
        self.command = command
        self.left = left

    def use(self) -> bool:
        """Use one of the turns; False where none is left."""
        if not self.left:
            return False
        self.left -= 1
        return True


def _independent_of(reading: BeliefReading) -> str | None:
    """Whose eliminations a reading leaves out in its second part; None where it has none."""
    independent = reading.independent
    return None if isinstance(independent, msgspec.UnsetType) else independent.actor_id


def _with_readings(
    message: Propose | Wake | Approve | Start | RecordOutcome | OpenCase, readings: list[BeliefReading]
) -> Propose | Wake | Approve | Start | RecordOutcome | OpenCase:
    """The message with what the belief plane says in the place of whatever its sender had put there."""
    return message if message.belief == readings else msgspec.structs.replace(message, belief=readings)
