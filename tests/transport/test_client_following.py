"""Following through the client: every event once and in order, whatever becomes of the connections."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing
from itertools import islice
from typing import Any

import msgspec
import pytest
from httpx2 import ServerSentEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from cmbs.client import Client, Patience, Unreachable, UnreadableAnswer, connect, connect_async
from cmbs.client.calls import Call
from cmbs.client.exchange import Environment
from cmbs.client.following import StreamFollow
from cmbs.client.results.belief import StreamEvent
from cmbs.errors import EventNotFound, Forbidden, InvalidRequest, LedgerCorrupt, SessionNotFound
from tests.support.effort import EFFORT
from tests.support.transports import ONTOLOGY

AT_ONCE = Patience(first_pause=0.0, deadline=0.0, attempts=8)
N_ENTRIES = 12
REVOKED = {"reason": "permission_lost", "code": "FORBIDDEN", "message": "the key is revoked"}


def entry_of(seq: int) -> dict[str, Any]:
    hashes = dict.fromkeys(("prev_event_hash", "event_hash"), "0" * 64)
    text = {"text": "line\u2028separators \x85 are no line ends"}
    named = {"format": "cmbs/1", "stream_id": "s", "seq": seq, "event_id": f"e{seq}", "ts": "", "verb": "ELIMINATE"}
    return {**named, "payload": text, "outcome": None, **hashes}


def frame(name: str, content: Any, place: int | None = None) -> bytes:
    cursor = "" if place is None else f"id: {place}\n"
    return f"{cursor}event: {name}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n".encode()


class Unsteady:
    """An application that breaks off each answer after so many bytes, until it runs out of them."""

    def __init__(self, *cuts: int, end: Any = REVOKED, order: Callable[[int], int] = lambda seq: seq) -> None:
        self._cuts = list(cuts)
        self._end = end
        self._order = order
        self.begun: list[str | None] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        last = headers.get("last-event-id")
        self.begun.append(last)
        first = 0 if last is None else int(last) + 1
        body = frame("head", {"seq": N_ENTRIES - 1}, None if first == 0 else first - 1)
        for seq in range(first, N_ENTRIES):
            body += frame("entry", entry_of(self._order(seq)), seq) + frame("heartbeat", {"at": "", "seq": seq}, seq)
        body += frame("end", self._end)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        cut = self._cuts.pop(0) if self._cuts else len(body)
        for byte in range(0, min(cut, len(body)), 7):
            part = body[byte : min(byte + 7, cut)]
            await send({"type": "http.response.body", "body": part, "more_body": True})
        if cut >= len(body):
            await send({"type": "http.response.body", "body": b"", "more_body": False})


@pytest.mark.req("CLIENT-08")
@settings(max_examples=EFFORT.examples_for(20), deadline=None)
@given(cuts=st.lists(st.integers(300, 4000), max_size=6))
def test_every_entry_comes_once_wherever_connections_break(cuts: list[int]) -> None:
    seen: list[int] = []

    def read() -> None:
        with connect(Unsteady(*cuts), patience=AT_ONCE) as client:
            seen.extend(event.seq for event in client.follow_session("s", from_=0))

    # The server ends it in the end, for a reason that another connection would not change.
    with pytest.raises(Forbidden, match="the key is revoked"):
        read()
    assert seen == list(range(N_ENTRIES))


@pytest.mark.req("CLIENT-08")
def test_every_entry_comes_once_when_awaited_too() -> None:
    async def read() -> list[int]:
        async with (
            connect_async(Unsteady(900, 10, 2500), patience=AT_ONCE) as client,
            aclosing(client.follow_session("s", from_=0)) as events,
        ):
            return [(await anext(events)).seq for _ in range(N_ENTRIES)]

    assert asyncio.run(read()) == list(range(N_ENTRIES))


@pytest.mark.req("CLIENT-08")
def test_an_entry_that_is_missing_is_found_out() -> None:
    app = Unsteady(order=lambda seq: seq if seq < 5 else seq + 1)
    with connect(app, patience=AT_ONCE) as client, pytest.raises(UnreadableAnswer, match="entry 6 of `s` came after"):
        list(client.follow_session("s", from_=0))


@pytest.mark.req("CLIENT-08")
def test_a_follower_gives_up_where_nothing_comes_any_more() -> None:
    app = Unsteady(*[20] * 100)
    with connect(app, patience=AT_ONCE) as client, pytest.raises(Unreachable):
        list(client.follow_session("s", from_=0))
    assert len(app.begun) == AT_ONCE.attempts


def follow_by_a_clock(patience: Patience) -> tuple[StreamFollow, list[float]]:
    """A follower, and its clock, which a test sets."""
    clock = [100.0]
    call = Call("GET", "/v1/sessions/s/events", dict[str, Any])
    return StreamFollow(call, patience, Environment(lambda: clock[0], lambda: 1.0, lambda: "key")), clock


@pytest.mark.req("CLIENT-08")
def test_a_follower_outlasts_a_server_that_takes_its_time_to_start_again() -> None:
    follow, clock = follow_by_a_clock(Patience(attempts=3, deadline=30.0))
    while clock[0] < 129.0:
        clock[0] += min(1.0, follow.judge(Unreachable("nobody listens yet")))
    clock[0] = 131.0
    with pytest.raises(Unreachable):
        follow.judge(Unreachable("nobody listens any more"))


@pytest.mark.req("CLIENT-08")
def test_connections_that_break_now_and_then_do_not_end_a_stream_on_which_nothing_is_written() -> None:
    follow, clock = follow_by_a_clock(Patience(attempts=3, deadline=0.0))
    heartbeat = ServerSentEvent("heartbeat", '{"at":"","seq":4}', "4")
    for _ in range(20):
        clock[0] += 3600.0
        assert follow.take(heartbeat) is None
        assert follow.judge(Unreachable("a proxy cut it")) < 1.0


@pytest.mark.req("CLIENT-08")
def test_a_log_that_does_not_verify_is_told() -> None:
    end = {"reason": "ledger_corrupt", "code": "LEDGER_CORRUPT", "message": "bad at seq 3"}
    with connect(Unsteady(end=end), patience=AT_ONCE) as client, pytest.raises(LedgerCorrupt, match="bad at seq 3"):
        list(client.follow_session("s", from_=0))


def declare(client: Client) -> str:
    return client.declare_session(ONTOLOGY, list("abcdef")).session_id


@pytest.mark.req("CLIENT-08")
def test_what_is_written_is_followed_in_the_same_process() -> None:
    with connect("memory:", actor="operator:ops") as client, ThreadPoolExecutor(1) as threads:
        session_id = declare(client)
        client.eliminate(session_id, "probe", ["a"])
        follower = client.follow_session(session_id, from_=0)
        assert [event.seq for event in islice(follower, 2)] == [0, 1]
        coming = threads.submit(next, follower)
        outcome = client.eliminate(session_id, "probe", ["b"])
        assert coming.result(30).event_id == outcome.audit_event_id
        follower.close()
        client.create_space("s")
        with closing(client.follow_space("s", from_=0)) as events:
            assert next(events).verb == "CREATE_SPACE"
        with pytest.raises(SessionNotFound):
            next(client.follow_session("none"))
        with pytest.raises(EventNotFound):
            next(client.follow_session(session_id, from_=99))


@pytest.mark.req("CLIENT-08")
def test_what_is_written_is_followed_when_awaited() -> None:
    async def follow() -> list[str]:
        async with connect_async("memory:") as client:
            session_id = (await client.declare_session(ONTOLOGY, list("abc"))).session_id
            follower = client.follow_session(session_id, from_=0)
            verbs = [(await anext(follower)).verb]
            await client.eliminate(session_id, "probe", ["a"])
            verbs.append((await anext(follower)).verb)
            await follower.aclose()
            return verbs

    assert asyncio.run(follow()) == ["DECLARE_SESSION", "ELIMINATE"]


def told_of(stream_id: str, seq: int) -> dict[str, Any]:
    return {"stream_kind": "session", "stream_id": stream_id, "entry": {**entry_of(seq), "stream_id": stream_id}}


class UnsteadyJournal:
    """As `Unsteady`, for all streams: two of them in turn, and between their entries what a filter left out."""

    def __init__(self, *cuts: int, twice: bool = False) -> None:
        self._cuts = list(cuts)
        self._twice = twice
        self.begun: list[str | None] = []
        self.queries: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        last = headers.get("last-event-id")
        self.begun.append(last)
        self.queries.append(scope["query_string"].decode())
        first = 0 if last is None else int(last) + 1
        body = frame("head", {"cursor": str(first - 1)}, first - 1)
        for place in range(first, 2 * N_ENTRIES):
            seq = 0 if self._twice and place == 6 else 2 * (place // 4)
            what = (
                frame("heartbeat", {"at": ""}, place)
                if place % 2
                else frame("entry", told_of("ab"[place // 2 % 2], seq), place)
            )
            body += what
        fault = {"stream_kind": "space", "stream_id": "s", "seq": 3, "code": "LEDGER_CORRUPT", "message": "bad"}
        if first <= 2 * N_ENTRIES:
            body += frame("corrupt", fault, 2 * N_ENTRIES)
        body += frame("end", REVOKED)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        cut = self._cuts.pop(0) if self._cuts else len(body)
        await send({"type": "http.response.body", "body": body[:cut], "more_body": cut < len(body)})


@pytest.mark.req("CLIENT-08")
@settings(max_examples=EFFORT.examples_for(20), deadline=None)
@given(cuts=st.lists(st.integers(300, 4000), max_size=6))
def test_every_entry_of_all_streams_comes_once_wherever_connections_break(cuts: list[int]) -> None:
    seen: list[StreamEvent] = []
    app = UnsteadyJournal(*cuts)

    def read() -> None:
        with connect(app, patience=AT_ONCE) as client:
            seen.extend(client.follow_all(from_=0, kind=["session", "space"], refused=False))

    with pytest.raises(Forbidden, match="the key is revoked"):
        read()
    entries = [(each.stream_id, each.entry.seq) for each in seen if each.entry is not None]
    assert entries == [("ab"[turn % 2], 2 * (turn // 2)) for turn in range(N_ENTRIES)]
    assert [(each.stream_id, each.fault.message) for each in seen if each.fault is not None] == [("s", "bad")]
    assert seen[-1].cursor == str(2 * N_ENTRIES)
    assert set(app.queries) == {"from=0&kind=session&kind=space&refused=false"}


@pytest.mark.req("CLIENT-08")
def test_an_entry_that_comes_twice_among_all_streams_is_found_out() -> None:
    with (
        connect(UnsteadyJournal(twice=True), patience=AT_ONCE) as client,
        pytest.raises(UnreadableAnswer, match="entry 0 of `b` came after entry 0"),
    ):
        list(client.follow_all(from_=0))


@pytest.mark.req("CLIENT-08")
def test_more_streams_than_are_kept_are_followed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cmbs.client.following._MAX_STREAMS", 1)
    with connect(UnsteadyJournal(), patience=AT_ONCE) as client:
        assert len(list(islice(client.follow_all(from_=0), N_ENTRIES))) == N_ENTRIES


@pytest.mark.req("CLIENT-08")
def test_an_entry_of_more_than_a_megabyte_is_followed_too() -> None:
    universe = [f"{number:05}{'x' * 200}" for number in range(6_000)]
    with connect("memory:") as client:
        opened = client.declare_session(ONTOLOGY, universe)
        with closing(client.follow_session(opened.session_id, from_=0)) as events:
            entry = next(events)
    assert len(msgspec.json.encode(entry)) > 1 << 20

    async def follow() -> int:
        async with connect_async("memory:") as client:
            opened = await client.declare_session(ONTOLOGY, universe)
            async with aclosing(client.follow_session(opened.session_id, from_=0)) as events:
                return len(msgspec.json.encode(await anext(events)))

    assert asyncio.run(follow()) > 1 << 20


@pytest.mark.req("CLIENT-08")
def test_all_that_is_written_is_followed_by_filters_and_from_a_cursor() -> None:
    with connect("memory:", actor="operator:ops") as client, ThreadPoolExecutor(1) as threads:
        one, two = declare(client), declare(client)
        client.eliminate(one, "probe", ["a"])
        with closing(client.follow_all(from_=0)) as events:
            told = list(islice(events, 3))
            assert [(each.stream_id, each.entry and each.entry.seq) for each in told] == [(one, 0), (two, 0), (one, 1)]
            coming = threads.submit(next, events)
            client.create_space("s")
            assert (coming.result(30).stream_kind, coming.result().stream_id) == ("space", "s")
        with closing(client.follow_all(after=told[1].cursor, stream_id=[one], verb=["ELIMINATE"])) as events:
            assert next(events) == told[2]
        with pytest.raises(InvalidRequest, match="`kind` must be a list"):
            client.follow_all(kind="session")

    async def follow() -> str:
        async with connect_async("memory:") as client:
            opened = await client.declare_session(ONTOLOGY, list("abc"))
            async with aclosing(client.follow_all(from_=0)) as events:
                return "same" if (await anext(events)).stream_id == opened.session_id else "other"

    assert asyncio.run(follow()) == "same"
