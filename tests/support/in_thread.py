"""An application over the connections of `cmbs serve`, in a thread of this process, so that a test can look inside."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from uvicorn import Config, Server

from cmbs.http import BeliefApp
from cmbs.http.connection import Connection
from tests.support.http_server import PATIENCE


class Hurried(Connection):
    """Connections that lose their patience a thousand times sooner."""

    tick_seconds = 0.001


class Serving:
    """A running server."""

    def __init__(self, app: BeliefApp, kind: type[Connection], loop: str, stop_seconds: int) -> None:
        # Listening from the start: whoever connects waits for the server, and nobody has to look whether it is there.
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        config = Config(
            app,
            http=kind,
            loop=loop,
            ws="none",
            interface="asgi3",
            lifespan="on",
            log_config=None,
            proxy_headers=False,
            timeout_graceful_shutdown=stop_seconds,
        )
        self.server = Server(config)
        self._thread = threading.Thread(target=self.server.run, args=([self._listening],), daemon=True)
        self._thread.start()

    def begin_to_stop(self) -> None:
        """As a signal would."""
        self.server.should_exit = True

    def stop(self) -> None:
        """Stop, and wait for it."""
        self.begin_to_stop()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@contextmanager
def served(
    app: BeliefApp, kind: type[Connection] = Connection, *, loop: str = "auto", stop_seconds: int = 60
) -> Iterator[Serving]:
    """A server for a block of statements."""
    serving = Serving(app, kind, loop, stop_seconds)
    try:
        yield serving
    finally:
        serving.stop()
