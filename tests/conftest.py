"""Hypothesis profiles: `dev` (default), `ci` (reproducible), `deep` (a long search); HYPOTHESIS_PROFILE chooses.

And what tests in several files begin with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

# Here and not beside the fault tests: the process that prints the summary may have collected none of them.
from tests.support.toll import pytest_terminal_summary

if TYPE_CHECKING:
    from tests.support.spaces import World

__all__ = ["pytest_terminal_summary"]
# They are shipped, so pytest does not know them for tests: with this their failures show values.
pytest.register_assert_rewrite(
    "cmbs.testing.contracts.audit_log",
    "cmbs.testing.contracts.elimination_store",
    "cmbs.testing.contracts.hypothesis_provider",
    "cmbs.testing.contracts.store",
)

# No profile has a deadline: how long an example takes is the business of bench/, not of a test.
_SLOW_MACHINE = [HealthCheck.too_slow]

settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_SLOW_MACHINE)
settings.register_profile(
    "ci", max_examples=60, deadline=None, derandomize=True, print_blob=True, suppress_health_check=_SLOW_MACHINE
)
settings.register_profile("deep", max_examples=5_000, deadline=None, suppress_health_check=_SLOW_MACHINE)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture
def world() -> Iterator[World]:
    """A space to ask things of; in the end its log must give the same space again."""
    from tests.support.spaces import World, assert_replays

    world = World()
    yield world
    world.close()
    assert_replays(world)
