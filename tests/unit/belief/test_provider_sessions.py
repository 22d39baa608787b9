"""Sessions declared from a hypothesis provider: probes become eliminations on the path that all eliminations take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import (
    Conflict,
    HeadMismatch,
    InvalidHypothesisId,
    InvalidRequest,
    LimitExceeded,
    ProviderBroken,
    SessionNotFound,
    SessionTerminated,
    UnknownProbe,
)
from cmbs.messages import ConclusionRule, SessionPolicy
from cmbs.spi import HypothesisProvider, RecoveredState
from cmbs.testing import FailingEliminationStore
from tests.support.in_process import client_of
from tests.support.plain_store import PlainStore
from tests.support.store_fixture import (
    NO_SUCH_SESSION,
    ONTOLOGY,
    StoreFixture,
    declared,
    last_entry,
    verbs,
    verified,
)

ANIMALS = {
    "cat": {"furry": "yes", "barks": "no", "swims": "no"},
    "dog": {"furry": "yes", "barks": "yes", "swims": "yes"},
    "trout": {"furry": "no", "barks": "no", "swims": "yes"},
    "wolf": {"furry": "yes", "barks": "no", "swims": "yes"},
}


class Animals:
    """Guess the animal: an answer rules out every animal of which the other is true."""

    def __init__(self, version: str = "1", name: str = "animals") -> None:
        self._name = name
        self._version = version
        self.asked: list[str] = []

    def id(self) -> str:
        return self._name

    def version(self) -> str:
        return self._version

    def hypothesis_ids(self) -> Collection[str]:
        return frozenset(ANIMALS)

    def probe_ids(self) -> Collection[str]:
        return ["furry", "barks", "swims"]

    def apply_probe(self, probe_id: str, response: Any) -> Mapping[str, bool]:
        self.asked.append(probe_id)
        if response == "unreadable":
            raise ValueError("the answer is unreadable")
        return {animal: traits[probe_id] != response for animal, traits in ANIMALS.items()}


class Answering(Animals):
    """A provider that always gives the same mask."""

    def __init__(self, mask: Any) -> None:
        super().__init__()
        self._mask = mask

    def apply_probe(self, probe_id: str, response: Any) -> Any:
        return self._mask


@pytest.fixture
def server(fixture: StoreFixture) -> BeliefServer:
    return fixture.open(belief_provider=Animals())


@pytest.mark.req("BS-6.5-PROBE-01")
def test_the_hypotheses_come_from_the_provider_and_the_list_passed_is_ignored(server: BeliefServer) -> None:
    assert isinstance(Animals(), HypothesisProvider)
    for ignored in (["unicorn"], []):
        session_id, snapshot = server.declare_session(ONTOLOGY, ignored)
        assert snapshot.survivors == ["cat", "dog", "trout", "wolf"]
        assert last_entry(server, session_id).payload["provider"] == {"id": "animals", "version": "1"}


@pytest.mark.req("BS-6.5-PROBE-01")
def test_a_declaration_that_names_a_provider_may_leave_the_ontology_out(server: BeliefServer) -> None:
    offering = BeliefServer(providers=lambda: {"zoo": Animals()})
    provider: str | None
    for each, provider in ((offering, "zoo"), (server, None)):
        session_id = each.declare_session(provider=provider).session_id
        assert last_entry(each, session_id).payload["ontology"] == {
            "hypothesis_space_id": "animals",
            "hypothesis_version": "1",
            "causal_graph_ref": "provider:animals",
            "causal_graph_version": "1",
        }
        session_id = each.declare_session(ONTOLOGY, provider=provider).session_id
        assert last_entry(each, session_id).payload["ontology"] == ONTOLOGY.to_dict()
    with client_of(create_app(offering)) as client:
        assert client.post("/v1/sessions", json={"provider": "zoo"}).status_code == 201
        refused = client.post("/v1/sessions", json={"hypotheses": ["a"]}).json()["error"]
    assert (refused["code"], refused["details"]["field"]) == ("INVALID_REQUEST", "ontology")


@pytest.mark.req("BS-6.5-PROBE-02")
def test_a_probe_takes_out_what_the_mask_says_and_is_recorded_with_its_response(server: BeliefServer) -> None:
    session_id = declared(server)
    applied, ignored, snapshot, event_id = server.apply_probe(session_id, "furry", "yes")
    assert (applied, ignored, snapshot.survivors) == (["trout"], [], ["cat", "dog", "wolf"])
    entry = last_entry(server, session_id)
    assert (entry.event_id, entry.verb, entry.delta_eliminated) == (event_id, "ELIMINATE", ["trout"])
    assert entry.payload["probe"] == {"probe_id": "furry", "response": "yes"}
    assert (entry.payload["source_id"], entry.payload["observation_id"]) == ("provider", "furry")
    second = server.apply_probe(session_id, "swims", "no", source_id="zoo")
    assert (second.applied_eliminated, second.ignored_eliminated) == (["dog", "wolf"], ["trout"])
    assert last_entry(server, session_id).payload["source_id"] == "zoo"
    assert server.request_termination(session_id).approved
    assert verified(server, session_id).survivors == ["cat"]


@pytest.mark.req("BS-6.5-PROBE-02", "ARCH-5-RULE-01", "ARCH-5-RULE-02")
def test_a_probe_is_an_observation_the_same_again_is_the_first_and_another_answer_a_conflict(
    server: BeliefServer,
) -> None:
    session_id = declared(server)
    first = server.apply_probe(session_id, "furry", "yes")
    server.eliminate(session_id, "human", "saw", ["wolf"])
    assert server.apply_probe(session_id, "furry", "yes") == first
    with pytest.raises(Conflict):
        server.apply_probe(session_id, "furry", "no")
    assert server.apply_probe(session_id, "furry", "yes", source_id="zoo").ignored_eliminated == ["trout"]
    assert verbs(server, session_id).count("ELIMINATE") == 3


@pytest.mark.req("BS-6.5-PROBE-02")
def test_probes_count_towards_an_obligation_and_may_name_the_head_they_expect(server: BeliefServer) -> None:
    session_id = declared(server)
    head = server.enter_obligation(session_id, "look", 1).audit_event_id
    with pytest.raises(HeadMismatch):
        server.apply_probe(session_id, "furry", "yes", if_match="elsewhere")
    server.apply_probe(session_id, "furry", "yes", if_match=head)
    assert server.request_exit(session_id, "look").approved


@pytest.mark.req("BS-6.5-PROBE-03")
def test_a_probe_needs_a_provider_on_the_server_and_in_the_session(fixture: StoreFixture) -> None:
    without, with_provider = fixture.open(), fixture.open(belief_provider=Animals())
    plain, provided = declared(without), declared(with_provider)
    for server, session_id in ((without, plain), (without, provided), (with_provider, plain)):
        before = verbs(server, session_id)
        with pytest.raises(InvalidRequest, match="provider"):
            server.apply_probe(session_id, "furry", "yes")
        assert verbs(server, session_id) == before
    assert with_provider.apply_probe(provided, "furry", "yes").applied_eliminated == ["trout"]


@pytest.mark.req("BS-6.5-PROBE-03")
@pytest.mark.parametrize("other", [Animals(version="2"), Animals(name="plants")])
def test_a_session_declared_from_another_provider_is_not_probed(fixture: StoreFixture, other: Animals) -> None:
    session_id = declared(fixture.open(belief_provider=Animals()))
    server = fixture.open(belief_provider=other)
    with pytest.raises(Conflict, match="`animals` 1"):
        server.apply_probe(session_id, "furry", "yes")
    assert other.asked == []
    assert server.eliminate(session_id, "human", "saw", ["cat"]).applied_eliminated == ["cat"]


@pytest.mark.req("BS-6.5-PROBE-04")
@pytest.mark.parametrize(
    ("mask", "error"),
    [
        ({"cat": True, "unicorn": True}, InvalidHypothesisId),
        ({"cat": True, "unicorn": False}, InvalidHypothesisId),
        ({"cat": 0.9}, ProviderBroken),
        ({"cat": "no"}, ProviderBroken),
        ({"cat": None}, ProviderBroken),
        (5, ProviderBroken),
        # What a provider raises names the provider, and is the cause.
        (None, ProviderBroken),
    ],
)
def test_a_mask_that_breaks_the_contract_is_an_error_and_nothing_is_applied(
    fixture: StoreFixture, mask: dict[str, Any] | None, error: type[Exception]
) -> None:
    server = fixture.open(belief_provider=Animals() if mask is None else Answering(mask))
    session_id = declared(server)
    with pytest.raises(error, match="`animals` raised `ValueError`" if mask is None else None):
        server.apply_probe(session_id, "furry", "unreadable")
    assert verbs(server, session_id) == ["DECLARE_SESSION"]


@pytest.mark.req("BS-6.5-PROBE-04")
@pytest.mark.parametrize("mask", [{}, {"cat": False}])
def test_a_mask_that_rules_nothing_out_is_recorded(fixture: StoreFixture, mask: dict[str, bool]) -> None:
    server = fixture.open(belief_provider=Answering(mask))
    session_id = declared(server)
    assert server.apply_probe(session_id, "furry", "yes").applied_eliminated == []
    assert verbs(server, session_id) == ["DECLARE_SESSION", "ELIMINATE"]


@pytest.mark.req("BS-3.2-ERR-11")
def test_bad_probes_are_refused_and_nothing_is_applied(fixture: StoreFixture) -> None:
    server = fixture.open(belief_provider=Animals(), limits=Limits(opaque_bytes=100))
    session_id = declared(server)
    wrong: Any
    with pytest.raises(UnknownProbe) as unknown:
        server.apply_probe(session_id, "flies", "yes")
    assert unknown.value.details.items() >= {"probe_id": "flies"}.items()
    for wrong in (None, 5, ["furry"], "\ud800"):
        with pytest.raises(InvalidRequest):
            server.apply_probe(session_id, wrong, "yes")
        with pytest.raises(InvalidRequest):
            server.apply_probe(session_id, "furry", "yes", source_id=wrong)
    for wrong in (float("nan"), object(), {1: 2}, "\ud800"):
        with pytest.raises(InvalidRequest):
            server.apply_probe(session_id, "furry", wrong)
    with pytest.raises(LimitExceeded, match="opaque_bytes"):
        server.apply_probe(session_id, "furry", "y" * 100)
    with pytest.raises(SessionNotFound):
        server.apply_probe(NO_SUCH_SESSION, "furry", "yes")
    assert verbs(server, session_id) == ["DECLARE_SESSION"]


@pytest.mark.req("BS-3.2-ERR-03")
def test_a_terminated_session_is_not_probed(server: BeliefServer) -> None:
    session_id = declared(server)
    server.eliminate(session_id, "s", "o", ["cat", "dog", "wolf"])
    assert server.request_termination(session_id).approved
    with pytest.raises(SessionTerminated):
        server.apply_probe(session_id, "furry", "yes")


@pytest.mark.req("BS-6.5-PROBE-07")
def test_replay_never_asks_the_provider(fixture: StoreFixture) -> None:
    provider = Animals()
    server = fixture.open(belief_provider=provider)
    session_id = declared(server)
    first = server.apply_probe(session_id, "furry", "yes")
    expected = server.query_belief(session_id)
    asked = list(provider.asked)
    fresh, bare = fixture.open(belief_provider=provider), fixture.open()
    assert fresh.query_belief(session_id) == bare.query_belief(session_id) == expected
    restored = BeliefServer(belief_provider=provider)
    state = RecoveredState(frozenset(ANIMALS), frozenset({"trout"}), frozenset({"cat", "dog", "wolf"}))
    restored.restore_session(session_id, state, server.audit_trace(session_id))
    assert restored.query_belief(session_id) == expected
    assert provider.asked == asked
    assert restored.apply_probe(session_id, "furry", "yes") == first


class Raising(Animals):
    """A provider of which one method raises."""

    def __init__(self, method: str) -> None:
        super().__init__()

        def fail(*_: Any) -> Any:
            raise RuntimeError("postgres://reader:secret@kb is away")

        setattr(self, method, fail)


@pytest.mark.req("BS-6.5-PROBE-04")
@pytest.mark.parametrize("method", ["probe_ids", "apply_probe", "hypothesis_ids", "id", "version"])
def test_a_provider_that_raises_is_named_over_http_and_what_it_raised_is_in_the_log_alone(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole, broken = Animals(), Raising(method)
    server = BeliefServer(providers=lambda: {"animals": whole})
    session_id = server.declare_session(ONTOLOGY, provider="animals").session_id
    vars(whole).update(vars(broken))
    # That of a session, and that of a declaration.
    asked = {"probe_id": "furry", "response": "yes"}
    declared_anew = {"ontology": ONTOLOGY.to_dict(), "provider": "animals"}
    with client_of(create_app(server)) as client:
        told = [client.post(f"/v1/sessions/{session_id}/observations", json=asked)]
        if method in ("hypothesis_ids", "id", "version"):
            told.append(client.post("/v1/sessions", json=declared_anew))
    # A declaration asks the provider itself for its name, and finds that it has none.
    names = ["animals", "Animals" if method == "id" else "animals"]
    for name, each in zip(names, told, strict=False):
        error = each.json()["error"]
        assert (each.status_code, error["code"], error["details"]["provider"]) == (500, "PROVIDER_BROKEN", name)
        assert error["message"].startswith(f"provider `{name}` raised `RuntimeError`")
        assert "secret" not in each.text
    assert "secret" in caplog.text
    assert verbs(server, session_id) == ["DECLARE_SESSION"]


@pytest.mark.req("BS-6.5-PROBE-04")
def test_a_provider_that_cannot_say_its_id_holds_up_no_session_of_another() -> None:
    broken = Animals()
    server = BeliefServer(providers=lambda: {"a-broken": broken, "zoo": Animals(name="zoo")})
    session_id = server.declare_session(ONTOLOGY, provider="zoo").session_id
    own = server.declare_session(ONTOLOGY, provider="a-broken").session_id
    vars(broken).update(vars(Raising("id")))
    assert server.apply_probe(session_id, "furry", "yes").applied_eliminated == ["trout"]
    with pytest.raises(ProviderBroken, match="provider `a-broken` raised `RuntimeError` when asked for its id"):
        server.apply_probe(own, "furry", "yes")
    assert server.contradiction(own).contradiction is False


@pytest.mark.req("BS-6.5-PROBE-01")
@pytest.mark.parametrize("broken", [Animals(version=5), Animals(name=None), Animals(name="\ud800")])  # type: ignore[arg-type]
def test_a_provider_whose_name_is_no_text_declares_nothing(fixture: StoreFixture, broken: Animals) -> None:
    server = fixture.open(belief_provider=broken)
    with pytest.raises((InvalidRequest, ProviderBroken)):
        declared(server)
    assert server.list_sessions() == []


@pytest.mark.req("BS-6.5-PROBE-02")
def test_provider_sessions_do_not_write_to_an_elimination_store(fixture: StoreFixture) -> None:
    store = FailingEliminationStore(PlainStore())
    server = fixture.open(belief_provider=Animals(), store=store, audit_log=fixture.store())
    session_id = declared(server)
    server.apply_probe(session_id, "furry", "yes")
    server.eliminate(session_id, "human", "saw", ["cat"])
    assert store.calls == []
    assert verified(server, session_id).survivors == ["dog", "wolf"]


# --- what providers say of their hypotheses, and providers by name ----------------------------------------------------


class Described(Animals):
    """A provider that also says what its hypotheses are."""

    def hypothesis_attributes(self) -> Mapping[str, Mapping[str, Any]]:
        return {animal: {"swims": traits["swims"]} for animal, traits in ANIMALS.items() if animal != "cat"}


@pytest.mark.req("GATES-ATTR-03")
def test_a_session_declares_what_its_provider_says_of_the_hypotheses() -> None:
    server = BeliefServer(belief_provider=Described())
    session_id = server.declare_session(ONTOLOGY).session_id
    assert server.attributes(session_id, ["cat", "dog"]) == {"dog": {"swims": "yes"}}
    with pytest.raises(InvalidRequest, match="leave `hypothesis_attributes` out"):
        server.declare_session(ONTOLOGY, hypothesis_attributes={"cat": {"x": 1}})
    silent = BeliefServer(belief_provider=Animals())
    session_id = silent.declare_session(ONTOLOGY, hypothesis_attributes={"cat": {"x": 1}}).session_id
    assert silent.attributes(session_id, ["cat", "dog"]) == {"cat": {"x": 1}}


@pytest.mark.req("GATES-ATTR-03", "GATES-CONCL-01")
def test_a_session_may_be_declared_from_one_of_several_providers() -> None:
    asked: list[str] = []

    def find() -> Mapping[str, HypothesisProvider]:
        asked.append("")
        return {"zoo": Described(name="animals"), "farm": Animals("2", "farm")}

    server = BeliefServer(providers=find)
    server.declare_session(ONTOLOGY, ["a"])
    assert asked == []
    zoo = server.declare_session(ONTOLOGY, provider="zoo").session_id
    farm = server.declare_session(ONTOLOGY, provider="farm", policy=SessionPolicy(conclusions=ConclusionRule.ANY))
    assert len(asked) == 1
    assert server.apply_probe(zoo, "barks", "yes").applied_eliminated == ["cat", "trout", "wolf"]
    assert server.apply_probe(farm.session_id, "furry", "no", idempotency_key="k").snapshot.survivors == ["trout"]
    assert server.declare_conclusion(zoo, "cat").reason == "not_a_survivor"
    assert server.declare_conclusion(farm.session_id, "cat").accepted
    # A server of another version, and one without the provider.
    newer = BeliefServer(store=server.log, providers=lambda: {"zoo": Animals("2", "animals")})  # type: ignore[arg-type]
    with pytest.raises(Conflict, match="declared from `animals` 1, this server has `animals` 2"):
        newer.apply_probe(zoo, "furry", "yes")
    bare = BeliefServer(store=server.log)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="no hypothesis provider `animals`"):
        bare.apply_probe(zoo, "furry", "yes")
    with pytest.raises(InvalidRequest, match=r"no hypothesis provider `zo`$"):
        bare.declare_session(ONTOLOGY, provider="zo")
