"""What survives without one actor: the eliminations of all others, applied to the universe."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.checkpoint import freeze, thaw
from cmbs.belief.kernel.events import read_event
from cmbs.belief.kernel.forks import fork_declaration
from cmbs.belief.kernel.independence import survivors_without
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.survivors import BLOCK_BITS
from cmbs.errors import EventNotFound
from cmbs.ledger.state_digest import bind_state, digest_of
from cmbs.messages import Origin
from tests.support.kernel import VALIDATOR, Line

ACTORS = (None, "ann", "bob", "cyd")
# More than one block of bits, and not a whole number of them.
MANY = [f"h{number:05}" for number in range(2 * BLOCK_BITS + 77)]


class Told(NamedTuple):
    actor: str | None
    ids: list[str]


def tellings(ids: list[str], max_ids: int = 4) -> st.SearchStrategy[list[Told]]:
    listed = st.lists(st.sampled_from([*ids, "unknown"]), max_size=max_ids)
    return st.lists(st.builds(Told, st.sampled_from(ACTORS), listed), max_size=8)


def line_over(ids: list[str], told: list[Told]) -> Line:
    line = Line.over(*ids)
    for number, each in enumerate(told):
        line.eliminate(str(number), *each.ids, actor=each.actor)
    return line


def expected(ids: list[str], told: list[Told], actor_id: str) -> list[list[str]]:
    """The law itself, after each telling: a session that is told all but what the actor says, or who knows who."""
    without, survivors = Line.over(*ids), []
    for number, each in enumerate([None, *told]):
        if each is not None and each.actor not in (None, actor_id):
            without.eliminate(str(number), *each.ids, actor=each.actor)
        survivors.append(list(without.session.survivors))
    return survivors


@pytest.mark.req("GATES-IND-01")
@given(st.data())
def test_it_is_what_a_replay_without_the_eliminations_of_the_actor_leads_to(data: st.DataObject) -> None:
    ids = data.draw(st.sampled_from([list("abcde"), MANY]))
    told = data.draw(tellings(ids, 4 if len(ids) < BLOCK_BITS else 40))
    line = line_over(ids, told)
    for actor_id in ("ann", "bob", "someone else"):
        survivors = expected(ids, told, actor_id)
        for seq, wanted in enumerate(survivors):
            found = survivors_without(line.session, actor_id, seq)
            assert list(found.survivors) == wanted
            assert found.n_survivors == len(found.survivors) == len(wanted)
            assert set(line.states[seq].survivors) <= set(wanted)
        now = survivors_without(line.session, actor_id)
        assert list(now.survivors) == survivors[-1]
        assert [each for each in [*ids[:50], "unknown", 1] if each in now.survivors] == [
            each for each in ids[:50] if each in set(now.survivors)
        ]


@pytest.mark.req("GATES-IND-01")
@given(tellings(list("abcde")))
def test_replay_and_checkpoints_lead_to_the_same_independent_beliefs(told: list[Told]) -> None:
    line = line_over(list("abcde"), told)
    proven = verify_session(line.session_id, line.log)
    following = line.decide(VALIDATOR.declare_conclusion("a", None))
    frozen = freeze(line.session)
    at = bind_state(following, digest_of(frozen))  # type: ignore[type-var]
    thawed = thaw(frozen, line.log[0], at.stored)  # type: ignore[union-attr]
    assert thawed is not None
    for actor_id in ("ann", "bob"):
        live = list(survivors_without(line.session, actor_id).survivors)
        assert list(survivors_without(proven, actor_id).survivors) == live
        assert list(survivors_without(thawed, actor_id).survivors) == live


@pytest.mark.req("GATES-IND-02")
def test_what_no_authenticated_actor_eliminated_counts_as_everyones_own() -> None:
    line = line_over(list("abc"), [Told(None, ["a", "b"])])
    assert list(line.session.survivors) == ["c"]
    for actor_id in ("ann", "bob"):
        assert list(survivors_without(line.session, actor_id).survivors) == ["a", "b", "c"]


@pytest.mark.req("GATES-IND-01")
def test_an_elimination_that_came_second_counts_for_the_one_who_came_first() -> None:
    line = line_over(list("abc"), [Told("ann", ["a", "b"]), Told("bob", ["b", "c"])])
    assert list(survivors_without(line.session, "ann").survivors) == ["a"]
    assert list(survivors_without(line.session, "bob").survivors) == ["c"]
    # What both have said, each of them could have said alone.
    assert list(survivors_without(line.session, "cyd").survivors) == []


@pytest.mark.req("GATES-IND-02")
def test_what_a_fork_repeats_counts_as_everyones_own() -> None:
    line = line_over(list("abc"), [Told("ann", ["a"])])
    origin = Origin(line.session_id, 1, line.session.head.event_hash.hex())
    fork = Line(fork_declaration(read_event(line.log[0]), origin), "fork")
    fork.eliminate("0", "a", actor="operator")
    fork.eliminate("1", "b", actor="bob")
    # By its entry it would be the operator's, and ann would have opened her own gate.
    assert list(survivors_without(fork.session, "ann").survivors) == ["a", "c"]
    assert list(survivors_without(fork.session, "bob").survivors) == ["a", "b", "c"]


def test_there_is_no_belief_of_an_event_that_is_not_there() -> None:
    line = Line.over("a")
    for nowhere in (-1, 1):
        with pytest.raises(EventNotFound):
            survivors_without(line.session, "ann", nowhere)


@pytest.mark.req("GATES-IND-01")
def test_blocks_of_which_nothing_is_left_are_passed_over() -> None:
    line = line_over(MANY, [Told("ann", MANY[:-1]), Told("bob", MANY[1:])])
    assert list(survivors_without(line.session, "bob").survivors) == MANY[-1:]
    assert list(survivors_without(line.session, "ann").survivors) == MANY[:1]
    assert survivors_without(line.session, "cyd").n_survivors == 0
