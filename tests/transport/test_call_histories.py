"""Random histories of calls by agents, executors and operators, held against a model of what may happen.

A failure names its seed: `CMBS_SEED=123` runs that history alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.call_history import open_history
from tests.support.effort import EFFORT

N_STEPS = 120 if EFFORT.everything else 50
_CHOSEN = os.environ.get("CMBS_SEED")
SEEDS = [int(_CHOSEN)] if _CHOSEN else range(EFFORT.examples_for(50))


@pytest.mark.req("CALL-CLAIM-01", "CALL-CLAIM-03", "CALL-START-01", "CALL-START-04")
def test_no_history_of_calls_starts_one_twice_or_without_permission(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for seed in SEEDS:
        with subtests.test(seed=seed), open_history(seed, tmp_path) as (history, runner):
            try:
                for _ in range(N_STEPS):
                    history.step()
                history.close()
                history.check_ledger(runner.effects)
            except AssertionError as exc:
                exc.add_note("\n".join(["the last steps:", *history.steps[-12:]]))
                raise
