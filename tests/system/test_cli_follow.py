"""`cmbs follow`: entries as they come, and again after the server was away."""

import json
import subprocess
from pathlib import Path

import pytest

from cmbs.identity.kernel.scopes import Role
from cmbs.identity.registry import KeyRegistry
from cmbs.stores import SQLiteStore
from tests.support.cli import invoke
from tests.support.http_server import TIMEOUT_SECONDS, environment_with, serving
from tests.support.transports import DECLARATION
from tests.support.warm import CMBS


@pytest.mark.slow
@pytest.mark.req("LIVE-10")
def test_what_happens_is_printed_and_goes_on_after_the_server_was_away(tmp_path: Path) -> None:
    with serving(tmp_path) as server, server.client() as client:
        session_id = client.post("/v1/sessions", json=DECLARATION).json()["session_id"]
        path = f"/v1/sessions/{session_id}"
        entering = {"obligation_id": "o", "min_total_eliminations": 1}
        client.post(f"{path}/obligations", json=entering)
        client.post(f"{path}/conclusions", json={"conclusion_id": "early"})
        eliminating = {"source_id": "s", "observation_id": "o", "eliminated": ["a", "b"]}
        client.post(f"{path}/eliminate", json=eliminating)
        printed = invoke("follow", session_id, "--from-start", "--limit", "4", "--server", server.url)
        assert printed.exit_code == 0, printed.output
        lines = [line.split(" ", 1)[1] for line in printed.stdout.splitlines()]
        assert lines == [
            "#0 DECLARE_SESSION",
            "#1 ENTER_OBLIGATION o",
            "#2 DECLARE_CONCLUSION early obligation_active",
            "#3 ELIMINATE s o -2",
        ]
        refused = invoke(
            "follow",
            "--all",
            "--refused",
            "--after",
            "",
            "--limit",
            "1",
            "--server",
            server.url,
            "--json",
            "--from-start",
        )
        assert json.loads(refused.stdout)["entry"]["seq"] == 2
        following = subprocess.Popen(
            [CMBS, "follow", session_id, "--after", "3", "--limit", "2", "--json", "--server", server.url],
            env=environment_with({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        client.post(f"{path}/eliminate", json={**eliminating, "observation_id": "p", "eliminated": ["c"]})
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["seq"] == 4
        port = server.port
        server.kill()
    with serving(tmp_path, port=port) as server, server.client() as client:
        client.post(f"{path}/obligations/o/exit", json={})
        out, err = following.communicate(timeout=TIMEOUT_SECONDS)
        assert (json.loads(out)["seq"], following.returncode) == (5, 0)
        assert "connecting again" in err


@pytest.mark.slow
@pytest.mark.req("LIVE-10")
def test_what_cannot_be_followed_is_an_error(tmp_path: Path) -> None:
    registry = KeyRegistry(SQLiteStore(tmp_path / "cmbs.db"))
    key = registry.create(None, "ops", roles=[Role.OPERATOR])
    for arguments in ((), ("s", "--all"), ("s", "--verb", "X"), ("s", "--server", "nowhere")):
        assert invoke("follow", *arguments).exit_code == 2
    with serving(tmp_path) as server:
        refused = invoke("follow", "s", "--server", server.url)
        assert (refused.exit_code, "UNAUTHENTICATED" in refused.stderr) == (2, True)
        missing = invoke("follow", "s", "--server", server.url, CMBS_KEY=key.text)
        assert (missing.exit_code, "SESSION_NOT_FOUND" in missing.stderr) == (2, True)
        absent = invoke("follow", "--space", "nope", "--server", server.url, CMBS_KEY=key.text)
        assert (absent.exit_code, "SPACE_NOT_FOUND" in absent.stderr) == (2, True)
