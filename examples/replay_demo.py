"""Declare, eliminate twice, read back, and prove that the audit log alone leads to the same survivors.

Needs a running server (`make serve`) and the bare package. Exits with 1 where the replay does not match.

    python examples/replay_demo.py [http://127.0.0.1:8080]
"""

import json
import sys
import urllib.error
import urllib.request
from typing import Any

from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.kernel.views import snapshot
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import from_audit_entry
from cmbs.messages import AuditEntry

DEFAULT_URL = "http://127.0.0.1:8080"

DECLARATION = {
    "ontology": {
        "hypothesis_space_id": "checkout-latency",
        "hypothesis_version": "3",
        "causal_graph_ref": "graph://checkout",
        "causal_graph_version": "v17",
    },
    "hypotheses": ["bad-deploy", "disk-full", "dns", "pool-exhausted"],
    "metadata": {"incident": "INC-204"},
}
OBSERVATIONS = [
    {
        "source_id": "probe://disk",
        "observation_id": "df-1",
        "eliminated": ["disk-full"],
        "justification": {"free_percent": 41},
    },
    {
        "source_id": "probe://dns",
        "observation_id": "dig-1",
        "eliminated": ["dns", "disk-full"],
        "justification": {"resolved_in_ms": 2},
    },
]


def call(method: str, url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def play(url: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Have a session on the server; its final snapshot and its audit log."""
    declared = call("POST", f"{url}/v1/sessions", DECLARATION)
    session = f"{url}/v1/sessions/{declared['session_id']}"
    print(f"declared   {declared['session_id']}: {', '.join(declared['snapshot']['survivors'])}")
    for observation in OBSERVATIONS:
        outcome = call("POST", f"{session}/eliminate", observation)
        print(
            f"eliminated {observation['source_id']} {observation['observation_id']}:"
            f" applied {outcome['applied_eliminated']}, ignored {outcome['ignored_eliminated']}"
        )
    belief = call("GET", session)
    print(f"snapshot   {belief['n_survivors']} survive: {', '.join(belief['survivors'])}")
    events: list[dict[str, Any]] = call("GET", f"{session}/audit")["events"]
    print(f"audit      {len(events)} events: {', '.join(event['verb'] for event in events)}")
    return belief, events


def replay(session_id: str, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The snapshot that the audit log proves; it is given nothing else."""
    entries = [from_audit_entry(AuditEntry.from_dict(event)) for event in events]
    return snapshot(verify_session(session_id, entries)).to_dict()


def main(arguments: list[str]) -> int:
    url = (arguments[0] if arguments else DEFAULT_URL).rstrip("/")
    try:
        belief, events = play(url)
    except urllib.error.HTTPError as error:
        print(f"{error.url} answered {error.code}: {error.read().decode()}", file=sys.stderr)
        return 2
    except (OSError, ValueError) as error:
        print(f"no belief server at {url}: {error}; start one with `make serve`", file=sys.stderr)
        return 2
    try:
        proven = replay(belief["session_id"], events)
    except LedgerCorrupt as error:
        print(f"MISMATCH   the audit log does not verify: {error}", file=sys.stderr)
        return 1
    if proven != belief:
        print(f"MISMATCH   the log leads to {proven}, the server says {belief}", file=sys.stderr)
        return 1
    print(f"replayed   every event verified, up to {events[-1]['event_hash']}")
    print(f"proven     the log alone leads to the same snapshot: {', '.join(proven['survivors'])}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
