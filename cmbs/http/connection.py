"""One connection of `cmbs serve`: bytes in, the handler of the path, bytes out.

uvicorn keeps the sockets, the signals and the workers, and makes one of these for each connection. What would be a
scope, two awaitables and a task for every request is a call here, and what many ask at a time is answered together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, cast

import httptools
from uvicorn import Config
from uvicorn.server import ServerState

from cmbs.errors import InvalidRequest
from cmbs.http.errors import TransportCode, TransportError
from cmbs.http.exchange import Request, cut_off
from cmbs.http.headers import Headers
from cmbs.http.incoming import HEAD_BYTES, Incoming
from cmbs.http.passing_on import Passed, pass_on, path_and_query
from cmbs.http.remembered import remember, request_in
from cmbs.http.router import response_to
from cmbs.http.service import service_of
from cmbs.http.stepping import NEXT_STEP, resumed
from cmbs.identity.kernel.model import ANONYMOUS

_log = logging.getLogger("cmbs.http")

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# So many requests may wait on one connection before no more are read.
_WAITING = 8
# What a parser is at between two requests.
_NOTHING = Incoming()


class Connection(asyncio.Protocol):
    """One connection, from its first byte to its last. Requests are answered one after the other, in their order."""

    # Once in so many seconds every connection is looked at; how often in a row it may be found
    # without a request, with an unfinished one or an answer that is not fetched, and waiting for the caller to hang up.
    tick_seconds = 1.0
    idle_ticks = 75
    request_ticks = 60
    linger_ticks = 5

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._service = service_of(config.loaded_app, server_state, self.tick_seconds)
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._peer: str | None = None
        # The request that is arriving, the whole ones that wait, and the one that is being answered.
        self._incoming: Incoming | None = None
        # What the parser is at, which is the one that is arriving for as long as that is of use to anybody.
        self._parsed = _NOTHING
        self._pairs: list[tuple[bytes, bytes]] = []
        self._queue: deque[Incoming] = deque()
        self.running: Incoming | None = None
        # Nothing more is read as a request; nothing more is written; the caller has sent all that it will.
        self._is_deaf = self._is_over = self._has_eof = False
        # The other side takes no more for now; we take no more for now.
        self._is_blocked = self._is_paused = False
        self._age = 0
        self._unsent = 0

    # --- the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if isinstance(peer, tuple) else None
        self._service.add(self)
        if self._service.is_ending:
            self._hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more. What runs goes on; nobody hears of it."""
        del exc
        self._service.discard(self)
        self._is_deaf = self._is_over = True
        self._queue.clear()
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.fail(cut_off())
        # It knows our methods, and we know it: without this, memory would wait for the garbage collector.
        del self._parser

    def data_received(self, data: bytes) -> None:
        """Some bytes."""
        if self._incoming is None and not self._is_deaf:
            incoming = request_in(data)
            if incoming is not None:
                self._age = 0
                self._queue.append(incoming)
                self._begin_or_wait()
                return
        if len(data) > HEAD_BYTES:  # so that every head larger than that comes in several pieces, and is measured
            for start in range(0, len(data), HEAD_BYTES):
                self._feed(data[start : start + HEAD_BYTES])
            return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        if self._is_deaf:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            self._stay(data[exc.args[0] :])
            return
        except httptools.HttpParserError as exc:
            self._refuse_malformed(exc)
        incoming = self._incoming
        if incoming is not None:
            if incoming.is_endless(len(data)):
                self._refuse(_head_too_large())
        elif self._queue:
            remember(data, self._queue[-1])
        self._begin_or_wait()

    def _begin_or_wait(self) -> None:
        if self._queue and self.running is None:
            self._service.enqueue(self)
        else:
            self._go_on()

    def eof_received(self) -> bool:
        """The caller sends no more, but may still listen: true while there is something to say."""
        self._has_eof = self._is_deaf = True
        incoming = self._incoming
        if incoming is not None and incoming.has_head:
            self._refuse(cut_off())
            self._go_on()
        return self.running is not None or bool(self._queue) or self._is_blocked

    def pause_writing(self) -> None:
        """The caller does not fetch its answers."""
        self._is_blocked = True
        self._regulate()

    def resume_writing(self) -> None:
        """It does again."""
        self._is_blocked = False
        self._go_on()

    def shutdown(self) -> None:
        """The server ends: what runs is answered, but nobody is waited for."""
        self._service.is_ending = True
        if self._queue:
            self._go_on()
        running = self.running
        if running is None:
            self._hang_up()
        elif running is self._incoming:
            self._refuse(TransportError(TransportCode.BUSY, "the server is stopping; nothing was done"))

    def tick(self) -> None:
        """Another second has passed."""
        self._age += 1
        if self._is_over or self._is_blocked:
            unsent = self._transport.get_write_buffer_size()
            if unsent != self._unsent:
                self._unsent, self._age = unsent, 0
            if self._age > (self.request_ticks if unsent else self.linger_ticks):
                self._is_over = True
                self._transport.abort()
        elif self._is_paused:
            self._age = 0
        elif self._incoming is not None:
            if self._age > self.request_ticks:
                self._refuse(TransportError(TransportCode.REQUEST_TIMEOUT, "the request did not arrive in time"))
                self._go_on()
        elif self.running is not None:
            self._age = 0
        elif self._age > self.idle_ticks:
            self._hang_up()

    # --- the parser ---

    def on_message_begin(self) -> None:
        """A request begins."""
        self._incoming = self._parsed = Incoming()
        self._pairs = []
        self._age = 0

    def on_url(self, url: bytes) -> None:
        """What it asks for, or a part of that."""
        self._parsed.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._pairs.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        incoming = self._parsed
        parser = self._parser
        incoming.method = parser.get_method().decode()
        headers = incoming.headers = Headers(self._pairs)
        self._pairs = []  # for what comes after the body, which is nobody's header
        incoming.has_head = True
        if incoming.method == "HEAD":
            incoming.is_plain = False
        if not parser.should_keep_alive():
            incoming.be_last()
        # Only HTTP/1.1 keeps a connection without saying so.
        if not incoming.keep_alive or b"connection" in headers.by_name:
            self._check_version(incoming)
        if incoming.is_spread:
            self._age = 0
            if incoming.head_bytes > HEAD_BYTES:
                incoming.refused = _head_too_large()
                incoming.be_last()

    def _check_version(self, incoming: Incoming) -> None:
        incoming.version = self._parser.get_http_version()
        if incoming.version == "1.1":
            return
        incoming.is_plain = False
        if incoming.version != "1.0":
            incoming.refused = InvalidRequest("the request is not HTTP/1.1", {"version": incoming.version})
            incoming.be_last()
        elif b"transfer-encoding" in incoming.headers.by_name:
            # Whoever is between us may think that the body ends elsewhere.
            incoming.refused = InvalidRequest("a request of HTTP/1.0 has no `Transfer-Encoding`")
            incoming.be_last()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        incoming = self._parsed
        if incoming.body:
            incoming.take(body, self._service.body_bytes)
        else:
            incoming.body = body

    def on_message_complete(self) -> None:
        """The request is whole."""
        incoming = self._parsed
        # Or whoever stays would keep us from forgetting what was asked, its body and its key included.
        self._incoming, self._parsed = None, _NOTHING
        incoming.end()
        self._age = 0
        if not incoming.is_begun:
            self._queue.append(incoming)
        if not incoming.keep_alive:
            self._is_deaf = True

    def _refuse_malformed(self, exc: Exception) -> None:
        """What cannot be read cannot be answered, but its sender can."""
        if self._is_deaf:  # after a request that was to be the last one
            return
        if self._incoming is None:
            self._incoming = Incoming()
        if self._incoming.has_head:
            self._refuse(cut_off())
        else:
            reason = str(exc)
            self._refuse(InvalidRequest(f"the request is not HTTP/1.1: {reason[:1].lower()}{reason[1:]}"))

    def _refuse(self, problem: Exception) -> None:
        """Give up the request that is arriving, and whatever comes after it."""
        incoming, self._incoming = self._incoming, None
        self._is_deaf = True
        if incoming is None:
            return
        incoming.be_last()
        if incoming.has_head:
            incoming.fail(problem)
        else:
            incoming.refused = problem
        if not incoming.is_begun:
            self._queue.append(incoming)
        elif self.running is not incoming:  # it was answered, and its rest read for the sake of the next one
            self._hang_up()

    def _stay(self, rest: bytes) -> None:
        """Somebody wants to change to another protocol, which we do not: the request is answered in this one.

        The parser, however, takes the request for over with its head, and does not go on.
        """
        incoming = self._queue[-1]
        self._parser = httptools.HttpRequestParser(self)
        if incoming.method == "CONNECT":
            incoming.be_last()
            self._is_deaf = True
        elif incoming.has_body and incoming.refused is None:
            # A head of the same framing for the new parser, so that it reads the body; what it says of it is dropped.
            framing = (b"content-length", b"transfer-encoding")
            lines = [b"%b: %b\r\n" % pair for pair in incoming.headers.pairs if pair[0] in framing]
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines))
            self._incoming = self._parsed = self._queue.pop()
            incoming.is_whole = self._is_deaf = False
        if rest and not self._is_deaf:
            self._feed(rest)
        else:
            self._go_on()

    # --- answering ---

    def _go_on(self) -> None:
        """Begin what can be begun."""
        queue = self._queue
        while queue and self.running is None and not self._is_blocked:
            self._begin(queue.popleft())
        incoming = self._incoming
        if incoming is not None and incoming.has_head and not (incoming.is_begun or self.running or self._is_blocked):
            self._begin(incoming)
        if queue or self._is_paused:
            self._regulate()
        if self._has_eof and self.running is None and not queue and not self._is_over:
            self._hang_up()

    def take_turn(self) -> None:
        """Begin the next request. What else was sent meanwhile waits for the next turn: others have theirs first."""
        if self._queue and self.running is None and not self._is_blocked:
            self._begin(self._queue.popleft())
        if self.running is None:
            self.end_turn()
        elif len(self._queue) >= _WAITING:
            self._regulate()

    def end_turn(self) -> None:
        """Go on with whatever else there is to do, now that a request is answered."""
        if self._queue and not self._is_blocked:
            self._service.enqueue(self)
            self._regulate()
        elif self._incoming is not None or self._has_eof or self._is_paused:
            self._go_on()

    def _regulate(self) -> None:
        """Read only as much as can be dealt with."""
        pause = not self._is_over and (self._is_blocked or len(self._queue) >= _WAITING)
        if pause is not self._is_paused:
            self._is_paused = pause
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _begin(self, incoming: Incoming) -> None:
        """Answer, here and now if nothing has to be waited for; if something has, in a task."""
        self.running = incoming
        incoming.is_begun = True
        self.step(incoming, self._answer(incoming))

    def step(self, incoming: Incoming, answering: Coroutine[Any, None, None]) -> None:
        """Go as far as can be gone without waiting for anything but the others whose turn it is."""
        try:
            waited_for = answering.send(None)
        except StopIteration:
            return
        except Exception:  # noqa: BLE001 - the others are to have their turns, whatever happens here
            self.running = None
            _log.exception("an answer could not be sent")
            self._hang_up()
            return
        if waited_for is NEXT_STEP:
            later = self._service.later
            if later is None:
                self.step(incoming, answering)
            else:
                later.append((self, incoming, answering))
            return
        incoming.has_task = True
        task = self._loop.create_task(resumed(answering, waited_for))
        self._service.tasks.add(task)
        task.add_done_callback(partial(self._finished, incoming))

    def _finished(self, incoming: Incoming, task: asyncio.Task[None]) -> None:
        self._service.tasks.discard(task)
        if self.running is incoming:  # there was no answer: it was cancelled, or the writing failed
            self.running = None
            if not task.cancelled():
                _log.error("an answer could not be sent", exc_info=task.exception())
            self._hang_up()
        self._go_on()

    async def _answer(self, incoming: Incoming) -> None:
        """Carry out a request. Whatever happens, the answer has the protocol's shape."""
        service = self._service
        if incoming.refused is not None:
            self._send(incoming, *response_to(incoming.refused))
            return
        try:
            path, query = incoming.url, b""
            if b"?" in path:
                path, _, query = path.partition(b"?")
            found = service.at(path)
            if found is None and not path.startswith(b"/"):
                path, query = path_and_query(incoming.url)
                found = service.at(path)
            if found is None:
                body = await incoming.whole_body(service.body_bytes, self._go_ahead)
                self._send_passed(incoming, await pass_on(service.app, incoming, body, self._scope()))
                return
            handler, needed = found.handler(incoming.method)
            header = incoming.headers.value
            actor = ANONYMOUS
            if needed is not None:
                gate = service.gate
                if not gate.is_current:
                    await gate.catch_up()
                actor = gate.admit(header, self._peer, needed)
            # Strangers are turned away before their bodies are waited for.
            body = incoming.body
            if not incoming.is_whole or len(body) > service.body_bytes:
                body = await incoming.whole_body(service.body_bytes, self._go_ahead)
            status, content, more = await handler(Request(found.params, body, query, header, actor, incoming))
        except Exception as exc:  # noqa: BLE001 - the last place that can still answer
            status, content, more = response_to(exc)
        self._send(incoming, status, content, more)

    def _go_ahead(self) -> None:
        if not self._is_over:
            self._service.flush()
            self._transport.write(_CONTINUE)

    def _scope(self) -> dict[str, Any]:
        transport = self._transport
        client, server = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        return {
            "scheme": "https" if transport.get_extra_info("sslcontext") else "http",
            "client": client[:2] if isinstance(client, tuple) else None,
            "server": server[:2] if isinstance(server, tuple) else None,
            "state": self._app_state.copy(),
        }

    def _send(self, incoming: Incoming, status: int, content: bytes, more: list[tuple[str, str]]) -> None:
        """Send an answer in JSON, and be ready for the next request."""
        service = self._service
        head = service.heads.get(status) or service.json_head(status)
        if incoming.is_plain and incoming.is_whole and not more and not service.is_ending:
            self.running = None
            if not self._is_over:
                service.send(self._transport, b"%b%d\r\n\r\n%b" % (head, len(content), content))
            return
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in more]
        self._send_with(incoming, b"%b%d\r\n" % (head, len(content)), pairs, content)

    def _send_passed(self, incoming: Incoming, passed: Passed) -> None:
        head = b"%bcontent-length: %d\r\n" % (self._service.head(passed.status), passed.length)
        self._send_with(incoming, head, passed.headers, passed.body)

    def _send_with(self, incoming: Incoming, head: bytes, pairs: list[tuple[bytes, bytes]], content: bytes) -> None:
        """Send an answer with headers of its own, and hang up where it is the last one."""
        self.running = None
        if self._is_over:
            return
        rest_is_read = incoming.is_whole or (incoming.keep_alive and incoming.is_soon_over)
        is_last = not incoming.keep_alive or not rest_is_read or self._service.is_ending
        if is_last:
            pairs = [*pairs, (b"connection", b"close")]
        elif incoming.version != "1.1":
            pairs = [*pairs, (b"connection", b"keep-alive")]
        lines = b"".join([b"%b: %b\r\n" % pair for pair in pairs])
        self._service.flush()
        self._transport.write(b"%b%b\r\n%b" % (head, lines, content if incoming.method != "HEAD" else b""))
        if is_last:
            self._hang_up(lingering=not incoming.is_whole and not self._service.is_ending)

    def _hang_up(self, *, lingering: bool = False) -> None:
        """Say that this was all.

        To close while the caller still sends would be to take back the answer: where that may be, what comes is read
        and dropped until it hangs up too.
        """
        self._service.flush()
        self._is_deaf = self._is_over = True
        self._incoming = None
        self._queue.clear()
        self._age = self._unsent = 0
        if self._transport.is_closing():
            return
        if lingering and not self._has_eof and self._transport.can_write_eof():
            self._regulate()
            self._transport.write_eof()
        else:
            self._transport.close()


def _head_too_large() -> TransportError:
    return TransportError(
        TransportCode.HEAD_TOO_LARGE,
        f"the head of a request may have at most {HEAD_BYTES} bytes",
        {"limit": "head_bytes", "maximum": HEAD_BYTES},
    )
