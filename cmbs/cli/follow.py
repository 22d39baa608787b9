"""`cmbs follow`: what happens on a server while it happens; it connects again by itself, where it was."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import httpx2
import typer

from cmbs.cli.output import err, failing_cleanly, out
from cmbs.errors import BeliefServerError, InvalidRequest, StoreUnavailable

# Three heartbeats at their default: a connection that is silent for so long is lost.
_SILENT_SECONDS = 15.0
_MAX_PAUSE_SECONDS = 10.0
_PERMANENT = ("permission_lost", "ledger_corrupt")


class _Target(NamedTuple):
    """What is followed: a path, and what is sent with it."""

    path: str
    query: dict[str, Any]


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
    with failing_cleanly():
        target = _choose(session, space, everything=everything, verbs=verb or [], refused=refused)
        headers = {"accept": "text/event-stream"}
        key = os.environ.get("CMBS_KEY", "").strip()
        headers |= {"authorization": f"Bearer {key}"} if key else {}
        headers |= {"x-cmbs-actor": actor} if actor else {}
        begin = {"from": "0"} if from_start and not after else {}
        timeout = httpx2.Timeout(_SILENT_SECONDS, connect=_SILENT_SECONDS)
        try:
            with httpx2.Client(base_url=server, headers=headers, timeout=timeout) as client:
                query = {**target.query, **begin}
                for number, event in enumerate(_read_entries(client, target._replace(query=query), after), 1):
                    _show(event, as_json=as_json)
                    if number == limit:
                        return
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as exc:
            raise InvalidRequest(f"`{server}` is not the address of a server; use `http://host:port`") from exc
        except KeyboardInterrupt:
            err.print("stopped")


def _choose(session: str | None, space: str | None, *, everything: bool, verbs: list[str], refused: bool) -> _Target:
    if (session is not None) + (space is not None) + everything != 1:
        raise InvalidRequest("name one thing to follow: a SESSION, `--space ID` or `--all`")
    if not everything and (verbs or refused):
        raise InvalidRequest("`--verb` and `--refused` choose among all streams; send them with `--all`")
    if session is not None:
        return _Target(f"/v1/sessions/{quote(session, safe='')}/events", {})
    if space is not None:
        return _Target(f"/v1/spaces/{quote(space, safe='')}/events", {})
    return _Target("/v1/events", {"verb": verbs, **({"refused": "true"} if refused else {})})


def _read_entries(client: httpx2.Client, target: _Target, last: str) -> Iterator[httpx2.ServerSentEvent]:
    """Entries, connection after connection, each from where the one before was cut."""
    pause = 1.0
    while True:
        try:
            for event in _read_events(client, target, last):
                # Where the server says that a stream begins there, or is there, it goes on after that.
                last = event.id or last
                pause = 1.0
                if event.event in {"entry", "corrupt"}:
                    yield event
            reason = "the connection ended"
        except httpx2.UnsupportedProtocol:
            raise
        except (httpx2.TransportError, StoreUnavailable) as exc:
            reason = str(exc) or type(exc).__name__
        err.print(f"{reason}; connecting again in {pause:.0f} s")
        time.sleep(pause)
        pause = min(_MAX_PAUSE_SECONDS, pause * 2)


def _read_events(client: httpx2.Client, target: _Target, last: str) -> Iterator[httpx2.ServerSentEvent]:
    """The events of one connection; an error where the server has more to say than that it stops."""
    headers = {"last-event-id": last} if last else {}
    with client.stream("GET", target.path, params=target.query, headers=headers) as answer:
        if answer.status_code != httpx2.codes.OK:
            raise _read_error(answer.status_code, answer.read())
        # An entry may be as large as the request that it records.
        for event in httpx2.EventSource(answer, max_event_size=None):
            if event.event == "end":
                told = json.loads(event.data)
                if told["reason"] in _PERMANENT:
                    raise InvalidRequest(f"the server ended the stream, {told['reason']}: {told.get('message', '')}")
                return
            yield event


def _read_error(status: int, body: bytes) -> BeliefServerError:
    """What the server answered, as an error; one that is worth another attempt is StoreUnavailable."""
    try:
        error = json.loads(body)["error"]
        said = f"{error['code']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        said = f"the server answered {status}"
    return StoreUnavailable(said) if status >= httpx2.codes.INTERNAL_SERVER_ERROR else InvalidRequest(said)


def _show(event: httpx2.ServerSentEvent, *, as_json: bool) -> None:
    if as_json:
        # A line at a time, also into a pipe.
        print(event.data)
        sys.stdout.flush()
        return
    data = json.loads(event.data)
    if event.event == "corrupt":
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
