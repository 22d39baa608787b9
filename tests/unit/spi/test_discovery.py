"""Discovery of providers that really are installed: distributions with entry points, in a directory on the path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from cmbs.belief.kernel.provider_mask import BeliefState
from cmbs.errors import ProviderBroken
from cmbs.spi.discovery import discover_providers

SOURCE = dedent(
    """
    class Coins:
        def __init__(self, version="1"):
            self._version = version
        def id(self):
            return "coins"
        def version(self):
            return self._version
        def hypothesis_ids(self):
            return ["heads", "tails"]
        def probe_ids(self):
            return ["toss"]
        def apply_probe(self, probe_id, response):
            return {side: side != response for side in self.hypothesis_ids()}

    class CallableCoins(Coins):
        def __call__(self):
            raise AssertionError("a provider is not a factory")

    def factory():
        return Coins("2")

    def broken_factory():
        raise RuntimeError("no coins left")

    instance = Coins("3")
    callable_instance = CallableCoins("4")
    incomplete = object()
    """
)

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution: `install(name, entry_point=target, ...)`; its module has the same name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, **targets: str) -> None:
        (tmp_path / f"{name}.py").write_text(SOURCE)
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{entry_point} = {target}" for entry_point, target in targets.items()]
        (metadata / "entry_points.txt").write_text("\n".join(["[cmbs.hypotheses]", *lines, ""]))

    return install


@pytest.mark.parametrize(
    ("target", "version"), [("Coins", "1"), ("factory", "2"), ("instance", "3"), ("callable_instance", "4")]
)
def test_an_entry_point_may_name_a_class_a_factory_or_a_provider(install: Install, target: str, version: str) -> None:
    before = discover_providers()
    install("cmbs_plugin_" + target.lower(), coins=f"cmbs_plugin_{target.lower()}:{target}")
    providers = discover_providers()
    assert providers.keys() - before.keys() == {"coins"}
    assert providers["coins"].version() == version
    belief = BeliefState(providers["coins"])
    assert belief.apply_probe("toss", "heads") == {"tails"}


@pytest.mark.req("BS-6.5-PROBE-06")
def test_providers_of_several_distributions_come_sorted_by_name(install: Install) -> None:
    install("cmbs_plugin_one", zinc="cmbs_plugin_one:Coins", brass="cmbs_plugin_one:factory")
    install("cmbs_plugin_two", copper="cmbs_plugin_two:instance")
    names = list(discover_providers())
    assert {"brass", "copper", "zinc"} <= set(names)
    assert names == sorted(names)


def test_a_name_claimed_twice_is_an_error_that_names_both(install: Install) -> None:
    install("cmbs_plugin_left", coins="cmbs_plugin_left:Coins")
    install("cmbs_plugin_right", coins="cmbs_plugin_right:Coins")
    with pytest.raises(ProviderBroken) as caught:
        discover_providers()
    assert caught.value.message == (
        "two providers are named `coins`: `cmbs_plugin_left:Coins` of cmbs_plugin_left "
        "and `cmbs_plugin_right:Coins` of cmbs_plugin_right"
    )


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("missing", "does not load: AttributeError: .*missing"),
        ("broken_factory", "does not load: RuntimeError: no coins left"),
        ("incomplete", "lacks the methods of a hypothesis provider: got object"),
        ("SOURCE.wrong.module", "does not load: AttributeError"),
    ],
)
def test_a_broken_plug_in_is_an_error_that_names_the_entry_point(install: Install, target: str, reason: str) -> None:
    name = "cmbs_plugin_broken_" + target.lower().replace(".", "_")
    install(name, good=f"{name}:Coins", bad=f"{name}:{target}")
    with pytest.raises(ProviderBroken, match=f": provider `bad` from `{name}:{target}` of {name} {reason}"):
        discover_providers()


def test_a_module_that_is_not_there_is_an_error_that_keeps_its_cause(install: Install) -> None:
    install("cmbs_plugin_absent", gone="cmbs_plugin_absent_module:Coins")
    with pytest.raises(ProviderBroken, match=r"provider `gone` .* does not load: ModuleNotFoundError") as caught:
        discover_providers()
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
