"""What a session says of itself as a case: refused where it is no line, no name or no list, and changed by events."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.case_fields import (
    MAX_CASE_AGENTS,
    MAX_LABELS,
    MAX_OWNER_LENGTH,
    MAX_SEVERITY_LENGTH,
    MAX_TITLE_LENGTH,
    CaseFields,
    build_case_fields,
    require_case_fields,
)
from cmbs.belief.kernel.checkpoint import freeze
from cmbs.belief.kernel.events import Declare, UpdateCase
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.queries import MAX_TERMS, MAX_TEXT_LENGTH, build_session_query, describe_session
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, Forbidden, InvalidRequest, LedgerCorrupt, LimitExceeded, SessionTerminated
from cmbs.ledger.listing import index_session
from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.stores.memory import InMemoryStore
from tests.support.forging import sealed
from tests.support.store_fixture import declared
from tests.support.subtests import for_each

ONTOLOGY = OntologyBundle("s", "1", "g", "1")
AGENT = Actor(ActorKind.AGENT, "medic", authenticated=True, key_id="k")
OPERATOR = Actor(ActorKind.OPERATOR, "ann", authenticated=True, key_id="o")


def update(server: BeliefServer, session_id: str, by: Actor | None, **changes: Any) -> None:
    command = server.requests.command(session_id, server.requests.update_case(changes), actor=by)
    asyncio.run(server.perform_async(command))


@pytest.mark.req("FIND-TITLE-01")
@for_each("title", ["", " ", "a\nb", "\x00", "\x85", "a\u2028b", "\ud800", 1, ["a"], {}])
def test_what_is_no_line_of_text_is_no_title_no_owner_and_no_severity(title: Any) -> None:
    for name in ("title", "owner", "severity"):
        with pytest.raises(InvalidRequest) as refused:
            build_case_fields(**{name: title})
        assert refused.value.details["field"] == name


@pytest.mark.req("FIND-TITLE-01")
@for_each(
    "labels",
    [[], "a:b", {"": "x"}, {"a b": "x"}, {"a:": "x"}, {"-a": "x"}, {"a" * 64: "x"}, {1: "x"}, {"a": ""}, {"a": 1}],
)
def test_what_is_no_name_or_no_text_is_no_label(labels: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        build_case_fields(None, labels)
    assert str(refused.value.details["field"]).startswith("labels")


@pytest.mark.req("CASE-FIELDS-01")
@for_each("agents", [[], "medic", b"medic", {"medic": 1}, 3, [""], [1], ["\ud800"]])
def test_what_is_no_list_of_agents_is_refused(agents: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        build_case_fields(agents=agents)
    assert refused.value.details["field"] == "agents"


@pytest.mark.req("FIND-TITLE-01", "CASE-FIELDS-01")
def test_what_is_said_of_a_case_is_bounded() -> None:
    for arguments, limit in (
        ({"title": "x" * (MAX_TITLE_LENGTH + 1)}, "title_length"),
        ({"owner": "x" * (MAX_OWNER_LENGTH + 1)}, "owner_length"),
        ({"severity": "x" * (MAX_SEVERITY_LENGTH + 1)}, "severity_length"),
        ({"labels": {f"a{number}": "x" for number in range(MAX_LABELS + 1)}}, "labels"),
        ({"labels": {"a": "x" * 201}}, "label_value_length"),
        ({"agents": [f"a{number}" for number in range(MAX_CASE_AGENTS + 1)]}, "case_agents"),
        ({"agents": ["x" * 1025]}, "agent_id_length"),
    ):
        with pytest.raises(LimitExceeded) as refused:
            build_case_fields(**arguments)
        assert refused.value.details["limit"] == limit
    build_case_fields("x" * MAX_TITLE_LENGTH, {f"a{number}": "x" for number in range(MAX_LABELS)})


@pytest.mark.req("FIND-TITLE-01", "CASE-FIELDS-01")
def test_what_no_request_could_have_said_does_not_verify() -> None:
    good = build_case_fields("a title", {"b": "2", "a": "1"}, "ann", "high", ["b", "a", "b"])
    assert good.agents == ["a", "b"]
    require_case_fields(_declare(good), is_update=False)
    bad: list[dict[str, Any]] = [
        {"title": ""},
        {"owner": "\n"},
        {"severity": " "},
        {"agents": []},
        {"agents": ["b", "a"]},
        {"agents": ["a", "a"]},
        {"labels": msgspec.Raw(b'{"b":"2","a":"1"}')},
        {"labels": msgspec.Raw(b"{}")},
        {"labels": msgspec.Raw(b"[1]")},
        {"labels": msgspec.Raw(b'{"a":1}')},
        {"labels": msgspec.Raw(b"{")},
    ]
    for changes in bad:
        with pytest.raises(ValueError, match="its "):
            require_case_fields(_declare(good._replace(**changes)), is_update=False)
    allowed: dict[str, Any]
    for allowed in ({"agents": []}, {"labels": msgspec.Raw(b"{}")}, {"title": None}):
        require_case_fields(UpdateCase(**allowed), is_update=True)
    with pytest.raises(ValueError, match="its "):
        require_case_fields(UpdateCase(title=""), is_update=True)


def _declare(fields: CaseFields) -> Declare:
    server = BeliefServer(store=InMemoryStore())
    message = server.declaration(ONTOLOGY, ["a"]).message
    assert isinstance(message, Declare)
    return msgspec.structs.replace(message, **fields._asdict())


@pytest.mark.req("FIND-TITLE-01")
def test_a_repeat_with_another_title_is_a_conflict() -> None:
    server = BeliefServer(store=InMemoryStore())
    first = server.declare_session(ONTOLOGY, ["a"], title="one", labels={}, idempotency_key="k")
    assert server.declare_session(ONTOLOGY, ["a"], title="one", idempotency_key="k") == first
    with pytest.raises(Conflict):
        server.declare_session(ONTOLOGY, ["a"], title="two", idempotency_key="k")


@pytest.mark.req("CASE-FIELDS-01")
def test_an_agent_that_names_no_agents_lists_itself_and_no_other_does() -> None:
    server = BeliefServer(store=InMemoryStore())
    for actor, agents, expected in (
        (AGENT, None, ("medic",)),
        (AGENT, ["probes", "medic"], ("medic", "probes")),
        (OPERATOR, None, None),
        (None, None, None),
        (None, ["probes"], ("probes",)),
    ):
        command = server.declaration(ONTOLOGY, ["a"], agents=agents, actor=actor)
        asyncio.run(server.perform_async(command))
        assert server.current_session(command.session_id).case.agents == expected


@pytest.mark.req("CASE-FIELDS-02")
def test_a_case_is_changed_by_events_and_only_in_what_they_name() -> None:
    server = BeliefServer(store=InMemoryStore())
    session_id = declared(server, title="Slow", labels={"team": "web"}, owner="ann", severity="low", agents=["medic"])
    outcome = server.update_case(session_id, {"severity": "high", "owner": None})
    case = server.current_session(session_id).case
    assert (case.title, case.labels, case.owner, case.severity) == ("Slow", {"team": "web"}, "", "high")
    assert outcome.audit_event_id == server.query_belief(session_id).audit_head_event_id
    server.update_case(session_id, {"labels": {"team": "db"}, "agents": ["probes"], "title": ""})
    case = server.current_session(session_id).case
    assert (case.title, case.labels, case.agents) == ("", {"team": "db"}, ("probes",))
    assert [case.agents_at(seq) for seq in range(3)] == [("medic",), ("medic",), ("probes",)]
    server.update_case(session_id, {"agents": [], "labels": None})
    assert server.current_session(session_id).case.agents == ()
    with pytest.raises(InvalidRequest, match="what is to change"):
        server.update_case(session_id, {})
    with pytest.raises(InvalidRequest, match="nothing that can be changed"):
        server.update_case(session_id, {"name": "INC-1"})
    first = server.update_case(session_id, {"title": "Slower"}, idempotency_key="k")
    assert server.update_case(session_id, {"title": "Slower"}, idempotency_key="k") == first


@pytest.mark.req("CASE-FIELDS-02")
def test_only_operators_change_who_may_work_on_a_case() -> None:
    store = InMemoryStore()
    server = BeliefServer(store=store)
    session_id = declared(server, agents=["medic"])
    with pytest.raises(Forbidden) as refused:
        update(server, session_id, AGENT, agents=["medic", "friend"])
    assert refused.value.details["reason"] == "not_an_operator"
    assert store.head(session_id) == server.current_session(session_id).head
    update(server, session_id, AGENT, severity="high")
    update(server, session_id, OPERATOR, agents=["friend"])
    assert server.current_session(session_id).case.agents == ("friend",)
    # A fork repeats what was allowed where it was said, also where an agent forks.
    fork = server.fork_session(session_id, actor=AGENT).session_id
    assert server.current_session(fork).case.agents == ("friend",)
    verify_session(fork, store.read(fork))
    with pytest.raises(Forbidden):
        update(server, fork, AGENT, agents=["medic"])


@pytest.mark.req("CASE-FIELDS-02")
def test_a_recorded_change_that_its_actor_may_not_make_does_not_verify() -> None:
    server = BeliefServer(store=InMemoryStore())
    session_id = declared(server, agents=["medic"])
    update(server, session_id, OPERATOR, agents=["friend"])
    first, second = server.log.read(session_id)
    forged = second.raw.replace(b'"kind":"operator"', b'"kind":"agent"')
    with pytest.raises(LedgerCorrupt, match="only operators"):
        verify_session(session_id, [first, sealed(forged)])
    for payload in (b'"payload":{}', b'"payload":{"agents":["b","a"]}'):
        empty = second.raw.replace(b'"payload":{"agents":["friend"]}', payload)
        with pytest.raises(LedgerCorrupt, match=r"its case|its agents"):
            verify_session(session_id, [first, sealed(empty)])


def test_nothing_is_said_of_a_case_after_the_end_of_its_session() -> None:
    server = BeliefServer(store=InMemoryStore())
    session_id = declared(server)
    server.eliminate(session_id, "s", "1", ["b", "c", "d"])
    assert server.request_termination(session_id).approved
    with pytest.raises(SessionTerminated):
        server.update_case(session_id, {"title": "x"})


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "title": st.sampled_from(["one", "two", None]),
        "owner": st.sampled_from(["ann", "ben", None]),
        "severity": st.sampled_from(["low", "high", None]),
        "labels": st.sampled_from([{}, {"team": "web"}, {"team": "db", "a": "b"}]),
        "agents": st.sampled_from([[], ["medic"], ["medic", "probes"]]),
    },
).filter(bool)


@pytest.mark.req("CASE-FIELDS-02", "FIND-SESSIONS-01")
@given(st.lists(CHANGES, max_size=6))
def test_however_a_case_was_changed_replay_checkpoint_and_list_say_the_same(changes: list[dict[str, Any]]) -> None:
    store = InMemoryStore()
    server = BeliefServer(store=store)
    session_id = declared(server, title="one", owner="ann", labels={"team": "web"})
    for each in changes:
        server.update_case(session_id, each)
    live, entries = server.current_session(session_id), store.read(session_id)
    again = verify_session(session_id, entries)
    assert again.case == live.case
    assert freeze(again) == freeze(live)
    folded = None
    for stored in entries:
        folded, _ = BeliefFolding().fold(folded, stored)
    assert folded is not None
    assert folded.case == live.case
    (found,) = server.find_sessions()
    indexed = index_session(stored.raw for stored in entries)
    assert indexed is not None
    assert found.listing == indexed.listing
    for name, value in (("owner", live.case.owner), ("severity", live.case.severity)):
        if value:
            assert len(server.find_sessions(build_session_query(**{name: value}))) == 1
    for label in ("team:web", "team:db"):
        name, _, text = label.partition(":")
        holds = live.case.labels.get(name) == text
        assert len(server.find_sessions(build_session_query(labels=[label]))) == holds
    for name, known in (("owner", ("ann", "ben")), ("severity", ("low", "high"))):
        for value in known:
            is_said = getattr(live.case, name) == value
            assert len(server.find_sessions(build_session_query(**{name: value}))) == is_said


@pytest.mark.req("FIND-SESSIONS-01")
@for_each(
    ("asked", "field"),
    [
        ({"order": "up"}, "order"),
        ({"state": "done"}, "state"),
        ({"labels": ["team"]}, "label"),
        ({"labels": [":x"]}, "label"),
        ({"labels": ["x:"]}, "label"),
        ({"labels": [f"a:{number}" for number in range(MAX_TERMS + 1)]}, "label"),
        ({"text": "x" * (MAX_TEXT_LENGTH + 1)}, "text"),
        ({"since": "yesterday"}, "since"),
        ({"until": "2026"}, "until"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_and_says_where(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        build_session_query(**asked)
    assert refused.value.details["field"] == field


@pytest.mark.req("FIND-SESSIONS-01", "FIND-TITLE-01")
def test_a_session_is_found_in_python_with_what_a_list_says() -> None:
    server = BeliefServer(store=InMemoryStore())
    declared(server)
    session_id = declared(server, title="Slow checkout", labels={"team": "payments"}, owner="ann", agents=["medic"])
    server.eliminate(session_id, "s", "1", ["a", "b", "c", "d"])
    (found,) = server.find_sessions(build_session_query(labels=["team:payments"], text="CHECK", agent="medic"))
    shown = describe_session(found, "INC-1", with_trail=True)
    assert (shown["session_id"], shown["title"], shown["labels"]) == (session_id, "Slow checkout", {"team": "payments"})
    assert (shown["name"], shown["owner"], shown["severity"]) == ("INC-1", "ann", None)
    assert (shown["case_agents"], shown["n_case_agents"]) == (("medic",), 1)
    assert (shown["state"], shown["contradiction"], shown["trail"]) == ("contradiction", True, [(0, 4), (1, 0)])
    assert "trail" not in describe_session(found)
    assert len(server.find_sessions()) == 2
