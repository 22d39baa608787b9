"""The entry point for ASGI servers: `cmbs.belief_api:app`, made from the environment when it is first asked for."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import Settings, build_notary, build_server, build_substrate
from cmbs.http import BeliefApp
from cmbs.identity import Gate, KeyRegistry


def create_app(
    server: BeliefServer | None = None, settings: Settings | None = None, *, anyone: bool = False
) -> BeliefApp:
    """An application over a server of yours, or over one made from `settings` (by default, the environment's).

    While its store has no keys, it serves only this machine. Say `anyone=True` where what you put around it has decided
    who may ask.
    """
    if server is not None:
        return BeliefApp(server, Gate(KeyRegistry(server.log), anyone=anyone))
    settings = settings or Settings.from_environment(os.environ)
    server = build_server(settings)
    spaces = build_substrate(server, os.environ, settings.space_limits)
    spaces.start()
    notary = build_notary(settings, server, spaces)
    app = BeliefApp(server, Gate(KeyRegistry(server.log), anyone=anyone), spaces, settings.max_requests, notary)
    # Only now that the application observes what it finds.
    if notary is not None:
        notary.start()
    return app


_app_of_environment = cache(create_app)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module `cmbs.belief_api` has no attribute `{name}`")
    return _app_of_environment()
