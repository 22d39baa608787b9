"""Replay of a space decides everything again: a log that was touched anywhere is found out, and told where."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from cmbs.audit.spaces import all_spaces, audit_space, check_space
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import GENESIS, Head, StoredEntry, canonical, hash_entry, verify_chain
from cmbs.stores import InMemoryStore
from cmbs.substrate.kernel.checkpoint import freeze_space, thaw_space
from cmbs.substrate.kernel.events import Approve, Propose, SetMode
from cmbs.substrate.kernel.events import Mode as SpaceMode
from cmbs.substrate.kernel.kind import append_of_space
from cmbs.substrate.kernel.proposals import trace_decision
from cmbs.substrate.kernel.replay import catch_up_space, fold_space, read_space_event, verify_space
from cmbs.substrate.kernel.state import Space
from tests.support.spaces import ANY, ROOT, SPACE, STREAM, World, call, caller_tool, constraint, delta

CREATE, REGISTER, ISSUE, DELTA, ASK, APPROVE, OUTCOME, MODE = range(8)
Change = Callable[[dict[str, Any]], None]


def record_log() -> tuple[Space, list[StoredEntry], InMemoryStore]:
    """A short life of a space, and its log."""
    world = World()
    asking = constraint(effect="deny", subject={"tool_id": "c"}, on_fail="ask")
    world.open(caller_tool("c"), policy={"constraint.any": ANY, "constraint.ask": asking})
    world.propose(delta(a="1", b="\U0001f600", **{"\U0001f600": "x", "\uffee": "y"}), proposal_id="p")
    (asked,) = world.propose(call("c", {"x": [1.5, "é"]}), delta(c="1"), proposal_id="q").event.result.asked
    (intent,) = world.say(Approve(asked.approval_id)).event.result.intents
    world.report(intent.execution_id)
    world.say(SetMode(SpaceMode.OBSERVE), ROOT, idempotency_key="once")
    world.close()
    return world.space, world.log.read(STREAM), world.log  # type: ignore[return-value]


SPACE_AFTER, LOG, STORE = record_log()


def forge(place: int, change: Change) -> list[StoredEntry]:
    """The log with one entry changed, and every hash after it made to fit."""
    entries: list[StoredEntry] = []
    before = GENESIS
    for number, stored in enumerate(LOG):
        content = json.loads(stored.raw)
        content["prev_event_hash"] = before.hex()
        if number == place:
            change(content)
        raw = canonical.encode(content, 80)
        entries.append(StoredEntry(raw, hash_entry(raw)))
        before = entries[-1].event_hash
    return entries


def setting(path: str, value: Any) -> Change:
    def change(content: dict[str, Any]) -> None:
        *parts, last = path.split("/")
        inner: Any = content
        for part in parts:
            inner = inner[int(part)] if isinstance(inner, list) else inner[part]
        inner[last] = value

    return change


def test_a_log_proves_the_space_and_its_head() -> None:
    assert freeze_space(verify_space(SPACE, LOG, SPACE_AFTER.head)) == freeze_space(SPACE_AFTER)
    assert verify_chain(STREAM, LOG, SPACE_AFTER.head) == SPACE_AFTER.head
    folded = fold_space(None, LOG)
    assert folded is not None
    assert freeze_space(folded) == freeze_space(SPACE_AFTER)
    assert [read_space_event(stored).body.seq for stored in LOG] == list(range(8))
    with pytest.raises(LedgerCorrupt, match="the log is empty"):
        verify_space(SPACE, [])
    with pytest.raises(LedgerCorrupt, match="recorded head"):
        verify_space(SPACE, LOG[:-1], SPACE_AFTER.head)


FORGERIES: dict[str, tuple[int, Change, str]] = {
    "another verdict": (DELTA, setting("outcome/decision/verdict", "deny"), r"outcome\.decision is not what"),
    "another policy hash": (DELTA, setting("outcome/decision/policy_hash", "0" * 64), r"outcome\.decision is not what"),
    "more changes": (DELTA, setting("outcome/changes/set/goal.z", "1"), r"outcome\.changes is not what"),
    "an intent from nowhere": (
        ASK,
        setting(
            "outcome/intents", [{"execution_id": "x", "candidate": 0, "tool_id": "c", "args_hash": "", "deadline": "9"}]
        ),
        r"outcome\.intents is not what",
    ),
    "an approval that was not asked for": (
        DELTA,
        setting("outcome/used_approvals", ["a"]),
        r"outcome\.used_approvals is not what",
    ),
    "another proposal": (
        DELTA,
        setting("payload/proposal/candidates/0/set/goal.a", "2"),
        "is not what its message leads to",
    ),
    "other args": (ASK, setting("payload/proposal/candidates/0/args", {"x": 2}), "is not what its message leads to"),
    "more words than were needed": (MODE, setting("outcome/granted", True), r"outcome\.granted is not"),
    "another actor": (DELTA, setting("actor/id", "other"), "is not what its message leads to"),
    "an actor who may not": (APPROVE, setting("actor/kind", "agent"), "is not what its message leads to"),
    "the proposer approves": (APPROVE, setting("actor/id", "agent"), "is not what its message leads to"),
    "another outcome": (OUTCOME, setting("payload/status", "failed"), "is not what its message leads to"),
    "an execution that is not there": (OUTCOME, setting("payload/execution_id", "x"), "no execution"),
    "an unknown verb": (MODE, setting("verb", "SHUFFLE"), "unknown verb"),
    "an unknown field": (MODE, setting("payload/more", 1), "malformed SET_MODE"),
    "no actor": (MODE, lambda content: content.pop("actor"), "not an entry of a space"),
    "a time without microseconds": (MODE, setting("ts", "2026-01-01T00:00:00Z"), "not a moment"),
    "an event id twice": (MODE, lambda content: content.update(event_id=json.loads(LOG[2].raw)["event_id"]), "event 2"),
    "a creation twice": (
        MODE,
        lambda content: content.update(verb="CREATE_SPACE", payload=json.loads(LOG[0].raw)["payload"]),
        "created before",
    ),
    "no creation first": (
        CREATE,
        lambda content: content.update(verb="SET_MODE", payload={"mode": "observe"}),
        "the first event creates",
    ),
    "the creation of another": (CREATE, setting("payload/space_id", "t"), "the log is that of"),
    "a policy that is refused": (CREATE, setting("payload/policy", {"constraint.x": "{}"}), "is refused"),
    "a repeat": (
        MODE,
        lambda content: content.update(
            verb="PROPOSE", payload=json.loads(LOG[DELTA].raw)["payload"], actor=json.loads(LOG[DELTA].raw)["actor"]
        ),
        "it repeats event 3",
    ),
    "another place": (MODE, setting("seq", 9), "seq is `9`"),
    "another stream": (MODE, setting("stream_id", "space:t"), "stream_id is"),
    "another version": (MODE, setting("v", 2), "v is `2`"),
}


@pytest.mark.req("SS01-REPLAY-01")
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_entry_is_named(name: str) -> None:
    place, change, said = FORGERIES[name]
    with pytest.raises(LedgerCorrupt, match=said) as caught:
        verify_space(SPACE, forge(place, change))
    assert (caught.value.stream_id, caught.value.seq) == (STREAM, place)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b'"payload":{"ask_ms"', b'"payload":{ "ask_ms"', "payload is not canonical"),
        (b"{", b"{ ", "bytes are not in canonical form"),
    ],
)
def test_bytes_that_are_not_canonical_are_refused_even_where_they_say_the_same(
    old: bytes, new: bytes, said: str
) -> None:
    raw = LOG[ASK].raw.replace(old, new, 1)
    with pytest.raises(LedgerCorrupt, match=said):
        verify_space(SPACE, [*LOG[:ASK], StoredEntry(raw, hash_entry(raw))])


def test_bytes_that_are_no_entry_are_refused() -> None:
    for raw in (b"", b"[]", b"\xff", b"{" * 100_000):
        with pytest.raises(LedgerCorrupt, match="not a ledger entry"):
            verify_space(SPACE, [*LOG[:3], StoredEntry(raw, hash_entry(raw))])
    with pytest.raises(LedgerCorrupt, match="event_hash is"):
        verify_space(SPACE, [StoredEntry(LOG[0].raw, bytes(32))])


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-REPLAY-01")
def test_a_checkpoint_of_any_place_leads_to_the_same_space() -> None:
    for place in range(len(LOG)):
        then = catch_up_space(SPACE, None, LOG[: place + 1])
        assert then is not None
        thawed = thaw_space(freeze_space(then), LOG[place])
        assert thawed is not None
        resumed = catch_up_space(SPACE, thawed, LOG[place + 1 :])
        assert freeze_space(resumed or thawed) == freeze_space(SPACE_AFTER)


def test_a_checkpoint_that_does_not_fit_its_entry_is_ignored() -> None:
    data = freeze_space(SPACE_AFTER)
    assert thaw_space(data, LOG[-1]) is not None
    assert thaw_space(data, LOG[-2]) is None
    assert thaw_space(data[:-1], LOG[-1]) is None
    assert thaw_space(b"", LOG[-1]) is None
    assert thaw_space(data, StoredEntry(b"{}", bytes(32))) is None
    twice = data[32:].replace(json.loads(LOG[1].raw)["event_id"].encode(), json.loads(LOG[2].raw)["event_id"].encode())
    assert thaw_space(sha256(twice).digest() + twice, LOG[-1]) is None


# --- a whole store ----------------------------------------------------------------------------------------------------


def store_entries(entries: list[StoredEntry]) -> InMemoryStore:
    store = InMemoryStore()
    for entry in entries:
        store.append([append_of_space(read_space_event(entry))])
    return store


def test_checking_a_store_says_what_is_wrong_with_which_space() -> None:
    good = store_entries(LOG)
    assert list(all_spaces(good)) == [SPACE]
    report = check_space(good, SPACE)
    head = SPACE_AFTER.head.event_hash.hex()
    assert (report.findings, report.events, report.head_hash) == ([], len(LOG), head)
    assert "no space" in check_space(good, "other").findings[0]
    bad = store_entries(forge(DELTA, setting("outcome/decision/verdict", "deny")))
    assert "seq 3" in audit_space(bad, SPACE).findings[0]
    assert check_space(bad, SPACE).findings == audit_space(bad, SPACE).findings


def test_checking_a_store_compares_the_checkpoint() -> None:
    another = msgspec.structs.replace(SPACE_AFTER, mode=SpaceMode.OBSERVE)
    for seq, data, said in (
        (7, freeze_space(SPACE_AFTER), None),
        (9, freeze_space(SPACE_AFTER), "beyond the log"),
        (7, b"nothing", "does not fit the log"),
        (7, freeze_space(another), "is not what the log leads to"),
    ):
        store = store_entries(LOG)
        store.put_checkpoint(STREAM, seq, data)
        findings = check_space(store, SPACE).findings
        assert findings == [] if said is None else said in findings[0]


def test_only_what_decides_a_proposal_has_a_trace_to_tell() -> None:
    with pytest.raises(TypeError, match="decides no proposal"):
        trace_decision(SPACE_AFTER, read_space_event(LOG[MODE]))
    assert isinstance(read_space_event(LOG[DELTA]).message, Propose)
    assert Head(7, LOG[7].event_hash) == SPACE_AFTER.head
