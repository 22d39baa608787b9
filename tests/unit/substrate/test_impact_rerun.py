"""Impact is what a real run under the other policy, or with the other kit, comes to: belief, approvals, candidates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.events import Eliminate, Event, Message, read_event
from cmbs.belief.kernel.kit_stream import MediaType, hash_document
from cmbs.belief.kernel.otherwise import replay_otherwise
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError, LedgerCorrupt
from cmbs.kit.model import Kit, KitHypothesis, KitOutcome, KitProbe, Soundness
from cmbs.kit.provider import KitProvider, ontology_of
from cmbs.ledger import StoredEntry
from cmbs.messages import OntologyBundle
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import Approve, OpenCase, Propose, SpaceEvent
from cmbs.substrate.kernel.insight import past_belief
from cmbs.substrate.kernel.insight.impact import Impact, impact_of, impact_of_readings
from cmbs.substrate.kernel.insight.kit_impact import KitImpact, KitOrigin, SessionUnderKit, compare_origin
from cmbs.substrate.kernel.insight.past_belief import PastBelief
from cmbs.substrate.kernel.model import BeliefReading, Decision, StateDelta
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.words import ApprovalStatus
from cmbs.testing import ManualClock, SequentialIds
from tests.support.policies import allow, deny, eq, op
from tests.support.spaces import AGENT, ENCODER, SECOND, SPACE, STREAM, World, call, caller_tool, delta

CAUSES = ["a", "b", "c"]
ONTOLOGY = OntologyBundle("space", "1", "graph", "1")
# The first id that a belief server with ids of its own hands out.
SESSION = SequentialIds(7).new_id()
N = f"$belief.{SESSION}.n_survivors"
Step = tuple[str, Any]


class History:
    """A session and a space over one log and one clock, and what is done to both, step by step."""

    def __init__(self, policy: dict[str, Any], provider: KitProvider | None = None) -> None:
        self.log, self.clock = InMemoryStore(), ManualClock()
        self.belief = BeliefServer(store=self.log, clock=self.clock, ids=SequentialIds(7), belief_provider=provider)
        ontology = ONTOLOGY if provider is None else ontology_of(provider.kit)
        self.session_id, _ = self.belief.declare_session(ontology, None if provider is not None else CAUSES)
        self.world = World(self.log, belief=ServedBelief(self.belief), clock=self.clock)
        tools = [caller_tool("one", writes=False), caller_tool("two", writes=False)]
        self.world.open(*tools, policy=pairs(policy))
        self.world.say(OpenCase(self.session_id, [AGENT.id], msgspec.Raw(b'{"tier":1}')))

    def play(self, steps: Sequence[Step]) -> History:
        for name, what in steps:
            try:
                self._play(name, what)
            except BeliefServerError:
                continue  # what is refused as a request is no part of a history
        self.world.close()
        self.belief.close()
        return self

    def _play(self, name: str, what: Any) -> None:
        match name:
            case "eliminate":
                self.belief.eliminate(self.session_id, "probe", what, [what])
            case "probe":
                self.belief.apply_probe(self.session_id, *what)
            case "enter":
                self.belief.enter_obligation(self.session_id, "look", what)
            case "exit":
                self.belief.request_exit(self.session_id, "look")
            case "fact":
                self.world.propose(StateDelta({"fact.a": what}), actor=ENCODER)
            case "keep":
                self.world.server.keep()
            case "approve":
                pending = [
                    each
                    for each, approval in sorted(self.world.space.approvals.items())
                    if approval.status is ApprovalStatus.PENDING
                ]
                for each in pending[:1]:
                    self.world.say(Approve(each, uses=what), SECOND)
            case _:
                candidates, atomic, *case = what
                proposal = self.world.proposal(*candidates, atomic=atomic)
                if case:
                    proposal = msgspec.structs.replace(proposal, case_id=self.session_id)
                self.world.say(Propose(proposal), AGENT)

    def entries(self) -> list[StoredEntry]:
        return self.log.read(STREAM)

    def decided(self) -> list[SpaceEvent]:
        events = [read_space_event(stored) for stored in self.entries()]
        return [event for event in events if event.result.decision is not None]

    def impact(self, policy: dict[str, Any]) -> Impact:
        past = PastBelief(self.log.read, complete=True)
        return impact_of(SPACE, self.entries(), compile_policy(pairs(policy)), past.at)


def pairs(policy: dict[str, Any]) -> dict[str, str]:
    return {
        (name.replace("__", ".") if name.startswith("policy") else f"constraint.{name}"): json.dumps(content)
        for name, content in policy.items()
    }


def wide(content: dict[str, Any]) -> dict[str, Any]:
    return {**content, "v": 2}


# Constraints to make policies of; some read the session, some ask, some wait.
POOL: dict[str, list[dict[str, Any]]] = {
    "one": [
        allow("one"),
        wide(allow("one", op("eq", N, 1), on_fail="defer")),
        wide(allow("one", op("le", N, 2))),
        allow("one", eq("fact.a", "p"), on_fail="defer"),
        wide(allow("one", op("eq", "$case.belief.n_survivors", 1), on_fail="defer")),
        wide(allow("one", op("le", "$case.belief.independent.n_survivors", 2))),
        wide(allow({"tool_id": ["one", "t*"]}, op("ne", "fact.a", "q"))),
    ],
    "two": [allow("two"), allow("two", eq("fact.a", "p"), on_fail="ask"), wide(allow("two", op("lt", N, 3)))],
    "deltas": [allow(None, op("missing", "$tool.id")), allow(None, eq("fact.a", "p"))],
    "ask": [
        deny("two", on_fail="ask"),
        deny("two", on_fail="ask", reason="twice"),
        wide({**deny("two"), "mode": "observe"}),
    ],
    "no": [
        wide(deny(None, op("gt", f"$belief.{SESSION}.n_survivors", 2), on_fail="defer")),
        deny("one", eq(f"$belief.{SESSION}.active_obligation_id", "look")),
        wide(deny("one", op("ge", "$belief.nowhere.n_survivors", 0))),
        wide(deny("one", op("eq", "$case.attributes.tier", 2))),
    ],
    "policy__invariant__i": [{"v": 2, "when": op("any", op("missing", "goal.x"), op("lt", N, 3))}],
}
policies = st.fixed_dictionaries({}, optional={name: st.sampled_from(choices) for name, choices in POOL.items()})
candidates = st.sampled_from(
    [call("one", key=None), call("two", key=None), call("two", {"n": 1}, key=None), delta(x="1")]
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("eliminate"), st.sampled_from(CAUSES)),
        st.tuples(st.just("enter"), st.integers(0, 2)),
        st.tuples(st.just("exit"), st.none()),
        st.tuples(st.just("fact"), st.sampled_from(["p", "q"])),
        st.tuples(st.just("keep"), st.none()),
        st.tuples(st.just("approve"), st.integers(1, 2)),
        st.tuples(st.just("propose"), st.tuples(st.lists(candidates, min_size=1, max_size=2), st.booleans())),
        st.tuples(
            st.just("propose"),
            st.tuples(st.lists(candidates, min_size=1, max_size=2), st.booleans(), st.sampled_from(["c", "other"])),
        ),
    ),
    min_size=1,
    max_size=10,
)


def plain(decision: Decision | None) -> Decision:
    """A decision without the names of the policy and the snapshot, which are others in every run."""
    assert decision is not None
    return msgspec.structs.replace(decision, policy_hash="", state_snapshot_id="")


def assert_same_until_first_flip(impact: Impact, was: list[SpaceEvent], again: list[SpaceEvent]) -> None:
    """As long as both runs are in the same state, a decision that differs is a flip, and any other is none."""
    flips = {flip.seq: flip for flip in impact.flips}
    for one, other in zip(was, again, strict=False):
        assert one.body.seq == other.body.seq
        first, second = plain(one.result.decision), plain(other.result.decision)
        if first.verdict is second.verdict:
            assert one.body.seq not in flips
        else:
            assert plain(flips[one.body.seq].after) == second
        effects = [msgspec.structs.replace(each.result, decision=None) for each in (one, other)]
        if effects[0] != effects[1] or first.candidates != second.candidates:
            return


@pytest.mark.req("SS01-POLICY-IMPACT-BELIEF")
@given(policies, policies, steps)
def test_impact_is_what_a_real_run_under_the_other_policy_comes_to(
    old: dict[str, Any], new: dict[str, Any], played: list[Step]
) -> None:
    was, again = History(old).play(played), History(new).play(played)
    impact = was.impact(new)
    assert (impact.unknown, impact.decisions) == ([], len(was.decided()))
    assert_same_until_first_flip(impact, was.decided(), again.decided())
    assert was.impact(old).flips == []


@pytest.mark.req("SS01-POLICY-IMPACT-BELIEF")
def test_a_gate_that_history_never_read_is_read_as_of_each_decision() -> None:
    propose = ("propose", ([call("one", key=None)], True))
    played = [propose, ("eliminate", "a"), propose, ("eliminate", "b"), propose, ("eliminate", "c"), propose]
    was = History({"one": allow("one")}).play(played)
    found = was.impact({"one": wide(allow("one", op("eq", N, 1)))})
    assert [(flip.kind.value, flip.proposal_id) for flip in found.flips] == [
        ("allow→deny", "p1"),
        ("allow→deny", "p2"),
        ("allow→deny", "p4"),
    ]
    heads = [step.note for flip in found.flips for step in flip.after.trace if step.reference == N]
    assert [note.split()[3] for note in heads if note is not None] == ["0", "1", "3"]


@pytest.mark.req("SS01-POLICY-IMPACT-BELIEF")
def test_what_was_woken_and_would_have_gone_on_waiting_is_a_flip() -> None:
    deltas = allow(None, op("missing", "$tool.id"))
    waiting = allow("one", eq("fact.a", "p"), on_fail="defer")
    played: list[Step] = [("propose", ([call("one", key=None)], True)), ("fact", "p"), ("keep", None)]
    was = History({"deltas": deltas, "one": waiting}).play(played)
    assert [event.body.verb for event in was.decided()] == ["PROPOSE", "PROPOSE", "WAKE"]
    found = was.impact({"deltas": deltas, "one": allow("one", eq("fact.a", "q"), on_fail="defer")})
    (flip,) = found.flips
    assert (flip.kind.value, flip.verb, flip.touched.tool_ids) == ("allow→defer", "WAKE", ["one"])


@pytest.mark.req("KIT-IMPACT")
def test_what_the_caller_said_of_hypotheses_stays_under_another_kit() -> None:
    told = dataclasses.replace(OLD, hypotheses=tuple(KitHypothesis(each, attributes={"n": 1}) for each in CAUSES))
    was = History({}, KitProvider(OLD)).play([])
    entry = was.log.read(SESSION)[0]
    looked = SessionUnderKit(SESSION, [entry], told, dataclasses.replace(told, version="2"))
    assert looked.impact.changes == []
    assert not looked.impact.is_other


@pytest.mark.req("SS01-POLICY-IMPACT-BELIEF")
def test_what_cannot_be_known_is_counted_and_named() -> None:
    was = History({"one": allow("one")}).play([("propose", ([call("one", key=None)], True)), ("fact", "p")])
    new = compile_policy(pairs({"one": allow("one", eq(N, 1)), "d": allow(None, op("missing", "$tool.id"))}))
    found = impact_of(SPACE, was.entries(), new)
    (unknown,) = found.unknown
    assert (unknown.proposal_id, unknown.session_ids, unknown.verb) == ("p1", [SESSION], "PROPOSE")
    assert found.decisions == 2
    # An export need not have every session.
    assert impact_of(SPACE, was.entries(), new, PastBelief(lambda _: [], complete=False).at).unknown == [unknown]


def test_a_reading_of_the_past_is_that_of_the_last_event_before_the_moment() -> None:
    was = History({}).play([("eliminate", "a")])
    log = was.log.read(SESSION)
    first, second = (json.loads(stored.raw)["ts"] for stored in log)
    past = PastBelief(was.log.read, complete=True)
    later = past.at(SESSION, "2027-01-01T00:00:00.000000Z")
    assert later is not None
    assert (later.n_survivors, later.head_seq) == (2, 1)
    between = past.at(SESSION, json.loads(was.entries()[0].raw)["ts"])
    assert between is not None
    assert between.n_survivors == 3
    assert past.at(SESSION, "2020-01-01T00:00:00.000000Z") == BeliefReading(SESSION, found=False)
    assert past.at("nowhere", first) == BeliefReading("nowhere", found=False)
    # Which of two came first is not known where both are of the same moment.
    assert past.at(SESSION, second) is None


def test_where_a_clock_was_turned_back_the_past_is_not_known() -> None:
    clock = ManualClock()
    belief = BeliefServer(store=InMemoryStore(), clock=clock, ids=SequentialIds(7))
    session_id, _ = belief.declare_session(ONTOLOGY, CAUSES)
    clock.set("2025-01-01T00:00:00.000000Z")
    belief.eliminate(session_id, "s", "o", ["a"])
    past = PastBelief(belief.log.read, complete=True)
    in_order = [json.loads(stored.raw)["ts"] for stored in belief.log.read(session_id)]
    known = past.at(session_id, "2027-01-01T00:00:00.000000Z")
    assert (known is None) is (in_order != sorted(in_order))


def test_only_some_sessions_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_belief, "MAX_SESSIONS_HELD", 1)
    asked: list[str] = []

    def read(session_id: str) -> list[StoredEntry]:
        asked.append(session_id)
        return []

    past = PastBelief(read, complete=True)
    for name in ("a", "a", "b", "a"):
        past.at(name, "2027-01-01T00:00:00.000000Z")
    assert asked == ["a", "b", "a"]


# --- kits -------------------------------------------------------------------------------------------------------------


Probes = dict[str, tuple[Sequence[str], Sequence[str]]]


def kit(version: str, hypotheses: Sequence[str], probes: Probes, kit_id: str = "kit") -> Kit:
    return Kit(
        kit_id,
        version,
        "",
        tuple(map(KitHypothesis, hypotheses)),
        tuple(
            KitProbe(
                name,
                "",
                tuple(
                    KitOutcome(outcome, frozenset(gone), Soundness.SOUND)
                    for outcome, gone in (("yes", yes), ("no", no))
                ),
            )
            for name, (yes, no) in probes.items()
        ),
    )


OLD = kit("1", CAUSES, {"x": (["a"], ["b"]), "y": (["b"], [])})
GATE = {"one": wide(allow("one", op("eq", N, 1), on_fail="defer"))}
PROPOSE = ("propose", ([call("one", key=None)], True))
ASKED = [PROPOSE, ("probe", ("x", "yes")), PROPOSE, ("probe", ("y", "yes")), PROPOSE]


def under(history: History, new: Kit, old: Kit = OLD) -> SessionUnderKit:
    return SessionUnderKit(SESSION, history.log.read(SESSION), old, new)


@pytest.mark.req("KIT-IMPACT")
def test_the_same_kit_changes_nothing() -> None:
    was = History(GATE, KitProvider(OLD)).play(ASKED)
    same = under(was, kit("2", CAUSES, {"x": (["a"], ["b"]), "y": (["b"], [])}))
    assert not same.impact.is_other
    found = impact_of_readings(SPACE, was.entries(), same.reread)
    assert (found.decisions, found.flips) == (0, [])


@pytest.mark.req("KIT-IMPACT")
def test_another_kit_changes_eliminations_and_with_them_gates_and_actions() -> None:
    was = History(GATE, KitProvider(OLD)).play(ASKED)
    looked = under(was, kit("2", CAUSES, {"x": (["a"], ["b"]), "y": (["c"], [])}))
    (change,) = looked.impact.changes
    assert (change.probe_id, change.no_longer, change.also, change.refused) == ("y", ["b"], ["c"], None)
    assert (looked.impact.eliminations, looked.impact.n_survivors, looked.impact.n_survivors_otherwise) == (2, 1, 1)
    # As many are left, so that the gate opens all the same; what is left is another.
    found = impact_of_readings(SPACE, was.entries(), looked.reread)
    assert (found.decisions, found.flips) == (1, [])
    looked = under(was, kit("2", CAUSES, {"x": (["a"], ["b"]), "y": ([], [])}))
    (flip,) = impact_of_readings(SPACE, was.entries(), looked.reread).flips
    assert (flip.kind.value, flip.proposal_id, flip.touched.tool_ids) == ("allow→defer", "p3", ["one"])


@pytest.mark.req("KIT-IMPACT")
def test_an_answer_that_the_other_kit_cannot_read_eliminates_nothing() -> None:
    was = History(GATE, KitProvider(OLD)).play(ASKED)
    looked = under(was, kit("2", CAUSES, {"x": (["a"], ["b"])}))
    (change,) = looked.impact.changes
    assert change.refused is not None
    assert (change.no_longer, looked.impact.n_survivors_otherwise) == (["b"], 2)


@pytest.mark.req("KIT-IMPACT")
def test_hypotheses_that_come_and_go_are_named() -> None:
    was = History(GATE, KitProvider(OLD)).play([*ASKED, ("eliminate", "c")])
    looked = under(was, kit("2", ["a", "b", "d"], {"x": (["a"], ["b"]), "y": (["b"], [])}))
    assert looked.impact.is_other
    assert (looked.impact.hypotheses_added, looked.impact.hypotheses_removed) == (["d"], ["c"])
    assert (looked.impact.n_survivors, looked.impact.n_survivors_otherwise) == (0, 1)


@pytest.mark.req("KIT-IMPACT")
def test_what_a_kit_says_of_its_hypotheses_opens_other_gates() -> None:
    def with_component(version: str, component: str) -> Kit:
        plain_kit = kit(version, CAUSES, {"x": (["a"], ["b"]), "y": (["b"], [])})
        told = tuple(dataclasses.replace(each, attributes={"component": component}) for each in plain_kit.hypotheses)
        return dataclasses.replace(plain_kit, hypotheses=told)

    known = op("eq", "$args.service", {"ref": "$case.belief.survivor.component"})
    restart = ("propose", ([call("one", {"service": "web"}, key=None)], True, "c"))
    old = with_component("1", "web")
    was = History({"one": wide(allow("one", known))}, KitProvider(old)).play([*ASKED[1:-1], restart])
    assert impact_of_readings(SPACE, was.entries(), under(was, with_component("2", "web"), old).reread).flips == []
    (flip,) = impact_of_readings(SPACE, was.entries(), under(was, with_component("2", "db"), old).reread).flips
    assert flip.kind.value == "allow→deny"


@pytest.mark.req("KIT-IMPACT")
def test_what_the_old_kit_does_not_explain_is_named_and_not_guessed() -> None:
    was = History(GATE, KitProvider(OLD)).play(ASKED)
    wrong = kit("1", CAUSES, {"x": (["b"], []), "y": (["b"], [])})
    looked = under(was, kit("2", CAUSES, {"x": ([], []), "y": ([], [])}), wrong)
    assert looked.impact.unexplained == [1]
    found = impact_of_readings(SPACE, was.entries(), looked.reread)
    assert [each.proposal_id for each in found.unknown] == ["p2", "p3"]
    assert [each.session_ids for each in found.unknown] == [[SESSION], [SESSION]]
    whole = KitImpact("kit", "1", "2", 1, [looked.impact], [found], {SESSION: [1]})
    assert (whole.is_other, whole.is_known) == (True, False)
    assert KitImpact("kit", "1", "2", 0, [], []).is_known
    assert not KitImpact("kit", "1", "2", 0, [], [], {}, 1).is_known
    assert KitImpact("kit", "1", "2", 1, [], [], {}, 1).is_known
    assert not KitImpact("kit", "1", "2", 0, [], []).is_other


def test_a_session_that_was_not_there_stays_so() -> None:
    was = History(GATE, KitProvider(OLD)).play(ASKED)
    looked = under(was, OLD)
    gone = BeliefReading(SESSION, found=False)
    assert looked.reread(gone) == gone
    asked, declared = read_event(was.log.read(SESSION)[-1]), read_event(was.log.read(SESSION)[0])
    assert compare_origin(declared, OLD, "h") is KitOrigin.THIS
    assert compare_origin(declared, kit("2", CAUSES, {}), "h") is KitOrigin.ELSEWHERE
    assert compare_origin(declared, kit("1", CAUSES, {}, "other"), "h") is KitOrigin.ELSEWHERE
    assert compare_origin(asked, OLD, "h") is KitOrigin.ELSEWHERE


def test_a_kit_on_record_is_known_by_its_content() -> None:
    server = BeliefServer(store=InMemoryStore())
    document = '{"id": "kit", "version": "1", "soundness": "sound", "hypotheses": ["a", "b"], "probes": []}'
    server.kits.put(document, MediaType.JSON)
    session_id = server.declare_session(kit="kit").session_id
    declared = read_event(server.log.read(session_id)[0])
    mine, other = hash_document(document), hash_document(document + " ")
    assert compare_origin(declared, kit("1", "ab", {}), mine) is KitOrigin.THIS
    assert compare_origin(declared, kit("1", "ab", {}), other) is KitOrigin.OTHER_CONTENT
    assert compare_origin(declared, kit("2", "ab", {}), other) is KitOrigin.ELSEWHERE


def test_a_log_without_a_beginning_is_no_past() -> None:
    was = History(GATE, KitProvider(OLD)).play(ASKED)
    with pytest.raises(LedgerCorrupt, match="empty"):
        impact_of_readings(SPACE, [], lambda reading: reading)
    with pytest.raises(ValueError, match="the first event declares the session"):
        list(replay_otherwise(SESSION, was.log.read(SESSION)[1:], lambda event: event.message))


def test_a_message_that_would_have_been_an_error_changes_nothing() -> None:
    was = History(GATE, KitProvider(OLD)).play(ASKED)

    def change(event: Event) -> Message:
        message = event.message
        if not isinstance(message, Eliminate) or event.body.seq == 1:
            return message
        # The same observation with other ids.
        return msgspec.structs.replace(message, observation_id="x", eliminated=["c"])

    after = [len(session.survivors) for _, session in replay_otherwise(SESSION, was.log.read(SESSION), change)]
    assert after == [3, 2, 2]


outcomes = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=3, unique=True)
_other_probes = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.tuples(outcomes, outcomes))
_told = st.tuples(st.just("probe"), st.tuples(st.sampled_from(["x", "y"]), st.sampled_from(["yes", "no"])))


@pytest.mark.req("KIT-IMPACT")
@given(
    _other_probes,
    st.lists(
        st.one_of(
            _told,
            _told,
            st.tuples(st.just("eliminate"), st.sampled_from(CAUSES)),
            st.tuples(st.just("enter"), st.integers(0, 2)),
            st.tuples(st.just("exit"), st.none()),
            st.just(PROPOSE),
        ),
        max_size=8,
    ),
)
def test_impact_of_a_kit_is_what_a_real_run_with_the_other_kit_comes_to(probes: Probes, played: list[Step]) -> None:
    new = kit("2", ["a", "b", "c", "d"], probes)
    was, again = History(GATE, KitProvider(OLD)).play(played), History(GATE, KitProvider(new)).play(played)
    looked = under(was, new)
    real = again.belief.query_belief(SESSION)
    assert looked.impact.n_survivors_otherwise == real.n_survivors
    assert looked.impact.hypotheses_added == ["d"]
    found = impact_of_readings(SPACE, was.entries(), looked.reread)
    flips = {flip.seq: flip.after.verdict for flip in found.flips}
    for one, other in zip(was.decided(), again.decided(), strict=False):
        first, second = plain(one.result.decision), plain(other.result.decision)
        if first.verdict is second.verdict:
            assert one.body.seq not in flips
        else:
            assert flips[one.body.seq] is second.verdict
        if first.verdict is not second.verdict:
            break
