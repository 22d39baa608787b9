"""Starting the HTTP server: one or more worker processes over one store."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import socket
import threading
import time
from contextlib import closing
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.log import LogLevels
from rich.console import Console

from cmbs.bootstrap import Settings, build_tee_store
from cmbs.cli.demo import play_in_background
from cmbs.errors import InvalidRequest
from cmbs.identity import KeyRegistry
from cmbs.identity.gate import is_remote
from cmbs.stores import open_store

# As it is: an address in square brackets is not a style, a path with colons no emoji.
_out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)

# How long a worker may take to finish what it is at.
_STOP_SECONDS = 10
# How long it may take until the end of a worker has got about in this process.
_NOTICED_SECONDS = 2.0


def serve_http(settings: Settings, host: str, port: int, workers: int, *, demo_pause: float | None = None) -> None:
    """Serve until a signal comes. Every problem that can be seen beforehand is an error before anything starts.

    With `demo_pause`, an incident is played into the server, with so many seconds before everything that happens in it.
    """
    if workers > 1 and settings.store.startswith("memory"):
        raise InvalidRequest("`memory:` lives in one process; use one worker, or a store that processes can share")
    address = _listening_address(host, port)
    with closing(open_store(settings.store, settings.store_timeout_seconds)) as store:
        keys = len(KeyRegistry(store).look().by_id)
    if not keys and is_remote(address):
        raise InvalidRequest(
            f"without keys only this machine may be served, and `{host}` is open to others; make a key first:"
            " `cmbs keys create`"
        )
    if keys and demo_pause is not None:
        raise InvalidRequest("the demo has no key; play it into a store without keys")
    tee = build_tee_store(settings)
    if tee is not None:
        tee.close()
    # Workers are processes of their own and find their settings where any ASGI server's workers would.
    os.environ.update(settings.to_environment())
    shown = f"[{host}]" if ":" in host else host
    _out.print(f"cmbs belief server on http://{shown}:{port}, {workers} worker{'s' if workers > 1 else ''}")
    _out.print(f"  API docs  http://{shown}:{port}/docs")
    _out.print(f"  store     {without_password(settings.store)}")
    _out.print(f"  keys      {keys or 'none: only this machine is served, and callers are unauthenticated'}")
    if settings.tee:
        _out.print(f"  Tee       {settings.tee}{' with TLS' if settings.tee_ca else ''}")
    if demo_pause is not None:
        play_in_background(f"http://{shown}:{port}", _out.print, demo_pause)
    server = Granian(
        "cmbs.belief_api:app",
        address=address,
        port=port,
        interface=Interfaces.RSGI,
        workers=workers,
        loop=Loops.auto,
        http=HTTPModes.http1,
        log_level=LogLevels.warning,
        workers_kill_timeout=_STOP_SECONDS,
    )
    logging.getLogger("_granian").addFilter(partial(_is_true, server))
    server.serve(target_loader=load_app, wrap_loader=False)


def _is_true(server: Any, record: logging.LogRecord) -> bool:
    """Whether granian is right that a worker did not stop.

    Two of its threads wait for a worker's end, and only one is told; on a busy machine the other looks too soon.
    """
    said = re.fullmatch(r"Killing worker-(\d+) after it refused to gracefully stop", record.getMessage())
    if said is None:
        return True
    worker = server.wrks[int(said[1]) - 1]
    until = time.monotonic() + _NOTICED_SECONDS
    while worker.is_alive() and time.monotonic() < until:
        time.sleep(0.01)
    return bool(worker.is_alive())


def without_password(url: str) -> str:
    """A store's URL as it may be shown: what is printed ends up in logs."""
    hidden = re.sub(r"(?<=://)([^:@/?]*):[^@]+@", r"\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]+", r"\1***", hidden, flags=re.IGNORECASE)


def load_app() -> Any:
    """The application, in a worker process.

    Granian's own loader would put the working directory first on the path, and with it whatever module lies there.
    """
    from cmbs import belief_api

    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), name="cmbs-parent", daemon=True).start()
    return belief_api.app


def _end_with(parent: BaseProcess) -> None:
    """Stop as on a signal once the process that started us is gone: an orphan would go on and hold the port.

    Again and again, because the first signals may come before anybody listens for them; in the end without asking.
    """
    parent.join()
    for _ in range(_STOP_SECONDS):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _listening_address(host: str, port: int) -> str:
    """The numeric address of a host on which we may listen; InvalidRequest says what is in the way."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as exc:
        raise InvalidRequest(f"cannot listen on `{host}:{port}`: {exc.strerror}") from exc
    return str(address[0])
