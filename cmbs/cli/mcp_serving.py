"""HTTP for MCP applications that are not the belief server: granian with one worker, since sessions live in one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
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
    server.serve(target_loader=partial(_load_in_worker, load), wrap_loader=False)


def _load_in_worker(load: Callable[[], Any]) -> Any:
    """What `load` gives, in a process that ends with the one that started it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.sentinel,), name="parent", daemon=True).start()
    return load()


def _follow(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_SECONDS)
    os._exit(1)
