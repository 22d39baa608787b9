"""Who may write which namespace, and who may read what: the table of SS-01 §4, and nothing else."""

from __future__ import annotations

from cmbs.messages import ActorKind
from cmbs.substrate.kernel.policy.policy import Policy
from cmbs.substrate.kernel.policy.references import namespace_of

WRITERS: dict[str, frozenset[ActorKind]] = {
    "policy": frozenset({ActorKind.POLICY_ENGINE}),
    "constraint": frozenset({ActorKind.POLICY_ENGINE}),
    "goal": frozenset({ActorKind.AGENT}),
    "fact": frozenset({ActorKind.ENCODER, ActorKind.TOOL}),
}
# The policy engine writes on an operator's policy update, which is validated whole; never on a proposal.
_PROPOSABLE = frozenset({"goal", "fact"})
_PROPOSABLE_BY: dict[ActorKind, frozenset[str]] = {
    kind: frozenset(namespace for namespace in _PROPOSABLE if kind in WRITERS[namespace]) for kind in ActorKind
}
_NOTHING: frozenset[str] = frozenset()
# A policy tells how to get around it, so those that it binds do not read it.
_KERNEL_OWNED = frozenset({"policy", "constraint"})
_READERS_OF_ALL = frozenset({ActorKind.OPERATOR, ActorKind.POLICY_ENGINE})


def may_write(kind: ActorKind, key: str) -> bool:
    """Whether an actor of this kind may write this key at all."""
    return kind in WRITERS.get(namespace_of(key) or "", ())


def proposable_by(kind: ActorKind) -> frozenset[str]:
    """The namespaces that an actor of this kind may write by a proposal."""
    return _PROPOSABLE_BY.get(kind, _NOTHING)


def may_read(policy: Policy, kind: ActorKind, key: str) -> bool:
    """Whether an actor of this kind may see the value under this key."""
    if kind in _READERS_OF_ALL:
        return True
    return namespace_of(key) not in _KERNEL_OWNED and not is_private(policy, key)


def is_private(policy: Policy, key: str) -> bool:
    """Whether a private prefix covers this key: it is the key itself, or all of its segments up to a dot."""
    return any(
        key == prefix or key.startswith(prefix if not prefix or prefix.endswith(".") else prefix + ".")
        for prefix in policy.private_prefixes
    )
