"""The routes that write to spaces. One handler serves every write of the table: build, perform, show."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET

from cmbs.audit.proofs import AnchorSource
from cmbs.http.exchange import Request, Response, encode_answer
from cmbs.http.headers import REPLAYED, say_head
from cmbs.http.spaces import views
from cmbs.http.spaces.inbox import read_inbox
from cmbs.http.spaces.policy_files import build_creation
from cmbs.http.spaces.reading import PageSize, SpaceReading, Spaces, off_loop, require_operator, respond_explanation
from cmbs.http.spaces.views import Reader
from cmbs.http.spaces.writes import WRITES, Build, Write
from cmbs.http.waiting import Waiting
from cmbs.http.work_queue import WorkQueue
from cmbs.identity.kernel.scopes import Need, Reach, Scope
from cmbs.substrate.kernel.events import CreateSpace, SpaceMessage
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.pace import Pace

_CREATED = 201
# The request of a larger body is decided in a thread, so that it does not block the event loop.
_MAX_BODY_BYTES_VALIDATED_ON_LOOP = 65_536


class SpaceRoutes(SpaceReading):
    """Every handler of spaces; those that only read come from `SpaceReading`."""

    def __init__(
        self,
        spaces: Spaces,
        page_size: PageSize,
        waiting: Waiting,
        explanations: WorkQueue,
        anchor: AnchorSource | None = None,
    ) -> None:
        super().__init__(spaces, page_size, waiting, explanations, anchor)
        for operation_id, write in WRITES.items():
            setattr(self, operation_id, partial(self._write, write))

    @off_loop
    def list_inbox(self, request: Request) -> Response:
        """What waits for a person."""
        return Response(200, encode_answer(read_inbox(self.server, request, self._page_size)))

    async def create_space(self, request: Request) -> Response:
        """Create a space."""
        require_operator(request.actor)
        request.grants.require(Need(Scope.SPACES_OPERATE, Reach.ONE, request.message.space_id))
        answer = await self._perform(request, build_creation)
        space = answer.space
        body = views.show_space(space, Reader(request.actor, space.policy))
        location = ("location", f"spaces/{space.space_id}")
        return Response(_CREATED, encode_answer(body), [location, _say_place(answer)])

    async def explain_proposal(self, request: Request) -> Response:
        """What would be decided, without recording it."""

        def read(pace: Pace) -> Response:
            message: Any = _build(request, WRITES["propose"].build)
            asked = self.server.hypothetical(request.params["space_id"], request.actor, message.proposal)
            return respond_explanation(asked, Reader(request.actor, asked.space.policy), pace, recorded=False)

        # The search for the smallest change takes many decisions.
        return await self._explanations.run(request, read)

    async def _write(self, write: Write, request: Request) -> Response:
        if write.governs is not None and write.governs(request.actor, request.message):
            request.grants.require(Need(Scope.SPACES_OPERATE, Reach.ONE, request.params["space_id"]))
        answer = await self._perform(request, write.build)
        body = encode_answer(write.show(answer, Reader(request.actor, answer.space.policy)))
        return Response(200, body, [_say_place(answer)])

    async def _perform(self, request: Request, build: Build) -> SpaceAnswer:
        if request.size > _MAX_BODY_BYTES_VALIDATED_ON_LOOP:
            message = await asyncio.to_thread(_build, request, build)
        else:
            message = _build(request, build)
        space_id = message.space_id if isinstance(message, CreateSpace) else request.params["space_id"]
        command = SpaceCommand(space_id, request.actor, message, request.idempotency_key, request.if_match)
        if request.size > _MAX_BODY_BYTES_VALIDATED_ON_LOOP:
            return await asyncio.to_thread(self.server.perform, command)
        return await self.server.perform_async(command)


def _say_place(answer: SpaceAnswer) -> tuple[str, str]:
    """That it is a repeat, or else the head of the space after the step."""
    return REPLAYED if answer.repeated else say_head(answer.space.head.seq, answer.space.head_event_id)


def _build(request: Request, build: Build) -> SpaceMessage:
    """Build the message of a request, from the ids of the path and the fields of the body that were sent."""
    sent = msgspec.structs.asdict(request.message)
    ids = {name: value for name, value in request.params.items() if name != "space_id"}
    return build(**ids, **{name: value for name, value in sent.items() if value is not UNSET})
