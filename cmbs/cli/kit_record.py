"""`cmbs kit put`, `cmbs kit list` and `cmbs kit show`: the kits on record in a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cmbs.belief.kernel.kit_stream import KitRecord
from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import DEFAULT_STORE, Settings, build_tee_store, read_kit_file
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out
from cmbs.cli.serve import StoreOption
from cmbs.errors import InvalidRequest
from cmbs.stores import open_store
from cmbs.tee.access import visible

_PAGE = 500

JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, one kit a line.")]


def put(
    files: Annotated[list[Path], typer.Argument(help="Kits in YAML or JSON.", metavar="FILE…")],
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Put kits on record in a store. One that is there already stays as it is."""
    with failing_cleanly():
        if store.startswith("memory"):
            raise InvalidRequest("`memory:` lives in one process; name a store that servers share")
        with closing(BeliefServer(store=open_store(store))) as server:
            for file in files:
                text, media_type = read_kit_file(str(file))
                answer = server.kits.put(text, media_type)
                for warning in answer.warnings:
                    err.print(visible(f"warning {warning.at(str(file))}"))
                again = ", as it was before" if answer.repeated else ""
                err.print(visible(f"kit {answer.record.kit_id}, version {answer.record.version}, is on record{again}"))
                out.print(answer.record.content_hash)


def list_(store: StoreOption = DEFAULT_STORE, as_json: JsonOption = False) -> None:
    """List the kits on record, each in the content that was put last."""
    count = 0
    with failing_cleanly(), open_server(store) as server:
        for record in _newest(server):
            count += 1
            if as_json:
                print(msgspec.json.encode(record).decode())
            else:
                causes = format_count(record.n_hypotheses, "hypothesis", "hypotheses")
                size = f"{causes if record.n_hypotheses else 'over a causal graph'}, "
                size += format_count(record.n_probes, "probe")
                out.print(visible(f"{record.kit_id}  version {record.version}  {size}  {record.content_hash}"))
    if not as_json:
        err.print(format_count(count, "kit"))


def show(
    kit_id: Annotated[str, typer.Argument(help="The id of the kit.", metavar="KIT")],
    version: Annotated[
        str | None, typer.Option(help="The hash of a content, or a version; by default what was put last.")
    ] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Print a kit as it was written."""
    with failing_cleanly(), open_server(store) as server:
        sys.stdout.write(server.kits.document(server.kits.find(kit_id, version)))


@contextmanager
def open_server(url: str, tee: str = "") -> Iterator[BeliefServer]:
    """A belief server over a store that is there, and over a Tee where one is named."""
    if not tee:
        with closing(BeliefServer(store=existing_store(url))) as server:
            yield server
        return
    incidents = build_tee_store(Settings.from_environment({**os.environ, "CMBS_TEE": tee}))
    with closing(BeliefServer(store=incidents, audit_log=existing_store(url))) as server:
        yield server


def _newest(server: BeliefServer) -> Iterator[KitRecord]:
    after: str | None = None
    while shelves := server.kits.list_kits(after, _PAGE):
        yield from (shelf.newest for shelf in shelves)
        after = shelves[-1].kit_id
