"""Endpoints, tokens and text from peers: what may be used, sent and shown."""

from __future__ import annotations

import re

from cmbs.errors import InvalidRequest

# Where the trailing metadata of a call that was refused has the refusal, as JSON. All metadata together has 8 KiB.
REFUSAL_KEY = "cmbs-refusal-bin"
MAX_REFUSAL_BYTES = 4_096
_TOKEN = re.compile(r"[!-~]*")
_MAX_PORT, _MAX_PORT_DIGITS = 65_535, 5
# Of an address, in a message.
_MAX_SHOWN_CHARS = 64


def validate_token(token: str) -> str:
    """A token that the metadata of a call can carry; one that it cannot carry is never repeated."""
    if not _TOKEN.fullmatch(token):
        raise InvalidRequest("a token must be of visible ASCII characters, without spaces")
    return token


def validate_endpoint(endpoint: str) -> str:
    """An address that a server could listen on."""
    port = endpoint.rpartition(":")[2]
    is_number = port.isascii() and port.isdecimal()
    is_possible = not is_number or (len(port) <= _MAX_PORT_DIGITS and 0 < int(port) <= _MAX_PORT)
    if not endpoint or not endpoint.isprintable() or " " in endpoint or not is_possible:
        shown = visible(endpoint[:_MAX_SHOWN_CHARS])
        raise InvalidRequest(f"`{shown}` is not where a Tee could listen; use `host:port`")
    return endpoint


def is_text(value: str) -> bool:
    """Whether the wire can carry it: a lone surrogate is no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def visible(text: str) -> str:
    """Text that can be shown on a terminal and changes nothing there."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
