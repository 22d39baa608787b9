"""Observations through kits on record: what the kit says is ruled out, once, and looks are known as looks."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.kernel.looks import Looks, add_look, count_looks, looks_at, looks_of
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kits import KITS
from cmbs.belief.server import BeliefServer
from cmbs.errors import (
    Conflict,
    FreeHandRefused,
    InvalidRequest,
    LedgerCorrupt,
    LimitExceeded,
    RecordNotFound,
    UnknownProbe,
)
from cmbs.kit import Kit, KitProbe, KitProvider
from cmbs.kit.writing import format_kit
from cmbs.ledger import Chronicle, StoredEntry, hash_entry
from cmbs.ledger.canonical import encode
from cmbs.messages import ConclusionRule, EliminationRule, KitChoice, LookRule, OntologyBundle, SessionPolicy
from cmbs.stores.memory import InMemoryStore
from cmbs.stores.sqlite import SQLiteStore
from cmbs.testing.strategies.kits import drop_windows, kits, responses
from tests.support.subtests import for_each

CHECKOUT = dedent(
    """
    id: checkout
    version: "1"
    title: Why checkout is slow
    soundness: sound
    hypotheses:
      - {id: cpu, attributes: {component: web}}
      - {id: lock, attributes: {component: db}}
      - dns
      - deploy
    probes:
      - id: load
        prompt: How busy is the processor?
        reading: {cuts: [0.8], outcomes: [low, high]}
        outcomes:
          - {id: low, eliminates: [cpu]}
          - {id: high, eliminates: []}
      - id: resolves
        prompt: Does the name resolve?
        outcomes:
          - {id: "yes", eliminates: [dns]}
          - {id: "no", keeps: [dns]}
      - id: weather
        prompt: Is it raining?
        outcomes:
          - {id: "yes", eliminates: []}
          - {id: "no", eliminates: []}
    """
)


def put(server: BeliefServer, text: str = CHECKOUT) -> str:
    """The hash of a kit that is on record from now on."""
    return server.kits.put(text, MediaType.YAML).record.content_hash


def opened(policy: SessionPolicy | None = None, store: Any = None) -> tuple[BeliefServer, str]:
    server = BeliefServer(store=store)
    put(server)
    return server, server.declare_session(kit="checkout", policy=policy).session_id


def recordable(probe: KitProbe) -> st.SearchStrategy[Any]:
    """Responses that canonical JSON can hold: whole numbers beyond 2^53 are refused as in any request."""

    def fits(response: Any) -> bool:
        numbers = response if isinstance(response, list) else [response]
        return all(not isinstance(each, float) or abs(each) < 2**53 - 1 for each in numbers)

    return responses(probe).filter(fits)


def payload_of(server: BeliefServer, session_id: str, number: int = -1) -> dict[str, Any]:
    return server.audit_trace(session_id)[number].payload


# --- sessions over kits on record -------------------------------------------------------------------------------------


@pytest.mark.req("OBS-KIT-02")
def test_a_session_takes_ontology_hypotheses_and_attributes_from_its_kit_and_names_its_content() -> None:
    server = BeliefServer()
    content_hash = put(server)
    session_id, snapshot = server.declare_session(kit="checkout")
    assert snapshot.survivors == ["cpu", "deploy", "dns", "lock"]
    assert snapshot.ontology == OntologyBundle("checkout", "1", "kit:checkout", "1")
    assert server.attributes(session_id, ["cpu", "dns"]) == {"cpu": {"component": "web"}}
    declared = payload_of(server, session_id)
    assert declared["provider"] == {
        "id": "checkout",
        "version": "1",
        "content_hash": content_hash,
        "put_by": "command-line",
    }
    assert declared["policy"]["conclusions"] == ConclusionRule.DECIDED
    assert declared["policy"]["eliminations"] == EliminationRule.OBSERVATIONS


@pytest.mark.req("OBS-KIT-02")
def test_a_session_is_over_the_newest_content_unless_it_names_another() -> None:
    server = BeliefServer()
    first = put(server)
    second = put(server, CHECKOUT.replace('version: "1"', 'version: "2"').replace("- deploy", "- deploy\n  - config"))
    newest = server.declare_session(kit="checkout").session_id
    by_hash = server.declare_session(kit=KitChoice("checkout", first)).session_id
    by_version = server.declare_session(kit=KitChoice("checkout", "1")).session_id
    hashes = [payload_of(server, each)["provider"]["content_hash"] for each in (newest, by_hash, by_version)]
    assert hashes == [second, first, first]
    assert put(server) == first
    again = server.declare_session(kit="checkout").session_id
    assert payload_of(server, again)["provider"]["content_hash"] == second


@pytest.mark.req("OBS-KIT-02")
def test_a_declaration_that_is_repeated_keeps_the_content_that_it_found_first() -> None:
    server = BeliefServer()
    first = put(server)
    session_id = server.declare_session(kit="checkout", idempotency_key="k").session_id
    put(server, CHECKOUT + "# another content\n")
    assert server.declare_session(kit="checkout", idempotency_key="k").session_id == session_id
    assert payload_of(server, session_id)["provider"]["content_hash"] == first


@pytest.mark.req("OBS-KIT-02")
@for_each(
    ("declaration", "field"),
    [
        ({"kit": "chekout"}, "kit"),
        ({"kit": KitChoice("checkout", "7")}, "kit"),
        ({"kit": "checkout", "hypotheses": ["cpu"]}, "hypotheses"),
        ({"kit": "checkout", "provider": "webshop"}, "provider"),
        ({"kit": "checkout", "hypothesis_attributes": {"cpu": {}}}, "hypothesis_attributes"),
        ({"hypotheses": ["cpu"]}, "ontology"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused_and_says_why(declaration: dict[str, Any], field: str) -> None:
    server = BeliefServer()
    put(server)
    with pytest.raises(InvalidRequest) as caught:
        server.declare_session(**declaration)
    assert caught.value.details["field"] == field
    assert server.list_sessions() == []


# --- what is ruled out ------------------------------------------------------------------------------------------------


@pytest.mark.req("OBS-01")
@given(kits(min_probes=1), st.data())
def test_what_the_server_rules_out_is_what_the_provider_says(kit: Kit, data: st.DataObject) -> None:
    server = BeliefServer()
    record = server.kits.put(format_kit(kit, "kit.json"), MediaType.JSON).record
    session_id = server.declare_session(kit=kit.kit_id).session_id
    alive = set(kit.hypothesis_ids)
    for number in range(data.draw(st.integers(1, 5))):
        probe = data.draw(st.sampled_from(kit.probes))
        response = data.draw(recordable(probe))
        expected = {name for name, gone in KitProvider(kit).apply_probe(probe.probe_id, response).items() if gone}
        outcome = server.observe(session_id, probe.probe_id, response, observation_id=f"o{number}")
        assert outcome.applied_eliminated == sorted(expected & alive)
        assert outcome.ignored_eliminated == sorted(expected - alive)
        alive -= expected
        recorded = payload_of(server, session_id)
        assert recorded["eliminated"] == sorted(expected)
        assert recorded["probe"]["kit"] == {"id": kit.kit_id, "content_hash": record.content_hash}
    assert set(server.query_belief(session_id).survivors) == alive
    entries = server.stored_entries(session_id)
    replayed = verify_session(session_id, entries)
    live = server.current_session(session_id)
    assert (list(replayed.survivors), list(replayed.looks)) == (list(live.survivors), list(live.looks))


@pytest.mark.req("OBS-02")
@given(kits(min_probes=1).map(drop_windows), st.data())
def test_what_answers_as_the_truth_does_keeps_the_truth(kit: Kit, data: st.DataObject) -> None:
    truth = data.draw(st.sampled_from(sorted(kit.hypothesis_ids)))
    server = BeliefServer()
    server.kits.put(format_kit(kit, "kit.yaml"), MediaType.YAML)
    session_id = server.declare_session(kit=kit.kit_id).session_id
    for probe in kit.probes:
        possible = [each.outcome_id for each in probe.outcomes if truth not in each.eliminates]
        server.observe(session_id, probe.probe_id, data.draw(st.sampled_from(possible)))
    assert truth in server.query_belief(session_id).survivors


@pytest.mark.req("OBS-03")
@given(kits(min_probes=1), st.data())
def test_to_observe_twice_is_to_observe_once(kit: Kit, data: st.DataObject) -> None:
    server = BeliefServer()
    server.kits.put(format_kit(kit, "kit.yaml"), MediaType.YAML)
    session_id = server.declare_session(kit=kit.kit_id).session_id
    probe = data.draw(st.sampled_from(kit.probes))
    response = data.draw(recordable(probe))
    first = server.observe(session_id, probe.probe_id, response)
    events = server.stored_entries(session_id)
    again = server.observe(session_id, probe.probe_id, response)
    assert again[:5] == first[:5]
    assert (first.replayed, again.replayed) == (False, True)
    assert [each.audit_event_id for each in again.seen_before] == [first.audit_event_id]
    assert server.stored_entries(session_id) == events


# --- looks ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("OBS-04")
def test_an_observation_records_what_was_given_what_it_was_read_as_and_when_it_was_seen() -> None:
    server, session_id = opened()
    outcome = server.observe(
        session_id, "load", 0.31, "probe://node", justification={"query": "q"}, seen_at="2026-03-01T11:55:00+01:00"
    )
    recorded = payload_of(server, session_id)
    assert recorded["probe"]["response"] == 0.31
    assert recorded["probe"]["outcome_id"] == "low"
    assert recorded["probe"]["seen_at"] == "2026-03-01T10:55:00.000000Z"
    assert recorded["justification"] == {"query": "q"}
    assert (recorded["source_id"], recorded["observation_id"]) == ("probe://node", "load")
    assert outcome.observation["outcome_id"] == "low"
    assert outcome.observation["ruled_out"] == 1
    assert outcome.observation["reading"]["reading"] == "0.31"
    # However it was read, it says how sound it is.
    for probe_id, response in (("load", 0.5), ("resolves", "yes"), ("weather", "yes")):
        seen = server.observe(session_id, probe_id, response, "another")
        assert seen.observation["reading"]["soundness"] == "sound"
        assert payload_of(server, session_id)["probe"]["reading"]["soundness"] == "sound"
    assert "reading" not in server.observe(session_id, "load", None, "nobody").observation


@pytest.mark.req("OBS-05")
def test_an_observation_that_rules_out_nothing_is_recorded_and_known_later() -> None:
    server, session_id = opened()
    first = server.observe(session_id, "weather", "yes", "ann")
    assert first.applied_eliminated == []
    second = server.observe(session_id, "weather", "no", "bob")
    (look,) = second.seen_before
    assert (look.audit_event_id, look.source_id, look.response, look.outcome_id) == (
        first.audit_event_id,
        "ann",
        "yes",
        "yes",
    )
    assert len(server.audit_trace(session_id)) == 3


@pytest.mark.req("OBS-06")
def test_another_answer_of_a_source_is_a_conflict_that_says_what_was_seen_and_what_to_do() -> None:
    server, session_id = opened()
    first = server.observe(session_id, "weather", "yes")
    with pytest.raises(Conflict) as caught:
        server.observe(session_id, "weather", "no")
    details = caught.value.details
    assert (details["field"], details["found"], details["event_id"]) == ("response", "no", first.audit_event_id)
    assert "observation_id" in details["next"]
    assert [look["response"] for look in details["seen_before"]] == ["yes"]
    later = server.observe(session_id, "weather", "no", observation_id="weather at noon")
    assert [look.response for look in later.seen_before] == ["yes"]
    assert not later.replayed


@pytest.mark.req("OBS-06")
def test_where_the_policy_says_once_a_source_looks_once_and_others_may_look_too() -> None:
    server, session_id = opened(SessionPolicy(looks=LookRule.ONCE))
    server.observe(session_id, "weather", "yes", "ann")
    with pytest.raises(Conflict) as caught:
        server.observe(session_id, "weather", "yes", "ann", observation_id="again")
    assert caught.value.details["accepted"] == "weather"
    assert server.observe(session_id, "weather", "yes", "ann").replayed
    assert server.observe(session_id, "weather", "no", "bob").seen_before[0].source_id == "ann"
    assert payload_of(server, session_id, 0)["policy"]["looks"] == "once"


@pytest.mark.req("OBS-06")
@given(st.lists(st.sampled_from("pqr"), max_size=40))
def test_looks_are_counted_and_listed_by_probe(probes: list[str]) -> None:
    looks: Looks = Chronicle()
    for number, probe_id in enumerate(probes):
        looks = add_look(looks, probe_id, ("source", str(number)))
    for probe_id in "pqrs":
        expected = [("source", str(number)) for number, each in enumerate(probes) if each == probe_id]
        assert count_looks(looks, probe_id) == len(expected)
        assert list(looks_at(looks, probe_id)) == expected[::-1]


@pytest.mark.req("OBS-06")
def test_looks_follow_from_the_observations() -> None:
    server, session_id = opened(SessionPolicy(eliminations=EliminationRule.ANY))
    server.eliminate(session_id, "ann", "1", ["cpu"])
    server.observe(session_id, "weather", "yes", "ann")
    server.observe(session_id, "weather", "yes", "bob")
    session = server.current_session(session_id)
    assert list(looks_of(session.observations)) == list(session.looks)
    assert list(looks_at(session.looks, "weather")) == [("bob", "weather"), ("ann", "weather")]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("OBS-07")
def test_what_cannot_be_read_is_refused_and_changes_nothing() -> None:
    server, session_id = opened()
    for probe_id, response in (("load", "medium"), ("weather", 3), ("weather", True), ("load", {"value": 1})):
        with pytest.raises(InvalidRequest):
            server.observe(session_id, probe_id, response)
    with pytest.raises(UnknownProbe) as caught:
        server.observe(session_id, "wether", "yes")
    assert caught.value.details["accepted"] == "weather"
    with pytest.raises(InvalidRequest):
        server.observe(session_id, "weather", "yes", seen_at="yesterday")
    assert len(server.audit_trace(session_id)) == 1


@pytest.mark.req("OBS-08")
def test_where_only_observations_eliminate_a_list_is_refused_however_it_comes() -> None:
    server, session_id = opened()
    with pytest.raises(FreeHandRefused):
        server.eliminate(session_id, "ann", "1", ["cpu"])
    validator = server.requests
    bare = validator.eliminate("ann", "1", ["cpu", "dns"], None, validator.probe("weather", "yes"))
    with pytest.raises(Conflict) as caught:
        server._perform(validator.command(session_id, bare), object)  # type: ignore[type-var]
    assert caught.value.details["field"] == "kit"
    assert server.observe(session_id, "resolves", "yes").applied_eliminated == ["dns"]


@pytest.mark.req("OBS-08")
def test_a_session_without_a_kit_takes_no_observations() -> None:
    server = BeliefServer()
    session_id = server.declare_session(OntologyBundle("s", "1", "", ""), ["a"]).session_id
    with pytest.raises(InvalidRequest) as caught:
        server.observe(session_id, "p", "yes")
    assert "kit" in caught.value.details["next"]


# --- what is worth asking ---------------------------------------------------------------------------------------------


@pytest.mark.req("OBS-09")
def test_probes_are_ranked_by_expected_bits_with_what_each_answer_would_leave() -> None:
    server, session_id = opened()
    page = server.probes(session_id)
    assert [each.probe_id for each in page.probes] == ["resolves", "load"]
    best = page.probes[0]
    assert best.expected_bits == pytest.approx(0.811278, abs=1e-6)
    assert [(each.outcome_id, each.likelihood, each.leaves, each.rules_out) for each in best.answers] == [
        ("yes", 0.75, 3, 1),
        ("no", 0.25, 1, 3),
    ]
    assert (page.n_probes, page.n_survivors, page.next_place, page.asked) == (2, 4, None, [])


@pytest.mark.req("OBS-09")
def test_what_was_asked_is_listed_and_what_was_asked_without_data_may_be_asked_again() -> None:
    server, session_id = opened()
    server.observe(session_id, "resolves", None, "ann")
    server.observe(session_id, "load", 0.9, "bob")
    page = server.probes(session_id)
    assert [(each.probe_id, each.n_looks) for each in page.probes] == [("resolves", 1)]
    assert [(each.probe_id, each.source_id, each.response) for each in page.asked] == [
        ("load", "bob", 0.9),
        ("resolves", "ann", None),
    ]
    assert page.n_asked == 2


@pytest.mark.req("OBS-09")
def test_the_pages_of_a_ranking_are_those_of_one_moment() -> None:
    server, session_id = opened()
    first = server.probes(session_id, limit=1)
    server.observe(session_id, "load", 0.1)
    rest = server.probes(session_id, first.next_place or 0, 1, at=first.seq)
    assert [each.probes[0].probe_id for each in (first, rest)] == ["resolves", "load"]
    assert rest.audit_head_event_id == first.audit_head_event_id
    with pytest.raises(LimitExceeded):
        server.probes(session_id, limit=201)
    with pytest.raises(InvalidRequest):
        server.probes(session_id, limit=0)


# --- kits on record ---------------------------------------------------------------------------------------------------


@pytest.mark.req("OBS-KIT-01")
def test_a_kit_that_is_put_again_is_the_one_that_is_there() -> None:
    server = BeliefServer()
    first = server.kits.put(CHECKOUT, MediaType.YAML)
    again = server.kits.put(CHECKOUT, MediaType.YAML)
    assert (first.repeated, again.repeated) == (False, True)
    assert again.record == first.record
    assert server.kits.document(first.record) == CHECKOUT
    assert [shelf.kit_id for shelf in server.kits.list_kits()] == ["checkout"]


@pytest.mark.req("OBS-KIT-01")
def test_what_is_wrong_with_a_kit_is_told_with_line_and_column_and_nothing_is_recorded() -> None:
    server = BeliefServer()
    with pytest.raises(InvalidRequest) as caught:
        server.kits.put(CHECKOUT.replace("[cpu]}", "[cqu]}"), MediaType.YAML)
    (finding,) = caught.value.details["findings"]
    assert (finding["line"], finding["rule"]) == (16, "unknown-hypothesis")
    assert server.kits.list_kits() == []


@pytest.mark.req("OBS-KIT-03")
def test_processes_over_one_database_see_the_same_kits(tmp_path: Path) -> None:
    here, there = (BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db")) for _ in range(2))
    content_hash = put(here)
    session_id = there.declare_session(kit="checkout").session_id
    assert there.observe(session_id, "resolves", "yes").applied_eliminated == ["dns"]
    assert put(there) == content_hash
    assert len(here.kits.shelf("checkout").contents) == 1
    put(there, CHECKOUT + "# changed\n")
    assert len(here.kits.shelf("checkout").contents) == 2
    assert [each.session_id for each in here.list_sessions()] == [session_id]
    here.close()
    there.close()


@pytest.mark.req("OBS-KIT-03")
def test_a_session_without_its_kit_verifies_and_takes_no_observations() -> None:
    server, session_id = opened()
    server.observe(session_id, "resolves", "yes")
    elsewhere = BeliefServer(store=InMemoryStore())
    head = server.current_session(session_id).head
    elsewhere.import_session(session_id, server.stored_entries(session_id), head)
    assert elsewhere.query_belief(session_id).survivors == ["cpu", "deploy", "lock"]
    with pytest.raises(InvalidRequest) as caught:
        elsewhere.observe(session_id, "load", 0.1)
    assert caught.value.details["found"] == "checkout"
    put(elsewhere)
    assert elsewhere.observe(session_id, "load", 0.1).applied_eliminated == ["cpu"]


# --- forgeries --------------------------------------------------------------------------------------------------------


def forge(probe: dict[str, Any], **declared: Any) -> list[StoredEntry]:
    """A session with one observation whose probe was changed, with every hash right."""
    server, session_id = opened()
    server.observe(session_id, "resolves", "yes")
    first, second = (json.loads(each.raw) for each in server.stored_entries(session_id))
    first["payload"]["provider"] |= declared
    second["payload"]["probe"] |= probe
    entries: list[StoredEntry] = []
    for body in (first, second):
        body["prev_event_hash"] = entries[-1].event_hash.hex() if entries else "00" * 32
        raw = encode(body)
        entries.append(StoredEntry(raw, hash_entry(raw)))
    return entries


@pytest.mark.req("OBS-04")
@for_each(
    ("forgery", "reason"),
    [
        ({"probe": {"seen_at": "noon"}}, "not a moment"),
        ({"probe": {"reading": [1]}}, "must be an object"),
        ({"probe": {"reading": None}}, "is an object"),
        ({"probe": {"kit": {"id": "checkout", "content_hash": "ab"}}}, "not one"),
        ({"probe": {"kit": {"id": "checkout", "content_hash": "ab" * 32}}}, "another kit"),
        ({"probe": {}, "content_hash": "ab"}, "not one"),
    ],
)
def test_an_observation_that_no_server_records_is_refused_in_replay(forgery: dict[str, Any], reason: str) -> None:
    entries = forge(**forgery)
    session_id = json.loads(entries[0].raw)["stream_id"]
    with pytest.raises(LedgerCorrupt, match=reason):
        verify_session(session_id, entries)


@pytest.mark.req("OBS-06")
def test_an_observation_with_other_ids_and_one_that_was_a_list_are_conflicts() -> None:
    server, session_id = opened(SessionPolicy(eliminations=EliminationRule.ANY))
    server.eliminate(session_id, "ann", "resolves", ["dns"])
    with pytest.raises(Conflict) as caught:
        server.observe(session_id, "resolves", "yes", "ann")
    assert caught.value.details["field"] == "eliminated"


@pytest.mark.req("OBS-KIT-03")
def test_a_kit_that_was_never_put_is_not_found() -> None:
    assert KITS.not_found("kit:coin").details["id"] == "coin"
    assert KITS.catch_up("kit:coin", None, []) is None
    with pytest.raises(RecordNotFound) as caught:
        BeliefServer().kits.find("coin")
    assert caught.value.details["found"] == "coin"
