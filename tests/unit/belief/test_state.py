"""From a provider's masks to the ids they eliminate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.provider_mask import BeliefState, ask_provider, find_eliminated
from cmbs.errors import InvalidHypothesisId, InvalidRequest, ProviderBroken, UnknownProbe
from cmbs.spi.hypothesis_provider import HypothesisProvider
from tests.support.subtests import for_each


class Table:
    """A provider whose masks are written down: (probe id, response) → mask."""

    def __init__(self, hypothesis_ids: Collection[str], masks: Mapping[tuple[str, Any], Mapping[str, Any]]) -> None:
        self._hypothesis_ids = hypothesis_ids
        self._masks = masks

    def id(self) -> str:
        return "table"

    def version(self) -> str:
        return "1"

    def hypothesis_ids(self) -> Collection[str]:
        return self._hypothesis_ids

    def probe_ids(self) -> Collection[str]:
        return {probe_id for probe_id, _ in self._masks}

    def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, bool]:
        return self._masks[probe_id, response]


ANIMALS = ["cat", "dog", "eel", "owl"]
FLIES = {
    ("flies", "yes"): {"cat": True, "dog": True, "eel": True, "owl": False},
    ("flies", "no"): {"owl": True},
    ("swims", "yes"): {"cat": True, "owl": True},
    ("swims", "unsure"): {},
}


def animals() -> BeliefState:
    return BeliefState(Table(ANIMALS, FLIES))


def test_a_provider_satisfies_its_protocol_by_its_methods_alone() -> None:
    assert isinstance(Table(ANIMALS, FLIES), HypothesisProvider)
    assert not isinstance(object(), HypothesisProvider)


def test_a_probe_eliminates_what_the_mask_marks_and_reports_what_is_new() -> None:
    belief = animals()
    assert belief.survivors == set(ANIMALS)
    assert (belief.remaining_mass(), belief.remaining_entropy()) == (1.0, 2.0)
    assert (belief.is_singleton(), belief.is_empty()) == (False, False)
    assert belief.apply_probe("swims", "unsure") == frozenset()
    assert belief.survivors == set(ANIMALS)
    assert belief.apply_probe("swims", "yes") == {"cat", "owl"}
    assert belief.survivors == {"dog", "eel"}
    assert (belief.remaining_mass(), belief.remaining_entropy()) == (0.5, 1.0)
    assert belief.apply_probe("flies", "yes") == {"dog", "eel"}
    assert belief.apply_probe("flies", "yes") == frozenset()


@pytest.mark.req("BS-6.5-PROBE-05")
def test_one_survivor_is_a_singleton_with_no_entropy_left() -> None:
    belief = animals()
    belief.apply_probe("flies", "yes")
    assert belief.survivors == {"owl"}
    assert belief.is_singleton()
    assert not belief.is_empty()
    assert belief.remaining_entropy() == 0.0
    assert belief.remaining_mass() == 0.25


def test_contradicting_responses_leave_nothing() -> None:
    belief = animals()
    belief.apply_probe("flies", "yes")
    belief.apply_probe("flies", "no")
    assert belief.is_empty()
    assert not belief.is_singleton()
    assert (belief.remaining_mass(), belief.remaining_entropy()) == (0.0, 0.0)


def test_a_provider_without_hypotheses_leaves_nothing_from_the_start() -> None:
    belief = BeliefState(Table([], {}))
    assert belief.is_empty()
    assert belief.remaining_mass() == 0.0
    assert belief.active_map() == {}


@pytest.mark.req("BS-6.5-PROBE-05")
def test_the_active_map_names_every_hypothesis_in_sorted_order() -> None:
    belief = BeliefState(Table(list(reversed(ANIMALS)), FLIES))
    belief.apply_probe("swims", "yes")
    assert list(belief.active_map().items()) == [("cat", False), ("dog", True), ("eel", True), ("owl", False)]


def test_what_is_handed_out_is_a_copy() -> None:
    belief = animals()
    belief.survivors.clear()
    belief.active_map().clear()
    assert belief.survivors == set(ANIMALS)
    assert len(belief.active_map()) == 4


def test_an_unknown_probe_is_an_error_and_changes_nothing() -> None:
    belief = animals()
    with pytest.raises(UnknownProbe, match="the provider has no probe `sings`") as caught:
        belief.apply_probe("sings", "yes")
    assert caught.value.details.items() >= {"probe_id": "sings"}.items()
    assert belief.survivors == set(ANIMALS)


@pytest.mark.parametrize("marked", [True, False])
def test_a_mask_with_an_id_never_declared_is_an_error_and_changes_nothing(marked: bool) -> None:
    belief = BeliefState(Table(ANIMALS, {("p", 1): {"cat": True, "yeti": marked, "bigfoot": marked}}))
    with pytest.raises(InvalidHypothesisId) as caught:
        belief.apply_probe("p", 1)
    assert caught.value.details | {"unknown": ["bigfoot", "yeti"]} == caught.value.details
    assert belief.survivors == set(ANIMALS)


@for_each("value", [0.3, "false", 1, None])
def test_a_mask_value_that_is_no_boolean_is_an_error_and_changes_nothing(value: object) -> None:
    belief = BeliefState(Table(ANIMALS, {("p", 1): {"cat": True, "dog": value}}))
    with pytest.raises(ProviderBroken, match=f"provider `table` answers `{value}` for hypothesis `dog`, not a boolean"):
        belief.apply_probe("p", 1)
    assert belief.survivors == set(ANIMALS)


def test_a_provider_that_raises_is_named_and_changes_nothing() -> None:
    class Nameless(Table):
        def id(self) -> str:
            raise OSError("no name")

    for provider, name in ((Table(ANIMALS, {("p", 1): {}}), "table"), (Nameless(ANIMALS, {("p", 1): {}}), "Nameless")):
        belief = BeliefState(provider)
        # The table has no such response.
        with pytest.raises(ProviderBroken, match=f"provider `{name}` raised `KeyError` for probe `p`") as caught:
            belief.apply_probe("p", 2)
        assert isinstance(caught.value.__cause__, KeyError)
        assert caught.value.details == {"provider": name, "probe_id": "p"}
        assert belief.survivors == set(ANIMALS)
    with pytest.raises(ProviderBroken, match=r"provider `Nameless` raised `OSError`; nothing was changed"):
        ask_provider(provider, provider.id)
    with pytest.raises(UnknownProbe):
        BeliefState(Table(ANIMALS, {})).apply_probe("p", 2)


def test_what_a_provider_refuses_in_our_words_reaches_the_caller() -> None:
    class Picky(Table):
        def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, bool]:
            raise InvalidRequest(f"probe `{probe_id}` takes a number")

    belief = BeliefState(Picky(ANIMALS, {("p", 1): {}}))
    with pytest.raises(InvalidRequest, match="probe `p` takes a number"):
        belief.apply_probe("p", "many")
    assert belief.survivors == set(ANIMALS)


def test_what_a_probe_eliminates_does_not_depend_on_who_is_alive() -> None:
    provider = Table(frozenset(ANIMALS), FLIES)
    belief = BeliefState(provider)
    belief.apply_probe("flies", "yes")
    assert find_eliminated(provider, "flies", "yes") == {"cat", "dog", "eel"}


MASKS = st.lists(st.dictionaries(st.sampled_from(ANIMALS), st.booleans()), max_size=6)


@given(MASKS, st.randoms(use_true_random=False))
def test_survivors_shrink_only_and_the_order_of_probes_does_not_matter(
    masks: list[dict[str, bool]], random: Any
) -> None:
    provider = Table(ANIMALS, {(f"p{number}", 0): mask for number, mask in enumerate(masks)})
    probes = [f"p{number}" for number in range(len(masks))]
    one, other = BeliefState(provider), BeliefState(provider)
    for probe_id in probes:
        before = one.survivors
        newly_eliminated = one.apply_probe(probe_id, 0)
        assert newly_eliminated <= before
        assert one.survivors == before - newly_eliminated
    for probe_id in random.sample(probes, len(probes)):
        other.apply_probe(probe_id, 0)
    assert other.active_map() == one.active_map()
