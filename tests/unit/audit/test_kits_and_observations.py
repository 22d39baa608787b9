"""Kits on record and observations, checked by `fsck`, exported, imported, and verified without cmbs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cmbs import offline_verifier
from cmbs.audit.fsck import check_stream
from cmbs.audit.transfer import export_lines, import_lines
from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.kernel.requests import KitReading
from cmbs.belief.kits import KITS
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import StoredEntry, hash_entry
from cmbs.messages import ConclusionOutcome, EliminateOutcome, KitRef
from cmbs.stores.memory import InMemoryStore
from tests.support.exports import check_export, first_session, fit_stream, read_streams, refuse_export, write_export
from tests.support.subtests import for_each

KIT = """id: coin
version: "1"
soundness: sound
hypotheses: [heads, tails]
probes:
  - id: toss
    outcomes:
      - {id: heads, eliminates: [tails]}
      - {id: tails, eliminates: [heads]}
"""
TWINS = """id: twins
version: "1"
title: Which of them
soundness: sound
hypotheses: [left, right, far]
probes:
  - id: side
    outcomes:
      - {id: near, eliminates: [far]}
      - {id: away, eliminates: [left, right]}
"""
WINDOW = """id: load
version: "1"
title: How much
soundness: sound
hypotheses: [a, b]
probes:
  - id: samples
    outcomes:
      - {id: low, eliminates: [b]}
      - {id: high, eliminates: [a]}
    reading: {normal: low, abnormal: high, median: 1, mad: 1, tail: high}
    window: {reduction: mean, n: 3, gaps: no-verdict}
"""
NAME = "kit:coin"


def opened() -> tuple[InMemoryStore, BeliefServer, str]:
    log = InMemoryStore()
    server = BeliefServer(store=log)
    server.kits.put(KIT, MediaType.YAML)
    server.kits.put(KIT + "# second\n", MediaType.YAML)
    return log, server, server.declare_session(kit="coin").session_id


@pytest.mark.req("OBS-KIT-04")
def test_a_store_with_kits_and_observations_is_good() -> None:
    log, server, session_id = opened()
    server.observe(session_id, "toss", "heads")
    server.observe(session_id, "toss", None, "bob")
    reports = [check_stream(log, each) for each in (NAME, session_id)]
    assert [each.findings for each in reports] == [[], []]
    assert reports[0].summary == "2 contents of a kit"


@pytest.mark.req("OBS-KIT-04", "OBS-08")
def test_an_observation_that_no_kit_was_asked_for_is_found() -> None:
    log, server, session_id = opened()
    reference = server.current_session(session_id).provider
    assert reference is not None
    forged = KitReading(KitRef(reference.id, str(reference.content_hash)), "heads")
    validator = server.requests
    message = validator.eliminate("eve", "1", ["heads"], None, validator.probe("toss", "heads", None, forged))
    server._perform(validator.command(session_id, message), EliminateOutcome)
    (finding,) = check_stream(log, session_id).findings
    assert "rules out" in str(finding)
    assert finding.seq == 1


@pytest.mark.req("OBS-KIT-04", "OBS-04")
@for_each(
    ("record", "said"),
    [
        ({}, "it has no soundness, and `heads` of probe `toss` is `sound`"),
        ({"soundness": "heuristic"}, "it has the soundness `heuristic`, and `heads` of probe `toss` is `sound`"),
    ],
)
def test_an_observation_that_says_another_soundness_than_its_kit_is_found(record: dict[str, str], said: str) -> None:
    log, server, session_id = opened()
    reference = server.current_session(session_id).provider
    assert reference is not None
    forged = KitReading(KitRef(reference.id, str(reference.content_hash)), "heads", record)
    validator = server.requests
    message = validator.eliminate("eve", "1", ["tails"], None, validator.probe("toss", "heads", None, forged))
    server._perform(validator.command(session_id, message), EliminateOutcome)
    (finding,) = check_stream(log, session_id).findings
    assert said in str(finding)


@pytest.mark.req("GATES-CONCL-01")
def test_survivors_that_no_probe_tells_apart_may_be_concluded_and_others_may_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, server, session_id = opened()
    early = server.declare_conclusion(session_id, "heads")
    assert (early.accepted, early.reason) == (False, "not_singleton")
    server.observe(session_id, "toss", None)
    assert not server.declare_conclusion(session_id, "heads").accepted, "no data is no answer"
    server.kits.put(TWINS, MediaType.YAML)
    twins = server.declare_session(kit="twins").session_id
    assert not server.declare_conclusion(twins, "left").accepted
    server.observe(twins, "side", "near")
    assert server.declare_conclusion(twins, "left").accepted
    for each in (session_id, twins):
        assert check_stream(log, each).findings == []
    file = tmp_path / "export.jsonl"
    file.write_bytes(b"\n".join(export_lines(log, [session_id, twins, "kit:twins"])) + b"\n")
    assert offline_verifier.main([str(file)]) == offline_verifier.UNANCHORED
    said = "not checked offline: what 2 observations over kits rule out, and 1 ties, follow from documents"
    assert said in capsys.readouterr().out


@pytest.mark.req("OFFLINE-02")
@for_each("tied_by", [None, 0, "", "x", [], {}])
def test_a_tie_by_what_is_no_hash_is_refused_offline_also_where_the_conclusion_was_refused(tied_by: Any) -> None:
    entries = first_session()
    at = next(seq for seq, each in enumerate(entries) if each["verb"] == "DECLARE_CONCLUSION")
    assert entries[at]["outcome"]["accepted"] is False
    payload = {**entries[at]["payload"], "tied_by": tied_by}
    forged = [*entries[:at], {**entries[at], "payload": payload}]
    assert refuse_export(write_export(fit_stream(forged))).place["field"] == "payload.tied_by"


@pytest.mark.req("OFFLINE-02")
def test_a_reading_that_is_null_is_refused_offline() -> None:
    log, server, session_id = opened()
    server.observe(session_id, "toss", "heads")
    entries = read_streams(export_lines(log, [session_id]))[session_id]
    check_export(write_export(fit_stream(entries)))
    entries[1]["payload"]["probe"]["reading"] = None
    assert refuse_export(write_export(fit_stream(entries))).place["field"] == "payload.probe.reading"


@pytest.mark.req("GATES-CONCL-01")
def test_a_window_without_a_sample_answers_nothing_and_makes_no_tie() -> None:
    server = BeliefServer(store=InMemoryStore())
    server.kits.put(WINDOW, MediaType.YAML)
    session_id = server.declare_session(kit="load").session_id
    server.observe(session_id, "samples", [None, None, None])
    assert not server.declare_conclusion(session_id, "a").accepted
    server.observe(session_id, "samples", [1, 1, 1], "again")
    assert server.query_belief(session_id).n_survivors == 1


@pytest.mark.req("GATES-CONCL-01")
def test_a_conclusion_that_is_sent_again_under_its_key_is_a_repeat_whatever_was_found_out_since() -> None:
    _, server, session_id = opened()
    first = server.declare_conclusion(session_id, "heads", idempotency_key="k")
    server.observe(session_id, "toss", "heads")
    again = server.declare_conclusion(session_id, "heads", idempotency_key="k")
    assert (again.accepted, again.audit_event_id) == (False, first.audit_event_id)


@pytest.mark.req("OBS-KIT-04")
def test_a_response_that_stands_for_another_outcome_is_found() -> None:
    log, server, session_id = opened()
    reference = server.current_session(session_id).provider
    assert reference is not None
    said = KitReading(KitRef(reference.id, str(reference.content_hash)), "heads", {"soundness": "sound"})
    validator = server.requests
    for response in ("tails", "neither"):
        message = validator.eliminate("eve", response, ["tails"], None, validator.probe("toss", response, None, said))
        server._perform(validator.command(session_id, message), EliminateOutcome)
    other, unread = check_stream(log, session_id).findings
    assert "its response stands for `tails` of probe `toss`, and not for `heads`" in other.what
    assert "cannot read its response" in unread.what


@pytest.mark.req("GATES-CONCL-01", "OBS-KIT-04")
def test_a_tie_that_is_none_is_found() -> None:
    log, server, session_id = opened()
    message = server.requests.declare_conclusion("heads", None, server.current_session(session_id).kit_hash)
    assert server._perform(server.requests.command(session_id, message), ConclusionOutcome).accepted
    (finding,) = check_stream(log, session_id).findings
    assert (finding.seq, "`toss` does" in finding.what) == (1, True)


@pytest.mark.req("OBS-KIT-04")
@for_each(
    ("old", "new"),
    [
        (b"hypotheses: [heads, tails]", b"hypotheses: [heads, tales]"),
        (b'"kit_id":"coin"', b'"kit_id":"note"'),
        (b'"hypotheses":2', b'"hypotheses":-1'),
        (b'"format":"cmbs/1"', b'"format":"cmbs/2"'),
        (b'"verb":"PUT_KIT"', b'"verb":"PUT_KAT"'),
    ],
)
def test_a_forged_entry_of_a_kit_is_refused_with_every_hash_right(old: bytes, new: bytes) -> None:
    log, _, _ = opened()
    raw = log.read(NAME)[0].raw
    assert old in raw
    forged = raw.replace(old, new)
    with pytest.raises(LedgerCorrupt):
        KITS.catch_up(NAME, None, [StoredEntry(forged, hash_entry(forged))])


@pytest.mark.req("OBS-KIT-04")
def test_a_content_is_on_record_once() -> None:
    log, _, _ = opened()
    first, second = log.read(NAME)
    content = first.raw.replace(b'"seq":0', b'"seq":1').replace(b"00" * 32, first.event_hash.hex().encode())
    again = StoredEntry(content, hash_entry(content))
    with pytest.raises(LedgerCorrupt, match="a repeat is never recorded"):
        KITS.catch_up(NAME, None, [first, again])
    assert KITS.catch_up(NAME, None, [first, second]) is not None


@pytest.mark.req("OBS-KIT-04")
def test_kits_move_with_sessions_and_verify_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, server, session_id = opened()
    server.observe(session_id, "toss", "heads", seen_at="2026-03-01T10:00:00Z")
    lines = list(export_lines(log, [session_id, NAME]))
    file = tmp_path / "export.jsonl"
    file.write_bytes(b"\n".join(lines) + b"\n")
    assert offline_verifier.main([str(file)]) == offline_verifier.UNANCHORED
    assert "1 sessions, 0 spaces, 1 kits, 4 events" in capsys.readouterr().out
    elsewhere = BeliefServer(store=InMemoryStore())
    assert [each.session_id for each in import_lines(elsewhere, lines)] == [session_id, NAME]
    assert elsewhere.kits.shelf("coin") == server.kits.shelf("coin")
    assert elsewhere.observe(session_id, "toss", "heads").replayed


@pytest.mark.req("OBS-KIT-04")
def test_a_kit_that_is_there_with_another_history_gets_the_contents_that_it_lacks() -> None:
    log, server, _ = opened()
    target = BeliefServer(store=InMemoryStore())
    target.kits.put(KIT + "# second\n", MediaType.YAML)
    list(import_lines(target, list(export_lines(log, [NAME]))))
    hashes = {each.content_hash for each in server.kits.shelf("coin").contents}
    assert {each.content_hash for each in target.kits.shelf("coin").contents} == hashes
    cut = list(log.read(NAME))[:1]
    with pytest.raises(LedgerCorrupt):
        target.kits.import_kit("coin", cut, server.kits.shelf("coin").head)
