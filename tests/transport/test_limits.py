"""Limits of the application, whatever server carries it: requests in progress, bodies, patience."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp, asgi, service
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.ledger import canonical
from cmbs.messages import ActorKind
from tests.support.error_model import check_error
from tests.support.in_process import Client, Event, body_events, client_of, exchange, scope_of
from tests.support.transports import ONTOLOGY
from tests.support.wire import DECLARATION

pytestmark = pytest.mark.slow

HOST = (b"host", b"localhost")
JSON = (b"content-type", b"application/json")


def with_echo(server: BeliefServer, max_requests: int = 1024) -> BeliefApp:
    app = BeliefApp(server, max_requests)

    async def echo(request: Request) -> Response:
        return PlainTextResponse(str(len(await request.body())))

    app.add_route("/echo", echo, methods=["POST"])
    return app


@pytest.fixture
def client() -> Iterator[Client]:
    with client_of(with_echo(BeliefServer())) as client:
        yield client


def test_requests_beyond_the_limit_are_told_to_come_again() -> None:
    app = with_echo(BeliefServer(), max_requests=1)

    async def story() -> None:
        arriving = asyncio.Event()

        async def receive() -> Event:
            await arriving.wait()
            return {"type": "http.request", "body": DECLARATION, "more_body": False}

        sent: list[Event] = []

        async def send(event: Event) -> None:
            sent.append(event)

        scope = scope_of("POST", b"/v1/sessions", [HOST, JSON])
        running = asyncio.create_task(app(scope, receive, send))
        await asyncio.sleep(0)
        busy = await exchange(app, "GET", b"/healthz")
        assert check_error(busy, 503, "BUSY")["limit"] == "max_requests"
        assert busy.headers["retry-after"] == "1"
        arriving.set()
        await running
        assert sent[0]["status"] == 201
        assert (await exchange(app, "GET", b"/healthz")).status == 200

    asyncio.run(story())


@pytest.mark.parametrize("size", [65_536, 65_537, 1_000_000])
def test_of_a_caller_without_a_key_little_is_read_on_any_path(size: int) -> None:
    server = BeliefServer()
    key = KeyRegistry(server.log).create(ActorKind.AGENT, "planner", roles=[Role.READER]).text.encode()
    pieces = [b"x" * 1000] * (size // 1000) + [b"x" * (size % 1000)]
    read = 0

    def events() -> Iterator[Event]:
        nonlocal read
        for event in body_events(*pieces):
            read += len(event["body"])
            yield event

    with client_of(with_echo(server)) as client:
        answer = client.exchange("POST", b"/echo", [HOST], events())
        if size > 65_536:
            assert check_error(answer, 401, "UNAUTHENTICATED")["reason"] == "missing"
        else:
            assert answer.body == b"65536"
        assert read <= 65_536 + 1000
        admitted = client.exchange("POST", b"/echo", [HOST, (b"authorization", b"Bearer " + key)], body_events(*pieces))
        assert admitted.body == b"%d" % size


def test_a_body_that_is_not_needed_is_not_read(subtests: pytest.Subtests, client: Client) -> None:
    for framing in [(b"content-length", b"9999999"), (b"expect", b"100-continue")]:
        for path in [b"/nowhere", b"/docs", b"/v1/sessions/x", b"/healthz"]:
            with subtests.test(framing=framing, path=path):
                body = iter(body_events(b"unread"))
                assert client.exchange("GET", path, [HOST, framing], body).status in (200, 404)
                assert len(list(body)) == 1


def test_a_small_body_that_is_not_needed_is_read_so_that_the_next_request_is_found(client: Client) -> None:
    read: list[bytes] = []

    def events() -> Iterator[Event]:
        for event in body_events(b"12", b"345"):
            read.append(event["body"])
            yield event

    assert client.exchange("DELETE", b"/healthz", [HOST, (b"content-length", b"5")], events()).status == 405
    assert read == [b"12", b"345"]


def test_a_body_that_does_not_arrive_is_given_up(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "MAX_BODY_SECONDS", 0.01)
    monkeypatch.setattr(asgi, "MAX_DRAIN_SECONDS", 0.01)

    async def story() -> None:
        sent: list[Event] = []

        async def receive() -> Event:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        async def send(event: Event) -> None:
            sent.append(event)

        scope = scope_of("POST", b"/v1/sessions", [HOST, JSON])
        scope["headers"].append((b"content-length", b"5"))
        await client.app(scope, receive, send)
        assert sent[0]["status"] == 408
        assert json.loads(sent[1]["body"])["error"]["code"] == "REQUEST_TIMEOUT"

    asyncio.run(story())


@pytest.mark.parametrize("ids", [10, 200_000], ids=["small", "large"])
def test_a_large_body_is_decoded_beside_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch, ids: int
) -> None:
    threads: list[threading.Thread] = []
    decode = canonical.decode

    def noting(data: bytes | str) -> object:
        threads.append(threading.current_thread())
        return decode(data)

    monkeypatch.setattr(canonical, "decode", noting)
    body = {"ontology": ONTOLOGY, "hypotheses": [f"{number:09}" for number in range(ids)]}
    assert client.post("/v1/sessions", body, headers={"prefer": "return=minimal"}).status_code == 201
    assert [thread is threading.main_thread() for thread in threads[:1]] == [ids == 10]


def test_large_bodies_are_decoded_one_after_the_other_and_hold_up_no_other_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, began, proceed = BeliefApp(BeliefServer()), threading.Event(), threading.Event()
    decoding = most = 0
    decode = canonical.decode

    def wait(data: bytes | str) -> object:
        nonlocal decoding, most
        decoding += 1
        most = max(most, decoding)
        began.set()
        proceed.wait(10)
        decoding -= 1
        return decode(data)

    monkeypatch.setattr(canonical, "decode", wait)
    body = DECLARATION + b" " * service.MAX_BODY_BYTES_DECODED_ON_LOOP

    async def story() -> None:
        # With these threads keys are looked up, and logs read.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        requests = [
            asyncio.create_task(exchange(app, "POST", b"/v1/sessions", [HOST, JSON], body_events(body)))
            for _ in range(4)
        ]
        await asyncio.get_running_loop().run_in_executor(ThreadPoolExecutor(1), began.wait, 10)
        async with asyncio.timeout(5):
            await asyncio.to_thread(int)
        proceed.set()
        assert [answer.status for answer in await asyncio.gather(*requests)] == [201] * 4

    asyncio.run(story())
    assert most == 1
