"""ITBench scenarios as they come: two layouts, many hands, and nothing in them trusted."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cmbs.adapters.itbench import Benchmark, Effect, Reason, folders, read_benchmark
from cmbs.adapters.itbench.naming import canonical_name, entity_of, kind_in
from cmbs.adapters.itbench.scenarios import read_scenario
from cmbs.adapters.sre import KnownFault, World, causal_graph, cycles, signature_kit, structural_kit
from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.kit.rules import classes_of, summary_of
from tests.support.itbench import SCENARIOS, SETUP, TRUTH, load_derived, needs_itbench
from tests.support.subtests import for_each


def read(truth: dict[str, Any], setup: dict[str, Any] = SETUP, second: dict[str, Any] | None = None) -> KnownFault:
    fault, _ = read_scenario("scenario_7", truth, setup, second)
    assert fault is not None
    return fault


def notes(truth: dict[str, Any], setup: dict[str, Any] = SETUP, second: dict[str, Any] | None = None) -> list[Any]:
    return [(note.reason, note.what) for note in read_scenario("scenario_7", truth, setup, second)[1]]


def alerts(fault: KnownFault) -> list[str]:
    return sorted(alert.id for alert in fault.alerts)


def edges(fault: KnownFault) -> list[tuple[str, str]]:
    return sorted((source.id, target.id) for source, target in fault.propagations)


# --- one scenario -----------------------------------------------------------------------------------------------------


@pytest.mark.req("ITB-01")
def test_both_layouts_say_the_same() -> None:
    under_spec = {"apiVersion": "itbench.io/v1", "kind": "GroundTruth", "spec": TRUTH}
    at_the_top = {"metadata": {"version": "v1"}, **TRUTH}
    assert read(under_spec) == read(at_the_top)
    assert notes(under_spec) == notes(at_the_top) == []
    fault = read(under_spec)
    assert (fault.fault_id, fault.label) == ("scenario_7", "memory-hog: web/Pod/shop")
    assert (fault.mechanism_id, fault.provenance) == ("fault/7/memory-hog", "itbench:scenario_7")
    assert alerts(fault) == ["Restarting@shop", "Slow@shop"]
    assert edges(fault) == [("web/Pod/shop", "web/Service/shop")]
    assert sorted(each.id for each in fault.root_causes) == ["web/Pod/shop"]


@pytest.mark.req("ITB-02")
def test_a_reference_to_an_id_that_is_not_there_is_resolved_by_kind_and_name_or_left_out() -> None:
    truth = TRUTH | {
        "alerts": [{"id": "Slow", "group_id": "shop-service"}, {"id": "Hot", "group_id": "shop-node-1"}],
        "propagations": [
            {"source": "shop-pod", "target": "shop-service-2"},
            {"source": "gateway", "target": "shop-pod-1"},
            {"source": "shop-pod-1", "target": "node"},
        ],
    }
    assert alerts(read(truth)) == ["Slow@shop"]
    assert edges(read(truth)) == [("web/Pod/shop", "web/Service/shop")]
    assert notes(truth) == [
        (Reason.RESOLVED, "`shop-service` in the alert `Slow` is web/Service/shop"),
        (Reason.DANGLING, "`shop-node-1` in the alert `Hot`"),
        (Reason.RESOLVED, "`shop-pod` in the propagation to `shop-service-2` is web/Pod/shop"),
        (Reason.RESOLVED, "`shop-service-2` in the propagation from `shop-pod` is web/Service/shop"),
        (Reason.DANGLING, "`gateway` in the propagation to `shop-pod-1`"),
        (Reason.DANGLING, "`node` in the propagation from `shop-pod-1`"),
    ]


@pytest.mark.req("ITB-02")
def test_circles_are_kept_and_loops_on_one_thing_are_not() -> None:
    truth = TRUTH | {
        "propagations": [
            {"source": "shop-pod-1", "target": "shop-service-1"},
            {"source": "shop-service-1", "target": "shop-pod-1"},
            {"source": "shop-pod-1", "target": "shop-pod-2"},
        ],
        "groups": [*TRUTH["groups"], {"id": "shop-pod-2", "kind": "Pod", "namespace": "web"}],
    }
    assert edges(read(truth)) == [("web/Pod/shop", "web/Service/shop"), ("web/Service/shop", "web/Pod/shop")]
    assert notes(truth) == [(Reason.SELF_LOOP, "`shop-pod-1` to `shop-pod-2`, both web/Pod/shop")]


@pytest.mark.req("ITB-02")
def test_an_alert_without_a_group_is_one_of_the_cluster() -> None:
    truth = TRUTH | {"alerts": [{"id": "NodeBusy"}]}
    assert alerts(read(truth)) == ["NodeBusy@_cluster"]
    assert notes(truth) == [(Reason.CLUSTER_WIDE, "`NodeBusy`")]


@pytest.mark.req("ITB-02")
def test_of_two_groups_with_one_id_the_first_counts() -> None:
    other = {"id": "shop-pod-1", "kind": "Deployment", "namespace": "web", "root_cause": True}
    truth = TRUTH | {"groups": [*TRUTH["groups"], other, TRUTH["groups"][0]]}
    assert read(truth) == read(TRUTH)
    assert notes(truth) == [(Reason.SAME_ID, "`shop-pod-1` is web/Pod/shop and web/Deployment/shop")]


@pytest.mark.req("ITB-03")
def test_ground_truths_that_name_different_causes_are_told_of() -> None:
    def second(*names: Any) -> dict[str, Any]:
        return {"spec": {"entities": [{"kind": "Deployment", "metadata": {"name": name}} for name in names]}}

    assert notes(TRUTH, second=second("shop")) == notes(TRUTH, second=second("other", "shop-config")) == []
    assert notes(TRUTH, second=second()) == notes(TRUTH, second=second(None)) == []
    assert notes(TRUTH, second=second("till", "cart")) == [(Reason.DISAGREEMENT, "shop and cart, till")]
    assert read(TRUTH, second=second("till")) == read(TRUTH)


@pytest.mark.req("ITB-03")
def test_a_scenario_that_injects_nothing_or_blames_no_entity_is_still_recognised_by_its_alerts() -> None:
    truth = TRUTH | {"groups": [{**group, "root_cause": False} for group in TRUTH["groups"]]}
    assert read(truth, setup={}).label == "nothing injected: no component named"
    assert read(truth, setup={}).mechanism_id == "fault/7/nothing-injected"
    assert [reason for reason, _ in notes(truth, setup={})] == [Reason.NO_ROOT_CAUSE, Reason.NO_INJECTION]


@pytest.mark.req("ITB-03")
def test_a_scenario_without_a_usable_alert_is_not_used() -> None:
    for bare in ([], None, [{"id": "Slow", "group_id": "nowhere"}]):
        fault, found = read_scenario("scenario_7", TRUTH | {"alerts": bare}, SETUP)
        assert fault is None
        assert found[-1].reason is Reason.NO_ALERTS
        assert found[-1].reason.effect is Effect.SCENARIO_UNUSED


@pytest.mark.req("ITB-03")
@for_each(
    ("changed", "what"),
    [
        ({"alerts": [*TRUTH["alerts"], "Slow"]}, "`alerts[2]` is no mapping"),
        ({"alerts": [*TRUTH["alerts"], {"id": 7}]}, "`id` of an entry in `alerts` is no text"),
        ({"alerts": [*TRUTH["alerts"], {"id": "A", "group_id": []}]}, "`group_id` of an entry in `alerts` is no text"),
        ({"propagations": {"source": "a"}}, "`propagations` is no list"),
        ({"propagations": [{"source": "shop-pod-1"}]}, "`target` of an entry in `propagations` is no text"),
        ({"groups": [*TRUTH["groups"], {"id": "x"}]}, "`kind` of an entry in `groups` is no text"),
        ({"groups": [*TRUTH["groups"], {"id": " ", "kind": "Pod"}]}, "`id` of an entry in `groups` is no text"),
        (
            {"groups": [*TRUTH["groups"], {"id": "x", "kind": "Pod", "namespace": 3}]},
            "`namespace` of an entry in `groups` is no text",
        ),
        (
            {"groups": [*TRUTH["groups"], {"id": "b", "kind": "c", "namespace": "a/b"}]},
            "`namespace` of an entry in `groups` has a slash or an at sign: `a/b`",
        ),
        (
            {"alerts": [*TRUTH["alerts"], {"id": "Slow@shop"}]},
            "`id` of an entry in `alerts` has a slash or an at sign: `Slow@shop`",
        ),
    ],
    ids=["alert", "alert-id", "alert-group", "propagations", "target", "kind", "blank-id", "namespace", "slash", "at"],
)
def test_what_has_not_the_shape_it_should_is_left_out_and_named(changed: dict[str, Any], what: str) -> None:
    truth = TRUTH | changed
    assert alerts(read(truth)) == alerts(read(TRUTH))
    assert notes(truth) == [(Reason.MALFORMED, what)]


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["a-pod-1", "a-service", "b"])
)
CONTAINERS = ["spec", "alerts", "groups", "propagations", "faults", "injections", "entities", "metadata"]
FIELDS = ["id", "kind", "name", "namespace", "root_cause", "group_id", "source", "target"]
KEYS = st.sampled_from([*CONTAINERS, *FIELDS])
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=6)
)


@pytest.mark.slow
@pytest.mark.req("ITB-03")
@given(*(st.dictionaries(KEYS, DOCUMENTS) for _ in range(3)))
def test_any_document_is_read_or_noted(truth: dict[str, Any], setup: dict[str, Any], second: dict[str, Any]) -> None:
    fault, found = read_scenario("scenario_1", truth, setup, second)
    assert all(note.what and note.reason.effect in Effect for note in found)
    if fault is None:
        assert found[-1].reason is Reason.NO_ALERTS
    else:
        ends = {end for pair in fault.propagations for end in pair}
        assert ends | fault.root_causes <= fault.components
        # One id, one thing.
        assert len({each.id for each in fault.components}) == len(fault.components)
        assert len({each.id for each in fault.alerts}) == len(fault.alerts)


@pytest.mark.req("ITB-02")
@for_each(
    ("group_id", "kind", "namespace", "expected"),
    [
        ("frontend-proxy-service-1", "Service", "otel-demo", "otel-demo/Service/frontend-proxy"),
        ("frontendproxy-pod-2", "Pod", "otel-demo", "otel-demo/Pod/frontend-proxy"),
        ("ad-horizontal-pod-autoscaler-1", "HorizontalPodAutoscaler", "x", "x/HorizontalPodAutoscaler/ad"),
        ("flagd-configmap-1", "ConfigMap", "otel-demo", "otel-demo/ConfigMap/flagd-config"),
        ("bookinfo-namespace-1", "Namespace", "book-info", "book-info/Namespace/book-info"),
        ("otel-demo-namespace-1", "Namespace", None, "otel-demo/Namespace/otel-demo"),
        ("worker-1", "Node", None, "_cluster/Node/worker"),
        ("kafka-1", "Pod", "otel-demo", "otel-demo/Pod/kafka"),
        ("reviews-v3-pvc-1", "PersistentVolumeClaim", "b", "b/PersistentVolumeClaim/reviews-v3"),
    ],
    ids=lambda value: str(value).replace("/", "."),
)
def test_one_thing_has_one_name(group_id: str, kind: str, namespace: str | None, expected: str) -> None:
    assert entity_of(group_id, kind, namespace).id == expected


def test_the_kind_that_an_id_ends_in() -> None:
    assert [kind_in(each) for each in ("a-service", "a-pvc-12", "a-1", "service")] == [
        "Service",
        "PersistentVolumeClaim",
        None,
        None,
    ]
    assert canonical_name("service") == "service"


# --- folders ----------------------------------------------------------------------------------------------------------


def folder(directory: Path, number: int | str, **files: str) -> None:
    home = directory / f"scenario_{number}"
    home.mkdir()
    for name, text in files.items():
        (home / f"{name}.yaml").write_text(text, encoding="utf-8")


@pytest.mark.req("ITB-03")
def test_the_summary_says_of_every_folder_what_could_not_be_used_and_why(tmp_path: Path) -> None:
    good = yaml.safe_dump({"spec": TRUTH})
    folder(tmp_path, 10, groundtruth_v1=good, scenario=yaml.safe_dump(SETUP))
    folder(tmp_path, 9, groundtruth_v1=good, scenario="faults: [", groundtruth="- 1")
    folder(tmp_path, 2, scenario=yaml.safe_dump(SETUP))
    folder(tmp_path, 3, groundtruth_v1="alerts: []\nalerts: []")
    folder(tmp_path, 4, groundtruth_v1="[" * 5_000)
    folder(tmp_path, 5, groundtruth_v1="alerts: []\n" + "# much\n" * 200_000)
    (tmp_path / "scenario_6").write_text("no folder")
    (tmp_path / "LICENSE").write_text("of the benchmark")
    benchmark = read_benchmark(tmp_path)
    assert [fault.fault_id for fault in benchmark.system.faults] == ["scenario_9", "scenario_10"]
    lines = benchmark.summary()
    assert lines[0] == "6 scenario folders: 2 used, 4 not"
    assert "    scenario_2: `groundtruth_v1.yaml`" in lines
    assert "    scenario_3: `groundtruth_v1.yaml`: field `alerts` is there twice [duplicate-field]" in lines
    assert "    scenario_5: `groundtruth_v1.yaml`: it has more than 1048576 bytes" in lines
    assert "    scenario_9: `groundtruth.yaml`: it holds no mapping" in lines
    assert any(line.startswith("    scenario_4: `groundtruth_v1.yaml`: ") for line in lines)
    assert any(line.startswith("    scenario_9: `scenario.yaml`: not YAML: while parsing") for line in lines)
    assert benchmark.totals() == [line for line in lines if not line.startswith("    ")]
    assert lines[-1].startswith("not read: `aliases`")


@pytest.mark.req("ITB-03")
def test_a_file_that_would_fill_the_memory_or_never_end_is_not_read(tmp_path: Path) -> None:
    # Each line stands for ten times as many values as the one before it.
    lists = "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in pairwise("abcdefghijkl")
    )
    folder(tmp_path, 1, groundtruth_v1=f"a: &a [x]\n{lists}")
    folder(tmp_path, 2)
    os.mkfifo(tmp_path / "scenario_2" / "groundtruth_v1.yaml")
    lines = read_benchmark(tmp_path).summary()
    assert "    scenario_1: `groundtruth_v1.yaml`: a document has at most 2,000,000 values [too-large]" in lines
    assert "    scenario_2: `groundtruth_v1.yaml`: it is no file" in lines


def test_a_directory_without_scenarios_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="there is no directory"):
        read_benchmark(tmp_path / "nowhere")
    with pytest.raises(InvalidRequest, match="there is no `scenario_\\*` folder in"):
        read_benchmark(tmp_path)


def test_more_folders_than_a_benchmark_has_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MAX_FOLDERS", 1)
    for number in (1, 2):
        folder(tmp_path, number)
    with pytest.raises(LimitExceeded, match="`scenario folders` allows at most 1, got 2"):
        read_benchmark(tmp_path)


def test_folders_come_in_the_order_of_their_numbers_also_where_they_have_none(tmp_path: Path) -> None:
    for number in (10, 9, "b", "b2", 1, "1²"):
        folder(tmp_path, number, groundtruth_v1=yaml.safe_dump(TRUTH))
    found = [fault.fault_id for fault in read_benchmark(tmp_path).system.faults]
    assert found == ["scenario_1", "scenario_1²", "scenario_9", "scenario_10", "scenario_b", "scenario_b2"]


# --- the benchmark itself ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return read_benchmark(SCENARIOS)


def partition(signatures: dict[str, frozenset[str]]) -> set[frozenset[str]]:
    return {
        frozenset(other for other, fires in signatures.items() if fires == signature)
        for signature in signatures.values()
    }


@needs_itbench
@pytest.mark.req("ITB-04")
def test_all_67_folders_are_accounted_for(benchmark: Benchmark) -> None:
    assert (benchmark.folders, len(benchmark.system.faults)) == (67, 61)
    unused = {note.scenario_id for note in benchmark.notes if note.reason.effect is Effect.SCENARIO_UNUSED}
    assert unused == {f"scenario_{number}" for number in (51, 54, 55, 56, 57, 60)}
    counted = {reason: sum(note.reason is reason for note in benchmark.notes) for reason in Reason}
    assert {reason: number for reason, number in counted.items() if number} == {
        Reason.NO_GROUND_TRUTH: 6,
        Reason.DANGLING: 2,
        Reason.SELF_LOOP: 9,
        Reason.NO_INJECTION: 1,
        Reason.RESOLVED: 16,
        Reason.CLUSTER_WIDE: 10,
        Reason.DISAGREEMENT: 13,
    }


@needs_itbench
@pytest.mark.req("ITB-04")
def test_the_signature_kit_in_a_closed_world_is_the_derived_one(benchmark: Benchmark) -> None:
    kit = signature_kit(benchmark.system, World.CLOSED)
    known = load_derived("alert_kit.json")
    assert kit.probe_ids == {probe["id"] for probe in known["probes"]}
    expected = {f"scenario_{each['scenario']}": frozenset(each["fires"]) for each in known["hypotheses"]}
    ours = {
        hypothesis: frozenset(probe.probe_id for probe in kit.probes if hypothesis not in probe.outcomes[0].eliminates)
        for hypothesis in kit.hypothesis_ids
    }
    assert ours == expected
    classes = {frozenset(members) for members in classes_of(kit)}
    assert classes == partition(expected)
    assert (len(kit.hypotheses), len(classes)) == (61, 53)
    assert summary_of(kit).residual_bits == pytest.approx(0.275, abs=0.0005)


@needs_itbench
@pytest.mark.req("ITB-04")
def test_the_graph_is_the_derived_one_without_what_is_from_elsewhere(benchmark: Benchmark) -> None:
    ours, known = causal_graph(benchmark.system), load_derived("graph.json")
    # Of scenario 37, which injects nothing, the derived graph says "finops-alert".
    renamed = {"fault/37/finops-alert": "fault/37/nothing-injected"}

    def alerts_of_scenarios(thing: dict[str, Any]) -> frozenset[str]:
        return frozenset(each for each in thing["provenance"] if each.startswith("itbench:"))

    def nodes(graph: dict[str, Any]) -> dict[str, Any]:
        found = {
            renamed.get(node["id"], node["id"]): (node["type"], alerts_of_scenarios(node)) for node in graph["nodes"]
        }
        return {node_id: about for node_id, about in found.items() if about[1]}

    def spreading(graph: dict[str, Any]) -> dict[tuple[str, str, str], frozenset[str]]:
        return {
            (renamed.get(edge["source"], edge["source"]), edge["target"], edge["type"]): alerts_of_scenarios(edge)
            for edge in graph["edges"]
            if edge["type"] != "DEPENDS_ON"
        }

    assert nodes(ours) == nodes(known)
    assert spreading(ours) == spreading(known)
    assert [len(circle) for circle in cycles(benchmark.system)] == [10, 2]


@needs_itbench
@pytest.mark.req("ITB-04")
def test_the_structural_kit_tells_everything_apart_but_what_is_in_circles(benchmark: Benchmark) -> None:
    kit = structural_kit(benchmark.system, World.CLOSED)
    together = sorted((set(members) for members in classes_of(kit) if len(members) > 1), key=len, reverse=True)
    assert len(kit.hypotheses) == 94
    assert together == [set(circle) for circle in cycles(benchmark.system)]
