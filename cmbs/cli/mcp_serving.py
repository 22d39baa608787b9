"""HTTP for MCP applications that are not the belief server: granian with one worker, since sessions live in one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

from cmbs.cli.output import err
from cmbs.cli.serving import MAX_HEADER_BYTES, MAX_HEADER_SECONDS, check_port

_STOP_SECONDS = 10
_MAX_CONNECTIONS = 1_024


def serve_app(load: Callable[[], Any], host: str, port: int, *summary: str) -> None:
    """Serve what `load` gives in a worker process, until a signal comes; first print what is served where."""
    address = check_port(host, port)
    for line in summary:
        err.print(line)
    # A fork would copy threads of libraries in the middle of things.
    multiprocessing.set_start_method("spawn", force=True)
    server: Any = Granian(
        "cmbs",
        address=address,
        port=port,
        interface=Interfaces.ASGI,
        workers=1,
        http=HTTPModes.http1,
        websockets=False,
        backpressure=_MAX_CONNECTIONS,
        http1_settings=HTTP1Settings(
            header_read_timeout=MAX_HEADER_SECONDS * 1000, max_buffer_size=MAX_HEADER_BYTES, keep_alive=True
        ),
        log_level=LogLevels.warning,
        workers_kill_timeout=_STOP_SECONDS,
    )
    server.serve(target_loader=load, wrap_loader=False)
