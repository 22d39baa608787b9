"""The entry point for ASGI servers: `cmbs.belief_api:app`, made from the environment when it is first asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import Settings, build_app
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.identity.gate import Gate
from cmbs.identity.registry import KeyRegistry


def create_app(
    server: BeliefServer | None = None, settings: Settings | None = None, *, anyone: bool = False
) -> BeliefApp:
    """An application over a server of yours, or over one made from `settings` (by default, the environment's).

    While its store has no keys, it serves only this machine. Say `anyone=True` where what you put around it has decided
    who may ask.
    """
    if server is not None:
        return BeliefApp(Service(server, Gate(KeyRegistry(server.log), anyone=anyone)))
    app = build_app(settings or Settings.from_environment(os.environ), os.environ, anyone=anyone)
    # Where what MCP needs is not installed, there is no such path.
    if find_spec("mcp") is not None:
        from cmbs.mcp.server.mounting import mount_mcp

        mount_mcp(app)
    return app


def open_app(environment: Mapping[str, str]) -> BeliefApp:
    """An application over a server made from variables of an environment; who opens it closes it."""
    return create_app(settings=Settings.from_environment(environment))


_app_of_environment = cache(create_app)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module `cmbs.belief_api` has no attribute `{name}`")
    return _app_of_environment()
