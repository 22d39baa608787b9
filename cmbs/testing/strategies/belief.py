"""Hypothesis strategies for what the belief protocol carries. Needs `hypothesis`.

Ids are hostile on purpose: empty, whitespace, separators that naive code joins keys with, quotes that look like JSON,
characters that sort differently as UTF-16 and as code points, the same letter in two normal forms.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from hypothesis import strategies as st
from msgspec import UNSET

from cmbs.messages import ConclusionRule, EliminationRule, OntologyBundle, SessionPolicy, Verb
from cmbs.testing.history import Call, History
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS

MAX_SAFE_INTEGER = 2**53 - 1
# From here on canonical JSON writes a float with an exponent.
FIRST_WITH_EXPONENT = 1e21

_NO_FORCE = ({"force": False}, {"force": 1}, {"force": "true"}, {"force": [True]}, {"nested": {"force": True}})
_PLACES = 6
# A history ends where it terminates, so that is rare.
_SHARES = {
    Verb.ELIMINATE: 8,
    Verb.ENTER_OBLIGATION: 3,
    Verb.REQUEST_EXIT: 5,
    Verb.DECLARE_CONCLUSION: 3,
    Verb.REQUEST_TERMINATION: 2,
}


@cache
def ids(max_size: int = 12) -> st.SearchStrategy[str]:
    """Opaque text: any Unicode scalar values, the empty text and known troublemakers included; no lone surrogates."""
    return st.sampled_from(HOSTILE_IDS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)


def hypotheses(min_size: int = 1, max_size: int = 12) -> st.SearchStrategy[list[str]]:
    """Distinct ids in any order, for a universe."""
    return st.lists(ids(), min_size=min_size, max_size=max_size, unique=True)


def ontologies() -> st.SearchStrategy[OntologyBundle]:
    """Any bundle: its parts are carried, never interpreted."""
    return st.builds(OntologyBundle, ids(), ids(), ids(), ids())


@cache
def json_scalars() -> st.SearchStrategy[Any]:
    """What I-JSON has besides arrays and objects: exact integers, finite floats, text, booleans, null."""
    return st.one_of(st.none(), st.booleans(), st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER), json_floats(), ids())


def json_floats() -> st.SearchStrategy[float]:
    """Finite floats, but for those that canonical JSON writes as whole numbers which are not exact in I-JSON."""
    return st.floats(allow_nan=False, allow_infinity=False).filter(
        lambda number: not MAX_SAFE_INTEGER < abs(number) < FIRST_WITH_EXPONENT
    )


@cache
def json_values(max_leaves: int = 10) -> st.SearchStrategy[Any]:
    """Any I-JSON value."""
    return st.recursive(
        json_scalars(),
        lambda children: st.lists(children, max_size=4) | st.dictionaries(ids(), children, max_size=4),
        max_leaves=max_leaves,
    )


@cache
def json_objects(max_leaves: int = 6) -> st.SearchStrategy[dict[str, Any]]:
    """Any I-JSON object: a justification, a context, metadata."""
    return st.dictionaries(ids(), json_values(max_leaves), max_size=4)


def policies() -> st.SearchStrategy[SessionPolicy]:
    """Any policy, with stability windows that short histories can satisfy."""
    conclusions = st.sampled_from([UNSET, *ConclusionRule])
    eliminations = st.sampled_from([UNSET, UNSET, EliminationRule.ANY])
    return st.builds(SessionPolicy, st.booleans(), st.integers(0, 3), st.booleans(), conclusions, eliminations)


@cache
def attributes() -> st.SearchStrategy[dict[str, Any]]:
    """What may be said of a hypothesis: any JSON values, by any names but the empty one."""
    return st.dictionaries(ids().filter(bool), json_values(3), max_size=2)


def contexts() -> st.SearchStrategy[dict[str, Any] | None]:
    """The context of a request: none, a wish for force, something that only looks like one, or any object."""
    return st.sampled_from([None, None, None, {"force": True}, {"force": True}, *_NO_FORCE]) | json_objects(3)


def idempotency_keys() -> st.SearchStrategy[str | None]:
    """Mostly none; otherwise one of a few, so that a history uses the same one again."""
    return st.sampled_from([None] * 12 + ["", "key", "clé"])


@cache
def _calls() -> st.SearchStrategy[Call]:
    """Messages in which whole numbers in place of hypotheses stand for ids of a universe that is not known yet.

    Strategies that depend on a drawn universe would be built anew for every example, which takes longer than the tests.
    """
    names = st.sampled_from(["", "o", "::"])
    places = st.integers(0, _PLACES - 1)
    # Unknown ids are few: in a session that validates, each one makes an error of its message.
    eliminated = st.lists(places, max_size=4) | st.lists(places, max_size=4) | st.lists(places | ids(3), max_size=4)
    context = contexts()
    arguments: dict[Verb, st.SearchStrategy[dict[str, Any]]] = {
        Verb.ELIMINATE: st.fixed_dictionaries(
            {
                "source_id": st.sampled_from(["s", "s::o", ""]),
                "observation_id": names | st.sampled_from(HOSTILE_IDS),
                "eliminated": eliminated,
                "justification": st.none() | json_objects(3),
            }
        ),
        Verb.ENTER_OBLIGATION: st.fixed_dictionaries(
            {"obligation_id": names, "min_total_eliminations": st.sampled_from([0, 1, 1, 2])}
        ),
        Verb.REQUEST_EXIT: st.fixed_dictionaries({"obligation_id": names, "context": context}),
        Verb.DECLARE_CONCLUSION: st.fixed_dictionaries(
            {"conclusion_id": st.sampled_from(["x", "y"]) | places, "context": context}
        ),
        Verb.REQUEST_TERMINATION: st.fixed_dictionaries({"context": context}),
    }
    key = idempotency_keys()
    built = {verb: st.builds(Call, st.just(verb), drawn, key) for verb, drawn in arguments.items()}
    return st.sampled_from([verb for verb, share in _SHARES.items() for _ in range(share)]).flatmap(built.__getitem__)


def _place_ids(universe: list[str], call: Call) -> Call:
    def place(item: str | int) -> str:
        return universe[item % len(universe)] if isinstance(item, int) else item

    match call.verb:
        case Verb.ELIMINATE:
            placed: dict[str, Any] = {"eliminated": [place(item) for item in call.arguments["eliminated"]]}
        case Verb.DECLARE_CONCLUSION:
            placed = {"conclusion_id": place(call.arguments["conclusion_id"])}
        case _:
            return call
    return call._replace(arguments={**call.arguments, **placed})


def calls(universe: list[str]) -> st.SearchStrategy[Call]:
    """One message to a session over `universe`.

    Names come from small pools: observations, obligations, conclusions and keys do repeat within a history, and most
    ids to eliminate are known.
    """
    return _calls().map(partial(_place_ids, universe))


def histories(min_calls: int = 0, max_calls: int = 16) -> st.SearchStrategy[History]:
    """A session's life: what is declared and what is then asked, of which some is refused and some is an error."""
    return st.builds(
        _history,
        ontologies(),
        hypotheses(max_size=_PLACES),
        st.booleans(),
        st.none() | json_objects(3),
        policies(),
        st.lists(_calls(), min_size=min_calls, max_size=max_calls),
    )


def _history(
    ontology: OntologyBundle,
    universe: list[str],
    repeated: bool,  # noqa: FBT001 - drawn, not passed by anyone
    metadata: dict[str, Any] | None,
    policy: SessionPolicy,
    drawn: list[Call],
) -> History:
    declared = [*universe, universe[0]] if repeated else universe
    return History(ontology, declared, metadata, policy, [_place_ids(universe, call) for call in drawn])
