"""State digests: where they stand, what they are over, and what replay says of wrong ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

import pytest

from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import StoredEntry, canonical
from cmbs.ledger.state_digest import Spacing, digest_of, find_binding, is_digest_point, last_digest_point
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import ManualClock, SequentialIds
from tests.support.digest_points import digest_points_at
from tests.support.forging import sealed
from tests.support.store_fixture import declared
from tests.support.subtests import for_each

POINT = 3


@pytest.mark.req("ARCH-4-DIGEST-01")
def test_digest_points_are_a_thousand_events_and_a_quarter_of_the_length_apart() -> None:
    points = [seq for seq in range(20_000) if is_digest_point(seq)]
    assert points == [1000, 2000, 3000, 4000, 5000, 6250, 7812, 9765, 12206, 15257, 19071]
    assert [last_digest_point(seq) for seq in (-1, 0, 999, 1000, 6249, 6250)] == [None, None, None, 1000, 5000, 6250]
    assert is_digest_point(last_digest_point(2**53) or 0)


@cache
def recorded() -> tuple[str, list[StoredEntry]]:
    """A session whose entry `POINT` carries a state digest."""
    with digest_points_at([POINT]):
        server = BeliefServer(store=InMemoryStore(), clock=ManualClock(), ids=SequentialIds())
        session_id = declared(server, "abcdefghij")
        for number in range(5):
            server.eliminate(session_id, "s", str(number), ["abcdefghij"[number]])
        return session_id, server.log.read(session_id)


@cache
def true_digest() -> str:
    """The one that entry `POINT` carries."""
    session_id, log = recorded()
    return digest_of(freeze(verify_session(session_id, log[:POINT])))


@pytest.mark.req("ARCH-4-DIGEST-01")
def test_the_digest_is_that_of_the_state_before_its_entry_and_stands_at_digest_points_alone() -> None:
    session_id, log = recorded()
    data = freeze(verify_session(session_id, log[:POINT]))
    digests = [json.loads(entry.raw).get("state") for entry in log]
    expected = sha256(b"cmbs/1/state\0" + data).hexdigest()
    assert digests == [expected if seq == POINT else None for seq in range(6)]
    link = find_binding(data, log[POINT])
    assert link is not None
    assert (link.stream_id, link.seq) == (session_id, POINT)
    assert find_binding(data + b"x", log[POINT]) is None
    assert find_binding(data, log[2]) is None


@pytest.mark.req("ARCH-4-DIGEST-01")
def test_the_reader_of_an_audit_trace_gets_the_digest_and_can_hash_the_entry() -> None:
    with digest_points_at([POINT]):
        store = InMemoryStore()
        server = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds())
        session_id = declared(server, "abc")
        for number in range(4):
            server.eliminate(session_id, "s", str(number), [])
        entries, again = server.audit_trace(session_id), BeliefServer()
        assert entries[POINT].to_dict()["state"] == json.loads(store.read(session_id)[POINT].raw)["state"]
        again.restore_session(session_id, store.recover(session_id), entries)
        assert again.log.read(session_id) == store.read(session_id)


def altered(at: int, **members: Any) -> list[StoredEntry]:
    _, log = recorded()
    content = {**json.loads(log[at].raw), **members}
    if content["state"] is None:
        del content["state"]
    return [*log[:at], sealed(canonical.encode(content))]


@pytest.mark.req("ARCH-4-DIGEST-01")
@for_each(
    ("at", "make_state", "said"),
    [
        (POINT, lambda: "0" * 64, "state is not what its message leads to"),
        (POINT, lambda: true_digest().upper(), "state is not what its message leads to"),
        (POINT, lambda: {"digest": true_digest(), "format": 3}, "Expected `str"),
        (POINT, lambda: None, "state is not what its message leads to"),
        (POINT + 1, true_digest, "state is not what its message leads to"),
    ],
)
def test_a_wrong_digest_is_found(at: int, make_state: Callable[[], Any], said: str) -> None:
    session_id, log = recorded()
    with digest_points_at([POINT]):
        verify_session(session_id, log)
        with pytest.raises(LedgerCorrupt, match=said) as found:
            verify_session(session_id, altered(at, state=make_state()))
    assert found.value.seq == at


@pytest.mark.req("SS01-SCALE-01")
def test_streams_whose_state_does_not_grow_have_digest_points_evenly_apart() -> None:
    even = [seq for seq in range(5_001) if is_digest_point(seq, Spacing.EVEN)]
    assert even == [1000, 2000, 3000, 4000, 5000]
    found = [last_digest_point(seq, Spacing.EVEN) for seq in (-1, 0, 999, 1000, 6999, 7000)]
    assert found == [None, None, None, 1000, 6000, 7000]
