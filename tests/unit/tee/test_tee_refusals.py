"""Refusals of Tee: the status and a sentence for any client, and the same in fields for ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from cmbs.refusals import Refusal
from cmbs.tee.access import REFUSAL_KEY
from cmbs.tee.client import find_refusal
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.tee import BAD_REQUESTS, calling, edge, node


@pytest.fixture
def tee() -> Iterator[Any]:
    with calling(MemoryGraphStore()) as stub:
        yield stub


def refusal_of(call: Callable[[Any], Any], request: Any) -> Refusal:
    with pytest.raises(grpc.RpcError) as refused:
        call(request)
    refusal = find_refusal(refused.value)
    assert refusal is not None
    answer: Any = refused.value
    assert (refusal.code, refusal.sentence) == (answer.code().name, answer.details())
    return refusal


@pytest.mark.req("GATES-REFUSAL-07")
def test_a_refusal_says_the_field_and_what_to_do_next(tee: Any) -> None:
    for call, request, words in BAD_REQUESTS:
        refusal = refusal_of(getattr(tee, call), request)
        assert refusal.field
        assert refusal.accepted
        assert refusal.next.startswith("correct the request")
        assert words in refusal.message
    typed = refusal_of(tee.MergeHypothesis, pb.HypothesisDelta(nodes=[node("a"), node("b", type=99)]))
    assert (typed.field, typed.found) == ("nodes[1].type", 99)
    assert typed.accepted == {"SERVICE": 1, "DEPENDENCY": 2, "INFRASTRUCTURE": 3, "MECHANISM": 4}
    missing = refusal_of(tee.GetLiveView, pb.LiveViewRequest(incident_id="x"))
    assert (missing.field, missing.found) == ("incident_id", "x")
    assert missing.next.startswith("create the incident first")


@pytest.mark.req("GATES-REFUSAL-07")
def test_several_faults_of_a_delta_come_at_a_time(tee: Any) -> None:
    delta = pb.HypothesisDelta(nodes=[node("a", label=""), node("b")], edges=[edge("a", "a"), edge("", "a")])
    refusal = refusal_of(tee.MergeHypothesis, delta)
    assert refusal.message == "node `a` must have a label and 2 more"
    assert [fault.field for fault in refusal.faults] == ["nodes[0].label", "edges[0].target", "edges[1].source"]
    many = pb.HypothesisDelta(nodes=[node("x" * 64 + str(place), type=99) for place in range(500)])
    refusal = refusal_of(tee.MergeHypothesis, many)
    assert (refusal.message.endswith("and 499 more"), len(refusal.faults)) == (True, 10)
    entries = [pb.EdgeTombstoneEntry(source="a"), pb.EdgeTombstoneEntry(target="b")]
    refusal = refusal_of(tee.MergeEdgeTombstones, pb.EdgeTombstoneRequest(incident_id="i", entries=entries))
    assert [fault.field for fault in refusal.faults] == ["entries[0].target", "entries[1].source"]


@pytest.mark.req("GATES-REFUSAL-07")
def test_a_refusal_that_is_too_long_for_metadata_arrives_without_its_list(tee: Any) -> None:
    name = "😀" * 64
    delta = pb.HypothesisDelta(edges=[edge(f"{name}{place}", f"{name}{place}x", type=99) for place in range(20)])
    refusal = refusal_of(tee.MergeHypothesis, delta)
    assert (refusal.field, refusal.faults) == ("edges[0].type", ())


class OtherTee(grpc.RpcError):
    """What a client raises that called another implementation of Tee."""

    def __init__(self, *metadata: tuple[str, bytes]) -> None:
        self._metadata = metadata

    def trailing_metadata(self) -> Any:
        return self._metadata


@pytest.mark.req("GATES-REFUSAL-07")
def test_a_tee_that_does_not_say_more_is_still_understood() -> None:
    assert find_refusal(grpc.RpcError()) is None
    assert find_refusal(OtherTee()) is None
    assert find_refusal(OtherTee(("other", b"{}"), (REFUSAL_KEY, b"no json"))) is None
    assert find_refusal(OtherTee((REFUSAL_KEY, b'{"code":"X"}'))) is None
