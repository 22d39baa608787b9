"""Where the offline verifier expects state digests of spaces: with the same rule as the kernel, written anew."""

from __future__ import annotations

from typing import Any

import pytest

from cmbs import offline_verifier as verifier
from cmbs.ledger.state_digest import is_digest_point
from cmbs.offline_verifier import Refused
from cmbs.substrate.kernel.checkpoint import STATE_FORMAT

DIGEST = {"digest": "ab" * 32, "format": 2}


def walk(sizes: range, version: int, digests: set[int]) -> None:
    """Go through entries of a version at these places, of which some carry a digest."""
    stream: Any = verifier.Space("space:s", verifier.Claims(), lambda: None)  # type: ignore[arg-type, return-value]
    for size in sizes:
        stream.size = size
        stream._check_digest({"v": version, **({"state": DIGEST} if size in digests else {})})


@pytest.mark.req("OFFLINE-01")
@pytest.mark.parametrize("version", [1, 2, 3])
def test_digests_of_spaces_are_expected_where_the_kernel_writes_them(version: int) -> None:
    sizes = range(7_001)
    points = {size for size in sizes if is_digest_point(size, STATE_FORMAT.spacing(version))} if version > 1 else set()
    walk(sizes, version, points)
    for wrong in (points ^ {6_000}, points ^ {6_250}, points ^ {0}):
        with pytest.raises(Refused):
            walk(sizes, version, wrong)
