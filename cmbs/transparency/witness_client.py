"""Asking witnesses for cosignatures of a checkpoint (C2SP tlog-witness)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import NamedTuple

import httpx2

from cmbs.errors import InvalidRequest
from cmbs.transparency.kernel.checkpoint import Checkpoint
from cmbs.transparency.kernel.notes import Algorithm, Note, Signature, VerifierKey, parse_signatures

MAX_WITNESS_SECONDS = 5.0
_CONFLICT = 409
_MAX_SIZE_DIGITS = 16


class WitnessRefused(Exception):
    """A witness did not cosign; the message says why."""


class WitnessAddress(NamedTuple):
    """Where a witness is, and the key that its cosignatures are believed by."""

    url: str
    key: VerifierKey

    @classmethod
    def parse(cls, text: str) -> WitnessAddress:
        """`URL#KEY`: the submission prefix of the witness, and its public key."""
        url, separator, key = text.partition("#")
        if not separator or not url.startswith(("http://", "https://")):
            raise InvalidRequest(f"a witness is written as `URL#KEY`, got `{text[:80]}`")
        verifier = VerifierKey.parse(key)
        if verifier.algorithm is not Algorithm.COSIGNATURE_V1:
            raise InvalidRequest(f"`{key[:80]}` is not the key of a witness, whose type is {Algorithm.COSIGNATURE_V1}")
        return cls(url.rstrip("/"), verifier)

    @property
    def text(self) -> str:
        """The same, as `parse` takes it."""
        return f"{self.url}#{self.key.text}"


class WitnessClient:
    """One witness. It remembers the size that the witness cosigned last."""

    def __init__(self, address: WitnessAddress, transport: httpx2.BaseTransport | None = None) -> None:
        self.address = address
        self._size = 0
        self._client = httpx2.Client(timeout=MAX_WITNESS_SECONDS, transport=transport)

    def cosign(self, note: Note, path_from: Callable[[int], list[bytes]]) -> Signature:
        """The cosignature of a checkpoint; WitnessRefused says why there is none.

        `path_from` proves that a tree of a smaller size is in it.
        """
        size = Checkpoint.parse(note.text).size
        answer = self._send(note, min(self._size, size), path_from)
        said = answer.text.strip()
        if answer.status_code == _CONFLICT and said.isdigit() and len(said) <= _MAX_SIZE_DIGITS:
            # It has another size than we thought: the second answer then fits.
            self._size = int(said)
            if self._size > size:
                raise WitnessRefused(f"it has cosigned size {said} before, and this is size {size}")
            answer = self._send(note, self._size, path_from)
        if answer.status_code != httpx2.codes.OK:
            raise WitnessRefused(f"it answered {answer.status_code}: {answer.text.strip()[:200]}")
        self._size = size
        return self._find_signature(note, answer.text)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _send(self, note: Note, old: int, path_from: Callable[[int], list[bytes]]) -> httpx2.Response:
        proof = "".join(f"{base64.b64encode(each).decode()}\n" for each in path_from(old))
        body = f"old {old}\n{proof}\n{note.encoded}"
        try:
            return self._client.post(f"{self.address.url}/add-checkpoint", content=body.encode())
        except httpx2.HTTPError as exc:
            raise WitnessRefused(f"it cannot be reached: {exc}") from exc

    def _find_signature(self, note: Note, lines: str) -> Signature:
        try:
            found = [each for each in parse_signatures(lines) if self.address.key.verifies(note.text, each)]
        except InvalidRequest as exc:
            raise WitnessRefused(f"its answer is no signature: {exc}") from exc
        if not found:
            raise WitnessRefused("its answer has no valid cosignature of its key")
        return found[-1]
