"""The entry point for ASGI servers: `cmbs.belief_api:app`, made from the environment when it is first asked for."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import Settings, build_server, build_substrate
from cmbs.http import BeliefApp
from cmbs.identity import Gate, KeyRegistry

# The event loop and the writer share the interpreter. With Python's default of 5 ms, whichever waits for it waits long
# compared with a commit: a prototype of the durable path answered 6,488 requests/s at 5 ms, 7,014 at 1 ms.
_SWITCH_SECONDS = 0.001

_GARBAGE_THRESHOLD = 20_000

_apps: list[BeliefApp] = []


def create_app(
    server: BeliefServer | None = None, settings: Settings | None = None, *, anyone: bool = False
) -> BeliefApp:
    """An application over a server of yours, or over one made from `settings` (by default, the environment's).

    While its store has no keys, it serves only this machine. Say `anyone=True` where what you put around it has decided
    who may ask.
    """
    spaces = None
    if server is None:
        settings = settings or Settings.from_environment(os.environ)
        server = build_server(settings)
        spaces = build_substrate(server, os.environ, settings.space_limits)
        spaces.start()
    return BeliefApp(server, Gate(KeyRegistry(server.log), anyone=anyone), spaces)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module `cmbs.belief_api` has no attribute `{name}`")
    if not _apps:
        sys.setswitchinterval(_SWITCH_SECONDS)
        _apps.append(create_app())
        # What a session remembers lives long and holds no cycles: looking through it again and again finds nothing.
        gc.freeze()
        gc.set_threshold(_GARBAGE_THRESHOLD, 20, 50)
    return _apps[0]
