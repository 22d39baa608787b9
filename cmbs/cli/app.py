"""The top level of the command line: a table of commands, each imported when it is run.

The table repeats the first line of each command's help, so that `cmbs --help` imports none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

import cmbs


class LazyCommand(NamedTuple):
    """Where a function or a `typer.Typer` is (`module:name`), and the first line of its help.

    `kind` is where the class of the command is, for a function that is more than a plain command.
    """

    target: str
    help: str
    kind: str = "typer.core:TyperCommand"


COMMANDS = {
    "serve": LazyCommand("cmbs.cli.serve:serve", "Serve the belief protocol over HTTP."),
    "api": LazyCommand(
        "cmbs.cli.api:call",
        "Call an operation of the API, and print the answer as JSON. The key comes from `CMBS_KEY`.",
        "cmbs.cli.api_help:ApiCommand",
    ),
    "keys": LazyCommand(
        "cmbs.cli.keys:app", "Make, list and revoke API keys. The first one ends the time without keys."
    ),
    "verify": LazyCommand(
        "cmbs.cli.commands:verify",
        "Re-read every event, decide every message again, and check that each byte and each row is what it must be.",
    ),
    "heads": LazyCommand(
        "cmbs.cli.checkpoint:heads",
        "Write the head of every stream, to be kept elsewhere for `cmbs verify --heads`.",
    ),
    "checkpoint": LazyCommand(
        "cmbs.cli.checkpoint:app", "Signed checkpoints: make and rotate keys, show checkpoints, check what was kept."
    ),
    "witness": LazyCommand(
        "cmbs.cli.witness:app", "A small witness: cosigns the checkpoints of logs that keep to what they signed."
    ),
    "fsck": LazyCommand(
        "cmbs.cli.maintenance:fsck",
        "Compare every row of every table, and the schema, with the log, and say what is wrong and where.",
    ),
    "export": LazyCommand(
        "cmbs.cli.maintenance:export",
        "Write sessions, spaces and kits as JSON lines, byte for byte as they were hashed.",
    ),
    "import": LazyCommand(
        "cmbs.cli.maintenance:import_",
        "Take sessions, spaces and kits in from an export, once all of it is verified; before, nothing is written.",
    ),
    "partition": LazyCommand(
        "cmbs.cli.partitioning:partition", "Partition the tables of an empty PostgreSQL database by stream."
    ),
    "proof": LazyCommand("cmbs.cli.proof:app", "Make proofs that can be checked without this store, and check them."),
    "sessions": LazyCommand("cmbs.cli.finding:sessions", "List sessions, the oldest first, by what they are found by."),
    "inbox": LazyCommand(
        "cmbs.cli.finding:inbox",
        "List what waits for a person in every space: approvals, executions in doubt, changes for a second operator.",
    ),
    "webhooks": LazyCommand(
        "cmbs.cli.webhooks:app", "Endpoints that are told what happens: register, list, test, end."
    ),
    "follow": LazyCommand("cmbs.cli.follow:follow", "Print what happens on a server while it happens."),
    "diff": LazyCommand("cmbs.cli.history:diff", "Print what happened between two events of a session or a space."),
    "fork": LazyCommand("cmbs.cli.history:fork", "Open a session that begins as another one was right after an event."),
    "contradiction": LazyCommand(
        "cmbs.cli.history:contradiction",
        "Say which reports to doubt where nothing is left of a session. Exit code 1 where there is a contradiction.",
    ),
    "sources": LazyCommand(
        "cmbs.cli.history:sources",
        "Print what each source of a session eliminated, alone and after others, and where sources agree.",
    ),
    "verifier": LazyCommand(
        "cmbs.cli.verifier:verifier",
        "Write the offline verifier: one file that checks exports and proofs without cmbs.",
    ),
    "analyse": LazyCommand(
        "cmbs.cli.analysis:analyse_", "Say what a session's path was worth: bits, redundancy, luck and regret."
    ),
    "bench": LazyCommand("cmbs.cli.analysis:bench", "Compare agents."),
    "declare": LazyCommand("cmbs.cli.observing:declare", "Open a session over a kit on record, and print its id."),
    "observe": LazyCommand(
        "cmbs.cli.observing:observe", "Tell a session what was seen. Its kit works out what that rules out."
    ),
    "probes": LazyCommand(
        "cmbs.cli.observing:probes", "Print what is worth asking next, the best first, and what was asked already."
    ),
    "kit": LazyCommand("cmbs.cli.kit_group:app", "Domains as files: hypotheses and the probes that tell them apart."),
    "policy": LazyCommand("cmbs.cli.policy:app", "Test, look through, explain and try out policies of spaces."),
    "case": LazyCommand(
        "cmbs.cli.case:app", "List, open, change, name and close cases: investigations, and the spaces where they act."
    ),
    "space": LazyCommand("cmbs.cli.space:app", "List and withdraw what waits in a space, and set how it is governed."),
    "mcp": LazyCommand("cmbs.cli.mcp:mcp", "Serve belief and action to an agent, over MCP on standard streams."),
    "hook": LazyCommand(
        "cmbs.cli.hook:hook",
        "Decide about one call of a coding agent: reads the host's event, prints the host's answer.",
    ),
    "gateway": LazyCommand("cmbs.cli.gateway:app", "Stand in front of MCP servers: every call is a proposal first."),
    "decide": LazyCommand("cmbs.cli.decide:decide", "Decide for other MCP gateways: Docker's, ToolHive, agentgateway."),
    "tee": LazyCommand("cmbs.cli.tee:app", "The causal graph that hypotheses come from."),
    "play": LazyCommand("cmbs.cli.play:app", "Games, played on a real belief server."),
    "version": LazyCommand("cmbs.cli.app:version", "Print the version."),
}


def load_command(name: str) -> Any:
    """Import a command of the table."""
    command = COMMANDS[name]
    target = _import(command.target)
    holder = typer.Typer(pretty_exceptions_enable=False)
    if isinstance(target, typer.Typer):
        holder.add_typer(target, name=name)
    else:
        holder.command(name, cls=_import(command.kind))(target)
    return typer.main.get_group(holder).commands[name]


def _import(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


class LazyGroup(TyperGroup):
    """A group that knows its commands by their help and imports the one that is run."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.commands = {name: TyperCommand(name, help=each.help) for name, each in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command itself instead of its line of help; shell completion asks here too."""
        # Any: the types of click come from click or from a copy inside typer, depending on the version of typer.
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if name is None else load_command(name), rest


def version() -> None:
    """Print the version."""
    print(cmbs.__version__)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


app = typer.Typer(name="cmbs", cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """The epistemic control plane for AI agents."""
