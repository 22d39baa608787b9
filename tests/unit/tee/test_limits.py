"""What is too large for a Tee, or is no universe: refused by name, and nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty

from cmbs import errors
from cmbs.tee.kernel.limits import TeeLimits
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.service import TeeService
from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.tee import SAID, calling, edge, expect_refused, node

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def tee() -> Iterator[Any]:
    with calling(MemoryGraphStore()) as stub:
        yield stub


@pytest.mark.req("TEE-SERVE-04")
@pytest.mark.parametrize(
    ("delta", "limit"),
    [
        (pb.HypothesisDelta(nodes=[node("x" * 1025)]), "`id_length` allows at most 1024 characters, got 1025"),
        (pb.HypothesisDelta(nodes=[node("a", label="x" * 4097)]), "`label_length` allows at most 4096"),
        (pb.HypothesisDelta(edges=[edge("a", "x" * 1025)]), "`id_length` allows at most 1024"),
        (
            pb.HypothesisDelta(nodes=[node("a", provenance=[pb.Provenance(source="x" * 1025, trigger="t")])]),
            "`provenance_length` allows at most 1024 characters, got 1025 in `a`",
        ),
        (
            pb.HypothesisDelta(edges=[edge("a", "b", provenance=[pb.Provenance(source="s", trigger="x" * 1025)])]),
            "`provenance_length`",
        ),
        (
            pb.HypothesisDelta(nodes=[node("a", provenance=[pb.Provenance(source=str(n)) for n in range(1001)])]),
            "`provenance_per_thing` allows at most 1000, got 1001 of `a`",
        ),
    ],
)
def test_what_is_too_large_is_refused_by_the_name_of_its_limit(tee: Any, delta: pb.HypothesisDelta, limit: str) -> None:
    with expect_refused(INVALID, limit):
        tee.MergeHypothesis(delta)
    assert tee.GetMainGraph(Empty()).causal_graph_version == 0


@pytest.mark.req("TEE-SERVE-04")
@pytest.mark.parametrize(
    "said",
    [pb.Provenance(source="s" * 1_025, trigger="t"), pb.Provenance(source="s", trigger="t" * 1_025)],
    ids=["source", "trigger"],
)
def test_the_provenance_of_tombstones_has_the_same_limit(tee: Any, said: pb.Provenance) -> None:
    tee.CreateIncident(pb.CreateIncidentRequest(incident_id="i"))
    request = pb.NodeTombstoneRequest(incident_id="i", node_ids=["a"], provenance=said)
    with expect_refused(INVALID, "`provenance_length` allows at most 1024 characters"):
        tee.MergeNodeTombstones(request)
    assert tee.GetTombstones(pb.TombstoneRequest(incident_id="i")) == pb.TombstoneSet()


@pytest.mark.req("TEE-SERVE-04")
def test_requests_have_limits_of_their_own() -> None:
    service = TeeService(MemoryGraphStore(), limits=TeeLimits(things_per_delta=2, ids_per_request=2))
    with pytest.raises(errors.InvalidGraph, match="`things_per_delta` allows at most 2, got 3: send them in several"):
        service.merge_hypothesis(pb.HypothesisDelta(nodes=map(node, "abc")))
    service.merge_hypothesis(pb.HypothesisDelta(nodes=map(node, "ab")))
    long = "i" * 1025
    for refused in (
        lambda: service.create_incident(pb.CreateIncidentRequest(incident_id=long)),
        lambda: service.get_tombstones(pb.TombstoneRequest(incident_id=long)),
    ):
        with pytest.raises(errors.InvalidGraph, match="`id_length`"):
            refused()
    universe = pb.Universe(kind=pb.UNIVERSE_KIND_LISTED, node_ids=["a", "b", "c"])
    with pytest.raises(errors.InvalidGraph, match="`ids_per_request` allows at most 2, got 3"):
        service.create_incident(pb.CreateIncidentRequest(incident_id="i", universe=universe))
    service.create_incident(pb.CreateIncidentRequest(incident_id="i"))
    with pytest.raises(errors.InvalidGraph, match="`ids_per_request`"):
        service.merge_node_tombstones(pb.NodeTombstoneRequest(incident_id="i", node_ids="abc", provenance=SAID))
    with pytest.raises(errors.InvalidGraph, match="`id_length`"):
        service.merge_node_tombstones(pb.NodeTombstoneRequest(incident_id="i", node_ids=[long], provenance=SAID))


@pytest.mark.req("TEE-SERVE-04")
@pytest.mark.parametrize(
    ("universe", "words"),
    [
        (pb.Universe(), "a universe has no kind `0`"),
        (pb.Universe(kind=pb.UNIVERSE_KIND_NODES, node_ids=["a"]), "only a listed universe names"),
        (pb.Universe(kind=pb.UNIVERSE_KIND_LISTED, node_ids=[""]), "must not hold an empty id"),
    ],
)
def test_a_universe_that_is_none_is_refused(tee: Any, universe: pb.Universe, words: str) -> None:
    with expect_refused(INVALID, words):
        tee.CreateIncident(pb.CreateIncidentRequest(incident_id="i", universe=universe))
