"""An endpoint on the loopback interface: it checks signatures by another implementation, and answers as it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from threading import Event, Thread
from typing import Any, NamedTuple

from standardwebhooks import Webhook as Verifier

# Long enough for a machine that is busy; what takes so long has failed.
WAIT_SECONDS = 30.0
# Between two looks at something that the sender has to do first.
_GLANCE = 0.02


class Received(NamedTuple):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message_id(self) -> str:
        """The id that repeats are told by."""
        return self.headers["webhook-id"]

    def verify(self, secret: str) -> Any:
        """What was sent, if it was signed with this secret."""
        return Verifier(secret).verify(self.body, self.headers)


class Receiver:
    """What came in, and how the next requests are answered."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: Queue[Received] = Queue()
        # Statuses of the next answers; after them, `usual`.
        self.answers: Queue[int] = Queue()
        self.usual = 204
        self.location = ""
        # Cleared, requests are taken and not answered.
        self.answering = Event()
        self.answering.set()

    def take(self) -> Received:
        """The next request."""
        return self.requests.get(timeout=WAIT_SECONDS)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Return once something is so that follows from an answer; fail where it never is."""
        for _ in range(int(WAIT_SECONDS / _GLANCE)):
            if is_so():
                return
            Event().wait(_GLANCE)
        raise AssertionError("it did not come to that")


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """An endpoint that listens."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.requests.put(Received(self.path, headers, body))
            receiver.answering.wait(WAIT_SECONDS)
            try:
                self.send_response(receiver.usual if receiver.answers.empty() else receiver.answers.get())
                if receiver.location:
                    self.send_header("location", receiver.location)
                self.send_header("content-length", "0")
                self.end_headers()
            except OSError:
                pass  # the sender has given up

        def log_message(self, *args: Any) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.answering.set()
        server.shutdown()
        thread.join()
        server.server_close()
