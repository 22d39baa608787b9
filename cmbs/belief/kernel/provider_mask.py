"""What a hypothesis provider's masks leave alive: the step from a provider's answer to eliminated ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from cmbs.belief.kernel.nearest import find_nearest
from cmbs.core import entropy
from cmbs.errors import BeliefServerError, InvalidHypothesisId, ProviderBroken, UnknownProbe
from cmbs.spi.hypothesis_provider import HypothesisProvider

T = TypeVar("T")


def ask_provider(provider: HypothesisProvider, question: Callable[[], T], probe_id: str | None = None) -> T:
    """What a provider answers; `ProviderBroken` with its name where it raises anything but an error of ours.

    What it raised is the cause, and not part of the message: it may say more than a caller should read.
    """
    try:
        return question()
    except BeliefServerError:
        raise
    except Exception as exc:
        asked = "" if probe_id is None else f" for probe `{probe_id}`"
        raise _build_error(provider, f"raised `{type(exc).__name__}`{asked}", probe_id) from exc


def _build_error(provider: HypothesisProvider, what: str, probe_id: str | None) -> ProviderBroken:
    try:
        name = provider.id()
    except Exception:  # noqa: BLE001 - what is told is the failure before this one
        name = type(provider).__name__
    details = {"provider": name} if probe_id is None else {"provider": name, "probe_id": probe_id}
    return ProviderBroken(f"provider `{name}` {what}; nothing was changed", details)


def find_eliminated(provider: HypothesisProvider, probe_id: str, response: Any) -> frozenset[str]:
    """Return the ids that a response to a probe rules out, whether or not they are still alive.

    Raises `UnknownProbe` for a probe the provider does not offer, `InvalidHypothesisId` for a mask with ids the
    provider never declared, and `ProviderBroken` for a provider that raises, and for a mask with values other than
    booleans: an elimination cannot be taken back, so a likelihood or a text is not read as one.
    """
    known = ask_provider(provider, lambda: frozenset(provider.probe_ids()), probe_id)
    if probe_id not in known:
        raise UnknownProbe(probe_id, find_nearest(probe_id, sorted(known)))
    mask = ask_provider(provider, lambda: dict(provider.apply_probe(probe_id, response)), probe_id)
    unknown = mask.keys() - ask_provider(provider, lambda: frozenset(provider.hypothesis_ids()), probe_id)
    if unknown:
        raise InvalidHypothesisId(sorted(unknown))
    for hypothesis_id, eliminated in mask.items():
        if not isinstance(eliminated, bool):
            raise _build_error(
                provider, f"answers `{eliminated}` for hypothesis `{hypothesis_id}`, not a boolean", probe_id
            )
    return frozenset(hypothesis_id for hypothesis_id, eliminated in mask.items() if eliminated)


class BeliefState:
    """The survivors of a provider's hypotheses. They only ever become fewer, and a failed probe changes nothing."""

    __slots__ = ("_provider", "_survivors", "_universe")

    def __init__(self, provider: HypothesisProvider) -> None:
        """Start with every hypothesis of the provider alive."""
        self._provider = provider
        self._universe = frozenset(provider.hypothesis_ids())
        self._survivors = set(self._universe)

    @property
    def survivors(self) -> set[str]:
        """The hypotheses not eliminated so far, as a copy."""
        return set(self._survivors)

    def apply_probe(self, probe_id: str, response: Any) -> frozenset[str]:
        """Apply a response to a probe and return the ids it newly eliminated; raises what `find_eliminated` raises."""
        newly_eliminated = find_eliminated(self._provider, probe_id, response) & self._survivors
        self._survivors -= newly_eliminated
        return newly_eliminated

    def remaining_mass(self) -> float:
        """Return the fraction of the universe that is still alive; 0.0 for an empty universe."""
        return len(self._survivors) / len(self._universe) if self._universe else 0.0

    def remaining_entropy(self) -> float:
        """Return the bits left to decide: log2 of the number of survivors, 0.0 for one or none."""
        return entropy(len(self._survivors))

    def is_singleton(self) -> bool:
        """Tell whether exactly one hypothesis is left."""
        return len(self._survivors) == 1

    def is_empty(self) -> bool:
        """Tell whether no hypothesis is left."""
        return not self._survivors

    def active_map(self) -> dict[str, bool]:
        """Return, for every hypothesis in sorted order, whether it is still alive."""
        return {hypothesis_id: hypothesis_id in self._survivors for hypothesis_id in sorted(self._universe)}
