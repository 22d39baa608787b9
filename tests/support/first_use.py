"""A program that does the first thing that is ever done in a store, at the moment that it is told to.

`key URL NAME` makes a key, `import URL FILE` takes an export in. It prints `ready`, waits for a line, and then prints
what came of it: what was done, or the code of an error and its message.
"""

from __future__ import annotations

import sys
from pathlib import Path

from cmbs.audit.transfer import import_lines
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import ActorKind
from cmbs.stores import open_store
from tests.support.space_process import say


def main(what: str, url: str, name: str) -> None:
    store = open_store(url)
    registry, server = KeyRegistry(store), BeliefServer(store=store)
    lines = Path(name).read_bytes().splitlines() if what == "import" else []
    say("ready")
    sys.stdin.readline()
    try:
        if what == "key":
            say(f"made {registry.create(ActorKind.AGENT, name, roles=[Role.AGENT]).key.key_id}")
        else:
            (moved,) = import_lines(server, lines)
            say(f"imported {moved.session_id}")
    except BeliefServerError as exc:
        say(f"{exc.code} {exc.message}")
    server.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
