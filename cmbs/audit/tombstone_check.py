"""The tables of an elimination store: what a log says of them, or the seal of a session that has no log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from cmbs.spi.stored_rows import SEALS, TOMBSTONES, UNIVERSES, Finding, Row, RowsBeside, StoredRows, differ, find_value
from cmbs.stores.tombstones import digest_ids, read_universe, seal_digests, write_universe


def check_logged(
    rows: StoredRows, stream_id: str, beside: RowsBeside, universe: Sequence[str], eliminated: Mapping[str, int]
) -> Iterator[Finding]:
    """What is wrong with the universe and the tombstones of a stream whose log declares and eliminates these."""
    stored = beside.universe
    if stored is not None and stored["hypothesis_ids"] != write_universe(frozenset(universe)):
        yield Finding("the stored universe is not the declared one", UNIVERSES, stream_id, column="hypothesis_ids")
    gone = dict.fromkeys(_as_text(row["hypothesis_id"]) for row in beside.tombstones)
    for hypothesis_id in gone:
        if hypothesis_id not in eliminated:
            what = f"`{hypothesis_id}` has a tombstone, and no event eliminated it"
            yield Finding(what, TOMBSTONES, stream_id, column="hypothesis_id")
        elif stored is None and not rows.logs_have_tombstones:
            # Others are from before the log, when the session had none here.
            what = f"the tombstone of `{hypothesis_id}` does not belong here: its entry has it"
            yield Finding(what, TOMBSTONES, stream_id)
    if rows.logs_have_tombstones:
        for hypothesis_id in sorted(eliminated.keys() - gone):
            yield Finding(f"`{hypothesis_id}` was eliminated, and has no tombstone", TOMBSTONES, stream_id)


def check_sealed(rows: StoredRows, session_id: str, beside: RowsBeside, *, logged: bool) -> Iterator[Finding]:
    """What is wrong with the universe, the tombstones and the seal of a session, as far as no log speaks of them."""
    if not logged:
        for row in beside.tombstones:
            yield from _check_types(rows, session_id, row)
            if beside.universe is None and beside.seal is None:
                what = f"the tombstone of `{_as_text(row['hypothesis_id'])}` is of no session"
                yield Finding(what, TOMBSTONES, session_id, column="session_id")
    if rows.logs_have_tombstones:
        return
    universe, seal = beside.universe, beside.seal
    if universe is not None and seal is not None:
        yield from _check_seal(session_id, beside.tombstones, universe, seal)
    elif universe is not None:
        # Which of the two is wrong cannot be told.
        yield Finding("there is no seal of it", UNIVERSES, session_id, column="session_id")
        yield Finding("the row is missing", SEALS, session_id)
    elif seal is not None and _is_sound(session_id, seal):
        yield Finding("the row is missing", UNIVERSES, session_id)
    elif seal is not None:
        yield Finding("it is the seal of another session", SEALS, session_id, column="session_id")


def _check_types(rows: StoredRows, session_id: str, row: Row) -> Iterator[Finding]:
    stored, expected = row["hypothesis_id"], rows.expect_tombstone(session_id, _as_text(row["hypothesis_id"]))
    if differ(stored, expected["hypothesis_id"]):
        yield find_value(TOMBSTONES, session_id, None, "hypothesis_id", (stored, expected["hypothesis_id"]))


def _check_seal(session_id: str, tombstones: Sequence[Row], universe: Row, seal: Row) -> Iterator[Finding]:
    known = _read_universe(universe["hypothesis_ids"])
    if known is None:
        yield Finding("it is not the list of ids that was written", UNIVERSES, session_id, column="hypothesis_ids")
        return
    gone = [_as_text(row["hypothesis_id"]) for row in tombstones]
    for hypothesis_id in gone:
        if hypothesis_id not in known:
            what = f"`{hypothesis_id}` has a tombstone, and is not in the universe"
            yield Finding(what, TOMBSTONES, session_id, column="hypothesis_id", stored=hypothesis_id)
    true = seal_digests(session_id, digest_ids(known), digest_ids(gone))
    if not _is_sound(session_id, seal):
        for column, expected in true._asdict().items():
            if differ(seal[column], expected):
                yield find_value(SEALS, session_id, None, column, (seal[column], expected))
        return
    if seal["universe_digest"] != true.universe_digest:
        yield Finding("it is not the universe that was sealed", UNIVERSES, session_id, column="hypothesis_ids")
    if seal["tombstones_digest"] != true.tombstones_digest:
        yield Finding("they are not the tombstones that were sealed", TOMBSTONES, session_id)


def _read_universe(stored: object) -> frozenset[str] | None:
    """The ids of a universe that is written as this software writes it; None otherwise."""
    if not isinstance(stored, bytes):
        return None
    try:
        known = read_universe(stored)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return known if write_universe(known) == stored else None


def _is_sound(session_id: str, seal: Row) -> bool:
    """Whether a seal fits itself and its name: then it is what it was, and what it speaks of is not."""
    universe_digest, tombstones_digest = seal["universe_digest"], seal["tombstones_digest"]
    if not (isinstance(universe_digest, bytes) and isinstance(tombstones_digest, bytes)):
        return False
    return seal_digests(session_id, universe_digest, tombstones_digest).digest == seal["digest"]


def _as_text(value: object) -> str:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)
