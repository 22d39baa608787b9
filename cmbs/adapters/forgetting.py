"""What the server is worth to agents that forget: scripted ones, over every truth of a kit, alone and with a server.

At a compaction an agent loses what it saw. Alone it looks again, invents some of what it no longer knows, and may jump
to a conclusion. With a server it reads the session instead; what it invents and what it concludes too soon is refused.
The agents are scripts, and both play by the same dice, so that the difference is the server's and nothing else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from cmbs.analysis import table_of
from cmbs.analysis.agents import answer_of, draw_number, sample_truths, shuffle
from cmbs.analysis.table import Probe, Table, bits_of
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict
from cmbs.kit import Kit
from cmbs.kit.provider import KitProvider, ontology_of

# How often an agent that forgot an answer invents one, and how often it concludes before it knows, at each step.
INVENTS = 0.25
JUMPS = 0.05
_OBLIGATION = "tell the causes apart"
_PAGE = 200


class Memory(StrEnum):
    """What an agent has to remember with."""

    ALONE = "alone"
    SERVER = "with the server"


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """How agents of one kind did on one kit; means are over games."""

    kit_id: str
    memory: Memory
    games: int
    probes_mean: Annotated[float, Meta(description="Looks at the world.")]
    repeated_mean: Annotated[float, Meta(description="Looks at what the agent had seen before.")]
    refused_mean: Annotated[float, Meta(description="Inventions and conclusions that the server refused.")]
    right: Annotated[int, Meta(description="Games that concluded with the cause, or one that no probe tells from it.")]
    wrong: Annotated[int, Meta(description="Games that concluded with another cause.")]
    undecided: Annotated[int, Meta(description="Games without a conclusion: the probes could not tell.")]
    wrong_actions: Annotated[int, Meta(description="Actions on a cause that was not the one.")]


@dataclass(slots=True)
class _Game:
    """What is counted of a game. `concluded` is a hypothesis by its position, or None."""

    truth: str
    looks: list[str] = field(default_factory=list)
    refused: int = 0
    concluded: int | None = None
    actions: list[int] = field(default_factory=list)

    @property
    def repeated(self) -> int:
        return len(self.looks) - len(set(self.looks))


def compare_memories(kit: Kit, forget: float, seed: str = "0", sample: int | None = None) -> list[Worth]:
    """Both kinds of agents over the truths of a kit, each with a compaction after a look with probability `forget`."""
    table = table_of(kit)
    truths = sample_truths(table, seed, sample)
    alone = [_Player(table, truth, forget, seed).play_alone() for truth in truths]
    with closing(BeliefServer(belief_provider=KitProvider(kit))) as server:
        served = [_Player(table, truth, forget, seed).play_with(server, kit) for truth in truths]
    return [_summarise(table, kit, Memory.ALONE, alone), _summarise(table, kit, Memory.SERVER, served)]


def _summarise(table: Table, kit: Kit, memory: Memory, games: Sequence[_Game]) -> Worth:
    def is_right(game: _Game, cause: int) -> bool:
        return table.class_of[cause] == table.class_of[next(bits_of(table.bit(game.truth)))]

    concluded = [(game, game.concluded) for game in games if game.concluded is not None]
    right = sum(is_right(game, cause) for game, cause in concluded)
    return Worth(
        kit_id=kit.kit_id,
        memory=memory,
        games=len(games),
        probes_mean=sum(len(game.looks) for game in games) / len(games),
        repeated_mean=sum(game.repeated for game in games) / len(games),
        refused_mean=sum(game.refused for game in games) / len(games),
        right=right,
        wrong=len(concluded) - right,
        undecided=len(games) - len(concluded),
        wrong_actions=sum(not is_right(game, cause) for game in games for cause in game.actions),
    )


class _Player:
    """One game of one truth. Dice follow from the seed, the truth and the step, for both kinds of agents alike."""

    def __init__(self, table: Table, truth: str, forget: float, seed: str) -> None:
        self._table = table
        self._truth = truth
        self._forget = forget
        self._seed = seed
        self._order = shuffle([probe.probe_id for probe in table.probes], f"{seed}/{truth}")
        self._most_looks = 3 * len(self._order) + 10
        self._game = _Game(truth)

    def play_alone(self) -> _Game:
        """Play with nothing but a memory, and act on whatever is concluded."""
        memory: dict[str, str] = {}
        while len(self._game.looks) < self._most_looks:
            alive = self._recall(memory)
            if not alive:
                # What was invented contradicts what was seen, and the agent cannot tell which is which.
                memory = {}
                continue
            probe = self._choose({each.probe_id for each in self._open_probes(alive, memory)})
            if probe is None or self._rolls("jump", JUMPS):
                return self._conclude(alive)
            memory[probe.probe_id] = self._look(probe)
            if self._rolls("forget", self._forget):
                memory = dict(self._invent(memory))
        return self._conclude(self._recall(memory) or self._table.everything)

    def play_with(self, server: BeliefServer, kit: Kit) -> _Game:
        """Play with a session: what was seen is read there, and an obligation keeps conclusions back."""
        table, source = self._table, f"agent://{self._truth}"
        session_id, _ = server.declare_session(ontology_of(kit), [])
        largest = max(map(len, table.classes))
        server.enter_obligation(session_id, _OBLIGATION, len(table.hypotheses) - largest)
        while True:
            worth_asking = _list_worth_asking(server, session_id)
            probe = self._choose(worth_asking)
            if probe is None:
                return self._conclude_with(server, session_id)
            if self._rolls("jump", JUMPS):
                alive = table.mask_of(server.query_belief(session_id).survivors)
                jumped = table.hypotheses[self._likeliest(alive)]
                self._game.refused += not server.declare_conclusion(session_id, jumped).accepted
            server.observe(session_id, probe.probe_id, self._look(probe), source)
            if self._rolls("forget", self._forget):
                seen = dict.fromkeys(self._game.looks, "")
                for probe_id, invented in self._invent(seen):
                    try:
                        server.observe(session_id, probe_id, invented, source)
                    except Conflict:
                        self._game.refused += 1

    def _conclude_with(self, server: BeliefServer, session_id: str) -> _Game:
        """Conclude where the obligation is met; where it is not, leave it undecided."""
        if not server.request_exit(session_id, _OBLIGATION).approved:
            return self._game
        alive = self._table.mask_of(server.query_belief(session_id).survivors)
        cause = self._likeliest(alive)
        if server.declare_conclusion(session_id, self._table.hypotheses[cause]).accepted:
            self._game.concluded = cause
            self._game.actions.append(cause)
        return self._game

    def _conclude(self, alive: int) -> _Game:
        self._game.concluded = self._likeliest(alive)
        self._game.actions.append(self._game.concluded)
        return self._game

    def _recall(self, memory: dict[str, str]) -> int:
        """What is left by the looks that the agent still has."""
        alive = self._table.everything
        for probe_id, outcome_id in memory.items():
            probe = self._table.probe(probe_id)
            alive &= (probe.consistent(outcome_id) or 0) if probe is not None else alive
        return alive

    def _open_probes(self, alive: int, memory: dict[str, str]) -> Iterable[Probe]:
        return (each for each in self._table.probes if each.probe_id not in memory and each.matters(alive))

    def _choose(self, worth_asking: set[str]) -> Probe | None:
        """The first probe, in this agent's order, that is worth asking."""
        chosen = next((each for each in self._order if each in worth_asking), None)
        return None if chosen is None else self._table.probe(chosen)

    def _look(self, probe: Probe) -> str:
        self._game.looks.append(probe.probe_id)
        return answer_of(self._table, probe, self._truth, self._seed)

    def _invent(self, memory: dict[str, str]) -> Iterable[tuple[str, str]]:
        """Answers that are made up for some of what was seen; the rest is forgotten."""
        for probe_id in memory:
            probe = self._table.probe(probe_id)
            if probe is not None and self._rolls(f"invent {probe_id}", INVENTS):
                number = draw_number(self._seed, self._truth, str(len(self._game.looks)), "invented", probe_id)
                yield probe_id, probe.outcomes[number % len(probe.outcomes)].outcome_id

    def _likeliest(self, alive: int) -> int:
        return max(bits_of(alive), key=lambda bit: (self._table.weights[bit], -bit))

    def _rolls(self, what: str, chance: float) -> bool:
        return draw_number(self._seed, self._truth, str(len(self._game.looks)), what) < chance * 2**64


def _list_worth_asking(server: BeliefServer, session_id: str) -> set[str]:
    found: set[str] = set()
    first: int | None = 0
    while first is not None:
        page = server.probes(session_id, first, _PAGE)
        found.update(each.probe_id for each in page.probes)
        first = page.next_place
    return found
