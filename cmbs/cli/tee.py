"""`cmbs tee …`: serve the causal graph, load one, look at it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmbs.addresses import is_remote
from cmbs.cli.output import err, fail, failing_cleanly, format_count, out, progress
from cmbs.errors import GraphUnavailable, InvalidRequest, TeeError

if TYPE_CHECKING:
    from cmbs.tee.proto.tee_pb2_grpc import TeeStub
    from cmbs.tee.server import ServerOptions, Tls

app = typer.Typer(name="tee", help="The causal graph that hypotheses come from.", no_args_is_help=True)

_STOP_SECONDS = 10.0
_CALL_SECONDS = 60.0

_HOST = "127.0.0.1"
_PORT = 50051
_STORE = "sqlite:///tee.db"
_ENDPOINT = f"{_HOST}:{_PORT}"

TokenOption = Annotated[
    str | None, typer.Option(envvar="CMBS_TEE_TOKEN", help="What callers must know; better in the variable.")
]
EndpointOption = Annotated[
    str, typer.Option("--tee", envvar="CMBS_TEE", help="Where Tee listens.", metavar="HOST:PORT")
]
AuthoritiesOption = Annotated[
    Path | None,
    typer.Option(
        "--ca", envvar="CMBS_TEE_CA", help="Use TLS, and trust the certificates in this PEM file.", metavar="FILE"
    ),
]
ClientCertOption = Annotated[
    Path | None,
    typer.Option(
        envvar="CMBS_TEE_CLIENT_CERT", help="Certificate chain in PEM, for a Tee that asks for one.", metavar="FILE"
    ),
]
ClientKeyOption = Annotated[
    Path | None, typer.Option(envvar="CMBS_TEE_CLIENT_KEY", help="Its private key in PEM.", metavar="FILE")
]


@app.command()
def serve(
    host: Annotated[str, typer.Option(envvar="CMBS_TEE_HOST", help="Address to listen on.")] = _HOST,
    port: Annotated[int, typer.Option(envvar="CMBS_TEE_PORT", min=1, max=65535, help="Port to listen on.")] = _PORT,
    store: Annotated[
        str,
        typer.Option(envvar="CMBS_TEE_STORE", help="memory:, sqlite:///file.db or neo4j://…", metavar="URL"),
    ] = _STORE,
    token: TokenOption = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(envvar="CMBS_TEE_TLS_CERT", help="Certificate chain in PEM: serve with TLS.", metavar="FILE"),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(envvar="CMBS_TEE_TLS_KEY", help="Its private key in PEM.", metavar="FILE")
    ] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="CMBS_TEE_TLS_CLIENT_CA",
            help="Let in only clients with a certificate of the authorities in this PEM file.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Serve the causal graph over gRPC."""
    with _set_exit_code():
        from cmbs.tee.server import ServerOptions

        options = ServerOptions(host=host, port=port, token=token or None, tls=_tls(tls_cert, tls_key, tls_client_ca))
        if options.token is None and tls_client_ca is None:
            _refuse_public_address(host)
        asyncio.run(_serve(store, options))


def _refuse_public_address(host: str) -> None:
    """InvalidRequest for an address that other machines can reach: any of them could change the graph."""
    try:
        addresses = {found[4][0] for found in socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)}
    except OSError as exc:
        raise InvalidRequest(f"cannot listen on `{host}`: {exc.strerror}") from exc
    if any(is_remote(str(address)) for address in addresses):
        raise InvalidRequest(
            f"without a token only this machine may be served, and `{host}` is open to others; set `CMBS_TEE_TOKEN`,"
            " or ask for client certificates with `--tls-client-ca`"
        )


@app.command()
def load(
    file: Annotated[
        Path, typer.Argument(help="A graph in JSON; - is standard input.", metavar="FILE", allow_dash=True)
    ],
    endpoint: EndpointOption = _ENDPOINT,
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
) -> None:
    """Merge a graph into the main graph."""
    created = merged = version = 0
    with (
        _set_exit_code(),
        _open_stub(endpoint, token, authorities, client_cert, client_key) as stub,
        progress() as bar,
    ):
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
    endpoint: EndpointOption = _ENDPOINT,
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the graph itself, as `load` reads it.")] = False,
) -> None:
    """Show what is in the main graph, or what an incident has not ruled out."""
    with _set_exit_code(), _open_stub(endpoint, token, authorities, client_cert, client_key) as stub:
        from google.protobuf.empty_pb2 import Empty

        from cmbs.tee.client import collect
        from cmbs.tee.proto import tee_pb2 as pb

        if incident is None:
            graph = collect(stub.StreamMainGraph, stub.GetMainGraph, Empty(), timeout=_CALL_SECONDS)
        else:
            request = pb.LiveViewRequest(incident_id=incident)
            graph = collect(stub.StreamLiveView, stub.GetLiveView, request, timeout=_CALL_SECONDS)
        if as_json:
            _print_json(graph)
            return
        out.print(f"graph version {graph.causal_graph_version}" + (", the anchor" if incident else ""))
        _print_types("node", (pb.NodeType.Name(each.type).removeprefix("NODE_TYPE_") for each in graph.nodes))
        _print_types("edge", (pb.EdgeType.Name(each.type).removeprefix("EDGE_TYPE_") for each in graph.edges))
        if incident is not None:
            asked = pb.TombstoneRequest(incident_id=incident)
            gone = collect(stub.StreamTombstones, stub.GetTombstones, asked, timeout=_CALL_SECONDS)
            out.print(f"{format_count(len(gone.node_ids) + len(gone.edge_entries), 'tombstone')}")


def _print_json(graph: Any) -> None:
    from cmbs.tee.graph_json import write_graph
    from cmbs.tee.kernel.wire import edge_of, node_of

    sys.stdout.buffer.write(write_graph(map(node_of, graph.nodes), map(edge_of, graph.edges)) + b"\n")
    sys.stdout.buffer.flush()


def _print_types(noun: str, types: Iterable[str]) -> None:
    found = Counter(types)
    each = ", ".join(f"{number} {name}" for name, number in sorted(found.items()))
    out.print(format_count(found.total(), noun) + (f": {each}" if each else ""))


async def _serve(store_url: str, options: ServerOptions) -> None:
    from cmbs.tee.server import TeeServer
    from cmbs.tee.stores import open_graph_store

    # Without a handler, Python prints the driver's warnings of what it is about to try again.
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


def _tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    from cmbs.tee.server import Tls

    if cert is None and key is None and client_ca is None:
        return None
    if cert is None or key is None:
        raise InvalidRequest("TLS needs both `--tls-cert` and `--tls-key`")
    tls = Tls(cert.read_bytes(), key.read_bytes(), client_ca.read_bytes() if client_ca else None)
    # gRPC would say of bad ones only that it cannot listen. It has no way to ask for a password either.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as exc:
        raise InvalidRequest(
            "`--tls-cert` and `--tls-key` are not a certificate and its unencrypted key in PEM"
        ) from exc
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as exc:
            raise InvalidRequest("`--tls-client-ca` has no certificate in PEM") from exc
    return tls


@contextmanager
def _open_stub(
    endpoint: str, token: str | None, authorities: Path | None, cert: Path | None, key: Path | None
) -> Iterator[TeeStub]:
    from cmbs.tee.client import open_channel, stub_on

    if (cert is None) != (key is None) or (cert is not None and authorities is None):
        raise InvalidRequest("a client certificate needs `--ca`, `--client-cert` and `--client-key`")
    with open_channel(
        endpoint,
        authorities=authorities.read_bytes() if authorities else None,
        identity=(cert.read_bytes(), key.read_bytes()) if cert and key else None,
        token=token or None,
    ) as channel:
        yield stub_on(channel)


@contextmanager
def _set_exit_code() -> Iterator[None]:
    """Exit code 1 where Tee understood and refused, 2 where the command could not do its work."""
    try:
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
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.startswith("cmbs"):
            raise
        fail(InvalidRequest(f"Tee needs `{exc.name}`: install it with `pip install 'cmbs[tee]'`"))
