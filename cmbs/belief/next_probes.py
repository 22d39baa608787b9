"""What is worth asking next, and what was asked already. The core neither selects nor values probes.

The values are those of `cmbs.analysis`: the bits that an answer is expected to rule out, by the priors of the kit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from cmbs.analysis.gain import Belief, Gain, gains, odds_of
from cmbs.analysis.table import Table, table_of
from cmbs.belief.component_probes import describe_component, rank_components
from cmbs.belief.graph_kits import GraphKits
from cmbs.belief.kernel.looks import LookItem, count_looks, looks_at
from cmbs.belief.kernel.prospects import AnswerItem, ProbeItem
from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.survivors import Survivors
from cmbs.belief.kernel.views import seq_at, survivors_at
from cmbs.belief.observations import Observations
from cmbs.belief.providers import Providers
from cmbs.errors import InvalidKit, InvalidRequest
from cmbs.kit.model import Kit
from cmbs.kit.provider import KitProvider

# Tables of kits, which take a while to build and as much memory as the kits.
_MAX_TABLES = 8


class ProbePage(NamedTuple):
    """Some of the probes that are worth asking, the best first, as of an event."""

    probes: list[ProbeItem]
    n_probes: int
    seq: int
    audit_head_event_id: str
    n_survivors: int
    next_place: int | None
    # The newest looks of the session, the newest first, and how many there are.
    asked: list[LookItem]
    n_asked: int

    def to_dict(self) -> dict[str, Any]:
        """The page as JSON-able data, without where the next one begins."""
        content = {name: value for name, value in self._asdict().items() if name not in ("seq", "next_place")}
        found: dict[str, Any] = msgspec.to_builtins(content)
        return found


class NextProbes:
    """Ranks the probes of sessions over kits."""

    def __init__(
        self,
        providers: Providers,
        graph_kits: GraphKits,
        observations: Observations,
        read: Callable[[str], Session],
    ) -> None:
        self._providers = providers
        self._graph_kits = graph_kits
        self._observations = observations
        self._read = read
        self._tables: OrderedDict[int, tuple[Kit, Table]] = OrderedDict()
        self._lock = Lock()

    def page(self, session_id: str, at: int | str | None, first: int, limit: int) -> ProbePage:
        """The probes from the `first` place of the ranking on, as the session was right after event `at`."""
        session = self._read(session_id)
        seq = seq_at(session, at)
        survivors = survivors_at(session, seq)
        graph_kit = self._providers.find_graph_kit(session.provider)
        if graph_kit is None:
            probes, n_probes = self._rank(session, seq, survivors, slice(first, first + limit))
        else:
            causation = self._graph_kits.find_causation(session, graph_kit)
            ranked = rank_components(graph_kit, causation, survivors, list_answered(session, seq))
            probes = [describe_component(each, len(survivors), session) for each in ranked.cut(first, limit)]
            n_probes = ranked.total
        beyond = first + limit
        looks = [(record.seq, record.probe_id) for _, record in session.observations if record.probe_id is not None]
        seqs = [looked_at for looked_at, _ in looks if looked_at <= seq]
        newest = seqs[-limit:][::-1] if first == 0 else []
        return ProbePage(
            probes,
            n_probes,
            seq,
            session.events.at(seq)[0],
            len(survivors),
            beyond if beyond < n_probes else None,
            [self._observations.read_look(session, each) for each in newest],
            len(seqs),
        )

    def find_separating(self, session: Session) -> str | None:
        """A probe without an answer that can tell the survivors of a session over a kit apart; None where none can."""
        survivors, answered = session.survivors, list_answered(session, session.head.seq)
        graph_kit = self._providers.find_graph_kit(session.provider)
        if graph_kit is None:
            return self._kit_of(session).find_separating(frozenset(survivors), answered)
        causation = self._graph_kits.find_causation(session, graph_kit)
        found = rank_components(graph_kit, causation, survivors, answered).cut(0, 1)
        return found[0].probe.name(found[0].component) if found else None

    def _rank(self, session: Session, seq: int, survivors: Survivors, shown: slice) -> tuple[list[ProbeItem], int]:
        """Some of the probes of a kit that lists its hypotheses, the best first, and how many there are."""
        kit = self._kit_of(session)
        table = self._table_of(kit)
        answered = frozenset(each.probe_id for each in kit.probes if _is_answered(session, each.probe_id, seq))
        belief = Belief(table.mask_of(survivors), table.weights, answered)
        ranked = gains(table, belief)
        return [_describe(session, kit, table, belief, each) for each in ranked[shown]], len(ranked)

    def _kit_of(self, session: Session) -> Kit:
        provider = self._providers.find(session.provider)
        if not isinstance(provider, KitProvider):
            raise InvalidRequest(
                f"provider `{provider.id()}` is no kit, and says nothing of what its probes are worth",
                {"field": "session_id", "next": "choose among the probes that the provider documents"},
            )
        return provider.kit

    def _table_of(self, kit: Kit) -> Table:
        with self._lock:
            known = self._tables.get(id(kit))
            if known is not None:
                self._tables.move_to_end(id(kit))
                return known[1]
        try:
            table = table_of(kit)
        except InvalidKit as exc:
            raise InvalidRequest(f"{exc}, so that no values can be given", {"field": "kit"}) from exc
        with self._lock:
            # With the kit, whose id is then no other's.
            self._tables[id(kit)] = (kit, table)
            if len(self._tables) > _MAX_TABLES:
                self._tables.popitem(last=False)
        return table


def _is_answered(session: Session, probe_id: str, seq: int) -> bool:
    """Whether a probe was answered by event `seq`, with more than that there is no data."""
    records = (session.observations.get(each) for each in looks_at(session.looks, probe_id))
    return any(each is not None and each.seq <= seq and each.is_answer for each in records)


def list_answered(session: Session, seq: int) -> frozenset[str]:
    """The probes that were answered by event `seq`, with more than that there is no data."""
    records = (record for _, record in session.observations if record.seq <= seq and record.probe_id is not None)
    return frozenset(each.probe_id or "" for each in records if each.is_answer)


def _describe(session: Session, kit: Kit, table: Table, belief: Belief, gain: Gain) -> ProbeItem:
    probe, row = kit.probe(gain.probe_id), table.probe(gain.probe_id)
    if probe is None or row is None:  # pragma: no cover - the table is that of the kit
        raise KeyError(gain.probe_id)
    odds = odds_of(table, belief, row)
    alive = belief.alive.bit_count()
    possible = [each for each in row.outcomes if each.consistent & belief.alive]
    answers = []
    for outcome, (weight, left) in zip(possible, odds.outcomes, strict=True):
        declared = probe.outcome(outcome.outcome_id)
        if declared is None:  # pragma: no cover - the table is that of the kit
            raise KeyError(outcome.outcome_id)
        leaves = left.bit_count()
        answers.append(
            AnswerItem(
                outcome.outcome_id,
                declared.label,
                declared.soundness,
                weight / odds.total,
                leaves,
                alive - leaves,
            )
        )
    looks = count_looks(session.looks, gain.probe_id)
    return ProbeItem(
        gain.probe_id, probe.prompt, probe.reads_numbers, probe.window is not None, gain.bits, answers, looks
    )
