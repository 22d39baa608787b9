"""A session held against a store, as values: what is missing, what is foreign, and what it is recorded as."""

from __future__ import annotations

import dataclasses
from threading import Event
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from cmbs.belief.kernel.agreement import (
    Difference,
    ForeignTombstones,
    StoreReport,
    StoreState,
    find_difference,
    find_eliminated,
    group_foreign,
    name_some,
    observation_of,
    takes_foreign,
)
from cmbs.belief.kernel.events import Declare, Eliminate, Stamp
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.session import Session, decide_declare, decide_eliminate, evolve
from cmbs.belief.remote_calls import RemoteCalls
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.messages import EliminationRule, ForeignRule, OntologyBundle, SessionPolicy
from cmbs.spi import EliminationProvenance, RecoveredState
from cmbs.stores.memory import InMemoryStore
from tests.support.subtests import for_each

IDS = [f"h{number}" for number in range(8)]
SUBSETS = st.frozensets(st.sampled_from(IDS))


def session_after(gone: frozenset[str]) -> Session:
    message = Declare(OntologyBundle("space", "1", "graph", "1"), IDS, SessionPolicy())
    session = evolve(None, decide_declare("s", message, Stamp("e0", "2026-01-01T00:00:00.000000Z")))
    event = decide_eliminate(session, Eliminate("s", "1", sorted(gone)), Stamp("e1", "2026-01-01T00:00:01.000000Z"))
    return evolve(session, event)  # type: ignore[arg-type]


def recovered(universe: frozenset[str], eliminated: frozenset[str]) -> RecoveredState:
    return RecoveredState(universe, eliminated, universe - eliminated)


@pytest.mark.req("TEE-AGREE-07")
@given(SUBSETS, SUBSETS)
def test_a_store_agrees_exactly_where_it_has_all_that_the_log_eliminated(
    ours: frozenset[str], theirs: frozenset[str]
) -> None:
    session = session_after(ours)
    assert find_eliminated(session) == ours
    found = find_difference(session, session, recovered(frozenset(IDS), theirs))
    assert found == Difference(frozenset(), ours - theirs, theirs - ours)
    assert (found.reason == "") == (ours <= theirs)


@pytest.mark.req("TEE-AGREE-07")
@given(SUBSETS, SUBSETS, SUBSETS)
def test_what_is_eliminated_while_the_store_is_asked_is_neither_missing_nor_foreign(
    before: frozenset[str], during: frozenset[str], seen: frozenset[str]
) -> None:
    after = before | during
    state = recovered(frozenset(IDS), before | (seen & during))
    found = find_difference(session_after(before), session_after(after), state)
    assert found == Difference(frozenset(), frozenset(), frozenset())


@pytest.mark.req("TEE-AGREE-07")
@given(SUBSETS)
def test_another_universe_is_never_agreed_with(universe: frozenset[str]) -> None:
    found = find_difference(session_after(frozenset()), session_after(frozenset()), recovered(universe, frozenset()))
    assert found.misplaced == frozenset(IDS) - universe
    assert ("is another one" in found.reason) == (universe != frozenset(IDS))


@pytest.mark.req("TEE-FOREIGN-01")
@given(SUBSETS, st.dictionaries(st.sampled_from("xyz"), SUBSETS))
def test_every_foreign_tombstone_is_in_a_group(foreign: frozenset[str], said: dict[str, frozenset[str]]) -> None:
    sources = {EliminationProvenance(name, ""): ids for name, ids in said.items()}
    groups = group_foreign(foreign, sources)
    assert {name for group in groups for name in group.hypothesis_ids} == foreign
    for group in groups:
        if group.source_id != "unknown":
            assert set(group.hypothesis_ids) == said[group.source_id] & foreign
    assert StoreReport(StoreState.AGREES, "", groups).n_foreign >= len(foreign)


@pytest.mark.req("TEE-FOREIGN-02")
def test_the_observation_of_foreign_tombstones_follows_from_them_and_fits_an_id() -> None:
    first = ForeignTombstones("x" * 2000, "t" * 2000, ("a", "b"))
    source_id, observation_id = observation_of(first)
    assert max(len(source_id), len(observation_id)) <= 1024
    assert observation_of(first._replace(hypothesis_ids=("a",)))[1] != observation_id
    assert observation_of(first) == (source_id, observation_id)


@pytest.mark.req("TEE-AGREE-07")
@given(st.lists(st.sampled_from(IDS), unique=True).map(tuple), st.integers(1, 9))
def test_foreign_tombstones_are_split_without_loss(ids: tuple[str, ...], most: int) -> None:
    parts = list(ForeignTombstones("s", "t", ids).split(most))
    assert sum((part.hypothesis_ids for part in parts), ()) == ids
    assert all(part[:2] == ("s", "t") and 1 <= len(part.hypothesis_ids) <= most for part in parts)


@pytest.mark.req("TEE-AGREE-07")
@for_each(
    ("foreign", "eliminations", "terminated_seq", "taken"),
    [
        (ForeignRule.ELIMINATE, UNSET, None, True),
        (ForeignRule.ELIMINATE, EliminationRule.ANY, None, True),
        (ForeignRule.ELIMINATE, EliminationRule.OBSERVATIONS, None, False),
        (ForeignRule.ELIMINATE, UNSET, 1, False),
        (ForeignRule.IGNORE, UNSET, None, False),
        (UNSET, UNSET, None, False),
    ],
)
def test_foreign_tombstones_are_taken_where_the_policy_asks_and_a_free_hand_may_eliminate(
    foreign: Any, eliminations: Any, terminated_seq: int | None, taken: bool
) -> None:
    policy = SessionPolicy(foreign_tombstones=foreign, eliminations=eliminations)
    session = msgspec.structs.replace(session_after(frozenset()), policy=policy, terminated_seq=terminated_seq)
    assert takes_foreign(session) is taken
    observed = dataclasses.replace(policy, observers=("probe",))
    assert not takes_foreign(msgspec.structs.replace(session, policy=observed))


@pytest.mark.req("TEE-AGREE-07")
def test_a_reason_names_a_few_ids_and_counts_the_others() -> None:
    assert name_some(["b", "a"]) == "`a`, `b`"
    assert name_some(IDS) == "`h0`, `h1`, `h2`, `h3`, `h4` and 3 more"


@pytest.mark.req("TEE-AGREE-07")
def test_tombstones_beside_the_events_need_no_agreement() -> None:
    server = BeliefServer(store=InMemoryStore())
    session_id = server.declare_session(OntologyBundle("space", "1", "graph", "1"), IDS).session_id
    assert server.store_report(session_id) is server.check_store(session_id) is None
    assert server.find_disagreeing() == []
    assert msgspec.json.decode(server.stored_entries(session_id)[0].raw)["payload"].keys() == {
        *("hypotheses", "metadata", "ontology", "policy", "provider"),
    }


@pytest.mark.req("TEE-AGREE-07")
def test_a_declaration_speaks_of_its_store_by_name() -> None:
    message = Declare(OntologyBundle("space", "1", "graph", "1"), IDS, SessionPolicy(), store_id="")
    event = decide_declare("s", message, Stamp("e0", "2026-01-01T00:00:00.000000Z"))
    with pytest.raises(LedgerCorrupt, match="has no name"):
        verify_session("s", [event.stored])


@pytest.mark.req("TEE-AGREE-07")
def test_a_declaration_with_a_store_and_a_rule_verifies() -> None:
    policy = SessionPolicy(foreign_tombstones=ForeignRule.ELIMINATE)
    message = Declare(OntologyBundle("space", "1", "graph", "1"), IDS, policy, store_id="tee")
    event = decide_declare("s", message, Stamp("e0", "2026-01-01T00:00:00.000000Z"))
    session = verify_session("s", [event.stored])
    assert (session.store_id, session.policy) == ("tee", policy)


@pytest.mark.req("ARCH-2-SAGA-01")
def test_a_call_that_hangs_is_left_to_itself() -> None:
    calls, released = RemoteCalls(0.01), Event()
    with pytest.raises(StoreUnavailable, match=r"did not answer in 0\.01 seconds"):
        calls.ask(released.wait)
    released.set()
    calls.close()
