"""Kits in YAML and JSON: read as they were written, and refused with the line and the rule of everything wrong."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cmbs.adapters.kits import load_kit, read_kit
from cmbs.documents import nodes
from cmbs.documents.fields import MAX_ID_LENGTH, MAX_TEXT_LENGTH
from cmbs.documents.findings import MAX_FINDINGS, Finding, Rule
from cmbs.documents.nodes import count_values
from cmbs.errors import InvalidKit
from cmbs.kit import (
    Constant,
    CutPoints,
    Kit,
    KitHypothesis,
    KitOutcome,
    KitProbe,
    KitProvider,
    NormalBand,
    Reduction,
    Soundness,
    Tail,
    Window,
    writing,
)
from cmbs.kit.parse import InvalidKitFile, parse_kit
from cmbs.kit.rules import KitRule
from cmbs.kit.writing import check_writable, format_kit
from cmbs.testing.strategies.kits import kits
from tests.support.subtests import for_each

NAMES = ("kit.yaml", "kit.json")
GOOD = """\
    id: checkout
    version: "1"
    title: Checkout is slow
    soundness: sound
    hypotheses:
      - id: disk-full
        label: The disk is full
        prior: 2
        tags: [storage]
      - dns
      - bad-deploy
    probes:
      - id: df
        prompt: Is there room?
        outcomes:
          - {id: "yes", eliminates: [disk-full]}
          - {id: "no", label: none, keeps: [disk-full], soundness: heuristic}
      - id: latency
        reading: {normal: normal, abnormal: abnormal, median: 100, mad: 1e1, tail: high}
        soundness: statistical
        outcomes:
          - {id: normal, eliminates: [dns]}
          - {id: abnormal, eliminates: []}
    """


def parse(text: str, name: str = "kit.yaml") -> Kit:
    return parse_kit(dedent(text).encode(), name).kit


def refuse(text: str | bytes, name: str = "kit.yaml") -> list[str]:
    """Every finding as `line:column rule`."""
    with pytest.raises(InvalidKitFile) as caught:
        parse_kit(text if isinstance(text, bytes) else dedent(text).encode(), name)
    error = caught.value
    assert isinstance(error, InvalidKit)
    assert str(error).split("\n") == [finding.at(name) for finding in error.findings]
    return [
        f"{finding.place.line}:{finding.place.column} {finding.rule}" if finding.place else finding.rule
        for finding in error.findings
    ]


def message_of(text: str, name: str = "kit.yaml") -> str:
    """The only finding."""
    with pytest.raises(InvalidKitFile) as caught:
        parse_kit(dedent(text).encode(), name)
    (finding,) = caught.value.findings
    return finding.message


def with_hypotheses(line: str) -> str:
    return f"id: k\nversion: '1'\nsoundness: sound\nhypotheses: {line}\nprobes: []\n"


def with_outcomes(*lines: str, more: str = "") -> str:
    """A kit over `a`, `b`, `c`, with the outcomes of one probe from line 9 on, two columns after the eighth."""
    outcomes = "".join(f"\n        - {line}" for line in lines)
    head = "id: k\nversion: '1'\nsoundness: sound\nhypotheses: [a, b, c]\nprobes:\n"
    return f"{head}    - id: p{more}\n      prompt: ''\n      outcomes:{outcomes}\n"


def with_reading(reading: str) -> str:
    outcomes = "[{id: n, eliminates: [a]}, {id: x, eliminates: []}]"
    head = "id: k\nversion: '1'\nsoundness: sound\nhypotheses: [a, b]\nprobes:\n"
    return f"{head}  - id: p\n    outcomes: {outcomes}\n    reading: {reading}\n"


# --- what a file says -------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-02")
def test_every_field_reaches_the_kit() -> None:
    kit = parse(GOOD)
    assert (kit.kit_id, kit.version, kit.title) == ("checkout", "1", "Checkout is slow")
    assert kit.hypotheses[0] == KitHypothesis("disk-full", "The disk is full", 2.0, ("storage",))
    assert [each.id for each in kit.hypotheses] == ["disk-full", "dns", "bad-deploy"]
    df, latency = kit.probes
    assert df.outcomes == (
        KitOutcome("yes", frozenset({"disk-full"}), Soundness.SOUND),
        KitOutcome("no", frozenset({"dns", "bad-deploy"}), Soundness.HEURISTIC, "none"),
    )
    assert latency.reading == NormalBand("normal", "abnormal", 100, 10, 3.5, Tail.HIGH)
    assert {each.soundness for each in latency.outcomes} == {Soundness.STATISTICAL}


@pytest.mark.req("KIT-02", "GATES-ATTR-03")
def test_hypotheses_have_attributes_of_any_json() -> None:
    kit = parse(with_hypotheses("[a, {id: b, attributes: {component: db, tier: 2, tags: [x, null, true, 0.5]}}]"))
    first, second = kit.hypotheses
    assert first.attributes == {}
    assert second.attributes == {"component": "db", "tier": 2, "tags": ["x", None, True, 0.5]}
    assert KitProvider(kit).hypothesis_attributes() == {"b": second.attributes}
    assert len({first, second}) == 2


@pytest.mark.req("GATES-ATTR-03")
@for_each(
    ("attributes", "finding"),
    [
        ("[x]", "4:34 wrong-type"),
        ("text", "4:34 wrong-type"),
        ("{'': 1}", "4:35 too-large"),
        ("{" + "x" * 129 + ": 1}", "4:35 too-large"),
        ("{" + ", ".join(f"x{number}: 1" for number in range(65)) + "}", "4:34 too-large"),
        ("{x: [1, 9007199254740993]}", "4:42 bad-number"),
    ],
    ids=["a list", "a text", "no name", "a long name", "many", "an inexact number"],
)
def test_attributes_that_cannot_be_are_found_at_their_place(attributes: str, finding: str) -> None:
    assert refuse(with_hypotheses(f"[{{id: a, attributes: {attributes}}}]")) == [finding]


@pytest.mark.req("KIT-02")
def test_yaml_and_json_of_the_same_data_are_the_same_kit() -> None:
    as_json = json.dumps(yaml.safe_load(dedent(GOOD)) | {"format": 1})
    assert parse(as_json.replace("[", "[\n\t"), "kit.json") == parse(GOOD.replace("1e1", "10.0"))


@pytest.mark.req("KIT-02")
@given(kits(), st.sampled_from(NAMES))
def test_a_kit_that_is_written_and_read_is_the_same_kit(kit: Kit, name: str) -> None:
    assert parse_kit(format_kit(kit, name).encode(), name).kit == kit


def test_files_are_read_with_their_warnings(tmp_path: Path) -> None:
    path = tmp_path / "kit.yaml"
    path.write_text(dedent(GOOD), "utf-8")
    assert load_kit(path) == parse(GOOD)
    assert [finding.rule for finding in read_kit(str(path)).warnings] == []
    path.write_text(with_hypotheses("[a, b]"), "utf-8")
    (warning,) = read_kit(path).warnings
    assert warning.at("x") == (
        "x:4:14: no probe tells 2 hypotheses apart: `a`, `b`; they leave 1.000 bits of the kit undecided "
        "[indistinguishable]"
    )
    with pytest.raises(FileNotFoundError):
        load_kit(tmp_path / "absent.yaml")


def test_eliminates_and_keeps_may_both_be_there_where_they_agree() -> None:
    (only,) = parse(with_outcomes("{id: x, eliminates: [a], keeps: [b, c]}", "{id: y, eliminates: []}")).probes
    assert only.outcomes[0].eliminates == {"a"}


def test_a_baseline_may_be_given_by_its_samples() -> None:
    kit = parse(with_reading("{normal: n, abnormal: x, samples: [10, 12, 11, 900, 9], threshold: 2, tail: low}"))
    assert kit.probes[0].reading == NormalBand("n", "x", 11, 1, 2, Tail.LOW)


def test_intervals_are_given_by_their_cuts() -> None:
    kit = parse(with_reading("{cuts: [-1.5, 2], outcomes: [x, n, x]}"))
    assert kit.probes[0].reading == CutPoints((-1.5, 2.0), ("x", "n", "x"))


# --- words that are no texts ------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-03")
@for_each("word", ["true", "false", "3", "1.10"])
def test_a_word_that_is_no_text_without_quotes_says_what_to_write(word: str) -> None:
    assert message_of(with_outcomes("{id: x, eliminates: []}", f"{{id: {word}, eliminates: []}}")) == (
        f"`probes[0].outcomes[1].id` must be a text, and `{word}` without quotes is "
        f'{"a boolean" if word.isalpha() else "a number"}; write "{word}"'
    )


@pytest.mark.req("KIT-03")
def test_every_value_that_is_no_text_is_reported_with_its_place() -> None:
    assert refuse(with_hypotheses("[true, x, 3, 1.10, ~, [a], {b: c}]")) == [
        "4:14 boolean-for-text",
        "4:23 number-for-text",
        "4:26 number-for-text",
        "4:32 wrong-type",
        "4:35 wrong-type",
        "4:40 missing-field",
        "4:41 unknown-field",
    ]
    assert refuse(with_hypotheses("[a]").replace("version: '1'", "version:")) == ["2:9 wrong-type"]


# --- shape ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-03")
@for_each(
    ("text", "expected"),
    [
        ("- a\n", ["1:1 wrong-type"]),
        ("just text\n", ["1:1 wrong-type"]),
        ("id: k\n", ["1:1 missing-field"] * 3),
        (with_hypotheses("[]"), ["4:13 missing-field"]),
        (with_hypotheses("a"), ["4:13 wrong-type"]),
        (with_hypotheses("[a, b, a]"), ["4:20 duplicate-id"]),
        (with_hypotheses("[{id: a, lable: b}]"), ["4:22 unknown-field"]),
        (with_hypotheses("[{id: a, id: b}]"), ["4:22 duplicate-field"]),
        ("id: [\n", ["2:1 syntax"]),
        (with_hypotheses("[{id: true, label: 3, tags: x}]"), [
            "4:19 boolean-for-text", "4:32 number-for-text", "4:41 wrong-type",
        ]),
        (with_hypotheses("[{id: a, prior: 0}, {id: b, prior: .inf}, {id: c, prior: x}, {id: d, prior: [1]}]"), [
            "4:29 bad-number", "4:48 bad-number", "4:70 bad-number", "4:89 wrong-type",
        ]),
        ("format: 2\n" + with_hypotheses("[a]"), ["1:9 unknown-word"]),
        ("format: one\n" + with_hypotheses("[a]"), ["1:9 bad-number"]),
        (with_hypotheses("[a]").replace("sound\n", "certain\n"), ["3:12 unknown-word"]),
    ],
    ids=str,
)  # fmt: skip
def test_a_text_of_another_shape_is_refused_where_it_differs(text: str, expected: list[str]) -> None:
    assert refuse(text) == expected


@pytest.mark.req("KIT-03")
@for_each(
    ("lines", "expected"),
    [
        (["{id: x}"], ["9:11 missing-field"]),
        (["{id: x, eliminates: [a, zebra]}"], ["9:35 unknown-hypothesis"]),
        (["{id: x, eliminates: [a, a]}"], ["9:35 named-twice"]),
        (["{id: x, eliminates: a}"], ["9:31 wrong-type"]),
        (["{id: x, eliminates: {a: b}}"], ["9:31 wrong-type"]),
        (["{id: x, eliminates: [a, true]}"], ["9:35 boolean-for-text"]),
        (["{id: x, eliminates: [a], keeps: [a, b, c]}"], ["9:43 eliminates-and-keeps"]),
        (["{id: x, eliminates: [a], keeps: [b]}"], ["9:43 eliminates-and-keeps"]),
        (["{id: x, keeps: []}", "{id: y, eliminates: []}"], ["9:11 eliminates-everything"]),
        (["{id: x, eliminates: [a]}", "{id: y, eliminates: [a, b]}"], ["6:7 eliminated-by-every-outcome"]),
        (["{id: x, eliminates: [a]}", "{id: x, eliminates: [b]}"], ["10:11 duplicate-id"]),
        (["{id: no-data, eliminates: []}"], ["9:16 reserved-outcome"]),
        (["x"], ["9:11 wrong-type"]),
        (["{id: x, eliminates: [], soundness: very}"], ["9:46 unknown-word"]),
    ],
    ids=str,
)
def test_an_outcome_that_contradicts_itself_or_the_kit_is_refused(lines: list[str], expected: list[str]) -> None:
    assert refuse(with_outcomes(*lines)) == expected


@pytest.mark.req("KIT-07")
def test_an_elimination_without_a_soundness_is_refused_and_nothing_else_needs_one() -> None:
    bare = with_outcomes("{id: x, eliminates: [a]}", "{id: y, eliminates: []}").replace("soundness: sound\n", "")
    assert refuse(bare) == ["8:11 no-soundness"]
    of_its_own = parse(bare.replace("id: x,", "id: x, soundness: heuristic,"))
    assert [each.soundness for each in of_its_own.probes[0].outcomes] == [Soundness.HEURISTIC, Soundness.SOUND]
    of_the_probe = parse(bare.replace("prompt: ''", "soundness: closed-world"))
    assert {each.soundness for each in of_the_probe.probes[0].outcomes} == {Soundness.CLOSED_WORLD}


def test_probes_are_declared_once_and_have_outcomes() -> None:
    twice = with_outcomes("{id: x, eliminates: []}").replace("probes:\n", "probes:\n    - {id: p, outcomes: []}\n")
    assert refuse(twice) == ["6:25 missing-field"]
    again = with_outcomes("{id: x, eliminates: []}") + "    - {id: p, outcomes: [{id: x, eliminates: [a]}]}\n"
    assert refuse(again) == ["10:7 duplicate-id"]
    assert refuse(with_hypotheses("[a]").replace("probes: []", "probes: [p, {id: 12, outcomes: x}]")) == [
        "5:10 wrong-type",
        "5:18 number-for-text",
        "5:32 wrong-type",
    ]


@pytest.mark.req("KIT-08")
@for_each(
    ("reading", "expected"),
    [
        ("5", ["8:14 wrong-type"]),
        ("{normal: n, abnormal: x, median: 1, mad: 0}", ["8:14 bad-reading"]),
        ("{normal: n, abnormal: x, median: .nan, mad: 1}", ["8:47 bad-number"]),
        ("{normal: n, abnormal: x, median: 1, mad: 1e999}", ["8:55 bad-number"]),
        ("{normal: n, abnormal: x, median: 0o17, mad: 1_000}", ["8:47 bad-number", "8:58 bad-number"]),
        ("{normal: n, abnormal: other, median: 1, mad: 1}", ["8:14 unknown-outcome"]),
        ("{normal: n, abnormal: 3.5, median: 1, mad: 1, tail: up}", ["8:36 number-for-text", "8:66 unknown-word"]),
        ("{normal: n, median: 1, mad: 1}", ["8:14 missing-field"]),
        ("{normal: n, abnormal: x, samples: [3, 3, 3]}", ["8:14 bad-reading"]),
        ("{normal: n, abnormal: x, samples: []}", ["8:14 bad-reading"]),
        ("{normal: n, abnormal: x, samples: [1, x]}", ["8:52 bad-number"]),
        ("{normal: n, abnormal: x, samples: 3}", ["8:48 wrong-type"]),
        ("{cuts: [2, 1], outcomes: [n, x, n]}", ["8:14 bad-reading"]),
        ("{cuts: [1], outcomes: [n, y]}", ["8:14 unknown-outcome"]),
        ("{cuts: [1], outcomes: [n, 12]}", ["8:40 number-for-text"]),
        ("{cuts: [1]}", ["8:14 missing-field"]),
        ("{cuts: 1, outcomes: [n]}", ["8:21 wrong-type"]),
    ],
    ids=str,
)
def test_a_reading_that_makes_no_sense_is_refused(reading: str, expected: list[str]) -> None:
    assert refuse(with_reading(reading)) == expected


COUNTED = "{cuts: [1], outcomes: [n, x]}"


@pytest.mark.req("KIT-15")
@for_each(
    ("window", "expected"),
    [
        ("5", ["9:13 wrong-type"]),
        ("{k: 2}", ["9:13 missing-field"]),
        ("{reduction: most}", ["9:25 unknown-word"]),
        ("{reduction: k-of-n, k: 1.5}", ["9:36 bad-number"]),
        ("{reduction: k-of-n, k: 0, n: 10001}", ["9:36 bad-number", "9:42 bad-number"]),
        ("{reduction: k-of-n, counts: x}", ["9:13 bad-window"]),
        ("{reduction: any}", ["9:13 bad-window"]),
        ("{reduction: any, counts: y}", ["9:13 bad-window"]),
        ("{reduction: mean, counts: x}", ["9:13 bad-window"]),
    ],
    ids=str,
)
def test_a_window_that_makes_no_sense_is_refused(window: str, expected: list[str]) -> None:
    assert refuse(f"{with_reading(COUNTED)}    window: {window}\n") == expected


@pytest.mark.req("KIT-15")
def test_a_window_needs_a_reading_and_is_not_blamed_for_one_that_could_not_be_read() -> None:
    text = with_reading(COUNTED).replace(f"\n    reading: {COUNTED}", "")
    assert refuse(f"{text}    window: {{reduction: mean}}\n") == ["8:13 missing-field"]
    assert refuse(f"{with_reading('5')}    window: {{reduction: any}}\n") == ["8:14 wrong-type"]


@pytest.mark.req("KIT-15", "KIT-16")
def test_windows_and_constant_baselines_are_read() -> None:
    band = "{normal: n, abnormal: x, samples: [3, 3, 3], constant: no-verdict}"
    text = f"{with_reading(band)}    window: {{reduction: k-of-n, k: 2, n: 3}}\n"
    (probe,) = parse_kit(text.encode(), "kit.yaml").kit.probes
    assert probe.reading == NormalBand("n", "x", 3, 0, constant=Constant.NO_VERDICT)
    assert probe.window == Window(Reduction.K_OF_N, 2, 3)


def test_a_reading_is_not_blamed_for_outcomes_that_could_not_be_read() -> None:
    text = with_reading("{cuts: [1], outcomes: [n, x]}").replace("{id: x,", "{id: 12,")
    assert refuse(text) == ["7:47 number-for-text"]


def test_json_is_refused_with_places_too() -> None:
    text = '{"id": "k",\n "version": true, "hypotheses": [null], "probes": [-1.5e3, []]}'
    places = ["2:13 boolean-for-text", "2:34 wrong-type", "2:52 wrong-type", "2:60 wrong-type"]
    assert refuse(text, "kit.json") == places
    assert refuse('{"id": "k" "version"}', "kit.json") == ["1:12 syntax"]


@pytest.mark.req("KIT-18")
def test_an_id_with_nul_is_refused_with_its_place() -> None:
    assert refuse(with_hypotheses('[a, "b\\0"]')) == ["4:17 nul"]


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-03")
def test_what_is_larger_than_a_kit_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refuse(with_hypotheses(f"[{'a' * (MAX_ID_LENGTH + 1)}]")) == ["4:14 too-large"]
    assert refuse(with_hypotheses(f"[{{id: a, label: {'a' * (MAX_TEXT_LENGTH + 1)}}}]")) == ["4:29 too-large"]
    assert refuse(with_hypotheses(f"[{{id: a, tags: [{', '.join(f't{n}' for n in range(101))}]}}]")) == [
        "4:28 too-large"
    ]
    monkeypatch.setattr("cmbs.kit.parse.MAX_ELIMINATIONS", 2)
    assert refuse(with_outcomes("{id: x, eliminates: [a, b]}", "{id: y, eliminates: [c]}")) == ["10:11 too-large"]


def test_many_findings_are_told_up_to_a_limit() -> None:
    assert len(refuse(with_hypotheses(f"[{', '.join(['true'] * 1000)}]"))) == MAX_FINDINGS


def read_or_refuse(data: bytes, name: str) -> Kit | tuple[Finding, ...]:
    try:
        return parse_kit(data, name).kit
    except InvalidKitFile as refusal:
        return refusal.findings


@given(st.data())
def test_a_kit_with_any_piece_replaced_is_read_or_refused_at_a_place(data: st.DataObject) -> None:
    text = dedent(GOOD)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 8)))
    pieces = ["", "yes", "[", "]", "{", "&a", "*a", ": ", "- ", "\n", "#", "!!x ", '"', "\t", "\x85"]
    piece = data.draw(st.sampled_from(pieces))
    result = read_or_refuse((text[:start] + piece + text[end:]).encode(), "kit.yaml")
    if isinstance(result, Kit):
        assert parse_kit(format_kit(result, "kit.json").encode(), "kit.json").kit == result
    else:
        assert all(finding.place for finding in result)


@pytest.mark.req("KIT-03")
def test_a_finding_as_data_has_everything_that_its_line_has() -> None:
    with pytest.raises(InvalidKitFile) as caught:
        parse(with_outcomes("{id: x, eliminates: [zebra]}"))
    (finding,) = caught.value.findings
    assert finding.to_dict() == {
        "severity": "error",
        "rule": KitRule.UNKNOWN_HYPOTHESIS.value,
        "message": "`probes[0].outcomes[0].eliminates` names `zebra`, which is no hypothesis",
        "path": ["probes", 0, "outcomes", 0, "eliminates"],
        "line": 9,
        "column": 32,
    }


def test_of_a_text_that_is_wrong_only_the_beginning_is_told() -> None:
    name, word = "n" * 1_000_000, "w" * MAX_TEXT_LENGTH
    text = json.dumps({"id": "k", "version": "1", "soundness": word, "hypotheses": ["a"], "probes": [], name: 1})
    with pytest.raises(InvalidKitFile) as caught:
        parse_kit(text.encode(), "kit.json")
    assert [finding.rule for finding in caught.value.findings] == [Rule.UNKNOWN_WORD, Rule.UNKNOWN_FIELD]
    assert len(str(caught.value)) < 500


@pytest.mark.req("KIT-18")
@given(kits(), st.sampled_from(NAMES))
def test_a_kit_is_taken_for_too_large_exactly_where_its_file_would_be(kit: Kit, name: str) -> None:
    text = format_kit(kit, name).encode()
    values = count_values(json.loads(text) if name.endswith(".json") else yaml.safe_load(text))
    for most in (values, values - 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nodes, "MAX_VALUES", most)
            patch.setattr(writing, "MAX_VALUES", most)
            if most == values:
                check_writable(kit)
                assert parse_kit(text, name).kit == kit
                continue
            with pytest.raises(InvalidKitFile, match="values"):
                check_writable(kit)
            with pytest.raises(InvalidKitFile, match="values"):
                parse_kit(text, name)


@pytest.mark.req("KIT-18")
@pytest.mark.parametrize(
    ("limit", "most", "noun"),
    [
        ("MAX_HYPOTHESES", 1, "hypotheses"),
        ("MAX_PROBES", 0, "probes"),
        ("MAX_OUTCOMES", 1, "outcomes of a probe"),
        ("MAX_ELIMINATIONS", 1, "eliminations"),
        ("MAX_ID_LENGTH", 0, "characters of an id"),
        ("MAX_TEXT_LENGTH", 0, "characters of a text"),
    ],
)
def test_what_a_kit_has_too_much_of_is_named(limit: str, most: int, noun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = (KitOutcome("x", frozenset("a"), Soundness.SOUND), KitOutcome("y", frozenset("b"), Soundness.SOUND))
    kit = Kit("k", "1", "t", (KitHypothesis("a"), KitHypothesis("b")), (KitProbe("p", "", outcomes),))
    check_writable(kit)
    monkeypatch.setattr(writing, limit, most)
    with pytest.raises(InvalidKitFile, match=f"at most {most} {noun}, and here are"):
        check_writable(kit)
