"""Credentials that tools need: named in configuration, held in the environment, never in the ledger or in an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cmbs.ledger import canonical
from cmbs.substrate.kernel.targets import SECRET_PREFIX

REDACTED = "[redacted]"
# A shorter one would be found in everything, and protects nothing.
_MIN_SECRET_CHARACTERS = 8


class Credentials:
    """The values of environment variables, by name, and whether one of them is somewhere that it must not be.

    Everything under `CMBS_TOOL_SECRET_` is one; `also` names further variables, those of the tool servers' file.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, also: Iterable[str] = ()) -> None:
        held = {} if environment is None else environment
        names = {name for name in held if name.startswith(SECRET_PREFIX)} | {name for name in also if name in held}
        self._values = {name: held[name] for name in names}
        # `Bearer abc`: the word after the scheme is what matters, and may turn up alone.
        parts = {part for value in self._values.values() for part in (value, *value.split())}
        secrets = sorted((part for part in parts if len(part) >= _MIN_SECRET_CHARACTERS), key=len, reverse=True)
        self._texts = tuple(secrets)
        # As they stand in JSON, where quotes and controls are escaped.
        self._encoded = tuple(canonical.encode(secret.encode("utf-8", "replace").decode())[1:-1] for secret in secrets)

    def get(self, name: str) -> str | None:
        """The value of a variable; None where it is not set, or is none of these."""
        return self._values.get(name)

    def redact(self, text: str) -> str:
        """The text without them."""
        for secret in self._texts:
            text = text.replace(secret, REDACTED)
        return text

    def are_in(self, raw: bytes) -> bool:
        """Whether canonical JSON holds one of them."""
        return any(secret in raw for secret in self._encoded)
