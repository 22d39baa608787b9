"""Observations: a probe and what was seen become an elimination, by what the session's kit or provider says.

One route for Python, HTTP, commands and adapters. What the log has of earlier looks at a probe is read here too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.belief.graph_kits import GraphKits
from cmbs.belief.kernel.events import Eliminate, Probe, read_event
from cmbs.belief.kernel.kind import Answer
from cmbs.belief.kernel.looks import LookItem, count_looks, looks_at
from cmbs.belief.kernel.outcomes import outcome_of
from cmbs.belief.kernel.provider_mask import find_eliminated
from cmbs.belief.kernel.requests import KitReading, RequestValidator
from cmbs.belief.kernel.session import Session
from cmbs.belief.providers import Providers
from cmbs.errors import BeliefServerError, Conflict
from cmbs.kit.model import KitProbe
from cmbs.kit.provider import KitProvider
from cmbs.kit.responses import read_response
from cmbs.messages import BeliefSnapshot, EliminateOutcome, KitRef
from cmbs.spi import AuditLog, HypothesisProvider
from cmbs.streams.reading import read_entry

# The source of an observation where no actor is known and none is named.
OBSERVER = "observer"
# How many earlier looks an answer tells of.
MAX_LOOKS_TOLD = 5


class ObserveOutcome(NamedTuple):
    """Answer to an observation: that of an elimination, what was made of it, and earlier looks at the probe.

    `replayed` is true where the observation was recorded before; the rest is then as it was.
    """

    applied_eliminated: list[str]
    ignored_eliminated: list[str]
    snapshot: BeliefSnapshot
    audit_event_id: str
    observation: dict[str, Any]
    seen_before: list[LookItem]
    replayed: bool


class Observations:
    """Makes messages of observations, and reads them back."""

    def __init__(
        self,
        log: AuditLog,
        requests: RequestValidator,
        providers: Providers,
        graph_kits: GraphKits,
        read: Callable[[str], Session],
        find_cached: Callable[[str], Session | None],
    ) -> None:
        self._log = log
        self._requests = requests
        self._providers = providers
        self._graph_kits = graph_kits
        self._read = read
        self._find_cached = find_cached

    def message(
        self,
        session_id: str,
        probe_id: str,
        response: Any,
        *,
        source_id: str = OBSERVER,
        observation_id: str | None = None,
        justification: Any = None,
        seen_at: str | None = None,
    ) -> Eliminate:
        """The elimination that a response comes to. It names everything that the response rules out, alive or not.

        Without an `observation_id` it is that of the probe: one source answers a probe once, and the same answer again
        is the same observation.
        """
        # What a session was declared from never changes, so a state that is older than the log will do.
        session = self._find_cached(self._requests.text("session_id", session_id)) or self._read(session_id)
        gone, reading = self._rule_out(session, self._requests.text("probe_id", probe_id), response)
        probe = self._requests.probe(probe_id, response, seen_at, reading)
        named = probe_id if observation_id is None else observation_id
        return self._requests.eliminate(source_id, named, gone, justification, probe)

    def _rule_out(self, session: Session, probe_id: str, response: Any) -> tuple[Collection[str], KitReading | None]:
        """What a response rules out; and, of a session over a kit on record, what the kit read it as."""
        graph_kit = self._providers.find_graph_kit(session.provider)
        if graph_kit is None:
            return _read(session, self._providers.find(session.provider), probe_id, response)
        probe, said = self._graph_kits.expand(session, graph_kit, probe_id)
        return _read_kit(session, probe, response, {"graph": said})

    def is_ready(self, session_id: str) -> bool:
        """Whether `message` needs no look at the log."""
        session = self._find_cached(session_id)
        return session is not None and self._providers.is_ready(session.provider)

    def outcome(self, answer: Answer) -> ObserveOutcome:
        """What the observer is told."""
        outcome, message = outcome_of(answer), answer.message
        if not isinstance(outcome, EliminateOutcome) or not isinstance(message, Eliminate) or message.probe is None:
            raise TypeError(type(message))  # pragma: no cover - observations are eliminations with a probe
        # Plain data, as over HTTP: how a response was read is kept as the bytes of the entry.
        observation = msgspec.json.decode(msgspec.json.encode(describe_observation(message, message.probe)))
        return ObserveOutcome(*outcome, observation, self.find_earlier_looks(answer), answer.replayed)

    def has_seen_before(self, answer: Answer) -> bool:
        """Whether the probe of an observation was looked at before; never touches the log."""
        message = answer.message
        if not isinstance(message, Eliminate) or message.probe is None:
            return False
        return answer.replayed or count_looks(answer.session.looks, message.probe.probe_id) > 1

    def find_earlier_looks(self, answer: Answer) -> list[LookItem]:
        """The looks at the probe of an observation that were recorded before it was sent, the newest first."""
        message = answer.message
        if not isinstance(message, Eliminate) or message.probe is None:
            return []
        until = answer.seq if answer.replayed else answer.seq - 1
        return self.looks(answer.session, message.probe.probe_id, until)

    def looks(
        self, session: Session, probe_id: str, until: int | None = None, limit: int = MAX_LOOKS_TOLD
    ) -> list[LookItem]:
        """The looks at a probe up to a seq, by default all, the newest first."""
        records = (session.observations.get(each) for each in looks_at(session.looks, probe_id))
        seqs = (each.seq for each in records if each is not None and (until is None or each.seq <= until))
        return [self.read_look(session, seq) for seq in islice(seqs, limit)]

    def explain(self, session_id: str, error: BeliefServerError) -> BeliefServerError:
        """A refusal of a look with what was seen then."""
        probe_id, session = error.details.get("probe_id"), self._find_cached(session_id)
        if not isinstance(error, Conflict) or not isinstance(probe_id, str) or session is None:
            return error
        looks = [msgspec.structs.asdict(each) for each in self.looks(session, probe_id)]
        return Conflict(error.message, {**error.details, "seen_before": looks})

    def read_look(self, session: Session, seq: int) -> LookItem:
        """The look that an event of a session records."""
        event = read_event(read_entry(self._log, session.session_id, session.tree, seq))
        message, body = event.message, event.body
        if not isinstance(message, Eliminate) or message.probe is None:  # pragma: no cover - a look is one
            raise TypeError(body.verb)
        probe = message.probe
        return LookItem(
            body.event_id,
            seq,
            body.ts,
            message.source_id,
            message.observation_id,
            probe.probe_id,
            msgspec.json.decode(probe.response),
            None if isinstance(probe.outcome_id, UnsetType) else probe.outcome_id,
            None if isinstance(probe.seen_at, UnsetType) else probe.seen_at,
            None if body.actor is None else body.actor.id,
        )


def describe_observation(message: Eliminate, probe: Probe) -> dict[str, Any]:
    """What was made of an observation, for the answer to it."""
    content: dict[str, Any] = {
        "probe_id": probe.probe_id,
        "source_id": message.source_id,
        "observation_id": message.observation_id,
        "ruled_out": len(message.eliminated),
    }
    told = {"kit": probe.kit, "outcome_id": probe.outcome_id, "reading": probe.reading, "seen_at": probe.seen_at}
    return content | {name: value for name, value in told.items() if value is not UNSET}


def _read(
    session: Session, provider: HypothesisProvider, probe_id: str, response: Any
) -> tuple[Collection[str], KitReading | None]:
    """What a response rules out; and, of a session over a kit, what the kit read it as."""
    probe = provider.kit.probe(probe_id) if isinstance(provider, KitProvider) else None
    if probe is None:
        return find_eliminated(provider, probe_id, response), None
    return _read_kit(session, probe, response, {})


def _read_kit(
    session: Session, probe: KitProbe, response: Any, said: Mapping[str, Any]
) -> tuple[Collection[str], KitReading]:
    """What a response rules out by a probe of a kit; `said` is recorded beside how sound it is and how it was read."""
    reference, kit = session.provider, None
    if reference is not None and not isinstance(reference.content_hash, UnsetType):
        kit = KitRef(reference.id, reference.content_hash)
    outcome, record = read_response(probe, response)
    if outcome is None:
        return (), KitReading(kit, None, {**record, **said})
    record = {**record, **said, "soundness": outcome.soundness.value}
    return outcome.eliminates, KitReading(kit, outcome.outcome_id, record)
