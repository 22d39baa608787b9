"""Kubernetes: what `kubectl get … -o json` prints, a list or a single object.

An owner depends on what it owns (a deployment on its replica sets, these on their pods), a service on the pods that it
selects, an ingress on its services, a pod on its node, config maps, secrets and volume claims. Of secrets only the name
is read. Ids are `kind/namespace/name` in lower case, and `kind/name` of what has no namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cmbs.errors import InvalidGraph
from cmbs.tee.importers.building import GraphBuilder, Imported, member, objects, read_json_documents, text
from cmbs.tee.kernel.lattice import NodeType

SOURCE = "kubernetes"
_SERVICES = frozenset({"service", "ingress", "deployment", "statefulset", "daemonset", "cronjob", "job"})
_DEPENDENCIES = frozenset({"configmap", "secret", "persistentvolumeclaim"})
_INFRASTRUCTURE = frozenset({"pod", "replicaset", "node", "persistentvolume", "endpoints", "endpointslice"})
_KINDS = _SERVICES | _DEPENDENCIES | _INFRASTRUCTURE
# Written by the control plane from a service and its pods: they show edges, and are no nodes themselves.
_ENDPOINTS = frozenset({"endpoints", "endpointslice"})
_CLUSTER_SCOPED = frozenset({"node", "persistentvolume"})


class _Object(NamedTuple):
    kind: str
    namespace: str
    name: str
    content: dict[str, Any]

    @property
    def id(self) -> str:
        return _id(self.kind, self.namespace, self.name)


def import_kubernetes(data: bytes, trigger: str) -> Imported:
    """The graph of the objects in a cluster; InvalidGraph where the file holds none."""
    builder = GraphBuilder(SOURCE, trigger)
    found = [each for document in read_json_documents(data, trigger) for each in _read_objects(document, trigger)]
    known = []
    for each in found:
        if each.kind in _KINDS:
            known.append(each)
            if each.kind not in _ENDPOINTS:
                builder.add_node(each.id, _type_of(each.kind), each.name)
        else:
            builder.left_out[f"objects of kind `{each.kind}`"] += 1
    pods = [each for each in known if each.kind == "pod"]
    for each in known:
        _connect(each, pods, builder)
    return builder.build()


def _read_objects(document: Any, name: str) -> Iterator[_Object]:
    listed = member(document, "items")
    items = [document] if listed is None else objects(listed)
    for item in items:
        kind, metadata = text(member(item, "kind")).lower(), member(item, "metadata")
        object_name = text(member(metadata, "name"))
        if not kind or not object_name:
            raise InvalidGraph(f"`{name}` is not what `kubectl get -o json` prints: an object lacks `kind` or a name")
        namespace = "" if kind in _CLUSTER_SCOPED else text(member(metadata, "namespace")) or "default"
        yield _Object(kind, namespace, object_name, item)


def _connect(each: _Object, pods: list[_Object], builder: GraphBuilder) -> None:
    if each.kind in _ENDPOINTS:
        _connect_endpoints(each, builder)
        return
    for owner in objects(member(each.content, "metadata", "ownerReferences")):
        kind = text(owner.get("kind")).lower()
        builder.add_dependency(_id(kind, each.namespace, text(owner.get("name"))), each.id)
    needed: list[tuple[str, str]] = []
    match each.kind:
        case "pod":
            needed = list(_needs_of_pod(member(each.content, "spec")))
        case "service":
            needed = [("pod", pod.name) for pod in pods if pod.namespace == each.namespace and _is_selected(each, pod)]
        case "ingress":
            needed = [("service", name) for name in _backends(each.content.get("spec"))]
        case "persistentvolumeclaim":
            needed = [("persistentvolume", text(member(each.content, "spec", "volumeName")))]
        case _:
            pass
    for kind, name in needed:
        if name:
            builder.add_dependency(each.id, _id(kind, each.namespace, name))


def _needs_of_pod(spec: Any) -> Iterator[tuple[str, str]]:
    """Kinds and names of what a pod cannot run without; a name may be empty."""
    yield "node", text(member(spec, "nodeName"))
    for volume in objects(member(spec, "volumes")):
        yield "configmap", text(member(volume, "configMap", "name"))
        yield "secret", text(member(volume, "secret", "secretName"))
        yield "persistentvolumeclaim", text(member(volume, "persistentVolumeClaim", "claimName"))
        for source in objects(member(volume, "projected", "sources")):
            yield "configmap", text(member(source, "configMap", "name"))
            yield "secret", text(member(source, "secret", "name"))
    for container in objects(member(spec, "containers")) + objects(member(spec, "initContainers")):
        for source in objects(container.get("envFrom")):
            yield "configmap", text(member(source, "configMapRef", "name"))
            yield "secret", text(member(source, "secretRef", "name"))
        for variable in objects(container.get("env")):
            yield "configmap", text(member(variable, "valueFrom", "configMapKeyRef", "name"))
            yield "secret", text(member(variable, "valueFrom", "secretKeyRef", "name"))


def _connect_endpoints(each: _Object, builder: GraphBuilder) -> None:
    """The pods behind a service, as the control plane sees them."""
    labels = member(each.content, "metadata", "labels")
    service = text(member(labels, "kubernetes.io/service-name")) or each.name
    addresses = objects(each.content.get("endpoints"))
    for subset in objects(each.content.get("subsets")):
        addresses += objects(subset.get("addresses")) + objects(subset.get("notReadyAddresses"))
    for address in addresses:
        target = address.get("targetRef")
        if text(member(target, "kind")).lower() == "pod":
            pod = _id("pod", text(member(target, "namespace")) or each.namespace, text(member(target, "name")))
            builder.add_dependency(_id("service", each.namespace, service), pod)


def _is_selected(service: _Object, pod: _Object) -> bool:
    selector = member(service.content, "spec", "selector")
    labels = member(pod.content, "metadata", "labels")
    return bool(selector) and isinstance(labels, dict) and selector.items() <= labels.items()


def _backends(spec: Any) -> Iterator[str]:
    """The names of the services that an ingress sends requests to."""
    default = text(member(spec, "defaultBackend", "service", "name"))
    if default:
        yield default
    for rule in objects(member(spec, "rules")):
        for path in objects(member(rule, "http", "paths")):
            name = text(member(path, "backend", "service", "name")) or text(member(path, "backend", "serviceName"))
            if name:
                yield name


def _type_of(kind: str) -> NodeType:
    if kind in _SERVICES:
        return NodeType.SERVICE
    return NodeType.DEPENDENCY if kind in _DEPENDENCIES else NodeType.INFRASTRUCTURE


def _id(kind: str, namespace: str, name: str) -> str:
    return f"{kind}/{name}" if kind in _CLUSTER_SCOPED else f"{kind}/{namespace}/{name}"
