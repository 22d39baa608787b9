"""What happens in real sessions and spaces is told to an endpoint that checks signatures by another implementation."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cmbs.audit.fsck import check_stream
from cmbs.audit.transfer import export_lines
from cmbs.errors import BeliefServerError, Conflict, Forbidden, InvalidRequest, LedgerCorrupt, RecordNotFound
from cmbs.messages import Actor, ActorKind
from cmbs.stores import open_store
from cmbs.webhooks.kernel.model import Settings
from cmbs.webhooks.keys import WebhookKey
from cmbs.webhooks.registry import MAX_WEBHOOKS, WebhookRegistry
from tests.support.set_back import execute_unguarded
from tests.support.told import KEY, Telling, Told, telling
from tests.support.webhook_receiver import receiving

pytestmark = pytest.mark.slow

POLICY: dict[str, Any] = {
    "format": 2,
    "title": "restart when one cause is left; flush when an operator agrees",
    "rules": [
        {
            "name": "restart",
            "allow": "service.restart",
            "when": "case.belief.n_survivors == 1",
            "otherwise": "defer",
            "because": "restart only what is known to be the cause",
        },
        {
            "name": "flush",
            "allow": "cache.flush",
            "when": 'fact.maintenance == "yes"',
            "otherwise": "ask",
            "because": "a flush outside maintenance needs a person",
        },
    ],
}


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'cmbs.db'}"


@pytest.fixture
def told(store: str) -> Iterator[Told]:
    with receiving() as receiver, telling(store, receiver) as made:
        yield made


def open_space(told: Told) -> None:
    operator, tools = told.operator, ["service.restart", "cache.flush"]
    operator.create_space("shop", policy_file=POLICY)
    for tool_id in tools:
        operator.register_tool("shop", tool_id=tool_id, kind="caller", args_schema={"type": "object"})
    operator.issue_capability("shop", token_id="t", agent_id="planner", tool_ids=tools)


def check_handles(told: Told, data: dict[str, Any]) -> None:
    """The ledger has the entry that was named, and the paths lead to what there is."""
    events = (
        told.operator.space_audit(data["space_id"]).events
        if "space_id" in data
        else told.operator.audit_trace(data["session_id"]).events
    )
    (entry,) = [each for each in events if each.seq == data["seq"]]
    assert (entry.event_id, entry.event_hash) == (data["event_id"], data["event_hash"])
    for path in (data["path"], data["proof_path"]):
        assert told.get(path).status_code == 200


# --- the five kinds ---


@pytest.mark.req("WEBHOOK-02", "WEBHOOK-04")
def test_a_conclusion_and_a_contradiction_are_told(told: Told) -> None:
    told.register("w", ["session.concluded", "session.contradiction"])
    session_id = told.declare(title="checkout is slow")
    told.agent.declare_conclusion(session_id, "a")
    assert told.take()[1]["data"]["conclusion_id"] == "a"
    told.agent.eliminate(session_id, source_id="s", observation_id="1", eliminated=["a"])
    told.agent.eliminate(session_id, source_id="s", observation_id="2", eliminated=["b"])
    # It leaves nothing newly out, and is not told.
    told.agent.eliminate(session_id, source_id="s", observation_id="3", eliminated=["b"])
    name, content = told.take()
    assert (name, content["type"]) == ("w", "session.contradiction")
    assert content["data"] | {"n_universe": 2, "title": "checkout is slow", "seq": 3} == content["data"]
    check_handles(told, content["data"])
    # What a fork repeats is not told again, and what happens in it is.
    fork = told.agent.fork_session(session_id, at=2).session_id
    told.agent.declare_conclusion(fork, "b")
    content = told.take()[1]
    assert (content["data"]["session_id"], content["data"]["conclusion_id"]) == (fork, "b")
    assert told.receiver.requests.empty()


@pytest.mark.req("WEBHOOK-04")
def test_a_refused_conclusion_is_not_told_and_an_obligation_that_is_left_is(told: Told) -> None:
    told.register("w", ["session.concluded", "gate.opened"])
    session_id = told.declare()
    told.agent.enter_obligation(session_id, obligation_id="look", min_total_eliminations=1)
    assert not told.agent.declare_conclusion(session_id, "a").accepted
    assert not told.agent.request_exit(session_id, "look").approved
    told.agent.eliminate(session_id, source_id="s", observation_id="1", eliminated=["a"])
    assert told.agent.request_exit(session_id, "look").approved
    content = told.take()[1]
    assert (content["type"], content["data"]["gate"], content["data"]["obligation_id"]) == (
        "gate.opened",
        "obligation",
        "look",
    )
    check_handles(told, content["data"])
    assert told.receiver.requests.empty()


def propose(told: Told, tool_id: str, case_id: str, number: int) -> Any:
    snapshot = told.operator.get_space("shop").state_snapshot_id
    provenance = {"source": "planner", "timestamp": "2026-01-01T00:00:00Z", "inputs": [], "permissions": ["t"]}
    call: dict[str, Any] = {
        "type": "tool_call",
        "tool_id": tool_id,
        "args": {"password": "hunter2"},
        "capability_token_id": "t",
        "idempotency_key": f"{case_id}-{number}",
    }
    return told.agent.propose(
        "shop",
        proposal_id=f"{case_id}-{number}",
        state_snapshot_id=snapshot,
        provenance=provenance,
        candidates=[call],
        case_id=case_id,
    )


@pytest.mark.req("WEBHOOK-04")
def test_an_approval_that_is_wanted_and_a_gate_that_opens_are_told(told: Told) -> None:
    open_space(told)
    told.register("w", ["approval.wanted", "gate.opened"])
    told.register("labelled", ["approval.wanted", "gate.opened"], labels={"team": "payments", "tier": "1"})
    told.register("other", ["approval.wanted", "gate.opened"], labels={"team": "billing"})
    told.register("elsewhere", ["approval.wanted", "gate.opened"], space_ids=["lab"])
    session_id = told.declare(labels={"team": "payments"})
    told.operator.name_case(session_id, name="INC-1")
    told.operator.open_case("shop", "INC-1", agents=["planner"], labels={"tier": "1"})
    asked = propose(told, "cache.flush", "INC-1", 1)
    wanted = dict([told.take(), told.take()])
    assert wanted.keys() == {"w", "labelled"}
    data = wanted["w"]["data"]
    assert (data["proposal_id"], data["case_id"], data["session_id"]) == ("INC-1-1", session_id, session_id)
    assert [each["approval_id"] for each in data["approvals"]] == asked.approval_ids
    assert data["approvals"][0]["tool_id"] == "cache.flush"
    assert data["n_approvals"] == 1
    # Arguments are for who may read them.
    assert "hunter2" not in json.dumps(wanted)
    check_handles(told, data)
    assert propose(told, "service.restart", "INC-1", 2).status == "parked"
    told.agent.eliminate(session_id, source_id="s", observation_id="1", eliminated=["a"])
    opened = dict([told.take(), told.take()])
    assert opened.keys() == {"w", "labelled"}
    data = opened["w"]["data"]
    assert opened["w"]["type"] == "gate.opened"
    assert (data["gate"], data["proposal_id"], data["candidates"]) == ("proposal", "INC-1-2", [0])
    check_handles(told, data)
    assert told.receiver.requests.empty()


@pytest.mark.req("WEBHOOK-04")
def test_damage_is_told_once_to_those_who_may_want_it(store: str) -> None:
    with receiving() as receiver:
        with telling(store, receiver) as told:
            session_id, other = told.declare(), told.declare()
            told.register("w", ["ledger.corrupt"])
            told.register("mine", ["ledger.corrupt"], session_ids=[session_id])
            told.register("theirs", ["ledger.corrupt"], session_ids=[other])
            told.agent.eliminate(session_id, source_id="s", observation_id="1", eliminated=["a"])
        change = f"UPDATE audit_events SET entry = replace(entry, '\"s\"', '\"t\"') WHERE stream_id = '{session_id}'"
        execute_unguarded(store, f"{change} AND seq = 1")
        before = dict(told.secrets)
        with telling(store, receiver) as told:
            told.secrets = before
            for _ in range(2):
                with pytest.raises(LedgerCorrupt):
                    told.agent.query_belief(session_id)
            found = dict([told.take(), told.take()])
            assert found.keys() == {"w", "mine"}
            assert (
                found["w"]["data"] | {"stream_id": session_id, "session_id": session_id, "seq": 1} == found["w"]["data"]
            )
            # What is well is still told, and the damage is not told again.
            told.register("well", ["session.concluded"])
            told.agent.declare_conclusion(other, "a")
            assert told.take()[0] == "well"
            assert receiver.requests.empty()


# --- delivery ---


@pytest.mark.req("WEBHOOK-05")
def test_a_failure_is_tried_again_under_the_same_id_and_each_try_is_listed(told: Told) -> None:
    told.register("w", ["session.concluded"])
    for status in (500, 503):
        told.receiver.answers.put(status)
    told.agent.declare_conclusion(told.declare(), "a")
    requests = [told.receiver.take() for _ in range(3)]
    assert len({each.message_id for each in requests}) == 1
    assert len({each.body for each in requests}) == 1
    for each in requests:
        told.verify(each)
    told.receiver.wait_until(lambda: told.operator.get_webhook("w").webhook.n_pending == 0)
    (delivery,) = told.operator.list_deliveries("w").deliveries
    assert (delivery.delivery_id, delivery.status, delivery.n_attempts) == (requests[0].message_id, "delivered", 3)
    assert [(each.number, each.status, each.error) for each in delivery.attempts] == [
        (1, 500, "answered 500"),
        (2, 503, "answered 503"),
        (3, 204, None),
    ]
    assert all(each.duration_ms is not None for each in delivery.attempts)
    assert delivery.payload == json.loads(requests[0].body)
    # By hand it is sent once more, under the same id.
    assert told.operator.redeliver("w", delivery.delivery_id).delivery.status == "pending"
    assert told.receiver.take().message_id == delivery.delivery_id


@pytest.mark.req("WEBHOOK-05")
def test_an_endpoint_that_is_gone_is_disabled_and_goes_on_where_it_stood(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    told.register("w", ["session.concluded"])
    told.receiver.answers.put(410)
    told.agent.declare_conclusion(told.declare(), "a")
    told.receiver.take()
    told.receiver.wait_until(lambda: told.operator.get_webhook("w").webhook.status == "disabled")
    shown = told.operator.get_webhook("w").webhook
    assert (shown.disabled_because, shown.disabled_reason) == ("gone", "the endpoint answered 410: it is gone")
    assert told.operator.list_deliveries("w", status="failed").deliveries[0].attempts[0].status == 410
    missed = told.declare()
    told.agent.declare_conclusion(missed, "b")
    told.operator.test_webhook("w")
    assert told.operator.enable_webhook("w").webhook.status == "active"
    types = {told.take()[1]["type"], told.take()[1]["type"]}
    assert types == {"webhook.test", "session.concluded"}
    # With `skip`, what happened meanwhile is left out.
    told.operator.disable_webhook("w", reason="moving")
    assert told.operator.disable_webhook("w").webhook.disabled_reason == "moving"
    told.agent.declare_conclusion(missed, "a")
    told.operator.enable_webhook("w", skip=True)
    told.agent.declare_conclusion(missed, "last")
    assert told.take()[1]["data"]["conclusion_id"] == "last"
    assert "webhook `w` is disabled: the endpoint answered 410" in caplog.text


@pytest.mark.slow
@pytest.mark.req("WEBHOOK-09")
def test_an_endpoint_that_does_not_answer_holds_up_no_writer_and_no_other_endpoint(told: Told) -> None:
    told.receiver.answering.clear()
    told.register("slow", ["session.concluded"])
    session_id = told.declare()
    for number in range(20):
        assert told.agent.declare_conclusion(session_id, f"c{number}").accepted
    held = [told.receiver.take() for _ in range(4)]
    assert len({each.message_id for each in held}) == 4
    with receiving() as other:
        made = told.operator.create_webhook("quick", other.url, ["session.concluded"])
        told.agent.declare_conclusion(session_id, "last")
        assert made.secret is not None
        assert other.take().verify(made.secret)["data"]["conclusion_id"] == "last"
        # Of the slow one no more than four are under way.
        assert told.receiver.requests.empty()
        told.receiver.answering.set()
        for _ in range(17):
            told.receiver.take()


@pytest.mark.req("WEBHOOK-06")
def test_of_two_processes_one_sends_an_event(told: Told, store: str) -> None:
    told.register("w", ["session.concluded"])
    with closing(Telling(store)) as other:
        other.dispatcher.start()
        session_id = told.declare()
        for number in range(10):
            told.agent.declare_conclusion(session_id, f"c{number}")
        ids = [told.receiver.take().message_id for _ in range(10)]
        assert len(set(ids)) == 10
        told.receiver.wait_until(lambda: told.operator.get_webhook("w").webhook.n_pending == 0)
        assert told.receiver.requests.empty()
        deliveries = told.operator.list_deliveries("w").deliveries
        assert [each.n_attempts for each in deliveries] == [1] * 10


@pytest.mark.req("WEBHOOK-06", "WEBHOOK-09")
def test_more_than_there_is_room_for_waits_in_the_ledger(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cmbs.webhooks.dispatcher.MAX_PENDING", 3)
    told.receiver.answering.clear()
    told.register("w", ["session.concluded"])
    session_id = told.declare()
    for number in range(8):
        told.agent.declare_conclusion(session_id, f"c{number}")
    first = [told.receiver.take() for _ in range(3)]
    assert told.operator.get_webhook("w").webhook.n_pending == 3
    told.receiver.answering.set()
    ids = {each.message_id for each in [*first, *(told.receiver.take() for _ in range(5))]}
    assert len(ids) == 8


# --- on record ---


@pytest.mark.req("WEBHOOK-01", "WEBHOOK-03")
def test_everything_is_on_record_and_no_secret_is(told: Told, store: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told.register("w", ["session.concluded"])
    first = told.secrets["w"]
    made = told.operator.rotate_webhook_secret("w", 2, overlap_seconds=60)
    assert made.secret not in (None, first)
    told.operator.test_webhook("w")
    received = told.receiver.take()
    assert received.verify(first) == received.verify(made.secret or "")
    told.receiver.wait_until(lambda: told.operator.get_webhook("w").webhook.n_pending == 0)
    told.operator.delete_webhook("w", reason="over")
    log = told.process.belief.log
    report = check_stream(log, "webhook:w")
    assert report.findings == []
    assert report.summary == "0 deliveries of a webhook wait"
    verbs = [json.loads(each.raw)["verb"] for each in log.read("webhook:w")]
    assert verbs == [
        *("CREATE_WEBHOOK", "ROTATE_SECRET", "ADD_EVENT", "BEGIN_ATTEMPT", "END_ATTEMPT", "DELETE_WEBHOOK"),
    ]
    actors = [json.loads(each.raw)["actor"]["id"] for each in log.read("webhook:w")]
    assert actors == ["ops", "ops", "ops", "webhooks", "webhooks", "ops"]
    shown = "".join(map(str, export_lines(log, [*log.streams("space:", None, 10)])))
    database = b"".join(path.read_bytes() for path in Path(store.removeprefix("sqlite:///")).parent.glob("cmbs.db*"))
    for secret in (first, made.secret or ""):
        bare = secret.removeprefix("whsec_")
        assert bare.encode() not in database
        assert bare not in shown + caplog.text + repr(made) + told.get("/v1/webhooks").text
    with pytest.raises(RecordNotFound):
        told.operator.get_webhook("w")
    with pytest.raises(Conflict, match="was deleted"):
        told.operator.create_webhook("w", told.receiver.url, ["gate.opened"])


@pytest.mark.req("WEBHOOK-08")
def test_a_registration_that_was_written_by_hand_is_told_nothing(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    with receiving() as thief:
        # All that a chain asks for, from a process that can write to the store, and without the key.
        forger = WebhookRegistry(told.process.belief.log, WebhookKey(bytes(32)))
        forged = Settings("forged", thief.url, ("session.concluded",))
        forger.create(forged, Actor(ActorKind.OPERATOR, "ops"))
        told.register("w", ["session.concluded"])
        told.agent.declare_conclusion(told.declare(), "a")
        assert told.take()[0] == "w"
        assert told.operator.get_webhook("forged").webhook.status == "unusable"
        with pytest.raises(InvalidRequest, match="not registered with the webhook key"):
            told.operator.rotate_webhook_secret("forged", 2)
        # Nor can a rotation by hand make a good one theirs.
        forger.key = KEY
        stolen = forger.get("w")
        forger.key = WebhookKey(bytes(32))
        with pytest.raises(InvalidRequest):
            forger.rotate(stolen.webhook_id, 2, Actor(ActorKind.OPERATOR, "ops"))
        assert thief.requests.empty()
    assert "`forged` is told nothing" in caplog.text


@pytest.mark.req("WEBHOOK-08")
def test_a_stream_that_does_not_verify_is_told_nothing(store: str, caplog: pytest.LogCaptureFixture) -> None:
    with receiving() as receiver, receiving() as thief:
        with telling(store, receiver) as told:
            told.register("w", ["session.concluded"])
        change = f"UPDATE audit_events SET entry = replace(entry, '{receiver.url}', '{thief.url}')"
        execute_unguarded(store, f"{change} WHERE stream_id = 'webhook:w'")
        secrets = told.secrets
        with telling(store, receiver) as told:
            told.secrets = secrets
            told.register("good", ["session.concluded"])
            told.agent.declare_conclusion(told.declare(), "a")
            assert told.take()[0] == "good"
            with pytest.raises(LedgerCorrupt):
                told.operator.get_webhook("w")
        assert thief.requests.empty()
    assert "a webhook is told nothing" in caplog.text


# --- who may, and what is refused ---


@pytest.mark.req("WEBHOOK-01")
def test_all_of_it_is_for_operators(told: Told) -> None:
    told.register("w", ["session.concluded"])
    agent = told.agent
    acts: list[Callable[[], Any]] = [
        lambda: agent.create_webhook("x", told.receiver.url, ["gate.opened"]),
        agent.list_webhooks,
        lambda: agent.get_webhook("w"),
        lambda: agent.rotate_webhook_secret("w", 2),
        lambda: agent.disable_webhook("w"),
        lambda: agent.enable_webhook("w"),
        lambda: agent.delete_webhook("w"),
        lambda: agent.test_webhook("w"),
        lambda: agent.list_deliveries("w"),
        lambda: agent.redeliver("w", "msg_1"),
    ]
    for act in acts:
        with pytest.raises(Forbidden):
            act()


def test_a_repeated_registration_does_not_show_the_secret_again(told: Told) -> None:
    told.register("w", ["session.concluded"])
    again = told.operator.create_webhook("w", f"{told.receiver.url}/w", ["session.concluded"])
    assert (again.secret, again.replayed) == (None, True)
    with pytest.raises(Conflict, match="other settings"):
        told.operator.create_webhook("w", f"{told.receiver.url}/w", ["gate.opened"])


@pytest.mark.req("WEBHOOK-07")
def test_an_address_that_is_not_sent_to_is_not_registered(subtests: pytest.Subtests, told: Told) -> None:
    for url in ["http://10.0.0.1/", "https://169.254.169.254/", "http://93.184.215.14/", "file:///etc"]:
        with subtests.test(url=url):
            with pytest.raises(InvalidRequest) as refused:
                told.operator.create_webhook("w", url, ["gate.opened"])
            assert refused.value.details["field"] == "url"


def test_pages_of_webhooks_and_deliveries(told: Told) -> None:
    for name in ("a", "b", "c"):
        told.register(name, ["gate.opened"])
    assert [each.webhook_id for each in told.operator.each(told.operator.list_webhooks, limit=2)] == ["a", "b", "c"]
    told.operator.disable_webhook("a")
    for _ in range(3):
        told.operator.test_webhook("a")
    listed = list(told.operator.each(told.operator.list_deliveries, "a", limit=2))
    assert [each.status for each in listed] == ["pending"] * 3
    assert [each.ts for each in listed] == sorted((each.ts for each in listed), reverse=True)
    assert told.operator.list_deliveries("a", status="delivered").deliveries == []
    with pytest.raises(BeliefServerError, match="status"):
        told.operator.list_deliveries("a", status="lost")
    with pytest.raises(RecordNotFound):
        told.operator.redeliver("a", "msg_unknown")


def test_without_a_webhook_key_webhooks_are_looked_at_and_ended_alone() -> None:
    log = open_store("memory:")
    WebhookRegistry(log, KEY).create(
        Settings("w", "https://a.example", ("gate.opened",)), Actor(ActorKind.OPERATOR, "o")
    )
    keyless = WebhookRegistry(log)
    with pytest.raises(InvalidRequest, match="no webhook key"):
        keyless.create(Settings("x", "https://a.example", ("gate.opened",)), Actor(ActorKind.OPERATOR, "o"))
    assert keyless.get("w").is_active
    keyless.delete("w", "", Actor(ActorKind.OPERATOR, "o"))
    assert list(keyless.read_all()) == []


def test_the_number_of_webhooks_is_bounded() -> None:
    registry = WebhookRegistry(open_store("memory:"), KEY)
    ops = Actor(ActorKind.OPERATOR, "o")
    for number in range(MAX_WEBHOOKS):
        registry.create(Settings(f"w{number}", "https://a.example", ("gate.opened",)), ops)
    with pytest.raises(BeliefServerError, match="at most 100"):
        registry.create(Settings("more", "https://a.example", ("gate.opened",)), ops)
    # One that is there is answered all the same.
    assert registry.create(Settings("w1", "https://a.example", ("gate.opened",)), ops).secret is None
    assert re.fullmatch(r"w\d+", next(registry.read_all()).webhook_id)
