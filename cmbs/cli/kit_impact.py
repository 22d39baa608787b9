"""`cmbs kit impact`: what a change of a kit would have made of the past."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from cmbs.belief.kernel.events import read_event
from cmbs.belief.kernel.kit_stream import hash_document
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import existing_store, exiting_with_two, format_count, out, read_input
from cmbs.cli.past import check_there, read_in_parts
from cmbs.cli.policy_output import show_impact
from cmbs.documents.nodes import MAX_BYTES
from cmbs.errors import InvalidRequest
from cmbs.kit.model import Kit
from cmbs.kit.parse import parse_kit
from cmbs.spi.audit_log import SPACE_PREFIX
from cmbs.stores import Store
from cmbs.substrate.kernel.insight.impact import Impact, impact_of_readings
from cmbs.substrate.kernel.insight.kit_impact import (
    EliminationChange,
    KitImpact,
    KitOrigin,
    SessionImpact,
    SessionUnderKit,
    compare_origin,
)
from cmbs.substrate.kernel.model import BeliefReading
from cmbs.tee.access import visible

_STREAMS_PER_READ = 500


def impact(
    old: Annotated[Path, typer.Argument(help="The kit that sessions were declared from.", metavar="OLD")],
    new: Annotated[Path, typer.Argument(help="The kit to try on them.", metavar="NEW")],
    store: Annotated[
        str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")
    ] = DEFAULT_STORE,
    space: Annotated[
        list[str] | None, typer.Option("--space", help="Look at this space only; may be repeated.", metavar="ID")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON document.")] = False,
) -> None:
    """Ask another version of a kit what every recorded answer rules out, and decide again what rested on that.

    Exit code 0 where nothing would have been otherwise, 1 where something would, 2 where that could not be found out.
    """
    with exiting_with_two():
        data = read_input(old, MAX_BYTES)
        kits = parse_kit(data, str(old)).kit, parse_kit(read_input(new, MAX_BYTES), str(new)).kit
        if kits[0].kit_id != kits[1].kit_id:
            raise InvalidRequest(f"`{kits[0].kit_id}` and `{kits[1].kit_id}` are two kits, not versions of one")
        with closing(existing_store(store)) as opened:
            found = _find(opened, *kits, hash_document(data.decode()), space)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        sys.stdout.buffer.flush()
    else:
        _show(found)
    if found.is_other or not found.is_known:
        raise typer.Exit(1 if found.is_other else 2)


def _find(store: Store, old: Kit, new: Kit, content_hash: str, spaces: list[str] | None) -> KitImpact:
    sessions: dict[str, SessionUnderKit] = {}
    n_other_content = 0
    for session_id, origin in _compare_origins(store, old, content_hash):
        if origin is KitOrigin.THIS:
            sessions[session_id] = SessionUnderKit(session_id, store.read(session_id), old, new)
        n_other_content += origin is KitOrigin.OTHER_CONTENT

    def reread(reading: BeliefReading) -> BeliefReading | None:
        session = sessions.get(reading.session_id)
        return reading if session is None else session.reread(reading)

    names = _spaces_of(store) if spaces is None else iter(spaces)
    impacts = [
        impact_of_readings(name, check_there(read_in_parts(store, SPACE_PREFIX + name), name), reread) for name in names
    ]
    looked_at = [session.impact for session in sessions.values()]
    return KitImpact(
        old.kit_id,
        old.version,
        new.version,
        len(looked_at),
        [each for each in looked_at if each.is_other],
        impacts,
        {each.session_id: each.unexplained for each in looked_at if each.unexplained},
        n_other_content,
    )


def _compare_origins(store: Store, kit: Kit, content_hash: str) -> Iterator[tuple[str, KitOrigin]]:
    """Every session, and whether it was declared from a kit."""
    after: tuple[str, str] | None = None
    while page := store.sessions(after, _STREAMS_PER_READ):
        for each in page:
            declared = read_event(store.read(each.session_id, limit=1)[0])
            yield each.session_id, compare_origin(declared, kit, content_hash)
        after = page[-1].created_ts, page[-1].session_id


def _spaces_of(store: Store) -> Iterator[str]:
    after: str | None = None
    while page := store.streams(SPACE_PREFIX, after, _STREAMS_PER_READ):
        yield from (name.removeprefix(SPACE_PREFIX) for name in page)
        after = page[-1]


def _show(found: KitImpact) -> None:
    for session in found.sessions:
        out.print(visible(_describe_session(session)))
        for change in session.changes:
            out.print(visible(f"    seq {change.seq}  {change.probe_id}: {_describe_change(change)}"))
    for session_id, seqs in found.unexplained.items():
        numbers = ", ".join(map(str, seqs))
        out.print(visible(f"{session_id}: the old kit does not explain what seq {numbers} eliminated"))
    for each in found.spaces:
        _show_space(each)
    if found.sessions_of_other_content:
        sessions = format_count(found.sessions_of_other_content, "session")
        told = f"{sessions} not looked at: declared from another content of {found.kit_id} {found.old_version}"
        out.print(visible(f"{told}; `cmbs kit show` prints the one on record"))
    if not found.sessions_looked_at:
        out.print(visible(f"no session was looked at: none was declared from this content of {found.kit_id}"))
    sessions = f"{format_count(found.sessions_looked_at, 'session')}, {len(found.sessions)} otherwise"
    out.print(visible(f"{found.kit_id} {found.old_version} → {found.new_version}: {sessions}"))


def _describe_session(session: SessionImpact) -> str:
    survivors = f"{session.n_survivors} → {session.n_survivors_otherwise} survivors"
    parts = [f"{len(session.changes)} of {format_count(session.eliminations, 'elimination')} otherwise", survivors]
    parts += [f"more hypotheses: {', '.join(session.hypotheses_added)}"] if session.hypotheses_added else []
    parts += [f"fewer hypotheses: {', '.join(session.hypotheses_removed)}"] if session.hypotheses_removed else []
    return f"{session.session_id}: {'; '.join(parts)}"


def _describe_change(change: EliminationChange) -> str:
    if change.refused is not None:
        return f"refused: {change.refused}"
    lines = [f"no longer {', '.join(change.no_longer)}"] if change.no_longer else []
    return "; ".join([*lines, *([f"also {', '.join(change.also)}"] if change.also else [])])


def _show_space(impact: Impact) -> None:
    if impact.decisions:
        out.print(visible(f"space {impact.space_id}:"))
        show_impact(impact)
