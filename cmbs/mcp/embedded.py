"""The application of a store, in this process: what MCP uses where no server runs."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cmbs.bootstrap import Settings, build_app
from cmbs.mcp.api import Api, open_local


@asynccontextmanager
async def open_embedded(store: str) -> AsyncIterator[Api]:
    """The API over a store, with the limits and settings of the environment; closed in the end."""
    app = build_app(Settings.from_environment({**os.environ, "CMBS_STORE": store}), os.environ)
    try:
        yield open_local(app)
    finally:
        app.close()
