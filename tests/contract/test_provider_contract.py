"""Kits pass the shipped contract of providers, and for each of its laws there is a provider that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import pytest

from cmbs.kit import Kit, KitHypothesis, KitOutcome, KitProbe, KitProvider, NormalBand, Soundness
from cmbs.testing.contracts.hypothesis_provider import HypothesisProviderContract, OpenProvider, Responses
from tests.support.subtests import for_each

SOUND = Soundness.SOUND
KIT = Kit(
    "coins",
    "1",
    "",
    (KitHypothesis("heads"), KitHypothesis("tails"), KitHypothesis("edge")),
    (
        KitProbe("toss", "", (KitOutcome("up", frozenset({"tails"}), SOUND), KitOutcome("down", frozenset(), SOUND))),
        KitProbe(
            "tilt",
            "",
            (KitOutcome("flat", frozenset({"edge"}), SOUND), KitOutcome("steep", frozenset(), SOUND)),
            NormalBand("flat", "steep", 0, 1),
        ),
    ),
)
RESPONSES: Responses = [("toss", "up"), ("tilt", 0.5), ("tilt", None), ("toss", "no-data"), ("tilt", "steep")]


@pytest.mark.req("KIT-09")
class TestKitProvider(HypothesisProviderContract):
    @pytest.fixture
    def open_provider(self) -> OpenProvider:
        return lambda: KitProvider(KIT)

    @pytest.fixture
    def responses(self) -> Responses:
        return RESPONSES


class Wayward(KitProvider):
    """Keeps the contract, until a test makes it break a law; it knows how often it was asked."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__(KIT)
        self.asked = 0

    def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, bool]:
        self.asked += 1
        return super().apply_probe(probe_id, response)


class OtherVersionOnceAsked(Wayward):
    def version(self) -> str:
        return "2" if self.asked else "1"


class OtherHypothesesOnceAsked(Wayward):
    def hypothesis_ids(self) -> frozenset[str]:
        return super().hypothesis_ids() | ({"late"} if self.asked else set())


class OtherProbesOnceAsked(Wayward):
    def probe_ids(self) -> frozenset[str]:
        return super().probe_ids() | ({"late"} if self.asked else set())


class Likelihoods(Wayward):
    def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, Any]:
        return dict.fromkeys(super().apply_probe(probe_id, response), 0.9)


class OnceOnly(Wayward):
    def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, bool]:
        mask = super().apply_probe(probe_id, response)
        return mask if self.asked <= len(RESPONSES) else {}


NUMBERS = count()


class OtherInEveryInstance(Wayward):
    __slots__ = ("number",)

    def __init__(self) -> None:
        super().__init__()
        self.number = next(NUMBERS)

    def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, bool]:
        return super().apply_probe(probe_id, response) if self.number % 2 else {}


BROKEN: list[tuple[str, Callable[[], Any]]] = [
    ("test_it_has_every_method", object),
    ("test_id_and_version_never_change", OtherVersionOnceAsked),
    ("test_hypotheses_are_always_the_same_each_once", OtherHypothesesOnceAsked),
    ("test_probes_are_always_the_same_each_once", OtherProbesOnceAsked),
    ("test_a_mask_names_declared_hypotheses_with_booleans", Likelihoods),
    ("test_a_mask_depends_on_the_probe_and_the_response_alone", OnceOnly),
    ("test_threads_may_ask_at_once", OnceOnly),
    ("test_a_server_eliminates_what_the_masks_say", OtherInEveryInstance),
]


@for_each(("law", "broken"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_provider_that_breaks_a_law_is_noticed(law: str, broken: Callable[[], Any]) -> None:
    test = getattr(HypothesisProviderContract(), law)
    arguments = [broken] if law == "test_it_has_every_method" else [broken, RESPONSES]
    with pytest.raises(AssertionError):
        test(*arguments)


def test_there_is_a_broken_provider_for_every_law() -> None:
    assert {law for law, _ in BROKEN} == {name for name in vars(HypothesisProviderContract) if name.startswith("test_")}
