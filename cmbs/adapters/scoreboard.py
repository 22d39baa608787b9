"""The scoreboard of a kit: scripted agents play every truth of it through a real belief server, and are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from cmbs.analysis import DEFAULT_STEPS, Analysis, KitStudy, Method, analyse, table_of, trajectory_of
from cmbs.analysis.agents import Agent, AgentName, Players, agents_for, answer_of, sample_truths
from cmbs.analysis.findings import RegretFinding
from cmbs.analysis.gain import Belief, after_answer, prior_belief
from cmbs.belief.server import BeliefServer
from cmbs.kit import Kit
from cmbs.kit.provider import KitProvider, ontology_of


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """How one agent did over all truths; means are weighted by the kit's priors."""

    agent: AgentName
    games: int
    found: Annotated[int, Meta(description="Games that ended with the class of the truth alone.")]
    probes_mean: float
    probes_worst: int
    bits_mean: float
    redundancy: Annotated[float, Meta(description="The share of probes that eliminated nothing.")]
    regret_mean: Annotated[
        float | None,
        Meta(description="Expected probes lost by choices; 0 for an optimal agent, null where only a bound is known."),
    ]
    luck_mean: Annotated[
        float | None,
        Meta(description="Probes saved by answers; 0 over all truths, unless they are a sample or answers are open."),
    ]
    beyond_at_most_mean: Annotated[
        float | None, Meta(description="Where only a bound is known: probes beyond it, by choices and luck together.")
    ]


class Scoreboard(msgspec.Struct, frozen=True, kw_only=True):
    """Every agent on one kit."""

    kit_id: str
    version: str
    hypotheses: int
    probes: int
    classes: int
    residual_bits: float
    deterministic: bool
    truths: Annotated[int, Meta(description="How many of the hypotheses were played as the truth.")]
    seed: str
    optimum: Annotated[
        float | None,
        Meta(description="The fewest probes to be expected, by `method`; null where only a bound is known."),
    ]
    optimum_at_least: Annotated[float, Meta(description="No strategy expects fewer.")]
    method: Method
    reason: Annotated[str, Meta(description="Why the optimum is not exact; empty where it is.")]
    absent: Annotated[dict[AgentName, str], Meta(description="Agents that could not play, and why.")]
    scores: list[Score]


class _Game(NamedTuple):
    """What is counted of a game. A whole analysis of every game would take too much memory."""

    weight: int
    found: bool
    probes: int
    redundant: int
    bits: float
    regret: RegretFinding


# A game to be played: who plays, and the truth.
Round: TypeAlias = tuple[Agent, str]
# Passes on the games of the agent of that name; a place to show how far it has come.
Watch: TypeAlias = Callable[[Sequence[Round], str], Iterable[Round]]


def play_all(
    kit: Kit,
    seed: str = "0",
    steps: int = DEFAULT_STEPS,
    watch: Watch | None = None,
    *,
    sample: int | None = None,
) -> Scoreboard:
    """Let every agent play every truth, or a sample of them; what `seed` draws is the same on every machine."""
    arena = _Arena(kit, seed, steps, sample)
    table = arena.table
    agents = agents_for(table, seed, steps)
    played = _play_games(arena, agents, watch)
    regret = played[AgentName.FIXED][0].regret
    return Scoreboard(
        kit_id=kit.kit_id,
        version=kit.version,
        hypotheses=len(table.hypotheses),
        probes=len(table.probes),
        classes=len(table.classes),
        residual_bits=table.residual_bits(table.everything),
        deterministic=table.deterministic,
        truths=len(arena.truths),
        seed=seed,
        optimum=regret.optimum,
        optimum_at_least=regret.optimum_at_least,
        method=regret.method,
        reason=regret.reason,
        absent=agents.absent,
        scores=[_score(name, games) for name, games in played.items()],
    )


def _play_games(arena: _Arena, agents: Players, watch: Watch | None) -> dict[AgentName, list[_Game]]:
    """All games, and their regret by one method: the strongest that is to be had for every one of them."""
    strongest = Method.EXACT
    while True:
        played = {}
        for name, players in agents.players.items():
            rounds = [(player, truth) for player in players for truth in arena.truths]
            played[name] = [*arena.games(name, watch(rounds, name.value) if watch else rounds, strongest)]
        methods = {game.regret.method for games in played.values() for game in games}
        if len(methods) == 1:
            return played
        # The same games again, for they are the same: to keep all of their logs instead would be too much.
        strongest = max(methods, key=lambda method: method.rank)


class _Arena:
    """Where games on one kit are played: each in a session of its own, on a server that has the kit as its provider."""

    def __init__(self, kit: Kit, seed: str, steps: int, sample: int | None) -> None:
        self.table = table_of(kit)
        self.truths = sample_truths(self.table, seed, sample)
        self._kit = kit
        self._seed = seed
        self._steps = steps
        self._study = KitStudy(kit)
        self._weights = dict(zip(self.table.hypotheses, self.table.weights, strict=True))

    def games(self, name: AgentName, rounds: Iterable[Round], strongest: Method) -> Iterator[_Game]:
        """One game for each player and truth."""
        with closing(BeliefServer(belief_provider=KitProvider(self._kit))) as server:
            for player, truth in rounds:
                session_id = self._play(server, name.value, player, truth)
                trajectory = trajectory_of(server.audit_trace(session_id))
                yield self._game(analyse(trajectory, self._study, truth, self._steps, strongest=strongest))

    def _game(self, analysis: Analysis) -> _Game:
        if analysis.kit is None or analysis.truth is None:  # pragma: no cover - both were given
            raise AssertionError(analysis.session_id)
        return _Game(
            weight=self._weights[analysis.truth.hypothesis_id],
            found=analysis.truth.found,
            probes=analysis.eliminations,
            redundant=analysis.redundancy.total,
            bits=analysis.bits or 0.0,
            regret=analysis.kit.regret,
        )

    def _play(self, server: BeliefServer, source_id: str, player: Agent, truth: str) -> str:
        """Ask until one class is left, or nothing that could be asked would change anything."""
        table = self.table
        belief = prior_belief(table)
        session_id, _ = server.declare_session(ontology_of(self._kit), [])
        while not self._over(belief):
            chosen = player.choose(belief)
            probe = None if chosen is None else table.probe(chosen)
            if probe is None:
                break
            answer = answer_of(table, probe, truth, self._seed)
            applied = server.apply_probe(session_id, probe.probe_id, answer, source_id).applied_eliminated
            belief = after_answer(table, belief, probe, belief.alive & ~table.mask_of(applied))
        return session_id

    def _over(self, belief: Belief) -> bool:
        if self.table.one_class(belief.alive):
            return True
        return not any(
            probe.matters(belief.alive) for probe in self.table.probes if probe.probe_id not in belief.answered
        )


def _score(name: AgentName, games: Sequence[_Game]) -> Score:
    total = sum(game.weight for game in games)

    def mean(value_of: Callable[[_Game], float]) -> float:
        # As fractions: weights may be whole numbers that no float is as large as.
        return float(sum(game.weight * Fraction(value_of(game)) for game in games) / total)

    def mean_of(name: str) -> float | None:
        known = getattr(games[0].regret, name) is not None
        return mean(lambda game: getattr(game.regret, name)) if known else None

    probes = mean(lambda game: game.probes)
    return Score(
        agent=name,
        games=len(games),
        found=sum(game.found for game in games),
        probes_mean=probes,
        probes_worst=max(game.probes for game in games),
        bits_mean=mean(lambda game: game.bits),
        redundancy=mean(lambda game: game.redundant) / probes if probes else 0.0,
        regret_mean=mean_of("regret"),
        luck_mean=mean_of("luck"),
        beyond_at_most_mean=mean_of("beyond_at_most"),
    )
