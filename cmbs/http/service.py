"""A server as its callers reach it: every operation of the table, behind the gate, whatever carries the requests.

`cmbs.http.app` carries them over HTTP. Callers in the same process call it as it is, through the client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import msgspec

from cmbs.api.call import Call
from cmbs.api.errors import TransportCode, TransportError, complete_details
from cmbs.api.operation import FIELDS, Operation
from cmbs.api.operations import ALL_OPERATIONS
from cmbs.audit.anchors import anchor_by
from cmbs.belief.kernel.names import may_be_name
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError, InvalidRequest, LedgerCorrupt, LimitExceeded, StoreUnavailable
from cmbs.http.belief.graph import GraphRoutes
from cmbs.http.belief.kits import KitRoutes
from cmbs.http.belief.routes import Routes
from cmbs.http.checkpoints import CheckpointRoutes
from cmbs.http.exchange import MINIMAL, NOT_MODIFIED, TEXT, EventStream, Request, Response, add_vary
from cmbs.http.live.followers import HEARTBEAT_SECONDS, MAX_FOLLOWERS, Followers
from cmbs.http.live.routes import EventRoutes
from cmbs.http.router import Endpoint, Handler, Router
from cmbs.http.shaping import build_tree, leave_out, select
from cmbs.http.spaces.calls import CallRoutes
from cmbs.http.spaces.policy_files import PolicyFileRoutes
from cmbs.http.spaces.policy_impact import PolicyImpactRoutes
from cmbs.http.spaces.reading import Spaces
from cmbs.http.spaces.routes import SpaceRoutes
from cmbs.http.tagging import tag_answers
from cmbs.http.waiting import MAX_WAIT_SECONDS, Waiting
from cmbs.http.webhooks import WebhookRoutes
from cmbs.http.work_queue import WorkQueue
from cmbs.identity.gate import Gate, Lookup
from cmbs.identity.kernel.model import ANONYMOUS
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import Actor
from cmbs.substrate.server import SubstrateServer
from cmbs.transparency.notary import Notary
from cmbs.webhooks.dispatcher import Dispatcher
from cmbs.webhooks.registry import WebhookRegistry

# A larger body is decoded in a thread, so that it does not hold up the event loop.
MAX_BODY_BYTES_DECODED_ON_LOOP = 1_048_576
# Fields of a larger answer are chosen in a thread.
MAX_BODY_BYTES_SHAPED_ON_LOOP = 65_536
# So many requests may wait in one process before others are told to come again.
MAX_WAITERS = 512
# Large bodies are decoded one after the other. Decoded, a body takes many times its size, and in the threads that
# reads and the keys use, a few of them would hold up every other request.
_DECODING = ThreadPoolExecutor(1, "cmbs-decode")
# Where a caller in this process is.
_HERE = ("127.0.0.1", 0)
# What a name may stand for.
_CASE_IDS = ("session_id", "case_id", "stream_id")
_log = logging.getLogger("cmbs.http")


class Admitted(NamedTuple):
    """A caller who may ask, the parameters of the path, and how to ask again whether the caller may."""

    actor: Actor
    params: dict[str, str]
    admit: Callable[[], Awaitable[Actor]]


class Service:
    """The operations of a server.

    `gate` decides who may ask; by default it goes by the keys in the server's log. `spaces` are by default those of the
    same log, served from the first request for one. `notary` signs checkpoints and `dispatcher` sends webhooks; both
    are closed with the service.
    """

    def __init__(  # noqa: PLR0913 - what a service is built from
        self,
        server: BeliefServer,
        gate: Gate | None = None,
        spaces: SubstrateServer | None = None,
        *,
        notary: Notary | None = None,
        max_waiters: int = MAX_WAITERS,
        max_wait_seconds: int = MAX_WAIT_SECONDS,
        max_followers: int = MAX_FOLLOWERS,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self.belief_server = server
        self.gate = gate or Gate(KeyRegistry(server.log))
        self.spaces = Spaces(server, spaces, self.gate.count_operators)
        self.body_bytes = server.requests.limits.body_bytes
        self.notary = notary
        self.waiting = Waiting(max_wait_seconds, max_waiters)
        self.followers = Followers(self.waiting, max_followers=max_followers, heartbeat_seconds=heartbeat_seconds)
        self.dispatcher = dispatcher
        self.webhook_registry = WebhookRegistry(server.log) if dispatcher is None else dispatcher.registry
        self._observe()
        anchor = None if notary is None else anchor_by(notary)
        limits = server.requests.limits
        self._analyses = WorkQueue(limits.analyses_waiting, limits.analysis_ms)
        self._explanations = WorkQueue(limits.analyses_waiting, limits.explanation_ms)
        sessions = Routes(server, self.check_ready, self.waiting, self._analyses, anchor)
        space_routes = SpaceRoutes(self.spaces, server.requests.page_size, self.waiting, self._explanations, anchor)

        def wrap(operation: Operation, handler: Handler) -> Handler:
            find_head = (space_routes if operation.on_space else sessions).find_head
            return self._noticing(tag_answers(operation, handler, find_head))

        self.table = Router(
            ALL_OPERATIONS,
            sessions,
            sessions.observations,
            KitRoutes(server),
            space_routes,
            CallRoutes(self.spaces, server.requests.page_size, self.waiting, self.gate),
            PolicyFileRoutes(self.spaces, self._analyses),
            PolicyImpactRoutes(self.spaces, server.requests.page_size, self._analyses),
            GraphRoutes(server),
            CheckpointRoutes(notary),
            WebhookRoutes(self.webhook_registry, server.requests.page_size),
            EventRoutes(server, self.spaces, self.followers),
            wrap=wrap,
        )

    async def call(
        self, call: Call[Any], identity: Mapping[str, str], gone: Callable[[], Awaitable[None]]
    ) -> Response | EventStream:
        """Carry out a call of a caller in this process, who is whom `identity` says; raises the server's errors.

        `identity` holds what a request over HTTP would: `authorization` or `x-cmbs-actor`. `gone` ends with the caller.
        """
        endpoint = self.table.endpoints[call.operation.operation_id]
        body = call.content or b""
        header = {"content-type": call.media_type, **identity, **call.headers}.get
        try:
            if len(body) > self.body_bytes:
                raise LimitExceeded("body_bytes", self.body_bytes, len(body))
            admitted = await self.admit(call.operation, call.params, header, _HERE)
            return await self.answer(endpoint, admitted, call.pairs, header, body, gone)
        except (BeliefServerError, TransportError) as exc:
            exc.details = complete_details(exc.code, exc.details)
            raise
        except Exception as exc:
            _log.exception("unexpected failure")
            raise TransportError(
                TransportCode.INTERNAL_ERROR,
                "the server failed; nothing is known to have changed",
                complete_details(TransportCode.INTERNAL_ERROR, {}),
            ) from exc

    async def admit(
        self, operation: Operation, params: dict[str, str], header: Lookup, client: tuple[str, int] | None
    ) -> Admitted:
        """Who asks, if they may, about what: a name in the path becomes the id of its case.

        What a key is good for goes by ids, so names are looked up first, and for callers with a good key alone.
        """
        if any(name in params and may_be_name(params[name]) for name in _CASE_IDS):
            if not operation.is_open:
                await self.gate.admit(header, client, None)
            params = await self._resolve(params)
        admit = partial(self.gate.admit, header, client, operation.find_need(params))
        return Admitted(ANONYMOUS if operation.is_open else await admit(), params, admit)

    async def _name_cases_in(self, request: Request) -> None:
        """Put the ids of cases in the place of their names, in the query and the body of a request."""
        request.query = await self._resolve(request.query)
        message = request.message
        said = {name: getattr(message, name, None) for name in _CASE_IDS}
        found = await self._resolve(said)
        if found is not said:
            changed = {name: each for name, each in found.items() if each != said[name]}
            request.message = msgspec.structs.replace(message, **changed)

    async def _resolve(self, values: dict[str, Any]) -> dict[str, Any]:
        """The same values, with the ids of cases in the place of their names."""
        said = {name: values[name] for name in _CASE_IDS if isinstance(values.get(name), (str, list))}
        if not any(may_be_name(each) for text in said.values() for each in ([text] if isinstance(text, str) else text)):
            return values
        resolve = self.belief_server.names.resolve

        def read() -> dict[str, Any]:
            return {
                name: resolve(text) if isinstance(text, str) else [resolve(each) for each in text]
                for name, text in said.items()
            }

        return {**values, **(await asyncio.to_thread(read) if self.belief_server.log.blocking else read())}

    async def answer(
        self,
        endpoint: Endpoint,
        admitted: Admitted,
        query: Sequence[tuple[str, str]],
        header: Lookup,
        body: bytes,
        gone: Callable[[], Awaitable[None]],
    ) -> Response | EventStream:
        """Read a request of a caller who was admitted, and answer it."""
        actor, params, admit = admitted
        received = (endpoint.operation, params, query, header, actor, body, gone, admit)
        if len(body) > MAX_BODY_BYTES_DECODED_ON_LOOP:
            request = await asyncio.get_running_loop().run_in_executor(_DECODING, Request, *received)
        else:
            request = Request(*received)
        said = request.message
        if request.query or getattr(said, "session_id", None) or getattr(said, "case_id", None):
            await self._name_cases_in(request)
        response = await endpoint.handler(request)
        if isinstance(response, EventStream) or not (request.selection or endpoint.operation.takes_preference):
            return response
        return await _shape(endpoint.operation, request, response)

    def _observe(self) -> None:
        """Have what waits, and what sends webhooks, hear what is written; and all that serves, what is lost."""
        dispatcher, notary = self.dispatcher, self.notary
        for observe in (self.belief_server.observe_appends, self.spaces.observe_appends):
            observe(self.waiting.note_appends)
            if dispatcher is not None:
                observe(dispatcher.note_appends)
        if notary is None:
            return
        # What the notary knows to be lost is neither served nor written.
        for each in (self.belief_server, self.spaces, self.gate, self.webhook_registry):
            notary.observe_faults(each.expect_head)
            # Nor is anything written to a database that was put back: it would be lost when that is mended.
            notary.observe_rollback(each.refuse_writes)
        self.webhook_registry.observe_appends(notary.note_appends)
        if dispatcher is not None:
            notary.observe_faults(dispatcher.notice_lost)

    def close(self) -> None:
        """Let what runs come to its end, write what waits, and let go of the server."""
        self.drain()
        self._analyses.close()
        self._explanations.close()
        if self.dispatcher is not None:
            self.dispatcher.close()
        else:
            self.webhook_registry.close()
        self.spaces.close()
        if self.notary is not None:
            self.notary.close()
        self.belief_server.close()

    def _noticing(self, handler: Handler) -> Handler:
        """The same handler; damage that it meets is told to the endpoints that want to know."""
        dispatcher = self.dispatcher
        if dispatcher is None:
            return handler

        async def handle(request: Request) -> Response | EventStream:
            try:
                return await handler(request)
            except LedgerCorrupt as exc:
                dispatcher.notice(exc)
                raise

        return handle

    def drain(self) -> None:
        """Answer the requests that wait, end the streams that are followed, and let no other begin."""
        self.waiting.drain()
        self.followers.drain()

    def check_ready(self) -> None:
        """StoreUnavailable where a store does not answer, lacks what was seen of it, or has no register to go by."""
        self.belief_server.list_sessions(limit=1)
        behind = [*self.belief_server.find_behind(), *self.spaces.find_behind(), *self.webhook_registry.find_behind()]
        if behind:
            named = ", ".join(f"`{stream_id}`" for stream_id in behind)
            raise StoreUnavailable(
                f"the store is behind what this process has seen of it, or its past does not verify: {named}",
                {"behind": behind},
            )
        disagreeing = self.belief_server.find_disagreeing()
        if disagreeing:
            named = ", ".join(f"`{session_id}`" for session_id in disagreeing)
            raise StoreUnavailable(
                f"the elimination store does not agree with the log: {named}",
                {"disagreeing": disagreeing, "next": "rebuild it from the log with `cmbs tee repair`"},
            )
        self.belief_server.check_store_ready()
        self.gate.check_register()
        if self.notary is not None:
            self.notary.check_ready()


async def _shape(operation: Operation, request: Request, response: Response) -> Response:
    """The response with the fields that the caller wants, or without its bulk where the caller can do without."""
    if response.status == NOT_MODIFIED:
        return response
    if any(value == TEXT for name, value in response.headers if name == "content-type"):
        raise InvalidRequest(
            "fields can be chosen of JSON alone; send `Accept: application/json`",
            {"parameter": FIELDS, "accepted": "`fields` of JSON alone"},
        )
    headers = list(response.headers)
    if request.selection:
        cut = partial(select, response.body, request.selection)
    else:
        if operation.method == "GET":
            add_vary(headers, "prefer")
        # Where the handler has not built the bulk, it says so.
        if not request.wants_minimal or MINIMAL in headers:
            return response._replace(headers=headers)
        headers.append(MINIMAL)
        cut = partial(leave_out, response.body, build_tree(operation.bulk))
    is_large = len(response.body) > MAX_BODY_BYTES_SHAPED_ON_LOOP
    return Response(response.status, await asyncio.to_thread(cut) if is_large else cut(), headers)
