"""The state of a game: a session on a belief server, and what was answered in it.

The server holds what may still be true. What to ask next is chosen here, by the expected gain of each question.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from cmbs.analysis.gain import Belief, after_answer, gains, prior_belief
from cmbs.analysis.table import table_of
from cmbs.belief.server import BeliefServer
from cmbs.kit import NO_DATA, Kit, KitProbe, ontology_of, outcome_for
from cmbs.messages import ConclusionRule

PLAYER = "player"
# How many of the nearest things a contradiction is explained with.
_NEAREST = 3


class Answer(NamedTuple):
    """A question, and what was answered; `NO_DATA` where the player does not know."""

    probe_id: str
    response: str


class WrongGuess(NamedTuple):
    """A thing that the player says it is not."""

    hypothesis_id: str


class Miss(NamedTuple):
    """A thing that nearly fits, and the answers that it does not fit."""

    hypothesis_id: str
    against: tuple[Answer, ...]


class Game:
    """A game over any kit, against a server that has the kit as its provider.

    Beliefs only ever shrink, so taking something back is a new session in which all earlier answers are given
    again; its metadata names the session that it follows.
    """

    def __init__(self, kit: Kit, server: BeliefServer) -> None:
        self.kit = kit
        self.server = server
        self.history: tuple[Answer | WrongGuess, ...] = ()
        self._table = table_of(kit)
        self._belief = prior_belief(self._table)
        self.session_id = self._declare({})

    @property
    def survivors(self) -> tuple[str, ...]:
        """What may still be meant, in the order of the kit."""
        return tuple(self._table.ids_of(self._belief.alive))

    @property
    def turns(self) -> int:
        """Questions and guesses so far."""
        return len(self.history)

    def question(self) -> KitProbe | None:
        """The question from which most is expected; None where none can rule anything out."""
        ranked = gains(self._table, self._belief)
        return self.kit.probe(ranked[0].probe_id) if ranked else None

    def best_guess(self) -> str:
        """The likeliest of the survivors, the first of the equally likely ones."""
        weight_of = dict(zip(self._table.hypotheses, self._belief.weights, strict=True))
        return max(self.survivors, key=lambda each: weight_of[each])

    def answer(self, probe_id: str, response: str) -> None:
        """Give an answer; one that the question does not have raises `InvalidRequest`, and nothing happens."""
        self.server.apply_probe(self.session_id, probe_id, response, PLAYER)
        self.history += (Answer(probe_id, response),)
        self._take_in(Answer(probe_id, response))

    def wrong_guess(self, hypothesis_id: str) -> None:
        """Rule out a guess that the player says is wrong."""
        self.server.eliminate(self.session_id, PLAYER, f"not:{hypothesis_id}", [hypothesis_id])
        self.history += (WrongGuess(hypothesis_id),)
        self._belief = replace(self._belief, alive=self._alive())

    def right_guess(self, hypothesis_id: str) -> None:
        """End the game: the player says that it is this, so it is nothing else."""
        others = [each for each in self.survivors if each != hypothesis_id]
        if others:
            self.server.eliminate(self.session_id, PLAYER, f"it-is:{hypothesis_id}", others)
            self._belief = replace(self._belief, alive=self._alive())
        self.server.declare_conclusion(self.session_id, hypothesis_id)
        self.server.request_termination(self.session_id)

    def undo(self) -> Answer | WrongGuess | None:
        """Take back what was said last; None where nothing was."""
        if not self.history:
            return None
        *kept, last = self.history
        self.session_id = self._declare({"follows": self.session_id})
        self.history = ()
        self._belief = prior_belief(self._table)
        for each in kept:
            match each:
                case Answer():
                    self.answer(each.probe_id, each.response)
                case WrongGuess():
                    self.wrong_guess(each.hypothesis_id)
        return last

    def nearest(self) -> list[Miss]:
        """The things that fit most of the answers: what a player may have meant whose answers fit nothing."""
        misses = [
            Miss(each.id, self._against(each.id))
            for each in self.kit.hypotheses
            if WrongGuess(each.id) not in self.history
        ]
        return sorted(misses, key=lambda miss: len(miss.against))[:_NEAREST]

    def _declare(self, metadata: dict[str, str]) -> str:
        about = {"game": "twenty questions", **metadata}
        policy = self.server.default_policy(conclusions=ConclusionRule.SURVIVORS)
        return self.server.declare_session(ontology_of(self.kit), metadata=about, policy=policy).session_id

    def _alive(self) -> int:
        """What the server says is left."""
        return self._table.mask_of(self.server.query_belief(self.session_id).survivors)

    def _take_in(self, answer: Answer) -> None:
        probe = self._table.probe(answer.probe_id)
        assert probe is not None  # noqa: S101 - the server has just taken its answer
        if answer.response == NO_DATA:
            # Not to be asked again; and nothing is likelier than before.
            answered = self._belief.answered | {answer.probe_id}
            self._belief = Belief(self._belief.alive, self._belief.weights, answered)
            return
        alive = self._alive()
        self._belief = (
            after_answer(self._table, self._belief, probe, alive) if alive else replace(self._belief, alive=0)
        )

    def _against(self, hypothesis_id: str) -> tuple[Answer, ...]:
        answers = (each for each in self.history if isinstance(each, Answer))
        return tuple(given for given in answers if hypothesis_id in self._eliminations_of(given))

    def _eliminations_of(self, answer: Answer) -> frozenset[str]:
        probe = self.kit.probe(answer.probe_id)
        outcome = outcome_for(probe, answer.response) if probe is not None else None
        return outcome.eliminates if outcome is not None else frozenset()
