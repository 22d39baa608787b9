"""Lists of records of a space: of those in the state, and of those that are in the ledger alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from heapq import nlargest, nsmallest
from typing import NamedTuple

from msgspec import UnsetType

from cmbs.ledger.canonical import MAX_SAFE_INTEGER
from cmbs.ledger.listing import Attribute, find_term
from cmbs.messages import Actor, ActorKind
from cmbs.spi import AuditLog
from cmbs.spi.session_search import SessionQuery, find_among
from cmbs.substrate.kernel.events import Propose, SpaceEvent
from cmbs.substrate.kernel.model import ToolCall
from cmbs.substrate.kernel.rebuilding import names_of_executions
from cmbs.substrate.kernel.retention import UNSETTLED, last_dropped
from cmbs.substrate.kernel.state import Approval, Case, Execution, ProposalRecord, Space
from cmbs.substrate.kernel.words import ApprovalStatus, ExecutionStatus
from cmbs.substrate.settled import SettledRecords

# So many entries are read for one page; one that ends earlier says where the next begins.
MAX_ENTRIES_READ = 1_000
# So many of them at once where the newest come first: mostly the first few are enough.
_ENTRIES_READ_BACKWARD = 100
# Records with another status have been settled, and may have left the state.
OPEN: frozenset[StrEnum | None] = frozenset(
    {*UNSETTLED, ApprovalStatus.PENDING, ExecutionStatus.RUNNING, ExecutionStatus.IN_DOUBT}
)


class Listed(StrEnum):
    """Kinds of records that leave the state, by the name of the field that holds them."""

    PROPOSALS = "proposals"
    APPROVALS = "approvals"
    EXECUTIONS = "executions"


class Position(NamedTuple):
    """A place in a list."""

    seq: int
    record_id: str


class RecordFilter(NamedTuple):
    """Which records a list has, and in which order: all that is given must hold.

    An agent proposed it, a tool is called by it, and labels are those of its case. Its place is `first_seq` or beyond,
    and before `end_seq`.
    """

    status: StrEnum | None = None
    case_id: str | None = None
    agent_id: str | None = None
    tool_id: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    first_seq: int = 0
    end_seq: int = MAX_SAFE_INTEGER
    newest_first: bool = False
    # Labels of cases that this actor may not see are none.
    reader: Actor | None = None
    # Its case is of one of these sessions.
    session_ids: frozenset[str] | None = None

    def takes(self, space: Space, record: ProposalRecord | Approval | Execution) -> bool:
        """Whether a record belongs into the list."""
        if self.status is not None and record.status != self.status:
            return False
        agent_id, case_id = _agent_of(record), _case_of(space, record)
        if self.agent_id not in (None, agent_id) or self.case_id not in (None, case_id):
            return False
        if self.tool_id is not None and self.tool_id not in _tools_of(record):
            return False
        case = None if case_id is None else space.cases.get(case_id)
        if self.session_ids is not None and (case is None or case.case_id not in self.session_ids):
            return False
        return not self.labels or (case is not None and has_labels(case, self.labels, self.reader))

    def reaches(self, position: Position, after: Position | None) -> bool:
        """Whether a place is one of the list's, and beyond one that was seen."""
        if not self.first_seq <= position.seq < self.end_seq:
            return False
        return after is None or (position < after if self.newest_first else position > after)


class CaseFilter(NamedTuple):
    """Which cases a list has: all that is given must hold."""

    status: StrEnum | None = None
    agent_id: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    text: str = ""
    since: str = ""
    until: str = ""
    reader: Actor | None = None
    session_ids: frozenset[str] | None = None

    def takes(self, case: Case) -> bool:
        """Whether a case belongs into the list. What its reader may not see of it does not count."""
        shown = self.reader is None or may_see_case(case, self.reader)
        title = title_of(case) or "" if shown else ""
        return (
            self.status in (None, case.status)
            and (self.session_ids is None or case.case_id in self.session_ids)
            and (self.agent_id is None or (shown and self.agent_id in case.known_agents))
            and has_labels(case, self.labels, self.reader)
            and self.text.casefold() in f"{case.case_id}\n{title}".casefold()
            and self.since <= case.ts
            and (not self.until or case.ts < self.until)
        )


def take_cases(space: Space, wanted: CaseFilter) -> Iterator[Position]:
    """The places of the cases that a filter takes, in no order."""
    return (Position(case.seq, case_id) for case_id, case in space.cases.items() if wanted.takes(case))


def find_sessions_of_kit(log: AuditLog, space: Space, kit: str) -> frozenset[str]:
    """Those sessions of the cases of a space that were declared from this kit."""
    query = SessionQuery(terms=(find_term(Attribute.KIT, kit),))
    return frozenset(find_among(log, query, set(space.cases)))


def may_see_case(case: Case, reader: Actor) -> bool:
    """Whether it is shown who may act under a case, and what is said of it: not to agents that may not."""
    return reader.kind is not ActorKind.AGENT or reader.id in case.known_agents


def has_labels(case: Case, labels: Iterable[tuple[str, str]], reader: Actor | None = None) -> bool:
    """Whether a case has all these labels, as far as its reader may see."""
    shown = reader is None or may_see_case(case, reader)
    return set(labels) <= set(labels_of(case).items() if shown else ())


def title_of(case: Case) -> str | None:
    """The title of a case; None where it has none."""
    return None if isinstance(case.title, UnsetType) else case.title


def find_first_since(settled: SettledRecords, space: Space, moment: str) -> int:
    """The place of the first entry of a space that was written at this moment or later; beyond the last where none was.

    Found by bisection, as far as the clocks of the servers went forward.
    """
    first, end = 0, space.head.seq + 1
    while first < end:
        middle = (first + end) // 2
        if settled.read_at(space, middle).body.ts < moment:
            first = middle + 1
        else:
            end = middle
    return first


def labels_of(case: Case) -> Mapping[str, str]:
    """The labels of a case."""
    return {} if isinstance(case.labels, UnsetType) else case.labels


def _agent_of(record: ProposalRecord | Approval | Execution) -> str:
    match record:
        case ProposalRecord():
            return record.actor.id
        case Approval():
            return record.proposer.id
        case Execution():
            return record.agent_id


def _case_of(space: Space, record: ProposalRecord | Approval | Execution) -> str | None:
    proposal = record if isinstance(record, ProposalRecord) else space.proposals.get(record.proposal_id)
    return None if proposal is None else proposal.case_id


def _tools_of(record: ProposalRecord | Approval | Execution) -> set[str | None]:
    match record:
        case ProposalRecord():
            candidates = record.message.proposal.candidates
            return {each.tool_id for each in candidates if isinstance(each, ToolCall)}
        case Approval():
            return {record.asked.tool_id}
        case Execution():
            return {record.intent.tool_id}


class RecordPage(NamedTuple):
    """A page of a list: the places of its records, which `space` has; and what the next page begins after."""

    space: Space
    positions: list[Position]
    next_after: Position | None


def list_records(
    settled: SettledRecords, space: Space, listed: Listed, after: Position | None, limit: int, wanted: RecordFilter
) -> RecordPage:
    """The records beyond a place that the filter takes; from the beginning of the list where it is None."""
    if wanted.status in OPEN or last_dropped(space.head.seq) < 0:
        places = (
            _position(space, name, record)
            for name, record in _records(space, listed).items()
            if wanted.takes(space, record)
        )
        choose = nlargest if wanted.newest_first else nsmallest
        page = choose(limit + 1, (each for each in places if wanted.reaches(each, after)))
        return RecordPage(space, page[:limit], page[limit - 1] if len(page) > limit else None)
    positions: list[Position] = []
    last: int | None = None
    for event in _read_towards(settled, space, after, wanted):
        last = event.body.seq
        space, names = _recall_named(settled, space, listed, event)
        records = _records(space, listed)
        places = (Position(last, name) for name in names if wanted.takes(space, records[name]))
        positions += sorted((each for each in places if wanted.reaches(each, after)), reverse=wanted.newest_first)
        if len(positions) > limit:
            return RecordPage(space, positions[:limit], positions[limit - 1])
    if last is None or (last <= wanted.first_seq if wanted.newest_first else last >= _last_place(space, wanted)):
        return RecordPage(space, positions, None)
    return RecordPage(space, positions, Position(last, "" if wanted.newest_first else _LAST_ID))


def _last_place(space: Space, wanted: RecordFilter) -> int:
    return min(space.head.seq, wanted.end_seq - 1)


def _read_towards(
    settled: SettledRecords, space: Space, after: Position | None, wanted: RecordFilter
) -> Iterator[SpaceEvent]:
    """The events from a place on, in the order of the list, and so many at most as are read for a page.

    That of the place itself comes again: there may be more than one record at it.
    """
    first, last = wanted.first_seq, _last_place(space, wanted)
    if not wanted.newest_first:
        start = first if after is None else max(first, after.seq)
        yield from settled.read_from(space, start - 1, min(MAX_ENTRIES_READ, last - start + 1))
        return
    end = last if after is None else min(last, after.seq)
    lowest = max(first, end - MAX_ENTRIES_READ + 1)
    while end >= lowest:
        start = max(lowest, end - _ENTRIES_READ_BACKWARD + 1)
        yield from reversed(list(settled.read_from(space, start - 1, end - start + 1)))
        end = start - 1


# Beyond every id at a place.
_LAST_ID = "\U0010ffff"


def _records(space: Space, listed: Listed) -> Mapping[str, ProposalRecord | Approval | Execution]:
    match listed:
        case Listed.PROPOSALS:
            return space.proposals
        case Listed.APPROVALS:
            return space.approvals
        case Listed.EXECUTIONS:
            return space.executions


def _position(space: Space, name: str, record: ProposalRecord | Approval | Execution) -> Position:
    """The place of a record: the proposal for itself and for its approvals, and where an execution was begun."""
    match record:
        case ProposalRecord():
            return Position(record.seq, name)
        case Approval():
            return Position(space.proposals[record.proposal_id].seq, name)
        case Execution():
            return Position(record.started_seq, name)


def _recall_named(
    settled: SettledRecords, space: Space, listed: Listed, event: SpaceEvent
) -> tuple[Space, Sequence[str]]:
    """The records whose place an event is, and the space with them in it."""
    message = event.message
    if listed is Listed.EXECUTIONS:
        names = names_of_executions([event])
        for name in names:
            space = settled.with_execution(space, name)
        return space, names
    if not isinstance(message, Propose):
        return space, ()
    proposal_id = message.proposal.proposal_id
    space = settled.with_proposal(space, proposal_id)
    return space, [proposal_id] if listed is Listed.PROPOSALS else space.proposals[proposal_id].approval_ids
