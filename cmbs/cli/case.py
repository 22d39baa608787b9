"""`cmbs case …`. The commands write to the store themselves: a process that can do that needs no key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any

import msgspec
import typer
from msgspec import UNSET

from cmbs.belief.kernel.queries import check_text, split_label
from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.finding import KitOption, LabelOption, NewestOption, SinceOption, TextOption, UntilOption
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out
from cmbs.errors import InvalidRequest, RecordNotFound
from cmbs.ledger.instants import parse_instant
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import CloseCase, OpenCase, SpaceMessage
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import Case
from cmbs.substrate.kernel.words import CaseStatus
from cmbs.substrate.listing import CaseFilter, find_sessions_of_kit, labels_of, take_cases, title_of
from cmbs.substrate.server import DEFAULT_SPACE, SubstrateServer

app = typer.Typer(
    name="case",
    help="List, open, change, name and close cases: investigations, and the spaces where they act.",
    no_args_is_help=True,
)

StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]
SpaceOption = Annotated[str, typer.Option("--space", help="Which space of the store.", metavar="ID")]
CaseArgument = Annotated[str, typer.Argument(help="The case, by the id of its session or its name.", metavar="CASE")]
ByOption = Annotated[str, typer.Option("--by", help="The operator that is recorded.", metavar="ID")]
_OPERATOR = "command-line"


@app.command("open")
def open_(
    case_id: CaseArgument,
    agent: Annotated[
        list[str] | None,
        typer.Option(
            "--agent",
            help="Of the agents that the case lists, only this one may act here; may be given several times.",
            metavar="ID",
        ),
    ] = None,
    attributes: Annotated[
        str, typer.Option(help="What policies can read of it: a JSON object.", metavar="JSON")
    ] = "{}",
    title: Annotated[str | None, typer.Option(help="One line for people, and to find it by.", metavar="TEXT")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="To find it by; may be given several times.", metavar="NAME:VALUE"),
    ] = None,
    space: SpaceOption = DEFAULT_SPACE,
    by: ByOption = _OPERATOR,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Admit a case to a space. Admitting the same one again changes nothing; one that was closed is open again."""
    with failing_cleanly(), _open_servers(store) as (belief, server):
        raw, labels = msgspec.Raw(attributes.encode()), dict(map(split_label, label or ()))
        session_id = belief.names.resolve(case_id)
        asked = OpenCase(session_id, agent or [], raw, UNSET if title is None else title, labels or UNSET)
        answer = _perform(server, space, by, asked)
    again = ", as it was before" if answer.repeated else ""
    err.print(f"case {case_id} is open in space {space}{again}")


@app.command()
def update(
    case_id: CaseArgument,
    title: Annotated[str | None, typer.Option(help="One line for people; empty takes it away.", metavar="TEXT")] = None,
    owner: Annotated[str | None, typer.Option(help="Who answers for it; empty takes it away.", metavar="NAME")] = None,
    severity: Annotated[str | None, typer.Option(help="How grave it is; empty takes it away.", metavar="TEXT")] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", help="All its labels; may be given several times.", metavar="NAME:VALUE"),
    ] = None,
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", help="All who may work on it; may be given several times.", metavar="ID"),
    ] = None,
    lift_obligation: Annotated[
        str | None,
        typer.Option(help="An active obligation that stands in the way no longer.", metavar="OBLIGATION_ID"),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Change what a case says of itself. Only what is given changes."""
    texts = {"title": title, "owner": owner, "severity": severity}
    changes: dict[str, Any] = {name: text or None for name, text in texts.items() if text is not None}
    with failing_cleanly(), _open_servers(store) as (belief, _):
        changes |= {} if label is None else {"labels": dict(map(split_label, label))}
        changes |= {} if agent is None else {"agents": agent}
        changes |= {} if lift_obligation is None else {"lift_obligation": lift_obligation}
        belief.update_case(belief.names.resolve(case_id), changes)
    err.print(f"case {case_id} is changed")


@app.command()
def rename(
    case_id: CaseArgument,
    name: Annotated[str | None, typer.Argument(help="The new name; none releases the old one.")] = None,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Give a case another name, or take its name away."""
    with failing_cleanly(), _open_servers(store) as (belief, _):
        session_id = belief.current_session(belief.names.resolve(case_id)).session_id
        if name is None:
            belief.names.release(session_id)
        else:
            belief.names.rename(session_id, name)
    err.print(f"case {session_id} has no name" if name is None else f"case {session_id} is named {name}")


@app.command()
def close(
    case_id: CaseArgument,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.", metavar="TEXT")] = "",
    space: SpaceOption = DEFAULT_SPACE,
    by: ByOption = _OPERATOR,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Close a case in a space. What waits under it is withdrawn. It can be opened again."""
    with failing_cleanly(), _open_servers(store) as (belief, server):
        answer = _perform(server, space, by, CloseCase(belief.names.resolve(case_id), reason))
    ended = format_count(len(answer.event.result.statuses), "proposal")
    err.print(f"case {case_id} is closed; {ended} waited under it")


@app.command("list")
def list_(
    status: Annotated[CaseStatus | None, typer.Option(help="Only those with this status.")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only where this agent may act.", metavar="ID")] = None,
    kit: KitOption = None,
    label: LabelOption = None,
    text: TextOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    newest: NewestOption = False,
    space: SpaceOption = DEFAULT_SPACE,
    store: StoreOption = DEFAULT_STORE,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, one case a line.")] = False,
) -> None:
    """List cases, the oldest first."""
    with failing_cleanly(), _open_servers(store) as (belief, server):
        first = "" if since is None else parse_instant(since, "since")
        end = "" if until is None else parse_instant(until, "until")
        labels = tuple(map(split_label, label or ()))
        known = server.current(space)
        of_kit = None if kit is None else find_sessions_of_kit(server.log, known, kit)
        wanted = CaseFilter(status, agent, labels, check_text(text), first, end, session_ids=of_kit)
        cases = [known.cases[name] for _, name in sorted(take_cases(known, wanted), reverse=newest)]
        names = {case.case_id: belief.names.name_of(case.case_id) for case in cases}
    for case in cases:
        name = names[case.case_id]
        if as_json:
            print(msgspec.json.encode(_describe(case, name)).decode())
        else:
            agents = ", ".join(sorted(case.known_agents))
            title = "" if title_of(case) is None else f"  {title_of(case)}"
            shown = case.case_id if name is None else f"{name} ({case.case_id})"
            out.print(f"{shown}  {case.status:6}  agents {agents}  {case.ts}{title}")
    if not as_json:
        err.print(format_count(len(cases), "case"))


@app.command()
def show(
    case_id: CaseArgument,
    space: SpaceOption = DEFAULT_SPACE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Print a case as it is in a space, and the proposals that named it, as JSON."""
    with failing_cleanly(), _open_servers(store) as (belief, server):
        found, session_id = server.current(space), belief.names.resolve(case_id)
        case = found.cases.get(session_id)
        if case is None:
            raise RecordNotFound("case", case_id)
        record = belief.current_session(session_id).case
        name = belief.names.name_of(session_id)
    proposals = {name: each.status for name, each in sorted(found.proposals.items()) if each.case_id == session_id}
    more = {"owner": record.owner or None, "severity": record.severity or None, "case_agents": record.agents}
    print(msgspec.json.format(msgspec.json.encode({**_describe(case, name), **more, "proposals": proposals})).decode())


@contextmanager
def _open_servers(url: str) -> Iterator[tuple[BeliefServer, SubstrateServer]]:
    if url.startswith("memory"):
        raise InvalidRequest("`memory:` lives in one process; name a store that servers share")
    log = existing_store(url)
    with (
        closing(BeliefServer(store=log)) as belief,
        closing(SubstrateServer(log=log, belief=ServedBelief(belief), keeper_seconds=None)) as server,
    ):
        yield belief, server


def _perform(server: SubstrateServer, space_id: str, by: str, message: SpaceMessage) -> SpaceAnswer:
    return server.perform(SpaceCommand(space_id, Actor(ActorKind.OPERATOR, by), message))


def _describe(case: Case, name: str | None) -> dict[str, Any]:
    return {
        "case_id": case.case_id,
        "name": name,
        "status": case.status,
        "title": title_of(case),
        "labels": labels_of(case),
        "attributes": msgspec.Raw(case.attributes),
        "agents": sorted(case.known_agents),
        "opened_by": case.opened_by.id,
        "ts": case.ts,
        "closed_by": None if case.closed_by is None else case.closed_by.id,
        "closed_ts": case.closed_ts,
        "reason": case.reason,
    }
