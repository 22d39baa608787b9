"""Find the hypothesis providers that installed distributions offer."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from cmbs.errors import ProviderBroken
from cmbs.spi.hypothesis_provider import HypothesisProvider

PROVIDER_GROUP = "cmbs.hypotheses"


def discover_providers() -> dict[str, HypothesisProvider]:
    """Return every provider installed under the entry-point group `cmbs.hypotheses`, by entry-point name, sorted.

    An entry point names a provider, a provider class, or a factory; classes and factories are called without arguments.
    A plug-in that does not load, or a name that two distributions claim, raises `ProviderBroken` and names the entry
    point: a provider that silently went missing would be noticed only when its sessions cannot be served.
    """
    found: dict[str, EntryPoint] = {}
    for entry_point in sorted(entry_points(group=PROVIDER_GROUP), key=lambda each: (each.name, each.value)):
        other = found.setdefault(entry_point.name, entry_point)
        if other is not entry_point:
            raise ProviderBroken(
                f"two providers are named `{entry_point.name}`: {_origin(other)} and {_origin(entry_point)}"
            )
    return {name: _load(entry_point) for name, entry_point in found.items()}


def _load(entry_point: EntryPoint) -> HypothesisProvider:
    try:
        provider = _provider_from(entry_point.load())
    except Exception as exc:
        raise ProviderBroken(
            f"provider `{entry_point.name}` from {_origin(entry_point)} does not load: {type(exc).__name__}: {exc}"
        ) from exc
    if not isinstance(provider, HypothesisProvider):
        raise ProviderBroken(
            f"provider `{entry_point.name}` from {_origin(entry_point)} lacks the methods of a hypothesis provider: "
            f"got {type(provider).__name__}"
        )
    return provider


def _provider_from(target: Any) -> Any:
    # A provider class has the methods too, so classes are told apart first.
    if isinstance(target, type) or not isinstance(target, HypothesisProvider):
        return target() if callable(target) else target
    return target


def _origin(entry_point: EntryPoint) -> str:
    distribution = f" of {entry_point.dist.name}" if entry_point.dist is not None else ""
    return f"`{entry_point.value}`{distribution}"
