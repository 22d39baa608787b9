"""The observations of a session, held against the kit on record that they name: what each outcome rules out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.belief.component_probes import rank_components
from cmbs.belief.kernel.causation import CausalGraph, Causation, describe_reading
from cmbs.belief.kernel.events import DeclareConclusion, Eliminate, Probe, read_event
from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.kernel.session import Session
from cmbs.belief.kernel.views import survivors_at
from cmbs.belief.kits import KITS
from cmbs.belief.next_probes import list_answered
from cmbs.documents.findings import InvalidDocument
from cmbs.errors import InvalidRequest, LedgerCorrupt
from cmbs.kit.graph_kit import Effect, GraphKit
from cmbs.kit.model import Kit, KitProbe, Soundness
from cmbs.kit.parse_graph import parse_kit_document
from cmbs.kit.responses import read_response
from cmbs.messages import ProviderRef
from cmbs.spi.audit_log import KIT_PREFIX, EntryLog
from cmbs.spi.graph_search import GraphReader
from cmbs.spi.stored_rows import EVENTS, Finding
from cmbs.streams.reading import read_pages

_FILE_NAMES = {MediaType.YAML: "kit.yaml", MediaType.JSON: "kit.json"}


def check_observations(log: EntryLog, session: Session) -> list[Finding]:
    """Where an observation of a verified session ruled out other ids than the outcome that it was read as does, or a
    conclusion calls survivors a tie that a probe of the kit could have told apart.

    Nothing where the session is over no kit, or over one that is not on record here. A session verifies by itself;
    this finds one that was written by a process that did not ask the kit.
    """
    kit = _find_kit(log, session.provider)
    if isinstance(kit, GraphKit):
        return list(_compare(log, session, lambda message: _judge_graph(kit, session, message)))
    if kit is None:
        return []
    return list(_compare(log, session, lambda message: _judge(kit, message), partial(_judge_tie, kit, session)))


def check_against_graph(log: EntryLog, session: Session, store: object) -> list[Finding]:
    """Where an observation of a session over a kit of a causal graph ruled out other ids than the graph in `store`
    does; nothing of any other session.
    """
    kit = _find_kit(log, session.provider)
    if not isinstance(kit, GraphKit) or not isinstance(store, GraphReader):
        return []
    try:
        graph = CausalGraph(store.read_graph(session.ontology.causal_graph_version))
        causation = Causation(graph, session.symptoms)
    except (InvalidRequest, KeyError):
        what = f"the graph has no version `{session.ontology.causal_graph_version}`, or not the symptoms in it"
        return [Finding(what, EVENTS, session.session_id, 0, "entry")]

    def judge(message: Eliminate) -> str | None:
        named = None if message.probe is None else kit.find_probe(message.probe.probe_id)
        if named is None or not message.eliminated:
            return None
        expected = causation.find_blocked(named[1]) if named[1] in graph.nodes else frozenset()
        if expected.intersection(session.universe.ids) == frozenset(message.eliminated):
            return None
        return f"observation: in the graph, other ids could only have come through `{named[1]}`"

    def judge_tie(seq: int) -> str | None:
        survivors, answered = survivors_at(session, seq), list_answered(session, seq)
        found = rank_components(kit, causation, survivors, answered).cut(0, 1)
        return _describe_tie(found[0].probe.name(found[0].component)) if found else None

    return list(_compare(log, session, judge, judge_tie))


def _compare(
    log: EntryLog,
    session: Session,
    judge: Callable[[Eliminate], str | None],
    judge_tie: Callable[[int], str | None] = lambda _: None,
) -> Iterator[Finding]:
    for page in read_pages(log, session.session_id, -1, session.head.seq + 1):
        for stored in page:
            event, what = read_event(stored), None
            message = event.message
            if isinstance(message, Eliminate) and message.probe is not None:
                what = judge(message)
            elif isinstance(message, DeclareConclusion) and message.tied_by is not UNSET:
                what = judge_tie(event.body.seq)
            if what is not None:
                yield Finding(what, EVENTS, session.session_id, event.body.seq, "entry")


def _judge(kit: Kit, message: Eliminate) -> str | None:
    asked = message.probe
    if asked is None or isinstance(asked.outcome_id, UnsetType):
        return "observation: it names no outcome, and the session is over a kit on record"
    probe = kit.probe(asked.probe_id)
    if probe is None:
        return f"observation: kit `{kit.kit_id}` has no probe `{asked.probe_id}`"
    outcome = None if asked.outcome_id is None else probe.outcome(asked.outcome_id)
    if outcome is None and asked.outcome_id is not None:
        return f"observation: probe `{asked.probe_id}` has no outcome `{asked.outcome_id}`"
    expected = frozenset() if outcome is None else outcome.eliminates
    if expected != frozenset(message.eliminated):
        return (
            f"observation: it rules out {len(message.eliminated)} ids, and `{asked.outcome_id}` of probe"
            f" `{asked.probe_id}` rules out {len(expected)}, which are others"
        )
    return _judge_response(probe, asked) or (None if outcome is None else _judge_soundness(asked, outcome.soundness))


def _judge_response(probe: KitProbe, asked: Probe) -> str | None:
    """Whether the response stands for the outcome that an observation names."""
    try:
        read = read_response(probe, msgspec.json.decode(asked.response)).outcome
    except InvalidRequest as exc:
        return f"observation: probe `{asked.probe_id}` cannot read its response: {exc.message}"
    found = None if read is None else read.outcome_id
    if found == asked.outcome_id:
        return None
    return (
        f"observation: its response stands for `{found}` of probe `{asked.probe_id}`, and not for `{asked.outcome_id}`"
    )


def _judge_soundness(asked: Probe, expected: Soundness) -> str | None:
    """Whether an observation says how sound the outcome is that it names."""
    said = {} if isinstance(asked.reading, UnsetType) else msgspec.json.decode(asked.reading)
    found = said.get("soundness")
    if found == expected:
        return None
    shown = "no soundness" if found is None else f"the soundness `{found}`"
    return f"observation: it has {shown}, and `{asked.outcome_id}` of probe `{asked.probe_id}` is `{expected}`"


def _judge_tie(kit: Kit, session: Session, seq: int) -> str | None:
    probe_id = kit.find_separating(frozenset(survivors_at(session, seq)), list_answered(session, seq))
    return None if probe_id is None else _describe_tie(probe_id)


def _describe_tie(probe_id: str) -> str:
    return f"conclusion: it says that no probe tells the survivors apart, and `{probe_id}` does"


def _judge_graph(kit: GraphKit, session: Session, message: Eliminate) -> str | None:
    """As far as the log alone can tell, which has not the graph: that nothing is ruled out but by an outcome that may,
    and then the component itself; and that the entry names the graph and the assumption that it rests on.
    """
    asked = message.probe
    if asked is None or isinstance(asked.outcome_id, UnsetType):
        return "observation: it names no outcome, and the session is over a kit on record"
    named = kit.find_probe(asked.probe_id)
    if named is None:
        return f"observation: kit `{kit.kit_id}` has no probe `{asked.probe_id}`"
    probe, component = named
    said = {} if isinstance(asked.reading, UnsetType) else msgspec.json.decode(asked.reading)
    if said.get("graph") != describe_reading(session, kit, component):
        return "observation: it does not name the graph, the component and the assumption that it rests on"
    outcome = None if asked.outcome_id is None else probe.outcome(asked.outcome_id)
    if outcome is None and asked.outcome_id is not None:
        return f"observation: probe `{asked.probe_id}` has no outcome `{asked.outcome_id}`"
    gone = frozenset(message.eliminated)
    if outcome is None or outcome.eliminates is Effect.NOTHING:
        return (
            f"observation: `{asked.outcome_id}` rules out nothing, and {len(gone)} ids are ruled out" if gone else None
        )
    if component in session.universe and component not in gone:
        return f"observation: `{asked.outcome_id}` rules out `{component}` itself, which is not ruled out"
    if not gone <= frozenset(session.universe.ids):
        return "observation: it rules out ids beyond the universe"
    return _judge_soundness(asked, outcome.soundness)


def _find_kit(log: EntryLog, reference: ProviderRef | None) -> Kit | GraphKit | None:
    """The kit that a session is over; None where it is not on record, or its own stream is bad, which is a finding."""
    if reference is None or isinstance(reference.content_hash, UnsetType):
        return None
    stream_id = KIT_PREFIX + reference.id
    try:
        entries = log.read(stream_id)
        shelf = KITS.catch_up(stream_id, None, entries)
        record = None if shelf is None else shelf.find(reference.content_hash)
        if record is None or record.content_hash != reference.content_hash:
            return None
        document = KITS.read(entries[record.seq]).message.document
        return parse_kit_document(document.encode(), _FILE_NAMES[record.media_type]).kit
    except (LedgerCorrupt, InvalidDocument):
        return None
