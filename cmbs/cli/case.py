"""`cmbs case …`. The commands write to the store themselves: a process that can do that needs no key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any

import msgspec
import typer
from msgspec import UNSET

from cmbs.belief.kernel.queries import check_text, split_label
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.finding import KitOption, LabelOption, NewestOption, SinceOption, TextOption, UntilOption
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out
from cmbs.errors import InvalidRequest, RecordNotFound
from cmbs.ledger.instants import parse_instant
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import CloseCase, OpenCase, SpaceMessage
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import Case
from cmbs.substrate.kernel.words import CaseStatus
from cmbs.substrate.listing import CaseFilter, find_sessions_of_kit, labels_of, take_cases, title_of
from cmbs.substrate.server import DEFAULT_SPACE, SubstrateServer

app = typer.Typer(
    name="case", help="Open, close and list cases: what joins a space to belief sessions.", no_args_is_help=True
)

StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]
SpaceOption = Annotated[str, typer.Option("--space", help="Which space of the store.", metavar="ID")]
CaseArgument = Annotated[str, typer.Argument(help="The id of the case.", metavar="CASE_ID")]
ByOption = Annotated[str, typer.Option("--by", help="The operator that is recorded.", metavar="ID")]
_OPERATOR = "command-line"


@app.command("open")
def open_(
    case_id: CaseArgument,
    session: Annotated[str, typer.Option("--session", help="The belief session that gates read.", metavar="ID")],
    agent: Annotated[
        list[str], typer.Option("--agent", help="Who may act under it; may be given several times.", metavar="ID")
    ],
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
    """Open a case for one belief session. Opening the same one again changes nothing."""
    with failing_cleanly(), _open_server(store) as server:
        raw, labels = msgspec.Raw(attributes.encode()), dict(map(split_label, label or ()))
        asked = OpenCase(case_id, session, agent, raw, UNSET if title is None else title, labels or UNSET)
        answer = _perform(server, space, by, asked)
    again = ", as it was before" if answer.repeated else ""
    err.print(f"case {case_id} is open for session {session}{again}")


@app.command()
def close(
    case_id: CaseArgument,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.", metavar="TEXT")] = "",
    space: SpaceOption = DEFAULT_SPACE,
    by: ByOption = _OPERATOR,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Close a case, for good. What waits under it is withdrawn."""
    with failing_cleanly(), _open_server(store) as server:
        answer = _perform(server, space, by, CloseCase(case_id, reason))
    ended = format_count(len(answer.event.result.statuses), "proposal")
    err.print(f"case {case_id} is closed; {ended} waited under it")


@app.command("list")
def list_(
    status: Annotated[CaseStatus | None, typer.Option(help="Only those with this status.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="Only of this session.", metavar="ID")] = None,
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
    with failing_cleanly(), _open_server(store) as server:
        first = "" if since is None else parse_instant(since, "since")
        end = "" if until is None else parse_instant(until, "until")
        labels = tuple(map(split_label, label or ()))
        known = server.current(space)
        of_kit = None if kit is None else find_sessions_of_kit(server.log, known, kit)
        wanted = CaseFilter(status, session, agent, labels, check_text(text), first, end, session_ids=of_kit)
        cases = [known.cases[name] for _, name in sorted(take_cases(known, wanted), reverse=newest)]
    for case in cases:
        if as_json:
            print(msgspec.json.encode(_describe(case)).decode())
        else:
            agents = ", ".join(sorted(case.agents))
            title = "" if title_of(case) is None else f"  {title_of(case)}"
            out.print(f"{case.case_id}  {case.status:6}  session {case.session_id}  agents {agents}  {case.ts}{title}")
    if not as_json:
        err.print(format_count(len(cases), "case"))


@app.command()
def show(
    case_id: CaseArgument,
    space: SpaceOption = DEFAULT_SPACE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Print a case, and the proposals that named it, as JSON."""
    with failing_cleanly(), _open_server(store) as server:
        found = server.current(space)
        case = found.cases.get(case_id)
        if case is None:
            raise RecordNotFound("case", case_id)
    proposals = {name: each.status for name, each in sorted(found.proposals.items()) if each.case_id == case_id}
    print(msgspec.json.format(msgspec.json.encode({**_describe(case), "proposals": proposals})).decode())


@contextmanager
def _open_server(url: str) -> Iterator[SubstrateServer]:
    if url.startswith("memory"):
        raise InvalidRequest("`memory:` lives in one process; name a store that servers share")
    log = existing_store(url)
    with closing(log), closing(SubstrateServer(log=log, keeper_seconds=None)) as server:
        yield server


def _perform(server: SubstrateServer, space_id: str, by: str, message: SpaceMessage) -> SpaceAnswer:
    return server.perform(SpaceCommand(space_id, Actor(ActorKind.OPERATOR, by), message))


def _describe(case: Case) -> dict[str, Any]:
    return {
        "case_id": case.case_id,
        "status": case.status,
        "session_id": case.session_id,
        "title": title_of(case),
        "labels": labels_of(case),
        "attributes": msgspec.Raw(case.attributes),
        "agents": sorted(case.agents),
        "opened_by": case.opened_by.id,
        "ts": case.ts,
        "closed_by": None if case.closed_by is None else case.closed_by.id,
        "closed_ts": case.closed_ts,
        "reason": case.reason,
    }
