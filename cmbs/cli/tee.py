"""`cmbs tee …`: serve the causal graph, load one, look at it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmbs.addresses import is_remote
from cmbs.cli import tee_graph, tee_repair
from cmbs.cli.output import format_count, out
from cmbs.cli.tee_client import (
    CALL_SECONDS,
    ENDPOINT,
    HOST,
    PORT,
    TOKEN_FILE_VARIABLE,
    AuthoritiesOption,
    ClientCertOption,
    ClientKeyOption,
    EndpointOption,
    TokenOption,
    choose_token,
    open_stub,
    set_exit_code,
)
from cmbs.errors import InvalidRequest

if TYPE_CHECKING:
    from cmbs.tee.server import ServerOptions, Tls

app = typer.Typer(name="tee", help="The causal graph that hypotheses come from.", no_args_is_help=True)
app.command("import")(tee_graph.import_)
app.command()(tee_graph.diff)
app.command()(tee_graph.explain)
app.command()(tee_graph.impact)
app.command()(tee_repair.repair)

_STOP_SECONDS = 10.0

_STORE = "sqlite:///tee.db"


@app.command()
def serve(
    host: Annotated[str, typer.Option(envvar="CMBS_TEE_HOST", help="Address to listen on.")] = HOST,
    port: Annotated[int, typer.Option(envvar="CMBS_TEE_PORT", min=1, max=65535, help="Port to listen on.")] = PORT,
    store: Annotated[
        str,
        typer.Option(envvar="CMBS_TEE_STORE", help="memory:, sqlite:///file.db or neo4j://…", metavar="URL"),
    ] = _STORE,
    token: TokenOption = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar=TOKEN_FILE_VARIABLE,
            help="One or two tokens, each on a line; read again when the file changes.",
            metavar="FILE",
        ),
    ] = None,
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
    with set_exit_code():
        from cmbs.tee.server import ServerOptions

        options = ServerOptions(
            host=host, port=port, token=choose_token(token, token_file), tls=_tls(tls_cert, tls_key, tls_client_ca)
        )
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
    endpoint: EndpointOption = ENDPOINT,
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
) -> None:
    """Merge a graph into the main graph."""
    with set_exit_code(), open_stub(endpoint, token, authorities, client_cert, client_key) as stub:
        from cmbs.tee.graph_json import read_graph

        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        tee_graph.merge_graphs([read_graph(data)], stub)


@app.command()
def show(
    incident: Annotated[str | None, typer.Argument(help="An incident; the main graph, if none is named.")] = None,
    endpoint: EndpointOption = ENDPOINT,
    token: TokenOption = None,
    authorities: AuthoritiesOption = None,
    client_cert: ClientCertOption = None,
    client_key: ClientKeyOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the graph itself, as `load` reads it.")] = False,
) -> None:
    """Show what is in the main graph, or what an incident has not ruled out."""
    with set_exit_code(), open_stub(endpoint, token, authorities, client_cert, client_key) as stub:
        from google.protobuf.empty_pb2 import Empty

        from cmbs.tee.client import collect
        from cmbs.tee.proto import tee_pb2 as pb

        if incident is None:
            graph = collect(stub.StreamMainGraph, stub.GetMainGraph, Empty(), timeout=CALL_SECONDS)
        else:
            request = pb.LiveViewRequest(incident_id=incident)
            graph = collect(stub.StreamLiveView, stub.GetLiveView, request, timeout=CALL_SECONDS)
        if as_json:
            _print_json(graph)
            return
        out.print(f"graph version {graph.causal_graph_version}" + (", the anchor" if incident else ""))
        _print_types("node", (pb.NodeType.Name(each.type).removeprefix("NODE_TYPE_") for each in graph.nodes))
        _print_types("edge", (pb.EdgeType.Name(each.type).removeprefix("EDGE_TYPE_") for each in graph.edges))
        if incident is not None:
            asked = pb.TombstoneRequest(incident_id=incident)
            gone = collect(stub.StreamTombstones, stub.GetTombstones, asked, timeout=CALL_SECONDS)
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
