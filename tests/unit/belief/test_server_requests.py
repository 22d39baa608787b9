"""What the door lets in: types, limits, idempotency keys and expected heads. A refused request leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import msgspec
import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.errors import (
    Conflict,
    EventNotFound,
    HeadMismatch,
    InvalidRequest,
    LimitExceeded,
    SessionNotFound,
)
from cmbs.messages import OntologyBundle, SessionPolicy
from tests.support.store_fixture import NO_SUCH_SESSION, ONTOLOGY, StoreFixture, declared, verbs, verified
from tests.support.subtests import for_each

Act = Callable[[BeliefServer, str], Any]

LONE_SURROGATE = "\ud800"
NO_TEXT = [None, 5, 5.5, True, b"bytes", ["list"], LONE_SURROGATE]
NO_IDS = [None, 5, "text", b"bytes", {"a": 1}, [None], [5], [b"a"], [["a"]], ["a", LONE_SURROGATE]]
NO_OBJECT = [5, "text", ["list"], {"x": float("nan")}, {"x": float("inf")}, {"x": 2**53}, {"x": -(2**53)}, {"x": 1e16}]
NO_OBJECT += [{"x": {1: "key"}}, {"x": {"a"}}, {"x": Ellipsis}, {"x": LONE_SURROGATE}, {LONE_SURROGATE: 1}]
NO_COUNT = [None, -1, 1.0, "1", True, 2**53]


def declare_with(field: str, server: BeliefServer, _: str, value: Any) -> Any:
    return server.declare_session(msgspec.structs.replace(ONTOLOGY, **{field: value}), ["a"])


TEXTS: dict[str, Callable[[BeliefServer, str, Any], Any]] = {
    "source_id": lambda server, session_id, value: server.eliminate(session_id, value, "o", []),
    "observation_id": lambda server, session_id, value: server.eliminate(session_id, "s", value, []),
    "obligation_id": lambda server, session_id, value: server.enter_obligation(session_id, value, 1),
    "conclusion_id": lambda server, session_id, value: server.declare_conclusion(session_id, value),
    **{f"ontology.{name}": partial(declare_with, name) for name in OntologyBundle.__struct_fields__},
}
OBJECTS: dict[str, Callable[[BeliefServer, str, Any], Any]] = {
    "justification": lambda server, session_id, value: server.eliminate(session_id, "s", "o", ["a"], value),
    "context of an exit": lambda server, session_id, value: server.request_exit(session_id, "gate", value),
    "context of a conclusion": lambda server, session_id, value: server.declare_conclusion(session_id, "c", value),
    "context of a termination": lambda server, session_id, value: server.request_termination(session_id, value),
    "metadata": lambda server, _, value: server.declare_session(ONTOLOGY, ["a"], value),
}
MATCHED: dict[str, Callable[..., Any]] = {
    "eliminate": lambda server, session_id, **more: server.eliminate(session_id, "s", "o", ["a"], **more),
    "enter_obligation": lambda server, session_id, **more: server.enter_obligation(session_id, "new", 1, **more),
    "request_exit": lambda server, session_id, **more: server.request_exit(session_id, "gate", **more),
    "declare_conclusion": lambda server, session_id, **more: server.declare_conclusion(session_id, "c", **more),
    "request_termination": lambda server, session_id, **more: server.request_termination(session_id, **more),
}
KEYED: dict[str, Callable[..., Any]] = {
    **MATCHED,
    "declare_session": lambda server, _, **more: server.declare_session(ONTOLOGY, ["a"], **more),
}


@pytest.fixture
def server(fixture: StoreFixture) -> BeliefServer:
    return fixture.open()


@pytest.fixture
def session_id(server: BeliefServer) -> str:
    """A session inside an obligation."""
    session_id = declared(server)
    server.enter_obligation(session_id, "gate", 0)
    return session_id


def expect_refusal(server: BeliefServer, error: type[Exception], act: Callable[[], Any]) -> Any:
    """The error of a call that left nothing behind."""
    before = [(each, server.log.read(each.session_id)) for each in server.list_sessions()]
    with pytest.raises(error) as refused:
        act()
    assert [(each, server.log.read(each.session_id)) for each in server.list_sessions()] == before
    return refused.value


# --- types ---


@pytest.mark.req("BS-3.2-ERR-11")
@for_each("value", NO_TEXT, ids=ascii)
@for_each("field", TEXTS)
def test_an_id_that_is_not_text_is_refused_by_name(
    server: BeliefServer, session_id: str, field: str, value: Any
) -> None:
    error = expect_refusal(server, InvalidRequest, lambda: TEXTS[field](server, session_id, value))
    assert f"`{field}`" in error.message
    assert error.details.items() >= {"field": field}.items()


@pytest.mark.req("BS-3.2-ERR-11")
@for_each("value", NO_IDS, ids=ascii)
def test_ids_that_are_not_a_list_of_texts_are_refused_by_name(
    server: BeliefServer, session_id: str, value: Any
) -> None:
    error = expect_refusal(server, InvalidRequest, lambda: server.eliminate(session_id, "s", "o", value))
    assert "`eliminated" in error.message
    error = expect_refusal(server, InvalidRequest, lambda: server.declare_session(ONTOLOGY, value))
    assert "`hypotheses" in error.message


@pytest.mark.req("BS-3.2-ERR-11", "LED-3-ENC-05")
@for_each("value", NO_OBJECT, ids=ascii)
@for_each("field", OBJECTS)
def test_an_object_that_is_none_or_holds_what_json_does_not_is_refused(
    server: BeliefServer, session_id: str, field: str, value: Any
) -> None:
    expect_refusal(server, InvalidRequest, lambda: OBJECTS[field](server, session_id, value))


@pytest.mark.req("ARCH-5-LIMIT-04")
def test_an_object_that_holds_itself_is_refused(server: BeliefServer, session_id: str) -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    error = expect_refusal(server, LimitExceeded, lambda: server.eliminate(session_id, "s", "o", [], endless))
    assert error.details["limit"] == "json_depth"


@pytest.mark.req("BS-2.1-ENTER-04", "BS-3.2-ERR-11")
@for_each("value", NO_COUNT, ids=ascii)
def test_a_threshold_or_window_that_is_no_count_is_refused(server: BeliefServer, session_id: str, value: Any) -> None:
    error = expect_refusal(server, InvalidRequest, lambda: server.enter_obligation(session_id, "new", value))
    assert error.details.items() >= {"field": "min_total_eliminations"}.items()
    policy = SessionPolicy(stability_window=value)
    expect_refusal(server, InvalidRequest, lambda: server.declare_session(ONTOLOGY, ["a"], policy=policy))


@pytest.mark.req("BS-3.2-ERR-11")
@for_each(
    "policy",
    [
        {"allow_force": True},
        "strict",
        SessionPolicy(allow_force="yes"),  # type: ignore[arg-type]
        SessionPolicy(allow_force=1),  # type: ignore[arg-type]
        SessionPolicy(validate_hypotheses=None),  # type: ignore[arg-type]
    ],
    ids=ascii,
)
def test_a_policy_that_could_not_be_read_again_is_refused(server: BeliefServer, policy: Any) -> None:
    expect_refusal(server, InvalidRequest, lambda: server.declare_session(ONTOLOGY, ["a"], policy=policy))


@pytest.mark.req("BS-3.2-ERR-11")
@for_each("ontology", [None, {"hypothesis_space_id": "a"}, "space", ("a", "b", "c", "d")], ids=ascii)
def test_an_ontology_that_is_not_a_bundle_is_refused(server: BeliefServer, ontology: Any) -> None:
    expect_refusal(server, InvalidRequest, lambda: server.declare_session(ontology, ["a"]))


@pytest.mark.req("BS-3.2-ERR-11")
def test_a_universe_of_nothing_is_refused(server: BeliefServer) -> None:
    error = expect_refusal(server, InvalidRequest, lambda: server.declare_session(ONTOLOGY, []))
    assert "`hypotheses`" in error.message


@pytest.mark.req("BS-3.2-ERR-02", "BS-3.2-ERR-11")
@for_each("wrong", [None, 5, ["list"], {"a": 1}, LONE_SURROGATE, "", "x" * 5000], ids=ascii)
@for_each("verb", ["eliminate", "query_belief", "audit_trace", "survivors", "obligations"])
def test_a_session_id_of_any_type_is_answered_in_the_error_model(server: BeliefServer, verb: str, wrong: Any) -> None:
    arguments: tuple[Any, ...] = ("s", "o", []) if verb == "eliminate" else ()
    with pytest.raises((InvalidRequest, LimitExceeded, SessionNotFound)):
        getattr(server, verb)(wrong, *arguments)


@pytest.mark.req("BS-3.2-ERR-11")
@for_each("limit", [-1, "3", 2.5, [], True], ids=ascii)
@for_each("verb", ["audit_trace", "survivors", "list_sessions"])
def test_a_page_of_no_size_is_refused_by_name(server: BeliefServer, session_id: str, verb: str, limit: Any) -> None:
    arguments = [] if verb == "list_sessions" else [session_id]
    with pytest.raises(InvalidRequest, match="`limit`"):
        getattr(server, verb)(*arguments, limit=limit)


@pytest.mark.req("BS-3.2-ERR-11")
def test_a_page_of_nothing_is_refused_where_it_would_never_end(server: BeliefServer, session_id: str) -> None:
    for page in (lambda: server.survivors(session_id, limit=0), lambda: server.list_sessions(limit=0)):
        with pytest.raises(InvalidRequest, match="`limit`"):
            page()
    assert server.audit_trace(session_id, limit=0) == []


@pytest.mark.req("BS-3.2-ERR-11")
def test_wrong_types_in_reading_verbs_are_answered_in_the_error_model(server: BeliefServer, session_id: str) -> None:
    wrong: Any
    for wrong in (0.5, [], LONE_SURROGATE):
        with pytest.raises((InvalidRequest, EventNotFound)):
            server.query_belief(session_id, at=wrong)
    for wrong in (5, b"a", []):
        with pytest.raises(InvalidRequest):
            server.survivors(session_id, after=wrong)


# --- limits ---

SMALL = Limits(
    id_length=40,
    hypotheses_per_session=4,
    ids_per_request=3,
    opaque_bytes=32,
    page_size=2,
    obligations_per_session=2,
)
BEYOND: dict[str, tuple[str, Act]] = {
    "a source id": ("id_length", lambda server, session_id: server.eliminate(session_id, "s" * 41, "o", [])),
    "an observation id": ("id_length", lambda server, session_id: server.eliminate(session_id, "s", "é" * 41, [])),
    "an eliminated id": ("id_length", lambda server, session_id: server.eliminate(session_id, "s", "o", ["a" * 41])),
    "a hypothesis": ("id_length", lambda server, _: server.declare_session(ONTOLOGY, ["a" * 41])),
    "an obligation id": ("id_length", lambda server, session_id: server.request_exit(session_id, "o" * 41)),
    "a conclusion id": ("id_length", lambda server, session_id: server.declare_conclusion(session_id, "c" * 41)),
    "an idempotency key": (
        "id_length",
        lambda server, session_id: KEYED["eliminate"](server, session_id, idempotency_key="k" * 41),
    ),
    "a keyed declaration": (
        "id_length",
        lambda server, _: KEYED["declare_session"](server, "", idempotency_key="k" * 41),
    ),
    "a universe": ("hypotheses_per_session", lambda server, _: server.declare_session(ONTOLOGY, list("abcde"))),
    "repeated hypotheses": ("hypotheses_per_session", lambda server, _: server.declare_session(ONTOLOGY, ["a"] * 5)),
    "eliminated ids": ("ids_per_request", lambda server, session_id: server.eliminate(session_id, "s", "o", [*"abcd"])),
    "a justification": (
        "opaque_bytes",
        lambda server, session_id: server.eliminate(session_id, "s", "o", [], {"x": "y" * 25}),
    ),
    "a context": ("opaque_bytes", lambda server, session_id: server.request_termination(session_id, {"x": "é" * 13})),
    "metadata": ("opaque_bytes", lambda server, _: server.declare_session(ONTOLOGY, ["a"], {"x": "y" * 25})),
    "a page of sessions": ("page_size", lambda server, _: server.list_sessions(limit=3)),
    "a page of survivors": ("page_size", lambda server, session_id: server.survivors(session_id, limit=3)),
}


def within(server: BeliefServer) -> str:
    """A session of exactly the size that the limits allow."""
    ontology = OntologyBundle("s" * 40, "v", "g", "v")
    session_id, _ = server.declare_session(
        ontology, ["a" * 40, "b", "c", "d"], {"x": "y" * 24}, idempotency_key="k" * 40
    )
    server.eliminate(session_id, "s" * 40, "é" * 40, ["b", "c", "zz"], {"x": "y" * 24})
    server.enter_obligation(session_id, "o" * 40, 0)
    server.enter_obligation(session_id, "p" * 40, 0)
    return session_id


@pytest.mark.req("ARCH-5-LIMIT-01", "ARCH-5-LIMIT-02", "ARCH-5-LIMIT-03", "ARCH-5-LIMIT-04", "ARCH-5-LIMIT-05")
@pytest.mark.parametrize("case", BEYOND)
def test_what_is_beyond_a_limit_is_refused_and_the_error_names_the_limit(fixture: StoreFixture, case: str) -> None:
    server = fixture.open(limits=SMALL)
    session_id = within(server)
    limit, act = BEYOND[case]
    error = expect_refusal(fixture.open(), LimitExceeded, lambda: act(server, session_id))
    maximum = getattr(SMALL, limit)
    assert error.details["limit"] == limit
    assert error.details["maximum"] == maximum
    assert error.details["actual"] > maximum
    assert limit in error.message


@pytest.mark.req("ARCH-5-LIMIT-06")
def test_one_obligation_beyond_the_limit_is_refused_and_everything_else_goes_on(fixture: StoreFixture) -> None:
    server = fixture.open(limits=SMALL)
    session_id = within(server)
    error = expect_refusal(
        fixture.open(), LimitExceeded, lambda: server.enter_obligation(session_id, "third", 0, idempotency_key="k")
    )
    assert error.details.items() >= {"limit": "obligations_per_session", "maximum": 2, "actual": 3}.items()
    lowered = fixture.open(limits=Limits(obligations_per_session=1))
    assert lowered.request_exit(session_id, "p" * 40).approved
    assert server.request_exit(session_id, "o" * 40).approved
    assert verified(server, session_id) == server.query_belief(session_id)


@pytest.mark.req("ARCH-5-LIMIT-06")
def test_every_limit_has_a_default_and_can_be_configured() -> None:
    for limit in fields(Limits):
        assert getattr(Limits(), limit.name) > 0
        assert getattr(BeliefServer(limits=Limits(**{limit.name: 7})).requests.limits, limit.name) == 7


# --- idempotency keys ---


@pytest.mark.req("ARCH-5-RULE-01")
@pytest.mark.parametrize("verb", KEYED)
def test_a_repeated_key_gives_the_first_result_also_from_another_server(fixture: StoreFixture, verb: str) -> None:
    server = fixture.open()
    session_id = declared(server)
    server.enter_obligation(session_id, "gate", 0)
    first = KEYED[verb](server, session_id, idempotency_key="k")
    target = first.session_id if verb == "declare_session" else session_id
    seq = len(server.audit_trace(target)) - 1
    server.eliminate(target, "another", "client", ["b"])
    before = server.audit_trace(target)
    assert before[seq].idempotency_key == "k"
    for asked in (server, fixture.open()):
        assert KEYED[verb](asked, session_id, idempotency_key="k") == first
    assert server.audit_trace(target) == before
    assert verified(server, target) == server.query_belief(target)


@pytest.mark.req("ARCH-5-RULE-02")
def test_the_key_of_a_declaration_that_is_used_for_another_request_is_a_conflict(server: BeliefServer) -> None:
    session_id = KEYED["declare_session"](server, "", idempotency_key="k").session_id
    others: list[Callable[[], Any]] = [
        lambda: server.eliminate(session_id, "s", "another", ["b"], idempotency_key="k"),
        lambda: server.declare_conclusion(session_id, "another", idempotency_key="k"),
        lambda: server.declare_session(ONTOLOGY, ["b"], idempotency_key="k"),
        lambda: server.declare_session(ONTOLOGY, ["a"], {}, idempotency_key="k"),
    ]
    for other in others:
        assert expect_refusal(server, Conflict, other).details.items() >= {"idempotency_key": "k"}.items()


@pytest.mark.req("ARCH-5-RULE-02")
def test_a_key_belongs_to_its_session(server: BeliefServer, session_id: str) -> None:
    other = declared(server)
    server.enter_obligation(other, "gate", 0)
    first = KEYED["request_exit"](server, session_id, idempotency_key="k")
    second = KEYED["request_exit"](server, other, idempotency_key="k")
    assert first.snapshot.session_id != second.snapshot.session_id
    assert len(verbs(server, other)) == 3


@pytest.mark.req("BS-3.2-ERR-11")
@for_each("key", [5, b"k", ["k"], True, LONE_SURROGATE], ids=ascii)
@for_each("verb", KEYED)
def test_a_key_that_is_not_text_is_refused_by_name(server: BeliefServer, session_id: str, verb: str, key: Any) -> None:
    error = expect_refusal(server, InvalidRequest, lambda: KEYED[verb](server, session_id, idempotency_key=key))
    assert error.details.items() >= {"field": "idempotency_key"}.items()


def test_the_empty_key_is_a_key_of_a_declaration_too(server: BeliefServer) -> None:
    keyed = KEYED["declare_session"](server, "", idempotency_key="")
    assert KEYED["declare_session"](server, "", idempotency_key="") == keyed


# --- expected heads ---


@pytest.mark.req("BS-3.2-ERR-06")
@pytest.mark.parametrize("verb", MATCHED)
def test_a_write_goes_through_only_on_the_head_that_its_caller_saw(fixture: StoreFixture, verb: str) -> None:
    server = fixture.open()
    session_id = declared(server)
    stale = server.enter_obligation(session_id, "gate", 0).audit_event_id
    current = fixture.open().eliminate(session_id, "other", "o", ["b"]).audit_event_id
    for wrong in (stale, "", NO_SUCH_SESSION, current.upper() + " "):
        error = expect_refusal(server, HeadMismatch, partial(MATCHED[verb], server, session_id, if_match=wrong))
        assert error.details.items() >= {"expected": wrong, "actual": current, "accepted": current}.items()
        assert error.code == "CONFLICT"
    outcome = MATCHED[verb](server, session_id, if_match=current)
    assert outcome.snapshot.audit_head_event_id == outcome.audit_event_id


@pytest.mark.req("ARCH-5-RULE-01")
def test_a_repeat_is_answered_though_its_own_first_try_moved_the_head(server: BeliefServer, session_id: str) -> None:
    head = server.query_belief(session_id).audit_head_event_id
    first = server.eliminate(session_id, "s", "o", ["a"], if_match=head)
    assert server.eliminate(session_id, "s", "o", ["a"], if_match=head) == first
