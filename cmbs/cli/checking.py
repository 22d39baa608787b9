"""What `cmbs fsck` and `cmbs verify` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated

import typer

from cmbs.audit.fsck import names_in
from cmbs.audit.plain_rows import all_sessions
from cmbs.cli.output import err
from cmbs.errors import InvalidRequest, StoreUnavailable
from cmbs.spi import AuditLog
from cmbs.spi.stored_rows import Finding
from cmbs.stores import Store, inspect_store, sqlite_path
from cmbs.tee.access import visible

ImportedOption = Annotated[
    bool,
    typer.Option("--imported", help="Accept actors whose keys are not in this store: they stay behind on import."),
]


def store_to_inspect(url: str) -> Store:
    """A store to check, as it is; InvalidRequest where there is none."""
    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise InvalidRequest(f"there is no store at `{path}`")
    return inspect_store(url)


def list_names(log: AuditLog) -> tuple[list[str], list[Finding]]:
    """Every name in a store: the sessions that are listed, the oldest first, then all others; and why there may be
    more.
    """
    names: dict[str, None] = {}
    # A list is for the order alone: each name that it lacks is found by its rows.
    with suppress(StoreUnavailable):
        names = dict.fromkeys(summary.session_id for summary in all_sessions(log))
    try:
        names |= dict.fromkeys(names_in(log))
    except StoreUnavailable as exc:
        return list(names), [Finding(str(exc))]
    return list(names), []


def print_findings(stream_id: str | None, findings: Iterable[Finding]) -> bool:
    """Print what is wrong, and what is worth a look; whether anything is wrong."""
    found = False
    for finding in findings:
        found |= not finding.is_note
        word = "note" if finding.is_note else "bad "
        # In one line, whatever is in it.
        err.print(visible(f"{word} {stream_id}: {finding}" if stream_id is not None else f"{word} {finding}"))
    return found


class Pace:
    """Counts events, tells `show` how many there were, and waits where there were more than `rate` a second."""

    def __init__(self, rate: int | None, show: Callable[[int], None]) -> None:
        self._rate = rate
        self._show = show
        self._events = 0
        self._began = time.monotonic()

    def __call__(self, events: int) -> None:
        """So many more were looked at."""
        self._events += events
        self._show(self._events)
        if self._rate is not None:
            time.sleep(max(0.0, self._began + self._events / self._rate - time.monotonic()))
