"""The application inside something larger: mounted, behind middleware, beside routes of another application."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from cmbs.api.operations import OPERATIONS
from cmbs.belief.kernel.requests import Limits
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.bootstrap import Settings
from cmbs.errors import InvalidRequest, StoreUnavailable
from cmbs.http import BeliefApp
from cmbs.stores import SQLiteStore
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS
from tests.support.error_model import check_error
from tests.support.in_process import App, Client, Event, client_of, scope_of
from tests.support.transports import DECLARATION, ONTOLOGY, InPython, OverHTTP, Recorder

pytestmark = pytest.mark.slow

SECRET = "hunter2"


def bare() -> App:
    return create_app(BeliefServer())


def behind_middleware() -> App:
    app = create_app(BeliefServer())
    app.add_middleware(GZipMiddleware, minimum_size=1)
    app.add_middleware(CORSMiddleware, allow_origins=["https://console.test"])
    return app


def behind_a_function() -> App:
    async def mark_seen(request: Request, call_next: RequestResponseEndpoint) -> Response:
        response = await call_next(request)
        response.headers["x-seen"] = "1"
        return response

    app = create_app(BeliefServer())
    app.add_middleware(BaseHTTPMiddleware, dispatch=mark_seen)
    return app


EMBEDDINGS: dict[str, Callable[[], App]] = {
    "alone": bare,
    "behind middleware": behind_middleware,
    "behind a function": behind_a_function,
}


@pytest.fixture(params=EMBEDDINGS)
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with client_of(EMBEDDINGS[request.param]()) as client:
        yield client


# --- ids in paths -----------------------------------------------------------------------------------------------------


def leave_every_obligation(say: Recorder) -> None:
    session_id = say("DECLARE_SESSION", ontology=ONTOLOGY, hypotheses=["a"])["session_id"]
    # A dot or two as a whole part of a path mean something else to a client: see below.
    for obligation_id in [name for name in HOSTILE_IDS if name not in {".", ".."}]:
        say("ENTER_OBLIGATION", session_id, obligation_id=obligation_id, min_total_eliminations=0)
        left = say("REQUEST_EXIT", session_id, obligation_id=obligation_id)
        assert left.get("approved") is True, (obligation_id, left)


@pytest.mark.req("BS-3.1-HTTP-10")
def test_any_id_can_stand_in_a_path(client: Client) -> None:
    in_python, over_http = Recorder(InPython(BeliefServer())), Recorder(OverHTTP(client.request))
    for say in (in_python, over_http):
        leave_every_obligation(say)
    assert over_http.transcript() == in_python.transcript()


@pytest.mark.req("BS-3.1-HTTP-10")
def test_dots_can_stand_in_a_path_that_a_client_leaves_alone(subtests: pytest.Subtests, client: Client) -> None:
    for obligation_id, sent in [(".", b"."), (".", b"%2E"), ("..", b".."), ("..", b"%2e%2E")]:
        with subtests.test(obligation_id=obligation_id, sent=sent):
            path = f"/v1/sessions/{client.post('/v1/sessions', DECLARATION).json()['session_id']}/obligations"
            client.post(path, {"obligation_id": obligation_id, "min_total_eliminations": 0})
            left = client.exchange("POST", b"%b/%b/exit" % (path.encode(), sent))
            assert left.json()["approved"] is True


@pytest.mark.req("BS-3.2-ERR-01", "BS-3.2-ERR-07", "BS-3.2-ERR-08")
def test_failures_look_the_same_whatever_stands_in_between(client: Client) -> None:
    check_error(client.get("/nowhere"), 404, "NOT_FOUND")
    check_error(client.get("/v1/%73essions"), 404, "NOT_FOUND")
    wrong = client.request("DELETE", "/v1/sessions")
    check_error(wrong, 405, "METHOD_NOT_ALLOWED")
    assert wrong.headers["allow"] == "GET, HEAD, POST"
    check_error(client.post_raw("/v1/sessions", b"{"), 400, "INVALID_REQUEST")
    check_error(client.get("/v1/sessions/a%2Fb"), 404, "SESSION_NOT_FOUND")
    check_error(client.request("PUT", "/openapi.json"), 405, "METHOD_NOT_ALLOWED")


def test_middleware_sees_every_request_and_answer() -> None:
    with client_of(behind_middleware()) as client:
        answer = client.get("/healthz", headers={"origin": "https://console.test", "accept-encoding": "gzip"})
        assert answer.headers["access-control-allow-origin"] == "https://console.test"
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.json() == {"status": "ok"}
    with client_of(behind_a_function()) as client:
        for path, status in (("/healthz", 200), ("/v1/sessions/nowhere", 404), ("/nowhere", 404)):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["x-seen"]) == (status, "1")


# --- mounted ----------------------------------------------------------------------------------------------------------


def test_it_can_be_mounted_under_any_prefix(subtests: pytest.Subtests) -> None:
    for kind in [FastAPI, Starlette]:
        for prefix in ["/belief", "/a/b/c", "/with space", "/✓"]:
            with subtests.test(kind=kind.__name__, prefix=prefix):
                outer = kind()
                outer.router.routes.append(Mount(prefix, bare()))
                with client_of(outer) as client:
                    opened = client.post(f"{prefix}/v1/sessions", DECLARATION)
                    assert opened.status_code == 201
                    here = str(opened.request.url.join(opened.headers["location"]))
                    assert client.get(here).json() == opened.json()["snapshot"]
                    path = f"{prefix}/v1/sessions/{opened.json()['session_id']}/obligations"
                    client.post(path, {"obligation_id": "a/b", "min_total_eliminations": 0})
                    assert client.post(f"{path}/a%2Fb/exit").json()["approved"] is True
                    check_error(client.get(f"{prefix}/nowhere"), 404, "NOT_FOUND")
                    check_error(client.request("DELETE", f"{prefix}/healthz"), 405, "METHOD_NOT_ALLOWED")
                    assert client.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": prefix}]


def test_a_prefix_is_cut_off_only_where_it_is_one(subtests: pytest.Subtests) -> None:
    for root_path, raw_path, status in [
        ("/api", b"/api/healthz", 200),
        ("/api/", b"/api/healthz", 200),
        ("/api", b"/healthz", 200),
        ("/api", b"/apix/healthz", 404),
        ("/api", b"/api/api/healthz", 404),
        ("/a b", b"/a%20b/healthz", 200),
        ("", b"/healthz", 200),
        ("", b"/api/healthz", 404),
    ]:
        with subtests.test(root_path=root_path, raw_path=raw_path, status=status), client_of(bare()) as client:
            assert client.exchange("GET", raw_path, root_path=root_path).status == status


def test_a_server_that_gives_no_raw_path_is_served_from_the_decoded_one() -> None:
    scope = scope_of("GET", b"/v1/sessions/%2541%20")
    del scope["raw_path"]
    found = create_app(BeliefServer()).service.table.find(scope)
    assert found is not None
    assert found.params == {"session_id": "%41 "}


# --- beside others ----------------------------------------------------------------------------------------------------


def with_foreign_routes() -> BeliefApp:
    async def extra(_: Request) -> Response:
        return JSONResponse({"extra": "yes"})

    async def forbidden(_: Request) -> Response:
        raise HTTPException(403, "not for you", {"x-why": "policy"})

    async def unchanged(_: Request) -> Response:
        raise HTTPException(304, headers={"etag": '"1"'})

    async def broken(_: Request) -> Response:
        raise RuntimeError(SECRET)

    app = create_app(BeliefServer())
    for endpoint in (extra, forbidden, unchanged, broken):
        app.add_route(f"/{endpoint.__name__}", endpoint)
    return app


def test_foreign_routes_work_beside_ours() -> None:
    with client_of(with_foreign_routes()) as client:
        assert client.get("/extra").json() == {"extra": "yes"}
        assert client.get("/healthz").json() == {"status": "ok"}
        refused = client.get("/forbidden")
        assert (refused.status_code, refused.json()) == (403, {"detail": "not for you"})
        assert refused.headers["x-why"] == "policy"
        unchanged = client.get("/unchanged")
        assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", '"1"')
        assert check_error(client.post("/extra"), 405, "METHOD_NOT_ALLOWED")["allowed"] == ["GET", "HEAD"]


@pytest.mark.req("BS-3.2-ERR-14")
def test_a_failure_of_a_foreign_route_gives_away_nothing() -> None:
    with client_of(with_foreign_routes()) as client:
        answer = client.get("/broken")
        check_error(answer, 500, "INTERNAL_ERROR")
        assert SECRET not in answer.text


@pytest.mark.req("BS-3.2-ERR-14")
def test_a_failure_of_middleware_gives_away_nothing() -> None:
    async def broken(_: Request, __: RequestResponseEndpoint) -> Response:
        raise RuntimeError(SECRET)

    app = create_app(BeliefServer())
    app.add_middleware(BaseHTTPMiddleware, dispatch=broken)
    with client_of(app) as client:
        answer = client.get("/healthz")
        check_error(answer, 500, "INTERNAL_ERROR")
        assert SECRET not in answer.text


def test_every_path_of_the_table_is_a_route_of_the_application() -> None:
    routes = [getattr(route, "path", None) for route in create_app(BeliefServer()).routes]
    assert {operation.path for operation in OPERATIONS} <= set(routes)


# --- a life -----------------------------------------------------------------------------------------------------------


async def lived(app: App) -> list[str]:
    """Start and stop an application as a server does; what it says meanwhile."""
    said: list[str] = []
    coming = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> dict[str, str]:
        return next(coming)

    async def send(event: dict[str, str]) -> None:
        said.append(event["type"])

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    return said


def test_stopping_the_application_closes_the_server(tmp_path: Path) -> None:
    server = BeliefServer(store=SQLiteStore(tmp_path / "cmbs.db"))
    assert asyncio.run(lived(create_app(server))) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    with pytest.raises(StoreUnavailable):
        server.list_sessions()


def test_a_websocket_is_not_taken_for_a_request() -> None:
    said = []

    async def receive() -> Event:
        return {"type": "websocket.connect"}

    async def send(event: Event) -> None:
        said.append(event["type"])

    scope = {**scope_of("GET", b"/v1/sessions"), "type": "websocket", "subprotocols": []}
    asyncio.run(create_app(BeliefServer())(scope, receive, send))
    assert said == ["websocket.close"]


# --- made from settings -----------------------------------------------------------------------------------------------


@pytest.mark.req("ARCH-5-LIMIT-06")
def test_an_application_is_made_from_settings() -> None:
    settings = Settings(store="memory:", validate_hypotheses=True, limits=Limits(page_size=3))
    with client_of(create_app(settings=settings)) as client:
        opened = client.post("/v1/sessions", DECLARATION).json()["session_id"]
        body = {"source_id": "s", "observation_id": "o", "eliminated": ["z"]}
        check_error(client.post(f"/v1/sessions/{opened}/eliminate", body), 422, "INVALID_HYPOTHESIS_ID")
        check_error(client.get("/v1/sessions?limit=4"), 413, "LIMIT_EXCEEDED")
        lenient = {**DECLARATION, "policy": {"validate_hypotheses": False}}
        opened = client.post("/v1/sessions", lenient).json()["session_id"]
        assert client.post(f"/v1/sessions/{opened}/eliminate", body).json()["ignored_eliminated"] == ["z"]


def test_an_application_is_made_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMBS_STORE", "memory:")
    monkeypatch.setenv("CMBS_LIMIT_HYPOTHESES_PER_SESSION", "3")
    with client_of(create_app()) as client:
        details = check_error(client.post("/v1/sessions", DECLARATION), 413, "LIMIT_EXCEEDED")
        assert details["limit"] == "hypotheses_per_session"


def test_the_application_of_the_module_is_made_once_and_when_it_is_asked_for(tmp_path: Path) -> None:
    program = """
import os
from cmbs import belief_api
assert not os.path.exists("here.db")
os.environ["CMBS_STORE"] = "sqlite:///here.db"
assert belief_api.app is belief_api.app
assert os.path.exists("here.db")
belief_api.app.service.belief_server.close()
print(hasattr(belief_api, "application"))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (0, "False\n"), ran.stderr


def test_a_setting_that_makes_no_sense_is_named(subtests: pytest.Subtests) -> None:
    for variable, value in [
        ("CMBS_STORE", "mysql://nowhere"),
        ("CMBS_VALIDATE_HYPOTHESES", "maybe"),
        ("CMBS_LIMIT_PAGE_SIZE", "0"),
        ("CMBS_LIMIT_PAGE_SIZE", "-1"),
        ("CMBS_LIMIT_PAGE_SIZE", "many"),
        ("CMBS_LIMIT_PAGE_SIZE", "\u0663"),
        ("CMBS_LIMIT_PAGE_SIZE", ""),
        ("CMBS_LIMIT_PAGE_SIZE", "9" * 5000),
        ("CMBS_STORE_TIMEOUT_SECONDS", "0"),
        ("CMBS_STORE_TIMEOUT_SECONDS", "3601"),
    ]:
        with subtests.test(variable=variable, value=value):
            environment = {"CMBS_STORE": "memory:", variable: value}
            with pytest.raises(InvalidRequest, match=variable if variable != "CMBS_STORE" else "mysql") as refused:
                create_app(settings=Settings.from_environment(environment))
            assert len(refused.value.message) < 500


@pytest.mark.req("ARCH-5-LIMIT-06")
def test_settings_reach_a_worker_through_the_environment_as_they_are(subtests: pytest.Subtests) -> None:
    for settings in [
        Settings(),
        Settings("memory:", validate_hypotheses=True, limits=Limits(*range(1, 9))),
        Settings("sqlite:///x.db", limits=Limits(cached_sessions=1), store_timeout_seconds=3),
    ]:
        with subtests.test(settings=settings):
            assert Settings.from_environment(settings.to_environment()) == settings


def test_a_flag_can_be_written_in_several_ways(subtests: pytest.Subtests) -> None:
    for text, meant in [("1", True), ("TRUE", True), (" on ", True), ("no", False), ("", False)]:
        with subtests.test(text=text, meant=meant):
            assert Settings.from_environment({"CMBS_VALIDATE_HYPOTHESES": text}).validate_hypotheses is meant
