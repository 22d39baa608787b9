"""A kit behind a real server, as its provider and as an adapter beside it: the same eliminations either way."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.adapters import Action, AdapterActionContext, BeliefAdapter, EliminateMessage, KitAdapter
from cmbs.belief.kernel.provider_mask import BeliefState, find_eliminated
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, InvalidRequest, UnknownProbe
from cmbs.kit import (
    NO_DATA,
    CutPoints,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    KitProvider,
    NormalBand,
    Soundness,
    ontology_of,
    outcome_for,
)
from cmbs.messages import BeliefSnapshot
from cmbs.spi import HypothesisProvider, discover_providers
from cmbs.testing.strategies.kits import drop_windows, kits, responses

SLOW = NormalBand("normal", "slow", median=100, mad=10)
KIT = Kit(
    "checkout",
    "3",
    "",
    (KitHypothesis("disk"), KitHypothesis("dns"), KitHypothesis("deploy")),
    (
        KitProbe(
            "latency",
            "How slow is it?",
            (
                KitOutcome("normal", frozenset({"disk"}), Soundness.STATISTICAL, "as ever"),
                KitOutcome("slow", frozenset(), Soundness.SOUND),
            ),
            SLOW,
        ),
        KitProbe(
            "dig",
            "Does the name resolve?",
            (
                KitOutcome("yes", frozenset({"dns"}), Soundness.SOUND),
                KitOutcome("no", frozenset({"disk", "deploy"}), Soundness.HEURISTIC),
            ),
        ),
    ),
)


def snapshot_of(*survivors: str) -> BeliefSnapshot:
    return BeliefSnapshot("s", ontology_of(KIT), survivors)


def observe_all(adapter: KitAdapter, probe_id: str, response: Any) -> list[EliminateMessage]:
    return list(adapter.observe(adapter.apply_action(probe_id, snapshot_of(*KIT.hypothesis_ids)), response))


def send(server: BeliefServer, session_id: str, message: EliminateMessage) -> BeliefSnapshot:
    why = dict(message.justification or {})
    return server.eliminate(session_id, message.source_id, message.observation_id, message.eliminated, why).snapshot


# --- as a provider ----------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-09")
@given(kits(min_probes=1), st.data())
def test_the_mask_of_a_response_is_what_its_outcome_eliminates(kit: Kit, data: st.DataObject) -> None:
    provider = KitProvider(kit)
    assert isinstance(provider, HypothesisProvider)
    assert (provider.id(), provider.version()) == (kit.kit_id, kit.version)
    assert provider.hypothesis_ids() == kit.hypothesis_ids
    assert provider.probe_ids() == {each.probe_id for each in kit.probes}
    probe = data.draw(st.sampled_from(kit.probes))
    response = data.draw(responses(probe))
    outcome = outcome_for(probe, response)
    expected = frozenset() if outcome is None else outcome.eliminates
    assert find_eliminated(provider, probe.probe_id, response) == expected
    assert provider.apply_probe(probe.probe_id, response) == provider.apply_probe(probe.probe_id, response)


def test_a_probe_that_the_kit_does_not_have_is_refused() -> None:
    with pytest.raises(UnknownProbe):
        KitProvider(KIT).apply_probe("df", "yes")


@pytest.mark.req("KIT-06")
@given(kits(min_probes=1), st.data())
def test_no_data_leaves_belief_as_it_was(kit: Kit, data: st.DataObject) -> None:
    state = BeliefState(KitProvider(kit))
    probe = data.draw(st.sampled_from(kit.probes))
    assert state.apply_probe(probe.probe_id, data.draw(st.sampled_from([NO_DATA, None]))) == frozenset()
    assert state.survivors == kit.hypothesis_ids


@pytest.mark.req("KIT-09")
@given(kits(deterministic=True).map(drop_windows), st.data())
def test_the_truth_survives_every_answer_that_it_gives(kit: Kit, data: st.DataObject) -> None:
    truth = data.draw(st.sampled_from(kit.hypotheses)).id
    state = BeliefState(KitProvider(kit))
    for probe in kit.probes:
        (answer,) = [each.outcome_id for each in probe.outcomes if truth not in each.eliminates]
        state.apply_probe(probe.probe_id, answer)
    assert truth in state.survivors


@pytest.mark.req("KIT-09")
def test_an_installed_distribution_offers_its_kit_through_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "ships_a_kit"
    package.mkdir()
    source = """
        from cmbs.kit import KitProvider
        from cmbs.adapters.kits import load_packaged_kit

        def provider():
            return KitProvider(load_packaged_kit("ships_a_kit", "coins.yaml"))
        """
    kit = """
        id: coins
        version: "1"
        soundness: sound
        hypotheses: [heads, tails]
        probes:
          - id: toss
            outcomes: [{id: heads, keeps: [heads]}, {id: tails, keeps: [tails]}]
        """
    (package / "__init__.py").write_text(dedent(source))
    (package / "coins.yaml").write_text(dedent(kit))
    metadata = tmp_path / "ships_a_kit-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ships_a_kit\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[cmbs.hypotheses]\ncoins = ships_a_kit:provider\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    server = BeliefServer(belief_provider=discover_providers()["coins"])
    session_id, snapshot = server.declare_session(ontology_of(KIT), [])
    assert snapshot.survivors == ["heads", "tails"]
    assert server.apply_probe(session_id, "toss", "tails").snapshot.survivors == ["tails"]


# --- as an adapter ----------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-10")
def test_a_kit_offers_the_probes_that_could_tell_the_survivors_apart() -> None:
    adapter = KitAdapter(KIT)
    assert isinstance(adapter, BeliefAdapter)
    assert [each.action_id for each in adapter.list_actions(snapshot_of("disk", "dns", "deploy"))] == ["latency", "dig"]
    assert [each.action_id for each in adapter.list_actions(snapshot_of("dns", "deploy"))] == ["dig"]
    assert adapter.list_actions(snapshot_of("dns")) == []
    assert adapter.list_actions(snapshot_of("not of this kit", "nor this")) == []
    assert adapter.list_actions(snapshot_of("disk", "deploy")) == [
        Action(
            "latency",
            "How slow is it?",
            {
                "outcomes": [{"outcome_id": "normal", "label": "as ever"}, {"outcome_id": "slow", "label": ""}],
                "reads_numbers": True,
            },
        )
    ]


@pytest.mark.req("KIT-10")
def test_an_observation_becomes_a_message_that_says_why() -> None:
    (message,) = observe_all(KitAdapter(KIT, "agent://1"), "latency", 117)
    assert message == EliminateMessage(
        source_id="agent://1",
        observation_id="latency",
        eliminated=["disk"],
        justification={
            "kit_id": "checkout",
            "kit_version": "3",
            "probe_id": "latency",
            "outcome_id": "normal",
            "soundness": "statistical",
            "reading": "117.0",
            "robust_z": "1.147",
        },
    )
    (message,) = observe_all(KitAdapter(KIT), "dig", "no")
    assert (message.eliminated, message.justification) == (
        ["deploy", "disk"],
        {"kit_id": "checkout", "kit_version": "3", "probe_id": "dig", "outcome_id": "no", "soundness": "heuristic"},
    )


def test_a_number_in_an_interval_is_recorded_too() -> None:
    outcomes = (KitOutcome("low", frozenset({"a"}), Soundness.SOUND), KitOutcome("high", frozenset(), Soundness.SOUND))
    probe = KitProbe("p", "", outcomes, CutPoints((10.0,), ("low", "high")))
    adapter = KitAdapter(Kit("k", "1", "", (KitHypothesis("a"), KitHypothesis("b")), (probe,)))
    (message,) = observe_all(adapter, "p", 9)
    assert message.justification is not None
    assert (message.justification["reading"], "robust_z" in message.justification) == ("9.0", False)


@pytest.mark.req("KIT-06", "KIT-10")
@pytest.mark.parametrize("response", [NO_DATA, None, "slow", 1e9])
def test_an_observation_that_contradicts_nothing_is_no_message(response: Any) -> None:
    assert observe_all(KitAdapter(KIT), "latency", response) == []


def test_a_context_of_another_kit_or_probe_is_refused() -> None:
    adapter = KitAdapter(KIT)
    with pytest.raises(UnknownProbe):
        adapter.apply_action("df", snapshot_of("dns"))
    with pytest.raises(UnknownProbe):
        adapter.observe(AdapterActionContext("df", snapshot_of("dns")), "yes")
    older = AdapterActionContext("dig", snapshot_of("dns"), {"kit_id": "checkout", "version": "2"})
    with pytest.raises(
        InvalidRequest, match="was put for kit `checkout` version `2`, and this is `checkout` version `3`"
    ):
        adapter.observe(older, "yes")


@pytest.mark.req("KIT-10")
@given(kits(min_probes=1).map(drop_windows), st.data())
def test_provider_and_adapter_leave_the_same_survivors_in_a_server(kit: Kit, data: st.DataObject) -> None:
    asked = data.draw(st.permutations(kit.probes))
    answers = [(probe.probe_id, data.draw(responses(probe))) for probe in asked]
    adapter = KitAdapter(kit)
    beside = BeliefServer(validate_hypotheses=True)
    behind = BeliefServer(belief_provider=KitProvider(kit))
    ontology = ontology_of(kit)
    session_id, snapshot = beside.declare_session(ontology, sorted(kit.hypothesis_ids))
    probed_id, probed = behind.declare_session(ontology, [])
    for probe_id, response in answers:
        for message in adapter.observe(adapter.apply_action(probe_id, snapshot), response):
            snapshot = send(beside, session_id, message)
            assert send(beside, session_id, message) == snapshot
        # Canonical JSON has no whole numbers beyond 2^53: over the wire such a reading is named by its outcome.
        outcome = outcome_for(adapter._probe(probe_id), response)
        probed = behind.apply_probe(probed_id, probe_id, outcome.outcome_id if outcome else NO_DATA).snapshot
        assert snapshot.survivors == probed.survivors


def test_another_answer_of_the_same_source_is_a_conflict_and_another_source_may_differ() -> None:
    server = BeliefServer()
    session_id, _ = server.declare_session(ontology_of(KIT), sorted(KIT.hypothesis_ids))

    def report(adapter: KitAdapter, response: str) -> list[str]:
        (message,) = observe_all(adapter, "dig", response)
        return send(server, session_id, message).survivors

    assert report(KitAdapter(KIT, "one"), "yes") == ["deploy", "disk"]
    with pytest.raises(Conflict):
        report(KitAdapter(KIT, "one"), "no")
    assert report(KitAdapter(KIT, "another"), "no") == []
