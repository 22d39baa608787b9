"""`cmbs webhooks …`: endpoints that a server tells what happens. Every command is an operation of the API."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cmbs.belief.kernel.queries import split_label
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import err, failing_cleanly, format_count, out
from cmbs.errors import StoreUnavailable

if TYPE_CHECKING:
    from cmbs.api.webhooks import DeliveryItem, WebhookItem
    from cmbs.client import Client

app = typer.Typer(
    name="webhooks", help="Endpoints that are told what happens: register, list, test, end.", no_args_is_help=True
)
_POLL_SECONDS = 0.2

ServerOption = Annotated[
    str,
    typer.Option(
        envvar="CMBS_SERVER", help="An address, or a store, over which a server then runs here.", metavar="URL"
    ),
]
ActorOption = Annotated[
    str | None,
    typer.Option(help="Who is asking, of a server without keys; the key of others is in CMBS_KEY.", metavar="KIND:ID"),
]
IdArgument = Annotated[str, typer.Argument(help="The id of the webhook.", metavar="WEBHOOK_ID")]
ReasonOption = Annotated[str, typer.Option(help="Why; it is recorded.", metavar="TEXT")]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, one a line.")]
_OPERATOR = "operator:command-line"


@contextmanager
def _connect(server: str, actor: str | None) -> Iterator[Client]:
    from cmbs.client import connect

    # Beside a key, which says who that is, no other name is sent.
    unnamed = actor is None and not os.environ.get("CMBS_KEY", "").strip()
    with failing_cleanly(), connect(server, actor=_OPERATOR if unnamed else actor) as client:
        yield client


@app.command()
def create(
    webhook_id: IdArgument,
    url: Annotated[str, typer.Option(help="Where it is told: https, or http on the server's machine.", metavar="URL")],
    event: Annotated[list[str], typer.Option(help="What it is told; may be given several times.", metavar="EVENT")],
    session: Annotated[
        list[str] | None, typer.Option(help="Only of this session; may be given several times.", metavar="ID")
    ] = None,
    space: Annotated[
        list[str] | None, typer.Option(help="Only of this space; may be given several times.", metavar="ID")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(help="Only with this label; may be given several times.", metavar="NAME:VALUE"),
    ] = None,
    description: Annotated[str, typer.Option(help="What it is for.", metavar="TEXT")] = "",
    server: ServerOption = DEFAULT_STORE,
    actor: ActorOption = None,
) -> None:
    """Register an endpoint and print its secret: this once, and nowhere else."""
    with _connect(server, actor) as client:
        filters: dict[str, Any] = {
            "session_ids": session or [],
            "space_ids": space or [],
            "labels": dict(map(split_label, label or [])),
        }
        made = client.create_webhook(webhook_id, url, event, filters=filters, description=description)
    if made.secret is not None:
        # The secret alone goes to standard output, so that it can be piped to where it is to be kept.
        print(made.secret)
    err.print(f"webhook {webhook_id} is registered{_say_secret(made.secret)}")


@app.command("list")
def list_(server: ServerOption = DEFAULT_STORE, actor: ActorOption = None, as_json: JsonOption = False) -> None:
    """List webhooks by id; never their secrets."""
    with _connect(server, actor) as client:
        webhooks = list(client.each(client.list_webhooks))
    for webhook in webhooks:
        _print_webhook(webhook, as_json=as_json)
    if not as_json:
        err.print(format_count(len(webhooks), "webhook"))


@app.command()
def show(webhook_id: IdArgument, server: ServerOption = DEFAULT_STORE, actor: ActorOption = None) -> None:
    """Print a webhook as JSON, without its secret."""
    with _connect(server, actor) as client:
        _print_webhook(client.get_webhook(webhook_id).webhook, as_json=True)


@app.command()
def rotate(
    webhook_id: IdArgument,
    overlap: Annotated[
        int, typer.Option(help="Seconds in which requests are signed with the secret before as well.", min=0)
    ] = 24 * 3600,
    server: ServerOption = DEFAULT_STORE,
    actor: ActorOption = None,
) -> None:
    """Make a new secret and print it: this once, and nowhere else."""
    with _connect(server, actor) as client:
        generation = client.get_webhook(webhook_id).webhook.secret_generation + 1
        made = client.rotate_webhook_secret(webhook_id, generation, overlap_seconds=overlap)
    if made.secret is not None:
        print(made.secret)
    err.print(f"webhook {webhook_id} has secret {generation}{_say_secret(made.secret)}")


@app.command()
def disable(
    webhook_id: IdArgument,
    reason: ReasonOption = "",
    server: ServerOption = DEFAULT_STORE,
    actor: ActorOption = None,
) -> None:
    """Tell an endpoint nothing for now."""
    with _connect(server, actor) as client:
        client.disable_webhook(webhook_id, reason=reason)
    err.print(f"webhook {webhook_id} is disabled")


@app.command()
def enable(
    webhook_id: IdArgument,
    skip: Annotated[bool, typer.Option("--skip", help="Leave out what happened meanwhile.")] = False,
    server: ServerOption = DEFAULT_STORE,
    actor: ActorOption = None,
) -> None:
    """Tell an endpoint again, from where it stood."""
    with _connect(server, actor) as client:
        client.enable_webhook(webhook_id, skip=skip)
    err.print(f"webhook {webhook_id} is active")


@app.command()
def delete(
    webhook_id: IdArgument,
    reason: ReasonOption = "",
    server: ServerOption = DEFAULT_STORE,
    actor: ActorOption = None,
) -> None:
    """End a webhook, for good. Its stream stays on record."""
    with _connect(server, actor) as client:
        client.delete_webhook(webhook_id, reason=reason)
    err.print(f"webhook {webhook_id} is deleted")


@app.command("test")
def send_test(
    webhook_id: IdArgument,
    wait: Annotated[float, typer.Option(help="Seconds to wait for what comes of it.", min=0, max=600)] = 20.0,
    server: ServerOption = DEFAULT_STORE,
    actor: ActorOption = None,
) -> None:
    """Have a test event sent, and print what came of the first try."""
    with _connect(server, actor) as client:
        queued = client.test_webhook(webhook_id).delivery
        until = time.monotonic() + wait
        tried = _find_delivery(client, webhook_id, queued)
        while not tried.attempts and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)
            tried = _find_delivery(client, webhook_id, queued)
        if not tried.attempts:
            raise StoreUnavailable(f"delivery `{queued.delivery_id}` was not tried within {wait:g} seconds")
    _print_delivery(tried, as_json=False)
    if tried.status != "delivered":
        raise typer.Exit(1)


@app.command()
def deliveries(
    webhook_id: IdArgument,
    status: Annotated[str | None, typer.Option(help="Only pending, delivered or failed ones.")] = None,
    limit: Annotated[int, typer.Option(help="Print at most so many.", min=1, max=1_000)] = 100,
    server: ServerOption = DEFAULT_STORE,
    actor: ActorOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what an endpoint was told, and every try, the newest first."""
    with _connect(server, actor) as client:
        found = client.list_deliveries(webhook_id, status=status, limit=limit).deliveries
    for delivery in found:
        _print_delivery(delivery, as_json=as_json)


@app.command()
def redeliver(
    webhook_id: IdArgument,
    delivery_id: Annotated[str, typer.Argument(help="The id of the delivery.", metavar="DELIVERY_ID")],
    server: ServerOption = DEFAULT_STORE,
    actor: ActorOption = None,
) -> None:
    """Send an event once more, under the same id."""
    with _connect(server, actor) as client:
        client.redeliver(webhook_id, delivery_id)
    err.print(f"delivery {delivery_id} is sent again")


def _find_delivery(client: Client, webhook_id: str, queued: DeliveryItem) -> DeliveryItem:
    newest = client.list_deliveries(webhook_id).deliveries
    return next((each for each in newest if each.delivery_id == queued.delivery_id), queued)


def _say_secret(secret: str | None) -> str:
    return ", as it was before" if secret is None else "; its secret is not shown again"


def _print_webhook(webhook: WebhookItem, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(webhook).decode())
        return
    why = f" ({webhook.disabled_reason})" if webhook.disabled_reason else ""
    waiting = f"  {webhook.n_pending} waiting" if webhook.n_pending else ""
    out.print(f"{webhook.webhook_id}  {webhook.status}{why}  {', '.join(webhook.events)}  {webhook.url}{waiting}")


def _print_delivery(delivery: DeliveryItem, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(delivery).decode())
        return
    out.print(f"{delivery.delivery_id}  {delivery.status}  {delivery.type}  {delivery.ts}")
    for attempt in delivery.attempts:
        took = "" if attempt.duration_ms is None else f"  {attempt.duration_ms} ms"
        said = "no answer" if attempt.status is None else f"{attempt.status}"
        why = "" if attempt.error is None else f"  {attempt.error}"
        out.print(f"  {attempt.number}  {attempt.ts}  {said}{took}{why}")
