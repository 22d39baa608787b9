"""The web console as files: what `make console` built from `console/`, or nothing where it was not built.

The viewer of the API docs comes with it: a package of others, in the version that `console/package-lock.json` names.
"""

from __future__ import annotations

import mimetypes
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

# The address that the console takes for its own; the server writes the path below which it is mounted.
_BASE = '<base href="/"'
# Where the data of a report stands in its page.
_DATA = '<script type="application/json" id="report">'
# Vite puts a hash of the content into each name, so that a file of that name never changes.
_ASSET_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
# What the first part of a path of the console can be. Every other path is what it is without a console.
PAGES = ("cases", "inbox", "spaces", "policy", "compare", "ledger")


class Asset(NamedTuple):
    """A file that a page loads."""

    content: bytes
    media_type: str


class ConsoleFiles:
    """The files of a build, each read once: they are a few megabytes together."""

    def __init__(self, directory: Traversable | None = None) -> None:
        self._directory = files(__package__).joinpath("static") if directory is None else directory
        self._read: dict[tuple[str, ...], bytes] = {}

    def find_page(self, root: str) -> str | None:
        """The one page of the console, for a server below the path `root`; None where it was not built."""
        page = self._find("index.html")
        return None if page is None else page.decode().replace(_BASE, f'<base href="{root}/"')

    def find_asset(self, name: str) -> Asset | None:
        """A file by its name; None where there is none."""
        return self._find_asset("assets", name)

    def find_viewer_file(self, name: str) -> Asset | None:
        """A file of the viewer of the API docs by its name; None where there is none."""
        return self._find_asset("docs", name)

    def make_report(self, content: bytes) -> str | None:
        """The page of a report with this JSON document in it, as one file; None where it was not built."""
        page = self._find("report.html")
        if page is None:
            return None
        head, mark, tail = page.decode().partition(f"{_DATA}{{}}")
        # Nothing in the data can end the element that it stands in.
        return f"{head}{mark.removesuffix('{}')}{content.decode().replace('<', chr(92) + 'u003c')}{tail}"

    def _find_asset(self, directory: str, name: str) -> Asset | None:
        content = self._find(directory, name) if _ASSET_NAME.fullmatch(name) else None
        return None if content is None else Asset(content, mimetypes.guess_type(name)[0] or "application/octet-stream")

    def _find(self, *path: str) -> bytes | None:
        known = self._read.get(path)
        if known is not None:
            return known
        found = self._directory.joinpath(*path)
        if not found.is_file():
            return None
        return self._read.setdefault(path, found.read_bytes())
