"""The routes that read spaces: as they are, as they were, and what was recorded. What can be long is paged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from threading import Lock
from typing import Any, TypeVar

import msgspec

from cmbs.belief.server import BeliefServer
from cmbs.errors import EventNotFound, Forbidden, InvalidRequest, RecordNotFound
from cmbs.http.belief.answers import encode_entry
from cmbs.http.exchange import Request, Response, cursor_of, from_cursor, whole_number
from cmbs.http.spaces import schemas, views
from cmbs.http.spaces.views import Reader
from cmbs.messages import ActorKind
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import Approve, Propose, SpaceEvent, SpaceVerb, Wake
from cmbs.substrate.kernel.insight.explanation import Hypothetical, explain, recalled
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.state import ApprovalStatus, ExecutionStatus, ProposalStatus, Space
from cmbs.substrate.server import SubstrateServer

T = TypeVar("T")
PageSize = Callable[[int | None], int]
# A place in a list: the seq of its item, and the item's id.
Place = tuple[int, str]

_ENCODE = msgspec.json.Encoder().encode
_DECIDING = frozenset({SpaceVerb.PROPOSE, SpaceVerb.WAKE, SpaceVerb.APPROVE})
# Of the log, one page looks through no more than this.
_LOOKED_THROUGH = 1_000
_AT_DIGITS = 17
# How many decisions are tried in search of what would turn one; beyond, the answer says that it is a bound.
_TRIED = 2_000


class Spaces:
    """The server of spaces; where none is given, one over the log of the belief server, made when it is first used."""

    def __init__(self, belief: BeliefServer, given: SubstrateServer | None = None) -> None:
        self._belief = belief
        self._server = given
        self._lock = Lock()

    @property
    def server(self) -> SubstrateServer:
        """The server."""
        if self._server is None:
            with self._lock:
                if self._server is None:
                    belief = ServedBelief(self._belief)
                    self._server = SubstrateServer(log=self._belief.log, belief=belief, default_space=True)
        return self._server

    def close(self) -> None:
        """Close it, if there is one."""
        if self._server is not None:
            self._server.close()


class SpaceReading:
    """The handlers that change nothing."""

    def __init__(self, spaces: Spaces, page_size: PageSize) -> None:
        self._spaces = spaces
        self._page_size = page_size

    @property
    def _server(self) -> SubstrateServer:
        return self._spaces.server

    # --- spaces ---

    async def list_spaces(self, request: Request) -> Response:
        """A page of spaces."""
        limit, after = self._paging(request, 1)

        def read() -> bytes:
            heads = self._server.heads(after[0] if after else None, limit + 1)
            items = [schemas.SpaceItem(space_id, seq) for space_id, seq in heads[:limit]]
            return _ENCODE(schemas.SpacesPage(items, cursor_of(heads[limit - 1][0]) if len(heads) > limit else None))

        return Response(200, await self._read(read))

    async def get_space(self, request: Request) -> Response:
        """A space as it is now."""
        request.query()
        body, head = await self._read(lambda: self._summary(request))
        return Response(200, body, [("etag", f'"{head}"')])

    def _summary(self, request: Request) -> tuple[bytes, str]:
        space = self._space(request)
        return _ENCODE(views.space_view(space, Reader(request.actor, space.policy))), space.head_event_id

    async def read_state(self, request: Request) -> Response:
        """The state, now or as it was."""
        query = request.query("at", "prefix", "cursor", "limit")
        limit, after = self._paged(query, 1)
        prefix = query.get("prefix", "")

        def read() -> bytes:
            now = self._space(request)
            then = now if "at" not in query else self._server.at(now.space_id, _moment(query["at"]))
            reader = Reader(request.actor, now.policy)
            beyond = after[0] if after else None
            keys = (
                key
                for key in then.state
                if key.startswith(prefix) and (beyond is None or key > beyond) and reader.may_read(key)
            )
            page = nsmallest(limit + 1, keys)
            values = {key: then.state[key] for key in page[:limit]}
            more = cursor_of(page[limit - 1]) if len(page) > limit else None
            return _ENCODE(schemas.StateResponse(then.snapshot_id, then.policy.policy_hash, values, more))

        return Response(200, await self._read(read))

    # --- what was recorded ---

    async def list_deltas(self, request: Request) -> Response:
        """A page of commits."""
        limit, after = self._paging(request, 1)
        first = 0 if after is None else 1 + whole_number("cursor", after[0])

        def read() -> bytes:
            space = self._space(request)
            reader = Reader(request.actor, space.policy)
            last = min(len(space.snapshots), first + min(limit, _LOOKED_THROUGH))
            items = [self._commit(space, place, reader) for place in range(first, last)]
            return _ENCODE(
                schemas.CommitsPage(items, cursor_of(str(last - 1)) if last < len(space.snapshots) else None)
            )

        return Response(200, await self._read(read))

    def _commit(self, space: Space, place: int, reader: Reader) -> schemas.CommitItem:
        snapshot_id, seq = space.snapshots.at(place)
        event = self._event(space, seq)
        changed, gone = views.readable_changes(event.result.changes, reader)
        return schemas.CommitItem(
            seq, event.body.event_id, event.body.ts, SpaceVerb(event.body.verb), snapshot_id, changed, gone
        )

    async def list_decisions(self, request: Request) -> Response:
        """A page of decisions, each as it was recorded."""
        limit, after = self._paging(request, 1)
        begin = -1 if after is None else whole_number("cursor", after[0])

        def read() -> bytes:
            space = self._space(request)
            reader = Reader(request.actor, space.policy)
            items: list[schemas.DecisionItem] = []
            seq = begin
            for stored in self._server.stored_entries(space.space_id, begin, _LOOKED_THROUGH):
                if len(items) == limit:
                    break
                seq += 1
                if seq <= space.head.seq and space.events.at(seq)[1] in _DECIDING:
                    items += _decided(space, read_space_event(stored), reader)
            more = cursor_of(str(seq)) if seq < space.head.seq else None
            return _ENCODE(schemas.DecisionsPage(items, more))

        return Response(200, await self._read(read))

    async def space_audit(self, request: Request) -> Response:
        """The stored bytes as they are, each with its hash; for operators, since nothing is left out of them."""
        query = request.query("since_event_id", "cursor", "limit")
        limit, after = self._paged(query, 1)
        _refuse_bound(request)
        if "since_event_id" in query and after is not None:
            raise InvalidRequest("a `cursor` goes on where a page ended; leave out `since_event_id`")

        def read() -> bytes:
            space = self._space(request)
            begin = -1 if after is None else whole_number("cursor", after[0])
            if "since_event_id" in query:
                begin = _seq_of(space, query["since_event_id"])
            entries = self._server.stored_entries(space.space_id, begin, limit + 1)
            events = [encode_entry(entry) for entry in entries[:limit]]
            more = _ENCODE(cursor_of(str(begin + limit)) if len(entries) > limit else None)
            return b'{"events":[%b],"next_cursor":%b}' % (b",".join(events), more)

        return Response(200, await self._read(read))

    # --- what there is of each kind ---

    async def list_proposals(self, request: Request) -> Response:
        """A page of proposals."""
        wanted = _status(request, ProposalStatus)
        return await self._page(
            request,
            "proposals",
            lambda space: space.proposals,
            lambda _, record: record.seq if wanted in (None, record.status) else None,
            views.proposal_view,
        )

    async def get_proposal(self, request: Request) -> Response:
        """One proposal."""
        return await self._one(request, "proposal", lambda space: space.proposals, views.proposal_view)

    async def explain_decision(self, request: Request) -> Response:
        """Why a proposal was decided as it was the last time, and what would have turned it."""
        request.query()

        def read() -> bytes:
            space, proposal_id = self._space(request), request.params["proposal_id"]
            record = space.proposals.get(proposal_id)
            if record is None:
                raise RecordNotFound("proposal", proposal_id)
            before = self._server.at(space.space_id, record.decided_seq - 1)
            asked = recalled(before, self._event(space, record.decided_seq))
            return explained(asked, Reader(request.actor, space.policy), recorded=True)

        return Response(200, await asyncio.to_thread(read))

    async def list_approvals(self, request: Request) -> Response:
        """A page of requests for approval."""
        wanted = _status(request, ApprovalStatus)
        return await self._page(
            request,
            "approvals",
            lambda space: space.approvals,
            lambda space, each: space.proposals[each.proposal_id].seq if wanted in (None, each.status) else None,
            views.approval_view,
        )

    async def get_approval(self, request: Request) -> Response:
        """One request for approval."""
        return await self._one(request, "approval", lambda space: space.approvals, views.approval_view)

    async def list_executions(self, request: Request) -> Response:
        """A page of executions."""
        wanted = _status(request, ExecutionStatus)
        return await self._page(
            request,
            "executions",
            lambda space: space.executions,
            lambda _, each: each.started_seq if wanted in (None, each.status) else None,
            lambda _, each, reader: views.execution_view(each, reader),
        )

    async def get_execution(self, request: Request) -> Response:
        """One execution."""
        return await self._one(
            request,
            "execution",
            lambda space: space.executions,
            lambda _, each, reader: views.execution_view(each, reader),
        )

    async def list_tools(self, request: Request) -> Response:
        """A page of tools."""
        return await self._page(
            request,
            "tools",
            lambda space: space.tools,
            lambda _, __: 0,
            lambda _, each, reader: views.tool_view(each, reader),
        )

    async def get_tool(self, request: Request) -> Response:
        """One tool."""
        return await self._one(
            request, "tool", lambda space: space.tools, lambda _, each, reader: views.tool_view(each, reader)
        )

    async def list_capabilities(self, request: Request) -> Response:
        """A page of tokens."""
        return await self._page(
            request,
            "capabilities",
            lambda space: space.capabilities,
            lambda _, __: 0,
            lambda space, each, _: views.capability_view(space, each),
        )

    async def get_capability(self, request: Request) -> Response:
        """One token."""
        return await self._one(
            request,
            "capability",
            lambda space: space.capabilities,
            lambda space, each, _: views.capability_view(space, each),
        )

    async def list_memory(self, request: Request) -> Response:
        """A page of what is remembered."""
        return await self._page(
            request,
            "memory",
            lambda space: space.memory,
            lambda _, entry: entry.seq,
            lambda _, entry, __: views.memory_view(entry),
        )

    async def get_memory(self, request: Request) -> Response:
        """One claim."""
        return await self._one(
            request, "memory entry", lambda space: space.memory, lambda _, entry, __: views.memory_view(entry)
        )

    async def read_policy(self, request: Request) -> Response:
        """A page of the policy; for operators."""
        limit, after = self._paging(request, 1)
        _refuse_bound(request)

        def read() -> bytes:
            space = self._space(request)
            pairs = space.policy.pairs
            keys = nsmallest(limit + 1, (key for key in pairs if after is None or key > after[0]))
            more = cursor_of(keys[limit - 1]) if len(keys) > limit else None
            page = {key: pairs[key] for key in keys[:limit]}
            return _ENCODE(schemas.PolicyPage(space.policy.policy_hash, space.policy_version, page, more))

        return Response(200, await self._read(read))

    async def list_policy_changes(self, request: Request) -> Response:
        """A page of changes of policy; for operators."""
        _refuse_bound(request)
        return await self._page(
            request,
            "changes",
            lambda space: space.policy_changes,
            lambda _, change: change.seq,
            lambda _, change, __: views.change_view(change),
        )

    async def get_policy_change(self, request: Request) -> Response:
        """One change of policy; for operators."""
        _refuse_bound(request)
        return await self._one(
            request,
            "policy change",
            lambda space: space.policy_changes,
            lambda _, change, __: views.change_view(change),
        )

    # --- what they share ---

    async def _page(
        self,
        request: Request,
        name: str,
        items_of: Callable[[Space], Mapping[str, T]],
        seq_of: Callable[[Space, T], int | None],
        view: Callable[[Space, T, Reader], Any],
    ) -> Response:
        """A page of items in the order of (seq, id); those without a seq are not wanted."""
        limit, after = self._paged(request.query("cursor", "limit", *_FILTERS.get(name, ())), 2)
        beyond: Place = (-1, "") if after is None else (whole_number("cursor", after[0]), after[1])

        def read() -> bytes:
            space = self._space(request)
            items = items_of(space)
            page = nsmallest(limit + 1, _places(space, items, seq_of, beyond))
            reader = Reader(request.actor, space.policy)
            shown = [view(space, items[item_id], reader) for _, item_id in page[:limit]]
            more = cursor_of(str(page[limit - 1][0]), page[limit - 1][1]) if len(page) > limit else None
            return _ENCODE({name: shown, "next_cursor": more})

        return Response(200, await self._read(read))

    async def _one(
        self,
        request: Request,
        what: str,
        items_of: Callable[[Space], Mapping[str, T]],
        view: Callable[[Space, T, Reader], Any],
    ) -> Response:
        request.query()
        item_id = next(value for name, value in request.params.items() if name != "space_id")

        def read() -> bytes:
            space = self._space(request)
            item = items_of(space).get(item_id)
            if item is None:
                raise RecordNotFound(what, item_id)
            return _ENCODE(view(space, item, Reader(request.actor, space.policy)))

        return Response(200, await self._read(read))

    def _space(self, request: Request) -> Space:
        return self._server.current(request.params["space_id"])

    def _reader(self, request: Request) -> Reader:
        return Reader(request.actor, self._space(request).policy)

    def _event(self, space: Space, seq: int) -> SpaceEvent:
        return read_space_event(self._server.stored_entries(space.space_id, seq - 1, 1)[0])

    def _paging(self, request: Request, parts: int) -> tuple[int, list[str] | None]:
        return self._paged(request.query("cursor", "limit"), parts)

    def _paged(self, query: dict[str, str], parts: int) -> tuple[int, list[str] | None]:
        limit = self._page_size(whole_number("limit", query["limit"]) if "limit" in query else None)
        return limit, from_cursor(query["cursor"], parts) if "cursor" in query else None

    async def _read(self, read: Callable[[], T]) -> T:
        """Read in a thread where the log waits for a device; the loop has better things to do."""
        return await asyncio.to_thread(read) if self._server.log.blocking else read()


def explained(asked: Hypothetical, reader: Reader, *, recorded: bool) -> bytes:
    """The explanation of a decision as somebody may read it now, whatever the policy kept from whom at the time."""
    own = reader.is_or_governs(asked.actor.id)
    told = explain(asked, reader.actor.kind, _TRIED, readable=reader.policy, own=own)
    return _ENCODE(schemas.ExplainResponse(told.decision, told.because, told.flip, told.withheld, recorded))


_FILTERS = {"proposals": ("status",), "approvals": ("status",), "executions": ("status",)}


def _places(
    space: Space, items: Mapping[str, T], seq_of: Callable[[Space, T], int | None], beyond: Place
) -> Iterable[Place]:
    for item_id, item in items.items():
        seq = seq_of(space, item)
        if seq is not None and (seq, item_id) > beyond:
            yield seq, item_id


def _status(request: Request, kind: type[T]) -> T | None:
    said = request.query("cursor", "limit", "status").get("status")
    try:
        return None if said is None else kind(said)  # type: ignore[call-arg]
    except ValueError as exc:
        known = [each.value for each in kind]  # type: ignore[attr-defined]
        raise InvalidRequest(f"`status` must be one of {', '.join(known)}", {"parameter": "status"}) from exc


def _decided(space: Space, event: SpaceEvent, reader: Reader) -> list[schemas.DecisionItem]:
    """The decision that an event records; a request that was turned down has none."""
    message, decision = event.message, event.result.decision
    if decision is None:
        return []
    match message:
        case Propose():
            proposal_id = message.proposal.proposal_id
        case Wake():
            proposal_id = message.proposal_id
        case Approve():
            proposal_id = space.approvals[message.approval_id].proposal_id
        case _:  # pragma: no cover - the others decide no proposal
            return []
    body = event.body
    shown = views.decision_view(decision, space.proposals[proposal_id].actor, reader)
    return [schemas.DecisionItem(body.seq, body.event_id, body.ts, SpaceVerb(body.verb), proposal_id, shown)]


def _refuse_bound(request: Request) -> None:
    """Forbidden for whoever a policy binds: it tells how to get around it."""
    if request.actor.kind is not ActorKind.OPERATOR:
        raise Forbidden("only operators may read this", {"reason": "operators_only", "kind": request.actor.kind.value})


def _seq_of(space: Space, event_id: str) -> int:
    seq = space.events.position(event_id)
    if seq is None:
        raise EventNotFound(event_id)
    return seq


def _moment(at: str) -> int | str:
    """A seq, or else a snapshot id."""
    return int(at) if at.isascii() and at.isdigit() and len(at) < _AT_DIGITS else at
