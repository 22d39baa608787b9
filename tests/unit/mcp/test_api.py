"""The API as MCP asks it: of an application in the same process, and of a server elsewhere."""

import asyncio
from typing import Any

import pytest

from cmbs.bootstrap import Settings, build_app
from cmbs.mcp.api import ApiError, open_local, open_remote, path
from tests.support.subtests import for_each

pytestmark = pytest.mark.slow

ONTOLOGY = {
    "hypothesis_space_id": "s",
    "hypothesis_version": "1",
    "causal_graph_ref": "none:",
    "causal_graph_version": "1",
}


def run(test: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test

    asyncio.run(bounded())


@pytest.mark.req("MCP-SERVER-05")
@for_each("tool_id", ["plain", "a/b", "a?b=c", "50%", "ä ö", "a#b&c+d"])
def test_an_application_in_this_process_is_asked_about_any_id(tool_id: str) -> None:
    async def test() -> None:
        app = build_app(Settings(store="memory:"), {})
        api = open_local(app).acting_as({"x-cmbs-actor": "operator:boss"})
        await api.post("/v1/spaces", {"space_id": "s"})
        tool = {"tool_id": tool_id, "kind": "caller", "args_schema": {"type": "object"}}
        assert (await api.post("/v1/spaces/s/tools", tool))["granted"]
        assert (await api.get(path("spaces", "s", "tools", tool_id), fields="tool_id")) == {"tool_id": tool_id}
        with pytest.raises(ApiError, match="RECORD_NOT_FOUND") as failure:
            await api.get(path("spaces", "s", "tools", f"no-{tool_id}"))
        assert failure.value.status == 404
        app.close()

    run(test())


@pytest.mark.req("MCP-SERVER-05")
def test_a_caller_that_is_cancelled_does_not_go_on_waiting_in_the_application() -> None:
    async def test() -> None:
        app = build_app(Settings(store="memory:"), {})
        api = open_local(app).acting_as({"x-cmbs-actor": "operator:boss"})
        made = await api.post("/v1/sessions", {"hypotheses": ["x", "y"], "ontology": ONTOLOGY})
        place = path("sessions", made["session_id"])
        head = (await api.get(f"{place}/survivors"))["audit_head_event_id"]
        waiting = asyncio.create_task(api.get(place, wait=20, after=head))
        while app._in_progress == 0:  # noqa: ASYNC110 - the other task begins
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        assert app._in_progress == 0
        app.close()

    run(test())


@pytest.mark.req("MCP-SERVER-05")
@for_each("body", [b"", b"<html>", b"[]", b"{}", b'{"detail": "gone"}', b'{"error": "bad gateway"}'])
def test_an_error_of_something_between_is_an_error_of_the_api(body: bytes) -> None:
    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 502, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def test() -> None:
        with pytest.raises(ApiError) as failure:
            await open_local(proxy).get("/v1/whoami")
        assert (failure.value.status, failure.value.code) == (502, "INTERNAL_ERROR")

    run(test())


@pytest.mark.req("MCP-GW-05")
def test_requests_that_wait_do_not_keep_others_from_a_server_elsewhere() -> None:
    async def test() -> None:
        released = asyncio.Event()
        waiting = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal waiting
            head = await reader.readuntil(b"\r\n\r\n")
            if b"wait=20" in head:
                waiting += 1
                await released.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            api = open_remote(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            parked = [asyncio.create_task(api.get("/v1/p", wait=20)) for _ in range(200)]
            while waiting < 200:  # noqa: ASYNC110 - all have a connection each
                await asyncio.sleep(0)
            assert await api.get("/v1/p") == {}
            released.set()
            await asyncio.gather(*parked)
            await api.aclose()

    run(test())
