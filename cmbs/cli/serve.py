"""`cmbs serve`: its options, each with an environment variable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from cmbs.bootstrap import DEFAULT_STORE, MAX_WEBHOOK_TIMEOUT, Settings
from cmbs.cli.demo import PAUSE_SECONDS
from cmbs.cli.output import exiting_with_two


def _option(variable: str, text: str, name: str | None = None, **more: Any) -> Any:
    return typer.Option(*([name] if name else []), envvar=variable, help=text, **more)


def _file(variable: str, text: str) -> Any:
    return _option(variable, text, exists=True, dir_okay=False, readable=True, metavar="FILE")


StoreOption = Annotated[
    str, _option("CMBS_STORE", "memory:, sqlite:///file.db or postgresql://…", "--store", metavar="URL")
]
Host = Annotated[str, _option("CMBS_HOST", "Address to listen on.")]
Port = Annotated[int, _option("CMBS_PORT", "Port to listen on.", min=1, max=65535)]
Uds = Annotated[Path | None, _option("CMBS_UDS", "Listen on this unix socket instead of a port.", metavar="FILE")]
Tee = Annotated[
    str, _option("CMBS_TEE", "Keep tombstones in the Tee that listens there.", "--tee", metavar="HOST:PORT")
]
TeeCa = Annotated[str, _option("CMBS_TEE_CA", "Use TLS to Tee, and trust these certificates.", metavar="FILE")]
TeeCert = Annotated[
    str, _option("CMBS_TEE_CERT", "Our certificate chain, for a Tee that asks for one.", metavar="FILE")
]
TeeKey = Annotated[str, _option("CMBS_TEE_KEY", "Its private key.", metavar="FILE")]
TeeTokenFile = Annotated[
    str, _option("CMBS_TEE_TOKEN_FILE", "The token for Tee; read again when the file changes.", metavar="FILE")
]
Workers = Annotated[int, _option("CMBS_WORKERS", "Processes that share the store.", min=1, max=64)]
TlsCert = Annotated[Path | None, _file("CMBS_TLS_CERT", "Certificate chain; HTTP/2 is then offered too.")]
TlsKey = Annotated[Path | None, _file("CMBS_TLS_KEY", "Private key of the certificate.")]
TlsClientCa = Annotated[
    Path | None, _file("CMBS_TLS_CLIENT_CA", "Callers must present a certificate of this authority.")
]
MaxConnections = Annotated[
    int, _option("CMBS_MAX_CONNECTIONS", "Open connections of each worker; others wait.", min=1, max=65535)
]
MaxRequests = Annotated[
    int, _option("CMBS_MAX_REQUESTS", "Requests in progress in each worker; others are answered 503.", min=1)
]
StopSeconds = Annotated[
    int, _option("CMBS_STOP_SECONDS", "How long a stop waits for what is in progress.", min=1, max=3600)
]
AccessLog = Annotated[bool, _option("CMBS_ACCESS_LOG", "Print a line for each request.", "--access-log")]
SigningKey = Annotated[
    str, _option("CMBS_SIGNING_KEY", "Sign checkpoints with this key; made where it is not there.", metavar="FILE")
]
CheckpointInterval = Annotated[
    int, _option("CMBS_CHECKPOINT_INTERVAL", "Seconds between checkpoints, if anything changed.", min=1, max=3600)
]
CheckpointOrigin = Annotated[
    str, _option("CMBS_CHECKPOINT_ORIGIN", "The name of the log, for a new signing key.", metavar="NAME")
]
Witness = Annotated[
    list[str] | None,
    _option(
        "CMBS_WITNESS", "Have checkpoints cosigned there; may be given several times.", "--witness", metavar="URL#KEY"
    ),
]
Kits = Annotated[
    list[Path] | None,
    _option("CMBS_KIT", "Put this kit on record; may be given several times.", "--kit", metavar="FILE"),
]
WebhookKey = Annotated[
    str,
    _option("CMBS_WEBHOOK_KEY", "Send webhooks, with secrets of this key; made where it is not there.", metavar="FILE"),
]
WebhookPrivate = Annotated[
    bool, _option("CMBS_WEBHOOK_PRIVATE", "Send webhooks into private networks too.", "--webhook-private")
]
WebhookTimeout = Annotated[
    int, _option("CMBS_WEBHOOK_TIMEOUT", "Seconds that an endpoint may take.", min=1, max=MAX_WEBHOOK_TIMEOUT)
]
WebhookRetry = Annotated[
    int, _option("CMBS_WEBHOOK_RETRY", "Seconds before the second try; then four times as long each.", min=1, max=3600)
]
Demo = Annotated[bool, _option("CMBS_DEMO", "Play an incident into the server once it is up.", "--demo")]
DemoPause = Annotated[float, _option("CMBS_DEMO_PAUSE", "Seconds before everything that happens in it.", min=0, max=60)]


def serve(
    *,
    host: Host = "127.0.0.1",
    port: Port = 8080,
    uds: Uds = None,
    store: StoreOption = DEFAULT_STORE,
    tee: Tee = "",
    tee_ca: TeeCa = "",
    tee_cert: TeeCert = "",
    tee_key: TeeKey = "",
    tee_token_file: TeeTokenFile = "",
    workers: Workers = 1,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_client_ca: TlsClientCa = None,
    max_connections: MaxConnections = 512,
    max_requests: MaxRequests = 1024,
    stop_seconds: StopSeconds = 10,
    access_log: AccessLog = False,
    signing_key: SigningKey = "",
    checkpoint_interval: CheckpointInterval = 10,
    checkpoint_origin: CheckpointOrigin = "",
    witness: Witness = None,
    kit: Kits = None,
    webhook_key: WebhookKey = "",
    webhook_private: WebhookPrivate = False,
    webhook_timeout: WebhookTimeout = 15,
    webhook_retry: WebhookRetry = 5,
    demo: Demo = False,
    demo_pause: DemoPause = PAUSE_SECONDS,
) -> None:
    """Serve the belief protocol over HTTP."""
    from cmbs.cli.serving import ServeOptions, serve_http

    chosen = {
        **_name_variables(store=store, max_requests=max_requests),
        **_name_variables(tee=tee, tee_ca=tee_ca, tee_cert=tee_cert, tee_key=tee_key, tee_token_file=tee_token_file),
        **_name_variables(signing_key=signing_key, checkpoint_origin=checkpoint_origin),
        **_name_variables(checkpoint_interval=checkpoint_interval, webhook_key=webhook_key),
        **_name_variables(webhook_timeout=webhook_timeout, webhook_retry=webhook_retry),
        "CMBS_WEBHOOK_PRIVATE": str(int(webhook_private)),
        "CMBS_WITNESS": " ".join(witness or []),
        "CMBS_KIT": os.pathsep.join(str(each.absolute()) for each in kit or []),
    }
    options = ServeOptions(
        host=host,
        port=port,
        uds=uds,
        workers=workers,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        max_connections=max_connections,
        stop_seconds=stop_seconds,
        access_log=access_log,
        demo_pause=demo_pause if demo else None,
    )
    with exiting_with_two():
        serve_http(Settings.from_environment({**os.environ, **chosen}), options)


def _name_variables(**options: str | int) -> dict[str, str]:
    """Options as the variables that stand for them."""
    return {f"CMBS_{name.upper()}": str(value) for name, value in options.items()}
