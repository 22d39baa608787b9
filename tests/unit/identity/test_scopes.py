"""Scopes for all sessions and spaces, for one, or for those whose id begins so; roles that make the kind of a key."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import UNSET

from cmbs.errors import Forbidden, InvalidRequest, LimitExceeded
from cmbs.identity.kernel.model import KEYS_STREAM, Key
from cmbs.identity.kernel.scopes import (
    ALL,
    KIND_OF,
    MAX_PATTERN_LENGTH,
    MAX_SCOPES,
    SCOPES_OF,
    Need,
    Reach,
    Role,
    Scope,
    choose_kind,
    grant,
    grants_of,
    validate_scopes,
)
from cmbs.identity.registry import KeyRegistry
from cmbs.messages import Actor, ActorKind
from cmbs.stores.memory import InMemoryStore
from tests.support.subtests import for_each

NOW = "2026-05-01T00:00:00.000000Z"
ids = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="*"), min_size=1)
scopes = st.sampled_from(list(Scope))


# --- how far a scope reaches ------------------------------------------------------------------------------------------


@pytest.mark.req("ID-SCOPE-01")
@given(scopes, ids, ids)
def test_a_scope_at_an_id_reaches_that_id_and_no_other(scope: Scope, mine: str, other: str) -> None:
    grants = grant((), tuple(validate_scopes([f"{scope}@{mine}"])))
    assert grants.reach(scope, mine)
    assert grants.reach(scope, other) == (other == mine)
    assert not any(grants.reach(each, mine) for each in Scope if each is not scope)
    assert grants.cover(Need(scope, Reach.ANY))
    assert not grants.cover(Need(scope, Reach.ALL))


@pytest.mark.req("ID-SCOPE-01")
@given(scopes, ids, ids)
def test_a_beginning_reaches_what_begins_so(scope: Scope, beginning: str, other: str) -> None:
    grants = grant((), tuple(validate_scopes([f"{scope}@{beginning}*"])))
    assert grants.reach(scope, beginning + other)
    assert grants.reach(scope, beginning)
    assert grants.reach(scope, other) == other.startswith(beginning)
    assert not grants.cover(Need(scope, Reach.ALL))


@pytest.mark.req("ID-SCOPE-01")
@given(scopes, ids)
def test_a_scope_without_an_id_reaches_everything(scope: Scope, target: str) -> None:
    grants = grant((), (scope.value, f"{scope}@elsewhere"))
    for reach in Reach:
        grants.require(Need(scope, reach, target))
    with pytest.raises(Forbidden):
        grant((), ()).require(Need(scope, Reach.ANY))


@pytest.mark.req("ID-SCOPE-01")
@pytest.mark.parametrize(
    ("need", "message", "wanted"),
    [
        (Need(Scope.BELIEF_WRITE, Reach.ONE, "s2"), "`belief:write` for `s2`", "belief:write@s2"),
        (Need(Scope.BELIEF_WRITE, Reach.ALL), "`belief:write` for all ids", "belief:write"),
        (Need(Scope.SPACES_READ, Reach.ONE, "shop"), "the scope `spaces:read`", "spaces:read@shop"),
    ],
)
def test_a_refusal_says_what_the_key_has_and_what_it_needs(need: Need, message: str, wanted: str) -> None:
    with pytest.raises(Forbidden) as refused:
        grant((), ("belief:write@s1",)).require(need)
    assert message in refused.value.message
    details = refused.value.details
    assert (details["found"], details["scope"]) == (["belief:write@s1"], need.scope)
    assert wanted in details["accepted"]
    assert details["next"] == f"send the request with a key that has `{wanted}`"


@for_each(
    ("text", "message"),
    [
        ("belief:all", "`belief:all` is no scope; those are belief:read"),
        ("@s", "is no scope"),
        ("belief:read@", "write `belief:read` for all ids"),
        ("belief:read@*", "write `belief:read` for all ids"),
        ("belief:read@a*b", "must be `belief:read@<id>`"),
        ("belief:read@a\n", "must be `belief:read@<id>`"),
    ],
)
def test_a_scope_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message.replace("*", "[*]")):
        validate_scopes([text])


def test_the_scopes_of_a_key_are_bounded() -> None:
    with pytest.raises(LimitExceeded, match="scope_length"):
        validate_scopes(["belief:read@" + "x" * (MAX_PATTERN_LENGTH + 1)])
    with pytest.raises(LimitExceeded, match="scopes"):
        validate_scopes([f"belief:read@{number}" for number in range(MAX_SCOPES + 1)])


# --- roles and kinds --------------------------------------------------------------------------------------------------


@pytest.mark.req("ID-ROLE-01")
def test_the_kind_of_a_key_follows_from_its_roles() -> None:
    assert choose_kind(None, [Role.OPERATOR]) is ActorKind.OPERATOR
    assert choose_kind(None, [Role.AGENT, Role.APPROVER]) is ActorKind.OPERATOR
    assert choose_kind(None, [Role.HARNESS, Role.AGENT]) is choose_kind(None, []) is ActorKind.AGENT
    # An agent opens no case, which is what a harness is for.
    assert choose_kind(None, [Role.HARNESS]) is ActorKind.ENCODER
    assert choose_kind(ActorKind.TOOL, [Role.HARNESS]) is ActorKind.TOOL
    assert choose_kind(ActorKind.OPERATOR, [Role.READER]) is ActorKind.OPERATOR
    assert choose_kind(ActorKind.ENCODER, [Role.AGENT]) is ActorKind.ENCODER
    made = KeyRegistry(InMemoryStore()).create(None, "ops", roles=[Role.OPERATOR])
    assert (made.key.kind, made.key.actor.roles) == (ActorKind.OPERATOR, ("operator",))


@pytest.mark.req("ID-ROLE-01")
@pytest.mark.parametrize("role", KIND_OF)
def test_a_role_and_a_kind_that_contradict_each_other_are_refused(role: Role) -> None:
    log = InMemoryStore()
    with pytest.raises(InvalidRequest, match="leave the kind out") as refused:
        KeyRegistry(log).create(ActorKind.AGENT, "ops", roles=[role])
    assert (refused.value.details["found"], refused.value.details["accepted"]) == ("agent", [KIND_OF[role].value])
    assert log.head(KEYS_STREAM) is None


def test_a_harness_opens_sessions_and_cases_and_proposes_nothing() -> None:
    assert Scope.SPACES_CASES not in SCOPES_OF[Role.AGENT]
    assert SCOPES_OF[Role.HARNESS] == {
        Scope.BELIEF_READ,
        Scope.BELIEF_WRITE,
        Scope.SPACES_READ,
        Scope.SPACES_CASES,
    }


# --- what an actor carries --------------------------------------------------------------------------------------------


@pytest.mark.req("ID-SCOPE-02")
@given(st.sets(st.sampled_from(list(Role))), st.sets(st.builds("{}@{}".format, scopes, ids) | scopes.map(str)))
def test_the_actor_of_a_key_says_all_that_the_key_is_good_for(roles: set[Role], named: set[str]) -> None:
    assume(len({KIND_OF[each] for each in roles if each in KIND_OF}) <= 1)
    kind = choose_kind(None, roles)
    key = Key("f" * 16, "0" * 64, kind, "x", sorted(roles), validate_scopes(named))
    assert grants_of(key.actor) == key.grants
    assert validate_scopes(key.grants.to_texts()) == key.grants.to_texts()
    carried = msgspec.json.decode(msgspec.json.encode(key.actor))
    assert carried.get("roles", []) == sorted(roles)
    assert carried.get("scopes", []) == sorted(named)


@pytest.mark.req("ID-SCOPE-02")
def test_an_actor_without_a_credential_may_everything_and_carries_nothing() -> None:
    actor = Actor(ActorKind.AGENT, "anonymous")
    assert grants_of(actor) == ALL
    assert (actor.roles, actor.scopes) == (UNSET, UNSET)
    assert grants_of(Actor(ActorKind.AGENT, "x", authenticated=True)).to_texts() == []
