"""Pages of streams: a key may be good for some of them alone, and a page shows only those."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cmbs.identity.kernel.scopes import Grants, Scope

Row = TypeVar("Row")
Place = TypeVar("Place")

# So many rows are looked at for a page of which a key may see few; the next page begins where this one stopped.
MAX_ROWS_READ = 100_000


def take_reached(
    read: Callable[[Place | None, int], list[Row]],
    place_of: Callable[[Row], tuple[Place, str]],
    grants: Grants,
    scope: Scope,
    after: Place | None,
    limit: int,
    chunk: int,
) -> tuple[list[Row], Place | None]:
    """The first `limit` rows beyond `after` that the scope reaches, and the place to go on from, if there is more.

    `place_of` gives the place of a row and the id that a scope may name; `read` gives at most as many as asked for.
    """
    reaches_all = scope in grants.everywhere
    found: list[Row] = []
    last: Place | None = None
    rows_read = 0
    while rows_read < MAX_ROWS_READ:
        # Where every row is shown, one more tells whether there is another page.
        asked = (1 if found else limit) if reaches_all else chunk
        rows = read(after, asked)
        rows_read += len(rows)
        for row in rows:
            after, target = place_of(row)
            if not reaches_all and not grants.reach(scope, target):
                continue
            if len(found) == limit:
                return found, last
            found.append(row)
            last = after
        if len(rows) < asked:
            return found, None
    return found, after
