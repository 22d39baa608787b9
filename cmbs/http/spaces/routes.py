"""The routes that write to spaces. One handler serves every write of the table: decode, perform, show."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from cmbs.http.exchange import Request, Response, decoded_strictly
from cmbs.http.spaces import requests, views
from cmbs.http.spaces.reading import PageSize, SpaceReading, Spaces, require_operator, respond_explanation
from cmbs.http.spaces.views import Reader
from cmbs.http.spaces.writes import PROPOSE, WRITES, Build, Write
from cmbs.substrate.kernel.events import CreateSpace, SpaceMessage
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.requests import SpaceCommand

_ENCODE = msgspec.json.Encoder().encode
_CREATED = 201
# A larger body is decoded and decided in a thread, so that it does not block the event loop.
_MAX_BODY_BYTES_ON_LOOP = 65_536


class SpaceRoutes(SpaceReading):
    """Every handler of spaces; those that only read come from `SpaceReading`."""

    def __init__(self, spaces: Spaces, page_size: PageSize) -> None:
        super().__init__(spaces, page_size)
        for write in WRITES:
            setattr(self, write.operation_id, partial(self._write, write))

    async def create_space(self, request: Request) -> Response:
        """Create a space."""
        require_operator(request.actor)
        answer = await self._perform(request, requests.CreateSpaceRequest, CreateSpace)
        space = answer.space
        body = views.show_space(space, Reader(request.actor, space.policy))
        return Response(_CREATED, _ENCODE(body), [("location", f"spaces/{space.space_id}")])

    async def explain_proposal(self, request: Request) -> Response:
        """What would be decided, without recording it."""
        request.query()

        def read() -> Response:
            message: Any = _decode(request, PROPOSE.body, PROPOSE.build)
            asked = self.server.hypothetical(request.params["space_id"], request.actor, message.proposal)
            return respond_explanation(asked, Reader(request.actor, asked.space.policy), recorded=False)

        # The search for the smallest change takes many decisions.
        return await asyncio.to_thread(read)

    async def _write(self, write: Write, request: Request) -> Response:
        request.query()
        answer = await self._perform(request, write.body, write.build)
        return Response(200, _ENCODE(write.show(answer, Reader(request.actor, answer.space.policy))))

    async def _perform(self, request: Request, body: type[msgspec.Struct], build: Build) -> SpaceAnswer:
        def command() -> SpaceCommand:
            message = _decode(request, body, build)
            space_id = message.space_id if isinstance(message, CreateSpace) else request.params["space_id"]
            return SpaceCommand(space_id, request.actor, message, request.idempotency_key, request.if_match)

        if len(request.body) > _MAX_BODY_BYTES_ON_LOOP:
            return await asyncio.to_thread(lambda: self.server.perform(command()))
        return await self.server.perform_async(command())


def _decode(request: Request, body: type[msgspec.Struct], build: Build) -> SpaceMessage:
    """Decode a body and build its message, from the ids of the path and the fields that were sent."""
    sent = msgspec.structs.asdict(decoded_strictly(request, body))
    ids = {name: value for name, value in request.params.items() if name != "space_id"}
    return build(**ids, **{name: value for name, value in sent.items() if value is not UNSET})
