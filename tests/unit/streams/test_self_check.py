"""What a checkpoint spares the first use of a stream is decided again in the background, and a lie is found out."""

from __future__ import annotations

from contextlib import closing
from threading import Event
from typing import Any

import pytest
from msgspec import structs

from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.events import read_event
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import LedgerCorrupt, StoreUnavailable
from cmbs.ledger import StoredEntry
from cmbs.ledger.state_digest import bind_state, digest_of
from cmbs.streams import self_check
from cmbs.streams.cache import Streams
from cmbs.streams.self_check import SelfCheck
from cmbs.testing import FailingStore
from tests.support.spaces import BlockingStore
from tests.support.store_fixture import declared

pytestmark = pytest.mark.usefixtures("digests_everywhere")
WAIT_SECONDS = 20


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(self_check, "_EVENTS_AT_ONCE", 2)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Set once a stream was found out."""
    event, distrust = Event(), Streams._distrust

    def announce(self: Streams[Any], stream_id: str) -> None:
        distrust(self, stream_id)
        event.set()

    monkeypatch.setattr(Streams, "_distrust", announce)
    return event


def live() -> tuple[str, list[StoredEntry]]:
    with closing(BeliefServer(store=BlockingStore())) as server:
        session_id = declared(server)
        server.enter_obligation(session_id, "gate", 3)
        server.eliminate(session_id, "s", "1", ["a"])
        server.eliminate(session_id, "s", "2", ["b"])
        return session_id, server.stored_entries(session_id)


def store_of(session_id: str, entries: list[StoredEntry], checkpoint: bytes) -> BlockingStore:
    store, state = BlockingStore(), None
    for stored in entries:
        state, append = BeliefFolding().fold(state, stored)
        store.append([append])
    store.put_checkpoint(session_id, len(entries) - 1, checkpoint)
    return store


def forge() -> tuple[str, BlockingStore]:
    """A log whose last entry, and nothing else, vouches for a state without the obligation."""
    session_id, entries = live()
    before = verify_session(session_id, entries[:-1])
    lie = freeze(structs.replace(before, active=()))
    last = bind_state(read_event(entries[-1]), digest_of(lie))
    return session_id, store_of(session_id, [*entries[:-1], last.stored], lie)


@pytest.mark.req("SELF-CHECK-01")
def test_a_state_that_only_the_newest_entry_vouches_for_is_found_out(found: Event) -> None:
    session_id, store = forge()
    app = create_app(BeliefServer(store=store))
    server = app.service.belief_server
    assert server.query_belief(session_id).active_obligation_id is None
    assert found.wait(WAIT_SECONDS)
    for ask in (
        lambda: server.query_belief(session_id),
        lambda: server.eliminate(session_id, "s", "3", ["c"]),
    ):
        with pytest.raises(LedgerCorrupt, match="state"):
            ask()
    with pytest.raises(StoreUnavailable, match="its past does not verify"):
        app.service.check_ready()
    app.close()


def check(store: BlockingStore | FailingStore[BlockingStore], session_id: str, last_seq: int) -> list[str]:
    """The streams that a check to its end distrusts."""
    distrusted: list[str] = []
    checker = SelfCheck(store, BeliefFolding(), distrusted.append)
    checker.submit(session_id, last_seq)
    thread = checker._thread
    assert thread is not None
    thread.join(WAIT_SECONDS)
    checker.close()
    return distrusted


@pytest.mark.req("SELF-CHECK-01")
def test_a_true_past_is_trusted_and_a_hole_or_a_missing_end_is_found() -> None:
    session_id, entries = live()
    store = store_of(session_id, entries, b"")
    assert check(store, session_id, len(entries) - 1) == []
    assert check(store, session_id, len(entries)) == [session_id]
    del store._streams[session_id].entries[1]
    assert check(store, session_id, len(entries) - 1) == [session_id]


def test_a_log_that_does_not_answer_is_not_distrusted() -> None:
    session_id, entries = live()
    store = FailingStore(store_of(session_id, entries, b""))
    store.fail("read")
    assert check(store, session_id, 1) == []
    assert store.calls == ["read"]


def test_nothing_is_checked_once_it_is_closed() -> None:
    session_id, entries = live()
    store = FailingStore(store_of(session_id, entries, b""))
    checker = SelfCheck(store, BeliefFolding(), lambda _: None)
    checker.close()
    checker.submit(session_id, 1)
    assert store.calls == []
