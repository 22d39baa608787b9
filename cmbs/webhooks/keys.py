"""The webhook key of a server: secrets of endpoints are derived from it, and registrations are marked with it.

It is a file beside the database, so that a copy of the database holds no secret, and what is written into the database
by hand is told nothing. Processes over one database use one key.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cmbs.errors import InvalidRequest
from cmbs.ledger.canonical import encode_frame
from cmbs.transparency.key_files import lock_file, replace_file
from cmbs.webhooks.kernel.events import Webhook
from cmbs.webhooks.kernel.model import Settings

SECRET_PREFIX = "whsec_"  # noqa: S105 - how the convention has them begin
_FILE_PREFIX = "cmbs-webhook-key:"
_KEY_BYTES = 32
_PRIVATE = 0o600


class WebhookKey:
    """Thirty-two random bytes, and what follows from them."""

    def __init__(self, key: bytes) -> None:
        if len(key) != _KEY_BYTES:
            raise ValueError(f"a webhook key has {_KEY_BYTES} bytes")
        self._key = key

    @classmethod
    def open(cls, path: Path) -> WebhookKey:
        """The key in a file, made where there is none; InvalidRequest where it cannot be used."""
        try:
            with lock_file(path.with_name(f"{path.name}.lock")):
                if not path.exists():
                    text = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
                    replace_file(path, f"{_FILE_PREFIX}{text}\n".encode(), _PRIVATE)
                return cls._read(path)
        except OSError as exc:
            raise InvalidRequest(f"cannot use the webhook key `{path}`: {exc.strerror}") from exc

    @classmethod
    def _read(cls, path: Path) -> WebhookKey:
        if path.stat().st_mode & 0o077:
            raise InvalidRequest(f"other accounts may read the webhook key `{path.name}`: set its mode to 0600")
        text = path.read_text("utf-8", "replace").strip()
        try:
            if not text.startswith(_FILE_PREFIX):
                raise ValueError("it begins in another way")
            return cls(base64.b64decode(text.removeprefix(_FILE_PREFIX), validate=True))
        except ValueError as exc:
            raise InvalidRequest(f"`{path.name}` holds no webhook key") from exc

    def derive_secret(self, webhook_id: str, generation: int) -> str:
        """What an endpoint checks signatures with, in the form of the convention."""
        return SECRET_PREFIX + base64.b64encode(self._derive(f"secret\0{webhook_id}\0{generation}")).decode()

    def mark(self, settings: Settings, generation: int) -> str:
        """A keyed hash over a registration: without the key, none can be made that is served."""
        marked = b"%d\0%b" % (generation, encode_frame(settings))
        return hmac.digest(self._derive("mark"), marked, "sha256").hex()

    def accepts(self, webhook: Webhook) -> bool:
        """Whether a webhook was registered, and its newest secret made, with this key."""
        return hmac.compare_digest(self.mark(webhook.settings, webhook.generation), webhook.mark)

    def secrets_of(self, webhook: Webhook, now: str) -> list[str]:
        """What signs now: the newest secret, and the one before while both are good."""
        overlaps = webhook.overlap_until is not None and now < webhook.overlap_until
        generations = [webhook.generation, *([webhook.generation - 1] if overlaps else [])]
        return [self.derive_secret(webhook.webhook_id, each) for each in generations]

    def _derive(self, purpose: str) -> bytes:
        derivation = HKDF(SHA256(), _KEY_BYTES, salt=None, info=f"cmbs webhook {purpose}".encode())
        return derivation.derive(self._key)
