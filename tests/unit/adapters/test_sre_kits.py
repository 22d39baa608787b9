"""Kits and the graph of a system that breaks: what is seen has to be explained, and what silence means is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.adapters.sre import (
    AFFECTED,
    FIRING,
    HEALTHY,
    SILENT,
    Component,
    KnownFault,
    System,
    World,
    causal_graph,
    cycles,
    kits,
    signature_kit,
    structural_kit,
)
from cmbs.adapters.sre.webshop import provider, webshop
from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.kit import Kit, Soundness
from cmbs.kit.parse import parse_kit
from cmbs.kit.rules import classes_of
from cmbs.kit.writing import format_kit
from cmbs.spi import HypothesisProvider
from cmbs.tee.graph_json import deltas, read_graph
from tests.support.systems import COMPONENTS, systems


def survivors_of(kit: Kit, answers: dict[str, str]) -> set[str]:
    """What survives a set of answers."""
    left = set(kit.hypothesis_ids)
    for probe_id, outcome_id in answers.items():
        probe = kit.probe(probe_id)
        assert probe is not None
        outcome = probe.outcome(outcome_id)
        assert outcome is not None
        left -= outcome.eliminates
    return left


def downstream(system: System, component: Component) -> frozenset[str]:
    """Where trouble at a component may show, by walking forward."""
    reached, waiting = {component}, [component]
    while waiting:
        here = waiting.pop()
        for fault in system.faults:
            for source, target in fault.propagations:
                if source == here and target not in reached:
                    reached.add(target)
                    waiting.append(target)
    return frozenset(each.id for each in reached)


# --- the signature kit ------------------------------------------------------------------------------------------------


@pytest.mark.req("SRE-KIT-01")
@given(systems(), st.data())
def test_in_an_open_world_what_fires_leaves_the_faults_that_raise_all_of_it(
    system: System, data: st.DataObject
) -> None:
    kit = signature_kit(system)
    truth = data.draw(st.sampled_from(system.faults))
    heard = data.draw(st.frozensets(st.sampled_from(sorted(truth.alerts))))
    left = survivors_of(kit, {alert.id: FIRING for alert in heard if alert.id in kit.probe_ids})
    assert left == {fault.fault_id for fault in system.faults if heard <= fault.alerts}
    assert truth.fault_id in left


@pytest.mark.req("SRE-KIT-01")
@given(systems())
def test_in_an_open_world_silence_eliminates_nothing(system: System) -> None:
    for kit in (signature_kit(system), structural_kit(system)):
        silence = {probe.probe_id: probe.outcomes[1].outcome_id for probe in kit.probes}
        assert survivors_of(kit, silence) == kit.hypothesis_ids
        assert set(silence.values()) <= {SILENT, HEALTHY}


@pytest.mark.req("SRE-KIT-02")
@given(systems(), st.data())
def test_in_a_closed_world_all_answers_together_leave_the_faults_with_the_same_alerts(
    system: System, data: st.DataObject
) -> None:
    kit = signature_kit(system, World.CLOSED)
    truth = data.draw(st.sampled_from(system.faults))
    fires = {alert.id for alert in truth.alerts}
    left = survivors_of(kit, {probe.probe_id: FIRING if probe.probe_id in fires else SILENT for probe in kit.probes})
    assert left == {fault.fault_id for fault in system.faults if fault.alerts == truth.alerts}


@pytest.mark.parametrize(("make", "what"), [(signature_kit, "fault"), (structural_kit, "component")])
def test_a_system_of_which_nothing_is_known_has_no_kit(make: Callable[[System], Kit], what: str) -> None:
    with pytest.raises(InvalidRequest, match=f"no {what} of `nothing` is known"):
        make(System("nothing", "Nothing", "", ()))


# --- the structural kit -----------------------------------------------------------------------------------------------


@pytest.mark.req("SRE-KIT-03")
@given(systems(), st.data())
def test_a_component_survives_where_all_the_trouble_is_downstream_of_it(system: System, data: st.DataObject) -> None:
    truth = data.draw(st.sampled_from(COMPONENTS))
    seen = data.draw(st.frozensets(st.sampled_from(sorted(downstream(system, truth)))))
    kit = structural_kit(system)
    left = survivors_of(kit, dict.fromkeys(seen & kit.probe_ids, AFFECTED))
    assert left == {each.id for each in COMPONENTS if seen <= downstream(system, each)}
    assert truth.id in left


@pytest.mark.req("SRE-KIT-03")
@given(systems(), st.data())
def test_in_a_closed_world_only_what_would_show_in_the_same_places_survives(
    system: System, data: st.DataObject
) -> None:
    truth = data.draw(st.sampled_from(COMPONENTS))
    affected = downstream(system, truth)
    kit = structural_kit(system, World.CLOSED)
    left = survivors_of(kit, {each: AFFECTED if each in affected else HEALTHY for each in kit.probe_ids})
    assert left == {each.id for each in COMPONENTS if downstream(system, each) == affected}


@pytest.mark.req("SRE-KIT-03")
@given(systems())
def test_a_circle_is_what_reaches_each_other(system: System) -> None:
    found = {
        frozenset(
            other.id
            for other in COMPONENTS
            if other.id in downstream(system, each) and each.id in downstream(system, other)
        )
        for each in COMPONENTS
    }
    assert set(cycles(system)) == {circle for circle in found if len(circle) > 1}
    assert len(cycles(system)) == len(set(cycles(system)))


def test_more_components_than_a_kit_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kits, "MAX_COMPONENTS", 20)
    with pytest.raises(LimitExceeded, match="`components` allows at most 20, got 21"):
        structural_kit(webshop())


# --- what every rule says of itself -----------------------------------------------------------------------------------


@pytest.mark.req("SRE-KIT-04")
@given(systems())
def test_every_elimination_says_what_has_to_be_true_for_it(system: System) -> None:
    for make in (signature_kit, structural_kit):
        for probe in make(system).probes:
            assert [outcome.soundness for outcome in probe.outcomes] == [Soundness.HEURISTIC, Soundness.SOUND]
            # Whatever claims to be sound here eliminates nothing.
            assert not probe.outcomes[1].eliminates
        for probe in make(system, World.CLOSED).probes:
            assert {outcome.soundness for outcome in probe.outcomes} == {Soundness.CLOSED_WORLD}


@given(systems(), st.sampled_from(World))
def test_the_worlds_are_different_versions_and_both_can_be_written_and_read(system: System, world: World) -> None:
    for make in (signature_kit, structural_kit):
        kit = make(system, world)
        assert kit.version.startswith(f"{world}-sha256-")
        assert parse_kit(format_kit(kit, "kit.json").encode(), "kit.json").kit == kit


def test_what_more_is_known_is_another_version() -> None:
    known = webshop()
    fewer = replace(known, faults=known.faults[1:])
    for make in (signature_kit, structural_kit):
        assert make(known) == make(known)
    assert signature_kit(fewer).version != signature_kit(known).version


# --- the graph --------------------------------------------------------------------------------------------------------


@pytest.mark.req("SRE-KIT-05")
@given(systems(), st.data())
def test_the_graph_is_one_that_tee_loads_whatever_the_order_of_the_faults(system: System, data: st.DataObject) -> None:
    graph = causal_graph(system)
    shuffled = data.draw(st.permutations(system.faults))
    assert causal_graph(replace(system, faults=tuple(shuffled))) == graph
    sent = list(deltas(read_graph(json.dumps(graph).encode())))
    assert sum(len(delta.nodes) for delta in sent) == len(graph["nodes"])
    edges = {(edge.source, edge.target) for delta in sent for edge in delta.edges}
    propagations = {(source.id, target.id) for fault in system.faults for source, target in fault.propagations}
    manifests = {(fault.mechanism_id, cause.id) for fault in system.faults for cause in fault.root_causes}
    assert edges == propagations | manifests
    # No edge leads to nowhere.
    assert {end for edge in edges for end in edge} <= {node.id for delta in sent for node in delta.nodes}


# --- the web shop -----------------------------------------------------------------------------------------------------


def alerts_of(fault_id: str) -> frozenset[str]:
    (fault,) = (each for each in webshop().faults if each.fault_id == fault_id)
    return frozenset(alert.id for alert in fault.alerts)


@pytest.mark.req("SRE-KIT-06")
def test_the_web_shop_has_two_dozen_faults_that_firing_alerts_alone_tell_apart() -> None:
    faults = webshop().faults
    assert (len(faults), len({component for fault in faults for component in fault.components})) == (24, 21)
    contained = [
        (one.fault_id, other.fault_id)
        for one in faults
        for other in faults
        if one is not other and one.alerts <= other.alerts
    ]
    assert contained == []
    assert all(len(members) == 1 for members in classes_of(signature_kit(webshop(), World.CLOSED)))


@pytest.mark.req("SRE-KIT-06")
def test_every_alert_of_the_web_shop_is_where_its_fault_spreads_to() -> None:
    def stray(fault: KnownFault) -> list[str]:
        (cause,) = fault.root_causes
        reached = downstream(webshop(), cause)
        return [alert.id for alert in fault.alerts if alert.target not in reached]

    assert {fault.fault_id: stray(fault) for fault in webshop().faults if stray(fault)} == {}


@pytest.mark.req("SRE-KIT-06")
def test_the_web_shop_has_circles_as_real_systems_do() -> None:
    assert [len(circle) for circle in cycles(webshop())] == [4, 2]
    assert read_graph(json.dumps(causal_graph(webshop())).encode()).edges


@pytest.mark.req("SRE-KIT-06")
def test_the_web_shop_is_a_hypothesis_provider() -> None:
    shop = provider()
    assert isinstance(shop, HypothesisProvider)
    mask = shop.apply_probe("LockWaitsHigh@orders-db", FIRING)
    assert shop.hypothesis_ids() - mask.keys() == {"orders-db-lock-contention"}
    assert shop.apply_probe("LockWaitsHigh@orders-db", SILENT) == {}
    assert "LockWaitsHigh@orders-db" in alerts_of("orders-db-lock-contention")
