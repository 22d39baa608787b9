"""The protocol's own types: snapshots that stay what they were, entries that come and go as plain data, outcomes."""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import FrozenInstanceError
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs import messages
from cmbs.belief.kernel.survivors import Survivors, Universe
from cmbs.messages import AuditEntry, BeliefSnapshot, OntologyBundle, Reason, SessionPolicy, Verb
from cmbs.testing.strategies import belief as strategies
from tests.support.subtests import for_each

ONTOLOGY = OntologyBundle("space", "1", "graph://g", "17")
SNAPSHOT_FIELDS = [
    "session_id",
    "ontology",
    "survivors",
    "n_survivors",
    "entropy_proxy",
    "terminated",
    "active_obligation_id",
    "audit_head_event_id",
]


def snapshot_of(survivors: Collection[str], **others: Any) -> BeliefSnapshot:
    return BeliefSnapshot("session", ONTOLOGY, survivors, **others)


# --- snapshots --------------------------------------------------------------------------------------------------------


@pytest.mark.req("BS-2.2-SNAP-01")
def test_a_snapshot_has_the_fields_of_the_protocol_and_says_beside_them_whether_nothing_is_left() -> None:
    snapshot = BeliefSnapshot("session", ONTOLOGY, ["b", "a"], True, "obligation", "event")
    content = snapshot.to_dict()
    assert content.pop("contradiction") is snapshot.contradiction is False
    assert snapshot_of([]).to_dict()["contradiction"] is snapshot_of([]).contradiction is True
    assert list(content) == SNAPSHOT_FIELDS
    assert content == {
        "session_id": "session",
        "ontology": {
            "hypothesis_space_id": "space",
            "hypothesis_version": "1",
            "causal_graph_ref": "graph://g",
            "causal_graph_version": "17",
        },
        "survivors": ["a", "b"],
        "n_survivors": 2,
        "entropy_proxy": 1.0,
        "terminated": True,
        "active_obligation_id": "obligation",
        "audit_head_event_id": "event",
    }
    assert {name: getattr(snapshot, name) for name in SNAPSHOT_FIELDS if name != "ontology"} == {
        name: value for name, value in content.items() if name != "ontology"
    }
    assert json.loads(json.dumps(content)) == content


def test_the_list_of_survivors_can_be_left_out_and_nothing_else() -> None:
    snapshot = snapshot_of(["a", "b"])
    content = snapshot.to_dict()
    assert [content[name] for name in SNAPSHOT_FIELDS[-3:]] == [False, None, None]
    del content["survivors"]
    assert snapshot.to_dict(with_survivors=False) == content


@pytest.mark.req("BS-2.2-SNAP-02", "BS-2.2-SNAP-03")
@given(strategies.hypotheses(min_size=0), st.sampled_from([list, set, frozenset, tuple]))
def test_survivors_are_sorted_and_counted_whatever_they_come_in(ids: list[str], container: Any) -> None:
    snapshot = snapshot_of(container(ids))
    assert snapshot.survivors == sorted(ids)
    assert snapshot.n_survivors == len(ids)
    assert snapshot.entropy_proxy == (math.log2(len(ids)) if len(ids) > 1 else 0.0)


@pytest.mark.req("BS-2.2-SNAP-05")
@pytest.mark.parametrize("container", [list, set])
def test_a_container_that_its_owner_goes_on_changing_does_not_reach_the_snapshot(container: Any) -> None:
    ids = container(["a", "b"])
    snapshot = snapshot_of(ids)
    ids.clear()
    assert (snapshot.survivors, snapshot.n_survivors) == (["a", "b"], 2)


@pytest.mark.req("BS-2.2-SNAP-05")
def test_the_list_handed_out_belongs_to_the_reader() -> None:
    snapshot = snapshot_of(["b", "a"])
    snapshot.survivors.clear()
    snapshot.to_dict()["survivors"].clear()
    snapshot.to_dict()["ontology"].clear()
    assert snapshot.survivors == ["a", "b"]
    assert snapshot.to_dict()["ontology"] == ONTOLOGY.to_dict()


@pytest.mark.req("BS-2.2-SNAP-05")
def test_a_snapshot_over_the_ledgers_own_set_stays_when_that_goes_on() -> None:
    survivors = Survivors.all_of(Universe.of(["a", "b", "c"]))
    snapshot = snapshot_of(survivors)
    fewer = survivors.eliminate(["a", "b"])
    assert (snapshot.n_survivors, snapshot.survivors, list(fewer)) == (3, ["a", "b", "c"], ["c"])


def test_snapshots_are_equal_where_everything_in_them_is() -> None:
    snapshot = snapshot_of(["a", "b"], audit_head_event_id="e")
    assert snapshot == snapshot_of({"b", "a"}, audit_head_event_id="e")
    assert hash(snapshot) == hash(snapshot_of({"b", "a"}, audit_head_event_id="e"))
    others = [
        snapshot_of(["a"], audit_head_event_id="e"),
        snapshot_of(["a", "c"], audit_head_event_id="e"),
        snapshot_of(["a", "b"], audit_head_event_id="f"),
        snapshot_of(["a", "b"], audit_head_event_id="e", terminated=True),
        snapshot_of(["a", "b"], audit_head_event_id="e", active_obligation_id="o"),
        BeliefSnapshot("other", ONTOLOGY, ["a", "b"], audit_head_event_id="e"),
        BeliefSnapshot("session", OntologyBundle("", "", "", ""), ["a", "b"], audit_head_event_id="e"),
    ]
    assert snapshot not in others
    assert snapshot != snapshot.to_dict()


def test_a_snapshot_says_what_it_is_without_listing_a_million_ids() -> None:
    shown = repr(snapshot_of([f"hypothesis-{number}" for number in range(100)], audit_head_event_id="e"))
    assert shown == (
        "BeliefSnapshot(session_id='session', n_survivors=100, terminated=False, active_obligation_id=None, "
        "audit_head_event_id='e')"
    )


# --- entries ----------------------------------------------------------------------------------------------------------

ENTRIES = st.builds(
    AuditEntry,
    event_id=strategies.ids(),
    ts=strategies.ids(),
    verb=st.sampled_from(list(Verb)).map(str),
    payload=strategies.json_objects(),
    survivors_before_hash=strategies.ids(),
    survivors_after_hash=strategies.ids(),
    delta_eliminated=st.lists(strategies.ids(), max_size=3),
    notes=st.none() | strategies.ids(),
    outcome=st.none() | strategies.json_objects(),
    idempotency_key=st.none() | strategies.ids(),
    stream_id=strategies.ids(),
    seq=st.integers(0, 2**53 - 1),
    prev_event_hash=strategies.ids(),
    event_hash=strategies.ids(),
)


@pytest.mark.req("BS-1.1-MODEL-03")
@given(ENTRIES)
def test_an_entry_survives_the_way_through_json(entry: AuditEntry) -> None:
    assert AuditEntry.from_dict(json.loads(json.dumps(entry.to_dict()))) == entry


@pytest.mark.req("BS-1.1-MODEL-03", "LED-3-ENC-06")
def test_an_entry_has_the_fields_of_the_protocol_and_leaves_out_what_was_not_given() -> None:
    entry = AuditEntry("e", "t", "ELIMINATE", {"a": 1}, "before", "after", ["x"])
    content = entry.to_dict()
    assert {"event_id", "ts", "verb", "payload", "survivors_before_hash", "survivors_after_hash", "delta"} <= set(
        content
    )
    assert content["delta"] == entry.delta == {"eliminated": ["x"]}
    assert not {"notes", "idempotency_key", "actor"} & set(content)
    assert (content["outcome"], content["format"], content["seq"]) == (None, "", 0)
    noted = AuditEntry("e", "t", "ELIMINATE", {}, "", "", [], notes="", idempotency_key="")
    assert (noted.to_dict()["notes"], noted.to_dict()["idempotency_key"]) == ("", "")
    asked = AuditEntry("e", "t", "ELIMINATE", {}, "", "", [], actor={"kind": "agent", "id": "scout"})
    assert asked.to_dict()["actor"] == {"kind": "agent", "id": "scout"}


@pytest.mark.req("BS-2.1-AUDIT-04")
def test_an_entry_is_frozen_and_shares_its_delta_with_no_reader() -> None:
    content = AuditEntry("e", "t", "ELIMINATE", {}, "", "", ["x"]).to_dict()
    entry = AuditEntry.from_dict(content)
    content["delta"]["eliminated"].append("y")
    entry.delta["eliminated"].clear()
    assert entry.delta_eliminated == ["x"]
    with pytest.raises(FrozenInstanceError):
        entry.seq = 5  # type: ignore[misc]


# --- bundles, policies, outcomes --------------------------------------------------------------------------------------


@pytest.mark.req("BS-1.1-MODEL-02")
@given(strategies.ontologies())
def test_a_bundle_is_carried_as_it_is(ontology: OntologyBundle) -> None:
    assert OntologyBundle(**ontology.to_dict()) == ontology
    assert list(ontology.to_dict()) == [*OntologyBundle.__struct_fields__]


def test_a_policy_is_conservative_unless_told_otherwise() -> None:
    assert SessionPolicy() == SessionPolicy(allow_force=False, stability_window=0, validate_hypotheses=False)


@pytest.mark.req("BS-6.5-SERVER-01")
@for_each(
    ("outcome", "names"),
    [
        ("DeclareOutcome", "session_id snapshot"),
        ("EliminateOutcome", "applied_eliminated ignored_eliminated snapshot audit_event_id"),
        ("EnterOutcome", "snapshot audit_event_id"),
        ("ExitOutcome", "approved reason snapshot audit_event_id"),
        ("ConclusionOutcome", "accepted reason snapshot audit_event_id"),
        ("TerminationOutcome", "approved reason snapshot audit_event_id"),
    ],
)
def test_outcomes_are_tuples_in_the_order_of_the_protocol(outcome: str, names: str) -> None:
    kind: type[NamedTuple] = getattr(messages, outcome)
    assert issubclass(kind, tuple)
    assert list(kind._fields) == names.split()


def test_the_verbs_are_the_nine_of_the_protocol() -> None:
    assert {verb.value for verb in Verb} == {
        *("DECLARE_SESSION", "ELIMINATE", "QUERY_BELIEF", "AUDIT_TRACE"),
        *("ENTER_OBLIGATION", "REQUEST_EXIT", "DECLARE_CONCLUSION", "REQUEST_TERMINATION"),
        "UPDATE_CASE",
    }


@pytest.mark.req("BS-2.1-TERM-02")
def test_reasons_are_lower_case_codes_and_one_says_singleton() -> None:
    assert all(reason.value == reason.value.lower() and " " not in reason.value for reason in Reason)
    assert "singleton" in Reason.NOT_SINGLETON
