"""Bridges between a domain and the belief protocol."""

from cmbs.adapters.kits import KitAdapter
from cmbs.adapters.types import Action, AdapterActionContext, BeliefAdapter, EliminateMessage

__all__ = ["Action", "AdapterActionContext", "BeliefAdapter", "EliminateMessage", "KitAdapter"]
