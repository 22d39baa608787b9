"""Entity tags: a caller who has an answer already is told so (304) for the price of looking up a head.

Whatever is read of a session or a space is a function of its stream and of who asks for what, but for what would be
decided now, which has no tag. So the tag is made of the head of the stream and of a digest of the rest. It is a weak
one: encodings of the same answer share it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256

from cmbs.api.operation import Operation
from cmbs.http.exchange import EventStream, Request, Response, add_vary, not_modified
from cmbs.http.router import Handler

# The head of the stream that a request reads; None where the answer is not of that stream alone.
FindHead = Callable[[Request], Awaitable[str | None]]
_DIGEST_DIGITS = 16
# Their tag is the audit head itself, which `If-Match` takes.
_TAGGED_BY_THEMSELVES = ("query_belief", "get_space")


def tag_answers(operation: Operation, handler: Handler, find_head: FindHead) -> Handler:
    """The handler, with the tag of what it answers; the handler itself where the answer has none."""
    if not operation.is_tagged or operation.operation_id in _TAGGED_BY_THEMSELVES:
        return handler
    varies = ["authorization"] if operation.on_space else []
    varies += ["prefer"] if operation.takes_preference else []

    async def handle(request: Request) -> Response | EventStream:
        # Before the answer is read: a tag that is older than its answer is never a wrong one.
        head = await find_head(request)
        if head is None:
            return await handler(request)
        tag = f"{head}.{_digest(operation, request)}"
        if request.has_seen(tag):
            return not_modified(f'W/"{tag}"', *varies)
        response = await handler(request)
        if isinstance(response, EventStream):  # pragma: no cover - what goes on has no tag, and is not wrapped
            return response
        headers = [*response.headers, ("etag", f'W/"{tag}"')]
        for name in varies:
            add_vary(headers, name)
        return response._replace(headers=headers)

    return handle


def _digest(operation: Operation, request: Request) -> str:
    """What tells the answers at one head apart: the question, and what the caller may see and wants to."""
    asked = (
        operation.operation_id,
        *request.params.values(),
        *map(str, request.query.items()),
        request.actor.kind,
        request.actor.id,
        str(request.wants_minimal),
    )
    return sha256("\x00".join(asked).encode()).hexdigest()[:_DIGEST_DIGITS]
