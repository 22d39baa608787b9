"""A proof of a record that holds none, and the stream that records are in."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.json import encode
from msgspec.structs import replace

from cmbs.audit.kept_heads import read_kept
from cmbs.belief_server import BeliefServer, OntologyBundle
from cmbs.errors import InvalidRequest
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.transparency.kernel.documents import describe_checkpoint, read_note, verify_record
from cmbs.transparency.kernel.faults import Fault, FaultKind, read_admission
from cmbs.transparency.kernel.notes import Note
from cmbs.transparency.kernel.published import ConsistencyProof, RecordProof
from cmbs.transparency.kernel.records import HeadRecord, HeadsFolding
from tests.support.signing import notary_of


def test_a_proof_whose_entry_is_no_record_is_forged(tmp_path: Path) -> None:
    server = BeliefServer()
    notary = notary_of(server, tmp_path)
    server.declare_session(OntologyBundle("s", "1", "g", "1"), ["a"])
    note = notary.publish()
    judged = verify_record(RecordProof(note.encoded, 0, 1, {"verb": "RECORD_HEAD"}, []))
    assert isinstance(judged, Fault)
    assert judged.kind is FaultKind.FORGED_RECORD
    notary.close()
    server.close()


def test_what_a_document_repeats_of_its_note_is_held_against_it(tmp_path: Path) -> None:
    server = BeliefServer()
    notary = notary_of(server, tmp_path)
    session_id = server.declare_session(OntologyBundle("s", "1", "g", "1"), ["a"]).session_id
    notary.publish()
    record = notary.record_of(session_id)
    checkpoint = describe_checkpoint(Note.parse(record.note))
    growth = ConsistencyProof(record.note, 1, record.size, [])
    assert isinstance(verify_record(record), HeadRecord)
    for document in (record, checkpoint, growth):
        assert read_note(document).encoded == record.note
        with pytest.raises(InvalidRequest, match="another size, origin or root than its note"):
            read_note(replace(document, size=2))
    for changed in (replace(checkpoint, origin="example.org/log"), replace(checkpoint, root="00" * 32)):
        with pytest.raises(InvalidRequest, match="another size, origin or root than its note"):
            read_note(changed)
    judged = verify_record(replace(record, size=2))
    assert isinstance(judged, Fault)
    assert "another size" in judged.message
    elsewhere = verify_record(replace(record, path=[*record.path, "00" * 32]))
    assert isinstance(elsewhere, Fault)
    assert "does not hold this record" in elsewhere.message
    with pytest.raises(InvalidRequest, match=r"line 1: .*another size"):
        read_kept(encode(replace(record, size=2)))
    notary.close()
    server.close()


def test_records_are_in_one_stream() -> None:
    assert [HeadsFolding().owns(each) for each in (HEADS_STREAM, "session")] == [True, False]


@pytest.mark.req("TLOG-CHECK-02")
def test_what_a_server_says_of_its_own_database_is_a_fault_by_its_name() -> None:
    for kind in FaultKind:
        for told in (f"{kind}: as it is", f"no checkpoint is signed: {kind}: as it is"):
            assert read_admission(told) == Fault(kind, "the server says: as it is")
    assert read_admission("nonsense") == Fault(FaultKind.UNPROVED, "the server says: nonsense")
