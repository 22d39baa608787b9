"""Guarded functions: every call is a proposal first."""

from cmbs.substrate.guard.guard import Guard, GuardedTool

__all__ = ["Guard", "GuardedTool"]
