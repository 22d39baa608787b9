"""`cmbs hook`: what coding agents ask before they act. Fails closed: where nothing can be decided, the answer is no."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import msgspec
import typer

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.serve import StoreOption

_MAX_EVENT_BYTES = 16_777_216
# So long a host may wait; then the answer is no.
_SECONDS = 30.0


class Host(StrEnum):
    """The coding agents whose hooks are known."""

    CLAUDE = "claude"
    CURSOR = "cursor"


def hook(
    host: Annotated[Host, typer.Argument(help="Whose hook this is.")],
    server: Annotated[
        str | None,
        typer.Option(envvar="CMBS_SERVER", help="A cmbs server to use instead of a store.", metavar="URL"),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    space: Annotated[str, typer.Option(help="The space in which calls are proposed.", metavar="ID")] = "hooks",
    actor: Annotated[str, typer.Option(help="Who acts, where there are no keys.", metavar="ID")] = "agent",
    case: Annotated[str | None, typer.Option(help="The case of the calls.", metavar="ID")] = None,
    wait: Annotated[int, typer.Option(help="Seconds to wait for an approval.", min=0, max=20)] = 20,
    session: Annotated[
        str | None, typer.Option(help="Hand this session's belief back after a compaction.", metavar="ID")
    ] = None,
) -> None:
    """Decide about one call of a coding agent: reads the host's event, prints the host's answer."""
    from cmbs.mcp.hooks import deny_claude, deny_cursor

    deny: Callable[[str, Any], Any] = deny_claude if host is Host.CLAUDE else deny_cursor
    event: Any = None
    try:
        event = msgspec.json.decode(sys.stdin.buffer.read(_MAX_EVENT_BYTES + 1))
        work = _answer(host, event, _Chosen(server, store, space, actor, case, wait, session))
        answer = asyncio.run(asyncio.wait_for(work, _SECONDS))
    except Exception as exc:  # noqa: BLE001 - whatever it is, the call is not let through
        answer = deny(f"cmbs failed, and lets nothing through: {str(exc) or type(exc).__name__}", event)
    print(msgspec.json.encode(answer).decode())


class _Chosen(NamedTuple):
    server: str | None
    store: str
    space: str
    actor: str
    case: str | None
    wait: int
    session: str | None


async def _answer(host: Host, event: Any, chosen: _Chosen) -> Any:
    from cmbs.mcp.asking import identify_caller, open_api
    from cmbs.mcp.claims import FileClaims, find_state_directory
    from cmbs.mcp.decisions import DecisionPoint
    from cmbs.mcp.gateway.ledger import ensure_space
    from cmbs.mcp.gateway.opening import AGENT_KEY, OPERATOR_KEY
    from cmbs.mcp.hooks import ClaudeHook, CursorHook, HookFailed
    from cmbs.system import RandomIds

    if not isinstance(event, dict):
        raise HookFailed("the event must be a JSON object")
    target = chosen.store if chosen.server is None else chosen.server
    claims = FileClaims(find_state_directory(os.environ) / "claims", (target, chosen.space, chosen.actor))
    async with open_api(target) as api:
        agent = api.acting_as(identify_caller(f"agent:{chosen.actor}", os.environ.get(AGENT_KEY)))
        operator = api.acting_as(identify_caller("operator:hook", os.environ.get(OPERATOR_KEY)))
        # With the starter policy where the space is new: everything asks, since hooks register tools as writers.
        await ensure_space(operator, chosen.space)
        point = DecisionPoint(operator, chosen.space, RandomIds(), chosen.wait, claims)
        if host is Host.CLAUDE:
            return await ClaudeHook(point, agent, chosen.case, chosen.session).answer(event)
        return await CursorHook(point, agent, chosen.case).answer(event)
