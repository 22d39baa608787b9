"""Replay: a log proves a state, and a forged one proves none, however well its hashes fit."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cmbs.belief.kernel.replay import catch_up, verify_session
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import canonical, to_audit_entry, verify_chain
from cmbs.messages import ProviderRef, SessionPolicy
from cmbs.testing import History
from cmbs.testing.strategies import belief as strategies
from tests.support.forging import Alteration, changing, changing_payload, forged, replacing, sealed, without
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line, describe, replay_steps
from tests.support.subtests import for_each

DECLARE, ELIMINATE, ENTER, EXIT, CONCLUDE, AGAIN, LEAVE, ACCEPTED, FORCE, LAST, TERMINATE = range(11)
REQUESTS = (EXIT, CONCLUDE, LEAVE, ACCEPTED, FORCE, TERMINATE)


def eventful() -> Line:
    """A log with every verb in it, granted and refused; the seqs are those named above."""
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b", "c", "d"], {"note": "x"}, SessionPolicy(), None), key="declared")
    line.tell(VALIDATOR.eliminate("s", "1", ["a", "zz"], {"why": ["m", 1]}))
    line.tell(VALIDATOR.enter_obligation("o", 1))
    line.tell(VALIDATOR.request_exit("o", None))
    line.tell(VALIDATOR.declare_conclusion("b", None))
    line.tell(VALIDATOR.eliminate("s", "2", ["b"], None), "key")
    line.tell(VALIDATOR.request_exit("o", {"k": 1}))
    line.tell(VALIDATOR.declare_conclusion("c", None))
    line.tell(VALIDATOR.request_termination({"force": True}))
    line.tell(VALIDATOR.eliminate("s", "3", ["d"], None))
    line.tell(VALIDATOR.request_termination(None))
    assert line.session.terminated_seq == TERMINATE
    return line


def refusal(line: Line, log: list[Any], seq: int) -> LedgerCorrupt:
    with pytest.raises(LedgerCorrupt) as found:
        verify_session(line.session_id, log)
    assert found.value.seq == seq, str(found.value)
    return found.value


# --- honest logs ------------------------------------------------------------------------------------------------------


@pytest.mark.req("LED-3-VERIFY-01", "ARCH-2-02", "ARCH-2-06", "BS-4.1-REPLAY-01")
@given(strategies.histories(), st.data())
def test_a_log_proves_the_states_that_it_was_written_from(history: History, data: st.DataObject) -> None:
    line = replay_steps(history)
    proven = verify_session(line.session_id, iter(line.log), line.session.head)
    assert describe(proven) == describe(line.session)
    # Catching up goes on from any place.
    place = data.draw(st.integers(1, len(line.log)))
    early = catch_up(line.session_id, None, line.log[:place])
    late = catch_up(line.session_id, early, line.log[place:])
    assert early is not None
    assert late is not None
    assert (describe(early), describe(late)) == (describe(line.states[place - 1]), describe(line.session))


def test_nothing_follows_from_nothing() -> None:
    assert catch_up("session", None, []) is None
    line = eventful()
    assert catch_up(line.session_id, line.session, []) is line.session
    with pytest.raises(LedgerCorrupt, match="the log is empty") as found:
        verify_session("session", [])
    assert (found.value.seq, found.value.stream_id) == (0, "session")


def test_catching_up_on_what_is_known_already_is_refused() -> None:
    line = eventful()
    with pytest.raises(LedgerCorrupt, match="seq is `10`, expected `11`"):
        catch_up(line.session_id, line.session, line.log[-1:])


@pytest.mark.req("BS-6.5-PROBE-07")
def test_replaying_a_probe_needs_no_provider() -> None:
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b"], None, SessionPolicy(), ProviderRef("p", "1")))
    responses: list[Any] = [{"x": [1.5, None]}, "no", None, 7, [], False]
    for number, response in enumerate(responses):
        line.tell(VALIDATOR.eliminate("provider", f"probe {number}", ["a"], None, VALIDATOR.probe("probe", response)))
    assert describe(verify_session(line.session_id, line.log)) == describe(line.session)


# --- forged logs, every hash of which is right ------------------------------------------------------------------------


class Forgery(NamedTuple):
    seq: int
    alter: Alteration
    reason: str


DELTA, OUTCOME = r"^delta\.eliminated is not", r"^outcome(\.\w+)? is not"
OTHER_HASH = "11" * 32
FORGERIES: dict[str, Forgery] = {
    # What an event changed.
    "an elimination of more than was asked": Forgery(ELIMINATE, changing(delta={"eliminated": ["a", "b"]}), DELTA),
    "an elimination of less": Forgery(ELIMINATE, changing(delta={"eliminated": []}), DELTA),
    "an elimination of something else": Forgery(ELIMINATE, changing(delta={"eliminated": ["d"]}), DELTA),
    "an elimination of what is unknown": Forgery(ELIMINATE, changing(delta={"eliminated": ["a", "zz"]}), DELTA),
    "an elimination of what is gone": Forgery(AGAIN, changing(delta={"eliminated": ["a", "b"]}), DELTA),
    "an elimination by another verb": Forgery(ENTER, changing(delta={"eliminated": ["b"]}), DELTA),
    "survivors before": Forgery(ELIMINATE, changing(survivors_before_hash=OTHER_HASH), "survivors_before_hash is not"),
    "survivors after": Forgery(ELIMINATE, changing(survivors_after_hash=OTHER_HASH), "survivors_after_hash is not"),
    "survivors of the declaration": Forgery(
        DECLARE, changing(survivors_after_hash=OTHER_HASH), "survivors_after_hash is not"
    ),
    # What was decided.
    "an exit below the threshold": Forgery(EXIT, changing(outcome={"approved": True, "reason": "approved"}), OUTCOME),
    "a conclusion under an obligation": Forgery(
        CONCLUDE, changing(outcome={"accepted": True, "reason": "accepted"}), OUTCOME
    ),
    "a termination with two survivors": Forgery(
        FORCE, changing(outcome={"approved": True, "reason": "approved"}), OUTCOME
    ),
    "a force that was not allowed": Forgery(FORCE, changing(outcome={"approved": True, "reason": "forced"}), OUTCOME),
    "a refused exit": Forgery(LEAVE, changing(outcome={"approved": False, "reason": "below_threshold"}), OUTCOME),
    "another reason": Forgery(FORCE, changing(outcome={"approved": False, "reason": "obligation_active"}), OUTCOME),
    "an unknown reason": Forgery(FORCE, changing(outcome={"approved": False, "reason": "because"}), OUTCOME),
    "accepted for approved": Forgery(EXIT, changing(outcome={"accepted": False, "reason": "below_threshold"}), OUTCOME),
    "an outcome without a reason": Forgery(EXIT, changing(outcome={"approved": False}), OUTCOME),
    "no outcome": Forgery(EXIT, changing(outcome=None), OUTCOME),
    "an outcome where there is none": Forgery(ELIMINATE, changing(outcome={}), OUTCOME),
    "another universe root": Forgery(
        DECLARE, changing(outcome={"universe_root": OTHER_HASH, "universe_size": 4}), OUTCOME
    ),
    "notes added": Forgery(EXIT, changing(notes="all is well"), "notes is not"),
    "notes removed": Forgery(FORCE, without("notes"), "notes is not"),
    "empty notes": Forgery(EXIT, changing(notes=None), "canonical form"),
    # What was asked.
    "ids out of order": Forgery(ELIMINATE, changing_payload(eliminated=["zz", "a"]), "not sorted and single"),
    "ids twice": Forgery(ELIMINATE, changing_payload(eliminated=["a", "a"]), "not sorted and single"),
    "hypotheses out of order": Forgery(DECLARE, changing_payload(hypotheses=["b", "a"]), "not sorted and single"),
    "a hypothesis twice": Forgery(DECLARE, changing_payload(hypotheses=["a", "a"]), "not sorted and single"),
    "no hypotheses": Forgery(DECLARE, changing_payload(hypotheses=[]), "no hypotheses"),
    "another universe": Forgery(DECLARE, changing_payload(hypotheses=["a", "b"]), "is not what its message leads to"),
    "a negative window": Forgery(
        DECLARE,
        changing_payload(policy={"allow_force": False, "stability_window": -1, "validate_hypotheses": False}),
        "not a count",
    ),
    "a negative threshold": Forgery(ENTER, changing_payload(min_total_eliminations=-1), "not a count"),
    "an inexact threshold": Forgery(
        ENTER, replacing(b'"min_total_eliminations":1', b'"min_total_eliminations":9007199254740992'), "not a count"
    ),
    "a fractional threshold": Forgery(
        ENTER, changing_payload(min_total_eliminations=0.5), "malformed ENTER_OBLIGATION"
    ),
    "an observation twice": Forgery(
        AGAIN, changing_payload(observation_id="1", eliminated=["a", "zz"]), "repeats event 1"
    ),
    "an observation with other ids": Forgery(AGAIN, changing_payload(observation_id="1"), "CONFLICT"),
    "an obligation twice": Forgery(
        CONCLUDE,
        changing(verb="ENTER_OBLIGATION", payload={"obligation_id": "o", "min_total_eliminations": 0}),
        "CONFLICT",
    ),
    "an exit from nowhere": Forgery(EXIT, changing_payload(obligation_id="never entered"), "OBLIGATION_NOT_FOUND"),
    "metadata that is no object": Forgery(DECLARE, changing_payload(metadata=[1]), "must be an object"),
    "a justification that is no object": Forgery(ELIMINATE, changing_payload(justification="x"), "must be an object"),
    "a context that is no object": Forgery(FORCE, changing_payload(context=True), "must be an object"),
    "a probe without a provider": Forgery(
        AGAIN, changing_payload(probe={"probe_id": "p", "response": 1}), "probes need a session"
    ),
    "an unknown member": Forgery(EXIT, changing_payload(more=1), "malformed REQUEST_EXIT"),
    "a missing member": Forgery(EXIT, changing(payload={"context": None}), "malformed REQUEST_EXIT"),
    "a default left out": Forgery(EXIT, changing(payload={"obligation_id": "o"}), "canonical form"),
    "no payload": Forgery(EXIT, changing(payload=None), "malformed REQUEST_EXIT"),
    # Who, when and in which verb.
    "another verb": Forgery(EXIT, changing(verb="DECLARE_CONCLUSION"), "malformed DECLARE_CONCLUSION"),
    "a verb that only reads": Forgery(EXIT, changing(verb="QUERY_BELIEF"), "unknown verb `QUERY_BELIEF`"),
    "a verb in another case": Forgery(EXIT, changing(verb="request_exit"), "unknown verb"),
    "an event id twice": Forgery(
        ENTER, changing(event_id="00000000-0000-4000-8000-000000000001"), "its event id is that of event 0"
    ),
    "a time without microseconds": Forgery(ENTER, changing(ts="2026-01-01T00:00:00Z"), "is not a moment"),
    "a time in another zone": Forgery(ENTER, changing(ts="2026-01-01T00:00:00.000000+00:00"), "is not a moment"),
    "a time in words": Forgery(ENTER, changing(ts="yesterday"), "is not a moment"),
    "a time with a line end": Forgery(ENTER, changing(ts="2026-01-01T00:00:00.000000Z\n"), "is not a moment"),
    "a key for another request": Forgery(CONCLUDE, changing(idempotency_key="declared"), "CONFLICT"),
    # The same content in other bytes.
    "white space": Forgery(ELIMINATE, replacing(b'"seq":1', b'"seq": 1'), "canonical form"),
    "a line end": Forgery(ELIMINATE, lambda raw: raw + b"\n", "canonical form"),
    "white space in the payload": Forgery(
        ELIMINATE, replacing(b'"source_id":"s"', b'"source_id" :"s"'), "canonical form"
    ),
    "an escape": Forgery(ELIMINATE, replacing(b'"source_id":"s"', b'"source_id":"\\u0073"'), "canonical form"),
    "an order of keys": Forgery(
        ELIMINATE,
        lambda raw: json.dumps(json.loads(raw), separators=(",", ":"))[:-1].encode() + b',"notes":null}',
        "canonical",
    ),
    # Who asked: a session records no caller that no key has authenticated.
    "an actor that was not authenticated": Forgery(
        ELIMINATE,
        changing(actor={"authenticated": False, "id": "x", "key_id": None, "kind": "agent"}),
        "was not authenticated",
    ),
    "an actor of no kind": Forgery(
        ELIMINATE,
        changing(actor={"authenticated": True, "id": "x", "key_id": None, "kind": "ghost"}),
        "not a ledger entry",
    ),
    "a key twice": Forgery(ELIMINATE, replacing(b'"seq":1,', b'"seq":1,"seq":1,'), "canonical form"),
    "a key twice in the payload": Forgery(
        ENTER, replacing(b'"obligation_id":"o"', b'"obligation_id":"x","obligation_id":"o"'), "canonical form"
    ),
    "minus zero": Forgery(DECLARE, replacing(b'"seq":0', b'"seq":-0'), "canonical form"),
    "white space in a justification": Forgery(ELIMINATE, replacing(b'["m",1]', b'["m", 1]'), "not canonical JSON"),
    "a key twice in a justification": Forgery(
        ELIMINATE, replacing(b'{"why":', b'{"why":0,"why":'), "canonical|duplicate"
    ),
    "a float for a whole number": Forgery(ELIMINATE, replacing(b'["m",1]', b'["m",1.0]'), "not canonical JSON"),
    "an inexact number": Forgery(ELIMINATE, replacing(b'["m",1]', b'["m",9007199254740993]'), "not exact in I-JSON"),
    "an endless justification": Forgery(
        ELIMINATE, replacing(b'["m",1]', b"[" * 900 + b"]" * 900), "json_depth|recursion"
    ),
    "a justification in no text": Forgery(ELIMINATE, replacing(b'"m"', b'"\xff"'), "malformed JSON"),
}


@pytest.mark.req("LED-3-VERIFY-02", "LED-3-VERIFY-08", "LED-3-VERIFY-10", "BS-6.5-SERVER-04")
@for_each("name", FORGERIES)
def test_a_forgery_with_every_hash_right_is_refused_where_it_was_made(name: str) -> None:
    seq, alter, reason = FORGERIES[name]
    line = eventful()
    log = forged(line.session_id, line.log, seq, alter)
    assert len(log) > seq
    assert log[:seq] == line.log[:seq]
    assert log[seq] != line.log[seq]
    found = refusal(line, log, seq)
    assert found.details["stream_id"] == line.session_id
    assert re.search(reason, found.reason)


def test_the_chain_alone_does_not_notice_a_forgery_with_every_hash_right() -> None:
    # So a verifier that only follows hashes is not enough; this is what replay adds.
    line = eventful()
    log = forged(line.session_id, line.log, CONCLUDE, FORGERIES["a conclusion under an obligation"].alter)
    assert verify_chain(line.session_id, log).seq == len(log) - 1
    assert refusal(line, log, CONCLUDE).details["event_id"] == to_audit_entry(line.log[CONCLUDE]).event_id


@pytest.mark.req("LED-3-VERIFY-08")
@given(strategies.histories(), st.data())
def test_no_member_of_any_entry_can_be_set_to_what_it_was_not(history: History, data: st.DataObject) -> None:
    line = replay_steps(history)
    seq = data.draw(st.integers(0, len(line.log) - 1))
    content = json.loads(line.log[seq].raw)
    # An attacker can make up when an event happened and what it is called, but nothing that the rules decide.
    decided = {
        "delta": st.lists(st.sampled_from(line.session.universe.ids), max_size=3).map(lambda ids: {"eliminated": ids}),
        "outcome": st.sampled_from(
            [None, {"approved": True, "reason": "approved"}, {"accepted": True, "reason": "accepted"}]
        ),
        "survivors_before_hash": st.sampled_from([OTHER_HASH, content["survivors_after_hash"]]),
        "survivors_after_hash": st.sampled_from([OTHER_HASH, content["survivors_before_hash"]]),
        "prev_event_hash": st.just(OTHER_HASH),
        # What a note says is not compared, only whether there is one.
        "notes": st.just(None) if "notes" in content else st.sampled_from([None, "", "a note"]),
        "seq": st.integers(0, 20),
        "stream_id": strategies.ids(3),
        "format": st.sampled_from(["", "cmbs/0", None, 3]),
    }
    name = data.draw(st.sampled_from(sorted(decided)))
    value = data.draw(decided[name])
    altered = canonical.encode({**content, name: value})
    assume(altered != line.log[seq].raw)
    assert refusal(line, forged(line.session_id, line.log, seq, lambda _: altered), seq).seq == seq


# --- entries that no caller could have been allowed to add ------------------------------------------------------------


def appended(line: Line, content: dict[str, Any]) -> list[Any]:
    """The log and one more entry of this content, in its right place."""
    head = line.session.head
    return [
        *line.log,
        sealed(canonical.encode({**content, "seq": head.seq + 1, "prev_event_hash": head.event_hash.hex()})),
    ]


@for_each("seq", range(TERMINATE + 1))
def test_nothing_can_be_said_again_in_the_log(seq: int) -> None:
    line = eventful()
    content = {**json.loads(line.log[seq].raw), "event_id": "another"}
    content.pop("idempotency_key", None)
    found = refusal(line, appended(line, content), TERMINATE + 1)
    wanted = {DECLARE: "CONFLICT", ELIMINATE: "repeats", AGAIN: "repeats", LAST: "repeats"}.get(
        seq, "SESSION_TERMINATED"
    )
    assert wanted in found.reason


@pytest.mark.parametrize("seq", [DECLARE, AGAIN])
def test_nothing_can_be_said_again_under_its_key(seq: int) -> None:
    line = eventful()
    content = {**json.loads(line.log[seq].raw), "event_id": "another"}
    assert f"repeats event {seq}" in refusal(line, appended(line, content), TERMINATE + 1).reason


def test_a_log_that_begins_with_something_else_is_refused() -> None:
    line = eventful()
    content = {**json.loads(line.log[ENTER].raw), "seq": 0, "prev_event_hash": "00" * 32}
    found = refusal(line, [sealed(canonical.encode(content))], 0)
    assert "the first event declares the session, not ENTER_OBLIGATION" in found.reason
