"""The HTTP transport."""

from cmbs.http.app import BeliefApp

__all__ = ["BeliefApp"]
