"""`cmbs tee import`, `explain` and `impact`: fill the causal graph from exports, and search it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmbs.cli.output import err, format_count, out, progress, read_input
from cmbs.cli.tee_client import (
    CALL_SECONDS,
    ENDPOINT,
    AuthoritiesOption,
    ClientCertOption,
    ClientKeyOption,
    EndpointOption,
    TokenOption,
    open_stub,
    set_exit_code,
)
from cmbs.errors import InvalidRequest

if TYPE_CHECKING:
    from cmbs.tee.graph_json import JsonGraph
    from cmbs.tee.proto.tee_pb2_grpc import TeeStub

_MAX_FILE_BYTES = 1 << 30
_MAX_SHOWN = 20
DepthOption = Annotated[int | None, typer.Option("--depth", min=1, max=32, help="How many edges away, 5 if not given.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many are shown.")]


class Export(StrEnum):
    """What the files are exports of; the names are those of `cmbs.tee.importers.IMPORTERS`."""

    OTEL = "otel"
    KUBERNETES = "kubernetes"
    BACKSTAGE = "backstage"


def import_(
    kind: Annotated[Export, typer.Argument(help="What the files are exports of.")],
    files: Annotated[list[Path], typer.Argument(help="One or more; - is standard input.", metavar="FILE…")],
    endpoint: EndpointOption = ENDPOINT,
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and merge nothing.")] = False,
) -> None:
    """Merge what OpenTelemetry, Kubernetes or Backstage export into the main graph.

    All files are read before anything is merged. Importing the same files again changes nothing.
    """
    with set_exit_code(), open_stub(endpoint, token, authorities, client_cert, client_key) as stub:
        from cmbs.tee.importers import IMPORTERS

        graphs = []
        for file in files:
            data = read_input(file, _MAX_FILE_BYTES)
            if len(data) > _MAX_FILE_BYTES:
                raise InvalidRequest(f"`{file}` has more than {_MAX_FILE_BYTES:,} bytes; split it")
            imported = IMPORTERS[kind.value](data, file.name)
            for reason, number in sorted(imported.left_out.items()):
                err.print(f"{file}: left out {number} {reason}")
            graphs.append(imported.graph)
        if dry_run:
            _show_changes(graphs, stub)
        else:
            merge_graphs(graphs, stub)


def merge_graphs(graphs: list[JsonGraph], stub: TeeStub) -> None:
    """Merge graphs into the main graph, and print what came of it."""
    from cmbs.tee.access import visible
    from cmbs.tee.graph_json import deltas

    created = merged = version = 0
    with progress() as bar:
        for delta in bar.track([each for graph in graphs for each in deltas(graph)], description="merging"):
            result = stub.MergeHypothesis(delta, timeout=CALL_SECONDS)
            created += len(result.created_ids)
            merged += len(result.merged_ids)
            version = result.causal_graph_version
            for conflict in result.conflicts:
                stays, proposed = conflict.existing_value, conflict.proposed_value
                err.print(visible(f"conflict  {conflict.id}: {conflict.field} stays `{stays}`, not `{proposed}`"))
    out.print(f"{created} created, {merged} merged, graph version {version}")


def _show_changes(graphs: list[JsonGraph], stub: TeeStub) -> None:
    from google.protobuf.empty_pb2 import Empty

    from cmbs.tee.access import visible
    from cmbs.tee.client import collect
    from cmbs.tee.graph_json import deltas
    from cmbs.tee.kernel.lattice import Timestamp
    from cmbs.tee.kernel.proposed import compare_proposal
    from cmbs.tee.kernel.wire import edge_of, node_of

    there = collect(stub.StreamMainGraph, stub.GetMainGraph, Empty(), timeout=CALL_SECONDS)
    messages = [delta for graph in graphs for delta in deltas(graph)]
    # A time for provenance that has none: what is only compared is never stored.
    now = Timestamp(0, 0)
    proposed = compare_proposal(
        [node_of(node, now) for delta in messages for node in delta.nodes],
        [edge_of(edge, now).key for delta in messages for edge in delta.edges],
        map(node_of, there.nodes),
        map(edge_of, there.edges),
    )
    lines = [f"+ node  {node.id} ({node.type.name}, {node.label})" for node in proposed.new_nodes]
    lines += [f"+ edge  {key.source} {key.type.name} {key.target}" for key in proposed.new_edges]
    lines += [
        f"! {each.id}: {each.field} stays `{each.existing_value}`, not `{each.proposed_value}`"
        for each in proposed.conflicts
    ]
    for line in lines[:_MAX_SHOWN]:
        out.print(visible(line))
    if len(lines) > _MAX_SHOWN:
        out.print(f"… and {len(lines) - _MAX_SHOWN} more")
    new = f"{format_count(len(proposed.new_nodes), 'node')} and {format_count(len(proposed.new_edges), 'edge')} new"
    known = f"{proposed.known_nodes} and {proposed.known_edges} known"
    out.print(f"{new}, {known}, {format_count(len(proposed.conflicts), 'conflict')}; nothing was merged")


def diff(
    first: Annotated[int, typer.Argument(min=0, help="A version of the graph.", metavar="V1")],
    second: Annotated[int, typer.Argument(min=0, help="A later one.", metavar="V2")],
    endpoint: EndpointOption = ENDPOINT,
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many are shown.")] = 1_000,
) -> None:
    """Show the nodes and edges that came into the graph between two versions. Nothing ever leaves it."""
    with set_exit_code(), open_stub(endpoint, token, authorities, client_cert, client_key) as stub:
        from cmbs.tee.access import visible
        from cmbs.tee.kernel.wire import edge_of, node_of

        if first > second:
            raise InvalidRequest(f"version {first} is after version {second}: name the earlier one first")
        before, after = _read_graph_at(stub, first), _read_graph_at(stub, second)
        known, known_edges = {each.id for each in before.nodes}, {edge_of(each).key for each in before.edges}
        nodes = [node_of(each) for each in after.nodes if each.id not in known]
        edges = [key for key in (edge_of(each).key for each in after.edges) if key not in known_edges]
        by_id = sorted(nodes, key=lambda node: node.id)
        lines = [f"+ node  {node.id} ({node.type.name}, {node.label})" for node in by_id]
        lines += [f"+ edge  {key.source} {key.type.name} {key.target}" for key in sorted(edges)]
        for line in lines[:limit]:
            out.print(visible(line))
        more = f", {limit} shown" if len(lines) > limit else ""
        counts = f"{format_count(len(nodes), 'node')} and {format_count(len(edges), 'edge')}"
        out.print(f"{counts} between version {first} and version {second}{more}")


def _read_graph_at(stub: TeeStub, version: int) -> Any:
    from cmbs.tee.proto import tee_pb2 as pb

    graph = pb.CausalGraph()
    for part in stub.StreamGraphAt(pb.GraphAtRequest(causal_graph_version=version), timeout=CALL_SECONDS):
        graph.MergeFrom(part)
    return graph


def explain(
    incident: Annotated[str, typer.Argument(help="An incident.")],
    symptoms: Annotated[list[str], typer.Argument(help="Nodes that show something wrong.", metavar="SYMPTOM…")],
    endpoint: EndpointOption = ENDPOINT,
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
    depth: DepthOption = None,
    limit: LimitOption = 20,
) -> None:
    """Show which nodes that an incident has not ruled out can explain the symptoms, and by which paths."""
    with set_exit_code(), open_stub(endpoint, token, authorities, client_cert, client_key) as stub:
        from cmbs.tee.access import visible
        from cmbs.tee.proto import tee_pb2 as pb

        request = pb.ExplainRequest(incident_id=incident, symptoms=symptoms, page_size=limit, max_depth=depth)
        result = stub.Explain(request, timeout=CALL_SECONDS)
        for found in result.explanations:
            kind = pb.NodeType.Name(found.node.type).removeprefix("NODE_TYPE_")
            out.print(visible(f"{found.node.id} ({kind}) explains {len(found.paths)} of {len(set(symptoms))}"))
            for path in found.paths:
                out.print(visible(f"  {_describe(found.node.id, path)}"))
        _print_total(result, len(result.explanations), "node", "can explain them")


def impact(
    incident: Annotated[str, typer.Argument(help="An incident.")],
    node: Annotated[str, typer.Argument(help="A node of the graph.")],
    endpoint: EndpointOption = ENDPOINT,
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
    depth: DepthOption = None,
    limit: LimitOption = 20,
) -> None:
    """Show what a node can affect, in the eyes of an incident."""
    with set_exit_code(), open_stub(endpoint, token, authorities, client_cert, client_key) as stub:
        from cmbs.tee.access import visible
        from cmbs.tee.proto import tee_pb2 as pb

        request = pb.ImpactRequest(incident_id=incident, node_id=node, page_size=limit, max_depth=depth)
        result = stub.Impact(request, timeout=CALL_SECONDS)
        for found in result.reached:
            out.print(visible(_describe(node, found.path)))
        _print_total(result, len(result.reached), "node", "can be affected")


def _describe(start: str, path: Any) -> str:
    """A path as its nodes, from the cause to the effect."""
    from cmbs.tee.kernel.paths import cause_and_effect
    from cmbs.tee.kernel.wire import edge_key_of

    return " → ".join([start, *(cause_and_effect(edge_key_of(edge))[1] for edge in path.edges)])


def _print_total(result: Any, shown: int, noun: str, what: str) -> None:
    more = f", {shown} shown" if shown < result.total else ""
    beyond = "; there is more beyond the depth of the search" if result.cut else ""
    out.print(
        f"{format_count(result.total, noun)} {what}{more}, as of graph version {result.causal_graph_version}{beyond}"
    )
