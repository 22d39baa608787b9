"""`cmbs play …`: games that show what a belief server does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cmbs.belief.server import BeliefServer
from cmbs.cli.kit import read_or_fail
from cmbs.cli.output import failing_cleanly, format_count, out
from cmbs.tee.access import visible

app = typer.Typer(name="play", help="Games, played on a real belief server.", no_args_is_help=True)

_BAR = "█"


@app.command("20q")
def twenty_questions(
    kit_file: Annotated[
        Path | None,
        typer.Option("--kit", help="Play over another kit, in YAML or JSON.", metavar="FILE", show_default=False),
    ] = None,
    thing: Annotated[
        str | None,
        typer.Option("--oracle", help="Watch: an oracle answers for this thing.", metavar="THING", show_default=False),
    ] = None,
    turns: Annotated[int, typer.Option(min=1, max=1000, help="Questions and guesses before I give up.")] = 20,
    store: Annotated[
        str, typer.Option("--store", help="Keep the session: memory:, sqlite:///file.db, …", metavar="URL")
    ] = "memory:",
) -> None:
    """Think of an animal or a thing, and answer: I guess what it is."""
    from cmbs.adapters.twenty_questions import Game, Oracle, OraclePlayer, Person, play, things_kit
    from cmbs.kit import KitProvider
    from cmbs.stores import open_store

    kit = things_kit() if kit_file is None else read_or_fail(str(kit_file))
    say = _sayer()
    with failing_cleanly():
        player = Person(_ask, say) if thing is None else OraclePlayer(Oracle(kit, thing), say)
        server = BeliefServer(belief_provider=KitProvider(kit), store=open_store(store))
        try:
            if thing is None:
                things = format_count(len(kit.hypotheses), "thing")
                say(f"Think of something; I know {things}. Answer y, n or ? (u takes back, q quits).")
            game = Game(kit, server)
            play(game, player, say, turns)
            _prove(server, game.session_id, say)
        finally:
            server.close()


def _prove(server: BeliefServer, session_id: str, say: Callable[[str], None]) -> None:
    """Read the log of the game back: `LedgerCorrupt` where it does not lead to where the game ended."""
    from cmbs.belief.kernel.replay import verify_session

    head = server.log.head(session_id)
    proven = verify_session(session_id, server.log.read(session_id), head).head
    say(f"session {session_id}: {format_count(proven.seq + 1, 'event')}, verified, head {proven.event_hash.hex()}")


def _ask(prompt: str) -> str | None:
    """A line from the player; None at the end of the input, or where it is interrupted."""
    try:
        typed = input(visible(prompt))
    except (EOFError, KeyboardInterrupt):
        print()
        return None
    if not sys.stdin.isatty():
        # Input from a pipe is not echoed.
        print(visible(typed))
    return typed


def _sayer() -> Callable[[str], None]:
    """Prints a line, the funnel in colour; in characters that the terminal has."""
    encoding = out.encoding
    plain = not _can_show(encoding, _BAR)

    def say(line: str) -> None:
        shown = visible(line)
        if plain:
            shown = shown.replace(_BAR, "#").encode(encoding, "replace").decode(encoding)
        out.print(shown, style="cyan" if _BAR in line else None)

    return say


def _can_show(encoding: str, character: str) -> bool:
    try:
        character.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
