"""Every operation of the table through every transport: the same answers, whatever carries them."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from cmbs.http.operations import OPERATIONS
from scripts.api_examples import Recorder
from tests.support.carriers import CARRIERS, Send, carry
from tests.support.transports import ONTOLOGY, transcribe

# Beside ids, hashes and times, what differs from run to run.
VOLATILE = re.compile(r'"(next_cursor|seconds|note|origin|vkey)": ?("[^"]+"|[0-9.e-]+)')


def tell(send: Send) -> list[Any]:
    """Every answer of the incidents of the document; each is JSON, and what a read answers to HEAD fits its body."""
    told: list[Any] = []

    def record(method: str, path: str, **options: Any) -> httpx.Response:
        answer = send(method, path, **options)
        assert answer.headers["content-type"] == "application/json"
        content = json.loads(VOLATILE.sub(r'"\1": 0', answer.text))
        if path.startswith("/v1/checkpoint") and "size" in content:
            # How often a stream was recorded meanwhile depends on how long the incidents took.
            content["size"] = 0
        told.append((method, path, answer.status_code, content))
        if method == "GET":
            check_head(send, path, answer, **options)
        return answer

    recorder = Recorder(record, token_expires_at="2999-01-01T00:00:00Z")
    recorder.play({"session_analysis": {"truth": "slow-dns"}})
    assert recorder.responses.keys() == {operation.operation_id for operation in OPERATIONS}
    return transcribe(told)


def check_head(send: Send, path: str, whole: httpx.Response, **options: Any) -> None:
    bare = send("HEAD", path, **options)
    assert (bare.status_code, bare.content) == (200, b"")
    assert {**bare.headers, "date": ""} == {**whole.headers, "date": ""}
    assert int(bare.headers["content-length"]) == len(whole.content)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    with carry("asgi", tmp_path_factory.mktemp("expected")) as send:
        return tell(send)


@pytest.mark.req("BS-3.1-HTTP-01", "HTTP-EXT-06", "HTTP-EXT-07", "SS01-HTTP-02")
@pytest.mark.parametrize("carrier", CARRIERS)
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
