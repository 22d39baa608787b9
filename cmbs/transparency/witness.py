"""A small reference witness (C2SP tlog-witness): cosigns checkpoints that continue the last one it has seen of a log.

It keeps one checkpoint for each log in a file, durable before a cosignature leaves it.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from cmbs.errors import InvalidRequest
from cmbs.ledger.proofs import verify_consistency
from cmbs.transparency.kernel.checkpoint import Checkpoint
from cmbs.transparency.kernel.notes import MAX_NOTE_BYTES, Algorithm, Note, SigningKey, VerifierKey
from cmbs.transparency.key_files import lock_file, make_key, read_signing_key, replace_file

MAX_BODY_BYTES = 2 * MAX_NOTE_BYTES
_MAX_PROOF_LINES = 63
_OLD = re.compile(r"old (0|[1-9][0-9]{0,15})")
_TEXT, _SIZE_TEXT = "text/plain; charset=utf-8", "text/x.tlog.size"


class WitnessAnswer(NamedTuple):
    """What a witness answers to `add-checkpoint`."""

    status: HTTPStatus
    body: str
    content_type: str = _TEXT


class _Submission(NamedTuple):
    old_size: int
    path: list[bytes]
    note: Note
    checkpoint: Checkpoint


class Witness:
    """Cosigns the checkpoints of the logs whose keys it knows. `state` is the file of what it has seen."""

    def __init__(
        self,
        key: SigningKey,
        logs: Iterable[VerifierKey],
        state: Path,
        now: Callable[[], float] = time.time,
    ) -> None:
        if key.algorithm is not Algorithm.COSIGNATURE_V1:
            raise InvalidRequest("the key of a witness has the type of cosignatures")
        self._key = key
        self._logs: dict[str, list[VerifierKey]] = {}
        for log in logs:
            self._logs.setdefault(log.name, []).append(log)
        self._state = state
        self._lock = Lock()
        self._now = now
        self._read()

    def add_checkpoint(self, body: bytes) -> WitnessAnswer:
        """Cosign a checkpoint that continues the last one; any other is refused, and the answer says why."""
        try:
            submission = _parse(body)
        except (InvalidRequest, UnicodeDecodeError) as exc:
            return WitnessAnswer(HTTPStatus.BAD_REQUEST, f"{exc}\n")
        checkpoint, note = submission.checkpoint, submission.note
        keys = self._logs.get(checkpoint.origin)
        if keys is None:
            return WitnessAnswer(HTTPStatus.NOT_FOUND, "unknown log\n")
        named = [(key, each) for key in keys for each in note.signatures if key.is_named_by(each)]
        if not named or not all(key.verifies(note.text, each) for key, each in named):
            return WitnessAnswer(HTTPStatus.FORBIDDEN, "not signed by a known key of the log\n")
        # Compared and kept in one step, also by several processes: else two submissions could roll each other back.
        with self._lock, lock_file(self._state.with_name(f"{self._state.name}.lock")):
            seen = self._read()
            refusal = _compare(submission, seen.get(checkpoint.origin))
            if refusal is not None:
                return refusal
            seen[checkpoint.origin] = note.encoded
            replace_file(self._state, msgspec.json.encode(seen))
        return WitnessAnswer(HTTPStatus.OK, self._key.cosign(note.text, int(self._now())).line)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The witness as an ASGI application."""
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more and len(body) <= MAX_BODY_BYTES:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if scope["method"] != "POST" or not scope["path"].endswith("/add-checkpoint"):
            answer = WitnessAnswer(HTTPStatus.NOT_FOUND, "POST checkpoints to add-checkpoint\n")
        elif len(body) > MAX_BODY_BYTES:
            answer = WitnessAnswer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {MAX_BODY_BYTES} bytes\n")
        else:
            answer = self.add_checkpoint(body)
        content = answer.body.encode()
        headers = [(b"content-type", answer.content_type.encode()), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": int(answer.status), "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _read(self) -> dict[str, str]:
        """The last note of each log, by origin."""
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except (msgspec.DecodeError, OSError) as exc:
            # Without what it has seen a witness would vouch for anything.
            raise InvalidRequest(f"cannot read the state of the witness in `{self._state}`: {exc}") from exc


def open_witness_key(path: Path, name: str) -> SigningKey:
    """The key of a witness in a file, made where there is none."""
    try:
        if not path.exists():
            if not name:
                raise InvalidRequest(f"there is no key at `{path}`: give the witness a name, and one is made")
            replace_file(path, f"{make_key(name, Algorithm.COSIGNATURE_V1).text}\n".encode(), 0o600)
        return read_signing_key(path)
    except OSError as exc:
        raise InvalidRequest(f"cannot use the key `{path}`: {exc.strerror}") from exc


def _parse(body: bytes) -> _Submission:
    head, separator, encoded = body.decode().partition("\n\n")
    old, *lines = head.split("\n")
    match = _OLD.fullmatch(old)
    if match is None or not separator or len(lines) > _MAX_PROOF_LINES:
        raise InvalidRequest(f"send `old SIZE`, at most {_MAX_PROOF_LINES} lines of proof, an empty line, a checkpoint")
    try:
        path = [base64.b64decode(line, validate=True) for line in lines]
    except binascii.Error as exc:
        raise InvalidRequest("a line of the proof is not base64") from exc
    note = Note.parse(encoded)
    checkpoint = Checkpoint.parse(note.text)
    if int(match[1]) > checkpoint.size:
        raise InvalidRequest(f"the old size {match[1]} is beyond the size {checkpoint.size} of the checkpoint")
    return _Submission(int(match[1]), path, note, checkpoint)


def _compare(submission: _Submission, kept: str | None) -> WitnessAnswer | None:
    """Why a checkpoint is not cosigned, by the last one that was; None where it is."""
    old_size, path, _, new = submission
    last = None if kept is None else Checkpoint.parse(Note.parse(kept).text)
    known = 0 if last is None else last.size
    if old_size != known:
        return WitnessAnswer(HTTPStatus.CONFLICT, f"{known}\n", _SIZE_TEXT)
    if last is None:
        return WitnessAnswer(HTTPStatus.UNPROCESSABLE_ENTITY, "the proof from size 0 is empty\n") if path else None
    if last.size == new.size and last.root != new.root:
        return WitnessAnswer(HTTPStatus.CONFLICT, f"{known}\n", _SIZE_TEXT)
    if not verify_consistency(last.size, last.root, new.size, new.root, path):
        return WitnessAnswer(HTTPStatus.UNPROCESSABLE_ENTITY, "the consistency proof does not verify\n")
    return None
