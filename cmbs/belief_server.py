"""The path that the specification fixes for the belief server, which lives in `cmbs.belief.server`."""

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError
from cmbs.messages import AuditEntry, BeliefSnapshot, OntologyBundle, SessionPolicy

__all__ = [
    "AuditEntry",
    "BeliefServer",
    "BeliefServerError",
    "BeliefSnapshot",
    "Limits",
    "OntologyBundle",
    "SessionPolicy",
]
