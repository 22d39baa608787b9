"""What the commands share: where they print, how they open a store, how they fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console

from cmbs.errors import (
    CmbsError,
    Conflict,
    EventNotFound,
    InvalidProof,
    InvalidRequest,
    LedgerCorrupt,
    SessionNotFound,
    SpaceNotFound,
)
from cmbs.tee.access import visible

if TYPE_CHECKING:
    from rich.progress import Progress

    from cmbs.stores import Store


class Terminal(Console):
    """Where text is only text: an id in square brackets is not a style, one with colons no emoji.

    Most of what is printed was written by others. What an intruder wrote into a store must not wipe the line that names
    it from a terminal.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; of texts all but line ends as something visible."""
        super().print(*(_as_visible_lines(each) if isinstance(each, str) else each for each in objects), **options)


def _as_visible_lines(text: str) -> str:
    return "\n".join(map(visible, text.split("\n")))


out = Terminal()
err = Terminal(stderr=True)


STANDARD_INPUT = "-"


def existing_store(url: str) -> Store:
    """A store to read from; InvalidRequest where there is none, instead of a new and empty one."""
    from cmbs.stores import open_store, sqlite_path

    path = sqlite_path(url)
    if path is not None and not path.exists():
        raise InvalidRequest(f"there is no store at `{path}`")
    return open_store(url)


def read_input(file: str | Path, max_bytes: int) -> bytes:
    """The bytes of a file, or of standard input for `-`; one more than the limit where there are more."""
    if str(file) == STANDARD_INPUT:
        return sys.stdin.buffer.read(max_bytes + 1)
    with Path(file).open("rb") as source:
        return source.read(max_bytes + 1)


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun: `1 key`, `2 keys`."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def progress() -> Progress:
    """A bar on a terminal; nothing where standard error goes elsewhere."""
    from rich.progress import Progress

    return Progress(console=err, transient=True, disable=not err.is_terminal)


def fail(exc: Exception, code: int = 2) -> NoReturn:
    """Print the error and, where it says so, what to do next; and exit."""
    err.print(f"cmbs: {exc}")
    step = getattr(exc, "details", {}).get("next")
    if step is not None:
        err.print(f"  next: {step}")
    sys.exit(code)


@contextmanager
def exiting_with_two() -> Iterator[None]:
    """Exit code 2 for whatever keeps a command from its work, where 1 has a meaning of its own or none."""
    try:
        yield
    except (CmbsError, OSError) as exc:
        fail(exc)


@contextmanager
def failing_cleanly() -> Iterator[None]:
    """Exit code 1 where the data is bad or not there, 2 where the command could not do its work."""
    try:
        yield
    except (LedgerCorrupt, InvalidProof, Conflict, SessionNotFound, SpaceNotFound, EventNotFound) as exc:
        fail(exc, 1)
    except (CmbsError, OSError) as exc:
        fail(exc)
