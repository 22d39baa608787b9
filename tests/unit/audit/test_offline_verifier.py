"""The offline verifier, as a module: what it refuses, where it says that is, and that `cmbs` says the same."""

from __future__ import annotations

import argparse
import copy
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given

from cmbs import offline_verifier as verifier
from cmbs.audit.transfer import import_lines
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import CmbsError, LedgerCorrupt
from cmbs.ledger import Head as LedgerHead
from cmbs.ledger import StoredEntry
from cmbs.offline_verifier import Refused, Unreadable
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.replay import verify_space
from cmbs.testing import History, ManualClock, SequentialIds, play
from cmbs.testing.strategies import belief as strategies
from tests.support.effort import read_effort
from tests.support.exports import (
    SPACE_STREAM,
    Entry,
    Fitted,
    alter_value,
    check_export,
    export,
    first_session,
    fit_stream,
    join_lines,
    mutate_export,
    refuse_export,
    world_lines,
    world_streams,
    write_export,
)
from tests.support.subtests import for_each

EVERYTHING = read_effort().everything


# --- exports ---


@pytest.mark.req("OFFLINE-01")
def test_a_world_with_sessions_and_a_space_is_good_and_what_is_left_open_is_said() -> None:
    report = check_export(join_lines(world_lines()))
    figures = {"sessions": 3, "spaces": 1, "kits": 0, "names": 0, "events": 30, "readings": 3}
    figures |= {"digests": 0, "key_ids": 0, "kit_observations": 0, "ties": 0}
    assert report.figures == figures
    undecided, missing = report.not_checked
    # Which entries nothing here decides again is said by verb, and what of them.
    verbs = "1 CREATE_SPACE, 1 ISSUE_CAPABILITY, 4 PROPOSE, 1 PUT_MEMORY, 2 RECORD_OUTCOME, 1 REGISTER_TOOL"
    assert "whether readings of sessions are missing" in undecided
    assert undecided.startswith(f"the outcomes of 10 entries of 1 spaces ({verbs}): whether their verdicts, traces, ")
    assert missing == "what spaces say of 1 sessions that are not in the file"
    assert report.rests_on == ["4 streams are those of the server, and whole: no head of them was kept"]
    assert check_export(join_lines(world_lines())[:-1]).figures == report.figures


@pytest.mark.req("OFFLINE-01")
@given(history=strategies.histories())
def test_any_history_that_is_exported_is_good(history: History) -> None:
    store = InMemoryStore()
    play(BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds()), history)
    assert check_export(join_lines(export(store))).status == "good"


@pytest.mark.deep
@pytest.mark.req("OFFLINE-02")
def test_every_mutant_of_an_export_is_found_in_its_place() -> None:
    stride, every = (23, 3) if EVERYTHING else (401, 25)
    tried: Counter[str] = Counter()
    missed, misplaced = [], []
    # The fingerprint in the header may be any text.
    lines = (b'{"format":"cmbs/1/export","left_out":["identity:keys"]}', *world_lines()[1:])
    for mutant in mutate_export(lines, stride, every):
        tried[mutant.kind] += 1
        try:
            check_export(mutant.data)
        except Refused as refused:
            if not mutant.first <= refused.place["line"] <= mutant.last:
                misplaced.append((mutant.kind, mutant.first, refused.describe()))
        except Unreadable as unreadable:
            # Without its first line, a file is no export.
            if mutant.first > 1:
                misplaced.append((mutant.kind, mutant.first, str(unreadable)))
        else:
            missed.append(mutant)
    assert (missed, misplaced) == ([], [])
    assert len(tried) == 14
    assert tried.total() > 800


def verdict(name: str, fitted: list[Fitted]) -> int | None:
    """The seq at which the verifier refuses a stream by itself."""
    claims = verifier.Claims()
    stream: verifier.Stream = verifier.Session(name)
    if name == SPACE_STREAM:
        stream = verifier.Space(name, claims, Counter(), lambda: verifier.Place(0, name, 0))
    try:
        for each in fitted:
            stream.append(*each)
    except Refused:
        return stream.size
    return None


def cmbs_verdict(name: str, fitted: list[Fitted]) -> int | None:
    entries = [StoredEntry(each.raw, each.event_hash) for each in fitted]
    try:
        if name == SPACE_STREAM:
            verify_space(name.removeprefix("space:"), entries)
        else:
            verify_session(name, entries)
    except LedgerCorrupt as exc:
        return exc.seq
    return None


def forge_streams(stride: int, every: int) -> Iterator[tuple[str, list[Fitted]]]:
    """Every stream with one value of one entry changed, and every hash, link and commitment made to fit."""
    for name, entries in world_streams().items():
        for seq, entry in enumerate(entries):
            for changed in islice(alter_value(entry, stride), seq % every, None, every):
                if not isinstance(changed, dict) or _is_tolerated(changed, entry):
                    continue
                try:
                    yield name, fit_stream([*entries[:seq], changed, *entries[seq + 1 :]])
                except (rfc8785.CanonicalizationError, UnicodeEncodeError):
                    continue


def _is_tolerated(changed: Entry, entry: Entry) -> bool:
    """What replay takes as it is: texts for people, and readings of sessions."""
    if {**changed, "notes": None} == {**entry, "notes": None}:
        return True
    readings, before = (verifier.look_up(each, "payload", "belief") for each in (changed, entry))
    return bool(readings != before)


@pytest.mark.deep
@pytest.mark.req("OFFLINE-03")
def test_forged_streams_are_refused_where_cmbs_refuses_them() -> None:
    tried = refused = 0
    for name, fitted in forge_streams(*(9, 1) if EVERYTHING else (60, 6)):
        tried += 1
        ours, theirs = verdict(name, fitted), cmbs_verdict(name, fitted)
        refused += ours is not None
        if name != SPACE_STREAM:
            assert ours == theirs, fitted
        elif ours is not None:
            # `cmbs` decides again what a space decided, and so sees more and sooner.
            assert theirs is not None, fitted
            assert theirs <= ours, fitted
    assert tried > 600
    assert refused > tried // 3


@pytest.mark.req("OFFLINE-03")
def test_what_the_verifier_takes_for_a_whole_export_cmbs_imports() -> None:
    def take_space(space_id: str, entries: Sequence[StoredEntry], head: LedgerHead) -> None:
        verify_space(space_id, entries, head)

    lines = list(world_lines())
    for at in range(len(lines)):
        data = join_lines([*lines[:at], *lines[at + 1 :]])
        refuse_export(data)
        with pytest.raises(CmbsError):
            list(import_lines(BeliefServer(store=InMemoryStore()), data.splitlines(), take_space))
    assert len(list(import_lines(BeliefServer(store=InMemoryStore()), lines, take_space))) == 4


# Files that are wrong as files: what is changed, the line that is named, a word of the reason.
BAD_FILES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int, str]] = {
    "no known format": (lambda lines: [b'{"format":"cmbs/0/export","left_out":[]}', *lines[1:]], 1, "cmbs/1/export"),
    "a fingerprint that is no text": (
        lambda lines: [b'{"format":"cmbs/1/export","left_out":[],"fingerprint":1}', *lines[1:]],
        1,
        "fingerprint",
    ),
    "an unknown stream left out": (
        lambda lines: [b'{"format":"cmbs/1/export","left_out":["space:s"]}', *lines[1:]],
        1,
        "never exported",
    ),
    "an unknown line": (lambda lines: [lines[0], b'{"x":1}', *lines[1:]], 2, "missing"),
    "a list": (lambda lines: [lines[0], b"[1]", *lines[1:]], 2, "not an object"),
    "no UTF-8": (lambda lines: [lines[0], b"\xff", *lines[1:]], 2, "not UTF-8"),
    "too deep": (lambda lines: [lines[0], b"[" * 100_000, *lines[1:]], 2, "not JSON"),
    "an end without a stream": (lambda lines: [lines[0], lines[12], *lines[1:]], 2, "without entries"),
    "another head": (lambda lines: [*lines[:12], lines[12].replace(b"10,", b"11,"), *lines[13:]], 13, "seq"),
    "another hash": (lambda lines: [*lines[:12], lines[12][:-4] + b'00"}', *lines[13:]], 13, "hash"),
    "a stream twice": (lambda lines: [*lines[:13], *lines[1:13], *lines[13:]], 14, "second time"),
    "no end": (lambda lines: [*lines[:12], lines[-1]], 13, "without an end"),
    "another number": (lambda lines: [*lines[:-1], b'{"sessions":3}'], 36, "not 4"),
    "more": (lambda lines: [*lines, lines[-1]], 37, "after the count"),
}


@pytest.mark.req("OFFLINE-02")
@for_each("case", BAD_FILES)
def test_a_file_that_is_not_a_whole_export_is_refused(case: str) -> None:
    change, line, reason = BAD_FILES[case]
    refused = refuse_export(join_lines(change(list(world_lines()))))
    assert refused.place["line"] == line
    assert reason in refused.describe()


EARLIER = "of an earlier format, which this software does not read"
NEWER = "of the format `{}`, which is newer than this software, which reads `cmbs/1` alone"
OTHER_HEADERS = {
    b'{"format":"cmbs/2/export"}': NEWER.format("cmbs/2/export"),
    b'{"format":"cmbs/12/export","left_out":[],"more":1}': NEWER.format("cmbs/12/export"),
    b'{"format":"cmbs-export/1"}': EARLIER,
    b'{"format":"cmbs-export/1","left_out":["identity:keys"]}': EARLIER,
}
OTHER_PROOFS = {
    b'{"format":"cmbs/2/proof","kind":"inclusion"}': NEWER.format("cmbs/2/proof"),
    b'{"format":"cmbs-proof/1","kind":"inclusion"}': EARLIER,
}
HEAD = '{"stream_id":"s","size":1,"head_hash":"00"}'
OTHER_KEPT = {
    "earlier heads": (f'{{"format":"cmbs-heads/1"}}\n{HEAD}\n', EARLIER),
    "an earlier checkpoint": ('{"format":"cmbs-proof/1","kind":"checkpoint","note":""}', EARLIER),
    "earlier keys": ('{"format":"cmbs-checkpoint-keys/1","origin":"o","keys":[]}', EARLIER),
    "newer heads": ('{"format":"cmbs/2/heads"}', NEWER.format("cmbs/2/heads")),
    "an export": ('{"format":"cmbs/1/export"}', "not `cmbs/1/heads`"),
}


def check_bytes(tmp_path: Path, data: bytes) -> verifier.Report:
    path = tmp_path / "given"
    path.write_bytes(data)
    return verifier.check_path(str(path), verifier.Known(), verifier.Question())


@pytest.mark.req("OFFLINE-02")
@for_each("header", OTHER_HEADERS)
def test_an_export_of_another_format_is_unreadable_and_not_bad(tmp_path: Path, header: bytes) -> None:
    report = check_bytes(tmp_path, join_lines([header, *list(world_lines())[1:]]))
    assert (report.status, report.problem) == ("unreadable", f"line 1: {OTHER_HEADERS[header]}")


@pytest.mark.req("OFFLINE-02")
@for_each("proof", OTHER_PROOFS)
def test_a_proof_of_another_format_is_unreadable_and_not_bad(tmp_path: Path, proof: bytes) -> None:
    report = check_bytes(tmp_path, proof)
    assert (report.status, report.problem) == ("unreadable", OTHER_PROOFS[proof])


@pytest.mark.req("OFFLINE-02")
@for_each("name", OTHER_KEPT)
def test_what_was_kept_in_another_format_is_unreadable_and_says_so(tmp_path: Path, name: str) -> None:
    content, said = OTHER_KEPT[name]
    path = tmp_path / "kept"
    path.write_text(content)
    with pytest.raises(Unreadable) as refused:
        verifier.load_known(argparse.Namespace(heads=[str(path)], checkpoint=[], key=[]))
    assert str(refused.value) == f"{path}: {said}"


@pytest.mark.req("OFFLINE-05")
@for_each("kind", ["universes", "streams", "heads"])
def test_what_was_kept_and_contradicts_itself_is_unreadable(tmp_path: Path, kind: str) -> None:
    def write(name: str, digit: str) -> str:
        tree, head = {"size": 2, "root": digit * 64}, {"seq": 1, "event_hash": digit * 64}
        kept = {"universes": tree, "streams": [tree], "heads": [head]}[kind]
        path = tmp_path / name
        path.write_text(json.dumps({kind: {"s": kept}}))
        return str(path)

    def load(*paths: str) -> verifier.Known:
        return verifier.load_known(argparse.Namespace(heads=[*paths], checkpoint=[], key=[]))

    first, same, other = write("first", "a"), write("same", "a"), write("other", "b")
    assert load(first, same) == load(first)
    with pytest.raises(Unreadable, match="kept"):
        load(first, other)


@pytest.mark.req("OFFLINE-02")
def test_an_entry_of_another_format_is_unreadable_and_not_bad(tmp_path: Path) -> None:
    entries = first_session()
    newer = check_bytes(tmp_path, write_export(fit_stream(edit(entries, 3, format="cmbs/2"))))
    assert (newer.status, newer.problem) == ("unreadable", f"line 5: {NEWER.format('cmbs/2')}")
    versioned = [{"v": 3, **{name: each[name] for name in each if name != "format"}} for each in entries]
    earlier = check_bytes(tmp_path, write_export(fit_stream(versioned)))
    assert (earlier.status, earlier.problem) == ("unreadable", f"line 2: {EARLIER}")


def test_the_fingerprint_of_an_export_is_ignored(tmp_path: Path) -> None:
    header = b'{"format":"cmbs/1/export","left_out":[],"fingerprint":"others"}'
    assert check_bytes(tmp_path, join_lines([header, *list(world_lines())[1:]])).status == "good"


def test_a_line_without_an_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "MAX_LINE_BYTES", 100)
    assert refuse_export(join_lines(world_lines())).describe() == "line 2: longer than 100 bytes"


def edit(entries: list[Entry], seq: int, **members: Any) -> list[Entry]:
    """The stream with members of an entry set."""
    return [*entries[:seq], {**entries[seq], **members}, *entries[seq + 1 :]]


CALLER = {"authenticated": True, "id": "x", "key_id": "k", "kind": "agent"}
BAD_ENTRIES: dict[str, tuple[int, dict[str, Any], str]] = {
    "no known format": (3, {"format": "cmbs/0"}, "format"),
    "no format": (3, {"format": None}, "format"),
    "a version of an earlier format": (3, {"v": 3}, "v"),
    "a digest where none belongs": (3, {"state": "0" * 64}, "state"),
    "a day in words": (3, {"ts": "yesterday"}, "ts"),
    "an unknown verb": (3, {"verb": "GUESS"}, "verb"),
    "a second declaration": (3, {"verb": "DECLARE_SESSION"}, "verb"),
    "an actor of no kind": (
        3,
        {"actor": {"authenticated": True, "id": "x", "key_id": None, "kind": "god"}},
        "actor.kind",
    ),
    "an actor whose kind is a list": (3, {"actor": {**CALLER, "kind": []}}, "actor.kind"),
    "an unknown caller": (
        3,
        {"actor": {**CALLER, "authenticated": False}},
        "actor.authenticated",
    ),
    "notes": (3, {"notes": "because"}, "notes"),
    "a repeated key": (3, {"idempotency_key": "once"}, "idempotency_key"),
    "a probe without a provider": (
        4,
        {
            "payload": {
                "eliminated": [],
                "justification": None,
                "observation_id": "1",
                "probe": {"probe_id": "p", "response": 1},
                "source_id": "s",
            }
        },
        "payload.probe",
    ),
}


@pytest.mark.req("OFFLINE-02")
@for_each("case", BAD_ENTRIES)
def test_a_bad_entry_under_good_hashes_is_named_with_its_field(case: str) -> None:
    seq, members, place = BAD_ENTRIES[case]
    refused = refuse_export(write_export(fit_stream(edit(first_session(), seq, **members))))
    assert (refused.place["seq"], refused.place["field"]) == (seq, place)


def test_a_stream_that_is_never_exported_is_refused() -> None:
    entries = [{**each, "stream_id": "identity:keys"} for each in first_session()]
    assert "never exported" in refuse_export(write_export(fit_stream(entries))).describe()


def long_session(digest_at: int | None) -> list[Entry]:
    """A thousand obligations and one more."""
    first, second = first_session()[:2]
    entries = [first]
    for seq in range(1, 1002):
        entry = {**second, "seq": seq, "event_id": f"e{seq}", "idempotency_key": f"k{seq}"}
        entry["payload"] = {"min_total_eliminations": 1, "obligation_id": f"o{seq}"}
        if seq == digest_at:
            entry["state"] = "ab" * 32
        entries.append(entry)
    return entries


@pytest.mark.req("OFFLINE-01")
def test_state_digests_are_where_they_belong() -> None:
    report = check_export(write_export(fit_stream(long_session(1000))))
    assert report.figures["digests"] == 1
    assert "1 digests of states" in report.not_checked
    for digest_at, seq in ((None, 1000), (999, 999)):
        refused = refuse_export(write_export(fit_stream(long_session(digest_at))))
        assert (refused.place["seq"], refused.place["field"]) == (seq, "state")
    for state in ("ab", {"digest": "ab" * 32, "format": 3}, None):
        refused = refuse_export(write_export(fit_stream(edit(long_session(1000), 1000, state=state))))
        assert (refused.place["seq"], refused.place["field"]) == (1000, "state")


ODD_VALUES: tuple[Any, ...] = (1.5, "x", [], {})


def list_places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, each in inner:
        yield (*place, name)
        yield from list_places(each, (*place, name))


def put_value(value: Any, place: tuple[str | int, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    inner = changed
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = new
    return changed


@pytest.mark.req("OFFLINE-02")
def test_a_value_of_another_type_is_refused_and_never_a_traceback() -> None:
    """Under hashes and links that fit: whatever is looked at, it is looked at as what it is."""
    tried = refused = 0
    for entries in ([{**each, "actor": CALLER} for each in first_session()[:3]], world_streams()[SPACE_STREAM][:3]):
        for seq, entry in enumerate(entries):
            for place in list_places(entry):
                for value in ODD_VALUES:
                    changed = [*entries[:seq], put_value(entry, place, value), *entries[seq + 1 :]]
                    tried += 1
                    try:
                        check_export(write_export(fit_stream(changed)))
                    except (Refused, Unreadable):
                        refused += 1
    assert refused > tried // 2 > 100


def test_a_session_of_a_provider_may_record_probes() -> None:
    entries = first_session()
    provider = {"provider": {"id": "lights", "version": "1"}}
    probe = {"probe": {"probe_id": "glows", "response": [1.5]}}
    entries[0]["payload"] |= provider
    entries[4]["payload"] |= probe
    assert check_export(write_export(fit_stream(entries))).figures["events"] == 11
    entries[4]["payload"]["probe"]["probe_id"] = 1
    assert refuse_export(write_export(fit_stream(entries))).place["field"] == "payload.probe.probe_id"
    entries[0]["payload"]["provider"]["id"] = None
    assert refuse_export(write_export(fit_stream(entries))).place["field"] == "payload.provider.id"
