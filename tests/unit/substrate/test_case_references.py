"""References to the case of a proposal: what each finds, and that without a case none finds anything."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw
from msgspec.structs import replace

from cmbs.substrate.kernel.arbitration.cases import is_read, list_readings
from cmbs.substrate.kernel.model import BeliefReading, IndependentReading
from cmbs.substrate.kernel.policy.constraints import Malformed, compile_constraint
from cmbs.substrate.kernel.policy.predicates import compile_predicate
from cmbs.substrate.kernel.policy.references import (
    BELIEF_FIELDS,
    MISSING,
    CaseContext,
    CaseUse,
    EvaluationContext,
    ReferenceFault,
    compile_reference,
)
from cmbs.testing.spaces import payload, predicate
from tests.support.subtests import for_each

CASE = CaseContext("c.1", '{"services":["checkout"],"tier":1}', "me")
READING = BeliefReading(
    "c.1",
    found=True,
    head_seq=3,
    head_event_hash="ab",
    n_survivors=1,
    survivors=["checkout"],
    active_obligation_id="look",
    concluded=["x"],
    survivor_attributes=Raw(b'{"component":{"name":"checkout"}}'),
    independent=IndependentReading("me", 2, ["checkout", "dns"]),
)
FIELDS = [*BELIEF_FIELDS, "survivor", "survivor.component", "survivor.component.name"]
REFERENCES = [
    "$case.id",
    "$case.attributes",
    "$case.attributes.tier",
    *(f"$case.belief.{field}" for field in FIELDS),
    *(f"$case.belief.independent.{field}" for field in FIELDS),
]


def find(text: str, reading: BeliefReading | None = READING, case: CaseContext | None = CASE) -> Any:
    belief = {} if reading is None else {reading.session_id: reading}
    return compile_reference(text, 2).find(EvaluationContext({}, belief, None, case=case))


@pytest.mark.req("CASE-REF-01")
@for_each(
    ("text", "found"),
    [
        ("$case.id", "c.1"),
        ("$case.attributes", {"services": ["checkout"], "tier": 1}),
        ("$case.attributes.services.0", "checkout"),
        ("$case.attributes.owner", MISSING),
        ("$case.belief.n_survivors", 1),
        ("$case.belief.entropy_proxy", 0.0),
        ("$case.belief.terminated", False),
        ("$case.belief.active_obligation_id", "look"),
        ("$case.belief.concluded", ["x"]),
        ("$case.belief.survivors", ["checkout"]),
        ("$case.belief.survivor", "checkout"),
        ("$case.belief.survivor.component.name", "checkout"),
        ("$case.belief.survivor.owner", MISSING),
        ("$case.belief.independent.n_survivors", 2),
        ("$case.belief.independent.entropy_proxy", 1.0),
        ("$case.belief.independent.survivors", ["checkout", "dns"]),
        # Only eliminations are left out; all else is as it is.
        ("$case.belief.independent.active_obligation_id", "look"),
        ("$case.belief.independent.concluded", ["x"]),
        # Two are left without the actor's own eliminations.
        ("$case.belief.independent.survivor", MISSING),
        ("$case.belief.independent.survivor.component", MISSING),
    ],
)
def test_a_reference_finds_its_part_of_the_case(text: str, found: Any) -> None:
    assert find(text) == found


@pytest.mark.req("CASE-REF-01")
@for_each("text", REFERENCES)
def test_without_a_case_nothing_is_found(text: str) -> None:
    assert find(text, case=None) is MISSING


@pytest.mark.req("CASE-REF-01")
@for_each("text", [each for each in REFERENCES if ".belief." in each])
@for_each("reading", [None, BeliefReading("c.1", found=False), replace(READING, session_id="other")])
def test_without_a_reading_of_its_session_nothing_is_found(text: str, reading: BeliefReading | None) -> None:
    assert find(text, reading) is MISSING


@pytest.mark.req("CASE-REF-01")
@given(st.integers(0, 4), st.booleans(), st.booleans())
def test_there_is_a_survivor_only_where_exactly_one_is_left(number: int, is_named: bool, has_attributes: bool) -> None:
    reading = replace(
        READING,
        n_survivors=number,
        survivors=[f"h{each}" for each in range(number)] if is_named else None,
        survivor_attributes=Raw(b'{"component":1}') if has_attributes else UNSET,
    )
    alone = number == 1 and is_named
    assert find("$case.belief.survivor", reading) == ("h0" if alone else MISSING)
    assert find("$case.belief.survivor.component", reading) == (1 if alone and has_attributes else MISSING)


@pytest.mark.req("CASE-REF-02")
@pytest.mark.parametrize("left", [UNSET, IndependentReading("another", 1, ["checkout"])])
def test_what_was_not_read_for_the_proposing_actor_is_not_found(left: Any) -> None:
    reading = replace(READING, independent=left)
    assert find("$case.belief.independent.n_survivors", reading) is MISSING
    assert not is_read("me", reading)


@pytest.mark.req("CASE-REF-02")
def test_one_survivor_without_the_actor_is_found_with_what_is_declared_of_it() -> None:
    left = IndependentReading("me", 1, ["dns"], Raw(b'{"component":"dns"}'))
    reading = replace(READING, n_survivors=0, survivors=[], survivor_attributes=UNSET, independent=left)
    assert find("$case.belief.independent.survivor", reading) == "dns"
    assert find("$case.belief.independent.survivor.component", reading) == "dns"
    assert find("$case.belief.survivor", reading) is MISSING


@for_each(
    "text",
    [
        "$case",
        "$case.",
        "$case.name",
        "$case.id.x",
        "$case.belief",
        "$case.belief.x",
        "$case.belief.n_survivors.x",
        "$case.belief.independent",
        "$case.belief.independent.x",
        "$case.belief.independent.independent.n_survivors",
        "$case..id",
        "$cases.id",
    ],
)
def test_what_is_no_part_of_a_case_is_refused(text: str) -> None:
    with pytest.raises(ReferenceFault):
        compile_reference(text, 2)


@pytest.mark.req("CASE-REF-03")
@for_each("text", REFERENCES)
def test_payloads_of_version_1_know_no_cases(text: str) -> None:
    with pytest.raises(ReferenceFault, match=r"neither a key nor one of \$args, \$tool\.id, \$actor\.id, \$belief$"):
        compile_reference(text, 1)
    old, new = (compile_constraint("constraint.x", payload(v=v, when=predicate("exists", text)), {}) for v in (1, 2))
    assert isinstance(old, Malformed)
    assert not isinstance(new, Malformed)


@for_each(
    ("texts", "use"),
    [
        (["fact.x", "$belief.s.n_survivors", "$args.x"], CaseUse.NONE),
        (["fact.x", "$case.id"], CaseUse.RECORD),
        (["$case.belief.n_survivors", "$case.id"], CaseUse.BELIEF),
        (["$case.belief.independent.n_survivors", "$case.belief.n_survivors"], CaseUse.INDEPENDENT),
    ],
)
def test_a_predicate_uses_as_much_of_a_case_as_any_of_its_references(texts: list[str], use: CaseUse) -> None:
    compiled = compile_predicate(predicate("any", *(predicate("exists", each) for each in texts)), {}, version=2)
    assert compiled.case_use is use
    for case in (None, CASE):
        seen = EvaluationContext({}, {}, None, case=case)
        assert compiled.lacks_case(seen) is (case is None and use is not CaseUse.NONE)


def test_the_sessions_of_cases_are_read_as_far_as_they_are_used() -> None:
    other = replace(CASE, case_id="c.2")
    assert list_readings(["s.0"], [(CASE, CaseUse.NONE), (None, CaseUse.INDEPENDENT)]) == {"s.0": None}
    # Also for the record alone: the session says who may act under the case.
    assert list_readings([], [(CASE, CaseUse.RECORD)]) == {"c.1": None}
    assert list_readings(["c.1"], [(CASE, CaseUse.BELIEF), (other, CaseUse.BELIEF)]) == {"c.1": None, "c.2": None}
    needed = list_readings(["c.1"], [(CASE, CaseUse.INDEPENDENT), (CASE, CaseUse.BELIEF)])
    assert needed == {"c.1": "me"}
    assert is_read("me", READING)
    assert is_read(None, replace(READING, independent=UNSET))
    assert is_read("me", BeliefReading("c.1", found=False))
    assert not is_read(None, None)
