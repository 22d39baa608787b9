"""Two incidents on one causal graph that grows between them: `python examples/two_incidents.py GRAPH.json [HOST:PORT]`.

Needs a Tee that listens (`cmbs tee serve`). Any graph in JSON will do, the ITBench one for instance. Ends with 1 where
a view is not what it should be.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from cmbs.tee.client import DEFAULT_ENDPOINT, collected, open_channel, stub_on
from cmbs.tee.graph_json import deltas, read_graph
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.proto.tee_pb2_grpc import TeeStub

SAID = pb.Provenance(source="examples/two_incidents.py", trigger="demo")


class Incident:
    """An incident, and what it should see."""

    def __init__(self, tee: TeeStub, name: str) -> None:
        self.tee, self.id = tee, f"{name}-{uuid.uuid4()}"
        opened = tee.CreateIncident(pb.CreateIncidentRequest(incident_id=self.id))
        self.universe = self.live()
        print(f"{name}: anchored at graph version {opened.causal_graph_version}, {len(self.universe)} hypotheses")

    def live(self) -> set[str]:
        """What it has not ruled out."""
        request = pb.LiveViewRequest(incident_id=self.id, nodes_only=True)
        return {node.id for node in collected(self.tee.StreamLiveView, self.tee.GetLiveView, request).nodes}

    def rule_out(self, node_ids: list[str]) -> None:
        """Tombstone nodes, for this incident alone."""
        request = pb.NodeTombstoneRequest(incident_id=self.id, node_ids=node_ids, provenance=SAID)
        result = self.tee.MergeNodeTombstones(request)
        print(f"  ruled out {len(result.applied_ids)}, not in its graph {len(result.unmatched_ids)}")


def main(file: str, endpoint: str = DEFAULT_ENDPOINT) -> int:
    with open_channel(endpoint) as channel:
        tee = stub_on(channel)
        for delta in deltas(read_graph(Path(file).read_bytes())):
            tee.MergeHypothesis(delta)

        first = Incident(tee, "first")
        ruled_out = sorted(first.universe)[::2]
        first.rule_out(ruled_out)

        # While the first incident goes on, somebody learns of one more thing that can break.
        newborn = f"newborn-{uuid.uuid4()}"
        node = pb.Node(id=newborn, type=pb.NODE_TYPE_MECHANISM, label="a new mechanism", provenance=[SAID])
        merged = tee.MergeHypothesis(pb.HypothesisDelta(nodes=[node]))
        print(f"the graph grows to version {merged.causal_graph_version}: {newborn}")

        second = Incident(tee, "second")
        first.rule_out([newborn])
        second.rule_out([newborn])

        right = (
            first.live() == first.universe - set(ruled_out)
            and newborn not in first.universe
            and second.universe == first.universe | {newborn}
            and second.live() == first.universe
        )
        print(f"first sees {len(first.live())}, second {len(second.live())}: {'both are right' if right else 'WRONG'}")
        return 0 if right else 1


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
