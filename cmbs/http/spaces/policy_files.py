"""Policy files over HTTP: put in force, looked through, and given back as they were written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from cmbs.api import spaces as schemas
from cmbs.api.operation import TextFile
from cmbs.documents.findings import Finding, Fix, InvalidDocument
from cmbs.errors import InvalidRequest
from cmbs.http.exchange import Request, Response, encode_answer
from cmbs.http.spaces.reading import Spaces, require_operator
from cmbs.http.work_queue import WorkQueue
from cmbs.ledger import canonical
from cmbs.substrate.kernel.events import CreateSpace, MediaType, PolicySource, ProposePolicy
from cmbs.substrate.kernel.insight.lint import lint
from cmbs.substrate.kernel.insight.lint_findings import LintFinding, Severity
from cmbs.substrate.kernel.insight.policy_tests import run_tests
from cmbs.substrate.kernel.policy.file import FILE_NAMES, CompiledPolicy, compile_file, locate_faults
from cmbs.substrate.kernel.policy.policy import hash_of, validate_policy
from cmbs.substrate.kernel.policy.source_map import SourceMap
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import PolicyChange, Space
from cmbs.substrate.kernel.words import PolicyChangeStatus
from cmbs.substrate.pace import Pace
from cmbs.substrate.policies_ahead import let_others_run
from cmbs.substrate.server import SubstrateServer

_MAX_FINDINGS_SHOWN = 20
_ID_DIGITS = 24


class PolicyFileRoutes:
    """The handlers. A file may take seconds to compile, so all of them work in a thread."""

    def __init__(self, spaces: Spaces, queue: WorkQueue) -> None:
        self._spaces = spaces
        self._queue = queue

    async def put_policy(self, request: Request) -> Response:
        """Make a file the policy of a space, at once or when another operator agrees."""
        query = request.query
        require_operator(request.actor)
        return await asyncio.to_thread(self._put, request, query)

    async def check_policy(self, request: Request) -> Response:
        """Say what a file would do, and what is wrong with it."""
        require_operator(request.actor)
        return await self._queue.run(request, partial(self._check, request))

    def _put(self, request: Request, query: dict[str, Any]) -> Response:
        server, space_id = self._spaces.server, request.params["space_id"]
        space = server.current(space_id)
        source = source_of(request.message)
        compiled = compile_source(source)
        base = query.get("base_policy_hash", space.policy.policy_hash)
        change_id = _name_change(request, source, space)
        change = space.policy_changes.get(change_id) or _find_pending(space, source, base)
        if change is None:
            to_set, to_unset = _compare(space, compiled)
            if not to_set and not to_unset and source == space.policy_source and base == space.policy.policy_hash:
                return _respond(schemas.PolicyPut(schemas.PutStatus.UNCHANGED, base, base, [], []))
            message = ProposePolicy(change_id, base, to_set, to_unset, query.get("reason", ""), source)
            change = _propose(
                server,
                SpaceCommand(space_id, request.actor, message, request.idempotency_key, request.if_match),
                compiled.source_map,
            )
        return _respond(_show_put(change, hash_of(compiled.pairs)))

    def _check(self, request: Request, pace: Pace) -> Response:
        space = self._spaces.server.current(request.params["space_id"])
        source = source_of(request.message)
        try:
            compiled = compile_file(source.text.encode(), FILE_NAMES[source.media_type], let_others_run)
        except InvalidDocument as exc:
            findings = [_show_fault(each) for each in exc.findings]
            return _respond(schemas.PolicyCheck(sound=False, findings=findings))
        tools = [each.tool_id for each in compiled.tools] if compiled.tools is not None else list(space.tools) or None
        # Tests first: they say what the author wants to know, and take no search.
        tested = run_tests(compiled, pace.may_go_on)
        report = lint(compiled.pairs, tools, pace.may_go_on)
        found = [_show_finding(each, compiled.source_map) for each in report.findings]
        to_set, to_unset = _compare(space, compiled)
        return _respond(
            schemas.PolicyCheck(
                sound=not any(each.severity is Severity.ERROR for each in report.findings),
                complete=report.complete and tested.complete,
                findings=found,
                tests=[schemas.PolicyTestItem(each.name, each.passed, each.mismatches) for each in tested.results],
                never_asked=tested.coverage.never_asked,
                policy_hash=hash_of(compiled.pairs),
                set=sorted(to_set),
                unset=to_unset,
            )
        )


def source_of(file: TextFile) -> PolicySource:
    """A file that was sent, as it is recorded."""
    return PolicySource(MediaType(file.media_type), file.text)


def compile_source(source: PolicySource) -> CompiledPolicy:
    """Compile a file; InvalidRequest has what is wrong with it, each with its place."""
    try:
        return compile_file(source.text.encode(), FILE_NAMES[source.media_type], let_others_run)
    except InvalidDocument as exc:
        raise _refuse(exc.findings) from exc


def compile_sound_source(source: PolicySource) -> CompiledPolicy:
    """As `compile_source`, and also refuse what a space would refuse."""
    compiled = compile_source(source)
    faults = validate_policy(compiled.pairs)
    if faults:
        raise _refuse(locate_faults(faults, compiled.source_map))
    return compiled


def build_creation(space_id: str, **fields: Any) -> CreateSpace:
    """The message that creates a space, from pairs or from a policy file."""
    file = fields.pop("policy_file", None)
    if file is None:
        return CreateSpace(space_id, **fields)
    if fields.get("policy"):
        raise InvalidRequest("send `policy` or `policy_file`, not both", {"field": "policy_file"})
    source = PolicySource(MediaType.JSON, msgspec.json.encode(file).decode())
    return CreateSpace(space_id, **{**fields, "policy": compile_source(source).pairs, "source": source})


def _refuse(findings: Sequence[Finding]) -> InvalidRequest:
    more = f"; and {len(findings) - 1} more in `details.findings`" if len(findings) > 1 else ""
    shown = [each.to_dict() for each in findings[:_MAX_FINDINGS_SHOWN]]
    place = findings[0].place
    where = "" if place is None else f"line {place.line}, column {place.column}: "
    return InvalidRequest(
        f"the policy file is refused: {where}{findings[0].message}{more}",
        {
            "field": ".".join(map(str, findings[0].path)) or "body",
            "accepted": "a policy file, as `docs/reference/policy-file.md` describes it",
            "next": f"mend {where.removesuffix(': ') or 'the file'}, and send the whole file again",
            "findings": shown,
        },
    )


def _propose(server: SubstrateServer, command: SpaceCommand, source_map: SourceMap) -> PolicyChange:
    try:
        answer = server.perform(command)
    except InvalidRequest as exc:
        faults = exc.details.get("faults")
        if faults is None:
            raise
        origins = [source_map.find(fault["key"], fault["at"]) for fault in faults]
        located = [
            {**fault, **({} if origin is None else msgspec.to_builtins(origin))}
            for fault, origin in zip(faults, origins, strict=True)
        ]
        first = origins[0]
        where = "" if first is None else f"line {first.line}, `{first.rule}`: "
        raise InvalidRequest(f"the policy file is refused: {where}{faults[0]['message']}", {"faults": located}) from exc
    message: Any = command.message
    return answer.space.policy_changes[message.change_id]


def _name_change(request: Request, source: PolicySource, space: Space) -> str:
    """The id of a change. A repeat under the same key is the same change; without a key every request is its own."""
    key = request.idempotency_key
    told = [request.actor.id, space.head_event_id if key is None else key, key is not None, source.text]
    return f"file-{sha256(canonical.encode(told)).hexdigest()[:_ID_DIGITS]}"


def _find_pending(space: Space, source: PolicySource, base: str) -> PolicyChange | None:
    """A change that waits already and says the same."""
    for change in space.policy_changes.values():
        if (change.status, change.source, change.base_policy_hash) == (PolicyChangeStatus.PENDING, source, base):
            return change
    return None


def _compare(space: Space, compiled: CompiledPolicy) -> tuple[dict[str, str], list[str]]:
    """What is to be set and unset to get from the policy of a space to that of a file."""
    now, then = space.policy.pairs, compiled.pairs
    return {key: text for key, text in then.items() if now.get(key) != text}, sorted(set(now) - set(then))


def _show_put(change: PolicyChange, policy_hash: str) -> schemas.PolicyPut:
    status = schemas.PutStatus(change.status.value)
    proceed = None
    if change.status is PolicyChangeStatus.PENDING:
        proceed = f"another operator authorises it: POST policy/changes/{change.change_id}/authorise"
    return schemas.PolicyPut(
        status,
        change.base_policy_hash,
        policy_hash,
        sorted(change.set),
        list(change.unset),
        change_id=change.change_id,
        next=proceed,
    )


def _show_finding(finding: LintFinding, source_map: SourceMap) -> schemas.PolicyFinding:
    origin = source_map.find(finding.key, finding.at)
    shown = schemas.PolicyFinding(finding.severity, finding.rule.value, finding.message, key=finding.key or None)
    if origin is None:
        return shown
    place = source_map.find_name(finding.key, finding.at, finding.found) if finding.accepted else None
    return msgspec.structs.replace(
        shown,
        line=origin.line,
        column=origin.column,
        name=origin.rule,
        condition=origin.condition,
        fix=None if place is None else _show_fix(Fix(place, finding.found, finding.accepted)),
    )


def _show_fault(finding: Finding) -> schemas.PolicyFinding:
    shown = schemas.PolicyFinding(Severity.ERROR, finding.rule.value, finding.message)
    place = finding.place
    if place is None:
        return shown
    fix = None if finding.fix is None else _show_fix(finding.fix)
    return msgspec.structs.replace(shown, line=place.line, column=place.column, fix=fix)


def _show_fix(fix: Fix) -> schemas.PolicyFix:
    return schemas.PolicyFix(fix.place.line, fix.place.column, fix.found, fix.accepted)


def _respond(body: Any) -> Response:
    return Response(200, encode_answer(body))
