"""The API as MCP asks it: of an application in the same process, and of a server elsewhere."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cmbs.api.errors import status_of
from cmbs.bootstrap import Settings, build_app
from cmbs.client import AsyncClient
from cmbs.client.errors import RequestFailed
from cmbs.errors import RecordNotFound
from cmbs.mcp.asking import describe_failure, identify_caller, open_api
from tests.support.bounded import run
from tests.support.subtests import for_each

pytestmark = pytest.mark.slow

ONTOLOGY = {
    "hypothesis_space_id": "s",
    "hypothesis_version": "1",
    "causal_graph_ref": "none:",
    "causal_graph_version": "1",
}


@asynccontextmanager
async def answering(answer: Any) -> AsyncIterator[AsyncClient]:
    """A client of a program elsewhere that says what `answer` gives for the head of a request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status, body = await answer(await reader.readuntil(b"\r\n\r\n"))
        head = f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(serve, "127.0.0.1", 0) as server,
        open_api(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as api,
    ):
        yield api


@pytest.mark.req("MCP-SERVER-05")
@for_each("tool_id", ["plain", "a/b", "a?b=c", "50%", "ä ö", "a#b&c+d"])
def test_an_application_in_this_process_is_asked_about_any_id(tool_id: str) -> None:
    async def test() -> None:
        app = build_app(Settings(store="memory:"), {})
        api = open_api(app).acting_as(identify_caller("operator:boss"))
        await api.create_space("s")
        assert (await api.register_tool("s", tool_id, "caller", {"type": "object"})).granted
        found = await api.request("get_tool", fields=["tool_id"], space_id="s", tool_id=tool_id)
        assert found == {"tool_id": tool_id}
        with pytest.raises(RecordNotFound, match="RECORD_NOT_FOUND") as failure:
            await api.get_tool("s", f"no-{tool_id}")
        assert status_of(failure.value) == 404
        assert describe_failure(failure.value).endswith(failure.value.details["next"])
        app.close()

    run(test())


@pytest.mark.req("MCP-SERVER-05")
def test_a_caller_that_is_cancelled_does_not_go_on_waiting_in_the_application() -> None:
    async def test() -> None:
        app = build_app(Settings(store="memory:"), {})
        api = open_api(app).acting_as(identify_caller("operator:boss"))
        session_id = (await api.declare_session(hypotheses=["x", "y"], ontology=ONTOLOGY)).session_id
        head = (await api.list_survivors(session_id)).audit_head_event_id
        waiting = asyncio.create_task(api.query_belief(session_id, wait=20, after=head))
        while app.service.waiting._count == 0:  # noqa: ASYNC110 - the other task begins
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert app.service.waiting._count == 0
        app.close()

    run(test())


@pytest.mark.req("MCP-SERVER-05")
@for_each("body", [b"", b"<html>", b"[]", b"{}", b'{"detail": "gone"}', b'{"error": "bad gateway"}'])
def test_an_error_of_something_between_is_an_error_of_the_api(body: bytes) -> None:
    requests = 0

    async def refuse(_: bytes) -> tuple[int, bytes]:
        nonlocal requests
        requests += 1
        return 502, body

    async def test() -> None:
        async with answering(refuse) as api:
            with pytest.raises(RequestFailed) as failure:
                await api.whoami()
        assert (failure.value.status, failure.value.code) == (502, "HTTP_502")
        # There is no second attempt: the caller is told at once.
        assert requests == 1

    run(test())


@pytest.mark.req("MCP-GW-05")
def test_requests_that_wait_do_not_keep_others_from_a_server_elsewhere() -> None:
    async def test() -> None:
        released = asyncio.Event()
        waiting = 0

        async def answer(head: bytes) -> tuple[int, bytes]:
            nonlocal waiting
            if b"wait=20" in head:
                waiting += 1
                await released.wait()
            return 200, b"{}"

        async with answering(answer) as api:

            async def ask(wait: int | None) -> dict[str, Any]:
                return await api.request("get_proposal", space_id="s", proposal_id="p", wait=wait)

            parked = [asyncio.create_task(ask(20)) for _ in range(200)]
            while waiting < 200:  # noqa: ASYNC110 - all have a connection each
                await asyncio.sleep(0)
            assert await ask(None) == {}
            released.set()
            await asyncio.gather(*parked)

    run(test())
