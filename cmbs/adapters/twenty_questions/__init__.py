"""Twenty Questions: a hundred things, a game that guesses which one is meant, and an oracle to play against."""

from cmbs.adapters.twenty_questions.game import Answer, Game, Miss, WrongGuess
from cmbs.adapters.twenty_questions.play import End, Oracle, OraclePlayer, Person, Player, play
from cmbs.adapters.twenty_questions.table import kit_from_table, provider, things_kit

__all__ = [
    "Answer",
    "End",
    "Game",
    "Miss",
    "Oracle",
    "OraclePlayer",
    "Person",
    "Player",
    "WrongGuess",
    "kit_from_table",
    "play",
    "provider",
    "things_kit",
]
