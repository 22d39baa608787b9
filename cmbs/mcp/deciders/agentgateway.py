"""agentgateway: an external policy server for MCP (`ExtMcp`), over gRPC.

`CheckRequest` decides. What passes is given its id as metadata of the request; where the gateway's configuration sends
that id along with the result, `CheckResponse` records the outcome. A result always passes: its effect has happened.
"""

from __future__ import annotations

import logging
from typing import Any

import grpc
import msgspec

from cmbs.mcp.deciders.calls import (
    MAX_MESSAGE_BYTES,
    Decider,
    Identity,
    MalformedMessage,
    PeerCall,
    identify,
    read_object,
    read_params,
)
from cmbs.mcp.deciders.proto import ext_mcp_pb2 as pb
from cmbs.mcp.deciders.proto import ext_mcp_pb2_grpc as pb_grpc
from cmbs.mcp.gateway.callers import CASE_HEADER

_log = logging.getLogger("cmbs.decide")
# In the metadata of a request: the id by which its outcome is reported.
CALL_KEY = "cmbs_call"
_PREFIX = "agentgateway"
_MAX_CALLS = 256
_STOP_SECONDS = 5.0
_MAX_ERROR_CHARACTERS = 4_000

Context = grpc.aio.ServicerContext[Any, Any]


class ExtMcp(pb_grpc.ExtMcpServicer):
    """The policy server. `agent` is who asks where the gateway sends no key."""

    def __init__(self, decider: Decider, agent: str) -> None:
        self._decider = decider
        self._agent = agent

    async def CheckRequest(self, request: Any, context: Context) -> Any:  # noqa: N802 - as the service has it
        """Decide about a request."""

        async def read() -> tuple[Identity, PeerCall]:
            return self._identify(context), _read_call(request)

        verdict = await self._decider.decide(read)
        if verdict.allowed:
            passed = _let_pass(pb.McpRequestResult())
            passed.metadata[CALL_KEY] = str(verdict.call_id)
            return passed
        error = pb.AuthorizationError(code=pb.AuthorizationError.PERMISSION_DENIED, reason=verdict.reason)
        if verdict.call_id:
            error.mcp_error = msgspec.json.encode({"call_id": verdict.call_id})
        return pb.McpRequestResult(error=error)

    async def CheckResponse(self, request: Any, context: Context) -> Any:  # noqa: N802 - as the service has it
        """Record the outcome of a request that passed."""
        try:
            named = request.metadata_context.fields.get(CALL_KEY)
            if named is not None and named.string_value:
                result = read_object(request.mcp_response, "`mcp_response`")
                await self._decider.report(self._identify(context), named.string_value, result, _find_error(result))
        except Exception as exc:  # noqa: BLE001 - the outcome is then in doubt after its time, as that of any call
            _log.warning("the outcome of a call could not be recorded: %s", str(exc) or type(exc).__name__)
        return _let_pass(pb.McpResponseResult())

    def _identify(self, context: Context) -> Identity:
        metadata: Any = context.invocation_metadata() or ()
        sent = [str(value) for key, value in metadata if key == "authorization"]
        if len(sent) > 1:
            raise MalformedMessage("`authorization` was sent twice")
        return identify(sent[0] if sent else None, self._agent)


def _let_pass(result: Any) -> Any:
    # The name of the field is a word of Python.
    getattr(result, "pass").SetInParent()
    return result


def _read_call(request: Any) -> PeerCall:
    if len(request.service_names) != 1:
        raise MalformedMessage("a call is for one server")
    if not request.HasField("mcp_request"):
        raise MalformedMessage("`mcp_request` is missing")
    params = read_object(request.mcp_request, "`mcp_request`")
    call = read_params(request.method, params, f"{_PREFIX}.{request.service_names[0]}")
    named = [header.value for header in request.headers if header.key.lower() == CASE_HEADER]
    if call.case_id is None and named:
        return call._replace(case_id=named[0].decode("ascii", "replace"))
    return call


def _find_error(result: dict[str, Any]) -> str | None:
    """What the result of a call that failed says."""
    if result.get("isError") is not True:
        return None
    content = result.get("content")
    texts = (
        [str(each.get("text", "")) for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    )
    return "\n".join(texts)[:_MAX_ERROR_CHARACTERS] or "the tool says that it failed"


async def serve_grpc(decider: Decider, agent: str, address: str) -> grpc.aio.Server:
    """A server that listens; RuntimeError where it cannot."""
    server = grpc.aio.server(
        maximum_concurrent_rpcs=_MAX_CALLS,
        options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.so_reuseport", 0)],
    )
    pb_grpc.add_ExtMcpServicer_to_server(ExtMcp(decider, agent), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(address)
    await server.start()
    return server


async def stop_grpc(server: grpc.aio.Server) -> None:
    """Let calls under way finish, for a while."""
    await server.stop(_STOP_SECONDS)
