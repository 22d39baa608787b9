"""What survives without one actor: the eliminations of all others, applied to the universe."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cmbs.belief.kernel.checkpoint import freeze, thaw
from cmbs.belief.kernel.events import Eliminate, read_event
from cmbs.belief.kernel.forks import find_difference, fork_declaration
from cmbs.belief.kernel.independence import survivors_without
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.survivors import BLOCK_BITS
from cmbs.errors import EventNotFound, LedgerCorrupt
from cmbs.ledger.state_digest import bind_state, digest_of
from cmbs.messages import Origin, ProviderRef, SessionPolicy, UnknownIndependence
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line, fork_of

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
def test_a_fork_keeps_who_eliminated_what() -> None:
    line = line_over(list("abcde"), [Told("ann", ["a"]), Told(None, ["e"]), Told("bob", ["d"])])
    fork = fork_of(line, "fork", "operator", left_out=(3,))
    fork.eliminate("own", "b", actor="bob")
    # By its entry it would be the operator's, and ann would have opened her own gate.
    assert list(survivors_without(fork.session, "ann").survivors) == ["a", "c", "d", "e"]
    # What ann said of the origin counts for bob in the fork, as it would have in the origin.
    assert list(survivors_without(fork.session, "bob").survivors) == ["b", "c", "d", "e"]
    again = fork_of(fork, "again", "operator")
    for actor_id in ("ann", "bob", "operator"):
        kept = list(survivors_without(fork.session, actor_id).survivors)
        assert list(survivors_without(again.session, actor_id).survivors) == kept
        assert list(survivors_without(verify_session("again", again.log), actor_id).survivors) == kept
    assert find_difference(again.session.origin, fork.log, again.log) is None  # type: ignore[arg-type]


@pytest.mark.req("GATES-IND-02")
def test_a_fork_that_says_otherwise_who_eliminated_is_found() -> None:
    line = line_over(list("abc"), [Told("ann", ["a"])])
    fork = fork_of(line, "fork", "operator")
    assert fork.session.origin is not None
    forged = Line(fork_declaration(read_event(line.log[0]), fork.session.origin), "forged", actor="operator")
    forged.tell(replace(message_in(fork, 1), first_sent_by="bob"))
    assert (
        find_difference(fork.session.origin, line.log, forged.log)
        == f"event 1 is not that of its origin `{line.session_id}`"
    )
    others = replace(fork.session.origin, declared_by=("bob",))
    assert "names others than those who declared" in str(find_difference(others, line.log, fork.log))


@pytest.mark.req("GATES-IND-02")
def test_only_what_a_fork_repeats_names_who_sent_it_first() -> None:
    line = line_over(list("abc"), [Told("ann", ["a"])])
    fork = fork_of(line, "fork", "operator")
    for each in (line, fork):
        each.tell(replace(message_in(line, 1), observation_id="own", first_sent_by="bob"), actor="ann")
        with pytest.raises(LedgerCorrupt, match="repeats nothing"):
            verify_session(each.session_id, each.log)
    nameless = Line(
        fork_declaration(read_event(line.log[0]), Origin(line.session_id, 1, line.session.head.event_hash.hex())), "f"
    )
    with pytest.raises(LedgerCorrupt, match="who declared its origin"):
        verify_session("f", nameless.log)


def message_in(line: Line, seq: int) -> Eliminate:
    message = read_event(line.log[seq]).message
    assert isinstance(message, Eliminate)
    return message


def unknown_to(line: Line, *actor_ids: str) -> list[UnknownIndependence | None]:
    return [survivors_without(line.session, actor_id).unknown for actor_id in actor_ids]


@pytest.mark.req("GATES-IND-03")
def test_what_others_ruled_out_is_unknown_to_who_declared_the_session_and_without_keys_to_all() -> None:
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b"], None, SessionPolicy(), None), actor="ann")
    line.eliminate("0", "a", actor="bob")
    assert unknown_to(line, "ann", "bob") == [UnknownIndependence.DECLARED, None]
    assert unknown_to(line_over(["a"], []), "ann") == [UnknownIndependence.NO_KEYS]
    assert verify_session(line.session_id, line.log).declared_by == "ann"


@pytest.mark.req("GATES-IND-03")
def test_what_others_ruled_out_is_unknown_to_who_forked_the_session_and_who_declared_its_origin() -> None:
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b"], None, SessionPolicy(), None), actor="ann")
    fork = fork_of(line, "fork", "bob")
    assert unknown_to(fork, "ann", "bob", "cyd") == [UnknownIndependence.DECLARED, UnknownIndependence.FORKED, None]
    again = fork_of(fork, "again", "cyd")
    assert unknown_to(again, "ann", "bob", "cyd", "dan") == [
        UnknownIndependence.DECLARED,
        UnknownIndependence.DECLARED,
        UnknownIndependence.FORKED,
        None,
    ]
    keyless = fork_of(line_over(["a"], []), "keyless", "bob")
    assert unknown_to(keyless, "ann", "bob") == [UnknownIndependence.NO_KEYS, UnknownIndependence.FORKED]


@pytest.mark.req("GATES-IND-03")
def test_what_others_ruled_out_is_unknown_to_who_put_the_kit_on_record() -> None:
    provider = ProviderRef("kit", "1", "0" * 64, "ann")
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b"], None, SessionPolicy(), provider), actor="harness")
    assert unknown_to(line, "ann", "bob") == [UnknownIndependence.PUT_KIT, None]


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
