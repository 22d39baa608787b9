"""Where the server is: at an address, behind a socket file, or in this process over a store."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import httpx2

from cmbs.client.async_clients import AsyncClient, AsyncTransport
from cmbs.client.async_transports import AsyncHttpTransport
from cmbs.client.clients import Client, Transport
from cmbs.client.exchange import Patience
from cmbs.client.in_process import AsyncInProcessTransport, InProcessTransport, Service
from cmbs.client.transports import HttpTransport
from cmbs.errors import InvalidRequest

KEY_VARIABLE = "CMBS_KEY"
# Requests that wait hold a connection each, and must not keep the others from having one: the server has a bound.
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
_LOCAL = "http://localhost"
_STORES = ("memory", "sqlite", "postgresql", "postgres")
# By name: the client is installed without the server, and is below it in the order of imports.
_SERVER_MODULE = "cmbs.belief_api"
_SHAPES = "http://HOST:PORT, https://HOST, unix:///PATH.sock, memory:, sqlite:///FILE.db, postgresql://…"


class Application(Protocol):
    """An application in this process that serves the API."""

    service: Any


class _Place(NamedTuple):
    """A server: its name for people, its address, and either a socket file or the server in this process."""

    name: str
    url: str
    socket: str | None = None
    service: Service | None = None
    close: Callable[[], None] | None = None


def connect(
    server: str | Application,
    *,
    key: str | None = None,
    actor: str | None = None,
    patience: Patience | None = None,
    pin: bool = False,
    ca: str | None = None,
    certificate: tuple[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    proxies: bool = True,
) -> Client:
    """A client that blocks.

    Args:
        server: An address (`http://`, `https://`, `unix:///PATH`), a store (`memory:`, `sqlite:///FILE`,
            `postgresql://…`) over which the server then runs in this process, or an application in this process:
            what `create_app` makes.
        key: The key to send; by default that of the environment, `CMBS_KEY`.
        actor: Who is asking, as `agent:planner`, of a server without keys.
        patience: How long a call may take, and how often it is tried.
        pin: Whether every write names the last event that was seen, so that it is refused when there are others since.
        ca: A file of certificates to trust in place of those of the system.
        certificate: The files of a certificate of this client and of its key.
        settings: Settings of a server in this process, by the names of their environment variables.
        proxies: Whether an address is reached through the proxies that the environment names.
    """
    place = _find(server, settings)
    if place.service is not None:
        carried: Transport = InProcessTransport(place.service, place.close)
    else:
        to_socket = None if place.socket is None else httpx2.HTTPTransport(uds=place.socket, limits=_LIMITS)
        trusted = _trust(place, ca, certificate)
        http = httpx2.Client(base_url=place.url, transport=to_socket, verify=trusted, limits=_LIMITS, trust_env=proxies)
        carried = HttpTransport(http, place.name)
    return Client(carried, place.name, patience, identity=_identify(key, actor), pin=pin)


def connect_async(
    server: str | Application,
    *,
    key: str | None = None,
    actor: str | None = None,
    patience: Patience | None = None,
    pin: bool = False,
    ca: str | None = None,
    certificate: tuple[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    proxies: bool = True,
) -> AsyncClient:
    """A client that awaits; its arguments are those of `connect`."""
    place = _find(server, settings)
    if place.service is not None:
        carried: AsyncTransport = AsyncInProcessTransport(place.service, place.close)
    else:
        to_socket = None if place.socket is None else httpx2.AsyncHTTPTransport(uds=place.socket, limits=_LIMITS)
        trusted = _trust(place, ca, certificate)
        http = httpx2.AsyncClient(
            base_url=place.url, transport=to_socket, verify=trusted, limits=_LIMITS, trust_env=proxies
        )
        carried = AsyncHttpTransport(http, place.name)
    return AsyncClient(carried, place.name, patience, identity=_identify(key, actor), pin=pin)


def _find(server: str | Application, settings: Mapping[str, str] | None) -> _Place:
    if not isinstance(server, str):
        service = getattr(server, "service", None)
        if service is None:
            raise InvalidRequest(
                f"`{type(server).__name__}` is no server: pass an address, a store, or what `create_app` made",
                {"field": "server", "accepted": _SHAPES},
            )
        return _Place("an application in this process", _LOCAL, service=service)
    try:
        parts = urlsplit(server)
    except ValueError as exc:
        raise _refuse_place("the address") from exc
    if parts.scheme in _STORES:
        application = _open_server(server, settings)
        return _Place(f"{parts.scheme}:", _LOCAL, service=application.service, close=application.close)
    if settings is not None:
        raise InvalidRequest("settings are for a server in this process; those of another are its own")
    if parts.scheme == "unix":
        return _Place(f"unix:{parts.path}", _LOCAL, socket=unquote(parts.path))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _refuse_place(f"`{parts.scheme or server[:64]}`")
    if parts.username or parts.password or parts.query or parts.fragment:
        # Addresses are shown in messages and logs.
        raise InvalidRequest(
            f"an address holds no key and no query: pass `key`, or set `{KEY_VARIABLE}`", {"field": "server"}
        )
    try:
        url = httpx2.URL(server.rstrip("/"))
    except httpx2.InvalidURL as exc:
        raise _refuse_place("the address") from exc
    return _Place(f"{parts.scheme}://{parts.netloc}{parts.path}", str(url))


def _refuse_place(what: str) -> InvalidRequest:
    """The error for what is no address. One that cannot be taken apart is not shown: it may hold a key."""
    return InvalidRequest(
        f"{what} is no place of a server; there are {_SHAPES}", {"field": "server", "accepted": _SHAPES}
    )


def _open_server(store: str, settings: Mapping[str, str] | None) -> Any:
    """The application that `cmbs serve` serves, over a store."""
    try:
        server = import_module(_SERVER_MODULE)
    except ImportError as exc:
        raise InvalidRequest(
            f"a server in this process needs `pip install 'cmbs[server]'`: no `{exc.name}` here", {"field": "server"}
        ) from exc
    return server.open_app({**os.environ, **(settings or {}), "CMBS_STORE": store})


def _identify(key: str | None, actor: str | None) -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE) if key is None else key
    headers = {} if not key else {"authorization": f"Bearer {key}"}
    return headers if actor is None else {**headers, "x-cmbs-actor": actor}


def _trust(place: _Place, ca: str | None, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    if not place.url.startswith("https:"):
        # Without any trusted certificate: it is never used, and to load those of the system takes a while.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(*certificate)
    except (OSError, ssl.SSLError) as exc:
        raise InvalidRequest(f"a certificate cannot be read: {exc}", {"field": "ca or certificate"}) from exc
    return context
