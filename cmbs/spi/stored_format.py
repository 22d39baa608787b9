"""The marks that every store carries, and the refusal of a store that carries others."""

from __future__ import annotations

import hashlib
import re

from cmbs.ledger import format as known

_OWN_SOFTWARE = "start with an empty store, or use the cmbs that wrote it"


class StoreRefused(Exception):
    """A store that this software does not read: what it is, and what to do next. Nothing of it was changed."""

    def __init__(self, what: str, next_step: str) -> None:
        super().__init__(f"{what}; nothing was changed: {next_step}")
        self.what = what
        self.next_step = next_step


def refuse_earlier() -> StoreRefused:
    """The refusal of what software wrote that knew none of these marks."""
    return StoreRefused(
        "it was written by cmbs before its first format was fixed, and this software does not read it", _OWN_SOFTWARE
    )


def refuse_format(stored: object) -> StoreRefused:
    """The refusal of a format with a name that is not known here; the earlier ones had no name."""
    if re.fullmatch("cmbs/(?:[2-9]|[1-9][0-9]+)", str(stored), re.ASCII) is None:
        return StoreRefused(
            f"it has the unknown format `{stored}`, and this software reads `{known.FORMAT}` alone",
            "restore a backup, or use the software that wrote it",
        )
    return StoreRefused(
        f"it has the format `{stored}`, which is newer than this software, which reads `{known.FORMAT}` alone",
        "use the version of cmbs that wrote it, or a newer one",
    )


def refuse_foreign() -> StoreRefused:
    """The refusal of what is not ours."""
    return StoreRefused("it belongs to another application", "name a store of cmbs, or a new one")


def refuse_other_kind(found: str, wanted: str) -> StoreRefused:
    """The refusal of a store of ours that is for something else."""
    return StoreRefused(f"it is {found}, and not {wanted}", f"name {wanted}, or a new one")


def refuse_unmarked() -> StoreRefused:
    """The refusal of a store that lost its marks."""
    return StoreRefused("it does not say which format it has, as every store of cmbs does", "restore a backup")


def log_marks(layout: str) -> tuple[str, str]:
    """What a new log is marked with: the name of the format, and the fingerprint of its entries and its tables.

    `layout` is the script that makes the tables.
    """
    return known.FORMAT, f"{known.FINGERPRINT}:{_hash_layout(layout)}"


def graph_marks(layout: str) -> tuple[str, str]:
    """What a new graph is marked with: no entries are in it, so the fingerprint is that of its tables."""
    return known.FORMAT, _hash_layout(layout)


def _hash_layout(layout: str) -> str:
    return hashlib.sha256(layout.encode()).hexdigest()[:16]


def refuse_other_marks(stored: tuple[object, ...], expected: tuple[str, ...]) -> None:
    """StoreRefused where the marks of a store are not the expected ones."""
    if stored[0] != expected[0]:
        raise refuse_format(stored[0])
    if stored != expected:
        raise StoreRefused(describe_other_fingerprint(stored[1], expected[1]), _OWN_SOFTWARE)


def describe_other_fingerprint(found: object, expected: str) -> str:
    """What is said of something that has this format by name, and another one by its fingerprint."""
    return (
        "it was written by another development version of cmbs before the first release, with other types of entries"
        f" or other tables (fingerprint `{found}`, and here it is `{expected}`)"
    )
