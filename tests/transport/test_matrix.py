"""Every operation of the table through every transport: the same answers, whatever carries them."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cmbs.api.operations import OPERATIONS
from cmbs.api.operations.graphs import GRAPH_OPERATIONS
from cmbs.client import AsyncClient, Client
from cmbs.tee.stores.memory import MemoryGraphStore
from scripts.api_examples import Recorder
from scripts.api_graph import GRAPH, play_graph
from tests.support.carriers import CARRIERS, CLIENT_CARRIERS, COMMAND, Send, carry
from tests.support.command_carrier import CommandCarrier
from tests.support.tee import listening
from tests.support.transports import ONTOLOGY, transcribe

ALL = (*CARRIERS, *CLIENT_CARRIERS, COMMAND)
# What a newcomer waits for; the others start more servers.
FIRST = ("asgi", "http/1.1 on sqlite", "embedded client")
# Beside ids, hashes and times, what differs from run to run.
VOLATILE = re.compile(r'"(next_cursor|seconds|note|origin|vkey|secret)": ?("[^"]+"|[0-9.e-]+)')


def mask_records(content: Any) -> None:
    """Leave out how many heads of streams were recorded, and when decisions were made: that is how long it took."""
    if isinstance(content, dict):
        if content.keys() >= {"n_parts", "parts"}:
            content["parts"] = sum(each["allow"] + each["defer"] + each["deny"] for each in content["parts"])
        if content.keys() >= {"leaf_index", "path", "size"}:
            content |= {"leaf_index": 0, "path": [], "size": 0}
        if content.get("verb") == "RECORD_HEAD":
            content |= {"seq": 0, "prev_event_hash": ""}
        for each in content.values():
            mask_records(each)
    elif isinstance(content, list):
        for each in content:
            mask_records(each)


def tell(send: Send) -> list[Any]:
    """Every answer of the incidents of the document."""
    told, record = listen(send)
    recorder = Recorder(record, token_expires_at="2999-01-01T00:00:00Z")
    recorder.play({"session_analysis": {"truth": "slow-dns"}})
    # What is followed is no document; `test_following.py` sends it over the same carriers.
    on_graphs = {operation.operation_id for operation in GRAPH_OPERATIONS}
    assert recorder.responses.keys() == {operation.operation_id for operation in OPERATIONS} - on_graphs
    return transcribe(told)


def tell_graph(send: Send) -> list[Any]:
    """Every answer of the incident over a causal graph."""
    told, record = listen(send)
    answered = play_graph(record)
    assert answered.keys() == {operation.operation_id for operation in GRAPH_OPERATIONS}
    return transcribe(told)


def listen(send: Send) -> tuple[list[Any], Send]:
    """A list of all answers; each is JSON, and what a read answers to HEAD fits its body."""
    told: list[Any] = []

    def record(method: str, path: str, **options: Any) -> httpx2.Response:
        answer = send(method, path, **options)
        assert answer.headers["content-type"] == "application/json"
        content = json.loads(VOLATILE.sub(r'"\1": 0', answer.text))
        if path.startswith("/v1/checkpoint") and "size" in content:
            content["size"] = 0
        mask_records(content)
        told.append((method, path, answer.status_code, content))
        # A command has no HEAD, and prints no headers.
        if method == "GET" and not isinstance(send, CommandCarrier):
            check_head(send, path, answer, **options)
        return answer

    return told, record


def check_head(send: Send, path: str, whole: httpx2.Response, **options: Any) -> None:
    # An answer that came without HTTP, to a client in the process of its server, is not compressed.
    over_http = whole.num_bytes_downloaded > 0
    if not over_http:
        options["headers"] = {**options.get("headers", {}), "accept-encoding": "identity"}
    bare = send("HEAD", path, **options)
    assert (bare.status_code, bare.content) == (200, b"")
    assert show_headers(bare, over_http=over_http) == show_headers(whole, over_http=over_http)
    # As it went over the wire: compressed, where it is worth it.
    assert int(bare.headers["content-length"]) == (whole.num_bytes_downloaded if over_http else len(whole.content))


def show_headers(answer: httpx2.Response, *, over_http: bool) -> dict[str, str]:
    shown = {**answer.headers, "date": ""}
    if not over_http:
        varies = answer.headers.get("vary", "").lower().split(", ")
        shown["vary"] = ", ".join(each for each in varies if each != "accept-encoding")
    return shown


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    with carry("asgi", tmp_path_factory.mktemp("expected")) as send:
        return tell(send)


@pytest.mark.req("BS-3.1-HTTP-01", "HTTP-EXT-06", "HTTP-EXT-07", "SS01-HTTP-02", "CLIENT-02")
@pytest.mark.parametrize(
    "carrier", [each if each in FIRST else pytest.param(each, marks=pytest.mark.slow) for each in ALL]
)
def test_every_operation_gives_the_same_answer_over_every_transport(
    carrier: str, expected: list[Any], tmp_path: Path
) -> None:
    with carry(carrier, tmp_path) as send:
        for mine, theirs in zip(tell(send), expected, strict=True):
            assert mine == theirs
        check_head(send, "/docs", send("GET", "/docs"))
        # An id may hold a slash: this one ends as another route does.
        opened = send("POST", "/v1/sessions", json={"ontology": ONTOLOGY, "hypotheses": ["a"]}).json()["session_id"]
        path, obligation = f"/v1/sessions/{opened}/obligations", {"obligation_id": "net/dns/exit"}
        send("POST", path, json={**obligation, "min_total_eliminations": 0})
        assert send("POST", f"{path}/net%2Fdns%2Fexit/exit").json()["approved"] is True


@pytest.mark.slow
@pytest.mark.req("HTTP-EXT-06", "TEE-SEARCH-03", "CLIENT-02")
@pytest.mark.parametrize("carrier", ALL)
def test_every_operation_on_a_graph_gives_the_same_answer_over_every_transport(carrier: str, tmp_path: Path) -> None:
    store = MemoryGraphStore()
    store.merge(GRAPH)
    with listening(store) as port, carry(carrier, tmp_path, f"127.0.0.1:{port}") as send:
        told = tell_graph(send)
    # With a key of its own: a server that has signed something takes no writes into an empty store.
    beside = tmp_path / "beside"
    beside.mkdir()
    with listening(store) as port, carry("asgi", beside, f"127.0.0.1:{port}") as send:
        assert told == tell_graph(send)


@pytest.mark.req("CLIENT-02")
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_every_operation_is_one_of_the_client(kind: type[Client | AsyncClient]) -> None:
    """Where this names one, `make generate` was not run."""
    assert [each.operation_id for each in OPERATIONS if not hasattr(kind, each.operation_id)] == []
