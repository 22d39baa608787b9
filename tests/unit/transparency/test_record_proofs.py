"""A proof of a record that holds none, and the stream that records are in."""

from __future__ import annotations

from pathlib import Path

import pytest

from cmbs.belief_server import BeliefServer, OntologyBundle
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.transparency.kernel.documents import verify_record
from cmbs.transparency.kernel.faults import Fault, FaultKind, read_admission
from cmbs.transparency.kernel.published import RecordProof
from cmbs.transparency.kernel.records import HeadsFolding
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


def test_records_are_in_one_stream() -> None:
    assert [HeadsFolding().owns(each) for each in (HEADS_STREAM, "session")] == [True, False]


@pytest.mark.req("TLOG-CHECK-02")
def test_what_a_server_says_of_its_own_database_is_a_fault_by_its_name() -> None:
    for kind in FaultKind:
        for told in (f"{kind}: as it is", f"no checkpoint is signed: {kind}: as it is"):
            assert read_admission(told) == Fault(kind, "the server says: as it is")
    assert read_admission("nonsense") == Fault(FaultKind.UNPROVED, "the server says: nonsense")
