"""The offline verifier decides sessions with attributes, policies and actors as the kernel does."""

from __future__ import annotations

import msgspec
import pytest

from cmbs import offline_verifier
from cmbs.ledger import StoredEntry, canonical
from cmbs.messages import ConclusionRule, SessionPolicy
from tests.support.forging import sealed
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line
from tests.support.subtests import for_each


def check(log: list[StoredEntry]) -> offline_verifier.Session:
    session = offline_verifier.Session("session")
    for stored in log:
        session.append(stored.event_hash, stored.raw)
    return session


def eventful() -> Line:
    policy = SessionPolicy(conclusions=ConclusionRule.SURVIVORS)
    line = Line(VALIDATOR.declare(ONTOLOGY, ["a", "b"], None, policy, None, {"a": {"component": "db"}}), key="key")
    line.eliminate("1", "a", key="key", actor="ann")
    line.tell(VALIDATOR.declare_conclusion("a", None), "key", actor="bob")
    line.tell(VALIDATOR.declare_conclusion("b", None))
    return line


@pytest.mark.req("GATES-ATTR-01", "GATES-CONCL-01", "GATES-KEYS-10")
def test_a_good_log_is_good() -> None:
    assert check(eventful().log).conclusions == ["b"]


@pytest.mark.req("GATES-ATTR-02", "GATES-CONCL-01")
@for_each(
    ("name", "value"),
    [
        ("hypothesis_attributes", {"z": {"x": 1}}),
        ("hypothesis_attributes", {"a": {}}),
        ("hypothesis_attributes", {}),
        ("policy", {"allow_force": False, "stability_window": 0, "validate_hypotheses": False, "conclusions": "all"}),
    ],
)
def test_a_declaration_that_could_not_be_is_refused(name: str, value: object) -> None:
    entry = msgspec.json.decode(eventful().log[0].raw)
    entry["payload"][name] = value
    with pytest.raises(offline_verifier.Refused):
        check([sealed(canonical.encode(entry))])


@pytest.mark.req("GATES-KEYS-10")
def test_a_key_of_the_same_actor_occurs_once() -> None:
    line = eventful()
    entry = msgspec.json.decode(line.log[2].raw)
    entry["actor"]["id"] = "ann"
    with pytest.raises(offline_verifier.Refused, match="second time"):
        check([*line.log[:2], sealed(canonical.encode(entry))])
