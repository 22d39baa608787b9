"""The epistemic control plane for AI agents.

The names below are loaded when they are first used, so that importing a kernel module stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmbs.belief.kernel.provider_mask import BeliefState as BeliefState
    from cmbs.belief.server import BeliefServer as BeliefServer
    from cmbs.core import CMBSCore as CMBSCore
    from cmbs.errors import BeliefServerError as BeliefServerError
    from cmbs.messages import AuditEntry as AuditEntry
    from cmbs.messages import BeliefSnapshot as BeliefSnapshot
    from cmbs.messages import OntologyBundle as OntologyBundle
    from cmbs.messages import SessionPolicy as SessionPolicy
    from cmbs.spi import AuditLog as AuditLog
    from cmbs.spi import EliminationProvenance as EliminationProvenance
    from cmbs.spi import EliminationResult as EliminationResult
    from cmbs.spi import EliminationStore as EliminationStore
    from cmbs.spi import HypothesisProvider as HypothesisProvider
    from cmbs.spi import RecoveredState as RecoveredState
    from cmbs.stores import open_store as open_store
    from cmbs.stores.memory import InMemoryStore as InMemoryStore
    from cmbs.substrate.guard.functions import guard as guard

    __version__: str

_HOME = {
    "AuditEntry": "cmbs.messages",
    "AuditLog": "cmbs.spi",
    "BeliefServer": "cmbs.belief_server",
    "BeliefServerError": "cmbs.errors",
    "BeliefSnapshot": "cmbs.messages",
    "BeliefState": "cmbs.belief_state",
    "CMBSCore": "cmbs.core",
    "EliminationProvenance": "cmbs.spi",
    "EliminationResult": "cmbs.spi",
    "EliminationStore": "cmbs.spi",
    "HypothesisProvider": "cmbs.spi",
    "InMemoryStore": "cmbs.stores.memory",
    "OntologyBundle": "cmbs.messages",
    "RecoveredState": "cmbs.spi",
    "SessionPolicy": "cmbs.messages",
    "guard": "cmbs.substrate.guard.functions",
    "open_store": "cmbs.stores",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list, only computed


def __getattr__(name: str) -> Any:
    if name == "__version__":
        version: str = import_module("importlib.metadata").version("cmbs")
        return version
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module `cmbs` has no attribute `{name}`")
    return getattr(import_module(home), name)
