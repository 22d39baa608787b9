"""One name for one thing: the benchmark's scenarios were written by many hands, each with names of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cmbs.adapters.sre.faults import Component

# What an id may end in, and the kind that says.
_KIND_OF_SUFFIX = {
    "service": "Service",
    "pod": "Pod",
    "deployment": "Deployment",
    "replicaset": "ReplicaSet",
    "configmap": "ConfigMap",
    "secret": "Secret",
    "namespace": "Namespace",
    "pvc": "PersistentVolumeClaim",
    "pdb": "PodDisruptionBudget",
    "hpa": "HorizontalPodAutoscaler",
    "horizontal-pod-autoscaler": "HorizontalPodAutoscaler",
    "endpoint": "ServiceOperation",
}
_NUMBER = re.compile(r"-\d+$")
# The longest first, for "-pod" is also how "-horizontal-pod-autoscaler" could begin.
_SUFFIX = re.compile(f"-({'|'.join(sorted(_KIND_OF_SUFFIX, key=len, reverse=True))})$")
# The same thing under another name, as some scenarios have it.
_SPELLINGS = {
    "productcatalog": "product-catalog",
    "recommendationservice": "recommendation",
    "frontendproxy": "frontend-proxy",
    "valkey": "valkey-cart",
    "productpage-v1": "productpage",
}
# Ids that say what a thing is for, where the object itself has another name.
_NAMED_OTHERWISE = {
    ("ConfigMap", "flagd"): "flagd-config",
    ("Pod", "high-priority-pods"): "eviction-pod",
    ("ResourceQuota", "resource-quota"): "strict-resource-quota",
}
# Things of no namespace.
CLUSTER = "_cluster"
# What other services keep their state in, or ask before they answer.
_BACKING = frozenset({"flagd", "kafka", "postgresql", "valkey-cart"})


@dataclass(frozen=True, slots=True, order=True)
class Entity:
    """A thing of the cluster."""

    namespace: str
    kind: str
    name: str

    @property
    def id(self) -> str:
        """`namespace/Kind/name`."""
        return f"{self.namespace}/{self.kind}/{self.name}"

    def component(self) -> Component:
        """The thing as a part of a system."""
        return Component(self.id, f"{self.kind} {self.name} in {self.namespace}", self._node_type())

    def _node_type(self) -> str:
        if self.kind in ("Service", "ServiceOperation"):
            return "DEPENDENCY" if self.name in _BACKING else "SERVICE"
        return "MECHANISM" if self.kind.endswith("Chaos") or self.kind == "Schedule" else "INFRASTRUCTURE"


def entity_of(group_id: str, kind: str, namespace: str | None) -> Entity:
    """The thing that a group of a scenario stands for."""
    name = canonical_name(group_id)
    if kind == "Namespace":
        # Named like the namespace that it is.
        own = namespace or name
        return Entity(own, kind, own)
    return Entity(namespace or CLUSTER, kind, _NAMED_OTHERWISE.get((kind, name), name))


def canonical_name(group_id: str) -> str:
    """The name in an id: without a number and a kind at its end, in the spelling that most scenarios have."""
    name = _SUFFIX.sub("", _NUMBER.sub("", group_id))
    return _SPELLINGS.get(name, name)


def kind_in(group_id: str) -> str | None:
    """The kind that an id ends in; None where it ends in none."""
    found = _SUFFIX.search(_NUMBER.sub("", group_id))
    return _KIND_OF_SUFFIX[found[1]] if found else None
