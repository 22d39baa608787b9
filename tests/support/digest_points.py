"""Digest points where a test needs them: real ones are a thousand events apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from cmbs.ledger import state_digest


@contextmanager
def digest_points_at(places: Iterable[int]) -> Iterator[None]:
    """Let the entries at these places, and no others, carry state digests."""
    with pytest.MonkeyPatch.context() as patch:
        points = sorted(places)
        patch.setattr(state_digest, "_POINTS", points)
        patch.setattr(state_digest, "_POINT_SET", frozenset(points))
        patch.setattr(state_digest, "_EVEN_POINTS", points)
        yield
