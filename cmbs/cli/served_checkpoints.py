"""What a server says of its checkpoints, as the checks of `cmbs.audit.checkpoints` ask for it."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from cmbs.api.call import build_call, find_operation
from cmbs.client import Client
from cmbs.errors import EventNotFound, LedgerCorrupt, SessionNotFound, SpaceNotFound
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.transparency.kernel.checkpoint import parse_keys
from cmbs.transparency.kernel.documents import parse_path, read_note
from cmbs.transparency.kernel.faults import Fault, FaultKind, read_admission
from cmbs.transparency.kernel.notes import Note
from cmbs.transparency.kernel.published import LogKeys
from cmbs.transparency.kernel.records import HeadRecord


class ServedCheckpoints:
    """Asks a server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def checkpoint(self) -> Note | Fault:
        """The last checkpoint, or why there is none."""
        try:
            return read_note(self._client.get_checkpoint())
        except LedgerCorrupt as exc:
            return _read_admission(exc)

    def keys(self) -> LogKeys:
        """The public keys."""
        return parse_keys(self._ask("get_checkpoint_keys"))

    def consistency(self, size: int) -> tuple[Note, list[bytes]] | Fault:
        """The last checkpoint, and the path to it from a size; or why the server proves nothing."""
        try:
            proof = self._client.prove_consistency(from_=size)
        except LedgerCorrupt as exc:
            return _read_admission(exc)
        return read_note(proof), parse_path(proof.path)

    def growth(self, record: HeadRecord) -> bytes | Fault:
        """What is to prove that a session or a space still begins with what was recorded of it."""
        kind = "space" if record.stream_id.startswith(STREAM_PREFIX) else "session"
        name = {f"{kind}_id": record.stream_id.removeprefix(STREAM_PREFIX)}
        try:
            return self._ask(f"prove_{kind}_consistency", **name, old_size=record.size)
        except (SessionNotFound, SpaceNotFound):
            return Fault(FaultKind.DELETED, f"it is gone, and it had {record.size} entries", record.stream_id)
        except EventNotFound:
            ends = f"it had reached seq {record.head.seq} ({record.head_hash}), and does not any more"
            return Fault(FaultKind.TRUNCATED, ends, record.stream_id)
        except LedgerCorrupt as exc:
            return Fault(FaultKind.UNPROVED, f"the server says: {exc.message}", record.stream_id)

    def _ask(self, operation_id: str, **arguments: str | int) -> bytes:
        """An answer as it was sent: its own reader says what is wrong with it."""
        call = build_call(find_operation(operation_id), arguments)
        return bytes(self._client.send(replace(call, answer=msgspec.Raw)))


def _read_admission(error: LedgerCorrupt) -> Fault:
    return read_admission(str(error.details.get("reason", error.message)))
