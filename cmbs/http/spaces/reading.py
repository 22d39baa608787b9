"""The routes that read spaces. Two handlers serve every resource of the table; what can be long is paged."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial, wraps
from heapq import nlargest, nsmallest
from operator import gt, lt
from threading import Lock
from typing import Any, TypeVar

import msgspec

from cmbs.api import spaces as schemas
from cmbs.api.operations.proofs import SPACE_PROOFS, ProofKind
from cmbs.audit.proofs import AnchorSource
from cmbs.belief.kernel.queries import choose_order
from cmbs.belief.server import BeliefServer
from cmbs.errors import EventNotFound, Forbidden, InvalidRequest, RecordNotFound
from cmbs.http.exchange import (
    Request,
    Response,
    build_answer,
    cursor_of,
    encode_answer,
    encode_entry,
    not_modified,
    prefers,
    whole_number,
)
from cmbs.http.headers import say_head
from cmbs.http.listing import take_reached
from cmbs.http.proofs import prove_space
from cmbs.http.spaces import views
from cmbs.http.spaces.filters import read_case_filter, read_record_filter
from cmbs.http.spaces.inbox import MAX_SPACES_READ
from cmbs.http.spaces.resources import RESOURCES, Resource
from cmbs.http.spaces.views import Reader
from cmbs.http.waiting import Waiting, read_seconds
from cmbs.http.work_queue import WorkQueue
from cmbs.identity.kernel.scopes import Scope
from cmbs.ledger import Head
from cmbs.messages import Actor, ActorKind
from cmbs.refusals import find_nearest
from cmbs.spi.audit_log import PAGE_BYTES, Append, take_page
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import STREAM_PREFIX, Changes, MediaType, Propose, SpaceEvent, SpaceVerb
from cmbs.substrate.kernel.insight.advice import advise_on_explanation
from cmbs.substrate.kernel.insight.explanation import Hypothetical, explain, recall
from cmbs.substrate.kernel.insight.findings import SpaceChangeItem
from cmbs.substrate.kernel.policy.file import map_source
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.retention import UNSETTLED, waits_for_caller
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.kernel.words import SpaceChangeKind
from cmbs.substrate.listing import Listed, Position, list_records, take_cases
from cmbs.substrate.pace import Pace
from cmbs.substrate.server import SubstrateServer

# A place in a list: the parts of a cursor, compared in their order.
Place = TypeVar("Place", tuple[str], Position)
PageSize = Callable[[int | None], int]
AppendObserver = Callable[[Sequence[Append]], None]

_VARY = ("vary", "accept")
# A file takes up to seconds to compile, and explanations of one policy come one after the other.
_map_source = lru_cache(maxsize=16)(map_source)
_MAX_ENTRIES_READ_FOR_A_PAGE = 1_000
_MAX_SEQ_DIGITS = 16
# How many decisions an explanation may try in search of the smallest change; beyond, it says that it is a bound.
_MAX_DECISIONS_TRIED = 2_000
# The same for a call that is decided as of now: pages ask for it again whenever something was written.
_MAX_DECISIONS_NOW = 100


class Spaces:
    """The server of spaces; if none is given, one over the log of the belief server, created on first use."""

    def __init__(
        self,
        belief: BeliefServer,
        given: SubstrateServer | None = None,
        count_operator_keys: Callable[[], int] | None = None,
    ) -> None:
        self.belief = belief
        self._server = given
        self._count_operator_keys = count_operator_keys
        self._lock = Lock()
        self._observers: list[AppendObserver] = []
        # Why nothing may be written; None where all is well.
        self._refusal: str | None = None

    @property
    def server(self) -> SubstrateServer:
        """The server."""
        with self._lock:
            if self._server is None:
                belief = ServedBelief(self.belief)
                self._server = SubstrateServer(
                    log=self.belief.log,
                    belief=belief,
                    default_space=True,
                    count_operator_keys=self._count_operator_keys,
                )
                for observer in self._observers:
                    self._server.observe_appends(observer)
                self._server.refuse_writes(self._refusal)
            return self._server

    def observe_appends(self, observer: AppendObserver) -> None:
        """Tell `observer` of every entry that the server writes, once there is one; see `StreamServer`."""
        with self._lock:
            self._observers.append(observer)
            if self._server is not None:
                self._server.observe_appends(observer)

    def find_behind(self) -> list[str]:
        """The first few spaces of which the log lacks what the server has seen of them."""
        return [] if self._server is None else self._server.find_behind()

    def expect_head(self, stream_id: str, head: Head) -> None:
        """Refuse a space until the log contains this head, which was recorded of it and which the log lacks."""
        if stream_id.startswith(STREAM_PREFIX):
            self.server.expect_head(stream_id, head)

    def refuse_writes(self, reason: str | None) -> None:
        """Write to no space while the database lacks what was signed; None takes writes again."""
        with self._lock:
            self._refusal = reason
            if self._server is not None:
                self._server.refuse_writes(reason)

    def close(self) -> None:
        """Close the server, if there is one."""
        if self._server is not None:
            self._server.close()


def off_loop(read: Callable[..., Response]) -> Callable[..., Awaitable[Response]]:
    """Make a handler of a read: in a thread where the log waits for a device, at once where it does not."""

    @wraps(read)
    async def handle(self: SpaceReading, *arguments: Any) -> Response:
        if self.server.log.blocking:
            return await asyncio.to_thread(read, self, *arguments)
        return read(self, *arguments)

    return handle


class SpaceReading:
    """The handlers that change nothing. The router finds a handler by the `operation_id`."""

    def __init__(
        self,
        spaces: Spaces,
        page_size: PageSize,
        waiting: Waiting,
        explanations: WorkQueue,
        anchor: AnchorSource | None = None,
    ) -> None:
        self._spaces = spaces
        self._explanations = explanations
        self._waiting = waiting
        self._anchor = anchor
        self._page_size = page_size
        for resource in RESOURCES:
            setattr(self, resource.records.list_id, partial(self._list, resource))
            setattr(self, resource.records.get_id, partial(self._get, resource))
        for proof in SPACE_PROOFS:
            setattr(self, proof.of_space().operation_id, partial(self._prove, proof))

    # --- every resource ---

    @off_loop
    def _list(self, resource: Resource, request: Request) -> Response:
        table = resource.records
        if table.operators_only:
            require_operator(request.actor)
        limit, after = self._page_size(request.query.get("limit")), request.after_of(2)
        start = None if after is None else Position(whole_number("cursor", after[0]), after[1])
        space, reader = self._open(request)
        if resource.listed is not None:
            page = list_records(
                self.server.settled,
                space,
                resource.listed,
                start,
                limit,
                read_record_filter(request, table.statuses, space, self.server),
            )
            space, positions = page.space, page.positions
            cursor = None if page.next_after is None else cursor_of(*map(str, page.next_after))
        elif table.narrowing:
            found = take_cases(space, read_case_filter(request, table.statuses, space, self.server))
            positions, cursor = _take_towards(found, start, limit, request.query.get("order", "oldest"))
        else:
            found = (
                Position(0 if resource.position is None else resource.position(record), record_id)
                for record_id, record in getattr(space, table.plural).items()
            )
            positions, cursor = _take_towards(found, start, limit)
        records = getattr(space, table.plural)
        shown = [resource.show(space, records[record_id], reader) for _, record_id in positions]
        return _respond(table.page(shown, cursor))

    async def _get(self, resource: Resource, request: Request) -> Response:
        if "wait" in request.query:
            await self._await_settled(request, request.query["wait"])
        return await self._read_one(resource, request)

    @off_loop
    def _read_one(self, resource: Resource, request: Request) -> Response:
        table = resource.records
        if table.operators_only:
            require_operator(request.actor)
        record_id = request.params[table.id_name]
        space, reader = self._open(request)
        if resource.listed is not None:
            space = self._with_record(space, resource.listed, record_id)
        records = getattr(space, table.plural)
        record = records.get(record_id)
        if record is None:
            raise RecordNotFound(table.noun, record_id, find_nearest(record_id, records))
        return _respond(resource.show(space, record, reader))

    async def _await_settled(self, request: Request, wait: int) -> None:
        """Wait until nothing more is to be waited for of a proposal; one that is not there is not waited for."""
        seconds = read_seconds(wait)
        space_id, proposal_id = request.params["space_id"], request.params["proposal_id"]

        def look() -> bool:
            space = self.server.current(space_id)
            record = space.proposals.get(proposal_id)
            return record is None or record.status not in UNSETTLED or waits_for_caller(space, record)

        async def is_settled() -> bool:
            return await asyncio.to_thread(look) if self.server.log.blocking else look()

        await self._waiting.wait(STREAM_PREFIX + space_id, seconds, is_settled, request.gone())

    def _with_record(self, space: Space, listed: Listed, record_id: str) -> Space:
        match listed:
            case Listed.PROPOSALS:
                return self.server.settled.with_proposal(space, record_id)
            case Listed.APPROVALS:
                return self.server.settled.with_approval(space, record_id)
            case Listed.EXECUTIONS:
                return self.server.settled.with_execution(space, record_id)

    # --- spaces and their state ---

    @off_loop
    def list_spaces(self, request: Request) -> Response:
        """A page of spaces."""
        query, limit, after = self._read_page(request)
        first = after[0] if after else None
        if "case_id" in query:
            heads, last = self._find_admitting(request, query["case_id"], first, limit)
        else:
            heads, last = take_reached(
                self.server.heads,
                lambda head: (head[0], head[0]),
                request.grants,
                Scope.SPACES_READ,
                first,
                limit,
                self._page_size(None),
            )
        spaces = [schemas.SpaceItem(space_id, seq) for space_id, seq in heads]
        return _respond(schemas.SpacesPage(spaces, None if last is None else cursor_of(last)))

    def _find_admitting(
        self, request: Request, case_id: str, after: str | None, limit: int
    ) -> tuple[list[tuple[str, int]], str | None]:
        """The spaces beyond one that admitted a case, and the place to go on from. A page may be empty and have one."""
        page = self.server.heads(after, MAX_SPACES_READ + 1)
        found: list[tuple[str, int]] = []
        for space_id, seq in page[:MAX_SPACES_READ]:
            if not request.grants.reach(Scope.SPACES_READ, space_id):
                continue
            if case_id in self.server.current(space_id).cases:
                if len(found) == limit:
                    return found, found[-1][0]
                found.append((space_id, seq))
        return found, page[MAX_SPACES_READ - 1][0] if len(page) > MAX_SPACES_READ else None

    @off_loop
    def get_space(self, request: Request) -> Response:
        """A space as it is now."""
        space, reader = self._open(request)
        tag = f'"{space.head_event_id}"'
        if request.has_seen(space.head_event_id):
            return not_modified(tag, "authorization")
        headers = [("etag", tag), ("vary", "authorization"), say_head(space.head.seq, space.head_event_id)]
        return Response(200, encode_answer(views.show_space(space, reader)), headers)

    @off_loop
    def read_state(self, request: Request) -> Response:
        """The state, now or as it was. What the reader may see goes by the policy of now."""
        query, limit, after = self._read_page(request)
        space, reader = self._open(request)
        state: Mapping[str, str] = space.state
        snapshot_id, policy_hash = space.snapshot_id, space.policy.policy_hash
        if "at" in query:
            _, snapshot_id, policy_hash, state = self.server.state_at(space.space_id, _read_moment(query["at"]))
        prefix = query.get("prefix", "")
        readable = ((key,) for key in state if key.startswith(prefix) and reader.may_read(key))
        keys, cursor = _take((key for key in readable if after is None or key > (after[0],)), limit)
        values = {key: state[key] for (key,) in keys}
        return _respond(schemas.StateResponse(snapshot_id, policy_hash, values, cursor))

    @off_loop
    def space_diff(self, request: Request) -> Response:
        """A page of what changed between two moments. What the reader may see goes by the policy of now."""
        query, limit, after = self._read_page(request, 3)
        space, reader = self._open(request)
        diff = self.server.diff(
            space.space_id, _read_moment(query.get("from", "0")), _read_moment(query["to"]) if "to" in query else None
        )
        changes = [each for each in diff.changes if _may_see(each, reader)]
        first = 0
        if after is not None:
            place = (whole_number("cursor", after[0]), after[1], after[2])
            first = bisect_right(changes, place, key=lambda each: each.place)
        page, rest = changes[first : first + limit], changes[first + limit :]
        return _respond(
            build_answer(
                schemas.SpaceDiffPage,
                diff,
                n_changes=len(changes),
                changes=page,
                next_cursor=cursor_of(*map(str, page[-1].place)) if rest else None,
            )
        )

    @off_loop
    def read_policy(self, request: Request) -> Response:
        """A page of the policy; for operators."""
        _, limit, after = self._read_page(request)
        require_operator(request.actor)
        space, _ = self._open(request)
        source = space.policy_source
        if prefers(request.header("accept"), MediaType.YAML, MediaType.JSON):
            if source is None:
                raise RecordNotFound("policy file", space.space_id)
            return Response(200, source.text.encode(), [_VARY, ("content-type", source.media_type.value)])
        pairs = space.policy.pairs
        keys, cursor = _take(((key,) for key in pairs if after is None or key > after[0]), limit)
        page = {key: pairs[key] for (key,) in keys}
        shown = source if after is None else None
        body = schemas.PolicyPage(space.policy.policy_hash, space.policy_version, page, cursor, shown)
        return Response(200, encode_answer(body), [_VARY])

    # --- the stream of a space ---

    @off_loop
    def list_deltas(self, request: Request) -> Response:
        """A page of commits."""
        _, limit, after = self._read_page(request)
        seq = -1 if after is None else whole_number("cursor", after[0])
        space, reader = self._open(request)
        newest = max(space.snapshots.values())
        commits: list[schemas.CommitItem] = []
        for event in self.server.settled.read_from(space, seq, _MAX_ENTRIES_READ_FOR_A_PAGE):
            if len(commits) == limit:
                break
            seq = event.body.seq
            if seq == 0 or event.result.changes != Changes():
                commits.append(_show_commit(event, reader))
        return _respond(schemas.CommitsPage(commits, cursor_of(str(seq)) if seq < newest else None))

    @off_loop
    def list_decisions(self, request: Request) -> Response:
        """A page of decisions, each as it was recorded."""
        _, limit, after = self._read_page(request)
        seq = -1 if after is None else whole_number("cursor", after[0])
        space, reader = self._open(request)
        decisions: list[schemas.DecisionItem] = []
        room = PAGE_BYTES
        for stored in self.server.iterate_entries(space, seq, _MAX_ENTRIES_READ_FOR_A_PAGE):
            if len(decisions) == limit or room < 0:
                break
            seq += 1
            room -= len(stored.raw)
            decisions += self._show_decisions(space, read_space_event(stored), reader)
        return _respond(schemas.DecisionsPage(decisions, cursor_of(str(seq)) if seq < space.head.seq else None))

    def _show_decisions(self, space: Space, event: SpaceEvent, reader: Reader) -> list[schemas.DecisionItem]:
        """Show the decision that an event records; a request that was refused has none."""
        body, decision = event.body, event.result.decision
        if decision is None:
            return []
        (proposal_id,) = event.result.statuses
        proposer = body.actor
        if not isinstance(event.message, Propose):
            proposer = self.server.settled.with_proposal(space, proposal_id).proposals[proposal_id].actor
        shown = views.show_decision(decision, proposer, reader)
        return [schemas.DecisionItem(body.seq, body.event_id, body.ts, SpaceVerb(body.verb), proposal_id, shown)]

    @off_loop
    def space_audit(self, request: Request) -> Response:
        """The stored bytes, each with its hash; for operators, since nothing is left out."""
        query, limit, after = self._read_page(request)
        require_operator(request.actor)
        if "since_event_id" in query and after is not None:
            raise InvalidRequest("send `cursor` or `since_event_id`, not both: each says where the page begins")
        space, _ = self._open(request)
        seq = -1 if after is None else whole_number("cursor", after[0])
        if "since_event_id" in query:
            found = self.server.settled.find_seq(space, query["since_event_id"])
            if found is None:
                raise EventNotFound(query["since_event_id"])
            seq = found
        entries = take_page(self.server.iterate_entries(space, seq, limit), PAGE_BYTES)
        events = [msgspec.Raw(encode_entry(each)) for each in entries]
        last = seq + len(entries)
        more = cursor_of(str(last)) if last < space.head.seq else None
        return _respond(build_answer(schemas.SpaceAuditResponse, events=events, next_cursor=more))

    async def explain_decision(self, request: Request) -> Response:
        """Why a proposal was last decided as it was, and what would have changed the decision; or how it would be
        decided now.
        """

        def read(pace: Pace) -> Response:
            space, reader = self._open(request)
            proposal_id = request.params["proposal_id"]
            record = self.server.settled.with_proposal(space, proposal_id).proposals[proposal_id]
            if _asks_of_now(request):
                if not reader.owns(record.actor.kind, record.actor.id):
                    require_operator(request.actor)
                proposal = msgspec.structs.replace(record.message.proposal, state_snapshot_id=space.snapshot_id)
                asked = self.server.hypothetical(space.space_id, record.actor, proposal)
                return respond_explanation(asked, reader, pace, recorded=False, max_decisions=_MAX_DECISIONS_NOW)
            before = self.server.at(space.space_id, record.decided_seq - 1)
            asked = recall(before, self._read_event(space, record.decided_seq))
            return respond_explanation(asked, reader, pace, recorded=True)

        return await self._explanations.run(request, read)

    async def _prove(self, proof: ProofKind, request: Request) -> Response:
        """A proof about a space; for operators, since entries are in it as they are."""
        require_operator(request.actor)
        space_id, belief = request.params["space_id"], self._spaces.belief
        prove = partial(prove_space, self.server, belief, space_id, proof.kind, request.query, self._anchor)
        return Response(200, await asyncio.to_thread(prove))

    # --- shared ---

    async def find_head(self, request: Request) -> str | None:
        """The head of the space that a request is about; None where it asks what would be decided now, which belief and
        time decide too.
        """
        if _asks_of_now(request):
            return None
        space_id = request.params["space_id"]
        blocking = self.server.log.blocking
        space = await asyncio.to_thread(self.server.current, space_id) if blocking else self.server.current(space_id)
        return space.head_event_id

    @property
    def server(self) -> SubstrateServer:
        """The server of spaces."""
        return self._spaces.server

    def _open(self, request: Request) -> tuple[Space, Reader]:
        space = self.server.current(request.params["space_id"])
        return space, Reader(request.actor, space.policy)

    def _read_event(self, space: Space, seq: int) -> SpaceEvent:
        return read_space_event(self.server.entry(space, seq))

    def _read_page(self, request: Request, parts: int = 1) -> tuple[dict[str, Any], int, list[str] | None]:
        """The query of a list, the page size, and the parts of the cursor."""
        return request.query, self._page_size(request.query.get("limit")), request.after_of(parts)


def require_operator(actor: Actor) -> None:
    """Refuse all but operators: an actor that a policy binds must not read how to get around it."""
    if actor.kind is not ActorKind.OPERATOR:
        kind = actor.kind.value
        unkeyed = "this server has no keys: say who you are, as in `X-Cmbs-Actor: operator:me` (`--actor`, `actor=`)"
        told = {"field": "actor.kind", "found": kind, "accepted": [ActorKind.OPERATOR.value]}
        next_step = "send it with an operator's key" if actor.authenticated else unkeyed
        raise Forbidden(
            f"this is for operators; {next_step}",
            {"reason": "operators_only", "kind": kind, **told, "next": next_step},
        )


def respond_explanation(
    asked: Hypothetical, reader: Reader, pace: Pace, *, recorded: bool, max_decisions: int = _MAX_DECISIONS_TRIED
) -> Response:
    """Explain a decision; what is left out goes by the policy of now, not by that of the decision."""
    own = reader.owns(asked.actor.kind, asked.actor.id)
    source = asked.space.policy_source if reader.is_operator else None
    source_map = None if source is None else _map_source(source)
    found = explain(
        asked,
        reader.actor.kind,
        max_decisions,
        readable=reader.policy,
        own=own,
        source_map=source_map,
        may_go_on=pace.may_go_on,
    )
    refusals = advise_on_explanation(asked, found, reader.actor) or None
    return _respond(
        schemas.ExplainResponse(found.decision, found.because, found.flip, found.withheld, recorded, refusals)
    )


def _asks_of_now(request: Request) -> bool:
    return request.query.get("now") == "true"


def _respond(body: msgspec.Struct) -> Response:
    return Response(200, encode_answer(body))


def _take(positions: Iterable[Place], limit: int) -> tuple[list[Place], str | None]:
    """Take the first page of the positions, in order, and the cursor of the next page if there is one."""
    page = nsmallest(limit + 1, positions)
    return page[:limit], cursor_of(*map(str, page[limit - 1])) if len(page) > limit else None


def _take_towards(
    positions: Iterable[Position], after: Position | None, limit: int, order: str = "oldest"
) -> tuple[list[Position], str | None]:
    """Take the first page of the positions beyond one, in an order, and the cursor of the next page if there is one."""
    newest_first = choose_order(order)
    choose, beyond = (nlargest, lt) if newest_first else (nsmallest, gt)
    page = choose(limit + 1, (each for each in positions if after is None or beyond(each, after)))
    return page[:limit], cursor_of(*map(str, page[limit - 1])) if len(page) > limit else None


def _may_see(change: SpaceChangeItem, reader: Reader) -> bool:
    match change.kind:
        case SpaceChangeKind.FACT | SpaceChangeKind.POLICY:
            return reader.may_read(change.id)
        case SpaceChangeKind.POLICY_CHANGE:
            return reader.is_operator
        case _:
            return True


def _read_moment(at: str) -> int | str:
    """A seq, or else a snapshot id."""
    return int(at) if at.isascii() and at.isdigit() and len(at) <= _MAX_SEQ_DIGITS else at


def _show_commit(event: SpaceEvent, reader: Reader) -> schemas.CommitItem:
    body, changes = event.body, event.result.changes
    unset = sorted(filter(reader.may_read, changes.unset))
    values = reader.filter_values(changes.set)
    snapshot_id = event.stored.event_hash.hex()
    return schemas.CommitItem(body.seq, body.event_id, body.ts, SpaceVerb(body.verb), snapshot_id, values, unset)
