"""What can be found wrong by a reader who has kept a checkpoint or heads."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class FaultKind(StrEnum):
    """The kinds of faults."""

    FORGED_SIGNATURE = "forged signature"
    UNKNOWN_KEY = "unknown key"
    NOT_COSIGNED = "not cosigned"
    RETIRED_KEY = "retired key"
    OTHER_LOG = "other log"
    SPLIT_VIEW = "split view"
    UNPROVED = "not proved"
    FORGED_RECORD = "forged record"
    EMPTIED = "emptied"
    PUT_BACK = "older copy"
    DELETED = "deleted"
    TRUNCATED = "truncated"
    FORKED = "forked"
    UNUSABLE_FILES = "unusable files"


# How a server begins to say why it signs nothing.
NOT_SIGNED = "no checkpoint is signed: "


class Fault(NamedTuple):
    """One thing that is wrong; `stream_id` is empty where it is about the whole log."""

    kind: FaultKind
    message: str
    stream_id: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {f'{self.stream_id}: ' if self.stream_id else ''}{self.message}"


def read_admission(text: str) -> Fault:
    """What a server that signs nothing says of its own database; what names no fault proves nothing."""
    said = text.removeprefix(NOT_SIGNED)
    for kind in FaultKind:
        if said.startswith(f"{kind}: "):
            return Fault(kind, f"the server says: {said.removeprefix(f'{kind}: ')}")
    return Fault(FaultKind.UNPROVED, f"the server says: {text}")
