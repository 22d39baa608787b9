"""A Tee that fails: asked again, given up on, found again; and sessions whose creation was cut off."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event
from typing import Any

import grpc
import msgspec
import pytest

from cmbs.errors import BeliefServerError, InvalidRequest, SessionNotFound, StoreUnavailable
from cmbs.refusals import Refusal
from cmbs.spi import EliminationProvenance, RecoveredState
from cmbs.stores.tee import TeeStore
from cmbs.tee.access import REFUSAL_KEY
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.service import TeeService
from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.plain_tee import Calls, Faults, serving
from tests.support.subtests import for_each
from tests.support.tee import TIMEOUT_SECONDS, edge, node

pytestmark = pytest.mark.slow

SEEN = EliminationProvenance("source", "observation")
NOTHING: frozenset[str] = frozenset()


def store_on(port: int, **options: Any) -> TeeStore:
    return TeeStore(f"127.0.0.1:{port}", **options)


class _Failing:
    """A Tee whose first answers to a call are failures."""

    def __init__(self, *statuses: grpc.StatusCode) -> None:
        self.statuses = list(statuses)
        self.asked = 0

    def calls(self) -> Calls:
        return {"CreateIncident": self.create, "MergeNodeTombstones": self._merge}

    def create(self, request: pb.CreateIncidentRequest, context: Any) -> Any:
        self.asked += 1
        if self.statuses:
            context.abort(self.statuses.pop(0), "as the test says")
        return pb.CreateIncidentResult(incident_id=request.incident_id, created=True)

    def _merge(self, request: pb.NodeTombstoneRequest, context: Any) -> Any:
        assert request.node_ids
        return pb.TombstoneMergeResult(applied_ids=request.node_ids)


@pytest.mark.req("TEE-STORE-07")
def test_a_tee_that_is_away_for_a_moment_is_asked_again() -> None:
    tee = _Failing(grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAVAILABLE)
    with serving(tee.calls()) as port, closing(store_on(port)) as store:
        store.create_session("session", frozenset("a"))
        assert tee.asked == 4
        assert store.eliminate("session", {"a"}, SEEN).applied == {"a"}


class _Refusing(_Failing):
    """A Tee that says more of a refusal than its status."""

    def create(self, request: pb.CreateIncidentRequest, context: Any) -> Any:
        refusal = Refusal(code="X", message="no", next="name it", field="incident_id", accepted={"minLength": 1})
        context.set_trailing_metadata(((REFUSAL_KEY, msgspec.json.encode(refusal)),))
        return super().create(request, context)


@pytest.mark.req("GATES-REFUSAL-07")
def test_what_a_tee_says_of_a_refusal_is_in_the_error() -> None:
    tee = _Refusing(grpc.StatusCode.INVALID_ARGUMENT)
    with serving(tee.calls()) as port, closing(store_on(port)) as store:
        with pytest.raises(InvalidRequest) as refused:
            store.create_session("session", frozenset("a"))
        assert refused.value.details == {"field": "incident_id", "accepted": {"minLength": 1}, "next": "name it"}


@pytest.mark.req("TEE-STORE-07")
@for_each(
    ("status", "error", "words"),
    [
        (grpc.StatusCode.UNAUTHENTICATED, StoreUnavailable, "does not let us in"),
        (grpc.StatusCode.PERMISSION_DENIED, StoreUnavailable, "does not let us in"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, StoreUnavailable, "did not answer in 10 seconds"),
        (grpc.StatusCode.INTERNAL, StoreUnavailable, "failed with INTERNAL: as the test says"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, StoreUnavailable, "failed with RESOURCE_EXHAUSTED"),
        (grpc.StatusCode.UNIMPLEMENTED, StoreUnavailable, "does not know the call"),
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequest, "as the test says"),
    ],
)
def test_any_other_failure_is_told_at_once(status: grpc.StatusCode, error: type[BeliefServerError], words: str) -> None:
    tee = _Failing(status)
    with serving(tee.calls()) as port, closing(store_on(port)) as store:
        with pytest.raises(error, match=words):
            store.create_session("session", frozenset("a"))
        assert tee.asked == 1


@pytest.mark.req("TEE-STORE-07")
def test_a_tee_that_stays_away_is_unavailable_in_bounded_time() -> None:
    with serving(_Failing().calls()) as port:
        pass
    with closing(store_on(port, timeout_seconds=0.3)) as store, pytest.raises(StoreUnavailable, match="UNAVAILABLE"):
        store.create_session("session", frozenset("a"))


@pytest.mark.req("TEE-STORE-07")
def test_a_tee_that_is_known_to_be_away_is_tried_once_a_call_until_it_answers() -> None:
    tee = _Failing(*[grpc.StatusCode.UNAVAILABLE] * 1000)
    with serving(tee.calls()) as port, closing(store_on(port, timeout_seconds=1)) as store:
        with pytest.raises(StoreUnavailable):
            store.create_session("session", frozenset("a"))
        before = tee.asked
        with pytest.raises(StoreUnavailable):
            store.create_session("session", frozenset("a"))
        assert tee.asked == before + 1
        # It is back, and then is away for a moment only.
        tee.statuses[:] = []
        store.create_session("session", frozenset("a"))
        tee.statuses[:] = [grpc.StatusCode.UNAVAILABLE]
        store.create_session("other", frozenset("a"))


@pytest.mark.req("TEE-STORE-07")
def test_while_one_caller_tries_a_tee_that_is_away_the_others_are_refused() -> None:
    tee, trying, released = _Failing(grpc.StatusCode.DEADLINE_EXCEEDED), Event(), Event()

    def hang(request: pb.CreateIncidentRequest, context: Any) -> Any:
        if tee.statuses:
            return tee.create(request, context)
        trying.set()
        released.wait(TIMEOUT_SECONDS)
        return pb.CreateIncidentResult(incident_id=request.incident_id, created=True)

    with (
        serving({**tee.calls(), "CreateIncident": hang}) as port,
        closing(store_on(port, timeout_seconds=TIMEOUT_SECONDS)) as store,
    ):
        with pytest.raises(StoreUnavailable, match="did not answer"):
            store.create_session("session", frozenset("a"))
        with ThreadPoolExecutor(1) as pool:
            try:
                first = pool.submit(store.create_session, "session", frozenset("a"))
                assert trying.wait(TIMEOUT_SECONDS)
                with pytest.raises(StoreUnavailable, match="is away"):
                    store.create_session("session", frozenset("a"))
            finally:
                released.set()
            first.result(TIMEOUT_SECONDS)
        assert store.eliminate("session", {"a"}, SEEN).applied == {"a"}


@pytest.mark.req("TEE-STORE-07")
def test_a_store_that_was_closed_is_unavailable() -> None:
    with serving(_Failing().calls()) as port:
        store = store_on(port)
        store.close()
        with pytest.raises(StoreUnavailable, match="cannot be used"):
            store.create_session("session", frozenset("a"))


def create(store: TeeStore, session_id: str, listed: frozenset[str] | None) -> frozenset[str]:
    if listed is not None:
        store.create_session(session_id, listed)
        return listed
    anchored = store.anchor(session_id)
    store.create_session_at(session_id, anchored.hypothesis_ids, str(anchored.causal_graph_version))
    return anchored.hypothesis_ids


@pytest.mark.req("TEE-STORE-07")
@for_each("moment", ["before", "after"])
@for_each("listed", [None, frozenset({"a", "edge:a|b|DEPENDS_ON"})], ids=["whole", "listed"])
def test_a_creation_that_failed_at_any_call_is_whole_or_not_there_and_can_be_made_again(
    listed: frozenset[str] | None, moment: str
) -> None:
    service = TeeService(MemoryGraphStore())
    service.merge_hypothesis(pb.HypothesisDelta(nodes=map(node, "abc"), edges=[edge("a", "b")]))
    faults = Faults(service)
    with serving(faults.calls()) as port, closing(store_on(port)) as store, closing(store_on(port)) as other:
        universe = create(store, "well", listed)
        calls = faults.asked
        assert calls == (1 if listed else 3)
        for number in range(1, calls + 1):
            session_id = str(number)
            faults.fail(number, moment)
            with pytest.raises(StoreUnavailable, match=moment):
                create(store, session_id, listed)
            try:
                assert other.recover(session_id) == RecoveredState(universe, NOTHING, universe)
            except SessionNotFound:
                assert (number, moment) != (calls, "after")
            assert create(other, session_id, listed) == universe
            assert store.recover(session_id) == RecoveredState(universe, NOTHING, universe)
