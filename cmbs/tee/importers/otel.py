"""OpenTelemetry: spans or a service graph, as JSON.

Read are OTLP/JSON traces (`resourceSpans`) and service graph metrics (`resourceMetrics`), one document or one a line as
the collector's file exporter writes them; what Jaeger's API answers (`data` with `spans`, or with `parent` and
`child`); and a Prometheus answer with the labels `client` and `server`. A caller depends on what it calls. Calls of
databases, queues and other peers that send no spans of their own become dependencies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cmbs.errors import InvalidGraph
from cmbs.tee.importers.building import GraphBuilder, Imported, member, objects, read_json_documents, text
from cmbs.tee.kernel.lattice import NodeType

SOURCE = "opentelemetry"
_SHAPES = "`resourceSpans`, `resourceMetrics`, or the `data` of Jaeger or Prometheus"
_CLIENT_KINDS = frozenset({3, 4, "SPAN_KIND_CLIENT", "SPAN_KIND_PRODUCER", "client", "producer"})
# Attributes of a call that name a peer which may send no spans itself, the first that is there counts.
_PEERS = (
    ("db.system.name", ("db.namespace", "db.name", "server.address")),
    ("db.system", ("db.namespace", "db.name", "server.address", "net.peer.name")),
    ("messaging.system", ("messaging.destination.name", "messaging.destination")),
)


class _Span(NamedTuple):
    key: tuple[str, str]
    parent: tuple[str, str] | None
    service: str
    attributes: dict[str, str]
    calls: bool


def import_otel(data: bytes, trigger: str) -> Imported:
    """The graph of services that spans or a service graph show; InvalidGraph where it is none of them."""
    builder = GraphBuilder(SOURCE, trigger)
    spans: list[_Span] = []
    for document in read_json_documents(data, trigger):
        if member(document, "resourceSpans") is not None:
            spans += _read_otlp_spans(document, builder)
        elif member(document, "resourceMetrics") is not None:
            _read_otlp_metrics(document, builder)
        elif isinstance(member(document, "data"), list):
            spans += _read_jaeger(document, builder)
        elif isinstance(member(document, "data", "result"), list):
            _read_prometheus(document, builder)
        else:
            raise InvalidGraph(f"`{trigger}` is no export of OpenTelemetry: it has none of {_SHAPES}")
    _connect_spans(spans, builder)
    return builder.build()


def _connect_spans(spans: list[_Span], builder: GraphBuilder) -> None:
    services = {span.key: span.service for span in spans}
    parents = {span.parent for span in spans}
    for span in spans:
        builder.add_node(span.service, NodeType.SERVICE)
        if span.parent is not None:
            caller = services.get(span.parent)
            if caller is None:
                builder.left_out["spans whose parent is not in the file"] += 1
            else:
                builder.add_dependency(caller, span.service)
        # A call that another span answers shows its callee by that span.
        if span.calls and span.key not in parents:
            _add_peer(span, builder)


def _add_peer(span: _Span, builder: GraphBuilder) -> None:
    for system, names in _PEERS:
        if system in span.attributes:
            name = next((span.attributes[each] for each in names if each in span.attributes), "")
            peer = f"{span.attributes[system]}:{name}" if name else span.attributes[system]
            builder.add_dependency(span.service, builder.add_node(peer, NodeType.DEPENDENCY))
            return
    peer = span.attributes.get("peer.service", "")
    if peer:
        builder.add_dependency(span.service, builder.add_node(peer, NodeType.SERVICE))


# --- OTLP -------------------------------------------------------------------------------------------------------------


def _read_otlp_spans(document: Any, builder: GraphBuilder) -> Iterator[_Span]:
    for resource in objects(member(document, "resourceSpans")):
        service = _service_name(_attributes(member(resource, "resource", "attributes")))
        scopes = objects(resource.get("scopeSpans")) or objects(resource.get("instrumentationLibrarySpans"))
        for span in (span for scope in scopes for span in objects(scope.get("spans"))):
            trace_id, span_id, parent_id = (text(span.get(name)) for name in ("traceId", "spanId", "parentSpanId"))
            if not service or not span_id:
                builder.left_out["spans without a service name or an id"] += 1
                continue
            yield _Span(
                (trace_id, span_id),
                (trace_id, parent_id) if parent_id else None,
                service,
                _attributes(span.get("attributes")),
                span.get("kind") in _CLIENT_KINDS,
            )


def _read_otlp_metrics(document: Any, builder: GraphBuilder) -> None:
    scopes = [
        scope
        for resource in objects(member(document, "resourceMetrics"))
        for scope in objects(resource.get("scopeMetrics"))
    ]
    for metric in (metric for scope in scopes for metric in objects(scope.get("metrics"))):
        points = objects(member(metric, "sum", "dataPoints")) + objects(member(metric, "histogram", "dataPoints"))
        for point in points:
            _add_call(_attributes(point.get("attributes")), builder)


def _attributes(value: Any) -> dict[str, str]:
    """Attributes with a text or a number as their value."""
    found = {}
    for attribute in objects(value):
        name, content = text(attribute.get("key")), attribute.get("value")
        if isinstance(content, dict):
            content = next(iter(content.values()), None)
        if name and isinstance(content, (str, int)) and not isinstance(content, bool):
            found[name] = str(content)
    return found


def _service_name(attributes: dict[str, str]) -> str:
    name, namespace = attributes.get("service.name", ""), attributes.get("service.namespace", "")
    return f"{namespace}/{name}" if name and namespace else name


# --- Jaeger and Prometheus --------------------------------------------------------------------------------------------


def _read_jaeger(document: Any, builder: GraphBuilder) -> Iterator[_Span]:
    for each in objects(member(document, "data")):
        if "parent" in each and "child" in each:
            _add_call({"client": text(each["parent"]), "server": text(each["child"])}, builder)
            continue
        processes = each.get("processes")
        for span in objects(each.get("spans")):
            service = text(member(processes, text(span.get("processID")), "serviceName"))
            trace_id, span_id = text(span.get("traceID")), text(span.get("spanID"))
            if not service or not span_id:
                builder.left_out["spans without a service name or an id"] += 1
                continue
            parent = next((_reference(each) for each in objects(span.get("references")) if _reference(each)), None)
            tags = {text(tag.get("key")): str(tag.get("value")) for tag in objects(span.get("tags"))}
            yield _Span((trace_id, span_id), parent, service, tags, tags.get("span.kind") in _CLIENT_KINDS)


def _reference(reference: dict[str, Any]) -> tuple[str, str] | None:
    span_id = text(reference.get("spanID"))
    return (text(reference.get("traceID")), span_id) if span_id else None


def _read_prometheus(document: Any, builder: GraphBuilder) -> None:
    for sample in objects(member(document, "data", "result")):
        labels = sample.get("metric")
        _add_call({name: text(member(labels, name)) for name in ("client", "server", "connection_type")}, builder)


def _add_call(labels: dict[str, str], builder: GraphBuilder) -> None:
    """A call between two services, as a service graph has it."""
    client, server = labels.get("client", ""), labels.get("server", "")
    if not client or not server:
        builder.left_out["samples without a client or a server"] += 1
        return
    is_service = labels.get("connection_type", "") in {"", "virtual_node"}
    builder.add_node(client, NodeType.SERVICE)
    builder.add_node(server, NodeType.SERVICE if is_service else NodeType.DEPENDENCY)
    builder.add_dependency(client, server)
