"""An attacker who writes checkpoints: whatever field is changed, in either plane, it is never believed.

What is changed is encoded again without a fault: only the digest in the chain can tell. A server over the forged store
says and writes the same, byte for byte, as one over a store without any checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice
from random import Random
from typing import Any

import msgspec
import pytest

from cmbs.belief.kernel import checkpoint as belief_checkpoint
from cmbs.belief.kernel.checkpoint import FrozenSession, freeze
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import CmbsError
from cmbs.ledger import StoredEntry, replay
from cmbs.ledger.entry import read_link
from cmbs.messages import SessionPolicy
from cmbs.spi import Append
from cmbs.streams.kinds import CheckpointCodec, Folding
from cmbs.substrate.kernel import checkpoint as space_checkpoint
from cmbs.substrate.kernel.checkpoint import FrozenSpace, freeze_space
from cmbs.substrate.kernel.events import (
    Approve,
    MemoryKind,
    Mode,
    OutcomeStatus,
    PutMemory,
    RecordOutcome,
    Reject,
    SetMode,
)
from cmbs.substrate.kernel.kind import SpaceAnswer, SpaceFolding
from cmbs.substrate.kernel.model import StateDelta, ToolKind
from cmbs.substrate.kernel.replay import verify_space
from cmbs.testing import ManualClock, SequentialIds
from tests.golden.play import play_sessions, play_space
from tests.support.digest_points import digest_points_at
from tests.support.effort import EFFORT
from tests.support.forged_values import changes_of
from tests.support.spaces import (
    AGENT,
    ANY,
    ENCODER,
    ROOT,
    SECOND,
    SPACE,
    STREAM,
    BlockingStore,
    World,
    call,
    change_policy,
    delta,
    facts,
    raw,
)
from tests.support.store_fixture import declared

# Of each field: how many changes a server is started over. All of them are held against the chain.
SERVED = EFFORT.examples_for(5)
SESSION_POINT = 12
EARLIER = "2026-02-01T00:00:00.000000Z"
LATER = "2026-03-01T00:00:00.000000Z"


def appends_of(folding: Folding[Any], entries: list[StoredEntry]) -> list[Append]:
    """What brings these entries into a store."""
    appends, state = [], None
    for stored in entries:
        state, append = folding.fold(state, stored)
        appends.append(append)
    return appends


def store_with(appends: list[Append]) -> BlockingStore:
    """A store that holds these entries, and no checkpoint."""
    store = BlockingStore()
    for append in appends:
        store.append([append])
    return store


def outcome_of(action: Callable[[], Any]) -> object:
    """What an action comes to, refusals included."""
    try:
        answer = action()
        return answer.event.stored if isinstance(answer, SpaceAnswer) else answer
    except CmbsError as exc:
        return repr(exc)


# --- sessions ---------------------------------------------------------------------------------------------------------


def live_through() -> tuple[str, list[StoredEntry]]:
    """A session with something of everything before its digest point, and an open obligation."""
    store = BlockingStore()
    with closing(BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds())) as server:
        session_id = declared(server, "abcdefghij", policy=SessionPolicy(stability_window=2))
        server.eliminate(session_id, "s", "0", ["a", "b"], idempotency_key="k0")
        server.enter_obligation(session_id, "left", 1, idempotency_key="k1")
        server.eliminate(session_id, "s", "1", ["c", "unknown"])
        server.request_exit(session_id, "left")
        server.declare_conclusion(session_id, "c1")
        server.declare_conclusion(session_id, "c2")
        server.enter_obligation(session_id, "open", 3)
        server.enter_obligation(session_id, "open too", 1)
        server.request_termination(session_id)
        server.request_exit(session_id, "open", idempotency_key="k2")
        server.eliminate(session_id, "t", "0", ["d", "e"])
        server.eliminate(session_id, "t", "1", [])
        server.declare_conclusion(session_id, "too early")
        return session_id, store.read(session_id)


with digest_points_at([SESSION_POINT]):
    SESSION_ID, SESSION_LOG = live_through()


def ask_session(store: BlockingStore) -> tuple[list[object], list[StoredEntry]]:
    """Everything that a server says of the session, and the log after that."""
    with closing(BeliefServer(store=store, clock=ManualClock(LATER), ids=SequentialIds(9))) as server:
        asked: list[Callable[[], Any]] = [
            lambda: server.query_belief(SESSION_ID),
            lambda: server.obligations(SESSION_ID),
            lambda: server.survivors(SESSION_ID),
            lambda: server.query_belief(SESSION_ID, at=5),
            # Repeats: what is known of observations and of idempotency keys.
            lambda: server.eliminate(SESSION_ID, "s", "0", ["b", "a"], idempotency_key="k0"),
            lambda: server.eliminate(SESSION_ID, "s", "1", ["unknown", "c"]),
            lambda: server.eliminate(SESSION_ID, "t", "0", ["d"]),
            lambda: server.enter_obligation(SESSION_ID, "left", 1, idempotency_key="k1"),
            lambda: server.request_exit(SESSION_ID, "open", idempotency_key="k2"),
            # New ones.
            lambda: server.request_exit(SESSION_ID, "left"),
            lambda: server.declare_conclusion(SESSION_ID, "c2"),
            lambda: server.request_termination(SESSION_ID),
            lambda: server.request_exit(SESSION_ID, "open"),
            lambda: server.eliminate(SESSION_ID, "u", "0", list("abcdefghi")),
            lambda: server.request_exit(SESSION_ID, "open"),
            lambda: server.request_exit(SESSION_ID, "open too"),
            lambda: server.request_termination(SESSION_ID),
            lambda: server.declare_conclusion(SESSION_ID, "c2"),
            lambda: server.request_termination(SESSION_ID),
            lambda: server.obligations(SESSION_ID),
        ]
        return [outcome_of(action) for action in asked], store.read(SESSION_ID)


# --- spaces -----------------------------------------------------------------------------------------------------------


def live_in_a_space() -> list[StoredEntry]:
    """All that the golden logs play, and then a parked proposal and one that asks."""
    store, clock = BlockingStore(), ManualClock()
    with digest_points_at([SESSION_POINT]):
        play_space(store, clock, play_sessions(store, clock))
    with digest_points_at([SESSION_POINT, len(store.read(STREAM)) + 7]), closing(World(store, space=6)) as world:
        world.clock.set(EARLIER)
        relaxed = ["constraint.only", "policy.exclusive.colour", "policy.invariant.small"]
        change_policy(world, {"constraint.any": ANY}, relaxed)
        world.propose(StateDelta({}, ["fact.ok"]), actor=ENCODER)
        world.propose(call("ship", key="parked"), proposal_id="parked")
        world.propose(call("pay", {"amount": 9}, key="asked"), proposal_id="asked")
        world.propose(call("write", key="runs"), proposal_id="runs")
        world.say(SetMode(Mode.OBSERVE), SECOND)
        world.propose(delta(last="1"), proposal_id="at the digest point")
        world.propose(delta(last="2"), proposal_id="after it")
    return store.read(STREAM)


SPACE_LOG = live_in_a_space()
SPACE_POINT = len(SPACE_LOG) - 2
POINTS = (SESSION_POINT, SPACE_POINT)
with digest_points_at(POINTS):
    SPACE_BEFORE = verify_space(SPACE, SPACE_LOG)


def ask_space(store: BlockingStore) -> tuple[list[object], list[StoredEntry]]:
    """What a server decides in the space, and the log after that."""
    world = World(store, clock=ManualClock(LATER), space=9)
    with closing(world):
        before = SPACE_BEFORE
        asked: list[Callable[[], Any]] = [
            partial(world.propose, delta(z="1"), proposal_id="z"),
            partial(world.propose, delta(blue="1"), proposal_id="blue"),
            partial(world.propose, delta(size="7"), proposal_id="size"),
            partial(world.propose, facts(ok="2"), proposal_id="fact"),
            partial(world.propose, call("write", {"x": [1.5, "\U0001f600"]}), proposal_id="known call"),
            partial(world.propose, call("write", {"x": 3}), proposal_id="another call of the key"),
            partial(world.propose, call("pay", {"amount": 0}, key="third"), proposal_id="granted"),
        ]
        asked += [
            partial(world.propose, call(tool, key="new"))
            for tool in before.tools
            if before.tools[tool].kind is ToolKind.CALLER
        ]
        asked += [partial(world.propose, call("write", key=each, token=each)) for each in before.capabilities]
        asked += [partial(world.say, Approve(each), SECOND) for each in before.approvals]
        asked += [partial(world.say, Reject(each), SECOND) for each in before.approvals]
        for each in before.executions:
            asked.append(partial(world.say, RecordOutcome(each, OutcomeStatus.SUCCEEDED, raw(None)), SECOND))
        for each in (*before.memory, "new"):
            asked.append(partial(world.say, PutMemory(each, MemoryKind.DERIVED, raw("x"), ttl_ms=5), AGENT))
        asked += [partial(world.say, SetMode(Mode.OBSERVE), ROOT), world.server.keep]
        answers = [outcome_of(action) for action in asked]
        answers.append(freeze_space(world.space))
        return answers, store.read(STREAM)


# --- the forgeries ----------------------------------------------------------------------------------------------------


class Plane:
    """One kind of stream under attack."""

    def __init__(
        self,
        frozen_type: type[FrozenSession | FrozenSpace],
        codec: Any,
        stream_id: str,
        log: list[StoredEntry],
        point: int,
        freeze_prefix: Callable[[list[StoredEntry]], bytes],
        ask: Callable[[BlockingStore], tuple[list[object], list[StoredEntry]]],
    ) -> None:
        self.fields: tuple[str, ...] = frozen_type.__struct_fields__
        self.codec: CheckpointCodec[Any] = codec
        self.stream_id, self.log, self.point = stream_id, log, point
        self.freeze_prefix, self.ask = freeze_prefix, ask
        self.packing: Any = msgspec.msgpack if frozen_type is FrozenSession else msgspec.json

    @cached_property
    def true(self) -> bytes:
        return self.freeze_prefix(self.log[: self.point])

    @cached_property
    def appends(self) -> list[Append]:
        return appends_of(self.codec, self.log)  # type: ignore[arg-type]

    @cached_property
    def expected(self) -> bytes:
        """What a server says that begins with no checkpoint."""
        return self.ask_over(None)

    def forgeries(self, field: str) -> Iterator[bytes]:
        parts = self.packing.decode(self.true)
        place = self.fields.index(field)
        for changed in changes_of(parts[place]):
            data = self.packing.encode([*parts[:place], changed, *parts[place + 1 :]])
            if data != self.true:
                yield data

    def ask_over(self, data: bytes | None, seq: int | None = None) -> bytes:
        """What a server says that begins with this checkpoint, and the log that it then leaves; as a digest."""
        answers, log = self.serve(data, seq)
        return sha256(repr((answers, log)).encode()).digest()

    def serve(self, data: bytes | None, seq: int | None = None) -> tuple[list[object], list[StoredEntry]]:
        """The answers of a server that begins with this checkpoint, and the log that it leaves."""
        store = store_with(self.appends)
        if data is not None:
            store.put_checkpoint(self.stream_id, self.point if seq is None else seq, data)
        return self.ask(store)


PLANES = {
    "session": Plane(
        FrozenSession,
        BeliefFolding(),
        SESSION_ID,
        SESSION_LOG,
        SESSION_POINT,
        lambda log: freeze(verify_session(SESSION_ID, log)),
        ask_session,
    ),
    "space": Plane(
        FrozenSpace,
        SpaceFolding(),
        STREAM,
        SPACE_LOG,
        SPACE_POINT,
        lambda log: freeze_space(verify_space(SPACE, log)),
        ask_space,
    ),
}
VERIFY: dict[str, Callable[[list[StoredEntry]], Any]] = {
    "session": lambda log: verify_session(SESSION_ID, log),
    "space": lambda log: verify_space(SPACE, log),
}
FIELDS = [(name, field) for name, plane in PLANES.items() for field in plane.fields]


@pytest.fixture(autouse=True, scope="module")
def digest_points() -> Iterator[None]:
    with digest_points_at(POINTS):
        yield


@pytest.mark.slow
@pytest.mark.req("ARCH-4-DIGEST-02")
@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_forged_field_is_never_believed(name: str, field: str) -> None:
    plane = PLANES[name]
    forgeries = list(plane.forgeries(field))
    assert forgeries
    for data in forgeries:
        assert plane.codec.thaw(plane.stream_id, data, plane.log[0], plane.log[plane.point]) is None
    for data in Random(field).sample(forgeries, min(SERVED, len(forgeries))):
        assert plane.ask_over(data) == plane.expected


@pytest.mark.parametrize("name", PLANES)
def test_the_true_checkpoint_is_used_and_changes_nothing(name: str) -> None:
    plane = PLANES[name]
    assert len(plane.log) > plane.point + 1
    assert plane.codec.thaw(plane.stream_id, plane.true, plane.log[0], plane.log[plane.point]) is not None
    assert plane.ask_over(plane.true) == plane.expected
    _, log = plane.serve(plane.true)
    assert len(log) > len(plane.log)
    VERIFY[name](log)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "module", "tried", "harmless"),
    [
        ("session", belief_checkpoint, 100, {"session_id", "head", "v", "declaration_hash", "events"}),
        ("space", space_checkpoint, 5, {"space_id", "head", "v", "events"}),
    ],
)
def test_the_forgeries_would_do_harm_if_they_were_believed(
    name: str, module: Any, tried: int, harmless: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without digests, many fields can be changed so that a server says something else: the test above can fail."""
    plane = PLANES[name]
    expected = plane.expected
    verify_entry, recorded = replay._verify_entry, [""]

    def believe_digest(rules: Any, stream_id: str, state: Any, stored: StoredEntry) -> Any:
        recorded[0] = rules.read(stored).body.state
        return verify_entry(rules, stream_id, state, stored)

    monkeypatch.setattr(module, "find_binding", lambda _data, at: read_link(at.raw))
    monkeypatch.setattr(replay, "_verify_entry", believe_digest)
    monkeypatch.setattr(replay, "digest_of", lambda _frozen: recorded[0])
    harmful = {
        field
        for field in set(plane.fields) - harmless
        if any(plane.ask_over(data) != expected for data in islice(plane.forgeries(field), tried))
    }
    assert len(harmful) >= 5, harmful


@pytest.mark.slow
@pytest.mark.req("ARCH-4-DIGEST-02")
@pytest.mark.parametrize("name", PLANES)
def test_a_checkpoint_of_another_place_head_fork_or_stream_is_never_believed(name: str) -> None:
    plane = PLANES[name]
    expected, point = plane.expected, plane.point
    fork = fork_of(name)
    assert plane.ask_over(plane.true, point - 1) == expected
    assert plane.ask_over(plane.true, point + 1) == expected
    assert plane.ask_over(plane.freeze_prefix(plane.log[: point - 1])) == expected
    assert plane.ask_over(plane.freeze_prefix(plane.log[: point + 1])) == expected
    assert plane.ask_over(plane.freeze_prefix(fork[:point])) == expected
    (other,) = (each for each in PLANES.values() if each is not plane)
    assert plane.ask_over(other.true) == expected


def fork_of(name: str) -> list[StoredEntry]:
    """Another history of the same stream, that has its beginning."""
    plane = PLANES[name]
    store = store_with(plane.appends[: plane.point - 2])
    if name == "session":
        with closing(BeliefServer(store=store, clock=ManualClock(LATER), ids=SequentialIds(8))) as server:
            for number in range(4):
                server.eliminate(SESSION_ID, "fork", str(number), ["j"])
    else:
        with closing(World(store, clock=ManualClock(LATER), space=8)) as world:
            for number in range(4):
                world.propose(delta(**{f"fork{number}": "1"}))
    return store.read(plane.stream_id)
