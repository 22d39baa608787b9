"""Who may ask: API keys, what they are good for, and the one gate that every request passes."""

from cmbs.identity.gate import Gate
from cmbs.identity.kernel.model import Key, KeyStatus
from cmbs.identity.kernel.scopes import Need, Reach, Role, Scope
from cmbs.identity.registry import KeyRegistry

__all__ = ["Gate", "Key", "KeyRegistry", "KeyStatus", "Need", "Reach", "Role", "Scope"]
