"""The path that the specification fixes for `BeliefState`, which lives in `cmbs.belief.kernel.provider_mask`."""

from cmbs.belief.kernel.provider_mask import BeliefState

__all__ = ["BeliefState"]
