"""Starting the HTTP server: granian over the ASGI application, one or more worker processes over one store."""

from __future__ import annotations

import errno
import logging
import multiprocessing
import os
import re
import signal
import socket
import ssl
import sys
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.log import LogLevels

from cmbs.addresses import is_remote
from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import Settings, build_tee_store, put_kits
from cmbs.cli.demo import play_in_background
from cmbs.cli.output import format_count, out
from cmbs.console import ConsoleFiles
from cmbs.errors import BeliefServerError, InvalidRequest
from cmbs.identity.registry import KeyRegistry
from cmbs.identity.tokens import without_keys
from cmbs.stores import open_store
from cmbs.system import SystemClock
from cmbs.tee.access import visible
from cmbs.transparency.key_files import KeyFiles
from cmbs.transparency.witness_client import WitnessAddress
from cmbs.webhooks.keys import WebhookKey

_log = logging.getLogger("cmbs.serve")

MAX_HEADER_BYTES = 65_536
# A head that takes longer to arrive ends its connection; so does a kept connection without a request for so long.
MAX_HEADER_SECONDS = 60
# A socket file is as good as a key, so it is for the account that runs the server.
_SOCKET_PERMISSIONS = 0o600
# The shortest that an operating system allows, without the zero at the end.
_MAX_SOCKET_PATH_BYTES = 103
_FREE_THE_PORT = "stop what listens there, or choose another port: `--port`, or `make serve PORT=…`"
_STOP_SECONDS_VARIABLE = "CMBS_STOP_SECONDS"
# From a worker to the process that started it. granian would start the worker again, and again.
_CANNOT_START = getattr(signal, "SIGUSR1", signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How the server listens. The settings of what it serves are in `Settings`."""

    host: str
    port: int
    uds: Path | None
    workers: int
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    max_connections: int
    stop_seconds: int
    access_log: bool
    # Seconds between the steps of an incident that is played into the server; None plays none.
    demo_pause: float | None

    @property
    def url(self) -> str:
        """Where the server is, as a caller writes it."""
        if self.uds is not None:
            return f"unix:{self.uds}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls_cert else ''}://{host}:{self.port}"


def serve_http(settings: Settings, options: ServeOptions) -> None:
    """Serve until a signal comes. Every problem that can be seen beforehand is an error before anything starts."""
    if options.workers > 1 and settings.store.startswith("memory"):
        raise InvalidRequest("`memory:` lives in one process; use one worker, or a store that processes can share")
    if options.demo_pause is not None and (options.uds or options.tls_cert):
        raise InvalidRequest("the demo is played over plain HTTP: leave out `--uds` and TLS")
    _check_tls(options)
    address = _check_address(options)
    with closing(open_store(settings.store, settings.store_timeout_seconds)) as store:
        keys = len(KeyRegistry(store).look().by_id)
    if not keys and options.uds is None and is_remote(address):
        raise InvalidRequest(
            f"without keys only this machine may be served, and `{options.host}` is open to others; make a key first:"
            " `cmbs keys create`"
        )
    if keys and options.demo_pause is not None:
        raise InvalidRequest("the demo has no key; play it into a store without keys")
    tee = build_tee_store(settings)
    if tee is not None:
        tee.close()
    _check_signing(settings)
    _check_kits(settings)
    if settings.webhook_key:
        # Made where it is not there; what is wrong with it is an error before a worker starts.
        WebhookKey.open(Path(settings.webhook_key))
    _print_summary(settings, options, keys)
    if options.demo_pause is not None:
        play_in_background(options.url, out.print, options.demo_pause)
    # Workers find their settings where any ASGI server's workers would.
    os.environ.update(settings.to_environment())
    os.environ[_STOP_SECONDS_VARIABLE] = str(options.stop_seconds)
    # A fork would copy threads of libraries in the middle of things.
    multiprocessing.set_start_method("spawn", force=True)
    _run(_build_server(options, address))


def _run(server: Any) -> None:
    """Serve until a signal comes; exit code 1 where it came from a worker that cannot start."""
    failed: list[int] = []

    def stop(number: int, _: object) -> None:
        failed.append(number)
        server.signal_handler_interrupt()

    signal.signal(_CANNOT_START, stop)
    # Not by the name of the application: granian's loader would put the working directory first on the path.
    server.serve(target_loader=load_app, wrap_loader=False)
    if failed:
        sys.exit(1)


def _build_server(options: ServeOptions, address: str) -> Any:
    return Granian(
        "cmbs.belief_api:app",
        address=address,
        port=options.port,
        uds=options.uds,
        uds_permissions=_SOCKET_PERMISSIONS,
        interface=Interfaces.ASGI,
        workers=options.workers,
        # HTTP/2 is agreed upon with TLS; without, granian would wait for its preface without a time-out.
        http=HTTPModes.auto if options.tls_cert else HTTPModes.http1,
        websockets=False,
        # A connection that is kept counts until it is closed; others wait to be accepted.
        backpressure=options.max_connections,
        http1_settings=HTTP1Settings(
            header_read_timeout=MAX_HEADER_SECONDS * 1000, max_buffer_size=MAX_HEADER_BYTES, keep_alive=True
        ),
        http2_settings=HTTP2Settings(max_headers_size=MAX_HEADER_BYTES, keep_alive_interval=MAX_HEADER_SECONDS * 1000),
        log_level=LogLevels.warning,
        log_dictconfig={
            "formatters": {"generic": {"format": "[%(levelname)s] %(message)s"}, "access": {"()": AccessLogFormatter}}
        },
        log_access=options.access_log,
        ssl_cert=options.tls_cert,
        ssl_key=options.tls_key,
        ssl_ca=options.tls_client_ca,
        ssl_client_verify=options.tls_client_ca is not None,
        respawn_failed_workers=True,
        workers_kill_timeout=options.stop_seconds,
    )


class AccessLogFormatter(logging.Formatter):
    """One line for each request. granian logs the decoded path, in which any caller can send line ends and keys."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        return without_keys(visible(super().format(record)).encode()).decode()


def _print_summary(settings: Settings, options: ServeOptions, keys: int) -> None:
    out.print(f"cmbs belief server on {options.url}, {options.workers} worker{'s' if options.workers > 1 else ''}")
    if options.uds is None:
        built = ConsoleFiles().find_page("") is not None
        out.print(f"  console   {options.url if built else 'not built: `make console` builds it'}")
        out.print(f"  API docs  {options.url}/docs")
    out.print(f"  store     {hide_password(settings.store)}")
    out.print(f"  keys      {keys or 'none: only this machine is served, and callers are unauthenticated'}")
    if options.tls_client_ca:
        out.print(f"  clients   need a certificate of {options.tls_client_ca}")
    if settings.signing_key:
        cosigned = f", {format_count(len(settings.witnesses), 'witness', 'witnesses')}" if settings.witnesses else ""
        out.print(f"  signing   {settings.signing_key}, every {settings.checkpoint_interval} s{cosigned}")
    if settings.kits:
        out.print(f"  kits      {format_count(len(settings.kits), 'file')}")
    if settings.webhook_key:
        out.print(f"  webhooks  {settings.webhook_key}")
    if settings.tee:
        out.print(f"  Tee       {settings.tee}{' with TLS' if settings.tee_ca else ''}")


def _check_signing(settings: Settings) -> None:
    """Make the signing key where there is none; what is wrong with it is an error before a worker starts."""
    if settings.signing_key:
        KeyFiles.open(Path(settings.signing_key), settings.checkpoint_origin, SystemClock().now())
    for text in settings.witnesses:
        WitnessAddress.parse(text)


def _check_kits(settings: Settings) -> None:
    """Read the kits once, so that what is wrong with them is an error before a worker starts."""
    with closing(BeliefServer()) as trial:
        put_kits(settings, trial)


def hide_password(url: str) -> str:
    """A store's URL as it may be shown: what is printed ends up in logs."""
    hidden = re.sub(r"(?<=://)([^:@/?]*):[^@]+@", r"\1:***@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]+", r"\1***", hidden, flags=re.IGNORECASE)


def load_app() -> Any:
    """The application, in a worker process. Where it cannot be made, the server ends: no other worker could make it."""
    from cmbs import belief_api

    parent = multiprocessing.parent_process()
    if parent is None:
        return belief_api.app
    threading.Thread(target=_end_with, args=(parent,), name="cmbs-parent", daemon=True).start()
    try:
        return belief_api.app
    except BeliefServerError as exc:
        _log.error("a worker cannot start: %s: %s", exc.code, exc.message)
        if parent.pid is not None:
            os.kill(parent.pid, _CANNOT_START)
        sys.exit(1)


def _end_with(parent: BaseProcess) -> None:
    """Stop once the process that started us is gone: an orphan would go on and hold the port."""
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(int(os.environ.get(_STOP_SECONDS_VARIABLE, "10")))
    os.kill(os.getpid(), signal.SIGKILL)


def _check_tls(options: ServeOptions) -> None:
    if (options.tls_cert is None) != (options.tls_key is None):
        raise InvalidRequest("`--tls-cert` and `--tls-key` belong together")
    if options.tls_client_ca is not None and options.tls_cert is None:
        raise InvalidRequest("`--tls-client-ca` needs `--tls-cert` and `--tls-key`")
    if options.tls_cert is None:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.tls_cert, options.tls_key)
        if options.tls_client_ca is not None:
            context.load_verify_locations(options.tls_client_ca)
    except OSError as exc:  # an SSLError is one
        raise InvalidRequest(f"cannot use the TLS files: {exc.strerror or exc}") from exc


def _check_address(options: ServeOptions) -> str:
    """The numeric address to listen on, also where a unix socket is listened on instead."""
    if options.uds is not None:
        _check_socket_file(options.uds)
        return options.host
    return check_port(options.host, options.port)


def check_port(host: str, port: int) -> str:
    """The numeric address of a host; InvalidRequest where it cannot be listened on, or another process does.

    Workers share their port, so that granian itself would share it with another server.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
    except OSError as exc:
        next_step = _FREE_THE_PORT if exc.errno == errno.EADDRINUSE else "name an address and a port of this machine"
        raise InvalidRequest(f"cannot listen on `{host}:{port}`: {exc.strerror}", {"next": next_step}) from exc
    return str(address[0])


def _check_socket_file(path: Path) -> None:
    if not path.parent.is_dir():
        raise InvalidRequest(f"cannot listen on `{path}`: there is no such directory")
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH_BYTES:
        raise InvalidRequest(
            f"cannot listen on `{path}`: the path of a socket has at most {_MAX_SOCKET_PATH_BYTES} bytes"
        )
    if not path.exists():
        return
    if not path.is_socket():
        raise InvalidRequest(f"cannot listen on `{path}`: it is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()  # left behind by a server that was killed
        else:
            raise InvalidRequest(f"cannot listen on `{path}`: Address already in use")
