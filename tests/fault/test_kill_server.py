"""Kill -9 of `cmbs serve` in the middle of load, again and again on one store: nothing acknowledged is missing."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fault.conftest import CheckFaults, check_derived
from tests.support.effort import EFFORT
from tests.support.http_server import free_port, serving
from tests.support.load import CALLERS, Write, kill_under_load, resend


@pytest.mark.slow
@pytest.mark.req("ARCH-4-01", "BS-5.1-STORE-05")
def test_everything_that_was_answered_survives_kill_9_of_the_server(
    tmp_path: Path, store_url: str, check_faults: CheckFaults
) -> None:
    port, random = free_port(), Random(9)
    acknowledged: list[tuple[str, str]] = []
    in_doubt: list[Write] = []
    for number in range(EFFORT.kills):
        options = ("--store", store_url, "--workers", "1" if number % 2 else "2")
        load = kill_under_load(tmp_path, port, str(number), random.randint(40, 250), *options)
        acknowledged += load.acknowledged
        in_doubt += load.in_doubt
    assert len(in_doubt) == EFFORT.kills * CALLERS
    check_derived(store_url)
    with serving(tmp_path, "--store", store_url, port=port) as server, server.client() as client:
        # Whether they were written or not, sending them again gives one event for each, and never two.
        acknowledged += resend(client, in_doubt)
        for session_id in {session_id for session_id, _ in acknowledged}:
            events = client.get(f"/v1/sessions/{session_id}/audit").json()["events"]
            messages = [str(event["payload"]) for event in events]
            assert len(messages) == len(set(messages))
    check_faults(store_url, acknowledged, kills=EFFORT.kills)
