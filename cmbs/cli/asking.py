"""The server that a command asks."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from cmbs.client import Client, Patience, connect
from cmbs.errors import InvalidRequest
from cmbs.identity.tokens import key_id_of

# A person who waits for an answer tries again by hand.
_ONCE = Patience(timeout=60.0, deadline=60.0, attempts=1)


def connect_to_server(url: str, *, actor: str | None = None, patience: Patience = _ONCE) -> Client:
    """A client of a server elsewhere; its key, if it has keys, is in `CMBS_KEY`."""
    if urlsplit(url).scheme not in ("http", "https", "unix"):
        raise InvalidRequest(f"`{url}` is not the address of a server; use `http://host:port`")
    key = os.environ.get("CMBS_KEY", "").strip()
    if key and key_id_of(key) is None:
        raise InvalidRequest("`CMBS_KEY` is set, and not to a key")
    return connect(url, key=key, actor=actor or None, patience=patience)
