"""A policy file is recorded beside its pairs, goes with the policy, and decides nothing."""

import pytest

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.events import CreateSpace, MediaType, PolicySource, ProposePolicy, SettlePolicy
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.substrate.kernel.policy.file import compile_file
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event
from cmbs.substrate.kernel.requests import SpaceCommand, SpaceRequestValidator
from cmbs.substrate.kernel.sizes import weigh_space
from cmbs.substrate.kernel.state import Space
from tests.support.spaces import ROOT, SPACE, World
from tests.support.spaces import SECOND as SECOND_OPERATOR

FIRST = 'format: 2\nrules:\n  - allow: "*"\n'
SECOND = FIRST + "  - {deny: x, name: never}\n"


def source_of(text: str) -> PolicySource:
    return PolicySource(MediaType.YAML, text)


def propose(world: World, text: str | None, change_id: str = "c", **pairs: str) -> None:
    base = world.space.policy.policy_hash
    message = ProposePolicy(change_id, base, pairs)
    if text is not None:
        message = ProposePolicy(change_id, base, pairs, source=source_of(text))
    world.say(message)


@pytest.fixture
def world() -> World:
    made = World()
    pairs = compile_file(FIRST.encode(), "p.yaml").pairs
    made.say(CreateSpace(SPACE, policy=pairs, source=source_of(FIRST)))
    return made


@pytest.mark.req("GATES-FILE-RECORDED")
def test_the_file_of_a_space_is_that_of_its_policy(world: World) -> None:
    assert world.space.policy_source == source_of(FIRST)
    propose(world, SECOND, **{"constraint.never": '{"v":2,"effect":"deny","subject":{"tool_id":"x"}}'})
    assert world.space.policy_source == source_of(FIRST)
    assert world.space.policy_changes["c"].source == source_of(SECOND)
    world.say(SettlePolicy("c", authorise=True), SECOND_OPERATOR)
    assert world.space.policy_source == source_of(SECOND)
    # mypy takes what it saw of a property for what it stays.
    settled = world.space.policy_changes["c"]
    assert not settled.source
    propose(world, None, "d", **{"policy.value.x": "1"})
    world.say(SettlePolicy("d", authorise=True), SECOND_OPERATOR)
    assert world.space.policy_source is None


@pytest.mark.req("GATES-FILE-RECORDED")
def test_a_change_of_nothing_but_the_file_is_one_and_the_same_file_is_none(world: World) -> None:
    propose(world, FIRST + "# a comment\n")
    world.say(SettlePolicy("c", authorise=True), SECOND_OPERATOR)
    assert world.space.policy_source == source_of(FIRST + "# a comment\n")
    with pytest.raises(InvalidRequest, match="changes nothing"):
        propose(world, FIRST + "# a comment\n", "d")


@pytest.mark.req("GATES-FILE-RECORDED")
def test_a_replay_gives_the_file_again_without_compiling_it(world: World) -> None:
    propose(world, "this is no policy file any more", **{"policy.value.x": "1"})
    world.say(SettlePolicy("c", authorise=True), SECOND_OPERATOR)
    entries = world.server.stored_entries(SPACE)
    again: Space | None = catch_up_space(SPACE, None, entries)
    assert again is not None
    assert freeze_space(again) == freeze_space(world.space)
    assert again.policy_source == source_of("this is no policy file any more")
    assert b'"source"' not in read_space_event(entries[2]).stored.raw


@pytest.mark.req("GATES-FILE-RECORDED")
def test_a_file_has_a_limit_and_is_text(world: World) -> None:
    validator = SpaceRequestValidator(SpaceLimits(policy_source_bytes=10))
    for message in (
        CreateSpace(SPACE, source=source_of("é" * 6)),
        ProposePolicy("c", "base", source=source_of("é" * 6)),
    ):
        with pytest.raises(LimitExceeded) as caught:
            validator.validate(SpaceCommand(SPACE, ROOT, message))
        assert caught.value.details["limit"] == "policy_source_bytes"
    with pytest.raises(InvalidRequest, match="lone surrogate"):
        validator.validate(SpaceCommand(SPACE, ROOT, CreateSpace(SPACE, source=source_of("\ud800"))))
    validator.validate(SpaceCommand(SPACE, ROOT, CreateSpace(SPACE, source=source_of("é" * 5))))


def test_a_file_counts_for_the_size_of_a_space(world: World) -> None:
    before = weigh_space(world.space)
    propose(world, FIRST + "#" * 10_000)
    assert weigh_space(world.space) - before > 10_000
