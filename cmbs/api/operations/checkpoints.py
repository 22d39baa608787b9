"""The operations on checkpoints: what the server signs, and what proves that it keeps to it."""

from __future__ import annotations

import msgspec

from cmbs.api.errors import TransportCode
from cmbs.api.operation import Operation, Parameter
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import Need, Reach, Scope
from cmbs.spi.audit_log import IDENTITY_PREFIX, SPACE_PREFIX, WEBHOOK_PREFIX
from cmbs.transparency.kernel.published import ConsistencyProof, LogKeys, RecordProof, SignedCheckpoint

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
