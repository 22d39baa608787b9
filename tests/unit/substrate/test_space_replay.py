"""Replay of a space decides everything again: a log that was touched anywhere is found out, and told where."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from cmbs.audit.fsck import check_space
from cmbs.audit.spaces import all_spaces
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import GENESIS, Head, StoredEntry, canonical, hash_entry, verify_chain
from cmbs.ledger.state_digest import digest_of
from cmbs.stores import InMemoryStore
from cmbs.substrate.kernel.checkpoint import FrozenSpace, freeze_space, thaw_space
from cmbs.substrate.kernel.events import Approve, Propose, SetMode
from cmbs.substrate.kernel.events import Mode as SpaceMode
from cmbs.substrate.kernel.kind import append_of_space
from cmbs.substrate.kernel.proposals import trace_decision
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event, verify_space
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.past_states import space_at, state_at
from tests.support.digest_points import digest_points_at
from tests.support.spaces import ANY, ROOT, SPACE, STREAM, World, call, caller_tool, constraint, delta
from tests.support.subtests import for_each

CREATE, REGISTER, ISSUE, DELTA, ASK, APPROVE, START, OUTCOME, MODE = range(9)
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
with digest_points_at(range(1, 10)):
    DIGESTED_AFTER, DIGESTED, _ = record_log()


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
    assert freeze_space(space_at(STORE, SPACE_AFTER, SPACE_AFTER.head.seq)) == freeze_space(SPACE_AFTER)
    assert [read_space_event(stored).body.seq for stored in LOG] == list(range(9))
    with pytest.raises(LedgerCorrupt, match="the log is empty"):
        verify_space(SPACE, [])
    with pytest.raises(LedgerCorrupt, match="recorded head"):
        verify_space(SPACE, LOG[:-1], SPACE_AFTER.head)


def test_the_state_of_the_past_is_that_of_the_whole_space_then() -> None:
    for seq in range(len(LOG)):
        then, state = verify_space(SPACE, LOG[: seq + 1]), state_at(STORE, SPACE_AFTER, seq)
        assert state == (seq, then.snapshot_id, then.policy.policy_hash, dict(then.state))
        assert freeze_space(space_at(STORE, SPACE_AFTER, seq)) == freeze_space(then)


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
    "another format": (MODE, setting("format", "cmbs/2"), "an entry of another format"),
    "no format": (MODE, lambda content: content.pop("format"), "an entry of an earlier format"),
    "a state digest where none belongs": (
        MODE,
        setting("state", "0" * 64),
        "state is not what its message leads to",
    ),
}


@pytest.mark.req("SS01-REPLAY-01")
@for_each("name", FORGERIES)
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
@pytest.mark.usefixtures("digests_everywhere")
def test_a_checkpoint_of_any_place_leads_to_the_same_space() -> None:
    for place in range(1, len(DIGESTED)):
        then = catch_up_space(SPACE, None, DIGESTED[:place])
        assert then is not None
        thawed = thaw_space(freeze_space(then), DIGESTED[place])
        assert thawed is not None
        assert freeze_space(thawed) == freeze_space(then)
        resumed = catch_up_space(SPACE, thawed, DIGESTED[place:])
        assert resumed is not None
        assert freeze_space(resumed) == freeze_space(DIGESTED_AFTER)


@pytest.mark.usefixtures("digests_everywhere")
def test_a_checkpoint_that_its_entry_does_not_vouch_for_is_ignored() -> None:
    before = verify_space(SPACE, DIGESTED[:-1])
    data = freeze_space(before)
    assert thaw_space(data, DIGESTED[-1]) is not None
    assert thaw_space(data, DIGESTED[-2]) is None
    assert thaw_space(data, LOG[-1]) is None
    assert thaw_space(data + b" ", DIGESTED[-1]) is None
    assert thaw_space(b"", DIGESTED[-1]) is None
    assert thaw_space(data, StoredEntry(b"{}", bytes(32))) is None
    assert thaw_space(data, StoredEntry(DIGESTED[-1].raw, bytes(32))) is None


def event_id_of(place: int) -> bytes:
    return str(json.loads(DIGESTED[place].raw)["event_id"]).encode()


@for_each(
    ("old", "new"),
    [
        (b'["s",', b'["t",'),
        (b'["s",', b'{"s",'),
        (b'"enforce",[7,', b'"enforce",[6,'),
        (event_id_of(2), event_id_of(1)),
        (b'"c":{"tool_id"', b'"c":{"tool-id"'),
    ],
    ids=["another space", "no JSON", "another head", "an event twice", "an unknown form"],
)
@pytest.mark.usefixtures("digests_everywhere")
def test_even_a_state_that_an_entry_vouches_for_must_stand_right_before_it(old: bytes, new: bytes) -> None:
    """Software with a mistake could have written such a digest: then the log is replayed."""
    true = freeze_space(verify_space(SPACE, DIGESTED[:-1]))
    data = true.replace(old, new)
    assert data != true
    assert thaw_vouched(data) is None


@pytest.mark.usefixtures("digests_everywhere")
def test_a_state_in_which_a_proposal_waits_that_is_not_parked_is_ignored() -> None:
    parts = json.loads(freeze_space(verify_space(SPACE, DIGESTED[:-1])))
    parts[FrozenSpace.__struct_fields__.index("waiting")] = {"fact.a": ["p"]}
    assert thaw_vouched(json.dumps(parts).encode()) is None


def thaw_vouched(data: bytes) -> Space | None:
    """What is made of a state whose digest is in the last entry, as software with a mistake could have written it."""
    content = json.loads(DIGESTED[-1].raw)
    content["state"] = digest_of(data)
    raw = canonical.encode(content, 80)
    return thaw_space(data, StoredEntry(raw, hash_entry(raw)))


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
    assert "no space" in str(check_space(good, "other").findings[0])
    bad = store_entries(forge(DELTA, setting("outcome/decision/verdict", "deny")))
    assert [finding.seq for finding in check_space(bad, SPACE).findings] == [3]


@pytest.mark.usefixtures("digests_everywhere")
def test_checking_a_store_compares_the_checkpoint() -> None:
    before = verify_space(SPACE, DIGESTED[:7])
    another = msgspec.structs.replace(before, mode=SpaceMode.OBSERVE)
    for seq, data, said in (
        (7, freeze_space(before), None),
        (9, freeze_space(before), "beyond the log"),
        (7, b"nothing", "does not fit the log"),
        (7, freeze_space(another), "does not fit the log"),
        (6, freeze_space(before), "does not fit the log"),
    ):
        store = store_entries(DIGESTED)
        store.put_checkpoint(STREAM, seq, data)
        findings = check_space(store, SPACE).findings
        assert findings == [] if said is None else said in str(findings[0])


def test_only_what_decides_a_proposal_has_a_trace_to_tell() -> None:
    with pytest.raises(TypeError, match="decides no proposal"):
        trace_decision(SPACE_AFTER, read_space_event(LOG[MODE]))
    assert isinstance(read_space_event(LOG[DELTA]).message, Propose)
    assert Head(8, LOG[8].event_hash) == SPACE_AFTER.head
