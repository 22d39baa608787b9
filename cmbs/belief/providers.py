"""Which hypothesis provider a session is declared from, and which one answers for it later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeAlias

from msgspec import UnsetType

from cmbs.belief.kernel.nearest import find_nearest
from cmbs.belief.kernel.provider_mask import ask_provider
from cmbs.belief.kits import KitLibrary
from cmbs.errors import Conflict, InvalidRequest, ProviderBroken
from cmbs.kit.graph_kit import GraphKit
from cmbs.kit.model import Kit
from cmbs.kit.provider import KitProvider
from cmbs.messages import ProviderRef
from cmbs.spi import HypothesisProvider

# Providers by name, found when they are first needed.
ProviderSource: TypeAlias = Callable[[], Mapping[str, HypothesisProvider]]

# How many names an error lists.
_MAX_LISTED = 20


def no_providers() -> Mapping[str, HypothesisProvider]:
    """None at all."""
    return {}


class Providers:
    """The providers that a server offers by name; a session records which one it was declared from."""

    def __init__(
        self, source: ProviderSource, kits: KitLibrary | None = None, own: HypothesisProvider | None = None
    ) -> None:
        """`kits` are those on record; `own` is the one that all sessions are declared from, where there is one."""
        self._source = source
        self.kits = kits
        self.own = own

    @cached_property
    def _by_name(self) -> Mapping[str, HypothesisProvider]:
        return self._source()

    def choose(self, name: str) -> HypothesisProvider:
        """The provider of this name; InvalidRequest says which there are."""
        found = self._by_name.get(name)
        if found is not None:
            return found
        known = sorted(self._by_name)
        nearest = find_nearest(name, known)
        meant = "" if nearest is None else f"; did you mean `{nearest}`?"
        raise InvalidRequest(
            f"this server has no hypothesis provider `{name}`{meant}",
            {
                "field": "provider",
                "found": name,
                "accepted": known[:_MAX_LISTED],
                "next": "name a provider that the server has, or send `hypotheses`",
            },
        )

    def find(self, reference: ProviderRef | None) -> HypothesisProvider:
        """The provider that a session was declared from: a kit on record, the server's own, or one of the others."""
        if reference is None:
            raise InvalidRequest(
                "probes need a session that was declared from a hypothesis provider or a kit",
                {"field": "session_id", "next": "declare a session that names a `kit`, or eliminate by hand"},
            )
        if self.kits is not None and not isinstance(reference.content_hash, UnsetType):
            return self.kits.provide(reference)
        own = self.own
        others = self._find_by_id(reference.id) if own is None else [own]
        for each in others:
            if reference_of(each) == reference:
                return each
        mine = reference_of(others[0])
        raise Conflict(
            f"the session was declared from `{reference.id}` {reference.version}, "
            f"this server has `{mine.id}` {mine.version}"
        )

    def _find_by_id(self, provider_id: str) -> list[HypothesisProvider]:
        """The providers that say that they have this id. One that cannot say its id holds up no session of another."""
        found: list[HypothesisProvider] = []
        failed: dict[str, ProviderBroken] = {}
        for name, each in self._by_name.items():
            try:
                if ask_provider(each, each.id) == provider_id:
                    found.append(each)
            except ProviderBroken as exc:
                failed[name] = exc
        if found:
            return found
        message = f"this server has no hypothesis provider `{provider_id}`, which the session is from"
        if not failed:
            raise InvalidRequest(message)
        # It may be one of these.
        name, cause = next(iter(failed.items()))
        raised = f"provider `{name}` raised `{type(cause.__cause__).__name__}` when asked for its id"
        raise ProviderBroken(f"{raised}, and {message}; nothing was changed", {"provider": name}) from cause

    def find_kit(self, reference: ProviderRef | None) -> Kit | None:
        """The kit that a session was declared over; None where it is over anything else, or not known here."""
        try:
            provider = self.find(reference)
        except (InvalidRequest, Conflict, ProviderBroken):
            return None
        return provider.kit if isinstance(provider, KitProvider) else None

    def find_graph_kit(self, reference: ProviderRef | None) -> GraphKit | None:
        """The kit of a causal graph that a session was declared over; None where it is over anything else."""
        if reference is None or self.kits is None or isinstance(reference.content_hash, UnsetType):
            return None
        kit = self.kits.find_content(reference)
        return kit if isinstance(kit, GraphKit) else None

    def is_ready(self, reference: ProviderRef | None) -> bool:
        """Whether `find` gives the provider without a look at the log."""
        if reference is None or self.kits is None:
            return False
        return self.kits.find_cached(reference) is not None


def reference_of(provider: HypothesisProvider) -> ProviderRef:
    """How a session names a provider."""
    return ask_provider(provider, lambda: ProviderRef(provider.id(), provider.version()))
