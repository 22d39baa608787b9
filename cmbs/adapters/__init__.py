"""Bridges between a domain and the belief protocol."""

from cmbs.adapters.kit_adapter import KitAdapter
from cmbs.adapters.types import Action, AdapterActionContext, BeliefAdapter, EliminateMessage

__all__ = ["Action", "AdapterActionContext", "BeliefAdapter", "EliminateMessage", "KitAdapter"]
