"""`cmbs proof`: make proof documents from a store, and check them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cmbs.audit.kernel.documents import Proof, write_proof
from cmbs.audit.proof_check import read_known, verify_proof
from cmbs.audit.proofs import Prover
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.checkpoint import KeyOption, KeysOption, read_file, read_trusted_keys
from cmbs.cli.output import STANDARD_INPUT, err, existing_store, failing_cleanly, out, read_input
from cmbs.errors import InvalidRequest, SessionNotFound, SpaceNotFound
from cmbs.offline_verifier import UNANCHORED, Question
from cmbs.spi import AuditLog
from cmbs.substrate.kernel.events import STREAM_PREFIX

MAX_PROOF_BYTES = 64 * 1024 * 1024

StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]
AtOption = Annotated[
    int | None, typer.Option("--at", min=0, help="The seq of the event; the newest, if left out.", metavar="SEQ")
]
OutOption = Annotated[str, typer.Option("--out", help="Where to; - is standard output.", metavar="FILE")]
StreamArgument = Annotated[str, typer.Argument(help="A session, or a space as `space:ID`.", metavar="STREAM")]
SessionArgument = Annotated[str, typer.Argument(help="The session.", metavar="SESSION")]
HypothesisArgument = Annotated[str, typer.Argument(help="The hypothesis.", metavar="HYPOTHESIS")]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Make proofs that can be checked without this store, and check them.",
)


@app.command()
def inclusion(
    stream: StreamArgument, at: AtOption = None, file: OutOption = STANDARD_INPUT, store: StoreOption = DEFAULT_STORE
) -> None:
    """Prove that an event is in the log."""
    with _proving(store, stream, at, file) as (prove, seq):
        prove(lambda prover: prover.inclusion(stream, seq))


@app.command()
def consistency(
    stream: StreamArgument,
    old_size: Annotated[int, typer.Argument(min=1, help="How many events there were.", metavar="OLD_SIZE")],
    file: OutOption = STANDARD_INPUT,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Prove that the log only grew since it had so many events."""
    with _proving(store, stream, None, file) as (prove, _):
        prove(lambda prover: prover.consistency(stream, old_size))


@app.command()
def membership(
    session: SessionArgument,
    hypothesis: HypothesisArgument,
    at: AtOption = None,
    file: OutOption = STANDARD_INPUT,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Prove that a hypothesis survived after an event."""
    with _proving(store, session, at, file) as (prove, seq):
        prove(lambda prover: prover.membership(session, hypothesis, seq))


@app.command()
def elimination(
    session: SessionArgument,
    hypothesis: HypothesisArgument,
    at: AtOption = None,
    file: OutOption = STANDARD_INPUT,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Prove that a hypothesis was gone after an event, and which event eliminated it."""
    with _proving(store, session, at, file) as (prove, seq):
        prove(lambda prover: prover.elimination(session, hypothesis, seq))


@app.command()
def transition(
    session: SessionArgument,
    at: AtOption = None,
    entry: Annotated[bool, typer.Option("--entry", help="With the entry, and its place in the log.")] = False,
    file: OutOption = STANDARD_INPUT,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Prove what an event changed, and that it changed nothing else."""
    with _proving(store, session, at, file) as (prove, seq):
        prove(lambda prover: prover.transition(session, seq, recorded=entry))


@app.command()
def refusal(
    stream: StreamArgument, at: AtOption = None, file: OutOption = STANDARD_INPUT, store: StoreOption = DEFAULT_STORE
) -> None:
    """Prove that what an event asked for was denied."""
    with _proving(store, stream, at, file) as (prove, seq):
        prove(lambda prover: prover.refusal(stream, seq))


@app.command()
def decision(
    space: Annotated[str, typer.Argument(help="The space.", metavar="SPACE")],
    at: AtOption = None,
    file: OutOption = STANDARD_INPUT,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Prove that a proposal was allowed, and on which readings of which sessions."""
    with _proving(store, STREAM_PREFIX + space, at, file) as (prove, seq):
        prove(lambda prover: prover.decision(space, seq))


@app.command()
def check(
    file: Annotated[str, typer.Argument(help="The proof; - is standard input.", metavar="FILE")],
    kind: Annotated[
        str | None, typer.Option("--kind", help="What it is to prove, like `membership`.", metavar="KIND")
    ] = None,
    stream: Annotated[
        str | None, typer.Option("--stream", help="Of which session, or space as `space:ID`.", metavar="STREAM")
    ] = None,
    at: Annotated[
        int | None,
        typer.Option("--at", min=0, help="Of which event; of `consistency`, the last of the older log.", metavar="SEQ"),
    ] = None,
    hypothesis: Annotated[
        str | None, typer.Option("--hypothesis", help="Of which hypothesis, where it is of one.", metavar="ID")
    ] = None,
    anchors: Annotated[
        list[Path] | None,
        typer.Option("--anchors", help="What you kept: roots, heads, universes, checkpoints.", metavar="FILE"),
    ] = None,
    key: KeyOption = None,
    keys: KeysOption = None,
) -> None:
    """Check a proof: what it proves, whether that is what you ask, and what it rests on.

    Exit code 0 only where you said what you ask and nothing is left to believe but what you gave; 4 where the proof is
    good and something is left, in lines that begin with `if`.
    """
    with failing_cleanly():
        text = read_input(file, MAX_PROOF_BYTES)
        if len(text) > MAX_PROOF_BYTES:
            raise InvalidRequest(f"a proof has at most {MAX_PROOF_BYTES} bytes")
        trusted = read_trusted_keys(key, keys) if key or keys else []
        known = read_known((read_file(str(each)) for each in anchors or ()), trusted)
        verified = verify_proof(text, known, Question(kind, stream, at, hypothesis))
    out.print(f"good {verified.kind}: {verified.statement}")
    for each in verified.rests_on:
        out.print(f"if   {each}")
    for each in verified.not_checked:
        out.print(f"not checked: {each}")
    if verified.rests_on:
        raise typer.Exit(UNANCHORED)


@contextmanager
def _proving(
    store: str, stream_id: str, at: int | None, file: str
) -> Iterator[tuple[Callable[[Callable[[Prover], Proof]], None], int]]:
    """What writes a proof to its file, and the seq that it is about."""
    with failing_cleanly(), closing(existing_store(store)) as log:

        def write(prove: Callable[[Prover], Proof]) -> None:
            document = prove(Prover(log))
            text = write_proof(document) + b"\n"
            if file == STANDARD_INPUT:
                sys.stdout.buffer.write(text)
                sys.stdout.buffer.flush()
            else:
                Path(file).write_bytes(text)
            err.print(f"proven: {verify_proof(document).statement}")

        yield write, _newest(log, stream_id) if at is None else at


def _newest(log: AuditLog, stream_id: str) -> int:
    head = log.head(stream_id)
    if head is not None:
        return head.seq
    is_space = stream_id.startswith(STREAM_PREFIX)
    raise SpaceNotFound(stream_id.removeprefix(STREAM_PREFIX)) if is_space else SessionNotFound(stream_id)
