"""`cmbs witness …`: the reference witness."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from cmbs.cli.output import err, failing_cleanly, out
from cmbs.transparency.kernel.notes import VerifierKey
from cmbs.transparency.witness import Witness, open_witness_key

app = typer.Typer(
    name="witness",
    help="A small witness: cosigns the checkpoints of logs that keep to what they signed.",
    no_args_is_help=True,
)
_KEY, _LOGS, _STATE = "CMBS_WITNESS_KEY", "CMBS_WITNESS_LOGS", "CMBS_WITNESS_STATE"

KeyArgument = Annotated[Path, typer.Argument(envvar=_KEY, help="The file of the witness's key.", metavar="FILE")]
Name = Annotated[str, typer.Option(help="The name of the witness, for a new key.", metavar="NAME")]


@app.command()
def keygen(file: KeyArgument, name: Name) -> None:
    """Make the key of a witness where there is none, and print its public key."""
    with failing_cleanly():
        print(open_witness_key(file, name).verifier.text)


@app.command()
def serve(
    file: KeyArgument,
    log: Annotated[
        list[str], typer.Option("--log", envvar=_LOGS, help="The public key of a log to witness.", metavar="KEY")
    ],
    state: Annotated[Path, typer.Option(envvar=_STATE, help="What it has seen of each log.", metavar="FILE")] = Path(
        "witness-state.json"
    ),
    name: Name = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 8090,
) -> None:
    """Serve `POST /add-checkpoint` (C2SP tlog-witness)."""
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces
    from granian.log import LogLevels

    with failing_cleanly():
        key = open_witness_key(file, name)
        Witness(key, map(VerifierKey.parse, log), state)
    out.print(f"cmbs witness on http://{host}:{port}")
    err.print(key.verifier.text)
    os.environ.update({_KEY: str(file), _LOGS: " ".join(log), _STATE: str(state)})
    server: Any = Granian(
        "cmbs.cli.witness:load_witness",
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        log_level=LogLevels.warning,
        # One: it answers in microseconds, and what it has seen is in one file.
        workers=1,
    )
    server.serve(target_loader=load_witness, wrap_loader=False)


def load_witness() -> Witness:
    """The witness of the environment, in a worker process."""
    key = open_witness_key(Path(os.environ[_KEY]), "")
    return Witness(key, map(VerifierKey.parse, os.environ[_LOGS].split()), Path(os.environ[_STATE]))
