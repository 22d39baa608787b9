"""The door of a gateway over HTTP: every request is of an agent that may ask now, whatever session it names."""

from __future__ import annotations

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.types import ASGIApp

from cmbs.errors import BeliefServerError, CmbsError, StoreUnavailable
from cmbs.http.asgi import Receive, Scope, Send, response_to, send_response
from cmbs.mcp.gateway.callers import ADMITTED
from cmbs.mcp.gateway.server import Gateway


class Admission:
    """An application of MCP that is asked by known agents alone; the others get an answer of HTTP."""

    def __init__(self, gateway: Gateway, app: ASGIApp) -> None:
        self._gateway = gateway
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. Who sends it is asked each time, so that a key that was revoked is good for nothing more."""
        try:
            caller = await self._gateway.admit(Headers(scope=scope))
        except BeliefServerError as exc:
            await send_response(response_to(exc), send)
            return
        except CmbsError as exc:
            await send_response(response_to(StoreUnavailable(f"who asks cannot be told now: {exc}")), send)
            return
        # By its user, the SDK knows whose a session is: requests of others may not name it.
        token = AccessToken(token="", client_id=caller.agent_id, scopes=[])
        await self._app({**scope, ADMITTED: caller, "user": AuthenticatedUser(token)}, receive, send)
