"""The operations on checkpoints: what the server signs, and what proves that it keeps to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from cmbs.api.errors import TransportCode, TransportError
from cmbs.http.exchange import TEXT, Request, Response, encode_answer
from cmbs.transparency.kernel.documents import describe_checkpoint, describe_consistency
from cmbs.transparency.notary import Notary

T = TypeVar("T")

_VARY = ("vary", "accept")


class CheckpointRoutes:
    """The handlers. Without a notary there is nothing to be found."""

    def __init__(self, notary: Notary | None) -> None:
        self._notary = notary

    async def get_checkpoint(self, request: Request) -> Response:
        """The note, as text or as JSON."""
        note = await self._read(lambda notary: notary.checkpoint())
        if _prefers_json(request.header("accept")):
            return Response(200, encode_answer(describe_checkpoint(note)), [_VARY])
        return Response(200, note.encoded.encode(), [_VARY, ("content-type", TEXT)])

    async def sign_checkpoint(self, _: Request) -> Response:
        """Record and sign."""
        note = await self._read(lambda notary: notary.publish())
        return Response(200, encode_answer(describe_checkpoint(note)))

    async def get_checkpoint_keys(self, _: Request) -> Response:
        """The public keys."""
        return Response(200, encode_answer(await self._read(lambda notary: notary.keys())))

    async def prove_consistency(self, request: Request) -> Response:
        """From a kept size to the last checkpoint."""
        old_size = request.query.get("from", 0)
        note, path = await self._read(lambda notary: notary.consistency(old_size))
        return Response(200, encode_answer(describe_consistency(note, old_size, path)))

    async def prove_stream_head(self, request: Request) -> Response:
        """The newest record of a stream."""
        found = await self._read(lambda notary: notary.record_of(request.params["stream_id"]))
        return Response(200, encode_answer(found))

    async def _read(self, read: Callable[[Notary], T]) -> T:
        notary = self._notary
        if notary is None:
            raise TransportError(
                TransportCode.NOT_FOUND, "this server signs no checkpoints; start it with `--signing-key`"
            )
        return await asyncio.to_thread(read, notary)


def _prefers_json(accept: str | None) -> bool:
    """Whether JSON is named before plain text, or alone."""
    for item in (accept or "").lower().split(","):
        media_type = item.partition(";")[0].strip()
        if media_type in ("application/json", "text/plain", "text/*"):
            return media_type == "application/json"
    return False
