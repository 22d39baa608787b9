"""A run of entries rewritten with everything in it right: no operation of either plane serves any of it.

The kernel itself writes the run, so that decisions, commitments, hashes and links in it are good. It lies before a
checkpoint that a new server begins with, and only the entry behind it does not follow.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from cmbs.api.operations import OPERATIONS
from cmbs.api.operations.graphs import GRAPH_OPERATIONS
from cmbs.audit.proofs import Prover
from cmbs.audit.transfer import export_lines
from cmbs.belief.kernel import replay as belief_replay
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt
from cmbs.http import BeliefApp
from cmbs.http.exchange import cursor_of
from cmbs.http.service import Service
from cmbs.ledger import StoredEntry
from cmbs.ledger.entry import read_link
from cmbs.ledger.replay import ReplayRules
from cmbs.ledger.state_digest import bind_state, digest_of, is_digest_point
from cmbs.stores import Store, open_store
from cmbs.streams import self_check
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel import replay as space_replay
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.server import SubstrateServer
from cmbs.testing import ManualClock, SequentialIds
from tests.support.digest_points import digest_points_at
from tests.support.in_process import Client, client_of
from tests.support.mutations import PostgresDatabase, SQLiteDatabase
from tests.support.postgres import fresh_database
from tests.support.space_client import OPS
from tests.support.spaces import ANY, SPACE, STREAM, World, call, caller_tool, constraint, delta
from tests.support.store_fixture import declared

pytestmark = pytest.mark.slow

SESSION = "00000000-0000-4000-8000-000000000001"
IDS = [f"h{number:03}" for number in range(300)]
EVENTS = 310
# Behind the last whole block, so that there are entries before it whose hashes are in the tail of the tree.
POINT = 300
POINTS = (60, POINT)
RUNS = {
    "in a block": (100, 120),
    "one entry": (131, 131),
    "all of four blocks but the first entry": (1, 255),
    "exactly a block": (128, 191),
    "over a digest point": (50, 70),
    "over the end of a block": (250, 262),
    "in the tail": (262, 280),
}
LATER = "2026-06-01T00:00:00.000000Z"
Database = SQLiteDatabase | PostgresDatabase


def populate(store: Store) -> None:
    """A session and a space that grow by turns, so that decisions of the one rest on events of the other."""
    belief = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds())
    assert declared(belief, IDS) == SESSION
    belief.enter_obligation(SESSION, "many", len(IDS))
    world = World(store, belief=ServedBelief(belief), space=3)
    gate = {"op": "exists", "args": [f"$belief.{SESSION}.n_survivors"]}
    policy = {
        "constraint.any": ANY,
        "constraint.gated": constraint(subject={"tool_id": "gated"}, when=gate),
        "constraint.never": constraint(effect="deny", subject={"tool_id": "never"}),
    }
    world.open(caller_tool("gated"), caller_tool("never"), policy=policy)
    for number in range(EVENTS):
        if number % 2:
            belief.declare_conclusion(SESSION, f"c{number}", idempotency_key=f"key-{number}")
        else:
            belief.eliminate(SESSION, "s", str(number), [IDS[number // 2]])
        match number % 3:
            case 0:
                world.propose(delta(**{f"key{number}": "1"}), proposal_id=f"p{number}")
            case 1:
                world.propose(call("gated", key=f"k{number}"), proposal_id=f"p{number}")
            case _:
                world.propose(call("never", key=f"k{number}"), proposal_id=f"p{number}")
    world.close()
    belief._sessions.close()


@pytest.fixture(autouse=True, scope="module")
def digest_points() -> Iterator[None]:
    with digest_points_at(POINTS):
        yield


@pytest.fixture(autouse=True)
def no_self_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is served must be right before the background check has looked at it."""
    monkeypatch.setattr(self_check, "_DELAY_SECONDS", 3600.0)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.deep)], scope="module")
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, digest_points: None
) -> Iterator[Database]:
    if request.param == "sqlite":
        yield SQLiteDatabase(Path(tmp_path_factory.mktemp("runs")), populate)
        return
    with fresh_database() as url:
        yield PostgresDatabase(url, populate)


# --- the intruder ---


def rewrite_run(
    rules: ReplayRules[Any, Any], stream_id: str, entries: list[StoredEntry], first: int, last: int
) -> list[StoredEntry]:
    """What the entries from `first` to `last` would be, had their messages come at another time."""
    states = space_replay.catch_up_space if stream_id == STREAM else belief_replay.catch_up
    state = states(SPACE if stream_id == STREAM else stream_id, None, entries[:first])
    run: list[StoredEntry] = []
    for stored in entries[first : last + 1]:
        recorded = rules.read(stored)
        body = msgspec.structs.replace(recorded.body, ts=LATER)
        again = rules.decide_again(stream_id, state, msgspec.structs.replace(recorded, body=body))
        if state is not None and rules.digests is not None and is_digest_point(again.body.seq):
            again = bind_state(again, digest_of(rules.digests.freeze(state)))
        state = rules.evolve(state, again)
        run.append(again.stored)
    return run


def put_run(database: Database, stream_id: str, first: int, run: list[StoredEntry]) -> None:
    """Write entries over those that are there, with every copy of what is in them."""
    rows: list[tuple[Any, ...]] = []
    for seq, stored in enumerate(run, first):
        body = json.loads(stored.raw)
        previous = bytes.fromhex(body["prev_event_hash"])
        rows.append((stored.raw, stored.event_hash, previous, body["ts"], stream_id, seq))
    assert database.change(
        "UPDATE cmbs.audit_events SET entry = %s, event_hash = %s, prev_event_hash = %s, ts = %s"
        " WHERE stream_id = %s AND seq = %s",
        *rows,
    )


@contextmanager
def rewritten(database: Database, stream_id: str, run: tuple[int, int]) -> Iterator[None]:
    """Have the run in the database for a while."""
    rules = space_replay._RULES if stream_id == STREAM else belief_replay._RULES
    with closing(open_store(database.url)) as store:
        entries = store.read(stream_id)
    forged = rewrite_run(rules, stream_id, entries, *run)
    assert all(new != old for new, old in zip(forged, entries[run[0] :], strict=False))
    put_run(database, stream_id, run[0], forged)
    try:
        yield
    finally:
        put_run(database, stream_id, run[0], entries[run[0] : run[1] + 1])


# --- the readers ---


@contextmanager
def serve(database: Database) -> Iterator[Client]:
    """A server that has just begun, from checkpoints."""
    store = open_store(database.url)
    belief = BeliefServer(store=store)
    spaces = SubstrateServer(log=store, belief=ServedBelief(belief), keeper_seconds=None)
    try:
        with client_of(BeliefApp(Service(belief, spaces=spaces))) as client:
            yield client
    finally:
        spaces.close()
        belief.close()


class Place(NamedTuple):
    """An event of a run, and what the streams say of it."""

    seq: int
    proposal_id: str
    event_id: str
    before_event_id: str
    cursor_event_id: str


class Read(NamedTuple):
    """One request, whose answer rests on the event at a place."""

    method: str
    path: str
    body: Any = None
    who: str = OPS


SESSION_PATH = f"/v1/sessions/{SESSION}"
SPACE_PATH = f"/v1/spaces/{SPACE}"


def gone_by(seq: int) -> str:
    """A hypothesis that was eliminated at or before an event."""
    return IDS[(seq - 2) // 2]


# By operation: the requests about an event, which are refused where that event was rewritten. `None` where the kind
# of the event does not fit.
SESSION_READS: dict[str, Callable[[Place], Read | None]] = {
    "audit_trace": lambda at: Read("GET", f"{SESSION_PATH}/audit?limit=1&since_event_id={at.before_event_id}"),
    "fork_session": lambda at: Read("POST", f"{SESSION_PATH}/fork", {"at": at.seq}),
    "prove_session_inclusion": lambda at: Read("GET", f"{SESSION_PATH}/proofs/inclusion?at={at.seq}"),
    "prove_session_membership": lambda at: Read(
        "GET", f"{SESSION_PATH}/proofs/membership?at={at.seq}&hypothesis_id={IDS[-1]}"
    ),
    "prove_session_elimination": lambda at: (
        Read("GET", f"{SESSION_PATH}/proofs/elimination?at={at.seq}&hypothesis_id={gone_by(at.seq)}")
        if at.seq >= 2
        else None
    ),
    "prove_session_transition": lambda at: Read("GET", f"{SESSION_PATH}/proofs/transition?at={at.seq}&entry=true"),
    "prove_session_refusal": lambda at: (
        Read("GET", f"{SESSION_PATH}/proofs/refusal?at={at.seq}") if at.seq >= 2 and at.seq % 2 else None
    ),
}
SPACE_READS: dict[str, Callable[[Place], Read | None]] = {
    "read_state": lambda at: Read("GET", f"{SPACE_PATH}/state?at={at.seq}"),
    "space_diff": lambda at: Read("GET", f"{SPACE_PATH}/diff?from={at.seq - 1}&to={at.seq}"),
    "list_decisions": lambda at: Read("GET", f"{SPACE_PATH}/decisions?limit=1&cursor={at.cursor_event_id}"),
    "space_audit": lambda at: Read("GET", f"{SPACE_PATH}/audit?limit=1&since_event_id={at.before_event_id}"),
    "explain_decision": lambda at: (
        Read("GET", f"{SPACE_PATH}/proposals/{at.proposal_id}/explain") if at.proposal_id else None
    ),
    "prove_space_inclusion": lambda at: Read("GET", f"{SPACE_PATH}/proofs/inclusion?at={at.seq}"),
    "prove_space_refusal": lambda at: (
        Read("GET", f"{SPACE_PATH}/proofs/refusal?at={at.seq}") if denies(at.proposal_id) else None
    ),
    "prove_space_decision": lambda at: (
        Read("GET", f"{SPACE_PATH}/proofs/decision?at={at.seq}") if allows(at.proposal_id) else None
    ),
}
# These go through whole pages or the whole stream, whatever is asked.
WHOLE_READS = {
    "session_analysis": Read("GET", f"{SESSION_PATH}/analysis"),
    "list_deltas": Read("GET", f"{SPACE_PATH}/deltas?limit=1000"),
}
# These rest on the verified state, and on the tree in it: what they answer is what they answered before.
STATE_READS = {
    "query_belief": f"{SESSION_PATH}?at={{seq}}",
    "describe_case": f"{SESSION_PATH}/case",
    "list_survivors": f"{SESSION_PATH}/survivors?at={{seq}}",
    "session_diff": f"{SESSION_PATH}/diff?from=0&to={{seq}}",
    "compare_sources": f"{SESSION_PATH}/sources",
    "list_obligations": f"{SESSION_PATH}/obligations",
    "session_contradiction": f"{SESSION_PATH}/contradiction",
    "list_probes": f"{SESSION_PATH}/probes",
    "prove_session_consistency": f"{SESSION_PATH}/proofs/consistency?old_size={{seq}}",
    "get_space": SPACE_PATH,
    "read_policy": f"{SPACE_PATH}/policy",
    "list_proposals": f"{SPACE_PATH}/proposals",
    "get_proposal": f"{SPACE_PATH}/proposals/p99",
    "list_approvals": f"{SPACE_PATH}/approvals",
    "get_approval": f"{SPACE_PATH}/approvals/none",
    "list_calls": f"{SPACE_PATH}/calls",
    "get_call": f"{SPACE_PATH}/calls/c-none-0",
    "list_executions": f"{SPACE_PATH}/executions",
    "get_execution": f"{SPACE_PATH}/executions/none",
    "list_tools": f"{SPACE_PATH}/tools",
    "get_tool": f"{SPACE_PATH}/tools/gated",
    "list_capabilities": f"{SPACE_PATH}/capabilities",
    "get_capability": f"{SPACE_PATH}/capabilities/token",
    "list_memory": f"{SPACE_PATH}/memory",
    "get_memory": f"{SPACE_PATH}/memory/none",
    "list_cases": f"{SPACE_PATH}/cases",
    "get_case": f"{SPACE_PATH}/cases/none",
    "list_policy_changes": f"{SPACE_PATH}/policy/changes",
    "get_policy_change": f"{SPACE_PATH}/policy/changes/none",
    "prove_space_consistency": f"{SPACE_PATH}/proofs/consistency?old_size={{seq}}",
}


def denies(proposal_id: str) -> bool:
    return proposal_id != "" and int(proposal_id[1:]) % 3 == 2


def allows(proposal_id: str) -> bool:
    return proposal_id != "" and int(proposal_id[1:]) % 3 == 1


def places_in(entries: list[StoredEntry], run: tuple[int, int]) -> list[Place]:
    """The first entries of a run, of every kind that there is, and the last."""
    first, last = run
    found: list[Place] = []
    for seq in sorted({*range(first, min(first + 6, last + 1)), last}):
        payload = json.loads(entries[seq].raw)["payload"]
        proposal_id = payload.get("proposal", {}).get("proposal_id", "")
        ids = (read_link(entries[seq].raw).event_id, read_link(entries[seq - 1].raw).event_id)
        found.append(Place(seq, proposal_id, *ids, cursor_of(str(seq - 1))))
    return found


def ask(client: Client, read: Read) -> tuple[int, str]:
    headers = {"x-cmbs-actor": read.who}
    answer = client.request(
        read.method, read.path, headers=headers, **({} if read.body is None else {"json": read.body})
    )
    return answer.status_code, answer.text


def entries_of(database: Database, stream_id: str) -> list[StoredEntry]:
    with closing(open_store(database.url)) as store:
        return store.read(stream_id)


def requests_about(stream_id: str, places: list[Place]) -> list[tuple[str, Read]]:
    reads = SPACE_READS if stream_id == STREAM else SESSION_READS
    return [(name, read) for at in places for name, make in reads.items() if (read := make(at)) is not None]


@pytest.mark.req("READ-02")
def test_every_operation_that_reads_a_stream_is_tried() -> None:
    reading = {
        operation.operation_id
        for operation in OPERATIONS
        if operation.method == "GET" and ("{session_id}" in operation.path or "{space_id}" in operation.path)
    }
    # What is served of a graph is in Tee, and is not there without one.
    reading -= {operation.operation_id for operation in GRAPH_OPERATIONS}
    assert reading | {"fork_session"} == {*SESSION_READS, *SPACE_READS, *WHOLE_READS, *STATE_READS}


@pytest.mark.slow
@pytest.mark.req("READ-02")
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("stream_id", [SESSION, STREAM], ids=["session", "space"])
def test_no_operation_serves_what_was_rewritten(database: Database, stream_id: str, run: str) -> None:
    places = places_in(entries_of(database, stream_id), RUNS[run])
    touching = requests_about(stream_id, places)
    own_path = SPACE_PATH if stream_id == STREAM else SESSION_PATH
    whole = [(name, read) for name, read in WHOLE_READS.items() if read.path.startswith(own_path)]
    others = [(name, Read("GET", path.format(seq=places[0].seq))) for name, path in STATE_READS.items()]
    with serve(database) as client:
        before = {read: ask(client, read) for _, read in (*whole, *others)}
        for name, read in touching:
            if name != "fork_session":
                status, text = ask(client, read)
                assert (name, status) == (name, 200), text
    with rewritten(database, stream_id, RUNS[run]), serve(database) as client:
        # It has begun from the checkpoint: nothing has gone through the run.
        assert ask(client, Read("GET", own_path))[0] == 200
        for name, read in (*touching, *whole):
            status, text = ask(client, read)
            assert (name, status) == (name, 500), text
            assert json.loads(text)["error"]["code"] == "LEDGER_CORRUPT"
        for name, read in others:
            status, text = ask(client, read)
            assert status == 500 if (status, text) != before[read] else True, (name, text)
            assert LATER not in text


@pytest.mark.req("READ-02")
def test_a_repeat_of_what_was_rewritten_is_not_answered_from_it(database: Database) -> None:
    with closing(open_store(database.url)) as store:
        entry = next(each for each in store.read(STREAM) if b'"proposal_id":"p99"' in each.raw)
    seq = read_link(entry.raw).seq
    proposal = json.loads(entry.raw)["payload"]["proposal"]
    repeat = Read("POST", f"{SPACE_PATH}/proposals", proposal, who="agent:agent")
    with serve(database) as client:
        status, text = ask(client, repeat)
        assert status == 200, text
    with rewritten(database, STREAM, (seq - 3, seq + 3)), serve(database) as client:
        status, text = ask(client, repeat)
        assert (status, json.loads(text)["error"]["code"]) == (500, "LEDGER_CORRUPT")


@pytest.mark.req("READ-02")
def test_a_decision_has_no_proof_where_the_session_that_it_rests_on_was_rewritten(database: Database) -> None:
    entries = entries_of(database, STREAM)
    decided = next(each for each in entries if b'"proposal_id":"p100"' in each.raw)
    pinned = json.loads(decided.raw)["payload"]["belief"][0]["head_seq"]
    proof = Read("GET", f"{SPACE_PATH}/proofs/decision?at={read_link(decided.raw).seq}")
    with serve(database) as client:
        assert ask(client, proof)[0] == 200
    with rewritten(database, SESSION, (pinned - 5, pinned + 5)), serve(database) as client:
        status, text = ask(client, proof)
        assert (status, json.loads(text)["error"]["code"]) == (500, "LEDGER_CORRUPT")


@pytest.mark.req("READ-02")
@pytest.mark.parametrize("stream_id", [SESSION, STREAM], ids=["session", "space"])
def test_commands_that_know_the_log_alone_refuse_the_whole_stream(database: Database, stream_id: str) -> None:
    with rewritten(database, stream_id, RUNS["in a block"]), closing(open_store(database.url)) as store:
        for seq in (0, 110, 200, 305):
            with pytest.raises(LedgerCorrupt, match="bad at seq 121 "):
                Prover(store).inclusion(stream_id, seq)
        with pytest.raises(LedgerCorrupt, match="bad at seq 121 "):
            list(export_lines(store, [stream_id]))


@pytest.mark.req("READ-02")
def test_a_past_space_is_not_built_on_a_checkpoint_and_an_entry_that_were_exchanged_together(
    database: Database,
) -> None:
    """The server has begun, and then the digest point itself is rewritten, with the checkpoint that it vouches for."""
    entries = entries_of(database, STREAM)
    try:
        with serve(database) as client:
            path = f"{SPACE_PATH}/proposals/p305/explain"
            assert ask(client, Read("GET", path))[0] == 200
            forged = rewrite_run(space_replay._RULES, STREAM, entries, POINT - 1, POINT)
            state = space_replay.catch_up_space(SPACE, None, [*entries[: POINT - 1], forged[0]])
            assert state is not None
            frozen = freeze_space(state)
            put_run(database, STREAM, POINT - 1, forged)
            assert database.change("UPDATE cmbs.checkpoints SET data = %s WHERE session_id = %s", (frozen, STREAM))
            status, text = ask(client, Read("GET", path))
            assert (status, json.loads(text)["error"]["code"]) == (500, "LEDGER_CORRUPT")
    finally:
        # Only now: a server that is open would write what it has of the other file into this one.
        database.restore()
