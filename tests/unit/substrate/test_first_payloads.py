"""Version 1 of the constraint payload means what it meant before there was a second one, to the last bit."""

import json
from pathlib import Path

import pytest

from tests.support.first_payloads import SEEDS, decide_from_seed

VECTORS: list[str] = json.loads((Path(__file__).parents[2] / "vectors" / "first_payloads.json").read_text())


@pytest.mark.req("SS01-PAYLOAD-V1")
def test_random_policies_of_version_1_decide_as_they_did_before_version_2() -> None:
    assert len(VECTORS) == SEEDS
    found = [decide_from_seed(seed) for seed in range(SEEDS)]
    assert [seed for seed in range(SEEDS) if found[seed] != VECTORS[seed]] == []
