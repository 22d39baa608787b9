"""Proofs as this package checks them: with the offline verifier, which is the one verifier of proofs."""

from __future__ import annotations

from collections.abc import Iterable

from cmbs.audit.kernel.documents import Proof, write_proof
from cmbs.errors import InvalidProof, InvalidRequest
from cmbs.offline_verifier import (
    Known,
    ProofCheck,
    Proven,
    Question,
    Refused,
    Unreadable,
    VerifyKey,
    decode_text,
    load_kept,
)
from cmbs.transparency.kernel.published import LogKey


def verify_proof(document: bytes | Proof, known: Known | None = None, asked: Question | None = None) -> Proven:
    """Check a proof; InvalidProof says what does not fit, contradicts what is known, or answers another question.

    Where something is asked, what it leaves open is one of the conditions in the answer.
    """
    text = document if isinstance(document, bytes) else write_proof(document)
    reader = Known() if known is None else known.copy()
    try:
        proven = ProofCheck(reader).check(decode_text(text))
        if asked is not None:
            proven.rests_on = proven.hold_against(asked)
        proven.rests_on = [*proven.rests_on, *reader.unchecked]
    except Refused as refused:
        raise InvalidProof(refused.describe()) from refused
    except Unreadable as other:
        raise InvalidProof(f"a proof {other}") from other
    except RecursionError as exc:
        raise InvalidProof("nested too deeply") from exc
    return proven


def read_known(texts: Iterable[bytes], keys: Iterable[LogKey] = ()) -> Known:
    """What a reader kept and whose signatures it believes; InvalidRequest where that is of no form that is known."""
    known = Known()
    try:
        for text in texts:
            load_kept(decode_text(text), known)
        known.keys = [VerifyKey.parse(each.vkey, each.retired_size) for each in keys]
        if known.checkpoints and not known.keys:
            raise InvalidRequest("a signed checkpoint is believed by its key: name the key that you trust")
        for note in known.checkpoints:
            known.believes(note)
    except Refused as refused:
        raise InvalidRequest(f"not what a reader keeps: {refused.describe()}") from refused
    except (Unreadable, RecursionError) as exc:
        raise InvalidRequest(f"not what a reader keeps: {exc}") from exc
    return known
