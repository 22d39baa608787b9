"""`cmbs space …`. The commands write to the store themselves: a process that can do that needs no key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated

import msgspec
import typer

from cmbs.belief.kernel.queries import split_label
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.finding import JsonOption, KitOption, LabelOption, LimitOption, NewestOption, SinceOption, UntilOption
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out
from cmbs.errors import InvalidRequest
from cmbs.ledger.instants import parse_instant
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import SetGovernance, SpaceMessage, Withdraw
from cmbs.substrate.kernel.kind import SpaceAnswer
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import ProposalRecord, Space
from cmbs.substrate.kernel.waiting import is_waiting
from cmbs.substrate.kernel.words import ProposalStatus
from cmbs.substrate.listing import Listed, Position, RecordFilter, find_first_since, find_sessions_of_kit, list_records
from cmbs.substrate.server import DEFAULT_SPACE, SubstrateServer

app = typer.Typer(
    name="space", help="List and withdraw what waits in a space, and set how it is governed.", no_args_is_help=True
)

StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]
SpaceOption = Annotated[str, typer.Option("--space", help="Which space of the store.", metavar="ID")]
ByOption = Annotated[str, typer.Option("--by", help="The operator that is recorded.", metavar="ID")]
_OPERATOR = "command-line"


@app.command()
def waiting(space: SpaceOption = DEFAULT_SPACE, store: StoreOption = DEFAULT_STORE) -> None:
    """List the proposals that are parked or wait for approval, the oldest first."""
    with failing_cleanly(), _open_server(store) as server:
        found = server.current(space)
    records = sorted(found.proposals.items(), key=lambda item: item[1].seq)
    listed = [(name, each) for name, each in records if is_waiting(found, name, each)]
    for proposal_id, record in listed:
        parked = found.parked.get(proposal_id)
        keys = "an approval" if parked is None else ", ".join(parked.waits_for) or "nothing"
        out.print(f"{proposal_id}  {record.status:7}  {record.actor.id}  waits for {keys}")
    err.print(format_count(len(listed), "proposal"))


@app.command()
def proposals(
    status: Annotated[ProposalStatus | None, typer.Option(help="Only those with this status.")] = None,
    case: Annotated[str | None, typer.Option("--case", help="Only of this case.", metavar="ID")] = None,
    agent: Annotated[str | None, typer.Option("--agent", help="Only of this agent.", metavar="ID")] = None,
    kit: KitOption = None,
    tool: Annotated[str | None, typer.Option("--tool", help="Only with a call of this tool.", metavar="ID")] = None,
    label: LabelOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    newest: NewestOption = False,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
    space: SpaceOption = DEFAULT_SPACE,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """List proposals, the oldest first; also those that are settled and are in the ledger alone."""
    with failing_cleanly(), _open_server(store) as server:
        found = server.current(space)
        first, end = (
            None if each is None else find_first_since(server.settled, found, parse_instant(each, name))
            for name, each in (("since", since), ("until", until))
        )
        labels = tuple(map(split_label, label or ()))
        end = found.head.seq + 1 if end is None else end
        of_kit = None if kit is None else find_sessions_of_kit(server.log, found, kit)
        wanted = RecordFilter(
            status, case, agent, tool, labels, first or 0, end, newest_first=newest, session_ids=of_kit
        )
        listed = _list_proposals(server, found, wanted, limit)
    for proposal_id, record in listed:
        if as_json:
            shown = {"proposal_id": proposal_id, "status": record.status, "agent": record.actor.id}
            print(msgspec.json.encode({**shown, "case_id": record.case_id, "seq": record.seq}).decode())
        else:
            of_case = "" if record.case_id is None else f"  case {record.case_id}"
            out.print(f"{proposal_id}  {record.status:9}  {record.actor.id}  seq {record.seq}{of_case}")
    if not as_json:
        err.print(format_count(len(listed), "proposal"))


def _list_proposals(
    server: SubstrateServer, space: Space, wanted: RecordFilter, limit: int
) -> list[tuple[str, ProposalRecord]]:
    found: list[tuple[str, ProposalRecord]] = []
    after: Position | None = None
    while len(found) < limit:
        page = list_records(server.settled, space, Listed.PROPOSALS, after, limit - len(found), wanted)
        found += [(each.record_id, page.space.proposals[each.record_id]) for each in page.positions]
        after = page.next_after
        if after is None:
            break
    return found


@app.command()
def withdraw(
    proposal_id: Annotated[str, typer.Argument(help="The id of the proposal.", metavar="PROPOSAL_ID")],
    reason: Annotated[str, typer.Option(help="Why; it is recorded.", metavar="TEXT")] = "",
    space: SpaceOption = DEFAULT_SPACE,
    by: ByOption = _OPERATOR,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Withdraw a proposal that is parked or waits for approval. What runs already goes on."""
    with failing_cleanly(), _open_server(store) as server:
        answer = _perform(server, space, by, Withdraw(proposal_id, reason))
    again = ", as it was before" if answer.repeated else ""
    err.print(f"proposal {proposal_id} is {answer.space.proposals[proposal_id].status}{again}")


@app.command()
def governance(
    operators: Annotated[int, typer.Argument(help="How many operators a change of policy takes: 1 or 2.")],
    space: SpaceOption = DEFAULT_SPACE,
    by: ByOption = _OPERATOR,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Set how many operators a change of policy takes. From 2 to 1 takes two operators."""
    with failing_cleanly(), _open_server(store) as server:
        answer = _perform(server, space, by, SetGovernance(operators))
    needed = format_count(answer.space.operators_needed, "operator")
    waits = "" if answer.space.operators_needed == operators else "; another operator has to say the same"
    err.print(f"a change of policy takes {needed}{waits}")


@contextmanager
def _open_server(url: str) -> Iterator[SubstrateServer]:
    if url.startswith("memory"):
        raise InvalidRequest("`memory:` lives in one process; name a store that servers share")
    log = existing_store(url)
    with closing(log), closing(SubstrateServer(log=log, keeper_seconds=None)) as server:
        yield server


def _perform(server: SubstrateServer, space_id: str, by: str, message: SpaceMessage) -> SpaceAnswer:
    return server.perform(SpaceCommand(space_id, Actor(ActorKind.OPERATOR, by), message))
