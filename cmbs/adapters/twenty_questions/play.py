"""One game from the first question to the end, with a person or an oracle that answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from math import log2
from typing import Protocol, TypeVar

from cmbs.adapters.twenty_questions.game import Game, Miss
from cmbs.adapters.twenty_questions.words import Command, choices, read_answer, read_yes_or_no
from cmbs.errors import InvalidRequest
from cmbs.kit import NO_DATA, Kit, KitProbe

Say = Callable[[str], None]
# Reads a line after a prompt; None at the end of the input.
Ask = Callable[[str], str | None]

Meaning = TypeVar("Meaning")

# Characters of the funnel; with the text beside it, a line of a terminal.
WIDTH = 30
# Survivors that are listed by name; more are only counted.
_MAX_NAMED = 6
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
        return self._ask_until_read(
            f"{turn:>2}. {probe.prompt} [{choices(probe)}] ", lambda typed: read_answer(typed, probe)
        )

    def is_it(self, label: str, hypothesis_id: str, turn: int) -> bool | Command:  # noqa: ARG002
        """Ask until the answer can be read."""
        return self._ask_until_read(f"{turn:>2}. Is it: {label}? [y/n] ", read_yes_or_no)

    def _ask_until_read(self, prompt: str, read: Callable[[str], Meaning | Command | None]) -> Meaning | Command:
        while (typed := self._ask(prompt)) is not None:
            meant = read(typed)
            if meant is not None and meant is not Command.HELP:
                return meant
            self._say(HELP)
        return Command.QUIT

    def reconsiders(self) -> bool:
        """Ask once; anything but yes ends the game."""
        typed = self._ask("Take your last answer back? [y/n] ")
        return typed is not None and read_yes_or_no(typed) in (True, Command.UNDO)


class Oracle:
    """Answers for one hypothesis of a kit, and never lies: for tests, and to watch a game.

    Where more than one outcome is consistent with it, it does not know; an `outspoken` one says the first of them.
    """

    def __init__(self, kit: Kit, hypothesis_id: str, *, outspoken: bool = False) -> None:
        if hypothesis_id not in kit.hypothesis_ids:
            raise InvalidRequest(f"kit `{kit.kit_id}` has no `{hypothesis_id}`")
        self.hypothesis_id = hypothesis_id
        self._outspoken = outspoken

    def answer(self, probe: KitProbe) -> str:
        """The id of an outcome, or `NO_DATA`."""
        consistent = [each.outcome_id for each in probe.outcomes if self.hypothesis_id not in each.eliminates]
        return consistent[0] if len(consistent) == 1 or (consistent and self._outspoken) else NO_DATA

    def is_it(self, hypothesis_id: str) -> bool:
        """Whether a guess is right."""
        return hypothesis_id == self.hypothesis_id


class OraclePlayer:
    """An oracle whose answers are printed."""

    def __init__(self, oracle: Oracle, say: Say) -> None:
        self._oracle = oracle
        self._say = say

    def answer(self, probe: KitProbe, turn: int) -> str | Command:
        """What the oracle answers; it is printed too."""
        answer = self._oracle.answer(probe)
        self._say(f"{turn:>2}. {probe.prompt} {_say_response(answer)}")
        return answer

    def is_it(self, label: str, hypothesis_id: str, turn: int) -> bool | Command:
        """Whether the guess is right; the answer is printed too."""
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


def funnel_line(left: int, of: int, what: str) -> str:
    """What is left, as a bar in the middle of its line, the count, the bits, and what led there."""
    width = 0 if left == 0 else max(1, round(WIDTH * left / of))
    bar = ("█" * width).center(WIDTH)
    bits = f"{log2(left):4.1f} bits" if left else "   nothing"
    return f"  {bar}  {left:>{len(str(of))}} left {bits}  {what}".rstrip()


def name_survivors(labels: Sequence[str]) -> str:
    """The survivors by name, where they are few enough."""
    return f"it could be {', '.join(labels[:-1])} or {labels[-1]}" if 1 < len(labels) <= _MAX_NAMED else ""


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
