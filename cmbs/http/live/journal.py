"""Every stream of a log at once: the source of `/v1/events`, in the order of the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.api.streams import EventName, StreamEntry, StreamFault, StreamHead, StreamHeartbeat, StreamKind
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError, InvalidRequest, LedgerCorrupt, StoreUnavailable
from cmbs.http.exchange import cursor_of, encode_entry, from_cursor, whole_number
from cmbs.http.live.feed import Item, Page, Place
from cmbs.http.live.frames import encode_json
from cmbs.http.spaces.reading import Spaces
from cmbs.http.waiting import ANY_STREAM
from cmbs.identity.kernel.scopes import Scope, grants_of
from cmbs.ledger import StoredEntry
from cmbs.messages import Actor, ActorKind
from cmbs.spi.audit_log import PAGE_BYTES, SPACE_PREFIX, is_reserved
from cmbs.spi.journal import JournalLog
from cmbs.streams.reading import read_entries


class _Decision(msgspec.Struct):
    verdict: str = ""


class _Outcome(msgspec.Struct):
    accepted: bool = True
    approved: bool = True
    granted: bool = True
    decision: _Decision | None = None


class _Entry(msgspec.Struct):
    verb: str
    outcome: _Outcome | UnsetType | None = UNSET


_DECODE = msgspec.json.Decoder(_Entry).decode


class JournalSource:
    """The entries of all sessions and spaces, each verified as its stream is. Other streams are passed over."""

    stream_id = ANY_STREAM

    def __init__(self, server: BeliefServer, spaces: Spaces) -> None:
        log = server.log
        if not isinstance(log, JournalLog):
            raise InvalidRequest("this store cannot tell what is written to all streams; follow a session or a space")
        self._server = server
        self._spaces = spaces
        self._journal: JournalLog = log
        self.blocking = log.blocking

    def read(self, after: Place, limit: int) -> Page:
        """A page of them."""
        places = self._journal.journal(after, limit)
        by_stream: dict[str, list[Place]] = {}
        for place in places:
            by_stream.setdefault(place.stream_id, []).append(place)
        items: dict[Place, Item] = {}
        # Places from which on there was no room: the next page begins with the first of them.
        left: set[Place] = set()
        room = PAGE_BYTES
        # Of each stream, what is in the page is read at once; streams in the order of their first place.
        for stream_id, own in by_stream.items():
            if is_reserved(stream_id) and not stream_id.startswith(SPACE_PREFIX):
                continue
            if room <= 0:
                left.update(own)
                break
            for item in self._read_stream(stream_id, sorted(own, key=lambda place: place.seq), room):
                items[item.place] = item
                room -= len(item.frame)
            if room <= 0:
                left.update(place for place in own if place not in items)
        # The first place is read, or nothing can be: it is passed over, so that a reader goes on.
        end = next((number for number, place in enumerate(places) if number and place in left), len(places))
        told = [items[place] for place in places[:end] if place in items]
        return Page(told, places[end - 1] if places else after, len(places) == limit or end < len(places))

    def _read_stream(self, stream_id: str, places: Sequence[Place], room: int) -> list[Item]:
        """Items of these places of a stream, in their order; those for which there is room, but one in any case."""
        kind, name = split_name(stream_id)
        first, last = places[0].seq, places[-1].seq
        try:
            if kind is StreamKind.SPACE:
                tree = self._spaces.server.current(name).tree
            else:
                tree = self._server.current_session(name).tree
            if first < 0 or last >= tree.size:
                raise LedgerCorrupt(stream_id, last, "the journal names it, and the stream does not reach it")
            items: list[Item] = []
            wanted = {place.seq: place for place in places}
            entries = read_entries(self._server.log, stream_id, tree, first - 1, last - first + 1)
            for seq, stored in enumerate(entries, first):
                if seq in wanted:
                    items.append(_build_item(wanted[seq], stored, kind, name))
                    room -= len(items[-1].frame)
                    if room <= 0:
                        break
        except StoreUnavailable:
            raise
        except BeliefServerError as exc:
            # The streams of others go on; of this one it is said where it broke.
            fault = StreamFault(kind, name, first, exc.code, exc.message)
            frame = encode_json(EventName.CORRUPT, fault, _name(places[-1]))
            return [Item(places[-1], frame, kind, name)]
        return items

    def describe_head(self) -> tuple[Place, StreamHead]:
        """Where the log ends now."""
        end = self._journal.journal_end()
        return end, StreamHead(cursor=_name(end))

    def describe_progress(self, place: Place, at: str) -> StreamHeartbeat:
        """How far the log was read."""
        return StreamHeartbeat(at, cursor=_name(place))

    def name_place(self, place: Place) -> str | None:
        """An opaque cursor."""
        return _name(place)


class Filter(NamedTuple):
    """What a follower of all streams wants; empty is any."""

    kinds: frozenset[str] = frozenset()
    stream_ids: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    refused: bool = False

    def accepts(self, item: Item, actor: Actor) -> bool:
        """Whether an item is wanted, and the actor may read its stream as it is."""
        return (
            (not self.kinds or item.stream_kind in self.kinds)
            and (not self.stream_ids or item.stream_id in self.stream_ids)
            and (not self.verbs or item.verb in self.verbs or not item.verb)
            and (not self.refused or item.refused or not item.verb)
            and may_read(actor, item.stream_kind, item.stream_id)
        )


def may_read(actor: Actor, kind: str, stream_id: str) -> bool:
    """Whether an actor may read the entries of a stream as they are."""
    if kind == StreamKind.SPACE:
        return actor.kind is ActorKind.OPERATOR and grants_of(actor).reach(Scope.SPACES_READ, stream_id)
    return grants_of(actor).reach(Scope.BELIEF_READ, stream_id)


def split_name(stream_id: str) -> tuple[StreamKind, str]:
    """The kind of a stream, and its id as routes call it."""
    if stream_id.startswith(SPACE_PREFIX):
        return StreamKind.SPACE, stream_id.removeprefix(SPACE_PREFIX)
    return StreamKind.SESSION, stream_id


def read_cursor(text: str) -> Place:
    """The place that a cursor stands for; InvalidRequest where it is none of ours."""
    position, stream_id, seq = from_cursor(text, 3)
    # Where the log ended when nothing of it was told yet, there is no entry.
    return Place(whole_number("cursor", position), stream_id, -1 if seq == "-1" else whole_number("cursor", seq))


def _name(place: Place) -> str:
    return cursor_of(str(place.position), place.stream_id, str(place.seq))


def _build_item(place: Place, stored: StoredEntry, kind: StreamKind, name: str) -> Item:
    head = _DECODE(stored.raw)
    told = StreamEntry(kind, name, msgspec.Raw(encode_entry(stored)))
    frame = encode_json(EventName.ENTRY, told, _name(place))
    return Item(place, frame, kind, name, head.verb, _is_refused(head.outcome))


def _is_refused(outcome: _Outcome | UnsetType | None) -> bool:
    if outcome is None or isinstance(outcome, UnsetType):
        return False
    denied = outcome.decision is not None and outcome.decision.verdict == "deny"
    return denied or not (outcome.accepted and outcome.approved and outcome.granted)
