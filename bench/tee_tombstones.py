"""Ten thousand tombstones in one call, against one call for each."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import count

from bench.harness import Effort, Result, at_least, interleaved, microseconds
from bench.servers import disk_directory, tee_serve
from bench.tee_graphs import NOW, SAID, node_ids
from cmbs.tee import Delta, Node, NodeType
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores.sqlite import SQLiteGraphStore

NAME = "tee_tombstones"
TOMBSTONES = 10_000
# One by one takes long; a few tell what each costs.
SINGLES = 50
_incident = count()


def run(effort: Effort) -> list[Result]:
    """Over gRPC, on SQLite: every call is a commit."""
    ids = node_ids(TOMBSTONES)
    said = pb.Provenance(source="agent://bench", trigger="scan")
    with disk_directory() as directory:
        with closing(SQLiteGraphStore(f"{directory}/tee.db")) as store:
            store.merge(Delta(tuple(Node(each, NodeType.SERVICE, each, True, (SAID,)) for each in ids)))
            store.create_incident("warm", NOW)
        with tee_serve(f"sqlite:///{directory}/tee.db") as port, open_channel(f"127.0.0.1:{port}") as channel:
            tee = stub_on(channel)

            def seconds(groups: list[list[str]]) -> float:
                incident_id = f"incident-{next(_incident)}"
                tee.CreateIncident(pb.CreateIncidentRequest(incident_id=incident_id))
                start = time.perf_counter()
                for group in groups:
                    request = pb.NodeTombstoneRequest(incident_id=incident_id, node_ids=group, provenance=said)
                    if len(tee.MergeNodeTombstones(request).applied_ids) != len(group):
                        raise AssertionError("not all were applied")
                return time.perf_counter() - start

            times = interleaved(
                {
                    "together": lambda: seconds([ids]),
                    "alone": lambda: seconds([[each] for each in ids[:SINGLES]]) / SINGLES * TOMBSTONES,
                },
                effort.rounds,
            )
    return [
        Result(
            NAME,
            f"{TOMBSTONES:,} tombstones in one call over gRPC, durable in SQLite: {microseconds(times['together'])}",
            f"one call for each, of which {SINGLES} were made: {microseconds(times['alone'])}",
            times["alone"] / times["together"],
            at_least(20),
        )
    ]
