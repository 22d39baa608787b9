"""Messages to the log of the host: what was called, what failed, and the server's own words of it, for people."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast, get_args

import anyio
import mcp_types
from mcp.server.connection import allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Level = mcp_types.LoggingLevel

LOGGER = "cmbs"
# By severity, the least first.
LEVELS: tuple[Level, ...] = get_args(Level)
# Of clients that set none.
DEFAULT_LEVEL: Level = "warning"


async def report(ctx: ServerRequestContext[Any, Any], threshold: Level, level: Level, data: dict[str, Any]) -> None:
    """Send a message on the stream of a request, if its client wants one of this level.

    `threshold` is what the connection was set to. Since 2026-07-28 a request says for itself what it wants.
    """
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        is_wanted = level in allowed_log_levels(ctx.protocol_version, cast("dict[str, Any] | None", ctx.meta))
    else:
        is_wanted = LEVELS.index(level) >= LEVELS.index(threshold)
    if not is_wanted:
        return
    params = mcp_types.LoggingMessageNotificationParams(level=level, logger=LOGGER, data=data)
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        await ctx.session.send_notification(
            mcp_types.LoggingMessageNotification(params=params), related_request_id=ctx.request_id
        )
