"""What a session that is taken over from elsewhere must fit."""

from __future__ import annotations

from cmbs.belief.kernel.session import Session
from cmbs.errors import InvalidRequest, LedgerCorrupt
from cmbs.spi import RecoveredState, is_reserved


def refuse_reserved(session_id: str) -> None:
    """Raise InvalidRequest for a name that no session may have."""
    if is_reserved(session_id):
        raise InvalidRequest(f"`{session_id}` is the name of another kind of stream", {"session_id": session_id})


def refuse_misfit(session: Session, recovered: RecoveredState) -> None:
    """Raise LedgerCorrupt where a store's state is not the one that the log leads to."""
    universe, survivors = frozenset(session.universe.ids), frozenset(session.survivors)
    misfits = {
        "hypothesis_ids": universe != recovered.hypothesis_ids,
        "survivors": survivors != recovered.survivors,
        "eliminated": universe - survivors != recovered.eliminated,
    }
    for name, wrong in misfits.items():
        if wrong:
            reason = f"the recovered `{name}` are not those that the log leads to"
            raise LedgerCorrupt(session.session_id, session.head.seq, reason, session.head_event_id)
