"""What a player types, and what it means."""

from __future__ import annotations

from enum import StrEnum

from cmbs.kit import NO_DATA, KitProbe


class Command(StrEnum):
    """What a player may want instead of answering."""

    UNDO = "undo"
    QUIT = "quit"
    HELP = "help"


_COMMANDS = {
    "u": Command.UNDO,
    "undo": Command.UNDO,
    "back": Command.UNDO,
    "q": Command.QUIT,
    "quit": Command.QUIT,
    "exit": Command.QUIT,
    "h": Command.HELP,
    "help": Command.HELP,
}
_DO_NOT_KNOW = frozenset(
    {"?", "d", "dk", "don't know", "dont know", "do not know", "unknown", "maybe", "sometimes", NO_DATA}
)
_YES = frozenset({"y", "yes", "yeah", "yep", "true", "1"})
_NO = frozenset({"n", "no", "nope", "false", "0"})


def read_answer(typed: str, probe: KitProbe) -> str | Command | None:
    """The outcome that is meant, `NO_DATA`, or a command; None where the words mean nothing.

    What the question's own outcomes are called goes first: a kit may well have an outcome `quit`.
    """
    text = " ".join(typed.lower().replace("’", "'").split())
    outcome_ids = [each.outcome_id for each in probe.outcomes]
    for outcome in probe.outcomes:
        if text in (outcome.outcome_id.lower(), outcome.label.lower()) and text:
            return outcome.outcome_id
    if text in _DO_NOT_KNOW:
        return NO_DATA
    if text in _COMMANDS:
        return _COMMANDS[text]
    for words, outcome_id in ((_YES, "yes"), (_NO, "no")):
        if text in words and outcome_id in outcome_ids:
            return outcome_id
    numbered = {str(number): outcome_id for number, outcome_id in enumerate(outcome_ids, 1)}
    if text in numbered:
        return numbered[text]
    return _beginning(text, outcome_ids)


def read_yes_or_no(typed: str) -> bool | Command | None:
    """Whether a guess is right, or a command; None where the words mean nothing."""
    text = " ".join(typed.lower().split())
    if text in _YES:
        return True
    if text in _NO:
        return False
    return _COMMANDS.get(text)


def choices(probe: KitProbe) -> str:
    """What may be answered to a question, as it stands after it."""
    ids = [each.outcome_id for each in probe.outcomes]
    if set(ids) == {"yes", "no"}:
        return "y/n/?"
    return "/".join([*(f"{number} {each}" for number, each in enumerate(ids, 1)), "?"])


def _beginning(text: str, outcome_ids: list[str]) -> str | None:
    """The only outcome that begins with what was text."""
    meant = [each for each in outcome_ids if text and each.lower().startswith(text)]
    return meant[0] if len(meant) == 1 else None
