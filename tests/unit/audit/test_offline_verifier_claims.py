"""The offline verifier: what streams of one file say of each other, and what the reader kept of them."""

from __future__ import annotations

from typing import Any

import pytest

from cmbs import offline_verifier as verifier
from cmbs.offline_verifier import Head, Known, Tree
from tests.support.exports import (
    SPACE_STREAM,
    check_export,
    first_session,
    fit_stream,
    forge_readings,
    fork_stream,
    refit_snapshots,
    refuse_export,
    world_streams,
    write_export,
)
from tests.support.subtests import for_each

# --- what streams say of each other ---


@pytest.mark.req("OFFLINE-04")
@for_each(
    ("members", "place"),
    [
        ({"n_survivors": 2}, "payload.belief"),
        ({"survivors": ["disk"]}, "payload.belief"),
        ({"terminated": True}, "payload.belief"),
        ({"active_obligation_id": None}, "payload.belief"),
        ({"concluded": ["x"]}, "payload.belief"),
        ({"head_event_id": "x"}, "payload.belief"),
        ({"head_event_hash": "0" * 64}, "payload.belief"),
        ({"head_seq": 1}, "payload.belief"),
        ({"head_seq": 99}, "payload.belief.head_seq"),
        ({"found": False}, "payload.belief"),
        ({"n_survivors": True}, "payload.belief"),
        ({"extra": 1}, "payload.belief.extra"),
    ],
    ids=str,
)
def test_a_reading_that_its_session_does_not_bear_out_is_named(members: dict[str, Any], place: str) -> None:
    assert check_export(forge_readings()).figures["readings"] == 1
    refused = refuse_export(forge_readings(**members))
    assert (refused.place["stream"], refused.place["field"]) == (SPACE_STREAM, place)
    assert refused.place["line"] is not None


@pytest.mark.req("OFFLINE-04")
def test_a_session_that_was_there_cannot_be_said_to_have_been_absent() -> None:
    nothing = {"head_seq": -1, "head_event_id": "", "head_event_hash": "", "n_survivors": 0}
    nothing |= {"found": False, "terminated": False, "active_obligation_id": None, "survivors": None, "concluded": []}
    assert "was there at that time" in refuse_export(forge_readings(**nothing)).describe()


@pytest.mark.req("OFFLINE-04")
@for_each(
    ("place", "value", "field"),
    [
        (("outcome", "decision", "policy_hash"), "0" * 64, "outcome.decision.policy_hash"),
        (("outcome", "decision", "state_snapshot_id"), "0" * 64, "outcome.decision.state_snapshot_id"),
        (("outcome", "decision"), [], "outcome.decision"),
        (("outcome",), [], "outcome"),
        (("outcome", "changes"), {"unset": ["goal.never"]}, "outcome.changes.unset"),
        (("outcome", "changes"), {"set": {"goal.x": 1}}, "outcome.changes.set"),
        (("verb",), "GUESS", "verb"),
        (("verb",), "CREATE_SPACE", "verb"),
    ],
    ids=str,
)
def test_a_decision_names_the_policy_and_the_state_that_it_was_made_on(
    place: tuple[str, ...], value: Any, field: str
) -> None:
    entries = world_streams()[SPACE_STREAM]
    at = next(seq for seq, entry in enumerate(entries) if "decision" in entry["outcome"])
    entry = entries[at]
    for name in place[:-1]:
        entry = entry[name]
    entry[place[-1]] = value
    refused = refuse_export(write_export(fit_stream(entries[: at + 1])))
    assert (refused.place["seq"], refused.place["field"]) == (at, field)


def test_a_space_is_created_under_its_own_name_with_its_policy() -> None:
    (entry,) = world_streams()[SPACE_STREAM][:1]
    for members, field in (
        ({"space_id": "t"}, "payload.space_id"),
        ({"policy": {"policy.value.x": 1}}, "payload.policy"),
        ({"policy": {}}, "outcome.changes.set"),
    ):
        changed = {**entry, "payload": {**entry["payload"], **members}}
        assert refuse_export(write_export(fit_stream([changed]))).place["field"] == field


@pytest.mark.req("OFFLINE-04")
def test_a_claim_is_confirmed_only_by_an_accepted_conclusion() -> None:
    streams = world_streams()
    entries = streams.pop(SPACE_STREAM)
    at = next(seq for seq, entry in enumerate(entries) if entry["verb"] == "PUT_MEMORY")
    entries[at]["payload"]["evidence"]["confirmed_by_event_id"] = streams[list(streams)[2]][0]["event_id"]
    data = write_export(*map(fit_stream, streams.values()), fit_stream(refit_snapshots(entries[: at + 1])))
    assert "not an accepted conclusion" in refuse_export(data).describe()


@pytest.mark.req("OFFLINE-04")
def test_a_fork_is_held_against_its_origin() -> None:
    entries = first_session()
    origin = fit_stream(entries)
    good = fork_stream(entries, 5)
    assert check_export(write_export(origin, fit_stream(good))).rests_on[0].startswith("2 streams")
    assert "the origin of the fork `fork`" in "".join(check_export(write_export(fit_stream(good))).not_checked)
    other = [*good[:3], {**good[3], "payload": {**good[3]["payload"], "context": None}}, *good[4:]]
    cases = [
        (good[:-1], 0, "payload.origin.seq"),
        (other, 3, "payload"),
        (fork_stream(entries, 5, event_hash="0" * 64), 0, "payload.origin.event_hash"),
        (fork_stream(entries, 5, seq=40), 0, "payload.origin.seq"),
        (fork_stream(entries, 5, declared_by=["another"]), 0, "payload.origin.declared_by"),
        (fork_stream(entries, 5, declared_by=[]), 0, "payload.origin.declared_by"),
    ]
    for forked, seq, field in cases:
        refused = refuse_export(write_export(fit_stream(forked), origin))
        assert (refused.place["stream"], refused.place["seq"], refused.place["field"]) == ("fork", seq, field)
        assert refused.place["line"] == seq + 2


# --- what was kept ---


@pytest.mark.req("OFFLINE-05")
def test_a_log_that_grew_past_a_kept_head_is_good_and_one_that_lost_it_is_not() -> None:
    fitted = fit_stream(first_session())
    name = first_session()[0]["stream_id"]
    tree = verifier.GrowingTree()
    for each in fitted[:5]:
        tree.append(each.event_hash)
    root = tree.root()
    good = Known(heads={name: [Head(4, fitted[4].event_hash)]}, trees={name: [Tree(5, root)]})
    report = check_export(write_export(fitted), good)
    assert report.not_checked == []
    # Nothing but the file vouches for what came after the head.
    (condition,) = report.rests_on
    assert condition.startswith(
        f"the last {len(fitted) - 5} entries of 1 streams, which are newer than their kept heads"
    )
    whole = Known(heads={name: [Head(len(fitted) - 1, fitted[-1].event_hash)]})
    assert check_export(write_export(fitted), whole).rests_on == []
    cut = refuse_export(write_export(fitted[:4]), good)
    assert "truncated: it had 5 entries" in cut.describe()
    for known in (Known(heads={name: [Head(4, bytes(32))]}), Known(trees={name: [Tree(5, bytes(32))]})):
        assert refuse_export(write_export(fitted), known).place["seq"] == 4
    universe = Known(universes={name: Tree(3, bytes(32))})
    assert refuse_export(write_export(fitted), universe).place["field"] == "payload.hypotheses"
