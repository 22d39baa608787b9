"""The steps of a call: what is sent again, when, and under which key. No network and no time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs import errors
from cmbs.api.call import Call, build_call, find_operation
from cmbs.api.errors import PRECONDITION_FAILED, STATUS_OF_CODE
from cmbs.api.sessions import Health
from cmbs.client import HeadWentBack, Patience, RequestFailed, Unreachable, UnreadableAnswer
from cmbs.client.errors import Head, rebuild_error
from cmbs.client.exchange import Answer, Attempt, Environment, Heads, Outcome, Pause, exchange
from cmbs.errors import BeliefServerError, ErrorCode, InvalidRequest
from tests.support.subtests import for_each
from tests.unit.test_errors import EXAMPLES

JSON = {"content-type": "application/json"}
OK = Answer(200, JSON, b'{"status":"ok"}')


def call_of(operation_id: str, **arguments: Any) -> Call[Any]:
    return build_call(find_operation(operation_id), arguments)


HEALTH = call_of("healthz")
CONCLUDE = call_of("declare_conclusion", session_id="s", conclusion_id="a")


class World:
    """A clock that moves by what is waited, and a server that gives these outcomes in turn."""

    def __init__(self, *outcomes: Outcome, chance: float = 1.0, seconds_each: float = 0.0) -> None:
        self.outcomes = list(outcomes)
        self.attempts: list[Attempt] = []
        self.pauses: list[float] = []
        self.heads = Heads()
        self.now = 100.0
        self._seconds_each = seconds_each
        self._keys = iter(f"key-{number}" for number in range(100))
        self.environment = Environment(lambda: self.now, lambda: chance, lambda: next(self._keys))

    def run(self, call: Call[Any] = HEALTH, patience: Patience | None = None, *, pin: bool = False) -> Any:
        steps = exchange(call, patience or Patience(), self.heads, self.environment, pin=pin)
        outcome: Outcome = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as end:
                return end.value
            if isinstance(step, Pause):
                self.pauses.append(step.seconds)
                self.now += step.seconds
                outcome = None
            else:
                self.attempts.append(step)
                self.now += self._seconds_each
                outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]


def fail(status: int, code: str = "BUSY", headers: Mapping[str, str] | None = None) -> Answer:
    body = {"error": {"code": code, "message": "try again", "details": None}}
    return Answer(status, {**JSON, **(headers or {})}, json.dumps(body).encode())


def belief_at(seq: int, event_id: str = "") -> Answer:
    belief = {
        "session_id": "s",
        "ontology": dict.fromkeys(
            ("hypothesis_space_id", "hypothesis_version", "causal_graph_ref", "causal_graph_version"), "x"
        ),
        "n_survivors": 1,
        "entropy_proxy": 0.0,
        "contradiction": False,
        "terminated": False,
        "active_obligation_id": None,
        "audit_head_event_id": event_id or f"e{seq}",
    }
    return Answer(200, {**JSON, "cmbs-head": f"{seq}:{event_id or f'e{seq}'}"}, json.dumps(belief).encode())


@pytest.mark.req("CLIENT-04")
@for_each("status", [429, 502, 503, 504])
def test_a_server_that_cannot_answer_now_is_asked_again(status: int) -> None:
    world = World(fail(status), Unreachable("broken"), OK)
    assert world.run() == Health(status="ok")
    assert (len(world.attempts), world.pauses) == (3, [0.1, 0.2])


@pytest.mark.req("CLIENT-04")
@for_each("status", [400, 401, 403, 404, 409, 412, 413, 422, 500])
def test_no_other_error_is_sent_again(status: int) -> None:
    world = World(fail(status, "NEWER"))
    with pytest.raises(BeliefServerError):
        world.run(CONCLUDE)
    assert len(world.attempts) == 1


@pytest.mark.req("CLIENT-04")
def test_every_attempt_of_a_write_has_one_key_and_every_write_another() -> None:
    world = World(Unreachable("broken"), fail(503), fail(409, "CONFLICT"))
    for _ in range(2):
        with pytest.raises(errors.Conflict):
            world.run(CONCLUDE)
    assert [attempt.headers["idempotency-key"] for attempt in world.attempts] == ["key-0"] * 3 + ["key-1"]
    world.attempts.clear()
    with pytest.raises(errors.Conflict):
        world.run(CONCLUDE.with_headers(idempotency_key="mine"))
    assert world.attempts[0].headers["idempotency-key"] == "mine"


@pytest.mark.req("CLIENT-04")
def test_a_write_with_a_key_of_its_own_is_sent_again_as_it_is() -> None:
    world = World(Unreachable("broken"), fail(409, "CONFLICT"))
    with pytest.raises(errors.Conflict):
        world.run(call_of("eliminate", session_id="s", source_id="probe", eliminated=["a"]))
    first, second = world.attempts
    assert first.call.content == second.call.content
    assert "idempotency-key" not in first.headers
    assert json.loads(first.call.content or b"")["observation_id"]


@pytest.mark.req("CLIENT-04")
def test_the_server_says_how_long_to_wait() -> None:
    world = World(fail(503, headers={"retry-after": "7"}), OK, chance=0.5)
    world.run()
    assert world.pauses == [7.0]
    dated = World(fail(503, headers={"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}), OK)
    dated.run()
    assert dated.pauses == [1.0]
    senseless = World(fail(503, headers={"retry-after": "soon"}), OK)
    senseless.run()
    assert senseless.pauses == [0.1]


@pytest.mark.req("CLIENT-04")
def test_a_pause_that_the_deadline_does_not_allow_is_not_begun() -> None:
    world = World(fail(503, "STORE_UNAVAILABLE", {"retry-after": "31"}))
    with pytest.raises(errors.StoreUnavailable):
        world.run()
    assert (len(world.attempts), world.pauses) == (1, [])


@pytest.mark.req("CLIENT-04", "CLIENT-06")
@given(
    chance=st.floats(0, 1),
    seconds_each=st.floats(0, 40),
    deadline=st.floats(1, 60),
    attempts=st.integers(1, 12),
)
def test_a_call_ends_by_its_deadline_whatever_happens(
    chance: float, seconds_each: float, deadline: float, attempts: int
) -> None:
    patience = Patience(deadline=deadline, attempts=attempts)
    world = World(Unreachable("broken"), chance=chance, seconds_each=seconds_each)
    with pytest.raises(Unreachable):
        world.run(HEALTH, patience)
    assert 1 <= len(world.attempts) <= attempts
    begun = world.now - seconds_each - 100.0
    assert begun <= deadline
    assert all(attempt.until == 100.0 + deadline for attempt in world.attempts)
    assert all(0 < attempt.timeout <= max(patience.timeout, 0.001) for attempt in world.attempts)
    assert all(pause <= patience.longest_pause for pause in world.pauses)


def test_a_call_that_waits_has_the_time_to() -> None:
    world = World(belief_at(1))
    world.run(call_of("query_belief", session_id="s", wait=25))
    assert world.attempts[0].timeout == Patience().timeout + 25
    assert world.attempts[0].until == 100.0 + Patience().deadline + 25


@pytest.mark.req("CLIENT-05")
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8))
def test_a_head_is_never_lower_than_one_that_was_seen(seqs: list[int]) -> None:
    world = World(*map(belief_at, seqs))
    query = call_of("query_belief", session_id="s")
    highest = -1
    for seq in seqs:
        if seq < highest:
            with pytest.raises(HeadWentBack) as raised:
                world.run(query)
            assert (raised.value.seen.seq, raised.value.found.seq) == (highest, seq)
            assert raised.value.stream_id == "s"
            return
        world.run(query)
        highest = seq
        assert world.heads.find("s") == Head(seq, f"e{seq}")


@pytest.mark.req("CLIENT-05")
def test_another_event_in_the_place_of_the_head_is_found_out() -> None:
    world = World(belief_at(3), belief_at(3, "another"))
    query = call_of("query_belief", session_id="s")
    world.run(query)
    with pytest.raises(HeadWentBack):
        world.run(query)


@pytest.mark.req("CLIENT-05")
def test_an_answer_that_was_overtaken_by_another_is_no_lie() -> None:
    world = World(belief_at(3))
    slow = exchange(call_of("query_belief", session_id="s"), Patience(), world.heads, world.environment, pin=False)
    next(slow)
    world.heads.note("s", Head(4, "e4"), None)
    with pytest.raises(StopIteration):
        slow.send(belief_at(3))
    assert world.heads.find("s") == Head(4, "e4")


@pytest.mark.req("CLIENT-05")
def test_a_repeat_tells_nothing_of_the_head() -> None:
    old = belief_at(1)
    world = World(belief_at(3), Answer(200, {**old.headers, "idempotent-replayed": "true"}, old.body))
    query = call_of("query_belief", session_id="s")
    world.run(query)
    world.run(query)
    assert world.heads.find("s") == Head(3, "e3")


@pytest.mark.req("CLIENT-05")
def test_a_pinned_write_names_the_head_that_was_seen() -> None:
    world = World(belief_at(3), fail(PRECONDITION_FAILED, "CONFLICT"))
    world.run(call_of("query_belief", session_id="s"))
    with pytest.raises(errors.HeadMismatch):
        world.run(CONCLUDE, pin=True)
    assert world.attempts[-1].headers["if-match"] == '"e3"'
    with pytest.raises(errors.HeadMismatch):
        world.run(CONCLUDE.with_headers(if_match='"e1"'), pin=True)
    assert world.attempts[-1].headers["if-match"] == '"e1"'
    with pytest.raises(errors.HeadMismatch):
        world.run(CONCLUDE)
    assert "if-match" not in world.attempts[-1].headers


@pytest.mark.req("CLIENT-06")
@for_each(
    "answer",
    [
        Answer(200, JSON, b'{"status":'),
        Answer(200, JSON, b""),
        Answer(200, JSON, b"\xff"),
        Answer(200, JSON, b"[]"),
        Answer(200, JSON, b'{"status":1}'),
        Answer(200, JSON, b"{}"),
        Answer(200, {"content-type": "text/html"}, b"<html>"),
        Answer(200, {}, b'{"status":"ok"}'),
        Answer(204, {}, b""),
        Answer(301, {"location": "https://example.test/"}, b""),
        Answer(304, {}, b""),
        Answer(307, {"location": "/elsewhere"}, b""),
    ],
)
def test_what_is_no_answer_of_the_protocol_is_told_as_such(answer: Answer) -> None:
    with pytest.raises(UnreadableAnswer) as raised:
        World(answer).run()
    assert raised.value.status == answer.status


@pytest.mark.req("CLIENT-06")
def test_an_answer_that_was_cut_is_asked_for_again() -> None:
    world = World(Answer(200, JSON, b'{"status":"o'), OK)
    assert world.run() == Health(status="ok")
    assert len(world.attempts) == 2


@pytest.mark.req("CLIENT-06")
@for_each("body", [b"<html>bad gateway</html>", b'{"error":{}}', b"{", b"\xff"])
@for_each("kind", ["text/html", "application/json"])
def test_an_error_that_a_proxy_made_has_its_status(body: bytes, kind: str) -> None:
    with pytest.raises(RequestFailed) as raised:
        World(Answer(418, {"content-type": kind}, body)).run()
    assert (raised.value.status, raised.value.code) == (418, "HTTP_418")


@pytest.mark.req("CLIENT-06")
def test_a_head_that_makes_no_sense_is_no_head() -> None:
    answer = belief_at(1)
    with pytest.raises(UnreadableAnswer):
        World(Answer(200, {**answer.headers, "cmbs-head": "x:y"}, answer.body)).run(
            call_of("query_belief", session_id="s")
        )


@pytest.mark.req("CLIENT-03")
@for_each("error", [example[0] for example in EXAMPLES], ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_what_it_was(error: BeliefServerError) -> None:
    mismatch = isinstance(error, errors.HeadMismatch)
    status = PRECONDITION_FAILED if mismatch else STATUS_OF_CODE[ErrorCode(error.code)]
    sent = json.loads(json.dumps({"message": error.message, "details": error.details or None}))
    rebuilt = rebuild_error(status, error.code, sent["message"], sent["details"])
    kind = errors.StoreUnavailable if isinstance(error, errors.StoreUnavailable) else type(error)
    assert type(rebuilt) is kind
    assert vars(rebuilt) == vars(error)
    assert str(rebuilt) == str(error)


@pytest.mark.req("CLIENT-04")
@for_each(
    "error",
    [
        errors.StoreUnavailable("the store is away"),
        RequestFailed(503, "BUSY", "as many requests are in progress"),
        RequestFailed(429, "BUSY", "come again"),
    ],
    ids=repr,
)
def test_a_server_in_this_process_that_cannot_answer_now_is_asked_again(error: BeliefServerError) -> None:
    world = World(error, error, OK)
    assert world.run() == Health(status="ok")
    assert (len(world.attempts), world.pauses) == (3, [0.1, 0.2])
    with pytest.raises(type(error)) as raised:
        World(error).run(HEALTH, Patience(attempts=2))
    assert raised.value is error


@pytest.mark.req("CLIENT-04")
@for_each(
    "error",
    [errors.Conflict("taken"), errors.Forbidden("no"), RequestFailed(500, "INTERNAL_ERROR", "the server failed")],
    ids=repr,
)
def test_no_other_error_of_a_server_in_this_process_is_met_again(error: BeliefServerError) -> None:
    world = World(error)
    with pytest.raises(type(error)) as raised:
        world.run(CONCLUDE)
    assert raised.value is error
    assert len(world.attempts) == 1


# --- calls ------------------------------------------------------------------------------------------------------------


@for_each("value", [float("nan"), float("inf"), "\ud800", {1, float("nan")}, object()])
def test_what_json_has_no_words_for_is_refused_before_it_is_sent(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        call_of("observe", session_id="s", probe_id="p", response=value)


@for_each("ids", [["b", "a"], ("b", "a"), {"b": 1, "a": 2}.keys(), (each for each in "ba")])
def test_whatever_holds_ids_is_sent_as_a_list_of_them(ids: Any) -> None:
    call = call_of("eliminate", session_id="s", source_id="probe", eliminated=ids)
    assert json.loads(call.content or b"")["eliminated"] == ["b", "a"]


def test_a_text_is_not_taken_for_a_list_of_its_letters() -> None:
    call = call_of("eliminate", session_id="s", source_id="probe", eliminated="abc")
    # Which a server refuses.
    assert json.loads(call.content or b"")["eliminated"] == "abc"
    assert call_of("explain_symptoms", session_id="s", symptom="abc").pairs == [("symptom", "abc")]


def test_the_query_has_what_was_given() -> None:
    call = call_of("follow_all", from_=0, after=None, kind=["session", "space"], refused=False)
    assert call.pairs == [("from", "0"), ("kind", "session"), ("kind", "space"), ("refused", "false")]


@for_each(
    ("operation_id", "arguments", "message"),
    [
        ("query_beliefs", {}, "there is no operation `query_beliefs`; did you mean `query_belief`"),
        ("query_belief", {}, "`query_belief` needs `session_id`"),
        ("query_belief", {"session_id": "s", "text": "x"}, "`query_belief` has no argument `text`"),
    ],
)
def test_a_call_of_what_there_is_not_is_refused(operation_id: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        call_of(operation_id, **arguments)


@given(st.text(), st.text())
def test_an_id_stays_one_part_of_a_path_whatever_is_in_it(session_id: str, obligation_id: str) -> None:
    call = call_of("request_exit", session_id=session_id, obligation_id=obligation_id)
    assert call.path.count("/") == "/v1/sessions/x/obligations/y/exit".count("/")
    assert not set(call.path) & set("?# ")


def test_the_heads_of_the_streams_used_last_are_known_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cmbs.client.exchange._MAX_HEADS", 2)
    heads = Heads()
    for stream_id in ("a", "b", "a", "c"):
        heads.note(stream_id, Head(1, f"e-{stream_id}"), None)
    assert heads.find("b") is None
    assert [heads.find(each) for each in ("a", "c")] == [Head(1, "e-a"), Head(1, "e-c")]
