"""What is declared of hypotheses: part of the first event, within limits, kept by forks and checked in replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.belief.kernel.attributes import NO_ATTRIBUTES, Attributes
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.requests import Limits, RequestValidator
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidHypothesisId, InvalidRequest, LedgerCorrupt, LimitExceeded
from cmbs.ledger import canonical
from cmbs.messages import SessionPolicy
from cmbs.testing.strategies.belief import attributes, hypotheses
from tests.support.forging import sealed
from tests.support.kernel import ONTOLOGY, VALIDATOR, Line
from tests.support.subtests import for_each

SMALL = RequestValidator(
    Limits(attribute_bytes=40, attribute_bytes_per_hypothesis=16, attributes_per_hypothesis=2, attribute_name_length=4)
)


def declaration(attributes: Any, validator: RequestValidator = VALIDATOR) -> Any:
    return validator.declare(ONTOLOGY, ["a", "b"], None, SessionPolicy(), None, attributes)


@pytest.mark.req("GATES-ATTR-01")
@given(hypotheses(), st.data())
def test_what_is_declared_of_hypotheses_is_in_the_first_event_and_in_every_state(
    ids: list[str], data: st.DataObject
) -> None:
    said = data.draw(st.dictionaries(st.sampled_from(ids), attributes(), max_size=4))
    wanted = {name: values for name, values in said.items() if values}
    line = Line(VALIDATOR.declare(ONTOLOGY, ids, None, SessionPolicy(), None, said))
    line.eliminate("1", ids[0])
    recorded = msgspec.json.decode(line.log[0].raw)["payload"].get("hypothesis_attributes", {})
    assert recorded == wanted
    for session in (line.session, verify_session(line.session_id, line.log)):
        assert dict(session.attributes) == {name: canonical.encode(values) for name, values in wanted.items()}
        assert session.attributes.choose(ids) == wanted
        assert [session.attributes.of(name) for name in ids] == [wanted.get(name, {}) for name in ids]
        assert session.attributes.n_bytes == sum(len(canonical.encode(values)) for values in wanted.values())


@pytest.mark.req("GATES-ATTR-01")
@pytest.mark.parametrize("nothing", [None, {}, {"a": {}}])
def test_a_declaration_that_says_nothing_is_the_bytes_that_it_always_was(nothing: Any) -> None:
    assert declaration(nothing).hypothesis_attributes is msgspec.UNSET
    assert Line(declaration(nothing)).log == Line(declaration(None)).log
    assert Line(declaration(nothing)).session.attributes is NO_ATTRIBUTES


def test_what_a_reader_gets_is_its_own() -> None:
    known = Attributes({"a": b'{"x":[1]}'})
    known.of("a")["x"].append(2)
    assert known.of("a") == {"x": [1]}


@pytest.mark.req("GATES-ATTR-02")
@for_each(
    ("said", "error", "field"),
    [
        (["a"], InvalidRequest, "hypothesis_attributes"),
        ({"a": ["x"]}, InvalidRequest, "hypothesis_attributes.a"),
        ({"a": {"": 1}}, InvalidRequest, "hypothesis_attributes.a"),
        ({"a": {"x": 1, "y": 2, "z": 3}}, LimitExceeded, "hypothesis_attributes.a"),
        ({"a": {"x" * 5: 1}}, LimitExceeded, "hypothesis_attributes.a"),
        ({"a": {"x": "y" * 40}}, LimitExceeded, "hypothesis_attributes"),
        ({"b": {"x": "y" * 9}, "a": {"x": 1}}, LimitExceeded, "hypothesis_attributes.b"),
    ],
    ids=repr,
)
def test_what_is_malformed_or_too_large_is_refused_with_its_place(said: Any, error: Any, field: str) -> None:
    with pytest.raises(error) as caught:
        declaration(said, SMALL)
    assert caught.value.details["field"] == field


@pytest.mark.req("GATES-ATTR-02")
def test_attributes_of_what_is_no_hypothesis_are_refused() -> None:
    with pytest.raises(InvalidHypothesisId, match="`c`"):
        declaration({"c": {"x": 1}, "a": {"x": 1}})


def _set(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda entry: entry["payload"].update({name: value})


FORGERIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "no attributes": _set("hypothesis_attributes", {}),
    "of a stranger": _set("hypothesis_attributes", {"z": {"x": 1}}),
    "not an object": _set("hypothesis_attributes", {"a": 1}),
    "an empty object": _set("hypothesis_attributes", {"a": {}}),
    "a list": _set("hypothesis_attributes", ["a"]),
}


@pytest.mark.req("GATES-ATTR-02")
@for_each("name", FORGERIES)
def test_a_declaration_that_could_not_have_been_asked_for_is_no_entry(name: str) -> None:
    entry = msgspec.json.decode(Line(declaration({"a": {"x": 1}})).log[0].raw)
    FORGERIES[name](entry)
    with pytest.raises(LedgerCorrupt):
        verify_session("session", [sealed(canonical.encode(entry))])


@pytest.mark.req("GATES-ATTR-01")
def test_attributes_that_are_not_canonical_are_no_entry() -> None:
    raw = Line(declaration({"a": {"x": 1, "y": 2}})).log[0].raw
    swapped = raw.replace(b'{"x":1,"y":2}', b'{"y":2,"x":1}')
    assert swapped != raw
    with pytest.raises(LedgerCorrupt, match="canonical"):
        verify_session("session", [sealed(swapped)])


@pytest.mark.req("GATES-ATTR-01")
def test_a_fork_and_an_import_keep_the_attributes() -> None:
    server, other = BeliefServer(), BeliefServer()
    said = {"a": {"component": "db"}}
    session_id = server.declare_session(ONTOLOGY, ["a", "b"], hypothesis_attributes=said).session_id
    server.eliminate(session_id, "s", "1", ["b"])
    fork_id = server.fork_session(session_id).session_id
    assert server.attributes(fork_id, ["a", "b"]) == said
    head = server.log.head(session_id)
    assert head is not None
    other.import_session(session_id, server.stored_entries(session_id), head)
    assert other.attributes(session_id, ["a"]) == said
