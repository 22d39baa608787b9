"""Every column of every table of a file, changed behind the server's back: what is served is what was, or an error.

Lists go by rows that nothing else vouches for: one that is gone, or moved in their order, is for `fsck` to find.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.spi.stored_rows import LISTINGS, SESSIONS
from cmbs.stores import Store, open_store
from cmbs.streams import self_check
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.server import SubstrateServer
from cmbs.testing import ManualClock, SequentialIds
from tests.support.effort import EFFORT
from tests.support.epochs import epochs_of
from tests.support.in_process import Client, client_of
from tests.support.mutations import Mutation, SQLiteDatabase, mutations_of
from tests.support.space_client import OPS
from tests.support.spaces import SPACE, World, call, caller_tool, delta
from tests.support.store_fixture import declared

SESSION, OTHER = (f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 7))
EXECUTION = "x-00000007-0000-4000-8000-000000000004-0"
ROWS = 1
# `ci` tries every third change.
STRIDE = 1 if EFFORT.everything else 3
LIST = "/v1/sessions"
READS = (
    LIST,
    "/v1/spaces",
    "/v1/inbox",
    f"/v1/sessions/{SESSION}",
    f"/v1/sessions/{SESSION}/audit",
    f"/v1/sessions/{SESSION}/analysis",
    f"/v1/sessions/{OTHER}",
    f"/v1/sessions/{OTHER}/contradiction",
    f"/v1/spaces/{SPACE}",
    f"/v1/spaces/{SPACE}/proposals",
    f"/v1/spaces/{SPACE}/proposals/p",
    f"/v1/spaces/{SPACE}/executions/{EXECUTION}",
    f"/v1/spaces/{SPACE}/audit",
)
# What both rows of a session in a list have: one that was changed alone is not served.
TOLD_TWICE = {(SESSIONS, "universe_size"), (SESSIONS, "n_survivors"), (SESSIONS, "terminated"), (LISTINGS, "summary")}
NAMED = re.compile(r'"code": ?"(LEDGER_CORRUPT|STORE_UNAVAILABLE)"')


def populate(store: Store) -> None:
    """A session that was concluded, one that contradicts itself, and a space whose first call has left the state."""
    clock = ManualClock()
    belief = BeliefServer(store=store, clock=clock, ids=SequentialIds())
    assert declared(belief, title="one", labels={"team": "payments"}) == SESSION
    belief.enter_obligation(SESSION, "gate", 1)
    belief.eliminate(SESSION, "s", "1", ["a", "b", "c"])
    belief.request_exit(SESSION, "gate")
    belief.declare_conclusion(SESSION, "d")
    assert declared(belief, title="two") == OTHER
    belief.eliminate(OTHER, "s", "1", ["a", "b"])
    belief.eliminate(OTHER, "t", "1", ["c", "d"])
    world = World(store, clock=clock, space=7, belief=ServedBelief(belief))
    world.open(caller_tool("t"))
    assert world.start(call("t"), proposal_id="p") == EXECUTION
    world.report(EXECUTION, result=1)
    for number in range(8):
        world.propose(delta(passing=str(number)))
    world.close()
    belief._sessions.close()


@contextmanager
def serve(database: SQLiteDatabase) -> Iterator[Client]:
    """A server that has just begun."""
    store = open_store(database.url)
    belief = BeliefServer(store=store)
    spaces = SubstrateServer(log=store, belief=ServedBelief(belief), keeper_seconds=None)
    try:
        with client_of(BeliefApp(Service(belief, spaces=spaces))) as client:
            yield client
    finally:
        spaces.close()
        belief.close()


def ask(client: Client) -> dict[str, tuple[int, str]]:
    answers = {path: client.get(path, headers={"x-cmbs-actor": OPS}) for path in READS}
    return {path: (answer.status_code, answer.text) for path, answer in answers.items()}


def may_differ(path: str, mutation: Mutation) -> bool:
    """Whether an answer rests on a changed row that nothing else vouches for."""
    return path in (LIST, "/v1/spaces") and (mutation.table, mutation.column) not in TOLD_TWICE


@pytest.mark.slow
@pytest.mark.req("NOTHING-DERIVED-02")
def test_no_changed_row_has_a_wrong_answer_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_check, "_DELAY_SECONDS", 3600.0)
    tried = 0
    wrong: list[str] = []
    with epochs_of(4):
        database = SQLiteDatabase(tmp_path, populate)
        with serve(database) as client:
            expected = ask(client)
        assert {status for status, _ in expected.values()} == {200}
        database.restore()
        for mutation in islice(mutations_of(database, ROWS), None, None, STRIDE):
            if database.change(mutation.statement, mutation.parameters):
                tried += 1
                with serve(database) as client:
                    for path, (status, text) in ask(client).items():
                        refused = status >= 500 and NAMED.search(text) is not None
                        same = (status, text) == expected[path] or (status < 500 and may_differ(path, mutation))
                        if not (refused or same):
                            wrong.append(f"{mutation.what}: {path}: {status} {text[:120]}")
            database.restore()
    assert tried > 80 // STRIDE
    assert wrong == []
