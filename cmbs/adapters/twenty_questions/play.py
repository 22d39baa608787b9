"""One game from the first question to the end, with a person or an oracle that answers."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from cmbs.adapters.twenty_questions.funnel import funnel_line, name_survivors
from cmbs.adapters.twenty_questions.game import Game, Miss
from cmbs.adapters.twenty_questions.oracle import Oracle
from cmbs.adapters.twenty_questions.words import Command, choices, read_answer, read_yes_or_no
from cmbs.kit import NO_DATA, KitProbe

Say = Callable[[str], None]
# Reads a line after a prompt; None at the end of the input.
Ask = Callable[[str], str | None]

HELP = "y: yes · n: no · ?: I do not know · u: take my last answer back · q: quit"


class End(StrEnum):
    """How a game ends."""

    GUESSED = "guessed"
    NOT_GUESSED = "not guessed"
    CONTRADICTION = "contradiction"
    QUIT = "quit"


class Player(Protocol):
    """Has something in mind, and answers."""

    def answer(self, probe: KitProbe, turn: int) -> str | Command:
        """The outcome of a question, `NO_DATA`, or a command."""
        ...

    def is_it(self, label: str, hypothesis_id: str, turn: int) -> bool | Command:
        """Whether a guess is right, or a command."""
        ...

    def reconsiders(self) -> bool:
        """Whether to take the last answer back, now that nothing fits."""
        ...


class Person:
    """A person at a terminal, or a script at the other end of a pipe."""

    def __init__(self, ask: Ask, say: Say) -> None:
        self._ask = ask
        self._say = say

    def answer(self, probe: KitProbe, turn: int) -> str | Command:
        """Ask until the answer can be read."""
        while (typed := self._ask(f"{turn:>2}. {probe.prompt} [{choices(probe)}] ")) is not None:
            meant = read_answer(typed, probe)
            if meant is not None and meant is not Command.HELP:
                return meant
            self._say(HELP)
        return Command.QUIT

    def is_it(self, label: str, hypothesis_id: str, turn: int) -> bool | Command:  # noqa: ARG002
        """Ask until the answer can be read."""
        while (typed := self._ask(f"{turn:>2}. Is it: {label}? [y/n] ")) is not None:
            meant = read_yes_or_no(typed)
            if meant is not None and meant is not Command.HELP:
                return meant
            self._say(HELP)
        return Command.QUIT

    def reconsiders(self) -> bool:
        """Ask once; anything but yes ends the game."""
        typed = self._ask("Take your last answer back? [y/n] ")
        return typed is not None and read_yes_or_no(typed) in (True, Command.UNDO)


class OraclePlayer:
    """An oracle whose answers are printed."""

    def __init__(self, oracle: Oracle, say: Say) -> None:
        self._oracle = oracle
        self._say = say

    def answer(self, probe: KitProbe, turn: int) -> str | Command:
        """What the oracle answers, aloud."""
        answer = self._oracle.answer(probe)
        self._say(f"{turn:>2}. {probe.prompt} {_say_response(answer)}")
        return answer

    def is_it(self, label: str, hypothesis_id: str, turn: int) -> bool | Command:
        """What the oracle says to a guess, aloud."""
        right = self._oracle.is_it(hypothesis_id)
        self._say(f"{turn:>2}. Is it: {label}? {'yes' if right else 'no'}")
        return right

    def reconsiders(self) -> bool:
        """An oracle stands by its answers."""
        return False


def play(game: Game, player: Player, say: Say, turns: int = 20) -> End:
    """Play until the thing is guessed, nothing is left, the turns are used up, or the player has had enough."""
    say(funnel_line(len(game.survivors), len(game.kit.hypotheses), ""))
    while game.turns < turns or not game.survivors:
        if not game.survivors:
            _explain(game, say)
            if not player.reconsiders():
                return End.CONTRADICTION
            _undo(game, say)
            continue
        last = game.turns == turns - 1
        question = None if last or len(game.survivors) == 1 else game.question()
        end = _guess(game, player, say) if question is None else _ask(game, player, say, question)
        if end is not None:
            return end
    say(f"You win: {turns} turn{'' if turns == 1 else 's'}, and I still cannot tell.")
    return End.NOT_GUESSED


def _ask(game: Game, player: Player, say: Say, question: KitProbe) -> End | None:
    match player.answer(question, game.turns + 1):
        case Command.QUIT:
            return End.QUIT
        case Command.UNDO:
            _undo(game, say)
        case response:
            game.answer(question.probe_id, str(response))
            _show(game, say, f"{question.probe_id}: {_say_response(str(response))}")
    return None


def _guess(game: Game, player: Player, say: Say) -> End | None:
    guess = game.best_guess()
    match player.is_it(_label(game, guess), guess, game.turns + 1):
        case Command.QUIT:
            return End.QUIT
        case True:
            turn = game.turns + 1
            game.right_guess(guess)
            say(f"Got it in {turn}: {_label(game, guess)}.")
            return End.GUESSED
        case False:
            game.wrong_guess(guess)
            _show(game, say, f"not {_label(game, guess)}")
        case _:
            _undo(game, say)
    return None


def _say_response(response: str) -> str:
    return "I do not know" if response == NO_DATA else response


def _undo(game: Game, say: Say) -> None:
    taken_back = game.undo()
    if taken_back is None:
        say("There is no answer to take back.")
        return
    _show(game, say, f"took back {taken_back[0]}")


def _show(game: Game, say: Say, what: str) -> None:
    survivors = game.survivors
    say(funnel_line(len(survivors), len(game.kit.hypotheses), what))
    few = name_survivors([_label(game, each) for each in survivors])
    if few:
        say(f"  {few}")


def _explain(game: Game, say: Say) -> None:
    say("Nothing that I know of fits all of these answers.")
    for miss in game.nearest():
        say(f"  {_label(game, miss.hypothesis_id)}: {_objections(game, miss)}")


def _objections(game: Game, miss: Miss) -> str:
    asked = [(game.kit.probe(given.probe_id), given.response) for given in miss.against]
    return "; ".join(
        f"“{probe.prompt}” you said {_say_response(response)}" for probe, response in asked if probe is not None
    )


def _label(game: Game, hypothesis_id: str) -> str:
    labels = (each.label for each in game.kit.hypotheses if each.id == hypothesis_id)
    return next(labels, "") or hypothesis_id
