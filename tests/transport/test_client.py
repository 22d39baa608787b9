"""What the client adds to the operations: pages, parts of answers, options, heads, and servers in the same process."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.client import AsyncClient, Client, Patience, RequestFailed, Unreachable, connect, connect_async
from cmbs.client.errors import Head
from cmbs.errors import (
    Conflict,
    Forbidden,
    HeadMismatch,
    InvalidRequest,
    LimitExceeded,
    SessionNotFound,
    Unauthenticated,
)
from cmbs.stores import InMemoryStore
from cmbs.testing import FailingStore, Moment
from tests.support.carriers import TLS, TLS_OPTIONS, client_context
from tests.support.http_server import TIMEOUT_SECONDS, run_cmbs, serving
from tests.support.transports import ONTOLOGY


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with connect("memory:") as opened:
        yield opened


def declare(client: Client, n_hypotheses: int = 7) -> str:
    hypotheses = [f"h{number}" for number in range(n_hypotheses)]
    return client.declare_session(ontology=ONTOLOGY, hypotheses=hypotheses).session_id


@pytest.mark.req("CLIENT-07")
def test_lists_are_read_to_their_end_whatever_the_size_of_a_page(subtests: pytest.Subtests, client: Client) -> None:
    for limit in [1, 2, 3, 7, 100]:
        with subtests.test(limit=limit):
            session_id = declare(client)
            client.eliminate(session_id, "probe", ["h3"])
            left = client.each(client.list_survivors, session_id, limit=limit)
            assert list(left) == ["h0", "h1", "h2", "h4", "h5", "h6"]
            assert [event.seq for event in client.each(client.audit_trace, session_id, limit=limit)] == [0, 1]
            listed = [session.session_id for session in client.each(client.list_sessions, limit=limit)]
            assert len(listed) == len(set(listed))
            assert session_id in listed


@pytest.mark.req("CLIENT-07")
def test_lists_are_read_to_their_end_when_awaited() -> None:
    async def read() -> list[str]:
        async with connect_async("memory:") as client:
            opened = await client.declare_session(ontology=ONTOLOGY, hypotheses=list("abcde"))
            return [each async for each in client.each(client.list_survivors, opened.session_id, limit=2)]

    assert asyncio.run(read()) == list("abcde")


def test_a_part_of_an_answer_is_plain_json(client: Client) -> None:
    session_id = declare(client)
    part = client.request("query_belief", session_id=session_id, fields=["n_survivors", "terminated"])
    assert part == {"n_survivors": 7, "terminated": False}
    with pytest.raises(InvalidRequest, match="not a field of this answer"):
        client.request("query_belief", session_id=session_id, fields=["n_surviors"])
    assert client.request("query_belief", session_id=session_id, fields="n_survivors") == {"n_survivors": 7}
    assert client.request("query_belief", session_id=session_id)["survivors"] == [f"h{number}" for number in range(7)]
    with pytest.raises(InvalidRequest, match="did you mean `query_belief`"):
        client.request("query_beleif", session_id=session_id)
    with pytest.raises(InvalidRequest, match="`follow_session` goes on without end"):
        client.request("follow_session", session_id=session_id)


def test_options_are_those_of_the_client_that_was_given_and_of_no_other(client: Client) -> None:
    session_id = declare(client)
    careful = client.with_options(if_match="e0", minimal=True)
    assert careful.query_belief(session_id).survivors is None
    with pytest.raises(HeadMismatch):
        careful.declare_conclusion(session_id, "h1")
    once = careful.with_options(idempotency_key="k")
    first = once.declare_conclusion(session_id, "h1")
    assert first.snapshot.survivors is not None
    assert (first.replayed, once.declare_conclusion(session_id, "h1").replayed) == (False, True)
    with pytest.raises(Conflict, match="idempotency key `k`"):
        once.declare_conclusion(session_id, "h2")
    # What it saw, the others know.
    assert client.heads.find(session_id) == careful.heads.find(session_id) == Head(1, first.audit_event_id)
    assert not client.declare_conclusion(session_id, "h1").replayed


def test_a_client_that_acts_as_another_says_so(client: Client) -> None:
    other = client.acting_as({"x-cmbs-actor": "operator:ops"})
    assert (other.whoami().kind, other.whoami().id) == ("operator", "ops")
    assert client.whoami().kind == "agent"
    assert "operator:ops" not in repr(vars(other))


def test_what_no_header_can_hold_is_refused_wherever_the_server_is() -> None:
    for server in ("memory:", "http://127.0.0.1:1"):
        with connect(server) as opened:
            for value in ("é", "\u2603", "k\r\nx-cmbs-actor: operator:ops", "k ", "\x7f"):
                with pytest.raises(InvalidRequest, match="`idempotency-key` must be printable ASCII"):
                    opened.with_options(idempotency_key=value)
                with pytest.raises(InvalidRequest, match="`x-cmbs-actor` must be printable ASCII"):
                    opened.acting_as({"x-cmbs-actor": value})
        with pytest.raises(InvalidRequest, match="must be printable ASCII") as raised:
            connect(server, key="hunter2\n")
        assert "hunter2" not in f"{raised.value!r} {raised.value.details}"


def test_a_minimal_answer_has_no_survivors_and_says_how_many_there_are(client: Client) -> None:
    hypotheses = [str(number) for number in range(5_000)]
    opened = client.with_options(minimal=True).declare_session(ontology=ONTOLOGY, hypotheses=hypotheses)
    assert (opened.snapshot.survivors, opened.snapshot.n_survivors) == (None, 5_000)
    # Large enough to be compressed on the way.
    whole = client.query_belief(opened.session_id).survivors
    assert whole is not None
    assert len(whole) == 5_000


@pytest.mark.req("CLIENT-05")
def test_the_client_keeps_the_highest_head_of_every_stream(client: Client) -> None:
    session_id = declare(client)
    first = client.heads.find(session_id)
    assert first is None or first.seq == 0
    outcome = client.eliminate(session_id, "probe", ["h0"], observation_id="1")
    assert client.heads.find(session_id) == Head(1, outcome.audit_event_id)
    # Neither a repeat nor a look back is taken for the head.
    assert client.eliminate(session_id, "probe", ["h0"], observation_id="1").replayed
    client.declare_conclusion(session_id, "h1")
    client.query_belief(session_id, at=0)
    assert client.eliminate(session_id, "probe", ["h0"], observation_id="1").replayed
    head = client.heads.find(session_id)
    assert head is not None
    assert head.seq == 2
    assert client.query_belief(session_id).audit_head_event_id == head.event_id


@pytest.mark.req("CLIENT-05")
def test_a_pinned_client_writes_on_what_it_has_seen_alone(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'cmbs.db'}"
    with connect(store, pin=True) as pinned, connect(store) as other:
        session_id = declare(pinned)
        pinned.query_belief(session_id)
        other.eliminate(session_id, "other", ["h0"])
        with pytest.raises(HeadMismatch):
            pinned.declare_conclusion(session_id, "h0")
        pinned.query_belief(session_id)
        assert pinned.declare_conclusion(session_id, "h1").accepted
        with pytest.raises(HeadMismatch):
            other.with_options(if_match="e0").eliminate(session_id, "other", ["h2"])


def test_threads_may_share_a_client(client: Client) -> None:
    session_id = declare(client, 64)

    def eliminate(number: int) -> list[str]:
        return client.eliminate(session_id, f"source-{number % 4}", [f"h{number}"]).applied_eliminated

    with ThreadPoolExecutor(8) as threads:
        applied = list(threads.map(eliminate, range(63)))
    assert sorted(each for ids in applied for each in ids) == sorted(f"h{number}" for number in range(63))
    assert client.query_belief(session_id).survivors == ["h63"]


def test_a_wait_ends_with_the_news(client: Client) -> None:
    session_id = declare(client)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.query_belief, session_id, wait=30, after=0)
        client.eliminate(session_id, "probe", ["h0"])
        assert waiting.result(30).n_survivors == 6


def test_a_server_in_this_process_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'cmbs.db'}"
    with connect(store) as client:
        session_id = declare(client)
        client.eliminate(session_id, "probe", ["h0"])
    with connect(store) as again:
        assert again.query_belief(session_id).n_survivors == 6


def test_settings_of_a_server_in_this_process_are_those_of_the_environment() -> None:
    settings = {"CMBS_LIMIT_HYPOTHESES_PER_SESSION": "3"}
    with connect("memory:", settings=settings) as client, pytest.raises(LimitExceeded, match="hypotheses_per_session"):
        declare(client)
    with pytest.raises(InvalidRequest, match="settings"):
        connect("http://127.0.0.1:1", settings={})


class SilentService:
    """Of an application that never answers."""

    async def call(self, *arguments: Any) -> Any:
        await asyncio.get_running_loop().create_future()


class SilentApplication:
    """An application that never answers."""

    service = SilentService()


@pytest.mark.req("CLIENT-06")
def test_an_application_that_fails_is_told_as_a_server_that_does() -> None:
    hurried = Patience(timeout=0.01, attempts=1)
    with connect(SilentApplication(), patience=hurried) as client, pytest.raises(Unreachable, match="in time"):
        client.healthz()
    store = FailingStore(InMemoryStore())
    server = BeliefServer(store=store)
    with closing(create_app(server)) as app, connect(app, patience=Patience(first_pause=0.0)) as client:
        session_id = declare(client)
        store.fail("append", error=ZeroDivisionError("hunter2"))
        with pytest.raises(RequestFailed, match="the server failed") as raised:
            client.declare_conclusion(session_id, "h1")
        assert (raised.value.status, raised.value.code) == (500, "INTERNAL_ERROR")
        assert "hunter2" not in f"{raised.value} {raised.value.details}"
        # What may pass is tried again, and under one key.
        store.fail("append", moment=Moment.AFTER)
        assert client.declare_conclusion(session_id, "h1").accepted
        assert len(client.audit_trace(session_id).events) == 2


def test_what_is_no_server_is_refused() -> None:
    async def other(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    for made in (other, None, Path("cmbs.db")):
        for connecting in (connect, connect_async):
            with pytest.raises(
                InvalidRequest, match="is no server: pass an address, a store, or what `create_app` made"
            ):
                connecting(cast("Any", made))


def test_a_client_that_is_closed_says_so_and_may_be_closed_again() -> None:
    for server in ("memory:", "http://127.0.0.1:1"):
        client = connect(server)
        client.close()
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            client.healthz()

        async def close(server: str = server) -> None:
            client = connect_async(server)
            await client.close()
            await client.close()
            with pytest.raises(RuntimeError, match="closed"):
                await client.healthz()

        asyncio.run(close())


def test_what_waits_in_another_thread_ends_when_the_client_is_closed() -> None:
    with closing(create_app(BeliefServer())) as app, ThreadPoolExecutor(2) as threads:
        client = connect(app)
        session_id = declare(client)
        seen: SimpleQueue[int] = SimpleQueue()

        def follow() -> None:
            for event in client.follow_session(session_id, from_=0):
                seen.put(event.seq)

        def wait() -> None:
            client.query_belief(session_id, wait=30, after=1)

        waiting = [threads.submit(follow)]
        client.eliminate(session_id, "probe", ["h0"])
        assert [seen.get(timeout=30), seen.get(timeout=30)] == [0, 1]
        waiting.append(threads.submit(wait))
        client.close()
        for each in waiting:
            with pytest.raises(RuntimeError, match="the client is closed"):
                each.result(30)
        # The application serves on, and counts the follower no longer.
        assert app.service.followers.count == 0
        with connect(app) as other:
            assert other.query_belief(session_id).n_survivors == 6


def test_a_key_and_its_actor(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'cmbs.db'}"
    made = run_cmbs("keys", "create", "--store", store, "--id", "planner", "--role", "agent", directory=tmp_path)
    found = re.search(r"cmbs_\w+", made.stdout)
    assert found, made
    key = found[0]
    with connect(store, key=key) as client:
        assert (client.whoami().kind, client.whoami().id) == ("agent", "planner")
        with pytest.raises(Forbidden):
            client.create_space("s")
    with connect(store, key="") as client, pytest.raises(Unauthenticated):
        client.whoami()
    with connect("memory:", actor="operator:ops") as client:
        assert (client.whoami().id, client.create_space("s").space_id) == ("ops", "s")


@pytest.mark.slow
def test_a_socket_file_and_tls_with_client_certificates(tmp_path: Path) -> None:
    socket = ("--uds", "cmbs.sock")
    with serving(tmp_path, "--store", "memory:", *socket) as server, connect(f"unix://{server.socket_file}") as client:
        assert client.healthz().status == "ok"
    secure = (*TLS_OPTIONS, "--tls-client-ca", str(TLS / "client_ca.pem"))
    certificate = (str(TLS / "client.pem"), str(TLS / "client_key.pem"))
    trusted = {"verify": client_context(with_certificate=True)}
    hurried = Patience(deadline=1.0, attempts=1)
    with serving(tmp_path, "--store", "memory:", *secure, connection=trusted) as server:
        with connect(server.url, ca=str(TLS / "certificate.pem"), certificate=certificate) as client:
            assert client.healthz().status == "ok"
        with connect(server.url, patience=hurried) as client, pytest.raises(Unreachable):
            client.healthz()
    with pytest.raises(InvalidRequest, match="certificate"):
        connect("https://localhost:1", ca=str(tmp_path / "none.pem"))


def test_both_clients_have_the_same_operations() -> None:
    names = {name for name in dir(Client) if not name.startswith("_")}
    assert names - {"follow"} <= set(dir(AsyncClient))
    with connect("memory:") as client, pytest.raises(SessionNotFound):
        client.query_belief("none")


@pytest.mark.slow
def test_a_program_that_does_not_close_its_client_ends_all_the_same(tmp_path: Path) -> None:
    script = "from cmbs.client import connect; client = connect('sqlite:///cmbs.db'); print(client.healthz().status)"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert ran.stdout == "ok\n"
