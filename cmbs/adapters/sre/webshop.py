"""The built-in system: a web shop of our own invention, so that a demo needs no data."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from cmbs.adapters.sre.faults import Alert, Component, KnownFault, System
from cmbs.adapters.sre.kits import World, signature_kit
from cmbs.kit import Kit, KitProvider

_KNOWN_BY = "webshop"


@cache
def webshop() -> System:
    """The web shop: two dozen known faults of twenty-one components."""
    data = tomllib.loads((resources.files(__package__) / "webshop.toml").read_text(encoding="utf-8"))
    declared: dict[str, Any] = data["components"]
    components = {name: Component(name, each["label"], each["type"]) for name, each in declared.items()}
    propagations = frozenset(
        (components[name], components[target])
        for name, each in declared.items()
        for target in each["spreads_to"].split()
    )
    faults = tuple(
        KnownFault(
            fault_id=fault_id,
            label=each["label"],
            mechanism_id=f"fault/{fault_id}",
            provenance=_KNOWN_BY,
            root_causes=frozenset({components[each["at"]]}),
            components=frozenset(components.values()),
            alerts=frozenset(_alert(text, components) for text in each["alerts"].split()),
            propagations=propagations,
        )
        for fault_id, each in data["faults"].items()
    )
    return System("webshop", "A web shop", "invented for the demo", faults)


def provider() -> KitProvider:
    """The web shop's known faults as a hypothesis provider, in an open world."""
    return KitProvider(signature_kit(webshop()))


@cache
def closed_kit() -> Kit:
    """The web shop's known faults in a closed world, as the demo plays them.

    Under an id of its own: what is installed is found by its id, and the open world has the other one.
    """
    return replace(signature_kit(webshop(), World.CLOSED), kit_id="webshop-closed")


def closed_provider() -> KitProvider:
    """The web shop's known faults as a hypothesis provider, in a closed world."""
    return KitProvider(closed_kit())


def _alert(text: str, components: dict[str, Component]) -> Alert:
    name, _, target = text.partition("@")
    return Alert(name, components[target].id)
