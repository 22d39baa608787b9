"""`cmbs tee …`: serve the causal graph, load one, look at it."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmbs.cli.output import counted, err, fail, failing_cleanly, out, progress
from cmbs.errors import GraphUnavailable, InvalidRequest, TeeError

if TYPE_CHECKING:
    from cmbs.tee.proto.tee_pb2_grpc import TeeStub
    from cmbs.tee.server import ServerOptions, Tls

app = typer.Typer(name="tee", help="The causal graph that hypotheses come from.", no_args_is_help=True)

_STOP_SECONDS = 10.0
_CALL_SECONDS = 60.0

TokenOption = Annotated[
    str | None, typer.Option(envvar="CMBS_TEE_TOKEN", help="What callers must know; better in the variable.")
]
EndpointOption = Annotated[
    str, typer.Option("--tee", envvar="CMBS_TEE", help="Where Tee listens.", metavar="HOST:PORT")
]
AuthoritiesOption = Annotated[
    Path | None, typer.Option("--ca", help="Use TLS, and trust the certificates in this PEM file.", metavar="FILE")
]


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 50051,
    store: Annotated[
        str,
        typer.Option(envvar="CMBS_TEE_STORE", help="memory:, sqlite:///file.db or neo4j://…", metavar="URL"),
    ] = "sqlite:///tee.db",
    token: TokenOption = None,
    cert: Annotated[Path | None, typer.Option(help="Certificate chain in PEM: serve with TLS.", metavar="FILE")] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key in PEM.", metavar="FILE")] = None,
    clients: Annotated[
        Path | None, typer.Option(help="Let in only clients with a certificate of these authorities.", metavar="FILE")
    ] = None,
) -> None:
    """Serve the causal graph over gRPC."""
    with _needing_the_extra(), _failing_cleanly():
        from cmbs.tee.server import ServerOptions

        options = ServerOptions(host=host, port=port, token=token or None, tls=_tls(cert, key, clients))
        asyncio.run(_serve(store, options))


@app.command()
def load(
    file: Annotated[
        Path, typer.Argument(help="A graph in JSON; - is standard input.", metavar="FILE", allow_dash=True)
    ],
    endpoint: EndpointOption = "127.0.0.1:50051",
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
) -> None:
    """Merge a graph into the main graph."""
    created = merged = version = 0
    with _needing_the_extra(), _failing_cleanly(), _stub(endpoint, token, authorities) as stub, progress() as bar:
        from cmbs.tee.access import visible
        from cmbs.tee.graph_json import deltas, read_graph

        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        for delta in bar.track(list(deltas(read_graph(data))), description="merging"):
            result = stub.MergeHypothesis(delta, timeout=_CALL_SECONDS)
            created += len(result.created_ids)
            merged += len(result.merged_ids)
            version = result.causal_graph_version
            for conflict in result.conflicts:
                stays, proposed = conflict.existing_value, conflict.proposed_value
                err.print(visible(f"conflict  {conflict.id}: {conflict.field} stays `{stays}`, not `{proposed}`"))
    out.print(f"{created} created, {merged} merged, graph version {version}")


@app.command()
def show(
    incident: Annotated[str | None, typer.Argument(help="An incident; the main graph, if none is named.")] = None,
    endpoint: EndpointOption = "127.0.0.1:50051",
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the graph itself, as `load` reads it.")] = False,
) -> None:
    """Show what is in the main graph, or what an incident has not ruled out."""
    with _needing_the_extra(), _failing_cleanly(), _stub(endpoint, token, authorities) as stub:
        from google.protobuf.empty_pb2 import Empty

        from cmbs.tee.client import collected
        from cmbs.tee.proto import tee_pb2 as pb

        if incident is None:
            graph = collected(stub.StreamMainGraph, stub.GetMainGraph, Empty(), timeout=_CALL_SECONDS)
        else:
            request = pb.LiveViewRequest(incident_id=incident)
            graph = collected(stub.StreamLiveView, stub.GetLiveView, request, timeout=_CALL_SECONDS)
        if as_json:
            _print_json(graph)
            return
        out.print(f"graph version {graph.causal_graph_version}" + (", the anchor" if incident else ""))
        _print_types("node", (pb.NodeType.Name(each.type).removeprefix("NODE_TYPE_") for each in graph.nodes))
        _print_types("edge", (pb.EdgeType.Name(each.type).removeprefix("EDGE_TYPE_") for each in graph.edges))
        if incident is not None:
            asked = pb.TombstoneRequest(incident_id=incident)
            gone = collected(stub.StreamTombstones, stub.GetTombstones, asked, timeout=_CALL_SECONDS)
            out.print(f"{counted(len(gone.node_ids) + len(gone.edge_entries), 'tombstone')}")


def _print_json(graph: Any) -> None:
    from cmbs.tee.graph_json import write_graph
    from cmbs.tee.kernel.wire import edge_of, node_of

    sys.stdout.buffer.write(write_graph(map(node_of, graph.nodes), map(edge_of, graph.edges)) + b"\n")
    sys.stdout.buffer.flush()


def _print_types(noun: str, types: Iterable[str]) -> None:
    found = Counter(types)
    each = ", ".join(f"{number} {name}" for name, number in sorted(found.items()))
    out.print(counted(found.total(), noun) + (f": {each}" if each else ""))


async def _serve(store_url: str, options: ServerOptions) -> None:
    from cmbs.tee.server import TeeServer
    from cmbs.tee.stores.opening import open_graph_store

    # Without anybody who listens, Python prints the driver's warnings of what it is about to try again.
    logging.getLogger("neo4j").addHandler(logging.NullHandler())
    with closing(open_graph_store(store_url)) as store:
        server = TeeServer(store, options)
        await server.start()
        stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        shown = f"[{options.host}]" if ":" in options.host else options.host
        out.print(f"cmbs Tee on {shown}:{server.port}{' with TLS' if options.tls else ''}")
        # Of a server the scheme alone: the rest may hold a password.
        local = store_url.startswith(("memory:", "sqlite:"))
        out.print(f"  store  {store_url if local else store_url.partition(':')[0] + '://…'}")
        await stopping.wait()
        await server.stop(_STOP_SECONDS)


def _tls(cert: Path | None, key: Path | None, clients: Path | None) -> Tls | None:
    from cmbs.tee.server import Tls

    if cert is None and key is None and clients is None:
        return None
    if cert is None or key is None:
        raise InvalidRequest("TLS needs both `--cert` and `--key`")
    tls = Tls(cert.read_bytes(), key.read_bytes(), clients.read_bytes() if clients else None)
    # gRPC would say of bad ones only that it cannot listen. It has no way to ask for a password either.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as exc:
        raise InvalidRequest("`--cert` and `--key` are not a certificate and its unencrypted key in PEM") from exc
    if clients is not None:
        try:
            context.load_verify_locations(clients)
        except ssl.SSLError as exc:
            raise InvalidRequest("`--clients` has no certificate in PEM") from exc
    return tls


@contextmanager
def _stub(endpoint: str, token: str | None, authorities: Path | None) -> Iterator[TeeStub]:
    from cmbs.tee.client import open_channel, stub_on

    trusted = authorities.read_bytes() if authorities else None
    with open_channel(endpoint, authorities=trusted, token=token or None) as channel:
        yield stub_on(channel)


@contextmanager
def _needing_the_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.startswith("cmbs"):
            raise
        fail(InvalidRequest(f"Tee needs `{exc.name}`: install it with `pip install 'cmbs[tee]'`"))


@contextmanager
def _failing_cleanly() -> Iterator[None]:
    """Exit code 1 where Tee understood and refused, 2 where the command could not do its work."""
    import grpc

    from cmbs.tee.access import visible

    with failing_cleanly():
        try:
            yield
        except GraphUnavailable:
            raise
        except TeeError as exc:
            fail(exc, 1)
        except grpc.RpcError as exc:
            answer: Any = exc
            refused = answer.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND)
            fail(TeeError(f"{answer.code().name}: {visible(answer.details() or '')}"), 1 if refused else 2)
