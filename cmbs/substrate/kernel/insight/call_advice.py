"""What to do about a call whose tool, args, idempotency key or capability token is not good. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

import jsonschema_rs
import msgspec

from cmbs.messages import Actor
from cmbs.refusals import MAX_FAULTS, MAX_LISTED, Fault, Refusal, find_nearest, quote, refuse_faults, show_value
from cmbs.substrate.kernel.arbitration.capabilities import (
    Demand,
    TokenLine,
    in_scope,
    is_exhausted,
    token_line,
    use_fault,
)
from cmbs.substrate.kernel.insight.refused import Refused
from cmbs.substrate.kernel.model import Budget, CandidateDecision, Capability, ReasonCode, Spent, ToolCall
from cmbs.substrate.kernel.policy.references import MISSING, walk
from cmbs.substrate.kernel.policy.schemas import SchemaFault, compile_schema_text
from cmbs.substrate.kernel.state import Space

_TOKEN_FIELD = "capability_token_id"  # noqa: S105 - the name of a field
_MAX_TOKENS = 5


def call_at(refused: Refused, decided: CandidateDecision) -> ToolCall:
    """The call that was decided: these reasons never concern a delta."""
    return cast("ToolCall", refused.proposal.candidates[decided.candidate])


def _decode_args(call: ToolCall) -> Any:
    try:
        return msgspec.json.decode(call.args)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MISSING


# --- the tool ---------------------------------------------------------------------------------------------------------


def advise_on_unknown_tool(refused: Refused, decided: CandidateDecision) -> Refusal:
    """There is no such tool, or no longer: name those that are nearest, or all where they are few."""
    tool_id = call_at(refused, decided).tool_id
    usable = sorted(name for name, tool in refused.space.tools.items() if not tool.retired)
    nearest = find_nearest(tool_id, usable)
    offered = nearest or (usable if len(usable) <= MAX_LISTED else [])
    what = "no longer offered" if decided.reason_code is ReasonCode.TOOL_RETIRED else "not a tool of this space"
    step = f"call {quote(offered)} instead" if offered else "read the list of tools of this space, and call one of them"
    return Refusal(
        code=decided.reason_code,
        message=f"`{tool_id}` is {what}",
        next=f"{step}, or ask an operator to register it",
        field="tool_id",
        found=tool_id,
        accepted=offered or None,
    )


def advise_on_args(refused: Refused, decided: CandidateDecision) -> Refusal:
    """The arguments that do not fit the schema of the tool, several at a time, each with the rule that it breaks."""
    call = call_at(refused, decided)
    faults = list(_find_arg_faults(refused.space, call))
    if not faults:
        # The tool was registered anew since.
        faults = [Fault("args", f"the args did not fit the schema of `{call.tool_id}`, which is another by now")]
    return refuse_faults(decided.reason_code, faults, "correct the args, and propose the call again")


def _find_arg_faults(space: Space, call: ToolCall) -> Iterator[Fault]:
    tool, args = space.tools[call.tool_id], _decode_args(call)
    if not isinstance(args, dict):
        yield Fault("args", "the args must be a JSON object", accepted={"type": "object"})
        return
    try:
        validator = compile_schema_text(bytes(tool.args_schema))
    except SchemaFault as exc:
        yield Fault("args", f"no args can fit the schema of `{call.tool_id}`: {exc}")
        return
    schema = msgspec.json.decode(tool.args_schema)
    for error in islice(validator.iter_errors(args), MAX_FAULTS):
        yield from _describe_error(error, schema)


def _describe_error(error: jsonschema_rs.ValidationError, schema: Any) -> Iterator[Fault]:
    path = "args" + "".join(f".{segment}" for segment in error.instance_path)
    holder = walk(schema, tuple(map(str, error.schema_path[:-1])))
    rule = holder.get(error.kind.name, MISSING) if isinstance(holder, dict) else MISSING
    named = holder.get("properties", {}) if isinstance(holder, dict) else {}
    match error.kind:
        case jsonschema_rs.ValidationErrorKind.Required(property=name):
            yield Fault(f"{path}.{name}", f"`{path}.{name}` is missing", accepted=named.get(name))
        case jsonschema_rs.ValidationErrorKind.AdditionalProperties(unexpected=names):
            for name in names:
                nearest = find_nearest(name, named)
                hint = f", did you mean {quote(nearest)}" if nearest else ""
                yield Fault(f"{path}.{name}", f"`{path}.{name}` is not an argument{hint}", name, sorted(named))
        case _:
            accepted = None if rule is MISSING else show_value({error.kind.name: rule})
            found = show_value(error.instance)
            yield Fault(path, f"`{path}` is {_text(found)}, and must fit {_text(accepted)}", found, accepted)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def advise_on_missing_key(refused: Refused, decided: CandidateDecision) -> Refusal:
    """The tool has effects, so a call of it needs a name of its own."""
    return Refusal(
        code=decided.reason_code,
        message=f"`{call_at(refused, decided).tool_id}` has effects, so a call of it needs an idempotency key",
        next="send any text that names this call, and the same text when you send the call again",
        field="idempotency_key",
        accepted={"type": "string", "minLength": 1},
    )


def advise_on_key_conflict(refused: Refused, decided: CandidateDecision) -> Refusal:
    """The key is that of a call with other args, or under another token."""
    call = call_at(refused, decided)
    return Refusal(
        code=decided.reason_code,
        message=f"idempotency key `{call.idempotency_key}` is that of another call of `{call.tool_id}`",
        next="use a new key for a new call; to repeat the first call, send its args and its token unchanged",
        field="idempotency_key",
        found=call.idempotency_key,
        accepted="a key that no call of this tool has",
    )


# --- the token --------------------------------------------------------------------------------------------------------


def find_covering_tokens(refused: Refused, call: ToolCall) -> list[str]:
    """The proposer's own tokens under which this call would pass; those that end only where the moment is known."""
    space, proposer, now = refused.space, refused.proposer, refused.now
    args = _decode_args(call)

    def covers(token: Capability) -> bool:
        line = token_line(space.capabilities, token.token_id)
        if now is None and any(each.expires_at is not None for each in line.tokens):
            return False
        if use_fault(space, line, proposer, call.tool_id, args, now or "") is not None:
            return False
        demands = ((each, _demand(refused, each, call, line)) for each in line.tokens)
        return not any(is_exhausted(space, each, demand) for each, demand in demands)

    own = (token for token in space.capabilities.values() if token.agent_id == proposer.id)
    return sorted(token.token_id for token in islice(filter(covers, own), _MAX_TOKENS))


def _demand(refused: Refused, token: Capability, call: ToolCall, line: TokenLine) -> Demand:
    """What all calls of the proposal ask of a token, where this call were made under `line`."""
    sizes = []
    for each in refused.proposal.candidates:
        if isinstance(each, ToolCall):
            used = line if each is call else token_line(refused.space.capabilities, each.capability_token_id)
            sizes += [len(bytes(each.args))] if token in used.tokens else []
    return Demand(len(sizes), sum(sizes))


def advise_on_token(refused: Refused, decided: CandidateDecision) -> Refusal:
    """No token, or one that is not good for this call: name the proposer's own tokens that are."""
    call = call_at(refused, decided)
    line = token_line(refused.space.capabilities, call.capability_token_id)
    token_id = call.capability_token_id
    covering = find_covering_tokens(refused, call)
    if covering:
        step = f"send the call under {quote(covering)}"
    else:
        step = f"ask an operator for a token that covers this call of `{call.tool_id}`"
    faults = list(_find_token_faults(refused, decided.reason_code, call, line)) or [
        Fault(_TOKEN_FIELD, f"token `{token_id}` was not good for this call", token_id)
    ]
    made = refuse_faults(decided.reason_code, faults, step)
    if made.field == _TOKEN_FIELD:
        return msgspec.structs.replace(made, accepted=covering or None)
    return made


def _find_token_faults(refused: Refused, code: ReasonCode, call: ToolCall, line: TokenLine) -> Iterator[Fault]:
    token_id, tool_id = call.capability_token_id, call.tool_id
    match code:
        case ReasonCode.CAPABILITY_REQUIRED:
            yield Fault(_TOKEN_FIELD, f"a call of `{tool_id}` needs a capability token")
        case ReasonCode.CAPABILITY_UNKNOWN:
            yield Fault(_TOKEN_FIELD, f"there is no token `{token_id}`", token_id)
        case ReasonCode.CAPABILITY_OTHER_AGENT:
            whose = _name(refused.proposer)
            yield Fault(_TOKEN_FIELD, f"token `{token_id}` was not issued to {whose}", token_id)
        case ReasonCode.CAPABILITY_SCOPE:
            yield from _find_scope_faults(line.tokens, call)
        case ReasonCode.BUDGET_EXHAUSTED:
            yield from _find_budget_faults(refused, call, line)
        case _:
            for token in line.tokens:
                fault = _describe_token_fault(refused, code, token, tool_id)
                if fault is not None:
                    yield Fault(_TOKEN_FIELD, f"token `{token.token_id}` {fault}", token.token_id)


def _describe_token_fault(refused: Refused, code: ReasonCode, token: Capability, tool_id: str) -> str | None:
    """Why one token of a line is not good, where it is the one that this code is about."""
    if code is ReasonCode.CAPABILITY_EXPIRED:
        ends, now = token.expires_at, refused.now
        return f"expired at {ends}" if ends is not None and (now is None or now >= ends) else None
    if code is ReasonCode.CAPABILITY_REVOKED:
        return "was revoked" if token.token_id in refused.space.revoked else None
    return None if tool_id in token.tool_ids else f"covers {quote(token.tool_ids)}, not `{tool_id}`"


def _find_scope_faults(tokens: Iterable[Capability], call: ToolCall) -> Iterator[Fault]:
    args = _decode_args(call)
    for token in tokens:
        for scope in token.scopes:
            if not in_scope(scope, args):
                value = walk(args, tuple(scope.path.split(".")))
                accepted = {scope.match.value: scope.value}
                found = None if value is MISSING else show_value(value)
                told = "missing" if value is MISSING else _text(found)
                field = f"args.{scope.path}"
                message = f"`{field}` is {told}, and token `{token.token_id}` allows {_text(accepted)} only"
                yield Fault(field, message, found, accepted)


def _find_budget_faults(refused: Refused, call: ToolCall, line: TokenLine) -> Iterator[Fault]:
    for token in line.tokens:
        spent, budget = refused.space.spent.get(token.token_id, Spent()), token.budget
        demand = _demand(refused, token, call, line)
        needed = Spent(spent.calls + demand.calls, spent.bytes + demand.bytes, spent.wall_ms + 1)
        for name in Budget.__struct_fields__:
            limit, used = getattr(budget, name), getattr(needed, name)
            if limit is not None and used > limit:
                gone = getattr(spent, name)
                message = (
                    f"token `{token.token_id}` has {gone} of {limit} {name} spent, and this needs {used - gone} more"
                )
                yield Fault(f"budget.{name}", message, used, {"maximum": limit})


def _name(actor: Actor) -> str:
    return f"{actor.kind.value} `{actor.id}`"
