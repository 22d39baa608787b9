"""What lists say of sessions: from the state as from the bytes, bounded however long the session."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from cmbs.belief.kernel.checkpoint import freeze, thaw
from cmbs.belief.kernel.events import read_event
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.server import BeliefServer
from cmbs.ledger.listing import (
    MAX_LISTED_NAMES,
    MAX_TRAIL_POINTS,
    Attribute,
    Listing,
    Reports,
    SessionStanding,
    Trail,
    decode_listing,
    encode_listing,
    find_term,
    index_session,
)
from cmbs.ledger.state_digest import bind_state, digest_of
from cmbs.messages import Actor, ActorKind, DeclareOutcome, OntologyBundle
from cmbs.spi.session_search import SessionQuery
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import ManualClock, SequentialIds
from cmbs.testing.contracts.session_search import write_sessions
from cmbs.testing.history import History, play
from cmbs.testing.strategies.belief import histories
from tests.support.subtests import for_each

pytestmark = pytest.mark.req("FIND-INDEX-01")
AGENT, OTHER = (Actor(ActorKind.AGENT, name, authenticated=True, key_id="k") for name in ("agent", "other"))
ONTOLOGY = OntologyBundle("s", "1", "g", "1")


@given(history=histories())
def test_the_state_and_the_bytes_of_a_session_lead_to_the_same_listing(history: History) -> None:
    log = InMemoryStore()
    session_id = play(BeliefServer(store=log, clock=ManualClock(), ids=SequentialIds()), history).session_id
    entries, state, terms = log.read(session_id), None, set[bytes]()
    for number, stored in enumerate(entries, 1):
        state, item = BeliefFolding().fold(state, stored)
        assert item.session is not None
        terms.update(item.session.terms)
        indexed = index_session(entry.raw for entry in entries[:number])
        assert indexed is not None
        assert (indexed.listing, indexed.terms) == (item.session.listing, terms)
        assert decode_listing(encode_listing(indexed.listing)) == indexed.listing


def test_what_an_agent_declared_and_what_a_fork_repeats_lead_to_the_same_listing() -> None:
    log = InMemoryStore()
    server = BeliefServer(store=log, clock=ManualClock(), ids=SequentialIds())
    declared = asyncio.run(server.perform_async(server.declaration(ONTOLOGY, list("abc"), actor=AGENT)))
    assert isinstance(declared, DeclareOutcome)
    origin = declared.session_id
    report = server.requests.eliminate("s", "1", ["a"], None)
    asyncio.run(server.perform_async(server.requests.command(origin, report, actor=AGENT)))
    fork = server.fork_session(origin, actor=OTHER).session_id
    again = structs.replace(report, observation_id="2")
    asyncio.run(server.perform_async(server.requests.command(fork, again, actor=AGENT)))
    for session_id, agents in ((origin, ("agent",)), (fork, ("other", "agent"))):
        indexed = index_session(stored.raw for stored in log.read(session_id))
        (found,) = [each for each in server.find_sessions() if each.summary.session_id == session_id]
        assert indexed is not None
        assert indexed.listing == found.listing
        assert found.listing.reports.agents == agents


@example(drops=[1] * 4 * MAX_TRAIL_POINTS)
@given(drops=st.lists(st.integers(0, 3), max_size=400))
def test_a_trail_is_bounded_and_goes_down_from_the_universe_to_what_is_left(drops: list[int]) -> None:
    trail, left, seen = Trail(), 1_000, [(0, 1_000)]
    for seq, drop in enumerate(drops, 1):
        if drop:
            left -= drop
            trail = trail.drop(seq, left)
            seen.append((seq, left))
    series = trail.series(1_000)
    assert len(series) <= MAX_TRAIL_POINTS + 2
    assert (series[0], series[-1]) == (seen[0], seen[-1])
    assert series == [point for point in seen if point in series]
    if len(seen) <= MAX_TRAIL_POINTS:
        assert series == seen


def test_an_obligation_that_was_left_is_no_longer_listed() -> None:
    log = InMemoryStore()
    server = BeliefServer(store=log, clock=ManualClock(), ids=SequentialIds())
    session_id = server.declare_session(ONTOLOGY, list("abc")).session_id
    server.enter_obligation(session_id, "look", 1)
    server.eliminate(session_id, "s", "1", ["a"])
    assert server.request_exit(session_id, "look").approved
    indexed = index_session(stored.raw for stored in log.read(session_id))
    (found,) = server.find_sessions()
    assert indexed is not None
    assert indexed.listing == found.listing
    assert (found.listing.obligations, found.listing.n_obligations) == ((), 0)


def test_only_the_first_names_are_listed() -> None:
    reports = Reports()
    for number in range(3 * MAX_LISTED_NAMES):
        reports = reports.hear(f"source {number}", None if number % 2 else f"agent {number}", number, (5, 5))
    assert reports.sources == tuple(f"source {number}" for number in range(MAX_LISTED_NAMES))
    assert len(reports.agents) == MAX_LISTED_NAMES
    assert reports.hear("source 0", "agent 0", 9, (5, 5)) == reports


@for_each(
    ("terminated", "survivors", "conclusion", "standing"),
    [
        (True, 0, "c", SessionStanding.TERMINATED),
        (False, 0, "c", SessionStanding.CONTRADICTION),
        (False, 1, "c", SessionStanding.CONCLUDED),
        (False, 1, None, SessionStanding.OPEN),
    ],
)
def test_the_first_standing_that_holds_is_given(
    terminated: bool, survivors: int, conclusion: str | None, standing: SessionStanding
) -> None:
    listing = Listing("", {}, None, None, 3, survivors, "", "", "", (), 0, conclusion, terminated, Reports())
    assert listing.standing is standing


def test_two_attributes_never_share_a_term() -> None:
    assert len({find_term(attribute, "a", "b") for attribute in Attribute}) == len(Attribute)
    assert find_term(Attribute.LABEL, "a", "b\x00c") != find_term(Attribute.LABEL, "a\x00b", "c")


@for_each("raws", [[], [b""], [b"{}"], [b"\xff"], [b"[" * 10_000]])
def test_bytes_that_are_no_session_are_in_no_list(raws: list[bytes]) -> None:
    assert index_session(raws) is None


def test_a_session_from_a_checkpoint_has_the_listing_of_the_session() -> None:
    log = InMemoryStore()
    server = BeliefServer(store=log, clock=ManualClock(), ids=SequentialIds())
    session_id = server.declare_session(ONTOLOGY, list("abcdef"), title="t", labels={"a": "b"}).session_id
    for number, each in enumerate("abcd"):
        server.eliminate(session_id, f"source {number % 2}", each, [each, "a"])
    server.enter_obligation(session_id, "gate", 1)
    session, entries = server.current_session(session_id), log.read(session_id)
    data = freeze(session)
    server.enter_obligation(session_id, "next", 1)
    after = bind_state(read_event(log.read(session_id)[-1]), digest_of(data))
    thawed = thaw(data, entries[0], after.stored)
    assert thawed is not None
    assert (thawed.reports, thawed.case) == (session.reports, session.case)
    assert thawed.declared_ts == session.declared_ts


def test_a_query_takes_all_that_it_does_not_speak_of() -> None:
    (declared, *_) = write_sessions(1)
    indexed = index_session([declared.entry.raw])
    assert indexed is not None
    assert SessionQuery().takes(declared.stream_id, indexed)
    assert not SessionQuery(since="9").takes(declared.stream_id, indexed)
    assert not SessionQuery(until="1").takes(declared.stream_id, indexed)
