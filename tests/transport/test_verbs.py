"""One behaviour over every transport: each verb says the same in Python, over HTTP and through the client."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.views import snapshot
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.ledger import from_audit_entry
from cmbs.messages import AuditEntry, Verb
from cmbs.stores import SQLiteStore
from cmbs.testing.history import Call, History
from cmbs.testing.strategies.belief import histories
from tests.support.carriers import carry
from tests.support.clients import CLIENTS, call_over
from tests.support.effort import EFFORT
from tests.support.in_process import client_of
from tests.support.transports import ONTOLOGY, POSTS, ByClient, InPython, OverHTTP, Recorder, Reply, Transport

CARRIERS = ("asgi", "http/1.1 on sqlite")

Story = Callable[[Transport], None]


def declared(say: Transport, hypotheses: str = "abcd", **more: Any) -> str:
    session_id: str = say("DECLARE_SESSION", ontology=ONTOLOGY, hypotheses=list(hypotheses), **more)["session_id"]
    return session_id


def eliminated(say: Transport, session_id: str, observation_id: str, ids: str, **more: Any) -> Reply:
    return say("ELIMINATE", session_id, source_id="probe", observation_id=observation_id, eliminated=list(ids), **more)


def code_of(reply: Reply) -> str:
    code: str = reply["error"]["code"]
    return code


# --- what happens, told once ------------------------------------------------------------------------------------------


def a_declaration(say: Transport) -> None:
    ids = ["b", "a", "b", "", "é", "e\u0301", "\U0001f600", "\uffff", "a/b", "\x00"]
    opened = say("DECLARE_SESSION", ontology=ONTOLOGY, hypotheses=ids, metadata={"z": 1.5, "a": [None, True, {}]})
    assert opened["snapshot"]["survivors"] == sorted(set(ids))
    assert opened["snapshot"]["ontology"] == ONTOLOGY


def eliminations(say: Transport) -> None:
    session_id = declared(say)
    first = eliminated(say, session_id, "1", "caz", justification={"why": {"p95": 0.25}})
    assert (first["applied_eliminated"], first["ignored_eliminated"]) == (["a", "c"], ["z"])
    assert first["snapshot"]["survivors"] == ["b", "d"]
    assert first["snapshot"]["audit_head_event_id"] == first["audit_event_id"]
    assert eliminated(say, session_id, "1", "zac") == first
    assert code_of(eliminated(say, session_id, "1", "b")) == "CONFLICT"
    assert eliminated(say, session_id, "2", "")["applied_eliminated"] == []
    assert eliminated(say, session_id, "3", "bd")["snapshot"]["survivors"] == []


def unknown_hypotheses_in_a_strict_session(say: Transport) -> None:
    policy = {"allow_force": False, "stability_window": 0, "validate_hypotheses": True}
    session_id = declared(say, policy=policy)
    refused = eliminated(say, session_id, "1", "axy")
    assert code_of(refused) == "INVALID_HYPOTHESIS_ID"
    assert refused["error"]["details"] | {"unknown": ["x", "y"]} == refused["error"]["details"]
    assert say("QUERY_BELIEF", session_id)["n_survivors"] == 4


def a_look_back(say: Transport) -> None:
    session_id = declared(say)
    first = eliminated(say, session_id, "1", "a")
    eliminated(say, session_id, "2", "b")
    assert say("QUERY_BELIEF", session_id)["survivors"] == ["c", "d"]
    assert say("QUERY_BELIEF", session_id, at=0)["n_survivors"] == 4
    assert say("QUERY_BELIEF", session_id, at=first["audit_event_id"]) == first["snapshot"]
    for nowhere in (3, "no such event", "-1"):
        assert code_of(say("QUERY_BELIEF", session_id, at=nowhere)) == "EVENT_NOT_FOUND"


def an_audit(say: Transport) -> None:
    session_id = declared(say)
    first = eliminated(say, session_id, "1", "a", justification={"n": 1})
    eliminated(say, session_id, "2", "b")
    events = say("AUDIT_TRACE", session_id)["events"]
    assert [event["verb"] for event in events] == ["DECLARE_SESSION", "ELIMINATE", "ELIMINATE"]
    since = first["audit_event_id"]
    assert say("AUDIT_TRACE", session_id, since_event_id=since)["events"] == events[2:]
    assert say("AUDIT_TRACE", session_id, limit=2)["events"] == events[:2]
    assert say("AUDIT_TRACE", session_id, since_event_id=events[-1]["event_id"])["events"] == []
    assert code_of(say("AUDIT_TRACE", session_id, since_event_id="none-such")) == "EVENT_NOT_FOUND"
    assert snapshot(
        verify_session(session_id, [from_audit_entry(AuditEntry.from_dict(event)) for event in events])
    ).to_dict() == say("QUERY_BELIEF", session_id)


def obligations(say: Transport) -> None:
    session_id = declared(say)
    odd = "a/b c?d#e%2F✓"
    entered = say("ENTER_OBLIGATION", session_id, obligation_id=odd, min_total_eliminations=2)
    assert entered["snapshot"]["active_obligation_id"] == odd
    assert code_of(say("ENTER_OBLIGATION", session_id, obligation_id=odd, min_total_eliminations=2)) == "CONFLICT"
    assert code_of(say("REQUEST_EXIT", session_id, obligation_id="a")) == "OBLIGATION_NOT_FOUND"
    eliminated(say, session_id, "1", "a")
    refused = say("REQUEST_EXIT", session_id, obligation_id=odd, context={"who": "planner"})
    assert (refused["approved"], refused["reason"]) == (False, "below_threshold")
    early = say("DECLARE_CONCLUSION", session_id, conclusion_id="b")
    assert (early["accepted"], early["reason"]) == (False, "obligation_active")
    assert say("REQUEST_TERMINATION", session_id)["reason"] == "obligation_active"
    eliminated(say, session_id, "2", "b")
    assert say("REQUEST_EXIT", session_id, obligation_id=odd)["approved"] is True
    assert say("REQUEST_EXIT", session_id, obligation_id=odd)["reason"] == "obligation_not_active"
    assert say("DECLARE_CONCLUSION", session_id, conclusion_id="c", context={})["accepted"] is True
    assert say("list obligations", session_id) == {
        "obligations": [
            {
                "obligation_id": odd,
                "state": "exited",
                "min_total_eliminations": 2,
                "eliminations": 2,
                "reach": {"needed": 2, "eliminated": 2, "alive": 2, "reachable": True},
            }
        ]
    }


def an_obligation_that_cannot_be_met(say: Transport) -> None:
    session_id = declared(say)
    eliminated(say, session_id, "1", "a")
    entered = say("ENTER_OBLIGATION", session_id, obligation_id="all", min_total_eliminations=4)
    assert entered["reach"] == {"needed": 4, "eliminated": 0, "alive": 3, "reachable": False}
    eliminated(say, session_id, "2", "b")
    (obligation,) = say("list obligations", session_id)["obligations"]
    assert obligation["reach"] == {"needed": 4, "eliminated": 1, "alive": 2, "reachable": False}
    refusal = say("REQUEST_EXIT", session_id, obligation_id="all")["refusal"]
    assert (refusal["needed"], refusal["eliminated"], refusal["alive"], refusal["reachable"]) == (4, 1, 2, False)


def attributes_and_conclusions_of_survivors(say: Transport) -> None:
    attributes = {"a": {"component": "db", "n": 1.5}, "c": {"component": "cache"}, "d": {}}
    session_id = declared(say, hypothesis_attributes=attributes, policy={"conclusions": "survivors"})
    eliminated(say, session_id, "1", "a")
    assert say("list survivors", session_id)["attributes"] == {"c": {"component": "cache"}}
    recorded = say("AUDIT_TRACE", session_id)["events"][0]["payload"]
    assert recorded["hypothesis_attributes"] == {name: attributes[name] for name in "ac"}
    assert recorded["policy"]["conclusions"] == "survivors"
    refused = say("DECLARE_CONCLUSION", session_id, conclusion_id="a")
    assert (refused["accepted"], refused["reason"]) == (False, "not_a_survivor")
    assert refused["refusal"]["accepted"] == ["b", "c", "d"]
    assert say("DECLARE_CONCLUSION", session_id, conclusion_id="b")["accepted"] is True
    unknown = say("DECLARE_SESSION", ontology=ONTOLOGY, hypotheses=["a"], hypothesis_attributes={"b": {"x": 1}})
    assert code_of(unknown) == "INVALID_HYPOTHESIS_ID"


def an_end(say: Transport) -> None:
    session_id = declared(say, policy={"allow_force": False, "stability_window": 2, "validate_hypotheses": False})
    assert say("REQUEST_TERMINATION", session_id)["reason"] == "not_singleton"
    eliminated(say, session_id, "1", "abc")
    assert say("REQUEST_TERMINATION", session_id, context={"force": True})["reason"] == "conclusion_unstable"
    for _ in range(2):
        say("DECLARE_CONCLUSION", session_id, conclusion_id="d")
    ended = say("REQUEST_TERMINATION", session_id)
    assert (ended["approved"], ended["snapshot"]["terminated"]) == (True, True)
    assert code_of(eliminated(say, session_id, "2", "d")) == "SESSION_TERMINATED"
    entered = say("ENTER_OBLIGATION", session_id, obligation_id="o", min_total_eliminations=0)
    assert code_of(entered) == "SESSION_TERMINATED"
    assert code_of(say("DECLARE_CONCLUSION", session_id, conclusion_id="d")) == "SESSION_TERMINATED"
    assert code_of(say("REQUEST_TERMINATION", session_id)) == "SESSION_TERMINATED"
    assert say("QUERY_BELIEF", session_id) == ended["snapshot"]
    assert len(say("AUDIT_TRACE", session_id)["events"]) == 7


def an_end_by_force(say: Transport) -> None:
    session_id = declared(say, policy={"allow_force": True, "stability_window": 0, "validate_hypotheses": False})
    assert say("REQUEST_TERMINATION", session_id, context={"force": 1})["approved"] is False
    forced = say("REQUEST_TERMINATION", session_id, context={"force": True})
    assert (forced["approved"], forced["reason"]) == (True, "forced")


def survivors_in_pages(say: Transport) -> None:
    session_id = declared(say, "hgfedcba")
    eliminated(say, session_id, "1", "ah")
    page = {"survivors": ["b", "c", "d"], "attributes": {}, "n_survivors": 6}
    assert say("list survivors", session_id, limit=3) == page
    page = {"survivors": ["a", "b"], "attributes": {}, "n_survivors": 8}
    assert say("list survivors", session_id, limit=2, at=0) == page
    assert code_of(say("list survivors", session_id, limit=0)) == "INVALID_REQUEST"
    assert code_of(say("list survivors", session_id, limit=10_001)) == "LIMIT_EXCEEDED"
    assert code_of(say("list survivors", session_id, at="never")) == "EVENT_NOT_FOUND"


def conditions_and_keys(say: Transport) -> None:
    session_id = declared(say, idempotency_key="one session")
    assert declared(say, idempotency_key="one session") == session_id
    head = say("QUERY_BELIEF", session_id)["audit_head_event_id"]
    first = eliminated(say, session_id, "1", "a", if_match=head, idempotency_key="k1")
    assert eliminated(say, session_id, "1", "a", if_match=head, idempotency_key="k1") == first
    late = eliminated(say, session_id, "2", "b", if_match=head)
    assert code_of(late) == "CONFLICT"
    details = late["error"]["details"]
    assert (details["expected"], details["actual"], details["accepted"]) == (
        head,
        first["audit_event_id"],
        first["audit_event_id"],
    )
    entered = say("ENTER_OBLIGATION", session_id, obligation_id="o", min_total_eliminations=1, idempotency_key="k2")
    repeated = say("ENTER_OBLIGATION", session_id, obligation_id="o", min_total_eliminations=1, idempotency_key="k2")
    assert repeated == entered
    other = say("ENTER_OBLIGATION", session_id, obligation_id="o", min_total_eliminations=2, idempotency_key="k2")
    assert code_of(other) == "CONFLICT"
    assert [event.get("idempotency_key") for event in say("AUDIT_TRACE", session_id)["events"]] == [
        "one session",
        "k1",
        "k2",
    ]


STORIES: list[Story] = [
    a_declaration,
    eliminations,
    unknown_hypotheses_in_a_strict_session,
    a_look_back,
    an_audit,
    obligations,
    an_obligation_that_cannot_be_met,
    attributes_and_conclusions_of_survivors,
    an_end,
    an_end_by_force,
    survivors_in_pages,
    conditions_and_keys,
]


# --- and carried by everything ----------------------------------------------------------------------------------------


# Those that `make test` runs; `make check` runs all.
FIRST = ("asgi", "embedded client")


@pytest.fixture(
    scope="module",
    params=[each if each in FIRST else pytest.param(each, marks=pytest.mark.slow) for each in (*CARRIERS, *CLIENTS)],
)
def transport(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transport]:
    carrier, directory = request.param, tmp_path_factory.mktemp("carried")
    if carrier in CARRIERS:
        with carry(carrier, directory) as send:
            yield OverHTTP(send)
    else:
        with call_over(carrier, directory) as client:
            yield ByClient(client)


@pytest.mark.req("BS-3.1-HTTP-01", "BS-3.1-HTTP-02", "BS-3.1-HTTP-03", "BS-3.1-HTTP-04", "BS-3.1-HTTP-05")
@pytest.mark.req("BS-3.1-HTTP-06", "BS-3.1-HTTP-07", "BS-3.1-HTTP-08", "BS-3.1-HTTP-10", "BS-3.2-ERR-02")
@pytest.mark.req("BS-3.2-ERR-03", "BS-3.2-ERR-04", "BS-3.2-ERR-05", "BS-3.2-ERR-06")
@pytest.mark.req("CLIENT-01")
def test_a_story_is_the_same_over_http_as_in_python(transport: Transport, subtests: pytest.Subtests) -> None:
    for story in STORIES:
        with subtests.test(story=story.__name__):
            in_python, over_transport = Recorder(InPython(BeliefServer())), Recorder(transport)
            story(in_python)
            story(over_transport)
            assert over_transport.transcript() == in_python.transcript()


def test_the_stories_speak_every_verb() -> None:
    recorder = Recorder(InPython(BeliefServer()))
    for story in STORIES:
        story(recorder)
    assert {verb for verb, reply in recorder.replies if "error" not in reply} == {
        *POSTS,
        "QUERY_BELIEF",
        "AUDIT_TRACE",
        "list survivors",
        "list obligations",
    }


# --- whatever is said -------------------------------------------------------------------------------------------------


def played(say: Transport, history: History) -> None:
    """A history and a last look, over a transport."""
    session_id = say(
        "DECLARE_SESSION",
        ontology=history.ontology.to_dict(),
        hypotheses=history.hypotheses,
        metadata=history.metadata,
        policy=msgspec.to_builtins(history.policy),
    )["session_id"]
    for call in history.calls:
        say(call.verb.value, session_id, **call.arguments, **_key(call))
    for verb in ("QUERY_BELIEF", "AUDIT_TRACE", "list obligations"):
        say(verb, session_id)


def _key(call: Call) -> dict[str, str]:
    # A header cannot be empty, nor hold more than ASCII without an agreement on what it means.
    key = call.idempotency_key
    return {"idempotency_key": key} if key and key.isascii() else {}


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Transport]]:
    path: Path = tmp_path_factory.mktemp("histories") / "cmbs.db"
    with ExitStack() as opened:
        servers = [BeliefServer(), BeliefServer(store=SQLiteStore(path))]
        for server in servers:
            opened.callback(server.close)
        yield [OverHTTP(opened.enter_context(client_of(create_app(server))).request) for server in servers]


@pytest.mark.req("BS-4.1-HTTP-01", "BS-4.1-EQUIV-01")
@settings(max_examples=EFFORT.examples_for(40))
@given(history=histories(max_calls=10))
def test_any_history_is_the_same_over_http_as_in_python(apps: list[Transport], history: History) -> None:
    in_python = Recorder(InPython(BeliefServer()))
    played(in_python, history)
    for app in apps:
        over_http = Recorder(app)
        played(over_http, history)
        assert over_http.transcript() == in_python.transcript()


@pytest.mark.slow
@pytest.mark.req("BS-4.1-HTTP-01", "BS-4.1-MONO-01", "BS-4.1-IDEM-01", "BS-4.1-REPLAY-01")
@settings(max_examples=EFFORT.examples_for(40))
@given(history=histories(max_calls=10))
def test_the_invariants_hold_over_http(apps: list[Transport], history: History) -> None:
    for app in apps:
        over_http = Recorder(app)
        played(over_http, history)
        replies = [reply for _, reply in over_http.replies if "error" not in reply]
        *written, belief, audit, _ = replies
        shown = [set(reply["snapshot"]["survivors"]) for reply in written]
        # A repeat gives the first answer, belief of that moment included; whatever is new is never more than before.
        seen = list(
            {reply["snapshot"]["audit_head_event_id"]: ids for reply, ids in zip(written, shown, strict=True)}.values()
        )
        assert all(later <= earlier for earlier, later in pairwise(seen))
        replayed = verify_session(
            belief["session_id"], [from_audit_entry(AuditEntry.from_dict(event)) for event in audit["events"]]
        )
        assert snapshot(replayed).to_dict() == belief
        for call in history.calls:
            if call.verb is Verb.ELIMINATE:
                app(call.verb.value, belief["session_id"], **call.arguments, **_key(call))
        assert app("AUDIT_TRACE", belief["session_id"]) == audit
