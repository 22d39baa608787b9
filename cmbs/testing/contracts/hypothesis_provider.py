"""The contract of a `HypothesisProvider` as tests, for every provider. Needs `pytest`.

::

    class TestMyProvider(HypothesisProviderContract):
        @pytest.fixture
        def open_provider(self):
            return MyProvider

        @pytest.fixture
        def responses(self):
            return [("df", {"free_percent": 41}), ("dig", "resolved")]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cmbs.belief.server import BeliefServer
from cmbs.messages import OntologyBundle
from cmbs.spi import HypothesisProvider
from cmbs.testing.fakes.threads import run_together

OpenProvider = Callable[[], HypothesisProvider]
Responses = Sequence[tuple[str, Any]]

_THREADS = 4


class HypothesisProviderContract:
    """Subclass it as `Test…` and supply two fixtures.

    `open_provider` is a function; each call gives a provider of the same id and version, as another process would have
    it. `responses` are pairs of a probe and a response that the provider can read, at least one for each probe.
    """

    def test_it_has_every_method(self, open_provider: OpenProvider) -> None:
        """A server checks no more than this."""
        assert isinstance(open_provider(), HypothesisProvider)

    def test_id_and_version_never_change(self, open_provider: OpenProvider, responses: Responses) -> None:
        """Sessions are told by them which meaning they were declared under."""
        provider = open_provider()
        named = (provider.id(), provider.version())
        assert all(isinstance(each, str) for each in named)
        _masks(provider, responses)
        assert (provider.id(), provider.version()) == named
        assert (open_provider().id(), open_provider().version()) == named

    def test_hypotheses_are_always_the_same_each_once(self, open_provider: OpenProvider, responses: Responses) -> None:
        """The universe of a session."""
        provider = open_provider()
        declared = sorted(provider.hypothesis_ids())
        assert all(isinstance(each, str) for each in declared)
        assert len(declared) == len(set(declared))
        _masks(provider, responses)
        assert sorted(provider.hypothesis_ids()) == declared
        assert sorted(open_provider().hypothesis_ids()) == declared

    def test_probes_are_always_the_same_each_once(self, open_provider: OpenProvider, responses: Responses) -> None:
        """What may be asked for; the responses of the test cover it."""
        provider = open_provider()
        offered = sorted(provider.probe_ids())
        assert len(offered) == len(set(offered))
        assert {probe_id for probe_id, _ in responses} == set(offered)
        _masks(provider, responses)
        assert sorted(provider.probe_ids()) == offered
        assert sorted(open_provider().probe_ids()) == offered

    def test_a_mask_names_declared_hypotheses_with_booleans(
        self, open_provider: OpenProvider, responses: Responses
    ) -> None:
        """An elimination cannot be taken back, so nothing else is read as one."""
        provider = open_provider()
        for mask in _masks(provider, responses):
            assert mask.keys() <= set(provider.hypothesis_ids())
            assert {type(each) for each in mask.values()} <= {bool}

    def test_a_mask_depends_on_the_probe_and_the_response_alone(
        self, open_provider: OpenProvider, responses: Responses
    ) -> None:
        """Not on what was asked before, nor on which process is asked."""
        provider = open_provider()
        first = _masks(provider, responses)
        assert _masks(provider, responses) == first
        assert _masks(open_provider(), list(reversed(responses)))[::-1] == first

    def test_threads_may_ask_at_once(self, open_provider: OpenProvider, responses: Responses) -> None:
        """As the sessions of a server do."""
        provider = open_provider()
        expected = _masks(open_provider(), responses)
        found: list[list[dict[str, bool]]] = []
        run_together(lambda _: found.append(_masks(provider, responses)), _THREADS)
        assert found == [expected] * _THREADS

    def test_a_server_eliminates_what_the_masks_say(self, open_provider: OpenProvider, responses: Responses) -> None:
        """And nothing else."""
        provider = open_provider()
        server = BeliefServer(belief_provider=provider)
        ontology = OntologyBundle(provider.id(), provider.version(), "", "")
        session_id, snapshot = server.declare_session(ontology, [])
        expected = set(provider.hypothesis_ids())
        for number, (probe_id, response) in enumerate(responses):
            expected -= {name for name, gone in open_provider().apply_probe(probe_id, response).items() if gone}
            # Another source each time: what one source says twice of a probe must be the same.
            snapshot = server.apply_probe(session_id, probe_id, response, source_id=f"contract/{number}").snapshot
        assert set(snapshot.survivors) == expected


def _masks(provider: HypothesisProvider, responses: Responses) -> list[dict[str, bool]]:
    masks: list[Mapping[str, bool]] = [provider.apply_probe(probe_id, response) for probe_id, response in responses]
    return [dict(mask) for mask in masks]
