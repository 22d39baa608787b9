"""The offline verifier has its own words for everything, and they are those of the types that are written."""

from __future__ import annotations

import types
import typing
from enum import StrEnum

import msgspec
import pytest

from cmbs import offline_verifier as verifier
from cmbs.belief.kernel.events import VERB_OF
from cmbs.ledger import EntryBody
from cmbs.ledger.register_entry import RegisterEntry
from cmbs.messages import ActorKind, SessionPolicy
from cmbs.substrate.kernel.events import SpaceEntry, SpaceVerb
from cmbs.substrate.kernel.model import BeliefReading, IndependentReading
from scripts.export_fields import list_members

ENVELOPE = {*verifier.ENVELOPE.split()}


def split(of: type) -> tuple[set[str], set[str]]:
    """The members that are always there, and those that may be absent."""
    members = list(list_members(of))
    always = {each.name for each in members if each.presence.startswith("always")}
    return always, {each.name for each in members} - always


@pytest.mark.req("OFFLINE-01")
def test_closed_sets_are_those_of_the_types() -> None:
    assert {*verifier.ACTOR_KINDS} == {*ActorKind}
    assert {*verifier.SPACE_VERBS.split()} == {*SpaceVerb}
    assert {*verifier.Session("s")._verbs()} == {*VERB_OF.values()}
    assert read_rules() == verifier.POLICY_WORDS


def read_rules() -> dict[str, tuple[str, ...]]:
    """The members of a policy that are absent where they say nothing, with their words; the first is then meant."""
    found: dict[str, tuple[str, ...]] = {}
    for name, hint in typing.get_type_hints(SessionPolicy).items():
        if isinstance(hint, types.UnionType):
            (words,) = [each for each in hint.__args__ if each is not msgspec.UnsetType]
            if isinstance(words, type) and issubclass(words, StrEnum):
                found[name] = tuple(words)
            else:
                # The one member that is no word: who may answer.
                assert name == "observers"
    return found


@pytest.mark.req("OFFLINE-01")
def test_members_of_entries_and_readings_are_those_of_the_types() -> None:
    commitments = {"delta", "survivors_before_hash", "survivors_after_hash"}
    assert split(EntryBody) == ({*ENVELOPE, *commitments, "format"}, {"idempotency_key", "notes", "actor", "state"})
    assert split(SpaceEntry) == ({*ENVELOPE, "actor", "format"}, {"idempotency_key", "state"})
    assert split(RegisterEntry) == ({*ENVELOPE, "actor", "format"}, set())
    assert split(BeliefReading) == ({*verifier.READING.split()}, {"survivor_attributes", "independent", "agents"})
    assert split(IndependentReading) == ({*verifier.INDEPENDENT.split()}, {"survivor_attributes", "unknown"})
