"""The machine's clock and ids: what servers use when no others are injected."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from cmbs.system import RandomIds, SystemClock

MANY = 1_000
# Prints ids of a parent and of its child, which was forked when the parent had some in stock; first the child's.
FORKING = """
import os, sys
from cmbs.system import RandomIds
ids = RandomIds()
made = [ids.new_id()]
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    made.clear()
made += [ids.new_id() for _ in range(200)]
print(*made, sep="\\n", flush=True)
os._exit(0)
"""


def test_ids_are_random_uuids_and_never_the_same() -> None:
    ids = RandomIds()
    made = [ids.new_id() for _ in range(MANY)]
    assert len(set(made)) == MANY
    for text in made:
        assert str(uuid.UUID(text)) == text
        assert (uuid.UUID(text).version, uuid.UUID(text).variant) == (4, uuid.RFC_4122)


def test_threads_and_other_sources_share_no_id() -> None:
    def some(_: int) -> list[str]:
        ids = RandomIds()
        return [ids.new_id() for _ in range(MANY)]

    with ThreadPoolExecutor(8) as threads:
        made = [text for found in threads.map(some, range(8)) for text in found]
    assert len(set(made)) == 8 * MANY


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")
def test_a_forked_process_has_ids_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True, timeout=60)
    made = done.stdout.split()
    assert len(made) == len(set(made)) == 401


def test_moments_are_utc_with_microseconds() -> None:
    clock = SystemClock()
    before = datetime.now(UTC) - timedelta(seconds=1)
    moment = clock.now()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", moment)
    assert before <= datetime.fromisoformat(moment) <= datetime.now(UTC) + timedelta(seconds=1)
