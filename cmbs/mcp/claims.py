"""The secrets of claims, between the moment at which a call is let through and the report of its outcome.

A decision point that serves keeps them in memory. Hooks are a process for each event, and keep them in files that the
user alone can read. So no other user can report an outcome; another process of the same user can.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import msgspec

STATE_DIRECTORY = "CMBS_STATE_DIR"
_MAX_KEPT = 1_000


class KeptClaim(msgspec.Struct, frozen=True):
    """A call that was let through, and the secret of its claim."""

    call_id: str
    nonce: str


class Claims(Protocol):
    """Claims by the names that a peer has for its calls."""

    def keep(self, name: str, claim: KeptClaim) -> None:
        """Keep a claim; OSError where that cannot be done."""

    def find(self, name: str) -> KeptClaim | None:
        """The claim of this name; None where there is none."""

    def drop(self, name: str) -> None:
        """Forget a claim, once its outcome is on record."""


class MemoryClaims:
    """Claims of this process; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._claims: dict[str, KeptClaim] = {}

    def keep(self, name: str, claim: KeptClaim) -> None:
        """Keep a claim."""
        self._claims[name] = claim
        while len(self._claims) > _MAX_KEPT:
            del self._claims[next(iter(self._claims))]

    def find(self, name: str) -> KeptClaim | None:
        """The claim of this name."""
        return self._claims.get(name)

    def drop(self, name: str) -> None:
        """Forget a claim."""
        self._claims.pop(name, None)


class FileClaims:
    """Claims of many processes of one user: a file each, for that user alone. `scope` says whose names they are."""

    def __init__(self, directory: Path, scope: tuple[str, ...]) -> None:
        self._directory = directory
        self._scope = scope

    def keep(self, name: str, claim: KeptClaim) -> None:
        """Keep a claim; OSError where the directory cannot be written to, or the name is taken."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._drop_oldest()
        descriptor = os.open(self._path_of(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(claim))

    def find(self, name: str) -> KeptClaim | None:
        """The claim of this name."""
        try:
            return msgspec.json.decode(self._path_of(name).read_bytes(), type=KeptClaim)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def drop(self, name: str) -> None:
        """Forget a claim."""
        self._path_of(name).unlink(missing_ok=True)

    def _path_of(self, name: str) -> Path:
        named = msgspec.json.encode((*self._scope, name))
        return self._directory / f"{sha256(named).hexdigest()}.json"

    def _drop_oldest(self) -> None:
        """Forget what was never reported, where it is too much."""
        files = list(self._directory.glob("*.json"))
        for path in sorted(files, key=_read_time)[: max(0, len(files) - _MAX_KEPT + 1)]:
            path.unlink(missing_ok=True)


def find_state_directory(environment: Mapping[str, str]) -> Path:
    """Where this user's programs keep what they need to go on."""
    named = environment.get(STATE_DIRECTORY)
    if named:
        return Path(named)
    state = environment.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "cmbs"


def _read_time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
