"""Exports of other systems as graphs: shaped as the systems write them, read into nodes and dependencies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.errors import InvalidGraph
from cmbs.tee import Delta, NodeType
from cmbs.tee.graph_json import deltas
from cmbs.tee.importers import IMPORTERS, Imported, import_backstage, import_kubernetes, import_otel
from cmbs.tee.kernel.lattice import Timestamp
from cmbs.tee.kernel.proposed import compare_proposal
from cmbs.tee.kernel.wire import edge_of, node_of
from cmbs.tee.service import TeeService
from cmbs.tee.stores.memory import MemoryGraphStore
from tests.support.subtests import for_each


def types(imported: Imported) -> dict[str, str]:
    return {each.id: each.type for each in imported.graph.nodes}


def edges(imported: Imported) -> set[tuple[str, str]]:
    assert {each.type for each in imported.graph.edges} <= {"DEPENDS_ON"}
    return {(each.source, each.target) for each in imported.graph.edges}


# --- OpenTelemetry ----------------------------------------------------------------------------------------------------


def attributes(**values: str) -> list[dict[str, Any]]:
    return [{"key": name.replace("_", "."), "value": {"stringValue": value}} for name, value in values.items()]


def resource(service: str, *spans: dict[str, Any], **more: str) -> dict[str, Any]:
    found = attributes(service_name=service, **more) if service else []
    return {"resource": {"attributes": found}, "scopeSpans": [{"scope": {"name": "http"}, "spans": list(spans)}]}


def span(span_id: str, parent: str = "", kind: int = 2, **values: str) -> dict[str, Any]:
    return {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": span_id,
        "parentSpanId": parent,
        "kind": kind,
        "name": "GET /",
        "attributes": attributes(**values),
    }


OTLP = {
    "resourceSpans": [
        resource("web", span("01"), span("02", "01", kind=3)),
        resource("orders", span("03", "02"), span("04", "03", 3, db_system="postgresql", db_name="orders")),
        resource("mail", span("05", "99"), span("06", "05", 4, messaging_system="kafka"), service_namespace="back"),
        resource("", span("07")),
    ]
}


@pytest.mark.req("TEE-IMPORT-01")
def test_spans_become_services_that_depend_on_what_they_call() -> None:
    imported = import_otel(json.dumps(OTLP).encode(), "spans.json")
    assert types(imported) == {
        "web": "SERVICE",
        "orders": "SERVICE",
        "postgresql:orders": "DEPENDENCY",
        "back/mail": "SERVICE",
        "kafka": "DEPENDENCY",
    }
    assert edges(imported) == {("web", "orders"), ("orders", "postgresql:orders"), ("back/mail", "kafka")}
    assert imported.left_out == {
        "spans whose parent is not in the file": 1,
        "spans without a service name or an id": 1,
    }
    said = imported.graph.nodes[0].provenance[0]
    assert (said.source, said.trigger) == ("opentelemetry", "spans.json")  # type: ignore[union-attr]


@pytest.mark.req("TEE-IMPORT-01")
def test_the_file_exporter_writes_a_document_a_line() -> None:
    lines = [json.dumps({"resourceSpans": [each]}) for each in OTLP["resourceSpans"]]
    assert edges(import_otel("\n".join(lines).encode(), "spans.jsonl")) == edges(
        import_otel(json.dumps(OTLP).encode(), "spans.json")
    )
    with pytest.raises(InvalidGraph, match="line 2"):
        import_otel(f"{lines[0]}\n{{\n".encode(), "spans.jsonl")


@pytest.mark.req("TEE-IMPORT-01")
def test_a_called_peer_without_spans_of_its_own_is_known_by_its_name() -> None:
    calls = resource("web", span("01"), span("02", "01", 3, peer_service="billing"), span("03", "01", 3))
    imported = import_otel(json.dumps({"resourceSpans": [calls]}).encode(), "x")
    assert edges(imported) == {("web", "billing")}


@pytest.mark.req("TEE-IMPORT-01")
def test_jaeger_answers_with_traces_or_with_dependencies() -> None:
    traces = {
        "data": [
            {
                "traceID": "t",
                "spans": [
                    {"traceID": "t", "spanID": "1", "processID": "p1", "references": [], "tags": []},
                    {
                        "traceID": "t",
                        "spanID": "2",
                        "processID": "p2",
                        "references": [{"refType": "CHILD_OF", "traceID": "t", "spanID": "1"}],
                        "tags": [{"key": "span.kind", "value": "client"}, {"key": "db.system", "value": "redis"}],
                    },
                    {"traceID": "t", "spanID": "3", "processID": "p9"},
                ],
                "processes": {"p1": {"serviceName": "web"}, "p2": {"serviceName": "cart"}},
            }
        ]
    }
    imported = import_otel(json.dumps(traces).encode(), "traces.json")
    assert edges(imported) == {("web", "cart"), ("cart", "redis")}
    assert imported.left_out.total() == 1
    pairs = {"data": [{"parent": "web", "child": "cart", "callCount": 7}, {"parent": "web", "child": ""}]}
    imported = import_otel(json.dumps(pairs).encode(), "dependencies.json")
    assert (edges(imported), imported.left_out.total()) == ({("web", "cart")}, 1)


@pytest.mark.req("TEE-IMPORT-01")
def test_service_graphs_come_from_prometheus_or_as_metrics() -> None:
    labels = [{"client": "web", "server": "cart"}, {"client": "cart", "server": "redis", "connection_type": "database"}]
    prometheus = {
        "status": "success",
        "data": {"resultType": "vector", "result": [{"metric": each, "value": [1, "2"]} for each in labels]},
    }
    imported = import_otel(json.dumps(prometheus).encode(), "graph.json")
    assert types(imported) == {"web": "SERVICE", "cart": "SERVICE", "redis": "DEPENDENCY"}
    points = [{"attributes": [{"key": k, "value": {"stringValue": v}} for k, v in each.items()]} for each in labels]
    metrics = {
        "resourceMetrics": [
            {
                "scopeMetrics": [
                    {"metrics": [{"sum": {"dataPoints": points[:1]}}, {"histogram": {"dataPoints": points[1:]}}]}
                ]
            }
        ]
    }
    assert (
        edges(import_otel(json.dumps(metrics).encode(), "m")) == edges(imported) == {("web", "cart"), ("cart", "redis")}
    )


# --- Kubernetes -------------------------------------------------------------------------------------------------------


def thing(kind: str, name: str, *, labels: Any = None, owner: tuple[str, str] | None = None, **more: Any) -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "labels": labels or {}}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner[0], "name": owner[1], "controller": True}]
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


POD_SPEC = {
    "nodeName": "worker-1",
    "volumes": [
        {"name": "a", "configMap": {"name": "settings"}},
        {"name": "b", "secret": {"secretName": "tls"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "d", "projected": {"sources": [{"configMap": {"name": "ca"}}, {"secret": {"name": "token"}}]}},
    ],
    "containers": [
        {
            "name": "web",
            "envFrom": [{"configMapRef": {"name": "env"}}, {"secretRef": {"name": "keys"}}],
            "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "dsn", "key": "url"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "flags", "key": "b"}}},
                {"name": "C", "value": "plain"},
            ],
        }
    ],
}
CLUSTER = {
    "kind": "List",
    "items": [
        thing("Deployment", "web"),
        thing("ReplicaSet", "web-1", owner=("Deployment", "web")),
        thing("Pod", "web-1-a", labels={"app": "web"}, owner=("ReplicaSet", "web-1"), spec=POD_SPEC),
        thing("Service", "web", spec={"selector": {"app": "web"}}),
        thing("Service", "headless", spec={}),
        thing(
            "Ingress",
            "front",
            spec={
                "defaultBackend": {"service": {"name": "web"}},
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {"backend": {"service": {"name": "web"}}},
                                {"backend": {"serviceName": "headless"}},
                                {"backend": {"resource": {}}},
                            ]
                        }
                    }
                ],
            },
        ),
        thing(
            "EndpointSlice",
            "headless-x",
            labels={"kubernetes.io/service-name": "headless"},
            endpoints=[{"targetRef": {"kind": "Pod", "name": "web-1-a", "namespace": "shop"}}, {"addresses": []}],
        ),
        thing(
            "Endpoints",
            "web",
            subsets=[{"addresses": [{"targetRef": {"kind": "Pod", "name": "web-1-a"}}], "notReadyAddresses": []}],
        ),
        thing("PersistentVolumeClaim", "data", spec={"volumeName": "pv-7"}),
        *(thing("ConfigMap", name) for name in ("settings", "ca", "env", "flags")),
        *(thing("Secret", name, data={"password": "aHVudGVyMg=="}) for name in ("tls", "token", "keys", "dsn")),
        {"kind": "Node", "metadata": {"name": "worker-1"}},
        {"kind": "PersistentVolume", "metadata": {"name": "pv-7"}},
        thing("Lease", "leader"),
    ],
}


@pytest.mark.req("TEE-IMPORT-01")
def test_a_cluster_becomes_what_depends_on_what() -> None:
    imported = import_kubernetes(json.dumps(CLUSTER).encode(), "cluster.json")
    pod = "pod/shop/web-1-a"
    assert edges(imported) == {
        ("deployment/shop/web", "replicaset/shop/web-1"),
        ("replicaset/shop/web-1", pod),
        ("service/shop/web", pod),
        ("service/shop/headless", pod),
        ("ingress/shop/front", "service/shop/web"),
        ("ingress/shop/front", "service/shop/headless"),
        ("persistentvolumeclaim/shop/data", "persistentvolume/pv-7"),
        (pod, "node/worker-1"),
        (pod, "persistentvolumeclaim/shop/data"),
        *((pod, f"configmap/shop/{name}") for name in ("settings", "ca", "env", "flags")),
        *((pod, f"secret/shop/{name}") for name in ("tls", "token", "keys", "dsn")),
    }
    kinds = types(imported)
    assert (kinds["service/shop/web"], kinds["secret/shop/dsn"], kinds[pod]) == (
        "SERVICE",
        "DEPENDENCY",
        "INFRASTRUCTURE",
    )
    assert imported.left_out == {"objects of kind `lease`": 1}
    # Of a secret only its name is read.
    assert "aHVudGVyMg" not in repr(imported)


@pytest.mark.req("TEE-IMPORT-01")
def test_a_dependency_on_what_the_file_does_not_describe_is_left_out_and_counted() -> None:
    imported = import_kubernetes(json.dumps(CLUSTER["items"][2]).encode(), "pod.json")
    assert (list(types(imported)), edges(imported)) == (["pod/shop/web-1-a"], set())
    assert imported.left_out == {"dependencies on something that the file does not describe": 11}


# --- Backstage --------------------------------------------------------------------------------------------------------

CATALOG = """\
apiVersion: backstage.io/v1alpha1
kind: Component
metadata: {name: web, title: The shop, annotations: {released: 2026-01-31}}
spec:
  type: website
  system: shop
  dependsOn: [resource:default/orders-db, "component:cart"]
  consumesApis: [orders]
---
kind: Component
metadata: {name: Cart, namespace: default}
spec: {providesApis: [orders], subcomponentOf: web, dependencyOf: [component:default/web]}
---
kind: API
metadata: {name: orders}
spec: {type: openapi}
---
kind: Resource
metadata: {name: orders-db}
---
kind: System
metadata: {name: shop}
---
kind: Group
metadata: {name: team-a}
---
"""


@pytest.mark.req("TEE-IMPORT-01")
def test_a_catalog_becomes_entities_under_their_references() -> None:
    imported = import_backstage(CATALOG.encode(), "catalog-info.yaml")
    assert types(imported) == {
        "component:default/web": "SERVICE",
        "component:default/cart": "SERVICE",
        "api:default/orders": "SERVICE",
        "resource:default/orders-db": "DEPENDENCY",
        "system:default/shop": "SERVICE",
    }
    assert edges(imported) == {
        ("component:default/web", "resource:default/orders-db"),
        ("component:default/web", "component:default/cart"),
        ("component:default/web", "api:default/orders"),
        ("api:default/orders", "component:default/cart"),
        ("system:default/shop", "component:default/web"),
    }
    assert imported.graph.nodes[0].label == "The shop"
    assert imported.left_out == {"entities of kind `group`": 1}


@pytest.mark.req("TEE-IMPORT-01")
def test_the_catalog_api_answers_in_json() -> None:
    entity = {"kind": "Component", "metadata": {"name": "web"}, "spec": {}}
    for shape in ([entity], {"items": [entity]}, entity):
        assert list(types(import_backstage(json.dumps(shape).encode(), "entities.json"))) == ["component:default/web"]


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.req("TEE-IMPORT-02")
@for_each(
    ("kind", "text", "said"),
    [
        ("otel", "{}", "is no export of OpenTelemetry"),
        ("otel", "[1]", "is no export of OpenTelemetry"),
        ("otel", "nothing", "`f` is not JSON"),
        ("kubernetes", '{"items": [{"kind": "Pod"}]}', "an object lacks `kind` or a name"),
        ("kubernetes", "null", "an object lacks `kind` or a name"),
        ("backstage", "kind: [", "line 1"),
        ("backstage", "a: 1\n---\nb: {", "line 3"),
        ("backstage", "kind: Component", "lacks `kind` or `metadata.name`"),
        ("backstage", "\udcff", "cannot be read"),
        ("backstage", "a: \x01", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(kind: str, text: str, said: str) -> None:
    with pytest.raises(InvalidGraph, match=said):
        IMPORTERS[kind](text.encode("utf-8", "surrogateescape"), "f")


@pytest.mark.req("TEE-IMPORT-02")
def test_a_name_that_tee_would_not_take_is_left_out_and_counted_and_the_rest_is_merged() -> None:
    long, title = "x" * 1_025, "t" * 5_000
    entities = [f'kind: Component\nmetadata: {{name: "{name}", title: {title}}}\n' for name in (long, "\\ud800", "web")]
    entities.append(f"kind: Resource\nmetadata: {{name: db}}\nspec: {{dependencyOf: [web, {long}]}}\n")
    imported = import_backstage("---\n".join(entities).encode(), "f")
    assert list(types(imported)) == ["component:default/web", "resource:default/db"]
    assert edges(imported) == {("component:default/web", "resource:default/db")}
    assert imported.left_out == {
        "names of more than 1024 characters, or that are no text": 2,
        "dependencies on something that the file does not describe": 1,
    }
    service = TeeService(MemoryGraphStore())
    for delta in deltas(imported.graph):
        service.merge_hypothesis(delta)
    calls = {"resourceSpans": [resource("web", span("01", kind=3, db_system="postgresql", db_name="d" * 2_000))]}
    assert list(types(import_otel(json.dumps(calls).encode(), "f"))) == ["web"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "metadata", "name", "spec", "items", "data", "result", "resourceSpans", "spans"]),
            below,
        )
    ),
    max_leaves=12,
)


@pytest.mark.req("TEE-IMPORT-02")
@given(st.sampled_from(sorted(IMPORTERS)), ANYTHING)
def test_whatever_a_file_holds_it_is_a_graph_or_refused(kind: str, content: Any) -> None:
    try:
        imported = IMPORTERS[kind](json.dumps(content).encode(), "f")
    except InvalidGraph:
        return
    for delta in deltas(imported.graph):
        assert len(delta.nodes) + len(delta.edges) == len(imported.graph.nodes) + len(imported.graph.edges)


@pytest.mark.req("TEE-IMPORT-01", "TEE-IMPORT-02")
@pytest.mark.parametrize(
    ("kind", "text"),
    [("otel", json.dumps(OTLP)), ("kubernetes", json.dumps(CLUSTER)), ("backstage", CATALOG)],
)
def test_importing_again_changes_nothing_and_a_dry_run_says_so(kind: str, text: str) -> None:
    now = Timestamp(5, 0)
    messages = list(deltas(IMPORTERS[kind](text.encode(), "f").graph))
    nodes = [node_of(each, now) for message in messages for each in message.nodes]
    relations = [edge_of(each, now) for message in messages for each in message.edges]
    keys = [each.key for each in relations]
    fresh = compare_proposal(nodes, keys, [], [])
    assert (len(fresh.new_nodes), len(fresh.new_edges), fresh.conflicts) == (len(nodes), len(keys), ())
    store = MemoryGraphStore()
    store.merge(Delta(tuple(nodes), tuple(relations)))
    version = store.version()
    store.merge(Delta(tuple(nodes), tuple(relations)))
    assert store.version() == version
    again = compare_proposal(nodes, keys, nodes, relations)
    assert (again.new_nodes, again.new_edges, again.known_nodes) == ((), (), len(nodes))
    other = [type(nodes[0])(nodes[0].id, NodeType.MECHANISM, "other", False, nodes[0].provenance), *nodes[1:]]
    assert {each.field for each in compare_proposal(other, keys, nodes, relations).conflicts} == {"type", "label"}
