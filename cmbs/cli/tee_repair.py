"""`cmbs tee repair`, and what `cmbs fsck --tee` does: the log and Tee agree, or this says where not."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmbs.audit.observations import check_against_graph
from cmbs.audit.tombstones import compare_session, repair_session, sessions_in
from cmbs.belief.kernel.agreement import StoreReport, StoreState
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import err, existing_store, format_count, out
from cmbs.cli.tee_client import (
    CALL_SECONDS,
    ENDPOINT,
    AuthoritiesOption,
    ClientCertOption,
    ClientKeyOption,
    EndpointOption,
    TokenOption,
    open_stub,
    open_tee_store,
    set_exit_code,
)
from cmbs.errors import LedgerCorrupt, StoreDisagrees
from cmbs.spi import AuditLog, EliminationStore, StoreIdentity
from cmbs.tee.access import visible

if TYPE_CHECKING:
    from cmbs.belief.kernel.session import Session
    from cmbs.tee.graph_json import JsonGraph

# Of one session, of those that are printed.
_MAX_FINDINGS = 20
_OURS, _TRIGGER = "cmbs", "repair"


def compare_incidents(log: AuditLog, incidents: EliminationStore, names: Iterable[str] | None) -> int:
    """Hold the sessions of a log against a Tee, and print where they differ; how many do not agree."""
    bad = 0
    for session in sessions_in(log, names):
        # A log that does not verify was reported before.
        if not isinstance(session, LedgerCorrupt):
            report = compare_session(log, session, incidents)
            _print_foreign(session, report)
            if report.state is StoreState.DISAGREES:
                bad += 1
                err.print(visible(f"bad  {session.session_id}: {report.reason}"))
                continue
            found = check_against_graph(log, session, incidents)
            for each in found[:_MAX_FINDINGS]:
                err.print(visible(f"bad  {session.session_id}: seq {each.seq}: {each.what}"))
            bad += bool(found)
    return bad


def repair(
    store: Annotated[
        str, typer.Option("--store", envvar="CMBS_STORE", help="The store with the log.", metavar="URL")
    ] = DEFAULT_STORE,
    endpoint: EndpointOption = ENDPOINT,
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
    session: Annotated[
        list[str] | None, typer.Option("--session", help="Only this one; may be given several times.", metavar="ID")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    with_graph: Annotated[
        Path | None,
        typer.Option("--with-graph", help="Merge this graph first, from `cmbs tee show --json`.", metavar="FILE"),
    ] = None,
    placeholders: Annotated[
        bool, typer.Option("--placeholders", help="Merge nodes for hypotheses that the graph does not have any more.")
    ] = False,
    accept_identity: Annotated[
        bool,
        typer.Option("--accept-identity", help="Let this Tee stand in for the one that was lost."),
    ] = False,
) -> None:
    """Rebuild incidents and tombstones in Tee from the log. Nothing is taken away, and the log is not changed."""
    where = (endpoint, token, authorities, client_cert, client_key)
    with (
        set_exit_code(),
        closing(existing_store(store)) as log,
        open_tee_store(*where) as incidents,
        open_stub(*where) as stub,
    ):
        found = list(sessions_in(log, session))
        sessions = [each for each in found if not isinstance(each, LedgerCorrupt)]
        strange = _find_strange(sessions, incidents.identity(), accept=accept_identity)
        missing = _Missing(stub, with_graph, placeholders=placeholders, dry_run=dry_run)
        bad = _report_bad(each for each in found if isinstance(each, LedgerCorrupt))
        for each in sessions:
            done = repair_session(each, incidents, missing.complete, dry_run=dry_run)
            if done.created or done.tombstones:
                doing = "would create" if dry_run else "created"
                incident = f"{doing} the incident, " if done.created else ""
                out.print(f"{each.session_id}: {incident}{format_count(done.tombstones, 'tombstone')} of the log")
            if done.left:
                bad += 1
                err.print(visible(f"bad  {each.session_id}: {done.left}"))
        if strange and not dry_run:
            incidents.stand_in_for(strange)
        for each in sessions:
            if not dry_run:
                _print_foreign(each, compare_session(log, each, incidents))
        if strange:
            out.print(f"{'would stand' if dry_run else 'stands'} in for {', '.join(strange)}")
        out.print(f"{format_count(len(sessions), 'session')}, {bad} bad")
        if bad:
            raise typer.Exit(1)


def _report_bad(logs: Iterable[LedgerCorrupt]) -> int:
    bad = 0
    for each in logs:
        bad += 1
        err.print(visible(f"bad  {each.stream_id}: {each.message}"))
    return bad


def _find_strange(sessions: list[Session], identity: StoreIdentity | None, *, accept: bool) -> list[str]:
    """The Tees that sessions were declared in and that this one is not; StoreDisagrees unless that is accepted."""
    homes = {each.store_id for each in sessions if each.store_id is not None}
    strange = sorted(each for each in homes if identity is None or not identity.is_home_of(each))
    if strange and identity is None:
        raise StoreDisagrees(f"sessions were declared in the Tee `{strange[0]}`, and this one has no identity")
    if strange and identity is not None and not accept:
        raise StoreDisagrees(
            f"sessions were declared in the Tee `{strange[0]}`, and this is `{identity.store_id}`; where that one is"
            " lost, use `--accept-identity`"
        )
    return strange


class _Missing:
    """Puts hypotheses into the graph that it does not have: from a file, or as nodes that only have a name."""

    def __init__(self, stub: Any, file: Path | None, *, placeholders: bool, dry_run: bool) -> None:
        from cmbs.tee.graph_json import read_graph

        self._stub = stub
        self._placeholders = placeholders
        self._dry_run = dry_run
        # What a dry run would have merged.
        self._there: frozenset[str] = frozenset()
        if file is not None:
            graph = read_graph(file.read_bytes())
            if dry_run:
                self._there = _hypotheses_of(graph)
            else:
                self._merge(graph)

    def complete(self, lacking: frozenset[str]) -> frozenset[str]:
        """Merge what is lacking, if that was asked for; what still is."""
        lacking -= self._there
        if not lacking or not self._placeholders:
            return lacking
        if not self._dry_run:
            self._merge(_placeholders_for(lacking))
        out.print(f"{format_count(len(lacking), 'placeholder')} {'would be ' if self._dry_run else ''}merged")
        return frozenset()

    def _merge(self, graph: JsonGraph) -> None:
        from cmbs.tee.graph_json import deltas

        for delta in deltas(graph):
            self._stub.MergeHypothesis(delta, timeout=CALL_SECONDS)


def _hypotheses_of(graph: JsonGraph) -> frozenset[str]:
    from cmbs.stores._tee_ids import hypothesis_of
    from cmbs.tee.graph_json import deltas
    from cmbs.tee.kernel.wire import edge_key_of

    found: set[str] = set()
    for delta in deltas(graph):
        found.update(hypothesis_of(each.id) for each in delta.nodes)
        found.update(hypothesis_of(edge_key_of(each)) for each in delta.edges)
    return frozenset(found)


def _placeholders_for(hypothesis_ids: frozenset[str]) -> JsonGraph:
    from cmbs.stores._tee_incidents import split_by_kind
    from cmbs.tee.graph_json import JsonEdge, JsonGraph, JsonNode, JsonProvenance

    nodes, edges = split_by_kind(hypothesis_ids)
    said: list[str | JsonProvenance] = [JsonProvenance(_OURS, _TRIGGER)]
    return JsonGraph(
        nodes=[JsonNode(each, "MECHANISM", provenance=said) for each in sorted(nodes)],
        edges=[JsonEdge(*edges[each][:2], edges[each].type.name, provenance=said) for each in sorted(edges)],
    )


def _print_foreign(session: Session, report: StoreReport) -> None:
    for each in report.foreign:
        count = format_count(len(each.hypothesis_ids), "foreign tombstone")
        out.print(visible(f"{session.session_id}: {count} by {each.source_id} ({each.trigger})"))
