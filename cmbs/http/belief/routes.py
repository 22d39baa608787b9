"""What each route does: decode, hand to the server, encode. No rule of belief is here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.requests import Command
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidRequest
from cmbs.http.belief import answers, schemas
from cmbs.http.belief.analysis import Analyst
from cmbs.http.exchange import Request, Response, cursor_of, from_cursor, whole_number
from cmbs.messages import OntologyBundle

T = TypeVar("T")

_ENCODE = msgspec.json.Encoder().encode
_CREATED = 201
_MINIMAL = [("preference-applied", "return=minimal")]
_VARY = ("vary", "prefer")
# Bodies beyond this are decoded in a thread, so that one large declaration does not hold up everybody else.
_LARGE_BODY = 65_536


class Routes:
    """The handlers, one method for each operation of the API."""

    def __init__(self, server: BeliefServer) -> None:
        self._server = server
        self._analyst = Analyst(server)

    # --- the verbs that write ---

    def declare_session(self, request: Request) -> Coroutine[Any, Any, Response]:
        """DECLARE_SESSION."""
        return self._write(request, self._declaration, _CREATED)

    def eliminate(self, request: Request) -> Coroutine[Any, Any, Response]:
        """ELIMINATE."""
        return self._write(request, self._elimination)

    def enter_obligation(self, request: Request) -> Coroutine[Any, Any, Response]:
        """ENTER_OBLIGATION."""
        return self._write(request, self._obligation)

    def request_exit(self, request: Request) -> Coroutine[Any, Any, Response]:
        """REQUEST_EXIT."""
        return self._write(request, self._exit)

    def declare_conclusion(self, request: Request) -> Coroutine[Any, Any, Response]:
        """DECLARE_CONCLUSION."""
        return self._write(request, self._conclusion)

    def request_termination(self, request: Request) -> Coroutine[Any, Any, Response]:
        """REQUEST_TERMINATION."""
        return self._write(request, self._termination)

    def _declaration(self, request: Request) -> Command:
        body = request.decoded(schemas.DeclareSessionRequest)
        ontology = OntologyBundle(**msgspec.structs.asdict(body.ontology))
        policy = {} if isinstance(body.policy, UnsetType) else msgspec.structs.asdict(body.policy)
        said = {name: value for name, value in policy.items() if value is not UNSET}
        return self._server.declaration(
            ontology,
            None if isinstance(body.hypotheses, UnsetType) else body.hypotheses,
            _given(body.metadata),
            policy=self._server.default_policy(**said),
            idempotency_key=request.idempotency_key,
            actor=request.authenticated,
        )

    def _elimination(self, request: Request) -> Command:
        body = request.decoded(schemas.EliminateRequest)
        if body.session_id is not UNSET:
            _refuse_other("session_id", body.session_id, request.params["session_id"])
        said = body.justification
        message = self._server.requests.eliminate(
            body.source_id, body.observation_id, body.eliminated, None if said is UNSET else said
        )
        return self._command(request, message)

    def _obligation(self, request: Request) -> Command:
        body = request.decoded(schemas.EnterObligationRequest)
        _refuse_other("session_id", body.session_id, request.params["session_id"])
        requests = self._server.requests
        return self._command(request, requests.enter_obligation(body.obligation_id, body.min_total_eliminations))

    def _exit(self, request: Request) -> Command:
        body = request.decoded(schemas.RequestExitRequest)
        _refuse_other("session_id", body.session_id, request.params["session_id"])
        _refuse_other("obligation_id", body.obligation_id, request.params["obligation_id"])
        requests = self._server.requests
        return self._command(request, requests.request_exit(request.params["obligation_id"], _given(body.context)))

    def _conclusion(self, request: Request) -> Command:
        body = request.decoded(schemas.DeclareConclusionRequest)
        _refuse_other("session_id", body.session_id, request.params["session_id"])
        requests = self._server.requests
        return self._command(request, requests.declare_conclusion(body.conclusion_id, _given(body.context)))

    def _termination(self, request: Request) -> Command:
        body = request.decoded(schemas.RequestTerminationRequest)
        _refuse_other("session_id", body.session_id, request.params["session_id"])
        return self._command(request, self._server.requests.request_termination(_given(body.context)))

    def _command(self, request: Request, message: Any) -> Command:
        return self._server.requests.command(
            request.params["session_id"], message, request.idempotency_key, request.if_match, request.authenticated
        )

    async def _write(self, request: Request, build: Callable[[Request], Command], status: int = 200) -> Response:
        request.query()
        # A declaration may have to ask the store what there is to declare.
        if len(request.body) > _LARGE_BODY or (status == _CREATED and self._server.waits_in_caller):
            command = await asyncio.to_thread(build, request)
        else:
            command = build(request)
        await request.course
        answer = await self._server.answer_async(command)
        await request.course
        headers = [] if status != _CREATED else [_location(answer)]
        if request.wants_minimal:
            return Response(status, answers.encoded(answer, with_survivors=False), _MINIMAL + headers)
        if len(answer.session.universe.ids) > _LARGE_BODY and _may_list_many(answer):
            return Response(status, await asyncio.to_thread(answers.encoded, answer, with_survivors=True), headers)
        return Response(status, answers.encoded(answer, with_survivors=True), headers)

    # --- the verbs that read ---

    async def query_belief(self, request: Request) -> Response:
        """QUERY_BELIEF."""
        at = _moment(request.query("at").get("at"))
        minimal = request.wants_minimal

        def read() -> tuple[bytes, str]:
            belief = self._server.query_belief(request.params["session_id"], at=at)
            return answers.encoded_snapshot(belief, with_survivors=not minimal), belief.audit_head_event_id or ""

        body, head = await self._read(read)
        return Response(200, body, [("etag", f'"{head}"'), _VARY, *(_MINIMAL if minimal else [])])

    async def audit_trace(self, request: Request) -> Response:
        """AUDIT_TRACE: the stored bytes as they are, each with its hash."""
        query = request.query("since_event_id", "limit")
        limit = self._limit(query) if "limit" in query else None

        def read() -> bytes:
            entries = self._server.stored_entries(request.params["session_id"], query.get("since_event_id"), limit)
            return b'{"events":[%b]}' % b",".join(map(answers.with_hash, entries))

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
        session_id = self._server.requests.text("session_id", request.params["session_id"])
        return Response(200, await self._analyst.analysis(session_id, query.get("kit"), query.get("truth")))

    def close(self) -> None:
        """Begin nothing new that runs beside the event loop."""
        self._analyst.close()

    async def healthz(self, request: Request) -> Response:
        """The process is alive."""
        request.query()
        return Response(200, b'{"status":"ok"}')

    async def readyz(self, request: Request) -> Response:
        """The store answers."""
        request.query()
        await self._read(lambda: self._server.list_sessions(limit=1))
        return Response(200, b'{"status":"ok"}')

    async def _read(self, read: Callable[[], T]) -> T:
        """Read in a thread where the log waits for a device; the loop has better things to do."""
        return await asyncio.to_thread(read) if self._server.log.blocking else read()

    def _limit(self, query: dict[str, str]) -> int:
        asked = whole_number("limit", query["limit"]) if "limit" in query else None
        return self._server.requests.page_size(asked)


def _refuse_other(name: str, in_body: str | UnsetType, in_path: str) -> None:
    if in_body is not UNSET and in_body != in_path:
        raise InvalidRequest(
            f"`{name}` is `{in_body}` in the body and `{in_path}` in the path", {"body": in_body, "path": in_path}
        )


def _given(value: msgspec.Raw | UnsetType) -> msgspec.Raw | None:
    return None if isinstance(value, UnsetType) else value


def _moment(at: str | None) -> int | str | None:
    return int(at) if at is not None and at.isascii() and at.isdigit() and len(at) < len("1" * 17) else at


def _may_list_many(answer: Answer) -> bool:
    """Whether there are many survivors; a repeat tells of a moment that is not worth looking up for this."""
    session = answer.session
    return answer.seq != session.head.seq or len(session.survivors) > _LARGE_BODY


def _location(answer: Answer) -> tuple[str, str]:
    """Where a new session is. Relative to the path of the request, so that it is right wherever we are mounted."""
    return "location", f"sessions/{quote(answer.session.session_id, safe='')}"
