"""Where kits come from: files, Python packages that bring one along, and installed providers."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from cmbs.documents.nodes import MAX_BYTES
from cmbs.kit.model import Kit
from cmbs.kit.parse import ParsedKit, parse_kit
from cmbs.kit.provider import KitProvider
from cmbs.spi.discovery import discover_providers


def load_kit(path: str | Path) -> Kit:
    """The kit in a file; `InvalidKitFile` has everything that is wrong, `OSError` says that it cannot be read."""
    return read_kit(path).kit


def read_kit(path: str | Path) -> ParsedKit:
    """The kit in a file, with the warnings about it."""
    with Path(path).open("rb") as file:
        return parse_kit(file.read(MAX_BYTES + 1), str(path))


def load_packaged_kit(package: str, name: str) -> Kit:
    """The kit in a file that a Python package brings along: what an entry point's factory returns a provider of."""
    return parse_kit((resources.files(package) / name).read_bytes(), f"{package}/{name}").kit


def find_installed_kits() -> dict[str, Kit]:
    """Every installed kit by its id; of two kits with one id, that of the entry point whose name comes last."""
    providers = discover_providers().values()
    return {each.kit.kit_id: each.kit for each in providers if isinstance(each, KitProvider)}


def choose_kit(kits: dict[str, Kit], space_id: str, version: str, universe: frozenset[str]) -> Kit | None:
    """The kit that a session was declared over: of that id and version, and knowing all of its hypotheses."""
    kit = kits.get(space_id)
    return kit if kit is not None and kit.version == version and universe <= kit.hypothesis_ids else None
