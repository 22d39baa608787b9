"""What each route does: decode, hand to the server, encode. No rule of belief is here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.audit.proofs import AnchorSource
from cmbs.belief.kernel.events import Message
from cmbs.belief.kernel.requests import Command
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest
from cmbs.http.belief import history_schemas, schemas
from cmbs.http.belief.analysis import Analyst
from cmbs.http.exchange import Request, Response, cursor_of, encode_entry, from_cursor, whole_number
from cmbs.http.proofs import SESSION_PROOFS, ProofKind, prove_session
from cmbs.messages import OntologyBundle

T = TypeVar("T")

_ENCODE = msgspec.json.Encoder().encode
_CREATED = 201
_MINIMAL = [("preference-applied", "return=minimal")]
_VARY = ("vary", "prefer")
# Larger bodies are validated, and longer lists encoded, in a thread, so that they do not hold up the event loop.
_MAX_BODY_BYTES_VALIDATED_ON_LOOP = 65_536
_MAX_SURVIVORS_ENCODED_ON_LOOP = 65_536


class Routes:
    """The handlers, one method for each operation of the API."""

    def __init__(
        self, server: BeliefServer, check_ready: Callable[[], None], anchor: AnchorSource | None = None
    ) -> None:
        self._server = server
        self._anchor = anchor
        self._check_ready = check_ready
        self._requests = server.requests
        self._analyst = Analyst(server)
        for proof in SESSION_PROOFS:
            setattr(self, proof.of_session().operation_id, partial(self._prove, proof))

    # --- the verbs that write ---

    async def declare_session(self, request: Request) -> Response:
        """DECLARE_SESSION."""
        body: schemas.DeclareSessionRequest = request.message

        def declare() -> Command:
            policy = {} if isinstance(body.policy, UnsetType) else msgspec.structs.asdict(body.policy)
            chosen = {name: value for name, value in policy.items() if value is not UNSET}
            return self._server.declaration(
                OntologyBundle(**msgspec.structs.asdict(body.ontology)),
                None if isinstance(body.hypotheses, UnsetType) else body.hypotheses,
                request.document.get("metadata"),
                policy=self._server.default_policy(**chosen),
                idempotency_key=request.idempotency_key,
                actor=request.authenticated,
            )

        request.query()
        # A declaration without hypotheses asks the store what there is to declare.
        is_slow = len(request.body) > _MAX_BODY_BYTES_VALIDATED_ON_LOOP or self._server.waits_in_caller
        command = await asyncio.to_thread(declare) if is_slow else declare()
        response = await self._perform(request, command, _CREATED)
        # Relative to the path of the request, so that it is right wherever the application is mounted.
        response.headers.append(("location", f"sessions/{quote(command.session_id, safe='')}"))
        return response

    async def eliminate(self, request: Request) -> Response:
        """ELIMINATE."""
        body: schemas.EliminateRequest = request.message
        justification = request.document.get("justification")
        return await self._write(
            request,
            lambda: self._requests.eliminate(body.source_id, body.observation_id, body.eliminated, justification),
        )

    async def enter_obligation(self, request: Request) -> Response:
        """ENTER_OBLIGATION."""
        body: schemas.EnterObligationRequest = request.message
        return await self._write(
            request, lambda: self._requests.enter_obligation(body.obligation_id, body.min_total_eliminations)
        )

    async def request_exit(self, request: Request) -> Response:
        """REQUEST_EXIT."""
        context = request.document.get("context")
        return await self._write(request, lambda: self._requests.request_exit(request.params["obligation_id"], context))

    async def declare_conclusion(self, request: Request) -> Response:
        """DECLARE_CONCLUSION."""
        body: schemas.DeclareConclusionRequest = request.message
        context = request.document.get("context")
        return await self._write(request, lambda: self._requests.declare_conclusion(body.conclusion_id, context))

    async def request_termination(self, request: Request) -> Response:
        """REQUEST_TERMINATION."""
        context = request.document.get("context")
        return await self._write(request, lambda: self._requests.request_termination(context))

    async def fork_session(self, request: Request) -> Response:
        """A fork. It reads and decides a whole prefix, so it never runs on the event loop."""
        body: history_schemas.ForkSessionRequest = request.message
        request.query()
        at = None if isinstance(body.at, UnsetType) else body.at
        forked = await asyncio.to_thread(
            self._server.fork_session,
            request.params["session_id"],
            at,
            if_match=request.if_match,
            idempotency_key=request.idempotency_key,
            actor=request.authenticated,
        )
        minimal = request.wants_minimal
        content = {
            **forked._asdict(),
            "snapshot": await asyncio.to_thread(forked.snapshot.to_dict, with_survivors=not minimal),
        }
        headers = [("location", f"../{quote(forked.session_id, safe='')}"), *(_MINIMAL if minimal else [])]
        return Response(_CREATED, _ENCODE(content), headers)

    async def _write(self, request: Request, build: Callable[[], Message]) -> Response:
        """Carry out the message that `build` validates; a large one is validated in a thread."""
        request.query()
        for name, in_path in request.params.items():
            in_body = getattr(request.message, name, UNSET)
            if in_body is not UNSET and in_body != in_path:
                raise InvalidRequest(
                    f"`{name}` is `{in_body}` in the body and `{in_path}` in the path",
                    {"body": in_body, "path": in_path},
                )
        message = await asyncio.to_thread(build) if len(request.body) > _MAX_BODY_BYTES_VALIDATED_ON_LOOP else build()
        command = self._requests.command(
            request.params["session_id"], message, request.idempotency_key, request.if_match, request.authenticated
        )
        return await self._perform(request, command, 200)

    async def _perform(self, request: Request, command: Command, status: int) -> Response:
        minimal = request.wants_minimal
        outcome = await self._server.perform_async(command)

        def encode() -> bytes:
            return _ENCODE({**outcome._asdict(), "snapshot": outcome.snapshot.to_dict(with_survivors=not minimal)})

        is_large = not minimal and outcome.snapshot.n_survivors > _MAX_SURVIVORS_ENCODED_ON_LOOP
        body = await asyncio.to_thread(encode) if is_large else encode()
        return Response(status, body, list(_MINIMAL) if minimal else [])

    # --- the verbs that read ---

    async def query_belief(self, request: Request) -> Response:
        """QUERY_BELIEF."""
        at = _moment(request.query("at").get("at"))
        minimal = request.wants_minimal

        def read() -> tuple[bytes, str]:
            belief = self._server.query_belief(request.params["session_id"], at=at)
            return _ENCODE(belief.to_dict(with_survivors=not minimal)), belief.audit_head_event_id or ""

        body, head = await self._read(read)
        return Response(200, body, [("etag", f'"{head}"'), _VARY, *(_MINIMAL if minimal else [])])

    async def audit_trace(self, request: Request) -> Response:
        """AUDIT_TRACE: the stored bytes as they are, each with its hash."""
        query = request.query("since_event_id", "cursor", "limit")
        limit = self._limit(query)
        if "since_event_id" in query and "cursor" in query:
            raise InvalidRequest("send `cursor` or `since_event_id`, not both: each says where the page begins")
        since = from_cursor(query["cursor"], 1)[0] if "cursor" in query else query.get("since_event_id")

        def read() -> bytes:
            page = self._server.audit_page(request.params["session_id"], since, limit)
            events = b",".join(map(encode_entry, page.entries))
            cursor = _ENCODE(None if page.next_event_id is None else cursor_of(page.next_event_id))
            return b'{"events":[%b],"next_cursor":%b}' % (events, cursor)

        return Response(200, await self._read(read))

    async def list_sessions(self, request: Request) -> Response:
        """A page of sessions."""
        query = request.query("cursor", "limit")
        limit = self._limit(query)
        after = tuple(from_cursor(query["cursor"], 2)) if "cursor" in query else None

        def read() -> bytes:
            page = self._server.list_sessions((after[0], after[1]) if after else None, limit)
            last = (page[-1].created_ts, page[-1].session_id) if len(page) == limit else None
            more = cursor_of(*last) if last and self._server.list_sessions(last, 1) else None
            return _ENCODE({"sessions": [summary._asdict() for summary in page], "next_cursor": more})

        return Response(200, await self._read(read))

    async def list_survivors(self, request: Request) -> Response:
        """A page of survivors."""
        query = request.query("cursor", "limit", "at")
        limit, at = self._limit(query), _moment(query.get("at"))
        after = from_cursor(query["cursor"], 1)[0] if "cursor" in query else None

        def read() -> bytes:
            session_id = request.params["session_id"]
            ids, belief = self._server.survivors(session_id, after, limit, at=at)
            more = None
            if len(ids) == limit and self._server.survivors(session_id, ids[-1], 1, at=belief.audit_head_event_id)[0]:
                more = cursor_of(ids[-1])
            page = {"survivors": ids, "n_survivors": belief.n_survivors, "next_cursor": more}
            return _ENCODE({**page, "audit_head_event_id": belief.audit_head_event_id})

        return Response(200, await self._read(read))

    async def session_diff(self, request: Request) -> Response:
        """What happened between two events."""
        query = request.query("from", "to", "cursor", "limit")
        limit = self._limit(query)
        start = _moment(query.get("from")) or 0
        parts = from_cursor(query["cursor"], 2) if "cursor" in query else None
        after = None if parts is None else (whole_number("cursor", parts[0]), whole_number("cursor", parts[1]))

        def read() -> bytes:
            diff = self._server.diff(request.params["session_id"], start, _moment(query.get("to")), after, limit)
            content = {**diff._asdict(), "changes": [each._asdict() for each in diff.changes]}
            place = content.pop("next_place")
            return _ENCODE({**content, "next_cursor": cursor_of(*map(str, place)) if place else None})

        return Response(200, await asyncio.to_thread(read))

    async def compare_sources(self, request: Request) -> Response:
        """The sources of a session beside each other."""
        query = request.query("cursor", "limit")
        limit = self._limit(query)
        after = from_cursor(query["cursor"], 1)[0] if "cursor" in query else None

        def read() -> bytes:
            found = self._server.sources(request.params["session_id"], after, limit)
            content = found._asdict()
            content["sources"] = [each._asdict() for each in found.sources]
            content["agreements"] = [each._asdict() for each in found.agreements]
            last = content.pop("next_source_id")
            return _ENCODE({**content, "next_cursor": None if last is None else cursor_of(last)})

        return Response(200, await asyncio.to_thread(read))

    async def list_obligations(self, request: Request) -> Response:
        """Every obligation of a session."""
        request.query()

        def read() -> bytes:
            views = self._server.obligations(request.params["session_id"])
            return _ENCODE({"obligations": [view._asdict() for view in views]})

        return Response(200, await self._read(read))

    async def session_analysis(self, request: Request) -> Response:
        """What a session's path was worth."""
        query = request.query("kit", "truth")
        session_id = self._requests.text("session_id", request.params["session_id"])
        return Response(200, await self._analyst.analysis(session_id, query.get("kit"), query.get("truth")))

    async def _prove(self, proof: ProofKind, request: Request) -> Response:
        """A proof about a session. It may hash for a while, and so never does on the loop."""
        query = request.query(*(parameter.name for parameter in proof.query))
        session_id = self._requests.text("session_id", request.params["session_id"])
        prove = partial(prove_session, self._server, session_id, proof.kind, query, self._anchor)
        return Response(200, await asyncio.to_thread(prove))

    def close(self) -> None:
        """Begin nothing new that runs beside the event loop."""
        self._analyst.close()

    async def healthz(self, request: Request) -> Response:
        """The process is alive."""
        request.query()
        return Response(200, b'{"status":"ok"}')

    async def readyz(self, request: Request) -> Response:
        """The store answers, and is whole as far as this process can tell."""
        request.query()
        await self._read(self._check_ready)
        return Response(200, b'{"status":"ok"}')

    async def _read(self, read: Callable[[], T]) -> T:
        """Read in a thread where the log waits for a device; the loop has better things to do."""
        return await asyncio.to_thread(read) if self._server.log.blocking else read()

    def _limit(self, query: dict[str, str]) -> int:
        asked = whole_number("limit", query["limit"]) if "limit" in query else None
        return self._requests.page_size(asked)


def _moment(at: str | None) -> int | str | None:
    return int(at) if at is not None and at.isascii() and at.isdigit() and len(at) < len("1" * 17) else at
