"""Signatures after Standard Webhooks: HMAC-SHA256 over id, timestamp and body, one for each secret that is good."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence

from cmbs.webhooks.keys import SECRET_PREFIX


def sign(message_id: str, timestamp: int, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """The headers that a receiver checks a request by."""
    signed = b"%b.%d.%b" % (message_id.encode(), timestamp, body)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_sign_with(secret, signed) for secret in secrets),
    }


def _sign_with(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    return f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}"
