"""Guarded functions: every call is a proposal first. The decorator for a function and a policy file is `cmbs.guard`."""

from cmbs.substrate.guard.functions import close_guards, open_belief
from cmbs.substrate.guard.guard import Guard, GuardedTool

__all__ = ["Guard", "GuardedTool", "close_guards", "open_belief"]
