"""Which field of which session a reference reads, by its text: of a fixed session, or of the one of the case."""

from __future__ import annotations

from typing import NamedTuple

_FIXED = "$belief."
_OF_CASE = "$case.belief"
_INDEPENDENT = "independent"


class BeliefField(NamedTuple):
    """A field and the beginning of the reference that it is read by, which all fields of the same session share."""

    owner: str
    field: str

    @property
    def owners_of_less(self) -> tuple[str, ...]:
        """The owners with no more survivors than this one: what an actor eliminated itself leaves fewer."""
        return (self.owner, _OF_CASE) if self.owner == f"{_OF_CASE}.{_INDEPENDENT}" else (self.owner,)


def belief_field(reference: str) -> BeliefField | None:
    """What a reference reads of the belief plane; None where it reads something else."""
    if reference.startswith(_FIXED):
        # A session id may have dots of its own; a field has none.
        owner, _, field = reference.rpartition(".")
        return BeliefField(owner, field)
    if not reference.startswith(_OF_CASE + "."):
        return None
    owner, rest = _OF_CASE, reference.removeprefix(_OF_CASE + ".")
    if rest.startswith(_INDEPENDENT + "."):
        owner, rest = f"{_OF_CASE}.{_INDEPENDENT}", rest.removeprefix(_INDEPENDENT + ".")
    # What was declared of the one that is left is there where that is.
    return BeliefField(owner, rest.partition(".")[0])
