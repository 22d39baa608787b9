"""A request on its way in, as a connection takes it off the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cmbs.errors import LimitExceeded
from cmbs.http.headers import Headers
from cmbs.http.stepping import Course

# What a head may come to, and whatever else is sent around a body.
HEAD_BYTES = 65_536
# So much of a body that nobody wants is read for the sake of the next request.
_REST_BYTES = 65_536
_NO_HEADERS = Headers([])


class Incoming(Course):
    """A request: its head, then its body.

    Most are whole at once, and leave nearly everything as it stands here.
    """

    method = ""
    url = b""
    version = "1.1"
    headers = _NO_HEADERS
    # Another may follow on the same connection; nothing about the head of the answer is special.
    keep_alive = True
    is_plain = True
    # The head is whole; so is the body; somebody is about to answer; it did not come all at once.
    has_head = False
    is_whole = False
    is_begun = False
    is_spread = False
    # The first piece of the body, and in the end all of it; `_size` is right from the second piece on.
    body = b""
    _size = 0
    _further: list[bytes] | None = None
    # Why it cannot be answered as it should: what is wrong with its head, and what with its body.
    refused: Exception | None = None
    _problem: Exception | None = None
    _has_failed = False
    _waiting: asyncio.Future[None] | None = None
    # What was read since the body last grew, not counting what came together with the first byte.
    _idle_bytes = 0
    _seen = 0

    def be_last(self) -> None:
        """No other request follows."""
        self.keep_alive = self.is_plain = False

    @property
    def head_bytes(self) -> int:
        """How large the head is."""
        return len(self.url) + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers.pairs)

    def is_endless(self, read: int) -> bool:
        """Whether too much was read, this included, that is neither the beginning of it nor of its body."""
        size = self._size or len(self.body)
        if self.is_spread and size == self._seen:
            self._idle_bytes += read
        else:
            self.is_spread = True
            self._seen, self._idle_bytes = size, 0
        return self._idle_bytes > HEAD_BYTES

    def take(self, piece: bytes, limit: int) -> None:
        """One more piece of the body."""
        self._size = (self._size or len(self.body)) + len(piece)
        if self._further is None:
            self._further = []
        if self._size > limit:
            self.fail(LimitExceeded("body_bytes", limit, self._size))
        elif not self._has_failed:
            self._further.append(piece)

    def end(self) -> None:
        """The body is whole."""
        if self._further is not None:
            self.body = b"".join((self.body, *self._further))
            self._further = None
        self.is_whole = True
        if self._waiting is not None:
            self._wake(self._waiting)

    def fail(self, problem: Exception) -> None:
        """There will be no body."""
        if not self._has_failed and not self.is_whole:
            self._has_failed, self._problem = True, problem
            if self._further is not None:
                self._further.clear()
            if self._waiting is not None:
                self._wake(self._waiting)

    @staticmethod
    def _wake(waiting: asyncio.Future[None]) -> None:
        if not waiting.done():
            waiting.set_result(None)

    async def whole_body(self, limit: int, go_ahead: Callable[[], None]) -> bytes:
        """The body, once it is there; LimitExceeded as soon as it is known to be too large.

        `go_ahead` lets a caller send it who asked whether to.
        """
        said = self.headers.by_name.get(b"content-length")
        if said is not None and int(said) > limit:
            raise LimitExceeded("body_bytes", limit, int(said))
        if not self.is_whole and not self._has_failed:
            if self.waits_for_leave and not self.body:
                go_ahead()
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        problem, self._problem = self._problem, None
        if problem is not None:
            try:
                raise problem
            finally:
                # It knows the frames that know it: without this, memory would wait for the garbage collector.
                del problem
        if len(self.body) > limit:
            raise LimitExceeded("body_bytes", limit, len(self.body))
        return self.body

    @property
    def waits_for_leave(self) -> bool:
        """Whether the caller wants to hear that the body is welcome before sending it."""
        return self.version == "1.1" and self.headers.by_name.get(b"expect", b"").lower() == b"100-continue"

    @property
    def has_body(self) -> bool:
        """Whether a body belongs to it."""
        by_name = self.headers.by_name
        return b"transfer-encoding" in by_name or int(by_name.get(b"content-length", b"0")) > 0

    @property
    def is_soon_over(self) -> bool:
        """Whether the rest of a body that nobody wants is worth waiting for."""
        said = self.headers.by_name.get(b"content-length")
        return not self._has_failed and not self.waits_for_leave and said is not None and int(said) <= _REST_BYTES
