"""The legacy adapter forwards and interprets nothing; the adapter types carry what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.adapters import Action, AdapterActionContext, BeliefAdapter, EliminateMessage
from cmbs.adapters.legacy import LegacyEliminationEvent, LegacyReplayAdapter, submit_legacy_elimination
from cmbs.core import CMBSCore, EliminationEvent, ProbeResult
from cmbs.messages import BeliefSnapshot, OntologyBundle


def test_an_event_reaches_the_core_as_it_is() -> None:
    core = CMBSCore(["H-1", "H-2", ""])
    event = LegacyEliminationEvent("probe::7", "", ["H-1", ""])
    assert LegacyReplayAdapter(core).submit_elimination_event(event) == ProbeResult(accepted=True)
    assert core.get_elimination_history() == [EliminationEvent("probe::7", "", frozenset({"H-1", ""}))]


def test_events_are_forwarded_in_order_and_a_refused_one_does_not_stop_the_rest() -> None:
    core = CMBSCore(["a", "b", "c"])
    events = [
        LegacyEliminationEvent("p2", "o", {"a"}),
        LegacyEliminationEvent("p2", "o", {"b"}),
        LegacyEliminationEvent("p1", "o", frozenset({"c", "unknown"})),
    ]
    results = LegacyReplayAdapter(core).submit_elimination_events(iter(events))
    assert [result.accepted for result in results] == [True, False, True]
    assert results[1].error == "probe `p2` was already consumed"
    assert [event.probe_id for event in core.get_elimination_history()] == ["p2", "p1"]
    assert core.survivors == {"b"}


def test_a_single_elimination_can_be_forwarded_without_an_adapter() -> None:
    core = CMBSCore(["a", "b"])
    assert submit_legacy_elimination(core, "p", "o", ["a"]).accepted
    assert not submit_legacy_elimination(core, "p", "o", ["b"]).accepted
    assert core.survivors == {"b"}


def test_replay_enters_no_obligation_and_concludes_and_terminates_nothing() -> None:
    core = CMBSCore(["root_cause", "b"])
    LegacyReplayAdapter(core).submit_elimination_events(
        [LegacyEliminationEvent("terminate", "conclusion", ["root_cause"])]
    )
    state = core.serialize()
    assert (state["obligations"], state["conclusions"], state["terminated"]) == ([], [], False)


EVENTS = st.lists(
    st.builds(LegacyEliminationEvent, st.sampled_from("pqrs"), st.text(max_size=2), st.frozensets(st.integers(0, 9)))
)


@given(EVENTS)
def test_the_adapter_and_direct_submission_leave_equal_cores(events: list[LegacyEliminationEvent]) -> None:
    replayed, direct = CMBSCore(range(8)), CMBSCore(range(8))
    results = LegacyReplayAdapter(replayed).submit_elimination_events(events)
    assert results == [
        direct.submit_probe_result(event.probe_id, event.observable_id, event.eliminated_hypotheses) for event in events
    ]
    assert replayed.serialize() == direct.serialize()


SNAPSHOT = BeliefSnapshot("s", OntologyBundle("space", "1", "graph", "1"), ["a", "b"])


class FirstSurvivor:
    """An adapter that asks about one survivor at a time."""

    def list_actions(self, snapshot: BeliefSnapshot) -> Sequence[Action]:
        return [Action(f"ask-{each}", f"is it {each}?", {"about": each}) for each in snapshot.survivors]

    def apply_action(self, action_id: str, snapshot: BeliefSnapshot) -> AdapterActionContext:
        return AdapterActionContext(action_id, snapshot, {"about": action_id.removeprefix("ask-")})

    def observe(self, action_ctx: AdapterActionContext, raw_observation: Any) -> Sequence[EliminateMessage]:
        if raw_observation != "no":
            return []
        return [
            EliminateMessage(
                source_id="adapter://first",
                observation_id=action_ctx.action_id,
                eliminated=[action_ctx.payload["about"]],
                justification={"said": raw_observation},
            )
        ]


def test_an_adapter_goes_from_snapshot_to_action_to_messages() -> None:
    adapter: BeliefAdapter = FirstSurvivor()
    assert isinstance(adapter, BeliefAdapter)
    first, second = adapter.list_actions(SNAPSHOT)
    assert (first.action_id, first.prompt, first.metadata) == ("ask-a", "is it a?", {"about": "a"})
    context = adapter.apply_action(second.action_id, SNAPSHOT)
    assert context.snapshot is SNAPSHOT
    (message,) = adapter.observe(context, "no")
    assert (message.verb, message.source_id, message.observation_id) == ("ELIMINATE", "adapter://first", "ask-b")
    assert (message.eliminated, message.justification) == (["b"], {"said": "no"})
    assert adapter.observe(context, "perhaps") == []


def test_what_an_adapter_type_is_not_given_is_empty_and_not_shared() -> None:
    one, other = Action("a", "?"), Action("a", "?")
    assert one == other
    assert one.metadata == {}
    assert one.metadata is not other.metadata
    assert AdapterActionContext("a", SNAPSHOT).payload == {}
    assert EliminateMessage(source_id="s", observation_id="o", eliminated=[]).justification is None
    in_order = EliminateMessage("ELIMINATE", "s", "o", ["a"], {"why": "seen"})
    assert in_order == EliminateMessage(
        source_id="s", observation_id="o", eliminated=["a"], justification={"why": "seen"}
    )
    with pytest.raises(TypeError, match="EliminateMessage lacks `observation_id`"):
        EliminateMessage(source_id="s", eliminated=["a"])


def test_the_types_of_an_adapter_cannot_be_changed() -> None:
    values: list[Any] = [Action("a", "?"), AdapterActionContext("a", SNAPSHOT)]
    for value in values:
        with pytest.raises(FrozenInstanceError):
            value.action_id = "b"
    event: Any = LegacyEliminationEvent("p", "o", ("a",))
    with pytest.raises(FrozenInstanceError):
        event.probe_id = "q"
    message: Any = EliminateMessage("ELIMINATE", source_id="s", observation_id="o", eliminated=["a"])
    with pytest.raises(FrozenInstanceError):
        message.verb = "RESURRECT"
