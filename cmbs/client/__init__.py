"""A client of cmbs servers, elsewhere or in this process: `connect` for one that blocks, `connect_async` to await."""

from cmbs.client.async_cases import AsyncCase
from cmbs.client.async_clients import AsyncClient
from cmbs.client.case_options import Why
from cmbs.client.cases import Case
from cmbs.client.clients import Client
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
