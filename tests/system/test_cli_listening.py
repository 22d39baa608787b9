"""How `cmbs serve` listens: options and their variables, TLS, socket files, limits, and a stop that ends."""

import inspect
import time
from pathlib import Path
from typing import get_type_hints

import httpx2
import pytest

from cmbs.cli.serve import serve
from tests.support.carriers import TLS, TLS_OPTIONS, client_context
from tests.support.http_server import TIMEOUT_SECONDS, run_cmbs, serving
from tests.support.wire import HEALTH, HOST, LAST, answers, connected, declaring, exchanged

pytestmark = pytest.mark.slow


@pytest.mark.req("CLI-SERVE-01")
def test_options_can_be_given_by_the_environment(tmp_path: Path) -> None:
    variables = {"CMBS_HOST": "localhost", "CMBS_WORKERS": "2", "CMBS_ACCESS_LOG": "1", "CMBS_MAX_REQUESTS": "7"}
    with serving(tmp_path, variables=variables) as server:
        assert f"cmbs belief server on http://localhost:{server.port}, 2 workers" in server.output
        server.wait_until(lambda: '"GET /readyz HTTP/1.1" 200' in server.output)


def test_every_option_has_an_environment_variable() -> None:
    hints = get_type_hints(serve, include_extras=True)
    for name in inspect.signature(serve).parameters:
        assert hints[name].__metadata__[0].envvar == f"CMBS_{name.upper()}"


def test_tls_is_spoken_in_http_1_and_2_and_a_client_needs_a_certificate_where_that_is_asked_for(tmp_path: Path) -> None:
    trusted = {"verify": client_context(with_certificate=True)}
    options = ("--store", "memory:", *TLS_OPTIONS, "--tls-client-ca", str(TLS / "client_ca.pem"))
    with serving(tmp_path, *options, connection=trusted) as server:
        assert f"on https://127.0.0.1:{server.port}," in server.output
        for http2 in (False, True):
            with server.client(http2=http2) as client:
                answer = client.get("/healthz")
                assert (answer.status_code, answer.http_version) == (200, "HTTP/2" if http2 else "HTTP/1.1")
        with (
            httpx2.Client(base_url=server.url, verify=client_context(with_certificate=False)) as client,
            pytest.raises(httpx2.TransportError),
        ):
            client.get("/healthz")


def test_a_socket_file_is_for_the_account_of_the_server_and_checked_like_an_address(tmp_path: Path) -> None:
    with serving(tmp_path, "--store", "memory:", "--uds", "cmbs.sock") as server, server.client() as client:
        assert server.socket_file is not None
        assert server.socket_file.stat().st_mode & 0o777 == 0o600
        assert client.get("/v1/sessions").status_code == 200
        for headers in ({"host": "rebound.example"}, {"origin": "https://evil.example"}):
            assert client.get("/v1/sessions", headers=headers).status_code == 403
        ran = run_cmbs("serve", "--store", "memory:", "--uds", "cmbs.sock", directory=tmp_path)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "cannot listen on `cmbs.sock`: Address already in use" in ran.stderr
        server.kill()
    # What a killed server left behind is no obstacle.
    with serving(tmp_path, "--store", "memory:", "--uds", "cmbs.sock") as server:
        assert server.stop() == 0
        assert not (tmp_path / "cmbs.sock").exists()


def test_connections_beyond_the_limit_wait_and_requests_beyond_theirs_are_told_to_come_again(tmp_path: Path) -> None:
    options = ("--store", "memory:", "--max-connections", "2", "--max-requests", "1", "--stop-seconds", "1")
    with serving(tmp_path, *options) as server:
        with connected(server.port) as half, connected(server.port) as other:
            half.sendall(declaring()[:-1])
            told: list[bytes] = []

            def ask() -> bool:
                other.sendall(HEALTH + HOST + b"\r\n")
                told.append(other.recv(65_536))
                return told[-1].startswith(b"HTTP/1.1 503 ")

            # An answer that says so means that the request before is in progress.
            server.wait_until(ask)
            busy = told[-1]
            assert b"retry-after: 1\r\n" in busy
            assert b'"code":"BUSY"' in busy
            with connected(server.port) as third:
                third.sendall(HEALTH + LAST + b"\r\n")
                third.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    third.recv(1)
                third.settimeout(TIMEOUT_SECONDS)
                other.close()
                (answer,) = answers(third)
                assert answer.status == 503  # the third is let in, and the half-sent request is still in progress
            half.close()
        server.wait_until(lambda: exchanged(server.port, HEALTH + LAST + b"\r\n").status == 200)


@pytest.mark.parametrize("part", [b"GET /heal", declaring()[:-1]], ids=["head", "body"])
def test_a_half_sent_request_holds_up_a_signal_no_longer_than_was_allowed(tmp_path: Path, part: bytes) -> None:
    with serving(tmp_path, "--stop-seconds", "1") as server, connected(server.port) as connection:
        connection.sendall(part)
        # An answer on another connection means that the one before has been seen.
        assert exchanged(server.port, HEALTH + LAST + b"\r\n").status == 200
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < TIMEOUT_SECONDS / 2
