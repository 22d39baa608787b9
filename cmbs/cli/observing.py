"""`cmbs declare`, `cmbs observe` and `cmbs probes`: a session over a kit, without a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cmbs.belief.kernel.queries import split_label
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.kit_record import open_server
from cmbs.cli.output import err, failing_cleanly, format_count, out
from cmbs.cli.serve import StoreOption
from cmbs.errors import InvalidRequest
from cmbs.messages import EliminationRule, KitChoice, SessionPolicy
from cmbs.tee.access import visible

if TYPE_CHECKING:
    from cmbs.belief.kernel.looks import LookItem

_SOURCE = "command-line"

SessionArgument = Annotated[str, typer.Argument(help="The session.", metavar="SESSION")]
TeeOption = Annotated[
    str,
    typer.Option(
        "--tee",
        envvar="CMBS_TEE",
        help="The Tee with the causal graph, for a kit over one; `CMBS_TEE_…` say how to connect.",
        metavar="HOST:PORT",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")]


def declare(
    kit: Annotated[str, typer.Argument(help="The id of a kit on record.", metavar="KIT")],
    version: Annotated[
        str | None, typer.Option(help="The hash of a content, or a version; by default what was put last.")
    ] = None,
    symptom: Annotated[
        list[str] | None,
        typer.Option(help="For a kit over a causal graph: a node that shows something wrong; once for each."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="One line for people, and to find it by.", metavar="TEXT")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="To find it by; may be given several times.", metavar="NAME:VALUE"),
    ] = None,
    observations_only: Annotated[
        bool, typer.Option("--observations-only", help="Refuse lists of ids: only what the kit rules out goes.")
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    tee: TeeOption = "",
) -> None:
    """Open a session over a kit on record, and print its id."""
    policy = SessionPolicy(eliminations=EliminationRule.OBSERVATIONS) if observations_only else None
    with failing_cleanly(), open_server(store, tee) as server:
        labels = dict(map(split_label, label or ()))
        declared = server.declare_session(
            kit=KitChoice(kit, version), policy=policy, symptoms=symptom, title=title, labels=labels
        )
    err.print(f"{format_count(declared.snapshot.n_survivors, 'hypothesis', 'hypotheses')} survive")
    out.print(declared.session_id)


def observe(
    session: SessionArgument,
    probe: Annotated[str, typer.Argument(help="A probe of the session's kit.", metavar="PROBE")],
    outcome: Annotated[str | None, typer.Argument(help="What was seen: the id of an outcome.")] = None,
    number: Annotated[float | None, typer.Option(help="What was seen: a number.")] = None,
    samples: Annotated[
        str | None, typer.Option(help="What was seen: a window of numbers, as in 1.5,2,3.", metavar="NUMBERS")
    ] = None,
    no_data: Annotated[bool, typer.Option("--no-data", help="It was looked for and not found.")] = False,
    source: Annotated[str, typer.Option(help="Who observed.", metavar="ID")] = _SOURCE,
    observation: Annotated[
        str | None, typer.Option(help="The id of this look, for a later one at the same probe.", metavar="ID")
    ] = None,
    seen_at: Annotated[str | None, typer.Option(help="When it was seen, RFC 3339.", metavar="TIME")] = None,
    store: StoreOption = DEFAULT_STORE,
    tee: TeeOption = "",
    as_json: JsonOption = False,
) -> None:
    """Tell a session what was seen. Its kit works out what that rules out."""
    with failing_cleanly():
        response = _choose_response(outcome, number, samples, no_data=no_data)
        with open_server(store, tee) as server:
            answer = server.observe(session, probe, response, source, observation_id=observation, seen_at=seen_at)
    if as_json:
        content = answer._asdict() | {"snapshot": answer.snapshot.to_dict()}
        print(msgspec.json.encode(content).decode())
        return
    for look in answer.seen_before:
        err.print(visible(f"seen before: {_describe(look)}"))
    if answer.replayed:
        err.print("recorded before, and not again")
    gone = ", ".join(answer.applied_eliminated) or "nothing"
    out.print(visible(f"ruled out: {gone}; {format_count(answer.snapshot.n_survivors, 'survivor')}"))


def probes(
    session: SessionArgument,
    limit: Annotated[int, typer.Option(help="How many probes at most.", min=1, max=200)] = 10,
    store: StoreOption = DEFAULT_STORE,
    tee: TeeOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print what is worth asking next, the best first, and what was asked already."""
    from rich.table import Table

    with failing_cleanly(), open_server(store, tee) as server:
        page = server.probes(session, limit=limit)
    if as_json:
        print(msgspec.json.encode(page.to_dict()).decode())
        return
    table = Table("probe", "bits", "answer: survivors left", "question")
    for each in page.probes:
        left = ", ".join(f"{answer.outcome_id}: {answer.leaves}" for answer in each.answers)
        table.add_row(visible(each.probe_id), f"{each.expected_bits:.3f}", visible(left), visible(each.prompt))
    out.print(table)
    for look in page.asked:
        out.print(visible(f"asked: {_describe(look)}"))
    err.print(f"{format_count(page.n_probes, 'probe')} can rule something out, {page.n_asked} asked")


def _choose_response(
    outcome: str | None, number: float | None, samples: str | None, *, no_data: bool
) -> str | float | list[float] | None:
    given: Mapping[str, Any] = {"OUTCOME": outcome, "--number": number, "--samples": samples}
    named = [name for name, value in given.items() if value is not None] + (["--no-data"] if no_data else [])
    if len(named) != 1:
        raise InvalidRequest(
            f"say what was seen in one way, not {len(named)}: OUTCOME, --number, --samples or --no-data"
        )
    if samples is None:
        return outcome if number is None else number
    try:
        return [float(each) for each in samples.split(",")]
    except ValueError as exc:
        raise InvalidRequest(f"`--samples` takes numbers and commas, not `{samples[:64]}`") from exc


def _describe(look: LookItem) -> str:
    response = msgspec.json.encode(look.response).decode()
    read_as = "" if look.outcome_id in (None, look.response) else f", read as {look.outcome_id}"
    return f"{look.ts} {look.probe_id} = {response}{read_as}, by {look.source_id}"
