"""`cmbs checkpoint …` and `cmbs heads`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from cmbs.audit.checkpoints import (
    check_against_server,
    check_notes,
    check_records,
    check_streams,
    is_proven_over_http,
)
from cmbs.audit.kept_heads import Kept, find_faults, list_heads, read_kept
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.asking import connect_to_server
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out, read_input
from cmbs.cli.served_checkpoints import ServedCheckpoints
from cmbs.errors import InvalidRequest, LedgerCorrupt, LimitExceeded
from cmbs.spi import AuditLog
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.system import SystemClock
from cmbs.tee.access import visible
from cmbs.transparency.kernel.checkpoint import Checkpoint, list_reachable, parse_keys
from cmbs.transparency.kernel.faults import Fault
from cmbs.transparency.kernel.notes import Note, VerifierKey
from cmbs.transparency.kernel.published import LogKey
from cmbs.transparency.key_files import KeyFiles

MAX_KEPT_BYTES = 256 * 1024 * 1024
app = typer.Typer(
    name="checkpoint",
    help="Signed checkpoints: make and rotate keys, show checkpoints, check what was kept.",
    no_args_is_help=True,
)

KeyFile = Annotated[Path, typer.Argument(help="The file of the signing key.", metavar="FILE")]
KeyOption = Annotated[
    list[str] | None, typer.Option("--key", help="A public key that you trust; may be given several times.")
]
KeysOption = Annotated[
    Path | None, typer.Option("--keys", help="Public keys that you kept, from /v1/checkpoint/keys.", metavar="FILE")
]
ServerOption = Annotated[
    str, typer.Option("--server", help="The server to ask; its API key, if it has keys, is in CMBS_KEY.", metavar="URL")
]
StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]


@app.command()
def keygen(
    file: KeyFile,
    origin: Annotated[str, typer.Option(help="The name of the log, like example.com/log.", metavar="NAME")] = "",
) -> None:
    """Make the signing key of a new log, and print its public key."""
    with failing_cleanly():
        files = KeyFiles.create(file, origin, SystemClock().now())
        print(files.read_key().verifier.text)


@app.command()
def rotate(file: KeyFile) -> None:
    """Sign with a new key from now on; the old one names it, and is listed as retired."""
    with failing_cleanly():
        keys = KeyFiles(file).rotate(SystemClock().now())
        print(keys.keys[-1].vkey)
        err.print(f"retired at size {keys.keys[-2].retired_size}: {keys.keys[-2].vkey}")


@app.command()
def show(
    file: Annotated[Path | None, typer.Argument(help="The file of the signing key.", metavar="FILE")] = None,
    server: ServerOption = "",
) -> None:
    """Print the checkpoint that was signed last, to be kept."""
    with failing_cleanly():
        if (file is None) == (not server):
            raise InvalidRequest("name the file of the signing key, or `--server`")
        note: Note | Fault | None
        if file is not None:
            note = KeyFiles(file).read_note()
        else:
            with connect_to_server(server) as client:
                note = ServedCheckpoints(client).checkpoint()
        if isinstance(note, Fault):
            raise LedgerCorrupt(HEADS_STREAM, 0, str(note))
        if note is None:
            raise InvalidRequest("no checkpoint was signed yet")
        print(note.encoded, end="")


@app.command()
def check(
    files: Annotated[
        list[str], typer.Argument(help="Checkpoints that you kept; - is standard input.", metavar="FILE…")
    ],
    key: KeyOption = None,
    keys: KeysOption = None,
    server: ServerOption = "",
    store: Annotated[str, typer.Option("--store", help="The store to hold them against.", metavar="URL")] = "",
    witness: Annotated[
        list[str] | None, typer.Option("--witness", help="The key of a witness that must have cosigned.")
    ] = None,
) -> None:
    """Check signatures, hold checkpoints against each other, and with their records against a server or a store."""
    with failing_cleanly():
        kept = [read_kept(read_file(file)) for file in files]
        notes = [note for each in kept for note in each.notes]
        if not notes:
            raise InvalidRequest("there is no signed checkpoint in what was kept")
        trusted = read_trusted_keys(key, keys)
        if server:
            with connect_to_server(server) as client:
                served = ServedCheckpoints(client)
                trusted = list_reachable(served.keys(), [each.vkey for each in trusted])
                faults = _check_kept(kept, notes, trusted, witness)
                faults = faults or check_against_server(notes, served, trusted)
                faults = faults or _check_streams(kept, served)
        else:
            faults = _check_kept(kept, notes, trusted, witness)
        if store and not faults:
            with closing(existing_store(store)) as log:
                faults = [fault for each in kept for fault in find_faults(log, each, trusted)]
    print_faults(faults)
    sizes = {Checkpoint.parse(note.text).size for note in notes}
    if not faults and len(sizes) > 1 and not (server or store):
        err.print("signatures only: sizes differ, name `--server` or `--store` to prove that one continues the other")
    for note in notes if not faults else ():
        _print_good(note, trusted)
    if faults:
        raise typer.Exit(1)


def _check_kept(
    kept: Sequence[Kept], notes: Sequence[Note], trusted: Sequence[LogKey], witness: list[str] | None
) -> list[Fault]:
    """What is wrong with what was kept by itself: signatures, and records that are not in their checkpoint."""
    faults = check_notes(notes, trusted, witness or ())
    return faults or check_records(proof for each in kept for proof in each.proofs)[1]


def _check_streams(kept: Sequence[Kept], server: ServedCheckpoints) -> list[Fault]:
    """Hold the records that were kept against the streams of a server."""
    records, _ = check_records(proof for each in kept for proof in each.proofs)
    for record in records:
        if not is_proven_over_http(record):
            err.print(f"not asked: {record.stream_id} has no proofs over HTTP; `cmbs verify --heads` checks it")
    return check_streams(records, server)


def heads(
    file: Annotated[str, typer.Argument(help="Where to; - is standard output.", metavar="FILE")] = "-",
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Write the head of every stream, to be kept elsewhere for `cmbs verify --heads`."""
    with failing_cleanly(), closing(existing_store(store)) as log:
        lines = list(list_heads(log))
        content = b"".join(line + b"\n" for line in lines)
        if file == "-":
            typer.echo(content.decode(), nl=False)
        else:
            Path(file).write_bytes(content)
    err.print(f"{format_count(len(lines) - 1, 'head')} written")


def verify_kept(log: AuditLog, file: str, key: list[str] | None, keys: Path | None) -> int:
    """Hold a store against a file of kept heads or checkpoints; how many faults were found and printed."""
    kept = read_kept(read_file(file))
    trusted = read_trusted_keys(key, keys) if kept.notes else []
    faults = find_faults(log, kept, trusted)
    print_faults(faults)
    if not faults:
        out.print(
            f"good {file}: {format_count(len(kept.heads), 'kept head')}, "
            f"{format_count(len(kept.notes), 'signed checkpoint')}"
        )
    return len(faults)


def read_file(file: str) -> bytes:
    """What was kept, within a limit."""
    data = read_input(file, MAX_KEPT_BYTES)
    if len(data) > MAX_KEPT_BYTES:
        raise LimitExceeded("kept_bytes", MAX_KEPT_BYTES, len(data))
    return data


def read_trusted_keys(key: list[str] | None, keys: Path | None) -> list[LogKey]:
    """The keys that a reader names; InvalidRequest where there are none."""
    trusted = {VerifierKey.parse(text).text: LogKey(text, "") for text in key or ()}
    if keys is not None:
        listed = {each.vkey: each for each in parse_keys(keys.read_bytes()).keys}
        trusted = {**trusted, **listed}
    if not trusted:
        raise InvalidRequest("a signed checkpoint is believed by its key: name it with `--key`, or `--keys FILE`")
    return list(trusted.values())


def print_faults(faults: Sequence[Fault]) -> None:
    """A line a fault."""
    for fault in faults:
        err.print(visible(f"bad  {fault}"))


def _print_good(note: Note, trusted: Sequence[LogKey]) -> None:
    checkpoint = Checkpoint.parse(note.text)
    names = [key.vkey for key in trusted if any(map(VerifierKey.parse(key.vkey).is_named_by, note.signatures))]
    out.print(f"good {checkpoint.origin}: size {checkpoint.size}, root {checkpoint.root.hex()}, signed by {names[0]}")
