"""Any CSV of entities and attributes is a kit, and what is wrong with one is told with its line."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.provider_mask import BeliefState
from cmbs.documents.csv_text import MAX_COLUMNS, MAX_ROWS, MAX_TABLE_BYTES, Table, read_table
from cmbs.documents.fields import MAX_ID_LENGTH
from cmbs.documents.findings import MAX_FINDINGS, InvalidDocument, Severity
from cmbs.kit import Constant, CutPoints, Kit, KitProbe, KitProvider, NormalBand, Reduction, Soundness, Tail, Window
from cmbs.kit.attributes import Attribute, make_interval_probe
from cmbs.kit.parse import parse_kit
from cmbs.kit.rules import findings_of
from cmbs.kit.table import TableKit, TableOptions, ValueProbes, baselines_from, kit_from_table
from cmbs.kit.writing import format_kit
from tests.support.itbench import load_derived, needs_itbench
from tests.support.subtests import for_each

ANIMALS = """\
animal,kind,legs,weight,eats,flies,note
dog,mammal,4,30,meat;grain,no,same
cat,mammal,4,4.5,meat,no,same
hen,bird,2,2.5,grain; insects,,same
bat,mammal,2,0.02,insects,yes,same
carp,fish,0,5,,no,same
"""
FAULTS = """\
fault,latency,errors,heap
disk,high,abnormal,
cpu,high,,low
dns,,high,low
none,normal,normal,normal
"""
SAMPLES = """\
time,latency,errors,heap
10:00,10,1,50
10:01,12,2,
10:02,11,3,70
10:03,900,2,60
"""
# A value is a text without space around it; this one means what an empty cell means.
VALUES = st.sampled_from(["", "red", "green", "blue", "yes", "no", "4", "a=b"])


def table_of(text: str) -> Table:
    return read_table(dedent(text).encode(), "t.csv")


def make(table: str, id_column: str = "animal", **options: Any) -> TableKit:
    return kit_from_table(table_of(table), TableOptions(id_column, **options), kit_id="t", version="1")


def outcomes(kit: Kit, probe_id: str) -> dict[str, list[str]]:
    probe = kit.probe(probe_id)
    assert probe is not None
    return {outcome.outcome_id: sorted(outcome.eliminates) for outcome in probe.outcomes}


def soundness(kit: Kit, probe_id: str) -> list[Soundness]:
    probe = kit.probe(probe_id)
    assert probe is not None
    return [outcome.soundness for outcome in probe.outcomes]


def refuse(table: str | bytes, **options: Any) -> list[str]:
    """Every finding as `line rule`."""
    data = table if isinstance(table, bytes) else table.encode()
    with pytest.raises(InvalidDocument) as caught:
        kit_from_table(read_table(data, "t.csv"), TableOptions("id", **options), kit_id="t")
    return [f"{each.place.line} {each.rule}" if each.place else each.rule for each in caught.value.findings]


# --- attributes -------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-11")
def test_a_row_is_a_hypothesis_and_a_column_a_probe() -> None:
    kit, notes = (result := make(ANIMALS, split=frozenset({"eats"}))).kit, result.notes
    assert [each.id for each in kit.hypotheses] == ["dog", "cat", "hen", "bat", "carp"]
    assert [each.probe_id for each in kit.probes] == ["kind", "legs", "weight", "eats", "flies"]
    assert outcomes(kit, "kind") == {
        "bird": ["bat", "carp", "cat", "dog"],
        "fish": ["bat", "cat", "dog", "hen"],
        "mammal": ["carp", "hen"],
    }
    assert list(outcomes(kit, "legs")) == ["0", "2", "4"]
    assert notes == ("column `note` has one value, so it asks nothing",)


@pytest.mark.req("KIT-06", "KIT-11")
def test_an_entity_without_data_is_kept_by_every_answer() -> None:
    kit = make(ANIMALS, split=frozenset({"eats"})).kit
    assert outcomes(kit, "flies") == {"no": ["bat"], "yes": ["carp", "cat", "dog"]}
    assert outcomes(kit, "eats") == {"grain": ["bat", "cat"], "insects": ["cat", "dog"], "meat": ["bat", "hen"]}


@pytest.mark.req("KIT-06")
def test_words_that_mean_no_data_are_no_values() -> None:
    kit = make("animal,flies\ndog,no\nbat,yes\nhen,?\nemu,no-data\n", no_data=frozenset({"?"})).kit
    assert outcomes(kit, "flies") == {"no": ["bat"], "yes": ["dog"]}


@pytest.mark.req("KIT-11")
def test_several_values_may_be_several_questions() -> None:
    every = make(ANIMALS, split=frozenset({"eats"}), probes=ValueProbes.YES_NO).kit
    assert [each.probe_id for each in every.probes] == [
        *("kind=bird", "kind=fish", "kind=mammal", "legs=0", "legs=2", "legs=4", "weight"),
        *("eats=grain", "eats=insects", "eats=meat", "flies"),
    ]
    assert outcomes(every, "kind=fish") == {"yes": ["bat", "cat", "dog", "hen"], "no": ["carp"]}
    assert outcomes(every, "eats=grain") == {"yes": ["bat", "cat"], "no": ["dog", "hen"]}
    one = make(ANIMALS, yes_no=frozenset({"legs"}), drop=frozenset({"eats", "note"})).kit
    assert [each.probe_id for each in one.probes] == ["kind", "legs=0", "legs=2", "legs=4", "weight", "flies"]


def test_a_column_without_differences_is_not_asked_for() -> None:
    kit = make("animal,eats\na,x;y\nb,x;z\n", split=frozenset({"eats"}), probes=ValueProbes.YES_NO).kit
    assert [each.probe_id for each in kit.probes] == ["eats=y", "eats=z"]
    with_a_gap = make("animal,eats\na,x;y\nb,x\nc,\n", split=frozenset({"eats"}), probes=ValueProbes.YES_NO).kit
    assert outcomes(with_a_gap, "eats=x") == {"yes": [], "no": ["a", "b"]}


@pytest.mark.req("KIT-07")
def test_how_sound_an_elimination_is_follows_from_the_column() -> None:
    kit = make(ANIMALS, split=frozenset({"eats"}), yes_no=frozenset({"eats"})).kit
    assert set(soundness(kit, "kind")) == {Soundness.SOUND}
    assert set(soundness(kit, "weight")) == {Soundness.STATISTICAL}
    assert soundness(kit, "eats=meat") == [Soundness.CLOSED_WORLD, Soundness.SOUND]
    said = make(ANIMALS, soundness=Soundness.HEURISTIC).kit
    assert {each for probe in said.probes for each in soundness(said, probe.probe_id)} == {Soundness.HEURISTIC}


def test_labels_and_priors_are_columns_of_their_own() -> None:
    kit = make(
        "animal,name,weight,legs\ndog,Rex,2,4\ncat,,,4\nhen,,1e-3,2\n", label_column="name", prior_column="weight"
    ).kit
    assert [(each.label, each.prior) for each in kit.hypotheses] == [("Rex", 2), ("", 1), ("", 0.001)]
    assert [each.probe_id for each in kit.probes] == ["legs"]


def test_without_a_version_the_content_is_the_version() -> None:
    first, same, other = (
        kit_from_table(table_of(text), TableOptions("animal"), kit_id="t").kit.version
        for text in (ANIMALS, ANIMALS.replace("\n", "\r\n"), ANIMALS.replace("4.5", "4.6"))
    )
    assert first == same
    assert first != other
    assert first.startswith("sha256-")


# --- measurements -----------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-08", "KIT-11")
def test_a_measurement_is_cut_into_bands_that_read_numbers() -> None:
    kit = make(ANIMALS, bands=3, split=frozenset({"eats"})).kit
    probe = kit.probe("weight")
    assert probe is not None
    assert probe.reading == CutPoints((3.5, 4.75), ("below 3.5", "3.5 to 4.75", "4.75 or more"))
    assert outcomes(kit, "weight")["below 3.5"] == ["carp", "cat", "dog"]
    state = BeliefState(KitProvider(kit))
    state.apply_probe("weight", 4)
    assert state.survivors == {"cat"}


@pytest.mark.req("KIT-08")
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=30), st.integers(2, 8))
def test_every_entity_survives_its_own_number_and_no_band_is_empty(numbers: list[float], bands: int) -> None:
    if len(set(numbers)) == 1:
        numbers = [numbers[0], 0.0 if numbers[0] else 1.0]
    texts = [*map(repr, numbers), ""]
    entities = [*map(str, range(len(numbers))), "unknown"]
    attribute = Attribute("x", entities, texts, {text: (text,) if text else () for text in texts})
    probe = make_interval_probe(attribute, bands, None)
    assert all("unknown" not in outcome.eliminates for outcome in probe.outcomes)
    assert len(probe.outcomes) <= bands
    assert probe.reading is not None
    for entity, number in enumerate(numbers):
        outcome = probe.outcome(probe.reading.outcome_of(number) or "")
        assert outcome is not None
        assert str(entity) not in outcome.eliminates
    for outcome in probe.outcomes:
        assert len(outcome.eliminates) < len(numbers)
        assert "unknown" not in outcome.eliminates


@for_each(
    ("column", "measured"),
    [
        ("1 2 3 4", False),
        ("1 2.5 3 4", True),
        (" ".join(map(str, range(13))), True),
        ("4 4.0 5", True),
        ("1 2 x", False),
        ("1e3 2e3", False),
        ("inf nan", False),
        ("+1 -1 .5", True),
        ("1,5 2", False),
        ("0x10 2", False),
    ],
)
def test_numbers_are_a_measurement_unless_they_are_few_and_whole(column: str, measured: bool) -> None:
    rows = "".join(f'{place},"{cell}"\n' for place, cell in enumerate(column.split()))
    (probe,) = make(f"animal,x\n{rows}").kit.probes
    assert (probe.reading is not None) == measured


def test_a_column_is_what_it_is_said_to_be() -> None:
    (probe,) = make("animal,x\na,1\nb,2\nc,3\n", numeric=frozenset({"x"}), bands=2).kit.probes
    assert probe.reading == CutPoints((1.5,), ("below 1.5", "1.5 or more"))
    (probe,) = make("animal,x\na,1.5\nb,2\n", text=frozenset({"x"})).kit.probes
    assert [each.outcome_id for each in probe.outcomes] == ["1.5", "2"]
    assert make("animal,x,y\na,4,\nb,4.0,\n").notes == (
        "column `x` has one value, so it asks nothing",
        "column `y` has no data, so it asks nothing",
    )


@pytest.mark.req("KIT-08")
@for_each("bad", ["NaN", "inf", "-Infinity", "1e999"])
def test_a_measurement_that_is_no_finite_number_is_told_and_not_taken_for_a_word(bad: str) -> None:
    assert refuse(f"id,x\na,1.5\nb,{bad}\nc,2\n") == ["3 bad-number"]
    assert refuse(f"id,x\na,word\nb,{bad}\n", numeric=frozenset({"x"})) == ["2 bad-number", "3 bad-number"]


@pytest.mark.req("KIT-08")
def test_with_a_baseline_normal_eliminates_what_would_have_moved_the_measurement() -> None:
    table = table_of(FAULTS)
    baselines = baselines_from(table_of(SAMPLES), table.columns)
    kit = kit_from_table(table, TableOptions("fault", threshold=3), baselines, kit_id="t", version="1").kit
    assert outcomes(kit, "latency") == {"normal": ["cpu", "disk"], "abnormal": []}
    assert outcomes(kit, "errors") == {"normal": ["disk", "dns"], "abnormal": []}
    readings = [probe.reading for probe in kit.probes]
    assert readings == [
        NormalBand("normal", "abnormal", 11.5, 1.0, 3, Tail.HIGH),
        NormalBand("normal", "abnormal", 2, 0.5, 3, Tail.BOTH),
        NormalBand("normal", "abnormal", 60, 10, 3, Tail.LOW),
    ]
    state = BeliefState(KitProvider(kit))
    assert state.apply_probe("latency", 900) == frozenset()
    assert state.apply_probe("latency", 12) == {"cpu", "disk"}
    assert state.apply_probe("heap", 1e9) == {"dns"}
    assert state.survivors == {"none"}


@pytest.mark.req("KIT-16")
@pytest.mark.parametrize(
    ("constant", "note", "readings"),
    [
        (Constant.ABNORMAL, "any deviation is abnormal", {3: {"a"}, 3.5: set(), 2: {"a"}}),
        (Constant.NO_VERDICT, "a number gives no verdict", {3: set(), 3.5: set(), 2: set()}),
    ],
)
def test_a_baseline_without_spread_means_what_the_options_say_and_the_other_columns_stay(
    constant: Constant, note: str, readings: dict[float, set[str]]
) -> None:
    table = table_of("id,m,n\na,high,high\nb,,\n")
    baselines = baselines_from(table_of("m,n\n3,1\n3,2\n3,3\n9,4\n"), table.columns)
    made = kit_from_table(table, TableOptions("id", constant=constant), baselines, kit_id="t")
    assert made.notes == (f"column `m` has a constant baseline: {note}",)
    assert [probe.probe_id for probe in made.kit.probes] == ["m", "n"]
    for number, gone in readings.items():
        assert BeliefState(KitProvider(made.kit)).apply_probe("m", number) == gone
    assert parse_kit(format_kit(made.kit, "k.yaml").encode(), "k.yaml").kit == made.kit


@pytest.mark.req("KIT-08")
def test_a_threshold_that_makes_no_sense_is_told_with_its_column() -> None:
    table = table_of("id,m\na,high\nb,\n")
    baselines = baselines_from(table_of("m\n1\n2\n3\n"), table.columns)
    with pytest.raises(InvalidDocument, match=r"t.csv: column `m`: the threshold of a baseline is -1"):
        kit_from_table(table, TableOptions("id", threshold=-1), baselines, kit_id="t")


@pytest.mark.req("KIT-15")
def test_the_probes_of_baselines_reduce_windows_as_the_options_say() -> None:
    table = table_of("id,m\na,high\nb,\n")
    baselines = baselines_from(table_of("m\n1\n2\n3\n"), table.columns)
    options = TableOptions("id", window=Window(Reduction.K_OF_N, 2, 3))
    provider = KitProvider(kit_from_table(table, options, baselines, kit_id="t").kit)
    assert provider.apply_probe("m", [2, 2, 900]) == {"a": True}
    assert provider.apply_probe("m", [2, 900, 900]) == {}


@pytest.mark.req("KIT-08")
def test_a_measurement_that_every_entity_moves_asks_nothing() -> None:
    table = table_of("id,m,n\na,high,low\nb,high,\n")
    baselines = baselines_from(table_of("m,n\n1,1\n2,2\n3,3\n"), table.columns)
    made = kit_from_table(table, TableOptions("id"), baselines, kit_id="t")
    assert [probe.probe_id for probe in made.kit.probes] == ["n"]
    assert made.notes == ("column `m` is moved by every entity, so it asks nothing",)


def test_columns_that_make_the_same_probe_are_refused() -> None:
    table = table_of("id,a,a=b\nx,b,1\ny,c,2\nz,d,1\n")
    with pytest.raises(InvalidDocument, match=r"t.csv:1:1: columns `a` and `a=b` both make the probe `a=b`"):
        kit_from_table(table, TableOptions("id", yes_no=frozenset({"a"})), kit_id="t")


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ("m\n1\nNaN\nx\n", "t.csv:3:1: `NaN` in column `m` is no finite number; without data, leave the cell empty"),
        ("m,n\n,1\n", "t.csv: column `m` has no samples"),
        ("x\n1\n", "t.csv: no column of the baseline is a column of the table"),
    ],
)
def test_samples_that_make_no_baseline_are_refused(samples: str, message: str) -> None:
    with pytest.raises(InvalidDocument) as caught:
        baselines_from(table_of(samples), ["id", "m"])
    assert str(caught.value).startswith(message)


def test_a_cell_that_does_not_say_how_a_measurement_moves_is_refused() -> None:
    table = table_of("id,m\na,high\nb,up\n")
    with pytest.raises(InvalidDocument, match=r"t.csv:3:1: `up` in column `m`, which has a baseline"):
        kit_from_table(table, TableOptions("id"), baselines_from(table_of("m\n1\n2\n3\n"), ["m"]), kit_id="t")


# --- every table ------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-11")
@given(
    st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=8),
    st.sampled_from(ValueProbes),
    st.sampled_from([frozenset[str](), frozenset({"x", "y"})]),
)
def test_a_kit_of_a_table_breaks_no_rule_and_no_entity_is_eliminated_by_what_the_table_says_of_it(
    rows: list[tuple[str, str, str]], probes: ValueProbes, split: frozenset[str]
) -> None:
    lines = [f"e{place},{x};{z},{y}" for place, (x, y, z) in enumerate(rows)]
    kit = make("\n".join(["animal,x,y", *lines]) + "\n", probes=probes, split=split).kit
    assert {finding.severity for finding in findings_of(kit)} <= {Severity.WARNING}
    assert parse_kit(format_kit(kit, "k.yaml").encode(), "k.yaml").kit == kit
    for place, (x, y, z) in enumerate(rows):
        cells = {"x": {x, z} - {""} if split else {f"{x};{z}"}, "y": {y} - {""}}
        for probe in kit.probes:
            column, _, value = probe.probe_id.partition("=")
            for outcome in probe.outcomes:
                said = cells[column]
                if value and len(probe.outcomes) == 2 and {each.outcome_id for each in probe.outcomes} == {"yes", "no"}:
                    contradicted = bool(said) and (value in said) != (outcome.outcome_id == "yes")
                else:
                    contradicted = bool(said) and outcome.outcome_id not in said
                assert (f"e{place}" in outcome.eliminates) == contradicted


# --- tables of cases --------------------------------------------------------------------------------------------------

CASES = """\
fault,team,prior,alerts,zone,errors
disk,storage,2,slow;full,a,1.5
disk,,1,full,b,9.5
dns,net,1,slow,a,1.5
dns,net,3,,b,
cpu,,1,hot,b,9.5
"""


@pytest.mark.req("KIT-11")
def test_rows_of_one_id_are_cases_of_one_hypothesis() -> None:
    options = {"label_column": "team", "prior_column": "prior", "split": frozenset({"alerts"}), "group_by_id": True}
    kit = make(CASES, "fault", yes_no=frozenset({"alerts"}), **options).kit
    assert [(each.id, each.label, each.prior) for each in kit.hypotheses] == [
        ("disk", "storage", 3),
        ("dns", "net", 4),
        ("cpu", "", 1),
    ]
    # A disk fills in every case, and is slow in one alone.
    assert outcomes(kit, "alerts=full") == {"yes": ["cpu", "dns"], "no": ["disk"]}
    assert outcomes(kit, "alerts=slow") == {"yes": ["cpu"], "no": ["dns"]}
    assert outcomes(kit, "zone") == {"a": ["cpu"], "b": []}
    assert outcomes(kit, "errors") == {"below 5.5": ["cpu"], "5.5 or more": ["dns"]}
    # Another case may differ.
    assert {*soundness(kit, "alerts=full"), *soundness(kit, "zone")} == {Soundness.CLOSED_WORLD}
    with pytest.raises(InvalidDocument, match=r"`disk` is in line 2 already; if rows are cases, group them by id"):
        make(CASES, "fault")


@pytest.mark.req("KIT-11")
def test_a_measurement_that_a_case_leaves_normal_rules_out_nothing_of_it() -> None:
    table = table_of("fault,latency\ndisk,high\ndisk,normal\ncpu,high\ncpu,\nnone,normal\n")
    baselines = baselines_from(table_of("latency\n10\n12\n11\n"), ["latency"])
    kit = kit_from_table(table, TableOptions("fault", group_by_id=True), baselines, kit_id="t").kit
    assert outcomes(kit, "latency") == {"normal": ["cpu"], "abnormal": []}
    bad = table_of("fault,latency\ndisk,high\ndisk,odd\ncpu,normal\n")
    with pytest.raises(InvalidDocument) as caught:
        kit_from_table(bad, TableOptions("fault", group_by_id=True), baselines, kit_id="t")
    # The line is that of the case.
    assert [each.place.line for each in caught.value.findings if each.place] == [3]


@pytest.mark.req("KIT-11")
def test_all_columns_may_be_split_where_a_cell_has_several_values() -> None:
    kit = make("id,eats,kind,weight\na,x;y,one,1.5\nb,y,two,2.5\nc,z,two,9.5\n", "id", split_all=True).kit
    assert outcomes(kit, "eats") == {"x": ["b", "c"], "y": ["c"], "z": ["a", "b"]}
    assert {*soundness(kit, "eats")} == {Soundness.CLOSED_WORLD}
    # A column without such a cell stays what it was.
    assert {*soundness(kit, "kind")} == {Soundness.SOUND}
    weight = kit.probe("weight")
    assert weight is not None
    assert isinstance(weight.reading, CutPoints)


def answer_of(probe: KitProbe, said: frozenset[str]) -> list[str]:
    """The outcomes that a case with these values in the column of a probe may answer with."""
    _, _, value = probe.probe_id.partition("=")
    if {each.outcome_id for each in probe.outcomes} == {"yes", "no"} and value:
        return ["yes" if value in said else "no"]
    return sorted(said)


@pytest.mark.req("KIT-11")
@given(
    st.lists(st.tuples(st.sampled_from("abc"), VALUES, VALUES, VALUES), min_size=1, max_size=9),
    st.sampled_from(ValueProbes),
    st.booleans(),
)
def test_no_answer_of_a_case_eliminates_what_it_is_a_case_of(
    cases: list[tuple[str, str, str, str]], probes: ValueProbes, split: bool
) -> None:
    lines = [f"{entity},{x};{z},{y}" for entity, x, y, z in cases]
    table = "\n".join(["id,x,y", *lines]) + "\n"
    kit = make(table, "id", probes=probes, split_all=split, group_by_id=True).kit
    assert {finding.severity for finding in findings_of(kit)} <= {Severity.WARNING}
    assert [each.id for each in kit.hypotheses] == list(dict.fromkeys(entity for entity, *_ in cases))
    for entity, x, y, z in cases:
        cells = {"x": frozenset({x, z} - {""}) if split else frozenset({f"{x};{z}"}), "y": frozenset({y} - {""})}
        for probe in kit.probes:
            said = cells[probe.probe_id.partition("=")[0]]
            for outcome in probe.outcomes:
                if said and outcome.outcome_id in answer_of(probe, said):
                    assert entity not in outcome.eliminates


@pytest.mark.req("KIT-11")
@needs_itbench
def test_the_alerts_of_real_incidents_make_a_kit_that_keeps_each_fault_in_all_of_its_cases() -> None:
    scenarios = [each for each in load_derived("scenarios.json") if each["injections"] and each.get("v1")]
    rows = [
        (each["injections"][0]["fault"], sorted({alert["alert"] for alert in each["v1"]["alerts"]}))
        for each in scenarios
    ]
    table = "\n".join(["fault,alerts", *(f"{fault},{';'.join(alerts)}" for fault, alerts in rows)])
    with pytest.raises(InvalidDocument, match="group them by id"):
        make(table, "fault", split_all=True)
    kit = make(table, "fault", split_all=True, group_by_id=True, probes=ValueProbes.YES_NO, max_values=200).kit
    assert 1 < len(kit.hypotheses) == len({fault for fault, _ in rows}) < len(rows)
    for fault, alerts in rows:
        belief = BeliefState(KitProvider(kit))
        for probe in kit.probes:
            belief.apply_probe(probe.probe_id, "yes" if probe.probe_id.partition("=")[2] in alerts else "no")
        assert not alerts or fault in belief.survivors


# --- CSV --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("KIT-12")
def test_a_table_is_read_as_spreadsheets_write_it_and_rows_know_the_line_that_they_begin_in() -> None:
    data = '\ufeffid,"a, b",c\r\n1,"say ""hi""\r\nthere", x \r\n\r\n,,\r\n2,e\u2028e\x0ce,\r\n'.encode()
    assert read_table(data, "t.csv") == Table(
        "t.csv", ("id", "a, b", "c"), (2, 6), (("1", "2"), ('say "hi"\r\nthere', "e\u2028e\x0ce"), ("x", ""))
    )


@pytest.mark.req("KIT-12")
@for_each(
    ("text", "expected"),
    [
        ("", ["syntax"]),
        ("\n\n", ["syntax"]),
        ("id,x\n", ["1 missing-field"]),
        ("id,x,x\na,1,2\n", ["1 duplicate-field"]),
        ("id,,x\na,1,2\n", ["1 missing-field"]),
        ("id,x\na,1,2\nb\nc,3\n", ["2 ragged-row", "3 ragged-row"]),
        ("id,x\na,1\nb,2\na,3\n,4\n", ["4 duplicate-id", "5 missing-field"]),
        (f"id,x\n{'a' * (MAX_ID_LENGTH + 1)},1\n", ["2 too-large"]),
        (f"id,x\na,{'a' * (MAX_ID_LENGTH + 1)}\nb,1\n", ["1 too-large"]),
        ('id,x\na,"1\nb,2\n', ["2 syntax"]),
        ('id,x\na,"1"2\n', ["2 syntax"]),
        ("id;x\na;1\n", ["1 syntax"]),
        ("id\tx\na\t1\n", ["1 syntax"]),
        ("ID,x\na,1\n", ["1 unknown-field"]),
        ("zebra\na\n", ["1 unknown-field"]),
        (b"id,x\na,\xff\n", ["2 not-unicode"]),
        (b"\xff\xfei\0d\0", ["1 not-unicode"]),
        (b" " * (MAX_TABLE_BYTES + 1), ["too-large"]),
        (",".join(f"c{n}" for n in range(MAX_COLUMNS + 1)) + "\n", ["1 too-large"]),
        ("id,x\n" + "".join(f"{n},1\n" for n in range(MAX_ROWS + 1)), [f"{MAX_ROWS + 2} too-large"]),
        ("id,x\n" + "a\n" * 1000, [f"{n} ragged-row" for n in range(2, MAX_FINDINGS + 2)]),
        ("id,x\n" + "a,1\n" * 1000, [f"{n} duplicate-id" for n in range(3, MAX_FINDINGS + 3)]),
        ("id,x\n" + "".join(f"{n},v{n}\n" for n in range(65)), ["1 too-large"]),
        ("id,x\na\0,1\nb,2\n", ["2 nul"]),
    ],
    ids=range(24),
)
def test_a_bad_table_is_refused_with_the_lines(text: str | bytes, expected: list[str]) -> None:
    assert refuse(text) == expected


def test_another_delimiter_may_be_named() -> None:
    assert read_table(b"id;x,y\na;1,5\n", "t.csv", ";").columns == ("id", "x,y")


@pytest.mark.req("KIT-12")
def test_a_column_that_an_option_names_must_be_there() -> None:
    with pytest.raises(InvalidDocument) as caught:
        make("animal,Secret\na,1\n", drop=frozenset({"secret"}), label_column="q")
    assert str(caught.value) == (
        "t.csv:1:1: no column `q`; known are animal, Secret [unknown-field]\n"
        "t.csv:1:1: no column `secret`; did you mean `Secret` [unknown-field]"
    )


def test_a_prior_that_is_no_weight_is_refused() -> None:
    table = "id,p,x\na,0,1\nb,many,2\nc,NaN,1\n"
    assert refuse(table, prior_column="p") == ["2 bad-number", "3 bad-number", "4 bad-number"]


def test_a_table_beyond_what_a_kit_may_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cmbs.kit.table.MAX_ELIMINATIONS", 3)
    assert refuse("id,x,y\na,1,2\nb,2,3\n") == ["too-large"]


@pytest.mark.req("KIT-12")
def test_no_table_makes_a_kit_that_its_file_could_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    # Eliminations beyond what a file may name: half of the hypotheses each time, so that `keeps` is no shorter.
    rows = "".join(f"e{number},{number % 2}\n" for number in range(40))
    made = make(f"id,x\n{rows}", "id").kit
    assert sum(len(outcome.eliminates) for probe in made.probes for outcome in probe.outcomes) == 40
    monkeypatch.setattr("cmbs.kit.writing.MAX_VALUES", 80)
    with pytest.raises(InvalidDocument, match="a kit file has at most 80 values, and here are"):
        make(f"id,x\n{rows}", "id")
