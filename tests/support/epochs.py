"""Epochs after which what is settled leaves the state, as a test needs them: real ones are a thousand events long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cmbs.substrate.kernel import retention


@contextmanager
def epochs_of(events: int, kept: int = 1) -> Iterator[None]:
    """Let epochs have so many events, and keep what was settled for so many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention, "EPOCH_EVENTS", events)
        patch.setattr(retention, "KEPT_EVENTS", kept)
        yield
