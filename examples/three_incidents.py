"""Three incidents at a time, one policy: `python examples/three_incidents.py [DIRECTORY]`.

A real server with keys, an HTTP endpoint that restarts services and an MCP server that files tickets. One policy file,
`policy/on_call.yaml`, names no incident. Each incident has a session, a case and an agent. Independent observers solve
one of them: only its own action runs. Then an agent tries to open its own gate; each attempt is refused or of no
effect, and on record. In the end the store is verified, and a proof of the one restart is checked without cmbs.

Without a directory everything lies in a temporary one. Ends with 1 where something is not as it should be.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2

CMBS = Path(sys.executable).with_name("cmbs")
EXAMPLES = Path(__file__).resolve().parent
POLICY = EXAMPLES / "policy" / "on_call.yaml"
# Without settings that happen to be there: a store, above all.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("CMBS_")}
TIMEOUT_SECONDS = 60.0
SECRET = "Bearer example-of-a-token"
SERVICES = ["checkout", "search", "login"]
SOLVED, GREEDY, OTHER = SERVICES
# What may be wrong with a service, and what would have to be restarted then.
CAUSES = {"bad-deploy": None, "disk-full": "storage", "dns": "resolver"}
GRAPH = {"causal_graph_ref": "graph://services", "causal_graph_version": "1"}
ONTOLOGY = {"hypothesis_space_id": "services", "hypothesis_version": "1", **GRAPH}


class Checks:
    """What was found to be so, and whether all of it was expected."""

    def __init__(self) -> None:
        self.good = True

    def expect(self, what: str, found: Any, expected: Any) -> None:
        """Print a finding; note where it is another one than expected."""
        is_so = found == expected
        self.good = self.good and is_so
        print(f"  {what}: {json.dumps(found)}" + ("" if is_so else f", but expected {json.dumps(expected)}"))


class Desk:
    """The server's store and URL, and a client for each key."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url, self._directory = url, directory
        self.clients: dict[str, httpx2.Client] = {}

    def run(self, *command: str | Path) -> list[str]:
        """Run a command next to the store; the lines that it printed."""
        options: dict[str, Any] = {"cwd": self._directory, "env": ENVIRONMENT, "capture_output": True, "text": True}
        ran = subprocess.run(command, check=False, **options)
        if ran.returncode != 0:
            raise RuntimeError(f"{command}: {ran.stderr}")
        return str(ran.stdout).splitlines()

    def make_key(self, actor_id: str, *options: str) -> None:
        """Make a key, and wait until the server knows it."""
        (key,) = self.run(CMBS, "keys", "create", "--id", actor_id, *options)
        headers = {"authorization": f"Bearer {key}"}
        self.clients[actor_id] = httpx2.Client(base_url=self._url, headers=headers, timeout=TIMEOUT_SECONDS)
        wait_until(lambda: self.clients[actor_id].get("/v1/whoami").is_success)

    def ask(self, actor_id: str, path: str, body: Any = None) -> dict[str, Any]:
        """GET, or POST a body; the answer, an error too."""
        client = self.clients[actor_id]
        answer = client.get(path) if body is None else client.post(path, json=body)
        content: dict[str, Any] = answer.json()
        return content

    def tell(self, actor_id: str, path: str, body: Any) -> dict[str, Any]:
        """POST what must be granted; the answer."""
        answer = self.ask(actor_id, path, body)
        if "error" in answer or not answer.get("granted", True):
            raise RuntimeError(json.dumps(answer))
        return answer

    def propose(self, service: str, tool_id: str, args: dict[str, Any], **parts: Any) -> dict[str, Any]:
        """A call that the agent of a service proposes, in its own case unless the parts say otherwise."""
        actor_id = parts.pop("actor_id", agent_of(service))
        snapshot_id = self.ask(actor_id, "/v1/spaces/ops")["state_snapshot_id"]
        key = parts.get("proposal_id", f"{tool_id} {service}")
        call = {"type": "tool_call", "tool_id": tool_id, "args": args, "idempotency_key": key}
        body = {
            "proposal_id": key,
            "state_snapshot_id": snapshot_id,
            "provenance": {"source": actor_id, "timestamp": "2026-01-31T09:30:00Z"},
            "candidates": [{**call, "capability_token_id": f"token of {actor_id}"}],
            "case_id": f"INC-{service}",
            **parts,
        }
        return self.ask(actor_id, "/v1/spaces/ops/proposals", body)

    def restart(self, service: str, **parts: Any) -> tuple[str, str]:
        """Propose a restart; where it stands, and why."""
        answer = self.propose(service, "service.restart", {"service": service}, **parts)
        return answer["status"], answer["decision"]["reason_code"]

    def rule_out(self, actor_id: str, session_id: str, source_id: str, causes: list[str]) -> dict[str, Any]:
        """An elimination; the actor is who holds the key, whatever the source is called."""
        body = {"source_id": source_id, "observation_id": f"{source_id} {causes}", "eliminated": causes}
        return self.ask(actor_id, f"/v1/sessions/{session_id}/eliminate", body)

    def status(self, service: str, query: str = "") -> str:
        """Where the first restart of a service stands."""
        path = f"/v1/spaces/ops/proposals/service.restart {service}{query}"
        return str(self.ask(agent_of(service), path)["status"])

    def audit(self, path: str) -> list[dict[str, Any]]:
        """Every entry of a session or a space."""
        return list(self.ask("root", f"{path}/audit?limit=1000")["events"])


def main(directory: Path) -> int:
    checks = Checks()
    with control() as (control_url, restarted), serving(directory) as url:
        desk = Desk(url, directory)
        sessions = set_up(desk, control_url)
        solve_one(desk, checks, sessions, restarted, directory)
        open_its_own_gate(desk, checks, sessions)
        allowed = show_record(desk, checks, sessions[GREEDY])
        for client in desk.clients.values():
            client.close()
    checks.expect("restarted in the end", restarted, [SOLVED])
    verify(desk, checks, directory, allowed)
    print("everything is as it should be" if checks.good else "something is not as it should be")
    return 0 if checks.good else 1


def set_up(desk: Desk, control_url: str) -> dict[str, str]:
    """The keys, the space, its one policy, and an incident for each service; their sessions."""
    desk.make_key("root", "--role", "operator")
    desk.make_key("harness", "--role", "harness")
    for observer in ("disk-watch", "dns-watch"):
        desk.make_key(observer, "--kind", "tool", "--scope", "belief:read", "--scope", "belief:write")
    desk.tell("root", "/v1/spaces", {"space_id": "ops"})
    headers = {"content-type": "application/yaml"}
    put = desk.clients["root"].put("/v1/spaces/ops/policy", content=POLICY.read_bytes(), headers=headers).json()
    print(f"one policy, written once: {put['status']}")
    secret = {"Authorization": "CMBS_TOOL_SECRET_CONTROL"}
    restart = {"url": control_url + "/services/{service}/restart", "headers": secret}
    ticket = {"server": "desk", "tool": "file_ticket"}
    for tool_id, kind, target in (("service.restart", "http", restart), ("ticket.file", "mcp", ticket)):
        tool = {"tool_id": tool_id, "kind": kind, "target": target, "args_schema": {"type": "object"}}
        desk.tell("root", "/v1/spaces/ops/tools", tool)
    return {service: begin(desk, service) for service in SERVICES}


def begin(desk: Desk, service: str) -> str:
    """An incident: the harness declares a session and opens a case; the agent gets a key for this session alone."""
    components = {cause: {"component": component or service} for cause, component in CAUSES.items()}
    agent_id = agent_of(service)
    declared = {"ontology": ONTOLOGY, "hypotheses": list(CAUSES), "hypothesis_attributes": components}
    declared |= {"name": f"INC-{service}", "agents": [agent_id]}
    session_id = str(desk.tell("harness", "/v1/sessions", declared)["session_id"])
    case = {"case_id": f"INC-{service}", "attributes": {"service": service}}
    desk.tell("harness", "/v1/spaces/ops/cases", case)
    scopes = [f"belief:read@{session_id}", f"belief:write@{session_id}", "spaces:read@ops", "spaces:propose@ops"]
    # One key is too wide by mistake: it could open cases, if its holder were not an agent.
    scopes += ["spaces:cases@ops"] if service == GREEDY else []
    desk.make_key(agent_id, *(word for scope in scopes for word in ("--scope", scope)))
    token = {"token_id": f"token of {agent_id}", "agent_id": agent_id, "tool_ids": ["service.restart", "ticket.file"]}
    desk.tell("root", "/v1/spaces/ops/capabilities", token)
    return session_id


def solve_one(desk: Desk, checks: Checks, sessions: dict[str, str], restarted: list[str], directory: Path) -> None:
    """Every agent acts on its incident; observers that are no agents solve one of them."""
    print("three incidents, three causes each, and every agent wants to act")
    for service in SERVICES:
        desk.propose(service, "ticket.file", {"title": f"{service} is slow", "severity": 2})
        checks.expect(f"restart of {service}", desk.restart(service), ("parked", "ALLOW_UNMET"))
    wait_until(lambda: len(desk.ask("root", "/v1/spaces/ops/proposals?status=committed")["proposals"]) == len(SERVICES))
    filed = [json.loads(line)["title"] for line in (directory / "tickets.jsonl").read_text("utf-8").splitlines()]
    checks.expect("tickets filed", sorted(filed), sorted(f"{service} is slow" for service in SERVICES))
    checks.expect("restarted so far", restarted, [])
    print(f"two observers rule out what is not wrong with {SOLVED}")
    desk.rule_out("disk-watch", sessions[SOLVED], "probe://disk", ["disk-full"])
    desk.rule_out("dns-watch", sessions[SOLVED], "probe://dns", ["dns"])
    checks.expect(f"restart of {SOLVED}", desk.status(SOLVED, "?wait=20"), "committed")
    parked = desk.ask("root", "/v1/spaces/ops/proposals?status=parked")["proposals"]
    waiting = sorted(f"service.restart {service}" for service in SERVICES if service != SOLVED)
    checks.expect("still waiting", sorted(each["proposal_id"] for each in parked), waiting)
    checks.expect("restarted so far", restarted, [SOLVED])


def open_its_own_gate(desk: Desk, checks: Checks, sessions: dict[str, str]) -> None:
    """What an agent can try, and what comes of it."""
    agent, other = agent_of(GREEDY), agent_of(OTHER)
    session_id, unmet, no_case = sessions[GREEDY], ("parked", "ALLOW_UNMET"), ("denied", "NO_CASE")
    print(f"{agent} tries to open its own gate")
    left = desk.rule_out(agent, session_id, agent, ["disk-full", "dns"])["snapshot"]["survivors"]
    checks.expect("it eliminates by itself, and is left with", left, ["bad-deploy"])
    checks.expect("  its restart", desk.restart(GREEDY, proposal_id="by itself"), unmet)
    for source_id, cause in (("probe://disk", "disk-full"), ("probe://dns", "dns")):
        desk.rule_out(agent, session_id, source_id, [cause])
    checks.expect("under the observers' source ids", desk.restart(GREEDY, proposal_id="as an observer"), unmet)
    refused = desk.rule_out(other, session_id, "probe://dns", ["dns"])["error"]["details"]["reason"]
    checks.expect(f"with the key of {other}, it eliminates", refused, "missing_scope")
    stolen = desk.restart(GREEDY, proposal_id="with another key", actor_id=other)
    checks.expect(f"with the key of {other}, it proposes", stolen, no_case)
    elsewhere = desk.restart(GREEDY, proposal_id="elsewhere", case_id=f"INC-{SOLVED}")
    checks.expect("through the incident that is solved", elsewhere, no_case)
    case = {"case_id": f"INC-{SOLVED}", "agents": [agent]}
    opened = desk.ask(agent, "/v1/spaces/ops/cases", case)
    checks.expect(
        "it admits that case for itself", (opened["granted"], opened["reason_code"]), (False, "NOT_AUTHORISED")
    )
    again = desk.restart(GREEDY, proposal_id="there again", case_id=f"INC-{SOLVED}")
    checks.expect("  its restart there", again, no_case)
    checks.expect("its first restart", desk.status(GREEDY), "parked")


def show_record(desk: Desk, checks: Checks, session_id: str) -> list[int]:
    """The attempts are in the logs, with who made them; where in the log of the space restarts were let through."""
    print("all of it is on record")
    agent, entries = agent_of(GREEDY), desk.audit("/v1/spaces/ops")
    eliminations = [each for each in desk.audit(f"/v1/sessions/{session_id}") if each["verb"] == "ELIMINATE"]
    said = [(each["actor"]["id"], each["payload"]["source_id"]) for each in eliminations]
    checks.expect("eliminations", said, [(agent, agent), (agent, "probe://disk"), (agent, "probe://dns")])
    intents = [(each["seq"], intent) for each in entries for intent in (each["outcome"] or {}).get("intents", [])]
    allowed = [seq for seq, intent in intents if intent["tool_id"] == "service.restart"]
    attempts = [
        each for each in entries if each["seq"] > max(allowed, default=0) and each["verb"] in {"PROPOSE", "OPEN_CASE"}
    ]
    for each in attempts:
        decision, readings = each["outcome"].get("decision", each["outcome"]), each["payload"].get("belief", [])
        told = [one for one in readings if "independent" in one]
        read = [f"{one['n_survivors']} left, {one['independent']['n_survivors']} by others" for one in told]
        print(" ", each["seq"], each["verb"], each["actor"]["id"], decision["reason_code"], *read)
    checks.expect("attempts in the space", len(attempts), 6)
    return allowed


def verify(desk: Desk, checks: Checks, directory: Path, allowed: list[int]) -> None:
    """The store by itself, once the server is gone; the restart by a proof, without cmbs."""
    print("the server is gone; the store is checked, and a proof without it")
    for command in ("verify", "fsck"):
        checks.expect(command, desk.run(CMBS, command)[-1].split(", ")[-1], "0 bad")
    # What a scope refuses does not reach a session, so it is in the log of the server and not in that of the session.
    refused = [line for line in (directory / "serve.log").read_text("utf-8").splitlines() if '" 403 ' in line]
    checks.expect("requests that a scope refused", ["/eliminate" in line for line in refused], [True])
    checks.expect("entries that let a restart run", len(allowed), 1)
    desk.run(CMBS, "proof", "decision", "ops", "--at", str(allowed[0]), "--out", "proof.json")
    desk.run(CMBS, "verifier", "--out", "verifier.py")
    print("  " + desk.run(sys.executable, "-I", "verifier.py", "proof.json")[0])


@contextmanager
def serving(directory: Path) -> Iterator[str]:
    """`cmbs serve` on loopback, with the store in the directory; its URL."""
    command = [sys.executable, str(EXAMPLES / "incident_desk.py"), "stdio", str(directory / "tickets.jsonl")]
    servers = directory / "servers.json"
    servers.write_text(json.dumps({"servers": {"desk": {"transport": "stdio", "command": command}}}), "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environment = {**ENVIRONMENT, "CMBS_TOOL_SERVERS": str(servers), "CMBS_TOOL_SECRET_CONTROL": SECRET}
    with (directory / "serve.log").open("wb") as log:
        serve = [str(CMBS), "serve", "--port", str(port), "--access-log"]
        process = subprocess.Popen(serve, cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: httpx2.get(f"{url}/readyz").is_success)
        yield url
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)


@contextmanager
def control() -> Iterator[tuple[str, list[str]]]:
    """A service control on loopback that wants to be told the token; its URL, and what it restarted."""
    restarted: list[str] = []

    class Control(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            service = self.path.split("/")[2]
            self.rfile.read(int(self.headers["content-length"]))
            if self.headers["authorization"] != SECRET:
                self.send_error(403)
                return
            restarted.append(service)
            body = json.dumps({"service": service, "state": "up"}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name that it overrides
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Control) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", restarted
        finally:
            server.shutdown()
            thread.join()


def agent_of(service: str) -> str:
    return f"{service}-agent"


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return once something is so; fail where it is not in time."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        with suppress(httpx2.TransportError):
            if is_so():
                return
        time.sleep(0.05)
    raise TimeoutError("it did not come to that")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1]).resolve()))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(Path(temporary)))
