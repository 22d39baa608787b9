"""A call that a peer asks about: who asks, what is to be called, and a decision that is a no where anything fails."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from cmbs.calls.sentences import describe_not_made
from cmbs.client import AsyncClient
from cmbs.errors import BeliefServerError
from cmbs.ledger import canonical
from cmbs.mcp.asking import AUTHORIZATION, identify_caller
from cmbs.mcp.decisions import DecisionPoint, Verdict
from cmbs.mcp.gateway.upstream_requests import CASE_META

_log = logging.getLogger("cmbs.decide")
MAX_MESSAGE_BYTES = 4_194_304

Identity = Mapping[str, str]


class MalformedMessage(Exception):
    """A peer sent something that is not of its protocol."""


class PeerCall(NamedTuple):
    """What a peer asks about. `waits`: an approval may be waited for."""

    tool_id: str
    args: Mapping[str, Any]
    case_id: str | None = None
    waits: bool = True


# Who asks, and about what; MalformedMessage where that cannot be told.
Read = Callable[[], Awaitable[tuple[Identity, PeerCall]]]


class Decider:
    """Decides for every peer, within so many seconds. `case_id` is the case of calls that name none."""

    def __init__(self, api: AsyncClient, point: DecisionPoint, seconds: float, case_id: str | None = None) -> None:
        self._api = api
        self._point = point
        self._seconds = seconds
        self._case_id = case_id

    async def decide(self, read: Read) -> Verdict:
        """The verdict on what a peer asks; it never raises."""
        try:
            async with asyncio.timeout(self._seconds):
                identity, call = await read()
                case_id = call.case_id or self._case_id
                agent = self._api.acting_as(identity)
                return await self._point.decide(agent, call.tool_id, call.args, case_id=case_id, waits=call.waits)
        except TimeoutError:
            return _deny(f"no decision was reached within {self._seconds:g} seconds; try again")
        except MalformedMessage as exc:
            return _deny(f"the gateway sent what cannot be decided about: {exc}")
        except BeliefServerError as exc:
            return _deny(f"{exc.code}: {exc.message}")
        except Exception:  # noqa: BLE001 - whatever it is, the call is not let through
            _log.exception("a call could not be decided")
            return _deny("the decision failed; an operator finds out why in the log of `cmbs decide`")

    async def report(self, identity: Identity, call_id: str, result: Any, error: str | None) -> None:
        """Record what came of a call that was let through; RecordNotFound where none of that id was."""
        async with asyncio.timeout(self._seconds):
            await self._point.report(self._api.acting_as(identity), call_id, result, error)


def _deny(why: str) -> Verdict:
    return Verdict(allowed=False, reason=describe_not_made(why))


def identify(authorization: str | None, agent: str) -> Identity:
    """The headers by which the API knows a peer: its key, or a name where it sends none.

    Peers that can only be given a URL have the key in it, as the password: `http://gateway:cmbs_…@host/`.
    """
    if authorization is None:
        return identify_caller(f"agent:{agent}")
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() != "basic":
        return {AUTHORIZATION: authorization}
    try:
        key = b64decode(rest, validate=True).decode("ascii").partition(":")[2]
    except ValueError as exc:
        raise MalformedMessage("`Authorization` is not a name and a key in base64") from exc
    return identify_caller(agent, key)


def read_object(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object; MalformedMessage where it is none, or has a key twice."""
    try:
        value = canonical.decode(data)
    except BeliefServerError as exc:
        raise MalformedMessage(f"{what}: {exc.message}") from exc
    return require_object(value, what)


def require_object(value: Any, what: str) -> dict[str, Any]:
    """The value, if it is an object."""
    if not isinstance(value, dict):
        raise MalformedMessage(f"{what} must be an object")
    return value


def require_text(value: Any, what: str) -> str:
    """The value, if it is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise MalformedMessage(f"{what} must be a text")
    return value


def read_params(method: str, params: dict[str, Any], prefix: str) -> PeerCall:
    """What a request of MCP calls: a tool by its name, a prompt or a resource by the method that reads it."""
    meta = params.get("_meta")
    case_id = meta.get(CASE_META) if isinstance(meta, Mapping) else None
    if case_id is not None:
        case_id = require_text(case_id, f"`{CASE_META}`")
    if method == "tools/call":
        args = params.get("arguments")
        name = require_text(params.get("name"), "`params.name`")
        return PeerCall(f"{prefix}.{name}", {} if args is None else require_object(args, "`params.arguments`"), case_id)
    if method in ("prompts/get", "resources/read"):
        return PeerCall(f"{prefix}.{method}", {key: value for key, value in params.items() if key != "_meta"}, case_id)
    raise MalformedMessage(f"`{method}` is not decided about; let it pass without asking")
