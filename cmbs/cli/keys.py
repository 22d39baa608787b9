"""`cmbs keys …`. The commands write to the store themselves: a process that can do that needs no key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
import typer

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import err, existing_store, failing_cleanly, format_count, out
from cmbs.errors import InvalidRequest
from cmbs.identity.kernel.model import KINDS, KeyRecord
from cmbs.identity.kernel.scopes import Role, Scope
from cmbs.identity.registry import KeyRegistry
from cmbs.identity.tokens import PREFIX, key_id_of
from cmbs.messages import ActorKind
from cmbs.stores import Store, open_store
from cmbs.system import SystemClock

app = typer.Typer(
    name="keys",
    help="Make, list and revoke API keys. The first one ends the time without keys.",
    no_args_is_help=True,
)
_NEVER = "never"
_SPAN = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNIT = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}

StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]


@app.command()
def create(
    actor_id: Annotated[str, typer.Option("--id", help="Who holds it: the id that is recorded.", metavar="ID")],
    kind: Annotated[
        str | None,
        typer.Option(help=f"What holds it: {', '.join(KINDS)}; by default what the roles are for, or else agent."),
    ] = None,
    role: Annotated[list[Role] | None, typer.Option(help="May be given several times.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Beyond those of the roles: {', '.join(Scope)}; for one session or space as `belief:write@ID`, for "
            "those whose id begins so as `spaces:propose@BEGINNING*`.",
            metavar="SCOPE",
        ),
    ] = None,
    expires: Annotated[
        str, typer.Option(help="After 30m, 12h or 90d, at a moment (RFC 3339), or never.", metavar="WHEN")
    ] = "90d",
    label: Annotated[str, typer.Option(help="What it is for.", metavar="TEXT")] = "",
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Make a key and print it: this once, and nowhere else."""
    with failing_cleanly(), _registry(store, open_store) as registry:
        if kind is not None and kind not in KINDS:
            raise InvalidRequest(f"`--kind` must be one of {', '.join(KINDS)}, got `{kind[:64]}`")
        key, text = registry.create(
            None if kind is None else ActorKind(kind),
            actor_id,
            roles=role or (),
            scopes=scope or (),
            expires_at=_expiry(expires, registry.clock.now()),
            label=label,
        )
    # The key alone goes to standard output, so that it can be piped to where it is to be kept.
    print(text)
    err.print(f"key {key.key_id} of {key.kind}:{key.actor_id}, {_until(key.expires_at)}; it is not shown again")


@app.command("list")
def list_(
    store: StoreOption = DEFAULT_STORE,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, one key a line.")] = False,
) -> None:
    """List every key that was made, the oldest first; never the keys themselves."""
    with failing_cleanly(), _registry(store, existing_store) as registry:
        records = list(registry.look().by_id.values())
    now = SystemClock().now()
    for record in records:
        if as_json:
            print(msgspec.json.encode(_content(record, now)).decode())
        else:
            out.print(_line(record, now))
    if not as_json:
        err.print(format_count(len(records), "key"))


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="The id of the key, as `cmbs keys list` shows it.", metavar="KEY_ID")],
    reason: Annotated[str, typer.Option(help="Why; it is recorded.", metavar="TEXT")] = "",
    store: StoreOption = DEFAULT_STORE,
) -> None:
    """Make a key useless, for good. Servers that run know within a second."""
    with failing_cleanly(), _registry(store, existing_store) as registry:
        if key_id.startswith(PREFIX):
            # Neither echoed nor accepted: every user of the machine can read the arguments of a command.
            known = key_id_of(key_id)
            raise InvalidRequest(
                "that is a key, and commands are seen by others; revoke it by its id"
                + (f", which is `{known}`" if known else "")
            )
        registry.revoke(key_id, reason)
    err.print(f"key {key_id} is revoked")


@contextmanager
def _registry(url: str, open_: Callable[[str], Store]) -> Iterator[KeyRegistry]:
    if url.startswith("memory"):
        raise InvalidRequest("`memory:` lives in one process, and so would its keys; name a store that servers share")
    with closing(open_(url)) as store:
        yield KeyRegistry(store)


def _expiry(expires: str, now: str) -> str | None:
    """When a key made now ends, as the ledger writes moments; None for never."""
    if expires == _NEVER:
        return None
    span = _SPAN.fullmatch(expires)
    try:
        end = (
            datetime.fromisoformat(expires)
            if span is None
            else datetime.fromisoformat(now) + int(span[1]) * _UNIT[span[2]]
        )
        if end.tzinfo is None:
            raise InvalidRequest(f"`--expires` needs a time zone, as in `{expires[:64]}Z`")
        return end.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except (ValueError, OverflowError) as exc:
        shapes = "30m, 12h, 90d, a moment like 2027-01-31T00:00:00Z, or never"
        raise InvalidRequest(f"`--expires` must be like {shapes}, got `{expires[:64]}`") from exc


def _until(expires_at: str | None) -> str:
    return "without an end" if expires_at is None else f"until {expires_at}"


def _content(record: KeyRecord, now: str) -> dict[str, object]:
    key = record.key
    return {
        "key_id": key.key_id,
        "status": record.status(now),
        "kind": key.kind,
        "id": key.actor_id,
        "roles": key.roles,
        "scopes": record.grants.to_texts(),
        "created_ts": record.created_ts,
        "expires_at": key.expires_at,
        "revoked_ts": record.revoked_ts,
        "revoked_reason": record.revoked_reason or None,
        "label": key.label or None,
    }


def _line(record: KeyRecord, now: str) -> str:
    key = record.key
    ended = f"revoked {record.revoked_ts}" if record.revoked_ts is not None else _until(key.expires_at)
    good_for = ", ".join([*key.roles, *key.scopes])
    why = f" ({record.revoked_reason})" if record.revoked_reason else ""
    label = f"  {key.label}" if key.label else ""
    return f"{key.key_id}  {record.status(now):7}  {key.kind}:{key.actor_id}  {good_for}  {ended}{why}{label}"
