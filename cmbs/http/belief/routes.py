"""What each operation on sessions does: hand to the server, and show what came of it. No rule of belief is here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.api import histories
from cmbs.api import sessions as schemas
from cmbs.api.answers import ObligationItem, ObligationsResponse
from cmbs.api.entries import AuditTraceResponse
from cmbs.api.operations.proofs import SESSION_PROOFS, ProofKind
from cmbs.audit.proofs import AnchorSource
from cmbs.belief.kernel.comparisons import ChangeKind
from cmbs.belief.kernel.events import Message, UpdateCase
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.outcomes import outcome_of
from cmbs.belief.kernel.queries import describe_session
from cmbs.belief.kernel.refusals import refusal_of
from cmbs.belief.kernel.requests import Command, RequestValidator
from cmbs.belief.kernel.session import asks_for_decision
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest
from cmbs.http.belief.analysis import Analyst
from cmbs.http.belief.answers import describe_answer, show_snapshot, show_store
from cmbs.http.belief.listing import read_session_request
from cmbs.http.belief.observations import ObservationRoutes
from cmbs.http.exchange import (
    MINIMAL,
    Request,
    Response,
    build_answer,
    cursor_of,
    encode_answer,
    encode_entry,
    not_modified,
    read_moment,
    value_of,
    whole_number,
)
from cmbs.http.headers import REPLAYED, say_head
from cmbs.http.listing import take_reached
from cmbs.http.proofs import prove_session
from cmbs.http.waiting import Waiting, read_seconds
from cmbs.http.work_queue import WorkQueue
from cmbs.identity.kernel.scopes import Scope
from cmbs.messages import ConclusionRule, KitChoice

T = TypeVar("T")
# What an answer says beside its outcome.
DescribeAnswer: TypeAlias = Callable[[Answer], Awaitable[dict[str, Any]]]

_CREATED = 201
_SURVIVORS = "snapshot.survivors"
# Larger bodies are validated, and longer lists encoded, in a thread, so that they do not hold up the event loop.
_MAX_BODY_BYTES_VALIDATED_ON_LOOP = 65_536
_MAX_SURVIVORS_ENCODED_ON_LOOP = 65_536

# The messages that requests about a session become, by the name of the operation.
_MESSAGE_OF: dict[str, Callable[[RequestValidator, Request], Message]] = {
    "eliminate": lambda build, request: build.eliminate(
        request.message.source_id,
        request.message.observation_id,
        request.message.eliminated,
        value_of(request.message.justification),
    ),
    "enter_obligation": lambda build, request: build.enter_obligation(
        request.message.obligation_id, request.message.min_total_eliminations
    ),
    "request_exit": lambda build, request: build.request_exit(
        request.params["obligation_id"], value_of(request.message.context)
    ),
    "request_termination": lambda build, request: build.request_termination(value_of(request.message.context)),
    "update_case": lambda build, request: build.update_case(_read_changes(request.message)),
}


class Routes:
    """The handlers, one method for each operation of the API; those of `_MESSAGE_OF` share one."""

    def __init__(
        self,
        server: BeliefServer,
        check_ready: Callable[[], None],
        waiting: Waiting,
        queue: WorkQueue,
        anchor: AnchorSource | None = None,
    ) -> None:
        self._server = server
        self._waiting = waiting
        self._anchor = anchor
        self._check_ready = check_ready
        self._requests = server.requests
        self._analyst = Analyst(server, queue)
        self.observations = ObservationRoutes(server, self.write)
        for operation_id in _MESSAGE_OF:
            setattr(self, operation_id, self._record)
        for proof in SESSION_PROOFS:
            setattr(self, proof.of_session().operation_id, partial(self._prove, proof))

    # --- the verbs that write ---

    async def declare_session(self, request: Request) -> Response:
        """DECLARE_SESSION."""
        body: schemas.DeclareSessionRequest = request.message

        def declare() -> Command:
            policy = {} if isinstance(body.policy, UnsetType) else msgspec.structs.asdict(body.policy)
            chosen = {name: value for name, value in policy.items() if value is not UNSET}
            if isinstance(body.provider, UnsetType) and isinstance(body.kit, UnsetType):
                # A default of this server and not of the spec, so it is written into the declaration.
                chosen.setdefault("conclusions", ConclusionRule.NOT_ELIMINATED)
            return self._server.declaration(
                value_of(body.ontology),
                value_of(body.hypotheses),
                value_of(body.metadata),
                policy=self._server.default_policy(**chosen),
                hypothesis_attributes=value_of(body.hypothesis_attributes),
                provider=value_of(body.provider),
                kit=_read_kit(body.kit),
                symptoms=value_of(body.symptoms),
                title=value_of(body.title),
                labels=value_of(body.labels),
                owner=value_of(body.owner),
                severity=value_of(body.severity),
                agents=value_of(body.agents),
                name=value_of(body.name),
                named_by=request.actor,
                idempotency_key=request.idempotency_key,
                actor=request.authenticated,
            )

        # A declaration without hypotheses asks the store what there is to declare.
        # One that names a provider or a kit may have to load it, and names are read from the log.
        loads = not all(isinstance(each, UnsetType) for each in (body.provider, body.kit, body.name))
        is_large = request.size > _MAX_BODY_BYTES_VALIDATED_ON_LOOP
        is_slow = is_large or loads or self._server.waits_in_caller
        command = await asyncio.to_thread(declare) if is_slow else declare()
        response = await self._perform(request, command, _CREATED)
        # Relative to the path of the request, so that it is right wherever the application is mounted.
        response.headers.append(("location", f"sessions/{quote(command.session_id, safe='')}"))
        return response

    async def fork_session(self, request: Request) -> Response:
        """A fork. It reads and decides a whole prefix, so it never runs on the event loop."""
        body: histories.ForkSessionRequest = request.message
        forked = await asyncio.to_thread(
            self._server.fork_session,
            request.params["session_id"],
            value_of(body.at),
            without=value_of(body.without) or (),
            if_match=request.if_match,
            idempotency_key=request.idempotency_key,
            actor=request.authenticated,
        )
        origin = forked.origin
        left_out, declared_by = list(origin.left_out) or None, list(origin.declared_by)
        shown = schemas.SessionOrigin(origin.session_id, origin.seq, origin.event_hash, left_out, declared_by)
        belief = await asyncio.to_thread(show_snapshot, forked.snapshot, whole=request.wants(_SURVIVORS))
        headers = [("location", f"../{quote(forked.session_id, safe='')}"), *_say_minimal(request)]
        return Response(
            _CREATED, encode_answer(histories.ForkSessionResponse(forked.session_id, shown, belief)), headers
        )

    async def _record(self, request: Request) -> Response:
        """A message to a session, by the table of messages."""
        build = partial(_MESSAGE_OF[request.operation.operation_id], self._requests, request)
        is_large = request.size > _MAX_BODY_BYTES_VALIDATED_ON_LOOP
        return await self.write(request, await asyncio.to_thread(build) if is_large else build())

    async def declare_conclusion(self, request: Request) -> Response:
        """DECLARE_CONCLUSION; where several survive, the session's kit says whether it can tell them apart."""
        said = request.message
        build = partial(
            self._server.conclusion, request.params["session_id"], said.conclusion_id, value_of(said.context)
        )
        return await self.write(request, await self._read(build), self._describe_conclusion)

    async def _describe_conclusion(self, answer: Answer) -> dict[str, Any]:
        """A refusal with the probe to observe next."""
        session = answer.session
        if answer.replayed or session.kit_hash is None or not asks_for_decision(session):
            return {}
        probe = await self._read(partial(self._server.find_separating, session))
        refusal = refusal_of(answer, probe)
        return {} if refusal is None else {"refusal": refusal}

    async def write(self, request: Request, message: Message, describe: DescribeAnswer | None = None) -> Response:
        """Carry out a message to the session of a request; `describe` adds to the answer."""
        _require_same(request)
        command = self._requests.command(
            request.params["session_id"], message, request.idempotency_key, request.if_match, request.authenticated
        )
        return await self._perform(request, command, 200, describe)

    async def _perform(
        self, request: Request, command: Command, status: int, describe: DescribeAnswer | None = None
    ) -> Response:
        whole = request.wants(_SURVIVORS)
        answer = await self._server.answer_async(command)
        outcome = outcome_of(answer)
        more = {} if describe is None else await describe(answer)
        name = None
        if command.name is not None:
            name = await self._read(partial(self._server.names.name_of, command.session_id))

        def encode() -> bytes:
            fields = {**outcome._asdict(), **describe_answer(answer, command.note), **more}
            if name is not None:
                fields["name"] = name
            fields["snapshot"] = show_snapshot(outcome.snapshot, whole=whole)
            return encode_answer(request.operation.response(**fields))

        is_large = whole and outcome.snapshot.n_survivors > _MAX_SURVIVORS_ENCODED_ON_LOOP
        body = await asyncio.to_thread(encode) if is_large else encode()
        # A repeat is answered as of its event, which is the head no longer.
        said = REPLAYED if answer.replayed else say_head(answer.seq, outcome.snapshot.audit_head_event_id or "")
        return Response(status, body, [*_say_minimal(request), said])

    # --- the verbs that read ---

    async def query_belief(self, request: Request) -> Response:
        """QUERY_BELIEF."""
        query = request.query
        at, session_id = read_moment(query.get("at")), request.params["session_id"]
        if "wait" in query:
            await self._wait(request, query)
        elif "after" in query:
            raise InvalidRequest(
                "`after` says what to `wait` for; send both",
                {"parameter": "after", "found": query["after"][:64], "accepted": "`after` with `wait`"},
            )

        def read() -> Response:
            belief = self._server.query_belief(session_id, at=at)
            head = belief.audit_head_event_id or ""
            if request.has_seen(head):
                return not_modified(f'"{head}"', "prefer")
            report = self._server.store_report(session_id)
            store = None if report is None else show_store(report)
            content = show_snapshot(belief, whole=request.wants("survivors"), store=store)
            headers = [("etag", f'"{head}"'), ("vary", "prefer"), *_say_minimal(request)]
            if at is None:
                headers.append(say_head(self._server.seq_of(session_id, head), head))
            return Response(200, encode_answer(content), headers)

        return await self._read(read)

    async def _wait(self, request: Request, query: dict[str, Any]) -> None:
        """Wait until the session has events after a given one, or after the last."""
        if "at" in query:
            raise InvalidRequest(
                "what was so `at` an event does not change; send `wait` without it",
                {"parameter": "at", "found": query["at"][:64], "accepted": "`wait` without `at`"},
            )
        seconds, session_id = read_seconds(query["wait"]), request.params["session_id"]
        after = await self._read(lambda: self._server.seq_of(session_id, read_moment(query.get("after"))))

        async def has_moved() -> bool:
            return await self._read(lambda: self._server.seq_of(session_id, None)) > after

        await self._waiting.wait(session_id, seconds, has_moved, request.gone())

    async def find_head(self, request: Request) -> str:
        """The audit head of the session that a request is about."""
        belief = await self._read(lambda: self._server.query_belief(request.params["session_id"]))
        return belief.audit_head_event_id or ""

    async def audit_trace(self, request: Request) -> Response:
        """AUDIT_TRACE: the stored bytes as they are, each with its hash."""
        query = request.query
        limit = self._limit(request)
        if "since_event_id" in query and "cursor" in query:
            raise InvalidRequest("send `cursor` or `since_event_id`, not both: each says where the page begins")
        since = request.after or query.get("since_event_id")

        def read() -> bytes:
            page = self._server.audit_page(request.params["session_id"], since, limit)
            events = [msgspec.Raw(encode_entry(each)) for each in page.entries]
            more = None if page.next_event_id is None else cursor_of(page.next_event_id)
            return encode_answer(build_answer(AuditTraceResponse, events=events, next_cursor=more))

        return Response(200, await self._read(read))

    async def list_sessions(self, request: Request) -> Response:
        """A page of sessions."""
        limit, after = self._limit(request), request.after_of(2)

        def read() -> bytes:
            asked = read_session_request(request, self._server.names)
            page, last = take_reached(
                partial(self._server.find_sessions, asked.query),
                lambda row: ((row.summary.created_ts, row.summary.session_id), row.summary.session_id),
                request.grants,
                Scope.BELIEF_READ,
                (after[0], after[1]) if after else None,
                limit,
                self._requests.page_size(None),
            )
            more = None if last is None else cursor_of(*last)
            names = self._server.names.read() if page else None
            rows = [
                schemas.SessionItem(
                    **describe_session(
                        row,
                        None if names is None else names.name_of(row.summary.session_id),
                        with_trail=asked.with_trail,
                    )
                )
                for row in page
            ]
            return encode_answer(schemas.SessionsPage(rows, more))

        return Response(200, await self._read(read))

    async def describe_case(self, request: Request) -> Response:
        """What a session says of itself as a case."""
        return Response(200, encode_answer(await self._read(partial(self._show_case, request.params["session_id"]))))

    async def name_case(self, request: Request) -> Response:
        """Another name for a case, or none; it is written to the register of names."""
        session_id, names = request.params["session_id"], self._server.names
        name = value_of(request.message.name)
        _require_same(request)

        def write() -> schemas.SessionCase:
            self._server.current_session(session_id)
            if name is None:
                names.release(session_id, request.actor)
            else:
                names.rename(session_id, name, request.actor)
            return self._show_case(session_id)

        return Response(200, encode_answer(await asyncio.to_thread(write)))

    def _show_case(self, session_id: str) -> schemas.SessionCase:
        session = self._server.current_session(session_id)
        case = session.case
        return schemas.SessionCase(
            session_id=session_id,
            name=self._server.names.name_of(session_id),
            title=case.title or None,
            owner=case.owner or None,
            severity=case.severity or None,
            labels=dict(case.labels),
            agents=None if case.agents is None else list(case.agents),
            created_ts=session.declared_ts,
            terminated=session.terminated_seq is not None,
        )

    async def list_survivors(self, request: Request) -> Response:
        """A page of survivors."""
        query = request.query
        limit, at, text = self._limit(request), read_moment(query.get("at")), query.get("text")
        after = request.after

        def read() -> bytes:
            session_id = request.params["session_id"]
            (ids, last), belief = self._server.find_survivors(session_id, text, after, limit, at=at)
            more = None if last is None else cursor_of(last)
            attributes = self._server.attributes(session_id, ids)
            return encode_answer(
                build_answer(schemas.SurvivorsPage, belief, survivors=ids, attributes=attributes, next_cursor=more)
            )

        return Response(200, await (asyncio.to_thread(read) if text else self._read(read)))

    async def session_diff(self, request: Request) -> Response:
        """What happened between two events."""
        query = request.query
        limit, session_id = self._limit(request), request.params["session_id"]
        start, end = read_moment(query.get("from")) or 0, read_moment(query.get("to"))
        parts = request.after_of(2)
        after = None if parts is None else (whole_number("cursor", parts[0]), whole_number("cursor", parts[1]))

        def read() -> bytes:
            diff = self._server.diff(session_id, start, end, after, limit, query.get("text"))
            gone = [each.id for each in diff.changes if each.kind is ChangeKind.ELIMINATED and each.id is not None]
            return encode_answer(
                build_answer(
                    histories.SessionDiffPage,
                    diff,
                    attributes=self._server.attributes(session_id, gone),
                    next_cursor=cursor_of(*map(str, diff.next_place)) if diff.next_place else None,
                )
            )

        return Response(200, await asyncio.to_thread(read))

    async def compare_sources(self, request: Request) -> Response:
        """The sources of a session beside each other."""
        limit, after = self._limit(request), request.after

        def read() -> bytes:
            found = self._server.sources(request.params["session_id"], after, limit)
            last = found.next_source_id
            return encode_answer(
                build_answer(
                    histories.SourcesPage,
                    found,
                    next_cursor=None if last is None else cursor_of(last),
                )
            )

        return Response(200, await asyncio.to_thread(read))

    async def session_contradiction(self, request: Request) -> Response:
        """Which reports to doubt. It goes through all of them, and so never runs on the event loop."""
        found = await asyncio.to_thread(self._server.contradiction, request.params["session_id"])
        return Response(200, encode_answer(found))

    async def list_obligations(self, request: Request) -> Response:
        """Every obligation of a session."""

        def read() -> bytes:
            session_id = request.params["session_id"]
            views, reach = self._server.obligations(session_id), self._server.reach(session_id)
            # An obligation that is entered between the two is in the later one alone.
            items = [build_answer(ObligationItem, view, reach=reach[view.obligation_id]) for view in views]
            return encode_answer(ObligationsResponse(items))

        return Response(200, await self._read(read))

    async def session_analysis(self, request: Request) -> Response:
        """What a session's path was worth."""
        query = request.query
        session_id = self._requests.text("session_id", request.params["session_id"])
        return Response(200, await self._analyst.analysis(request, session_id, query.get("kit"), query.get("truth")))

    async def _prove(self, proof: ProofKind, request: Request) -> Response:
        """A proof about a session. It may hash for a while, and so never does on the loop."""
        query = request.query
        session_id = self._requests.text("session_id", request.params["session_id"])
        prove = partial(prove_session, self._server, session_id, proof.kind, query, self._anchor)
        return Response(200, await asyncio.to_thread(prove))

    async def whoami(self, request: Request) -> Response:
        """Who asks, and what they may do."""
        actor, grants = request.actor, request.grants
        restricted = {
            scope.value: sorted(patterns)
            for scope, patterns in grants.patterns.items()
            if scope not in grants.everywhere
        }
        roles = () if isinstance(actor.roles, UnsetType) else actor.roles
        content = schemas.WhoAmI(
            actor.kind, actor.id, actor.authenticated, actor.key_id, list(roles), grants.to_texts(), restricted
        )
        return Response(200, encode_answer(content))

    async def healthz(self, _: Request) -> Response:
        """The process is alive."""
        return Response(200, encode_answer(schemas.Health("ok")))

    async def readyz(self, _: Request) -> Response:
        """The stores answer, and are whole as far as this process can tell."""
        # In a thread whatever the log is: a store of tombstones may be another process.
        await asyncio.to_thread(self._check_ready)
        return Response(200, encode_answer(schemas.Health("ok")))

    async def _read(self, read: Callable[[], T]) -> T:
        """Read in a thread where the log waits for a device; the loop has better things to do."""
        return await asyncio.to_thread(read) if self._server.log.blocking else read()

    def _limit(self, request: Request) -> int:
        return self._requests.page_size(request.query.get("limit"))


def _require_same(request: Request) -> None:
    """InvalidRequest where the body names something else than the path."""
    for name, in_path in request.params.items():
        in_body = getattr(request.message, name, UNSET)
        if in_body is not UNSET and in_body != in_path:
            raise InvalidRequest(
                f"`{name}` is `{in_body}` in the body and `{in_path}` in the path",
                {"body": in_body, "path": in_path},
            )


def _read_changes(body: schemas.UpdateCaseRequest) -> dict[str, Any]:
    """What a request changes of a case."""
    changes = {name: getattr(body, name) for name in UpdateCase.__struct_fields__}
    return {name: value for name, value in changes.items() if value is not UNSET}


def _read_kit(kit: str | schemas.KitName | UnsetType) -> KitChoice | None:
    if isinstance(kit, UnsetType):
        return None
    if isinstance(kit, str):
        return KitChoice(kit)
    return KitChoice(kit.id, None if isinstance(kit.version, UnsetType) else kit.version)


def _say_minimal(request: Request) -> list[tuple[str, str]]:
    """What an answer says of the survivors that were not built; where fields were chosen, that says it all."""
    return [] if request.selection or not request.wants_minimal else [MINIMAL]
