"""The analysis of a session over HTTP."""

from __future__ import annotations

from functools import cached_property

import msgspec
from msgspec import UnsetType

from cmbs.adapters.kits import choose_kit, find_installed_kits
from cmbs.analysis import KitStudy, Trajectory, analyse, trajectory_of
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidKit, InvalidRequest, LimitExceeded
from cmbs.http.exchange import Request
from cmbs.http.work_queue import WorkQueue
from cmbs.kit import Kit, KitProvider
from cmbs.ledger import to_audit_entry

_MAX_KITS_NAMED = 20


class Analyst:
    """Analyses sessions, with a kit where there is one that fits."""

    def __init__(self, server: BeliefServer, queue: WorkQueue) -> None:
        self._server = server
        self._queue = queue

    async def analysis(self, request: Request, session_id: str, kit_id: str | None, truth: str | None) -> bytes:
        """Return the analysis as JSON; TransportError if the queue is full."""
        return await self._queue.run(request, lambda _: self._analyse(session_id, kit_id, truth))

    @cached_property
    def _kits(self) -> dict[str, Kit]:
        """The kits by id, loaded for the first analysis."""
        provider = self._server.belief_provider
        own = {provider.kit.kit_id: provider.kit} if isinstance(provider, KitProvider) else {}
        return {**find_installed_kits(), **own}

    def _analyse(self, session_id: str, kit_id: str | None, truth: str | None) -> bytes:
        limits = self._server.requests.limits
        entries = self._server.stored_entries(session_id, None, limits.analysis_events + 1)
        if len(entries) > limits.analysis_events:
            raise LimitExceeded("analysis_events", limits.analysis_events, len(entries))
        trajectory = trajectory_of(map(to_audit_entry, entries))
        kit = self._find_recorded(session_id, kit_id) or self._select_kit(trajectory, kit_id)
        try:
            study = None if kit is None else KitStudy(kit)
            return msgspec.json.encode(analyse(trajectory, study, truth, limits.analysis_steps))
        except InvalidKit as exc:
            raise InvalidRequest(str(exc)) from exc

    def _find_recorded(self, session_id: str, kit_id: str | None) -> Kit | None:
        """The kit on record that the session is over, unless another one is asked for."""
        reference = self._server.current_session(session_id).provider
        if reference is None or isinstance(reference.content_hash, UnsetType) or kit_id not in (None, reference.id):
            return None
        kit = self._server.kits.find_content(reference)
        return kit if isinstance(kit, Kit) else None

    def _select_kit(self, trajectory: Trajectory, kit_id: str | None) -> Kit | None:
        if kit_id is None:
            return choose_kit(self._kits, trajectory.space_id, trajectory.space_version, trajectory.universe)
        if kit_id not in self._kits:
            shown = ", ".join(f"`{each}`" for each in sorted(self._kits)[:_MAX_KITS_NAMED]) or "none"
            raise InvalidRequest(f"there is no kit `{kit_id}` on this server; its kits are: {shown}", {"kit": kit_id})
        return self._kits[kit_id]
