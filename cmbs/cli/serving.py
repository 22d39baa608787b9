"""Starting the HTTP server: one or more worker processes over one store."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
import time
from contextlib import closing
from multiprocessing.process import BaseProcess
from typing import Any
from weakref import WeakKeyDictionary

from rich.console import Console
from uvicorn import Config, Server
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from cmbs.addresses import is_remote
from cmbs.bootstrap import Settings, build_tee_store
from cmbs.cli.demo import play_in_background
from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.http.connection import Connection
from cmbs.identity import KeyRegistry
from cmbs.stores import open_store

# As it is: an address in square brackets is not a style, a path with colons no emoji.
_out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)

_log = logging.getLogger("cmbs.serve")

# How long a worker may take to finish what it is at, and then to close its store.
_STOP_SECONDS = 10
_CLOSE_SECONDS = 15
# A worker that says nothing for so long is replaced. On a machine that is busy a good one may be silent for seconds.
_SILENT_SECONDS = 60


def serve_http(settings: Settings, host: str, port: int, workers: int, *, demo_pause: float | None = None) -> None:
    """Serve until a signal comes. Every problem that can be seen beforehand is an error before anything starts.

    With `demo_pause`, an incident is played into the server, with so many seconds before everything that happens in it.
    """
    if workers > 1 and settings.store.startswith("memory"):
        raise InvalidRequest("`memory:` lives in one process; use one worker, or a store that processes can share")
    with closing(_bound(host, port)) as listening:
        _serve(settings, listening, host, port, workers, demo_pause)


def _serve(
    settings: Settings, listening: socket.socket, host: str, port: int, workers: int, demo_pause: float | None
) -> None:
    with closing(open_store(settings.store, settings.store_timeout_seconds)) as store:
        keys = len(KeyRegistry(store).look().by_id)
    if not keys and is_remote(listening.getsockname()[0]):
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
    config = Config(
        load_app,
        factory=True,
        http=Connection,
        loop="auto",  # uvloop where there is one
        ws="none",
        lifespan="on",
        interface="asgi3",
        workers=workers,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # who asks is who is connected
        timeout_graceful_shutdown=_STOP_SECONDS,
        timeout_worker_healthcheck=_SILENT_SECONDS,
    )
    if workers > 1:
        _Workers(config, [listening]).run()
    else:
        _serve_here(config, listening)


def _serve_here(config: Config, listening: socket.socket) -> None:
    """Serve in this process, until a signal comes.

    The server stops on one, and then raises it again for whoever was there before. That is us: to be asked to stop is
    no failure.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    _Alone(config).run([listening])


class _Alone(Server):
    """A server that nobody watches over: it sees to it itself that it does not take for ever to stop."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop what runs, close the application."""
        ending = threading.Timer(_STOP_SECONDS + _CLOSE_SECONDS, _give_up)
        ending.daemon = True
        ending.start()
        await super().shutdown(sockets)


def _give_up() -> None:
    _log.error("the server did not stop in time and ends now")
    os._exit(1)


class _Workers(Multiprocess):
    """Worker processes that share the port. One that dies is replaced; one that cannot begin ends the server."""

    def __init__(self, config: Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        # Since when each of them owes an answer.
        self._asked: WeakKeyDictionary[Process, float] = WeakKeyDictionary()

    def run(self) -> None:
        """Keep them running until a signal comes."""
        super().run()
        if any(process.exitcode == STARTUP_FAILURE for process in self.processes):
            sys.exit(1)

    def keep_subprocess_alive(self) -> None:
        """Replace those that died or have long been silent, and say so. Nobody is waited for here.

        The supervisor that this derives from asks one after the other and waits for each answer: one that hangs, or
        dies when it has just been asked, would keep it from seeing the others, and signals.
        """
        for place, worker in enumerate(self.processes):
            if self._is_well(worker):
                continue
            worker.kill()
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:
                _log.error("worker %s could not begin, and no other would: the server ends", worker.pid)
                self.should_exit.set()
                return
            _log.warning("worker %s ended with %s and was replaced", worker.pid, worker.exitcode)
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()

    def _is_well(self, worker: Process) -> bool:
        """Whether it lives and has answered in time; it is asked again once it has."""
        if not worker.process.is_alive():
            return False
        if worker.parent_conn.poll():
            worker.parent_conn.recv()
            self._asked.pop(worker, None)
        now = time.monotonic()
        if worker not in self._asked:
            worker.parent_conn.send(b"ping")
        return now - self._asked.setdefault(worker, now) < _SILENT_SECONDS

    def join_all(self) -> None:
        """Wait for them to stop, but not for ever."""
        until = time.monotonic() + _STOP_SECONDS + _CLOSE_SECONDS
        for process in self.processes:
            process.process.join(max(0.0, until - time.monotonic()))
            if process.process.is_alive():
                _log.error("worker %s did not stop and is killed", process.pid)
                process.process.kill()
                process.process.join()


def without_password(url: str) -> str:
    """A store's URL as it may be shown: what is printed ends up in logs."""
    hidden = re.sub(r"(?<=://)([^:@/?]*):[^@]+@", r"\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]+", r"\1***", hidden, flags=re.IGNORECASE)


def load_app() -> Any:
    """The application, in whatever process serves it.

    Not by its name: a loader that takes names puts the working directory first on the path, and with it whatever
    module lies there.
    """
    from cmbs import belief_api

    parent = multiprocessing.parent_process()
    if parent is None:
        return belief_api.app
    threading.Thread(target=_end_with, args=(parent,), name="cmbs-parent", daemon=True).start()
    try:
        return belief_api.app
    except BeliefServerError as exc:
        _log.error("a worker cannot begin: %s: %s", exc.code, exc.message)
        sys.exit(STARTUP_FAILURE)


def _end_with(parent: BaseProcess) -> None:
    """Stop as on a signal once the process that started us is gone: an orphan would go on and hold the port.

    Again and again, because the first signals may come before anybody listens for them; in the end without asking.
    """
    parent.join()
    for _ in range(_STOP_SECONDS):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _bound(host: str, port: int) -> socket.socket:
    """A socket at this address, which nobody can reach before the server is ready; InvalidRequest says why not."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
    except OSError as exc:
        raise InvalidRequest(f"cannot listen on `{host}:{port}`: {exc.strerror}") from exc
    return listening
