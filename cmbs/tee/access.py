"""What callers and servers must have in order, so that they can find each other and let each other in."""

from __future__ import annotations

import re

from cmbs.errors import InvalidRequest

_TOKEN = re.compile(r"[!-~]*")
_LONGEST_PORT, _LAST_PORT = 5, 65_535
_SHOWN = 64  # characters of an address that a message repeats


def checked_token(token: str) -> str:
    """A token that the metadata of a call can carry; one that it cannot carry is never repeated."""
    if not _TOKEN.fullmatch(token):
        raise InvalidRequest("a token must be of visible ASCII characters, without spaces")
    return token


def checked_endpoint(endpoint: str) -> str:
    """An address that somebody could listen on."""
    port = endpoint.rpartition(":")[2]
    numbered = port.isascii() and port.isdecimal()
    possible = not numbered or (len(port) <= _LONGEST_PORT and 0 < int(port) <= _LAST_PORT)
    if not endpoint or not endpoint.isprintable() or " " in endpoint or not possible:
        raise InvalidRequest(f"`{visible(endpoint[:_SHOWN])}` is not where a Tee could listen; use `host:port`")
    return endpoint


def visible(text: str) -> str:
    """Text that can be shown on a terminal and changes nothing there."""
    return text if text.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
