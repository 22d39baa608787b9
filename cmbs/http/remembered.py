"""Requests whose headers were read before, which is what most are: a caller says the same ones again and again.

What a parser has made of a block of headers, byte for byte, it would make of it again. So a request that is there as a
whole, with a request line of the plainest kind, a block that is remembered and as many bytes after it as the block
says, needs no parser. Everything else is for the parser, and so is the judgement of what is no request.
"""

from __future__ import annotations

import re

from cmbs.http.headers import Headers
from cmbs.http.incoming import Incoming
from cmbs.identity.tokens import holds_key

_LINE = re.compile(rb"(GET|POST) (/[A-Za-z0-9/._~%-]*) HTTP/1\.1")
_METHODS = {b"GET": "GET", b"POST": "POST"}
_END_OF_LINE, _END_OF_HEAD = b"\r\n", b"\r\n\r\n"

# What a caller says with every request in the same words, and what is no secret: blocks of nothing else are remembered.
_STEADY = frozenset(
    b"accept accept-encoding accept-language connection content-length content-type host prefer user-agent x-cmbs-actor"
    b"".split()
)
_MOST = 1024
_LONGEST = 1024

# By a block of headers, from the end of the request line to the empty one: the headers, and the length of the body.
_known: dict[bytes, tuple[Headers, int]] = {}


def request_in(data: bytes) -> Incoming | None:
    """The request that these bytes are, no more and no less; None where it takes a parser to tell."""
    line_end = data.find(_END_OF_LINE)
    head_end = data.find(_END_OF_HEAD, line_end)
    known = _known.get(data[line_end:head_end])
    if known is None:
        return None
    asked = _LINE.fullmatch(data, 0, line_end)
    headers, length = known
    if asked is None or len(data) - head_end - len(_END_OF_HEAD) != length:
        return None
    incoming = Incoming()
    incoming.method, incoming.url = _METHODS[asked[1]], asked[2]
    incoming.headers = headers
    incoming.body = data[-length:] if length else b""
    incoming.has_head = incoming.is_whole = True
    return incoming


def remember(data: bytes, incoming: Incoming) -> None:
    """Keep the headers of the request that a parser has found in these bytes, if others may well come with the same."""
    headers = incoming.headers
    if not (incoming.is_plain and incoming.is_whole and _STEADY.issuperset(headers.by_name)):
        return
    line_end = data.find(_END_OF_LINE)
    head_end = data.find(_END_OF_HEAD, line_end)
    block, length = data[line_end:head_end], len(incoming.body)
    if (
        len(block) <= _LONGEST
        and block.isascii()
        and not holds_key(block)
        and len(headers.by_name) == len(headers.pairs)
        and int(headers.by_name.get(b"content-length", b"0")) == length == len(data) - head_end - len(_END_OF_HEAD)
        and _LINE.fullmatch(data, 0, line_end)
    ):
        if len(_known) >= _MOST:
            _known.clear()
        _known[block] = (headers.plain(), length)
