"""Moments of a session compared, and its sources with each other. Pure: all of it follows from the state."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import combinations, islice, takewhile
from math import log2
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from cmbs.belief.kernel.looks import Applied
from cmbs.belief.kernel.search import MAX_IDS_SEARCHED, TextSearch
from cmbs.belief.kernel.session import Session

# Beyond so many sources the agreement of pairs is told of the ones that listed most: pairs grow with the square.
MAX_SOURCES_COMPARED = 16
# How many contradicted conclusions are named for each source.
_MAX_CONCLUSIONS_NAMED = 10

# Where a page of changes ended: the seq of an event, and how many of its changes were shown.
Place: TypeAlias = tuple[int, int]
Count: TypeAlias = Annotated[int, Meta(ge=0)]


class ChangeKind(StrEnum):
    """What can happen between two moments of a session."""

    ELIMINATED = "eliminated"
    OBLIGATION_ENTERED = "obligation_entered"
    OBLIGATION_EXITED = "obligation_exited"
    CONCLUDED = "concluded"
    TERMINATED = "terminated"
    REFUSED = "refused"


class SessionChangeItem(msgspec.Struct, frozen=True):
    """One thing that happened."""

    kind: ChangeKind
    seq: Count
    event_id: str
    id: Annotated[str | None, Meta(description="The hypothesis, obligation or conclusion; of a refusal, the reason.")]
    source_id: Annotated[str | None, Meta(description="Of an elimination.")]
    observation_id: Annotated[str | None, Meta(description="Of an elimination.")]


class SessionDiff(NamedTuple):
    """What happened between two moments. The counts are of all of it, `changes` are one page."""

    session_id: str
    from_seq: int
    to_seq: int
    n_survivors_before: int
    n_survivors_after: int
    counts: dict[str, int]
    changes: list[SessionChangeItem]
    next_place: Place | None


class SourceItem(msgspec.Struct, frozen=True):
    """What one source did. Ids that are not in the universe count nowhere."""

    source_id: str
    events: Count
    eliminated: Annotated[int, Meta(ge=0, description="Hypotheses that it was the first to list.")]
    already_eliminated_by_others: Count
    already_eliminated_by_itself: Count
    only_here: Annotated[int, Meta(ge=0, description="Hypotheses that it has listed and no other source.")]
    bits: Annotated[float, Meta(ge=0, description="By how much its events reduced log2 of the survivors.")]
    contradicted_conclusions: Annotated[list[str], Meta(description="Accepted conclusions that it has eliminated.")]
    left_none: Annotated[bool, Meta(description="Whether the last survivor was eliminated by it.")]


class AgreementItem(msgspec.Struct, frozen=True):
    """How far two sources agree on what to eliminate."""

    source_id: str
    other_source_id: str
    both: Annotated[int, Meta(ge=0, description="Hypotheses that both have listed.")]
    share: Annotated[float, Meta(ge=0, le=1, description="Their share of those that either has listed.")]


class SourceComparison(NamedTuple):
    """The sources of a session, each for itself and in pairs. `sources` is one page, `agreements` are of all pages."""

    session_id: str
    head_seq: int
    n_sources: int
    n_survivors: int
    # Ids that several sources have listed.
    agreed: int
    sources: list[SourceItem]
    agreements: list[AgreementItem]
    next_source_id: str | None


def compare_moments(
    session: Session, start: int, end: int, after: Place | None, limit: int, text: str = ""
) -> SessionDiff:
    """What happened after event `start` up to event `end`; both are there, and `start` is not the later one.

    With a text, the page holds what happened to ids that have it; the counts are of everything all the same.
    """
    eliminations = _eliminations_by_seq(session, start, end)
    others = _other_changes(session, start, end)
    counts = Counter({ChangeKind.ELIMINATED.value: sum(len(record.applied) for _, record in eliminations.values())})
    counts.update(change.kind.value for changes in others.values() for change in changes)
    first, shown = (start + 1, 0) if after is None else (max(after[0], start + 1), after[1])
    search = TextSearch(text, session.attributes)
    page: list[SessionChangeItem] = []
    place: Place | None = None

    def list_changes() -> Iterator[tuple[Place, SessionChangeItem]]:
        for seq in range(first, end + 1):
            skipped = shown if seq == first else 0
            for number, change in enumerate(_changes_of(session, seq, eliminations, others, skipped), skipped):
                yield (seq, number), change

    for looked_at, (here, change) in enumerate(list_changes()):
        if len(page) == limit or looked_at == MAX_IDS_SEARCHED:
            place = here
            break
        if search.takes(change.id):
            page.append(change)
    now = len(session.survivors) + sum(len(record.applied) for _, record in _list_later(session, end))
    before = now + counts[ChangeKind.ELIMINATED.value]
    known = {kind.value: counts[kind.value] for kind in ChangeKind}
    return SessionDiff(session.session_id, start, end, before, now, known, page, place)


def compare_sources(session: Session, after: str | None, limit: int) -> SourceComparison:
    """What each source of a session did; one page of sources in the order of their ids, from beyond `after` on."""
    tally = _Tally(session)
    names = sorted(tally.listed)
    page = [name for name in names if after is None or name > after][: limit + 1]
    return SourceComparison(
        session.session_id,
        session.head.seq,
        len(names),
        len(session.survivors),
        sum(1 for count in tally.listers.values() if count > 1),
        [tally.report(name) for name in page[:limit]],
        list(tally.agreements()),
        page[limit - 1] if len(page) > limit else None,
    )


def _eliminations_by_seq(session: Session, start: int, end: int) -> dict[int, tuple[tuple[str, str], Applied]]:
    later = _list_later(session, start)
    return {record.seq: (observation, record) for observation, record in later if record.seq <= end}


def _list_later(session: Session, seq: int) -> Iterator[tuple[tuple[str, str], Applied]]:
    """The eliminations after an event, the newest first."""
    return takewhile(lambda item: item[1].seq > seq, session.observations.newest_first())


def _other_changes(session: Session, start: int, end: int) -> dict[int, list[SessionChangeItem]]:
    """Everything but eliminations, by seq."""
    found: dict[int, list[SessionChangeItem]] = defaultdict(list)

    def note(kind: ChangeKind, seq: int | None, name: str | None) -> None:
        if seq is not None and start < seq <= end:
            found[seq].append(SessionChangeItem(kind, seq, session.events.at(seq)[0], name, None, None))

    for name, record in session.obligations.items():
        note(ChangeKind.OBLIGATION_ENTERED, record.entered_seq, name)
        note(ChangeKind.OBLIGATION_EXITED, record.exited_seq, name)
    for seq, name in session.conclusions.newest_first():
        if seq <= start:
            break
        note(ChangeKind.CONCLUDED, seq, name)
    note(ChangeKind.TERMINATED, session.terminated_seq, None)
    for seq in range(start + 1, end + 1):
        verdict = session.events.at(seq)[1]
        if verdict is not None and not verdict.granted:
            note(ChangeKind.REFUSED, seq, verdict.reason.value)
    return found


def _changes_of(
    session: Session,
    seq: int,
    eliminations: dict[int, tuple[tuple[str, str], Applied]],
    others: dict[int, list[SessionChangeItem]],
    skipped: int,
) -> Iterator[SessionChangeItem]:
    """The changes of one event, less the first ones."""
    if seq in eliminations:
        (source_id, observation_id), record = eliminations[seq]
        event_id = session.events.at(seq)[0]
        for hypothesis_id in islice(record.applied, skipped, None):
            yield SessionChangeItem(ChangeKind.ELIMINATED, seq, event_id, hypothesis_id, source_id, observation_id)
    else:
        yield from islice(others.get(seq, ()), skipped, None)


class _Tally:
    """One pass over the eliminations of a session, in their order."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._events: Counter[str] = Counter()
        self._applied: Counter[str] = Counter()
        self._after_others: Counter[str] = Counter()
        self._after_itself: Counter[str] = Counter()
        self._bits: dict[str, float] = defaultdict(float)
        self._left_none: set[str] = set()
        self._by: dict[str, str] = {}
        self.listed: dict[str, set[str]] = {}
        left = len(session.universe)
        for (source_id, _), record in session.observations:
            left = self._count(source_id, record, left)
        self.listers = Counter(name for ids in self.listed.values() for name in ids)

    def _count(self, source_id: str, record: Applied, left: int) -> int:
        self._events[source_id] += 1
        listed = self.listed.setdefault(source_id, set())
        listed.update(record.applied)
        for name in record.applied:
            self._by[name] = source_id
        for name in record.ignored:
            if name in self._by:
                listed.add(name)
                own = self._by[name] == source_id
                (self._after_itself if own else self._after_others)[source_id] += 1
        self._applied[source_id] += len(record.applied)
        remaining = left - len(record.applied)
        if record.applied and remaining == 0:
            self._left_none.add(source_id)
        # As the entropy of a session: that of no survivor is 0, like that of one.
        self._bits[source_id] += log2(left or 1) - log2(remaining or 1)
        return remaining

    def report(self, source_id: str) -> SourceItem:
        contradicted = sorted({name for _, name in self._session.conclusions if self._by.get(name) == source_id})
        return SourceItem(
            source_id,
            self._events[source_id],
            self._applied[source_id],
            self._after_others[source_id],
            self._after_itself[source_id],
            sum(1 for name in self.listed[source_id] if self.listers[name] == 1),
            self._bits[source_id],
            contradicted[:_MAX_CONCLUSIONS_NAMED],
            source_id in self._left_none,
        )

    def agreements(self) -> Iterable[AgreementItem]:
        largest = sorted(self.listed, key=lambda name: (-len(self.listed[name]), name))[:MAX_SOURCES_COMPARED]
        for one, other in combinations(sorted(largest), 2):
            both = len(self.listed[one] & self.listed[other])
            either = len(self.listed[one] | self.listed[other])
            yield AgreementItem(one, other, both, both / either if either else 0.0)
