"""What the commands that talk to a Tee share: their options, the connection, how they fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cmbs.cli.output import fail, failing_cleanly
from cmbs.errors import GraphUnavailable, InvalidRequest, TeeError

if TYPE_CHECKING:
    from cmbs.stores.tee import TeeStore
    from cmbs.tee.proto.tee_pb2_grpc import TeeStub
    from cmbs.tee.tokens import Token

CALL_SECONDS = 60.0
TOKEN_FILE_VARIABLE = "CMBS_TEE_TOKEN_FILE"  # noqa: S105 - the name of a variable
HOST = "127.0.0.1"
PORT = 50051
ENDPOINT = f"{HOST}:{PORT}"

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
        "--cert",
        envvar="CMBS_TEE_CERT",
        help="Certificate chain in PEM, for a Tee that asks for one.",
        metavar="FILE",
    ),
]
ClientKeyOption = Annotated[
    Path | None,
    typer.Option(
        "--key",
        envvar="CMBS_TEE_KEY",
        help="Its private key in PEM.",
        metavar="FILE",
    ),
]


@contextmanager
def open_stub(
    endpoint: str, token: str | None, authorities: Path | None, cert: Path | None, key: Path | None
) -> Iterator[TeeStub]:
    """The calls of a Tee, as the options of a command say."""
    from cmbs.tee.client import open_channel, stub_on

    certificate = read_certificate(authorities, cert, key)
    with open_channel(
        endpoint,
        authorities=authorities.read_bytes() if authorities else None,
        identity=certificate,
        token=choose_token(token),
    ) as channel:
        yield stub_on(channel)


@contextmanager
def open_tee_store(
    endpoint: str, token: str | None, authorities: Path | None, cert: Path | None, key: Path | None
) -> Iterator[TeeStore]:
    """The sessions in a Tee, as the options of a command say."""
    from cmbs.stores import open_tee

    certificate = read_certificate(authorities, cert, key)
    with closing(
        open_tee(
            endpoint,
            token=choose_token(token),
            authorities=authorities.read_bytes() if authorities else None,
            certificate=certificate,
            timeout_seconds=CALL_SECONDS,
        )
    ) as store:
        yield store


def read_certificate(authorities: Path | None, cert: Path | None, key: Path | None) -> tuple[bytes, bytes] | None:
    """Our own certificate chain and its key; None where a Tee asks for none."""
    if (cert is None) != (key is None) or (cert is not None and authorities is None):
        raise InvalidRequest("a client certificate needs `--ca`, `--cert` and `--key`")
    return (cert.read_bytes(), key.read_bytes()) if cert and key else None


def choose_token(token: str | None, file: str | Path | None = None) -> Token | None:
    """The token that is named, or else the file of tokens that is, here or by `CMBS_TEE_TOKEN_FILE`."""
    from cmbs.tee.tokens import TokenFile

    path = file or os.environ.get(TOKEN_FILE_VARIABLE)
    return token or (TokenFile(path) if path else None)


@contextmanager
def set_exit_code() -> Iterator[None]:
    """Exit code 1 where Tee understood and refused, 2 where the command could not do its work."""
    try:
        import grpc

        from cmbs.tee.access import visible
        from cmbs.tee.client import find_refusal

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
                refusal = find_refusal(exc)
                message, step = (answer.details() or "", {})
                if refusal is not None:
                    message, step = refusal.message, {"next": visible(refusal.next)}
                fail(TeeError(f"{answer.code().name}: {visible(message)}", step), 1 if refused else 2)
    except ModuleNotFoundError as exc:
        if exc.name is None or exc.name.startswith("cmbs"):
            raise
        fail(InvalidRequest(f"Tee needs `{exc.name}`: install it with `pip install 'cmbs[tee]'`"))
