"""A client of cmbs servers, elsewhere or in this process: `connect` for one that blocks, `connect_async` to await."""

from cmbs.client.cases import AsyncCase, Case, Why
from cmbs.client.clients import AsyncClient, Client
from cmbs.client.connecting import connect, connect_async
from cmbs.client.errors import ClientError, HeadWentBack, RequestFailed, Unreachable, UnreadableAnswer
from cmbs.client.exchange import Patience

__all__ = [
    "AsyncCase",
    "AsyncClient",
    "Case",
    "Client",
    "ClientError",
    "HeadWentBack",
    "Patience",
    "RequestFailed",
    "Unreachable",
    "UnreadableAnswer",
    "Why",
    "connect",
    "connect_async",
]
