"""The providers that come with cmbs, under the contract of providers."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from cmbs.kit import NO_DATA, KitProvider
from cmbs.testing.contracts.hypothesis_provider import HypothesisProviderContract

PROJECT = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text("utf-8"))["project"]
BUILT_IN: dict[str, str] = PROJECT["entry-points"]["cmbs.hypotheses"]


@pytest.mark.req("SRE-KIT-06", "20Q-01")
@pytest.mark.parametrize("name", sorted(BUILT_IN))
class TestBuiltInProviders(HypothesisProviderContract):
    @pytest.fixture
    def open_provider(self, name: str) -> Callable[[], KitProvider]:
        factory: Callable[[], KitProvider] = EntryPoint(name, BUILT_IN[name], "cmbs.hypotheses").load()
        return factory

    @pytest.fixture
    def responses(self, open_provider: Callable[[], KitProvider]) -> list[tuple[str, Any]]:
        probes = open_provider().kit.probes
        found = [(probe.probe_id, outcome.outcome_id) for probe in probes for outcome in probe.outcomes]
        return [*found, *((probe.probe_id, NO_DATA) for probe in probes)]
