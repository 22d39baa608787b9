"""`cmbs serve` with real tools: what an agent proposes over HTTP is gated on belief, run once, and wakes by itself."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support import mcp_tools
from tests.support.http_server import ServerProcess, open_client, run_cmbs, serving
from tests.support.tool_endpoint import Endpoint, listening
from tests.support.transports import ONTOLOGY

pytestmark = pytest.mark.slow

OPERATOR, AGENT = "operator:root", "agent:scout"
SECRET = "Bearer very-secret-token"
TIMEOUT_SECONDS = 30.0


class Ops:
    """A space over HTTP."""

    def __init__(self, url: str) -> None:
        self._client = open_client(url)
        self.session_id = ""

    def sent(self, path: str, content: Any, actor: str = OPERATOR) -> httpx2.Response:
        return self._client.post(path, json=content, headers={"X-Cmbs-Actor": actor})

    def post(self, path: str, content: Any, actor: str = OPERATOR) -> Any:
        answer = self.sent(path, content, actor)
        assert answer.is_success, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        answer = self._client.get(path, headers={"X-Cmbs-Actor": OPERATOR})
        assert answer.is_success, answer.text
        return answer.json()

    def propose(self, tool_id: str, args: dict[str, Any], proposal_id: str) -> Any:
        call = {"type": "tool_call", "tool_id": tool_id, "args": args}
        proposal = {
            "proposal_id": proposal_id,
            "state_snapshot_id": self.get("/v1/spaces/ops")["state_snapshot_id"],
            "provenance": {"source": "scout", "timestamp": "2026-01-31T09:30:00Z", "permissions": ["token"]},
            "candidates": [call | {"capability_token_id": "token", "idempotency_key": f"key of {proposal_id}"}],
        }
        return self.post("/v1/spaces/ops/proposals", proposal, AGENT)

    def settled(self, proposal_id: str) -> Any:
        """The proposal, once nothing more is to be waited for."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < until:
            proposal: Any = self.get(f"/v1/spaces/ops/proposals/{proposal_id}")
            if proposal["status"] not in {"running", "parked", "asked"}:
                return proposal
        raise AssertionError(f"`{proposal_id}` still waits")

    def result_of(self, proposal: Any) -> Any:
        (execution_id,) = proposal["execution_ids"]
        return self.get(f"/v1/spaces/ops/executions/{execution_id}")

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with listening() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def server(endpoint: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("serve")
    desk = [sys.executable, mcp_tools.__file__, "stdio", str(directory / "notes")]
    servers = {"servers": {"desk": {"transport": "stdio", "command": desk}}}
    (directory / "servers.json").write_text(json.dumps(servers), "utf-8")
    variables = {"CMBS_TOOL_SERVERS": "servers.json", "CMBS_TOOL_SECRET_CONTROL": SECRET}
    with serving(directory, "--workers", "2", variables=variables) as server:
        yield server


@pytest.fixture(scope="module")
def ops(server: ServerProcess, endpoint: Endpoint) -> Iterator[Ops]:
    ops = Ops(server.url)
    declared = ops.post("/v1/sessions", {"ontology": ONTOLOGY, "hypotheses": ["bad-deploy", "disk-full", "dns"]}, AGENT)
    ops.session_id = declared["session_id"]
    known = {"op": "schema", "args": [f"$belief.{declared['session_id']}.n_survivors", {"const": 1}]}
    constraints: dict[str, dict[str, Any]] = {
        "restart": {"subject": {"tool_id": "restart"}, "when": known, "on_fail": "defer"},
        "add": {"subject": {"tool_id": "add"}},
    }
    policy = {
        f"constraint.{name}": json.dumps({"v": 1, "effect": "allow"} | constraint)
        for name, constraint in constraints.items()
    }
    ops.post("/v1/spaces", {"space_id": "ops", "policy": policy})
    secret = {"Authorization": "CMBS_TOOL_SECRET_CONTROL"}
    tools: dict[str, dict[str, Any]] = {
        "restart": {"kind": "http", "target": {"url": endpoint.url + "/services/{service}", "headers": secret}},
        "add": {"kind": "mcp", "target": {"server": "desk"}},
    }
    for tool_id, tool in tools.items():
        ops.post("/v1/spaces/ops/tools", {"tool_id": tool_id, "args_schema": {}} | tool)
    token = {"token_id": "token", "agent_id": "scout", "tool_ids": sorted(tools)}
    ops.post("/v1/spaces/ops/capabilities", token)
    yield ops
    ops.close()


@pytest.mark.slow
@pytest.mark.req("SS01-BELIEF-01", "SS01-TOOL-01")
def test_a_gated_call_wakes_by_itself_whichever_process_hears_of_it(
    ops: Ops, endpoint: Endpoint, server: ServerProcess
) -> None:
    session_id = ops.session_id
    assert ops.propose("restart", {"service": "checkout"}, "restart-1")["status"] == "parked"
    for cause in ("disk-full", "dns"):
        assert endpoint.seen == []
        body = {"source_id": "probe", "observation_id": cause, "eliminated": [cause]}
        ops.post(f"/v1/sessions/{session_id}/eliminate", body, AGENT)
    done = ops.settled("restart-1")
    assert done["status"] == "committed"
    assert ops.result_of(done)["result"] == {"at": "/services/checkout"}
    (seen,) = endpoint.seen
    assert (seen.headers["authorization"], seen.headers["idempotency-key"]) == (SECRET, "key%20of%20restart-1")
    assert SECRET.split()[1] not in json.dumps(ops.get("/v1/spaces/ops/audit"))


@pytest.mark.slow
@pytest.mark.req("SS01-TOOL-01")
def test_a_tool_of_an_mcp_server_is_run(ops: Ops) -> None:
    ops.propose("add", {"a": 1, "b": 2}, "add-1")
    assert ops.result_of(ops.settled("add-1"))["result"] == {"sum": 3}


@pytest.mark.req("SS01-TOOL-05")
def test_a_target_that_reaches_for_more_is_refused(subtests: pytest.Subtests, ops: Ops) -> None:
    for tool in [
        {"kind": "http", "target": {"url": "https://host/", "headers": {"X": "CMBS_STORE"}}},
        {"kind": "mcp", "target": {"server": "s", "command": ["sh"]}},
        {"kind": "python", "target": {"module": "os"}},
    ]:
        with subtests.test(tool=tool):
            answer = ops.sent("/v1/spaces/ops/tools", {"tool_id": "bad", "args_schema": {}} | tool)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.slow
@pytest.mark.req("SS01-TOOL-05")
def test_a_file_of_servers_that_makes_no_sense_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"servers": {"s": {"transport": "stdio", "command": []}}}', "utf-8")
    ran = run_cmbs("serve", "--store", "memory:", directory=tmp_path, variables={"CMBS_TOOL_SERVERS": "servers.json"})
    assert ran.returncode != 0
    assert "server `s`: `command` must name a program" in ran.stderr + ran.stdout
