"""Chronicles against plain lists: versions share their storage, and must not notice each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.ledger import Chronicle

Items = list[tuple[str, int]]

KEYS = st.sampled_from("abcdef")
# Which version to extend (counted from the newest, so that small means newest), the key and the value.
STEPS = st.lists(st.tuples(st.integers(0, 5), KEYS, st.integers(0, 9)), max_size=14)


def chronicle_of(*items: tuple[str, int]) -> Chronicle[str, int]:
    record: Chronicle[str, int] = Chronicle()
    for key, value in items:
        record = record.append(key, value)
    return record


def assert_same(record: Chronicle[str, int], items: Items) -> None:
    assert len(record) == len(items)
    assert list(record) == items
    assert list(record.newest_first()) == items[::-1]
    assert record.columns() == ([key for key, _ in items], [value for _, value in items])
    assert list(Chronicle.of(*record.columns())) == items
    assert [record.at(position) for position in range(len(items))] == items
    known = dict(items)
    places = {key: position for position, (key, _) in enumerate(items)}
    for key in "abcdefz":
        assert record.get(key) == known.get(key)
        assert record.position(key) == places.get(key)
    for beyond in (-1, len(items), len(items) + 1):
        with pytest.raises(IndexError):
            record.at(beyond)


@pytest.mark.req("ARCH-2-01")
@given(STEPS)
def test_every_version_stays_what_it_was_however_the_others_are_extended(steps: list[tuple[int, str, int]]) -> None:
    versions: list[tuple[Chronicle[str, int], Items]] = [(Chronicle(), [])]
    for back, key, value in steps:
        record, items = versions[max(len(versions) - 1 - back, 0)]
        if key in dict(items):
            with pytest.raises(KeyError):
                record.append(key, value)
        else:
            versions.append((record.append(key, value), [*items, (key, value)]))
    for record, items in versions:
        assert_same(record, items)


def test_reading_goes_on_undisturbed_while_a_newer_version_grows() -> None:
    record = chronicle_of(("a", 1), ("b", 2))
    reading = iter(record)
    assert next(reading) == ("a", 1)
    record.append("c", 3)
    assert list(reading) == [("b", 2)]


def test_a_record_made_of_columns_goes_on_like_any_other() -> None:
    record = Chronicle.of(["a", "b"], [1, 2])
    assert_same(record, [("a", 1), ("b", 2)])
    assert_same(record.append("c", 3), [("a", 1), ("b", 2), ("c", 3)])


@pytest.mark.parametrize(("keys", "values"), [(["a", "b", "a"], [1, 2, 3]), (["a", "b"], [1]), (["a"], [1, 2])])
def test_columns_that_do_not_fit_are_no_record(keys: list[str], values: list[int]) -> None:
    with pytest.raises(ValueError, match=r"the same key|are no record"):
        Chronicle.of(keys, values)


def test_a_value_may_be_none() -> None:
    record = Chronicle[str, None]().append("a", None)
    assert record.get("a") is None
    assert record.position("a") == 0
