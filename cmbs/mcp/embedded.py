"""The API that MCP asks: of an application over a store, in this process, where no server is named."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from cmbs.bootstrap import Settings, build_app
from cmbs.mcp.api import Api, open_local, open_remote


@asynccontextmanager
async def open_api(server: str | None, store: str) -> AsyncIterator[Api]:
    """The API of a server, or else over a store; closed in the end."""
    if server is None:
        async with open_embedded(store) as api:
            yield api
        return
    async with aclosing(open_remote(server)) as api:
        yield api


@asynccontextmanager
async def open_embedded(store: str) -> AsyncIterator[Api]:
    """The API over a store, with the limits and settings of the environment; closed in the end."""
    app = build_app(Settings.from_environment({**os.environ, "CMBS_STORE": store}), os.environ)
    try:
        yield open_local(app)
    finally:
        app.close()
