"""Tests that await, with an end: what hangs fails, and does not hold up the others."""

from __future__ import annotations

import asyncio
from typing import Any

_SECONDS = 120


def run(test: Any) -> None:
    """Run a test that awaits; TimeoutError where it does not end."""

    async def bounded() -> None:
        async with asyncio.timeout(_SECONDS):
            await test

    asyncio.run(bounded())
