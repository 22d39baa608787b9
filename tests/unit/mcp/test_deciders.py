"""Decisions for other gateways, each in the messages of its sources: let through or not, why, and what is on record."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx2
import mcp_types
import pytest
from starlette.applications import Starlette

from cmbs.api.spaces import ApprovalItem, ExecutionResponse
from cmbs.bootstrap import Settings
from cmbs.bootstrap import build_app as build_server
from cmbs.client import AsyncClient, Patience
from cmbs.client.exchange import Answer, Attempt
from cmbs.errors import StoreUnavailable
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.mcp.asking import identify_caller, open_api
from cmbs.mcp.deciders import docker, toolhive
from cmbs.mcp.deciders.agentgateway import CALL_KEY
from cmbs.mcp.deciders.app import DecideOptions, build_app
from cmbs.mcp.deciders.calls import Decider, MalformedMessage, PeerCall, identify
from cmbs.mcp.deciders.proto import ext_mcp_pb2 as pb
from cmbs.mcp.deciders.proto import ext_mcp_pb2_grpc as pb_grpc
from cmbs.mcp.decisions import DecisionPoint
from cmbs.stores import open_store
from cmbs.system import RandomIds
from tests.support.bounded import run
from tests.support.http_server import free_port
from tests.support.mcp_upstream import tool_of
from tests.support.transports import ONTOLOGY

pytestmark = pytest.mark.slow

Json = dict[str, Any]
READS = ["docker.search", "toolhive.github.search", "agentgateway.github.search", "agentgateway.github.resources/read"]
POLICY: Json = {
    "format": 2,
    "rules": [
        *({"name": f"reads-{number}", "allow": tool_id} for number, tool_id in enumerate(READS)),
        {"name": "writes", "allow": "docker.push", "when": "args.force == false", "otherwise": "ask"},
    ],
}


# --- what the peers do with an answer, as their sources have it -------------------------------------------------------


def docker_lets_through(answer: httpx2.Response) -> bool:
    """`runHTTP` and `ToMiddleware` of docker/mcp-gateway: the status is not looked at, an empty body lets through, and
    any other is the result of the call, or an error where it is none.
    """
    body = answer.content.strip()
    if body:
        mcp_types.CallToolResult.model_validate_json(body, by_name=False)
    return not body


def toolhive_lets_through(answer: httpx2.Response) -> bool:
    """`Authorize` of stacklok/toolhive, pkg/authz/authorizers/http."""
    return answer.status_code == 200 and answer.json()["allow"] is True


def ask_docker(name: str, arguments: Json | None, **more: Any) -> Json:
    """What the `before` interceptor is sent: `params` as the Go SDK marshals them."""
    params = {"name": name, **({} if arguments is None else {"arguments": arguments}), **more}
    return {"method": "tools/call", "params": params}


def ask_toolhive(name: str, args: Json, operation: str = "mcp:tool:call") -> Json:
    """A PORC as `PORCBuilder.Build` makes it, with `include_args` and `include_operation`."""
    _, feature, verb = operation.split(":")
    context = {"feature": feature, "operation": verb, "resource_id": name, **({"args": args} if args else {})}
    return {
        "principal": {"sub": "ada", "roles": ["dev"]},
        "operation": operation,
        "resource": f"mrn:mcp:github:{feature}:{name}",
        "context": {"mcp": context},
    }


def ask_agentgateway(name: str, arguments: Json, method: str = "tools/call", **more: Any) -> pb.McpRequest:
    params = json.dumps({"name": name, "arguments": arguments}).encode()
    return pb.McpRequest(**{"service_names": ["github"], "method": method, "mcp_request": params, **more})


# --- a decision point over a store, and an operator beside it ---------------------------------------------------------


class Bench:
    def __init__(self, app: Starlette, operator: AsyncClient) -> None:
        self.app = app
        self.operator = operator

    async def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        transport = httpx2.ASGITransport(app=self.app, client=("127.0.0.1", 1234))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8091") as client:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            return await client.post(path, content=data, headers={"content-type": "application/json", **headers})

    async def proposals(self) -> list[tuple[str, str, str]]:
        found = [each async for each in self.operator.each(self.operator.list_proposals, "mcp")]
        return [(tool_of(each), each.status, each.actor.id) for each in found]

    async def executions(self) -> list[ExecutionResponse]:
        return [each async for each in self.operator.each(self.operator.list_executions, "mcp")]


@asynccontextmanager
async def open_bench(directory: Path, **options: Any) -> AsyncIterator[Bench]:
    store = f"sqlite:///{directory / 'd.db'}"
    server = build_server(Settings(store=store), {})
    operator = open_api(server).acting_as(identify_caller("operator:boss"))
    await operator.create_space("mcp", policy_file=POLICY)
    app = build_app(DecideOptions(**{"store": store, "wait_seconds": 0, **options}), {})
    try:
        async with app.router.lifespan_context(app):
            yield Bench(app, operator)
    finally:
        server.close()


@pytest.mark.req("MCP-DECIDE-01", "MCP-DECIDE-03")
def test_dockers_gateway_gets_nothing_for_what_is_allowed_and_a_result_for_what_is_not(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_bench(tmp_path) as bench:
            meta = {"_meta": {"progressToken": "progress-1"}}
            assert docker_lets_through(await bench.post(docker.PATH, ask_docker("search", {"query": "x"}, **meta)))
            assert docker_lets_through(await bench.post(docker.PATH, ask_docker("search", None)))
            denied = await bench.post(docker.PATH, ask_docker("delete", {"id": 1}))
            assert not docker_lets_through(denied)
            result = mcp_types.CallToolResult.model_validate_json(denied.content, by_name=False)
            assert result.is_error
            told = result.content[0].text  # type: ignore[union-attr]
            assert told.startswith("Not done: the call is not allowed. Nothing was changed.\n`NO_ALLOW`")
            assert "ask an operator for a rule that allows it" in told
            assert not docker_lets_through(await bench.post(docker.PATH, ask_docker("push", {"force": True})))
            assert await bench.proposals() == [
                ("docker.search", "running", "agent"),
                ("docker.search", "running", "agent"),
                ("docker.delete", "denied", "agent"),
                ("docker.push", "withdrawn", "agent"),
            ]
            # The gateway says nothing of what came of them: nothing is claimed.
            assert [(each.status, each.result) for each in await bench.executions()] == [("running", None)] * 2

    run(test())


@pytest.mark.req("MCP-DECIDE-01")
def test_toolhive_is_told_yes_or_no_about_tools_prompts_and_resources(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_bench(tmp_path) as bench:
            assert toolhive_lets_through(await bench.post(toolhive.PATH, ask_toolhive("search", {"q": "x"})))
            # Asked so for a list of tools as well as for a call without arguments.
            assert toolhive_lets_through(await bench.post(toolhive.PATH, ask_toolhive("search", {})))
            for name, operation in (
                ("delete", "mcp:tool:call"),
                ("p", "mcp:prompt:get"),
                ("file:a", "mcp:resource:read"),
            ):
                answer = await bench.post(toolhive.PATH, ask_toolhive(name, {}, operation))
                assert not toolhive_lets_through(answer)
                assert "NO_ALLOW" in answer.json()["reason"]
            assert [each[:2] for each in await bench.proposals()] == [
                ("toolhive.github.search", "running"),
                ("toolhive.github.search", "running"),
                ("toolhive.github.delete", "denied"),
                ("toolhive.github.prompts/get", "denied"),
                ("toolhive.github.resources/read", "denied"),
            ]

    run(test())


@asynccontextmanager
async def open_agentgateway(port: int, key: str | None = None) -> AsyncIterator[tuple[Callable[..., Any], ...]]:
    """The two calls of `ExtMcp`, as the gateway makes them."""
    metadata = (("authorization", f"Bearer {key}"),) if key else ()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = pb_grpc.ExtMcpStub(channel)  # type: ignore[no-untyped-call]

        async def check_request(request: pb.McpRequest) -> Any:
            return await stub.CheckRequest(request, metadata=metadata, timeout=20)

        async def check_response(response: pb.McpResponse) -> Any:
            return await stub.CheckResponse(response, metadata=metadata, timeout=20)

        yield check_request, check_response


@pytest.mark.req("MCP-DECIDE-01", "MCP-DECIDE-03")
def test_agentgateway_is_let_through_or_told_why_not_and_reports_what_came_of_it(tmp_path: Path) -> None:
    async def test() -> None:
        port = free_port()
        async with open_bench(tmp_path, grpc_port=port) as bench, open_agentgateway(port) as (check, report):
            passed = [await check(ask_agentgateway("search", {"q": each})) for each in ("a", "b", "c")]
            assert [each.WhichOneof("result") for each in passed] == ["pass"] * 3
            read = pb.McpRequest(service_names=["github"], method="resources/read", mcp_request=b'{"uri": "file:///a"}')
            assert (await check(read)).WhichOneof("result") == "pass"
            case = await bench.operator.declare_session(ontology=ONTOLOGY, hypotheses=["a"], name="INC-7")
            cased = ask_agentgateway("search", {}, headers=[pb.McpHeader(key="x-cmbs-case", value=b"INC-7")])
            assert (await check(cased)).WhichOneof("result") == "pass"
            named = [each async for each in bench.operator.each(bench.operator.list_proposals, "mcp")]
            assert [each.case_id for each in named] == [None] * 4 + [case.session_id]
            denied = await check(ask_agentgateway("delete", {"id": 7}))
            assert (denied.WhichOneof("result"), denied.error.code) == (
                "error",
                pb.AuthorizationError.PERMISSION_DENIED,
            )
            assert denied.error.reason.startswith("Not done: the call is not allowed. Nothing was changed.\n`NO_ALLOW`")
            assert json.loads(denied.error.mcp_error)["call_id"].startswith("c-")
            outcomes: list[Json] = [
                {"content": [{"type": "text", "text": "found"}]},
                {"content": [{"type": "text", "text": "no such index"}], "isError": True},
            ]
            for request, result in zip(passed, outcomes, strict=False):
                # `metadata: {cmbs_call: mcpGuardrails.cmbs_call}` sends back what the request was given.
                response = pb.McpResponse(service_names=["github"], method="tools/call")
                response.metadata_context[CALL_KEY] = request.metadata[CALL_KEY]
                response.mcp_response = json.dumps(result).encode()
                assert (await report(response)).WhichOneof("result") == "pass"
            recorded = [(each.status, each.result, each.error) for each in await bench.executions()]
            assert recorded[:3] == [
                ("succeeded", outcomes[0], None),
                ("failed", outcomes[1], "no such index"),
                ("running", None, None),
            ]

    run(test())


@pytest.mark.req("MCP-DECIDE-03")
@pytest.mark.parametrize("response", [b"", b"{", b"[1]"])
@pytest.mark.parametrize("named", ["", "no-such-call"])
def test_a_result_that_cannot_be_recorded_passes_and_its_outcome_stays_unknown(
    tmp_path: Path, response: bytes, named: str
) -> None:
    async def test() -> None:
        port = free_port()
        async with open_bench(tmp_path, grpc_port=port) as bench, open_agentgateway(port) as (check, report):
            assert (await check(ask_agentgateway("search", {}))).WhichOneof("result") == "pass"
            message = pb.McpResponse(service_names=["github"], method="tools/call", mcp_response=response)
            message.metadata_context[CALL_KEY] = named
            assert (await report(message)).WhichOneof("result") == "pass"
            assert [each.status for each in await bench.executions()] == ["running"]

    run(test())


@pytest.mark.req("MCP-DECIDE-01")
def test_names_and_numbers_of_agentgateways_messages_are_its_own() -> None:
    fields = {
        "McpRequest": "1 service_names, 2 method, 3 metadata_context, 4 mcp_request, 5 headers",
        "McpResponse": "1 service_names, 2 method, 3 metadata_context, 4 mcp_response",
        "McpRequestResult": "1 pass, 2 mutated, 3 error, 5 metadata",
        "McpResponseResult": "1 pass, 2 mutated, 3 error",
        "McpHeader": "1 key, 2 value",
        "Pass": "",
        "AuthorizationError": "1 code, 2 reason, 3 mcp_error",
    }
    found = {
        name: ", ".join(f"{each.number} {each.name}" for each in message.fields)
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
    }
    assert found == fields
    assert pb.DESCRIPTOR.package == "agentgateway.dev.ext_mcp"
    assert list(pb.DESCRIPTOR.services_by_name["ExtMcp"].methods_by_name) == ["CheckRequest", "CheckResponse"]
    codes = ["UNKNOWN", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "INVALID"]
    assert list(pb.AuthorizationError.Code.items()) == [(name, number) for number, name in enumerate(codes)]


@pytest.mark.req("MCP-DECIDE-02")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b'{"method": "tools/call"}',
        b'{"method": "tools/list", "params": {"name": "search"}}',
        b'{"params": {"name": "search"}}',
        b'{"method": "tools/call", "params": {"name": ""}}',
        b'{"method": "tools/call", "params": {"name": 7}}',
        b'{"method": "tools/call", "params": {"name": "search", "arguments": []}}',
        b'{"method": "tools/call", "params": {"name": "search", "_meta": {"cmbs/case-id": 7}}}',
        b'{"method": "tools/call", "params": {"name": "delete", "name": "search"}}',
        b'{"method": "tools/call", "params": {"name": "search", "arguments": {"n": 1e400}}}',
        b'{"method": "tools/call", "params": {"name": "search", "arguments": {"q": "\xff"}}}',
        b'{"method": "tools/call", "params": {"name": "search", "arguments": ' + b"[" * 200 + b"]" * 200 + b"}}",
        *(
            json.dumps({"operation": operation, "resource": resource, "context": context}).encode()
            for operation, resource, context in (
                ("mcp:tool:call", "mrn:mcp:github:tool:search", {}),
                ("mcp:tool:call", "mrn:mcp:github:tool:search", {"mcp": {"args": {}}}),
                ("mcp:tool:call", "mrn:mcp:github:tool:delete", {"mcp": {"resource_id": "search"}}),
                ("mcp:tool:list", "mrn:mcp:github:tool:search", {"mcp": {"resource_id": "search"}}),
                ("mcp:tool:call", "github:tool:search", {"mcp": {"resource_id": "search"}}),
                ("mcp:tool:call", "mrn:mcp::tool:search", {"mcp": {"resource_id": "search"}}),
            )
        ),
        b"x" * 4_194_305,
    ],
    ids=lambda body: str(body[:60]),
)
def test_a_message_that_makes_no_sense_is_denied_by_every_path(tmp_path: Path, body: bytes) -> None:
    async def test() -> None:
        async with open_bench(tmp_path) as bench:
            assert not docker_lets_through(await bench.post(docker.PATH, body))
            assert not toolhive_lets_through(await bench.post(toolhive.PATH, body))
            assert await bench.proposals() == []

    run(test())


@pytest.mark.req("MCP-DECIDE-02")
def test_requests_of_agentgateway_that_make_no_sense_are_denied(tmp_path: Path) -> None:
    async def test() -> None:
        port = free_port()
        async with open_bench(tmp_path, grpc_port=port) as bench, open_agentgateway(port) as (check, _):
            for request in (
                pb.McpRequest(),
                ask_agentgateway("search", {}, method="tools/list"),
                ask_agentgateway("search", {}, method="initialize"),
                ask_agentgateway("search", {}, service_names=[]),
                ask_agentgateway("search", {}, service_names=["github", "gitlab"]),
                ask_agentgateway("search", {}, mcp_request=b"{"),
                # As older gateways sent it: a message, where bytes of JSON are wanted.
                ask_agentgateway("search", {}, mcp_request=b"\n\x06\n\x04name"),
                pb.McpRequest(service_names=["github"], method="tools/call"),
            ):
                answer = await check(request)
                assert answer.WhichOneof("result") == "error"
                assert answer.error.reason
            assert await bench.proposals() == []
            # Other programs on this machine may send anything.
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                raw: Any = channel.unary_unary("/agentgateway.dev.ext_mcp.ExtMcp/CheckRequest")
                with pytest.raises(grpc.aio.AioRpcError):
                    await raw(b"\xff\xff", timeout=20)

    run(test())


@pytest.mark.req("MCP-DECIDE-02")
def test_a_peer_is_who_its_key_says_and_nothing_without_one(tmp_path: Path) -> None:
    async def test() -> None:
        store = f"sqlite:///{tmp_path / 'd.db'}"
        registry = KeyRegistry(open_store(store))
        boss = registry.create(None, "boss", roles=[Role.OPERATOR]).text
        agent = registry.create(None, "docker-gateway", roles=[Role.AGENT]).text
        reader = registry.create(None, "watcher", roles=[Role.READER]).text
        server = build_server(Settings(store=store), {})
        operator = open_api(server).acting_as({"authorization": f"Bearer {boss}"})
        await operator.create_space("mcp", policy_file=POLICY)
        port = free_port()
        options = DecideOptions(store=store, wait_seconds=0, grpc_port=port)
        app = build_app(options, {"CMBS_OPERATOR_KEY": boss})
        async with app.router.lifespan_context(app):
            bench = Bench(app, operator)
            asked = ask_docker("search", {})

            async def ask(**headers: str) -> bool:
                return docker_lets_through(await bench.post(docker.PATH, asked, **headers))

            # `http://gateway:KEY@…`: all that Docker's gateway can be given is a URL.
            assert await ask(authorization="Basic " + b64encode(f"gateway:{agent}".encode()).decode())
            assert await ask(authorization=f"Bearer {agent}")
            async with open_agentgateway(port, agent) as (check, _):
                assert (await check(ask_agentgateway("search", {}))).WhichOneof("result") == "pass"
            assert {each[2] for each in await bench.proposals()} == {"docker-gateway"}
            before = len(await bench.proposals())
            for headers in (
                {},
                {"authorization": "Bearer cmbs_wrong"},
                {"authorization": f"Bearer {reader}"},
                {"authorization": f"Bearer {boss}"},
                {"authorization": "Basic %%%"},
                {"authorization": "Basic " + b64encode(agent.encode()).decode()},
                {"authorization": "Digest x"},
                {"x-cmbs-actor": "agent:docker-gateway"},
            ):
                assert not await ask(**headers)
            for key in (None, reader, "cmbs_wrong"):
                async with open_agentgateway(port, key) as (check, _):
                    assert (await check(ask_agentgateway("search", {}))).WhichOneof("result") == "error"
            assert len(await bench.proposals()) == before
        server.close()

    run(test())


@pytest.mark.req("MCP-DECIDE-02")
@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "http://evil.example"}])
def test_without_keys_pages_of_other_sites_get_no_decision(tmp_path: Path, headers: Any) -> None:
    async def test() -> None:
        async with open_bench(tmp_path) as bench:
            answer = await bench.post(docker.PATH, ask_docker("search", {}), **headers)
            assert not docker_lets_through(answer)
            assert await bench.proposals() == []

    run(test())


class Carrier:
    """Carries the calls of a client as it is told to."""

    def __init__(self, send: Callable[[Attempt], Awaitable[Answer]]) -> None:
        self._send = send

    async def send(self, attempt: Attempt) -> Answer:
        return await self._send(attempt)

    def follow(self, attempt: Attempt) -> Any:
        raise AssertionError(attempt)

    async def close(self) -> None:
        raise AssertionError


@pytest.mark.req("MCP-DECIDE-02")
def test_a_server_that_is_away_a_time_out_and_a_failure_are_no(tmp_path: Path) -> None:
    """By an API that does not answer, answers never, and fails."""

    async def refuse(*_: Any) -> Answer:
        raise StoreUnavailable("the cmbs server does not answer")

    async def hang(*_: Any) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async def fail(*_: Any) -> Answer:
        raise OSError("disk full")

    async def answer_nonsense(*_: Any) -> Answer:
        return Answer(200, {"content-type": "application/json"}, b"{}")

    async def read() -> tuple[dict[str, str], PeerCall]:
        return {}, PeerCall("docker.search", {})

    async def test() -> None:
        for send, told in (
            (refuse, "STORE_UNAVAILABLE"),
            (hang, "no decision was reached within"),
            (fail, "the decision failed"),
            (answer_nonsense, "the answer is not as the protocol has it"),
        ):
            api = AsyncClient(Carrier(send), "a server", Patience(attempts=1))
            seconds = 0.01 if send is hang else 10.0
            decider = Decider(api, DecisionPoint(api, "mcp", RandomIds()), seconds)
            verdict = await decider.decide(read)
            assert not verdict.allowed
            assert told in verdict.reason
            assert docker.answer(verdict)
            assert json.loads(toolhive.answer(verdict))["allow"] is False

    run(test())


@pytest.mark.req("MCP-DECIDE-01")
def test_a_call_that_an_operator_approves_while_it_is_waited_for_is_let_through(tmp_path: Path) -> None:
    async def test() -> None:
        async with open_bench(tmp_path, wait_seconds=20) as bench:
            asking = asyncio.create_task(bench.post(docker.PATH, ask_docker("push", {"force": True})))
            pending: list[ApprovalItem] = []
            while not pending:
                await asyncio.sleep(0)
                pending = (await bench.operator.list_approvals("mcp", status="pending")).approvals
            await bench.operator.approve("mcp", pending[0].approval_id)
            assert docker_lets_through(await asking)

    run(test())


@pytest.mark.req("MCP-DECIDE-01")
def test_many_calls_at_once_are_each_decided(tmp_path: Path) -> None:
    async def test() -> None:
        port = free_port()
        async with open_bench(tmp_path, grpc_port=port) as bench, open_agentgateway(port) as (check, report):

            async def call(number: int) -> str:
                passed = await check(ask_agentgateway("search", {"n": number}))
                response = pb.McpResponse(
                    service_names=["github"], method="tools/call", mcp_response=b'{"content": []}'
                )
                response.metadata_context[CALL_KEY] = passed.metadata[CALL_KEY]
                await report(response)
                return str(passed.WhichOneof("result"))

            assert await asyncio.gather(*map(call, range(20))) == ["pass"] * 20
            assert [each.status for each in await bench.executions()] == ["succeeded"] * 20

    run(test())


@pytest.mark.req("MCP-DECIDE-02")
def test_a_peer_without_a_key_is_named_and_a_malformed_key_is_refused() -> None:
    assert identify(None, "gw") == {"x-cmbs-actor": "agent:gw"}
    with pytest.raises(MalformedMessage):
        identify("Basic é", "gw")
