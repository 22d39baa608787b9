"""`cmbs follow`: what happens on a server while it happens; it connects again by itself, where it was."""

from __future__ import annotations

import json
import math
import sys
from typing import Annotated, Any

import typer
from httpx2 import ServerSentEvent

from cmbs.api.call import Call, build_call, find_operation
from cmbs.api.streams import EventName
from cmbs.cli.asking import connect_to_server
from cmbs.cli.output import err, exiting_with_two, out
from cmbs.client import Patience
from cmbs.client.exchange import SYSTEM
from cmbs.client.following import Follow
from cmbs.errors import CmbsError, InvalidRequest

_ENDLESS = Patience(deadline=math.inf, first_pause=1.0, longest_pause=10.0)


def follow(
    session: Annotated[str | None, typer.Argument(help="The session.", metavar="[SESSION]")] = None,
    space: Annotated[str | None, typer.Option("--space", help="Follow a space instead.", metavar="ID")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Follow every stream that the key may read.")] = False,
    server: Annotated[
        str, typer.Option("--server", help="The server; its API key, if it has keys, is in CMBS_KEY.", metavar="URL")
    ] = "http://127.0.0.1:8080",
    actor: Annotated[
        str, typer.Option("--actor", help="Who asks, on a server without keys: KIND:ID.", metavar="ACTOR")
    ] = "",
    from_start: Annotated[bool, typer.Option("--from-start", help="Begin with the first entry, not with now.")] = False,
    after: Annotated[str, typer.Option("--after", help="Begin after this cursor; a seq, of one stream.")] = "",
    verb: Annotated[
        list[str] | None, typer.Option("--verb", help="With --all: only this verb; may be repeated.", metavar="VERB")
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="With --all: only what was refused.")] = False,
    limit: Annotated[int, typer.Option("--limit", help="End after so many entries; 0 is never.", min=0)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the data of each entry, one a line.")] = False,
) -> None:
    """Print what happens on a server while it happens."""
    with exiting_with_two():
        call = _choose(session, space, everything=everything, verbs=verb or [], refused=refused)
        if after:
            call = call.with_query(after=after)
        elif from_start:
            call = call.with_query(**{"from": 0})
        follower = _Printed(call, _ENDLESS, SYSTEM)
        try:
            with connect_to_server(server, actor=actor, patience=_ENDLESS) as client:
                for number, event in enumerate(client.listen(follower), 1):
                    _show(event, as_json=as_json)
                    if number == limit:
                        return
        except KeyboardInterrupt:
            err.print("stopped")


def _choose(session: str | None, space: str | None, *, everything: bool, verbs: list[str], refused: bool) -> Call[Any]:
    if (session is not None) + (space is not None) + everything != 1:
        raise InvalidRequest("name one thing to follow: a SESSION, `--space ID` or `--all`")
    if not everything and (verbs or refused):
        raise InvalidRequest("`--verb` and `--refused` choose among all streams; send them with `--all`")
    if session is not None:
        return build_call(find_operation("follow_session"), {"session_id": session})
    if space is not None:
        return build_call(find_operation("follow_space"), {"space_id": space})
    return build_call(find_operation("follow_all"), {"verb": verbs, "refused": refused or None})


class _Printed(Follow[ServerSentEvent]):
    """A follower whose entries are printed as they were sent. It says when it connects again."""

    def _read(self, event: ServerSentEvent) -> ServerSentEvent | None:
        return event if event.event in (EventName.ENTRY, EventName.CORRUPT) else None

    def _goes_on_from(self, event: ServerSentEvent) -> bool:
        return event.event in (EventName.HEAD, EventName.HEARTBEAT)

    def judge(self, failure: CmbsError | None) -> float:
        """The same, said."""
        pause = super().judge(failure)
        err.print(f"{failure or 'the connection ended'}; connecting again in {pause:.1f} s")
        return pause


def _show(event: ServerSentEvent, *, as_json: bool) -> None:
    if as_json:
        # A line at a time, also into a pipe.
        print(event.data)
        sys.stdout.flush()
        return
    data = json.loads(event.data)
    if event.event == EventName.CORRUPT:
        err.print(f"{data['stream_kind']} {data['stream_id']} does not verify: {data['message']}", style="red")
        return
    entry = data.get("entry", data)
    where = f"{data['stream_kind']} {data['stream_id']} " if "entry" in data else ""
    outcome = entry.get("outcome") or {}
    said, style = _describe(entry["verb"], outcome, entry.get("payload") or {}, entry.get("delta") or {})
    out.print(f"{entry['ts']} {where}#{entry['seq']} {entry['verb']} {said}".rstrip(), style=style)


def _describe(verb: str, outcome: dict[str, Any], payload: dict[str, Any], delta: dict[str, Any]) -> tuple[str, str]:
    """What an entry says in a few words, and its colour."""
    decision = outcome.get("decision") or {}
    verdict = decision.get("verdict")
    denied = verdict == "deny" or not all(outcome.get(name, True) for name in ("accepted", "approved", "granted"))
    reason = outcome.get("reason") or outcome.get("reason_code") or decision.get("reason_code") or ""
    about = [str(payload[name]) for name in _NAMES if isinstance(payload.get(name), str)]
    gone = delta.get("eliminated") or []
    words = [*about, *([f"-{len(gone)}"] if gone else []), *([str(verdict)] if verdict else []), str(reason)]
    style = "red" if denied else "yellow" if verdict == "defer" else "green" if verb in _CONCLUDING else ""
    return " ".join(word for word in words if word), style


_NAMES = ("source_id", "observation_id", "obligation_id", "conclusion_id", "proposal_id", "approval_id", "tool_id")
_CONCLUDING = ("DECLARE_CONCLUSION", "REQUEST_TERMINATION", "REQUEST_EXIT")
