"""A table of commonly known answers, written by question, as a kit.

::

    kit = "pets"
    version = "1"
    title = "Three pets"

    [things]
    furry = "cat dog"
    finned = "goldfish"

    [[question]]
    id = "barks"
    ask = "Does it bark?"
    yes = "dog"
    unsure = ""

`yes` and `unsure` name things, or groups of things, with blanks between them; for every other thing the answer is no.
Either answer is consistent with a thing for which it is unsure.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources

import msgspec

from cmbs.errors import InvalidKit
from cmbs.kit import Kit, KitHypothesis, KitOutcome, KitProbe, KitProvider, Soundness

YES, NO = "yes", "no"


class _Question(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    ask: str
    yes: str
    unsure: str = ""


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    kit: str
    version: str
    title: str
    things: dict[str, str]
    question: list[_Question]


@cache
def things_kit() -> Kit:
    """A hundred well-known animals and things."""
    name = "things.toml"
    return kit_from_table((resources.files(__package__) / name).read_text(encoding="utf-8"), name)


def provider() -> KitProvider:
    """The hundred things as a hypothesis provider."""
    return KitProvider(things_kit())


def kit_from_table(text: str, name: str) -> Kit:
    """The kit in a table; `InvalidKit` says what is wrong with it, and in which question."""
    try:
        table = msgspec.convert(tomllib.loads(text), _Table)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as exc:
        raise InvalidKit(f"`{name}` is no table of questions: {exc}") from exc
    groups = {group: things.split() for group, things in table.things.items()}
    things = [thing for group in groups.values() for thing in group]
    words = groups | {thing: [thing] for thing in things}
    return Kit(
        table.kit,
        table.version,
        table.title,
        tuple(
            KitHypothesis(thing, thing.replace("-", " "), tags=(group,)) for group in groups for thing in groups[group]
        ),
        tuple(_probe(question, words, frozenset(things)) for question in table.question),
        description="Answers are about a typical, grown one; where reasonable players would differ, both are right.",
        source="general knowledge",
    )


def _probe(question: _Question, words: Mapping[str, list[str]], things: frozenset[str]) -> KitProbe:
    yes, unsure = (_expand(named, words, question.id) for named in (question.yes, question.unsure))
    if yes & unsure:
        raise InvalidKit(f"question `{question.id}` has `{min(yes & unsure)}` as yes and as unsure")
    outcomes = (
        KitOutcome(YES, things - yes - unsure, Soundness.SOUND),
        KitOutcome(NO, yes, Soundness.SOUND),
    )
    return KitProbe(question.id, question.ask, outcomes)


def _expand(named: str, words: Mapping[str, list[str]], question_id: str) -> frozenset[str]:
    for word in named.split():
        if word not in words:
            raise InvalidKit(f"question `{question_id}` names `{word}`, which is no thing and no group of things")
    return frozenset(thing for word in named.split() for thing in words[word])
