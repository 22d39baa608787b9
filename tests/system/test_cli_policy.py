"""`cmbs policy …` on the example policy and on what a store has recorded: what it prints, and its exit codes."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cmbs.audit.transfer import export_lines
from cmbs.stores import SQLiteStore
from cmbs.substrate.kernel.events import CreateSpace, MediaType, PolicySource
from cmbs.substrate.kernel.policy.document_schema import policy_schema
from cmbs.substrate.kernel.policy.file import compile_file
from tests.support.cli import invoke
from tests.support.policies import allow, deny, eq, file_of, op
from tests.support.spaces import ENCODER, SPACE, World, call, caller_tool, facts

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "policy"
POLICY = str(EXAMPLES / "restart.yaml")
AT = "(at audit head 0 of the test)"
DELTAS = allow(None, op("missing", "$tool.id"))


run = partial(invoke, "policy")


@pytest.fixture
def recorded(place: Path) -> Path:
    """A space in `cmbs.db` in which one call was denied, one deferred and one allowed."""
    store = SQLiteStore(place / "cmbs.db")
    world = World(store)
    gate = allow("one", eq("fact.a", "p"), on_fail="defer")
    policy = {"d": DELTAS, "one": gate, "three": allow("three")}
    world.create({f"constraint.{name}": json.dumps(each) for name, each in policy.items()})
    world.equip(*(caller_tool(name, writes=False) for name in ("one", "two", "three")))
    world.propose(call("one", key=None), proposal_id="waits")
    world.propose(call("two", key=None), proposal_id="denied")
    world.propose(call("three", key=None), proposal_id="allowed")
    world.propose(facts(b="1"), actor=ENCODER, proposal_id="fact")
    world.close()
    (place / "space.jsonl").write_bytes(b"\n".join(export_lines(store, [f"space:{SPACE}"])) + b"\n")
    store.close()
    return place


def write(place: Path, name: str, content: Any) -> str:
    (place / name).write_text(json.dumps(content))
    return str(place / name)


# --- test -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-POLICY-TEST")
def test_every_policy_that_is_shipped_passes_its_check(subtests: pytest.Subtests) -> None:
    for name in sorted(path.name for path in EXAMPLES.glob("*.yaml")):
        with subtests.test(name=name):
            ran = run("check", str(EXAMPLES / name))
            assert (ran.exit_code, ran.stdout.count("never asked")) == (0, 0), ran.stdout + ran.stderr
            assert " 0 failed; " in ran.stdout


@pytest.mark.req("SS01-POLICY-TEST")
def test_the_tests_of_the_example_pass_and_ask_every_rule() -> None:
    ran = run("test", POLICY, "--require-coverage")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.splitlines()[0] == "ok    a restart with one cause left"
    assert ran.stdout.splitlines()[-1] == f"{POLICY}: 21 tests, 0 failed; 9 of 9 rules asked"


@pytest.mark.req("SS01-POLICY-TEST")
def test_a_test_that_is_otherwise_fails_and_says_how(place: Path) -> None:
    policy = {"constraint.no": deny("one"), "constraint.two": allow("two", eq("fact.a", 1))}
    test = {"name": "one", "proposal": {"candidates": []}, "expect": {"verdict": "allow", "matched": ["x"]}}
    file = write(place, "c.json", file_of(policy, tests=[test]))
    ran = run("test", file)
    assert ran.exit_code == 1
    assert ran.stdout.splitlines() == [
        "FAIL  one",
        "      verdict: expected allow, found deny",
        "      matched: expected constraint.x, found none",
        f"never asked      no ({file}:1:25)",
        f"never asked      two ({file}:1:98)",
        f"{file}: 1 test, 1 failed; 0 of 2 rules asked",
    ]


@pytest.mark.req("SS01-POLICY-TEST")
def test_rules_that_no_test_asks_fail_where_coverage_is_required(place: Path) -> None:
    tool = {"tool_id": "one", "writes": False}
    token = {"token_id": "t", "agent_id": "agent", "tool_ids": ["one"]}
    candidate = {"type": "tool_call", "tool_id": "one", "args": {}, "capability_token_id": "t"}
    test = {"name": "c", "proposal": {"candidates": [candidate]}, "expect": {"verdict": "deny", "failure": "block"}}
    policy = {"constraint.one": allow("one", eq("fact.a", 1)), "constraint.two": allow("two")}
    content = file_of(policy, tests=[test], tools=[tool], given={"capabilities": [token]})
    file = write(place, "c.json", content)
    assert run("test", file).exit_code == 0
    ran = run("test", file, "--require-coverage")
    assert ran.exit_code == 1
    assert "never asked      two (" in ran.stdout
    assert "never held       one (" in ran.stdout
    told = json.loads(run("test", file, "--json").stdout)
    assert (told[0]["passed"], told[0]["failed"]) == (1, 0)
    assert told[0]["coverage"]["never_asked"] == ["constraint.two"]
    assert told[0]["origins"]["constraint.two"]["rule"] == "two"
    assert told[0]["results"][0]["decision"]["reason_code"] == "ALLOW_UNMET"


def test_what_cannot_be_read_ends_with_2(subtests: pytest.Subtests, place: Path) -> None:
    for arguments, message in [
        (["test", "nothing.yaml"], "nothing.yaml"),
        (["test", "bare.yaml"], "bare.yaml has no tests"),
        (["check", "nothing.yaml"], "nothing.yaml"),
        (["compile", "broken.yaml"], "broken.yaml:2:16: `exclusive.x`: a group is a list of goal keys [malformed]"),
        (["lint", "nothing.yaml"], "nothing.yaml"),
        (["impact", "--against", "nothing.yaml"], "nothing.yaml"),
        (["explain"], "name a policy file, or with --proposal the id of a recorded proposal"),
        (["explain", "--test", "x", "--proposal", "y"], "name a policy file"),
        (["explain", POLICY], "has 21 tests: name one with --test"),
        (["explain", POLICY, "--test", "absent"], "has no test `absent`"),
        (["explain", POLICY, "--test", "a goal", "--proposal", "p.json"], "two ways to name one proposal"),
        (["explain", "--proposal", "x"], "there is no store"),
    ]:
        with subtests.test(arguments=arguments, message=message):
            (place / "bare.yaml").write_text("format: 2\n")
            (place / "broken.yaml").write_text("format: 2\nexclusive: {x: 1}\n")
            ran = run(*arguments)
            assert ran.exit_code == 2
            assert ran.stderr.startswith("cmbs: ")
            assert message in ran.stderr


# --- lint -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-POLICY-LINT")
def test_the_example_has_nothing_but_a_note() -> None:
    ran = run("lint", POLICY)
    assert ran.exit_code == 0
    assert ran.stdout == f"{POLICY}: 1 finding\n"
    assert "no call of `email.send` can ever be allowed: `no_send_email` (line 51) always denies it" in ran.stderr


@pytest.mark.req("SS01-POLICY-LINT")
def test_a_finding_ends_with_1_and_is_named(place: Path) -> None:
    policy = {"constraint.x": deny("three", op("in", "fact.a", [])), "policy.exclusive.one": "1"}
    file = write(place, "p.json", file_of(policy, tools=[{"tool_id": "one"}]))
    ran = run("lint", file)
    assert ran.exit_code == 1
    assert ": exclusive.one: " in ran.stderr
    assert f"error    {file}:1:" in ran.stderr
    assert ": x: there is no tool `three` [unknown-tool]\n" in ran.stderr
    (told,) = json.loads(run("lint", file, "--json").stdout)
    assert [each["rule"] for each in told["findings"]][-1] == "malformed"
    assert told["complete"]
    bare = write(place, "bare.json", file_of({"constraint.x": allow("three")}))
    assert run("lint", bare).exit_code == 0


@pytest.mark.req("SS01-POLICY-LINT")
def test_a_policy_that_is_too_large_to_look_through_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cmbs.substrate.kernel.insight.lint.MAX_PAIRS_COMPARED", 0)
    file = write(place, "p.json", file_of({"constraint.x": allow("three")}))
    assert "too many constraints" in run("lint", file).stderr
    monkeypatch.setattr("cmbs.substrate.kernel.policy.policy.MAX_PAIRS", 0)
    assert f"error    {file}: a policy has at most 0 keys" in run("lint", file).stderr


# --- explain ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-POLICY-EXPLAIN")
def test_a_test_is_explained_with_what_would_turn_it() -> None:
    ran = run("explain", POLICY, "--test", "an open obligation holds a restart back")
    assert ran.exit_code == 0
    *explained, told, step = ran.stdout.splitlines()
    assert told.startswith("candidate 0 is told ALLOW_UNMET: `constraint.restart_when_known` does not allow it")
    assert told.endswith("`$case.belief.active_obligation_id` is `look-at-the-disks`, and must be `null`")
    assert step == (
        "  next: it would be allowed if `$belief.case.active_obligation_id` were `null`;"
        " leave obligation `look-at-the-disks` of the session of the case first,"
        " or have an operator lift it where it cannot be met;"
        " once proposed, it waits for `$belief.case`, `$case.case`"
    )
    component = "args.service == case.belief.survivor.component"
    obligation = "$case.belief.active_obligation_id is look-at-the-disks"
    assert explained == [
        "defer (defer): ALLOW_UNMET at the stage constraints",
        "candidate 0: defer, ALLOW_UNMET",
        f"  restart_when_known ({POLICY}:26:5): restart only what is known to be the cause",
        f"    holds  line 29, case.belief.n_survivors == 1: $case.belief.n_survivors is 1 {AT}",
        f"    fails  line 30, case.belief.active_obligation_id == null: {obligation} {AT}",
        f"    holds  line 31, {component}: $args.service is checkout",
        f"    holds  line 31, {component}: $case.belief.survivor.component is checkout {AT}",
        f"    holds  line 32, case.belief.independent.n_survivors == 1: $case.belief.independent.n_survivors is 1 {AT}",
        "the smallest change that turns it to allow:",
        "  $belief.case.active_obligation_id is look-at-the-disks, and would have to be null",
    ]


@pytest.mark.slow
@pytest.mark.req("SS01-POLICY-EXPLAIN")
def test_every_test_of_the_example_can_be_explained_to_every_actor() -> None:
    for name in (result["name"] for result in json.loads(run("test", POLICY, "--json").stdout)[0]["results"]):
        for reader in ("operator", "agent"):
            ran = run("explain", POLICY, "--test", name, "--as", reader)
            assert (ran.exit_code, ran.stderr) == (0, "")
            assert "turns it" in ran.stdout
    asks = run("explain", POLICY, "--test", "a file without a source asks").stdout
    assert "an approval would let it pass" in asks
    assert "  fact.source_ref is not there, and would have to be another\n" in asks
    agent = run("explain", POLICY, "--test", "a file without a source asks", "--as", "agent").stdout
    assert "fact.source_ref would have to be otherwise; how is not yours to read" in agent


@pytest.mark.req("SS01-POLICY-EXPLAIN")
def test_a_proposal_in_a_file_is_explained_on_what_the_policy_file_says(place: Path) -> None:
    candidate = {"type": "tool_call", "tool_id": "one", "args": {}, "capability_token_id": "t"}
    policy = {
        "constraint.one": allow("one", op("all", eq("fact.hidden", 1), op("schema", "fact.a", {"pattern": "x"}))),
        "policy.private": ["fact.hidden"],
    }
    token = {"token_id": "t", "agent_id": "agent", "tool_ids": ["one"]}
    situation: dict[str, Any] = file_of(policy, tools=[{"tool_id": "one", "writes": False}])
    situation["given"] = {"capabilities": [token]}
    file, proposal = write(place, "s.json", situation), write(place, "p.json", {"candidates": [candidate]})
    told = json.loads(run("explain", file, "--proposal", proposal, "--json").stdout)
    assert told["decision"]["reason_code"] == "ALLOW_UNMET"
    assert told["flip"]["status"] == "bound"
    ran = run("explain", file, "--proposal", proposal, "--as", "agent")
    assert "1 step not shown: they read what is not yours to read" in ran.stdout
    assert "a change that turns it; fewer facts may do to allow:" in ran.stdout
    never = write(
        place, "n.json", {**situation, **file_of({"constraint.one": allow("one", op("schema", "fact.a", "n"))})}
    )
    assert "no change of facts turns it" in run("explain", never, "--proposal", proposal).stdout
    hard = {"constraint.one": allow("one", op("schema", "fact.a", {"type": "string", "pattern": "^y{99}$"}))}
    unknown = write(place, "u.json", {**situation, **file_of(hard)})
    assert "and none of up to 0 does" in run("explain", unknown, "--proposal", proposal).stdout


@pytest.mark.req("SS01-POLICY-EXPLAIN")
def test_a_recorded_decision_is_explained_from_a_store_and_from_an_export(recorded: Path) -> None:
    ran = run("explain", "--space", SPACE, "--proposal", "waits")
    assert ran.exit_code == 0
    assert "fact.a is not there, and would have to be p" in ran.stdout
    exported = run("explain", "--log", "space.jsonl", "--space", SPACE, "--proposal", "waits")
    assert exported.stdout == ran.stdout
    missing = run("explain", "--space", SPACE, "--proposal", "absent")
    assert (missing.exit_code, "absent" in missing.stderr) == (1, True)


# --- impact -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def looser(recorded: Path) -> str:
    policy = {"constraint.one": allow("one"), "constraint.two": allow("two"), "constraint.no": deny("three")}
    return write(recorded, "new.json", file_of(policy))


@pytest.mark.req("SS01-POLICY-IMPACT")
def test_flips_are_listed_the_dangerous_ones_first(looser: str) -> None:
    ran = run("impact", "--against", looser, "--space", SPACE)
    assert ran.exit_code == 1
    shown = ran.stdout.splitlines()
    assert [line.partition(" (")[0] for line in shown if line.startswith("    by ")] == [
        f"    by {name}" for name in ("two", "one", "no")
    ]
    assert [line for line in shown if not line.startswith("    by ")] == [
        "deny→allow  seq 6  denied  by agent:agent  ALLOW_UNMET → ALLOWED",
        "    would call two",
        "defer→allow  seq 5  waits  by agent:agent  ALLOW_UNMET → ALLOWED",
        "    would call one",
        "allow→deny  seq 7  allowed  by agent:agent  ALLOWED → CONSTRAINT_DENIED",
        "    would no longer call three",
        "allow→deny  seq 8  fact  by encoder:encoder  ALLOWED → NO_ALLOW",
        "    would no longer set fact.b to 1",
        "4 decisions, 4 flips: 1 deny→allow, 1 defer→allow, 2 allow→deny",
    ]


@pytest.mark.req("SS01-POLICY-IMPACT")
def test_an_export_has_the_same_impact_as_the_store(recorded: Path, looser: str) -> None:
    stored = run("impact", "--against", looser, "--space", SPACE, "--json")
    log = (recorded / "space.jsonl").read_bytes()
    exported = run("impact", "--against", looser, "--space", SPACE, "--json", "--log", "-", given=log)
    assert json.loads(exported.stdout) == json.loads(stored.stdout)
    assert json.loads(stored.stdout)["counts"]["deny→allow"] == 1


@pytest.mark.req("SS01-POLICY-IMPACT")
def test_a_policy_that_changes_no_verdict_ends_with_0(recorded: Path) -> None:
    gate = allow("one", eq("fact.a", "p"), on_fail="defer")
    policy = {"constraint.d": DELTAS, "constraint.one": gate, "constraint.three": allow("three")}
    same = write(recorded, "same.json", file_of({**policy, "constraint.no": deny("two")}))
    ran = run("impact", "--against", same, "--space", SPACE)
    assert ran.exit_code == 0
    assert ran.stdout == "4 decisions, 0 flips; 1 with the same verdict for another reason\n"


@pytest.mark.req("SS01-POLICY-IMPACT-BELIEF")
def test_a_session_that_history_never_read_is_read_or_named(recorded: Path) -> None:
    gate = allow("three", op("missing", "$belief.INC.n_survivors"))
    policy = {"constraint.d": DELTAS, "constraint.one": allow("one", eq("fact.a", "p"), on_fail="defer")}
    file = write(recorded, "gate.json", file_of({**policy, "constraint.three": gate}))
    # A store has every session, so that one that is not in it was never declared; an export may lack it.
    assert run("impact", "--against", file, "--space", SPACE).exit_code == 0
    ran = run("impact", "--against", file, "--space", SPACE, "--log", "space.jsonl")
    assert ran.exit_code == 2
    assert ran.stderr == "unknown  seq 7  allowed: what session `INC` said then\n"
    assert ran.stdout.splitlines()[-1] == f"1 decision of {SPACE} could not be made again"


@pytest.mark.req("SS01-POLICY-IMPACT")
def test_what_is_not_there_or_not_right_is_said(recorded: Path, looser: str) -> None:
    assert run("impact", "--against", looser, "--space", "nowhere").exit_code == 2
    assert run("impact", "--against", looser, "--space", "nowhere", "--log", "space.jsonl").exit_code == 2
    bad = write(recorded, "bad.json", file_of({"constraint.x": {"v": 1}}))
    ran = run("impact", "--against", bad, "--space", SPACE)
    assert (ran.exit_code, "`x`" in ran.stderr) == (2, True)
    first, *rest = (recorded / "space.jsonl").read_bytes().splitlines(keepends=True)
    entry = rest[0]
    for lines, message in [
        (b'{"format":"other"}\n', "not an export"),
        (b"{\n", "line 1:"),
        (first + entry.replace(b'"event_hash":"', b'"event_hash":"xx'), "line 2: `xx"),
    ]:
        ran = run("impact", "--against", looser, "--space", SPACE, "--log", "-", given=lines)
        assert (ran.exit_code, message in ran.stderr) == (2, True), ran.stderr
    tampered = (recorded / "space.jsonl").read_bytes().replace(b'"three"', b'"threE"')
    assert run("impact", "--against", looser, "--space", SPACE, "--log", "-", given=tampered).exit_code == 2


def test_one_stream_is_found_among_several_of_an_export(recorded: Path, looser: str) -> None:
    store = SQLiteStore(recorded / "cmbs.db")
    other = World(store, space=1)
    other.server.ensure("default")
    lines = b"\n".join(export_lines(store, ["space:default", f"space:{SPACE}"])) + b"\n"
    other.close()
    store.close()
    ran = run("impact", "--against", looser, "--space", SPACE, "--log", "-", given=lines)
    assert ran.stdout.splitlines()[-1].startswith("4 decisions, 4 flips")


def test_the_schema_is_printed() -> None:
    assert json.loads(run("schema").stdout) == policy_schema()


# --- check and compile ------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-FILE-OWN-TERMS")
def test_a_check_looks_a_file_through_and_runs_its_tests(place: Path) -> None:
    ran = run("check", POLICY)
    assert ran.exit_code == 0
    assert ran.stdout.splitlines()[0] == f"{POLICY}: 1 finding"
    assert ran.stdout.splitlines()[-1] == f"{POLICY}: 21 tests, 0 failed; 9 of 9 rules asked"
    file = place / "p.yaml"
    file.write_text(
        """format: 2
rules:
  - name: both
    allow: x
    when: >
      fact.a == 1 &&
      fact.a == 2
"""
    )
    ran = run("check", str(file))
    assert ran.exit_code == 1
    assert f"error    {file}:6:7: both: " in ran.stderr
    assert "in `fact.a == 1 && fact.a == 2` [never-true]" in ran.stderr
    (told,) = json.loads(run("check", str(file), "--json").stdout)
    assert told["findings"][0]["origin"]["condition"] == "fact.a == 1 && fact.a == 2"
    assert told["tests"]["passed"] == 0


@pytest.mark.req("GATES-FILE-COMPILES")
def test_a_file_is_compiled_to_one_of_payloads_that_says_the_same(place: Path) -> None:
    payloads = json.loads(run("compile", POLICY).stdout)
    (drain,) = [each for each in payloads["rules"] if each["name"] == "drain"]
    assert drain == {
        "name": "drain",
        "v": 2,
        "effect": "allow",
        "subject": {"tool_id": "service.drain"},
    }
    assert json.loads(run("compile", write(place, "p.json", payloads)).stdout) == payloads


@pytest.mark.req("GATES-FILE-OWN-TERMS")
def test_a_recorded_decision_is_explained_in_the_terms_of_the_recorded_file(place: Path) -> None:
    text = "format: 2\nrules:\n  - {name: gate, allow: one, when: fact.a == 1, otherwise: defer}\n"
    store = SQLiteStore(place / "cmbs.db")
    world = World(store)
    source = PolicySource(MediaType.YAML, text)
    world.say(CreateSpace(SPACE, policy=compile_file(text.encode(), "p.yaml").pairs, source=source))
    world.equip(caller_tool("one", writes=False))
    world.propose(call("one", key=None), proposal_id="waits")
    world.close()
    store.close()
    shown = run("explain", "--space", SPACE, "--proposal", "waits").stdout
    assert "  gate (the policy:3:5)\n    fails  line 3, fact.a == 1: fact.a is not there\n" in shown
