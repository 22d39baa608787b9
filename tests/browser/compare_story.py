"""A second run of the story: the same first events, then other agents that look elsewhere, until nothing is left."""

from __future__ import annotations

import httpx

from cmbs.adapters.sre import FIRING, SILENT
from tests.support.console_story import CLUSTER, METRICS, TRACES, Incident

# So many events of the story are the same in both runs.
SHARED = 4


def tell_twice(client: httpx.Client, first: Incident) -> Incident:
    """A fork of the first run after its third report; it ends in a contradiction."""
    answer = client.post(f"{first.path}/fork", json={"at": SHARED - 1}, timeout=60)
    assert answer.is_success, answer.text
    fork = Incident.__new__(Incident)
    fork._client, fork.id = client, answer.json()["session_id"]  # noqa: SLF001 - a session that is there already
    fork.path = f"/v1/sessions/{fork.id}"
    fork.probe(METRICS, "CpuSaturated@node-pool", SILENT)
    fork.probe(TRACES, "SlowResponses@storefront", SILENT)
    fork.probe(CLUSTER, "LockWaitsHigh@orders-db", FIRING)
    return fork
