"""`cmbs sessions` and `cmbs inbox`: what there is in a store, and what waits for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Annotated

import msgspec
import typer

from cmbs.belief.kernel.queries import build_session_query, describe_session
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out
from cmbs.cli.serve import StoreOption
from cmbs.ledger.listing import SessionStanding
from cmbs.messages import Actor, ActorKind
from cmbs.spi.session_search import ListedSession, find_sessions
from cmbs.substrate.kernel.inbox import Wait, find_waits
from cmbs.substrate.server import SubstrateServer

_SPACES_AT_ONCE = 200
_OPERATOR = "command-line"

NewestOption = Annotated[bool, typer.Option("--newest", help="The newest first; otherwise the oldest.")]
KitOption = Annotated[
    str | None, typer.Option("--kit", help="Only of sessions that were declared from this provider.", metavar="ID")
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", help="Only with this label; may be given several times.", metavar="NAME:VALUE"),
]
TextOption = Annotated[
    str | None, typer.Option("--text", help="Only with this text in the id or the title.", metavar="TEXT")
]
SinceOption = Annotated[
    str | None, typer.Option("--since", help="Only from this moment on (RFC 3339).", metavar="TIME")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", help="Only from before this moment (RFC 3339).", metavar="TIME")
]
LimitOption = Annotated[int, typer.Option("--limit", help="Print at most so many.", min=1, max=10_000)]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, one a line.")]


def order_of(newest: bool) -> str:
    """The order as it is asked for over HTTP."""
    return "newest" if newest else "oldest"


def sessions(
    state: Annotated[SessionStanding | None, typer.Option(help="Only those that stand so.")] = None,
    kit: KitOption = None,
    agent: Annotated[
        str | None, typer.Option(help="Only those that this actor declared or reported in.", metavar="ID")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Only those with a report of this source.", metavar="ID")] = None,
    label: LabelOption = None,
    text: TextOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    newest: NewestOption = False,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """List sessions, the oldest first, by what they are found by."""
    with failing_cleanly(), closing(existing_store(store)) as log:
        query = build_session_query(
            order=order_of(newest),
            state=state,
            kit=kit,
            agent=agent,
            source=source,
            labels=label or (),
            text=text,
            since=since,
            until=until,
        )
        found = find_sessions(log, query, None, limit + 1)
    for each in found[:limit]:
        if as_json:
            print(msgspec.json.encode(describe_session(each, with_trail=True)).decode())
        else:
            out.print(_describe_session(each))
    if not as_json:
        err.print(format_count(len(found[:limit]), "session"))
    if len(found) > limit:
        err.print("there are more; `--limit` shows more")


def _describe_session(found: ListedSession) -> str:
    summary, listing = found
    left = f"{listing.n_survivors} of {listing.n_universe} left"
    parts = [summary.session_id, f"{listing.standing:13}", left, summary.created_ts, listing.title]
    parts += [f"{name}:{value}" for name, value in sorted(listing.labels.items())]
    return "  ".join(part for part in parts if part)


def inbox(
    by: Annotated[str, typer.Option("--by", help="The operator that is asked for.", metavar="ID")] = _OPERATOR,
    as_json: JsonOption = False,
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """List what waits for a person in every space: approvals, executions in doubt, changes for a second operator."""
    count = 0
    with (
        failing_cleanly(),
        closing(existing_store(store)) as log,
        closing(SubstrateServer(log=log, keeper_seconds=None)) as server,
    ):
        for space_id, wait in _find_all(server, Actor(ActorKind.OPERATOR, by)):
            count += 1
            if as_json:
                shown = {"space_id": space_id, **wait._replace(record=None)._asdict()}
                print(msgspec.json.encode({name: each for name, each in shown.items() if name != "record"}).decode())
            else:
                until = "" if wait.expires_at is None else f"  until {wait.expires_at}"
                case = "" if wait.case_id is None else f"  case {wait.case_id}"
                out.print(f"{space_id}  {wait.kind}  {wait.id}  asked by {wait.asked_by}{case}{until}")
    if not as_json:
        err.print(f"{format_count(count, 'thing')} {'waits' if count == 1 else 'wait'}")


def _find_all(server: SubstrateServer, actor: Actor) -> Iterator[tuple[str, Wait]]:
    after: str | None = None
    while page := server.heads(after, _SPACES_AT_ONCE):
        for after, _ in page:
            for wait in find_waits(server.current(after), actor, may_approve=True, may_operate=True):
                yield after, wait
