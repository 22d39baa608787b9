"""The analysis of a session over HTTP: with a bounded queue, and never on the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

import msgspec

from cmbs.adapters.kits import choose_kit, find_installed_kits
from cmbs.analysis import KitStudy, Trajectory, analyse, trajectory_of
from cmbs.belief.server import BeliefServer
from cmbs.errors import InvalidKit, InvalidRequest, LimitExceeded
from cmbs.http.errors import TransportCode, TransportError
from cmbs.kit import Kit, KitProvider
from cmbs.ledger import to_audit_entry

_MAX_KITS_NAMED = 20


class Analyst:
    """Analyses sessions one at a time in a thread of its own, since an analysis keeps a processor busy.

    The queue is bounded, so that a server does not work on analyses whose callers have long given up.
    """

    def __init__(self, server: BeliefServer) -> None:
        self._server = server
        self._thread: ThreadPoolExecutor | None = None
        self._unfinished: set[Future[bytes]] = set()

    async def analysis(self, session_id: str, kit_id: str | None, truth: str | None) -> bytes:
        """Return the analysis as JSON; TransportError if the queue is full."""
        waiting = self._server.requests.limits.analyses_waiting
        # Counted until the thread has finished: an analysis runs on after its caller has disconnected.
        if len(self._unfinished) > waiting:
            raise TransportError(
                TransportCode.BUSY,
                f"{waiting} analyses wait already, as many as `analyses_waiting` allows; try again later",
                {"limit": "analyses_waiting", "maximum": waiting},
            )
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "cmbs-analysis")
        future = self._thread.submit(self._analyse, session_id, kit_id, truth)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Stop the thread and cancel what waits for it. The next analysis starts another thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

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
        kit = self._select_kit(trajectory, kit_id)
        try:
            study = None if kit is None else KitStudy(kit)
            return msgspec.json.encode(analyse(trajectory, study, truth, limits.analysis_steps))
        except InvalidKit as exc:
            raise InvalidRequest(str(exc)) from exc

    def _select_kit(self, trajectory: Trajectory, kit_id: str | None) -> Kit | None:
        if kit_id is None:
            return choose_kit(self._kits, trajectory.space_id, trajectory.space_version, trajectory.universe)
        if kit_id not in self._kits:
            shown = ", ".join(f"`{each}`" for each in sorted(self._kits)[:_MAX_KITS_NAMED]) or "none"
            raise InvalidRequest(f"there is no kit `{kit_id}` on this server; its kits are: {shown}", {"kit": kit_id})
        return self._kits[kit_id]
