"""Proposals of other spaces while a policy file of 5 MB is put in force over the same server, beside their usual time.

The server is a process of its own over SQLite, and everything goes over HTTP. Putting a file in force is all of it: the
file is read and compiled, its constraints are compiled and examined, and both are recorded in one entry.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from bench.harness import Effort, Result, at_most, microseconds
from bench.neighbours import Latencies, time_calls_during
from bench.servers import HOST, cmbs_serve, disk_directory

NAME = "policy_swap"
RULES = 19_000
NEIGHBOURS = 4
_WARM_UP_SECONDS, _USUAL_SECONDS = 1.0, 6.0
_TIMEOUT_SECONDS = 300.0
_OPERATOR, _AGENT = "operator:bench", "agent:agent"
_ALLOW = json.dumps({"v": 1, "effect": "allow", "subject": None, "when": {"op": "missing", "args": ["$tool.id"]}})


def run(effort: Effort) -> list[Result]:
    """Time the neighbours without and with a change of policy, in turns."""
    files = [make_file(f"version-{number}") for number in range(max(1, effort.rounds // 3))]
    usual: list[Latencies] = []
    meanwhile: list[Latencies] = []
    with disk_directory() as directory, cmbs_serve(f"sqlite:///{directory}/bench.db") as port:
        neighbours = [_make_proposer(port, f"neighbour-{number}") for number in range(NEIGHBOURS)]
        operator = _Client(port, _OPERATOR)
        operator.create("large")
        time_calls_during(lambda: time.sleep(_WARM_UP_SECONDS), neighbours)
        for file in files:
            usual.append(time_calls_during(lambda: time.sleep(_USUAL_SECONDS), neighbours))
            meanwhile.append(time_calls_during(partial(operator.put_policy, "large", file), neighbours))
    before, during = _typical(usual), _typical(meanwhile)
    measured = f"proposals of other spaces while {RULES:,} rules, {len(files[0]) / 1e6:.1f} MB, are put in force"
    return [
        Result(
            NAME,
            f"p99 of {measured}: {microseconds(during.p99)} ({during})",
            f"usually: {microseconds(before.p99)} ({before})",
            during.p99 / before.p99,
            at_most(3),
        )
    ]


def make_file(version: str) -> bytes:
    """A policy file in YAML: a rule for each of many services, with a condition of three parts."""
    rules = [
        f"- name: restart-{number:05}\n"
        f"  allow: service-{number:05}.restart\n"
        "  when: >\n"
        f'    case.belief.n_survivors == 1 && args.service == "service-{number:05}" &&\n'
        "    case.belief.independent.n_survivors == 1\n"
        "  otherwise: defer\n"
        f"  because: restart only what is known to be the cause ({version}, {number:05})\n"
        for number in range(RULES)
    ]
    return ("format: 2\nrules:\n" + "".join(rules)).encode()


def _typical(found: list[Latencies]) -> Latencies:
    """The round in the middle, by its slowest calls."""
    return sorted(found, key=lambda each: each.p99)[len(found) // 2]


class _Client:
    """One connection that speaks as one actor."""

    def __init__(self, port: int, actor: str) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT_SECONDS)
        self._actor = actor

    def send(self, method: str, path: str, body: bytes, media_type: str = "application/json") -> Any:
        self._connection.request(method, path, body, {"Content-Type": media_type, "X-Cmbs-Actor": self._actor})
        response = self._connection.getresponse()
        answer = response.read()
        if response.status not in (200, 201):
            raise RuntimeError(f"{method} {path} answered {response.status}: {answer[:400]!r}")
        return json.loads(answer)

    def create(self, space_id: str) -> str:
        """Create a space where one operator changes the policy; its snapshot id."""
        space = {"space_id": space_id, "policy": {"constraint.deltas": _ALLOW}, "operators_needed": 1}
        snapshot_id: str = self.send("POST", "/v1/spaces", json.dumps(space).encode())["state_snapshot_id"]
        return snapshot_id

    def put_policy(self, space_id: str, file: bytes) -> None:
        """Put a file in force."""
        answer = self.send("PUT", f"/v1/spaces/{space_id}/policy", file, "application/yaml")
        if answer["status"] != "applied":
            raise RuntimeError(f"a policy that should be in force is {answer['status']}")


def _make_proposer(port: int, space_id: str) -> Callable[[], object]:
    """A caller that proposes one goal after the other in a space of its own."""
    client, numbers = _Client(port, _AGENT), count()
    snapshot_id = _Client(port, _OPERATOR).create(space_id)

    def propose() -> None:
        nonlocal snapshot_id
        number = next(numbers)
        proposal = {
            "proposal_id": f"proposal-{number}",
            "state_snapshot_id": snapshot_id,
            "provenance": {"source": "agent", "timestamp": "2026-01-31T09:30:00Z", "inputs": ["observation-1"]},
            "candidates": [{"type": "state_delta", "set": {f"goal.{number % 100}": f"value {number}"}}],
        }
        answer = client.send("POST", f"/v1/spaces/{space_id}/proposals", json.dumps(proposal).encode())
        if answer["status"] != "committed":
            raise RuntimeError(f"a proposal that should have been committed is {answer['status']}")
        # That of the step before: what it set since is another goal.
        snapshot_id = answer["decision"]["state_snapshot_id"]

    return propose
