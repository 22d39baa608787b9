"""Observations over HTTP, and what is worth asking next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import UnsetType

from cmbs.belief.kernel.events import Eliminate, Message
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.next_probes import DEFAULT_LIMIT
from cmbs.belief.observations import OBSERVER, describe_observation
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict
from cmbs.http.belief import observation_schemas
from cmbs.http.exchange import Request, Response, cursor_of, from_cursor, read_moment, whole_number

_ENCODE = msgspec.json.Encoder().encode
# Longer responses are windows of many samples, which take a while to read.
_MAX_BODY_BYTES_READ_ON_LOOP = 16_384


class Write(Protocol):
    """How a message to the session of a request is carried out and answered; `describe` adds to the answer."""

    async def __call__(
        self,
        request: Request,
        build: Callable[[], Message],
        describe: Callable[[Answer], Awaitable[dict[str, Any]]] | None = None,
    ) -> Response:
        """Carry it out."""
        ...


class ObservationRoutes:
    """The handlers."""

    def __init__(self, server: BeliefServer, write: Write) -> None:
        self._server = server
        self._write = write

    async def observe(self, request: Request) -> Response:
        """A probe and what was seen."""
        body: observation_schemas.ObserveRequest = request.message
        source_id = body.source_id
        if isinstance(source_id, UnsetType):
            source_id = OBSERVER if request.authenticated is None else request.actor.id
        return await self._observe(
            request,
            source_id=source_id,
            observation_id=None if isinstance(body.observation_id, UnsetType) else body.observation_id,
            justification=request.document.get("justification"),
            seen_at=None if isinstance(body.seen_at, UnsetType) else body.seen_at,
        )

    async def list_probes(self, request: Request) -> Response:
        """A page of what is worth asking."""
        query = request.query("cursor", "limit", "at")
        limit = whole_number("limit", query["limit"]) if "limit" in query else DEFAULT_LIMIT
        at, first = read_moment(query.get("at")), 0
        if "cursor" in query:
            parts = from_cursor(query["cursor"], 2)
            at, first = whole_number("cursor", parts[0]), whole_number("cursor", parts[1])

        def read() -> Response:
            page = self._server.probes(request.params["session_id"], first, limit, at=at)
            more = None if page.next_place is None else cursor_of(str(page.seq), str(page.next_place))
            return Response(200, _ENCODE({**page.to_dict(), "next_cursor": more}))

        return await asyncio.to_thread(read)

    async def _observe(self, request: Request, **said: Any) -> Response:
        session_id, body, observations = request.params["session_id"], request.message, self._server.observations

        def build() -> Eliminate:
            return observations.message(session_id, body.probe_id, request.document["response"], **said)

        is_quick = len(request.body) <= _MAX_BODY_BYTES_READ_ON_LOOP and observations.is_ready(session_id)
        message = build() if is_quick else await asyncio.to_thread(build)
        try:
            return await self._write(request, lambda: message, self._describe)
        except Conflict as exc:
            raise await asyncio.to_thread(observations.explain, session_id, exc) from exc

    async def _describe(self, answer: Answer) -> dict[str, Any]:
        message = answer.message
        if not isinstance(message, Eliminate) or message.probe is None:  # pragma: no cover - an observation is one
            raise TypeError(type(message))
        observations, looks = self._server.observations, []
        if observations.has_seen_before(answer):
            looks = await asyncio.to_thread(observations.find_earlier_looks, answer)
        return {
            "observation": describe_observation(message, message.probe),
            "seen_before": [each._asdict() for each in looks],
        }
