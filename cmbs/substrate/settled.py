"""What has left the state of a space, found in the ledger: for decisions that depend on it, and for readers.

What the log's keys lead to is believed only as far as the state goes: every entry that is read is held against the
tree of the stream, and must be about what was looked for. That nothing is found means that there is nothing: the keys
that a log has are held against the state (`past_keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from cmbs.errors import RecordNotFound
from cmbs.ledger.lookup_keys import Lookup, lookup_key
from cmbs.messages import Actor
from cmbs.spi import AuditLog
from cmbs.streams.reading import read_entries, read_entry
from cmbs.substrate.kernel.calls import MakeCall
from cmbs.substrate.kernel.events import (
    STREAM_PREFIX,
    Approve,
    Expire,
    KnownCall,
    MarkInDoubt,
    Propose,
    RecordOutcome,
    Reject,
    SpaceEvent,
    SpaceVerb,
    Start,
    Wake,
    Withdraw,
)
from cmbs.substrate.kernel.evolve import request_key
from cmbs.substrate.kernel.governance import confirms
from cmbs.substrate.kernel.lookups import find_unknown
from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.rebuilding import find_tool, names_of_approvals, names_of_executions, rebuild
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.retention import Recalled, Unknown, last_dropped, outline_of, with_records
from cmbs.substrate.kernel.state import CallKey, RequestKey, Space
from cmbs.substrate.kernel.steps import fingerprint
from cmbs.substrate.past_keys import PastKeys

_HASH_DIGITS = 64
_NOTHING = Recalled()


class SettledRecords:
    """Finds records of spaces in a log, each time anew."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log
        self.keys = PastKeys(log)

    # --- for decisions ---

    def look_up(self, space: Space, command: SpaceCommand) -> SpaceCommand:
        """The command with everything that it needs of what has left the state."""
        looked_up = find_unknown(space, command)
        unknown = self._without_unheard(space, looked_up)
        message = command.message
        if isinstance(message, Propose):
            seq = None if unknown.snapshot_id is None else self.find_commit(space, unknown.snapshot_id)
            message = msgspec.structs.replace(message, snapshot_seq=msgspec.UNSET if seq is None else seq)
        if isinstance(message, (Propose, MakeCall, Wake, Approve)):
            known = list(self._find_calls(space, unknown.calls))
            message = msgspec.structs.replace(message, known_calls=known or msgspec.UNSET)
        recalled = self._recall(space, unknown, command.actor)
        return msgspec.structs.replace(
            command, message=message, recalled=recalled, looked_up=looked_up, looked_up_seq=space.head.seq
        )

    def _without_unheard(self, space: Space, unknown: Unknown) -> Unknown:
        """What is left to look for: nothing, mostly, since nothing is found under any of the keys."""
        keys = [lookup_key(Lookup.CALL, key.tool_id, key.idempotency_key) for key in unknown.calls]
        for record_id in (unknown.approval_id, unknown.execution_id):
            keys += [] if record_id is None else [lookup_key(Lookup.EVENT, _event_id_in(record_id))]
        keys += [] if unknown.proposal_id is None else [lookup_key(Lookup.PROPOSAL, unknown.proposal_id)]
        keys += [] if unknown.idempotency_key is None else [lookup_key(Lookup.REQUEST, unknown.idempotency_key)]
        if keys and not self.keys.find(space, keys):
            return Unknown(snapshot_id=unknown.snapshot_id)
        return unknown

    def _recall(self, space: Space, unknown: Unknown, actor: Actor) -> Recalled | None:
        found = _NOTHING
        if unknown.proposal_id is not None:
            found = _join(found, self.find_proposal(space, unknown.proposal_id))
        if unknown.approval_id is not None:
            found = _join(found, self.find_approval(space, unknown.approval_id))
        if unknown.execution_id is not None:
            found = _join(found, self.find_execution(space, unknown.execution_id))
        if unknown.idempotency_key is not None:
            found = _join(found, self._find_request(space, unknown.idempotency_key, actor))
        return None if found == _NOTHING else found

    def _find_request(self, space: Space, idempotency_key: str, actor: Actor) -> Recalled | None:
        wanted = RequestKey(idempotency_key, (actor.kind, actor.id))
        for event in self._read_found(space, lookup_key(Lookup.REQUEST, idempotency_key)):
            key, body = request_key(event), event.body
            if key == wanted:
                requests = {key: (body.seq, fingerprint(event.message, body.actor))}
                return _join(Recalled(requests=requests), self._find_subject(space, event))
        return None

    def _find_subject(self, space: Space, event: SpaceEvent) -> Recalled | None:
        """The records that an answer to the message of an event shows."""
        match event.message:
            case Propose():
                return self.find_proposal(space, event.message.proposal.proposal_id)
            case Withdraw():
                return self.find_proposal(space, event.message.proposal_id)
            case Approve() | Reject():
                return self.find_approval(space, event.message.approval_id)
            case RecordOutcome() | Start():
                return self.find_execution(space, event.message.execution_id)
            case _:
                return None

    def _find_calls(self, space: Space, keys: Iterable[CallKey]) -> Iterator[KnownCall]:
        for key in keys:
            for event in self._read_found(space, lookup_key(Lookup.CALL, key.tool_id, key.idempotency_key)):
                # What was started later was let through before, by another of these.
                for intent in () if isinstance(event.message, Start) else event.result.intents:
                    if (intent.tool_id, intent.idempotency_key) == key[:2]:
                        found = self._find_of_event(space, event, intent.execution_id)
                        yield from [] if found is None else _outline_calls(found, key, intent.execution_id)

    # --- records ---

    def find_proposal(self, space: Space, proposal_id: str) -> Recalled | None:
        """A proposal that has left the state, with its executions and approvals; None where there is none."""
        own = self._read_found(space, lookup_key(Lookup.PROPOSAL, proposal_id))
        events = {event.body.seq: event for event in own if proposal_id in event.result.statuses}
        keys = [lookup_key(Lookup.EXECUTION, each) for each in names_of_executions(events.values())]
        keys += [lookup_key(Lookup.APPROVAL, each) for each in names_of_approvals(events.values())]
        if not events:
            return None
        if keys:
            names = {*names_of_executions(events.values()), *names_of_approvals(events.values())}
            for event in self._read_found(space, *keys):
                if _name_of(event) in names:
                    events[event.body.seq] = event
        ordered = [events[seq] for seq in sorted(events)]
        return rebuild(space, proposal_id, ordered, self._find_tools(space, ordered))

    def _find_tools(self, space: Space, events: Sequence[SpaceEvent]) -> dict[tuple[str, int], Tool]:
        wanted = {(each.tool_id, event.body.seq) for event in events for each in event.result.intents}
        tools: dict[tuple[str, int], Tool] = {}
        for tool_id in sorted({tool_id for tool_id, _ in wanted}):
            registrations = self._read_found(space, lookup_key(Lookup.TOOL, tool_id))
            for place in (each for each in wanted if each[0] == tool_id):
                found = find_tool(registrations, *place)
                if found is not None:
                    tools[place] = found
        return tools

    def find_approval(self, space: Space, approval_id: str) -> Recalled | None:
        """The proposal that asked for an approval which has left the state; None where there is none."""
        event = self._read_event_of(space, approval_id)
        if event is None:
            return None
        return self._find_of_event(space, event, approval_id)

    def find_execution(self, space: Space, execution_id: str) -> Recalled | None:
        """The proposal of an execution that has left the state; None where there is none."""
        event = self._read_event_of(space, execution_id)
        if event is None:
            return None
        return self._find_of_event(space, event, execution_id)

    def _find_of_event(self, space: Space, event: SpaceEvent, record_id: str) -> Recalled | None:
        """The proposal that an event decided, and that this execution or this approval is of."""
        for proposal_id in event.result.statuses:
            found = self.find_proposal(space, proposal_id)
            if found is not None and (record_id in found.executions or record_id in found.approvals):
                return found
        return None

    def _read_event_of(self, space: Space, record_id: str) -> SpaceEvent | None:
        """The event that began an execution or asked for an approval: it is a part of their ids."""
        return self._read_event(space, _event_id_in(record_id))

    # --- for readers ---

    def with_proposal(self, space: Space, proposal_id: str) -> Space:
        """The space with a proposal in it, if need be from the ledger; RecordNotFound where there is none."""
        if proposal_id in space.proposals:
            return space
        return _with_found(space, self.find_proposal(space, proposal_id), "proposal", proposal_id)

    def with_approval(self, space: Space, approval_id: str) -> Space:
        """As `with_proposal`, for a request for approval and the proposal that it is of."""
        approval = space.approvals.get(approval_id)
        if approval is not None:
            return self.with_proposal(space, approval.proposal_id)
        return _with_found(space, self.find_approval(space, approval_id), "approval", approval_id)

    def with_execution(self, space: Space, execution_id: str) -> Space:
        """As `with_proposal`, for an execution and the proposal that it is of."""
        execution = space.executions.get(execution_id)
        if execution is not None and not execution.is_outline and execution.proposal_id in space.proposals:
            return space
        return _with_found(space, self.find_execution(space, execution_id), "execution", execution_id)

    # --- events ---

    def find_seq(self, space: Space, event_id: str) -> int | None:
        """Where an event is; None where there is none."""
        known = space.events.get(event_id)
        if known is not None:
            return known[0]
        event = self._read_event(space, event_id)
        return None if event is None else event.body.seq

    def find_commit(self, space: Space, snapshot_id: str) -> int | None:
        """The seq of the commit that produced a snapshot; None where none did."""
        known = space.snapshots.get(snapshot_id)
        if known is not None or len(snapshot_id) != _HASH_DIGITS or last_dropped(space.head.seq) < 0:
            return known
        try:
            event_hash = bytes.fromhex(snapshot_id)
        except ValueError:
            return None
        if event_hash.hex() != snapshot_id:
            return None
        for event in map(partial(self.read_at, space), self.keys.find_hash(space, event_hash)):
            seq, changes = event.body.seq, event.result.changes
            if event.stored.event_hash == event_hash:
                return seq if seq == 0 or changes.set or changes.unset else None
        return None

    def confirms(self, space: Space, event_id: str) -> bool:
        """Whether an event of the space, also one that has left the state, can confirm a claim."""
        if event_id not in space.events:
            event = self._read_event(space, event_id)
            if event is None:
                return False
            space = with_records(space, self._find_subject(space, event) or _NOTHING)
            place = (event.body.seq, SpaceVerb(event.body.verb))
            space = msgspec.structs.replace(space, events=space.events.set(event_id, place))
        return confirms(space, event_id)

    def read_from(self, space: Space, after: int, limit: int) -> Iterator[SpaceEvent]:
        """The events beyond a seq."""
        return map(read_space_event, read_entries(self._log, STREAM_PREFIX + space.space_id, space.tree, after, limit))

    def _read_event(self, space: Space, event_id: str) -> SpaceEvent | None:
        if last_dropped(space.head.seq) < 0:
            return None
        found = self._read_found(space, lookup_key(Lookup.EVENT, event_id))
        return next((event for event in found if event.body.event_id == event_id), None)

    def _read_found(self, space: Space, *keys: int) -> list[SpaceEvent]:
        """The events that have one of these keys, as far as the state goes, in order."""
        return [self.read_at(space, seq) for seq in self.keys.find(space, keys)]

    def read_at(self, space: Space, seq: int) -> SpaceEvent:
        """The event at a seq of the stream."""
        return read_space_event(read_entry(self._log, STREAM_PREFIX + space.space_id, space.tree, seq))


def _with_found(space: Space, found: Recalled | None, noun: str, record_id: str) -> Space:
    if found is None:
        raise RecordNotFound(noun, record_id)
    return with_records(space, found)


def _name_of(event: SpaceEvent) -> str:
    """The execution or the approval that a message is about."""
    match event.message:
        case Start() | MarkInDoubt() | RecordOutcome():
            return event.message.execution_id
        case Approve() | Reject():
            return event.message.approval_id
        case Expire():
            return event.message.id
        case _:
            return ""


def _outline_calls(found: Recalled, wanted: CallKey, execution_id: str) -> Iterator[KnownCall]:
    """The execution, if it is the agent's own."""
    if found.calls.get(wanted) == execution_id:
        known = outline_of(found.executions[execution_id], wanted)
        yield from [] if known is None else [known]


def _event_id_in(record_id: str) -> str:
    """The id of the event that began an execution, or asked for an approval, as a part of theirs."""
    return record_id.partition("-")[2].rpartition("-")[0]


def _join(found: Recalled, more: Recalled | None) -> Recalled:
    if more is None:
        return found
    return Recalled(
        {**found.proposals, **more.proposals},
        {**found.executions, **more.executions},
        {**found.approvals, **more.approvals},
        {**found.requests, **more.requests},
        {**found.calls, **more.calls},
    )
