"""The analysis over HTTP: the same findings as in Python, within limits, and the errors of the protocol."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cmbs.analysis import Analysis, KitStudy, analyse, trajectory_of
from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.http.app import BeliefApp
from cmbs.kit import KitProvider, ontology_of
from cmbs.messages import OntologyBundle
from cmbs.stores import InMemoryStore, SQLiteStore
from tests.support.domains import install, kit_of
from tests.support.in_process import Client, Exchanged, client_of, exchange

YES, NO = frozenset({0}), frozenset({1})
HALVES = kit_of([[YES, NO, NO, NO], [YES, YES, NO, NO], [YES, NO, YES, NO]], [1.0] * 4)
PLAIN = OntologyBundle("space", "1", "", "")


@pytest.fixture
def server(store: InMemoryStore | SQLiteStore) -> Iterator[BeliefServer]:
    server = BeliefServer(belief_provider=KitProvider(HALVES), store=store)
    yield server
    server.close()


@pytest.fixture
def client(server: BeliefServer) -> Iterator[Client]:
    with client_of(create_app(server)) as client:
        yield client


def opened(server: BeliefServer) -> str:
    """A session of the kit with two answers."""
    session_id, _ = server.declare_session(ontology_of(HALVES))
    server.apply_probe(session_id, "p1", "o0")
    server.apply_probe(session_id, "p0", "o1")
    return session_id


def test_it_says_what_the_library_says(server: BeliefServer, client: Client) -> None:
    session_id = opened(server)
    answer = client.get(f"/v1/sessions/{session_id}/analysis", params={"truth": "h1"})
    assert answer.status_code == 200
    expected = analyse(trajectory_of(server.audit_trace(session_id)), KitStudy(HALVES), "h1")
    assert msgspec.json.decode(answer.content, type=Analysis) == expected
    assert expected.truth is not None
    assert expected.truth.found


def test_a_session_without_a_kit_is_analysed_without(tmp_path: Path) -> None:
    server = BeliefServer()
    session_id, _ = server.declare_session(PLAIN, ["a", "b"])
    with client_of(create_app(server)) as client:
        found = client.get(f"/v1/sessions/{session_id}/analysis").json()
    assert (found["kit"], found["truth"], found["bits_left"]) == (None, None, 1.0)


def test_an_installed_kit_is_found_by_what_the_session_was_declared_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(HALVES, tmp_path, monkeypatch)
    server = BeliefServer()
    ids = [each.id for each in HALVES.hypotheses]
    fitting, _ = server.declare_session(ontology_of(HALVES), ids)
    others = [
        server.declare_session(OntologyBundle("domain", "2", "", ""), ids).session_id,
        server.declare_session(PLAIN, ids).session_id,
        server.declare_session(ontology_of(HALVES), [*ids, "unlisted"]).session_id,
    ]
    with client_of(create_app(server)) as client:
        kits = [client.get(f"/v1/sessions/{each}/analysis").json()["kit"] for each in (fitting, *others)]
        named = client.get(f"/v1/sessions/{others[1]}/analysis", params={"kit": "domain"}).json()
        misfit = client.get(f"/v1/sessions/{others[2]}/analysis", params={"kit": "domain"})
    assert [kit and kit["kit_id"] for kit in kits] == ["domain", None, None, None]
    assert named["kit"]["regret"]["method"] == "exact"
    assert (misfit.status_code, misfit.json()["error"]["details"]["unknown"]) == (400, ["unlisted"])


def test_a_kit_that_is_not_there_is_refused_and_those_that_are_are_named(server: BeliefServer, client: Client) -> None:
    answer = client.get(f"/v1/sessions/{opened(server)}/analysis", params={"kit": "nothing"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "INVALID_REQUEST")
    assert "no kit `nothing`" in error["message"]
    assert "`domain`" in error["message"]


def test_a_truth_outside_the_universe_is_refused(server: BeliefServer, client: Client) -> None:
    answer = client.get(f"/v1/sessions/{opened(server)}/analysis", params={"truth": "none-such"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "INVALID_HYPOTHESIS_ID")


def test_a_session_that_is_not_there_is_not_found(client: Client) -> None:
    answer = client.get("/v1/sessions/nowhere/analysis")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "SESSION_NOT_FOUND")


@pytest.mark.req("AN-08")
def test_a_longer_log_than_the_limit_is_refused_and_the_limit_named() -> None:
    server = BeliefServer(limits=Limits(analysis_events=3))
    session_id, _ = server.declare_session(PLAIN, ["a", "b", "c"])
    with client_of(create_app(server)) as client:
        for number in range(3):
            assert client.get(f"/v1/sessions/{session_id}/analysis").status_code == 200
            server.eliminate(session_id, "agent", str(number), [])
        answer = client.get(f"/v1/sessions/{session_id}/analysis")
    assert answer.status_code == 413
    details = answer.json()["error"]["details"]
    assert details.items() >= {"limit": "analysis_events", "maximum": 3, "actual": 4}.items()


@pytest.mark.req("AN-08")
def test_work_beyond_the_limit_is_not_done_and_said() -> None:
    server = BeliefServer(belief_provider=KitProvider(HALVES), limits=Limits(analysis_steps=1))
    session_id = opened(server)
    with client_of(create_app(server)) as client:
        found = client.get(f"/v1/sessions/{session_id}/analysis").json()["kit"]["regret"]
    assert found["method"] == "huffman"
    assert (found["optimum"], found["regret"], found["luck"]) == (None, None, None)
    assert found["beyond_at_most"] >= 0
    assert "more steps" in found["reason"]


@pytest.mark.req("AN-08")
def test_it_runs_beside_the_event_loop_and_one_at_a_time() -> None:
    threads: list[str] = []

    class Watched(BeliefServer):
        def stored_entries(self, *arguments: object, **options: object) -> list[object]:  # type: ignore[override]
            threads.append(threading.current_thread().name)
            return super().stored_entries(*arguments, **options)  # type: ignore[arg-type, return-value]

    server = Watched()
    session_id, _ = server.declare_session(PLAIN, ["a", "b"])
    app = create_app(server)

    async def many() -> list[int]:
        path = f"/v1/sessions/{session_id}/analysis".encode()
        return [each.status for each in await asyncio.gather(*(exchange(app, "GET", path) for _ in range(8)))]

    assert asyncio.run(many()) == [200] * 8
    assert set(threads) == {"cmbs-analysis_0"}
    app.close()


def test_an_application_that_is_started_again_analyses_again() -> None:
    server = BeliefServer()
    session_id, _ = server.declare_session(PLAIN, ["a"])
    app = BeliefApp(server)
    app.close()
    with client_of(app) as client:
        for _ in range(2):
            assert client.get(f"/v1/sessions/{session_id}/analysis").status_code == 200
            app.close()


@pytest.mark.req("AN-08")
def test_only_so_many_wait_and_the_others_are_told() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(BeliefServer):
        def stored_entries(self, *arguments: object, **options: object) -> list[object]:  # type: ignore[override]
            begun.set()
            assert go_on.wait(60)
            return super().stored_entries(*arguments, **options)  # type: ignore[arg-type, return-value]

    server = Slow(limits=Limits(analyses_waiting=2))
    session_id, _ = server.declare_session(PLAIN, ["a", "b"])
    app = create_app(server)
    path = f"/v1/sessions/{session_id}/analysis".encode()

    async def many() -> tuple[list[int], Exchanged, list[int]]:
        first = asyncio.ensure_future(exchange(app, "GET", path))
        await asyncio.to_thread(begun.wait, 60)
        first.cancel()  # the caller is gone, the thread is not
        *waiting, last = [asyncio.ensure_future(exchange(app, "GET", path)) for _ in range(3)]
        refused = await last
        go_on.set()
        await asyncio.wait(waiting)
        again = [(await exchange(app, "GET", path)).status for _ in range(3)]
        return [each.result().status for each in waiting], refused, again

    answered, refused, again = asyncio.run(many())
    assert (answered, again) == ([200, 200], [200, 200, 200])
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    error = msgspec.json.decode(refused.body)["error"]
    assert (error["code"], error["details"]["limit"], error["details"]["maximum"]) == ("BUSY", "analyses_waiting", 2)
    assert "Retry-After" in error["details"]["next"]
    app.close()
