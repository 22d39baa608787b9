"""Conditions: what they are translated to is what they say, and what the subset lacks is refused where it stands."""

from typing import Any

import pytest
from celpy.celparser import CELParser
from hypothesis import given
from hypothesis import strategies as st

from cmbs.ledger import canonical
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.model import Stage
from cmbs.substrate.kernel.policy.cel import MAX_CONDITION_DEPTH, ConditionTranslator, translate_condition
from cmbs.substrate.kernel.policy.cel_syntax import MAX_CONDITION_CHARACTERS, ConditionFault, _load_parser
from cmbs.substrate.kernel.policy.predicates import Asking, compile_predicate
from cmbs.substrate.kernel.policy.references import EvaluationContext
from tests.support.conditions import CONDITIONS, VALUES, Expr, holds, write
from tests.support.subtests import for_each

ASKING = Asking(Stage.CONSTRAINTS, 0, "constraint.x")


def evaluate(text: str, seen: EvaluationContext) -> bool:
    predicate = translate_condition(text).predicate
    return compile_predicate(canonical.decode(canonical.encode(predicate)), {}).evaluate(seen, ASKING, [])


def refuse(text: str) -> tuple[int, str]:
    with pytest.raises(ConditionFault) as caught:
        translate_condition(text)
    return caught.value.index, str(caught.value)


# --- meaning ----------------------------------------------------------------------------------------------------------


def state_text(value: Any) -> str:
    """A value of the state: text that looks like JSON is read as that, so only other text stands for itself."""
    return value if isinstance(value, str) else canonical.encode(value).decode()


@pytest.mark.req("GATES-CEL-MEANING")
@for_each(
    ("text", "args", "expected"),
    [
        # As in CEL, a mapping has keys and a list has members.
        ('"a" in args.m', {"m": {"a": 0}}, True),
        ('"b" in args.m', {"m": {"a": "b"}}, False),
        ("args.k in args.m", {"k": "a", "m": {"a": None}}, True),
        ("1 in args.m", {"m": {"1": 1}}, False),
        ('"a" in args', {"a": None}, True),
        ('!("a" in args.m)', {"m": {"a": 0}}, False),
        # Two negations open nothing by what is not there.
        ("!(!args.on)", {}, False),
        ("!(!args.on)", {"on": True}, True),
        ("!(!args.on)", {"on": False}, False),
        ("!(!(!args.on))", {}, False),
    ],
)
def test_mappings_and_negations_mean_what_they_mean_in_cel(text: str, args: dict[str, Any], expected: bool) -> None:
    seen = EvaluationContext({}, {}, Actor(ActorKind.AGENT, "ab"), args, "t")
    assert evaluate(text, seen) is expected


@pytest.mark.req("GATES-CEL-MEANING")
@given(CONDITIONS, st.data())
def test_a_condition_is_decided_as_its_text_says(condition: Expr, data: st.DataObject) -> None:
    some = st.sampled_from(VALUES)
    args: dict[str, Any] = data.draw(
        st.fixed_dictionaries({}, optional={"n": some, "path": some, "list": some, "deep": some})
    )
    if data.draw(st.booleans()):
        args["deep"] = {"x": data.draw(some)}
    state: dict[str, Any] = data.draw(st.fixed_dictionaries({}, optional={"fact.a": some, "fact.b-c": some}))
    tool_id = data.draw(st.sampled_from([None, "a", "on"]))
    values = {f"args.{name}": args[name] for name in ("n", "path", "list") if name in args}
    values |= {"fact.a": state["fact.a"]} if "fact.a" in state else {}
    values |= {'state["fact.b-c"]': state["fact.b-c"]} if "fact.b-c" in state else {}
    values |= {"args.deep.x": args["deep"]["x"]} if isinstance(args.get("deep"), dict) else {}
    values |= {"actor.id": "ab"} if tool_id is None else {"actor.id": "ab", "tool.id": tool_id}
    texts = {key: state_text(value) for key, value in state.items()}
    seen = EvaluationContext(texts, {}, Actor(ActorKind.AGENT, "ab"), args, tool_id)
    assert evaluate(write(condition), seen) == holds(condition, values)


@pytest.mark.req("GATES-CEL-MEANING")
@for_each(
    ("text", "predicate"),
    [
        ('args.service == "x"', {"op": "eq", "args": ["$args.service", "x"]}),
        ("1 < args.n", {"op": "gt", "args": ["$args.n", 1]}),
        ("args.n <= fact.max", {"op": "le", "args": ["$args.n", {"ref": "fact.max"}]}),
        ("args.n != -1.5", {"op": "ne", "args": ["$args.n", -1.5]}),
        ("args.n >= - 2", {"op": "ge", "args": ["$args.n", -2]}),
        ("args.n == 0x1F", {"op": "eq", "args": ["$args.n", 31]}),
        ("fact.on", {"op": "eq", "args": ["fact.on", True]}),
        ("!fact.on", {"op": "eq", "args": ["fact.on", False]}),
        ("!(fact.on)", {"op": "eq", "args": ["fact.on", False]}),
        ("!!fact.on", {"op": "eq", "args": ["fact.on", True]}),
        ("!(!fact.on)", {"op": "eq", "args": ["fact.on", True]}),
        ("!(!(!(fact.on)))", {"op": "eq", "args": ["fact.on", False]}),
        (
            "args.x in case.belief.survivor.hosts",
            {"op": "in", "args": ["$args.x", {"ref": "$case.belief.survivor.hosts"}]},
        ),
        ("!(fact.on == true)", {"op": "not", "args": [{"op": "eq", "args": ["fact.on", True]}]}),
        ("has(goal.x)", {"op": "exists", "args": ["goal.x"]}),
        ("!has(goal.x)", {"op": "missing", "args": ["goal.x"]}),
        ("fact.x == null", {"op": "eq", "args": ["fact.x", None]}),
        ('args.p.startsWith("/r")', {"op": "prefix", "args": ["$args.p", "/r"]}),
        ("args.p.startsWith(fact.root)", {"op": "prefix", "args": ["$args.p", {"ref": "fact.root"}]}),
        ('"operator" in actor.roles', {"op": "in", "args": [{"literal": "operator"}, {"ref": "$actor.roles"}]}),
        ("tool.id in policy.value.tools", {"op": "in", "args": ["$tool.id", {"ref": "policy.value.tools"}]}),
        ('actor.kind in ["agent", "tool"]', {"op": "in", "args": ["$actor.kind", ["agent", "tool"]]}),
        ("actor.id in []", {"op": "in", "args": ["$actor.id", []]}),
        ("args.x in [fact.a]", {"op": "eq", "args": ["$args.x", {"ref": "fact.a"}]}),
        (
            'args.x in ["a", fact.b]',
            {
                "op": "any",
                "args": [
                    {"op": "in", "args": ["$args.x", ["a"]]},
                    {"op": "eq", "args": ["$args.x", {"ref": "fact.b"}]},
                ],
            },
        ),
        ('args.x == ["a", [1]]', {"op": "eq", "args": ["$args.x", ["a", [1]]]}),
        ('(args.x) == ("a")', {"op": "eq", "args": ["$args.x", "a"]}),
        ('state["fact.a-b"].c[0] == 1', {"op": "eq", "args": ["fact.a-b.c.0", 1]}),
        ('fact["a-b.c"] == 1', {"op": "eq", "args": ["fact.a-b.c", 1]}),
        ('args.set["goal.x"] == "1"', {"op": "eq", "args": ["$args.set.goal.x", "1"]}),
        ('belief["INC-2.4"].n_survivors == 1', {"op": "eq", "args": ["$belief.INC-2.4.n_survivors", 1]}),
        ("args.x == r'\\d'", {"op": "eq", "args": ["$args.x", "\\d"]}),
        ('args.x == "\\u00e9\\U0001F600\\x41\\101\\n\\""', {"op": "eq", "args": ["$args.x", 'é\U0001f600AA\n"']}),
        ('args.x == """a\n"b" """', {"op": "eq", "args": ["$args.x", 'a\n"b" ']}),
        ('args.url == "http://x"', {"op": "eq", "args": ["$args.url", "http://x"]}),
    ],
)
def test_conditions_become_predicates(text: str, predicate: Any) -> None:
    condition = translate_condition(text)
    assert condition.predicate == predicate
    compile_predicate(predicate, {})
    start, end = condition.spans[""]
    # A span has no parentheses of its own.
    assert text[start:end] in text


@pytest.mark.req("GATES-CEL-MEANING")
def test_every_part_says_what_it_was_written_as() -> None:
    text = '(fact.a == 1 && fact.b != true) && (!has(fact.c) || "x" in args.y)'
    condition = translate_condition(text)
    assert [each["op"] for each in condition.predicate["args"]] == ["eq", "ne", "any"]
    assert {at: text[start:end] for at, (start, end) in condition.spans.items()} == {
        "": text,
        ".args[0]": "fact.a == 1",
        ".args[1]": "fact.b != true",
        ".args[2]": '!has(fact.c) || "x" in args.y',
        ".args[2].args[0]": "!has(fact.c)",
        ".args[2].args[1]": '"x" in args.y',
    }


def test_a_null_is_there_and_what_is_missing_is_not_null() -> None:
    gate = 'belief["S"].active_obligation_id == null'
    seen = EvaluationContext({"fact.x": "null"}, {}, Actor(ActorKind.AGENT, "a"), {})
    assert not evaluate(gate, seen)
    assert evaluate("fact.x == null", seen)
    assert not evaluate("fact.y == null", seen)
    assert not evaluate("fact.y != null", seen)
    assert not evaluate("!belief['S'].terminated", seen)


@pytest.mark.req("GATES-CEL-MEANING")
@given(st.lists(CONDITIONS, max_size=4), st.data())
def test_a_condition_of_a_known_shape_is_translated_as_by_itself(conditions: list[Expr], data: st.DataObject) -> None:
    translator = ConditionTranslator()
    for condition in conditions:
        text = write(condition)
        changed = text.replace('"a"', data.draw(st.sampled_from(['"a"', '"longer // text"', '""', '"\\n"'])))
        for each in (text, changed, text):
            assert translator.translate(each) == translate_condition(each)


@for_each(
    "text",
    [
        'args["x"] == "a"',
        'state["fact.a"] == "a"',
        'belief["S"].n_survivors == 1 && fact.a == "b"',
        "args.x == 'a' && args.y == \"b's\"",
        'args.x == """a"""',
        'args.x == "\\n"',
        'args.x == "\ue0000000"',
        'args.in ["a"] == "b"',
    ],
)
def test_texts_that_are_names_or_hold_escapes_are_translated_each_time(text: str) -> None:
    translator = ConditionTranslator()
    assert [translator.translate(text), translator.translate(text)] == [translate_condition(text)] * 2


@for_each("text", ['args["a.b"] == "c"', 'args.x == "a\nb"', 'args.x == "a" // b', 'args.x == "a'])
def test_what_is_refused_by_itself_is_refused_in_a_file(text: str) -> None:
    translator = ConditionTranslator()
    for _ in range(2):
        with pytest.raises(ConditionFault) as caught:
            translator.translate(text)
        assert (caught.value.index, str(caught.value)) == refuse(text)


def test_shapes_that_are_kept_have_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cmbs.substrate.kernel.policy.cel.MAX_SHAPES", 1)
    translator = ConditionTranslator()
    for text in ('fact.a == "x"', 'fact.b == "x"', 'fact.a == "y"'):
        assert translator.translate(text) == translate_condition(text)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.req("GATES-CEL-REFUSED")
@for_each(
    ("text", "index", "message"),
    [
        ("", 0, "a condition is empty"),
        ("args.x ==", 9, "ends too early"),
        ("args.x == 1 )", 12, "not CEL at `)`"),
        ('fact.a == 1 &&\n args.x == "abc', 26, 'not CEL at `"abc`'),
        ("args.x and args.y", 7, "write `&&` and not `and`"),
        ("args.x or args.y", 7, "write `||` and not `or`"),
        ("args.x == 1 & args.y", 12, "write `&&` and not `&`"),
        ("args.x = 1", 7, "write `==` and not `=`"),
        ("args.x == 1 // why", 12, "no `//` comments"),
        ("args.x + 1 == 2", 7, "do not calculate"),
        ("args.x == 2 * 3", 12, "do not calculate"),
        ("args.x == -args.y", 10, "do not calculate"),
        ("-args.x", 0, "do not calculate"),
        ("args.x == (1 + 1)", 13, "do not calculate"),
        ("args.x == 1 ? args.y : args.z", 14, "there is no `? :` here"),
        ("args.x == (args.y ? 1 : 2)", 20, "there is no `? :` here"),
        ("size(args.x) == 1", 0, "there is no `size` here"),
        ("args.x.size() == 1", 0, "there is no `size` here"),
        ('args.x.matches("a")', 0, "there is no `matches` here"),
        ("args.x.exists(y, y == 1)", 0, "no macros"),
        ("[1, 2].all(y, y == 1)", 0, "no macros"),
        ("args.x.foo()", 0, "there is no `foo` here; known are `has(x)`"),
        (".size(args.x)", 0, "there is no `size` here"),
        ("has(args.x) == true", 0, "a condition is not compared"),
        ("has()", 0, "`has` is asked of one name"),
        ("has(args.x, args.y)", 0, "`has` is asked of one name"),
        ("has(1)", 0, "`has` is asked of one name"),
        ('"a".startsWith("b")', 0, "`startsWith` is asked of a name"),
        ("args.x.startsWith(1)", 0, "`startsWith` is asked of a name"),
        ("args.x.startsWith()", 0, "`startsWith` is asked of a name"),
        ("args.x == {'a': 1}", 10, "no mappings"),
        ("args{a: 1} == 2", 0, "no messages"),
        ("1 < args.x < 3", 0, "a comparison has two sides"),
        ("(args.a == 1) == true", 1, "a condition is not compared"),
        ("!args.a == true", 0, "a condition is not compared"),
        ("1 == 1", 0, "two literals"),
        ("1 in [1]", 0, "two literals"),
        ("true", 0, "a literal alone is none"),
        ("fact.a == 1 && (false)", 16, "a literal alone is none"),
        ('args.x < "a"', 9, "`<` compares numbers"),
        ("true >= args.x", 0, "`<=` compares numbers"),
        ("args.x in 3", 10, "`in` is asked of a list"),
        ("args.x == [fact.a]", 11, "a name in a list is for `in` alone"),
        ("foo.bar == 1", 0, "there is no name `foo`"),
        ("arg.x == 1", 0, "did you mean `args`"),
        ("state == 1", 0, "name the key of the state"),
        ('state["other.a"] == 1', 0, "in none of the namespaces"),
        ("actor.name == 1", 0, "`$actor.name` is neither"),
        ("belief.s.nope == 1", 0, "a field being one of"),
        ('args["a.b"] == 1', 5, "a name with a dot"),
        ('args.deep["a.b"] == 1', 10, "a name with a dot"),
        ("args[args.x] == 1", 5, "in brackets stands a name"),
        ('args[""] == 1', 5, "in brackets stands a name"),
        ("args[-1] == 1", 5, "in brackets stands a name"),
        ('fact.a == 1 && args.list["0"] == 1', 25, "would be a place in a list too"),
        ('"x" in tool.id', 7, "`tool.id` is never one"),
        ("args.x in case.belief.survivor", 10, "`case.belief.survivor` is never one"),
        ("1 in case.belief.independent.n_survivors", 5, "is never one"),
        ("args.x in belief.s.terminated", 10, "is never one"),
        ("(args).x == 1", 0, "fields are looked up in a name"),
        (".args == 1", 0, "fields are looked up in a name"),
        ('"a".b == 1', 0, "fields are looked up in a name"),
        ("args.x == 1u", 10, "numbers have no `u`"),
        ('args.x == b"x"', 10, "no bytes"),
        ("args.x == 9007199254740993", 10, "not exact in I-JSON"),
        ("args.x == 1e999", 10, "the number is too large"),
        ('args.x == "\\q"', 10, "there is no escape `\\q`"),
        ('args.x == "\\ud800"', 10, "is no character"),
        ('args.x == "\\UFFFFFFFF"', 10, "is no character"),
        ("(" * 40 + "args.x" + ")" * 40, MAX_CONDITION_DEPTH + 1, "nested more than"),
        ("args.x == " + "(" * 40 + "1" + ")" * 40, 10 + MAX_CONDITION_DEPTH + 1, "nested more than"),
        ("args.x == " + "- " * 40 + "1", 10 + 2 * (MAX_CONDITION_DEPTH + 1), "do not calculate"),
        ("x" * (MAX_CONDITION_CHARACTERS + 1), 0, "a condition has at most"),
    ],
)
def test_what_the_subset_lacks_is_refused_where_it_stands(text: str, index: int, message: str) -> None:
    found, said = refuse(text)
    assert message in said, said
    assert found == index, (found, text[found:])


@for_each(
    ("text", "fix"),
    [
        ("fact.a == 1 && cas.id == 2", (15, "cas", "case")),
        ("foo.bar == 1", None),
        ("case.beleif.n_survivors == 1", (5, "beleif", "belief")),
        ("case.belief.n_survivor == 1", (12, "n_survivor", "n_survivors")),
        ("case.belief.independant.n_survivors == 1", (12, "independant", "independent")),
        ("actor.kid == 1", (6, "kid", "kind")),
        ("belief.s.terminate == true", (9, "terminate", "terminated")),
        # No one segment is wrong, or none is like it.
        ("case.survivors == 1", None),
        ("actor.name == 1", None),
        ('state["other.a"] == 1', None),
    ],
)
def test_a_name_that_is_nearly_known_has_a_fix(text: str, fix: tuple[int, str, str] | None) -> None:
    with pytest.raises(ConditionFault) as caught:
        translate_condition(text)
    assert caught.value.fix == fix


@pytest.mark.slow
def test_long_chains_and_deep_paths_recurse_nowhere() -> None:
    many = " && ".join(f"fact.x{number} == 1" for number in range(700))
    assert len(translate_condition(many).predicate["args"]) == 700
    assert refuse("args" + ".x" * 5_000)[1] == "a reference has at most 512 characters"
    assert translate_condition("!" * 5_000 + "fact.x").predicate == {"op": "eq", "args": ["fact.x", True]}


def test_the_parser_that_cel_python_shares_stays_its_own() -> None:
    CELParser()
    shared = CELParser.CEL_PARSER
    own = _load_parser.__wrapped__()
    assert CELParser.CEL_PARSER is shared
    assert own is not shared
