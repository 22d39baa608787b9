"""Kill -9 of a process that embeds the server, again and again on one store: what it acknowledged is there."""

from __future__ import annotations

import subprocess
from contextlib import closing
from itertools import islice
from random import Random

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.stores import open_store
from tests.fault.conftest import CheckFaults, check_derived
from tests.support.effort import EFFORT
from tests.support.warm import start

# A process starts quickly, so it is killed twice as often as a server.
KILLS = 2 * EFFORT.kills


def kill_in_the_middle(store_url: str, after: int) -> list[tuple[str, str, str]]:
    """Let a process write until so many writes were acknowledged, kill it; everything that it acknowledged."""
    writer = start("tests.support.acknowledging", store_url, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout as printed:
        lines = list(islice(printed, after))
        writer.kill()
        lines += printed
    assert writer.wait() == -9
    # The last line may have been cut off; the others were printed whole.
    acknowledged = [tuple(line.split()) for line in lines if line.endswith("\n")]
    assert len(acknowledged) >= after
    return [(session_id, event_id, observation_id) for session_id, event_id, observation_id in acknowledged]


@pytest.mark.slow
@pytest.mark.req("ARCH-4-01")
def test_everything_acknowledged_survives_kill_9_and_every_session_verifies(
    store_url: str, check_faults: CheckFaults
) -> None:
    moments = Random(20261115)
    acknowledged: dict[str, dict[str, str]] = {}
    for _ in range(KILLS):
        for session_id, event_id, observation_id in kill_in_the_middle(store_url, moments.randint(0, 60)):
            acknowledged.setdefault(session_id, {})[event_id] = observation_id
    check_derived(store_url)
    with closing(BeliefServer(store=open_store(store_url))) as server:
        assert {summary.session_id for summary in server.list_sessions()} >= acknowledged.keys()
        for session_id, events in acknowledged.items():
            named = {
                entry.event_id: entry.payload.get("observation_id") or entry.payload.get("obligation_id")
                for entry in server.audit_trace(session_id)
            }
            assert named.items() >= events.items()
    answered = [(session_id, event_id) for session_id, events in acknowledged.items() for event_id in events]
    assert len(answered) >= KILLS
    check_faults(store_url, answered, kills=KILLS)
