"""Compiling policies in the thread of a caller, before the one writer that all spaces share needs them."""

from __future__ import annotations

import time

from cmbs.substrate.kernel.events import CreateSpace, ProposePolicy, SettlePolicy
from cmbs.substrate.kernel.policy.policy import LARGE_PAIRS, compile_ahead
from cmbs.substrate.kernel.state import PolicyChange, Space

# Between the constraints of a policy that is compiled: each takes some times as long.
_PAUSE_SECONDS = 0.00005


def is_large_change(space: Space, message: object) -> bool:
    """Whether a message leads to a policy that takes a while to compile."""
    return _find_change(space, message) is not None


def compile_change(space: Space, message: object) -> None:
    """Compile the policy that a message leads to, if that takes a while."""
    change = _find_change(space, message)
    if change is not None:
        space.policy.change_ahead(change.set, change.unset, let_others_run)


def compile_first(message: object) -> None:
    """Compile the first policy of a space, if that takes a while."""
    if isinstance(message, CreateSpace):
        compile_ahead(message.policy, {}, let_others_run)


def _find_change(space: Space, message: object) -> ProposePolicy | PolicyChange | None:
    change: ProposePolicy | PolicyChange | None = None
    if isinstance(message, ProposePolicy):
        change = message
    elif isinstance(message, SettlePolicy):
        change = space.policy_changes.get(message.change_id)
    return change if change is not None and len(change.set) >= LARGE_PAIRS else None


def let_others_run() -> None:
    """Give way to other threads. Not a sleep of nothing, after which this thread would mostly be the first again."""
    time.sleep(_PAUSE_SECONDS)
