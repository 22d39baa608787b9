"""The kits that installed distributions offer as hypothesis providers."""

from __future__ import annotations

from cmbs.kit.model import Kit
from cmbs.kit.provider import KitProvider
from cmbs.spi.discovery import discover_providers


def installed_kits() -> dict[str, Kit]:
    """Every installed kit by its id; of two kits with one id, that of the entry point whose name comes last."""
    providers = discover_providers().values()
    return {each.kit.kit_id: each.kit for each in providers if isinstance(each, KitProvider)}


def fitting_kit(kits: dict[str, Kit], space_id: str, version: str, universe: frozenset[str]) -> Kit | None:
    """The kit that a session was declared over: of that id and version, and knowing all of its hypotheses."""
    kit = kits.get(space_id)
    return kit if kit is not None and kit.version == version and universe <= kit.hypothesis_ids else None
