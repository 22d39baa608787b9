"""Tokens in a file that is read again when it changes: what lets callers in is changed without a restart."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Lock
from typing import TypeAlias

from cmbs.errors import InvalidRequest
from cmbs.tee.access import validate_token

# While tokens are rotated there are two: the old one and the new one.
MAX_TOKENS = 2
_MAX_BYTES = 65_536

_log = logging.getLogger("cmbs.tee")
_Signature: TypeAlias = "tuple[int, int, int] | None"


class TokenFile:
    """One token or two, each on a line of its own. A server lets in who has any of them; a client sends the first.

    InvalidRequest where the file cannot be used at first. One that cannot be used later is reported in the log, and
    what it held before still holds.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._lock = Lock()
        self._signature = self._sign()
        self._tokens = self._read()

    def tokens(self) -> tuple[str, ...]:
        """The tokens as the file has them now."""
        signature = self._sign()
        with self._lock:
            if signature != self._signature:
                self._signature = signature
                try:
                    self._tokens = self._read()
                except InvalidRequest as exc:
                    _log.warning("%s; the tokens that it held before still hold", exc.message)
            return self._tokens

    def _sign(self) -> _Signature:
        """What tells one content of the file from another; None where there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> tuple[str, ...]:
        try:
            with self._path.open("rb") as file:
                text = file.read(_MAX_BYTES).decode()
        except (OSError, UnicodeDecodeError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else "it is not text"
            raise InvalidRequest(f"cannot read the tokens in `{self._path}`: {why}") from exc
        found = tuple(validate_token(line.strip()) for line in text.splitlines() if line.strip())
        if not 1 <= len(found) <= MAX_TOKENS:
            raise InvalidRequest(f"`{self._path}` must hold one token or two, each on a line; it has {len(found)}")
        return found


Token: TypeAlias = str | TokenFile


def tokens_of(token: Token) -> tuple[str, ...]:
    """What is good now."""
    return (token,) if isinstance(token, str) else token.tokens()
