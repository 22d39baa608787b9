"""Plays every verb of every kind of stream, with most of the ways in which it can end, on an owned clock and ids.

`make golden` writes what comes of it: a SQLite database and its export.
"""

from __future__ import annotations

import gzip
import secrets
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing, suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cmbs.audit.plain_rows import all_sessions, all_streams
from cmbs.audit.transfer import export_lines
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError
from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.identity.kernel.scopes import Role, Scope
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import Actor, ActorKind, OntologyBundle, SessionPolicy
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import HEADS_STREAM, KIT_PREFIX, NAMES_STREAM, WEBHOOK_PREFIX
from cmbs.stores import open_store
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import (
    Approve,
    ConflictState,
    DisputeMemory,
    Evidence,
    IssueCapability,
    MemoryKind,
    Mode,
    OutcomeStatus,
    PromoteMemory,
    Propose,
    ProposePolicy,
    PutMemory,
    RecordOutcome,
    RegisterTool,
    Reject,
    RetireTool,
    RevokeCapability,
    SetGovernance,
    SetMode,
    SettlePolicy,
    SpaceMessage,
    Withdraw,
)
from cmbs.substrate.kernel.model import Budget, Capability, ScopeMatch, StateDelta, Tool, ToolKind
from cmbs.substrate.kernel.model import Scope as ArgumentScope
from cmbs.testing.fakes.environment import ManualClock, SequentialIds
from tests.golden.play_cases import act_in_cases
from tests.golden.play_others import go_on, play_kit, play_webhooks, record_heads
from tests.support.spaces import (
    AGENT,
    ANY,
    ENCODER,
    OTHER_AGENT,
    ROOT,
    SECOND,
    SPACE,
    STREAM,
    ScriptedRunner,
    World,
    call,
    caller_tool,
    change_policy,
    constraint,
    delta,
    eventually,
    facts,
    http_tool,
    raw,
)

GOLDEN = Path(__file__).parent / "cmbs-1"
ONTOLOGY = OntologyBundle("checkout-latency", "3", "graph://checkout", "v17")
# Ids that strangely written software gets wrong.
UGLY_IDS = [
    "",
    "a\x00b",
    "\x7f",
    "\u00e9",
    "e\u0301",
    "\uffee",
    "\U0001f600",
    "'; --",
    '"\\',
    "\u202eabc",
    " ",
    300 * "x",
]
CALLER = Actor(ActorKind.AGENT, "agent \U0001f600", authenticated=True)


class TrafficLights:
    """A hypothesis provider: which of three lights is broken."""

    def id(self) -> str:
        return "traffic-lights"

    def version(self) -> str:
        return "1"

    def hypothesis_ids(self) -> Collection[str]:
        return ["amber", "green", "red"]

    def probe_ids(self) -> Collection[str]:
        return ["glows"]

    def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, bool]:
        return {light: light in response["glowing"] for light in ("amber", "green", "red")}


def play_sessions(log: AuditLog, clock: ManualClock) -> str:
    """Sessions with every verb and every reason; the id of one with an open obligation and one hypothesis left over."""
    server = BeliefServer(store=log, clock=clock, ids=SequentialIds(1), belief_provider=None)  # type: ignore[arg-type]
    _play_a_whole_session(server)
    _play_ugly_session(server)
    _play_forced_session(server, allow=True)
    _play_forced_session(server, allow=False)
    provided = BeliefServer(store=log, clock=clock, ids=SequentialIds(2), belief_provider=TrafficLights())  # type: ignore[arg-type]
    probed = provided.declare_session(ONTOLOGY, None, {"kit": "lights"}).session_id
    provided.apply_probe(probed, "glows", {"glowing": ["green"], "lux": 1.5})
    provided.eliminate(probed, "eyes", "1", ["red"])
    provided.declare_conclusion(probed, "amber")
    left = server.declare_session(ONTOLOGY, ["bad-deploy", "disk-full", "dns"]).session_id
    server.enter_obligation(left, "look", 2)
    server.eliminate(left, "probe", "disk", ["disk-full"])
    return left


def _play_a_whole_session(server: BeliefServer) -> None:
    policy = SessionPolicy(validate_hypotheses=True, stability_window=2)
    options: dict[str, Any] = {"policy": policy, "idempotency_key": "declare once"}
    session_id = server.declare_session(ONTOLOGY, ["d", "b", "a", "c"], {"team": "sre", "n": 1.5}, **options).session_id
    server.declare_session(ONTOLOGY, ["d", "b", "a", "c"], {"team": "sre", "n": 1.5}, **options)
    server.enter_obligation(session_id, "g1", 2, idempotency_key="enter")
    server.enter_obligation(session_id, "g0", 0)
    server.declare_conclusion(session_id, "too early")
    server.request_exit(session_id, "g1", {"why": "hurry"})
    server.request_exit(session_id, "g0")
    server.request_exit(session_id, "g0")
    server.request_termination(session_id)
    server.eliminate(session_id, "s", "1", ["b", "a"], {"log": "line 7"})
    server.eliminate(session_id, "s", "1", ["a", "b"])
    server.eliminate(session_id, "s", "2", [])
    server.eliminate(session_id, "t", "2", ["a"], idempotency_key="eliminate")
    with suppress(BeliefServerError):
        server.eliminate(session_id, "s", "3", ["unknown"])
    server.request_exit(session_id, "g1")
    server.request_termination(session_id)
    server.declare_conclusion(session_id, "c", {"by": "on-call"})
    server.eliminate(session_id, "s", "4", ["d"])
    server.request_termination(session_id)
    server.declare_conclusion(session_id, "c")
    server.request_termination(session_id, {"ticket": 5}, idempotency_key="end")


def _play_ugly_session(server: BeliefServer) -> None:
    session_id = server.declare_session(ONTOLOGY, [f"h{text}" for text in UGLY_IDS]).session_id
    for place, text in enumerate(UGLY_IDS[1:]):
        with suppress(BeliefServerError):
            server.eliminate(session_id, f"s{text}", text, [f"h{text}", text], {text: text} if place % 2 else None)
    message = server.requests.eliminate("s", "by an actor", ["h"], None)
    command = server.requests.command(session_id, message, "key \u202e")
    server._sessions.perform(msgspec.structs.replace(command, actor=CALLER))


def _play_forced_session(server: BeliefServer, *, allow: bool) -> None:
    session_id = server.declare_session(ONTOLOGY, ["a", "b"], policy=SessionPolicy(allow_force=allow)).session_id
    server.eliminate(session_id, "s", "1", ["not declared"])
    server.request_termination(session_id, {"force": True, "because": "asked"})


def play_space(log: AuditLog, clock: ManualClock, session_id: str) -> None:
    """A space with every verb, most reasons, and decisions that rest on what a session says."""
    belief = BeliefServer(store=log, clock=clock, ids=SequentialIds(3))  # type: ignore[arg-type]
    world = World(log, belief=ServedBelief(belief), runner=ScriptedRunner(), clock=clock, space=4)
    with closing(world):
        _govern(world, session_id)
        _equip(world)
        _propose_all_ways(world)
        _call_all_ways(world)
        _ask_and_wait(world)
        _withdraw(world)
        _wait_for_belief(world, belief, session_id)
        _remember(world, session_id, belief)
        act_in_cases(world, belief)
        _observe(world)
        _govern_alone(world)


def _say(world: World, message: SpaceMessage, actor: Actor = ROOT, **parts: Any) -> None:
    with suppress(BeliefServerError):
        world.say(message, actor, **parts)


def _govern(world: World, session_id: str) -> None:
    alone = {
        "op": "all",
        "args": [
            {"op": "schema", "args": [f"$belief.{session_id}.n_survivors", {"const": 1}]},
            {"op": "eq", "args": [f"$belief.{session_id}.active_obligation_id", None]},
        ],
    }
    world.create(
        {
            "constraint.any": ANY,
            "constraint.ask": constraint(effect="deny", subject={"tool_id": "pay"}, on_fail="ask", reason="it costs"),
            "constraint.never": constraint(effect="deny", subject={"tool_id": "rm"}, reason="never \U0001f600"),
            "constraint.wait": constraint(
                effect="deny", subject={"tool_id": "ship"}, on_fail="defer", when={"op": "missing", "args": ["fact.ok"]}
            ),
            "constraint.unless": constraint(
                effect="deny",
                subject={"tool_id": "restart"},
                on_fail="defer",
                when={"op": "not", "args": [alone]},
            ),
            "policy.exclusive.colour": '["goal.red","goal.blue"]',
            "policy.invariant.small": '{"op":"any","args":[{"op":"missing","args":["goal.size"]},'
            '{"op":"in","args":["goal.size",["1","2"]]}]}',
            "policy.degrade.rm": '{"mode":"dry-run"}',
            "policy.memory.confidence_threshold": "0.8",
            "policy.private": '["fact.secret"]',
            "policy.value.x": "1",
        }
    )
    base = world.space.policy.policy_hash
    _say(world, ProposePolicy("c1", base, {"policy.value.x": "2"}, ["policy.private"], "tidy"), idempotency_key="c1")
    _say(world, ProposePolicy("c1", base, {"policy.value.x": "2"}, ["policy.private"], "tidy"), idempotency_key="c1")
    _say(world, SettlePolicy("c1", True), ROOT)
    _say(world, SettlePolicy("c1", True), AGENT)
    _say(world, ProposePolicy("c2", base, {"policy.value.y": "1"}), ROOT)
    _say(world, ProposePolicy("c3", base, {"policy.value.y": "1"}), AGENT)
    _say(world, SettlePolicy("c1", True, "fine"), SECOND)
    _say(world, SettlePolicy("c2", True), SECOND)
    _say(world, SettlePolicy("c2", False, "moved"), SECOND)


def _equip(world: World) -> None:
    schema = raw({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}})
    world.equip(
        caller_tool("write", facts={"fact.seen": "seen", "fact.gone": "gone.deep"}, caller_facts=True),
        caller_tool("claim", facts={"fact.claimed": "claimed"}),
        caller_tool("read", writes=False),
        caller_tool("pay"),
        caller_tool("rm"),
        caller_tool("ship"),
        caller_tool("old"),
        caller_tool("strict", result_schema=schema, max_result_bytes=50),
        Tool("typed", ToolKind.CALLER, schema),
        http_tool("restart", idempotent=True, timeout_ms=1_000),
        http_tool("fetch", facts={"fact.fetched": ""}),
        budget=Budget(calls=60),
        capabilities=["net"],
    )
    _say(world, RegisterTool(caller_tool("other")), AGENT)
    _say(world, RetireTool("old"), AGENT)
    _say(world, RetireTool("old"))
    scoped = Capability("scoped", AGENT.id, ["write"], scopes=[ArgumentScope("path", ScopeMatch.PREFIX, "/data/")])
    for capability, issuer in (
        (scoped, ROOT),
        (scoped, ROOT),
        (Capability("poor", AGENT.id, ["write"], budget=Budget(calls=0)), ROOT),
        (Capability("short", AGENT.id, ["write"], expires_at="2026-01-01T00:10:00.000000Z"), ROOT),
        (Capability("gone", AGENT.id, ["write"]), ROOT),
        (Capability("theirs", OTHER_AGENT.id, ["write"]), ROOT),
        (Capability("child", OTHER_AGENT.id, ["write"], budget=Budget(calls=2), parent_id="token"), AGENT),
        (Capability("wide", OTHER_AGENT.id, ["write", "x"], budget=Budget(calls=2), parent_id="token"), AGENT),
        (Capability("mine", AGENT.id, ["write"]), AGENT),
    ):
        _say(world, IssueCapability(capability), issuer)
    _say(world, RevokeCapability("gone"), OTHER_AGENT)
    _say(world, RevokeCapability("gone", "leaked"))


def _propose_all_ways(world: World) -> None:
    before = world.space.snapshot_id
    ugly = {f"goal.{text}": text for text in ("\u00e9", "\uffee", "\U0001f600", "a\x00b")}
    made = world.proposal(StateDelta(ugly), proposal_id="p\U0001f600", inputs=["i"], permissions=["token"])
    _say(world, Propose(made), AGENT)
    _say(world, Propose(made), AGENT)
    ways: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((delta(a="1"), delta(b="2")), {}),
        ((), {}),
        ((StateDelta({"elsewhere": "1"}),), {}),
        ((delta(a="1"), delta(a="2")), {}),
        ((delta(a="1"), delta(c="3"), delta(a="2")), {"atomic": False}),
        ((delta(a="2"),), {"snapshot_id": before}),
        ((delta(a="2"),), {"snapshot_id": "never"}),
        ((delta(a="2"),), {"permissions": ["theirs"]}),
        ((facts(a="2"),), {}),
        ((facts(a="2", ok=""),), {"actor": ENCODER}),
        ((StateDelta({}, ["fact.ok"]),), {"actor": ENCODER}),
        ((delta(red="1"),), {}),
        ((delta(blue="1"),), {}),
        ((delta(size="3"),), {}),
        ((delta(size="2"), delta(["goal.a"])), {}),
        ((call("nothing"), delta(d="1")), {}),
        ((call("nothing"), delta(d="1")), {"atomic": False}),
    ]
    for candidates, parts in ways:
        with suppress(BeliefServerError):
            world.propose(*candidates, **parts)


def _call_all_ways(world: World) -> None:
    for made in (
        call("old"),
        call("write", [1]),
        call("typed", {"n": "text"}),
        call("write", key=None),
        call("write", token=None),
        call("write", token="unknown"),
        call("write", token="theirs"),
        call("write", token="gone"),
        call("read", token="scoped"),
        call("write", {"path": "/etc"}, token="scoped"),
        call("write", token="poor"),
        call("rm", {"path": "/"}),
    ):
        with suppress(BeliefServerError):
            world.propose(made)
    written = world.start(call("write", {"x": [1.5, "\U0001f600"]}), delta(e="1"))
    world.propose(call("write", {"x": [1.5, "\U0001f600"]}), delta(f="1"))
    world.propose(call("write", {"x": 2}))
    _say(world, RecordOutcome(written, OutcomeStatus.SUCCEEDED), OTHER_AGENT)
    world.report(written, result={"seen": {"n": 1}})
    world.report(written, result={"seen": {"n": 1}})
    for number, status in enumerate(OutcomeStatus):
        world.report(world.start(call("write", key=f"s{number}"), delta(g=str(number))), status)
    world.report(world.start(call("strict", key="s1")), result={"n": "text"})
    world.report(world.start(call("strict", key="s2")), result={"n": 1, "more": "x" * 60})
    world.report(world.start(call("strict", key="s3")), result={"n": 1})
    child = call("write", key="child", token="child")
    world.propose(child, actor=OTHER_AGENT)
    moved = world.start(call("write", key="moved"), delta(h="1"))
    world.propose(delta(h="2"))
    world.report(moved)
    world.advance(minutes=11)
    world.propose(call("write", key="late", token="short"))
    _run_on_the_server(world)


def _run_on_the_server(world: World) -> None:
    for number, status in enumerate((OutcomeStatus.SUCCEEDED, OutcomeStatus.FAILED, OutcomeStatus.TIMED_OUT)):
        world.runner.status = status
        world.propose(call("fetch", key=f"f{number}"), proposal_id=f"fetch{number}")
        world.server.wait_for(SPACE, f"fetch{number}", 10)
    world.runner.status, world.runner.unknown = OutcomeStatus.SUCCEEDED, True
    world.propose(call("fetch", key="lost"), proposal_id="lost")
    _let_tools_run(world)
    world.advance(minutes=1)
    (execution_id,) = world.space.proposals["lost"].execution_ids
    _say(world, RecordOutcome(execution_id, OutcomeStatus.FAILED), SECOND)
    world.runner.unknown = False


def _let_tools_run(world: World) -> None:
    """Wait until tools that run on the server were asked: their threads read the clock, and then it is ours again."""
    served = [each for each in world.space.executions.values() if each.tool.kind is ToolKind.HTTP]
    assert eventually(lambda: len(world.runner.calls) >= sum(each.intent.attempt for each in served))


def _ask_and_wait(world: World) -> None:
    for number in range(5):
        world.propose(call("pay", {"amount": number}, key=f"pay{number}"), delta(paid="1"), ask_ms=60_000)
    asked = sorted(each for each, known in world.space.approvals.items() if known.status == "pending")
    _say(world, Approve(asked[0]), AGENT)
    _say(world, Approve(asked[0], call_hash="0" * 64))
    _say(world, Approve(asked[0], 2, "2027-01-01T00:00:00.000000Z"))
    _report_all(world)
    world.propose(call("pay", {"amount": 0}, key="pay again"))
    _report_all(world)
    _say(world, Reject(asked[1], "no"), OTHER_AGENT)
    _say(world, Reject(asked[1], "no"), SECOND)
    _say(world, Reject(asked[2]), AGENT)
    world.propose(call("ship", key="ship1"), delta(shipped="1"), proposal_id="ship1")
    world.propose(call("ship", key="ship2"), call("read", key=None), atomic=False, defer_ms=30_000, proposal_id="ship2")
    world.advance(minutes=2)
    world.know(ok="1")
    _report_all(world)


def _withdraw(world: World) -> None:
    world.report(world.start(call("claim", key="claimed")), result={"claimed": "by the agent itself"})
    world.propose(StateDelta({}, ["fact.ok"]), actor=ENCODER)
    world.propose(call("ship", key="back1"), proposal_id="back1")
    world.propose(call("pay", {"amount": 7}, key="back2"), call("ship", key="back3"), atomic=False, proposal_id="back2")
    _say(world, Withdraw("back1"), OTHER_AGENT)
    _say(world, Withdraw("back1", "not needed"), AGENT)
    _say(world, Withdraw("back1"), AGENT)
    _say(world, RegisterTool(caller_tool("pay", description="another")))
    world.server.keep()
    _say(world, Withdraw("back2"), SECOND)


def _govern_alone(world: World) -> None:
    _say(world, SetGovernance(1), AGENT)
    _say(world, SetGovernance(1), ROOT)
    _say(world, SetGovernance(1), SECOND)
    _say(world, ProposePolicy("c4", world.space.policy.policy_hash, {"policy.value.x": "3"}), ROOT)
    _say(world, SetGovernance(2), SECOND)


def _report_all(world: World) -> None:
    for execution_id, each in sorted(world.space.executions.items()):
        if each.status in ("ready", "running") and each.tool.kind == "caller":
            world.report(execution_id)


def _wait_for_belief(world: World, belief: BeliefServer, session_id: str) -> None:
    world.propose(call("restart", {"service": "checkout"}), proposal_id="restart")
    belief.eliminate(session_id, "probe", "dns", ["dns"])
    world.server.keep()
    world.runner.unknown = True
    belief.request_exit(session_id, "look")
    world.server.keep()
    _let_tools_run(world)
    # The answer is lost; the tool is idempotent, so that it is tried again.
    world.advance(minutes=1)
    _let_tools_run(world)
    world.runner.unknown = False
    world.advance(minutes=1)
    world.server.wait_for(SPACE, "restart", 10)


def _remember(world: World, session_id: str, belief: BeliefServer) -> None:
    concluded = belief.declare_conclusion(session_id, "bad-deploy").audit_event_id
    sure = Evidence(["chunk"], 900)
    steps: list[SpaceMessage] = [
        PutMemory("m1", MemoryKind.HYPOTHESIS, raw("it was the deploy"), review_at="2026-02-01T00:00:00Z"),
        PutMemory("m1", MemoryKind.HYPOTHESIS, raw("again"), ttl_ms=1),
        PutMemory("m2", MemoryKind.FACT, raw({"\U0001f600": 1, "\uffee": 2}), sure),
        PutMemory("m3", MemoryKind.FACT, raw("unsure"), Evidence(["c"], 10)),
        PutMemory("m4", MemoryKind.DERIVED, raw("no end")),
        PutMemory("m5", MemoryKind.DERIVED, raw("short"), ttl_ms=1_000),
        PutMemory("m6", MemoryKind.FACT, raw("x"), Evidence(confirmed_by_event_id="unknown")),
        PromoteMemory("m1", MemoryKind.DERIVED, sure),
        PromoteMemory("m1", MemoryKind.FACT, Evidence(["c"], 10)),
        PromoteMemory("m1", MemoryKind.FACT, Evidence(confirmed_by_event_id="no", confirmed_in_session_id=session_id)),
        PromoteMemory("m1", MemoryKind.FACT, Evidence([], 0, concluded, session_id)),
        PromoteMemory("nothing", MemoryKind.FACT, sure),
        DisputeMemory("m2", ConflictState.CONTRADICTORY, ["m1"]),
        DisputeMemory("m2", ConflictState.NONE),
        DisputeMemory("m2", ConflictState.POSSIBLE),
        PutMemory("m7", MemoryKind.PREFERENCE, raw({"\U0001f600": 1, "\uffee": 2}), sure),
    ]
    for step in steps:
        _say(world, step, AGENT)
    _say(world, DisputeMemory("m2", ConflictState.NONE), OTHER_AGENT)
    world.advance(minutes=1)
    _say(world, DisputeMemory("m5", ConflictState.POSSIBLE), AGENT)


def _observe(world: World) -> None:
    _say(world, SetMode(Mode.OBSERVE), AGENT)
    _say(world, SetMode(Mode.OBSERVE), ROOT)
    _say(world, SetMode(Mode.OBSERVE), ROOT)
    _say(world, SetMode(Mode.OBSERVE), SECOND)
    world.propose(delta(size="9"), delta(blue="1"))
    observed = world.start(call("rm", {"path": "/"}, key="observed"), delta(size="8"))
    _say(world, SetMode(Mode.ENFORCE), ROOT)
    world.report(observed)
    only = constraint(subject={"tool_id": "read"}, when={"op": "exists", "args": ["fact.never"]})
    change_policy(world, {"constraint.only": only}, ["constraint.any"])
    world.propose(call("read", key=None))
    world.propose(delta(last="1"), call("write", key="last"), atomic=False)


def play_keys(log: AuditLog, clock: ManualClock) -> None:
    """Keys that are made and revoked; their secrets are the same each time, and good for nothing."""
    numbers = count(1)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(secrets, "token_hex", lambda n_bytes: f"{next(numbers):0{2 * n_bytes}x}")
        _make_keys(KeyRegistry(log, clock=clock, ids=SequentialIds(5)))


def _make_keys(registry: KeyRegistry) -> None:
    first = registry.create(
        ActorKind.OPERATOR, "root", roles=[each for each in Role if each is not Role.EXECUTOR], label="first \U0001f600"
    )
    registry.create(ActorKind.AGENT, "agent", roles=[Role.AGENT], expires_at="2027-01-01T00:00:00.000000Z", by=ROOT)
    registry.create(ActorKind.EXECUTOR, "gateway", roles=[Role.EXECUTOR], by=ROOT)
    registry.create(ActorKind.AGENT, "scoped", roles=[next(iter(Role))], scopes=list(Scope)[:1])
    registry.revoke(first.key.key_id, "lost", by=SECOND)


def write_logs(directory: Path) -> None:
    """Write the golden files of the software as it is."""
    directory.mkdir(parents=True)
    database, clock = directory / "store.db", ManualClock(tick=timedelta(microseconds=1_001))
    with closing(open_store(f"sqlite:///{database}")) as log:
        play_keys(log, clock)
        play_space(log, clock, play_sessions(log, clock))
        session_id = play_kit(log, clock)
        moved = [*all_streams(log, KIT_PREFIX), *(each.session_id for each in all_sessions(log)), STREAM, NAMES_STREAM]
        _write_export(directory / "export.jsonl", log, moved)
        # The streams go on in the database alone: an export of a thousand entries would hide what changes in a diff.
        go_on(log, clock, session_id)
        play_webhooks(log, clock)
        record_heads(log, clock)
        _write_export(directory / "keys.jsonl", log, [KEYS_STREAM])
        _write_export(directory / "webhooks.jsonl", log, all_streams(log, WEBHOOK_PREFIX))
        _write_export(directory / "heads.jsonl", log, [HEADS_STREAM])
    (directory / "store.db.gz").write_bytes(gzip.compress(database.read_bytes(), mtime=0))
    database.unlink()


def _write_export(path: Path, log: AuditLog, stream_ids: Iterable[str]) -> None:
    path.write_bytes(b"\n".join(export_lines(log, stream_ids)) + b"\n")
