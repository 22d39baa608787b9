"""How MCP asks a cmbs server: through the client, once, and as the caller of each request."""

from __future__ import annotations

from cmbs.client import AsyncClient, Patience, connect_async
from cmbs.client.connecting import Application
from cmbs.errors import CmbsError, Forbidden

AUTHORIZATION = "authorization"
ACTOR = "x-cmbs-actor"
# Beside these, the credential of the one who runs calls for the caller.
EXECUTOR = "cmbs-executor"
# The longest that the server holds a request with `wait`.
MAX_WAIT_SECONDS = 20
# One attempt: a caller over MCP is told what failed, and decides whether to ask again.
_PATIENCE = Patience(timeout=60.0, deadline=60.0, attempts=1)


def open_api(server: str | Application) -> AsyncClient:
    """A client of a server elsewhere, of one over a store, or of an application in this process.

    It sends no key and no name: `acting_as` says who asks.
    """
    return connect_async(server, key="", patience=_PATIENCE, proxies=False)


def identify_caller(actor: str, key: str | None = None) -> dict[str, str]:
    """The headers of a caller: its key, or else how it is named, as `agent:planner`, to a server without keys."""
    return {ACTOR: actor} if key is None else {AUTHORIZATION: f"Bearer {key}"}


async def require_executor(api: AsyncClient) -> str:
    """The id of the executor who asks; Forbidden for any other actor."""
    me = await api.whoami()
    if me.kind != "executor":
        raise Forbidden(
            f"calls are run by executors, and this is an actor of kind `{me.kind}`",
            {"next": "make a key with `cmbs keys create --role executor`, and give it as `CMBS_EXECUTOR_KEY`"},
        )
    return me.id


async def require_agent(api: AsyncClient) -> str:
    """The id of the agent who asks; Forbidden for any other actor."""
    me = await api.whoami()
    if me.kind != "agent":
        raise Forbidden(
            f"calls are made by agents, and this is an actor of kind `{me.kind}`", {"next": "use the key of an agent"}
        )
    return me.id


def describe_failure(exc: CmbsError) -> str:
    """What is wrong and what to do next, as far as it is known."""
    step = getattr(exc, "details", {}).get("next")
    return f"{exc}; {step}" if isinstance(step, str) else str(exc)
