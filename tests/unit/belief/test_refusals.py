"""A refusal says what was wrong, where, what was found, what would be accepted and what to do next."""

from __future__ import annotations

from typing import Any

import pytest

from cmbs.belief.kernel.events import Event, Message
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.nearest import MAX_COMPARED, find_nearest
from cmbs.belief.kernel.refusals import refusal_of
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, InvalidHypothesisId, ObligationNotFound
from cmbs.messages import SessionPolicy
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line

FIELDS = {"code", "message", "field", "found", "accepted", "next"}


def refuse(line: Line, message: Message) -> dict[str, Any]:
    """The refusal of a message; the same later on, when the session has gone on."""
    told = line.tell(message)
    assert isinstance(told, Event)
    seq = told.body.seq
    refusal = refusal_of(Answer(line.session, message, seq))
    assert refusal is not None
    assert refusal.keys() >= FIELDS
    assert refusal["code"] == line.session.events.at(seq)[1].reason  # type: ignore[union-attr]
    for text in (refusal["message"], refusal["next"]):
        assert text[0] in "`'" or text[0] == text[0].lower()
        assert not text.endswith(".")
    later = line.fork()
    later.eliminate("later", *list(later.session.survivors)[:1])
    assert refusal_of(Answer(later.session, message, seq)) == refusal
    return refusal


LEAVE, END = VALIDATOR.request_exit("gate", None), VALIDATOR.request_termination(None)


@pytest.mark.req("GATES-REFUSE-01")
def test_a_threshold_says_how_many_are_missing() -> None:
    line = Line.over(*"abcd")
    line.tell(VALIDATOR.enter_obligation("gate", 2))
    line.eliminate("1", "a")
    refusal = refuse(line, LEAVE)
    assert (refusal["found"], refusal["accepted"]) == (1, 2)
    assert {name: refusal[name] for name in ("needed", "eliminated", "alive", "reachable")} == {
        "needed": 2,
        "eliminated": 1,
        "alive": 3,
        "reachable": True,
    }
    assert refusal["next"] == "eliminate 1 more, then ask to leave `gate` with REQUEST_EXIT"


@pytest.mark.req("GATES-REACH-01", "GATES-REFUSE-01")
@pytest.mark.parametrize(("force", "way_out"), [(False, "have an operator lift it"), (True, '{"force": true}')])
def test_what_cannot_be_met_any_more_says_so(force: bool, way_out: str) -> None:
    line = Line.over(*"abc", allow_force=force)
    line.tell(VALIDATOR.enter_obligation("gate", 4))
    line.eliminate("1", "a", "b")
    refusal = refuse(line, LEAVE)
    assert (refusal["needed"], refusal["eliminated"], refusal["alive"], refusal["reachable"]) == (4, 2, 1, False)
    assert "no elimination can open `gate` any more" in refusal["next"]
    assert way_out in refusal["next"]


@pytest.mark.req("GATES-REFUSE-01")
def test_an_active_obligation_is_named_with_what_it_takes_to_leave_it() -> None:
    line = Line.over(*"abc")
    line.tell(VALIDATOR.enter_obligation("gate", 1))
    refusal = refuse(line, END)
    assert (refusal["found"], refusal["needed"], refusal["eliminated"]) == (["gate"], 1, 0)
    line.tell(VALIDATOR.enter_obligation("other", 0))
    refusal = refuse(line, VALIDATOR.declare_conclusion("a", None))
    assert refusal["found"] == ["gate", "other"]
    assert "obligation `other` and 1 more must be left first" in refusal["message"]
    assert refusal["next"] == "first ask to leave `other` with REQUEST_EXIT"
    line.tell(VALIDATOR.request_exit("other", None))
    refusal = refuse(line, VALIDATOR.request_exit("other", None))
    assert (refusal["code"], refusal["accepted"], refusal["exited_seq"]) == ("obligation_not_active", ["gate"], 5)


@pytest.mark.req("GATES-REFUSE-01")
def test_too_many_survivors_are_counted_and_a_few_are_listed() -> None:
    line = Line.over(*(f"h{number:02}" for number in range(22)))
    refusal = refuse(line, END)
    assert (refusal["found"], refusal["accepted"], refusal["survivors"]) == (22, 1, "one of 22 survivors")
    assert refusal["next"] == "eliminate 21 more, with observations that contradict them"
    line.eliminate("1", "h00", "h01")
    assert refuse(line, END)["survivors"] == list(line.session.survivors)


@pytest.mark.req("GATES-REFUSE-01")
@pytest.mark.parametrize(("force", "way_out"), [(False, "declare another session"), (True, '{"force": true}')])
def test_where_nothing_is_left_the_way_out_is_named(force: bool, way_out: str) -> None:
    line = Line.over("a", allow_force=force, conclusions="survivors")
    line.eliminate("1", "a")
    refusal = refuse(line, END)
    assert (refusal["found"], refusal["survivors"]) == (0, [])
    assert way_out in refusal["next"]
    assert "nothing is left to conclude" in refuse(line, VALIDATOR.declare_conclusion("a", None))["next"]


@pytest.mark.req("GATES-REFUSE-01")
def test_unstable_conclusions_say_how_many_more_it_takes() -> None:
    line = Line.over("a", stability_window=3)
    assert refuse(line, END)["next"] == "declare the same conclusion 3 times more, such as `a`"
    for conclusion_id in ("b", "c", "c"):
        line.tell(VALIDATOR.declare_conclusion(conclusion_id, None))
    refusal = refuse(line, END)
    assert (refusal["found"], refusal["accepted"], refusal["conclusions"]) == (2, 3, ["c", "c", "b"])
    assert refusal["next"] == "declare the same conclusion 1 times more, such as `c`"
    # What is concluded later is no part of it.
    line.tell(VALIDATOR.declare_conclusion("c", None))
    assert refusal_of(Answer(line.session, END, line.session.head.seq - 1)) == refusal


@pytest.mark.req("GATES-REFUSE-01")
def test_a_conclusion_that_does_not_survive_is_told_what_does() -> None:
    line = Line.over("slow-dns", "disk-full", conclusions="survivors")
    refusal = refuse(line, VALIDATOR.declare_conclusion("slow-dsn", None))
    assert (refusal["found"], refusal["accepted"]) == ("slow-dsn", ["disk-full", "slow-dns"])
    assert refusal["next"] == "conclude `slow-dns`, if that is meant"
    line.eliminate("1", "disk-full")
    refusal = refuse(line, VALIDATOR.declare_conclusion("disk-full", None))
    assert "`disk-full` was eliminated" in refusal["message"]
    assert refusal["next"] == "conclude a hypothesis that survives, or eliminate further"


@pytest.mark.req("GATES-REFUSE-01")
def test_what_was_granted_has_no_refusal() -> None:
    line = Line.over("a")
    told = line.tell(END)
    assert isinstance(told, Event)
    assert refusal_of(Answer(line.session, END, 1)) is None
    assert refusal_of(Answer(line.session, told.message, 0)) is None


@pytest.mark.req("GATES-REFUSE-01")
def test_a_server_explains_a_refusal_by_its_event() -> None:
    server = BeliefServer()
    session_id = server.declare_session(ONTOLOGY, ["a", "b"]).session_id
    refused = server.request_termination(session_id)
    refusal = server.explain(session_id, refused.audit_event_id)
    assert refusal is not None
    assert (refusal["code"], refusal["found"]) == (refused.reason, 2)
    seen = server.eliminate(session_id, "s", "1", ["a"])
    assert server.explain(session_id, seen.audit_event_id) is None


@pytest.mark.req("GATES-REFUSE-02")
def test_an_unknown_hypothesis_is_answered_with_the_nearest_one() -> None:
    server = BeliefServer()
    policy = SessionPolicy(validate_hypotheses=True)
    session_id = server.declare_session(ONTOLOGY, ["slow-dns", "disk-full"], policy=policy).session_id
    with pytest.raises(InvalidHypothesisId) as caught:
        server.eliminate(session_id, "s", "1", ["slow-dsn", "zzz"])
    assert caught.value.details["accepted"] == {"slow-dsn": "slow-dns"}
    assert caught.value.message.endswith("did you mean `slow-dns`?")
    with pytest.raises(ObligationNotFound) as missing:
        server.request_exit(session_id, "none")
    assert missing.value.details["accepted"] == []


@pytest.mark.req("GATES-REFUSE-02")
def test_a_conflict_says_what_was_recorded() -> None:
    line = Line.over(*"abc")
    line.eliminate("1", "a", "b")
    with pytest.raises(Conflict) as caught:
        line.eliminate("1", "c")
    assert (caught.value.details["found"], caught.value.details["accepted"]) == (["c"], ["a", "b"])
    assert "`observation_id` of its own" in caught.value.details["next"]


def test_of_many_ids_those_that_begin_alike_are_compared() -> None:
    known = sorted(f"component-{number:06}" for number in range(3 * MAX_COMPARED))
    assert find_nearest("component-004321x", known) == "component-004321"
    assert find_nearest("component-00000", known) is not None
    assert find_nearest("entirely other", known) is None
    assert find_nearest("x", []) is None
