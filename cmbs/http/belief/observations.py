"""Observations over HTTP, and what is worth asking next."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from cmbs.api.observations import ObserveRequest, ProbesPage
from cmbs.belief.kernel.events import Eliminate, Message
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.looks import DEFAULT_PROBES
from cmbs.belief.observations import OBSERVER, describe_observation
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict
from cmbs.http.exchange import (
    Request,
    Response,
    build_answer,
    cursor_of,
    encode_answer,
    read_moment,
    value_of,
    whole_number,
)

# Longer responses are windows of many samples, which take a while to read.
_MAX_BODY_BYTES_READ_ON_LOOP = 16_384


class Write(Protocol):
    """How a message to the session of a request is carried out and answered; `describe` adds to the answer."""

    async def __call__(
        self,
        request: Request,
        message: Message,
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
        body: ObserveRequest = request.message
        session_id, observations = request.params["session_id"], self._server.observations
        build = partial(
            observations.message,
            session_id,
            body.probe_id,
            body.response,
            source_id=value_of(body.source_id) or (OBSERVER if request.authenticated is None else request.actor.id),
            observation_id=value_of(body.observation_id),
            justification=value_of(body.justification),
            seen_at=value_of(body.seen_at),
        )
        is_quick = request.size <= _MAX_BODY_BYTES_READ_ON_LOOP and observations.is_ready(session_id)
        message = build() if is_quick else await asyncio.to_thread(build)
        try:
            return await self._write(request, message, self._describe)
        except Conflict as exc:
            raise await asyncio.to_thread(observations.explain, session_id, exc) from exc

    async def list_probes(self, request: Request) -> Response:
        """A page of what is worth asking."""
        query = request.query
        limit = query.get("limit", DEFAULT_PROBES)
        at, first = read_moment(query.get("at")), 0
        parts = request.after_of(2)
        if parts is not None:
            at, first = whole_number("cursor", parts[0]), whole_number("cursor", parts[1])

        def read() -> Response:
            page = self._server.probes(request.params["session_id"], first, limit, at=at)
            more = None if page.next_place is None else cursor_of(str(page.seq), str(page.next_place))
            return Response(200, encode_answer(build_answer(ProbesPage, page, next_cursor=more)))

        return await asyncio.to_thread(read)

    async def _describe(self, answer: Answer) -> dict[str, Any]:
        message = answer.message
        if not isinstance(message, Eliminate) or message.probe is None:  # pragma: no cover - an observation is one
            raise TypeError(type(message))
        observations, looks = self._server.observations, []
        if observations.has_seen_before(answer):
            looks = await asyncio.to_thread(observations.find_earlier_looks, answer)
        return {
            "observation": describe_observation(message, message.probe),
            "seen_before": looks,
        }
