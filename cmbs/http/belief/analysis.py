"""The analysis of a session over HTTP: bounded, and never on the event loop."""

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

_SHOWN = 20


class Analyst:
    """Analyses sessions one at a time: it is arithmetic, and a second one would only slow down what is served.

    Only so many wait for their turn. A queue without an end would keep a server at work long after those who asked
    have given up.
    """

    def __init__(self, server: BeliefServer) -> None:
        self._server = server
        self._thread: ThreadPoolExecutor | None = None
        self._unfinished: set[Future[bytes]] = set()

    async def analysis(self, session_id: str, kit_id: str | None, truth: str | None) -> bytes:
        """The analysis as JSON; a TransportError where too many wait already."""
        waiting = self._server.door.limits.analyses_waiting
        # Counted until the thread is done with it, not until somebody stops waiting for it: it may run on all the same.
        if len(self._unfinished) > waiting:
            raise TransportError(
                TransportCode.BUSY,
                f"`analyses_waiting` allows at most {waiting}, and as many wait",
                {"limit": "analyses_waiting", "maximum": waiting},
            )
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "cmbs-analysis")
        future = self._thread.submit(self._analysed, session_id, kit_id, truth)
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Let go of the thread, and of what waits for it. An application that is started again gets another."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    @cached_property
    def _kits(self) -> dict[str, Kit]:
        """Looked for when first needed: a server that nobody asks for an analysis need not load them."""
        provider = self._server.belief_provider
        own = {provider.kit.kit_id: provider.kit} if isinstance(provider, KitProvider) else {}
        return {**find_installed_kits(), **own}

    def _analysed(self, session_id: str, kit_id: str | None, truth: str | None) -> bytes:
        limits = self._server.door.limits
        entries = self._server.stored_entries(session_id, None, limits.analysis_events + 1)
        if len(entries) > limits.analysis_events:
            raise LimitExceeded("analysis_events", limits.analysis_events, len(entries))
        trajectory = trajectory_of(map(to_audit_entry, entries))
        kit = self._kit(trajectory, kit_id)
        try:
            study = None if kit is None else KitStudy(kit)
            return msgspec.json.encode(analyse(trajectory, study, truth, limits.analysis_steps))
        except InvalidKit as exc:
            raise InvalidRequest(str(exc)) from exc

    def _kit(self, trajectory: Trajectory, kit_id: str | None) -> Kit | None:
        if kit_id is None:
            return choose_kit(self._kits, trajectory.space_id, trajectory.space_version, trajectory.universe)
        if kit_id not in self._kits:
            shown = ", ".join(f"`{each}`" for each in sorted(self._kits)[:_SHOWN]) or "none"
            raise InvalidRequest(f"there is no kit `{kit_id}` here, there is {shown}", {"kit": kit_id})
        return self._kits[kit_id]
