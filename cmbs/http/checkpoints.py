"""The operations on checkpoints: what the server signs, and what proves that it keeps to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec

from cmbs.errors import ErrorCode
from cmbs.http.errors import TransportCode, TransportError
from cmbs.http.exchange import TEXT, Request, Response, whole_number
from cmbs.http.operation import Operation, Parameter
from cmbs.identity import Need, Reach, Scope
from cmbs.spi.audit_log import IDENTITY_PREFIX, SPACE_PREFIX, WEBHOOK_PREFIX
from cmbs.transparency.kernel.checkpoint import LogKeys
from cmbs.transparency.kernel.documents import (
    ConsistencyProof,
    RecordProof,
    SignedCheckpoint,
    describe_checkpoint,
    describe_consistency,
)
from cmbs.transparency.notary import Notary

T = TypeVar("T")

_ENCODE = msgspec.json.Encoder().encode
_VARY = ("vary", "accept")
_FROM = Parameter(
    "from", "The size of a checkpoint that you kept.", {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}, 1
)
_ERRORS = (TransportCode.NOT_FOUND, ErrorCode.STORE_UNAVAILABLE, ErrorCode.LEDGER_CORRUPT)


class SignCheckpointRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing needs to be said."""


CHECKPOINT_OPERATIONS = (
    Operation(
        "GET",
        "/v1/checkpoint",
        "get_checkpoint",
        "The last signed checkpoint",
        "A C2SP signed note over the log of stream heads: text, or JSON where `Accept` asks for that. Keep it: with it"
        " you can show later that entries were removed or replaced.",
        SignedCheckpoint,
        errors=_ERRORS,
        text=True,
        reach=Reach.ANY,
    ),
    Operation(
        "POST",
        "/v1/checkpoint",
        "sign_checkpoint",
        "Sign a checkpoint now",
        "Records the heads of all streams that this process has written since the last checkpoint, and signs. For"
        " operators.",
        SignedCheckpoint,
        SignCheckpointRequest,
        errors=(*_ERRORS, ErrorCode.LIMIT_EXCEEDED),
        body_required=False,
        scope=Scope.SPACES_OPERATE,
        reach=Reach.ALL,
        recorded=False,
    ),
    Operation(
        "GET",
        "/v1/checkpoint/keys",
        "get_checkpoint_keys",
        "The public keys that checkpoints are signed with",
        "The oldest first, the last one signs now. A retired key names the largest size that it signed, and its"
        " successor in a note that it signed itself.",
        LogKeys,
        errors=_ERRORS,
        reach=Reach.ANY,
    ),
    Operation(
        "GET",
        "/v1/checkpoint/consistency",
        "prove_consistency",
        "Prove that the last checkpoint continues an earlier one",
        "An RFC 6962 consistency proof from the size that you kept to the last signed checkpoint.",
        ConsistencyProof,
        query=(_FROM,),
        errors=_ERRORS,
        reach=Reach.ANY,
    ),
    Operation(
        "GET",
        "/v1/checkpoint/streams/{stream_id}",
        "prove_stream_head",
        "The recorded head of a stream, with its proof",
        "The newest record of a stream (a session id, `space:` and the id of a space, or `identity:keys`) and the RFC"
        " 6962 inclusion proof that the last signed checkpoint holds it. The stream of a space needs the scope"
        " `spaces:read`, and `identity:keys` needs `spaces:operate`.",
        RecordProof,
        errors=(*_ERRORS, ErrorCode.RECORD_NOT_FOUND),
        need_of_prefix=(
            (SPACE_PREFIX, Need(Scope.SPACES_READ, Reach.ONE)),
            (IDENTITY_PREFIX, Need(Scope.SPACES_OPERATE, Reach.ALL)),
            (WEBHOOK_PREFIX, Need(Scope.SPACES_OPERATE, Reach.ALL)),
        ),
    ),
)


class CheckpointRoutes:
    """The handlers. Without a notary there is nothing to be found."""

    def __init__(self, notary: Notary | None) -> None:
        self._notary = notary

    async def get_checkpoint(self, request: Request) -> Response:
        """The note, as text or as JSON."""
        request.query()
        note = await self._read(lambda notary: notary.checkpoint())
        if _prefers_json(request.header("accept")):
            return Response(200, _ENCODE(describe_checkpoint(note)), [_VARY])
        return Response(200, note.encoded.encode(), [_VARY, ("content-type", TEXT)])

    async def sign_checkpoint(self, request: Request) -> Response:
        """Record and sign."""
        request.query()
        note = await self._read(lambda notary: notary.publish())
        return Response(200, _ENCODE(describe_checkpoint(note)))

    async def get_checkpoint_keys(self, request: Request) -> Response:
        """The public keys."""
        request.query()
        return Response(200, _ENCODE(await self._read(lambda notary: notary.keys())))

    async def prove_consistency(self, request: Request) -> Response:
        """From a kept size to the last checkpoint."""
        old_size = whole_number("from", request.query("from").get("from", "0"))
        note, path = await self._read(lambda notary: notary.consistency(old_size))
        return Response(200, _ENCODE(describe_consistency(note, old_size, path)))

    async def prove_stream_head(self, request: Request) -> Response:
        """The newest record of a stream."""
        request.query()
        found = await self._read(lambda notary: notary.record_of(request.params["stream_id"]))
        return Response(200, _ENCODE(found))

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
