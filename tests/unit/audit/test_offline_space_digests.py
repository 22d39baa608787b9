"""Where the offline verifier expects state digests of spaces: with the same rule as the kernel, written anew."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cmbs import offline_verifier as verifier
from cmbs.ledger.state_digest import is_digest_point
from cmbs.offline_verifier import Refused
from cmbs.substrate.kernel.checkpoint import STATE_DIGESTS

DIGEST = "ab" * 32


def walk(sizes: range, digests: set[int]) -> None:
    """Go through entries at these places, of which some carry a digest."""
    stream: Any = verifier.Space("space:s", verifier.Claims(), Counter(), lambda: None)  # type: ignore[arg-type, return-value]
    for size in sizes:
        stream.size = size
        stream._check_digest({"state": DIGEST} if size in digests else {})


@pytest.mark.req("OFFLINE-01")
def test_digests_of_spaces_are_expected_where_the_kernel_writes_them() -> None:
    sizes = range(7_001)
    points = {size for size in sizes if is_digest_point(size, STATE_DIGESTS.spacing)}
    walk(sizes, points)
    for wrong in (points ^ {6_000}, points ^ {6_250}, points ^ {0}):
        with pytest.raises(Refused):
            walk(sizes, wrong)
