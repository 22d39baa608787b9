"""Twenty Questions: the hundred things, the game on a real server, the oracle, and what players type."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.adapters.kits import load_kit
from cmbs.adapters.twenty_questions import (
    Answer,
    End,
    Game,
    Oracle,
    OraclePlayer,
    Person,
    WrongGuess,
    kit_from_table,
    play,
    things_kit,
)
from cmbs.adapters.twenty_questions.play import WIDTH, funnel_line, name_survivors
from cmbs.adapters.twenty_questions.words import Command, choices, read_answer, read_yes_or_no
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidKit, InvalidRequest
from cmbs.kit import NO_DATA, Kit, KitHypothesis, KitOutcome, KitProbe, KitProvider, Soundness
from cmbs.kit.parse import parse_kit
from cmbs.kit.rules import findings_of
from cmbs.kit.writing import format_kit
from tests.support.subtests import for_each

SMALL = Path(__file__).resolve().parents[3] / "examples" / "eight_animals.yaml"
PETS = """
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
[[question]]
id = "swims"
ask = "Does it swim?"
yes = "finned"
unsure = "dog"
"""


def game_over(kit: Kit) -> Game:
    return Game(kit, BeliefServer(belief_provider=KitProvider(kit)))


def silently(_: str) -> None:
    pass


def play_script(kit: Kit, *typed: str, turns: int = 20) -> tuple[End, list[str], Game]:
    """A game in which a person types these lines, and then nothing more."""
    said: list[str] = []
    lines = iter(typed)

    def ask(prompt: str) -> str | None:
        said.append(prompt)
        return next(lines, None)

    game = game_over(kit)
    return play(game, Person(ask, said.append), said.append, turns), said, game


# --- the things -------------------------------------------------------------------------------------------------------


@pytest.mark.req("20Q-01")
def test_a_hundred_things_and_every_two_are_told_apart_by_a_definite_answer() -> None:
    kit = things_kit()
    assert len(kit.hypotheses) == 100
    assert len(kit.probes) >= 20

    def definite(probe: KitProbe, thing: str) -> str | None:
        consistent = [each.outcome_id for each in probe.outcomes if thing not in each.eliminates]
        return consistent[0] if len(consistent) == 1 else None

    answers = {each.id: [definite(probe, each.id) for probe in kit.probes] for each in kit.hypotheses}
    names = list(answers)
    alike = [
        (one, other)
        for position, one in enumerate(names)
        for other in names[position + 1 :]
        if not any(mine and yours and mine != yours for mine, yours in zip(answers[one], answers[other], strict=True))
    ]
    assert alike == []


@pytest.mark.req("20Q-01")
def test_nothing_is_to_be_said_against_the_kit_and_it_can_be_written_as_a_file() -> None:
    kit = things_kit()
    assert findings_of(kit) == []
    assert parse_kit(format_kit(kit, "things.yaml").encode(), "things.yaml").kit == kit
    assert all(hypothesis.label and hypothesis.tags for hypothesis in kit.hypotheses)
    assert len({probe.prompt for probe in kit.probes}) == len(kit.probes)
    assert all(probe.prompt.endswith("?") for probe in kit.probes)


@pytest.mark.req("20Q-01")
@for_each(
    ("thing", "question", "answer"),
    [
        ("bat", "bird", "no"),
        ("bat", "flies", "yes"),
        ("penguin", "flies", "no"),
        ("dolphin", "fish", "no"),
        ("blue-whale", "mammal", "yes"),
        ("spider", "six-legs", "no"),
        ("tomato", "grows-underground", "no"),
        ("cheese", "from-milk", "yes"),
        ("chicken", "flies", None),
        ("ostrich", "lays-eggs", "yes"),
        ("violin", "strings", "yes"),
        ("bus", "wheels", "yes"),
    ],
)
def test_common_knowledge(thing: str, question: str, answer: str | None) -> None:
    probe = things_kit().probe(question)
    assert probe is not None
    assert Oracle(things_kit(), thing).answer(probe) == (answer or NO_DATA)


@pytest.mark.req("20Q-01")
def test_the_small_kit_is_good() -> None:
    small = load_kit(SMALL)
    assert (len(small.hypotheses), findings_of(small)) == (8, [])
    for hypothesis in small.hypotheses:
        assert play(game_over(small), OraclePlayer(Oracle(small, hypothesis.id), silently), silently) is End.GUESSED


# --- tables -----------------------------------------------------------------------------------------------------------


def test_a_table_names_what_is_yes_and_what_is_unsure_and_the_rest_is_no() -> None:
    kit = kit_from_table(PETS, "pets.toml")
    assert [(each.id, each.tags) for each in kit.hypotheses] == [
        ("cat", ("furry",)),
        ("dog", ("furry",)),
        ("goldfish", ("finned",)),
    ]
    swims = kit.probe("swims")
    assert swims is not None
    assert [(each.outcome_id, each.eliminates) for each in swims.outcomes] == [
        ("yes", frozenset({"cat"})),
        ("no", frozenset({"goldfish"})),
    ]


@for_each(
    ("text", "wrong"),
    [
        ("kit = ", "`pets.toml` is no table of questions: Invalid value"),
        ("kit = 'pets'", "`pets.toml` is no table of questions: Object missing required field `version`"),
        (PETS.replace("ask", "asks"), "Object contains unknown field `asks`"),
        (PETS.replace('yes = "dog"', 'yes = "wolf"'), "question `barks` names `wolf`, which is no thing and no group"),
        (PETS.replace('"finned"\n', '"finned dog"\n'), "question `swims` has `dog` as yes and as unsure"),
        (PETS.replace('"cat dog"', '"cat dog cat"'), "`cat` is declared twice"),
    ],
    ids=["toml", "missing", "unknown", "foreign", "both", "twice"],
)
def test_a_table_that_cannot_be_says_why(text: str, wrong: str) -> None:
    with pytest.raises(InvalidKit, match=wrong):
        kit_from_table(text, "pets.toml")


# --- games against an oracle ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("20Q-02")
def test_every_one_of_the_hundred_things_is_guessed_within_twenty_turns() -> None:
    kit = things_kit()
    turns = {}
    for hypothesis in kit.hypotheses:
        game = game_over(kit)
        end = play(game, OraclePlayer(Oracle(kit, hypothesis.id), silently), silently)
        assert (hypothesis.id, end) == (hypothesis.id, End.GUESSED)
        assert game.survivors == (hypothesis.id,)
        turns[hypothesis.id] = game.turns + 1
    # 6.6 bits, and a guess: the optimum is not much less.
    assert 7 < sum(turns.values()) / len(turns) < 10


@pytest.mark.req("20Q-02")
def test_an_outspoken_oracle_answers_what_could_be_said_either_way() -> None:
    kit = things_kit()
    probe = kit.probe("flies")
    assert probe is not None
    assert Oracle(kit, "chicken").answer(probe) == NO_DATA
    assert Oracle(kit, "chicken", outspoken=True).answer(probe) == "yes"
    for thing in ("chicken", "octopus", "hat", "tractor"):
        player = OraclePlayer(Oracle(kit, thing, outspoken=True), silently)
        assert play(game_over(kit), player, silently) is End.GUESSED


def test_an_oracle_needs_something_that_the_kit_knows() -> None:
    with pytest.raises(InvalidRequest, match="kit `twenty-questions` has no `unicorn`"):
        Oracle(things_kit(), "unicorn")


def test_an_oracle_for_what_no_outcome_allows_does_not_know() -> None:
    outcomes = (
        KitOutcome("yes", frozenset({"a"}), Soundness.SOUND),
        KitOutcome("no", frozenset({"a"}), Soundness.SOUND),
    )
    kit = Kit("k", "1", "", (KitHypothesis("a"), KitHypothesis("b")), (KitProbe("p", "?", outcomes),))
    assert Oracle(kit, "a", outspoken=True).answer(kit.probes[0]) == NO_DATA


@st.composite
def kits(draw: st.DrawFn) -> Kit:
    """Yes/no tables of any kind, with things that no question tells apart."""
    things = [f"t{number}" for number in range(draw(st.integers(1, 7)))]
    probes = []
    for number in range(draw(st.integers(0, 5))):
        answers = {thing: draw(st.sampled_from(["yes", "no", "either"])) for thing in things}
        against = {each: frozenset(thing for thing in things if answers[thing] == each) for each in ("yes", "no")}
        outcomes = (
            KitOutcome("yes", against["no"], Soundness.SOUND),
            KitOutcome("no", against["yes"], Soundness.SOUND),
        )
        probes.append(KitProbe(f"q{number}", f"Question {number}?", outcomes))
    return Kit("drawn", "1", "", tuple(map(KitHypothesis, things)), tuple(probes))


@pytest.mark.req("20Q-02")
@given(kits(), st.data())
def test_a_truthful_player_is_understood_in_any_kit(kit: Kit, data: st.DataObject) -> None:
    thing = data.draw(st.sampled_from(kit.hypotheses)).id
    oracle = Oracle(kit, thing, outspoken=data.draw(st.booleans()))
    game = game_over(kit)
    said: list[str] = []
    assert play(game, OraclePlayer(oracle, said.append), said.append, turns=100) is End.GUESSED
    assert game.survivors == (thing,)
    assert said[-1] == f"Got it in {game.turns + 1}: {thing}."
    log = game.server.log
    session = verify_session(game.session_id, log.read(game.session_id), log.head(game.session_id))
    assert session.head == log.head(game.session_id)
    assert game.server.query_belief(game.session_id).terminated


@pytest.mark.req("20Q-03")
@given(kits(), st.data())
def test_taking_back_leads_to_where_the_game_was(kit: Kit, data: st.DataObject) -> None:
    game = game_over(kit)
    seen = []
    going_on: st.SearchStrategy[bool] = st.booleans()
    while len(game.survivors) > 0 and data.draw(going_on):
        question = game.question()
        seen.append((game.survivors, question, game.history))
        if question is None:
            game.wrong_guess(game.best_guess())
        else:
            game.answer(question.probe_id, data.draw(st.sampled_from(["yes", "no", NO_DATA])))
    first = game.session_id
    for survivors, question, said in reversed(seen):
        last = game.history[-1]
        assert game.undo() == last
        assert (game.survivors, game.question(), game.history) == (survivors, question, said)
    assert game.undo() is None
    # What was taken back is still on record.
    assert len(game.server.audit_trace(first)) == 1 + len(seen)


@pytest.mark.req("20Q-03")
def test_a_session_after_taking_back_names_the_one_before() -> None:
    game = game_over(kit_from_table(PETS, "pets.toml"))
    first = game.session_id
    game.answer("barks", "yes")
    game.undo()
    (declared,) = game.server.audit_trace(game.session_id)
    assert declared.payload["metadata"] == {"game": "twenty questions", "follows": first}


def test_an_answer_that_the_question_does_not_have_changes_nothing() -> None:
    game = game_over(kit_from_table(PETS, "pets.toml"))
    with pytest.raises(InvalidRequest):
        game.answer("barks", "loudly")
    assert (game.history, len(game.survivors)) == ((), 3)


def test_what_was_answered_with_no_data_is_not_asked_again() -> None:
    game = game_over(kit_from_table(PETS, "pets.toml"))
    for probe_id in ("barks", "swims"):
        game.answer(probe_id, NO_DATA)
    assert (game.question(), len(game.survivors)) == (None, 3)


# --- games with a person ----------------------------------------------------------------------------------------------


@pytest.mark.req("20Q-03")
def test_a_person_plays_and_sees_the_funnel_shrink() -> None:
    end, said, game = play_script(load_kit(SMALL), "y", "n", "YES", "y")
    assert end is End.GUESSED
    bars = [line.count("█") for line in said if "█" in line]
    assert bars[0] == WIDTH
    assert bars == sorted(bars, reverse=True)
    assert len(game.survivors) == 1
    assert said[-1].startswith("Got it in ")


@pytest.mark.req("20Q-03")
def test_words_that_mean_nothing_are_answered_with_help_and_the_question_again() -> None:
    end, said, game = play_script(load_kit(SMALL), "perhaps a duck", "help", "", "q")
    assert (end, game.history) == (End.QUIT, ())
    assert sum(line.startswith("y: yes") for line in said) == 3
    assert len({line for line in said if line.startswith(" 1. ")}) == 1


@pytest.mark.req("20Q-03")
def test_the_end_of_the_input_is_the_end_of_the_game() -> None:
    assert play_script(load_kit(SMALL))[0] is End.QUIT
    assert play_script(load_kit(SMALL), "y", "y")[0] is End.QUIT
    # Also at a guess.
    assert play_script(load_kit(SMALL), turns=1)[0] is End.QUIT
    assert play_script(load_kit(SMALL), "what", "quit", turns=1)[0] is End.QUIT


@pytest.mark.req("20Q-03")
def test_a_person_takes_answers_back() -> None:
    end, said, game = play_script(load_kit(SMALL), "u", "y", "u", "n", "q")
    assert (end, len(game.history)) == (End.QUIT, 1)
    assert "There is no answer to take back." in said
    (given_back,) = (line for line in said if "took back" in line)
    assert " 8 left" in given_back


@pytest.mark.req("20Q-03")
def test_a_guess_can_be_taken_back_too() -> None:
    kit = kit_from_table(PETS, "pets.toml")
    end, said, game = play_script(kit, "y", "n", "y", "u", "y", "y")
    # Barks; not a dog, so nothing is left; taken back; then it is an answer that is taken back, and given again.
    assert end is End.GUESSED
    assert (game.survivors, game.history) == (("dog",), (Answer("barks", "yes"),))
    assert sum("took back" in line for line in said) == 2


@pytest.mark.req("20Q-03")
def test_answers_that_fit_nothing_are_explained() -> None:
    end, said, game = play_script(kit_from_table(PETS, "pets.toml"), "y", "n", "n")
    assert (end, game.survivors) == (End.CONTRADICTION, ())
    assert game.history == (Answer("barks", "yes"), WrongGuess("dog"))
    assert said[-4:-1] == [
        "Nothing that I know of fits all of these answers.",
        "  cat: “Does it bark?” you said yes",
        "  goldfish: “Does it bark?” you said yes",
    ]
    assert [miss.hypothesis_id for miss in game.nearest()] == ["cat", "goldfish"]


@pytest.mark.req("20Q-03")
def test_a_player_not_understood_in_so_many_turns_has_won() -> None:
    end, said, game = play_script(load_kit(SMALL), "n", turns=1)
    assert (end, said[-1]) == (End.NOT_GUESSED, "You win: 1 turn, and I still cannot tell.")
    assert len(game.survivors) == 7


@pytest.mark.req("20Q-03")
def test_a_lucky_guess_rules_out_everything_else() -> None:
    end, said, game = play_script(load_kit(SMALL), "y", turns=1)
    assert (end, said[-1], game.survivors) == (End.GUESSED, "Got it in 1: bat.", ("bat",))
    assert game.server.query_belief(game.session_id).terminated


def test_an_oracle_stands_by_its_answers() -> None:
    assert not OraclePlayer(Oracle(things_kit(), "cat"), silently).reconsiders()


# --- what players type ------------------------------------------------------------------------------------------------


def probe_with(*outcome_ids: str, label: str = "") -> KitProbe:
    return KitProbe("p", "?", tuple(KitOutcome(each, frozenset(), Soundness.SOUND, label) for each in outcome_ids))


YES_NO = probe_with("yes", "no")


@for_each(
    ("typed", "meant"),
    [
        ("y", "yes"),
        (" Yes ", "yes"),
        ("1", "yes"),
        ("n", "no"),
        ("NOPE", "no"),
        ("?", NO_DATA),
        ("don’t  know", NO_DATA),
        ("no-data", NO_DATA),
        ("u", Command.UNDO),
        ("q", Command.QUIT),
        ("h", Command.HELP),
        ("", None),
        ("purple", None),
        ("0", "no"),
        ("3", None),
        ("²", None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_meant_by_an_answer_to_a_yes_or_no_question(typed: str, meant: str | None) -> None:
    assert read_answer(typed, YES_NO) == meant


def test_other_outcomes_are_meant_by_name_by_number_or_by_how_they_begin() -> None:
    probe = probe_with("firing", "silent", "flapping")
    assert [read_answer(each, probe) for each in ("Firing", "2", "s", "f", "4", "y")] == [
        "firing",
        "silent",
        "silent",
        None,
        None,
        None,
    ]
    assert choices(probe) == "1 firing/2 silent/3 flapping/?"
    assert choices(YES_NO) == "y/n/?"
    assert read_answer("quit", probe_with("quit", "stay")) == "quit"
    assert read_answer("burning", probe_with("a", label="Burning")) == "a"


@given(st.text(), st.sampled_from([YES_NO, probe_with("firing", "silent", "", "0", "Quit")]))
def test_whatever_is_typed_has_one_meaning_or_none(typed: str, probe: KitProbe) -> None:
    meant = read_answer(typed, probe)
    allowed = {NO_DATA, *Command, *(each.outcome_id for each in probe.outcomes), None}
    assert meant in allowed
    assert read_yes_or_no(typed) in {True, False, *Command, None}


@given(st.integers(1, 10_000), st.data())
def test_a_bar_is_there_while_anything_is_left_and_never_wider_than_the_whole(of: int, data: st.DataObject) -> None:
    left = data.draw(st.integers(0, of))
    line = funnel_line(left, of, "why")
    width = line.count("█")
    assert (width == 0) == (left == 0)
    assert width <= funnel_line(of, of, "").count("█") == WIDTH
    assert f"{left} left" in line
    assert line.endswith("why")


def test_survivors_are_named_once_they_are_few() -> None:
    assert name_survivors(["a", "b", "c"]) == "it could be a, b or c"
    assert name_survivors(["a"]) == name_survivors(list("abcdefg")) == ""
