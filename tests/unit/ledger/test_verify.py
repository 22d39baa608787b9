"""The hash chain and its entries: honest logs verify, and any entry that was touched is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cmbs.belief.kernel.replay import verify_session
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import (
    GENESIS,
    Head,
    StoredEntry,
    canonical,
    check_head,
    from_audit_entry,
    to_audit_entry,
    verify_chain,
)
from cmbs.messages import AuditEntry, ProviderRef, SessionPolicy
from cmbs.testing import History
from cmbs.testing.strategies import belief as strategies
from tests.support.forging import changing, forged, sealed
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line, line_of, replay_steps
from tests.support.subtests import for_each

Log = list[StoredEntry]
# What both must notice. The second reads the messages too, and must not be less strict for it.
VERIFIERS: list[Callable[..., Any]] = [verify_chain, verify_session]


def three_events() -> Line:
    line = Line.over("a", "b", "c")
    line.eliminate("1", "a")
    line.eliminate("2", "b")
    return line


def head_of(log: Log) -> Head:
    return Head(len(log) - 1, log[-1].event_hash)


def assert_found(line: Line, tampered: Log, seq: int) -> None:
    """Both verifiers refuse the log, and name the place."""
    assert tampered != line.log
    for verify in VERIFIERS:
        with pytest.raises(LedgerCorrupt) as found:
            verify(line.session_id, tampered, head_of(line.log))
        assert (found.value.stream_id, found.value.seq) == (line.session_id, seq)


# --- an honest log ----------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-VERIFY-01")
@given(strategies.histories())
def test_an_honest_log_verifies_and_ends_in_its_head(history: History) -> None:
    line = replay_steps(history)
    assert verify_chain(line.session_id, line.log) == line.session.head == head_of(line.log)
    assert verify_chain(line.session_id, iter(line.log), head_of(line.log)) == line.session.head


@pytest.mark.req("LED-3-ENC-01", "LED-3-ENC-02", "LED-3-ENC-03")
@given(strategies.histories())
def test_the_chain_can_be_followed_with_the_standard_library_alone(history: History) -> None:
    previous = GENESIS.hex()
    line = replay_steps(history)
    for seq, stored in enumerate(line.log):
        raw = stored.raw
        content = json.loads(raw)
        assert (content["stream_id"], content["seq"], content["prev_event_hash"]) == (line.session_id, seq, previous)
        assert canonical.encode(content) == raw
        previous = sha256(b"\x00" + raw).hexdigest()
        assert stored.event_hash.hex() == previous


# --- one entry touched ------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-VERIFY-02")
@given(strategies.histories(), st.data())
def test_any_single_changed_byte_is_found(history: History, data: st.DataObject) -> None:
    line = replay_steps(history)
    seq = data.draw(st.integers(0, len(line.log) - 1))
    raw, event_hash = line.log[seq].raw, line.log[seq].event_hash
    flip = data.draw(st.integers(1, 255))
    place = data.draw(st.integers(0, len(raw) + len(event_hash) - 1))
    changed = bytearray(raw + event_hash)
    changed[place] ^= flip
    touched = StoredEntry(bytes(changed[: len(raw)]), bytes(changed[len(raw) :]))
    assert_found(line, [*line.log[:seq], touched, *line.log[seq + 1 :]], seq)


@pytest.mark.req("LED-3-VERIFY-02")
@given(strategies.histories(), st.data())
def test_bytes_added_or_taken_away_are_found(history: History, data: st.DataObject) -> None:
    line = replay_steps(history)
    seq = data.draw(st.integers(0, len(line.log) - 1))
    raw, event_hash = line.log[seq].raw, line.log[seq].event_hash
    place = data.draw(st.integers(0, len(raw)))
    longer = raw[:place] + data.draw(st.sampled_from([b" ", b"\n", b"\x00", b"{", b'"'])) + raw[place:]
    for changed in (longer, raw[:place], raw + raw):
        tampered = [*line.log[:seq], StoredEntry(changed, event_hash), *line.log[seq + 1 :]]
        if tampered != line.log:
            assert_found(line, tampered, seq)


@pytest.mark.req("LED-3-VERIFY-03", "LED-3-VERIFY-07")
@given(strategies.histories(), st.data())
def test_a_dropped_entry_is_found(history: History, data: st.DataObject) -> None:
    line = replay_steps(history)
    assert_found(line, [], 0)
    dropped = data.draw(st.integers(0, len(line.log) - 1))
    # Only the recorded head tells that the last one is missing: what is left ends at the entry before.
    last = len(line.log) - 1
    seq = dropped if dropped < last else max(last - 1, 0)
    assert_found(line, line.log[:dropped] + line.log[dropped + 1 :], seq)


@pytest.mark.req("LED-3-VERIFY-07")
def test_a_cut_off_tail_verifies_without_the_recorded_head_and_not_with_it() -> None:
    line = three_events()
    for length in (1, 2):
        cut = line.log[:length]
        assert verify_chain(line.session_id, cut) == head_of(cut)
        assert verify_session(line.session_id, cut).head == head_of(cut)
        for verify in VERIFIERS:
            with pytest.raises(LedgerCorrupt, match=rf"the log ends at seq {length - 1} .* the recorded head is seq 2"):
                verify(line.session_id, cut, head_of(line.log))
            with pytest.raises(LedgerCorrupt, match=f"the recorded head is seq {length - 1}"):
                verify(line.session_id, line.log, head_of(cut))
    check_head(line.session_id, head_of(line.log), None)


@pytest.mark.req("LED-3-VERIFY-04", "LED-3-VERIFY-09")
@given(strategies.histories(), strategies.histories(min_calls=1), st.data())
def test_an_added_entry_is_found_wherever_it_comes_from(history: History, other: History, data: st.DataObject) -> None:
    line = replay_steps(history)
    # Of another future of the same session, so that even its stream is right, or of another session.
    fork = replay_steps(other, line_of(history).fork())
    unrelated = Line(VALIDATOR.declare(ONTOLOGY, ["a"], None, SessionPolicy(), None), session_id="another session")
    unrelated.eliminate("1", "a")
    added = data.draw(st.sampled_from([each for each in fork.log + unrelated.log if each not in line.log]))
    place = data.draw(st.integers(0, len(line.log)))
    tampered = [*line.log[:place], added, *line.log[place:]]
    for verify in VERIFIERS:
        with pytest.raises(LedgerCorrupt) as found:
            verify(line.session_id, tampered, head_of(line.log))
        # An entry that would have been right there is missed by the one after it, or by the head.
        assert found.value.seq in {place, place + 1}


@pytest.mark.req("LED-3-VERIFY-05")
@given(strategies.histories(min_calls=1), st.data())
def test_swapped_entries_are_found(history: History, data: st.DataObject) -> None:
    line = replay_steps(history)
    assume(len(line.log) > 1)
    first, second = sorted(data.draw(st.lists(st.integers(0, len(line.log) - 1), min_size=2, max_size=2, unique=True)))
    tampered = list(line.log)
    tampered[first], tampered[second] = tampered[second], tampered[first]
    assert_found(line, tampered, first)


@pytest.mark.req("LED-3-VERIFY-06")
@given(strategies.histories(), st.data())
def test_a_repeated_entry_is_found(history: History, data: st.DataObject) -> None:
    line = replay_steps(history)
    repeated = data.draw(st.integers(0, len(line.log) - 1))
    place = data.draw(st.integers(0, len(line.log)))
    tampered = [*line.log[:place], line.log[repeated], *line.log[place:]]
    assert_found(line, tampered, place + 1 if place == repeated else place)


@pytest.mark.req("LED-3-VERIFY-09")
def test_the_log_of_another_session_is_not_ours() -> None:
    line = three_events()
    for verify in VERIFIERS:
        with pytest.raises(LedgerCorrupt, match="stream_id is `session`, expected `other`") as found:
            verify("other", line.log)
        assert (found.value.seq, found.value.stream_id) == (0, "other")


def test_a_log_written_anew_from_some_place_on_does_not_end_in_the_recorded_head() -> None:
    line = three_events()
    rewritten = forged(line.session_id, line.log, 1, changing(ts="2020-01-01T00:00:00.000000Z"))
    assert verify_chain(line.session_id, rewritten).seq == 2
    for verify in VERIFIERS:
        with pytest.raises(LedgerCorrupt, match="the recorded head is"):
            verify(line.session_id, rewritten, head_of(line.log))


@pytest.mark.req("LED-3-VERIFY-02")
@pytest.mark.parametrize(
    ("name", "value"),
    [("seq", 7), ("stream_id", "elsewhere"), ("prev_event_hash", "0" * 64)],
)
def test_what_is_wrong_is_named(name: str, value: Any) -> None:
    line = three_events()
    altered = sealed(changing(**{name: value})(line.log[1].raw))
    for verify in VERIFIERS:
        with pytest.raises(LedgerCorrupt, match=f"{name} is `{value}`, expected") as found:
            verify(line.session_id, [line.log[0], altered])
        event_id = to_audit_entry(line.log[1]).event_id
        assert found.value.details["event_id"] == event_id
        assert f"(`{event_id}`)" in str(found.value)


@pytest.mark.req("ARCH-3-FORMAT-01")
@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            {"v": 3},
            "an entry of an earlier format, which this software does not read: it names no format, not `cmbs/1`",
        ),
        ({}, "an entry of an earlier format, which this software does not read: it names no format, not `cmbs/1`"),
        ({"format": "cmbs/2"}, "an entry of another format, which this software does not read: `cmbs/2`, not `cmbs/1`"),
        ({"format": "cmbs/2", "of the future": 1}, "an entry of another format"),
    ],
)
def test_an_entry_of_another_format_or_of_none_is_refused(written: dict[str, Any], said: str) -> None:
    line = three_events()
    content = json.loads(line.log[1].raw)
    del content["format"]
    altered = sealed(canonical.encode({**content, **written}))
    for verify in VERIFIERS:
        with pytest.raises(LedgerCorrupt) as found:
            verify(line.session_id, [line.log[0], altered])
        assert found.value.details["reason"].startswith(said)
        assert found.value.seq == 1


@for_each(
    "raw",
    [b"", b"null", b"[]", b"{}", b"\xff", b'{"seq":0}', b"not json", b"{" * 100_000, b'{"outcome":' + b"[" * 100_000],
    ids=["nothing", "null", "array", "object", "binary", "partial", "text", "deep", "deep member"],
)
def test_bytes_that_are_no_entry_are_found(raw: bytes) -> None:
    line = three_events()
    for verify in VERIFIERS:
        with pytest.raises(LedgerCorrupt, match="not a ledger entry") as found:
            verify(line.session_id, [line.log[0], sealed(raw)])
        assert found.value.seq == 1


@pytest.mark.parametrize("name", ["payload", "outcome"])
def test_a_forged_member_of_endless_depth_is_found(name: str) -> None:
    line = three_events()
    deep = b'"%s":%s%s' % (name.encode(), b"[" * 100_000, b"]" * 100_000)
    content = json.loads(line.log[1].raw)
    old = b'"%s":%s' % (name.encode(), canonical.encode(content[name]))
    assert old in line.log[1].raw
    for verify in VERIFIERS:
        with pytest.raises(LedgerCorrupt):
            verify(line.session_id, [line.log[0], sealed(line.log[1].raw.replace(old, deep))])


# --- entries for readers ----------------------------------------------------------------------------------------------


@pytest.mark.req("BS-1.1-MODEL-03", "BS-4.2-CANON-01")
@given(strategies.histories())
def test_an_entry_comes_back_byte_for_byte_from_what_a_reader_got(history: History) -> None:
    for stored in replay_steps(history).log:
        entry = to_audit_entry(stored)
        assert from_audit_entry(entry) == stored
        carried = AuditEntry.from_dict(json.loads(json.dumps(entry.to_dict())))
        assert from_audit_entry(carried) == stored
        shuffled = dict(reversed(list(entry.to_dict().items())))
        assert from_audit_entry(AuditEntry.from_dict(shuffled)) == stored


def test_the_deepest_json_that_a_request_may_hold_comes_back_too() -> None:
    opaque: dict[str, Any] = {}
    for _ in range(canonical.MAX_DEPTH - 1):
        opaque = {"k": opaque}
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b"], opaque, SessionPolicy(), ProviderRef("p", "1")))
    line.tell(VALIDATOR.eliminate("s", "1", ["a"], opaque, VALIDATOR.probe("probe", opaque)))
    line.tell(VALIDATOR.request_termination(opaque))
    assert [from_audit_entry(to_audit_entry(stored)) for stored in line.log] == line.log
    assert verify_session(line.session_id, line.log).terminated_seq == 2


@pytest.mark.req("BS-2.1-AUDIT-04")
def test_a_reader_who_changes_an_entry_changes_no_bytes_and_is_found_out() -> None:
    line = three_events()
    entry = to_audit_entry(line.log[1])
    entry.payload["eliminated"].append("c")
    entry.delta["eliminated"].append("c")
    entry.delta_eliminated.append("c")
    assert to_audit_entry(line.log[1]).payload["eliminated"] == ["a"]
    with pytest.raises(LedgerCorrupt, match="event_hash is"):
        verify_chain(line.session_id, [line.log[0], from_audit_entry(entry)])


@for_each(
    "changes",
    [
        {"event_hash": "no hex"},
        {"event_hash": "abc"},
        {"event_hash": None},
        {"payload": {"n": float("nan")}},
        {"payload": {"n": 2**60}},
        {"payload": {1: 2}},
        {"payload": {"text": "\ud800"}},
        {"payload": object()},
        {"notes": b"bytes"},
    ],
    ids=", ".join,
)
def test_an_entry_that_stands_for_no_bytes_is_corrupt(changes: dict[str, Any]) -> None:
    entry = replace(to_audit_entry(three_events().log[1]), **changes)
    with pytest.raises(LedgerCorrupt) as found:
        from_audit_entry(entry)
    assert (found.value.seq, found.value.details["event_id"]) == (1, entry.event_id)


def test_a_false_hash_is_kept_for_the_verifier_to_find() -> None:
    line = three_events()
    claimed = replace(to_audit_entry(line.log[0]), event_hash="00" * 32)
    assert from_audit_entry(claimed) == StoredEntry(line.log[0].raw, bytes(32))
    with pytest.raises(LedgerCorrupt, match="event_hash is"):
        verify_chain(line.session_id, [from_audit_entry(claimed)])
