"""What a policy file would have made of a space's past, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from cmbs.api.entries import RecordedActor
from cmbs.api.impact import DecidingRule, FlipItem, ImpactDecision, PolicyImpact
from cmbs.belief.server import BeliefServer
from cmbs.errors import LimitExceeded, SessionNotFound
from cmbs.http.exchange import Request, Response, encode_answer
from cmbs.http.spaces.policy_files import compile_sound_source, source_of
from cmbs.http.spaces.reading import PageSize, Spaces, require_operator
from cmbs.http.work_queue import WorkQueue
from cmbs.ledger import StoredEntry
from cmbs.substrate.kernel.events import PolicySource
from cmbs.substrate.kernel.insight.impact import Impact, PolicyFlip, impact_of
from cmbs.substrate.kernel.insight.past_belief import PastBelief
from cmbs.substrate.kernel.model import Decision
from cmbs.substrate.kernel.policy.policy import compile_policy
from cmbs.substrate.kernel.policy.source_map import SourceMap
from cmbs.substrate.pace import Pace


class PolicyImpactRoutes:
    """The handler. A past may be long, so it waits its turn in the queue of analyses."""

    def __init__(self, spaces: Spaces, page_size: PageSize, queue: WorkQueue) -> None:
        self._spaces = spaces
        self._page_size = page_size
        self._queue = queue

    async def policy_impact(self, request: Request) -> Response:
        """Decide the past of a space again under the file that was sent."""
        query = request.query
        require_operator(request.actor)
        limit = self._page_size(query.get("limit"))
        work = partial(self._try, request.params["space_id"], source_of(request.message), limit)
        return Response(200, await self._queue.run(request, work))

    def _try(self, space_id: str, source: PolicySource, limit: int, pace: Pace) -> bytes:
        compiled = compile_sound_source(source)
        maximum = self._spaces.belief.requests.limits.analysis_events
        entries = self._spaces.server.stored_entries(space_id, -1, maximum + 1)
        _require_short(entries, maximum)
        belief = PastBelief(partial(_read_session, self._spaces.belief, maximum), complete=True)
        found = impact_of(space_id, _pace(entries, pace), compile_policy(compiled.pairs), belief.at)
        return encode_answer(_show(found, compiled.source_map, limit))


def _pace(entries: list[StoredEntry], pace: Pace) -> Iterator[StoredEntry]:
    """The entries, one after the other, as long as there is time; LimitExceeded where that runs out."""
    for each in entries:
        if not pace.may_go_on():
            maximum = round(pace.seconds * 1_000)
            raise LimitExceeded("analysis_ms", maximum, maximum + 1)
        yield each


def _read_session(belief: BeliefServer, maximum: int, session_id: str) -> list[StoredEntry]:
    try:
        entries = belief.stored_entries(session_id, None, maximum + 1)
    except SessionNotFound:
        return []
    _require_short(entries, maximum)
    return entries


def _require_short(entries: list[StoredEntry], maximum: int) -> None:
    if len(entries) > maximum:
        raise LimitExceeded("analysis_events", maximum, len(entries))


def _show(found: Impact, source_map: SourceMap, limit: int) -> PolicyImpact:
    return PolicyImpact(
        old_policy_hash=found.old_policy_hash,
        new_policy_hash=found.new_policy_hash,
        decisions=found.decisions,
        counts=found.counts(),
        otherwise=found.otherwise,
        n_flips=len(found.flips),
        flips=[_show_flip(each, source_map) for each in found.flips[:limit]],
        n_unknown=len(found.unknown),
        unknown=found.unknown[:limit],
        timeline=found.timeline,
    )


def _show_flip(flip: PolicyFlip, source_map: SourceMap) -> FlipItem:
    changes = flip.touched.changes
    return FlipItem(
        flip.kind,
        flip.seq,
        flip.event_id,
        flip.ts,
        flip.verb,
        flip.proposal_id,
        RecordedActor(flip.actor.kind, flip.actor.id, flip.actor.authenticated, flip.actor.key_id),
        _show_decision(flip.before, None),
        _show_decision(flip.after, source_map),
        changes.set,
        list(changes.unset),
        flip.touched.tool_ids,
    )


def _show_decision(decision: Decision, source_map: SourceMap | None) -> ImpactDecision:
    keys = sorted({key for each in decision.candidates for key in each.matched})
    rules = [_show_rule(key, source_map) for key in keys]
    return ImpactDecision(decision.verdict, decision.reason_code, decision.failure, rules)


def _show_rule(key: str, source_map: SourceMap | None) -> DecidingRule:
    origin = None if source_map is None else source_map.find(key)
    if origin is None:
        return DecidingRule(key)
    return DecidingRule(key, origin.line, origin.column, origin.rule, origin.condition)
