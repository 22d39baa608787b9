"""`cmbs serve` as an operator meets it: it starts, says where, serves, stops, and comes back with everything."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from typer.testing import CliRunner

from cmbs.adapters.kits import choose_kit
from cmbs.adapters.sre.webshop import closed_provider
from cmbs.belief.kernel.replay import verify_session
from cmbs.cli import demo
from cmbs.cli.app import app
from cmbs.cli.serving import hide_password
from cmbs.console import ConsoleFiles
from cmbs.identity.tokens import new_key
from cmbs.kit import NO_DATA
from cmbs.stores import SQLiteStore
from tests.support.carriers import TLS
from tests.support.http_server import (
    TIMEOUT_SECONDS,
    ServerProcess,
    environment_with,
    free_port,
    open_client,
    run_cmbs,
    serving,
)
from tests.support.transports import DECLARATION, ONTOLOGY

pytestmark = pytest.mark.slow

CERTIFICATE = str(TLS / "certificate.pem")
ELIMINATION = {"source_id": "s", "observation_id": "o", "eliminated": ["a", "z"]}


def declared(client: httpx2.Client) -> str:
    session_id: str = client.post("/v1/sessions", json=DECLARATION).json()["session_id"]
    return session_id


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with `--store memory:` in a directory that has a setting, and modules, that it must not use."""
    directory = tmp_path_factory.mktemp("memory")
    for name in ("starlette", "msgspec", "json", "cmbs"):
        (directory / f"{name}.py").write_text("raise SystemExit('taken from the working directory')\n")
    with serving(directory, "--store", "memory:", variables={"CMBS_STORE": "sqlite:///other.db"}) as server:
        yield server
        assert not (directory / "other.db").exists()


# --- starting and stopping --------------------------------------------------------------------------------------------


@pytest.mark.req("CLI-SERVE-01", "CLI-SERVE-02", "BS-5.1-STORE-01")
def test_it_says_where_it_is_stops_on_a_signal_and_comes_back_with_its_sessions(tmp_path: Path) -> None:
    port, is_built = free_port(), ConsoleFiles().find_page("") is not None
    with serving(tmp_path, port=port) as server, server.client() as client:
        path = f"/v1/sessions/{declared(client)}"
        client.post(f"{path}/eliminate", json=ELIMINATION)
        before = [client.get(f"{path}{part}").json() for part in ("", "/audit", "/obligations")]
        # With a connection still open.
        assert server.stop(signal.SIGTERM) == 0
        assert server.output.splitlines() == [
            f"cmbs belief server on http://127.0.0.1:{port}, 1 worker",
            f"  console   {f'http://127.0.0.1:{port}' if is_built else 'not built: `make console` builds it'}",
            f"  API docs  http://127.0.0.1:{port}/docs",
            "  store     sqlite:///cmbs.db",
            "  keys      none: only this machine is served, and callers are unauthenticated",
        ]
    assert (tmp_path / "cmbs.db").is_file()
    with serving(tmp_path, port=port) as server, server.client() as client:
        assert [client.get(f"{path}{part}").json() for part in ("", "/audit", "/obligations")] == before
        assert server.stop(signal.SIGINT) == 0


@pytest.mark.req("CLI-SERVE-01")
@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_it_listens_on_the_host_that_was_asked_for(tmp_path: Path, host: str) -> None:
    port = free_port()
    server = ServerProcess(tmp_path, "--store", "memory:", "--host", host, port=port)
    shown = f"[{host}]" if ":" in host else host
    server.url = f"http://{shown}:{port}"
    try:
        server.wait_until_ready()
        assert f"on http://{shown}:{port}," in server.output
        assert httpx2.get(f"{server.url}/v1/sessions", timeout=TIMEOUT_SECONDS).status_code == 200
        assert server.stop() == 0
    finally:
        server.discard()


def test_settings_of_the_environment_reach_the_workers(tmp_path: Path) -> None:
    store = "sqlite:///[red]of :fire:.db"
    variables = {"CMBS_STORE": store, "CMBS_LIMIT_PAGE_SIZE": "3", "CMBS_VALIDATE_HYPOTHESES": "yes"}
    with serving(tmp_path, variables=variables) as server, server.client() as client:
        assert client.get("/v1/sessions?limit=4").json()["error"]["details"]["maximum"] == 3
        answer = client.post(f"/v1/sessions/{declared(client)}/eliminate", json=ELIMINATION)
        assert answer.json()["error"]["code"] == "INVALID_HYPOTHESIS_ID"
        assert f"  store     {store}\n" in server.output
    assert (tmp_path / "[red]of :fire:.db").is_file()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///cmbs.db", "sqlite:///cmbs.db"),
        ("sqlite:////srv/a:b@c.db", "sqlite:////srv/a:b@c.db"),
        ("postgresql://user@host:5432/db", "postgresql://user@host:5432/db"),
        ("postgresql://user:secret@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("postgresql://user:sec/ret:@host/db?x=1", "postgresql://user:***@host/db?x=1"),
        ("postgresql:///db?user=u&password=secret&x=1", "postgresql:///db?user=u&password=***&x=1"),
        ("postgresql:///db?sslPassword=secret", "postgresql:///db?sslPassword=***"),
    ],
)
def test_a_password_in_the_url_of_the_store_is_not_printed(url: str, shown: str) -> None:
    assert hide_password(url) == shown


def test_the_option_wins_over_the_environment_and_the_working_directory_is_not_searched(
    in_memory: ServerProcess,
) -> None:
    with in_memory.client() as client:
        assert client.get("/healthz").json() == {"status": "ok"}
    assert "  store     memory:\n" in in_memory.output


def test_a_request_is_one_line_of_the_access_log_and_no_key_is_in_it(tmp_path: Path) -> None:
    key = new_key().text
    with serving(tmp_path, "--store", "memory:", "--access-log") as server, server.client() as client:
        assert client.get(f"/v1/sessions/a%0Aforged%1B[31m{key}").status_code == 404
        assert server.stop() == 0
    (line,) = (line for line in server.output.splitlines() if "forged" in line)
    assert f'"GET /v1/sessions/a\\nforged\\x1b[31m{key.rpartition("_")[0]}_*** HTTP/1.1" 404' in line
    assert key not in server.output


def test_a_worker_that_is_no_process_of_its_own_loads_the_application_too(tmp_path: Path) -> None:
    program = "from cmbs.cli.serving import load_app; print(type(load_app()).__name__)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment_with({"CMBS_STORE": "memory:"}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "BeliefApp\n", "")


# --- what cannot work is said before anything starts ------------------------------------------------------------------


@pytest.mark.parametrize("command", [["gateway", "--upstream", "git=no-such-command"], ["decide"]])
def test_a_gateway_does_not_share_the_port_of_another_server(command: list[str], tmp_path: Path) -> None:
    with socket.socket() as listener:
        # As granian binds it: another process that does so gets a part of the connections.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        ran = run_cmbs(*command, "--store", "memory:", "--port", port, directory=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"cmbs: INVALID_REQUEST: cannot listen on `127.0.0.1:{port}`: Address already in use")


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ([], "give `--upstream NAME=COMMAND`, or `--config` with a file of servers"),
        (
            ["--upstream", "mcp-server-git"],
            "give a name before it, as in `--upstream git=mcp-server-git` or `--upstream docs=https://…`",
        ),
    ],
)
def test_a_gateway_without_a_server_says_how_to_name_one(options: list[str], step: str, tmp_path: Path) -> None:
    ran = run_cmbs("gateway", "--store", "memory:", *options, directory=tmp_path)
    assert (ran.returncode, ran.stderr.splitlines()[1]) == (2, f"  next: {step}")


def test_a_command_that_is_not_installed_is_named(tmp_path: Path) -> None:
    ran = run_cmbs(
        "gateway", "--store", "memory:", "--upstream", "git=no-such-command -x", "changes", directory=tmp_path
    )
    assert ran.returncode == 1
    assert "there is no command `no-such-command` here; install it, or write its whole path" in ran.stderr


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        ran = run_cmbs("serve", "--port", port, directory=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        f"cmbs: INVALID_REQUEST: cannot listen on `127.0.0.1:{port}`: Address already in use\n"
        "  next: stop what listens there, or choose another port: `--port`, or `make serve PORT=…`\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (["--store", "mysql://x"], {}, "`mysql://x` is not a store"),
        (
            ["--store", "sqlite:///no/such/directory/cmbs.db"],
            {},
            "there is no directory `no/such/directory`; make it first",
        ),
        (["--store", "sqlite:///:memory:"], {}, "use `memory:`"),
        (["--store", "sqlite:///a%00b"], {}, "is not a file"),
        (["--store", "memory:", "--workers", "2"], {}, "`memory:` lives in one process"),
        (["--host", "no.such.host.invalid"], {}, "cannot listen on `no.such.host.invalid:"),
        (["--host", "[/red]"], {}, "cannot listen on `[/red]:"),
        ([], {"CMBS_LIMIT_PAGE_SIZE": "none"}, "`CMBS_LIMIT_PAGE_SIZE` must be a whole number above 0"),
        ([], {"CMBS_VALIDATE_HYPOTHESES": "perhaps"}, "`CMBS_VALIDATE_HYPOTHESES` must be one of"),
        ([], {"CMBS_STORE": "x[bold]y"}, "`x[bold]y` is not a store"),
        (["--port", "0"], {}, "--port"),
        (["--port", "65536"], {}, "--port"),
        (["--workers", "0"], {}, "--workers"),
        (["--nonsense"], {}, "--nonsense"),
        (["--max-connections", "0"], {}, "--max-connections"),
        ([], {"CMBS_WORKERS": "none"}, "CMBS_WORKERS"),
        ([], {"CMBS_MAX_REQUESTS": "0"}, "CMBS_MAX_REQUESTS"),
        ([], {"CMBS_MAX_WAIT_SECONDS": "3601"}, "CMBS_MAX_WAIT_SECONDS"),
        (["--tls-cert", CERTIFICATE], {}, "`--tls-cert` and `--tls-key` belong together"),
        (["--tls-client-ca", CERTIFICATE], {}, "`--tls-client-ca` needs `--tls-cert` and `--tls-key`"),
        (["--tls-cert", CERTIFICATE, "--tls-key", CERTIFICATE], {}, "cannot use the TLS files: "),
        ([], {"CMBS_TLS_CERT": "none.pem"}, "'none.pem' does not exist"),
        (["--uds", "no/such/directory/cmbs.sock"], {}, "cannot listen on `no/such/directory/cmbs.sock`: there is no"),
        (["--uds", CERTIFICATE], {}, "it is not a socket"),
        (["--uds", "s" * 108], {}, "the path of a socket has at most 103 bytes"),
        (["--uds", "cmbs.sock", "--demo"], {}, "the demo is played over plain HTTP"),
    ],
)
def test_what_makes_no_sense_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    variables: dict[str, str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    port = [] if "--port" in arguments else ["--port", str(free_port())]
    ran = CliRunner().invoke(app, ["serve", *arguments, *port], env={"COLUMNS": "200", "NO_COLOR": "1", **variables})
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert message in ran.stderr
    assert isinstance(ran.exception, SystemExit)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cmbs.db").write_bytes(b"not a database, but long enough to be looked at " * 40)
    ran = CliRunner().invoke(app, ["serve", "--port", str(free_port())])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("cmbs: STORE_UNAVAILABLE: cannot open `cmbs.db`: ")


# --- several processes ------------------------------------------------------------------------------------------------


def written(url: str, session_id: str, source: int) -> list[str]:
    """Eliminations, each over a connection of its own; the ids of their events."""
    with open_client(url, headers={"connection": "close"}) as client:
        answers = [
            client.post(
                f"/v1/sessions/{session_id}/eliminate",
                json={"source_id": str(source), "observation_id": str(step), "eliminated": [f"h{source:02}.{step:02}"]},
            )
            for step in range(10)
        ]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.json()["audit_event_id"] for answer in answers]


@pytest.mark.req("CLI-SERVE-03", "BS-5.2-CONC-03")
def test_several_workers_serve_one_file_and_agree(tmp_path: Path) -> None:
    universe = [f"h{source:02}.{step:02}" for source in range(8) for step in range(10)] + ["survivor"]
    with serving(tmp_path, "--workers", "2") as server:
        assert "2 workers" in server.output
        assert len(server.workers()) == 2
        opened = httpx2.post(f"{server.url}/v1/sessions", json={"ontology": ONTOLOGY, "hypotheses": universe}).json()
        session_id = opened["session_id"]
        with ThreadPoolExecutor(8) as threads:
            acknowledged = list(threads.map(lambda source: written(server.url, session_id, source), range(8)))
        # Every connection may end at another worker: each must show all of it.
        for _ in range(8):
            with server.client() as client:
                belief: dict[str, Any] = client.get(f"/v1/sessions/{session_id}").json()
            assert belief["survivors"] == ["survivor"]
        events = httpx2.get(f"{server.url}/v1/sessions/{session_id}/audit").json()["events"]
        assert {event["event_id"] for event in events[1:]} == {event for mine in acknowledged for event in mine}
        assert len(events) == 81
        assert server.stop() == 0
    store = SQLiteStore(tmp_path / "cmbs.db")
    assert verify_session(session_id, store.read(session_id), store.head(session_id)).head.seq == 80
    store.close()


def test_a_server_that_is_killed_takes_its_workers_along(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, "--workers", "2", port=port) as server:
        assert len(server.workers()) == 2
        children = server.children()
        server.process.kill()
        server.process.wait(TIMEOUT_SECONDS)
        _, alive = psutil.wait_procs(children, TIMEOUT_SECONDS)
        assert alive == []
    with serving(tmp_path, port=port) as server:
        assert server.stop() == 0


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        before = server.workers()
        before[0].kill()
        server.wait_until(lambda: set(server.workers()) >= {before[1]} and before[0] not in server.workers())
        server.wait_until(lambda: len(server.workers()) == 2)
        # The other worker, too, may still have been starting when the first was killed.
        server.wait_until_ready()
        with server.client() as client:
            assert client.get(f"/v1/sessions/{declared(client)}").status_code == 200
        assert server.stop() == 0
        assert "Unexpected exit from worker-" in server.output


def test_a_worker_that_hangs_does_not_keep_others_from_being_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "3") as server:
        hanging, *others = server.workers()
        hanging.suspend()
        for killed in others:
            killed.kill()
            server.wait_until(lambda: killed not in server.workers() and len(server.workers()) == 3)  # noqa: B023
        hanging.resume()
        assert server.stop() == 0
        assert server.output.count("Unexpected exit from worker-") == 2


def test_a_worker_that_cannot_be_replaced_ends_the_server_with_an_error(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        for path in tmp_path.glob("cmbs.db*"):
            path.unlink()
        (tmp_path / "cmbs.db").write_bytes(b"not a database, but long enough to be looked at " * 40)
        server.workers()[0].kill()
        assert server.process.wait(TIMEOUT_SECONDS) == 1
        assert "a worker cannot start: STORE_UNAVAILABLE: cannot open `cmbs.db`: " in server.output
        assert server.workers() == []


# --- the demo ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("DEMO-01", "MCP-SERVER-01", "MCP-SERVER-02")
def test_the_demo_plays_an_incident_through_mcp_into_a_live_server(in_memory: ServerProcess) -> None:
    said: list[str] = []
    pauses: list[int] = []
    session_id = demo.play(in_memory.url, said.append, lambda: pauses.append(len(said)))
    with in_memory.client() as client:
        belief = client.get(f"/v1/sessions/{session_id}").json()
        events = client.get(f"/v1/sessions/{session_id}/audit").json()["events"]

    def outcomes(verb: str) -> list[Any]:
        return [event["outcome"] for event in events if event["verb"] == verb]

    assert (belief["survivors"], belief["terminated"]) == ([demo.CAUSE], True)
    assert outcomes("DECLARE_CONCLUSION") == [
        {"accepted": False, "reason": "obligation_active"},
        {"accepted": False, "reason": "not_singleton"},
        {"accepted": True, "reason": "accepted"},
    ]
    assert [outcome["approved"] for outcome in outcomes("REQUEST_EXIT")] == [False, True]
    assert outcomes("REQUEST_TERMINATION") == [{"approved": True, "reason": "approved"}]
    observations = [event["payload"] for event in events if event["verb"] == "ELIMINATE"]
    assert {each["source_id"] for each in observations} == {demo.METRICS, demo.TRACES}
    # The agent that forgot everything looked at nothing a second time.
    looks = [(each["source_id"], each["observation_id"]) for each in observations]
    assert len(looks) == len(set(looks))
    assert "demo:  traces · forgets everything, and asks: 4 left, 5 looks on record" in said
    # An installed kit, so that an analysis finds it.
    kit = closed_provider().kit
    ontology = belief["ontology"]
    kits = {kit.kit_id: kit}
    assert choose_kit(kits, ontology["hypothesis_space_id"], ontology["hypothesis_version"], kit.hypothesis_ids) is kit
    # A pause before every step, so that people can read along.
    assert pauses == list(range(2, 2 + len(demo.STORY)))
    assert said[-1] == f"demo: read it back at {in_memory.url}/v1/sessions/{session_id}/audit"


@pytest.mark.req("DEMO-01")
def test_the_demo_begins_once_the_server_is_up(tmp_path: Path) -> None:
    with serving(tmp_path, "--store", "memory:", "--demo", "--demo-pause", "0") as server, server.client() as client:
        sessions: list[dict[str, Any]] = []
        for _ in range(5_000):
            sessions = client.get("/v1/sessions").json()["sessions"]
            if sessions:
                break
        assert [session["universe_size"] for session in sessions] == [24]
        assert server.stop() == 0


@pytest.mark.deep
@pytest.mark.req("DEMO-01")
def test_the_demo_keeps_to_the_pace_it_is_given(in_memory: ServerProcess) -> None:
    waited: list[float] = []
    demo.play_in_background(in_memory.url, lambda _: None, 2.5, waited.append).join(TIMEOUT_SECONDS)
    assert waited == [0.1] + [2.5] * len(demo.STORY)


def test_the_demo_says_that_there_is_no_server() -> None:
    said: list[str] = []
    address = f"http://127.0.0.1:{free_port()}"
    demo.play_in_background(address, said.append, wait=lambda _: None).join(TIMEOUT_SECONDS)
    assert said == ["demo: the server did not answer in ten seconds"]


def test_what_rules_out_nothing_is_said(in_memory: ServerProcess) -> None:
    said: list[str] = []
    # Nothing is known of an alert that no probe could read.
    look = demo.Look(demo.METRICS, "QueueBacklog@event-queue", NO_DATA)
    session_id = demo.tell(in_memory.url, said.append, lambda: None, (look,))
    with in_memory.client() as client:
        events = client.get(f"/v1/sessions/{session_id}/audit").json()["events"]
    assert [event["delta"]["eliminated"] for event in events if event["verb"] == "ELIMINATE"] == [[]]
    assert said[2] == "demo: metrics · QueueBacklog@event-queue is no-data: that rules out nothing, 24 left, 4.58 bits"


@pytest.mark.deep
def test_the_demo_says_that_the_server_does_not_do_as_it_should(tmp_path: Path) -> None:
    said: list[str] = []
    variables = {"CMBS_LIMIT_HYPOTHESES_PER_SESSION": "1"}
    with serving(tmp_path, "--store", "memory:", variables=variables) as server:
        demo.play_in_background(server.url, said.append, wait=lambda _: None).join(TIMEOUT_SECONDS)
    assert len(said) == 1
    assert said[0].startswith("demo: stopped: LIMIT_EXCEEDED: ")


@pytest.mark.parametrize(
    ("answer", "said_of_it"),
    [
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{",
            "the connection to `{}` broke before the answer was complete",
        ),
        (b"gone\r\n\r\n", "the connection to `{}` broke before the answer was complete"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n<", "the answer is `nothing`, not `application/json`"),
    ],
    ids=["cut-short", "no-http", "no-json"],
)
def test_the_demo_says_that_the_server_went_away_in_the_middle(
    answer: bytes, said_of_it: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The demo speaks to this machine: what the environment says of proxies is not about it.
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    healthy = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        listening.settimeout(TIMEOUT_SECONDS)
        answering = pool.submit(answer_each, listening, (healthy, answer))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        demo.play_in_background(address, said.append, wait=lambda _: None).join(TIMEOUT_SECONDS)
        answering.result(TIMEOUT_SECONDS)
    assert len(said) == 1
    assert said[0].startswith(f"demo: stopped: {said_of_it.format(address)}")


def answer_each(listening: socket.socket, answers: tuple[bytes, ...]) -> None:
    """Take a connection for each answer, and read the request whole: closing on unread bytes would reset it."""
    for answer in answers:
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as request:
            length = 0
            while (line := request.readline()).strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            request.read(length)
            connection.sendall(answer)
