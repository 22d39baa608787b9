"""Following through the client: every event once and in order, whatever becomes of the connections."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, contextmanager
from itertools import islice
from typing import Any

import msgspec
import pytest
from httpx2 import ServerSentEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from cmbs.api.call import build_call, find_operation
from cmbs.api.entries import AuditEvent
from cmbs.api.streams import StreamEvent
from cmbs.client import Client, Patience, Unreachable, UnreadableAnswer, connect, connect_async
from cmbs.client.exchange import Environment
from cmbs.client.following import StreamFollow
from cmbs.errors import EventNotFound, Forbidden, InvalidRequest, LedgerCorrupt, SessionNotFound
from tests.support.effort import EFFORT
from tests.support.scripted_server import scripted
from tests.support.transports import ONTOLOGY

AT_ONCE = Patience(first_pause=0.0, deadline=0.0, attempts=8)
N_ENTRIES = 12
NOW = "2026-01-01T00:00:00.000000Z"
EVENT_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)
REVOKED = {"reason": "permission_lost", "code": "FORBIDDEN", "message": "the key is revoked"}


def entry_of(seq: int) -> dict[str, Any]:
    names = ("prev_event_hash", "event_hash", "survivors_before_hash", "survivors_after_hash")
    hashes = dict.fromkeys(names, "0" * 64)
    text = {"text": "line\u2028separators \x85 are no line ends"}
    named = {"format": "cmbs/1", "stream_id": "s", "seq": seq, "event_id": f"e{seq}", "ts": NOW, "verb": "ELIMINATE"}
    return {**named, "payload": text, "outcome": None, "delta": {"eliminated": []}, **hashes}


def frame(name: str, content: Any, place: int | None = None) -> bytes:
    cursor = "" if place is None else f"id: {place}\n"
    return f"{cursor}event: {name}\ndata: {json.dumps(content, ensure_ascii=False)}\n\n".encode()


def write_chunks(body: bytes, cut: int) -> bytes:
    """An answer that goes on, in parts of a few bytes, which breaks off after so many where it is not at its end."""
    parts = [body[byte : min(byte + 7, cut)] for byte in range(0, min(cut, len(body)), 7)]
    end = [b""] if cut >= len(body) else []
    return EVENT_STREAM_HEAD + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, *end])


class Unsteady:
    """A server that breaks off each answer after so many bytes, until it runs out of them."""

    def __init__(self, *cuts: int, end: Any = REVOKED, order: Callable[[int], int] = lambda seq: seq) -> None:
        self._cuts = list(cuts)
        self._end = end
        self._order = order
        self.begun: list[str | None] = []

    def __call__(self, request: bytes) -> bytes:
        last = read_place(request)
        self.begun.append(last)
        first = 0 if last is None else int(last) + 1
        body = frame("head", {"seq": N_ENTRIES - 1}, None if first == 0 else first - 1)
        for seq in range(first, N_ENTRIES):
            body += frame("entry", entry_of(self._order(seq)), seq) + frame("heartbeat", {"at": "", "seq": seq}, seq)
        body += frame("end", self._end)
        return write_chunks(body, self._cuts.pop(0) if self._cuts else len(body))


def read_place(request: bytes) -> str | None:
    """Where a follower goes on from."""
    found = re.search(rb"\r\nlast-event-id: (.*)\r\n", request, re.IGNORECASE)
    return None if found is None else found[1].decode()


@contextmanager
def following(answer: Callable[[bytes], bytes]) -> Iterator[Client]:
    """A client of a server that answers so."""
    with scripted(answer) as server, connect(server.url, patience=AT_ONCE) as client:
        yield client


@pytest.mark.req("CLIENT-08")
@settings(max_examples=EFFORT.examples_for(20), deadline=None)
@given(cuts=st.lists(st.integers(300, 4000), max_size=6))
def test_every_entry_comes_once_wherever_connections_break(cuts: list[int]) -> None:
    seen: list[int] = []

    def read() -> None:
        with following(Unsteady(*cuts)) as client:
            seen.extend(event.seq for event in client.follow_session("s", from_=0))

    # The server ends it in the end, for a reason that another connection would not change.
    with pytest.raises(Forbidden, match="the key is revoked"):
        read()
    assert seen == list(range(N_ENTRIES))


@pytest.mark.req("CLIENT-08")
def test_every_entry_comes_once_when_awaited_too() -> None:
    async def read() -> list[int]:
        async with (
            connect_async(server.url, patience=AT_ONCE) as client,
            aclosing(client.follow_session("s", from_=0)) as events,
        ):
            return [(await anext(events)).seq for _ in range(N_ENTRIES)]

    with scripted(Unsteady(900, 10, 2500)) as server:
        assert asyncio.run(read()) == list(range(N_ENTRIES))


@pytest.mark.req("CLIENT-08")
def test_an_entry_that_is_missing_is_found_out() -> None:
    app = Unsteady(order=lambda seq: seq if seq < 5 else seq + 1)
    with following(app) as client, pytest.raises(UnreadableAnswer, match="entry 6 of `s` came after"):
        list(client.follow_session("s", from_=0))


@pytest.mark.req("CLIENT-08")
def test_a_follower_gives_up_where_nothing_comes_any_more() -> None:
    app = Unsteady(*[20] * 100)
    with following(app) as client, pytest.raises(Unreachable):
        list(client.follow_session("s", from_=0))
    assert len(app.begun) == AT_ONCE.attempts


def follow_by_a_clock(patience: Patience) -> tuple[StreamFollow[AuditEvent], list[float]]:
    """A follower, and its clock, which a test sets."""
    clock = [100.0]
    call = build_call(find_operation("follow_session"), {"session_id": "s"})
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
    with following(Unsteady(end=end)) as client, pytest.raises(LedgerCorrupt, match="bad at seq 3"):
        list(client.follow_session("s", from_=0))


def declare(client: Client) -> str:
    return client.declare_session(ontology=ONTOLOGY, hypotheses=list("abcdef")).session_id


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
            session_id = (await client.declare_session(ontology=ONTOLOGY, hypotheses=list("abc"))).session_id
            follower = client.follow_session(session_id, from_=0)
            verbs: list[str] = [(await anext(follower)).verb]
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

    def __call__(self, request: bytes) -> bytes:
        last = read_place(request)
        self.begun.append(last)
        self.queries.append(request.split(b" ")[1].partition(b"?")[2].decode())
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
        return write_chunks(body, self._cuts.pop(0) if self._cuts else len(body))


@pytest.mark.req("CLIENT-08")
@settings(max_examples=EFFORT.examples_for(20), deadline=None)
@given(cuts=st.lists(st.integers(300, 4000), max_size=6))
def test_every_entry_of_all_streams_comes_once_wherever_connections_break(cuts: list[int]) -> None:
    seen: list[StreamEvent] = []
    app = UnsteadyJournal(*cuts)

    def read() -> None:
        with following(app) as client:
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
        following(UnsteadyJournal(twice=True)) as client,
        pytest.raises(UnreadableAnswer, match="entry 0 of `b` came after entry 0"),
    ):
        list(client.follow_all(from_=0))


@pytest.mark.req("CLIENT-08")
def test_more_streams_than_are_kept_are_followed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cmbs.client.following._MAX_STREAMS", 1)
    with following(UnsteadyJournal()) as client:
        assert len(list(islice(client.follow_all(from_=0), N_ENTRIES))) == N_ENTRIES


@pytest.mark.req("CLIENT-08")
def test_an_entry_of_more_than_a_megabyte_is_followed_too() -> None:
    universe = [f"{number:05}{'x' * 200}" for number in range(6_000)]
    with connect("memory:") as client:
        opened = client.declare_session(ontology=ONTOLOGY, hypotheses=universe)
        with closing(client.follow_session(opened.session_id, from_=0)) as events:
            entry = next(events)
    assert len(msgspec.json.encode(entry)) > 1 << 20

    async def follow() -> int:
        async with connect_async("memory:") as client:
            opened = await client.declare_session(ontology=ONTOLOGY, hypotheses=universe)
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
        # A single text is one value, and not a list of its letters.
        with closing(client.follow_all(from_=0, kind="space")) as events:
            assert next(events).stream_id == "s"
        with pytest.raises(InvalidRequest, match="`kind`"):
            next(client.follow_all(kind=["none"]))

    async def follow() -> str:
        async with connect_async("memory:") as client:
            opened = await client.declare_session(ontology=ONTOLOGY, hypotheses=list("abc"))
            async with aclosing(client.follow_all(from_=0)) as events:
                return "same" if (await anext(events)).stream_id == opened.session_id else "other"

    assert asyncio.run(follow()) == "same"
